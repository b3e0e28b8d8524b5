/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A parsed statement: whether it may be executed, the tables that it names, and the range of frame
 * numbers that it needs of each.
 *
 * The tree is that of json_serialize_sql() of DuckDB, so it is the engine's own parse. DuckDB's C
 * API does not pass filters to table functions. Therefore the range of a table is taken from the
 * statement:
 *
 * - Terms of WHERE that are joined by AND: `frame` compared with an integer by =, <, <=, > or >=,
 *   BETWEEN two integers, or IN a list of integers. Integers are constants without a cast.
 * - `frame` belongs to one table of FROM: the only one; or with the table's name or alias in front;
 *   or it is in USING of all joins, which are all inner.
 * - The joins of this FROM are inner, left, right, full or cross joins, and none of the tables has
 *   a sample or other names for its columns. They are at most 64, since each term is compared with
 *   all of them.
 *
 * Rows outside of such a term are no rows of the result, so leaving them out changes nothing. If a
 * statement has a name several times, its range covers all of them. In all other cases the range is
 * that of all frames.
 *
 * Names have their spelling in the statement. Several can refer to one table, such as `frames` and
 * `main.frames`: the user of the ranges must find these and cover all of them, with
 * sql_name_cover().
 */
#ifndef SQL_STATEMENT_H
#define SQL_STATEMENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "sql/duckdb_api.h"
#include "sql/node.h"

/**
 * Length of a statement in bytes. With numbers of the user beyond int64_t, the tree is read by
 * json_tree(), whose time is quadratic in the length of a list: for one of 40,000 numbers it is 3 s
 * (measured, DuckDB 1.5.6).
 */
#define SQL_STATEMENT_MAX (1u << 17)

/** Names of tables in a statement: each is compared with all others, and with all runs. */
#define SQL_NAMES_MAX 1024

/** Name of a table of FROM, with its spelling in the statement. */
struct sql_name {
	const char *catalog; /**< "": none */
	const char *schema;  /**< "": none. Of two parts, the first is here: it may be a catalog */
	const char *table;
	uint64_t first; /**< frame numbers; first > last: no row is needed */
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

/** Parser of the statements of a connection. */
struct sql_parser {
	const struct duckdb_api *api;
	duckdb_connection connection;
	duckdb_statement serialize; /**< prepared by the first statement; NULL: not yet */
};

/**
 * Parse a statement.
 * @param parser  of a session; one thread at a time uses it
 * @param error  out, on error: what is wrong, at most `size` bytes
 * @return 0
 *   - -EINVAL: not exactly one SELECT, a syntax error, or a function that is not allowed
 *   - -E2BIG: longer than SQL_STATEMENT_MAX, or more names of tables than SQL_NAMES_MAX
 *   - -ENOSYS: this DuckDB has no json_serialize_sql()
 *   - -ENOMEM
 */
int sql_statement_parse(struct sql_statement *s, struct sql_parser *parser, const char *sql,
	char *error, size_t size);

/** Free what a parser keeps, before its connection is closed. */
void sql_parser_close(struct sql_parser *p);

void sql_statement_free(struct sql_statement *s);

/**
 * Length of a statement without the blanks, comments and semicolons at its end. Texts, names and
 * comments are recognised as DuckDB's parser does.
 */
size_t sql_statement_length(const char *sql);

/** The statement after EXPLAIN; NULL: it does not begin with EXPLAIN, or with EXPLAIN ANALYZE. */
const char *sql_statement_explained(const char *sql);

/** Extend the range of a name by that of another. */
void sql_name_cover(struct sql_name *name, const struct sql_name *other);

#endif /* SQL_STATEMENT_H */
