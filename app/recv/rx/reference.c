/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RoCE messages by reference: reads their trailers. The pixels stay in the mbufs of the port, one
 * for each RoCE packet of a message.
 */

#include <rte_mbuf.h>

#include <rdma.h>
#include <rdma_roce.h>

#include "counter.h"
#include "rx/messages.h"
#include "rx/rx.h"
#include "rx/transport.h"

/**
 * Find the trailer of a message: its last segment. The pixels are in the segments before, one for
 * each part.
 * @return NULL: the message has another form
 */
static const uint8_t *
find_trailer(const struct rx *rx, const struct rdma_roce_message *message)
{
	const struct detector *d = rx->detector;
	const uint32_t part_bytes = d->ops->pixel_bytes / d->parts;
	const struct rte_mbuf *m = message->m;

	if (message->length != d->ops->pixel_bytes + INGEST_TRAILER_BYTES ||
		m->nb_segs != d->parts + 1)
		return NULL;
	for (uint32_t i = 0; i < d->parts; i++, m = m->next)
		if (m->data_len != part_bytes)
			return NULL;
	return rte_pktmbuf_mtod(m, const uint8_t *);
}

/** Count and keep a sample of a message of another form. */
static void
refuse(struct rx *rx, const struct rdma_roce_message *message, uint32_t stream)
{
	const struct rte_mbuf *last = rte_pktmbuf_lastseg(message->m);
	const struct rx_excerpt e = {.headers = rx->messages->headers[stream],
		.data = rte_pktmbuf_mtod(last, const void *),
		.bytes = last->data_len,
		.length = SOURCE_HEADERS + message->length};

	counter_add(&rx->counters[RX_WRONG_LENGTH], 1);
	rx_keep_sample(rx, RX_WRONG_LENGTH, stream, &e);
}

/** Count a message without data: an event, unless it has no immediate or that of another stream. */
static void
count_event(struct rx *rx, const struct rdma_roce_message *message, uint32_t stream)
{
	if (likely((message->flags & RDMA_WC_WITH_IMM) != 0 &&
		    ingest_immediate_stream(message->imm) == stream)) {
		counter_add(&rx->counters[RX_EVENTS], 1);
		return;
	}
	counter_add(&rx->counters[RX_PACKETS], 1);
	counter_add(&rx->counters[RX_MALFORMED], 1);
}

/**
 * Read the trailers of messages. Messages without data are events: they are counted. Messages that
 * are not the detector's are dropped.
 * @return packets in `out`
 */
static uint32_t
read_messages(struct rx *rx, uint32_t source, const struct rdma_roce_message *message, uint32_t n,
	struct rx_packet *out)
{
	const struct ingest_card *card = &rx->messages->card;
	struct detector_packet parsed[RX_BURST];
	const uint8_t *header[RX_BURST];
	uint64_t address[RX_BURST];
	struct rx_batch batch = {.packets = out};
	struct rx_dropped drop;
	uint32_t valid = 0;

	drop.n = 0;
	rx_check_positions(rx, &batch);
	for (uint32_t i = 0; i < n; i++) {
		const struct rx_message_stream *of = message[i].qp_context;

		if (message[i].m == NULL) {
			count_event(rx, &message[i], of->stream);
			continue;
		}
		counter_add(&rx->counters[RX_PACKETS], 1);
		counter_add(&rx->counters[RX_BYTES], message[i].length);
		out[valid].stream = of->stream;
		header[valid] = find_trailer(rx, &message[i]);
		if (unlikely(header[valid] == NULL ||
			    (message[i].op != RDMA_WC_RECV) != (card->transport == INGEST_WRITE))) {
			refuse(rx, &message[i], of->stream);
			drop.m[drop.n++] = message[i].m;
			continue;
		}
		address[valid] = message[i].addr;
		out[valid].header = header[valid];
		out[valid++].m = message[i].m;
	}
	if (likely(valid > 0))
		rx->detector->ops->parse(header, parsed, valid);
	/* an RDMA WRITE to the address of another packet is not this packet */
	for (uint32_t i = 0; i < valid && card->transport == INGEST_WRITE; i++)
		if (unlikely(address[i] !=
			    ingest_address(card, out[i].stream, parsed[i].frame, parsed[i].packet)))
			parsed[i].packet = DETECTOR_PACKET_BAD;
	return rx_accept(rx, source, out, parsed, valid, &batch, &drop);
}

/** Separate a message's trailer from the pixels, which stay. @return segment of the trailer */
static struct rte_mbuf *
cut_trailer(const struct rx *rx, struct rte_mbuf *m)
{
	struct rte_mbuf *last = m, *trailer;

	for (uint32_t i = 1; i < rx->detector->parts; i++)
		last = last->next;
	trailer = last->next;
	last->next = NULL;
	m->nb_segs--;
	m->pkt_len -= trailer->data_len;
	return trailer;
}

static enum frame_placement
place_message(struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest)
{
	const enum frame_placement result = frame_rx_place(rx->table, rx->frx, p->stream, frame,
		p->packet, p->header, rte_pktmbuf_mtod(p->m, uint64_t) + (uint64_t)rx->view, p->m);

	if (likely(result == FRAME_PLACED))
		*rest = cut_trailer(rx, p->m);
	return result;
}

/** Run the poll group of a queue that is a RoCE device's, and take messages. */
static uint32_t
poll_messages(struct rx *rx, uint32_t q)
{
	struct rdma_roce_message messages[RX_BURST];
	struct rx_packet packets[RX_BURST];
	struct rdma_dev *dev;
	uint16_t group;
	uint32_t n;

	/* a message is received by the RX role of its stream: there is no handoff */
	if (q == rx->nb_queues)
		return 0;
	dev = rx->messages->devices[rx->queues[q].port];
	group = rx->queues[q].queue;
	rdma_progress(dev, group);
	n = rdma_roce_poll_messages(dev, group, messages, RX_BURST);
	if (n == 0)
		return 0;
	counter_add(&rx->counters[RX_BURSTS], 1);
	rx_take(rx, packets, read_messages(rx, q, messages, n, packets));
	return n;
}

const struct rx_transport rx_reference = {
	.name = "reference",
	.poll = poll_messages,
	.place = place_message,
	.headers = rx_queue_pair_headers,
};
