/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A helper process: braggline-scan, which executes statements one after another (adbc/pipe.h).
 *
 * A separate process keeps the engine, its threads and memory, and EAL (for an address of a server)
 * out of the calling program. It also allows a statement to be ended at any time.
 *
 * The two processes are connected by pipes, not by shared memory. A pipe holds at most 1 MiB, so
 * the statement of a client that does not read waits. Each side detects from the end of the pipe
 * that the other has exited. Local and remote statements use the same code. The cost is one copy by
 * the kernel at each end.
 *
 * The process ends when a statement is cancelled, when helper_end() is called, or when its last
 * reference is dropped. If the calling program ends, the pipe breaks, and braggline-scan cancels
 * its statement.
 *
 * One thread at a time begins a statement and reads its answer. helper_cancel() can be called by
 * any thread.
 */
#ifndef ADBC_HELPER_H
#define ADBC_HELPER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct helper;

/**
 * Start a program.
 * @param argv    its arguments; argv[0] is the path, or a name that is searched in PATH
 * @param helper  out: has one reference
 * @return 0; -errno: it does not start
 */
int helper_start(const char *const *argv, struct helper **helper);

/** Add a reference. */
struct helper *helper_get(struct helper *h);

/** Drop a reference. The last one ends the process. NULL is allowed. */
void helper_put(struct helper *h);

/** End the process, and drop a reference. NULL is allowed. */
void helper_end(struct helper *h);

/** As helper_end(), for a process that waits for a statement: it may end its connection first. */
void helper_close(struct helper *h);

/** Whether it was started with these arguments by this process. */
bool helper_has_command(const struct helper *h, const char *const *argv);

/** Whether the process has not ended. */
bool helper_is_alive(const struct helper *h);

/**
 * Begin a statement. The answer to the one before has ended.
 * @param deadline  seconds that it may run; 0: no limit. It is checked in functions that wait
 * @param number    out: of the statement
 * @return 0; -EPIPE: the process has ended; -ECANCELED; -ETIMEDOUT; -errno
 */
int helper_begin(struct helper *h, const char *sql, double deadline, uint64_t *number);

/** The answer to the statement has ended: it can no longer be cancelled. */
void helper_done(struct helper *h);

/** End the process, if this statement runs: calls that wait for it return -ECANCELED. */
void helper_cancel(struct helper *h, uint64_t number);

/**
 * Read exactly `size` bytes of its output.
 * @return 1; 0: its output ended before; -ECANCELED; -ETIMEDOUT: the deadline has passed; -errno
 */
int helper_read(void *helper, void *to, size_t size);

/**
 * Wait for its end.
 * @param status  out: exit status, 128 + N if it was ended by signal N
 * @return 0; -ECANCELED; -ETIMEDOUT; -errno
 */
int helper_wait(struct helper *h, int *status);

/**
 * The text that it wrote to standard error for this statement, at most some KiB, without a line
 * feed at the end.
 */
const char *helper_said(struct helper *h);

#endif /* ADBC_HELPER_H */
