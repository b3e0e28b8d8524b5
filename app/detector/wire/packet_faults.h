/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The order in which the packets of a run are sent, and the faults of the network.
 *
 * Packets are processed frame by frame: packet 0 of every stream, packet 1 of every stream and so
 * on. They are sent in the order of the output. All faults are a function of seed, pulse and
 * packet, so a second pass over the same pulses gives the same result. A transmitting run computes
 * its truth in this way.
 *
 * With fault_options.messages, a packet is an RDMA message of several RoCE packets. A message that
 * the network loses is then returned, too, with the damage FAULT_LOSS or FAULT_BURST_LOSS: the
 * sender uses its PSNs, but does not send its packets. A message with the damage FAULT_DROP_FIRST,
 * FAULT_DROP_MIDDLE or FAULT_DROP_LAST loses one packet.
 */
#ifndef PACKET_FAULTS_H
#define PACKET_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include "wire/fault_options.h"
#include "wire/jungfrau_packets.h"

struct wire_packet {
	uint64_t pulse; /**< pulse of its frame */
	uint16_t module;
	uint8_t interface;
	uint8_t damage;	 /**< enum fault_kind; FAULT_KINDS: none */
	uint32_t packet; /**< number within the stream */
	uint64_t random; /**< determines where it is damaged */
};

/** Outcome of the packets of one frame. */
struct frame_outcome {
	uint32_t sent; /**< packets sent that a receiver can place, each counted once */
	uint32_t lost;
	uint32_t damaged; /**< packets sent that cannot be placed */
	uint32_t duplicated;
	uint32_t reordered;
};

struct packet_faults;

/** @return 0; -EINVAL: a stalled module does not exist, reported; -ENOMEM */
int packet_faults_create(const struct fault_options *options, const struct jungfrau_wire *wire,
	uint64_t seed, struct packet_faults **faults);

/** NULL is allowed. */
void packet_faults_destroy(struct packet_faults *faults);

/** Maximum number of packets that packet_faults_frame() or packet_faults_flush() returns. */
uint32_t packet_faults_room(const struct packet_faults *faults);

/** Maximum delay of a packet, in pulses after its own. */
uint32_t packet_faults_delay(const struct packet_faults *faults);

/**
 * Process a frame. Pulses must be consecutive.
 * @param out  packets to send, some of them of earlier frames
 * @return     their number
 */
uint32_t packet_faults_frame(struct packet_faults *faults, uint64_t pulse, struct wire_packet *out,
	struct frame_outcome *outcome);

/**
 * Determine the fault of the event that a stream sends after a frame. To be called once.
 * @return FAULT_KINDS: it arrives; FAULT_DROP_EVENT: it is lost, and counted; FAULT_STALL: the
 *   module does not send it
 */
enum fault_kind packet_faults_event(
	struct packet_faults *faults, uint64_t pulse, uint32_t module, uint32_t interface);

/** Return the packets that are still delayed, at the end. @return their number */
uint32_t packet_faults_flush(struct packet_faults *faults, struct wire_packet *out);

/** Number of faults so far, by enum fault_kind. */
const uint64_t *packet_faults_counts(const struct packet_faults *faults);

/**
 * Damage a complete packet as selected in `packet`.
 * @return its new length
 */
uint32_t wire_packet_damage(const struct wire_packet *packet, uint8_t bytes[JUNGFRAU_PACKET_BYTES]);

#endif /* PACKET_FAULTS_H */
