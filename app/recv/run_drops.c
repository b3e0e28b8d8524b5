/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "frames/frame_run.h"
#include "run_drops.h"

/** Dropped packets, without those before the run's first frame. */
static uint64_t
unexpected(const struct rx_drop *drop)
{
	return drop->packets - RTE_MIN(drop->packets, drop->early);
}

uint32_t
run_drops_worst(const struct run_packets *p, const struct run_drops_view *v)
{
	uint32_t worst = 0;

	for (uint32_t s = 1; s < v->detector->streams; s++)
		if (unexpected(&p->drop[s]) > unexpected(&p->drop[worst]))
			worst = s;
	return worst;
}

/** Return true if some of the streams that send have dropped packets, and others hardly any. */
static bool
is_of_few(const struct run_packets *p, const struct run_drops_view *v)
{
	const uint64_t most = unexpected(&p->drop[run_drops_worst(p, v)]);

	for (uint32_t s = 0; s < v->detector->streams; s++)
		if (detector_stream_expected(v->detector, s) != 0 &&
			unexpected(&p->drop[s]) < most / 16)
			return true;
	return false;
}

/** "3 duplicate, 4 late" */
static void
count(const struct run_packets *p, char *text, size_t size)
{
	const struct {
		uint64_t packets;
		const char *name;
	} of[] = {
		{p->duplicate, "duplicate"},
		{p->late, "late"},
		{p->outlier, "outlier"},
	};
	size_t used = 0;

	for (uint32_t i = 0; i < RTE_DIM(of) && used < size; i++)
		if (of[i].packets > 0)
			used += snprintf(text + used, size - used, "%s%" PRIu64 " %s",
				used > 0 ? ", " : "", of[i].packets, of[i].name);
}

static void
explain_repeated(const struct run_packets *p, const struct run_drops_view *v, uint64_t frame,
	char *text, size_t size)
{
	const bool twice = run_drops_numbers(p) <= p->placed;

	snprintf(text, size,
		"the last one has frame %" PRIu64 ", which %s. If the detector "
		"was restarted, let it pause for 1.25 [frames] stream_timeout_ms = %u ms first, "
		"because numbers that are at most max_skew_frames = %u lower do not show a "
		"restart%s",
		frame,
		p->late > p->duplicate ? "was closed before this packet arrived"
				       : "had been sent before",
		v->stream_timeout_ms + v->stream_timeout_ms / 4, v->max_skew_frames,
		twice ? ". If the network delivers packets twice, check the switch for a mirrored "
			"port"
		      : "");
}

void
run_drops_explain(
	const struct run_packets *p, const struct run_drops_view *v, char *text, size_t size)
{
	const uint32_t stream = run_drops_worst(p, v);
	const uint64_t frame = p->drop[stream].frame;
	char counts[96] = "", name[64], why[400];

	count(p, counts, sizeof(counts));
	detector_stream_name(v->detector, v->udp_port, stream, name, sizeof(name));
	if (frame > FRAME_NUMBER_MAX &&
		p->drop[stream].in_row >= detector_stream_expected(v->detector, stream))
		snprintf(why, sizeof(why),
			"%s sent frame %" PRIu64 ", expected at most %" PRIu64 "; restart the "
			"detector's frame counter",
			name, frame, (uint64_t)FRAME_NUMBER_MAX);
	else if (v->placed <= v->detector->expected && p->outlier < p->duplicate + p->late)
		snprintf(why, sizeof(why),
			"all packets have frame %" PRIu64 ", expected numbers that count up; check "
			"the detector's frame counter and its trigger",
			frame);
	else if (is_of_few(p, v))
		snprintf(why, sizeof(why),
			"most are from %s, whose last one has frame %" PRIu64
			" while the run is at "
			"frame %" PRIu64 "; check that module's trigger and frame counter%s",
			name, frame, v->last_frame,
			run_drops_numbers(p) <= p->placed && p->outlier == 0
				? ", and whether the network delivers its packets twice"
				: "");
	else if (p->outlier > p->duplicate + p->late)
		snprintf(why, sizeof(why),
			"the last one has frame %" PRIu64 " while the run is at frame %" PRIu64
			". If the detector was restarted, let it pause for 1.25 [frames] "
			"stream_timeout_ms = %u ms first; else check its frame counter and trigger",
			frame, v->last_frame, v->stream_timeout_ms + v->stream_timeout_ms / 4);
	else
		explain_repeated(p, v, frame, why, sizeof(why));
	snprintf(text, size,
		"%" PRIu64 " of %" PRIu64 " packets were dropped because of their "
		"frame numbers (%s): %s",
		run_drops_numbers(p), p->packets - p->early, counts, why);
}

void
run_drops_explain_stream(
	const struct rx_drop *drop, const struct run_drops_view *v, char *text, size_t size)
{
	switch ((enum rx_counter)drop->cause) {
	case RX_MISPLACED:
		snprintf(text, size,
			"are dropped as misplaced, because they announce the position of another "
			"module; correct the cabling%s",
			v->positions ? " or [detector] positions"
				     : ", or set [detector] positions");
		break;
	case RX_FOREIGN:
		snprintf(text, size,
			"are dropped as foreign, because they have other addresses than its "
			"source; check the module's addresses, or set [detector] source");
		break;
	case RX_REFUSED:
		snprintf(text, size,
			"are refused, because no slot was free when their frames began; see "
			"frames refused in the ledger");
		break;
	default:
		snprintf(text, size,
			"are dropped as %s, the last one has frame %" PRIu64 " while the run is at "
			"frame %" PRIu64 "; check the module's trigger and frame counter",
			rx_counter_names[drop->cause], drop->frame, v->last_frame);
		break;
	}
}
