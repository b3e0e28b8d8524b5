/* SPDX-License-Identifier: BSD-3-Clause */
/* Logs changes of sources and positions. Not for RX lcores. */

#include <assert.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include <rte_cycles.h>

#include "log.h"
#include "rx/sources.h"

LOG_REGISTER("source", "source");

/** Checks in a row, one a second, that must find SOURCE_ORDER_ODD before it is logged. */
#define ODD_LOOKS 2

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

/** Addresses and port of a packet, as on the wire. */
struct ends {
	uint8_t mac[12]; /**< destination, source */
	uint8_t ip[8];	 /**< source, destination */
	uint8_t port[2]; /**< of the source */
};
static_assert(sizeof(struct ends) == 22, "without padding");

static void
ends_of_words(struct ends *e, const uint64_t words[SOURCE_WORDS])
{
	memcpy(e->mac, &words[0], 8);
	memcpy(e->mac + 8, &words[1], 4);
	memcpy(e->ip, &words[SOURCE_WORD_IP], 8);
	memcpy(e->port, &words[SOURCE_WORDS - 1], 2);
}

/** A part of struct ends that can differ. */
struct field {
	const char *name;
	const char *key; /**< setting of its expected value; NULL: there is none */
	size_t at, size;
};

static const struct field fields[] = {
	{"source address", "source", offsetof(struct ends, ip), 4},
	{"source port", "source", offsetof(struct ends, port), 2},
	{"source MAC address", "source_mac", offsetof(struct ends, mac) + 6, 6},
	{"destination address", "destination", offsetof(struct ends, ip) + 4, 4},
	{"destination MAC address", NULL, offsetof(struct ends, mac), 6},
};

/** "10.1.1.0/24", "32410" or "00:11:22:33:44:55" */
static void
field_text(const uint8_t *b, const uint8_t *mask, size_t n, char *text, size_t size)
{
	int used = 0;

	switch (n) {
	case 2:
		snprintf(text, size, "%u", b[0] << 8 | b[1]);
		break;
	case 4:
		used = snprintf(text, size, "%u.%u.%u.%u", b[0], b[1], b[2], b[3]);
		n = 0;
		for (uint32_t i = 0; i < 4; i++)
			n += __builtin_popcount(mask[i]);
		if (n < 32)
			snprintf(text + used, size - used, "/%zu", n);
		break;
	default:
		snprintf(text, size, "%02x:%02x:%02x:%02x:%02x:%02x", b[0], b[1], b[2], b[3], b[4],
			b[5]);
		break;
	}
}

static bool
differs(const struct field *f, const struct ends *found, const struct ends *value,
	const struct ends *mask)
{
	for (size_t i = f->at; i < f->at + f->size; i++)
		if (((((const uint8_t *)found)[i] ^ ((const uint8_t *)value)[i]) &
			    ((const uint8_t *)mask)[i]) != 0)
			return true;
	return false;
}

/**
 * List the fields that differ: "source address 10.0.0.1, expected 10.0.0.2".
 * @param keys  out: the settings of their expected values
 * @return their number
 */
static uint32_t
list_fields(const struct ends *found, const struct ends *value, const struct ends *mask, char *text,
	size_t size, char *keys, size_t keys_size)
{
	const struct ends all = {.ip = {255, 255, 255, 255, 255, 255, 255, 255}};
	size_t used = 0, keys_used = 0;
	const char *last = NULL;
	uint32_t n = 0;

	for (uint32_t i = 0; i < RTE_DIM(fields) && used < size && keys_used < keys_size; i++) {
		const struct field *f = &fields[i];
		char is[24], expected[24];

		if (!differs(f, found, value, mask))
			continue;
		field_text((const uint8_t *)found + f->at, (const uint8_t *)&all + f->at, f->size,
			is, sizeof(is));
		field_text((const uint8_t *)value + f->at, (const uint8_t *)mask + f->at, f->size,
			expected, sizeof(expected));
		used += snprintf(text + used, size - used, "%s%s %s, expected %s",
			n++ > 0 ? ", and " : "", f->name, is, expected);
		if (f->key != NULL && f->key != last)
			keys_used += snprintf(keys + keys_used, keys_size - keys_used, "%s%s",
				last != NULL ? " and " : "", f->key);
		last = f->key != NULL ? f->key : last;
	}
	return n;
}

void
source_explain_rejected(const struct sources *all, uint32_t stream, const struct source *st,
	char *text, size_t size)
{
	const struct source_filter *f = &all->settings->filter[stream];
	const uint64_t value[SOURCE_WORDS] = {f->value[0], f->value[1], f->value[2], f->port};
	const uint64_t mask[SOURCE_WORDS] = {f->mask[0], f->mask[1], f->mask[2], f->port_mask};
	struct ends found, expected, compared;
	char from[64], which[400] = "", keys[64] = "";

	ends_of_words(&found, st->rejected);
	ends_of_words(&expected, value);
	ends_of_words(&compared, mask);
	source_text(st->rejected, from, sizeof(from));
	if (list_fields(&found, &expected, &compared, which, sizeof(which), keys, sizeof(keys)) >
		0) {
		snprintf(text, size, "%s, has %s; if the detector sends it, correct [detector] %s",
			from, which, keys);
		return;
	}
	/* no setting excludes it: its addresses differ from the learnt ones */
	ends_of_words(&expected, st->taken);
	memset(&compared, 0xFF, offsetof(struct ends, port));
	if (list_fields(&found, &expected, &compared, which, sizeof(which), keys, sizeof(keys)) > 0)
		snprintf(text, size,
			"%s, has %s as learnt; if the detector sends it, set [detector] source",
			from, which);
	else
		snprintf(text, size, "%s, arrived before its source was learnt", from);
}

uint32_t
source_explain_position(const struct sources *all, uint32_t stream, const uint32_t expected[],
	char *text, size_t size)
{
	const uint32_t e = expected[stream], p = announced(all, stream);
	const char *verb = all->settings->positions == SOURCE_POSITIONS_AUTO ? "set" : "correct";

	for (uint32_t s = 0; s < all->detector->streams; s++) {
		if (s == stream || expected[s] != p || announced(all, s) != e)
			continue;
		snprintf(text, size,
			"streams %u and %u look swapped: stream %u announces row %u, column %u, "
			"expected row %u, column %u. Their packets are dropped as misplaced; swap "
			"the cables or ports, or %s [detector] positions",
			stream, s, stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16, verb);
		return s;
	}
	snprintf(text, size,
		"stream %u announces row %u, column %u, expected row %u, column %u. Its packets "
		"are dropped as misplaced; correct the cabling, or %s [detector] positions",
		stream, p & 0xFFFF, p >> 16, e & 0xFFFF, e >> 16, verb);
	return stream;
}

static void
log_position(const struct sources *all, uint32_t stream, const uint32_t expected[])
{
	char text[300];

	/* two that are swapped are logged once */
	if (source_explain_position(all, stream, expected, text, sizeof(text)) >= stream)
		LOG(WARNING, "%s\n", text);
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
		[SOURCE_BY_NUMBER] =
			"which has sent fewer packets, for longer than it had been the source",
		[SOURCE_IS_BACK] =
			"which was the source for a shorter time, while the present one was silent",
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
	char text[640];

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
		source_explain_rejected(all, s, &st, text, sizeof(text));
		LOG(WARNING,
			"stream %u: %" PRIu64 " packets dropped as foreign; the last one, from "
			"%s\n",
			s, rejected, text);
	}
	if (!watch->learnt && !all->settings->source)
		log_learnt(all, watch);
}
