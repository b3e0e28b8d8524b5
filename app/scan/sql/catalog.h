/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Runs by name, and their files, as tables of a query. Files are opened and mapped when a statement
 * names their run. They stay open until the catalog is destroyed, since results may refer to their
 * bytes.
 *
 * The CRC-32C and the structure of a batch are checked when a query touches the batch for the first
 * time. A damaged batch is left out, counted, and reported once.
 *
 * Functions marked with (any thread) may be called by several threads at a time. The others may be
 * called by one thread, before the first statement.
 *
 * A file that another process truncates, or that the disk cannot read, does not end the program:
 * see sql/map_guard.h.
 */
#ifndef SQL_CATALOG_H
#define SQL_CATALOG_H

#include <pthread.h>

#include "arrow/reader.h"
#include "arrow/tables.h"
#include "scan/list.h"
#include "sql/map_guard.h"

/** What is wrong with a file of which some bytes could not be read. */
#define SQL_UNREADABLE "it was truncated during the query, or its disk has an error"

/** State of a batch; written by the thread that checks it first, read by all. */
enum sql_batch_state {
	SQL_BATCH_UNKNOWN = 0, /**< not checked yet */
	SQL_BATCH_GOOD,	       /**< CRC and all columns are correct, or it has no CRC */
	SQL_BATCH_DAMAGED,     /**< left out */
};

/** Frame numbers of a batch. first > last: not read yet. */
struct sql_span {
	uint64_t first; /**< lowest */
	uint64_t last;	/**< highest */
};

struct sql_file {
	char *path;
	bool opened;
	struct arrow_reader reader;
	uint8_t *state;	       /**< enum sql_batch_state of each batch, atomic */
	struct sql_span *span; /**< of each batch; protected by the catalog's lock */
	unsigned int frame;    /**< index of the column `frame` */
	struct map_guard *guard;
	bool reported; /**< an error has been reported with its path; protected by the lock */
};

/** The files of one table of a run. */
struct sql_files {
	struct sql_file *file;
	size_t nb;
	bool compared; /**< different runs of the same name were reported */
};

struct sql_run {
	char *name; /**< of the run: that of its files up to _frames or _images */
	struct sql_files table[ARROW_TABLES];
};

/** Reports a problem of a file. Any thread may call it, one at a time. */
typedef void (*sql_warn)(void *arg, const char *text);

struct sql_catalog {
	struct sql_run *run; /**< in the order of names */
	size_t nb_runs;
	sql_warn warn;
	void *arg;
	bool hides_paths; /**< sql_catalog_hide_paths() was called */
	pthread_mutex_t lock;
	uint64_t damaged;    /**< damaged batches and parts of files, atomic */
	uint64_t incomplete; /**< files that are not complete, atomic */
	uint64_t rows;	     /**< rows of all scans so far, atomic */
	uint64_t rows_total; /**< rows that the scans so far will read, atomic */
};

/**
 * Create a catalog of the runs of a list. Sets of the same run name, also of several directories,
 * are one run. The run's name is that of the file up to `_frames` or `_images`, without the number
 * of a set; of a file of a store, without the incarnation.
 * @param warn  reports a damaged batch or file once; NULL: nothing is reported
 * @return 0; -ENOMEM
 */
int sql_catalog_create(
	struct sql_catalog *c, const struct scan_list *list, sql_warn warn, void *arg);

/**
 * Remove the runs for which `may` returns false, as if they did not exist. Before the first
 * statement.
 */
void sql_catalog_keep(struct sql_catalog *c, bool (*may)(void *arg, const char *run), void *arg);

/**
 * Hide paths from those who make queries: errors name files without their directories. `warn` gets
 * such an error with the path, once for each file. Before the first statement.
 */
void sql_catalog_hide_paths(struct sql_catalog *c);

void sql_catalog_destroy(struct sql_catalog *c);

/** Find a run; case of ASCII letters does not matter. @return NULL: none (any thread) */
struct sql_run *sql_catalog_find(const struct sql_catalog *c, const char *name);

/** Write how many runs there are, and the names of the first few, for messages. (any thread) */
void sql_catalog_names(const struct sql_catalog *c, char *text, size_t size);

/**
 * Open the files of a table of a run. Reports files that seem to be of different runs
 * (scan/same_name.h). (any thread)
 * @param error  out, on error: what is wrong, at most `size` bytes
 * @return 0; -EBADMSG: a file is not one of this table; -ENOENT: there is no file; -EIO: some bytes
 *   could not be read; -errno
 */
int sql_catalog_open(struct sql_catalog *c, struct sql_run *run, enum arrow_table table,
	char *error, size_t size);

/** Name of a file in errors of queries: its path, or without the directory. (any thread) */
const char *sql_catalog_shown(const struct sql_catalog *c, const struct sql_file *f);

/** Report an error of a file, with its path, if errors hide it. (any thread) */
void sql_catalog_report(struct sql_catalog *c, struct sql_file *f, const char *text);

/** Write an error of a file: its name, and what is wrong. It is reported, too. (any thread) */
void sql_catalog_error(
	struct sql_catalog *c, struct sql_file *f, const char *problem, char *error, size_t size);

/** Whether a batch may be used; checks it when it is new. (any thread) */
bool sql_catalog_check(struct sql_catalog *c, struct sql_file *f, size_t batch);

/**
 * CPU time that the calling thread has used so far in sql_catalog_check() of any catalog, ns. A
 * batch is checked once, so this is no cost of the statement that touches it first. (any thread)
 */
uint64_t sql_catalog_check_time(void);

/**
 * Whether a batch has a frame number of a range. It reads the column `frame`, before the CRC is
 * checked. (any thread)
 */
bool sql_catalog_overlaps(
	struct sql_catalog *c, struct sql_file *f, size_t batch, uint64_t first, uint64_t last);

/** A mapped file. */
struct sql_mapping {
	const uint8_t *data;
	uint64_t size;
	const struct map_guard *guard;
};

/**
 * Find the mapped file that has some bytes. The mapping lives as long as the catalog. (any thread)
 * @return false: none, or it is not mapped
 */
bool sql_catalog_mapping(struct sql_catalog *c, const void *bytes, struct sql_mapping *mapping);

/**
 * Find an open file of which some bytes could not be read: it was truncated, or its disk has an
 * error. It is reported. Data that was read since the last call may be wrong. (any thread)
 * @return its name in errors; NULL: none
 */
const char *sql_catalog_unreadable(struct sql_catalog *c);

#endif /* SQL_CATALOG_H */
