/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends frames as UDP packets of an ethdev port. */

#include <errno.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "transmit/loop.h"

static struct transmit_header *
header_of(const struct transmit_loop *loop, const struct wire_packet *packet)
{
	uint32_t stream = packet->module * loop->wire->interfaces + packet->interface;

	return &loop->header[(size_t)stream * JUNGFRAU_MODULE_PACKETS + packet->packet];
}

static int
packets_init(struct transmit_loop *loop)
{
	const struct jungfrau_wire *wire = loop->wire;
	uint32_t streams = wire->modules * wire->interfaces;
	struct jungfrau_frame_header none = {0};

	loop->header = rte_zmalloc("detector_headers",
		(size_t)streams * JUNGFRAU_MODULE_PACKETS * sizeof(*loop->header),
		RTE_CACHE_LINE_SIZE);
	if (loop->header == NULL)
		return -ENOMEM;
	for (uint32_t m = 0; m < wire->modules; m++) {
		for (uint32_t i = 0; i < wire->interfaces; i++) {
			for (uint32_t p = 0; p < jungfrau_stream_packets(wire); p++) {
				struct wire_packet packet = {.module = (uint16_t)m,
					.interface = (uint8_t)i,
					.packet = jungfrau_stream_first(wire, i) + p};

				jungfrau_header_make(wire, &none, m, i, packet.packet,
					header_of(loop, &packet)->bytes);
			}
		}
	}
	return 0;
}

static void
packets_release(struct transmit_loop *loop)
{
	rte_free(loop->header);
	loop->header = NULL;
}

/* Builds a packet in one segment. @return NULL: no mbuf */
static struct rte_mbuf *
build_whole(const struct transmit_loop *loop, const struct wire_packet *packet,
	const uint8_t *header, const struct transmit_payload *payload)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(loop->port->whole);
	uint8_t *bytes;

	if (m == NULL)
		return NULL;
	bytes = rte_pktmbuf_mtod(m, uint8_t *);
	memcpy(bytes, header, JUNGFRAU_HEADER_BYTES);
	memcpy(bytes + JUNGFRAU_HEADER_BYTES, payload->data, JUNGFRAU_PAYLOAD_BYTES);
	m->data_len = (uint16_t)wire_packet_damage(packet, bytes);
	m->pkt_len = m->data_len;
	return m;
}

/* Builds a packet with its own header and the payload by reference. @return NULL: no mbuf */
static struct rte_mbuf *
build_chain(
	const struct transmit_loop *loop, const uint8_t *header, struct transmit_payload *payload)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(loop->port->header);
	struct rte_mbuf *rest = rte_pktmbuf_alloc(loop->port->payload);

	if (m == NULL || rest == NULL || !transmit_payload_attach(payload, rest)) {
		rte_pktmbuf_free(m);
		rte_pktmbuf_free(rest);
		return NULL;
	}
	memcpy(rte_pktmbuf_mtod(m, uint8_t *), header, JUNGFRAU_HEADER_BYTES);
	m->data_len = JUNGFRAU_HEADER_BYTES;
	m->pkt_len = JUNGFRAU_PACKET_BYTES;
	m->next = rest;
	m->nb_segs = 2;
	return m;
}

static struct rte_mbuf *
build(const struct transmit_loop *loop, const struct wire_packet *packet)
{
	const struct transmit_frame *frame =
		&loop->frames->frame[(packet->pulse - loop->first) % loop->frames->nb_frames];
	uint32_t offset = jungfrau_payload_offset(loop->wire, packet->interface, packet->packet);
	struct transmit_payload *payload =
		&frame->payload[packet->module * JUNGFRAU_MODULE_PACKETS +
			offset / JUNGFRAU_PAYLOAD_BYTES];
	uint8_t *header = header_of(loop, packet)->bytes;

	jungfrau_header_update(loop->wire, &loop->kept[packet->pulse % loop->nb_kept], header);
	if (!loop->port->chains || packet->damage != FAULT_KINDS)
		return build_whole(loop, packet, header, payload);
	return build_chain(loop, header, payload);
}

/* Sends a burst, and waits until the port has accepted all of it. */
static void
send_burst(struct transmit_loop *loop, struct rte_mbuf **mbufs, uint32_t count)
{
	uint32_t sent = 0, bytes = 0;
	uint64_t since = 0;

	for (uint32_t i = 0; i < count; i++)
		bytes += mbufs[i]->pkt_len; /* count before they are passed to the port */
	while (sent < count) {
		uint32_t n =
			rte_eth_tx_burst(loop->port->id, 0, mbufs + sent, (uint16_t)(count - sent));

		sent += n;
		if (sent == count)
			break;
		if (since == 0) {
			since = rte_rdtsc();
			loop->report->full++;
		}
		if (!transmit_loop_keep_trying(loop, since)) {
			rte_pktmbuf_free_bulk(mbufs + sent, count - sent);
			break;
		}
	}
	if (since != 0)
		loop->waited += rte_rdtsc() - since;
	loop->report->sent += sent;
	loop->report->bytes += sent == count ? bytes : (uint64_t)sent * JUNGFRAU_PACKET_BYTES;
}

static void
packets_send(struct transmit_loop *loop, uint32_t count, uint64_t due)
{
	const double gap = loop->burst_gap * 1e-9 * (double)rte_get_tsc_hz();
	struct rte_mbuf *mbufs[TRANSMIT_BURST];
	uint32_t built = 0;
	uint64_t since = 0;

	for (uint32_t i = 0; i < count && !loop->timed_out;) {
		uint64_t time = due + (uint64_t)(i * gap);
		bool early = loop->burst_gap != 0 && (int64_t)(time - rte_rdtsc()) > 0;

		if (!early) {
			mbufs[built] = build(loop, &loop->packets[i]);
			if (mbufs[built] != NULL) {
				built++;
				i++;
				since = 0;
			} else if (built == 0) {
				/* all mbufs are in the port */
				rte_eth_tx_done_cleanup(loop->port->id, 0, 0);
				if (since == 0) {
					since = rte_rdtsc();
					loop->report->full++;
				}
				transmit_loop_keep_trying(loop, since);
				continue;
			} else {
				early = true;
			}
		}
		if (built == TRANSMIT_BURST || (built > 0 && (early || i == count))) {
			send_burst(loop, mbufs, built);
			built = 0;
		} else if (early) {
			transmit_loop_wait(loop, time);
			if (*loop->stop != 0)
				due = rte_rdtsc() - (uint64_t)(count * gap); /* send at once */
		}
	}
	if (built > 0)
		rte_pktmbuf_free_bulk(mbufs, built);
}

const struct transmit_sender transmit_packets = {
	.init = packets_init,
	.send = packets_send,
	.release = packets_release,
};
