/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Queries of runs: an engine in memory, its tables, one statement at a time.
 *
 * The engine is locked down when it is opened: no access to files, no extensions, no temporary
 * files, and no change of its settings. A statement is one SELECT (sql/statement.h), or EXPLAIN
 * with one, whose rows are: `lists`, which says whether lists pass the engine, and `physical_plan`.
 *
 * Tables: RUN.frames and RUN.images for each run of the catalog; frames and images, with the rows
 * of all runs and their names in the column `run`; runs, which lists the tables of runs; and those
 * of sql/tables.h.
 *
 * One thread at a time uses a session, except that sql_session_cancel() may be called by any.
 */
#ifndef SQL_SESSION_H
#define SQL_SESSION_H

#include "sql/prepared.h"
#include "sql/statement.h"
#include "sql/tables.h"

/** Limits of an engine. */
struct sql_limits {
	unsigned int threads; /**< 0: one for each CPU */
	const char *memory;   /**< such as "4GB"; NULL: 80 % of the memory */
	bool any_order;	      /**< rows may come in any order, which lets threads share a scan */
	enum sql_fill fill;
	/** results of SQL_NATIVE are read with sql/result_reader.h: lists can be deferred */
	bool defer;
	/**
	 * Chunks of handles may have the rows of several batches. That takes less time, but rows
	 * may come in another order than without `defer`, unless the statement has ORDER BY.
	 */
	bool join;
};

/** How the columns of a result are converted. */
enum sql_form {
	SQL_NATIVE, /**< not at all */
	/** all columns to VARCHAR, as DuckDB's CAST does */
	SQL_TEXT,
	/**
	 * Types that JSON does not have to VARCHAR, also inside of lists and structures. The others
	 * are: BOOLEAN, integers up to 64 bits, FLOAT, DOUBLE, VARCHAR, BLOB, LIST, ARRAY and
	 * STRUCT.
	 */
	SQL_SIMPLE,
};

/** A view that was created. */
struct sql_view {
	char *sql;
	char *deferred; /**< the same for those with the same deferred columns; NULL: with none */
};

struct sql_session {
	const struct duckdb_api *api;
	struct sql_catalog *catalog;
	struct sql_tables tables;
	duckdb_database db;
	duckdb_connection connection;
	struct duckdb_result result;
	bool has_result;
	bool may_defer; /**< sql_limits.defer */
	struct sql_parser parser;
	struct sql_view *view; /**< views of the present catalog */
	size_t nb_views;
	bool lists_runs;	 /**< the view `runs` was created */
	struct sql_range *range; /**< of the statement that is prepared */
	struct sql_prepared_list prepared;
	struct sql_prepared present; /**< statement; `sql` is NULL if it will not be kept */
	/** CPU time of this thread for the present statement, without checks of batches, ns */
	uint64_t cost;
	char error[4096]; /**< reason of the last error */
	bool cancelled;	  /**< sql_session_cancel() was called, atomic */
};

/**
 * Open an engine.
 * @return 0; -EINVAL: `memory` is no size; -EIO. `error` says why. Call sql_session_close() in all
 *   cases
 */
int sql_session_open(struct sql_session *s, const struct duckdb_api *api,
	struct sql_catalog *catalog, const struct sql_limits *limits);

/** Close the engine. The catalog must outlive it. */
void sql_session_close(struct sql_session *s);

/**
 * Execute a statement. Rows come from sql_session_fetch(). A result before it is closed.
 * @return 0; `error` says why:
 *   - -EINVAL: the statement is wrong, or is not allowed
 *   - -ECANCELED
 *   - -EIO: it failed
 *   - -ENOMEM
 */
int sql_session_execute(struct sql_session *s, const char *sql, enum sql_form form);

/**
 * Fetch the next rows.
 * @param chunk  out: NULL at the end; to be destroyed with api->destroy_data_chunk()
 * @return 0; -EIO, -ECANCELED: `error` says why, rows may be missing
 */
int sql_session_fetch(struct sql_session *s, duckdb_chunk *chunk);

/** Whether vectors of a type (enum duckdb_type) have the bytes of Arrow's values. */
bool sql_type_is_direct(int id);

/**
 * Names of the columns of the result that are deferred lists, with commas between them.
 * @return 0: there are some; -ENOENT: none, the plan is the plain one
 */
int sql_session_deferred(const struct sql_session *s, char *names, size_t size);

/** Set the error: a file could not be read, see sql_catalog_unreadable(). @return -EIO */
int sql_session_unreadable(struct sql_session *s, const char *file);

/**
 * Type of a column of the result, as in the files if it is deferred; to be destroyed with
 * api->destroy_logical_type().
 */
duckdb_logical_type sql_session_type(struct sql_session *s, uint64_t column);

/**
 * End the statement that is executed, with -ECANCELED. Any thread. A statement that is about to
 * start may miss a call, so the caller repeats it until the statement has ended. No statement of
 * the session is executed after it.
 */
void sql_session_cancel(struct sql_session *s);

#endif /* SQL_SESSION_H */
