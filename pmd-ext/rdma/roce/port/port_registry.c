/* SPDX-License-Identifier: BSD-3-Clause */
/* rdma_roce_rx(): takes the RDMA frames out of a burst that the application has received. */
#include <netinet/in.h>

#include <rte_cycles.h>
#include <rte_ip.h>
#include <rte_pause.h>
#include <rte_udp.h>

#include "rdma_roce.h"
#include "engine/engine.h"

/** Return true if this is a frame for RDMA, or one that RDMA depends on. */
static bool
is_ours(const struct rte_mbuf *m)
{
	uint8_t b[ROCE_L2L4_MAX];
	const uint32_t have = RTE_MIN(m->pkt_len, sizeof(b));
	const uint8_t *frame = rte_pktmbuf_read(m, 0, have, b);
	uint32_t l2 = sizeof(struct rte_ether_hdr), l4;
	uint8_t proto;
	uint16_t type;

	if (have < l2 + sizeof(struct rte_ipv4_hdr))
		return false;
	type = frame[12] << 8 | frame[13];
	if (type == RTE_ETHER_TYPE_VLAN) {
		type = frame[16] << 8 | frame[17];
		l2 += sizeof(struct rte_vlan_hdr);
	}
	switch (type) {
	case RTE_ETHER_TYPE_ARP:
		return true;
	case RTE_ETHER_TYPE_IPV4:
		l4 = l2 + (frame[l2] & 15) * 4;
		proto = frame[l2 + offsetof(struct rte_ipv4_hdr, next_proto_id)];
		break;
	case RTE_ETHER_TYPE_IPV6:
		l4 = l2 + sizeof(struct rte_ipv6_hdr);
		proto = frame[l2 + offsetof(struct rte_ipv6_hdr, proto)];
		/* MLD queries follow a router alert (RFC 3810, 5) */
		if (proto == IPPROTO_HOPOPTS)
			return have > l4 && frame[l4] == IPPROTO_ICMPV6;
		break;
	default:
		return false;
	}
	if (proto == IPPROTO_UDP)
		return have >= l4 + 4 && (frame[l4 + 2] << 8 | frame[l4 + 3]) == ROCE_UDP_PORT;
	return proto == IPPROTO_ICMP || proto == IPPROTO_IGMP || proto == IPPROTO_ICMPV6;
}

uint16_t
rdma_roce_rx(struct rdma_dev *dev, uint16_t index, struct rte_mbuf **m, uint16_t n)
{
	struct roce_poll_group *pg = roce_dev(dev)->poll_groups[index];
	struct rte_mbuf *ours[ROCE_BURST];
	uint16_t i, taken = 0, kept = 0;

	/* the control lcore may call into the poll group while it is not polled; these calls are
	 * short */
	while (!roce_poll_group_enter(pg))
		rte_pause();
	pg->now = rte_rdtsc();
	for (i = 0; i < n; i++) {
		if (!is_ours(m[i])) {
			m[kept++] = m[i];
			continue;
		}
		ours[taken++] = m[i];
		if (taken == RTE_DIM(ours)) {
			roce_poll_group_rx(pg, ours, taken, ROCE_FROM_PORT);
			roce_count_n(pg, ROCE_RX_PACKETS, taken);
			taken = 0;
		}
	}
	roce_poll_group_rx(pg, ours, taken, ROCE_FROM_PORT);
	roce_count_n(pg, ROCE_RX_PACKETS, taken);
	roce_poll_group_settle(pg);
	return kept;
}
