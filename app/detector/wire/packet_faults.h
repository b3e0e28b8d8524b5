/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The order in which packets of a run leave the detector, and what the network does to them.
 *
 * Packets go in frame by frame, packet 0 of every stream, packet 1 of every stream and so on; what
 * comes out is sent as it comes. All chances follow from the seed, pulse and packet, so a second
 * pass over the same pulses does the same again: that is how a transmitted run gets its truth.
 */
#ifndef PACKET_FAULTS_H
#define PACKET_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/fault_options.h"
#include "wire/jungfrau_packets.h"

struct wire_packet {
	uint64_t pulse; /**< whose frame it belongs to */
	uint16_t module;
	uint8_t interface;
	uint8_t damage;	 /**< enum fault_kind, FAULT_KINDS: none */
	uint32_t packet; /**< number within the stream */
	uint64_t random; /**< where it is damaged */
};

/** What became of the packets of one frame. */
struct frame_outcome {
	uint32_t sent; /**< leave so that a receiver can place them; each counts once */
	uint32_t lost;
	uint32_t damaged; /**< leave, but cannot be placed */
	uint32_t duplicated;
	uint32_t reordered;
};

struct packet_faults;

/** @return 0; -EINVAL: a stalled module is not there, reported; -ENOMEM */
int packet_faults_create(const struct fault_options *options, const struct jungfrau_wire *wire,
	uint64_t seed, struct packet_faults **faults);

/** NULL is allowed. */
void packet_faults_destroy(struct packet_faults *faults);

/** Most packets that a call of packet_faults_frame() or packet_faults_flush() returns. */
uint32_t packet_faults_room(const struct packet_faults *faults);

/** Pulses after a packet's own at which it leaves at most. */
uint32_t packet_faults_delay(const struct packet_faults *faults);

/**
 * Let a frame through. Pulses must follow each other.
 * @param out  packets that leave, some of them of earlier frames
 * @return     how many
 */
uint32_t packet_faults_frame(struct packet_faults *faults, uint64_t pulse, struct wire_packet *out,
	struct frame_outcome *outcome);

/** Packets still held back, at the end. @return how many */
uint32_t packet_faults_flush(struct packet_faults *faults, struct wire_packet *out);

/** Events so far, by enum fault_kind. */
const uint64_t *packet_faults_counts(const struct packet_faults *faults);

/**
 * Damage a whole packet as it is to be.
 * @return its length
 */
uint32_t wire_packet_damage(const struct wire_packet *packet, uint8_t bytes[JUNGFRAU_PACKET_BYTES]);

#endif /* PACKET_FAULTS_H */
