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
#include "sql/session.h"

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
 * @return exit status: 0; 1: an error, or damaged or incomplete files; 2: a wrong `memory`; 130:
 *   cancelled
 */
int query(const struct scan_list *list, const struct query_options *o);

/**
 * Have a server execute a query, and write its result to standard output. EAL must have started,
 * with query_prepare() before it. SIGINT cancels the query.
 * @return exit status: 0; 1: an error; 130: cancelled
 */
int query_remote(const struct scan_client_config *server, const struct query_options *o);

/**
 * Execute a statement of an open session and write its result to standard output, as query().
 * @return exit status of query(), but damaged and incomplete files are no error
 */
int query_session(struct sql_session *s, const char *sql, const struct query_options *o);

/**
 * Have the server of a connection execute a statement, as query_remote().
 * @return exit status of query_remote(); -EPIPE: the connection had ended before, and the server
 *   did not begin the statement, which is not printed
 */
int query_client(struct scan_client *c, const char *sql, const struct query_options *o);

/**
 * Connect to a server. SIGINT ends the wait; a second one ends the process with QUERY_CANCELLED.
 * @param c       out; NULL after an error
 * @param server  `give_up` is not used
 * @return as scan_client_open(): -ECANCELED: SIGINT; -EPIPE: the reader of standard output has
 *   exited; an error is printed
 */
int query_connect(struct scan_client **c, const struct scan_client_config *server);

/** Print the error of a session or of a client. */
void query_print_error(const char *error);

/** Print a warning of a catalog. @param arg  not used */
void query_warn(void *arg, const char *text);

/** Exit status if an option has a wrong value. */
#define QUERY_USAGE 2

/** Exit status of a query that SIGINT has cancelled, as a shell reports it. */
#define QUERY_CANCELLED 130

/** Of query_session(), if the result ends within a message: nothing can follow it. */
#define QUERY_CUT 3

/** Block the signals that a query handles, before other threads start. */
void query_prepare(void);

#endif /* QUERY_H */
