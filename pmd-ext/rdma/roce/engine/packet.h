/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_PACKET_H
#define ROCE_PACKET_H

/**
 * @file
 * A received packet: where its headers and payload are. Nothing is trusted, nothing is copied but
 * headers that lie in several segments.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#include "engine/path.h"
#include "engine/wire.h"

struct roce_packet {
	struct rte_mbuf *m;
	const uint8_t *l3; /**< all headers from here on are contiguous */
	const struct roce_bth *bth;
	const uint8_t *ext;
	uint32_t psn, qpn;
	uint32_t payload; /**< its offset in the frame */
	uint16_t length;  /**< of the payload, without pad */
	uint16_t flags;	  /**< enum roce_opcode_flag */
	uint16_t vlan;	  /**< 0: no tag, or one of a priority alone; of any Ethernet frame */
	uint8_t opcode;
	uint8_t pad;
	uint8_t l2_len, l3_len;
	uint8_t ecn; /**< of IP: 3 is congestion experienced */
	uint8_t scratch[ROCE_HEADER_MAX] __rte_aligned(2); /**< Ethernet header first */
};

/** What a frame is. */
enum roce_packet_kind {
	ROCE_PACKET_DATA,    /**< RoCEv2: `pkt` is filled in */
	ROCE_PACKET_CONTROL, /**< ARP, ICMP, IGMP: m->l2_len, m->l3_len are set */
	ROCE_PACKET_OTHER,   /**< of a protocol not spoken here */
	ROCE_PACKET_MALFORMED,
	ROCE_PACKET_OPCODE, /**< opcode unknown */
	ROCE_PACKET_VLAN,   /**< of another VLAN; parsing does not ask */
};

/**
 * Find out what a frame is.
 *
 * @param m set: l2_len, l3_len
 * @param pkt out; refers to m
 */
enum roce_packet_kind roce_packet_parse(struct rte_mbuf *m, struct roce_packet *pkt);

/** Is its ICRC right? */
bool roce_packet_check(const struct roce_packet *pkt);

/**
 * Copy bytes of the payload out. The payload must hold them.
 * @param stream past the caches (engine/copy.h)
 */
void roce_packet_copy(
	const struct roce_packet *pkt, uint32_t from, void *to, uint32_t length, bool stream);

/** IP addresses as GIDs. */
struct roce_gid roce_packet_src(const struct roce_packet *pkt);
struct roce_gid roce_packet_dst(const struct roce_packet *pkt);

/**
 * Is that the source, the destination? No GID is made of it. The GID of an IPv4 address is no
 * IPv6 address: an IPv6 header that has its bytes is from somebody else.
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

/** Immediate data, CPU byte order. It is the last extended header. */
static inline uint32_t
roce_packet_imm(const struct roce_packet *pkt)
{
	const uint8_t *imm = pkt->ext + roce_opcodes[pkt->opcode].ext_bytes - 4;

	return (uint32_t)imm[0] << 24 | (uint32_t)imm[1] << 16 | (uint32_t)imm[2] << 8 | imm[3];
}

#endif
