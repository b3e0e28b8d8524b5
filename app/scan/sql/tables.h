/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The tables of runs in DuckDB:
 *
 *   frames(RUN, first := F, last := L), images(RUN, first := F, last := L)
 *
 * RUN is the name of a run, or a pattern of fnmatch(3). A pattern takes all runs that match, and
 * adds the column `run` with their names; columns that a run does not have are NULL in its rows. A
 * column must have the same type in all of them. Rows have frame numbers from F to L. Batches
 * without such frames are not read.
 *
 * The replacement scan makes 'RUN_frames.arrow' and 'RUN_images.arrow' (a quoted name in FROM) the
 * same as frames('RUN') and images('RUN').
 *
 * Without a catalog, the functions are braggline_frames(PATH, ...) and braggline_images(PATH, ...).
 * PATH is a directory, whose runs are read like those of a pattern, or a file of a run. A damaged
 * batch is then an error, because the omission would not be visible.
 *
 * Rows come in the order of the files. With SQL_ZERO_COPY, the vectors refer to the mapped file
 * where DuckDB's conversion from Arrow does (values of all columns); offsets of lists and positions
 * of binary values are written new. Full images that are chunks are decompressed into the vectors,
 * and then all columns of these rows are copied. A vector has at most 2048 rows, and 1 MiB of items
 * of lists. Columns that the statement in force permits to defer (sql/defer.h) have handles as
 * their values, unless they are in chunks. The rows of vectors are the same then, so that the rows
 * of a result have the same order. With sql_limits.join, vectors with handles have the rows of up
 * to 16 batches, and the values of other columns are copied.
 */
#ifndef SQL_TABLES_H
#define SQL_TABLES_H

#include "sql/catalog.h"
#include "sql/defer.h"
#include "sql/duckdb_api.h"
#include "sql/lists.h"

/** How values get into DuckDB's vectors. */
enum sql_fill {
	SQL_ZERO_COPY, /**< duckdb_data_chunk_from_arrow(): vectors refer to the file */
	SQL_COPY,      /**< memcpy() */
};

/** Run of a view with the rows of all runs. */
#define SQL_ALL_RUNS "*"

/** Frame numbers that a statement needs of a view. */
struct sql_range {
	enum arrow_table table;
	const char *run; /**< or SQL_ALL_RUNS */
	uint64_t first;	 /**< first > last: none */
	uint64_t last;
};

/** What the table functions need. It must outlive the database. */
struct sql_tables {
	const struct duckdb_api *api;
	struct sql_catalog *catalog; /**< NULL: the functions take paths; requires SQL_COPY */
	duckdb_connection convert; /**< SQL_ZERO_COPY: connection for conversions from Arrow only */
	enum sql_fill fill;
	/** the statement, whose lists are handles where it permits it; NULL: none are */
	const struct sql_statement *defer;
	/** of the views of the statement that is prepared, each once; others have all frames */
	const struct sql_range *range;
	size_t nb_ranges;
	/**
	 * the result can be split into batches of any size: the bytes of deferred lists do not
	 * limit the rows of a chunk. Read when rows are
	 */
	bool any_rows;
	bool join;		/**< of sql_limits */
	struct sql_lists lists; /**< of these handles; the owner of the structure frees them */
	uint64_t copied;	/**< bytes that SQL_COPY copied, atomic */
	uint64_t referenced;	/**< bytes of values that vectors refer to, atomic */
	uint64_t skipped;	/**< batches that a range of frames left out, atomic */
};

/** Alias of the type of a deferred column, of which DuckDB's result has the type with its alias. */
#define SQL_DEFERRED "braggline_deferred"

/**
 * Register the table functions with a connection's database, and the replacement scan.
 * @return 0; -EIO: DuckDB refused it
 */
int sql_tables_register(struct sql_tables *t, duckdb_database db, duckdb_connection connection);

/**
 * Name of the function that the view of a table calls with its run: its range is that of the
 * statement (sql_tables.range). Statements of users must not call it.
 */
const char *sql_tables_view(enum arrow_table table);

/** Whether a name in FROM is that of a file, which the replacement scan takes. */
bool sql_is_file_name(const char *name);

/** Whether a run's name is a pattern. */
bool sql_is_pattern(const char *name);

#endif /* SQL_TABLES_H */
