/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "sql/statement.h"

static const char serialize_sql[] = "SELECT json_serialize_sql(CAST($1 AS VARCHAR))";

/*
 * The same tree as rows, which takes ten times longer: DuckDB plans it again for each statement.
 * Parents have lower numbers than their children. The text is an argument of the table function:
 * a join with a table that has it would copy it into every row.
 */
static const char tree_sql[] =
	"SELECT t.id::UBIGINT, t.parent::UBIGINT, t.key, json_extract_string(t.atom, '$'), "
	"t.type IN ('UBIGINT', 'BIGINT') "
	"FROM json_tree(json_serialize_sql(CAST($1 AS VARCHAR))) t ORDER BY 1";

/*
 * Table functions that a statement may call. Others read files or settings, change the state of the
 * engine, or hide the name of a table from the parser (query, query_table).
 */
static const char *const table_functions[] = {
	"duckdb_columns",
	"duckdb_functions",
	"duckdb_keywords",
	"duckdb_memory",
	"duckdb_schemas",
	"duckdb_tables",
	"duckdb_types",
	"duckdb_views",
	"frames",
	"generate_series",
	"generate_subscripts",
	"images",
	"json_each",
	"json_tree",
	"pragma_version",
	"range",
	"repeat",
	"repeat_row",
	"summary",
	"unnest",
};

/*
 * Other functions that a statement must not call, in any schema: they return a setting, which may
 * be a path of this machine, or write to the log of the engine.
 */
static const char *const forbidden_functions[] = {
	"current_setting",
	"write_log",
};

/* Copy a text of a result. @return NULL: the value is null */
static const char *
keep_text(const struct duckdb_api *api, duckdb_vector vector, uint64_t row, char **at)
{
	const uint64_t *validity = api->vector_get_validity(vector);
	const union duckdb_text *text = api->vector_get_data(vector);
	char *kept = *at;

	if (validity != NULL && !(validity[row / 64] >> row % 64 & 1))
		return NULL;
	memcpy(kept, duckdb_text_bytes(&text[row]), text[row].length);
	kept[text[row].length] = '\0';
	*at += text[row].length + 1;
	return kept;
}

static uint64_t
chunk_text_bytes(const struct duckdb_api *api, duckdb_chunk chunk, uint64_t rows)
{
	uint64_t bytes = 0, row, column;

	for (column = 2; column <= 3; column++) {
		duckdb_vector vector = api->data_chunk_get_vector(chunk, column);
		const uint64_t *validity = api->vector_get_validity(vector);
		const union duckdb_text *text = api->vector_get_data(vector);

		for (row = 0; row < rows; row++) {
			if (validity == NULL || validity[row / 64] >> row % 64 & 1)
				bytes += text[row].length + 1;
		}
	}
	return bytes;
}

static int
by_id(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = ((const struct sql_node *)b)->id;

	return x < y ? -1 : x > y;
}

/* Append the nodes of a chunk. @return 0; -ENOMEM */
static int
take_chunk(struct sql_statement *s, const struct duckdb_api *api, duckdb_chunk chunk)
{
	const uint64_t rows = api->data_chunk_get_size(chunk);
	const uint64_t *id = api->vector_get_data(api->data_chunk_get_vector(chunk, 0));
	duckdb_vector parents = api->data_chunk_get_vector(chunk, 1);
	const uint64_t *parent = api->vector_get_data(parents);
	const uint64_t *has_parent = api->vector_get_validity(parents);
	duckdb_vector integers = api->data_chunk_get_vector(chunk, 4);
	const uint8_t *is_integer = api->vector_get_data(integers);
	struct sql_node *nodes, *n, *of;
	uint64_t i;
	char *at;

	nodes = realloc(s->node, (s->nb_nodes + rows + 1) * sizeof(*nodes));
	if (nodes == NULL)
		return -ENOMEM;
	s->node = nodes;
	/* one block of texts for each chunk, in a list through its first bytes */
	at = malloc(sizeof(char *) + chunk_text_bytes(api, chunk, rows) + 1);
	if (at == NULL)
		return -ENOMEM;
	memcpy(at, &s->texts, sizeof(char *));
	s->texts = at;
	at += sizeof(char *);
	for (i = 0; i < rows; i++) {
		n = &nodes[s->nb_nodes];
		*n = (struct sql_node){
			.id = id[i], .parent = -1, .child = -1, .next = -1, .last = UINT64_MAX};
		n->key = keep_text(api, api->data_chunk_get_vector(chunk, 2), i, &at);
		n->text = keep_text(api, api->data_chunk_get_vector(chunk, 3), i, &at);
		n->is_integer = n->text != NULL && is_integer[i];
		if (n->key == NULL)
			n->key = "";
		if (has_parent == NULL || has_parent[i / 64] >> i % 64 & 1) {
			of = bsearch(&parent[i], nodes, s->nb_nodes, sizeof(*nodes), by_id);
			n->parent = of != NULL ? (int)(of - nodes) : -1;
		}
		s->nb_nodes++;
	}
	return 0;
}

/* Link the nodes; children keep their order. */
static void
link_nodes(struct sql_statement *s)
{
	struct sql_node *n;
	size_t i;

	for (i = s->nb_nodes; i-- > 0;) {
		n = &s->node[i];
		if (n->parent < 0)
			continue;
		n->next = s->node[n->parent].child;
		s->node[n->parent].child = (int)i;
	}
}

/* Memory of the nodes of a JSON value: what is needed, then what is free. */
struct arena {
	struct sql_node *node;
	size_t nodes;
	char *text;
	size_t bytes;
};

#define NUMBER_TEXT 32 /* bytes of the text of a number or of the index of an array */

/* Count what the nodes of a value need. */
static void
json_measure(const json_t *value, struct arena *need)
{
	const char *key;
	json_t *child;
	size_t i;

	need->nodes++;
	if (json_is_string(value))
		need->bytes += json_string_length(value) + 1;
	else if (json_is_number(value))
		need->bytes += NUMBER_TEXT;
	json_object_foreach((json_t *)(uintptr_t)value, key, child)
	{
		need->bytes += strlen(key) + 1;
		json_measure(child, need);
	}
	json_array_foreach(value, i, child)
	{
		need->bytes += NUMBER_TEXT;
		json_measure(child, need);
	}
}

static const char *
arena_text(struct arena *a, const char *text)
{
	const size_t size = strlen(text) + 1;
	char *kept = a->text;

	memcpy(kept, text, size);
	a->text += size;
	return kept;
}

/* Append the nodes of a value, parents before children. */
static void
json_nodes(
	struct sql_statement *s, const json_t *value, const char *name, int parent, struct arena *a)
{
	const int self = (int)s->nb_nodes++;
	struct sql_node *n = &a->node[self];
	char number[NUMBER_TEXT];
	const char *key;
	json_t *child;
	size_t i;

	*n = (struct sql_node){.id = (uint64_t)self,
		.parent = parent,
		.child = -1,
		.next = -1,
		.last = UINT64_MAX,
		.key = arena_text(a, name)};
	if (json_is_string(value)) {
		n->text = arena_text(a, json_string_value(value));
	} else if (json_is_integer(value)) {
		snprintf(
			number, sizeof(number), "%" JSON_INTEGER_FORMAT, json_integer_value(value));
		n->text = arena_text(a, number);
		n->is_integer = true;
	} else if (json_is_real(value)) {
		snprintf(number, sizeof(number), "%.17g", json_real_value(value));
		n->text = arena_text(a, number);
	} else if (json_is_boolean(value)) {
		n->text = json_is_true(value) ? "true" : "false";
	}
	json_object_foreach((json_t *)(uintptr_t)value, key, child)
		json_nodes(s, child, key, self, a);
	json_array_foreach(value, i, child)
	{
		snprintf(number, sizeof(number), "%zu", i);
		json_nodes(s, child, number, self, a);
	}
}

/*
 * Parse the JSON of a statement. DuckDB writes 2^64 - 1 for a location that it does not know, for
 * instance of subqueries, which jansson refuses. A text cannot contain the key: its quotes would be
 * escaped.
 */
static json_t *
load_json(const char *text, size_t size)
{
	static const char unknown[] = "\"query_location\":18446744073709551615";
	static const char none[] = "\"query_location\":0                   ";
	char *copy = malloc(size), *at = copy;
	json_t *root;

	static_assert(sizeof(unknown) == sizeof(none), "replaced in place");
	if (copy == NULL)
		return NULL;
	memcpy(copy, text, size);
	while ((at = memmem(at, size - (at - copy), unknown, sizeof(unknown) - 1)) != NULL)
		memcpy(at, none, sizeof(none) - 1);
	root = json_loadb(copy, size, JSON_REJECT_DUPLICATES, NULL);
	free(copy);
	return root;
}

/* Take the nodes of a statement's JSON. @return 0; -ENOMEM; -ENOTSUP: it needs take_tree() */
static int
take_json(struct sql_statement *s, const char *text, size_t size)
{
	json_t *root = load_json(text, size);
	struct arena a = {.bytes = sizeof(char *) + 1};
	char *block;

	/* integers beyond 64 bits with a sign, deep nesting, texts with \u0000 */
	if (root == NULL)
		return -ENOTSUP;
	json_measure(root, &a);
	a.node = malloc(a.nodes * sizeof(*a.node));
	block = malloc(a.bytes);
	if (a.node == NULL || block == NULL) {
		json_decref(root);
		free(a.node);
		free(block);
		return -ENOMEM;
	}
	memcpy(block, &s->texts, sizeof(char *));
	s->texts = block;
	s->node = a.node;
	a.text = block + sizeof(char *);
	json_nodes(s, root, "", -1, &a);
	json_decref(root);
	link_nodes(s);
	return 0;
}

/*
 * Execute SQL with the statement's text as its parameter.
 * @param kept  in and out: the prepared SQL; NULL: not prepared yet
 */
static int
analyse(const struct sql_parser *p, const char *sql, duckdb_statement *kept, const char *text,
	struct duckdb_result *result, char *error, size_t size)
{
	const struct duckdb_api *api = p->api;

	if (*kept == NULL && api->prepare(p->connection, sql, kept) != DUCKDB_SUCCESS) {
		snprintf(error, size, "DuckDB %s cannot analyse statements: %s",
			api->library_version(), api->prepare_error(*kept));
		api->destroy_prepare(kept);
		*kept = NULL;
		return -ENOSYS;
	}
	if (api->bind_varchar_length(*kept, 1, text, strlen(text)) != DUCKDB_SUCCESS) {
		snprintf(error, size, "the statement is not text in UTF-8");
		return -EINVAL;
	}
	if (api->execute_prepared(*kept, result) != DUCKDB_SUCCESS) {
		snprintf(error, size, "%s", api->result_error(result));
		return -EINVAL;
	}
	return 0;
}

/* Take the nodes of a statement from rows. */
static int
take_tree(struct sql_statement *s, const struct sql_parser *p, const char *sql, char *error,
	size_t size)
{
	struct duckdb_result result = {.internal = NULL};
	duckdb_statement statement = NULL;
	duckdb_chunk chunk;
	int ret = analyse(p, tree_sql, &statement, sql, &result, error, size);

	while (ret == 0 && (chunk = p->api->fetch_chunk(result)) != NULL) {
		ret = take_chunk(s, p->api, chunk);
		p->api->destroy_data_chunk(&chunk);
	}
	link_nodes(s);
	p->api->destroy_result(&result);
	if (statement != NULL)
		p->api->destroy_prepare(&statement);
	return ret;
}

/* Take the nodes of a statement. */
static int
take_nodes(struct sql_statement *s, struct sql_parser *p, const char *sql, char *error, size_t size)
{
	struct duckdb_result result = {.internal = NULL};
	const union duckdb_text *text;
	duckdb_chunk chunk = NULL;
	int ret = analyse(p, serialize_sql, &p->serialize, sql, &result, error, size);

	if (ret == 0) {
		ret = -ENOTSUP;
		chunk = p->api->fetch_chunk(result);
	}
	if (chunk != NULL && p->api->data_chunk_get_size(chunk) == 1) {
		text = p->api->vector_get_data(p->api->data_chunk_get_vector(chunk, 0));
		ret = take_json(s, duckdb_text_bytes(text), text->length);
	}
	if (chunk != NULL)
		p->api->destroy_data_chunk(&chunk);
	p->api->destroy_result(&result);
	return ret == -ENOTSUP ? take_tree(s, p, sql, error, size) : ret;
}

void
sql_parser_close(struct sql_parser *p)
{
	if (p->serialize != NULL)
		p->api->destroy_prepare(&p->serialize);
	p->serialize = NULL;
}

/* ------------------------------------------------------------------ ranges of frame numbers */

struct range {
	uint64_t first;
	uint64_t last;
};

static void
range_narrow(struct range *r, uint64_t first, uint64_t last)
{
	if (first > r->first)
		r->first = first;
	if (last < r->last)
		r->last = last;
}

/* An integer constant: below zero, or a number. */
struct number {
	bool negative;
	uint64_t value;
};

static bool
constant(const struct sql_statement *s, int node, struct number *number)
{
	const int object = sql_node_child(s, node, "value");
	const int value = sql_node_child(s, object, "value");
	const char *text;
	char *end;

	if (!sql_node_is(s, node, "class", "CONSTANT") || value < 0 || !s->node[value].is_integer)
		return false;
	/* a DATE or another type may be stored as a number too */
	text = sql_node_text(s, sql_node_child(s, object, "type"), "id");
	if (strcmp(text, "INTEGER") != 0 && strcmp(text, "BIGINT") != 0 &&
		strcmp(text, "UBIGINT") != 0 && strcmp(text, "UINTEGER") != 0)
		return false;
	text = s->node[value].text;
	number->negative = text[0] == '-';
	errno = 0;
	number->value = strtoull(text + number->negative, &end, 10);
	return errno == 0 && *end == '\0' && end != text;
}

/* Tables of a FROM whose ranges are found: each term of WHERE is compared with all of them. */
#define FROM_MAX 64

struct from_table {
	int node;
	const char *schema;
	const char *name;
	const char *alias; /* "": none */
	struct range range;
};

/* How a name refers to tables of FROM. */
struct from {
	struct from_table table[FROM_MAX];
	size_t nb;
	struct range all; /* of `frame` alone */
	bool usable;	  /* a term of WHERE may narrow a table */
	bool merged;	  /* `frame` alone is that of all tables */
};

static void
from_add(const struct sql_statement *s, struct from *f, int node)
{
	if (f->nb == FROM_MAX || !sql_node_is_empty(s, sql_node_child(s, node, "sample")) ||
		sql_node_child(s, sql_node_child(s, node, "column_name_alias"), "0") >= 0 ||
		!sql_node_is_empty(s, sql_node_child(s, node, "at_clause"))) {
		f->usable = false;
		return;
	}
	f->table[f->nb++] = (struct from_table){
		.node = node,
		.schema = sql_node_text(s, node, "schema_name"),
		.name = sql_node_text(s, node, "table_name"),
		.alias = sql_node_text(s, node, "alias"),
		.range = {0, UINT64_MAX},
	};
}

static bool
join_uses_frame(const struct sql_statement *s, int join)
{
	const int columns = sql_node_child(s, join, "using_columns");
	int i;

	if (!sql_node_is(s, join, "join_type", "INNER") || columns < 0)
		return false;
	for (i = s->node[columns].child; i >= 0; i = s->node[i].next) {
		if (s->node[i].text != NULL && strcasecmp(s->node[i].text, "frame") == 0)
			return true;
	}
	return false;
}

/* List the tables of a FROM. */
static void
from_walk(const struct sql_statement *s, struct from *f, int node)
{
	static const char *const joins[] = {"INNER", "LEFT", "RIGHT", "OUTER", "FULL"};
	static const char *const refs[] = {"REGULAR", "CROSS", "NATURAL"};
	const char *type = sql_node_text(s, node, "type");
	bool known_join = false, known_ref = false;
	size_t i;

	if (strcmp(type, "BASE_TABLE") == 0) {
		from_add(s, f, node);
		return;
	}
	if (strcmp(type, "JOIN") != 0) {
		/* other tables have columns that may be named frame */
		f->merged = false;
		return;
	}
	for (i = 0; i < sizeof(joins) / sizeof(joins[0]); i++)
		known_join |= sql_node_is(s, node, "join_type", joins[i]);
	for (i = 0; i < sizeof(refs) / sizeof(refs[0]); i++)
		known_ref |= sql_node_is(s, node, "ref_type", refs[i]);
	f->usable &=
		known_join && known_ref && sql_node_is_empty(s, sql_node_child(s, node, "sample"));
	f->merged &= join_uses_frame(s, node) && sql_node_is(s, node, "ref_type", "REGULAR");
	from_walk(s, f, sql_node_child(s, node, "left"));
	from_walk(s, f, sql_node_child(s, node, "right"));
}

/* Whether the parts of a name before the column are those of a table. */
static bool
is_qualifier(const struct from_table *t, const char *const *part, size_t nb)
{
	if (nb == 1)
		return strcasecmp(part[0], t->alias[0] != '\0' ? t->alias : t->name) == 0;
	return t->alias[0] == '\0' && strcasecmp(part[0], t->schema) == 0 &&
		strcasecmp(part[1], t->name) == 0;
}

/* The range that terms with a column narrow. @return NULL: it is not `frame` of one table */
static struct range *
frame_range(const struct sql_statement *s, struct from *f, int column)
{
	const int names = sql_node_child(s, column, "column_names");
	struct range *found = NULL;
	const char *part[3];
	size_t nb = 0, i;
	int n;

	if (!sql_node_is(s, column, "class", "COLUMN_REF") || names < 0)
		return NULL;
	for (n = s->node[names].child; n >= 0; n = s->node[n].next) {
		if (nb == 3 || s->node[n].text == NULL)
			return NULL;
		part[nb++] = s->node[n].text;
	}
	if (nb == 0 || strcasecmp(part[nb - 1], "frame") != 0)
		return NULL;
	if (nb == 1)
		return f->merged ? &f->all : NULL;
	for (i = 0; i < f->nb; i++) {
		if (!is_qualifier(&f->table[i], part, nb - 1))
			continue;
		if (found != NULL)
			return NULL;
		found = &f->table[i].range;
	}
	return found;
}

/* Narrow a range by `frame OP number`. */
static void
narrow_compare(struct range *r, const char *op, const struct number *n)
{
	const bool none = n->negative && n->value > 0; /* all frames are above it */

	if (strcmp(op, "COMPARE_EQUAL") == 0)
		range_narrow(r, none ? 1 : n->value, none ? 0 : n->value);
	else if (strcmp(op, "COMPARE_GREATERTHANOREQUALTO") == 0)
		range_narrow(r, none ? 0 : n->value, UINT64_MAX);
	else if (strcmp(op, "COMPARE_GREATERTHAN") == 0 && !none)
		range_narrow(r, n->value < UINT64_MAX ? n->value + 1 : 1,
			n->value < UINT64_MAX ? UINT64_MAX : 0);
	else if (strcmp(op, "COMPARE_LESSTHANOREQUALTO") == 0)
		range_narrow(r, none ? 1 : 0, none ? 0 : n->value);
	else if (strcmp(op, "COMPARE_LESSTHAN") == 0)
		range_narrow(
			r, none || n->value == 0 ? 1 : 0, none || n->value == 0 ? 0 : n->value - 1);
}

/* Narrow a range by `frame IN (numbers)`. */
static void
narrow_in(const struct sql_statement *s, struct range *r, int children)
{
	struct range all = {UINT64_MAX, 0};
	struct number n;
	int i;

	/* the first child is the column */
	for (i = s->node[s->node[children].child].next; i >= 0; i = s->node[i].next) {
		if (!constant(s, i, &n))
			return;
		if (n.negative && n.value > 0)
			continue;
		if (n.value < all.first)
			all.first = n.value;
		if (n.value > all.last)
			all.last = n.value;
	}
	range_narrow(r, all.first <= all.last ? all.first : 1, all.last);
}

/* Narrow the ranges of the tables by an expression. */
static void
narrow(const struct sql_statement *s, struct from *f, int e)
{
	/* a OP b is b OP' a */
	static const char *const turned[][2] = {
		{"COMPARE_EQUAL", "COMPARE_EQUAL"},
		{"COMPARE_LESSTHAN", "COMPARE_GREATERTHAN"},
		{"COMPARE_GREATERTHAN", "COMPARE_LESSTHAN"},
		{"COMPARE_LESSTHANOREQUALTO", "COMPARE_GREATERTHANOREQUALTO"},
		{"COMPARE_GREATERTHANOREQUALTO", "COMPARE_LESSTHANOREQUALTO"},
	};
	const char *type = sql_node_text(s, e, "type");
	const int children = sql_node_child(s, e, "children");
	const int left = sql_node_child(s, e, "left"), right = sql_node_child(s, e, "right");
	struct range *r;
	struct number n;
	size_t k;
	int i;

	if (strcmp(type, "CONJUNCTION_AND") == 0) {
		for (i = children >= 0 ? s->node[children].child : -1; i >= 0; i = s->node[i].next)
			narrow(s, f, i);
	} else if (sql_node_is(s, e, "class", "COMPARISON")) {
		if (constant(s, right, &n) && (r = frame_range(s, f, left)) != NULL)
			narrow_compare(r, type, &n);
		else if (constant(s, left, &n) && (r = frame_range(s, f, right)) != NULL) {
			for (k = 0; k < sizeof(turned) / sizeof(turned[0]); k++) {
				if (strcmp(type, turned[k][0]) == 0)
					narrow_compare(r, turned[k][1], &n);
			}
		}
	} else if (strcmp(type, "COMPARE_BETWEEN") == 0) {
		r = frame_range(s, f, sql_node_child(s, e, "input"));
		if (r == NULL)
			return;
		if (constant(s, sql_node_child(s, e, "lower"), &n))
			narrow_compare(r, "COMPARE_GREATERTHANOREQUALTO", &n);
		if (constant(s, sql_node_child(s, e, "upper"), &n))
			narrow_compare(r, "COMPARE_LESSTHANOREQUALTO", &n);
	} else if (strcmp(type, "COMPARE_IN") == 0 && children >= 0 &&
		s->node[children].child >= 0) {
		r = frame_range(s, f, s->node[children].child);
		if (r != NULL)
			narrow_in(s, r, children);
	}
}

/* Find the ranges of the tables of a SELECT. */
static void
select_ranges(struct sql_statement *s, int node)
{
	const int where = sql_node_child(s, node, "where_clause");
	struct from f = {.all = {0, UINT64_MAX}, .usable = true, .merged = true};
	struct from_table *t;

	if (where < 0 || !sql_node_is_empty(s, sql_node_child(s, node, "sample")))
		return;
	from_walk(s, &f, sql_node_child(s, node, "from_table"));
	if (!f.usable)
		return;
	narrow(s, &f, where);
	for (t = f.table; t < f.table + f.nb; t++) {
		range_narrow(&t->range, f.all.first, f.all.last);
		s->node[t->node].first = t->range.first;
		s->node[t->node].last = t->range.last;
	}
}

/* ------------------------------------------------------------------ the statement */

void
sql_name_cover(struct sql_name *name, const struct sql_name *other)
{
	if (other->first > other->last)
		return;
	if (name->first > name->last) {
		name->first = other->first;
		name->last = other->last;
	}
	if (other->first < name->first)
		name->first = other->first;
	if (other->last > name->last)
		name->last = other->last;
}

/* Add the name of a table. @return 0; -ENOMEM; -E2BIG: too many */
static int
add_name(struct sql_statement *s, int node)
{
	const struct sql_name name = {
		.catalog = sql_node_text(s, node, "catalog_name"),
		.schema = sql_node_text(s, node, "schema_name"),
		.table = sql_node_text(s, node, "table_name"),
		.first = s->node[node].first,
		.last = s->node[node].last,
	};
	struct sql_name *names;
	size_t i;

	for (i = 0; i < s->nb_names; i++) {
		names = &s->name[i];
		if (strcasecmp(names->catalog, name.catalog) == 0 &&
			strcasecmp(names->schema, name.schema) == 0 &&
			strcasecmp(names->table, name.table) == 0) {
			sql_name_cover(names, &name);
			return 0;
		}
	}
	if (s->nb_names == SQL_NAMES_MAX)
		return -E2BIG;
	names = realloc(s->name, (s->nb_names + 1) * sizeof(*names));
	if (names == NULL)
		return -ENOMEM;
	s->name = names;
	names[s->nb_names++] = name;
	return 0;
}

static bool
is_listed(const char *const *functions, size_t nb, const char *name)
{
	size_t i;

	for (i = 0; i < nb; i++) {
		if (strcasecmp(name, functions[i]) == 0)
			return true;
	}
	return false;
}

/* @return the function of a node that a statement must not call; NULL: none */
static const char *
refused_function(const struct sql_statement *s, int node)
{
	const bool is_table = sql_node_is(s, node, "type", "TABLE_FUNCTION");
	const char *name = sql_node_text(
		s, is_table ? sql_node_child(s, node, "function") : node, "function_name");

	if (is_table)
		return is_listed(table_functions,
			       sizeof(table_functions) / sizeof(table_functions[0]), name)
			? NULL
			: name;
	return is_listed(forbidden_functions,
		       sizeof(forbidden_functions) / sizeof(forbidden_functions[0]), name)
		? name
		: NULL;
}

static int
examine(struct sql_statement *s, char *error, size_t size)
{
	const int statements = sql_node_child(s, 0, "statements");
	const char *name;
	int ret = 0, from;
	size_t i;

	if (s->nb_nodes == 0 || !sql_node_is(s, 0, "error", "false")) {
		name = s->nb_nodes > 0 ? sql_node_text(s, 0, "error_message") : "no answer";
		snprintf(error, size, "%s",
			strncmp(name, "Only SELECT", 11) == 0 ? "expected a SELECT statement"
							      : name);
		return -EINVAL;
	}
	if (sql_node_child(s, statements, "0") < 0 || sql_node_child(s, statements, "1") >= 0) {
		snprintf(error, size, "expected one SELECT statement, found %s",
			sql_node_child(s, statements, "0") < 0 ? "none" : "several");
		return -EINVAL;
	}
	from = sql_node_child(
		s, sql_node_child(s, sql_node_child(s, statements, "0"), "node"), "from_table");
	s->is_show = sql_node_is(s, from, "type", "SHOW_REF");
	for (i = 0; i < s->nb_nodes; i++) {
		if (sql_node_is(s, i, "type", "SELECT_NODE"))
			select_ranges(s, i);
	}
	for (i = 0; i < s->nb_nodes && ret == 0; i++) {
		name = refused_function(s, i);
		if (name != NULL) {
			snprintf(error, size, "%s %s: not allowed in a query of runs",
				sql_node_is(s, i, "type", "TABLE_FUNCTION") ? "table function"
									    : "function",
				name);
			return -EINVAL;
		}
		/* not only BASE_TABLE: DESCRIBE and SUMMARIZE name tables too */
		if (sql_node_text(s, i, "table_name")[0] != '\0')
			ret = add_name(s, i);
	}
	if (ret == -E2BIG)
		snprintf(error, size,
			"expected the names of at most %u tables, found more: use frames for all "
			"runs, or frames('PATTERN') for some",
			SQL_NAMES_MAX);
	return ret;
}

static bool
is_name_byte(char c)
{
	return isalnum((unsigned char)c) || c == '_' || (c & 0x80) != 0;
}

/* @return the first byte after a text in quotes */
static const char *
skip_quoted(const char *at, bool escapes)
{
	const char quote = *at++;

	/* a doubled quote is like the end of a text and the begin of the next */
	while (*at != '\0' && *at != quote)
		at += escapes && at[0] == '\\' && at[1] != '\0' ? 2 : 1;
	return *at != '\0' ? at + 1 : at;
}

/* @return the first byte after $TAG$ text $TAG$; NULL: it is no such text */
static const char *
skip_dollars(const char *at)
{
	const char *end = at + 1;
	size_t length;

	while (is_name_byte(*end))
		end++;
	/* $1 is a parameter */
	if (*end != '$' || isdigit((unsigned char)at[1]))
		return NULL;
	length = end + 1 - at;
	for (end++; *end != '\0'; end++) {
		if (strncmp(end, at, length) == 0)
			return end + length;
	}
	return end;
}

/* @return the first byte after a comment, of which several can be nested */
static const char *
skip_comment(const char *at)
{
	unsigned int depth = 0;

	if (at[0] == '-')
		return at + strcspn(at, "\r\n");
	while (*at != '\0') {
		if (at[0] == '/' && at[1] == '*') {
			depth++;
			at += 2;
		} else if (at[0] == '*' && at[1] == '/') {
			at += 2;
			if (--depth == 0)
				break;
		} else {
			at++;
		}
	}
	return at;
}

size_t
sql_statement_length(const char *sql)
{
	const char *at = sql, *end = sql, *next;
	bool in_name = false, escapes = false;

	while (*at != '\0') {
		if (strchr("; \t\r\n\v\f", *at) != NULL) {
			at++;
			in_name = escapes = false;
			continue;
		}
		if ((at[0] == '-' && at[1] == '-') || (at[0] == '/' && at[1] == '*')) {
			at = skip_comment(at);
			in_name = escapes = false;
			continue;
		}
		next = NULL;
		if (*at == '\'' || *at == '"')
			next = skip_quoted(at, *at == '\'' && escapes);
		else if (*at == '$' && !in_name)
			next = skip_dollars(at);
		/* E'text' has escapes, if E is no part of a name */
		escapes = next == NULL && !in_name && (*at == 'e' || *at == 'E');
		in_name = next == NULL && (is_name_byte(*at) || (in_name && *at == '$'));
		at = next != NULL ? next : at + 1;
		end = at;
	}
	return end - sql;
}

/* @return the first byte after blanks and comments */
static const char *
skip_blanks(const char *at)
{
	for (;;) {
		if (*at != '\0' && strchr(" \t\r\n\v\f", *at) != NULL)
			at++;
		else if ((at[0] == '-' && at[1] == '-') || (at[0] == '/' && at[1] == '*'))
			at = skip_comment(at);
		else
			return at;
	}
}

/* @return the first byte after a word; NULL: another one is there */
static const char *
skip_word(const char *at, const char *word)
{
	const size_t length = strlen(word);

	return strncasecmp(at, word, length) == 0 && !is_name_byte(at[length]) && at[length] != '$'
		? at + length
		: NULL;
}

const char *
sql_statement_explained(const char *sql)
{
	const char *at = skip_word(skip_blanks(sql), "EXPLAIN");

	if (at == NULL)
		return NULL;
	at = skip_blanks(at);
	/* ANALYZE executes the statement, and brackets are options such as this */
	return *at == '(' || skip_word(at, "ANALYZE") != NULL ? NULL : at;
}

int
sql_statement_parse(struct sql_statement *s, struct sql_parser *parser, const char *sql,
	char *error, size_t size)
{
	int ret;

	memset(s, 0, sizeof(*s));
	if (strlen(sql) > SQL_STATEMENT_MAX) {
		snprintf(error, size,
			"the statement is longer than %u bytes: split it, or use "
			"BETWEEN instead of a list of numbers",
			SQL_STATEMENT_MAX);
		return -E2BIG;
	}
	ret = take_nodes(s, parser, sql, error, size);
	if (ret == 0)
		ret = examine(s, error, size);
	if (ret == -ENOMEM)
		snprintf(error, size, "not enough memory");
	if (ret < 0)
		sql_statement_free(s);
	return ret;
}

void
sql_statement_free(struct sql_statement *s)
{
	char *block;

	while (s->texts != NULL) {
		block = s->texts;
		memcpy(&s->texts, block, sizeof(char *));
		free(block);
	}
	free(s->node);
	free(s->name);
	free(s->used);
	free(s->cte);
	memset(s, 0, sizeof(*s));
}
