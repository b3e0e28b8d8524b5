/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_IP_H
#define ROCE_IP_H

/**
 * @file
 * IPv4 and IPv6 headers of control packets, decoded and encoded (RFC 791, 2113, 2711, 8200). The
 * data path uses its own header templates.
 */

#include "engine/path.h"

#define ROCE_IP_BYTES_MAX 48 /**< IPv6 with router alert */

/** An IPv6 address as a GID. */
static inline struct roce_gid
roce_gid_v6(const void *addr)
{
	struct roce_gid gid;

	memcpy(gid.raw, addr, sizeof(gid.raw));
	return gid;
}

/** :: or 0.0.0.0 */
static inline bool
roce_gid_is_none(const struct roce_gid *gid)
{
	static const struct roce_gid zero;

	return roce_gid_equal(gid, &zero) || (roce_gid_is_v4(gid) && roce_gid_to_v4(gid) == 0);
}

/** fe80::/10 */
static inline bool
roce_gid_is_link_local(const struct roce_gid *gid)
{
	return gid->raw[0] == 0xfe && (gid->raw[1] & 0xc0) == 0x80;
}

/** A header of either version. Options other than router alert are not supported. */
struct roce_ip {
	struct roce_gid src, dst; /**< both IPv4-mapped: IPv4 */
	uint8_t proto;		  /**< of IPv6: the last next header */
	uint8_t hop_limit, traffic_class;
	bool router_alert;
	bool dont_fragment;   /**< IPv4 only */
	uint16_t id;	      /**< IPv4 only */
	uint32_t flow_label;  /**< IPv6 only */
	uint16_t payload_len; /**< bytes after the header and its options */
};

/**
 * Decode the header at `l3`.
 *
 * @param version 4 or 6, from the frame's type
 * @param length available bytes, including padding
 * @return length of the header; -EPROTO: malformed, wrong checksum, longer than `length`; -ENOTSUP:
 *   fragment or unsupported options
 */
int roce_ip_decode(const uint8_t *l3, unsigned int length, uint8_t version, struct roce_ip *ip);

/** Encode. @return length of the header, which payload_len bytes must follow */
unsigned int roce_ip_encode(const struct roce_ip *ip, uint8_t *l3);

/**
 * Compute the checksum over pseudo header and payload as for ICMPv6; for ICMP and IGMP the pseudo
 * header is left out.
 * @return value of the checksum field; 0 if the checksum of a received payload is correct
 */
rte_be16_t roce_ip_payload_cksum(const struct roce_ip *ip, const uint8_t *payload);

#endif
