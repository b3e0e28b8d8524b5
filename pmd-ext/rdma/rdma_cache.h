/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_CACHE_H
#define RDMA_CACHE_H

/**
 * @file
 * Keeps foreign memory registered: that of a library or a user, which comes by address and cannot
 * be taken from a pool (rdma_pool.h). A region is registered at its first use and stays so until it
 * has to make room or its memory goes.
 *
 * What a cache must be told: that memory goes. No driver sees munmap(), free() or
 * rte_gpu_mem_free(), and an address that comes back is then other memory: call
 * rdma_cache_invalidate() *before*. Memory of EAL that hot-unplugging takes away is noticed anyhow.
 *
 * Over `roce` that is not enough. An adapter pins pages, whatever the program unmaps; there, what a
 * peer writes goes to the address, and a page that is not mapped ends the process. Invalidate, call
 * rdma_cache_flush() until it gives 0, then unmap; so, too, before rte_free() of memory of EAL that
 * may go with it, as that is told of when it is too late for waiting.
 *
 * All are *control* functions of rdma.h, but for rdma_cache_invalidate().
 */

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_cache;
struct rdma_cache_entry;

/** Zero means the default where one is named. */
struct rdma_cache_attr {
	uint64_t bytes_max;   /**< registered at most, in use or not (no limit) */
	uint32_t entries_max; /**< regions at most (half of rdma_dev_info.max_mr) */
	uint32_t access;      /**< of enum rdma_access; of all entries (all but relaxed ordering) */
};

/** Memory in use. */
struct rdma_cache_ref {
	uint32_t lkey;
	uint32_t rkey;
	struct rdma_cache_entry *entry; /**< the cache's */
};

/** What a cache is and did. */
struct rdma_cache_info {
	uint64_t bytes, bytes_peak; /**< registered */
	uint32_t entries, entries_peak;
	uint32_t in_use;	  /**< entries with references */
	uint64_t hits, misses;	  /**< of rdma_cache_get() */
	uint64_t registrations;	  /**< those that succeeded */
	uint64_t registered_ns;	  /**< time they took, failed ones included */
	uint64_t deregistrations; /**< and what had to be kept for a while: */
	uint64_t deregistrations_busy;
	uint64_t deregistered_ns;
	uint64_t merges;	/**< regions that took others in */
	uint64_t evictions;	/**< to make room */
	uint64_t invalidations; /**< entries whose memory went */
	uint64_t failures;	/**< of rdma_cache_get() */
};

/** @return NULL with rte_errno EINVAL (rights that rdma_mr_reg() refuses), ENOMEM */
struct rdma_cache *rdma_cache_create(struct rdma_pd *pd, const struct rdma_cache_attr *attr);

/** @return 0; -EBUSY: entries are in use, or unfinished requests name them (try again) */
int rdma_cache_destroy(struct rdma_cache *cache);

/**
 * Memory to be used: registered, if it is not yet. Whole pages are; with what it overlaps it
 * becomes one region, as long as that fits into one and is not more than twice as long.
 *
 * @param gpu gpudev that it is of, -1: host. Of a GPU, the first call names a whole allocation,
 *   later ones any part of it: dma-bufs are of allocations.
 * @return 0 with *ref, until rdma_cache_put(); otherwise
 *   - -ENOSPC: all that is registered is in use, and no room is left
 *   - others: those of rdma_mr_reg()
 */
int rdma_cache_get(struct rdma_cache *cache, const void *addr, uint64_t length, int16_t gpu,
	struct rdma_cache_ref *ref);

/** It is used no longer (all requests that name it have completed). It stays registered. */
void rdma_cache_put(struct rdma_cache *cache, struct rdma_cache_ref *ref);

/**
 * Memory goes. From the return of this on, rdma_cache_get() gives no region of before for any of
 * these bytes. Regions are deregistered by the next control function, those in use when they are
 * put; until then peers may reach them: rdma_cache_flush(). Any thread, lcore or not.
 */
void rdma_cache_invalidate(struct rdma_cache *cache, const void *addr, uint64_t length);

/**
 * Deregister what was announced to go.
 * @return 0: nothing of it is registered any more, and it may be unmapped; -EBUSY: some is in use,
 *   or unfinished requests or the port name it (poll the poll groups, try again)
 */
int rdma_cache_flush(struct rdma_cache *cache);

/** Any thread; of about now. @return 0 */
int rdma_cache_info_get(const struct rdma_cache *cache, struct rdma_cache_info *info);

#ifdef __cplusplus
}
#endif

#endif
