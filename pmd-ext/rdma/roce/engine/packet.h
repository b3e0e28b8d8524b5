/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PACKET_H
#define ROCE_PACKET_H

/**
 * @file
 * A received packet: the positions of its headers and payload. All contents are untrusted. Only
 * headers that span several segments are copied.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "engine/path.h"
#include "engine/wire.h"

struct roce_packet {
	struct rte_mbuf *m;
	const uint8_t *l3; /**< IP header; all headers from here on are contiguous */
	const struct roce_bth *bth;
	const uint8_t *ext;
	uint32_t psn, qpn;
	uint32_t payload; /**< its offset in the frame */
	uint16_t length;  /**< of the payload, without pad */
	uint16_t flags;	  /**< enum roce_opcode_flag */
	uint16_t vlan;	  /**< VLAN ID of any Ethernet frame; 0: no tag or a priority tag */
	uint8_t opcode;
	uint8_t pad;
	uint8_t l2_len, l3_len;
	uint8_t ecn; /**< IP ECN field; 3: congestion experienced */
	uint8_t scratch[ROCE_HEADER_MAX] __rte_aligned(2); /**< Ethernet header first */
};

/** Type of a frame. */
enum roce_packet_kind {
	ROCE_PACKET_DATA,    /**< RoCEv2: `pkt` is filled in */
	ROCE_PACKET_CONTROL, /**< ARP, ICMP, IGMP: m->l2_len, m->l3_len are set */
	ROCE_PACKET_OTHER,   /**< unsupported protocol */
	ROCE_PACKET_MALFORMED,
	ROCE_PACKET_OPCODE, /**< unknown opcode */
	ROCE_PACKET_VLAN,   /**< of another VLAN; roce_packet_parse() does not return this */
};

/**
 * Parse a frame.
 *
 * @param m its l2_len and l3_len are set
 * @param pkt out; refers to m
 */
enum roce_packet_kind roce_packet_parse(struct rte_mbuf *m, struct roce_packet *pkt);

/** True if the ICRC is correct. */
bool roce_packet_check(const struct roce_packet *pkt);

/**
 * Copy bytes of the payload. The payload must contain them.
 * @param stream use non-temporal stores (engine/copy.h)
 */
void roce_packet_copy(
	const struct roce_packet *pkt, uint32_t from, void *to, uint32_t length, bool stream);

/** Source and destination IP address as GIDs. */
struct roce_gid roce_packet_src(const struct roce_packet *pkt);
struct roce_gid roce_packet_dst(const struct roce_packet *pkt);

/**
 * True if the GID is the source (roce_packet_from()) or destination (roce_packet_to()) address. The
 * functions compare without building a GID. The GID of an IPv4 address does not match the same
 * bytes as source of an IPv6 header: that is a different station.
 */
static inline bool
roce_packet_from(const struct roce_packet *pkt, const struct roce_gid *gid)
{
	return pkt->l3_len == 20
		? roce_gid_is_v4(gid) && memcmp(pkt->l3 + 12, gid->raw + 12, 4) == 0
		: !roce_gid_is_v4(gid) && memcmp(pkt->l3 + 8, gid->raw, sizeof(gid->raw)) == 0;
}

static inline bool
roce_packet_to(const struct roce_packet *pkt, const struct roce_gid *gid)
{
	return pkt->l3_len == 20
		? roce_gid_is_v4(gid) && memcmp(pkt->l3 + 16, gid->raw + 12, 4) == 0
		: memcmp(pkt->l3 + 24, gid->raw, sizeof(gid->raw)) == 0;
}

static inline const struct roce_reth *
roce_packet_reth(const struct roce_packet *pkt)
{
	return (const struct roce_reth *)(pkt->ext + (pkt->flags & ROCE_F_DETH ? 8 : 0));
}

static inline const struct roce_aeth *
roce_packet_aeth(const struct roce_packet *pkt)
{
	return (const struct roce_aeth *)pkt->ext;
}

/** Immediate data in CPU byte order. It is the last extended header. */
static inline uint32_t
roce_packet_imm(const struct roce_packet *pkt)
{
	const uint8_t *imm = pkt->ext + roce_opcodes[pkt->opcode].ext_bytes - 4;

	return (uint32_t)imm[0] << 24 | (uint32_t)imm[1] << 16 | (uint32_t)imm[2] << 8 | imm[3];
}

#endif
