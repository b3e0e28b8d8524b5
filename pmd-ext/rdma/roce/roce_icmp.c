/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include "roce_icmp.h"

#define ECHO_BYTES     8
#define ICMP_REQUEST   8
#define ICMP_REPLY     0
#define ICMPV6_REQUEST 128
#define ICMPV6_REPLY   129

int
roce_icmp_echo(struct rte_mbuf *m, const struct roce_ip *ip, const struct rte_ether_addr *mac)
{
	struct rte_ether_hdr *ether = rte_pktmbuf_mtod(m, struct rte_ether_hdr *);
	uint8_t *l3 = rte_pktmbuf_mtod_offset(m, uint8_t *, m->l2_len);
	uint8_t *payload = l3 + m->l3_len;
	const bool v4 = roce_gid_is_v4(&ip->src);
	struct roce_ip reply = {
		.src = ip->dst,
		.dst = ip->src,
		.proto = ip->proto,
		.hop_limit = 64,
		.traffic_class = ip->traffic_class,
		.dont_fragment = true,
		.payload_len = ip->payload_len,
	};
	rte_be16_t sum;

	if (ip->payload_len < ECHO_BYTES || payload[1] != 0 ||
		roce_ip_payload_cksum(ip, payload) != 0)
		return -EPROTO;
	if (ip->router_alert || payload[0] != (v4 ? ICMP_REQUEST : ICMPV6_REQUEST))
		return -ENOTSUP;
	payload[0] = v4 ? ICMP_REPLY : ICMPV6_REPLY;
	memset(payload + 2, 0, sizeof(sum));
	sum = roce_ip_payload_cksum(&reply, payload);
	memcpy(payload + 2, &sum, sizeof(sum));
	roce_ip_encode(&reply, l3);
	ether->dst_addr = ether->src_addr;
	ether->src_addr = *mac;
	/* Ethernet's padding stays behind */
	m->data_len = m->l2_len + m->l3_len + ip->payload_len;
	m->pkt_len = m->data_len;
	return 0;
}
