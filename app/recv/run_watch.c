/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "builder/builder.h"
#include "counter.h"
#include "pipeline.h"
#include "run_watch.h"
#include "rx/rx.h"
#include "settings.h"
#include "telemetry/ledger.h"

RTE_LOG_REGISTER(run_watch_logtype, braggline.run.watch, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, run_watch_logtype, "recv: " __VA_ARGS__)

#define LOOKS_PER_SECOND 4

/**
 * Unusable packets are reported from this number on, if they are also at least 1/REJECTED_SHARE of
 * all packets.
 */
#define REJECTED_MIN   64
#define REJECTED_SHARE 16

/**
 * Lines about one stream before its lines are limited to one a minute. A stream may stop and resume
 * all day.
 */
#define STREAM_LINES 10

/** Number of incomplete frames before a missing part of modules is reported. */
#define PATTERN_FRAMES 8

/** Packets of the run: received, placed, and unusable. */
struct tally {
	uint64_t packets, placed, rejected;
};

static struct tally
tally_packets(const struct run_watch *w)
{
	const uint64_t *before = w->before->packets;
	struct tally t = {0};

	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++) {
		const struct rx *rx = w->pipeline->rx[i];

		t.packets += counter_get(&rx->counters[RX_PACKETS]);
		t.placed += counter_get(&rx->counters[RX_PLACED]);
		t.rejected += counter_get(&rx->samples.total);
	}
	t.packets -= before[RX_PACKETS];
	t.placed -= before[RX_PLACED];
	t.rejected -= w->rejected;
	return t;
}

static void
take_samples(struct run_watch *w, struct rejects *to)
{
	struct rx_sample sample;

	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++)
		for (uint32_t n = 0; n < RX_SAMPLES && rx_take_sample(w->pipeline->rx[i], &sample);
			n++)
			if (to != NULL)
				rejects_add(to, &sample, &w->pipeline->settings->detector);
}

void
run_watch_begin(struct run_watch *w, const struct pipeline *p, const struct ledger *before)
{
	memset(w, 0, sizeof(*w));
	w->pipeline = p;
	w->before = before;
	take_samples(w, NULL);
	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++)
		w->rejected += counter_get(&w->pipeline->rx[i]->samples.total);
}

const char *
run_watch_stream(
	const struct detector *d, uint32_t udp_port, uint32_t stream, char *text, size_t size)
{
	snprintf(text, size, "module %u (stream %u, UDP port %u)",
		detector_stream_module(d, stream), stream, udp_port + stream);
	return text;
}

static void
view_rejects(const struct run_watch *w, const struct builder_stats *stats, const struct tally *t,
	struct reject_view *v)
{
	*v = (struct reject_view){
		.detector = &w->pipeline->settings->detector,
		.udp_port = w->pipeline->settings->udp_port,
		.placed = t->placed > 0,
		.stats = stats,
	};
	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++) {
		const struct rx_samples *s = &w->pipeline->rx[i]->samples;
		const uint32_t lowest = __atomic_load_n(&s->lowest, __ATOMIC_RELAXED);
		const uint32_t highest = __atomic_load_n(&s->highest, __ATOMIC_RELAXED);

		if (lowest != 0 && (v->lowest == 0 || lowest < v->lowest))
			v->lowest = lowest;
		v->highest = RTE_MAX(v->highest, highest);
	}
}

/** Return true if the number of unusable packets indicates a wrong setting. */
static bool
are_too_many(const struct run_watch *w, const struct tally *t)
{
	/* One packet is enough if none was placed and the packets are not other hosts' traffic. */
	if (t->placed == 0 && rejects_commonest(&w->rejects) > REJECT_UDP)
		return t->rejected > 0;
	return t->rejected >= REJECTED_MIN && t->rejected * REJECTED_SHARE >= t->packets;
}

static uint64_t
frames_of(const struct run_watch *w, const struct builder_stats *stats)
{
	return stats->closed - w->before->frames;
}

/** Report unusable packets, once a run, as soon as the cause can be determined. */
static void
check_rejects(struct run_watch *w, const struct builder_stats *stats, bool now)
{
	const struct tally t = tally_packets(w);
	char why[400];
	struct reject_view view;
	uint64_t time;

	if (t.rejected == 0)
		return;
	time = rte_rdtsc();
	if (w->rejected_at == 0)
		w->rejected_at = time;
	/*
	 * The first packets need not be typical, and frames show which packet numbers are missing.
	 */
	if (!now && time - w->rejected_at < rte_get_tsc_hz() / LOOKS_PER_SECOND)
		return;
	if (!now && t.placed > 0 && frames_of(w, stats) < PATTERN_FRAMES &&
		time - w->rejected_at < rte_get_tsc_hz() / 2)
		return;
	view_rejects(w, stats, &t, &view);
	if (!are_too_many(w, &t) || !rejects_explain(&w->rejects, &view, why, sizeof(why)))
		return;
	if (t.placed == 0)
		snprintf(w->finding, sizeof(w->finding),
			"none of %" PRIu64 " packets is usable: %" PRIu64 " %s", t.packets,
			t.rejected, why);
	else
		snprintf(w->finding, sizeof(w->finding),
			"%" PRIu64 " of %" PRIu64 " packets are not usable; most of them %s",
			t.rejected, t.packets, why);
	LOG(WARNING, "%s\n", w->finding);
}

/** Report that no frame is complete because the same part of it is always missing. */
static void
check_pattern(struct run_watch *w, const struct builder_stats *stats, bool now)
{
	const uint64_t frames = frames_of(w, stats);
	const struct tally t = {.placed = 1};
	struct reject_view view;
	char why[400];

	if (frames < (now ? 2 : PATTERN_FRAMES))
		return;
	view_rejects(w, stats, &t, &view);
	if (!rejects_explain_missing(&view, why, sizeof(why)))
		return;
	snprintf(w->finding, sizeof(w->finding), "none of %" PRIu64 " frames is complete: %s",
		frames, why);
	LOG(WARNING, "%s\n", w->finding);
}

static void
check_stream(struct run_watch *w, const struct builder_stats *stats, uint32_t s, bool now)
{
	const struct builder_stream *of = &stats->stream[s];
	const bool silent = run_watch_is_silent(of), news = of->silences != w->silences[s];
	const bool never = of->frames == 0 && stats->complete == 0;
	char name[64], times[48] = "";

	if (silent == w->silent[s] && !news)
		return;
	if (w->lines[s] >= STREAM_LINES && !now &&
		rte_rdtsc() - w->line_at[s] < 60 * rte_get_tsc_hz())
		return;
	run_watch_stream(&w->pipeline->settings->detector, w->pipeline->settings->udp_port, s, name,
		sizeof(name));
	if (of->silences > 1)
		snprintf(times, sizeof(times), " (%" PRIu64 " times in this run)", of->silences);
	if (silent && never)
		LOG(WARNING,
			"%s has sent nothing since the run began at frame %" PRIu64 "; check the "
			"module and its cable, or set [detector] modules or absent\n",
			name, stats->first_frame);
	else if (silent)
		LOG(WARNING,
			"%s has sent nothing since frame %" PRIu64 "%s; check the module and its "
			"cable\n",
			name, of->silent_from, times);
	else
		LOG(NOTICE,
			"%s sends again since frame %" PRIu64 "; it had sent nothing since frame "
			"%" PRIu64 "%s\n",
			name, of->silent_to, of->silent_from, times);
	w->line_at[s] = rte_rdtsc();
	w->lines[s]++;
	w->silences[s] = of->silences;
	w->silent[s] = silent;
}

void
run_watch_look(struct run_watch *w, bool now)
{
	const uint64_t time = rte_rdtsc();
	struct builder_stats stats;

	take_samples(w, &w->rejects);
	if (!now && time < w->next_check)
		return;
	w->next_check = time + rte_get_tsc_hz() / LOOKS_PER_SECOND;
	stats = builder_stats(w->pipeline->builder);
	if (w->finding[0] == '\0')
		check_rejects(w, &stats, now);
	if (w->finding[0] == '\0')
		check_pattern(w, &stats, now);
	for (uint32_t s = 0; s < w->pipeline->settings->detector.streams; s++)
		check_stream(w, &stats, s, now);
}
