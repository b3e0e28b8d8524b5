/* SPDX-License-Identifier: BSD-3-Clause */
/* The requester's processing of ACKs, NAKs, READ responses and atomic acknowledgements. */
#include <rte_byteorder.h>
#include <rte_cycles.h>

#include "engine/qp.h"

/** A loss shrinks the window by 1/WINDOW_LOSS. */
#define WINDOW_LOSS 8

/** Maximum doublings of the RNR timer while the receiver is not ready. */
#define RNR_BACKOFF_MAX 4

static bool
is_answered(const struct roce_wqe *wqe)
{
	return wqe->op >= RDMA_OP_READ;
}

/** Packets before `psn` are acknowledged: reset the retry counters and grow the window. */
static void
acknowledge(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;

	r->una_psn = psn;
	/* keep the distance small, because the comparison of PSNs wraps at 2^23 */
	if (roce_psn_diff(r->read.seen_psn, psn) < 0)
		r->read.seen_psn = psn;
	r->retries = r->retry_count;
	r->rnr_retries = r->rnr_retry;
	r->probe = false;
	r->gap_requested = false;
	r->window += r->window < r->window_max;
	r->rnr_backoff = 0;
	r->ack_deadline = 0;
	r->probes = 0;
}

/** Update the round-trip time if the timed packet, sent only once, is acknowledged (RFC 6298). */
static void
rtt_update(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;
	const int64_t sample = qp->poll_group->now - r->rtt_start;
	int64_t error;

	if (roce_psn_diff(psn, r->rtt_psn) <= 0)
		return;
	r->rtt_start = 0;
	if (r->rtt == 0) {
		r->rtt = sample;
		r->rtt_var = sample / 2;
		return;
	}
	error = sample - (int64_t)r->rtt;
	r->rtt += error / 8;
	r->rtt_var += (RTE_MAX(error, -error) - (int64_t)r->rtt_var) / 4;
}

/** Raise the limit of messages in flight that an RNR NAK has set, after an acknowledged message. */
static void
rnr_cap_raise(struct roce_requester *r)
{
	if (!r->rnr_cap || ++r->rnr_good < 2 * r->rnr_cap)
		return;
	r->rnr_good = 0;
	if (++r->rnr_cap > ROCE_WINDOW)
		r->rnr_cap = 0;
}

/**
 * Complete the requests before `psn`.
 * @return false: a READ or atomic response before `psn` is missing; una_psn is its PSN
 */
static bool
advance(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;
	struct roce_wqe *wqe;
	uint32_t missing;

	if (psn == r->una_psn)
		return true;
	if (r->rtt_start)
		rtt_update(qp, psn);
	while (r->una != r->begun) {
		wqe = roce_wqe(qp, r->una);
		if (is_answered(wqe) && wqe->answered < wqe->nb_psn) {
			missing = roce_psn_add(wqe->first_psn, wqe->answered);
			if (roce_psn_diff(psn, missing) > 0) {
				if (r->una_psn != missing)
					acknowledge(qp, missing);
				return false;
			}
			break;
		}
		if (roce_psn_diff(psn, roce_psn_add(wqe->first_psn, wqe->nb_psn)) < 0)
			break;
		if (is_answered(wqe) && r->rd_out && r->una != r->current)
			r->rd_out--;
		if (r->current == r->una)
			r->current++;
		roce_complete_send(qp, RDMA_WC_SUCCESS);
		rnr_cap_raise(r);
	}
	acknowledge(qp, psn);
	return true;
}

/**
 * Packets were lost. A small window idles the path for a round trip after each loss; a large one
 * sends more packets again. At 1 % random loss, this part keeps 0.78 of the lossless rate, and half
 * of the window 0.50.
 */
void
roce_requester_shrink(struct roce_requester *r)
{
	const uint32_t window = r->window - (r->window + WINDOW_LOSS - 1) / WINDOW_LOSS;

	r->window = RTE_MAX(window, (uint32_t)ROCE_WINDOW_MIN);
}

/** Resume sending after advance(). @param complete return value of advance() */
static void
resume(struct roce_qp *qp, bool complete)
{
	struct roce_requester *r = &qp->req;

	/* Request them once for each gap, which responses already in flight will show again. */
	if (!complete && !r->gap_requested) {
		r->gap_requested = true;
		roce_requester_rewind(qp, r->una_psn);
	} else if (roce_psn_diff(r->next_psn, r->una_psn) < 0) {
		roce_requester_rewind(qp, r->una_psn);
	}
	if (r->wait != ROCE_WAIT_RNR)
		roce_requester_arm(qp);
	roce_qp_activate(qp);
}

/** Reset the ACK timer after a NAK: the timeout restarts with the next packet sent (9.7.5.2.8). */
static void
ack_timer_reset(struct roce_requester *r)
{
	r->ack_deadline = 0;
	r->probes = 0;
}

static void
nak_sequence(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;

	roce_count(qp->poll_group, ROCE_RX_NAK_SEQUENCE);
	/*
	 * The NAK was caused by packets after the one that got the RNR NAK: the RNR timer is
	 * running.
	 */
	if (r->wait == ROCE_WAIT_RNR && psn == r->una_psn)
		return;
	/* READs before it are executed; their responses may still arrive */
	(void)advance(qp, psn);
	if (r->retries == 0) {
		roce_qp_fail(qp, RDMA_WC_RETRY_EXC_ERR, true);
		return;
	}
	r->retries--;
	roce_requester_shrink(r);
	ack_timer_reset(r);
	roce_requester_rewind(qp, psn);
	if (r->wait != ROCE_WAIT_RNR)
		roce_requester_arm(qp);
	roce_qp_activate(qp);
}

static void
nak_rnr(struct roce_qp *qp, uint32_t psn, uint8_t timer)
{
	struct roce_requester *r = &qp->req;
	const uint8_t backoff = r->una_psn == psn ? r->rnr_backoff : 0;
	uint64_t wait;

	roce_count(qp->poll_group, ROCE_RX_NAK_RNR);
	r->rnr_naks++;
	if (r->wait == ROCE_WAIT_RNR && r->una_psn == psn)
		return;
	if (!advance(qp, psn)) {
		resume(qp, false);
		return;
	}
	if (r->rnr_retry != 7) {
		if (r->rnr_retries == 0) {
			roce_qp_fail(qp, RDMA_WC_RNR_RETRY_EXC_ERR, true);
			return;
		}
		r->rnr_retries--;
	}
	roce_requester_rewind(qp, r->una_psn);
	/* The receiver is slower than the sender: send one message at a time, then more. */
	wait = (uint64_t)roce_rnr_us[timer] * rte_get_tsc_hz() / 1000000 << backoff;
	r->rnr_backoff = RTE_MIN(backoff + 1, RNR_BACKOFF_MAX);
	r->rnr_cap = 1;
	r->rnr_good = 0;
	ack_timer_reset(r);
	r->wait = ROCE_WAIT_RNR;
	roce_timer_start(&qp->poll_group->wheel, &r->timer, qp->poll_group->now + wait);
}

static void
nak_fatal(struct roce_qp *qp, uint32_t psn, uint8_t syndrome)
{
	static const uint8_t status[] = {
		[ROCE_NAK_INVALID_REQUEST - ROCE_AETH_NAK] = RDMA_WC_REM_INV_REQ_ERR,
		[ROCE_NAK_REMOTE_ACCESS - ROCE_AETH_NAK] = RDMA_WC_REM_ACCESS_ERR,
		[ROCE_NAK_REMOTE_OPERATION - ROCE_AETH_NAK] = RDMA_WC_REM_OP_ERR,
	};

	roce_count(qp->poll_group, ROCE_RX_NAK_FATAL);
	if (!advance(qp, psn)) {
		resume(qp, false);
		return;
	}
	roce_qp_fail(qp, status[syndrome - ROCE_AETH_NAK], true);
}

/** Copy the payload of a packet to a list, from an offset in the list. */
static void
scatter(const struct roce_packet *pkt, const struct roce_segment *list, uint32_t offset,
	bool stream)
{
	uint32_t from = 0, n;

	while (from < pkt->length) {
		if (offset >= list->length) {
			offset -= list->length;
			list++;
			continue;
		}
		n = RTE_MIN(pkt->length - from, list->length - offset);
		roce_packet_copy(pkt, from, list->addr + offset, n, stream);
		from += n;
		offset += n;
	}
}

bool
roce_read_place(struct roce_qp *qp, const struct roce_wqe *wqe, const struct roce_packet *pkt)
{
	const uint32_t offset = roce_psn_diff(pkt->psn, wqe->first_psn) * qp->mtu;

	if (pkt->length != RTE_MIN(wqe->length - offset, qp->mtu)) {
		roce_count(qp->poll_group, ROCE_RX_INVALID);
		return false;
	}
	scatter(pkt, wqe->segment, offset,
		roce_poll_group_streams(qp->poll_group, wqe->length >= ROCE_STREAM_MIN));
	roce_count_n(qp->poll_group, ROCE_RX_BYTES, pkt->length);
	return true;
}

/** Process a READ or atomic response. */
static void
response_process(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_requester *r = &qp->req;
	const bool atomic = pkt->flags & ROCE_F_ATOMICACK;
	struct roce_wqe *wqe;
	struct roce_cursor at = {0, 0};
	rte_be64_t old;
	bool complete;

	if (!advance(qp, pkt->psn)) {
		/* Earlier responses were lost: request them again. */
		if (!atomic && roce_read_place_ahead(qp, pkt)) {
			ack_timer_reset(r);
			if (r->wait != ROCE_WAIT_RNR)
				roce_requester_arm(qp);
			roce_qp_activate(qp);
		} else {
			resume(qp, false);
		}
		return;
	}
	wqe = roce_wqe(qp, r->una);
	if (r->una == r->begun || !is_answered(wqe) || (wqe->op == RDMA_OP_READ) == atomic ||
		pkt->psn != roce_psn_add(wqe->first_psn, wqe->answered)) {
		roce_count(qp->poll_group, ROCE_RX_STALE);
		resume(qp, true);
		return;
	}
	if (atomic) {
		memcpy(&old, pkt->ext + sizeof(struct roce_aeth), sizeof(old));
		old = rte_be_to_cpu_64(old);
		roce_list_write(wqe->segment, &at, &old, sizeof(old));
	} else if (!roce_read_place(qp, wqe, pkt)) {
		resume(qp, true); /* after advance(); the READ is requested again by the timer */
		return;
	}
	wqe->answered++;
	if (likely(roce_psn_diff(r->read.seen_psn, pkt->psn) <= 0)) {
		r->read.seen_psn = roce_psn_add(pkt->psn, 1);
		complete = advance(qp, r->read.seen_psn);
	} else {
		complete = advance(qp, roce_read_absorb(qp));
	}
	resume(qp, complete);
}

/** Process a response to no outstanding request, most often to one that was sent twice. */
static void
response_stale(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_requester *r = &qp->req;

	roce_count(qp->poll_group, ROCE_RX_STALE);
	qp->life.answered = true;
	/* The peer resends a whole READ and is still busy with it; later responses will follow. */
	if (pkt->opcode != ROCE_ACKNOWLEDGE && r->wait == ROCE_WAIT_ACK) {
		r->ack_deadline = 0;
		roce_requester_arm(qp);
	}
}

void
roce_requester_response(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_requester *r = &qp->req;
	const struct roce_aeth *aeth = roce_packet_aeth(pkt);
	uint8_t syndrome = ROCE_AETH_ACK;

	if (roce_state(qp) != RDMA_QP_RTS) {
		roce_count(qp->poll_group, ROCE_RX_STATE);
		return;
	}
	if (roce_psn_diff(pkt->psn, r->una_psn) < 0 || roce_psn_diff(pkt->psn, r->max_psn) >= 0) {
		response_stale(qp, pkt);
		return;
	}
	if (pkt->flags & ROCE_F_AETH)
		syndrome = aeth->syndrome;
	if (pkt->opcode == ROCE_ACKNOWLEDGE) {
		switch (syndrome & ROCE_AETH_KIND) {
		case ROCE_AETH_ACK:
			resume(qp, advance(qp, roce_psn_add(pkt->psn, 1)));
			return;
		case ROCE_AETH_RNR:
			nak_rnr(qp, pkt->psn, syndrome & 0x1f);
			return;
		case ROCE_AETH_NAK:
			if (syndrome == ROCE_NAK_SEQUENCE) {
				nak_sequence(qp, pkt->psn);
				return;
			}
			if (syndrome <= ROCE_NAK_REMOTE_OPERATION) {
				nak_fatal(qp, pkt->psn, syndrome);
				return;
			}
			/* fall through */
		default:
			roce_count(qp->poll_group, ROCE_RX_MALFORMED);
			return;
		}
	}
	if ((syndrome & ROCE_AETH_KIND) != ROCE_AETH_ACK)
		roce_count(qp->poll_group, ROCE_RX_MALFORMED);
	else
		response_process(qp, pkt);
}
