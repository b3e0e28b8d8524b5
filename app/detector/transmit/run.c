/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/run.h"

#include <err.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "output/calibration_output.h"
#include "detector_run.h"
#include "eal/end.h"
#include "transmit/loop.h"
#include "transmit/multicast.h"
#include "transmit/streams.h"
#include "output/truth_output.h"

/* Frames drawn if the options do not specify a number. */
#define DRAWN_BYTES ((uint64_t)128 << 20)

struct transmit {
	const struct detector_options *options;
	struct frame_source source;
	struct pulse_numbering numbering;
	struct transmit_frames frames;
	struct transmit_port port;	  /* transport udp */
	struct transmit_streams *streams; /* transport send, write */
	struct transmit_multicast *multicast;
	struct packet_faults *faults;
	struct transmit_loop loop;
	struct detector_report report;
	struct output_file truth;
	struct output_file report_output;
};

static uint64_t
frames_to_draw(const struct detector_options *options, uint64_t frames)
{
	uint64_t bytes = (uint64_t)options->model.modules * JUNGFRAU_PIXELS * sizeof(uint16_t);
	uint64_t dark_every = options->model.dark_every;
	uint64_t nb = options->distinct;

	if (options->pack)
		return frames;
	if (nb == 0) {
		nb = RTE_MAX(DRAWN_BYTES / bytes, 1u);
		/* keeps dark frames evenly spaced when frames repeat */
		if (dark_every != 0)
			nb = RTE_MAX(nb / dark_every, 1u) * dark_every;
	}
	return options->loop ? nb : RTE_MIN(nb, frames);
}

static int
open_outputs(struct transmit *run)
{
	const struct detector_options *options = run->options;
	int ret = 0;

	if (options->calibration_path != NULL)
		ret = calibration_output_write(run->source.model, options->model.modules,
			options->calibration_path, &detector_stop);
	if (ret == 0 && options->truth_path != NULL)
		ret = truth_output_open(&run->truth, options->truth_path);
	if (ret == 0 && options->report_path != NULL)
		ret = output_file_open(&run->report_output, options->report_path);
	return ret;
}

static int
open_run(struct transmit *run)
{
	const struct detector_options *options = run->options;
	uint64_t nb_frames;
	int ret;

	run->numbering = detector_options_numbering(options);
	ret = frame_source_open(&run->source, options);
	if (ret == 0)
		ret = packet_faults_create(&options->faults, &options->wire,
			detector_options_fault_seed(options), &run->faults);
	if (ret == 0)
		ret = open_outputs(run);
	if (ret != 0)
		return ret;
	nb_frames = frames_to_draw(options, run->source.frames);
	if (nb_frames > UINT32_MAX) {
		warnx("--distinct: found %llu, expected less than 2^32",
			(unsigned long long)nb_frames);
		return -EINVAL;
	}
	/* report a missing port before the frames are drawn */
	if (options->transport == INGEST_MULTICAST)
		ret = transmit_multicast_open(options, &run->multicast);
	else if (options->device_name != NULL)
		ret = transmit_streams_open(options, &run->streams);
	else
		ret = transmit_port_open(&run->port, options->port_name);
	if (ret == 0)
		ret = transmit_frames_load(&run->frames, &run->source, options->first_frame,
			(uint32_t)nb_frames, &detector_stop);
	if (ret != 0)
		return ret;
	if (run->multicast != NULL)
		return transmit_multicast_start(run->multicast, options->link_wait, &detector_stop);
	if (run->streams == NULL)
		return transmit_port_start(&run->port, options->link_wait, &detector_stop);
	ret = transmit_streams_register(run->streams, &run->frames);
	return ret == 0 ? transmit_streams_connect(run->streams, options->link_wait, &detector_stop)
			: ret;
}

static int
transmit(struct transmit *run)
{
	const struct detector_options *options = run->options;
	/* the lcore that polls an RDMA device is here its control lcore, too */
	unsigned int worker =
		options->device_name == NULL ? rte_get_next_lcore(-1, 1, 0) : RTE_MAX_LCORE;
	int ret;

	run->report.requested_rate = options->rate;
	run->loop = (struct transmit_loop){
		.sender = run->multicast != NULL ? &transmit_fragments
			: run->streams != NULL	 ? &transmit_messages
						 : &transmit_packets,
		.wire = &options->wire,
		.numbering = &run->numbering,
		.frames = &run->frames,
		.port = &run->port,
		.streams = run->streams,
		.multicast = run->multicast,
		.faults = run->faults,
		.stop = &detector_stop,
		.first = options->first_frame,
		.nb_frames = options->loop ? UINT64_MAX : run->source.frames,
		.burst_gap = options->burst_gap,
		.link_timeout_s = RTE_MAX(options->link_wait, 1u),
		.rate = options->rate,
		.report = &run->report,
	};
	ret = transmit_loop_init(&run->loop);
	if (ret != 0)
		return ret;
	if (worker >= RTE_MAX_LCORE)
		return transmit_loop_run(&run->loop);
	ret = rte_eal_remote_launch(transmit_loop_run, &run->loop, worker);
	return ret == 0 ? rte_eal_wait_lcore(worker) : ret;
}

/* Repeats the faults over the frames that were sent, for the truth of each frame. */
static int
write_truth(struct transmit *run)
{
	const struct detector_options *options = run->options;
	struct packet_faults *faults = NULL;
	struct frame_outcome outcome;
	int ret;

	ret = packet_faults_create(
		&options->faults, &options->wire, detector_options_fault_seed(options), &faults);
	for (uint64_t i = 0; ret == 0 && i < run->report.frames; i++) {
		uint64_t pulse = options->first_frame + i;

		packet_faults_frame(faults, pulse, run->loop.packets, &outcome);
		ret = truth_output_frame(&run->truth, &run->numbering, pulse,
			&run->frames.frame[i % run->frames.nb_frames].truth, &outcome);
	}
	packet_faults_destroy(faults);
	if (ret == 0)
		ret = output_file_commit(&run->truth);
	return ret;
}

/* Reports why the loop has ended with an error. */
static void
explain(const struct transmit *run)
{
	const bool device = run->options->device_name != NULL;
	const unsigned int link_timeout_s =
		detector_stop != 0 ? 1 : (unsigned int)run->loop.link_timeout_s;

	if (run->multicast != NULL && transmit_multicast_late(run->multicast, link_timeout_s) > 0)
		warnx("aborted; these members lack packets");
	else if (run->streams != NULL && transmit_streams_failed(run->streams))
		warnx("aborted, messages of the last frames are missing");
	else if (run->loop.no_credit)
		warnx("the receiver at %s gave no credit for %u s; aborted, messages of the last "
		      "frames are missing",
			run->options->connect, link_timeout_s);
	else
		warnx("%s %s accepted no packet for %u s; aborted, packets of the last frames "
		      "are missing",
			device ? "device" : "port",
			device ? run->options->device_name : run->options->port_name,
			link_timeout_s);
}

static int
finish(struct transmit *run)
{
	struct rte_eth_stats stats;
	bool deserted = false;
	int ret = 0;

	memcpy(run->report.fault, packet_faults_counts(run->faults), sizeof(run->report.fault));
	if (run->multicast != NULL) {
		transmit_multicast_report(run->multicast, &run->report);
	} else if (run->streams != NULL) {
		run->report.port_packets = transmit_streams_packets(run->streams);
	} else if (rte_eth_stats_get(run->port.id, &stats) == 0) {
		run->report.port_packets = stats.opackets;
		run->report.port_errors = stats.oerrors;
	}
	detector_report_print(&run->report, run->multicast != NULL);
	if (run->loop.timed_out)
		explain(run);
	else if (run->multicast != NULL && transmit_multicast_deserted(run->multicast) > 0)
		deserted = true;
	if (run->options->report_path != NULL) {
		ret = detector_report_write(&run->report, &run->report_output);
		if (ret == 0)
			ret = output_file_commit(&run->report_output);
	}
	if (ret == 0 && run->options->truth_path != NULL)
		ret = write_truth(run);
	return ret == 0 && (run->loop.timed_out || deserted) ? -ETIMEDOUT : ret;
}

int
transmit_run(const struct detector_options *options)
{
	struct transmit *run = calloc(1, sizeof(*run));
	int ret;

	if (run == NULL)
		return -ENOMEM;
	run->options = options;
	ret = open_run(run);
	if (ret == 0)
		ret = transmit(run);
	if (ret == 0)
		ret = finish(run);
	if (ret == -EINTR)
		warnx("interrupted before the first frame");
	else if (ret == -ENOMEM)
		warnx("out of memory");

	eal_block_interrupts();
	transmit_port_close(&run->port);
	transmit_streams_close(run->streams);
	transmit_multicast_close(run->multicast);
	transmit_loop_release(&run->loop);
	transmit_frames_release(&run->frames);
	packet_faults_destroy(run->faults);
	frame_source_close(&run->source);
	output_file_discard(&run->truth);
	output_file_discard(&run->report_output);
	free(run);
	return ret;
}
