/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Options of databases, connections and statements, and the command line that they make.
 *
 * A connection begins with the options of its database, and a statement with those of its
 * connection.
 */
#ifndef ADBC_OPTIONS_H
#define ADBC_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

#include "adbc/failure.h"

enum option {
	OPTION_URI,	      /**< where the runs are, one a line: folders, files, or one server */
	OPTION_PROGRAM,	      /**< path or name of braggline-scan */
	OPTION_EAL,	      /**< options of EAL for it, one a line; only for a server */
	OPTION_DEVICE,	      /**< --device */
	OPTION_IDENTITY,      /**< --identity */
	OPTION_KEY,	      /**< --key */
	OPTION_PULL,	      /**< --pull: true or false */
	OPTION_THREADS,	      /**< --threads */
	OPTION_MEMORY,	      /**< --memory */
	OPTION_UNORDERED,     /**< --unordered: true or false */
	OPTION_DEADLINE,      /**< seconds that a statement may run; 0: no limit */
	OPTION_ALLOW_DAMAGED, /**< true: damaged and incomplete files are no error */
	OPTION_PARTITION_BY,  /**< of ExecutePartitions: none, or source (a line of the URI) */
	OPTIONS
};

struct options {
	char *value[OPTIONS]; /**< NULL: default */
};

/** Find an option. @return OPTIONS: there is none */
enum option option_find(const char *name);

/** Set an option, after a check. NULL sets the default. */
AdbcStatusCode options_set(
	struct options *o, enum option option, const char *value, struct failure *f);

/** Value of an option, or its default; NULL: it has none. */
const char *options_get(const struct options *o, enum option option);

bool options_true(const struct options *o, enum option option);

/** Copy options that are not set. @return 0; -ENOMEM: some are copied */
int options_inherit(struct options *to, const struct options *from);

void options_free(struct options *o);

/** Number of sources, which are the lines of the URI. */
size_t options_sources(const struct options *o);

/** Copy a source to a separate URI. @return 0; -ENOMEM */
int options_one_source(struct options *to, const struct options *from, size_t source);

/** Arguments of a program, ending in NULL. They refer to `text`. */
struct command_line {
	const char **argv;
	char *text;
};

/** Make the command line of a process that executes statements (adbc/pipe.h). */
AdbcStatusCode command_line_make(
	struct command_line *c, const struct options *o, struct failure *f);

void command_line_free(struct command_line *c);

#endif /* ADBC_OPTIONS_H */
