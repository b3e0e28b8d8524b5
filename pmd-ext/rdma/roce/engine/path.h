/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PATH_H
#define ROCE_PATH_H

/**
 * @file
 * Addresses, and paths to a peer. A path is a header template with Ethernet, VLAN, IP and UDP. It
 * is built once and copied into every packet.
 */

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#include "engine/wire.h"

#define ROCE_VLAN_ID 0x0fff /* VLAN ID in a tag; 0: priority tag, no VLAN (802.1Q 9.6) */

/** IP address as a GID: IPv6, or IPv4 as ::ffff:a.b.c.d (A17.4.5.2). */
struct roce_gid {
	uint8_t raw[16];
};

static inline bool
roce_gid_is_v4(const struct roce_gid *gid)
{
	static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

	return memcmp(gid->raw, mapped, sizeof(mapped)) == 0;
}

static inline bool
roce_gid_equal(const struct roce_gid *a, const struct roce_gid *b)
{
	return memcmp(a->raw, b->raw, sizeof(a->raw)) == 0;
}

/** The GID of an IPv4 address in network byte order. */
static inline struct roce_gid
roce_gid_v4(rte_be32_t addr)
{
	struct roce_gid gid = {{[10] = 0xff, [11] = 0xff}};

	memcpy(gid.raw + 12, &addr, sizeof(addr));
	return gid;
}

/** The IPv4 address of an IPv4 GID, in network byte order. */
static inline rte_be32_t
roce_gid_to_v4(const struct roce_gid *gid)
{
	rte_be32_t addr;

	memcpy(&addr, gid->raw + 12, sizeof(addr));
	return addr;
}

/** Convert a socket address to a GID. @return 0; -EAFNOSUPPORT */
int roce_gid_from_sockaddr(struct roce_gid *gid, const struct sockaddr *addr);
/** Convert a GID to a socket address. @param port CPU byte order */
void roce_gid_to_sockaddr(const struct roce_gid *gid, uint16_t port, struct sockaddr_storage *addr);
/** Format a GID for messages. @param size at least INET6_ADDRSTRLEN @return text */
const char *roce_gid_text(const struct roce_gid *gid, char *text, size_t size);
/** True for a multicast address: IPv4 224/4 or IPv6 ff00::/8. */
bool roce_gid_is_multicast(const struct roce_gid *gid);
/** Ethernet address of a multicast group (RFC 1112, RFC 2464). */
struct rte_ether_addr roce_gid_multicast_mac(const struct roce_gid *gid);

/** The headers up to and including UDP. Lengths and the IPv4 checksum are set per packet. */
struct roce_path {
	uint8_t header[ROCE_L2L4_MAX];
	uint8_t length;	 /**< bytes of header */
	uint8_t l2_len;	 /**< Ethernet and VLAN */
	uint8_t l3_len;	 /**< 20 or 40 */
	uint16_t ip_sum; /**< IPv4: sum of the header with total length 0, not complemented */
	struct roce_gid src, dst;
};

/** Attributes of a path. */
struct roce_path_attr {
	struct rte_ether_addr src_mac, dst_mac;
	struct roce_gid src, dst; /**< of the same family */
	uint16_t vlan_tci;	  /**< CPU byte order; 0: no tag */
	uint16_t udp_src;	  /**< CPU byte order; entropy for ECMP, fixed for a queue pair */
	uint8_t traffic_class;	  /**< including the ECN bits */
	uint8_t hop_limit;
};

void roce_path_make(struct roce_path *path, const struct roce_path_attr *attr);

/**
 * Fill in the fields that depend on the length.
 * @param header copy of path->header
 * @param udp_payload bytes
 */
void roce_path_finish(const struct roce_path *path, uint8_t *header, uint16_t udp_payload);

/** The Ethernet address of the next hop. */
static inline struct rte_ether_addr *
roce_path_mac(struct roce_path *path)
{
	return &((struct rte_ether_hdr *)path->header)->dst_addr;
}

/** Mark the packets of a path as ECN-capable, ECT(0) (RFC 3168). */
void roce_path_ecn(struct roce_path *path);

/** UDP source port of a queue pair: 49152 to 65535, a function of its number. */
uint16_t roce_path_udp_port(uint32_t qpn);

#endif
