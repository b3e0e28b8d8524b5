/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_POOL_H
#define RDMA_POOL_H

/**
 * @file
 * Registered memory to cut buffers from: few large regions on huge pages, of the device's NUMA
 * node, there and registered before the first transfer. Registering each buffer for its transfer
 * takes longer than the transfer (65 % of the time in the case that led here, NIXL issue 1074); a
 * buffer of a pool is registered already.
 *
 * Functions are *control* functions of rdma.h, but rdma_pool_alloc() and rdma_pool_free(), which
 * make no system call and take a bounded time: any lcore, one at a time.
 */

#include "rdma.h"
#include "rdma_pages.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_pool;

/** What a pool is made of. Zero means the default where one is named. */
struct rdma_pool_attr {
	uint64_t bytes;		   /**< of all buffers together; rounded up to 2 MiB a region */
	uint64_t region_bytes;	   /**< of a region at most (rdma_dev_info.max_mr_bytes) */
	uint32_t access;	   /**< of enum rdma_access (all but relaxed ordering) */
	uint32_t buffers_max;	   /**< in use at a time (65,536) */
	enum rdma_pages_kind kind; /**< the best to be tried (RDMA_PAGES_HUGETLB) */
	int16_t numa_node;	   /**< -1: the device's; -2: any */
	uint16_t threads;	   /**< of the start (one a CPU of EAL's lcores, at most 16) */
};

/** A buffer: for scatter-gather lists and for peers. */
struct rdma_buffer {
	void *addr;
	uint64_t length; /**< as asked for */
	uint32_t lkey;
	uint32_t rkey;
	uint32_t id; /**< the pool's */
};

/** What a pool is and was. */
struct rdma_pool_info {
	uint64_t bytes;
	uint32_t nb_regions;
	enum rdma_pages_kind kind; /**< the worst of the regions */
	int16_t numa_node;
	uint64_t prefault_ns; /**< of the start: making all pages be there */
	uint64_t register_ns; /**< of the start: registering them */
	uint64_t used_bytes, used_bytes_peak;
	uint32_t used_buffers, used_buffers_peak;
	uint64_t allocs, alloc_failures;
};

/**
 * @return the pool; NULL with rte_errno
 *   - EINVAL: no bytes, or buffers_max out of range
 *   - ENOMEM: so much memory is not free
 *   - others: those of rdma_mr_reg()
 */
struct rdma_pool *rdma_pool_create(struct rdma_pd *pd, const struct rdma_pool_attr *attr);

/** @return 0; -EBUSY: buffers are in use, or unfinished requests name them (try again) */
int rdma_pool_destroy(struct rdma_pool *pool);

/**
 * Cut a buffer.
 *
 * @param length bytes; as much as a region has at most
 * @param align power of two; 0: a cache line, which is the least
 * @return 0; -ENOMEM: no such range is free; -ENOSPC: buffers_max are in use
 */
int rdma_pool_alloc(
	struct rdma_pool *pool, uint64_t length, uint64_t align, struct rdma_buffer *buffer);

/** @return 0; -EINVAL: not a buffer of this pool that is in use */
int rdma_pool_free(struct rdma_pool *pool, const struct rdma_buffer *buffer);

/** @return 0 */
int rdma_pool_info_get(const struct rdma_pool *pool, struct rdma_pool_info *info);

#ifdef __cplusplus
}
#endif

#endif
