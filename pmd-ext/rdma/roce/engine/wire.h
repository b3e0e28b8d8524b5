/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_WIRE_H
#define ROCE_WIRE_H

/**
 * @file
 * RoCEv2 wire format: headers and opcodes (IBTA 1.4 chapter 9, annex A17). All fields are big
 * endian, except the ICRC, which is little endian.
 */

#include <assert.h>
#include <stdbool.h>
#include <stdint.h>

#include <rte_byteorder.h>
#include <rte_common.h>

#define ROCE_UDP_PORT	     4791
#define ROCE_ICRC_BYTES	     4
#define ROCE_QPN_CM	     1 /* general services: CM MADs */
#define ROCE_QPN_MULTICAST   0xffffff
#define ROCE_QKEY_CM	     0x80010000
#define ROCE_QKEY_CONTROLLED 0x80000000
#define ROCE_PKEY	     0xffff /* the default partition, full member */
#define ROCE_PKEY_BASE	     0x7fff /* default partition without the membership bit */
#define ROCE_PSN_MASK	     0xffffff
#define ROCE_MAD_BYTES	     256

/** Base transport header. */
struct roce_bth {
	uint8_t opcode;
	uint8_t flags; /**< SE1 M1 pad2 version4 */
	rte_be16_t pkey;
	uint8_t ecn; /**< FECN1 BECN1 reserved6: masked from the ICRC */
	uint8_t qpn[3];
	uint8_t ack; /**< AckReq1 reserved7 */
	uint8_t psn[3];
} __rte_packed;
static_assert(sizeof(struct roce_bth) == 12, "IBTA 9.2");

#define ROCE_BTH_SOLICITED  0x80
#define ROCE_BTH_MIGREQ	    0x40
#define ROCE_BTH_PAD(f)	    (((f) >> 4) & 3)
#define ROCE_BTH_VERSION(f) ((f)&0x0f)
#define ROCE_BTH_BECN	    0x40
#define ROCE_BTH_ACKREQ	    0x80

/** Datagram extended transport header. */
struct roce_deth {
	rte_be32_t qkey;
	uint8_t reserved;
	uint8_t qpn[3];
} __rte_packed;
static_assert(sizeof(struct roce_deth) == 8, "IBTA 9.3.2");

/** RDMA extended transport header of WRITE and READ, for up to ROCE_DMA_MAX bytes (9.3.3.2). */
#define ROCE_DMA_MAX (1U << 31)
struct roce_reth {
	rte_be64_t va;
	rte_be32_t rkey;
	rte_be32_t length;
} __rte_packed;
static_assert(sizeof(struct roce_reth) == 16, "IBTA 9.3.3");

/** Atomic extended transport header. */
struct roce_atomiceth {
	rte_be64_t va;
	rte_be32_t rkey;
	rte_be64_t swap_add;
	rte_be64_t compare;
} __rte_packed;
static_assert(sizeof(struct roce_atomiceth) == 28, "IBTA 9.3.4");

/** ACK extended transport header. */
struct roce_aeth {
	uint8_t syndrome;
	uint8_t msn[3];
} __rte_packed;
static_assert(sizeof(struct roce_aeth) == 4, "IBTA 9.3.5");

/** Atomic ACK extended transport header: the old value. */
struct roce_atomicack {
	rte_be64_t value;
} __rte_packed;
static_assert(sizeof(struct roce_atomicack) == 8, "IBTA 9.5.3");

#define ROCE_EXT_MAX	28 /* maximum bytes of extended headers: those of an atomic request */
#define ROCE_UDP_BYTES	8
#define ROCE_L2L4_MAX	(14 + 4 + 40 + ROCE_UDP_BYTES) /* Ethernet, VLAN, IPv6, UDP */
#define ROCE_HEADER_MAX (ROCE_L2L4_MAX + (unsigned int)sizeof(struct roce_bth) + ROCE_EXT_MAX)

enum roce_opcode {
	ROCE_SEND_FIRST = 0x00,
	ROCE_SEND_MIDDLE,
	ROCE_SEND_LAST,
	ROCE_SEND_LAST_IMM,
	ROCE_SEND_ONLY,
	ROCE_SEND_ONLY_IMM,
	ROCE_WRITE_FIRST,
	ROCE_WRITE_MIDDLE,
	ROCE_WRITE_LAST,
	ROCE_WRITE_LAST_IMM,
	ROCE_WRITE_ONLY,
	ROCE_WRITE_ONLY_IMM,
	ROCE_READ_REQUEST,
	ROCE_READ_RESPONSE_FIRST,
	ROCE_READ_RESPONSE_MIDDLE,
	ROCE_READ_RESPONSE_LAST,
	ROCE_READ_RESPONSE_ONLY,
	ROCE_ACKNOWLEDGE,
	ROCE_ATOMIC_ACKNOWLEDGE,
	ROCE_COMPARE_SWAP,
	ROCE_FETCH_ADD,
	ROCE_SEND_LAST_INV = 0x16,
	ROCE_SEND_ONLY_INV,
	ROCE_OPERATION = 0x1f, /**< mask of the operation; the other bits are the transport */
	ROCE_RC = 0x00,
	ROCE_UC = 0x20,
	ROCE_UD = 0x60,
	ROCE_CNP = 0x81,
};

/** Properties of an opcode. */
enum roce_opcode_flag {
	ROCE_F_VALID = 1 << 0, /**< known opcode */
	ROCE_F_FIRST = 1 << 1, /**< first packet of a message (also ONLY) */
	ROCE_F_LAST = 1 << 2,  /**< last packet of a message (also ONLY) */
	ROCE_F_SEND = 1 << 3,
	ROCE_F_WRITE = 1 << 4,
	ROCE_F_IMM = 1 << 5,
	ROCE_F_RETH = 1 << 6,
	ROCE_F_AETH = 1 << 7,
	ROCE_F_DETH = 1 << 8,
	ROCE_F_ATOMICETH = 1 << 9,
	ROCE_F_ATOMICACK = 1 << 10,
	ROCE_F_RESPONSE = 1 << 11, /**< sent to a requester */
	ROCE_F_INVALIDATE = 1 << 12,
	ROCE_F_CNP = 1 << 13,
};

/** Flags of enum roce_opcode_flag (0: unknown opcode) and bytes of the extended headers. */
struct roce_opcode_info {
	uint16_t flags;
	uint8_t ext_bytes;
};

extern const struct roce_opcode_info roce_opcodes[256];

/* ---- AETH ------------------------------------------------------------------------------------ */

#define ROCE_AETH_KIND	  0xe0
#define ROCE_AETH_ACK	  0x00
#define ROCE_AETH_RNR	  0x20
#define ROCE_AETH_NAK	  0x60
#define ROCE_AETH_CREDITS 0x1f /* in an ACK: credit count field invalid */

enum roce_nak {
	ROCE_NAK_SEQUENCE = 0x60,
	ROCE_NAK_INVALID_REQUEST,
	ROCE_NAK_REMOTE_ACCESS,
	ROCE_NAK_REMOTE_OPERATION,
	ROCE_NAK_INVALID_RD,
};

/** RNR timer codes in microseconds (IBTA table 45). */
extern const uint32_t roce_rnr_us[32];

/* ---- small integers -------------------------------------------------------------------------- */

static inline uint32_t
roce_get24(const uint8_t b[3])
{
	return (uint32_t)b[0] << 16 | (uint32_t)b[1] << 8 | b[2];
}

static inline void
roce_put24(uint8_t b[3], uint32_t value)
{
	b[0] = value >> 16;
	b[1] = value >> 8;
	b[2] = value;
}

static inline uint32_t
roce_psn_add(uint32_t psn, uint32_t n)
{
	return (psn + n) & ROCE_PSN_MASK;
}

/** PSN difference a - b in serial number arithmetic: -2^23 to 2^23 - 1. */
static inline int32_t
roce_psn_diff(uint32_t a, uint32_t b)
{
	return (int32_t)((a - b) << 8) >> 8;
}

#endif
