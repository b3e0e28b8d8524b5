/* SPDX-License-Identifier: BSD-3-Clause */

#include "wire/packet_faults.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>

#include "sim/jungfrau_module.h"

/* Shortest truncated packet: an Ethernet frame without its frame check sequence. */
#define TRUNCATED_MIN 60

#define LIST_END UINT32_MAX

/* An entry of the list of packets that are sent at the same step. */
struct delayed_packet {
	struct wire_packet packet;
	uint32_t next;
};

struct packet_faults {
	struct fault_options options;
	struct jungfrau_wire wire;
	uint64_t seed;
	bool idle;	     /* no fault is configured */
	uint64_t step;	     /* packets processed so far */
	uint32_t burst_left; /* packets of a burst loss still to be lost */
	uint64_t count[FAULT_KINDS];

	uint32_t nb_steps; /* size of the wheel: window + 1 */
	uint32_t *first;   /* list head of the packets sent at a step, by step modulo nb_steps */
	struct delayed_packet *delayed; /* [nb_steps] */
	uint32_t unused;		/* list of unused entries */
};

int
packet_faults_create(const struct fault_options *options, const struct jungfrau_wire *wire,
	uint64_t seed, struct packet_faults **result)
{
	struct packet_faults *faults;

	for (uint32_t i = 0; i < options->nb_stalls; i++) {
		if (options->stall[i].module >= wire->modules) {
			warnx("--fault: found stall of module %u, expected one of the %u from 0",
				options->stall[i].module, wire->modules);
			return -EINVAL;
		}
	}
	faults = calloc(1, sizeof(*faults));
	if (faults == NULL)
		return -ENOMEM;
	faults->options = *options;
	faults->wire = *wire;
	faults->seed = seed;
	faults->idle = options->loss == 0.0 && options->burst_loss == 0.0 &&
		options->reorder == 0.0 && options->duplicate == 0.0 && options->corrupt == 0.0 &&
		options->truncate == 0.0 && options->nb_stalls == 0;
	for (unsigned int i = 0; i < FAULT_DROPS; i++)
		faults->idle &= options->drop[i] == 0.0;
	faults->nb_steps = options->reorder_window + 1;
	faults->first = malloc(faults->nb_steps * sizeof(*faults->first));
	faults->delayed = malloc(faults->nb_steps * sizeof(*faults->delayed));
	if (faults->first == NULL || faults->delayed == NULL) {
		packet_faults_destroy(faults);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < faults->nb_steps; i++) {
		faults->first[i] = LIST_END;
		faults->delayed[i].next = i + 1 < faults->nb_steps ? i + 1 : LIST_END;
	}
	*result = faults;
	return 0;
}

void
packet_faults_destroy(struct packet_faults *faults)
{
	if (faults == NULL)
		return;
	free(faults->first);
	free(faults->delayed);
	free(faults);
}

uint32_t
packet_faults_room(const struct packet_faults *faults)
{
	return 2 * jungfrau_frame_packets(&faults->wire) + faults->nb_steps;
}

uint32_t
packet_faults_delay(const struct packet_faults *faults)
{
	uint32_t packets = jungfrau_frame_packets(&faults->wire);

	return (faults->options.reorder_window + packets - 1) / packets;
}

const uint64_t *
packet_faults_counts(const struct packet_faults *faults)
{
	return faults->count;
}

static bool
is_drawn(struct model_random *random, double probability)
{
	return model_random_uniform(random) < probability;
}

static bool
stalled(const struct packet_faults *faults, uint64_t pulse, uint32_t module)
{
	const struct fault_options *options = &faults->options;

	for (uint32_t i = 0; i < options->nb_stalls; i++)
		if (options->stall[i].module == module && pulse >= options->stall[i].from &&
			pulse <= options->stall[i].to)
			return true;
	return false;
}

/* Decide whether a packet is lost. @return the cause; FAULT_KINDS: not lost */
static enum fault_kind
draw_loss(
	struct packet_faults *faults, const struct wire_packet *packet, struct model_random *random)
{
	bool burst = is_drawn(random, faults->options.burst_loss);
	bool loss = is_drawn(random, faults->options.loss);

	/* a burst consists of packets on the wire; those of a stalled module are not sent */
	if (stalled(faults, packet->pulse, packet->module))
		return FAULT_STALL;
	if (faults->burst_left == 0 && burst)
		faults->burst_left = faults->options.burst_packets;
	if (faults->burst_left > 0) {
		faults->burst_left--;
		return FAULT_BURST_LOSS;
	}
	return loss ? FAULT_LOSS : FAULT_KINDS;
}

static enum fault_kind
draw_damage(const struct packet_faults *faults, struct model_random *random)
{
	uint32_t kinds = faults->options.corrupt_kinds, nth;
	bool corrupt = is_drawn(random, faults->options.corrupt);
	bool truncate = is_drawn(random, faults->options.truncate);

	if (corrupt) {
		nth = model_random_below(random, (uint32_t)__builtin_popcount(kinds));
		while (nth-- > 0)
			kinds &= kinds - 1;
		return (enum fault_kind)__builtin_ctz(kinds);
	}
	return truncate ? FAULT_TRUNCATE : FAULT_KINDS;
}

/*
 * Decide which RoCE packet of a message is lost. The random numbers are a separate sequence, so
 * that the other faults are the same as over UDP with the same seed.
 */
static enum fault_kind
draw_drop(const struct packet_faults *faults, const struct wire_packet *packet, uint32_t place)
{
	struct model_random random = {.counter = model_random_key(faults->seed, MODEL_PURPOSE_DROP,
					      packet->pulse, place)};
	enum fault_kind kind = FAULT_KINDS;

	for (unsigned int i = 0; i < FAULT_DROP_EVENT - FAULT_DROP_FIRST; i++)
		if (is_drawn(&random, faults->options.drop[i]) && kind == FAULT_KINDS)
			kind = FAULT_DROP_FIRST + i;
	return kind;
}

static void
delay_packet(
	struct packet_faults *faults, const struct wire_packet *packet, struct model_random *random)
{
	uint64_t due =
		faults->step + 1 + model_random_below(random, faults->options.reorder_window);
	uint32_t *first = &faults->first[due % faults->nb_steps];
	/* an entry is free: a step delays at most one packet, by less than nb_steps */
	uint32_t entry = faults->unused;

	faults->unused = faults->delayed[entry].next;
	faults->delayed[entry].packet = *packet;
	faults->delayed[entry].next = *first;
	*first = entry;
}

/* Takes the delayed packets that are due at this step. @return their number */
static uint32_t
take_due(struct packet_faults *faults, struct wire_packet *out)
{
	uint32_t *first = &faults->first[faults->step % faults->nb_steps];
	uint32_t count = 0;

	while (*first != LIST_END) {
		uint32_t entry = *first;

		out[count++] = faults->delayed[entry].packet;
		*first = faults->delayed[entry].next;
		faults->delayed[entry].next = faults->unused;
		faults->unused = entry;
	}
	return count;
}

static uint32_t
pass_packet(struct packet_faults *faults, struct wire_packet *packet, struct wire_packet *out,
	struct frame_outcome *outcome)
{
	uint32_t stream = packet->module * faults->wire.interfaces + packet->interface;
	uint32_t place = stream * JUNGFRAU_MODULE_PACKETS + packet->packet;
	struct model_random random = {.counter = model_random_key(faults->seed, MODEL_PURPOSE_FAULT,
					      packet->pulse, place)};
	enum fault_kind kind = draw_loss(faults, packet, &random);
	uint32_t count = 0;
	bool duplicate;

	if (kind != FAULT_KINDS) {
		faults->count[kind]++;
		outcome->lost++;
		packet->damage = (uint8_t)kind;
		if (!faults->options.messages || kind == FAULT_STALL)
			return 0;
		out[0] = *packet;
		return 1;
	}
	kind = draw_damage(faults, &random);
	if (faults->options.messages)
		kind = draw_drop(faults, packet, place);
	packet->damage = (uint8_t)kind;
	packet->random = model_random_next(&random);
	if (kind != FAULT_KINDS)
		faults->count[kind]++;
	if (kind >= FAULT_DROP_FIRST && kind != FAULT_KINDS)
		outcome->lost++;
	else if (kind != FAULT_KINDS && kind != FAULT_CORRUPT_PIXELS)
		outcome->damaged++;
	else
		outcome->sent++;

	/* a copy of a damaged packet would be counted as another damaged one */
	duplicate = is_drawn(&random, faults->options.duplicate) && kind == FAULT_KINDS;
	if (duplicate) {
		faults->count[FAULT_DUPLICATE]++;
		outcome->duplicated++;
		out[count++] = *packet;
	}
	if (is_drawn(&random, faults->options.reorder)) {
		faults->count[FAULT_REORDER]++;
		outcome->reordered++;
		delay_packet(faults, packet, &random);
	} else {
		out[count++] = *packet;
	}
	return count;
}

uint32_t
packet_faults_frame(struct packet_faults *faults, uint64_t pulse, struct wire_packet *out,
	struct frame_outcome *outcome)
{
	const struct jungfrau_wire *wire = &faults->wire;
	uint32_t packets = jungfrau_stream_packets(wire), count = 0;
	struct wire_packet packet = {.pulse = pulse, .damage = FAULT_KINDS};

	*outcome = (struct frame_outcome){0};
	for (uint32_t i = 0; i < faults->options.nb_restarts; i++)
		faults->count[FAULT_RESTART] += faults->options.restart[i].pulse == pulse;
	for (uint32_t p = 0; p < packets; p++) {
		for (uint32_t m = 0; m < wire->modules; m++) {
			for (uint32_t i = 0; i < wire->interfaces; i++) {
				packet.module = (uint16_t)m;
				packet.interface = (uint8_t)i;
				packet.packet = jungfrau_stream_first(wire, i) + p;
				if (faults->idle) {
					out[count++] = packet;
					continue;
				}
				count += pass_packet(faults, &packet, out + count, outcome);
				count += take_due(faults, out + count);
				faults->step++;
			}
		}
	}
	if (faults->idle)
		outcome->sent = count;
	return count;
}

enum fault_kind
packet_faults_event(
	struct packet_faults *faults, uint64_t pulse, uint32_t module, uint32_t interface)
{
	/* a packet number that no message has */
	const uint32_t place = (module * faults->wire.interfaces + interface) |
		(uint32_t)JUNGFRAU_MODULES_MAX * 2 * JUNGFRAU_MODULE_PACKETS;
	struct model_random random = {
		.counter = model_random_key(faults->seed, MODEL_PURPOSE_DROP, pulse, place)};

	if (stalled(faults, pulse, module))
		return FAULT_STALL;
	if (!is_drawn(&random, faults->options.drop[FAULT_DROP_EVENT - FAULT_DROP_FIRST]))
		return FAULT_KINDS;
	faults->count[FAULT_DROP_EVENT]++;
	return FAULT_DROP_EVENT;
}

uint32_t
packet_faults_flush(struct packet_faults *faults, struct wire_packet *out)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < faults->nb_steps; i++, faults->step++)
		count += take_due(faults, out + count);
	return count;
}

uint32_t
wire_packet_damage(const struct wire_packet *packet, uint8_t bytes[JUNGFRAU_PACKET_BYTES])
{
	uint8_t *sls = bytes + JUNGFRAU_SLS_OFFSET;
	uint64_t random = packet->random;

	switch ((enum fault_kind)packet->damage) {
	case FAULT_CORRUPT_PORT:
		/* far from every port of the detector, which has at most 64 */
		bytes[JUNGFRAU_SLS_OFFSET - 6] ^= 0x80;
		break;
	case FAULT_CORRUPT_VERSION:
		sls[47] ^= 1u << random % 8;
		break;
	case FAULT_CORRUPT_PACKET:
		/* bits 8 to 31: above the largest of 128 packet numbers */
		sls[13 + random % 3] ^= 1u << (random >> 8) % 8;
		break;
	case FAULT_CORRUPT_FRAME:
		/* bits 32 to 63 */
		sls[4 + random % 4] ^= 1u << (random >> 8) % 8;
		break;
	case FAULT_CORRUPT_PIXELS:
		sls[JUNGFRAU_SLS_BYTES + random % JUNGFRAU_PAYLOAD_BYTES] ^= 1u
			<< (random >> 32) % 8;
		break;
	case FAULT_TRUNCATE:
		return TRUNCATED_MIN + (uint32_t)(random % (JUNGFRAU_PACKET_BYTES - TRUNCATED_MIN));
	default:
		break;
	}
	return JUNGFRAU_PACKET_BYTES;
}
