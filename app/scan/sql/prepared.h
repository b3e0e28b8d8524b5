/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Prepared statements of a session that were executed before, found by their text. One that is
 * executed again is neither analysed nor planned again, which takes most of the time of a small
 * query.
 */
#ifndef SQL_PREPARED_H
#define SQL_PREPARED_H

#include "sql/statement.h"

#define SQL_PREPARED_MAX   16 /**< statements of a session; the least recently used one is freed */
#define SQL_PREPARED_BYTES 4096 /**< longest text */
/**
 * Maximum CPU time of an execution, without that of sql_catalog_check(), ns. A plan has constants
 * that were computed, and tables of its last execution: all of this memory takes time to write, and
 * is not freed before the plan is.
 */
#define SQL_PREPARED_NS 10000000

/** A prepared statement, and what its executions need. */
struct sql_prepared {
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

struct sql_prepared_list {
	struct sql_prepared entry[SQL_PREPARED_MAX]; /**< the one that was used last is the first */
	size_t nb;
};

/** Take a statement out of the list. @return false: there is none with this text */
bool sql_prepared_take(struct sql_prepared_list *list, const char *sql, struct sql_prepared *p);

/** Put a statement into the list, which owns it then. */
void sql_prepared_put(
	struct sql_prepared_list *list, const struct duckdb_api *api, const struct sql_prepared *p);

/** Free all statements of the list. */
void sql_prepared_clear(struct sql_prepared_list *list, const struct duckdb_api *api);

/** Free a statement. */
void sql_prepared_free(struct sql_prepared *p, const struct duckdb_api *api);

#endif /* SQL_PREPARED_H */
