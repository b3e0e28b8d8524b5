/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Makes the chunks of images in threads, and returns them in order. HDF5 may be called by one
 * thread only, and compression of photons takes longer than writing their chunks. The caller's
 * thread gets the batches (e->load).
 */
#ifndef EXPORT_CHUNK_POOL_H
#define EXPORT_CHUNK_POOL_H

#include <sys/types.h>

#include "export.h"

struct chunk_pool;

/**
 * Begin to make chunks of images, with e->threads threads. Raw images are chunks already, and need
 * no thread.
 * @param first, nb  images of the selection
 * @return 0; -ENOMEM; -EAGAIN: no thread could be started
 */
int chunk_pool_open(struct chunk_pool **pool, struct export *e, size_t first, size_t nb);

/**
 * Chunk of the next image.
 * @param chunk   out: valid until the next call, or as long as its batch
 * @param record  out: a reference to the batch that the chunk is in, which the caller drops; NULL:
 *                the chunk is not in a batch
 * @return bytes; -EBADMSG: e->message; errors of e->load
 */
ssize_t chunk_pool_next(
	struct chunk_pool *pool, const uint8_t **chunk, struct scan_record **record);

/** End the threads. */
void chunk_pool_close(struct chunk_pool *pool);

#endif /* EXPORT_CHUNK_POOL_H */
