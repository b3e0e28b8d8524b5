/* SPDX-License-Identifier: BSD-3-Clause */
/* Sends frames as RDMA messages of one queue pair for each stream. */

#include <rte_cycles.h>

#include "transmit/loop.h"
#include "transmit/streams.h"
#include "wire/messages.h"

/* Messages that are posted before the device is polled. */
#define POST_BURST 32

/* Time of waiting for a credit after which the last event is sent again: it may be lost. */
#define EVENT_AGAIN_MS 100

static int
messages_init(struct transmit_loop *loop)
{
	RTE_SET_USED(loop);
	return 0;
}

static void
messages_release(struct transmit_loop *loop)
{
	RTE_SET_USED(loop);
}

static bool
messages_poll(const struct transmit_loop *loop)
{
	return transmit_streams_poll(loop->streams);
}

/* Wait for room in a send queue. @return NULL: the run ends */
static struct message_ends *
wait_room(struct transmit_loop *loop, uint32_t stream)
{
	uint64_t since = 0;
	struct message_ends *ends;

	for (;;) {
		if (transmit_streams_failed(loop->streams)) {
			loop->timed_out = true;
			return NULL;
		}
		ends = transmit_streams_ends(loop->streams, stream);
		if (ends != NULL)
			break;
		if (since == 0) {
			since = rte_rdtsc();
			loop->report->full++;
		}
		if (!transmit_streams_poll(loop->streams) &&
			!transmit_loop_keep_trying(loop, since))
			return NULL;
	}
	if (since != 0)
		loop->waited += rte_rdtsc() - since;
	return ends;
}

/* Wait until the receiver's ring has room for a frame. @return false: the run ends */
static bool
wait_credit(struct transmit_loop *loop, uint32_t stream, uint64_t pulse, uint64_t number)
{
	const uint64_t since = rte_rdtsc();
	const uint64_t again = rte_get_tsc_hz() / 1000 * EVENT_AGAIN_MS;
	uint64_t due = since + again;

	if (likely(transmit_streams_credit(loop->streams, stream, pulse, number)))
		return true;
	loop->report->credit_waits++;
	do {
		transmit_streams_poll(loop->streams);
		if (transmit_streams_failed(loop->streams)) {
			loop->timed_out = true;
			return false;
		}
		if ((int64_t)(rte_rdtsc() - due) >= 0 &&
			transmit_streams_event_again(loop->streams, stream)) {
			loop->report->events_again++;
			due += again;
		}
		if (!transmit_loop_keep_trying(loop, since)) {
			loop->no_credit = true;
			return false;
		}
	} while (!transmit_streams_credit(loop->streams, stream, pulse, number));
	loop->credit_waited += rte_rdtsc() - since;
	return true;
}

static void
post(struct transmit_loop *loop, const struct wire_packet *packet)
{
	const struct jungfrau_wire *wire = loop->wire;
	const struct ingest_card *card = transmit_streams_card(loop->streams);
	const struct jungfrau_frame_header *header = &loop->kept[packet->pulse % loop->nb_kept];
	const uint32_t frame = (uint32_t)((packet->pulse - loop->first) % loop->frames->nb_frames);
	const uint32_t stream = message_stream(wire, packet);
	const uint8_t *raw = (const uint8_t *)(loop->frames->frame[frame].raw +
		(size_t)packet->module * JUNGFRAU_PIXELS);
	const struct transmit_message message = {
		.stream = stream,
		.frame = frame,
		.pixels = raw + jungfrau_payload_offset(wire, packet->interface, packet->packet),
		.address = ingest_address(card, stream, header->number, packet->packet),
		.dropped = message_is_lost(packet) ? TRANSMIT_DROP_ALL
						   : message_dropped(packet, message_packets(card)),
	};
	struct message_ends *ends;

	if (!wait_credit(loop, stream, packet->pulse, header->number))
		return;
	ends = wait_room(loop, stream);
	if (ends == NULL)
		return;
	message_make_ends(wire, header, packet, ends);
	loop->report->bytes += transmit_streams_post(loop->streams, &message);
	loop->report->sent += !message_is_lost(packet);
}

static void
messages_send(struct transmit_loop *loop, uint32_t count, uint64_t due)
{
	const double gap = loop->burst_gap * 1e-9 * (double)rte_get_tsc_hz();

	for (uint32_t i = 0; i < count && !loop->timed_out; i++) {
		if (loop->burst_gap != 0)
			transmit_loop_wait(loop, due + (uint64_t)(i * gap));
		post(loop, &loop->packets[i]);
		if (i % POST_BURST == POST_BURST - 1 || loop->burst_gap != 0)
			transmit_streams_poll(loop->streams);
	}
}

static void
messages_end_frame(struct transmit_loop *loop, uint64_t pulse)
{
	const struct jungfrau_wire *wire = loop->wire;
	const uint64_t number = loop->kept[pulse % loop->nb_kept].number;
	const uint32_t streams = wire->modules * wire->interfaces;

	for (uint32_t s = 0; s < streams && !loop->timed_out; s++) {
		const enum fault_kind fault = packet_faults_event(
			loop->faults, pulse, s / wire->interfaces, s % wire->interfaces);
		const struct transmit_message event = {
			.stream = s,
			.immediate = ingest_immediate(s, number),
			.dropped = fault == FAULT_KINDS ? TRANSMIT_DROP_NONE : TRANSMIT_DROP_ALL,
		};

		if (fault == FAULT_STALL || !wait_credit(loop, s, pulse, number) ||
			wait_room(loop, s) == NULL)
			continue;
		loop->report->bytes += transmit_streams_post(loop->streams, &event);
		loop->report->events += fault == FAULT_KINDS;
	}
	transmit_streams_poll(loop->streams);
}

static void
messages_finish(struct transmit_loop *loop)
{
	uint64_t since = rte_rdtsc();

	while (!transmit_streams_idle(loop->streams) && !transmit_streams_failed(loop->streams)) {
		if (transmit_streams_poll(loop->streams))
			since = rte_rdtsc();
		else if (!transmit_loop_keep_trying(loop, since))
			return;
	}
}

const struct transmit_sender transmit_messages = {
	.init = messages_init,
	.send = messages_send,
	.end_frame = messages_end_frame,
	.poll = messages_poll,
	.finish = messages_finish,
	.release = messages_release,
};
