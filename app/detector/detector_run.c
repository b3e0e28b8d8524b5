/* SPDX-License-Identifier: BSD-3-Clause */

#include "detector_run.h"

#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calibration_output.h"
#include "frame_files.h"
#include "output_file.h"
#include "pcap_output.h"

/* Capture time of the first packet: 2026-01-01 00:00 UTC, so that equal runs give equal files. */
#define CAPTURE_START 1767225600000000000ull
#define NS_PER_S      1000000000.0
#define TICKS_PER_S   10000000.0 /* of the detector's time stamp */

/* The packets of a frame follow each other as on one 100 Gb/s link: 8306 bytes with preamble, frame
 * check sequence and gap (detectors.md 3.2). */
#define PACKET_NS (8306.0 * 8.0 / 100.0)

/* Share of the period that the detector looks at the beam. */
#define EXPOSURE 0.88

volatile sig_atomic_t detector_stop;

struct run {
	const struct detector_options *options;
	struct jungfrau_model *model; /* NULL: frames come from files */
	struct frame_files files;
	struct jungfrau_frame frame;
	uint64_t frames;
	uint16_t *raw; /* [modules][pixels] */
	struct pcap_output pcap;
	struct output_file truth;
	struct output_file raw_output;
};

static uint64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Tell how far the run is: often on a terminal, else so that a log does not look dead. */
static void
show_progress(uint64_t done, uint64_t frames, uint64_t start, uint64_t *shown)
{
	bool terminal = isatty(STDERR_FILENO) != 0;
	uint64_t now = now_ms();

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

static uint16_t *
module_pixels(const struct run *run, uint32_t module)
{
	return run->raw + (size_t)module * JUNGFRAU_PIXELS;
}

static int
make_frame(struct run *run, uint64_t number)
{
	if (run->model == NULL) {
		run->frame.number = number;
		return frame_files_read(&run->files, run->raw);
	}
	jungfrau_model_plan(run->model, number, &run->frame);
	for (uint32_t m = 0; m < run->options->model.modules; m++)
		jungfrau_model_draw(run->model, &run->frame, m, module_pixels(run, m));
	return 0;
}

static int
write_packets(struct run *run, uint64_t index)
{
	const struct detector_options *options = run->options;
	const struct jungfrau_wire *wire = &options->wire;
	uint64_t ticks = (uint64_t)(TICKS_PER_S / options->rate + 0.5);
	struct jungfrau_frame_header header = {
		.number = run->frame.number,
		.bunch_id = options->first_bunch + run->frame.number,
		.timestamp = run->frame.number * ticks,
		.exposure = (uint32_t)((double)ticks * EXPOSURE),
		.daq_info =
			JUNGFRAU_DAQ_CHIP_1_1 | (run->frame.dark ? JUNGFRAU_DAQ_EXTERNAL_INPUT : 0),
	};
	uint32_t packets = jungfrau_stream_packets(wire);
	double period = NS_PER_S / options->rate;
	double step = period / (JUNGFRAU_MODULE_PACKETS * wire->modules);
	uint64_t start = CAPTURE_START + (uint64_t)((double)index * period);
	uint8_t packet[JUNGFRAU_PACKET_BYTES];
	uint32_t sent = 0;
	int rc;

	/* more than the link carries is squeezed into the period: the file stays in order */
	if (step > PACKET_NS)
		step = PACKET_NS;
	for (uint32_t p = 0; p < packets; p++) {
		for (uint32_t m = 0; m < wire->modules; m++) {
			for (uint32_t i = 0; i < wire->interfaces; i++) {
				jungfrau_packet_make(
					wire, &header, m, i, p, module_pixels(run, m), packet);
				rc = pcap_output_packet(&run->pcap,
					start + (uint64_t)(sent++ * step), packet, sizeof(packet));
				if (rc != 0)
					return rc;
			}
		}
	}
	return 0;
}

static int
write_truth(struct run *run)
{
	const struct detector_options *options = run->options;
	const struct jungfrau_frame *frame = &run->frame;
	struct jungfrau_census census = {0};
	char line[160];
	int length;

	for (uint32_t m = 0; m < options->model.modules; m++)
		jungfrau_model_census(
			run->model, m, module_pixels(run, m), options->threshold, &census);
	length = snprintf(line, sizeof(line), "%llu,%d,%u,%d,%u,%u,%u,%u,%llu\n",
		(unsigned long long)frame->number, frame->hit, frame->peaks, frame->dark,
		census.strong, census.saturated, census.switched, frame->nb_peaks - frame->peaks,
		(unsigned long long)(options->first_bunch + frame->number));
	return output_file_write(&run->truth, line, (size_t)length);
}

static int
write_frame(struct run *run, uint64_t index)
{
	int rc = 0;

	if (run->options->pcap_path != NULL)
		rc = write_packets(run, index);
	if (rc == 0 && run->options->truth_path != NULL)
		rc = write_truth(run);
	if (rc == 0 && run->options->raw_path != NULL)
		rc = output_file_write(&run->raw_output, run->raw,
			(size_t)run->options->model.modules * JUNGFRAU_PIXELS * sizeof(*run->raw));
	return rc;
}

static int
write_frames(struct run *run)
{
	uint64_t start = now_ms(), shown = start;
	int rc = 0;

	for (uint64_t i = 0; rc == 0 && i < run->frames; i++) {
		rc = make_frame(run, run->options->first_frame + i);
		if (rc == 0)
			rc = write_frame(run, i);
		if (detector_stop != 0)
			rc = -EINTR;
		show_progress(i + 1, run->frames, start, &shown);
	}
	end_progress(start, shown);
	return rc;
}

static int
open_source(struct run *run)
{
	const struct detector_options *options = run->options;
	int rc;

	run->raw = malloc((size_t)options->model.modules * JUNGFRAU_PIXELS * sizeof(*run->raw));
	if (run->raw == NULL)
		return -ENOMEM;
	if (options->pack)
		return frame_files_open(&run->files, options->pack_paths, options->nb_pack_paths,
			options->model.modules, &run->frames);
	run->frames = options->frames;
	rc = jungfrau_model_create(&options->model, &run->model);
	if (rc != 0)
		warnx("cannot make the model of %u modules: %s", options->model.modules,
			strerror(-rc));
	return rc;
}

static int
open_outputs(struct run *run)
{
	static const char header[] = "frame,hit,peaks,dark,strong_pixels,saturated_pixels,"
				     "switched_pixels,stray_peaks,bunch_id\n";
	const struct detector_options *options = run->options;
	int rc = 0;

	if (options->pcap_path != NULL)
		rc = pcap_output_open(&run->pcap, options->pcap_path);
	if (rc == 0 && options->truth_path != NULL) {
		rc = output_file_open(&run->truth, options->truth_path);
		if (rc == 0)
			rc = output_file_write(&run->truth, header, sizeof(header) - 1);
	}
	if (rc == 0 && options->raw_path != NULL)
		rc = output_file_open(&run->raw_output, options->raw_path);
	return rc;
}

static int
commit_outputs(struct run *run)
{
	int rc = 0;

	if (run->options->pcap_path != NULL)
		rc = pcap_output_commit(&run->pcap);
	if (rc == 0 && run->options->truth_path != NULL)
		rc = output_file_commit(&run->truth);
	if (rc == 0 && run->options->raw_path != NULL)
		rc = output_file_commit(&run->raw_output);
	return rc;
}

int
detector_run(const struct detector_options *options)
{
	struct run *run = calloc(1, sizeof(*run));
	int rc;

	if (run == NULL)
		return -ENOMEM;
	run->options = options;
	rc = open_source(run);
	if (rc == 0)
		rc = open_outputs(run);
	if (rc == 0 && options->calibration_path != NULL)
		rc = calibration_output_write(run->model, options->model.modules,
			options->calibration_path, &detector_stop);
	if (rc == 0)
		rc = write_frames(run);
	if (rc == 0)
		rc = commit_outputs(run);
	if (rc == -EINTR)
		warnx("interrupted: unfinished files are removed");
	else if (rc == -ENOMEM)
		warnx("out of memory");

	/* what is committed is closed and stays */
	pcap_output_discard(&run->pcap);
	output_file_discard(&run->truth);
	output_file_discard(&run->raw_output);
	frame_files_close(&run->files);
	jungfrau_model_destroy(run->model);
	free(run->raw);
	free(run);
	return rc;
}
