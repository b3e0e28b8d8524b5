/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory regions: registration, keys, and deregistration after a grace period. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_dev.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>
#include <rte_memory.h>

#include "engine/engine.h"
#include "engine/pages.h"
#include "port/port.h"
#include "engine/mr.h"

static void
info_free(void *addr, void *opaque)
{
	/* Never called: the region holds one reference itself, so the count stays above zero. */
}

static struct rdma_mr *
refuse(int error)
{
	rte_errno = error;
	return NULL;
}

/** Choose a random free slot and a key that maps to it. @return key; 0: all slots are in use */
static uint32_t
key_new(const struct roce_dev *dev)
{
	uint32_t key, i;

	if (dev->nb_mrs >= dev->max_mrs)
		return 0;
	do {
		key = roce_random(32);
		for (i = 0; i <= dev->mr_mask;
			i++, key = (key & ~dev->mr_mask) | ((key + 1) & dev->mr_mask))
			if (!dev->mrs[key & dev->mr_mask])
				break;
	} while (key == 0);
	return key;
}

struct rdma_mr *
roce_mr_reg(struct rdma_pd *pd, const struct rdma_mr_attr *attr)
{
	struct roce_dev *dev = roce_dev(pd->dev);
	struct roce_mr *mr;
	uint16_t i;
	int mapped;

	if (attr->gpu >= 0) {
		RDMA_LOG(ERR,
			"device %s: region of GPU %d's memory at %p, expected memory that the "
			"CPU can read",
			pd->dev->name, attr->gpu, attr->addr);
		return refuse(ENOTSUP);
	}
	mr = rte_zmalloc_socket("roce_mr",
		sizeof(*mr) + dev->nb_poll_groups * sizeof(mr->poll_group[0]), RTE_CACHE_LINE_SIZE,
		dev->numa_node);
	if (!mr) {
		RDMA_LOG(ERR, "device %s: cannot allocate a region", pd->dev->name);
		return refuse(ENOMEM);
	}
	mr->key = key_new(dev);
	if (mr->key == 0) {
		RDMA_LOG(ERR, "device %s: %u regions, expected at most %u (mrs=)", pd->dev->name,
			dev->nb_mrs + 1, dev->max_mrs);
		rte_free(mr);
		return refuse(ENOMEM);
	}
	mr->first = (uintptr_t)attr->addr;
	mr->length = attr->length;
	mr->access = attr->access;
	mr->pd = pd;
	mr->base.lkey = mr->base.rkey = mr->key;
	for (i = 0; i < dev->nb_poll_groups; i++) {
		mr->poll_group[i].info.free_cb = info_free;
		rte_mbuf_ext_refcnt_set(&mr->poll_group[i].info, 1);
	}
	mapped = roce_port_map(dev, attr->addr, attr->length);
	if (mapped < 0) {
		rte_free(mr);
		return refuse(-mapped);
	}
	mr->mapped = mapped;
	dev->nb_mrs++;
	atomic_store_explicit(&dev->mrs[mr->key & dev->mr_mask], mr, memory_order_release);
	return &mr->base;
}

/**
 * Number of list entries and mbufs that refer to a region. While a poll group uses the region, the
 * value is not exact.
 */
static int64_t
mr_refs(const struct roce_dev *dev, const struct roce_mr *mr)
{
	int64_t refs = 0, stock;
	uint16_t i;

	for (i = 0; i < dev->nb_poll_groups; i++) {
		/* Read this first: a request may complete before the port frees its frames, which
		 * are counted below. */
		refs += __atomic_load_n(&mr->poll_group[i].refs, __ATOMIC_ACQUIRE);
		/* Read the stock before the count that includes it: a new stock is always included
		 * in the count. */
		stock = __atomic_load_n(&mr->poll_group[i].stock, __ATOMIC_ACQUIRE);
		refs += rte_mbuf_ext_refcnt_read(&mr->poll_group[i].info) - 1 - stock;
	}
	return refs;
}

int
roce_mr_dereg(struct rdma_mr *base)
{
	struct roce_mr *mr = (struct roce_mr *)base;
	struct roce_dev *dev = roce_dev(base->pd->dev);
	struct roce_mr *_Atomic *slot = &dev->mrs[mr->key & dev->mr_mask];
	uint16_t i;

	/* A port with nothing to send does not free sent mbufs by itself. */
	for (i = 0; i < dev->nb_poll_groups && mr_refs(dev, mr); i++)
		roce_poll_group_call(dev->poll_groups[i], roce_poll_group_reclaim, NULL);
	if (mr_refs(dev, mr))
		return -EBUSY;
	/* From here on, no lookup finds the region. Poll groups that found it earlier have counted
	 * their references when the grace period ends. */
	atomic_store_explicit(slot, NULL, memory_order_release);
	roce_dev_quiesce(dev);
	if (mr_refs(dev, mr)) {
		atomic_store_explicit(slot, mr, memory_order_release);
		return -EBUSY;
	}
	if (mr->mapped)
		roce_pages_release((void *)(uintptr_t)mr->first, mr->length);
	dev->nb_mrs--;
	rte_free(mr);
	return 0;
}
