/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Prepared statements of a session that were executed before, found by their text. One that is
 * executed again is neither analysed nor planned again, which takes most of the time of a small
 * query.
 */
#ifndef SQL_KEPT_H
#define SQL_KEPT_H

#include "sql/statement.h"

#define SQL_KEPT_MAX   16   /**< statements of a session; the least recently used one is freed */
#define SQL_KEPT_BYTES 4096 /**< longest text */
/**
 * Maximum CPU time of an execution, without that of sql_catalog_check(), ns. A plan has constants
 * that were computed, and tables of its last execution: all of this memory takes time to write, and
 * is not freed before the plan is.
 */
#define SQL_KEPT_NS 10000000

/** A prepared statement, and what its executions need. */
struct sql_kept {
	char *sql;
	struct sql_statement parsed;
	bool defers;		    /**< its lists are deferred */
	duckdb_statement statement; /**< NULL: none */
	/** of each column of the result @{ */
	char **name;
	uint32_t *type; /**< before the conversion: enum duckdb_type, and others */
	bool *deferred; /**< its values are handles (sql/lists.h) */
	/** @} */
	uint64_t nb_columns;
};

struct sql_kept_list {
	struct sql_kept entry[SQL_KEPT_MAX]; /**< the one that was used last is the first */
	size_t nb;
};

/** Take a statement out of the list. @return false: there is none with this text */
bool sql_kept_take(struct sql_kept_list *list, const char *sql, struct sql_kept *kept);

/** Put a statement into the list, which owns it then. */
void sql_kept_put(
	struct sql_kept_list *list, const struct duckdb_api *api, const struct sql_kept *kept);

/** Free all statements of the list. */
void sql_kept_clear(struct sql_kept_list *list, const struct duckdb_api *api);

/** Free a statement. */
void sql_kept_free(struct sql_kept *kept, const struct duckdb_api *api);

#endif /* SQL_KEPT_H */
