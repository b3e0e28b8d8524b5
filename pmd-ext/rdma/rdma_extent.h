/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_EXTENT_H
#define RDMA_EXTENT_H

/**
 * @file
 * Allocates address ranges from a few spans, and merges freed ranges. Its bookkeeping is outside
 * the managed memory, because peers may write to that memory. Every operation takes a bounded time,
 * independent of the number of ranges (segregated fits as in TLSF, Masmano et al., 2004). Only
 * rdma_extents_create() allocates memory.
 *
 * Only one thread at a time may use an allocator.
 */

#include <stdint.h>

/** Ranges start and end at multiples of this, so that no two share a cache line. */
#define RDMA_EXTENT_UNIT 64

struct rdma_extents;

/**
 * Create an allocator.
 * @param most maximum number of ranges in use at a time
 * @param spans maximum number of spans
 * @return NULL: no memory
 */
struct rdma_extents *rdma_extents_create(uint32_t most, uint32_t spans);
void rdma_extents_destroy(struct rdma_extents *x);

/**
 * Add a span. Its address and length are multiples of RDMA_EXTENT_UNIT.
 * @param id out: for rdma_extents_remove()
 * @return 0; -ENOSPC: more spans than passed to rdma_extents_create()
 */
int rdma_extents_add(
	struct rdma_extents *x, uint64_t addr, uint64_t length, uint32_t span, uint32_t *id);

/** Remove a span. @return 0; -EBUSY: ranges of it are in use */
int rdma_extents_remove(struct rdma_extents *x, uint32_t id);

/** A range in a span. */
struct rdma_extent {
	uint64_t addr;
	uint64_t length; /**< rounded up */
	uint32_t span;
	uint32_t id; /**< for rdma_extents_free() */
};

/**
 * Allocate a range.
 * @param align power of two; 0: RDMA_EXTENT_UNIT
 * @return 0; -ENOMEM: no span has such a free range; -ENOSPC: `most` ranges are in use
 */
int rdma_extents_alloc(
	struct rdma_extents *x, uint64_t length, uint64_t align, struct rdma_extent *extent);

/** Free a range. @return 0; -EINVAL: not a range in use */
int rdma_extents_free(struct rdma_extents *x, uint32_t id, uint64_t addr);

#endif
