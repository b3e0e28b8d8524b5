/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends frames as fragments of messages, to the multicast group of each stream. */

#include <rte_cycles.h>

#include "ingest/multicast.h"
#include "transmit/loop.h"
#include "transmit/multicast.h"
#include "wire/messages.h"

#define MESSAGE_BYTES (JUNGFRAU_PAYLOAD_BYTES + INGEST_TRAILER_BYTES)

/* Messages that are sent before the device is polled. */
#define SEND_BURST 8

/* Time for members to notice the end and to leave. */
#define LEAVE_MS 1000

static int
fragments_init(struct transmit_loop *loop)
{
	RTE_SET_USED(loop);
	return 0;
}

static void
fragments_release(struct transmit_loop *loop)
{
	RTE_SET_USED(loop);
}

static bool
fragments_poll(const struct transmit_loop *loop)
{
	return transmit_multicast_poll(loop->multicast);
}

/* Wait for room in a ring. @return NULL: the run ends */
static uint8_t *
wait_room(struct transmit_loop *loop, uint32_t stream)
{
	uint64_t since = 0;
	uint8_t *slot;

	while ((slot = transmit_multicast_next(loop->multicast, stream)) == NULL) {
		if (since == 0) {
			since = rte_rdtsc();
			loop->report->full++;
		}
		transmit_multicast_poll(loop->multicast);
		if (transmit_multicast_failed(loop->multicast))
			loop->timed_out = true;
		if (loop->timed_out || !transmit_loop_keep_trying(loop, since))
			return NULL;
	}
	if (since != 0)
		loop->waited += rte_rdtsc() - since;
	return slot;
}

/* Copy bytes of a message, which has its pixels and its trailer in two places. */
static void
copy_part(uint8_t *to, const uint8_t *pixels, const struct message_ends *ends, uint32_t offset,
	uint32_t bytes)
{
	uint32_t of_pixels = 0;

	if (offset < JUNGFRAU_PAYLOAD_BYTES) {
		of_pixels = RTE_MIN(bytes, JUNGFRAU_PAYLOAD_BYTES - offset);
		memcpy(to, pixels + offset, of_pixels);
	}
	memcpy(to + of_pixels, ends->trailer + (offset + of_pixels - JUNGFRAU_PAYLOAD_BYTES),
		bytes - of_pixels);
}

/* Send a message. @param dropped  fragment that is not sent; UINT32_MAX: none */
static void
post(struct transmit_loop *loop, struct ingest_fragment *f, const uint8_t *pixels,
	const struct message_ends *ends, uint32_t dropped)
{
	const uint32_t max = transmit_multicast_fragment_max(loop->multicast);

	for (uint32_t i = 0; f->offset < f->message; i++, f->offset += max) {
		const uint32_t bytes = RTE_MIN(max, f->message - f->offset);
		uint8_t *slot;

		if (i == dropped)
			continue;
		slot = wait_room(loop, f->stream);
		if (slot == NULL)
			return;
		ingest_fragment_encode(f, slot);
		copy_part(slot + sizeof(*f), pixels, ends, f->offset, bytes);
		loop->report->bytes +=
			transmit_multicast_commit(loop->multicast, f->stream, sizeof(*f) + bytes);
	}
}

static void
send_message(struct transmit_loop *loop, const struct wire_packet *packet)
{
	const struct jungfrau_wire *wire = loop->wire;
	const struct jungfrau_frame_header *header = &loop->kept[packet->pulse % loop->nb_kept];
	const uint64_t frame = (packet->pulse - loop->first) % loop->frames->nb_frames;
	const uint8_t *raw = (const uint8_t *)(loop->frames->frame[frame].raw +
		(size_t)packet->module * JUNGFRAU_PIXELS);
	const uint32_t max = transmit_multicast_fragment_max(loop->multicast);
	struct ingest_fragment f = {
		.stream = (uint16_t)message_stream(wire, packet),
		.frame = header->number,
		.tile = packet->packet,
		.message = MESSAGE_BYTES,
		.tiles = JUNGFRAU_MODULE_PACKETS / wire->interfaces,
	};
	struct message_ends ends;

	/* a fragment that is lost here is not in the ring: no member can get it */
	if (message_is_lost(packet))
		return;
	message_make_ends(wire, header, packet, &ends);
	post(loop, &f, raw + jungfrau_payload_offset(wire, packet->interface, packet->packet),
		&ends, message_dropped(packet, (MESSAGE_BYTES + max - 1) / max));
	loop->report->sent += !loop->timed_out;
}

static void
fragments_send(struct transmit_loop *loop, uint32_t count, uint64_t due)
{
	const double gap = loop->burst_gap * 1e-9 * (double)rte_get_tsc_hz();

	for (uint32_t i = 0; i < count && !loop->timed_out; i++) {
		if (loop->burst_gap != 0)
			transmit_loop_wait(loop, due + (uint64_t)(i * gap));
		send_message(loop, &loop->packets[i]);
		if (i % SEND_BURST == SEND_BURST - 1 || loop->burst_gap != 0)
			transmit_multicast_poll(loop->multicast);
	}
}

static void
fragments_end_frame(struct transmit_loop *loop, uint64_t pulse)
{
	const struct jungfrau_wire *wire = loop->wire;

	for (uint32_t s = 0; s < wire->modules * wire->interfaces && !loop->timed_out; s++) {
		const struct ingest_fragment event = {
			.stream = (uint16_t)s,
			.frame = loop->kept[pulse % loop->nb_kept].number,
			.tile = INGEST_EVENT,
			.tiles = JUNGFRAU_MODULE_PACKETS / wire->interfaces,
		};
		uint8_t *slot;

		if (packet_faults_event(loop->faults, pulse, s / wire->interfaces,
			    s % wire->interfaces) != FAULT_KINDS)
			continue;
		slot = wait_room(loop, s);
		if (slot == NULL)
			return;
		ingest_fragment_encode(&event, slot);
		loop->report->bytes += transmit_multicast_commit(loop->multicast, s, sizeof(event));
		loop->report->events++;
	}
	transmit_multicast_poll(loop->multicast);
}

static void
fragments_finish(struct transmit_loop *loop)
{
	uint64_t since = rte_rdtsc();

	transmit_multicast_end(loop->multicast);
	while (!transmit_multicast_complete(loop->multicast)) {
		transmit_multicast_poll(loop->multicast);
		if (transmit_multicast_failed(loop->multicast))
			loop->timed_out = true;
		if (loop->timed_out || !transmit_loop_keep_trying(loop, since))
			return;
	}
	since = rte_rdtsc();
	while (!transmit_multicast_left(loop->multicast) &&
		rte_rdtsc() - since < rte_get_tsc_hz() / 1000 * LEAVE_MS)
		transmit_multicast_poll(loop->multicast);
}

const struct transmit_sender transmit_fragments = {
	.init = fragments_init,
	.send = fragments_send,
	.end_frame = fragments_end_frame,
	.poll = fragments_poll,
	.finish = fragments_finish,
	.release = fragments_release,
};
