/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Posting of send and receive requests. The wr_id passed to libibverbs is the request's position in
 * the queue; the application's wr_id is kept in a slot. A completion thus tells exactly how much of
 * the queue is free, and rdma_mr_dereg() can find the regions that are still in use.
 */
#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <stddef.h>

#include <rte_errno.h>

#include "verbs_device.h"

#define BURST 16

/* Lists are passed to libibverbs without conversion. */
static_assert(sizeof(struct rdma_sge) == sizeof(struct ibv_sge), "entries of one size");
static_assert(offsetof(struct rdma_sge, addr) == offsetof(struct ibv_sge, addr), "addr");
static_assert(offsetof(struct rdma_sge, length) == offsetof(struct ibv_sge, length), "length");
static_assert(offsetof(struct rdma_sge, lkey) == offsetof(struct ibv_sge, lkey), "lkey");

static inline struct ibv_sge *
sge_list(const struct rdma_sge *sg)
{
	/* libibverbs only reads the list, although its type is not const. */
	return (struct ibv_sge *)(uintptr_t)sg;
}

static inline uint64_t
sum(const struct rdma_sge *sg, uint16_t n)
{
	uint64_t bytes = 0;
	uint16_t i;

	for (i = 0; i < n; i++)
		bytes += sg[i].length;
	return bytes;
}

static inline void
slot_fill(struct verbs_slot *slot, uint64_t wr_id, enum rdma_wc_op op, const struct rdma_sge *sg,
	uint16_t n)
{
	uint16_t i;

	slot->wr_id = wr_id;
	slot->op = op;
	slot->nb_sge = n;
	for (i = 0; i < n; i++)
		slot->lkey[i] = sg[i].lkey;
}

/** Check a send request. @return 0; positive errno */
static inline int
send_check(const struct verbs_qp *qp, const struct rdma_send_wr *wr)
{
	const bool atomic = wr->op == RDMA_OP_CMP_SWAP || wr->op == RDMA_OP_FETCH_ADD;
	uint64_t bytes;

	if (wr->op > RDMA_OP_FETCH_ADD || wr->nb_sge > qp->attr.max_send_sge)
		return EINVAL;
	bytes = sum(wr->sg, wr->nb_sge);
	if (bytes > qp->max_message || (atomic && bytes != sizeof(uint64_t)))
		return EINVAL;
	if (wr->flags & RDMA_SEND_INLINE) {
		if (bytes > qp->attr.max_inline || atomic || wr->op == RDMA_OP_READ)
			return EINVAL;
	}
	switch (qp->attr.type) {
	case RDMA_QP_UD:
		return wr->op > RDMA_OP_SEND_IMM || !wr->ud.ah ? EINVAL : 0;
	case RDMA_QP_UC:
		return wr->op > RDMA_OP_WRITE_IMM ? EINVAL : 0;
	default:
		return 0;
	}
}

static inline void
send_convert(const struct verbs_qp *qp, const struct rdma_send_wr *from, struct ibv_send_wr *to)
{
	static const uint8_t opcode[] = {
		[RDMA_OP_SEND] = IBV_WR_SEND,
		[RDMA_OP_SEND_IMM] = IBV_WR_SEND_WITH_IMM,
		[RDMA_OP_WRITE] = IBV_WR_RDMA_WRITE,
		[RDMA_OP_WRITE_IMM] = IBV_WR_RDMA_WRITE_WITH_IMM,
		[RDMA_OP_READ] = IBV_WR_RDMA_READ,
		[RDMA_OP_CMP_SWAP] = IBV_WR_ATOMIC_CMP_AND_SWP,
		[RDMA_OP_FETCH_ADD] = IBV_WR_ATOMIC_FETCH_AND_ADD,
	};

	to->sg_list = sge_list(from->sg);
	to->num_sge = from->nb_sge;
	to->opcode = opcode[from->op];
	to->imm_data = htonl(from->imm);
	to->send_flags = (from->flags & RDMA_SEND_SIGNALED ? IBV_SEND_SIGNALED : 0) |
		(from->flags & RDMA_SEND_FENCE ? IBV_SEND_FENCE : 0) |
		(from->flags & RDMA_SEND_SOLICITED ? IBV_SEND_SOLICITED : 0) |
		(from->flags & RDMA_SEND_INLINE ? IBV_SEND_INLINE : 0);
	if (qp->attr.type == RDMA_QP_UD) {
		to->wr.ud.ah = VERBS_AH(from->ud.ah)->ah;
		to->wr.ud.remote_qpn = from->ud.remote_qpn;
		to->wr.ud.remote_qkey = from->ud.remote_qkey;
	} else if (from->op >= RDMA_OP_CMP_SWAP) {
		to->wr.atomic.remote_addr = from->remote_addr;
		to->wr.atomic.rkey = from->rkey;
		/* For FETCH_ADD, compare_add is the value to add. */
		to->wr.atomic.compare_add =
			from->op == RDMA_OP_FETCH_ADD ? from->swap_add : from->compare;
		to->wr.atomic.swap = from->op == RDMA_OP_FETCH_ADD ? 0 : from->swap_add;
	} else {
		to->wr.rdma.remote_addr = from->remote_addr;
		to->wr.rdma.rkey = from->rkey;
	}
}

static const uint8_t completion_of[] = {
	[RDMA_OP_SEND] = RDMA_WC_SEND,
	[RDMA_OP_SEND_IMM] = RDMA_WC_SEND,
	[RDMA_OP_WRITE] = RDMA_WC_WRITE,
	[RDMA_OP_WRITE_IMM] = RDMA_WC_WRITE,
	[RDMA_OP_READ] = RDMA_WC_READ,
	[RDMA_OP_CMP_SWAP] = RDMA_WC_CMP_SWAP,
	[RDMA_OP_FETCH_ADD] = RDMA_WC_FETCH_ADD,
};

/** Post up to BURST sends in one call. @return number posted; if fewer than n, *error is set */
static uint16_t
send_burst(struct verbs_qp *qp, const struct rdma_send_wr *wr, uint16_t n, int *error)
{
	struct verbs_queue *queue = &qp->send;
	struct ibv_send_wr list[BURST], *bad = NULL;
	uint16_t i;
	int refused;

	*error = 0;
	for (i = 0; i < n; i++) {
		const uint32_t at = queue->posted + i;

		if (at - queue->freed >= queue->depth)
			*error = ENOMEM;
		else
			*error = send_check(qp, &wr[i]);
		if (*error)
			break;
		send_convert(qp, &wr[i], &list[i]);
		list[i].wr_id = (uint64_t)at << 1;
		list[i].next = &list[i + 1];
		slot_fill(&queue->slot[at & queue->mask], wr[i].wr_id, completion_of[wr[i].op],
			wr[i].sg, wr[i].flags & RDMA_SEND_INLINE ? 0 : wr[i].nb_sge);
	}
	if (i == 0)
		return 0;
	list[i - 1].next = NULL;
	/* Update before the adapter can complete the requests. */
	__atomic_store_n(&queue->posted, queue->posted + i, __ATOMIC_RELEASE);
	refused = ibv_post_send(qp->qp, list, &bad);
	if (refused) {
		const uint16_t posted = bad ? bad - list : 0;

		__atomic_store_n(&queue->posted, queue->posted - (i - posted), __ATOMIC_RELEASE);
		*error = refused;
		return posted;
	}
	return i;
}

uint16_t
verbs_post_send(struct rdma_qp *base, const struct rdma_send_wr *wr, uint16_t n)
{
	struct verbs_qp *qp = VERBS_QP(base);
	uint16_t done = 0;
	int error = 0;

	if (__atomic_load_n(&qp->state, __ATOMIC_ACQUIRE) < RDMA_QP_RTS) {
		rte_errno = ENOTCONN;
		return 0;
	}
	while (done < n && !error)
		done += send_burst(qp, &wr[done], RTE_MIN(n - done, BURST), &error);
	if (error)
		rte_errno = error;
	return done;
}

static uint16_t
recv_burst(struct verbs_qp *qp, const struct rdma_recv_wr *wr, uint16_t n, int *error)
{
	struct verbs_queue *queue = &qp->recv;
	struct ibv_recv_wr list[BURST], *bad = NULL;
	uint16_t i;
	int refused;

	*error = 0;
	for (i = 0; i < n; i++) {
		const uint32_t at = queue->posted + i;

		if (at - queue->freed >= queue->depth)
			*error = ENOMEM;
		else if (wr[i].nb_sge > qp->attr.max_recv_sge)
			*error = EINVAL;
		if (*error)
			break;
		list[i].wr_id = (uint64_t)at << 1 | 1;
		list[i].next = &list[i + 1];
		list[i].sg_list = sge_list(wr[i].sg);
		list[i].num_sge = wr[i].nb_sge;
		slot_fill(&queue->slot[at & queue->mask], wr[i].wr_id, RDMA_WC_RECV, wr[i].sg,
			wr[i].nb_sge);
	}
	if (i == 0)
		return 0;
	list[i - 1].next = NULL;
	__atomic_store_n(&queue->posted, queue->posted + i, __ATOMIC_RELEASE);
	refused = ibv_post_recv(qp->qp, list, &bad);
	if (refused) {
		const uint16_t posted = bad ? bad - list : 0;

		__atomic_store_n(&queue->posted, queue->posted - (i - posted), __ATOMIC_RELEASE);
		*error = refused;
		return posted;
	}
	return i;
}

uint16_t
verbs_post_recv(struct rdma_qp *base, const struct rdma_recv_wr *wr, uint16_t n)
{
	struct verbs_qp *qp = VERBS_QP(base);
	uint16_t done = 0;
	int error = 0;

	while (done < n && !error)
		done += recv_burst(qp, &wr[done], RTE_MIN(n - done, BURST), &error);
	if (error)
		rte_errno = error;
	return done;
}
