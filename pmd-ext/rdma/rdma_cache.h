/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_CACHE_H
#define RDMA_CACHE_H

/**
 * @file
 * Registration cache for memory that cannot be allocated from a pool (rdma_pool.h), such as that of
 * a library or a user. A region is registered at its first use. It stays registered until it is
 * evicted to make room, or its memory is invalidated.
 *
 * Call rdma_cache_invalidate() *before* cached memory is unmapped or freed. No driver detects
 * munmap(), free() or rte_gpu_mem_free(), and the same address may later refer to other memory. The
 * cache detects by itself that EAL frees its memory.
 *
 * With `roce` this is not sufficient. An adapter pins pages, even after the program has unmapped
 * them. `roce` writes to the virtual address, and a peer's write to an unmapped page terminates the
 * process. Therefore invalidate, call rdma_cache_flush() until it returns 0, then unmap. Do the
 * same before an rte_free() that may return memory to the system, because EAL's notification comes
 * too late to wait.
 *
 * All functions are *control* functions of rdma.h, except rdma_cache_invalidate() and
 * rdma_cache_info_get().
 */

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

struct rdma_cache;
struct rdma_cache_entry;

/** Attributes of a cache. Zero selects the default, given in parentheses. */
struct rdma_cache_attr {
	uint64_t bytes_max;   /**< most bytes registered, in use or not (no limit) */
	uint32_t entries_max; /**< most regions (half of rdma_dev_info.max_mr) */
	uint32_t access;      /**< enum rdma_access, for all entries (all but relaxed ordering) */
};

/** A reference to registered memory. */
struct rdma_cache_ref {
	uint32_t lkey;
	uint32_t rkey;
	struct rdma_cache_entry *entry; /**< internal */
};

/** State and statistics of a cache. */
struct rdma_cache_info {
	uint64_t bytes, bytes_peak; /**< registered */
	uint32_t entries, entries_peak;
	uint32_t in_use;	       /**< entries with references */
	uint64_t hits, misses;	       /**< of rdma_cache_get() */
	uint64_t registrations;	       /**< successful ones */
	uint64_t registered_ns;	       /**< time of all registrations, including failed ones */
	uint64_t deregistrations;      /**< successful ones */
	uint64_t deregistrations_busy; /**< attempts that failed, for example with -EBUSY */
	uint64_t deregistered_ns;      /**< time of all deregistrations, including failed ones */
	uint64_t merges;	       /**< new regions that replaced others */
	uint64_t evictions;	       /**< entries removed to make room */
	uint64_t invalidations;	       /**< entries removed because their memory was invalidated */
	uint64_t failures;	       /**< of rdma_cache_get() */
};

/**
 * Create a cache.
 * @return NULL with rte_errno EINVAL (access rights that rdma_mr_reg() refuses), ENOMEM
 */
struct rdma_cache *rdma_cache_create(struct rdma_pd *pd, const struct rdma_cache_attr *attr);

/**
 * Destroy a cache.
 * @return 0; -EBUSY: entries are in use, or outstanding requests refer to them (try again)
 */
int rdma_cache_destroy(struct rdma_cache *cache);

/**
 * Get a reference to memory, and register it if it is not registered yet. Host memory is registered
 * in whole pages. It is merged with overlapping regions into one, if that fits into a region and is
 * at most twice as long.
 *
 * @param gpu gpudev of the memory; -1: host. For GPU memory the first call must name a whole
 *   allocation, because a dma-buf covers an allocation. Later calls may name any part of it.
 * @return 0 with *ref, valid until rdma_cache_put(); otherwise
 *   - -EINVAL: length 0, or the range wraps around
 *   - -ENOSPC: the limits are reached, and all registered regions are in use
 *   - others: those of rdma_mr_reg()
 */
int rdma_cache_get(struct rdma_cache *cache, const void *addr, uint64_t length, int16_t gpu,
	struct rdma_cache_ref *ref);

/**
 * Release a reference, after all requests that use it have completed. The memory stays registered.
 */
void rdma_cache_put(struct rdma_cache *cache, struct rdma_cache_ref *ref);

/**
 * Invalidate memory that is about to be unmapped or freed. Any thread, lcore or not. After this
 * function returns, rdma_cache_get() does not return an existing region for any of these bytes. The
 * next control function of the cache deregisters the regions; rdma_cache_put() deregisters a region
 * in use. Until then peers may access them, see rdma_cache_flush().
 */
void rdma_cache_invalidate(struct rdma_cache *cache, const void *addr, uint64_t length);

/**
 * Deregister invalidated memory.
 * @return 0: none of it is registered any more, it may be unmapped; -EBUSY: some is in use, or
 *   outstanding requests or the port refer to it (poll the poll groups and try again)
 */
int rdma_cache_flush(struct rdma_cache *cache);

/** Get state and statistics. Any thread; the values are not a consistent snapshot. @return 0 */
int rdma_cache_info_get(const struct rdma_cache *cache, struct rdma_cache_info *info);

#ifdef __cplusplus
}
#endif

#endif
