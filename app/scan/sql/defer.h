/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Whether lists may stay in their files while a statement is executed (sql/lists.h).
 *
 * A handle has the type of its column, but not its value. So a column is deferred only if each
 * reference to it is a column of the outermost select list by itself, with or without another name,
 * or is made by a star there. Everything else (an expression, WHERE, a join's condition, ORDER BY,
 * DISTINCT, GROUP BY, a subquery) needs the values.
 *
 * The decision is made from the statement's tree, which DuckDB has parsed. If the tree has anything
 * that this file does not know, no column is deferred: a node of another class, another kind of
 * table or of join, another clause. Deferred are at most columns of a statement that
 *
 * - is one SELECT, not a UNION or another set operation, without DISTINCT, GROUP BY, PIVOT and
 *   samples; with ORDER BY (not the number of a column, not ALL), LIMIT and OFFSET
 * - has these in FROM: tables of runs, subqueries, VALUES, range(), generate_series(); cross joins
 *   and joins with ON or USING. None of them has other names for its columns
 * - has no star elsewhere, and no name of a table in place of a column, which means a whole row.
 */
#ifndef SQL_DEFER_H
#define SQL_DEFER_H

#include "sql/statement.h"

/**
 * Find the columns that are used other than as columns of the result. It sets `may_defer` and
 * `used` of the statement.
 * @return 0; -ENOMEM
 */
int sql_defer_find(struct sql_statement *s);

/** Whether a column may be deferred, by its name in the file. */
bool sql_defer_may(const struct sql_statement *s, const char *column);

/** Whether a name is that of a table of WITH. */
bool sql_defer_is_cte(const struct sql_statement *s, const struct sql_name *name);

#endif /* SQL_DEFER_H */
