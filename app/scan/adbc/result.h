/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Results as Arrow C streams: the Arrow IPC stream of a session process, or one in memory.
 *
 * A message body is read once, into memory that the arrays refer to. Arrays can be kept, and
 * released by any thread, also after the stream.
 */
#ifndef ADBC_RESULT_H
#define ADBC_RESULT_H

#include <stdbool.h>
#include <stddef.h>

#include "adbc/failure.h"
#include "adbc/pool.h"

/**
 * Read the schema of a helper's answer, and make a stream of it.
 * @param process        has begun the statement; the function takes the caller's reference. At the
 *                       end of the answer the pool gets it; if the stream is released before, or
 *                       the answer is not valid, it is ended
 * @param allow_damaged  damaged and incomplete files, which the helper reports by its exit status
 *                       after the last batch, are no error
 * @param stream  out
 */
AdbcStatusCode result_of_process(struct session_process *process, struct session_pool *pool,
	bool allow_damaged, struct ArrowArrayStream *stream, struct failure *f);

/**
 * Make a stream of an Arrow IPC stream in memory.
 * @param bytes  is freed with the stream, and on an error
 */
AdbcStatusCode result_of_memory(
	char *bytes, size_t size, struct ArrowArrayStream *stream, struct failure *f);

/**
 * Read a stream of these to its end, so that its process can be used again, and release it. Its
 * rows are not kept.
 * @param f  out: the failure of the stream; status ADBC_STATUS_OK: none
 */
AdbcStatusCode result_finish(struct ArrowArrayStream *stream, struct failure *f);

/** The last error of a stream of these; NULL: none, or another stream. It is that of the stream. */
const struct AdbcError *result_error(struct ArrowArrayStream *stream, AdbcStatusCode *status);

#endif /* ADBC_RESULT_H */
