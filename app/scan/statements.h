/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * --session: executes statements that come on standard input, one after another, with answers on
 * standard output (adbc/pipe.h), until the input ends.
 */
#ifndef STATEMENTS_H
#define STATEMENTS_H

#include "query.h"

/**
 * Execute statements over runs. Each one sees the runs that exist when it begins: the engine is
 * opened again if files were added, removed or changed, and after a statement that failed.
 * @param path  directories and files of runs
 * @return exit status: 0: the input has ended; 1: an error; 130: a statement was cancelled
 */
int statements_local(char *const *path, int nb, const struct query_options *o);

/**
 * Have a server execute the statements, over one connection. It is opened again if it has ended
 * between two statements. EAL must have started, with query_prepare() before it.
 */
int statements_remote(const struct scan_client_config *server, const struct query_options *o);

#endif /* STATEMENTS_H */
