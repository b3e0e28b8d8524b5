/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester: sends requests, retransmits, and runs the ACK timer. */
#include <rte_byteorder.h>
#include <rte_cycles.h>

#include "engine/qp.h"

/* Time that a peer may need to respond, in addition to the round trip: 0.25 ms */
#define PROBE_PER_SECOND 4000
/* The same with the round trip, before that has been measured: 10 ms */
#define PROBE_PER_SECOND_UNMEASURED 100
/*
 * Maximum early retransmissions before the local ACK timeout applies. Each waits twice as long as
 * the one before. Long READs have a lower limit: the peer, which may only be slow, resends all
 * missing data for each of them.
 */
#define PROBES_MAX	10
#define PROBES_READ_MAX 2
/* Longest SEND that roce_dev.copy_sends applies to, bytes. Longer ones carry data. */
#define COPY_SEND_MAX 4096

static bool
is_answered(const struct roce_wqe *wqe)
{
	return wqe->op >= RDMA_OP_READ;
}

static bool
is_signalled(const struct roce_qp *qp, const struct roce_wqe *wqe)
{
	return qp->signal_all || (wqe->flags & RDMA_SEND_SIGNALED);
}

/** Assign PSNs to the current request, if it has none yet. */
static void
assign_psns(struct roce_qp *qp, struct roce_wqe *wqe)
{
	struct roce_requester *r = &qp->req;
	const bool atomic = wqe->op == RDMA_OP_CMP_SWAP || wqe->op == RDMA_OP_FETCH_ADD;

	if (r->current != r->begun)
		return;
	wqe->first_psn = r->next_psn;
	wqe->nb_psn = atomic || !wqe->length ? 1 : (wqe->length + qp->mtu - 1) / qp->mtu;
	wqe->answered = 0;
	r->begun++;
}

/** True if the next packet may be sent. */
static bool
may_send(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	const struct roce_wqe *wqe;
	uint32_t outstanding, psns;

	if (r->current == r->head || r->wait == ROCE_WAIT_RNR)
		return false;
	wqe = roce_wqe(qp, r->current);
	if (unlikely(wqe->status != RDMA_WC_SUCCESS))
		return r->current == r->una;
	if (qp->type != RDMA_QP_RC)
		return true;
	outstanding = roce_psn_diff(r->next_psn, r->una_psn);
	if (outstanding == 0)
		return true;
	if (r->probe || outstanding >= r->window)
		return false;
	if (r->offset)
		return true;
	if (r->rnr_cap && r->current - r->una >= r->rnr_cap)
		return false;
	if ((wqe->flags & RDMA_SEND_FENCE) && r->rd_out)
		return false;
	if (!is_answered(wqe))
		return true;
	/* PSN arithmetic requires that less than half of all PSNs are outstanding. */
	psns = wqe->length / qp->mtu + 1;
	return r->rd_out < r->rd_atom && outstanding + psns < 1U << 23;
}

/** Opcode of a SEND or WRITE packet, without the transport bits. */
static uint8_t
opcode(const struct roce_wqe *wqe, bool first, bool last)
{
	const bool write = wqe->op == RDMA_OP_WRITE || wqe->op == RDMA_OP_WRITE_IMM;
	const bool imm = wqe->op == RDMA_OP_SEND_IMM || wqe->op == RDMA_OP_WRITE_IMM;
	const uint8_t base = write ? ROCE_WRITE_FIRST : ROCE_SEND_FIRST;

	if (first && last)
		return base + (ROCE_SEND_ONLY - ROCE_SEND_FIRST) + imm;
	if (first)
		return base;
	return last ? base + (ROCE_SEND_LAST - ROCE_SEND_FIRST) + imm
		    : base + (ROCE_SEND_MIDDLE - ROCE_SEND_FIRST);
}

/** Account for a sent packet. @param next  PSN after its last one */
static void
account_sent(struct roce_qp *qp, uint32_t next)
{
	struct roce_requester *r = &qp->req;

	if (roce_psn_diff(r->next_psn, r->max_psn) < 0) {
		r->retransmits++;
		roce_count(qp->poll_group, ROCE_TX_RETRANSMIT);
	}
	r->next_psn = next;
	if (roce_psn_diff(next, r->max_psn) > 0)
		r->max_psn = next;
}

static void
request_done(struct roce_requester *r)
{
	r->current++;
	r->offset = 0;
	r->at = (struct roce_cursor){0, 0};
}

/** True if an acknowledgement or response was requested for an outstanding packet. */
static bool
ack_is_requested(const struct roce_requester *r)
{
	return roce_psn_diff(r->ack_request_psn, r->una_psn) > 0;
}

/** True if no packet follows this request before it is acknowledged. */
static bool
is_last(const struct roce_qp *qp)
{
	const struct roce_requester *r = &qp->req;

	/* A request with an invalid list is not sent. It fails when it is the oldest. */
	return r->current + 1 == r->head || roce_wqe(qp, r->current + 1)->status != RDMA_WC_SUCCESS;
}

/** Measure the round-trip time with the next packet, unless it was sent before. */
static void
start_rtt(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;

	if (r->rtt_start != 0 || r->next_psn != r->max_psn)
		return;
	r->rtt_start = qp->poll_group->now;
	r->rtt_psn = r->next_psn;
}

/** Decide whether the next packet requests an acknowledgement, and account for that. */
static bool
request_ack(struct roce_qp *qp, const struct roce_wqe *wqe, bool last)
{
	struct roce_requester *r = &qp->req;

	if (++r->since_ack_request >= RTE_MIN(r->window / 4, ROCE_ACK_EVERY) || r->probe ||
		(last && (is_signalled(qp, wqe) || is_last(qp))) || (last && r->rnr_cap) ||
		roce_psn_diff(r->next_psn, r->una_psn) + 1 >= r->window) {
		r->since_ack_request = 0;
		r->ack_request_psn = roce_psn_add(r->next_psn, 1);
		start_rtt(qp);
		return true;
	}
	return false;
}

/** Tell the frame the payload of the next request, so that it is prefetched. */
static void
announce_next_payload(const struct roce_qp *qp, struct roce_frame *f, const struct roce_wqe *wqe)
{
	if (!is_answered(wqe) && wqe->nb_segments)
		roce_frame_next(f, wqe->segment[0].addr, RTE_MIN(wqe->segment[0].length, qp->mtu));
}

/** Send the next packet of a SEND or WRITE. */
static void
send_data(struct roce_qp *qp, struct roce_wqe *wqe)
{
	struct roce_requester *r = &qp->req;
	const uint32_t n = RTE_MIN(wqe->length - r->offset, qp->mtu);
	const bool first = r->offset == 0, last = r->offset + n == wqe->length;
	struct roce_frame_head head = {.qpn = qp->peer_qpn, .psn = r->next_psn};
	const struct roce_path *path = &qp->path;
	struct roce_segment bytes;
	struct roce_reth *reth;
	struct roce_deth *deth;
	struct roce_frame f;
	rte_be32_t imm;
	uint8_t *ext;

	head.opcode = opcode(wqe, first, last);
	if (qp->type == RDMA_QP_RC) {
		head.ack = request_ack(qp, wqe, last);
	} else if (qp->type == RDMA_QP_UC) {
		head.opcode += ROCE_UC;
	} else {
		head.opcode += ROCE_UD;
		head.qpn = wqe->remote_qpn;
		path = roce_ah_path(wqe->ah);
	}
	head.solicited = last && (wqe->flags & RDMA_SEND_SOLICITED);
	roce_frame_begin(&f, path, &head, roce_opcodes[head.opcode].ext_bytes);
	ext = f.ext;
	if (qp->type == RDMA_QP_UD) {
		roce_frame_udp_port(&f, qp->udp_port);
		deth = (struct roce_deth *)ext;
		deth->qkey = rte_cpu_to_be_32(wqe->rkey);
		deth->reserved = 0;
		roce_put24(deth->qpn, qp->base.qpn);
		ext += sizeof(*deth);
	}
	if (roce_opcodes[head.opcode].flags & ROCE_F_RETH) {
		reth = (struct roce_reth *)ext;
		reth->va = rte_cpu_to_be_64(wqe->remote_addr);
		reth->rkey = rte_cpu_to_be_32(wqe->rkey);
		reth->length = rte_cpu_to_be_32(wqe->length);
		ext += sizeof(*reth);
	}
	if (roce_opcodes[head.opcode].flags & ROCE_F_IMM) {
		imm = rte_cpu_to_be_32(wqe->imm);
		memcpy(ext, &imm, sizeof(imm));
	}
	/* The region of control messages can be deregistered when its queue pair is closed, also if
	 * the port sends nothing more. */
	f.copy = qp->poll_group->dev->copy_sends && qp->type == RDMA_QP_RC &&
		(wqe->op == RDMA_OP_SEND || wqe->op == RDMA_OP_SEND_IMM) &&
		wqe->length <= COPY_SEND_MAX;
	if (wqe->flags & RDMA_SEND_INLINE) {
		bytes.addr = (uint8_t *)wqe->segment;
		bytes.length = wqe->length;
		roce_frame_attach(qp->poll_group, &f, &bytes, &r->at, n, NULL);
	} else {
		roce_frame_attach(qp->poll_group, &f, wqe->segment, &r->at, n,
			qp->type == RDMA_QP_RC ? NULL : &wqe->info);
	}
	if (last && r->current + 1 != r->head)
		announce_next_payload(qp, &f, roce_wqe(qp, r->current + 1));
	roce_rate_sent(&qp->rate, qp->poll_group->now, roce_frame_end(qp->poll_group, &f));
	account_sent(qp, roce_psn_add(r->next_psn, 1));
	r->offset += n;
	if (last)
		request_done(r);
}

void
roce_requester_send_read(
	struct roce_qp *qp, const struct roce_wqe *wqe, uint32_t from, uint32_t packets)
{
	const uint32_t done = from * qp->mtu;
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = roce_psn_add(wqe->first_psn, from),
		.opcode = ROCE_READ_REQUEST,
		.ack = true,
	};
	struct roce_reth *reth;
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, sizeof(*reth));
	reth = (struct roce_reth *)f.ext;
	reth->va = rte_cpu_to_be_64(wqe->remote_addr + done);
	reth->rkey = rte_cpu_to_be_32(wqe->rkey);
	reth->length = rte_cpu_to_be_32(RTE_MIN(wqe->length - done, packets * qp->mtu));
	roce_frame_end(qp->poll_group, &f);
}

static void
send_atomic(struct roce_qp *qp, struct roce_wqe *wqe)
{
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = qp->req.next_psn,
		.opcode = wqe->op == RDMA_OP_CMP_SWAP ? ROCE_COMPARE_SWAP : ROCE_FETCH_ADD,
		.ack = true,
	};
	struct roce_atomiceth *eth;
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, sizeof(*eth));
	eth = (struct roce_atomiceth *)f.ext;
	eth->va = rte_cpu_to_be_64(wqe->remote_addr);
	eth->rkey = rte_cpu_to_be_32(wqe->rkey);
	eth->swap_add = rte_cpu_to_be_64(wqe->swap_add);
	eth->compare = rte_cpu_to_be_64(wqe->op == RDMA_OP_CMP_SWAP ? wqe->compare : 0);
	roce_frame_end(qp->poll_group, &f);
}

static void
send_one(struct roce_qp *qp, struct roce_wqe *wqe)
{
	struct roce_requester *r = &qp->req;

	assign_psns(qp, wqe);
	if (!is_answered(wqe)) {
		send_data(qp, wqe);
		return;
	}
	start_rtt(qp);
	if (wqe->op == RDMA_OP_READ)
		roce_requester_send_read(qp, wqe, wqe->answered, wqe->nb_psn - wqe->answered);
	else
		send_atomic(qp, wqe);
	r->since_ack_request = 0;
	r->rd_out++;
	r->ack_request_psn = roce_psn_add(wqe->first_psn, wqe->nb_psn);
	account_sent(qp, r->ack_request_psn);
	request_done(r);
}

/** UC, UD: complete the requests whose memory the port has released. @return true: all completed */
static bool
complete_sent(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;

	while (r->una != r->current) {
		if (rte_mbuf_ext_refcnt_read(&roce_wqe(qp, r->una)->info) > 1) {
			qp->poll_group->held = true;
			return false;
		}
		roce_complete_send(qp, RDMA_WC_SUCCESS);
	}
	return true;
}

bool
roce_requester_run(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	struct roce_poll_group *pg = qp->poll_group;
	unsigned int budget = ROCE_QUANTUM;
	const uint32_t before = r->next_psn;
	const bool was_asked = ack_is_requested(r);
	struct roce_wqe *wqe;
	bool more = false;

	if (unlikely(r->read.tail != r->read.head) && roce_read_repair_run(qp))
		return true;
	while (may_send(qp)) {
		if (budget-- == 0 || roce_poll_group_tx_room(pg) == 0 ||
			!roce_rate_allows(&qp->rate, pg->now) ||
			!roce_poll_group_spare(pg, ROCE_FRAME_SEGMENTS)) {
			more = true;
			break;
		}
		wqe = roce_wqe(qp, r->current);
		if (unlikely(wqe->status != RDMA_WC_SUCCESS)) {
			if (qp->type == RDMA_QP_RC || complete_sent(qp))
				roce_qp_fail(qp, wqe->status, true);
			return roce_state(qp) != RDMA_QP_ERROR;
		}
		send_one(qp, wqe);
	}
	/* A request with an invalid list may have waited for the requests before it. */
	if (qp->type != RDMA_QP_RC)
		return !complete_sent(qp) || r->current != r->head;
	if (r->next_psn == before)
		return more;
	/* The timeout starts with the first packet that requests an acknowledgement (9.7.6.1.3). */
	if (r->wait == ROCE_WAIT_ACK && !was_asked && ack_is_requested(r)) {
		r->ack_deadline = 0;
		roce_requester_arm(qp);
	} else if (r->wait == ROCE_WAIT_NONE) {
		roce_requester_arm(qp);
	}
	return more;
}

/** Maximum early retransmissions of the oldest request. */
static uint8_t
probes_max(const struct roce_qp *qp)
{
	const struct roce_wqe *wqe = roce_wqe(qp, qp->req.una);

	return wqe->op == RDMA_OP_READ && wqe->nb_psn - wqe->answered > ROCE_WINDOW
		? PROBES_READ_MAX
		: PROBES_MAX;
}

/**
 * Time without a response after which packets are sent again. A shrunk window indicates a path that
 * loses packets, and therefore also retransmissions and NAKs: the time is then shorter.
 */
static uint64_t
probe_after(const struct roce_requester *r)
{
	const uint64_t peer = rte_get_tsc_hz() / PROBE_PER_SECOND;

	if (r->rtt == 0)
		return rte_get_tsc_hz() / PROBE_PER_SECOND_UNMEASURED;
	return r->rtt + 4 * r->rtt_var + peer * r->window / r->window_max;
}

void
roce_requester_arm(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;

	const uint64_t now = qp->poll_group->now;
	uint64_t deadline;

	if (r->una_psn == r->next_psn) {
		r->wait = ROCE_WAIT_NONE;
		r->ack_deadline = 0;
		roce_timer_stop(&r->timer);
		return;
	}
	if (r->ack_deadline == 0)
		r->ack_deadline = now + r->ack_cycles;
	deadline = r->ack_deadline;
	if (ack_is_requested(r) && r->probes < probes_max(qp))
		deadline = RTE_MIN(deadline, now + (probe_after(r) << r->probes));
	r->wait = ROCE_WAIT_ACK;
	roce_timer_start(&qp->poll_group->wheel, &r->timer, deadline);
}

void
roce_requester_rewind(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;
	struct roce_wqe *wqe;
	uint32_t i, packets;

	r->rtt_start = 0;
	r->rd_out = 0;
	r->offset = 0;
	r->at = (struct roce_cursor){0, 0};
	r->since_ack_request = 0;
	r->ack_request_psn = psn;
	r->next_psn = psn;
	for (i = r->una; i != r->begun; i++) {
		wqe = roce_wqe(qp, i);
		packets = roce_psn_diff(psn, wqe->first_psn);
		if (packets < wqe->nb_psn)
			break;
		r->rd_out += is_answered(wqe) && wqe->answered < wqe->nb_psn;
	}
	r->current = i;
	if (i == r->begun)
		return;
	if (is_answered(wqe)) {
		r->next_psn = roce_psn_add(wqe->first_psn, wqe->answered);
		return;
	}
	r->offset = packets * qp->mtu;
	if (wqe->flags & RDMA_SEND_INLINE) {
		r->at.offset = r->offset;
		return;
	}
	for (packets = r->offset; packets >= wqe->segment[r->at.entry].length && packets;
		r->at.entry++)
		packets -= wqe->segment[r->at.entry].length;
	r->at.offset = packets;
}

/**
 * True if an expired ACK timer is to be ignored because no acknowledgement was requested yet: the
 * packets are paced, or other queue pairs are served first. If no packet was sent since the
 * previous expiry, the port may be stuck. This is tolerated once, because the lcore may not have
 * polled in time.
 */
static bool
ack_timer_is_early(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;

	if (ack_is_requested(r) || !may_send(qp))
		return false;
	/* the rate limit is the cause, not the port */
	if (!roce_rate_allows(&qp->rate, qp->poll_group->now))
		return true;
	if (r->paced_psn != r->next_psn)
		r->early_timeouts = 0;
	r->paced_psn = r->next_psn;
	return r->early_timeouts++ < 2;
}

void
roce_requester_timeout(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	const uint8_t wait = r->wait;

	r->wait = ROCE_WAIT_NONE;
	if (roce_state(qp) != RDMA_QP_RTS || wait == ROCE_WAIT_NONE)
		return;
	if (wait == ROCE_WAIT_ACK && qp->poll_group->now < r->ack_deadline) {
		roce_count(qp->poll_group, ROCE_TX_PROBE);
		/* if the peer does not take a part of a READ, request all of it */
		if (++r->probes <= PROBES_READ_MAX && roce_read_request_first(qp)) {
			roce_requester_arm(qp);
			roce_qp_activate(qp);
			return;
		}
		roce_requester_rewind(qp, r->una_psn);
	} else if (wait == ROCE_WAIT_ACK && ack_timer_is_early(qp)) {
		r->ack_deadline = 0;
		roce_requester_arm(qp);
		return;
	} else if (wait == ROCE_WAIT_ACK) {
		roce_count(qp->poll_group, ROCE_TX_TIMEOUT);
		r->ack_deadline = 0;
		r->probes = 0;
		if (r->retries == 0) {
			roce_qp_fail(qp, RDMA_WC_RETRY_EXC_ERR, true);
			return;
		}
		r->retries--;
		roce_requester_rewind(qp, r->una_psn);
	}
	/* Send one packet that requests an acknowledgement. The rest follows when it arrives. */
	r->probe = true;
	roce_qp_activate(qp);
}
