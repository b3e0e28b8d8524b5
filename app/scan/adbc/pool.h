/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The helper process of a connection between two statements. A statement takes it if it has the
 * same command line, and returns it when its answer has ended. Statements that run at the same time
 * have separate processes; one of these is kept.
 *
 * Statements and streams can outlive the connection, so each has a reference. Any thread.
 */
#ifndef ADBC_POOL_H
#define ADBC_POOL_H

#include "adbc/helper.h"

struct helper_pool;

/** Create a pool with one reference. @return NULL: not enough memory */
struct helper_pool *helper_pool_create(void);

/** Add a reference. */
struct helper_pool *helper_pool_get(struct helper_pool *p);

/** Drop a reference. NULL is allowed. */
void helper_pool_put(struct helper_pool *p);

/** End the process that waits, keep none from now on, and drop a reference. */
void helper_pool_close(struct helper_pool *p);

/** Take the process, if it lives and has this command line. @return NULL: start one */
struct helper *helper_pool_take(struct helper_pool *p, const char *const *argv);

/** Keep a process that waits for a statement, or end it. It takes the caller's reference. */
void helper_pool_give(struct helper_pool *p, struct helper *h);

#endif /* ADBC_POOL_H */
