/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ND_H
#define ROCE_ND_H

/** @file Neighbor solicitation and advertisement, decoded and encoded (RFC 4861, 4.3, 4.4). */

#include "net/ip.h"

#define ROCE_ND_SOLICIT	  135
#define ROCE_ND_ADVERT	  136
#define ROCE_ND_BYTES_MAX 40
#define ROCE_ND_HOP_LIMIT 255 /**< any other value: a router has forwarded the packet */

enum roce_nd_flag {
	ROCE_ND_ROUTER = 0x80,
	ROCE_ND_SOLICITED = 0x40,
	ROCE_ND_OVERRIDE = 0x20,
};

struct roce_nd {
	uint8_t type;  /**< ROCE_ND_SOLICIT or ROCE_ND_ADVERT */
	uint8_t flags; /**< of an advertisement: enum roce_nd_flag */
	struct roce_gid target;
	bool has_mac; /**< option source or target link-layer address */
	struct rte_ether_addr mac;
	bool has_nonce; /**< of a solicitation for duplicate address detection (RFC 3971, 7527) */
	uint8_t nonce[6];
};

/** Group to which solicitations for an address are sent (RFC 4291, 2.7.1). */
static inline struct roce_gid
roce_nd_group(const struct roce_gid *target)
{
	const uint8_t *t = target->raw;

	return (struct roce_gid){{0xff, 0x02, [11] = 0x01, [12] = 0xff, t[13], t[14], t[15]}};
}

/**
 * @param payload of the IP packet `ip`, ip->payload_len bytes
 * @return 0; -EPROTO: malformed, wrong checksum or hop limit
 */
int roce_nd_decode(const struct roce_ip *ip, const uint8_t *payload, struct roce_nd *nd);

/** Encode after `ip` and set its payload_len. @return length */
unsigned int roce_nd_encode(const struct roce_nd *nd, struct roce_ip *ip, uint8_t *payload);

#endif
