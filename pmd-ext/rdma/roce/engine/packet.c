/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses received packets, checks their ICRC and copies their payload. */
#include <netinet/in.h>

#include <rte_ip.h>
#include <rte_udp.h>

#include "engine/copy.h"
#include "engine/icrc.h"
#include "engine/packet.h"

/** Parse Ethernet and at most one VLAN tag. @return bytes; 0: too short */
static unsigned int
parse_l2(const uint8_t *frame, unsigned int have, uint16_t *type, uint16_t *vlan_tci)
{
	const struct rte_ether_hdr *eth = (const struct rte_ether_hdr *)frame;
	const struct rte_vlan_hdr *vlan = (const struct rte_vlan_hdr *)(eth + 1);

	if (have < sizeof(*eth))
		return 0;
	*type = rte_be_to_cpu_16(eth->ether_type);
	if (*type != RTE_ETHER_TYPE_VLAN)
		return sizeof(*eth);
	if (have < sizeof(*eth) + sizeof(*vlan))
		return 0;
	*type = rte_be_to_cpu_16(vlan->eth_proto);
	*vlan_tci = rte_be_to_cpu_16(vlan->vlan_tci);
	return sizeof(*eth) + sizeof(*vlan);
}

/** Parse a frame. @param have contiguous bytes of the frame */
static enum roce_packet_kind
parse(struct rte_mbuf *m, struct roce_packet *pkt, const uint8_t *frame, unsigned int have)
{
	unsigned int udp_length, headers;
	const struct rte_ipv4_hdr *ip4;
	const struct rte_ipv6_hdr *ip6;
	const struct rte_udp_hdr *udp;
	uint32_t ip_length;
	uint16_t type = 0, tci = 0;

	pkt->m = m;
	/* A port that strips VLAN tags stores them in the mbuf. */
	if (m->ol_flags & RTE_MBUF_F_RX_VLAN_STRIPPED)
		tci = m->vlan_tci;
	pkt->l2_len = parse_l2(frame, have, &type, &tci);
	pkt->vlan = tci & ROCE_VLAN_ID;
	if (pkt->l2_len == 0)
		return ROCE_PACKET_MALFORMED;
	m->l2_len = pkt->l2_len;
	m->l3_len = 0;
	pkt->l3 = frame + pkt->l2_len;
	have -= pkt->l2_len;
	if (type == RTE_ETHER_TYPE_IPV4) {
		ip4 = (const struct rte_ipv4_hdr *)pkt->l3;
		if (have < sizeof(*ip4) || (ip4->version_ihl >> 4) != 4)
			return ROCE_PACKET_MALFORMED;
		m->l3_len = rte_ipv4_hdr_len(ip4);
		ip_length = rte_be_to_cpu_16(ip4->total_length);
		if (m->l3_len < sizeof(*ip4) || ip_length < m->l3_len ||
			ip_length > m->pkt_len - m->l2_len)
			return ROCE_PACKET_MALFORMED;
		if (ip4->next_proto_id != IPPROTO_UDP)
			return ip4->next_proto_id == IPPROTO_ICMP ||
					ip4->next_proto_id == IPPROTO_IGMP
				? ROCE_PACKET_CONTROL
				: ROCE_PACKET_OTHER;
		/* Annex A17 does not cover IP options, and RoCEv2 packets are not fragmented. */
		if (m->l3_len != sizeof(*ip4) ||
			(ip4->fragment_offset &
				RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)))
			return ROCE_PACKET_MALFORMED;
		pkt->ecn = ip4->type_of_service & 3;
	} else if (type == RTE_ETHER_TYPE_IPV6) {
		ip6 = (const struct rte_ipv6_hdr *)pkt->l3;
		if (have < sizeof(*ip6) || (pkt->l3[0] >> 4) != 6)
			return ROCE_PACKET_MALFORMED;
		m->l3_len = sizeof(*ip6);
		ip_length = rte_be_to_cpu_16(ip6->payload_len) + (uint32_t)sizeof(*ip6);
		if (ip_length > m->pkt_len - m->l2_len)
			return ROCE_PACKET_MALFORMED;
		/* Multicast listener queries follow a router alert option (RFC 3810, 5). */
		if (ip6->proto != IPPROTO_UDP)
			return ip6->proto == IPPROTO_ICMPV6 || ip6->proto == IPPROTO_HOPOPTS
				? ROCE_PACKET_CONTROL
				: ROCE_PACKET_OTHER;
		pkt->ecn = pkt->l3[1] >> 4 & 3;
	} else {
		return type == RTE_ETHER_TYPE_ARP ? ROCE_PACKET_CONTROL : ROCE_PACKET_OTHER;
	}
	pkt->l3_len = m->l3_len;
	have -= pkt->l3_len;
	udp = (const struct rte_udp_hdr *)(pkt->l3 + pkt->l3_len);
	if (have < sizeof(*udp))
		return ROCE_PACKET_MALFORMED;
	if (udp->dst_port != RTE_BE16(ROCE_UDP_PORT))
		return ROCE_PACKET_OTHER;
	have -= sizeof(*udp);
	udp_length = rte_be_to_cpu_16(udp->dgram_len);
	if (udp_length + pkt->l3_len != ip_length || have < sizeof(struct roce_bth) ||
		udp_length < sizeof(*udp) + sizeof(struct roce_bth) + ROCE_ICRC_BYTES)
		return ROCE_PACKET_MALFORMED;
	pkt->bth = (const struct roce_bth *)(udp + 1);
	pkt->ext = (const uint8_t *)(pkt->bth + 1);
	pkt->opcode = pkt->bth->opcode;
	pkt->flags = roce_opcodes[pkt->opcode].flags;
	if (ROCE_BTH_VERSION(pkt->bth->flags))
		return ROCE_PACKET_MALFORMED;
	if (!(pkt->flags & ROCE_F_VALID))
		return ROCE_PACKET_OPCODE;
	pkt->psn = roce_get24(pkt->bth->psn);
	pkt->qpn = roce_get24(pkt->bth->qpn);
	pkt->pad = ROCE_BTH_PAD(pkt->bth->flags);
	headers = sizeof(*udp) + sizeof(*pkt->bth) + roce_opcodes[pkt->opcode].ext_bytes;
	if (udp_length < headers + pkt->pad + ROCE_ICRC_BYTES || have + sizeof(*udp) < headers)
		return ROCE_PACKET_MALFORMED;
	pkt->payload = pkt->l2_len + pkt->l3_len + headers;
	pkt->length = udp_length - headers - pkt->pad - ROCE_ICRC_BYTES;
	if ((pkt->length + pkt->pad) & 3)
		return ROCE_PACKET_MALFORMED;
	return ROCE_PACKET_DATA;
}

enum roce_packet_kind
roce_packet_parse(struct rte_mbuf *m, struct roce_packet *pkt)
{
	const unsigned int first = RTE_MIN(m->data_len, ROCE_HEADER_MAX);
	const unsigned int most = RTE_MIN(m->pkt_len, ROCE_HEADER_MAX);
	enum roce_packet_kind kind = parse(m, pkt, rte_pktmbuf_mtod(m, const uint8_t *), first);

	/* Headers may continue in the next segment. */
	if (unlikely(kind == ROCE_PACKET_MALFORMED && first < most))
		kind = parse(m, pkt, rte_pktmbuf_read(m, 0, most, pkt->scratch), most);
	return kind;
}

bool
roce_packet_check(const struct roce_packet *pkt)
{
	const uint32_t headers = pkt->payload - pkt->l2_len;
	const uint32_t body = pkt->length + pkt->pad;
	uint8_t b[ROCE_ICRC_BYTES];
	const uint8_t *icrc;
	uint32_t crc;

	crc = roce_icrc_headers(pkt->l3, pkt->l3_len, headers);
	if (body)
		crc = roce_icrc_mbuf(crc, pkt->m, pkt->payload, body);
	icrc = rte_pktmbuf_read(pkt->m, pkt->payload + body, ROCE_ICRC_BYTES, b);
	return crc ==
		((uint32_t)icrc[0] | (uint32_t)icrc[1] << 8 | (uint32_t)icrc[2] << 16 |
			(uint32_t)icrc[3] << 24);
}

void
roce_packet_copy(
	const struct roce_packet *pkt, uint32_t from, void *to, uint32_t length, bool stream)
{
	const struct rte_mbuf *m = pkt->m;
	uint32_t offset = pkt->payload + from, n;
	uint8_t *out = to;

	while (offset >= m->data_len && m->next) {
		offset -= m->data_len;
		m = m->next;
	}
	for (; length; m = m->next, offset = 0, out += n, length -= n) {
		n = RTE_MIN(length, m->data_len - offset);
		if (stream)
			roce_copy_stream(out, rte_pktmbuf_mtod_offset(m, const void *, offset), n);
		else
			memcpy(out, rte_pktmbuf_mtod_offset(m, const void *, offset), n);
	}
}

/** The address at offset `v4` of an IPv4 header or `v6` of an IPv6 header. */
static struct roce_gid
gid_at(const struct roce_packet *pkt, size_t v4, size_t v6)
{
	struct roce_gid gid;
	rte_be32_t addr;

	if (pkt->l3_len == sizeof(struct rte_ipv4_hdr)) {
		memcpy(&addr, pkt->l3 + v4, sizeof(addr));
		return roce_gid_v4(addr);
	}
	memcpy(gid.raw, pkt->l3 + v6, sizeof(gid.raw));
	return gid;
}

struct roce_gid
roce_packet_src(const struct roce_packet *pkt)
{
	return gid_at(pkt, offsetof(struct rte_ipv4_hdr, src_addr),
		offsetof(struct rte_ipv6_hdr, src_addr));
}

struct roce_gid
roce_packet_dst(const struct roce_packet *pkt)
{
	return gid_at(pkt, offsetof(struct rte_ipv4_hdr, dst_addr),
		offsetof(struct rte_ipv6_hdr, dst_addr));
}
