/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A parsed statement: whether it may be executed, the tables that it names, and the range of frame
 * numbers that it needs of each.
 *
 * The tree is that of json_serialize_sql() and json_tree() of DuckDB, so it is the engine's own
 * parse. DuckDB's C API does not pass filters to table functions. Therefore the range of a table is
 * taken from the statement:
 *
 * - Terms of WHERE that are joined by AND: `frame` compared with an integer by =, <, <=, > or >=,
 *   BETWEEN two integers, or IN a list of integers. Integers are constants without a cast.
 * - `frame` is of one table of FROM: the only one; or with the table's name or alias in front; or
 *   it is in USING of all joins, which are all inner.
 * - The joins of this FROM are inner, left, right, full or cross joins, and none of the tables has
 *   a sample or other names for its columns.
 *
 * Rows outside of such a term are no rows of the result, so leaving them out changes nothing. If a
 * statement has a name several times, its range covers all of them. In all other cases the range is
 * that of all frames.
 *
 * Names are as they are written. Several can be of one table, such as `frames` and `main.frames`:
 * the user of the ranges must find these and cover all of them, with sql_name_cover().
 */
#ifndef SQL_STATEMENT_H
#define SQL_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sql/duckdb_api.h"

/**
 * Length of a statement in bytes. The time of json_tree() is quadratic in the length of a list: for
 * one of 40,000 numbers it is 3 s (measured, DuckDB 1.5.6).
 */
#define SQL_STATEMENT_MAX (1u << 17)

/** Name of a table of FROM, as it is written. */
struct sql_name {
	const char *catalog; /**< "": none */
	const char *schema;  /**< "": none. Of two parts, the first is here: it may be a catalog */
	const char *table;
	uint64_t first; /**< frame numbers; first > last: no row is needed */
	uint64_t last;
};

/** A node of the parsed tree. */
struct sql_node {
	uint64_t id;
	int parent; /**< index; -1: none */
	int child;  /**< index of the first child; -1: none */
	int next;   /**< index of the next child of the parent; -1: none */
	const char *key;
	const char *text; /**< value of text, number or boolean; NULL: another kind */
	bool is_integer;  /**< `text` is an integer */
	uint64_t first;	  /**< of a table of FROM */
	uint64_t last;
};

struct sql_statement {
	struct sql_node *node; /**< parents before children */
	size_t nb_nodes;
	struct sql_name *name; /**< each once; comparison ignores case */
	size_t nb_names;
	bool is_show; /**< DESCRIBE, SHOW or SUMMARIZE */
	char *texts;
	bool may_defer;	   /**< set by sql_defer_find(), as the following ones */
	const char **used; /**< parts of names of columns whose values the statement needs */
	size_t nb_used;
	const char **cte; /**< names of WITH */
	size_t nb_ctes;
};

/**
 * Parse a statement.
 * @param error  out, on error: what is wrong, at most `size` bytes
 * @return 0
 *   - -EINVAL: not exactly one SELECT, a syntax error, or a function that is not allowed
 *   - -E2BIG: longer than SQL_STATEMENT_MAX
 *   - -ENOSYS: this DuckDB has no json_serialize_sql()
 *   - -ENOMEM
 */
int sql_statement_parse(struct sql_statement *s, const struct duckdb_api *api,
	duckdb_connection connection, const char *sql, char *error, size_t size);

void sql_statement_free(struct sql_statement *s);

/** A child of a node with a key; `node` -1 has none. @return its index; -1: none */
int sql_node_child(const struct sql_statement *s, int node, const char *key);

/** Text of a child; "" if it has none. */
const char *sql_node_text(const struct sql_statement *s, int node, const char *key);

/** Whether the text of a child is this one. */
bool sql_node_is(const struct sql_statement *s, int node, const char *key, const char *text);

/** Whether a node has neither children nor a text, or is -1. */
bool sql_node_is_empty(const struct sql_statement *s, int node);

/**
 * Length of a statement without the blanks, comments and semicolons at its end. Texts, names and
 * comments are recognised as DuckDB's parser does.
 */
size_t sql_statement_length(const char *sql);

/** The statement behind EXPLAIN; NULL: it does not begin with EXPLAIN, or with EXPLAIN ANALYZE. */
const char *sql_statement_explained(const char *sql);

/** Extend the range of a name by that of another. */
void sql_name_cover(struct sql_name *name, const struct sql_name *other);

#endif /* SQL_STATEMENT_H */
