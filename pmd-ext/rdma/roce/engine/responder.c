/* SPDX-License-Identifier: BSD-3-Clause */
/* The responder: executes SENDs, WRITEs and datagrams, and sends acknowledgements. */
#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_ip.h>

#include "engine/qp.h"
#include "engine/reference.h"

/**
 * UC: a packet at most this many PSNs before the expected one is late or a duplicate: dropped. One
 * at most this many PSNs after it follows a loss, also after a silence.
 */
#define UC_NEAR 65536
/**
 * UC: after this many such packets, each with the next PSN and none with an expected one between
 * them, the peer has restarted. A network that duplicates packets delivers others meanwhile.
 */
#define UC_RESTARTED 256
/**
 * UC: if a packet behind the expected PSN arrives after this time without a packet, the sequence
 * begins again: the peer has restarted. A network delays packets by microseconds, and a shared CPU
 * an lcore for milliseconds.
 */
#define UC_SILENCE_MS 200

/** Result of executing a request. */
enum verdict {
	EXECUTED,
	REFUSED, /**< a NAK is set */
};

void
roce_uc_abandon(struct roce_qp *qp, uint32_t more)
{
	struct roce_responder *r = &qp->resp;
	uint32_t begun = 0;

	/* All packets but the last one have the path MTU. */
	if (r->inbound == ROCE_IN_SEND || r->inbound == ROCE_IN_WRITE)
		begun = r->received / qp->mtu;
	if (qp->reference) {
		roce_reference_drop(qp->reference);
		roce_count_n(qp->poll_group, ROCE_RX_UC_DROP, begun);
		roce_count_n(qp->poll_group, ROCE_RX_UC_BEGUN, -(uint64_t)begun);
	}
	counter_add(&qp->uc.dropped, begun + more);
	r->inbound = ROCE_IN_SKIP;
}

/** UC: refuse the current message. */
static void
uc_refuse(struct roce_qp *qp)
{
	counter_add(&qp->uc.refused, 1);
	roce_uc_abandon(qp, 1);
}

void
roce_responder_fatal(struct roce_qp *qp, uint32_t psn, enum roce_nak nak)
{
	struct roce_responder *r = &qp->resp;

	roce_count(
		qp->poll_group, nak == ROCE_NAK_REMOTE_ACCESS ? ROCE_RX_ACCESS : ROCE_RX_INVALID);
	if (qp->type == RDMA_QP_UC) {
		uc_refuse(qp);
		return;
	}
	r->reply = ROCE_ACK_ACTION_FATAL;
	r->response_psn = psn;
	r->syndrome = nak;
	r->dead = true;
}

static void
not_ready(struct roce_qp *qp, uint32_t psn)
{
	struct roce_responder *r = &qp->resp;

	roce_count(qp->poll_group, ROCE_RX_RNR);
	if (qp->type == RDMA_QP_UC) {
		roce_uc_abandon(qp, 1);
		return;
	}
	r->reply = ROCE_ACK_ACTION_RNR;
	r->response_psn = psn;
	r->syndrome = ROCE_AETH_RNR | r->min_rnr_timer;
	r->gap = true;
}

/** Complete the current receive request with an error and send a fatal NAK to the peer. */
static void
receive_failed(struct roce_qp *qp, uint32_t psn, enum rdma_wc_status status, enum roce_nak nak)
{
	struct rdma_wc wc = {.status = status, .op = RDMA_WC_RECV};

	qp->resp.inbound = ROCE_IN_NONE;
	roce_complete_recv(qp, &wc);
	roce_responder_fatal(qp, psn, nak);
}

/** True if a message into this receive is to be written with non-temporal stores. */
static bool
list_streams(struct roce_responder *r, const struct roce_rqe *rqe, const struct roce_packet *pkt)
{
	/* the length of a message of several packets is unknown: use that of the receive */
	return rqe->nb_segments &&
		roce_turn_next(&r->turn, (uintptr_t)rqe->segment[0].addr,
			pkt->flags & ROCE_F_LAST ? pkt->length : rqe->length);
}

/** Write payload to the list of a receive, which must have room for it. */
static void
place_list(struct roce_poll_group *pg, struct roce_cursor *at, const struct roce_rqe *rqe,
	const struct roce_packet *pkt, bool stream)
{
	uint32_t from = 0, n;

	roce_poll_group_streams(pg, stream);
	while (from < pkt->length) {
		n = RTE_MIN(pkt->length - from, rqe->segment[at->entry].length - at->offset);
		if (n == 0) {
			at->entry++;
			at->offset = 0;
			continue;
		}
		roce_packet_copy(pkt, from, rqe->segment[at->entry].addr + at->offset, n, stream);
		at->offset += n;
		from += n;
	}
}

static enum verdict
take_send(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	struct roce_rqe *rqe;
	struct rdma_wc wc;

	if (pkt->flags & ROCE_F_FIRST) {
		if (r->head == r->tail) {
			not_ready(qp, pkt->psn);
			return REFUSED;
		}
		r->at = (struct roce_cursor){0, 0};
		r->received = 0;
	}
	rqe = roce_rqe(qp, r->tail);
	if (unlikely(rqe->status != RDMA_WC_SUCCESS)) {
		receive_failed(qp, pkt->psn, rqe->status, ROCE_NAK_REMOTE_OPERATION);
		return REFUSED;
	}
	if (pkt->length > rqe->length - r->received) {
		if (qp->type == RDMA_QP_UC) {
			roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
			return REFUSED;
		}
		receive_failed(qp, pkt->psn, RDMA_WC_LOC_LEN_ERR, ROCE_NAK_INVALID_REQUEST);
		return REFUSED;
	}
	if (pkt->flags & ROCE_F_FIRST)
		r->stream = list_streams(r, rqe, pkt);
	place_list(qp->poll_group, &r->at, rqe, pkt, r->stream);
	r->received += pkt->length;
	r->inbound = ROCE_IN_SEND;
	if (!(pkt->flags & ROCE_F_LAST))
		return EXECUTED;
	r->inbound = ROCE_IN_NONE;
	wc = (struct rdma_wc){.op = RDMA_WC_RECV, .byte_len = r->received};
	if (pkt->flags & ROCE_F_IMM) {
		wc.flags = RDMA_WC_WITH_IMM;
		wc.imm = roce_packet_imm(pkt);
	}
	roce_complete_recv(qp, &wc);
	return EXECUTED;
}

static enum verdict
take_write(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const bool imm = pkt->flags & ROCE_F_IMM;
	const struct roce_reth *reth;
	struct rdma_wc wc;
	struct roce_mr *mr;

	/* Checked before any payload is written: the peer sends the packet again. */
	if (imm && r->head == r->tail) {
		not_ready(qp, pkt->psn);
		return REFUSED;
	}
	if (pkt->flags & ROCE_F_FIRST) {
		/* Make a whole message visible in memory before any byte of the next one. */
		roce_poll_group_settle(qp->poll_group);
		reth = roce_packet_reth(pkt);
		r->va = rte_be_to_cpu_64(reth->va);
		r->rkey = rte_be_to_cpu_32(reth->rkey);
		r->left = rte_be_to_cpu_32(reth->length);
		r->received = 0;
		if (r->left > ROCE_DMA_MAX) {
			roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
			return REFUSED;
		}
	}
	if (pkt->flags & ROCE_F_LAST ? pkt->length != r->left : pkt->length >= r->left) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return REFUSED;
	}
	/* The first packet checks access to the whole message, later ones to the rest of it,
	 * because the region may be deregistered meanwhile. */
	if (r->left) {
		mr = roce_mr_find(qp->dev, r->rkey);
		if (!mr ||
			!roce_mr_allows(
				mr, qp->base.pd, r->va, r->left, RDMA_ACCESS_REMOTE_WRITE)) {
			roce_responder_fatal(qp, pkt->psn, ROCE_NAK_REMOTE_ACCESS);
			return REFUSED;
		}
		if (pkt->flags & ROCE_F_FIRST)
			r->stream = roce_turn_next(&r->turn, r->va, r->left);
		roce_packet_copy(pkt, 0, (void *)(uintptr_t)r->va, pkt->length,
			roce_poll_group_streams(qp->poll_group, r->stream));
	}
	r->va += pkt->length;
	r->left -= pkt->length;
	r->received += pkt->length;
	r->inbound = pkt->flags & ROCE_F_LAST ? ROCE_IN_NONE : ROCE_IN_WRITE;
	if (imm) {
		wc = (struct rdma_wc){
			.op = RDMA_WC_RECV_WRITE_IMM,
			.flags = RDMA_WC_WITH_IMM,
			.imm = roce_packet_imm(pkt),
			.byte_len = r->received,
		};
		roce_complete_recv(qp, &wc);
	}
	return EXECUTED;
}

/** True if the packet continues the current message correctly and its length fits the path MTU. */
static bool
in_order(const struct roce_qp *qp, const struct roce_packet *pkt)
{
	const struct roce_responder *r = &qp->resp;
	const enum roce_inbound kind = pkt->flags & ROCE_F_SEND ? ROCE_IN_SEND
		: pkt->flags & ROCE_F_WRITE			? ROCE_IN_WRITE
								: ROCE_IN_NONE;

	if (pkt->flags & ROCE_F_FIRST ? r->inbound != ROCE_IN_NONE : r->inbound != kind)
		return false;
	if (!(pkt->flags & ROCE_F_LAST))
		return pkt->length == qp->mtu && pkt->pad == 0;
	if (!(pkt->flags & ROCE_F_FIRST))
		return pkt->length > 0 && pkt->length <= qp->mtu;
	return pkt->length <= qp->mtu;
}

/** RC: execute a request with the expected PSN. */
static enum verdict
execute_request(struct roce_qp *qp, const struct roce_packet *pkt)
{
	if (!in_order(qp, pkt) || (pkt->flags & ROCE_F_INVALIDATE)) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return REFUSED;
	}
	if (pkt->flags & ROCE_F_SEND)
		return take_send(qp, pkt);
	if (pkt->flags & ROCE_F_WRITE)
		return take_write(qp, pkt);
	return roce_resp_resource_new(qp, pkt) ? EXECUTED : REFUSED;
}

static void
request_rc(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const int32_t ahead = roce_psn_diff(pkt->psn, r->expected_psn);
	const bool answered = pkt->flags & ROCE_F_ATOMICETH || pkt->opcode == ROCE_READ_REQUEST;

	if (unlikely(r->dead)) {
		roce_count(qp->poll_group, ROCE_RX_STATE);
		return;
	}
	if (unlikely(ahead < 0)) {
		roce_count(qp->poll_group, ROCE_RX_DUPLICATE);
		if (answered)
			roce_resp_resource_retry(qp, pkt);
		else if (r->reply == ROCE_ACK_ACTION_NONE)
			r->reply = ROCE_ACK_ACTION_ACK;
		roce_qp_activate(qp);
		return;
	}
	if (unlikely(ahead > 0)) {
		roce_count(qp->poll_group, ROCE_RX_GAP);
		if (r->gap)
			return;
		r->gap = true;
		r->reply = ROCE_ACK_ACTION_NAK;
		r->response_psn = r->expected_psn;
		r->syndrome = ROCE_NAK_SEQUENCE;
		roce_qp_activate(qp);
		return;
	}
	if (execute_request(qp, pkt) == REFUSED) {
		roce_qp_activate(qp);
		return;
	}
	roce_count_n(qp->poll_group, ROCE_RX_BYTES, pkt->length);
	r->gap = false;
	if (!answered)
		r->expected_psn = roce_psn_add(r->expected_psn, 1);
	if (pkt->flags & ROCE_F_LAST)
		r->msn = (r->msn + 1) & ROCE_PSN_MASK;
	if (!answered && (pkt->bth->ack & ROCE_BTH_ACKREQ)) {
		r->reply = ROCE_ACK_ACTION_ACK;
		roce_qp_activate(qp);
	} else if (r->reply == ROCE_ACK_ACTION_NAK || r->reply == ROCE_ACK_ACTION_RNR) {
		/* The expected packet was reordered, not lost: packets dropped meanwhile will
		 * cause another NAK. Or the peer repeated it before the RNR NAK was sent, and a
		 * receive is posted now. */
		r->reply = ROCE_ACK_ACTION_ACK;
	}
}

/** UC: return true if the next packet may have any PSN: the first, or the first after a silence. */
static bool
was_silent(const struct roce_qp *qp)
{
	const uint64_t last = qp->resp.received_at;

	return last == 0 || qp->poll_group->now - last > rte_get_tsc_hz() / 1000 * UC_SILENCE_MS;
}

/**
 * UC: after a lost packet, the message is dropped until the next one begins (9.8.2.2).
 * @return true: the mbuf was passed on
 */
static bool
request_uc(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const int32_t ahead = roce_psn_diff(pkt->psn, r->expected_psn);

	/* The network may duplicate and reorder packets. A message must not be delivered twice, or
	 * after a later one. */
	if (unlikely(ahead < 0 && ahead >= -UC_NEAR) && !was_silent(qp)) {
		r->received_at = qp->poll_group->now;
		r->behind = pkt->psn == r->behind_psn ? r->behind + 1 : 1;
		r->behind_psn = roce_psn_add(pkt->psn, 1);
		if (r->behind <= UC_RESTARTED) {
			roce_count(qp->poll_group, ROCE_RX_DUPLICATE);
			counter_add(&qp->uc.duplicates, 1);
			return false;
		}
	}
	r->behind = 0;
	if (unlikely(ahead != 0)) {
		roce_count(qp->poll_group, ROCE_RX_GAP);
		counter_add(&qp->uc.gaps, 1);
		/* Behind, or far ahead after a silence: the peer has restarted with another PSN.
		 * No loss is known. */
		if (ahead > 0 && (ahead <= UC_NEAR || !was_silent(qp)))
			counter_add(&qp->uc.lost, ahead);
		roce_uc_abandon(qp, 0);
	}
	r->received_at = qp->poll_group->now;
	r->expected_psn = roce_psn_add(pkt->psn, 1);
	if (pkt->flags & ROCE_F_FIRST) {
		if (unlikely(r->inbound == ROCE_IN_SEND || r->inbound == ROCE_IN_WRITE)) {
			/* without `reference` the payload is already placed: count one drop */
			if (!qp->reference)
				roce_count(qp->poll_group, ROCE_RX_UC_DROP);
			roce_uc_abandon(qp, 0);
		}
		r->inbound = ROCE_IN_NONE;
	}
	if (r->inbound == ROCE_IN_SKIP) {
		roce_count(qp->poll_group, ROCE_RX_UC_DROP);
		counter_add(&qp->uc.dropped, 1);
		return false;
	}
	if (!in_order(qp, pkt)) {
		roce_count(qp->poll_group, ROCE_RX_INVALID);
		uc_refuse(qp);
		return false;
	}
	if (qp->reference)
		return roce_reference_take(qp, pkt);
	if ((pkt->flags & ROCE_F_SEND ? take_send(qp, pkt) : take_write(qp, pkt)) == EXECUTED) {
		roce_count_n(qp->poll_group, ROCE_RX_BYTES, pkt->length);
		if (pkt->flags & ROCE_F_LAST)
			counter_add(&qp->uc.messages, 1);
	}
	return false;
}

bool
roce_responder_request(struct roce_qp *qp, const struct roce_packet *pkt)
{
	const enum rdma_qp_state state = roce_state(qp);

	if (unlikely(state != RDMA_QP_RTS && state != RDMA_QP_RTR)) {
		roce_count(qp->poll_group, ROCE_RX_STATE);
		return false;
	}
	if (unlikely(state == RDMA_QP_RTR && !qp->first_packet_noted)) {
		qp->first_packet_noted = true;
		roce_poll_group_note(qp->poll_group, ROCE_NOTE_FIRST_PACKET, qp->base.qpn);
	}
	if (qp->type == RDMA_QP_UC)
		return request_uc(qp, pkt);
	request_rc(qp, pkt);
	return false;
}

void
roce_responder_datagram(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const struct roce_deth *deth = (const struct roce_deth *)pkt->ext;
	struct rdma_wc wc = {
		.op = RDMA_WC_RECV,
		.flags = RDMA_WC_GRH,
		.byte_len = RDMA_GRH_BYTES + pkt->length,
		.src_qpn = roce_get24(deth->qpn),
	};
	uint8_t grh[RDMA_GRH_BYTES] = {0};
	struct roce_cursor at = {0, 0};
	struct roce_rqe *rqe;

	if (rte_be_to_cpu_32(deth->qkey) != qp->qkey) {
		roce_count(qp->poll_group, ROCE_RX_QKEY);
		return;
	}
	if (r->head == r->tail) {
		roce_count(qp->poll_group, ROCE_RX_RNR);
		return;
	}
	rqe = roce_rqe(qp, r->tail);
	if (rqe->status != RDMA_WC_SUCCESS) {
		wc.status = rqe->status;
		roce_complete_recv(qp, &wc);
		roce_qp_fail(qp, RDMA_WC_SUCCESS, true);
		return;
	}
	if (pkt->length > qp->mtu || wc.byte_len > rqe->length) {
		roce_count(qp->poll_group, ROCE_RX_TOO_LONG);
		return;
	}
	/* An IPv4 header is stored in the last 20 bytes (A17.4.5.1). */
	memcpy(grh + sizeof(grh) - pkt->l3_len, pkt->l3, pkt->l3_len);
	roce_list_write(rqe->segment, &at, grh, sizeof(grh));
	place_list(qp->poll_group, &at, rqe, pkt, list_streams(r, rqe, pkt));
	if (pkt->flags & ROCE_F_IMM) {
		wc.flags |= RDMA_WC_WITH_IMM;
		wc.imm = roce_packet_imm(pkt);
	}
	roce_count_n(qp->poll_group, ROCE_RX_BYTES, pkt->length);
	roce_complete_recv(qp, &wc);
}

static void
send_reply(struct roce_qp *qp, uint32_t psn, uint8_t syndrome)
{
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = psn,
		.opcode = ROCE_ACKNOWLEDGE,
	};
	struct roce_aeth *aeth;
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, sizeof(*aeth));
	aeth = (struct roce_aeth *)f.ext;
	aeth->syndrome = syndrome;
	roce_put24(aeth->msn, qp->resp.msn);
	roce_frame_end(qp->poll_group, &f);
}

bool
roce_responder_run(struct roce_qp *qp)
{
	struct roce_responder *r = &qp->resp;

	if (r->job_tail != r->job_head && !roce_resp_resource_run(qp))
		return true;
	if (r->reply == ROCE_ACK_ACTION_NONE)
		return false;
	if (roce_poll_group_tx_room(qp->poll_group) == 0 ||
		!roce_poll_group_spare(qp->poll_group, ROCE_FRAME_SEGMENTS))
		return true;
	switch ((enum roce_ack_action)r->reply) {
	case ROCE_ACK_ACTION_ACK:
		roce_count(qp->poll_group, ROCE_TX_ACK);
		send_reply(
			qp, roce_psn_add(r->expected_psn, -1), ROCE_AETH_ACK | ROCE_AETH_CREDITS);
		break;
	case ROCE_ACK_ACTION_NAK:
		roce_count(qp->poll_group, ROCE_TX_NAK_SEQUENCE);
		send_reply(qp, r->response_psn, r->syndrome);
		break;
	case ROCE_ACK_ACTION_RNR:
		roce_count(qp->poll_group, ROCE_TX_NAK_RNR);
		send_reply(qp, r->response_psn, r->syndrome);
		break;
	case ROCE_ACK_ACTION_FATAL:
		roce_count(qp->poll_group, ROCE_TX_NAK_FATAL);
		send_reply(qp, r->response_psn, r->syndrome);
		roce_qp_fail(qp, RDMA_WC_SUCCESS, true);
		break;
	case ROCE_ACK_ACTION_NONE:
		break;
	}
	r->reply = ROCE_ACK_ACTION_NONE;
	return false;
}
