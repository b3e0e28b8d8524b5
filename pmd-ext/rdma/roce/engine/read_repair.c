/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The requester's repair of READs. Responses after a lost one are placed at once, and only the
 * missing ones are requested again, by a duplicate request for a part of the READ. Otherwise each
 * loss would cost all responses in flight.
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

static bool
is_placed(struct roce_read_repair *rr, uint32_t psn)
{
	return (*word_of(rr, psn) & bit_of(psn)) != 0;
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

/** First PSN of a READ from `psn` that is (not) placed, or the end of the tracked PSNs. */
static uint32_t
find_next(struct roce_read_repair *rr, const struct roce_wqe *wqe, uint32_t psn, bool placed)
{
	const uint32_t end = roce_psn_add(wqe->first_psn, wqe->nb_psn);

	while (psn != end && roce_psn_diff(psn, rr->seen_psn) < 0 && is_placed(rr, psn) != placed)
		psn = roce_psn_add(psn, 1);
	return psn;
}

/**
 * Request the first missing range of a READ again. Its later ones have to wait: rdma_rxe takes no
 * duplicate request that begins before the one before. If too many ranges wait to be sent, the
 * timer finds this one once more.
 * @return false: none is missing, as far as is known
 */
static bool
request_first_of(struct roce_qp *qp, const struct roce_wqe *wqe)
{
	struct roce_read_repair *rr = &qp->req.read;
	const uint32_t psn = find_next(rr, wqe, roce_psn_add(wqe->first_psn, wqe->answered), false);
	const uint32_t end = find_next(rr, wqe, psn, true);

	if (psn == end)
		return false;
	if (rr->head - rr->tail < RTE_DIM(rr->range))
		rr->range[rr->head++ % RTE_DIM(rr->range)] =
			(struct roce_read_range){.psn = psn, .end = end};
	return true;
}

bool
roce_read_request_first(struct roce_qp *qp)
{
	const struct roce_wqe *wqe = find_read(qp, qp->req.una_psn);

	qp->req.read.first_at = qp->poll_group->now;
	return wqe != NULL && request_first_of(qp, wqe);
}

/** Responses from `psn` to the latest one are missing: request those of each READ. */
static void
request_gap(struct roce_qp *qp, uint32_t psn)
{
	struct roce_requester *r = &qp->req;
	const struct roce_wqe *wqe;
	uint32_t i;

	for (i = r->una; i != r->begun; i++) {
		wqe = roce_wqe(qp, i);
		if (wqe->op != RDMA_OP_READ ||
			roce_psn_diff(psn, roce_psn_add(wqe->first_psn, wqe->nb_psn)) >= 0)
			continue;
		if (roce_psn_diff(wqe->first_psn, r->read.seen_psn) >= 0)
			break;
		/* unless an earlier range of it is missing, too */
		if (roce_psn_diff(find_next(&r->read, wqe,
					  roce_psn_add(wqe->first_psn, wqe->answered), false),
			    psn) >= 0)
			(void)request_first_of(qp, wqe);
	}
}

/** A response was placed that had been missing. If its range ends here, request the next one. */
static void
request_next(struct roce_qp *qp, const struct roce_wqe *wqe, uint32_t psn)
{
	struct roce_read_repair *rr = &qp->req.read;
	const uint32_t next = roce_psn_add(psn, 1);

	if (find_next(rr, wqe, next, true) == next)
		(void)request_first_of(qp, wqe);
}

bool
roce_read_place_ahead(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;
	struct roce_wqe *wqe = find_read(qp, pkt->psn);
	const uint32_t ahead = roce_psn_diff(pkt->psn, r->una_psn), seen = rr->seen_psn;

	if (wqe == NULL || ahead >= ROCE_READ_AHEAD || find_read(qp, r->una_psn) == NULL)
		return false;
	if (roce_psn_diff(pkt->psn, seen) < 0 && is_placed(rr, pkt->psn)) {
		roce_count(qp->poll_group, ROCE_RX_STALE);
		return true;
	}
	if (!roce_read_place(qp, wqe, pkt))
		return true;
	*word_of(rr, pkt->psn) |= bit_of(pkt->psn);
	if (roce_psn_diff(pkt->psn, seen) < 0) {
		request_next(qp, wqe, pkt->psn);
	} else {
		rr->seen_psn = roce_psn_add(pkt->psn, 1);
		if (pkt->psn != seen) {
			request_gap(qp, seen);
			r->rtt_start = 0; /* the timed response may be in the gap */
			roce_requester_shrink(r);
		}
		if (seen == r->una_psn)
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
	const uint32_t next = roce_psn_add(r->una_psn, 1);
	uint32_t psn = r->una_psn, i;
	struct roce_wqe *wqe;

	for (i = r->una; i != r->begun; i++) {
		wqe = roce_wqe(qp, i);
		if (wqe->op != RDMA_OP_READ) {
			/* a later response acknowledges SEND and WRITE; atomics have their own */
			if (wqe->op > RDMA_OP_READ
					? wqe->answered < wqe->nb_psn
					: roce_psn_diff(rr->seen_psn, wqe->first_psn) <= 0)
				break;
			psn = roce_psn_add(wqe->first_psn, wqe->nb_psn);
			continue;
		}
		for (;;) {
			psn = roce_psn_add(wqe->first_psn, wqe->answered);
			if (wqe->answered == wqe->nb_psn || roce_psn_diff(psn, rr->seen_psn) >= 0 ||
				!is_placed(rr, psn))
				break;
			*word_of(rr, psn) &= ~bit_of(psn);
			wqe->answered++;
		}
		if (wqe->answered < wqe->nb_psn) {
			if (psn != next)
				(void)request_first_of(qp, wqe);
			break;
		}
	}
	rr->first_at = qp->poll_group->now;
	return psn;
}

/** Request a range of a READ that is not completed. */
static void
send_range(struct roce_qp *qp, uint32_t psn, uint32_t end)
{
	const struct roce_wqe *wqe = find_read(qp, psn);

	if (wqe == NULL)
		return;
	roce_requester_send_read(
		qp, wqe, roce_psn_diff(psn, wqe->first_psn), roce_psn_diff(end, psn));
	qp->req.retransmits++;
	roce_count(qp->poll_group, ROCE_TX_RETRANSMIT);
}

bool
roce_read_repair_run(struct roce_qp *qp)
{
	struct roce_requester *r = &qp->req;
	struct roce_read_repair *rr = &r->read;

	for (; rr->tail != rr->head; rr->tail++) {
		const struct roce_read_range *range = &rr->range[rr->tail % RTE_DIM(rr->range)];
		uint32_t psn = range->psn;

		/* a part of it may have arrived meanwhile */
		if (roce_psn_diff(psn, r->una_psn) < 0)
			psn = r->una_psn;
		if (roce_psn_diff(range->end, psn) <= 0)
			continue;
		if (roce_poll_group_tx_room(qp->poll_group) == 0 ||
			!roce_poll_group_spare(qp->poll_group, ROCE_FRAME_SEGMENTS))
			return true;
		send_range(qp, psn, range->end);
	}
	return false;
}
