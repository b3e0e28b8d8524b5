/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's repair of READs. Responses after a lost one are placed at once, and only what is
 * missing is requested again, as a duplicate request for a part of the READ. Otherwise each loss
 * would cost all responses in flight.
 *
 * PSNs from una_psn, which is missing, to read.seen_psn: a bit of read.placed is set if the
 * response was placed.
 */
#include <rte_byteorder.h>
#include <rte_cycles.h>

#include "engine/qp.h"

static uint64_t
bit_of(uint32_t psn)
{
	return 1ULL << (psn & 63);
}

static uint64_t *
word_of(struct roce_read_repair *rr, uint32_t psn)
{
	return &rr->placed[psn / 64 % RTE_DIM(rr->placed)];
}

/** Find the request with a PSN. @return NULL: it has none, or is no READ */
static struct roce_wqe *
find_read(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;
	struct roce_wqe *wqe;
	uint32_t i;

	for (i = r->una; i != r->begun; i++) {
		wqe = roce_wqe(qp, i);
		if (roce_psn_diff(psn, roce_psn_add(wqe->first_psn, wqe->nb_psn)) < 0)
			return wqe->op == RDMA_OP_READ ? wqe : NULL;
	}
	return NULL;
}

/** Request these PSNs again. If too many ranges wait, the timer finds the loss once more. */
static void
request_again(struct roce_read_repair *rr, uint32_t psn, uint32_t end)
{
	if (rr->head - rr->tail < RTE_DIM(rr->range))
		rr->range[rr->head++ % RTE_DIM(rr->range)] =
			(struct roce_read_range){.psn = psn, .end = end};
}

bool
roce_read_request_first(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;
	uint32_t end = r->una_psn;

	if (roce_psn_diff(rr->seen_psn, r->una_psn) <= 0)
		return false;
	while (end != rr->seen_psn && (*word_of(rr, end) & bit_of(end)) == 0)
		end = roce_psn_add(end, 1);
	request_again(rr, r->una_psn, end);
	rr->first_at = qp->poll_group->now;
	return true;
}

bool
roce_read_place_ahead(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;
	struct roce_wqe *wqe = find_read(qp, pkt->psn);
	const uint32_t ahead = roce_psn_diff(pkt->psn, r->una_psn);
	uint64_t *word = word_of(rr, pkt->psn);
	uint32_t from;

	if (wqe == NULL || ahead >= ROCE_READ_AHEAD || find_read(qp, r->una_psn) == NULL)
		return false;
	if (roce_psn_diff(pkt->psn, rr->seen_psn) < 0 && (*word & bit_of(pkt->psn)) != 0) {
		roce_count(qp->poll_group, ROCE_RX_STALE);
		return true;
	}
	if (!roce_read_place(qp, wqe, pkt))
		return true;
	*word |= bit_of(pkt->psn);
	from = rr->seen_psn;
	if (roce_psn_diff(pkt->psn, from) >= 0) {
		rr->seen_psn = roce_psn_add(pkt->psn, 1);
		if (pkt->psn != from) {
			request_again(rr, from, pkt->psn);
			r->rtt_start = 0; /* its response may be among them */
			roce_requester_shrink(r);
		}
		if (from == r->una_psn)
			rr->first_at = qp->poll_group->now;
	}
	/* The first range, or its request, is lost again if it takes longer than a round trip. */
	if (r->rtt != 0 && qp->poll_group->now - rr->first_at > r->rtt + 4 * r->rtt_var)
		(void)roce_read_request_first(qp);
	return true;
}

uint32_t
roce_read_absorb(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;
	uint32_t psn = r->una_psn, i;
	struct roce_wqe *wqe;

	for (i = r->una; i != r->begun; i++) {
		wqe = roce_wqe(qp, i);
		if (wqe->op != RDMA_OP_READ) {
			/* a later response acknowledges SEND and WRITE; atomics have their own */
			if (wqe->op > RDMA_OP_READ ||
				roce_psn_diff(rr->seen_psn, wqe->first_psn) <= 0)
				break;
			psn = roce_psn_add(wqe->first_psn, wqe->nb_psn);
			continue;
		}
		for (;;) {
			psn = roce_psn_add(wqe->first_psn, wqe->answered);
			if (wqe->answered == wqe->nb_psn || roce_psn_diff(psn, rr->seen_psn) >= 0 ||
				(*word_of(rr, psn) & bit_of(psn)) == 0)
				break;
			*word_of(rr, psn) &= ~bit_of(psn);
			wqe->answered++;
		}
		if (wqe->answered < wqe->nb_psn)
			break;
	}
	rr->first_at = qp->poll_group->now;
	return psn;
}

/** Request the part of a range that belongs to its first READ. */
static void
send_range(struct roce_qp *qp, struct roce_read_range *range)
{
	const struct roce_wqe *wqe = find_read(qp, range->psn);
	uint32_t from, packets;

	if (wqe == NULL) {
		range->psn = range->end;
		return;
	}
	/* the range can begin in a request without responses */
	if (roce_psn_diff(range->psn, wqe->first_psn) < 0)
		range->psn = wqe->first_psn;
	from = roce_psn_diff(range->psn, wqe->first_psn);
	packets = RTE_MIN((uint32_t)roce_psn_diff(range->end, range->psn), wqe->nb_psn - from);
	range->psn = roce_psn_add(range->psn, packets);
	roce_requester_send_read(qp, wqe, from, packets);
	qp->req.retransmits++;
	roce_count(qp->poll_group, ROCE_TX_RETRANSMIT);
}

bool
roce_read_repair_run(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;

	while (rr->tail != rr->head) {
		struct roce_read_range *range = &rr->range[rr->tail % RTE_DIM(rr->range)];

		if (roce_psn_diff(range->psn, r->una_psn) < 0)
			range->psn = r->una_psn;
		if (roce_psn_diff(range->end, range->psn) <= 0) {
			rr->tail++;
			continue;
		}
		if (roce_poll_group_tx_room(qp->poll_group) == 0 ||
			!roce_poll_group_spare(qp->poll_group, ROCE_FRAME_SEGMENTS))
			return true;
		send_range(qp, range);
	}
	return false;
}
