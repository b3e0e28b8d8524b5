/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * --sql: executes a SELECT over runs with DuckDB, and writes its result.
 */
#ifndef QUERY_H
#define QUERY_H

#include <stdbool.h>

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
};

/**
 * Execute a query and write its result to standard output. SIGINT cancels it.
 * @return exit status: 0; 1: an error, or damaged or incomplete files; 130: cancelled
 */
int query(const struct scan_list *list, const struct query_options *o);

#endif /* QUERY_H */
