/* SPDX-License-Identifier: BSD-3-Clause */
/* Messages by reference: the payload of a message stays in the mbufs of its packets. */
#include <errno.h>
#include <inttypes.h>

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "engine/qp.h"
#include "engine/reference.h"

static_assert(sizeof(struct roce_message) <= RTE_CACHE_LINE_SIZE, "a message is one cache line");

/* ---- creation -------------------- */

static bool
attr_check(const struct roce_poll_group *pg, const struct rdma_roce_reference *attr)
{
	const char *device = pg->dev->base.name;

	if (attr->max_bytes == 0 || attr->max_bytes > RDMA_ROCE_MESSAGE_MAX) {
		RDMA_LOG(ERR, "device %s: messages by reference of %u bytes, expected 1 to %u",
			device, attr->max_bytes, RDMA_ROCE_MESSAGE_MAX);
		return false;
	}
	if (attr->base + attr->length < attr->base) {
		RDMA_LOG(ERR,
			"device %s: messages by reference at 0x%" PRIx64 " of %" PRIu64
			" bytes, expected no address wrap",
			device, attr->base, attr->length);
		return false;
	}
	return true;
}

struct roce_reference *
roce_reference_create(struct roce_poll_group *pg, const struct rdma_roce_reference *attr)
{
	const int node = pg->dev->numa_node;
	struct roce_reference *reference;

	if (!attr_check(pg, attr)) {
		rte_errno = EINVAL;
		return NULL;
	}
	/* The poll group reads the pointer when it has found a queue pair by reference, which is
	 * published later. */
	if (!pg->messages)
		pg->messages = rte_malloc_socket("roce_messages",
			ROCE_MESSAGES * sizeof(pg->messages[0]), RTE_CACHE_LINE_SIZE, node);
	reference =
		rte_zmalloc_socket("roce_reference", sizeof(*reference), RTE_CACHE_LINE_SIZE, node);
	if (!reference || !pg->messages) {
		RDMA_LOG(ERR, "device %s: cannot allocate %u messages by reference",
			pg->dev->base.name, ROCE_MESSAGES);
		rte_free(reference);
		rte_errno = ENOMEM;
		return NULL;
	}
	reference->attr = *attr;
	return reference;
}

/* ---- payload -------------------- */

static void
segments_free(struct rte_mbuf *m)
{
	struct rte_mbuf *next;

	for (; m; m = next) {
		next = m->next;
		rte_pktmbuf_free_seg(m);
	}
}

/**
 * Reduce a packet to its payload. Segments without payload are freed: a port that splits headers
 * puts them into a segment of their own.
 *
 * @param offset of the payload in the packet
 * @param length at least 1; the packet contains the payload
 * @param last out: last segment
 * @return first segment, with pkt_len and nb_segs
 */
static struct rte_mbuf *
payload_cut(struct rte_mbuf *m, uint32_t offset, uint32_t length, struct rte_mbuf **last)
{
	struct rte_mbuf *head, *next, *segment;
	uint32_t left = length;
	uint16_t segments = 1;

	while (offset >= m->data_len) {
		offset -= m->data_len;
		next = m->next;
		rte_pktmbuf_free_seg(m);
		m = next;
	}
	head = segment = m;
	m->data_off += offset;
	m->data_len -= offset;
	while (left > segment->data_len) {
		left -= segment->data_len;
		while (unlikely(segment->next->data_len == 0)) {
			next = segment->next;
			segment->next = next->next;
			rte_pktmbuf_free_seg(next);
		}
		segment = segment->next;
		segments++;
	}
	segment->data_len = left;
	segments_free(segment->next);
	segment->next = NULL;
	head->pkt_len = length;
	head->nb_segs = segments;
	*last = segment;
	return head;
}

/** Append the payload of a packet to the current message. */
static void
payload_add(struct roce_reference *reference, const struct roce_packet *pkt)
{
	struct rte_mbuf *last, *m = payload_cut(pkt->m, pkt->payload, pkt->length, &last);

	if (reference->m) {
		reference->last->next = m;
		reference->m->pkt_len += m->pkt_len;
		reference->m->nb_segs += m->nb_segs;
	} else {
		reference->m = m;
	}
	reference->last = last;
}

void
roce_reference_drop(struct roce_reference *reference)
{
	segments_free(reference->m);
	reference->m = NULL;
}

/* ---- packets -------------------- */

/** Begin a WRITE. A message without bytes has no place: its key is not checked (9.7.5.2.8). */
static bool
write_begin(struct roce_qp *qp, const struct roce_packet *pkt)
{
	const struct rdma_roce_reference *attr = &qp->reference->attr;
	const struct roce_reth *reth = roce_packet_reth(pkt);
	struct roce_responder *r = &qp->resp;
	uint64_t offset;

	r->va = rte_be_to_cpu_64(reth->va);
	r->left = rte_be_to_cpu_32(reth->length);
	if (r->left == 0)
		return true;
	if (r->left > attr->max_bytes) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return false;
	}
	offset = r->va - attr->base;
	if (rte_be_to_cpu_32(reth->rkey) != attr->rkey || r->va < attr->base ||
		offset > attr->length || r->left > attr->length - offset) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_REMOTE_ACCESS);
		return false;
	}
	return true;
}

/** True if the length of a packet fits the message. */
static bool
fits(const struct roce_qp *qp, const struct roce_packet *pkt)
{
	const struct roce_responder *r = &qp->resp;

	if (!(pkt->flags & ROCE_F_WRITE))
		return pkt->length <= qp->reference->attr.max_bytes - r->received;
	return pkt->flags & ROCE_F_LAST ? pkt->length == r->left : pkt->length < r->left;
}

/** Enter the complete message into the ring. @param imm 0 without immediate */
static void
deliver(struct roce_qp *qp, const struct roce_packet *pkt, uint32_t imm)
{
	struct roce_poll_group *pg = qp->poll_group;
	struct roce_reference *reference = qp->reference;
	const bool write = pkt->flags & ROCE_F_WRITE;

	pg->messages[pg->messages_head++ % ROCE_MESSAGES] = (struct roce_message){
		.message =
			{
				.m = reference->m,
				.qp_context = qp->base.attr.context,
				.addr = write ? qp->resp.va : 0,
				.length = qp->resp.received,
				.imm = imm,
				.op = write ? RDMA_WC_RECV_WRITE_IMM : RDMA_WC_RECV,
				.flags = pkt->flags & ROCE_F_IMM ? RDMA_WC_WITH_IMM : 0,
			},
		.qp = qp,
	};
	reference->m = NULL;
	roce_count_n(pg, ROCE_RX_BYTES, qp->resp.received);
	counter_add(&qp->uc.messages, 1);
}

bool
roce_reference_take(struct roce_qp *qp, const struct roce_packet *pkt)
{
	struct roce_poll_group *pg = qp->poll_group;
	struct roce_responder *r = &qp->resp;
	const bool write = pkt->flags & ROCE_F_WRITE;
	uint32_t imm = 0;

	if (pkt->flags & ROCE_F_FIRST) {
		r->received = 0;
		if (write && !write_begin(qp, pkt))
			return false;
	}
	if (!fits(qp, pkt)) {
		roce_responder_fatal(qp, pkt->psn, ROCE_NAK_INVALID_REQUEST);
		return false;
	}
	/* Only rdma_roce_rx() gives packets to a poll group whose ring is full. */
	if (unlikely((pkt->flags & ROCE_F_LAST) &&
		    pg->messages_head - pg->messages_tail == ROCE_MESSAGES)) {
		roce_count(pg, ROCE_RX_MESSAGES_FULL);
		roce_uc_abandon(qp, 1);
		return false;
	}
	/* Read now: the headers may be freed with their segment. */
	if (pkt->flags & ROCE_F_IMM)
		imm = roce_packet_imm(pkt);
	if (pkt->length)
		payload_add(qp->reference, pkt);
	r->received += pkt->length;
	if (write)
		r->left -= pkt->length;
	if (pkt->flags & ROCE_F_LAST) {
		/* all packets before the last one have the path MTU */
		roce_count_n(
			pg, ROCE_RX_UC_BEGUN, -(uint64_t)((r->received - pkt->length) / qp->mtu));
		deliver(qp, pkt, imm);
		r->inbound = ROCE_IN_NONE;
	} else {
		roce_count(pg, ROCE_RX_UC_BEGUN);
		r->inbound = write ? ROCE_IN_WRITE : ROCE_IN_SEND;
	}
	return pkt->length != 0;
}

void
roce_reference_forget(struct roce_qp *qp)
{
	struct roce_poll_group *pg = qp->poll_group;
	struct roce_message *entry;
	uint32_t from, to = pg->messages_tail;

	roce_uc_abandon(qp, 0);
	for (from = pg->messages_tail; from != pg->messages_head; from++) {
		entry = &pg->messages[from % ROCE_MESSAGES];
		if (entry->qp == qp)
			segments_free(entry->message.m);
		else
			pg->messages[to++ % ROCE_MESSAGES] = *entry;
	}
	pg->messages_head = to;
}

uint16_t
rdma_roce_poll_messages(
	struct rdma_dev *dev, uint16_t index, struct rdma_roce_message *message, uint16_t n)
{
	struct roce_poll_group *pg = roce_dev(dev)->poll_groups[index];
	uint16_t i, have = RTE_MIN(n, pg->messages_head - pg->messages_tail);

	for (i = 0; i < have; i++)
		message[i] = pg->messages[pg->messages_tail++ % ROCE_MESSAGES].message;
	/* Use the same entries again, while they are in a cache. */
	if (pg->messages_tail == pg->messages_head)
		pg->messages_tail = pg->messages_head = 0;
	return have;
}
