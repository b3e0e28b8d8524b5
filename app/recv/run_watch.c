/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>

#include "builder/builder.h"
#include "counter.h"
#include "ledger.h"
#include "log.h"
#include "pipeline.h"
#include "port/port.h"
#include "run_drops.h"
#include "run_watch.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "settings.h"

LOG_REGISTER("run.watch", "recv");

#define LOOKS_PER_SECOND 4

/**
 * Unusable packets are reported from this number on, if they are also at least 1/REJECTED_SHARE of
 * all packets.
 */
#define REJECTED_MIN   64
#define REJECTED_SHARE 16

/**
 * Lines about one stream before its lines are limited to one a minute. A stream may stop and resume
 * many times.
 */
#define STREAM_LINES 10

/** Number of incomplete frames before a missing part of modules is reported. */
#define PATTERN_FRAMES 8

/**
 * Packets that were dropped because of their frame number are reported if they are at least those
 * of DROPPED_FRAMES frames, and 1/REJECTED_SHARE of all packets. A restart may cost a few frames.
 */
#define DROPPED_FRAMES 4
/** ... and if whole frames came twice: the second time, they are lost. */
#define REPEATED_FRAMES 2

/** Packets of a stream, dropped since its last one that was placed, that show that it sends. */
#define DROPPED_MIN 8

/** Add what the RX roles have counted so far. */
static void
read_packets(const struct run_watch *w, struct run_packets *p)
{
	memset(p, 0, sizeof(*p));
	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++) {
		const struct rx *rx = w->pipeline->rx[i];

		/* first: a packet is counted as late before it is counted as early */
		for (uint32_t s = 0; s < w->pipeline->settings->detector.streams; s++)
			p->early += counter_get(&rx->drops[s].early);
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		p->packets += counter_get(&rx->counters[RX_PACKETS]);
		p->placed += counter_get(&rx->counters[RX_PLACED]);
		p->duplicate += counter_get(&rx->counters[RX_DUPLICATE]);
		p->late += counter_get(&rx->counters[RX_LATE]);
		p->outlier += counter_get(&rx->counters[RX_OUTLIER]);
		p->misplaced += counter_get(&rx->counters[RX_MISPLACED]);
		p->rejected += counter_get(&rx->samples.total);
		for (uint32_t n = 0; n < RTE_DIM(p->near); n++)
			p->near[n] += counter_get(&rx->samples.near[n]);
		for (uint32_t s = 0; s < w->pipeline->settings->detector.streams; s++) {
			struct rx_drop drop;

			p->unusable[s] += counter_get(&rx->samples.stream[s].packets);
			p->progress[s] =
				RTE_MAX(p->progress[s], counter_get(&rx->frx->progress[s]));
			counters_get(&drop, &rx->drops[s], sizeof(drop));
			if (drop.packets == 0) /* not of this role */
				continue;
			p->drop[s] = drop;
		}
	}
	/* a packet may have been counted in between */
	p->late -= RTE_MIN(p->late, p->early);
	for (uint32_t s = 0; s < w->pipeline->settings->detector.streams; s++) {
		struct source source;

		sources_get(w->pipeline->sources, s, &source);
		p->foreign += source.nb_rejected;
	}
}

/** Packets from `since` to `now`. */
static struct run_packets
packets_since(const struct run_packets *now, const struct run_packets *since)
{
	struct run_packets p = *now;

	p.packets -= since->packets;
	p.placed -= since->placed;
	p.rejected -= since->rejected;
	p.foreign -= since->foreign;
	p.misplaced -= since->misplaced;
	p.duplicate -= since->duplicate;
	p.early -= since->early;
	p.late -= RTE_MIN(p.late, since->late);
	p.outlier -= since->outlier;
	for (uint32_t s = 0; s < DETECTOR_STREAMS_MAX; s++) {
		p.drop[s].packets -= since->drop[s].packets;
		p.drop[s].early -= since->drop[s].early;
	}
	for (uint32_t s = 0; s < DETECTOR_STREAMS_MAX; s++)
		p.unusable[s] -= since->unusable[s];
	for (uint32_t i = 0; i < RTE_DIM(p.near); i++)
		p.near[i] -= since->near[i];
	return p;
}

static void
take_samples(struct run_watch *w)
{
	const struct settings *settings = w->pipeline->settings;
	struct rx_sample sample;

	for (uint32_t i = 0; i < settings->rx_lcores; i++) {
		for (uint32_t n = 0; n < RX_SAMPLES && rx_take_sample(w->pipeline->rx[i], &sample);
			n++) {
			rejects_add(&w->rejects, &sample, &settings->detector);
			for (uint32_t j = 0; j < RTE_DIM(w->recent); j++)
				rejects_add(&w->recent[j].rejects, &sample, &settings->detector);
		}
	}
}

/** Forget the older part of the recent interval. */
static void
next_interval(struct run_watch *w, const struct run_packets *now, uint64_t time)
{
	w->recent[0] = w->recent[1];
	w->recent[1].from = *now;
	w->recent[1].at = time;
	rejects_clear(&w->recent[1].rejects);
}

/** Add what the RoCE devices of all ports have refused so far. */
static void
read_refused(const struct run_watch *w, struct port_refused *r)
{
	*r = (struct port_refused){0};
	for (uint32_t i = 0; i < w->pipeline->settings->nb_ports; i++)
		if (w->pipeline->ports[i].dev != NULL)
			port_refused_add(w->pipeline->ports[i].dev, r);
}

void
run_watch_begin(struct run_watch *w, const struct pipeline *p, const struct ledger *before,
	uint64_t first_frame)
{
	memset(w, 0, sizeof(*w));
	w->first_frame = first_frame;
	w->pipeline = p;
	w->before = before;
	take_samples(w);
	w->rejects.udp_port = p->settings->udp_port;
	w->rejects.messages = p->settings->ingest.transport == INGEST_SEND ||
		p->settings->ingest.transport == INGEST_WRITE;
	rejects_clear(&w->rejects);
	read_packets(w, &w->from);
	read_refused(w, &w->refused);
	for (uint32_t i = 0; i < RTE_DIM(w->recent); i++) {
		w->recent[i].rejects = w->rejects;
		w->recent[i].from = w->from;
		w->recent[i].at = rte_rdtsc();
	}
	for (uint32_t s = 0; s < p->settings->detector.streams; s++) {
		struct source source;

		sources_get(p->sources, s, &source);
		w->stream[s].contests = source.step == SOURCE_CONTESTED ? 0 : source.contests;
		w->stream[s].foreign = source.nb_rejected;
	}
}

static uint64_t
frames_of(const struct run_watch *w, const struct builder_stats *stats)
{
	return stats->closed - w->before->frames;
}

static void
view_drops(const struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *total, struct run_drops_view *v)
{
	const struct settings *s = w->pipeline->settings;

	*v = (struct run_drops_view){
		.detector = &s->detector,
		.udp_port = s->udp_port,
		.max_skew_frames = s->max_skew_frames,
		.stream_timeout_ms = s->stream_timeout_ms,
		.positions = s->sources.positions != SOURCE_POSITIONS_AUTO,
		.placed = total->placed - w->from.placed,
		.last_frame = stats->last_frame,
	};
}

/**
 * The streams whose packets cannot be used, while those of others can.
 * @return their bits; 0: there are none, or there is no other
 */
static uint64_t
odd_streams(const struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *total)
{
	const struct detector *d = &w->pipeline->settings->detector;
	const struct run_packets p = packets_since(total, &w->from);
	uint64_t most = 0, odd = 0;
	bool others = false;

	for (uint32_t s = 0; s < d->streams; s++)
		if (detector_stream_expected(d, s) > 0)
			most = RTE_MAX(most, p.unusable[s]);
	for (uint32_t s = 0; s < d->streams && most > 0; s++) {
		if (detector_stream_expected(d, s) == 0)
			continue;
		/* a few damaged packets make no difference */
		if (p.unusable[s] * REJECTED_SHARE >= most)
			odd |= UINT64_C(1) << s;
		else
			others |= stats->complete > 0 || stats->stream[s].frames > 0 ||
				(total->progress[s] != 0 &&
					total->progress[s] != w->from.progress[s]);
	}
	return others ? odd : 0;
}

/**
 * Return true if these packet numbers + 1, none of which the stream expects, are those that the
 * other interface of a module sends.
 */
static bool
is_of_other_interface(const struct detector *d, uint32_t stream, uint32_t lowest, uint32_t highest)
{
	return d->interfaces == 2 && lowest > d->expect_from[stream ^ 1] &&
		highest <= d->expect_to[stream ^ 1];
}

static void
view_rejects(const struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *total, bool placed, struct reject_view *v)
{
	const struct detector *d = &w->pipeline->settings->detector;
	const struct run_packets run = packets_since(total, &w->from);

	*v = (struct reject_view){
		.detector = d,
		.udp_port = w->pipeline->settings->udp_port,
		.placed = placed,
		.odd = odd_streams(w, stats, total),
		.stats = stats,
	};
	for (uint32_t i = 0; i < RTE_DIM(run.near); i++) {
		if (run.near[i] == 0)
			continue;
		v->port_max = (uint16_t)(v->udp_port + i - RX_NEAR_PORTS);
		if (v->port_min == 0)
			v->port_min = v->port_max;
	}
	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++) {
		for (uint32_t s = 0; s < d->streams; s++) {
			const struct rx_unusable *of = &w->pipeline->rx[i]->samples.stream[s];
			const uint32_t lowest = __atomic_load_n(&of->lowest, __ATOMIC_RELAXED);
			const uint32_t highest = __atomic_load_n(&of->highest, __ATOMIC_RELAXED);

			if (lowest == 0 || detector_stream_expected(d, s) == 0 ||
				(v->odd != 0 && (v->odd >> s & 1) == 0))
				continue;
			if (v->stream_lowest == 0) {
				v->stream = s;
				v->stream_lowest = lowest;
				v->stream_highest = highest;
			}
			if (is_of_other_interface(d, s, lowest, highest))
				v->swapped |= UINT64_C(1) << s;
			if (v->lowest == 0 || lowest < v->lowest)
				v->lowest = lowest;
			v->highest = RTE_MAX(v->highest, highest);
		}
	}
}

/** Report a problem of the data, once a run. */
static void
report(const struct run_watch *w, enum run_watch_finding f)
{
	LOG(WARNING, "%s\n", w->finding[f]);
}

static bool
is_share(uint64_t part, uint64_t packets, uint64_t least)
{
	return part >= least && part * REJECTED_SHARE >= packets;
}

/** Return true if the number of unusable packets of the run indicates a wrong setting. */
static bool
are_too_many(const struct run_watch *w, const struct run_packets *p)
{
	/* One packet is enough if none was placed and the packets are not other hosts' traffic. */
	if (p->placed == 0 && rejects_commonest(&w->rejects) > REJECT_UDP)
		return p->rejected > 0;
	/* a stream that must not send is a mistake even among many others */
	if (rejects_commonest(&w->rejects) == REJECT_ABSENT)
		return p->rejected >= REJECTED_MIN;
	return is_share(p->rejected, p->packets, REJECTED_MIN);
}

/**
 * Report unusable packets that are many in the recent interval, after others were used. Other
 * hosts' traffic also arrives while the detector does not send.
 */
static void
check_recent_rejects(struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *now, uint64_t time)
{
	const struct run_packets p = packets_since(now, &w->recent[0].from);
	struct run_packets last;
	const struct rejects *r = &w->recent[0].rejects;
	char *text = w->finding[RUN_WATCH_REJECTS], why[400];
	struct reject_view view;

	if (!is_share(p.rejected, p.packets, REJECTED_MIN) || rejects_commonest(r) <= REJECT_UDP)
		return;
	last = packets_since(now, &w->recent[1].from);
	view_rejects(w, stats, now, last.packets == 0 || last.placed > 0, &view);
	if (!rejects_explain(r, &view, why, sizeof(why)))
		return;
	snprintf(text, sizeof(w->finding[0]),
		"%" PRIu64 " of the last %" PRIu64 " packets, in %.1f s after frame %" PRIu64
		", are not usable; %" PRIu64 " of %" PRIu64 " samples of them %s",
		p.rejected, p.packets, (double)(time - w->recent[0].at) / rte_get_tsc_hz(),
		stats->last_frame, r->kind[rejects_commonest(r)].samples, rejects_samples(r), why);
	w->recent_rejects = true;
	report(w, RUN_WATCH_REJECTS);
}

/**
 * Report unusable packets, once a run, as soon as the cause can be determined. The summary has the
 * numbers of the whole run.
 */
static void
check_rejects(struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *total, bool now)
{
	const struct run_packets p = packets_since(total, &w->from);
	const uint64_t time = rte_rdtsc();
	char *text = w->finding[RUN_WATCH_REJECTS], why[400];
	const bool known = text[0] != '\0';
	uint64_t alike, samples;
	struct reject_view view;

	if (p.rejected == 0 || (known && (!now || w->recent_rejects)))
		return;
	/* they are reported, see check_ports() */
	if (w->finding[RUN_WATCH_PORTS][0] != '\0' && rejects_commonest(&w->rejects) == REJECT_PORT)
		return;
	if (w->rejected_at == 0)
		w->rejected_at = time;
	/*
	 * The first packets need not be typical, and frames show which packet numbers are missing.
	 */
	if (!now && time - w->rejected_at < rte_get_tsc_hz() / LOOKS_PER_SECOND)
		return;
	if (!now && p.placed > 0 && frames_of(w, stats) < PATTERN_FRAMES &&
		time - w->rejected_at < rte_get_tsc_hz() / 2)
		return;
	if (!known && !are_too_many(w, &p)) {
		if (p.placed > 0)
			check_recent_rejects(w, stats, total, time);
		return;
	}
	view_rejects(w, stats, total, p.placed > 0, &view);
	if (!rejects_explain(&w->rejects, &view, why, sizeof(why)))
		return;
	alike = w->rejects.kind[rejects_commonest(&w->rejects)].samples;
	samples = rejects_samples(&w->rejects);
	if (p.placed == 0 && alike == samples)
		snprintf(text, sizeof(w->finding[0]),
			"none of %" PRIu64 " packets is usable: %" PRIu64 " %s", p.packets,
			p.rejected, why);
	else
		snprintf(text, sizeof(w->finding[0]),
			"%" PRIu64 " of %" PRIu64 " packets are not usable; %" PRIu64 " of %" PRIu64
			" samples of them %s",
			p.rejected, p.packets, alike, samples, why);
	if (!known)
		report(w, RUN_WATCH_REJECTS);
}

/**
 * Report packets of the detector's length to ports near those of the streams, even if they are few:
 * the last module of a large detector sends a small share of all packets.
 */
static void
check_ports(struct run_watch *w, const struct builder_stats *stats, const struct run_packets *total,
	bool now)
{
	const struct run_packets p = packets_since(total, &w->from);
	char *text = w->finding[RUN_WATCH_PORTS], why[400];
	const bool known = text[0] != '\0';
	struct reject_view view;
	uint64_t near = 0;

	for (uint32_t i = 0; i < RTE_DIM(p.near); i++)
		near += p.near[i];
	if (w->near_at == 0 && near > 0)
		w->near_at = rte_rdtsc();
	/* if they are many, check_recent_rejects() also reports the first frame with them */
	if (near < REJECTED_MIN || p.placed == 0 ||
		(!now && (known || rte_rdtsc() - w->near_at < 2 * rte_get_tsc_hz())))
		return;
	/* already in that warning, with the same ports */
	if (w->finding[RUN_WATCH_REJECTS][0] != '\0' &&
		rejects_commonest(&w->rejects) == REJECT_PORT)
		return;
	view_rejects(w, stats, total, true, &view);
	rejects_explain_ports(&w->rejects, &view, why, sizeof(why));
	snprintf(text, sizeof(w->finding[0]),
		"%" PRIu64 " of %" PRIu64 " packets have the length of the detector's and %s", near,
		p.packets, why);
	if (!known)
		report(w, RUN_WATCH_PORTS);
}

/**
 * Report packets that RoCE devices refused, which no RX role has seen: if none was used, or if they
 * are many. The packets of a queue pair alone do not show that another one is wrong.
 */
static void
check_refused(struct run_watch *w, const struct run_packets *total, bool now)
{
	const struct run_packets p = packets_since(total, &w->from);
	char *text = w->finding[RUN_WATCH_ROCE], why[480];
	const bool known = text[0] != '\0';
	struct port_refused refused;
	uint64_t n;

	if (!w->rejects.messages || (known && !now))
		return;
	read_refused(w, &refused);
	port_refused_since(&refused, &w->refused);
	/* loss and restarts of the detector also repeat packets and leave messages incomplete */
	n = port_refused_sum(&refused, p.placed == 0);
	if ((!known && !is_share(n, p.packets + n, REJECTED_MIN)) ||
		!port_refused_explain(&refused, why, sizeof(why)))
		return;
	snprintf(text, sizeof(w->finding[0]), "%" PRIu64 " RoCE packets refused, %s: %s", n,
		p.placed == 0 ? "none used" : "others used", why);
	if (!known)
		report(w, RUN_WATCH_ROCE);
}

bool
run_watch_refused(const struct run_watch *w, char *text, size_t size)
{
	struct port_refused refused;

	if (!w->rejects.messages)
		return false;
	read_refused(w, &refused);
	port_refused_since(&refused, &w->refused);
	return port_refused_explain(&refused, text, size);
}

/** Report that the detector sends only frames before the run's first one. */
static void
check_first_frame(struct run_watch *w, const struct run_packets *all, bool now)
{
	char *text = w->finding[RUN_WATCH_DROPS];
	struct run_drops_view view = {.detector = &w->pipeline->settings->detector};

	/* the detector may not have reached it yet */
	if (!now || all->early == 0)
		return;
	snprintf(text, sizeof(w->finding[0]),
		"%" PRIu64 " of %" PRIu64 " packets were dropped because of their frame numbers "
		"(%" PRIu64 " late): the last one has frame %" PRIu64
		", expected at least [run] first_frame = %" PRIu64
		"; set it to 'auto' or to a frame that the detector sends",
		all->early, all->packets, all->early, all->drop[run_drops_worst(all, &view)].frame,
		w->first_frame);
	report(w, RUN_WATCH_DROPS);
}

/**
 * Report packets that were dropped because of their frame numbers. The summary has the numbers of
 * the whole run. Packets before the run's first frame are as expected, once it has arrived.
 */
static void
check_drops(struct run_watch *w, const struct builder_stats *stats, const struct run_packets *total,
	bool now)
{
	const struct run_packets all = packets_since(total, &w->from);
	const struct run_packets recent = packets_since(total, &w->recent[0].from), *p = &all;
	const uint64_t frame = w->pipeline->settings->detector.expected;
	const uint64_t least = all.duplicate >= REPEATED_FRAMES * frame
		? REPEATED_FRAMES * frame
		: RTE_MAX((uint64_t)REJECTED_MIN, DROPPED_FRAMES * frame);
	char *text = w->finding[RUN_WATCH_DROPS];
	const bool known = text[0] != '\0';
	struct run_drops_view view;

	view_drops(w, stats, total, &view);
	if (known && !now)
		return;
	if (all.placed == 0 && run_drops_numbers(&all) == 0) {
		check_first_frame(w, &all, now);
		return;
	}
	if (!known && !is_share(run_drops_numbers(&all), all.packets - all.early, least)) {
		/* packets may be dropped long after they were received */
		if (all.placed > 0 && run_drops_numbers(&recent) <= recent.packets - recent.early)
			p = &recent;
		if (!is_share(run_drops_numbers(p), p->packets - p->early, least))
			return;
	}
	run_drops_explain(p, &view, text, sizeof(w->finding[0]));
	if (!known)
		report(w, RUN_WATCH_DROPS);
}

/** Report that no frame is complete because the same part of it is always missing. */
static void
check_pattern(struct run_watch *w, const struct builder_stats *stats,
	const struct run_packets *total, bool now)
{
	const uint64_t frames = frames_of(w, stats);
	const bool known = w->finding[RUN_WATCH_PATTERN][0] != '\0';
	struct reject_view view;
	char why[400];

	if (frames < (now ? 2 : PATTERN_FRAMES) || (known && !now))
		return;
	view_rejects(w, stats, total, true, &view);
	if (!rejects_explain_missing(&view, why, sizeof(why)))
		return;
	snprintf(w->finding[RUN_WATCH_PATTERN], sizeof(w->finding[0]),
		"none of %" PRIu64 " frames is complete: %s", frames, why);
	if (!known)
		report(w, RUN_WATCH_PATTERN);
}

/** Note, for the summary, that two modules send to one port. */
static void
check_source(struct run_watch *w, uint32_t s)
{
	struct source source;

	sources_get(w->pipeline->sources, s, &source);
	if (source.contests > w->stream[s].contests)
		source_is_shared(&source, s, w->finding[RUN_WATCH_SOURCES], sizeof(w->finding[0]));
}

/** Return true if the packets are many in the run or in the recent interval, or if none is used. */
static bool
are_many(const struct run_packets *all, uint64_t in_run, const struct run_packets *recent,
	uint64_t lately)
{
	return (all->placed == 0 && in_run >= DROPPED_MIN) ||
		is_share(in_run, all->packets, REJECTED_MIN) ||
		is_share(lately, recent->packets, REJECTED_MIN);
}

/**
 * Note, for the summary, that packets of the detector's format come from other senders or go to
 * other addresses than expected.
 */
static void
check_foreign(struct run_watch *w, const struct run_packets *total, bool now)
{
	const struct run_packets all = packets_since(total, &w->from);
	const struct run_packets recent = packets_since(total, &w->recent[0].from);
	const struct settings *settings = w->pipeline->settings;
	struct source source, worst = {0};
	char name[64], why[440];
	uint64_t most = 0;
	uint32_t of = 0;

	if (all.foreign == 0 ||
		(w->finding[RUN_WATCH_FOREIGN][0] == '\0'
				? !are_many(&all, all.foreign, &recent, recent.foreign)
				: !now))
		return;
	for (uint32_t s = 0; s < settings->detector.streams; s++) {
		sources_get(w->pipeline->sources, s, &source);
		/* two sources that contend for a stream are another problem, see check_source() */
		if (source.step == SOURCE_CONTESTED ||
			source.nb_rejected - w->stream[s].foreign <= most)
			continue;
		most = source.nb_rejected - w->stream[s].foreign;
		worst = source;
		of = s;
	}
	if (most == 0)
		return;
	detector_stream_name(&settings->detector, settings->udp_port, of, name, sizeof(name));
	source_explain_rejected(w->pipeline->sources, of, &worst, why, sizeof(why));
	snprintf(w->finding[RUN_WATCH_FOREIGN], sizeof(w->finding[0]),
		"%" PRIu64 " of %" PRIu64 " packets were dropped as foreign; the last one to %s, "
		"from %s",
		all.foreign, all.packets, name, why);
}

/** Note, for the summary, that packets announce the positions of other modules. */
static void
check_positions(struct run_watch *w, const struct run_packets *total, bool now)
{
	const struct run_packets all = packets_since(total, &w->from);
	const struct run_packets recent = packets_since(total, &w->recent[0].from);
	const struct sources *sources = w->pipeline->sources;
	uint32_t expected[DETECTOR_STREAMS_MAX], s;
	char *text = w->finding[RUN_WATCH_POSITIONS], why[400];
	struct source source;

	if (text[0] != '\0' ? !now : !are_many(&all, all.misplaced, &recent, recent.misplaced))
		return;
	(void)sources_expected(sources, expected);
	for (s = 0; s < sources->detector->streams; s++) {
		sources_get(sources, s, &source);
		if (source.misplaced && expected[s] != SOURCE_POSITION_UNKNOWN)
			break;
	}
	if (s < sources->detector->streams)
		source_explain_position(sources, s, expected, why, sizeof(why));
	else
		snprintf(why, sizeof(why),
			"the position in the headers of a stream changes; check that one module "
			"sends to each UDP port, or set [detector] positions = off");
	snprintf(text, sizeof(w->finding[0]),
		"%" PRIu64 " of %" PRIu64 " packets were dropped as misplaced: %s", all.misplaced,
		all.packets, why);
}

/**
 * Compare the columns of the geometry, which was made before packets arrived, with those that
 * packets announce.
 */
static void
check_column(struct run_watch *w)
{
	const struct geometry_settings *g = &w->pipeline->settings->geometry;
	char *text = w->finding[RUN_WATCH_GEOMETRY];
	uint32_t column;

	if (text[0] != '\0' || !g->known || g->file != NULL)
		return;
	column = sources_column(w->pipeline->sources);
	if (column == 0 || column == g->column_modules)
		return;
	snprintf(text, sizeof(w->finding[0]),
		"packets announce %u modules in a column, [geometry] column_modules is %u: places "
		"and resolutions of pixels are wrong; set column_modules = %u",
		column, g->column_modules, column);
	report(w, RUN_WATCH_GEOMETRY);
}

/**
 * Return true if packets of a stream wait or are held. The stream then sends, although no frame has
 * these packets yet.
 */
static bool
is_pending(const struct run_watch *w, uint32_t stream)
{
	for (uint32_t i = 0; i < w->pipeline->settings->rx_lcores; i++) {
		const struct rx *rx = w->pipeline->rx[i];

		if (__atomic_load_n(&rx->nb_held[stream], __ATOMIC_RELAXED) != 0 ||
			__atomic_load_n(&rx->waiting[stream], __ATOMIC_RELAXED) != 0)
			return true;
	}
	return false;
}

/** Describe the packets that a silent stream sends: "are dropped as ...". "": none are known. */
static void
explain_silence(const struct run_watch *w, const struct builder_stats *stats, uint32_t s,
	const struct run_packets *total, char *text, size_t size)
{
	const char *what = rejects_of_stream(&w->recent[0].rejects, s);
	const struct rx_drop *drop = &total->drop[s];
	struct run_drops_view view;
	struct source source;
	int n;

	text[0] = '\0';
	sources_get(w->pipeline->sources, s, &source);
	view_drops(w, stats, total, &view);
	if (drop->packets > w->from.drop[s].packets && drop->progress == total->progress[s] &&
		drop->in_row >= DROPPED_MIN) {
		run_drops_explain_stream(drop, &view, text, size);
		/* the settings and the learnt source give the reason */
		if (drop->cause == RX_FOREIGN && source.nb_rejected > w->stream[s].foreign) {
			n = snprintf(text, size, "are dropped as foreign; the last one, from ");
			source_explain_rejected(
				w->pipeline->sources, s, &source, text + n, size - n);
		}
	} else if (what != NULL)
		snprintf(text, size, "%s; check the module and the switch", what);
	else if (is_pending(w, s))
		snprintf(text, size,
			"wait, because their frames are not open yet; check the module's trigger "
			"and frame counter");
}

static void
check_stream(struct run_watch *w, const struct builder_stats *stats, uint32_t s,
	const struct run_packets *total, bool now)
{
	const struct builder_stream *of = &stats->stream[s];
	const bool never = of->frames == 0 && stats->complete == 0;
	/* a short run may end before a stream counts as silent */
	const bool silent = run_watch_is_silent(of) ||
		(now && never && of->missing > 0 && total->placed > w->from.placed);
	struct run_watch_stream *logged = &w->stream[s];
	char name[64], times[48] = "", why[520] = "";

	if (silent)
		explain_silence(w, stats, s, total, why, sizeof(why));
	if (silent == logged->silent && of->silences == logged->silences &&
		(!silent || logged->sends || why[0] == '\0'))
		return;
	if (logged->lines >= STREAM_LINES && !now &&
		rte_rdtsc() - logged->line_at < 60 * rte_get_tsc_hz())
		return;
	detector_stream_name(&w->pipeline->settings->detector, w->pipeline->settings->udp_port, s,
		name, sizeof(name));
	if (of->silences > 1)
		snprintf(times, sizeof(times), " (%" PRIu64 " times in this run)", of->silences);
	if (silent && why[0] != '\0')
		LOG(WARNING,
			"%s has sent no usable packet since frame %" PRIu64 "%s; its packets %s\n",
			name, never ? stats->first_frame : of->silent_from, times, why);
	else if (silent && never)
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
			"%s sends again since frame %" PRIu64 "; it had sent %s since frame "
			"%" PRIu64 "%s\n",
			name, of->silent_to, logged->sends ? "no usable packet" : "nothing",
			of->silent_from, times);
	logged->line_at = rte_rdtsc();
	logged->lines++;
	logged->silences = of->silences;
	logged->silent = silent;
	logged->sends = silent && why[0] != '\0';
}

void
run_watch_check(struct run_watch *w, bool now)
{
	const uint64_t time = rte_rdtsc();
	struct run_packets total;
	struct builder_stats stats;

	take_samples(w);
	if (!now && time < w->next_check)
		return;
	w->next_check = time + rte_get_tsc_hz() / LOOKS_PER_SECOND;
	stats = builder_stats(w->pipeline->builder);
	read_packets(w, &total);
	if (w->finding[RUN_WATCH_PATTERN][0] == '\0')
		check_rejects(w, &stats, &total, now);
	if (w->finding[RUN_WATCH_REJECTS][0] == '\0' && w->finding[RUN_WATCH_PORTS][0] == '\0')
		check_pattern(w, &stats, &total, now);
	if (w->finding[RUN_WATCH_PATTERN][0] == '\0')
		check_ports(w, &stats, &total, now);
	check_drops(w, &stats, &total, now);
	check_foreign(w, &total, now);
	check_refused(w, &total, now);
	check_positions(w, &total, now);
	for (uint32_t s = 0; s < w->pipeline->settings->detector.streams; s++) {
		check_stream(w, &stats, s, &total, now);
		if (w->finding[RUN_WATCH_SOURCES][0] == '\0')
			check_source(w, s);
	}
	if (now || time - w->recent[1].at >= rte_get_tsc_hz())
		check_column(w);
	if (time - w->recent[1].at >= rte_get_tsc_hz())
		next_interval(w, &total, time);
}
