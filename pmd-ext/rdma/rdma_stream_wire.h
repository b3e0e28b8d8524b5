/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_STREAM_WIRE_H
#define RDMA_STREAM_WIRE_H

/**
 * @file
 * Wire format of a stream (rdma_stream.h): packets, memory, messages. All fields are little endian.
 */

#include <assert.h>
#include <stdint.h>

#include <rte_byteorder.h>

#include "rdma_stream.h"

static_assert(RTE_BYTE_ORDER == RTE_LITTLE_ENDIAN, "fields are used in memory as they are");

#define STREAM_MAGIC   0x314d5242 /* BRM1 */
#define STREAM_INVALID UINT64_MAX /* sequence of a slot that is being written */
#define STREAM_NONE    UINT64_MAX /* no packet, or end not known yet */

/** Precedes the payload in each slot and packet. */
struct stream_header {
	uint64_t sequence; /**< STREAM_INVALID while the sender writes the slot; written last */
	uint64_t run;
	uint32_t length; /**< bytes of the payload */
	uint32_t crc;	 /**< CRC-32C of header, with crc 0, and payload */
	uint64_t reserved;
};
static_assert(sizeof(struct stream_header) == RDMA_STREAM_HEADER_BYTES, "as documented");

/** State of the ring, before its slots. Written by the owner lcore, READ by the members. */
struct stream_head {
	uint64_t head; /**< number of the next packet; the slots before it are written */
	/**
	 * All packets before this one have left the sender. Those from here to `head` may be in
	 * flight: a member that misses them must not READ them yet.
	 */
	uint64_t sent;
	uint64_t run;
	uint64_t end; /**< number of packets at the end of the stream; STREAM_NONE: not known */
	uint64_t reserved[4];
};

#define STREAM_HEAD_BYTES 4096 /* so that slots are aligned to pages */

/** State of a member in the sender's memory. Written by an RDMA WRITE of the member. */
struct stream_tail {
	uint64_t tail; /**< all packets before this one have arrived */
	uint64_t beat; /**< incremented by each WRITE */
	uint64_t left; /**< 1: the member leaves */
	/**
	 * No packet before this one is in flight to the member: it has arrived, or was lost and is
	 * READ.
	 */
	uint64_t seen;
	uint64_t reserved[4];
};
static_assert(sizeof(struct stream_tail) == 64, "each on its own cache line");

enum stream_kind {
	STREAM_JOIN = 1,   /**< connection of a new member, which then sends a proof */
	STREAM_ATTACH = 2, /**< further connection of a member, authorised by its token */
};

/** Private data of a REQ, at most 56 bytes. */
struct stream_request {
	uint32_t magic;
	uint8_t kind;	/**< enum stream_kind */
	uint8_t number; /**< number of the connection; 0 with STREAM_JOIN */
	uint16_t member;
	uint64_t identity;
	uint64_t token; /**< STREAM_ATTACH */
	uint8_t nonce[24];
};
static_assert(sizeof(struct stream_request) <= 56, "private data of a REQ");

/** Private data of a REP. */
struct stream_reply {
	uint32_t magic;
	uint32_t payload_max;
	uint64_t run;
	uint8_t nonce[24];
};

enum stream_message_type {
	STREAM_PROOF = 1,  /**< struct stream_proof_message, from a member */
	STREAM_ANSWER = 2, /**< struct stream_card, to a member */
	STREAM_NACKS = 3,  /**< struct stream_nack, from a member */
};

/** Input of the message authentication code (MAC) of a proof. Only the MAC is sent. */
struct stream_transcript {
	/** type of the message with the MAC, so that a MAC of one end is not valid for the other */
	uint32_t type;
	uint32_t qpn[2]; /**< queue pairs of member and sender */
	uint32_t reserved;
	struct stream_request request;
	struct stream_reply reply;
};

struct stream_proof_message {
	uint32_t type;
	uint32_t reserved;
	uint8_t mac[RDMA_STREAM_MAC_BYTES]; /**< MAC of the transcript */
};

/** What a member needs to know of the ring: addresses, keys and sizes. */
struct stream_card {
	uint32_t type;
	uint16_t member;
	uint8_t policy;
	uint8_t reserved;
	uint64_t token;
	uint64_t run;
	uint64_t start; /**< first packet that is retained for this member */
	uint64_t head_addr;
	uint64_t slot_addr; /**< address of slot 0 */
	uint64_t tail_addr;
	uint32_t ring_rkey;
	uint32_t tail_rkey;
	uint32_t slots;
	uint32_t slot_bytes;
	uint32_t payload_max;
	uint32_t silence_ms;
	uint32_t ud_qpn;
	uint32_t reserved2;
	uint8_t mac[RDMA_STREAM_MAC_BYTES]; /**< MAC of the transcript and of all fields before */
};

#define STREAM_NACK_RANGES 32
struct stream_nack {
	uint32_t type;
	uint32_t nb;
	struct {
		uint64_t first;
		uint64_t count;
	} range[STREAM_NACK_RANGES];
};

#define STREAM_MESSAGE_BYTES 576 /* the longest message */
static_assert(sizeof(struct stream_nack) <= STREAM_MESSAGE_BYTES, "longest message");
static_assert(sizeof(struct stream_card) <= STREAM_MESSAGE_BYTES, "longest message");

/** CRC-32C of a header and its payload. */
uint32_t stream_crc(const struct stream_header *header, const void *payload);

/** Fill with random bytes of the kernel. @return 0; -errno */
int stream_random(void *to, uint32_t length);

/**
 * Compute the MAC of a proof or of a card.
 * @param key  index of a key of the identity, from 0
 * @param card NULL: a proof
 */
int stream_mac(const struct rdma_stream_proof *proof, unsigned int key,
	const struct stream_transcript *transcript, const struct stream_card *card,
	uint8_t mac[RDMA_STREAM_MAC_BYTES]);

/** Compare two MACs in constant time. */
bool stream_mac_equal(const uint8_t *a, const uint8_t *b);

#endif
