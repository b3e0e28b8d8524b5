/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_POOL_H
#define RDMA_POOL_H

/**
 * @file
 * Buffer pool in registered memory: a few large regions on huge pages of the device's NUMA node,
 * faulted in and registered before the first transfer. Registration of each buffer for its transfer
 * may take longer than the transfer: 65 % of the time in NIXL issue 1074. A buffer of a pool is
 * already registered.
 *
 * All functions are *control* functions of rdma.h, except rdma_pool_alloc() and rdma_pool_free().
 * These two make no system call and take a bounded time; any lcore may call them, one at a time.
 */

#include "rdma.h"
#include "rdma_pages.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_pool;

/** Attributes of a pool. Zero selects the default, if one is given in parentheses. */
struct rdma_pool_attr {
	uint64_t bytes;		   /**< of all buffers; each region is rounded up to 2 MiB */
	uint64_t region_bytes;	   /**< maximum bytes of a region (rdma_dev_info.max_mr_bytes) */
	uint32_t access;	   /**< of enum rdma_access (all but relaxed ordering) */
	uint32_t buffers_max;	   /**< maximum number of buffers in use at a time (65,536) */
	enum rdma_pages_kind kind; /**< best kind of pages to try (RDMA_PAGES_HUGETLB) */
	int16_t numa_node;	   /**< -1: the device's; -2: any */
	uint16_t threads;	   /**< for creation (one per CPU of EAL's lcores, at most 16) */
};

/** A buffer, for local scatter-gather lists (lkey) and for peers (rkey). */
struct rdma_buffer {
	void *addr;
	uint64_t length; /**< as requested */
	uint32_t lkey;
	uint32_t rkey;
	uint32_t id; /**< internal */
};

/** State and statistics of a pool. */
struct rdma_pool_info {
	uint64_t bytes;
	uint32_t nb_regions;
	enum rdma_pages_kind kind; /**< the worst kind of all regions */
	int16_t numa_node;
	uint64_t prefault_ns; /**< time to map and fault in all pages at creation */
	uint64_t register_ns; /**< time to register them at creation */
	uint64_t used_bytes, used_bytes_peak;
	uint32_t used_buffers, used_buffers_peak;
	uint64_t allocs, alloc_failures;
};

/**
 * Create a pool.
 * @return the pool; NULL with rte_errno
 *   - EINVAL: bytes is 0 or needs too many regions, or buffers_max out of range
 *   - ENOMEM: not enough free memory
 *   - others: those of rdma_mr_reg()
 */
struct rdma_pool *rdma_pool_create(struct rdma_pd *pd, const struct rdma_pool_attr *attr);

/**
 * Destroy a pool.
 * @return 0; -EBUSY: buffers are in use, or outstanding requests refer to them (try again; in the
 *   second case some regions may be freed, and buffers come from the others only)
 */
int rdma_pool_destroy(struct rdma_pool *pool);

/**
 * Allocate a buffer.
 *
 * @param length bytes, at most the length of a region
 * @param align power of two; 0: a cache line, which is the minimum
 * @return 0; -ENOMEM: no such range is free; -ENOSPC: buffers_max buffers are in use
 */
int rdma_pool_alloc(
	struct rdma_pool *pool, uint64_t length, uint64_t align, struct rdma_buffer *buffer);

/** Free a buffer. @return 0; -EINVAL: not a buffer of this pool that is in use */
int rdma_pool_free(struct rdma_pool *pool, const struct rdma_buffer *buffer);

/** Get state and statistics. @return 0 */
int rdma_pool_info_get(const struct rdma_pool *pool, struct rdma_pool_info *info);

#ifdef __cplusplus
}
#endif

#endif
