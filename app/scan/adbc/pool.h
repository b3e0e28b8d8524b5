/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The process of a connection between two statements. A statement takes it if it has the
 * same command line, and returns it when its answer has ended. Statements that run at the same time
 * have separate processes; one of these is kept.
 *
 * Statements and streams can outlive the connection, so each has a reference. Any thread.
 */
#ifndef ADBC_POOL_H
#define ADBC_POOL_H

#include "adbc/session_process.h"

struct session_pool;

/** Create a pool with one reference. @return NULL: not enough memory */
struct session_pool *session_pool_create(void);

/** Add a reference. */
struct session_pool *session_pool_get(struct session_pool *p);

/** Drop a reference. NULL is allowed. */
void session_pool_put(struct session_pool *p);

/** End the process that waits, keep none from now on, and drop a reference. */
void session_pool_close(struct session_pool *p);

/** Take the process, if it lives and has this command line. @return NULL: start one */
struct session_process *session_pool_take(struct session_pool *p, const char *const *argv);

/** Keep a process that waits for a statement, or end it. It takes the caller's reference. */
void session_pool_give(struct session_pool *p, struct session_process *h);

#endif /* ADBC_POOL_H */
