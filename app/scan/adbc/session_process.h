/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A process of braggline-scan, which executes statements one after another (adbc/pipe.h).
 *
 * A separate process keeps the engine, its threads and memory, and EAL (for an address of a server)
 * out of the calling program. It also allows a statement to be ended at any time.
 *
 * The two processes are connected by pipes, not by shared memory. A pipe holds at most 1 MiB, so
 * the statement of a client that does not read waits. Each side detects from the end of the pipe
 * that the other has exited. Local and remote statements use the same code. The cost is one copy by
 * the kernel at each end.
 *
 * The process ends when a statement is cancelled, when session_process_end() is called, or when its
 * last reference is dropped. If the calling program ends, the pipe breaks, and braggline-scan
 * cancels its statement.
 *
 * One thread at a time begins a statement and reads its answer. session_process_cancel() can be
 * called by any thread.
 */
#ifndef ADBC_SESSION_PROCESS_H
#define ADBC_SESSION_PROCESS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct session_process;

/**
 * Start a program.
 * @param argv     its arguments; argv[0] is the path, or a name that is searched in PATH
 * @param process  out: has one reference
 * @return 0; -errno: it does not start
 */
int session_process_start(const char *const *argv, struct session_process **process);

/** Add a reference. */
struct session_process *session_process_get(struct session_process *h);

/** Drop a reference. The last one ends the process. NULL is allowed. */
void session_process_put(struct session_process *h);

/** End the process, and drop a reference. NULL is allowed. */
void session_process_end(struct session_process *h);

/**
 * As session_process_end(), for a process that waits for a statement: it may end its connection
 * first.
 */
void session_process_close(struct session_process *h);

/** Whether it was started with these arguments by this process. */
bool session_process_has_command(const struct session_process *h, const char *const *argv);

/** Whether the process has not ended. */
bool session_process_is_alive(const struct session_process *h);

/**
 * Begin a statement. The answer to the one before has ended.
 * @param deadline  seconds that it may run; 0: no limit. It is checked in functions that wait
 * @param number    out: of the statement
 * @return 0; -EPIPE: the process has ended; -ECANCELED; -ETIMEDOUT; -errno
 */
int session_process_begin(
	struct session_process *h, const char *sql, double deadline, uint64_t *number);

/** The answer to the statement has ended: it can no longer be cancelled. */
void session_process_done(struct session_process *h);

/** End the process, if this statement runs: calls that wait for it return -ECANCELED. */
void session_process_cancel(struct session_process *h, uint64_t number);

/**
 * Read exactly `size` bytes of its output.
 * @return 1; 0: its output ended before; -ECANCELED; -ETIMEDOUT: the deadline has passed; -errno
 */
int session_process_read(void *process, void *to, size_t size);

/**
 * Wait for its end.
 * @param status  out: exit status, 128 + N if it was ended by signal N
 * @return 0; -ECANCELED; -ETIMEDOUT; -errno
 */
int session_process_wait(struct session_process *h, int *status);

/**
 * The text that it wrote to standard error for this statement, at most some KiB, without a line
 * feed at the end.
 */
const char *session_process_stderr(struct session_process *h);

#endif /* ADBC_SESSION_PROCESS_H */
