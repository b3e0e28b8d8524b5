/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues. */
#include <errno.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "roce.h"
#include "engine/cq.h"

struct rdma_cq *
roce_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t pg)
{
	struct roce_dev *d = roce_dev(dev);
	struct roce_cq *cq;
	uint32_t entries;

	if (depth > ROCE_CQE_MAX || pg >= d->nb_poll_groups) {
		RDMA_LOG(ERR,
			"device %s: completion queue of depth %u for poll group %u, expected at "
			"most %u and a poll group below %u",
			dev->name, depth, pg, ROCE_CQE_MAX, d->nb_poll_groups);
		rte_errno = EINVAL;
		return NULL;
	}
	entries = rte_align32pow2(depth);
	cq = rte_zmalloc_socket("roce_cq", sizeof(*cq) + entries * sizeof(cq->ring[0]),
		RTE_CACHE_LINE_SIZE, d->numa_node);
	if (!cq) {
		RDMA_LOG(ERR, "device %s: cannot allocate a completion queue of depth %u",
			dev->name, depth);
		rte_errno = ENOMEM;
		return NULL;
	}
	cq->size = depth;
	cq->mask = entries - 1;
	return &cq->base;
}

int
roce_cq_destroy(struct rdma_cq *cq)
{
	rte_free(cq);
	return 0;
}

uint16_t
roce_cq_poll(struct rdma_cq *base, struct rdma_wc *wc, uint16_t n)
{
	struct roce_cq *cq = (struct roce_cq *)base;
	uint16_t i, have = RTE_MIN(n, cq->head - cq->tail);

	for (i = 0; i < have; i++)
		wc[i] = cq->ring[cq->tail++ & cq->mask];
	return have;
}

void
roce_cq_forget(struct roce_cq *cq, const struct rdma_qp *qp)
{
	uint32_t from, to = cq->tail;

	for (from = cq->tail; from != cq->head; from++)
		if (cq->ring[from & cq->mask].qp != qp)
			cq->ring[to++ & cq->mask] = cq->ring[from & cq->mask];
	cq->head = to;
}
