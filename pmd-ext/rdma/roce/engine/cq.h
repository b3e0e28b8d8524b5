/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CQ_H
#define ROCE_CQ_H

/**
 * @file
 * Completion queue: a ring. One lcore both fills it (rdma_progress(), posts) and empties it.
 */

#include <rte_branch_prediction.h>

#include "rdma_provider.h"

#define ROCE_CQE_MAX (1U << 20)

struct roce_cq {
	struct rdma_cq base;
	uint32_t size;	     /**< maximum entries in the ring */
	uint32_t mask;	     /**< the ring's length, size rounded up to a power of two, less one */
	uint32_t head, tail; /**< next to fill, next to read; not wrapped to the ring's length */
	struct rdma_wc ring[];
};

/** Add a completion. @return false: the queue is full */
static inline bool
roce_cq_push(struct roce_cq *cq, const struct rdma_wc *wc)
{
	if (unlikely(cq->head - cq->tail >= cq->size))
		return false;
	cq->ring[cq->head++ & cq->mask] = *wc;
	return true;
}

struct rdma_cq *roce_cq_create(struct rdma_dev *dev, uint32_t depth, uint16_t poll_group);
int roce_cq_destroy(struct rdma_cq *cq);
uint16_t roce_cq_poll(struct rdma_cq *cq, struct rdma_wc *wc, uint16_t n);

/** Remove the completions of a queue pair that is being destroyed. */
void roce_cq_forget(struct roce_cq *cq, const struct rdma_qp *qp);

#endif
