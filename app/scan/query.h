/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * --sql: executes a SELECT over runs with DuckDB, here or by a server, and writes its result.
 */
#ifndef QUERY_H
#define QUERY_H

#include <stdbool.h>

#include "remote/client.h"
#include "scan/list.h"

/** How a result is written. */
enum query_format {
	QUERY_TABLE, /**< aligned columns */
	QUERY_CSV,   /**< RFC 4180, with a line of names first */
	QUERY_JSON,  /**< an object for each row, one a line */
	QUERY_ARROW, /**< Arrow IPC stream */
	QUERY_FORMATS
};

extern const char *const query_format_names[QUERY_FORMATS];

struct query_options {
	const char *sql; /**< "-": standard input */
	enum query_format format;
	unsigned int threads; /**< 0: one for each CPU */
	const char *memory;   /**< NULL: DuckDB's default */
	bool unordered;	      /**< rows may come in any order */
	bool stats;	      /**< print counters of the result to standard error */
};

/**
 * Execute a query and write its result to standard output. SIGINT cancels it.
 * @return exit status: 0; 1: an error, or damaged or incomplete files; 130: cancelled
 */
int query(const struct scan_list *list, const struct query_options *o);

/**
 * Have a server execute a query, and write its result to standard output. EAL must have started,
 * with query_prepare() before it. SIGINT cancels the query.
 * @return exit status: 0; 1: an error; 130: cancelled
 */
int query_remote(const struct scan_client_config *server, const struct query_options *o);

/** Block the signals that a query handles, before other threads start. */
void query_prepare(void);

#endif /* QUERY_H */
