/* SPDX-License-Identifier: BSD-3-Clause */
/* GIDs and header templates. */
#include <arpa/inet.h>
#include <errno.h>

#include <rte_ip.h>
#include <rte_udp.h>

#include "engine/path.h"

int
roce_gid_from_sockaddr(struct roce_gid *gid, const struct sockaddr *addr)
{
	const uint8_t *raw = (const uint8_t *)addr;
	rte_be32_t v4;

	switch (addr->sa_family) {
	case AF_INET:
		memcpy(&v4, raw + offsetof(struct sockaddr_in, sin_addr), sizeof(v4));
		*gid = roce_gid_v4(v4);
		return 0;
	case AF_INET6:
		memcpy(gid->raw, raw + offsetof(struct sockaddr_in6, sin6_addr), sizeof(gid->raw));
		return 0;
	default:
		return -EAFNOSUPPORT;
	}
}

void
roce_gid_to_sockaddr(const struct roce_gid *gid, uint16_t port, struct sockaddr_storage *addr)
{
	struct sockaddr_in *in4 = (struct sockaddr_in *)addr;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)addr;

	memset(addr, 0, sizeof(*addr));
	if (roce_gid_is_v4(gid)) {
		in4->sin_family = AF_INET;
		in4->sin_port = rte_cpu_to_be_16(port);
		in4->sin_addr.s_addr = roce_gid_to_v4(gid);
	} else {
		in6->sin6_family = AF_INET6;
		in6->sin6_port = rte_cpu_to_be_16(port);
		memcpy(&in6->sin6_addr, gid->raw, sizeof(gid->raw));
	}
}

const char *
roce_gid_text(const struct roce_gid *gid, char *text, size_t size)
{
	if (roce_gid_is_v4(gid))
		inet_ntop(AF_INET, gid->raw + 12, text, size);
	else
		inet_ntop(AF_INET6, gid->raw, text, size);
	return text;
}

bool
roce_gid_is_multicast(const struct roce_gid *gid)
{
	return roce_gid_is_v4(gid) ? (gid->raw[12] & 0xf0) == 0xe0 : gid->raw[0] == 0xff;
}

struct rte_ether_addr
roce_gid_multicast_mac(const struct roce_gid *gid)
{
	struct rte_ether_addr mac = {{0x33, 0x33}};

	memcpy(mac.addr_bytes + 2, gid->raw + 12, 4);
	if (roce_gid_is_v4(gid)) {
		mac.addr_bytes[0] = 0x01;
		mac.addr_bytes[1] = 0x00;
		mac.addr_bytes[2] = 0x5e;
		mac.addr_bytes[3] &= 0x7f;
	}
	return mac;
}

static uint16_t
sum16(const uint8_t *bytes, unsigned int n)
{
	uint32_t sum = 0;
	unsigned int i;

	for (i = 0; i < n; i += 2)
		sum += (uint32_t)bytes[i] << 8 | bytes[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return (sum & 0xffff) + (sum >> 16);
}

void
roce_path_make(struct roce_path *path, const struct roce_path_attr *attr)
{
	const bool v4 = roce_gid_is_v4(&attr->dst);
	const uint16_t l3_type = v4 ? RTE_ETHER_TYPE_IPV4 : RTE_ETHER_TYPE_IPV6;
	struct rte_ether_hdr *eth = (struct rte_ether_hdr *)path->header;
	struct rte_ipv4_hdr *ip4;
	struct rte_ipv6_hdr *ip6;
	struct rte_vlan_hdr *vlan;
	struct rte_udp_hdr *udp;

	memset(path, 0, sizeof(*path));
	path->src = attr->src;
	path->dst = attr->dst;
	eth->dst_addr = attr->dst_mac;
	eth->src_addr = attr->src_mac;
	eth->ether_type = rte_cpu_to_be_16(attr->vlan_tci ? RTE_ETHER_TYPE_VLAN : l3_type);
	path->l2_len = sizeof(*eth);
	if (attr->vlan_tci) {
		vlan = (struct rte_vlan_hdr *)(eth + 1);
		vlan->vlan_tci = rte_cpu_to_be_16(attr->vlan_tci);
		vlan->eth_proto = rte_cpu_to_be_16(l3_type);
		path->l2_len += sizeof(*vlan);
	}
	path->l3_len = v4 ? sizeof(*ip4) : sizeof(*ip6);
	path->length = path->l2_len + path->l3_len + sizeof(*udp);
	if (v4) {
		/* Never fragmented, so the identification may be constant (RFC 6864). */
		ip4 = (struct rte_ipv4_hdr *)(path->header + path->l2_len);
		ip4->version_ihl = RTE_IPV4_VHL_DEF;
		ip4->type_of_service = attr->traffic_class;
		ip4->fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG);
		ip4->time_to_live = attr->hop_limit;
		ip4->next_proto_id = IPPROTO_UDP;
		ip4->src_addr = roce_gid_to_v4(&attr->src);
		ip4->dst_addr = roce_gid_to_v4(&attr->dst);
		path->ip_sum = sum16((const uint8_t *)ip4, sizeof(*ip4));
	} else {
		ip6 = (struct rte_ipv6_hdr *)(path->header + path->l2_len);
		ip6->vtc_flow = rte_cpu_to_be_32(6U << 28 | (uint32_t)attr->traffic_class << 20);
		ip6->proto = IPPROTO_UDP;
		ip6->hop_limits = attr->hop_limit;
		memcpy(ip6->src_addr, attr->src.raw, sizeof(ip6->src_addr));
		memcpy(ip6->dst_addr, attr->dst.raw, sizeof(ip6->dst_addr));
	}
	udp = (struct rte_udp_hdr *)(path->header + path->l2_len + path->l3_len);
	udp->src_port = rte_cpu_to_be_16(attr->udp_src);
	udp->dst_port = rte_cpu_to_be_16(ROCE_UDP_PORT);
}

void
roce_path_finish(const struct roce_path *path, uint8_t *header, uint16_t udp_payload)
{
	const uint16_t udp_length = udp_payload + sizeof(struct rte_udp_hdr);
	uint8_t *l3 = header + path->l2_len;
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(l3 + path->l3_len);
	struct rte_ipv4_hdr *ip4 = (struct rte_ipv4_hdr *)l3;
	uint32_t sum;

	udp->dgram_len = rte_cpu_to_be_16(udp_length);
	if (path->l3_len == sizeof(*ip4)) {
		ip4->total_length = rte_cpu_to_be_16(udp_length + sizeof(*ip4));
		sum = path->ip_sum + udp_length + (uint32_t)sizeof(*ip4);
		sum = (sum & 0xffff) + (sum >> 16);
		ip4->hdr_checksum = rte_cpu_to_be_16(~((sum & 0xffff) + (sum >> 16)));
	} else {
		((struct rte_ipv6_hdr *)l3)->payload_len = rte_cpu_to_be_16(udp_length);
	}
}

void
roce_path_ecn(struct roce_path *path)
{
	uint8_t *l3 = path->header + path->l2_len;

	if (path->l3_len == sizeof(struct rte_ipv4_hdr)) {
		l3[1] = (l3[1] & ~3) | 2;
		path->ip_sum = sum16(l3, sizeof(struct rte_ipv4_hdr));
	} else {
		l3[1] = (l3[1] & ~0x30) | 0x20;
	}
}

uint16_t
roce_path_udp_port(uint32_t qpn)
{
	/* Fibonacci hashing spreads consecutive numbers over all UDP ports and RSS queues. */
	return 0xc000 | (uint32_t)(qpn * 0x9e3779b1U) >> 18;
}
