/* SPDX-License-Identifier: BSD-3-Clause */
/* UDP packets: reads their headers, from the queues of ports and from the handoff ring. */

#include <assert.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_prefetch.h>
#include <rte_udp.h>

#include "counter.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "rx/transport.h"

struct headers {
	struct rte_ether_hdr ether;
	struct rte_ipv4_hdr ip;
	struct rte_udp_hdr udp;
	uint8_t detector[];
} __rte_packed __rte_aligned(2);
static_assert(sizeof(struct headers) == 42, "Ethernet, IPv4 and UDP without options");

/**
 * Return true if the checksums of the headers are right. If the port checks checksums, its result
 * is used. Exception: a UDP checksum of 0 means "not computed" and is never wrong.
 */
static bool
is_intact(const struct rte_mbuf *m, const struct headers *h)
{
	const uint64_t ip = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;

	if (unlikely((m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD &&
		    h->udp.dgram_cksum != 0))
		return false;
	if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
		return true;
	return ip != RTE_MBUF_F_RX_IP_CKSUM_BAD && rte_raw_cksum(&h->ip, sizeof(h->ip)) == 0xFFFF;
}

/**
 * Read Ethernet, IPv4 and UDP headers.
 * @return RX_PLACED if the packet may be the detector's, else the counter of the reason
 */
static enum rx_counter
classify(const struct rx *rx, const struct rte_mbuf *m, struct rx_packet *p)
{
	const struct detector_ops *ops = rx->detector->ops;
	const uint32_t header_bytes = sizeof(struct headers) + ops->header_bytes;
	const struct headers *h = rte_pktmbuf_mtod(m, const struct headers *);

	if (m->data_len < sizeof(*h) || h->ether.ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		h->ip.version_ihl != RTE_IPV4_VHL_DEF || h->ip.next_proto_id != IPPROTO_UDP)
		return RX_FOREIGN;
	/* only the first fragment has a UDP header, and no fragment can be used */
	if ((h->ip.fragment_offset & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) !=
		0)
		return RX_FRAGMENT;
	p->stream = rx->streams->stream[rte_be_to_cpu_16(h->udp.dst_port)];
	if (p->stream == RX_NO_STREAM)
		return RX_FOREIGN;
	if (unlikely(!is_intact(m, h)))
		return RX_CHECKSUM;
	if (h->udp.dgram_len !=
			rte_cpu_to_be_16(sizeof(h->udp) + ops->header_bytes + ops->pixel_bytes) ||
		m->pkt_len < header_bytes + ops->pixel_bytes)
		return RX_WRONG_LENGTH;
	/* the pixels must be contiguous: after the headers, or alone in the next segment */
	if (m->nb_segs > 1 ? m->data_len != header_bytes || m->next->data_len < ops->pixel_bytes
			   : m->data_len < header_bytes + ops->pixel_bytes)
		return RX_WRONG_LENGTH;
	p->header = h->detector;
	return RX_PLACED;
}

/** Count a packet of the detector's length to a port near those of the streams. */
static void
count_near(struct rx *rx, const struct rte_mbuf *m)
{
	const struct detector_ops *ops = rx->detector->ops;
	const struct headers *h = rte_pktmbuf_mtod(m, const struct headers *);
	int i;

	if (m->data_len < sizeof(*h) || h->ether.ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		h->ip.version_ihl != RTE_IPV4_VHL_DEF || h->ip.next_proto_id != IPPROTO_UDP ||
		h->udp.dgram_len !=
			rte_cpu_to_be_16(sizeof(h->udp) + ops->header_bytes + ops->pixel_bytes))
		return;
	i = rte_be_to_cpu_16(h->udp.dst_port) - rx->streams->udp_port + RX_NEAR_PORTS;
	if (i >= 0 && i < 2 * RX_NEAR_PORTS)
		counter_add(&rx->samples.near[i], 1);
}

/** Count and keep a sample of a packet that cannot be used. */
static void
refuse(struct rx *rx, const struct rte_mbuf *m, enum rx_counter cause, uint32_t stream)
{
	const struct rx_excerpt e = {.data = rte_pktmbuf_mtod(m, const void *),
		.bytes = m->data_len,
		.length = m->pkt_len};

	counter_add(&rx->counters[cause], 1);
	if (cause == RX_FOREIGN)
		count_near(rx, m);
	rx_keep_sample(rx, cause, stream, &e);
}

/**
 * Read the headers of a burst. Packets that are not the detector's are dropped.
 * @return packets in `out`
 */
static uint32_t
read_headers(
	struct rx *rx, uint32_t source, struct rte_mbuf **burst, uint32_t n, struct rx_packet *out)
{
	struct detector_packet parsed[RX_BURST];
	const uint8_t *header[RX_BURST];
	struct rx_batch batch = {.packets = out};
	struct rx_dropped drop;
	uint32_t valid = 0;

	drop.n = 0;
	rx_check_positions(rx, &batch);

	/* headers span two cache lines: the fields that identify the detector are at the end */
	for (uint32_t i = 0; i < n; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
		rte_prefetch0(rte_pktmbuf_mtod_offset(burst[i], void *, RTE_CACHE_LINE_SIZE));
		if (burst[i]->nb_segs > 1)
			rte_prefetch0(burst[i]->next);
	}
	for (uint32_t i = 0; i < n; i++) {
		const enum rx_counter c = classify(rx, burst[i], &out[valid]);

		if (unlikely(c != RX_PLACED)) {
			refuse(rx, burst[i], c, out[valid].stream);
			drop.m[drop.n++] = burst[i];
			continue;
		}
		header[valid] = out[valid].header;
		out[valid++].m = burst[i];
	}
	if (likely(valid > 0))
		rx->detector->ops->parse(header, parsed, valid);
	return rx_accept(rx, source, out, parsed, valid, &batch, &drop);
}

static uint32_t
poll_queue(struct rx *rx, uint32_t q)
{
	struct rx_packet packets[RX_BURST];
	struct rte_mbuf *burst[RX_BURST];
	const uint32_t n =
		rte_eth_rx_burst(rx->queues[q].port, rx->queues[q].queue, burst, RX_BURST);
	uint64_t bytes = 0;

	if (n == 0)
		return 0;
	for (uint32_t i = 0; i < n; i++)
		bytes += burst[i]->pkt_len;
	counter_add(&rx->counters[RX_PACKETS], n);
	counter_add(&rx->counters[RX_BURSTS], 1);
	counter_add(&rx->counters[RX_BYTES], bytes);
	rx_take(rx, packets, read_headers(rx, q, burst, n, packets));
	return n;
}

static uint32_t
poll_handoff_ring(struct rx *rx)
{
	struct rx_packet packets[RX_BURST];
	struct rte_mbuf *burst[RX_BURST];
	const uint32_t n = rte_ring_dequeue_burst(rx->handoff_ring, (void **)burst, RX_BURST, NULL);

	if (n == 0)
		return 0;
	rx->handoff_used = true;
	rx->handoff_taken += n;
	rx_take(rx, packets, read_headers(rx, rx->nb_queues, burst, n, packets));
	return n;
}

static uint32_t
poll_udp(struct rx *rx, uint32_t source)
{
	return likely(source < rx->nb_queues) ? poll_queue(rx, source) : poll_handoff_ring(rx);
}

const struct rx_transport rx_udp = {
	.name = "udp",
	.poll = poll_udp,
};
