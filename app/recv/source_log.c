/* SPDX-License-Identifier: BSD-3-Clause */
/* What happens to sources, in the log: not by RX lcores. */

#include <inttypes.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "sources.h"

RTE_LOG_REGISTER(source_logtype, braggline.source, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, source_logtype, "source: " __VA_ARGS__)

const char *
source_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size)
{
	uint8_t mac[16], ip[8];

	memcpy(mac, &words[0], 8);
	memcpy(mac + 4, &words[1], 8);
	memcpy(ip, &words[2], 8);
	snprintf(text, size, "%u.%u.%u.%u (%02x:%02x:%02x:%02x:%02x:%02x)", ip[0], ip[1], ip[2],
		ip[3], mac[6], mac[7], mac[8], mac[9], mac[10], mac[11]);
	return text;
}

const char *
source_destination_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size)
{
	uint8_t ip[8];

	memcpy(ip, &words[2], 8);
	snprintf(text, size, "%u.%u.%u.%u", ip[4], ip[5], ip[6], ip[7]);
	return text;
}

static void
log_position(const struct sources *all, uint32_t stream, const uint32_t expected[])
{
	const uint32_t p = all->stream[stream].position, e = expected[stream];

	for (uint32_t s = 0; s < all->detector->streams; s++) {
		if (s == stream || expected[s] != p || all->stream[s].position != e)
			continue;
		if (s > stream)
			LOG(WARNING,
				"streams %u and %u look swapped: stream %u announces row %u, "
				"column "
				"%u, expected row %u, column %u. Their packets are dropped as "
				"misplaced: swap the cables or ports, or set [detector] "
				"positions\n",
				stream, s, stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16);
		return;
	}
	LOG(WARNING,
		"stream %u announces row %u, column %u, expected row %u, column %u. Its packets "
		"are dropped as misplaced: correct the cabling, or set [detector] positions\n",
		stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16);
}

static void
log_contest(const struct source *st, uint32_t stream)
{
	char one[64], other[64];

	LOG(WARNING,
		"stream %u: %s and %s compete for it. What came first is dropped, and nothing is "
		"taken until one of them sends %u packets in a row: set [detector] source\n",
		stream, source_text(st->rivals[0], one, sizeof(one)),
		source_text(st->rivals[1], other, sizeof(other)), st->needed);
}

static void
log_change(const struct sources *all, uint32_t stream, const uint32_t expected[])
{
	const struct source *st = &all->stream[stream];
	char now[64], other[64];

	source_text(st->taken, now, sizeof(now));
	if (st->step == SOURCE_LEARNT && st->has_first)
		LOG(WARNING, "stream %u: source is now %s, after silence of %s\n", stream, now,
			source_text(st->first, other, sizeof(other)));
	else if (st->step == SOURCE_LEARNT)
		LOG(INFO, "stream %u: source learnt: %s\n", stream, now);
	if (st->misplaced && expected[stream] != SOURCE_POSITION_UNKNOWN)
		log_position(all, stream, expected);
}

/** Once, and not for each stream: all is as it was set up. */
static void
log_learnt(const struct sources *all, struct source_watch *watch)
{
	const struct detector *d = all->detector;
	uint32_t first = UINT32_MAX;
	char text[64];

	for (uint32_t s = 0; s < d->streams; s++) {
		if (detector_stream_expected(d, s) == 0)
			continue;
		if (all->stream[s].step != SOURCE_LEARNT)
			return;
		first = RTE_MIN(first, s);
	}
	watch->learnt = true;
	LOG(NOTICE,
		"[detector] source is not configured: learnt from the first packets, stream %u is "
		"%s; the others: /braggline/sources\n",
		first, source_text(all->stream[first].taken, text, sizeof(text)));
}

void
sources_log(const struct sources *all, struct source_watch *watch, bool now)
{
	const uint64_t time = rte_rdtsc();
	uint32_t expected[DETECTOR_STREAMS_MAX];
	char text[64];

	if (!now && time < watch->next)
		return;
	watch->next = time + rte_get_tsc_hz();
	sources_expected(all, expected);
	for (uint32_t s = 0; s < all->detector->streams; s++) {
		const struct source *st = &all->stream[s];
		const uint64_t rejected = st->nb_rejected;

		if (st->contests != watch->contests[s])
			log_contest(st, s);
		watch->contests[s] = st->contests;
		if (st->changes != watch->changes[s]) {
			watch->changes[s] = st->changes;
			log_change(all, s, expected);
		}
		/* again when there are ten times as many */
		if (rejected <= 10 * watch->rejected[s])
			continue;
		watch->rejected[s] = rejected;
		LOG(WARNING,
			"stream %u: %" PRIu64 " packets dropped as foreign, the last one of %s: "
			"not the stream's source and destination\n",
			s, rejected, source_text(st->rejected, text, sizeof(text)));
	}
	if (!watch->learnt && !all->settings->source)
		log_learnt(all, watch);
}
