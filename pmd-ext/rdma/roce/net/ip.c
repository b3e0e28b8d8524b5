/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>

#include <rte_ip.h>

#include "net/icmp.h"
#include "net/ip.h"

#define PROTO_HOPOPTS 0
#define ALERT_BYTES   4 /* IPv4 */
#define HOPOPTS_BYTES 8 /* IPv6 */

/* RFC 2113: copied flag, control class, option 20, value 0: every router examines the packet */
static const uint8_t alert_option[ALERT_BYTES] = {0x94, 4, 0, 0};
/* RFC 2711 with padding; byte 0 is the next header */
static const uint8_t alert_hopopts[HOPOPTS_BYTES] = {0, 0, 5, 2, 0, 0, 1, 0};

static int
ipv4_decode(const uint8_t *l3, unsigned int length, struct roce_ip *ip)
{
	struct rte_ipv4_hdr h;
	unsigned int header, total;

	if (length < sizeof(h))
		return -EPROTO;
	memcpy(&h, l3, sizeof(h));
	header = (h.version_ihl & 0xf) * 4;
	total = rte_be_to_cpu_16(h.total_length);
	if (h.version_ihl >> 4 != 4 || header < sizeof(h) || total < header || total > length)
		return -EPROTO;
	if (rte_raw_cksum(l3, header) != 0xffff)
		return -EPROTO;
	if (h.fragment_offset & ~rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG))
		return -ENOTSUP;
	if (header > sizeof(h) &&
		(header != sizeof(h) + ALERT_BYTES ||
			memcmp(l3 + sizeof(h), alert_option, ALERT_BYTES) != 0))
		return -ENOTSUP;
	*ip = (struct roce_ip){
		.src = roce_gid_v4(h.src_addr),
		.dst = roce_gid_v4(h.dst_addr),
		.proto = h.next_proto_id,
		.hop_limit = h.time_to_live,
		.traffic_class = h.type_of_service,
		.router_alert = header > sizeof(h),
		.dont_fragment = h.fragment_offset != 0,
		.id = rte_be_to_cpu_16(h.packet_id),
		.payload_len = total - header,
	};
	return header;
}

static int
ipv6_decode(const uint8_t *l3, unsigned int length, struct roce_ip *ip)
{
	struct rte_ipv6_hdr h;
	uint32_t vtc_flow;
	unsigned int payload, header = sizeof(h);

	if (length < sizeof(h))
		return -EPROTO;
	memcpy(&h, l3, sizeof(h));
	vtc_flow = rte_be_to_cpu_32(h.vtc_flow);
	payload = rte_be_to_cpu_16(h.payload_len);
	if (vtc_flow >> 28 != 6 || payload > length - sizeof(h))
		return -EPROTO;
	if (h.proto == PROTO_HOPOPTS) {
		if (payload < HOPOPTS_BYTES)
			return -EPROTO;
		if (memcmp(l3 + sizeof(h) + 1, alert_hopopts + 1, HOPOPTS_BYTES - 1) != 0)
			return -ENOTSUP;
		h.proto = l3[sizeof(h)];
		header += HOPOPTS_BYTES;
		payload -= HOPOPTS_BYTES;
	}
	*ip = (struct roce_ip){
		.src = roce_gid_v6(h.src_addr),
		.dst = roce_gid_v6(h.dst_addr),
		.proto = h.proto,
		.hop_limit = h.hop_limits,
		.traffic_class = vtc_flow >> 20,
		.router_alert = header > sizeof(h),
		.flow_label = vtc_flow & 0xfffff,
		.payload_len = payload,
	};
	/* an IPv6 address in the form of an IPv4-mapped GID must not occur on the wire (RFC 4291,
	 * 2.5.5.2) */
	return roce_gid_is_v4(&ip->src) || roce_gid_is_v4(&ip->dst) ? -EPROTO : (int)header;
}

int
roce_ip_decode(const uint8_t *l3, unsigned int length, uint8_t version, struct roce_ip *ip)
{
	return version == 4 ? ipv4_decode(l3, length, ip) : ipv6_decode(l3, length, ip);
}

static unsigned int
ipv4_encode(const struct roce_ip *ip, uint8_t *l3)
{
	const unsigned int header =
		sizeof(struct rte_ipv4_hdr) + (ip->router_alert ? ALERT_BYTES : 0);
	struct rte_ipv4_hdr h = {
		.version_ihl = 0x40 | header / 4,
		.type_of_service = ip->traffic_class,
		.total_length = rte_cpu_to_be_16(header + ip->payload_len),
		.packet_id = rte_cpu_to_be_16(ip->id),
		.fragment_offset = rte_cpu_to_be_16(ip->dont_fragment ? RTE_IPV4_HDR_DF_FLAG : 0),
		.time_to_live = ip->hop_limit,
		.next_proto_id = ip->proto,
		.src_addr = roce_gid_to_v4(&ip->src),
		.dst_addr = roce_gid_to_v4(&ip->dst),
	};

	memcpy(l3, &h, sizeof(h));
	if (ip->router_alert)
		memcpy(l3 + sizeof(h), alert_option, ALERT_BYTES);
	h.hdr_checksum = ~rte_raw_cksum(l3, header);
	memcpy(l3, &h, sizeof(h));
	return header;
}

static unsigned int
ipv6_encode(const struct roce_ip *ip, uint8_t *l3)
{
	const unsigned int options = ip->router_alert ? HOPOPTS_BYTES : 0;
	struct rte_ipv6_hdr h = {
		.vtc_flow = rte_cpu_to_be_32(
			6u << 28 | (uint32_t)ip->traffic_class << 20 | ip->flow_label),
		.payload_len = rte_cpu_to_be_16(options + ip->payload_len),
		.proto = options ? PROTO_HOPOPTS : ip->proto,
		.hop_limits = ip->hop_limit,
	};

	memcpy(h.src_addr, ip->src.raw, sizeof(h.src_addr));
	memcpy(h.dst_addr, ip->dst.raw, sizeof(h.dst_addr));
	memcpy(l3, &h, sizeof(h));
	if (options) {
		memcpy(l3 + sizeof(h), alert_hopopts, HOPOPTS_BYTES);
		l3[sizeof(h)] = ip->proto;
	}
	return sizeof(h) + options;
}

unsigned int
roce_ip_encode(const struct roce_ip *ip, uint8_t *l3)
{
	return roce_gid_is_v4(&ip->src) ? ipv4_encode(ip, l3) : ipv6_encode(ip, l3);
}

rte_be16_t
roce_ip_payload_cksum(const struct roce_ip *ip, const uint8_t *payload)
{
	uint32_t sum = rte_raw_cksum(payload, ip->payload_len);

	if (!roce_gid_is_v4(&ip->src)) {
		const struct {
			struct roce_gid src, dst;
			rte_be32_t length, proto;
		} pseudo = {ip->src, ip->dst, rte_cpu_to_be_32(ip->payload_len),
			rte_cpu_to_be_32(ip->proto)};

		sum += rte_raw_cksum(&pseudo, sizeof(pseudo));
		sum = (sum & 0xffff) + (sum >> 16);
	}
	return ~sum;
}

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
		roce_ip_payload_cksum(ip, payload) != 0 ||
		!rte_is_valid_assigned_ether_addr(&ether->src_addr))
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
	/* trim Ethernet padding */
	m->data_len = m->l2_len + m->l3_len + ip->payload_len;
	m->pkt_len = m->data_len;
	return 0;
}
