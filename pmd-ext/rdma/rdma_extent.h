/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_EXTENT_H
#define RDMA_EXTENT_H

/**
 * @file
 * Cuts ranges of addresses from a few spans, and puts them together again. What it knows of them is
 * kept elsewhere: peers may write to the memory itself. Any step takes a bounded time, whatever the
 * number of ranges (segregated fits, Masmano et al., TLSF, 2004), and allocates nothing.
 *
 * One thread at a time.
 */

#include <stdint.h>

/** Ranges start and end at multiples of this: no two share a cache line. */
#define RDMA_EXTENT_UNIT 64

struct rdma_extents;

/** @param most ranges in use at any time; @return NULL: no memory */
struct rdma_extents *rdma_extents_create(uint32_t most, uint32_t spans);
void rdma_extents_destroy(struct rdma_extents *x);

/** Add a span; multiples of RDMA_EXTENT_UNIT. @return 0; -ENOSPC: more spans than promised */
int rdma_extents_add(struct rdma_extents *x, uint64_t addr, uint64_t length, uint32_t span);

/** A range of a span. */
struct rdma_extent {
	uint64_t addr;
	uint64_t length; /**< rounded up */
	uint32_t span;
	uint32_t id; /**< for rdma_extents_free() */
};

/**
 * @param align power of two, 0: RDMA_EXTENT_UNIT
 * @return 0; -ENOMEM: no span has such a range; -ENOSPC: `most` ranges are in use
 */
int rdma_extents_alloc(
	struct rdma_extents *x, uint64_t length, uint64_t align, struct rdma_extent *extent);

/** @return 0; -EINVAL: that is no range in use */
int rdma_extents_free(struct rdma_extents *x, uint32_t id, uint64_t addr);

#endif
