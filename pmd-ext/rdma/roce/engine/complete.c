/* SPDX-License-Identifier: BSD-3-Clause */
/* Completion and flushing of work requests, and the transition to the error state. */
#include "engine/qp.h"
#include "engine/reference.h"

static void
push(struct roce_qp *qp, struct roce_cq *cq, struct rdma_wc *wc)
{
	wc->qp = &qp->base;
	wc->qp_context = qp->base.attr.context;
	if (likely(roce_cq_push(cq, wc)))
		return;
	roce_count(qp->poll_group, ROCE_CQ_OVERRUN);
	qp->overrun = true;
	roce_qp_activate(qp);
}

static void
release(struct roce_qp *qp, const struct roce_segment *list, unsigned int n)
{
	const uint16_t pg = qp->poll_group->index;
	unsigned int i;

	for (i = 0; i < n; i++)
		list[i].mr->poll_group[pg].refs--;
}

void
roce_complete_send(struct roce_qp *qp, enum rdma_wc_status status)
{
	static const uint8_t op[] = {
		[RDMA_OP_SEND] = RDMA_WC_SEND,
		[RDMA_OP_SEND_IMM] = RDMA_WC_SEND,
		[RDMA_OP_WRITE] = RDMA_WC_WRITE,
		[RDMA_OP_WRITE_IMM] = RDMA_WC_WRITE,
		[RDMA_OP_READ] = RDMA_WC_READ,
		[RDMA_OP_CMP_SWAP] = RDMA_WC_CMP_SWAP,
		[RDMA_OP_FETCH_ADD] = RDMA_WC_FETCH_ADD,
	};
	struct roce_wqe *wqe = roce_wqe(qp, qp->req.una);
	struct rdma_wc wc = {
		.wr_id = wqe->wr_id,
		.status = status,
		.op = op[wqe->op],
		.byte_len = wqe->length,
	};

	release(qp, wqe->segment, wqe->nb_segments);
	if (wqe->ah)
		wqe->ah->refs[qp->poll_group->index]--;
	qp->req.una++;
	if (status != RDMA_WC_SUCCESS || qp->signal_all || (wqe->flags & RDMA_SEND_SIGNALED))
		push(qp, qp->send_cq, &wc);
}

void
roce_complete_recv(struct roce_qp *qp, struct rdma_wc *wc)
{
	struct roce_rqe *rqe = roce_rqe(qp, qp->resp.tail);

	wc->wr_id = rqe->wr_id;
	release(qp, rqe->segment, rqe->nb_segments);
	qp->resp.tail++;
	push(qp, qp->recv_cq, wc);
}

bool
roce_flush_sends(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;

	while (r->una != r->head) {
		/* UC, UD: frames still held by the port point to the memory, also those of a
		 * partially sent message. */
		if (qp->type != RDMA_QP_RC &&
			rte_mbuf_ext_refcnt_read(&roce_wqe(qp, r->una)->info) > 1) {
			qp->poll_group->held = true;
			roce_qp_activate(qp);
			return false;
		}
		if (r->una == r->current)
			r->current++;
		roce_complete_send(qp, RDMA_WC_WR_FLUSH_ERR);
	}
	return true;
}

void
roce_flush_recvs(struct roce_qp *qp)
{
	while (qp->resp.tail != qp->resp.head) {
		struct rdma_wc wc = {.status = RDMA_WC_WR_FLUSH_ERR, .op = RDMA_WC_RECV};

		roce_complete_recv(qp, &wc);
	}
}

void
roce_qp_fail(struct roce_qp *qp, enum rdma_wc_status status, bool fault)
{
	if (roce_state(qp) == RDMA_QP_ERROR)
		return;
	RDMA_LOG(DEBUG, "queue pair 0x%06x: to ERROR, %s", qp->base.qpn,
		fault ? rdma_wc_status_name(status) : "asked for");
	atomic_store_explicit(&qp->state, RDMA_QP_ERROR, memory_order_release);
	roce_timer_stop(&qp->req.timer);
	qp->req.wait = ROCE_WAIT_NONE;
	qp->resp.job_tail = qp->resp.job_head;
	qp->resp.reply = ROCE_ACK_ACTION_NONE;
	if (fault) {
		roce_count(qp->poll_group, ROCE_QP_ERRORS);
		roce_poll_group_note(qp->poll_group, ROCE_NOTE_QP_ERROR, qp->base.qpn);
	}
	if (status != RDMA_WC_SUCCESS && qp->req.una != qp->req.head) {
		if (qp->req.una == qp->req.current)
			qp->req.current++;
		roce_complete_send(qp, status);
	}
	if (qp->reference)
		roce_uc_abandon(qp, 0);
	roce_flush_sends(qp);
	roce_flush_recvs(qp);
}
