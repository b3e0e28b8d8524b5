/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs changes of sources and positions. Not for RX lcores. */

#include <inttypes.h>
#include <stdio.h>

#include <rte_cycles.h>
#include <rte_log.h>

#include "rx/sources.h"

RTE_LOG_REGISTER(source_logtype, braggline.source, NOTICE);

/** Checks in a row, one a second, that must find SOURCE_ORDER_ODD before it is logged. */
#define ODD_LOOKS 2

#define LOG(level, ...) rte_log(RTE_LOG_##level, source_logtype, "source: " __VA_ARGS__)

const char *
source_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size)
{
	uint8_t mac[12], ip[8];

	memcpy(mac, &words[0], 8);
	memcpy(mac + 8, &words[1], 4);
	memcpy(ip, &words[SOURCE_WORD_IP], 8);
	snprintf(text, size, "%u.%u.%u.%u (%02x:%02x:%02x:%02x:%02x:%02x)", ip[0], ip[1], ip[2],
		ip[3], mac[6], mac[7], mac[8], mac[9], mac[10], mac[11]);
	return text;
}

const char *
source_destination_text(const uint64_t words[SOURCE_WORDS], char *text, size_t size)
{
	uint8_t ip[8];

	memcpy(ip, &words[SOURCE_WORD_IP], 8);
	snprintf(text, size, "%u.%u.%u.%u", ip[4], ip[5], ip[6], ip[7]);
	return text;
}

static uint32_t
announced(const struct sources *all, uint32_t stream)
{
	return __atomic_load_n(&all->stream[stream].position, __ATOMIC_RELAXED);
}

static void
log_position(const struct sources *all, uint32_t stream, const uint32_t expected[])
{
	const uint32_t e = expected[stream], p = announced(all, stream);

	for (uint32_t s = 0; s < all->detector->streams; s++) {
		if (s == stream || expected[s] != p || announced(all, s) != e)
			continue;
		if (s > stream)
			LOG(WARNING,
				"streams %u and %u look swapped: stream %u announces row %u, "
				"column %u, expected row %u, column %u. Their packets are "
				"dropped as misplaced; swap the cables or ports, or set "
				"[detector] positions\n",
				stream, s, stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16);
		return;
	}
	LOG(WARNING,
		"stream %u announces row %u, column %u, expected row %u, column %u. Its packets "
		"are dropped as misplaced; correct the cabling, or set [detector] positions\n",
		stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16);
}

bool
source_is_shared(const struct source *st, uint32_t stream, char *text, size_t size)
{
	const uint32_t p = source_words_position(st->rivals[0]);
	const uint32_t q = source_words_position(st->rivals[1]);
	char one[64], other[64];

	if (st->contests == 0 || p == q)
		return false;
	snprintf(text, size,
		"stream %u: two modules send to its UDP port, %s (row %u, column %u) and %s (row "
		"%u, column %u), expected one; set another destination port in one of them",
		stream, source_text(st->rivals[0], one, sizeof(one)), p & UINT16_MAX, p >> 16,
		source_text(st->rivals[1], other, sizeof(other)), q & UINT16_MAX, q >> 16);
	return true;
}

static void
log_contest(const struct source *st, uint32_t stream)
{
	char one[64], other[64], text[300];

	if (source_is_shared(st, stream, text, sizeof(text))) {
		LOG(WARNING, "%s\n", text);
		return;
	}
	LOG(WARNING,
		"stream %u has two sources, %s and %s. Its packets are dropped until one of them "
		"has sent %u packets more than all others; set [detector] source\n",
		stream, source_text(st->rivals[0], one, sizeof(one)),
		source_text(st->rivals[1], other, sizeof(other)), st->needed);
}

static void
log_change(const struct sources *all, const struct source *st, uint32_t stream,
	const uint32_t expected[])
{
	static const char *const reasons[] = {
		[SOURCE_BY_SILENCE] =
			"which has sent less than half a frame in a stream_timeout_ms",
		[SOURCE_BY_NUMBER] = "which has sent fewer packets for as long as it was taken",
		[SOURCE_IS_BACK] = "which was taken while it was absent, for a shorter time",
	};
	char now[64], other[64];

	source_text(st->taken, now, sizeof(now));
	if (st->step == SOURCE_LEARNT && st->reason != SOURCE_BY_VOTE)
		LOG(WARNING,
			"stream %u: source is now %s instead of %s, %s. If this is wrong, set "
			"[detector] source\n",
			stream, now, source_text(st->before, other, sizeof(other)),
			reasons[st->reason]);
	else if (st->step == SOURCE_LEARNT)
		LOG(INFO, "stream %u: source learnt: %s\n", stream, now);
	if (st->misplaced && expected[stream] != SOURCE_POSITION_UNKNOWN)
		log_position(all, stream, expected);
}

/** Log once, not for each stream, that the sources of all streams are learnt. */
static void
log_learnt(const struct sources *all, struct source_watch *watch)
{
	const struct detector *d = all->detector;
	struct source st, one = {0};
	uint32_t first = UINT32_MAX;
	char text[64];

	for (uint32_t s = 0; s < d->streams; s++) {
		if (detector_stream_expected(d, s) == 0)
			continue;
		sources_get(all, s, &st);
		if (st.step != SOURCE_LEARNT)
			return;
		if (s < first)
			one = st;
		first = RTE_MIN(first, s);
	}
	watch->learnt = true;
	LOG(NOTICE,
		"[detector] source = auto: stream %u: learnt %s from the first packets; other "
		"streams: see /braggline/sources\n",
		first, source_text(one.taken, text, sizeof(text)));
}

/**
 * Log positions that cannot be checked: once, and only if they remain so, because streams do not
 * announce their positions at the same time.
 */
static void
log_order(const struct sources *all, struct source_watch *watch, enum source_order order, bool now)
{
	const struct detector *d = all->detector;
	char text[DETECTOR_STREAMS_MAX * 24] = "";
	size_t used = 0;

	watch->odd = order == SOURCE_ORDER_ODD ? watch->odd + 1 : 0;
	if (order != SOURCE_ORDER_ODD) {
		watch->odd_logged = false;
		return;
	}
	if (watch->odd_logged || (watch->odd < ODD_LOOKS && !now))
		return;
	watch->odd_logged = true;
	for (uint32_t s = 0; s < d->streams && used < sizeof(text); s++) {
		const uint32_t p = announced(all, s);

		if (p != SOURCE_POSITION_UNKNOWN)
			used += snprintf(text + used, sizeof(text) - used, "%s%u: %u/%u",
				used > 0 ? ", " : "", s, p & UINT16_MAX, p >> 16);
	}
	LOG(WARNING,
		"positions are not checked: the streams announce (stream: row/column %s), which "
		"are neither the positions in a stack of modules nor those with two cables "
		"swapped. Correct the cabling or the detector's configuration, or set [detector] "
		"positions to the number of modules in a column, or to off\n",
		text);
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
	log_order(all, watch, sources_expected(all, expected), now);
	for (uint32_t s = 0; s < all->detector->streams; s++) {
		uint64_t rejected;
		struct source st;

		sources_get(all, s, &st);
		rejected = st.nb_rejected;
		if (st.contests != watch->contests[s])
			log_contest(&st, s);
		watch->contests[s] = st.contests;
		if (st.changes != watch->changes[s]) {
			watch->changes[s] = st.changes;
			log_change(all, &st, s, expected);
		}
		/* log it again at ten times as many; a contest was logged above */
		if (st.step == SOURCE_CONTESTED || rejected <= 10 * watch->rejected[s])
			continue;
		watch->rejected[s] = rejected;
		LOG(WARNING,
			"stream %u: %" PRIu64 " packets dropped as foreign, the last one from "
			"%s: it is not the configured or learnt source and destination. If the "
			"detector sends them, set [detector] source and destination\n",
			s, rejected, source_text(st.rejected, text, sizeof(text)));
	}
	if (!watch->learnt && !all->settings->source)
		log_learnt(all, watch);
}
