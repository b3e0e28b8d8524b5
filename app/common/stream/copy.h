/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Batches of a file into one of their own, beside it, before the file is cut off.
 *
 * The copy has a hidden name (arrow/names.h) until all of it is durable: some of it alone would be
 * taken for what was sent again. One thread for each stream.
 */
#ifndef STREAM_COPY_H
#define STREAM_COPY_H

#include <limits.h>

#include "arrow/async_writer.h"
#include "interval_set.h"
#include "stream/source.h"

/**
 * @param io        as that of the slices, which are how it is written but for it
 * @param identity  of the stream
 * @param path      of a complete file RUN_..., which has `which`
 * @param above     the highest number of a file of the stream
 * @param copy      out: path of the new file, which is complete and durable; also on error, if it
 *   has that name, which may not be durable; else empty
 * @param message   out, on error: what cannot be done
 * @return 0; -EBADMSG: some of it is damaged; -ENOSPC: before anything is written, if that can be
 *   told; -errno
 */
int stream_copy(const struct arrow_io_ops *io, const struct arrow_slices_config *slices,
	const struct arrow_identity *identity, const char *path, const struct interval_set *which,
	unsigned int above, char copy[PATH_MAX], char message[PATH_MAX]);

/** The number of a file in the order of its stream's; 0: this is no name of a store's file. */
unsigned int stream_copy_number(const char *path);

/** Remove what somebody who was killed has left of a copy of a stream. @return 0 or -errno */
int stream_copy_clean(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_identity *identity);

#endif /* STREAM_COPY_H */
