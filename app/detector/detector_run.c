/* SPDX-License-Identifier: BSD-3-Clause */

#include "detector_run.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "output/calibration_output.h"
#include "output/report.h"
#include "frame_source.h"
#include "output/output_file.h"
#include "wire/messages.h"
#include "wire/packet_faults.h"
#include "wire/roce_packets.h"
#include "output/pcap_output.h"
#include "wire/pulse_header.h"
#include "output/spots_output.h"
#include "output/truth_output.h"

/* Capture time of the first packet: 2026-01-01 00:00 UTC, fixed so that equal runs produce equal
 * files. */
#define CAPTURE_START 1767225600000000000ull
#define NS_PER_S      1000000000.0

/* Interval of the packets of a frame, as on one 100 Gb/s link: 8306 bytes with preamble, frame
 * check sequence and gap. */
#define PACKET_NS (8306.0 * 8.0 / 100.0)

/* The same for a RoCE packet: 106 bytes in addition to its payload. */
#define ROCE_PACKET_NS(mtu) (((mtu) + 106.0) * 8.0 / 100.0)

volatile sig_atomic_t detector_stop;

/* A frame is kept until its last packet has been sent. */
struct kept_frame {
	struct jungfrau_frame_header header;
	uint16_t *raw; /* [modules][pixels] */
	/* bit mask of the packets that a replayed run lacks */
	uint8_t missing[JUNGFRAU_MODULES_MAX * JUNGFRAU_MODULE_PACKETS / 8];
};

struct run {
	const struct detector_options *options;
	struct frame_source source;
	struct pulse_numbering numbering;
	struct packet_faults *faults;
	struct wire_packet *packets; /* packets that are sent with a frame */
	struct kept_frame *kept;     /* indexed by pulse modulo nb_kept */
	uint32_t nb_kept;
	struct ingest_card card;   /* with transport send or write */
	struct roce_packets *roce; /* NULL: UDP packets are written */
	struct frame_truth truth;
	struct detector_report report;
	struct pcap_output pcap;
	struct output_file truth_output;
	struct output_file spots_output;
	struct output_file raw_output;
	struct output_file report_output;
};

/* Print the progress, every 200 ms on a terminal, otherwise every 5 s to show activity in a log. */
static void
show_progress(uint64_t done, uint64_t frames, uint64_t start, uint64_t *shown)
{
	bool terminal = isatty(STDERR_FILENO) != 0;
	uint64_t now = (uint64_t)monotonic_ms();

	if (now - *shown < (terminal ? 200 : 5000))
		return;
	*shown = now;
	fprintf(stderr, "%sbraggline-detector: frame %llu of %llu, %.0f frames/s%s",
		terminal ? "\r" : "", (unsigned long long)done, (unsigned long long)frames,
		done * 1000.0 / (double)(now - start), terminal ? "\033[K" : "\n");
}

static void
end_progress(uint64_t start, uint64_t shown)
{
	if (shown != start && isatty(STDERR_FILENO))
		fprintf(stderr, "\r\033[K");
}

/* Packets that were missing in a replayed run stay missing. */
static bool
is_missing(const struct jungfrau_wire *wire, const struct kept_frame *kept,
	const struct wire_packet *packet)
{
	const uint32_t place = packet->module * JUNGFRAU_MODULE_PACKETS +
		jungfrau_payload_offset(wire, packet->interface, packet->packet) /
			JUNGFRAU_PAYLOAD_BYTES;

	return kept->missing[place / 8] >> place % 8 & 1;
}

static int
write_packet(struct run *run, const struct wire_packet *packet, uint64_t time)
{
	const struct kept_frame *kept = &run->kept[packet->pulse % run->nb_kept];
	uint8_t bytes[JUNGFRAU_PACKET_BYTES];
	uint32_t length;

	if (is_missing(&run->options->wire, kept, packet))
		return 0;
	jungfrau_packet_make(&run->options->wire, &kept->header, packet->module, packet->interface,
		packet->packet, kept->raw + (size_t)packet->module * JUNGFRAU_PIXELS, bytes);
	length = wire_packet_damage(packet, bytes);
	run->report.sent++;
	run->report.bytes += length;
	return pcap_output_packet(&run->pcap, time, bytes, length);
}

/* Write the packets of a message that arrive. */
static int
write_roce(struct run *run, const struct roce_message *message, bool lost, uint32_t dropped,
	double time, double step)
{
	const uint32_t count = roce_packets_count(run->roce, message);
	uint8_t bytes[ROCE_PACKET_BYTES_MAX];
	uint32_t length;
	int ret = 0;

	for (uint32_t i = 0; ret == 0 && !lost && i < count; i++) {
		if (i == dropped)
			continue;
		length = roce_packets_make(run->roce, message, i, bytes);
		run->report.bytes += length;
		ret = pcap_output_packet(
			&run->pcap, CAPTURE_START + (uint64_t)(time + i * step), bytes, length);
	}
	roce_packets_done(run->roce, message);
	return ret;
}

static int
write_message(struct run *run, const struct wire_packet *packet, double time, double step)
{
	const struct jungfrau_wire *wire = &run->options->wire;
	const struct kept_frame *kept = &run->kept[packet->pulse % run->nb_kept];
	const uint16_t *raw = kept->raw + (size_t)packet->module * JUNGFRAU_PIXELS;
	const uint32_t stream = message_stream(wire, packet);
	struct message_ends ends;
	const struct roce_message message = {.stream = stream,
		.pixels = (const uint8_t *)raw +
			jungfrau_payload_offset(wire, packet->interface, packet->packet),
		.ends = &ends,
		.address = ingest_address(&run->card, stream, kept->header.number, packet->packet)};

	if (is_missing(wire, kept, packet))
		return 0;
	message_make_ends(wire, &kept->header, packet, &ends);
	run->report.sent += !message_is_lost(packet);
	return write_roce(run, &message, message_is_lost(packet),
		message_dropped(packet, message_packets(&run->card)), time, step);
}

/* Write the events of a frame. */
static int
write_events(struct run *run, uint64_t pulse, double time, double step)
{
	const struct jungfrau_wire *wire = &run->options->wire;
	const uint64_t number = run->kept[pulse % run->nb_kept].header.number;
	int ret = 0;

	for (uint32_t s = 0; ret == 0 && s < run->card.streams; s++) {
		const struct roce_message event = {
			.stream = s, .immediate = ingest_immediate(s, number)};
		const enum fault_kind fault = packet_faults_event(
			run->faults, pulse, s / wire->interfaces, s % wire->interfaces);

		if (fault == FAULT_STALL)
			continue;
		run->report.events += fault == FAULT_KINDS;
		ret = write_roce(
			run, &event, fault != FAULT_KINDS, UINT32_MAX, time + s * step, step);
	}
	return ret;
}

/* As write_packets(), for messages. @param event  events of the pulse follow */
static int
write_messages(struct run *run, uint64_t index, uint64_t pulse, uint32_t count, bool event)
{
	const double period = NS_PER_S / run->options->rate;
	const double start = (double)index * period;
	const uint32_t packets = message_packets(&run->card);
	double step = period / (double)((uint64_t)count * packets + INGEST_STREAMS_MAX);
	int ret = 0;

	if (step > ROCE_PACKET_NS(run->card.mtu))
		step = ROCE_PACKET_NS(run->card.mtu);
	for (uint32_t i = 0; ret == 0 && i < count; i++)
		ret = write_message(
			run, &run->packets[i], start + (double)i * packets * step, step);
	if (ret == 0 && event)
		ret = write_events(run, pulse, start + (double)count * packets * step, step);
	return ret;
}

/* Packets are sent at the speed of the link. If they take longer than the period, they are
 * compressed into it, so that the time stamps of the file stay in order. */
static int
write_packets(struct run *run, uint64_t index, uint32_t count)
{
	double period = NS_PER_S / run->options->rate;
	uint64_t start = CAPTURE_START + (uint64_t)((double)index * period);
	double step = period / (count > 0 ? count : 1);
	int ret = 0;

	if (step > PACKET_NS)
		step = PACKET_NS;
	for (uint32_t i = 0; ret == 0 && i < count; i++)
		ret = write_packet(run, &run->packets[i], start + (uint64_t)(i * step));
	return ret;
}

static int
make_frame(struct run *run, uint64_t index)
{
	const struct detector_options *options = run->options;
	uint64_t pulse = options->first_frame + index;
	struct kept_frame *kept = &run->kept[pulse % run->nb_kept];
	struct frame_outcome outcome;
	uint32_t count;
	int ret;

	ret = frame_source_make(
		&run->source, pulse, kept->raw, options->truth_path != NULL ? &run->truth : NULL);
	if (ret != 0)
		return ret;
	if (run->source.run != NULL) {
		kept->header = run->source.header;
		memcpy(kept->missing, run->source.missing,
			options->model.modules * JUNGFRAU_MODULE_PACKETS / 8);
	} else {
		kept->header = pulse_header(&run->numbering, pulse,
			run->source.model != NULL && run->source.frame.dark);
	}
	count = packet_faults_frame(run->faults, pulse, run->packets, &outcome);
	detector_report_frame(&run->report, &outcome);

	if (options->pcap_path != NULL)
		ret = run->roce != NULL ? write_messages(run, index, pulse, count, true)
					: write_packets(run, index, count);
	if (ret == 0 && options->truth_path != NULL)
		ret = truth_output_frame(
			&run->truth_output, &run->numbering, pulse, &run->truth, &outcome);
	if (ret == 0 && options->spots_path != NULL)
		ret = spots_output_frame(&run->spots_output, run->source.model, kept->header.number,
			&run->source.frame);
	if (ret == 0 && options->raw_path != NULL)
		ret = output_file_write(&run->raw_output, kept->raw,
			(size_t)options->model.modules * JUNGFRAU_PIXELS * sizeof(*kept->raw));
	return ret;
}

static int
make_frames(struct run *run)
{
	uint64_t start = (uint64_t)monotonic_ms(), shown = start, frames = run->source.frames;
	uint32_t count;
	int ret = 0;

	for (uint64_t i = 0; ret == 0 && i < frames; i++) {
		ret = make_frame(run, i);
		if (detector_stop != 0)
			ret = -EINTR;
		show_progress(i + 1, frames, start, &shown);
	}
	end_progress(start, shown);
	count = packet_faults_flush(run->faults, run->packets);
	if (ret == 0 && run->options->pcap_path != NULL)
		ret = run->roce != NULL ? write_messages(run, frames, 0, count, false)
					: write_packets(run, frames, count);
	memcpy(run->report.fault, packet_faults_counts(run->faults), sizeof(run->report.fault));
	return ret;
}

static int
open_frames(struct run *run)
{
	const struct detector_options *options = run->options;
	size_t bytes = (size_t)options->model.modules * JUNGFRAU_PIXELS * sizeof(uint16_t);
	int ret;

	run->numbering = detector_options_numbering(options);
	ret = packet_faults_create(&options->faults, &options->wire,
		detector_options_fault_seed(options), &run->faults);
	if (ret != 0)
		return ret;
	run->nb_kept = packet_faults_delay(run->faults) + 1;
	run->packets = malloc(packet_faults_room(run->faults) * sizeof(*run->packets));
	run->kept = calloc(run->nb_kept, sizeof(*run->kept));
	if (run->packets == NULL || run->kept == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < run->nb_kept; i++) {
		run->kept[i].raw = malloc(bytes);
		if (run->kept[i].raw == NULL)
			return -ENOMEM;
	}
	if (options->transport != INGEST_UDP && options->pcap_path != NULL)
		ret = message_card_read(
			&run->card, options->card_path, options->transport, &options->wire);
	if (ret == 0 && run->card.streams > 0)
		ret = roce_packets_create(&run->card, &options->wire, &run->roce);
	return ret == 0 ? frame_source_open(&run->source, options) : ret;
}

static void
close_frames(struct run *run)
{
	for (uint32_t i = 0; run->kept != NULL && i < run->nb_kept; i++)
		free(run->kept[i].raw);
	free(run->kept);
	free(run->packets);
	packet_faults_destroy(run->faults);
	roce_packets_destroy(run->roce);
	frame_source_close(&run->source);
}

static int
open_outputs(struct run *run)
{
	const struct detector_options *options = run->options;
	int ret = 0;

	if (options->pcap_path != NULL)
		ret = pcap_output_open(&run->pcap, options->pcap_path);
	if (ret == 0 && options->truth_path != NULL)
		ret = truth_output_open(&run->truth_output, options->truth_path);
	if (ret == 0 && options->spots_path != NULL)
		ret = spots_output_open(&run->spots_output, options->spots_path);
	if (ret == 0 && options->raw_path != NULL)
		ret = output_file_open(&run->raw_output, options->raw_path);
	if (ret == 0 && options->report_path != NULL)
		ret = output_file_open(&run->report_output, options->report_path);
	return ret;
}

static int
commit_outputs(struct run *run)
{
	int ret = 0;

	if (run->options->report_path != NULL) {
		ret = detector_report_write(&run->report, &run->report_output);
		if (ret == 0)
			ret = output_file_commit(&run->report_output);
	}
	if (ret == 0 && run->options->pcap_path != NULL)
		ret = pcap_output_commit(&run->pcap);
	if (ret == 0 && run->options->truth_path != NULL)
		ret = output_file_commit(&run->truth_output);
	if (ret == 0 && run->options->spots_path != NULL)
		ret = output_file_commit(&run->spots_output);
	if (ret == 0 && run->options->raw_path != NULL)
		ret = output_file_commit(&run->raw_output);
	return ret;
}

int
detector_run(const struct detector_options *options)
{
	struct run *run = calloc(1, sizeof(*run));
	int ret;

	if (run == NULL)
		return -ENOMEM;
	run->options = options;
	ret = open_frames(run);
	if (ret == 0)
		ret = open_outputs(run);
	if (ret == 0 && options->calibration_path != NULL)
		ret = calibration_output_write(run->source.model, options->model.modules,
			options->calibration_path, &detector_stop);
	if (ret == 0)
		ret = make_frames(run);
	if (ret == 0)
		ret = commit_outputs(run);
	if (ret == -EINTR)
		warnx("interrupted; unfinished files are removed");
	else if (ret == -ENOMEM)
		warnx("out of memory");

	/* outputs that are already committed are closed and stay */
	pcap_output_discard(&run->pcap);
	output_file_discard(&run->truth_output);
	output_file_discard(&run->spots_output);
	output_file_discard(&run->raw_output);
	output_file_discard(&run->report_output);
	close_frames(run);
	free(run);
	return ret;
}
