/* SPDX-License-Identifier: BSD-3-Clause */
/* Responder resources: execution of READs and atomics, and their responses. */
#include <rte_byteorder.h>

#include "engine/qp.h"

static struct roce_resp_resource *
answer_at(const struct roce_responder *r, uint32_t i)
{
	return &r->answers[i & r->answer_mask];
}

static struct roce_job *
job_at(const struct roce_responder *r, uint32_t i)
{
	return &r->jobs[i & r->job_mask];
}

/** Queue a response. */
static void
job_add(struct roce_responder *r, uint32_t answer, uint32_t start, uint32_t end, bool again)
{
	*job_at(r, r->job_head++) =
		(struct roce_job){.answer = answer, .start = start, .end = end, .again = again};
}

/** Mark a response as finished without sending the rest. */
static void
job_cancel(struct roce_job *job)
{
	job->sent = UINT32_MAX - job->start;
}

/** True if all packets of a response are sent. A response without payload has one packet. */
static bool
job_done(const struct roce_qp *qp, const struct roce_job *job)
{
	const uint32_t at = job->start + job->sent;

	return at && (uint64_t)at * qp->mtu >= job->end;
}

/**
 * Cancel the responses of a responder resource that is to be reused. The peer must have received
 * its response already; otherwise it would exceed its limit of outstanding requests.
 */
static void
jobs_cancel(struct roce_responder *r, uint32_t answer)
{
	uint32_t i;

	for (i = r->job_tail; i != r->job_head; i++)
		if (job_at(r, i)->answer == answer)
			job_cancel(job_at(r, i));
}

/** Execute an atomic; access rights and alignment have been checked. @return the old value */
static uint64_t
execute(const struct roce_packet *pkt, const struct roce_atomiceth *eth, uint64_t *value)
{
	const uint64_t swap_add = rte_be_to_cpu_64(eth->swap_add);
	uint64_t expected = rte_be_to_cpu_64(eth->compare);

	if (pkt->opcode == ROCE_FETCH_ADD)
		return __atomic_fetch_add(value, swap_add, __ATOMIC_SEQ_CST);
	/* If the values differ, `expected` is set to the old value. */
	__atomic_compare_exchange_n(
		value, &expected, swap_add, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}

bool
roce_resp_resource_new(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const struct roce_atomiceth *eth = (const struct roce_atomiceth *)pkt->ext;
	const struct roce_reth *reth = roce_packet_reth(pkt);
	const uint32_t oldest = r->answer_head - r->answer_mask - 1;
	struct roce_resp_resource a = {.atomic = pkt->flags & ROCE_F_ATOMICETH};
	struct roce_mr *mr;

	/* More outstanding requests than negotiated (9.7.4.1.5). */
	if (pkt->length || r->unanswered >= r->rd_atom) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return false;
	}
	/* All other entries are cancelled responses to duplicates, of a peer that sends very many
	 * duplicates. */
	if (r->job_head - r->job_tail > r->job_mask) {
		roce_count(qp->poll_group, ROCE_RX_INVALID);
		return false;
	}
	/* va and rkey have the same offsets in both headers. */
	a.va = rte_be_to_cpu_64(reth->va);
	a.rkey = rte_be_to_cpu_32(reth->rkey);
	a.length = a.atomic ? sizeof(uint64_t) : rte_be_to_cpu_32(reth->length);
	a.first_psn = pkt->psn;
	a.nb_psn = a.atomic || !a.length ? 1 : (a.length - 1) / qp->mtu + 1;
	a.msn = (r->msn + 1) & ROCE_PSN_MASK;
	if (a.length > ROCE_DMA_MAX || a.nb_psn >= 1U << 23 || (a.atomic && (a.va & 7))) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return false;
	}
	if (a.length) {
		mr = roce_mr_find(qp->dev, a.rkey);
		if (!mr ||
			!roce_mr_allows(mr, qp->base.pd, a.va, a.length,
				a.atomic ? RDMA_ACCESS_REMOTE_ATOMIC : RDMA_ACCESS_REMOTE_READ)) {
			roce_responder_fatal(qp, pkt->psn, ROCE_NAK_REMOTE_ACCESS);
			return false;
		}
	}
	if (a.atomic)
		a.value = execute(pkt, eth, (uint64_t *)(uintptr_t)a.va);
	jobs_cancel(r, oldest);
	*answer_at(r, r->answer_head) = a;
	job_add(r, r->answer_head, 0, a.length, false);
	r->answer_head++;
	r->unanswered++;
	r->expected_psn = roce_psn_add(r->expected_psn, a.nb_psn);
	roce_qp_activate(qp);
	return true;
}

/** Find the responder resource that contains a PSN. @return false: it was reused already */
static bool
find(const struct roce_responder *r, uint32_t psn, uint32_t *answer)
{
	const struct roce_resp_resource *a;
	uint32_t i, n = RTE_MIN(r->answer_head, r->answer_mask + 1);

	/* The latest first: 2^24 packets ago another one had the same PSN. */
	for (i = r->answer_head; n--;) {
		a = answer_at(r, --i);
		if (roce_psn_diff(psn, a->first_psn) >= 0 &&
			(uint32_t)roce_psn_diff(psn, a->first_psn) < a->nb_psn) {
			*answer = i;
			return true;
		}
	}
	return false;
}

void
roce_resp_resource_retry(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_responder *r = &qp->resp;
	const struct roce_reth *reth = roce_packet_reth(pkt);
	const struct roce_resp_resource *a;
	uint32_t answer, start, i, skipped, length;
	struct roce_job *job;
	uint64_t sent;

	if (!find(r, pkt->psn, &answer))
		return;
	a = answer_at(r, answer);
	start = roce_psn_diff(pkt->psn, a->first_psn);
	skipped = start * qp->mtu;
	/* The peer may request less than the rest, if it has received the end already. */
	length = a->atomic ? a->length : rte_be_to_cpu_32(reth->length);
	if (a->atomic != !!(pkt->flags & ROCE_F_ATOMICETH) ||
		a->rkey != rte_be_to_cpu_32(reth->rkey) ||
		a->va + skipped != rte_be_to_cpu_64(reth->va) || length > a->length - skipped ||
		(length == 0 && a->length)) {
		roce_count(qp->poll_group, ROCE_RX_INVALID);
		return;
	}
	for (i = r->job_tail; i != r->job_head; i++) {
		job = job_at(r, i);
		if (job->answer != answer)
			continue;
		sent = (uint64_t)(job->start + job->sent) * qp->mtu;
		if (skipped + length <= sent && !a->atomic && length > 0)
			continue; /* a part that was lost; sending of the rest continues */
		job->end = RTE_MAX(job->end, skipped + length);
		if (start >= job->start + job->sent && start > job->start)
			return; /* not sent yet */
		/* A part was lost while the rest is still being sent: go back. */
		job->start = start;
		job->sent = 0;
		return;
	}
	if (r->job_head - r->job_tail > r->job_mask)
		roce_count(qp->poll_group, ROCE_RX_INVALID);
	else
		job_add(r, answer, start, skipped + length, true);
}

/** Send an atomic response. */
static void
send_atomic(struct roce_qp *qp, const struct roce_resp_resource *a)
{
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = a->first_psn,
		.opcode = ROCE_ATOMIC_ACKNOWLEDGE,
	};
	const rte_be64_t value = rte_cpu_to_be_64(a->value);
	struct roce_aeth *aeth;
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, sizeof(*aeth) + sizeof(struct roce_atomicack));
	aeth = (struct roce_aeth *)f.ext;
	aeth->syndrome = ROCE_AETH_ACK | ROCE_AETH_CREDITS;
	roce_put24(aeth->msn, a->msn);
	memcpy(aeth + 1, &value, sizeof(value));
	roce_frame_end(qp->poll_group, &f);
}

/** Send one packet of a READ response. @return false: the region was deregistered */
static bool
send_read(struct roce_qp *qp, const struct roce_resp_resource *a, const struct roce_job *job)
{
	const uint32_t at = job->start + job->sent, offset = at * qp->mtu;
	const uint32_t left = job->end - offset, n = RTE_MIN(left, qp->mtu);
	const bool first = job->sent == 0, last = n == left;
	struct roce_frame_head head = {.qpn = qp->peer_qpn, .psn = roce_psn_add(a->first_psn, at)};
	struct roce_segment segment = {.length = left};
	struct roce_cursor cursor = {0, 0};
	struct roce_aeth *aeth;
	struct roce_frame f;

	if (n) {
		segment.mr = roce_mr_find(qp->dev, a->rkey);
		if (!segment.mr ||
			!roce_mr_allows(segment.mr, qp->base.pd, a->va + offset, segment.length,
				RDMA_ACCESS_REMOTE_READ))
			return false;
		segment.addr = (uint8_t *)(uintptr_t)(a->va + offset);
	}
	head.opcode = first && last ? ROCE_READ_RESPONSE_ONLY
		: first		    ? ROCE_READ_RESPONSE_FIRST
		: last		    ? ROCE_READ_RESPONSE_LAST
				    : ROCE_READ_RESPONSE_MIDDLE;
	roce_frame_begin(&f, &qp->path, &head, roce_opcodes[head.opcode].ext_bytes);
	if (first || last) {
		aeth = (struct roce_aeth *)f.ext;
		aeth->syndrome = ROCE_AETH_ACK | ROCE_AETH_CREDITS;
		roce_put24(aeth->msn, a->msn);
	}
	roce_frame_attach(qp->poll_group, &f, &segment, &cursor, n, NULL);
	if (last && qp->resp.job_tail + 1 != qp->resp.job_head) {
		a = answer_at(&qp->resp, job_at(&qp->resp, qp->resp.job_tail + 1)->answer);
		if (!a->atomic)
			roce_frame_next(
				&f, (const void *)(uintptr_t)a->va, RTE_MIN(a->length, qp->mtu));
	}
	roce_rate_sent(&qp->rate, qp->poll_group->now, roce_frame_end(qp->poll_group, &f));
	return true;
}

bool
roce_resp_resource_run(struct roce_qp *qp)
{
	struct roce_responder *r = &qp->resp;
	struct roce_poll_group *pg = qp->poll_group;
	unsigned int budget = ROCE_QUANTUM;
	const struct roce_resp_resource *a;
	struct roce_job *job;

	while (r->job_tail != r->job_head) {
		job = job_at(r, r->job_tail);
		a = answer_at(r, job->answer);
		if (job_done(qp, job)) {
			r->unanswered -= !job->again;
			r->job_tail++;
			continue;
		}
		if (budget-- == 0 || roce_poll_group_tx_room(pg) == 0 ||
			!roce_rate_allows(&qp->rate, pg->now) ||
			!roce_poll_group_spare(pg, ROCE_FRAME_SEGMENTS))
			return false;
		if (a->atomic) {
			send_atomic(qp, a);
		} else if (!send_read(qp, a, job)) {
			/* The region may be deregistered once the peer has received the response.
			 * Do not answer the duplicate. */
			if (job->again) {
				roce_count(pg, ROCE_RX_INVALID);
				job_cancel(job);
				continue;
			}
			r->job_tail = r->job_head;
			roce_responder_fatal(qp, roce_psn_add(a->first_psn, job->start + job->sent),
				ROCE_NAK_REMOTE_ACCESS);
			return true;
		}
		job->sent++;
	}
	return true;
}
