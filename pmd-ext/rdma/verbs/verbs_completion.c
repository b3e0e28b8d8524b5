/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion queues of the verbs provider. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_errno.h>

#include "verbs_device.h"

#define BURST 32

struct rdma_cq *
verbs_cq_create(struct rdma_dev *base, uint32_t depth, uint16_t pg)
{
	struct verbs_dev *dev = VERBS_DEV(base);
	struct verbs_cq *cq;

	if (pg != 0 || depth > (uint32_t)dev->attr.max_cqe) {
		RDMA_LOG(ERR,
			"device %s: completion queue of depth %u in poll group %u, expected at "
			"most %d in poll group 0",
			base->name, depth, pg, dev->attr.max_cqe);
		return verbs_refuse(EINVAL);
	}
	cq = calloc(1, sizeof(*cq));
	if (!cq)
		return verbs_refuse(ENOMEM);
	cq->dev = dev;
	cq->cq = ibv_create_cq(dev->context, depth, cq, NULL, 0);
	if (!cq->cq) {
		int error = errno;

		RDMA_LOG(ERR, "device %s: completion queue of depth %u: %s", base->name, depth,
			strerror(error));
		free(cq);
		return verbs_refuse(error);
	}
	return &cq->base;
}

int
verbs_cq_destroy(struct rdma_cq *base)
{
	struct verbs_cq *cq = VERBS_CQ(base);
	int error = ibv_destroy_cq(cq->cq);

	if (error)
		return -error;
	free(cq);
	return 0;
}

static enum rdma_wc_status
status_of(enum ibv_wc_status status)
{
	switch (status) {
	case IBV_WC_SUCCESS:
		return RDMA_WC_SUCCESS;
	case IBV_WC_LOC_LEN_ERR:
		return RDMA_WC_LOC_LEN_ERR;
	case IBV_WC_LOC_QP_OP_ERR:
		return RDMA_WC_LOC_QP_OP_ERR;
	case IBV_WC_LOC_PROT_ERR:
		return RDMA_WC_LOC_PROT_ERR;
	case IBV_WC_WR_FLUSH_ERR:
		return RDMA_WC_WR_FLUSH_ERR;
	case IBV_WC_LOC_ACCESS_ERR:
		return RDMA_WC_LOC_ACCESS_ERR;
	case IBV_WC_REM_INV_REQ_ERR:
		return RDMA_WC_REM_INV_REQ_ERR;
	case IBV_WC_REM_ACCESS_ERR:
		return RDMA_WC_REM_ACCESS_ERR;
	case IBV_WC_REM_OP_ERR:
		return RDMA_WC_REM_OP_ERR;
	case IBV_WC_RETRY_EXC_ERR:
		return RDMA_WC_RETRY_EXC_ERR;
	case IBV_WC_RNR_RETRY_EXC_ERR:
		return RDMA_WC_RNR_RETRY_EXC_ERR;
	default:
		return RDMA_WC_GENERAL_ERR;
	}
}

/** Account for a failed request. Any status other than a flush marks the queue pair as broken. */
static void
note_failure(struct verbs_dev *dev, struct verbs_qp *qp, enum rdma_wc_status status)
{
	verbs_count(&dev->stats.wc_error[status]);
	if (qp->attr.type != RDMA_QP_UD)
		__atomic_store_n(&qp->state, RDMA_QP_ERROR, __ATOMIC_RELEASE);
	if (status != RDMA_WC_WR_FLUSH_ERR && !qp->broken) {
		__atomic_store_n(&qp->broken, true, __ATOMIC_RELEASE);
		__atomic_store_n(&dev->qp_broken, true, __ATOMIC_RELEASE);
	}
}

/** Convert a completion. @return false: it belongs to a destroyed queue pair */
static bool
convert(struct verbs_dev *dev, const struct ibv_wc *from, struct rdma_wc *to)
{
	struct verbs_qp *qp = verbs_qp_find(dev, from->qp_num);
	const struct verbs_slot *slot;
	struct verbs_queue *queue;
	uint32_t at;

	if (unlikely(!qp)) {
		verbs_count(&dev->stats.wc_stale);
		return false;
	}
	/* See verbs_post.c: bit 0 selects the queue, the other bits are the position in it. */
	queue = from->wr_id & 1 ? &qp->recv : &qp->send;
	at = from->wr_id >> 1;
	/* The completion belongs to an earlier queue pair with the same number. */
	if (unlikely(at - queue->freed >= queue->posted - queue->freed)) {
		verbs_count(&dev->stats.wc_stale);
		return false;
	}
	slot = &queue->slot[at & queue->mask];
	to->wr_id = slot->wr_id;
	to->op = slot->op;
	to->qp = &qp->base;
	to->qp_context = qp->attr.context;
	to->status = status_of(from->status);
	to->flags = 0;
	to->byte_len = from->byte_len;
	to->imm = 0;
	to->src_qpn = from->src_qp;
	if (likely(from->status == IBV_WC_SUCCESS)) {
		if (from->opcode == IBV_WC_RECV_RDMA_WITH_IMM)
			to->op = RDMA_WC_RECV_WRITE_IMM;
		if (from->wc_flags & IBV_WC_WITH_IMM) {
			to->flags |= RDMA_WC_WITH_IMM;
			to->imm = ntohl(from->imm_data);
		}
		if (from->wc_flags & IBV_WC_GRH)
			to->flags |= RDMA_WC_GRH;
	} else {
		note_failure(dev, qp, to->status);
	}
	__atomic_store_n(&queue->freed, at + 1, __ATOMIC_RELEASE);
	return true;
}

uint16_t
verbs_poll_cq(struct rdma_cq *base, struct rdma_wc *wc, uint16_t n)
{
	struct verbs_cq *cq = VERBS_CQ(base);
	struct ibv_wc got[BURST];
	uint16_t done = 0;

	while (done < n) {
		int wanted = RTE_MIN(n - done, BURST), i, nb;

		nb = ibv_poll_cq(cq->cq, wanted, got);
		for (i = 0; i < nb; i++)
			done += convert(cq->dev, &got[i], &wc[done]);
		if (nb < wanted)
			break;
	}
	return done;
}
