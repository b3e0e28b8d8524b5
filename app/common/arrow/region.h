/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A growing buffer of a record batch: address space for the most it can hold is reserved once,
 * pages are committed by use. Nothing moves when it grows, and it starts at a page, so that it can
 * be written as it lies.
 *
 * Pages stay for the next batch; those that none of BATCH_REGION_WINDOW batches needed go back.
 * A process that locks all its future memory (mlockall(MCL_FUTURE)) would commit everything.
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
	size_t summed;	  /**< bytes that crc covers */
	uint32_t crc;	  /**< arrow_crc32c() */
	uint32_t batches; /**< in this window */
	size_t peak;	  /**< most bytes of a batch in this window */
	size_t committed; /**< pages up to here may be in memory */
};

/** @return 0; -errno of mmap(2) */
int batch_region_init(struct batch_region *r, size_t most);

void batch_region_free(struct batch_region *r);

/** Room of `size` bytes at the end; aborts if more than was reserved: callers cut batches before.
 */
uint8_t *batch_region_grow(struct batch_region *r, size_t size);

/** Give back what was not needed of the last batch_region_grow(); the rest is in the cache: CRC. */
void batch_region_shrink(struct batch_region *r, size_t unused);

/** Copy `size` bytes to the end. */
void batch_region_append(struct batch_region *r, const void *data, size_t size);

/** The same for much data, in slices whose CRC is taken while they are in the cache. */
void batch_region_append_large(struct batch_region *r, const void *data, size_t size);

/**
 * No more of this batch: fill with zeros up to a multiple of `align` and complete the CRC, which
 * covers the zeros as well.
 * @return bytes with the zeros
 */
size_t batch_region_finish(struct batch_region *r, size_t align);

/** Empty again. */
void batch_region_reset(struct batch_region *r);

#endif /* BATCH_REGION_H */
