/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "sql/defer.h"

/* Maximum names of a kind in a statement; the search is linear. With more, nothing is deferred. */
#define NAMES_MAX 256

/* Maximum names of columns that refer to each other. With more, nothing is deferred. */
#define ALIASES_MAX 8

struct names {
	const char **name;
	size_t nb;
};

/* What is found in a statement. */
struct search {
	const struct sql_statement *s;
	int select; /* the outermost select list */
	struct names used;
	struct names tables;
	struct names ctes;
};

static bool
is_one_of(const char *text, const char *const *list)
{
	for (; *list != NULL; list++) {
		if (strcmp(text, *list) == 0)
			return true;
	}
	return false;
}

static bool
has(const char *const *names, size_t nb, const char *name)
{
	size_t i;

	for (i = 0; i < nb; i++) {
		if (strcasecmp(names[i], name) == 0)
			return true;
	}
	return false;
}

/* @return 0; -ENOMEM; -E2BIG: too many */
static int
add(struct names *n, const char *name)
{
	if (name == NULL || name[0] == '\0' || has(n->name, n->nb, name))
		return 0;
	if (n->nb == NAMES_MAX)
		return -E2BIG;
	if (n->name == NULL) {
		n->name = calloc(NAMES_MAX, sizeof(*n->name));
		if (n->name == NULL)
			return -ENOMEM;
	}
	n->name[n->nb++] = name;
	return 0;
}

/* Add the texts of a list, such as all parts of a name: which one is the column is not known. */
static int
add_all(const struct sql_statement *s, struct names *n, int list)
{
	int i, ret = 0;

	for (i = list >= 0 ? s->node[list].child : -1; i >= 0 && ret == 0; i = s->node[i].next)
		ret = add(n, s->node[i].text);
	return ret;
}

/* The outermost SELECT. @return -1: the statement is another one */
static int
outermost(const struct sql_statement *s)
{
	const int statement = sql_node_child(s, sql_node_child(s, 0, "statements"), "0");
	const int node = sql_node_child(s, statement, "node");

	return sql_node_is(s, node, "type", "SELECT_NODE") ? node : -1;
}

/* Whether the clauses of the outermost SELECT do not need the values of its columns. */
static bool
is_simple(const struct sql_statement *s, int node)
{
	static const char *const modifiers[] = {"ORDER_MODIFIER", "LIMIT_MODIFIER", NULL};
	const int list = sql_node_child(s, node, "modifiers");
	int i, k, orders;

	if (!sql_node_is_empty(s, sql_node_child(s, node, "group_expressions")) ||
		!sql_node_is_empty(s, sql_node_child(s, node, "group_sets")) ||
		!sql_node_is(s, node, "aggregate_handling", "STANDARD_HANDLING"))
		return false;
	for (i = list >= 0 ? s->node[list].child : -1; i >= 0; i = s->node[i].next) {
		if (!is_one_of(sql_node_text(s, i, "type"), modifiers))
			return false;
		orders = sql_node_child(s, i, "orders");
		for (k = orders >= 0 ? s->node[orders].child : -1; k >= 0; k = s->node[k].next) {
			/* the number of a column */
			if (sql_node_is(s, sql_node_child(s, k, "expression"), "class", "CONSTANT"))
				return false;
		}
	}
	return true;
}

/* Whether a star means all columns unchanged. Columns may be left out. */
static bool
is_plain_star(const struct sql_statement *s, int star)
{
	return sql_node_is(s, star, "columns", "false") &&
		sql_node_is_empty(s, sql_node_child(s, star, "expr")) &&
		sql_node_is_empty(s, sql_node_child(s, star, "replace_list")) &&
		sql_node_is_empty(s, sql_node_child(s, star, "rename_list"));
}

/* Examine an expression. @return 0; -E2BIG: nothing is deferred; -ENOMEM */
static int
examine_expression(struct search *f, int node, const char *class)
{
	static const char *const classes[] = {"BETWEEN", "CASE", "CAST", "COLLATE", "COLUMN_REF",
		"COMPARISON", "CONJUNCTION", "CONSTANT", "FUNCTION", "OPERATOR", "STAR", "SUBQUERY",
		"WINDOW", NULL};
	const bool in_result = f->s->node[node].parent == f->select;

	if (!is_one_of(class, classes))
		return -E2BIG;
	if (strcmp(class, "STAR") == 0)
		return in_result && is_plain_star(f->s, node) ? 0 : -E2BIG;
	if (strcmp(class, "COLUMN_REF") == 0 && !in_result)
		return add_all(f->s, &f->used, sql_node_child(f->s, node, "column_names"));
	return 0;
}

/* Examine a node of FROM. @return 0; -E2BIG: nothing is deferred; -ENOMEM */
static int
examine_table(struct search *f, int node, const char *type)
{
	static const char *const types[] = {"BASE_TABLE", "EMPTY", "EXPRESSION_LIST", "JOIN",
		"SUBQUERY", "TABLE_FUNCTION", NULL};
	static const char *const functions[] = {
		"frames", "generate_series", "images", "range", NULL};
	static const char *const joins[] = {"CROSS", "REGULAR", NULL};
	const struct sql_statement *s = f->s;
	const char *function;
	int ret;

	if (!is_one_of(type, types) ||
		!sql_node_is_empty(s, sql_node_child(s, node, "column_name_alias")) ||
		!sql_node_is_empty(s, sql_node_child(s, node, "at_clause")))
		return -E2BIG;
	function = sql_node_text(s, sql_node_child(s, node, "function"), "function_name");
	if (strcmp(type, "TABLE_FUNCTION") == 0 && !is_one_of(function, functions))
		return -E2BIG;
	if (strcmp(type, "JOIN") == 0 && !is_one_of(sql_node_text(s, node, "ref_type"), joins))
		return -E2BIG;
	ret = add(&f->tables, function);
	if (ret == 0)
		ret = add(&f->tables, sql_node_text(s, node, "alias"));
	if (ret == 0)
		ret = add(&f->tables, sql_node_text(s, node, "table_name"));
	return ret < 0 ? ret : add_all(s, &f->used, sql_node_child(s, node, "using_columns"));
}

/* Add the names of WITH. */
static int
examine_with(struct search *f, int ctes)
{
	const int map = sql_node_child(f->s, ctes, "map");
	int i, ret = 0;

	for (i = map >= 0 ? f->s->node[map].child : -1; i >= 0 && ret == 0; i = f->s->node[i].next)
		ret = add(&f->ctes, sql_node_text(f->s, i, "key"));
	return ret;
}

static int
examine_nodes(struct search *f)
{
	const struct sql_statement *s = f->s;
	const char *class;
	int ret = 0;
	size_t i;

	for (i = 0; i < s->nb_nodes && ret == 0; i++) {
		ret = examine_with(f, sql_node_child(s, (int)i, "cte_map"));
		if (ret < 0)
			break;
		class = sql_node_text(s, (int)i, "class");
		if (class[0] != '\0')
			ret = examine_expression(f, (int)i, class);
		else if (sql_node_child(s, (int)i, "sample") < 0)
			continue;
		else if (!sql_node_is_empty(s, sql_node_child(s, (int)i, "sample")))
			ret = -E2BIG;
		else if (sql_node_child(s, (int)i, "select_list") < 0)
			ret = examine_table(f, (int)i, sql_node_text(s, (int)i, "type"));
	}
	return ret;
}

/* Last part of the name of a column; "": it is none. */
static const char *
last_part(const struct sql_statement *s, int column)
{
	const int names = sql_node_child(s, column, "column_names");
	const char *last = "";
	int i;

	for (i = names >= 0 ? s->node[names].child : -1; i >= 0; i = s->node[i].next)
		last = s->node[i].text != NULL ? s->node[i].text : "";
	return last;
}

/* Whether the name of a table is in place of a column: it means a structure of all its columns. */
static bool
has_whole_row(const struct search *f)
{
	const struct sql_statement *s = f->s;
	size_t i;

	for (i = 0; i < s->nb_nodes; i++) {
		if (sql_node_is(s, (int)i, "class", "COLUMN_REF") &&
			has(f->tables.name, f->tables.nb, last_part(s, (int)i)))
			return true;
	}
	return false;
}

/*
 * ORDER BY and other clauses may use the name that the select list gives to a column. This column
 * is used, too, and it may itself be such a name of another one.
 */
static int
follow_aliases(struct search *f)
{
	const struct sql_statement *s = f->s;
	unsigned int aliases = 0;
	size_t before;
	const char *alias;
	int i, ret = 0;

	do {
		if (aliases++ > ALIASES_MAX)
			return -E2BIG;
		before = f->used.nb;
		for (i = s->node[f->select].child; i >= 0 && ret == 0; i = s->node[i].next) {
			alias = sql_node_text(s, i, "alias");
			if (alias[0] != '\0' && has(f->used.name, f->used.nb, alias))
				ret = add_all(s, &f->used, sql_node_child(s, i, "column_names"));
		}
	} while (ret == 0 && f->used.nb > before);
	return ret;
}

int
sql_defer_find(struct sql_statement *s)
{
	const int node = outermost(s);
	struct search f = {.s = s, .select = sql_node_child(s, node, "select_list")};
	int ret = 0;

	if (f.select < 0 || !is_simple(s, node))
		return 0;
	ret = examine_nodes(&f);
	if (ret == 0 && has_whole_row(&f))
		ret = -E2BIG;
	if (ret == 0)
		ret = follow_aliases(&f);
	free(f.tables.name);
	s->used = f.used.name;
	s->nb_used = f.used.nb;
	s->cte = f.ctes.name;
	s->nb_ctes = f.ctes.nb;
	s->may_defer = ret == 0;
	return ret == -E2BIG ? 0 : ret;
}

bool
sql_defer_may(const struct sql_statement *s, const char *column)
{
	return s->may_defer && !has(s->used, s->nb_used, column);
}

bool
sql_defer_is_cte(const struct sql_statement *s, const struct sql_name *name)
{
	return name->catalog[0] == '\0' && name->schema[0] == '\0' &&
		has(s->cte, s->nb_ctes, name->table);
}
