/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * JUNGFRAU packets as RDMA messages: leader, pixels, and the detector's header as trailer
 * (app/common/ingest/card.h).
 */
#ifndef MESSAGES_H
#define MESSAGES_H

#include "ingest/card.h"
#include "wire/jungfrau_packets.h"
#include "wire/packet_faults.h"

/** Bytes of a message in addition to its pixels: leader, trailer. */
struct message_ends {
	uint8_t leader[INGEST_LEADER_BYTES];
	uint8_t trailer[INGEST_TRAILER_BYTES];
};

/** Stream of a packet. */
static inline uint32_t
message_stream(const struct jungfrau_wire *wire, const struct wire_packet *packet)
{
	return packet->module * wire->interfaces + packet->interface;
}

/** RoCE packets of a message. */
static inline uint32_t
message_packets(const struct ingest_card *card)
{
	return (uint32_t)((ingest_message_bytes(card) + card->mtu - 1) / card->mtu);
}

/**
 * Index of the packet, among the `packets` of a message, that its damage drops; UINT32_MAX: none.
 */
uint32_t message_dropped(const struct wire_packet *packet, uint32_t packets);

/** Whether the network loses the whole message. */
static inline bool
message_is_lost(const struct wire_packet *packet)
{
	return packet->damage == FAULT_LOSS || packet->damage == FAULT_BURST_LOSS;
}

/** Make leader and trailer of a message. */
void message_make_ends(const struct jungfrau_wire *wire, const struct jungfrau_frame_header *header,
	const struct wire_packet *packet, struct message_ends *out);

/**
 * Check that a card is for this detector.
 * @param where  source of the card, for messages
 * @return 0; -EINVAL, reported
 */
int message_card_check(const struct ingest_card *card, const char *where,
	enum ingest_transport transport, const struct jungfrau_wire *wire);

/** Read a card, and check it. @return 0 or -errno, reported */
int message_card_read(struct ingest_card *card, const char *path, enum ingest_transport transport,
	const struct jungfrau_wire *wire);

#endif /* MESSAGES_H */
