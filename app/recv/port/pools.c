/* SPDX-License-Identifier: BSD-3-Clause */

#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_mbuf.h>
#include <rte_udp.h>

#include "port/pools.h"
#include "settings.h"

/** Ethernet header with two VLAN tags, and CRC: the bytes that an MTU does not include. */
#define PORT_L2_BYTES (RTE_ETHER_HDR_LEN + RTE_ETHER_CRC_LEN + 2 * RTE_VLAN_HLEN)

/** Ethernet, IPv4 and UDP headers without options. */
#define PORT_UDP_HEADERS \
	(sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_udp_hdr))

#define PORT_BTH_BYTES 12

struct port_demand
port_demand_of(const struct settings *s)
{
	/* a message has one mbuf for each part of its pixels, and one for its trailer */
	const uint32_t parts = s->detector.parts;
	const uint32_t mbufs = s->ingest.transport == INGEST_UDP ? 1 : parts + 1;

	/* data that a device writes into memory stays in no mbuf */
	if (settings_in_memory(s))
		return (struct port_demand){.nb_rx = s->rx_lcores, .packet_mbufs = 1};
	return (struct port_demand){
		.frame_packets = s->slots * s->detector.tiles * parts,
		.held = s->detector.tiles * mbufs,
		.nb_rx = s->rx_lcores,
		.packet_mbufs = mbufs,
	};
}

struct port_mbufs
port_count_mbufs(uint32_t queues, uint32_t descriptors, const struct port_demand *demand)
{
	struct port_mbufs n = {
		.rings = queues * descriptors,
		.frames = demand->frame_packets,
		/* A cache may hold up to 1.5 times its size before it is flushed. */
		.caches = demand->nb_rx * PORT_MEMPOOL_CACHE * 3 / 2,
		/*
		 * Packets that wait for their frame came from a queue of this port or from an
		 * handoff ring.
		 */
		.bursts = demand->packet_mbufs *
			(queues * RX_PENDING_SOURCE +
				demand->nb_rx *
					(RX_PENDING_SOURCE + (demand->nb_rx + 1) * RX_BURST +
						RX_HANDOFF_RING_SIZE)),
		.held = demand->held,
	};

	n.header = n.rings + n.caches + n.bursts + n.held;
	n.payload = n.header + n.frames;
	return n;
}

uint32_t
port_header_bytes(const struct settings *s)
{
	/* UDP packets have the detector's header, RoCE packets a BTH; RDMA WRITE has 16 more */
	return PORT_UDP_HEADERS +
		(s->ingest.transport == INGEST_UDP ? s->detector.ops->header_bytes
						   : PORT_BTH_BYTES);
}

uint32_t
port_element_lead(const struct settings *s, bool split)
{
	return split ? 0 : RTE_PKTMBUF_HEADROOM + port_header_bytes(s);
}

uint32_t
port_element_bytes(const struct settings *s, bool split)
{
	const uint32_t pixels =
		s->ingest.transport == INGEST_UDP ? s->detector.ops->pixel_bytes : s->ingest.mtu;
	uint32_t bytes = port_element_lead(s, split) + pixels;

	for (uint32_t i = 0; i < s->nb_ports; i++) {
		if (s->ports[i].adapter)
			continue;
		const uint32_t longest = PORT_L2_BYTES + s->ports[i].mtu;

		bytes = RTE_MAX(bytes,
			split ? longest - RTE_MIN(longest, port_header_bytes(s))
			      : RTE_PKTMBUF_HEADROOM + longest);
	}
	return RTE_ALIGN_CEIL(bytes, 2 * RTE_CACHE_LINE_SIZE);
}
