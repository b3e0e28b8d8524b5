/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RX roles whose port is an array: the test makes the packets, and the real rx_poll() receives
 * them.
 */
#ifndef RX_RIG_H
#define RX_RIG_H

#include "frame_rig.h"

#include <rte_ethdev.h>
#include <rte_ip.h>
#include <rte_mempool.h>

#include "rx/rx.h"
#include "rx/sources.h"
#include "rx/transport.h"

#define RIG_UDP_PORT	 50000
#define RIG_HEADERS	 42
#define RIG_PIXEL_BYTES	 8192
#define RIG_PACKET_BYTES (RIG_HEADERS + RIG_HEADER_BYTES + RIG_PIXEL_BYTES)
#ifndef RIG_POOL
#define RIG_POOL 1023 /* mbufs of each pool */
#endif
#define RIG_QUEUES     4
#define RIG_QUEUE_SIZE 1024
#define RIG_ROLES      3

struct rig_queue {
	uint32_t head, tail;
	struct rte_mbuf *m[RIG_QUEUE_SIZE];
};

static struct rte_mempool *rig_single, *rig_headers, *rig_pixels;
static struct rig_queue rig_queues[RIG_QUEUES];
static struct rx *rig_rx[RIG_ROLES];
static struct rx_streams rig_streams;
static struct sources rig_sources;
static struct source_settings rig_source_settings; /* by default all sources are learnt */
static void (*rig_meanwhile)(void); /* called in each rte_eth_rx_burst(), as another lcore */

static uint16_t
rig_rx_burst(void *queue, struct rte_mbuf **m, uint16_t n)
{
	struct rig_queue *q = queue;
	uint16_t i;

	if (rig_meanwhile != NULL)
		rig_meanwhile();
	for (i = 0; i < n && q->tail != q->head; i++)
		m[i] = q->m[q->tail++ % RIG_QUEUE_SIZE];
	return i;
}

/** Create the port that rte_eth_rx_burst(0, q) polls, and the pools. */
static inline void
rig_port(void)
{
	static void *data[RIG_QUEUES], *callbacks[RIG_QUEUES];

	for (uint32_t q = 0; q < RIG_QUEUES; q++)
		data[q] = &rig_queues[q];
	rte_eth_fp_ops[0].rx_pkt_burst = rig_rx_burst;
	rte_eth_fp_ops[0].rxq.data = data;
	rte_eth_fp_ops[0].rxq.clbk = callbacks;
	rig_single = rte_pktmbuf_pool_create("single", RIG_POOL, 0, 0,
		RTE_PKTMBUF_HEADROOM + RIG_PACKET_BYTES + 64, SOCKET_ID_ANY);
	rig_headers = rte_pktmbuf_pool_create(
		"headers", RIG_POOL, 0, 0, RTE_PKTMBUF_HEADROOM + 256, SOCKET_ID_ANY);
	rig_pixels = rte_pktmbuf_pool_create(
		"pixels", RIG_POOL, 0, 0, RTE_PKTMBUF_HEADROOM + 9000, SOCKET_ID_ANY);
	assert_true(rig_single != NULL && rig_headers != NULL && rig_pixels != NULL);
}

/** Set the checksum of the IPv4 header. */
static inline void
rig_checksum(uint8_t *b)
{
	struct rte_ipv4_hdr *ip = (struct rte_ipv4_hdr *)(b + 14);

	ip->hdr_checksum = 0;
	ip->hdr_checksum = rte_ipv4_cksum(ip);
}

/** Write a packet from 10.1.0.1 + stream to 10.0.0.1, byte by byte. */
static inline void
rig_bytes(uint8_t *b, uint32_t stream, uint64_t frame, uint32_t packet)
{
	const uint16_t port = RIG_UDP_PORT + stream;

	memset(b, 0, RIG_HEADERS);
	b[0] = b[6] = 2;
	b[11] = stream;
	b[12] = 0x08; /* EtherType IPv4 */
	b[14] = 0x45;
	b[16] = (RIG_PACKET_BYTES - 14) >> 8;
	b[17] = (RIG_PACKET_BYTES - 14) & 0xFF;
	b[20] = 0x40; /* do not fragment */
	b[22] = 64;
	b[23] = 17; /* UDP */
	memcpy(&b[26], (uint8_t[]){10, 1, 0, 1 + stream, 10, 0, 0, 1}, 8);
	b[36] = port >> 8;
	b[37] = port & 0xFF;
	b[38] = (RIG_PACKET_BYTES - 34) >> 8;
	b[39] = (RIG_PACKET_BYTES - 34) & 0xFF;
	rig_checksum(b);
	rig_header(b + RIG_HEADERS, frame, packet);
}

/** @param split  headers and pixels in separate segments */
static inline struct rte_mbuf *
rig_packet(uint32_t stream, uint64_t frame, uint32_t packet, bool split)
{
	const uint32_t first = split ? RIG_HEADERS + RIG_HEADER_BYTES : RIG_PACKET_BYTES;
	struct rte_mbuf *m = rte_pktmbuf_alloc(split ? rig_headers : rig_single);

	assert_non_null(m);
	assert_non_null(rte_pktmbuf_append(m, first));
	rig_bytes(rte_pktmbuf_mtod(m, uint8_t *), stream, frame, packet);
	if (split) {
		struct rte_mbuf *p = rte_pktmbuf_alloc(rig_pixels);

		assert_non_null(p);
		p->data_len = RIG_PIXEL_BYTES;
		p->pkt_len = 0; /* as drivers set it */
		m->next = p;
		m->nb_segs = 2;
		m->pkt_len += RIG_PIXEL_BYTES;
	}
	return m;
}

static inline void
rig_push(uint32_t queue, struct rte_mbuf *m)
{
	struct rig_queue *q = &rig_queues[queue];

	assert_true(q->head - q->tail < RIG_QUEUE_SIZE);
	q->m[q->head++ % RIG_QUEUE_SIZE] = m;
}

/** Create a role for each RX role of the table, without queues. */
static inline void
rig_roles(struct frame_table *ft, uint32_t handoff_size)
{
	memset(&rig_streams, 0xFF, sizeof(rig_streams));
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		rig_streams.stream[RIG_UDP_PORT + s] = s;
	sources_init(&rig_sources, &rig_source_settings, &ft->detector, ft->config.stall_cycles);
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		struct rx *rx = rte_zmalloc("rx", sizeof(*rx), RTE_CACHE_LINE_SIZE);
		char name[32];

		assert_non_null(rx);
		snprintf(name, sizeof(name), "inbox_%u", i);
		rx->table = ft;
		rx->frx = &ft->rx[i];
		rx->streams = &rig_streams;
		rx->detector = &ft->detector;
		rx->transport = &rx_udp;
		rx->sources = &rig_sources;
		rx->peers = rig_rx;
		rx->handoff_ring = rte_ring_create(name, handoff_size, SOCKET_ID_ANY,
			RING_F_MP_RTS_ENQ | RING_F_SC_DEQ | RING_F_EXACT_SZ);
		assert_non_null(rx->handoff_ring);
		rig_rx[i] = rx;
	}
}

static inline void
rig_poll_queue(uint32_t role, uint32_t queue)
{
	rig_rx[role]->queues[rig_rx[role]->nb_queues++].queue = queue;
}

static inline void
rig_roles_free(struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		rte_ring_free(rig_rx[i]->handoff_ring);
		rte_free(rig_rx[i]);
	}
}

/** Sum of a counter over all roles. */
static inline uint64_t
rig_count(const struct frame_table *ft, enum rx_counter c)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		n += rig_rx[i]->counters[c];
	return n;
}

/** Sum of the outcomes of all packets. */
static inline uint64_t
rig_outcomes(const struct frame_table *ft)
{
	uint64_t n = 0;

	for (uint32_t c = RX_PLACED; c < RX_COUNTERS; c++)
		n += rig_count(ft, c);
	return n;
}

static inline uint32_t
rig_mbufs_out(void)
{
	return rte_mempool_in_use_count(rig_single) + rte_mempool_in_use_count(rig_headers) +
		rte_mempool_in_use_count(rig_pixels);
}

#endif /* RX_RIG_H */
