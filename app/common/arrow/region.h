/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A growing buffer of a record batch. Address space for its maximum size is reserved once; pages
 * are allocated on first use. The buffer never moves and is page-aligned, so it can be written in
 * place.
 *
 * Pages are kept for the next batch. Pages that none of BATCH_REGION_WINDOW batches needed are
 * freed. Limitation: in a process that locks future memory (mlockall(MCL_FUTURE)), all pages are
 * allocated immediately.
 */
#ifndef BATCH_REGION_H
#define BATCH_REGION_H

#include <stddef.h>
#include <stdint.h>

#define BATCH_REGION_WINDOW 16

struct batch_region {
	uint8_t *base;
	size_t reserved;
	size_t used;
	size_t summed;	  /**< bytes that `crc` covers */
	uint32_t crc;	  /**< arrow_crc32c() */
	uint32_t batches; /**< number of batches in this window */
	size_t peak;	  /**< size of the largest batch in this window, bytes */
	size_t committed; /**< pages up to this offset may be allocated */
};

/** @return 0; -errno of mmap(2) */
int batch_region_init(struct batch_region *r, size_t most);

void batch_region_free(struct batch_region *r);

/**
 * Append `size` uninitialized bytes. Aborts beyond the reserved size: callers start a new batch
 * before they reach it.
 */
uint8_t *batch_region_grow(struct batch_region *r, size_t size);

/**
 * Remove unused bytes of the last batch_region_grow(), and update the CRC while the rest is in the
 * cache.
 */
void batch_region_shrink(struct batch_region *r, size_t unused);

/** Copy `size` bytes to the end. */
void batch_region_append(struct batch_region *r, const void *data, size_t size);

/**
 * As batch_region_append(), for large data: in slices, whose CRC is computed while they are in the
 * cache.
 */
void batch_region_append_large(struct batch_region *r, const void *data, size_t size);

/**
 * End the batch: append zeros up to a multiple of `align`, and complete the CRC, which covers the
 * zeros.
 * @param before  bytes of the buffer that are elsewhere, before those of the region
 * @return size of the region with the zeros, bytes
 */
size_t batch_region_finish(struct batch_region *r, size_t before, size_t align);

/** Empty the buffer. */
void batch_region_reset(struct batch_region *r);

#endif /* BATCH_REGION_H */
