/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The helper process of a statement: braggline-scan, which writes an Arrow IPC stream to a pipe.
 *
 * A process of its own keeps the engine, its threads and memory, and EAL (for an address of a
 * server) out of the calling program, and lets a statement be ended at any time.
 *
 * A pipe, not shared memory: its 1 MiB bounds what is on the way and stops the statement of a
 * client that does not read; its end tells each side that the other is gone; and it is the same for
 * a local and for a remote statement. The price is one copy by the kernel into each end.
 *
 * The process ends when the helper is cancelled, or its last reference is dropped. If the calling
 * program ends, the pipe breaks, and braggline-scan cancels its statement.
 *
 * One thread at a time reads. helper_cancel() can be called by any thread.
 */
#ifndef ADBC_HELPER_H
#define ADBC_HELPER_H

#include <stddef.h>
#include <stdint.h>

struct helper;

/**
 * Start a program.
 * @param argv      its arguments; argv[0] is the path, or a name that is searched in PATH
 * @param input     text for its standard input
 * @param deadline  seconds that it may run; 0: no limit. It is checked in functions that wait
 * @param helper    out: has one reference
 * @return 0; -errno: it does not start
 */
int helper_start(
	const char *const *argv, const char *input, double deadline, struct helper **helper);

/** Add a reference. */
struct helper *helper_get(struct helper *h);

/** Drop a reference. The last one ends the process. NULL is allowed. */
void helper_put(struct helper *h);

/** End the process: calls that wait for it return -ECANCELED. */
void helper_cancel(struct helper *h);

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

/** What it wrote to standard error so far, at most some KiB, without a line feed at the end. */
const char *helper_said(struct helper *h);

#endif /* ADBC_HELPER_H */
