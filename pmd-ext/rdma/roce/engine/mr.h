/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_MR_H
#define ROCE_MR_H

/**
 * @file
 * Memory regions. A region is looked up by its key for every packet and every list entry. Only
 * posted requests and mbufs keep a pointer to it, and both are counted.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "roce.h"

/** Number of mbuf references that are taken at a time. */
#define ROCE_MR_STOCK 64

/** References to a region from one poll group. */
struct roce_mr_poll_group {
	/** Counts the mbufs that point into the region, plus the stock, plus one. 16 bits suffice:
	 *  a poll group has fewer mbufs. Any lcore that frees such an mbuf writes here. */
	struct rte_mbuf_ext_shared_info info;
	/* Written by the poll group only, therefore on a separate cache line. */
	uint32_t refs __rte_cache_aligned; /**< list entries of posted requests */
	uint32_t stock;			   /**< references taken and not yet used by an mbuf */
} __rte_cache_aligned;

/** Take a reference for an mbuf. */
static inline void
roce_mr_hold(struct roce_mr_poll_group *pg)
{
	if (pg->stock == 0) {
		rte_mbuf_ext_refcnt_update(&pg->info, ROCE_MR_STOCK);
		__atomic_store_n(&pg->stock, ROCE_MR_STOCK, __ATOMIC_RELEASE);
	}
	pg->stock--;
}

struct roce_mr {
	struct rdma_mr base;
	uint64_t first; /**< address */
	uint64_t length;
	uint32_t key; /**< lkey and rkey */
	uint32_t access;
	const struct rdma_pd *pd;
	bool mapped; /**< roce_pages_hold() registered it with EAL and the port */
	struct roce_mr_poll_group poll_group[];
};

/** Find the region of a key. Poll groups and control lcore. @return NULL: none */
static inline struct roce_mr *
roce_mr_find(const struct roce_dev *dev, uint32_t key)
{
	struct roce_mr *mr =
		atomic_load_explicit(&dev->mrs[key & dev->mr_mask], memory_order_acquire);

	return mr && mr->key == key ? mr : NULL;
}

/** True if the region contains these bytes and grants these rights. */
static inline bool
roce_mr_allows(const struct roce_mr *mr, const struct rdma_pd *pd, uint64_t addr, uint64_t length,
	uint32_t access)
{
	return mr->pd == pd && (mr->access & access) == access && addr >= mr->first &&
		length <= mr->length && addr - mr->first <= mr->length - length;
}

struct rdma_mr *roce_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr);
int roce_mr_dereg(struct rdma_mr *mr);

#endif
