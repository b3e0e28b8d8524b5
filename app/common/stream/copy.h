/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Copies batches of a file into a new file in the same directory, before the file is truncated.
 *
 * The copy has a hidden name (arrow/names.h) until all of it is durable. Otherwise readers would
 * see some batches twice. One thread per stream.
 */
#ifndef STREAM_COPY_H
#define STREAM_COPY_H

#include <limits.h>

#include "arrow/async_writer.h"
#include "interval_set.h"
#include "stream/source.h"

/**
 * Copy batches of a file.
 * @param io        as that of the slices
 * @param slices    how the copy is written, except for `io`
 * @param identity  of the stream
 * @param path      a complete file RUN_..., which has the batches `which`
 * @param above     highest file number of the stream
 * @param copy      out: path of the new file, which is complete and durable. On an error, the path
 *   is also set if the file has that name, which may then not be durable; otherwise it is empty
 * @param message   out, on error: what failed
 * @return 0; -EBADMSG: a batch is damaged; -ENOSPC: detected before anything is written, if
 *   possible; -errno
 */
int stream_copy(const struct arrow_io_ops *io, const struct async_writer_config *slices,
	const struct arrow_identity *identity, const char *path, const struct interval_set *which,
	unsigned int above, char copy[PATH_MAX], char message[PATH_MAX]);

/** @return number of a file in the order of its stream; 0: not a name of a store's file */
unsigned int stream_copy_number(const char *path);

/** Remove copies of a stream that a killed process left incomplete. @return 0 or -errno */
int stream_copy_clean(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_identity *identity);

#endif /* STREAM_COPY_H */
