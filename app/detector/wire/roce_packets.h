/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RoCEv2 packets of the detector's messages, for captures: Ethernet, IPv4, UDP, BTH, RETH or
 * immediate, payload and ICRC. The PSNs are those of a UC queue pair: each packet has the next one,
 * and each stream begins with that of the card.
 *
 * Header formats and ICRC are those of pmd-ext/rdma/roce. tshark checks the result (test/interop).
 */
#ifndef ROCE_PACKETS_H
#define ROCE_PACKETS_H

#include "ingest/card.h"
#include "wire/jungfrau_packets.h"
#include "wire/messages.h"

/** Ethernet, IPv4, UDP, BTH, RETH, payload of 4,096 bytes, ICRC. */
#define ROCE_PACKET_BYTES_MAX (14 + 20 + 8 + 12 + 16 + 4096 + 4)

struct roce_packets;

/** A message with data, or the event of a frame. */
struct roce_message {
	uint32_t stream;
	const uint8_t *pixels; /**< JUNGFRAU_PAYLOAD_BYTES; NULL: an event */
	const struct message_ends *ends;
	uint64_t address;   /**< write, not of an event */
	uint32_t immediate; /**< of an event */
};

/** @return 0; -EINVAL: the card has an IPv6 address, reported; -ENOMEM */
int roce_packets_create(const struct ingest_card *card, const struct jungfrau_wire *wire,
	struct roce_packets **packets);

/** NULL is allowed. */
void roce_packets_destroy(struct roce_packets *packets);

/** Number of packets of a message. */
uint32_t roce_packets_count(const struct roce_packets *packets, const struct roce_message *message);

/**
 * Make one packet of a message. Its PSN is that of the stream plus `index`.
 * @return bytes
 */
uint32_t roce_packets_make(const struct roce_packets *packets, const struct roce_message *message,
	uint32_t index, uint8_t out[ROCE_PACKET_BYTES_MAX]);

/** Use up the PSNs of a message, also of a lost one. */
void roce_packets_done(struct roce_packets *packets, const struct roce_message *message);

#endif /* ROCE_PACKETS_H */
