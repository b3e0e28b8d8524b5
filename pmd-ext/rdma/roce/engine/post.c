/* SPDX-License-Identifier: BSD-3-Clause */
/* Posting of send and receive requests. */
#include <errno.h>

#include <rte_errno.h>
#include <rte_memcpy.h>

#include "port/device.h"
#include "engine/qp.h"

/** Operations allowed for each type of queue pair. */
static const uint32_t type_ops[] = {
	[RDMA_QP_RC] = RTE_BIT32(RDMA_OP_SEND) | RTE_BIT32(RDMA_OP_SEND_IMM) |
		RTE_BIT32(RDMA_OP_WRITE) | RTE_BIT32(RDMA_OP_WRITE_IMM) | RTE_BIT32(RDMA_OP_READ) |
		RTE_BIT32(RDMA_OP_CMP_SWAP) | RTE_BIT32(RDMA_OP_FETCH_ADD),
	[RDMA_QP_UC] = RTE_BIT32(RDMA_OP_SEND) | RTE_BIT32(RDMA_OP_SEND_IMM) |
		RTE_BIT32(RDMA_OP_WRITE) | RTE_BIT32(RDMA_OP_WRITE_IMM),
	[RDMA_QP_UD] = RTE_BIT32(RDMA_OP_SEND) | RTE_BIT32(RDMA_OP_SEND_IMM),
};

#define ANSWERED_OPS \
	(RTE_BIT32(RDMA_OP_READ) | RTE_BIT32(RDMA_OP_CMP_SWAP) | RTE_BIT32(RDMA_OP_FETCH_ADD))

/**
 * Resolve a scatter-gather list and take references to its regions.
 *
 * @param access required access to every entry
 * @return false: an entry is outside its region or has no such access; no reference is taken
 */
static bool
list_resolve(struct roce_qp *qp, const struct rdma_sge *sg, unsigned int n, uint32_t access,
	struct roce_segment *out, uint8_t *nb_out)
{
	const uint16_t pg = qp->poll_group->index;
	unsigned int i, filled = 0;
	struct roce_mr *mr;

	for (i = 0; i < n; i++) {
		if (sg[i].length == 0)
			continue;
		mr = roce_mr_find(qp->dev, sg[i].lkey);
		if (!mr || !roce_mr_allows(mr, qp->base.pd, sg[i].addr, sg[i].length, access))
			break;
		out[filled].addr = (uint8_t *)(uintptr_t)sg[i].addr;
		out[filled].length = sg[i].length;
		out[filled].mr = mr;
		filled++;
		mr->poll_group[pg].refs++;
	}
	if (i == n) {
		*nb_out = filled;
		return true;
	}
	while (filled)
		out[--filled].mr->poll_group[pg].refs--;
	*nb_out = 0;
	return false;
}

/** Check a send request. @return 0; positive errno */
static int
send_check(const struct roce_qp *qp, const struct rdma_send_wr *wr, uint64_t *length)
{
	const uint32_t op = wr->op < 32 ? RTE_BIT32(wr->op) : 0;
	uint64_t bytes = 0;
	uint16_t i;

	if (!(type_ops[qp->type] & op))
		return EINVAL;
	if (wr->nb_sge > qp->base.attr.max_send_sge && !(wr->flags & RDMA_SEND_INLINE))
		return EINVAL;
	for (i = 0; i < wr->nb_sge; i++)
		bytes += wr->sg[i].length;
	if (bytes > ROCE_MESSAGE_MAX)
		return EINVAL;
	if (qp->type == RDMA_QP_UD &&
		(!wr->ud.ah || wr->ud.ah->pd != qp->base.pd || bytes > qp->mtu))
		return EINVAL;
	if ((op & ANSWERED_OPS) && ((wr->flags & RDMA_SEND_INLINE) || qp->req.rd_atom == 0))
		return EINVAL;
	if ((op & (RTE_BIT32(RDMA_OP_CMP_SWAP) | RTE_BIT32(RDMA_OP_FETCH_ADD))) && bytes != 8)
		return EINVAL;
	if ((wr->flags & RDMA_SEND_INLINE) && bytes > qp->base.attr.max_inline)
		return EINVAL;
	*length = bytes;
	return 0;
}

static void
inline_copy(struct roce_wqe *wqe, const struct rdma_send_wr *wr)
{
	uint8_t *to = (uint8_t *)wqe->segment;
	uint16_t i;

	for (i = 0; i < wr->nb_sge; i++) {
		rte_memcpy(to, (const void *)(uintptr_t)wr->sg[i].addr, wr->sg[i].length);
		to += wr->sg[i].length;
	}
	wqe->nb_segments = 0;
}

static void
send_fill(struct roce_qp *qp, struct roce_wqe *wqe, const struct rdma_send_wr *wr, uint64_t length)
{
	const uint32_t access = RTE_BIT32(wr->op) & ANSWERED_OPS ? RDMA_ACCESS_LOCAL_WRITE : 0;

	wqe->wr_id = wr->wr_id;
	wqe->op = wr->op;
	wqe->flags = wr->flags;
	wqe->status = RDMA_WC_SUCCESS;
	wqe->imm = wr->imm;
	wqe->length = length;
	wqe->ah = NULL;
	if (qp->type == RDMA_QP_UD) {
		wqe->ah = (struct roce_ah *)wr->ud.ah;
		wqe->ah->refs[qp->poll_group->index]++;
		wqe->remote_qpn = wr->ud.remote_qpn;
		/* An application must not choose a controlled Q_Key: the queue pair's own one is
		 * sent (10.2.5). */
		wqe->rkey =
			wr->ud.remote_qkey & ROCE_QKEY_CONTROLLED ? qp->qkey : wr->ud.remote_qkey;
	} else {
		wqe->remote_addr = wr->remote_addr;
		wqe->rkey = wr->rkey;
		wqe->compare = wr->compare;
		wqe->swap_add = wr->swap_add;
	}
	if (wr->flags & RDMA_SEND_INLINE)
		inline_copy(wqe, wr);
	else if (!list_resolve(qp, wr->sg, wr->nb_sge, access, wqe->segment, &wqe->nb_segments))
		wqe->status = RDMA_WC_LOC_PROT_ERR;
}

uint16_t
roce_post_send(struct rdma_qp *base, const struct rdma_send_wr *wr, uint16_t n)
{
	struct roce_qp *qp = (struct roce_qp *)base;
	struct roce_requester *r = &qp->req;
	const enum rdma_qp_state state = roce_state(qp);
	uint64_t length;
	uint16_t i;
	int error;

	if (unlikely(state < RDMA_QP_RTS)) {
		rte_errno = ENOTCONN;
		return 0;
	}
	for (i = 0; i < n; i++) {
		if (r->head - r->una >= qp->base.attr.max_send_wr) {
			rte_errno = ENOMEM;
			break;
		}
		error = send_check(qp, &wr[i], &length);
		if (error) {
			rte_errno = error;
			break;
		}
		send_fill(qp, roce_wqe(qp, r->head), &wr[i], length);
		r->head++;
	}
	if (i && likely(state == RDMA_QP_RTS))
		roce_qp_activate(qp);
	else if (i)
		roce_flush_sends(qp);
	return i;
}

uint16_t
roce_post_recv(struct rdma_qp *base, const struct rdma_recv_wr *wr, uint16_t n)
{
	struct roce_qp *qp = (struct roce_qp *)base;
	struct roce_responder *r = &qp->resp;
	struct roce_rqe *rqe;
	uint64_t length;
	uint16_t i, j;

	/* messages by reference need no receives, and would never complete one */
	if (unlikely(qp->reference)) {
		rte_errno = EINVAL;
		return 0;
	}
	for (i = 0; i < n; i++) {
		if (r->head - r->tail >= qp->base.attr.max_recv_wr) {
			rte_errno = ENOMEM;
			break;
		}
		length = 0;
		for (j = 0; j < wr[i].nb_sge; j++)
			length += wr[i].sg[j].length;
		if (wr[i].nb_sge > qp->base.attr.max_recv_sge || length > UINT32_MAX) {
			rte_errno = EINVAL;
			break;
		}
		rqe = roce_rqe(qp, r->head);
		rqe->wr_id = wr[i].wr_id;
		rqe->length = length;
		rqe->status = RDMA_WC_SUCCESS;
		if (!list_resolve(qp, wr[i].sg, wr[i].nb_sge, RDMA_ACCESS_LOCAL_WRITE, rqe->segment,
			    &rqe->nb_segments))
			rqe->status = RDMA_WC_LOC_PROT_ERR;
		r->head++;
	}
	if (i && unlikely(roce_state(qp) == RDMA_QP_ERROR))
		roce_flush_recvs(qp);
	return i;
}
