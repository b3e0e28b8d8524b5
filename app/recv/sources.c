/* SPDX-License-Identifier: BSD-3-Clause */

#include <rte_cycles.h>

#include "sources.h"

/** In word 3, between port and position: no packet has it. */
#define NEVER (UINT64_C(1) << 31)

const char *const source_step_names[SOURCE_STEPS] = {
	[SOURCE_CONFIGURED] = "configured",
	[SOURCE_NONE] = "none",
	[SOURCE_FIRST] = "first",
	[SOURCE_CONTESTED] = "contested",
	[SOURCE_LEARNT] = "learnt",
};

/** Bits that make a learnt source: MAC and IP addresses of both ends. A port may change. */
static void
address_mask(uint64_t mask[SOURCE_WORDS])
{
	uint8_t bytes[SOURCE_HEADERS] = {0};

	memset(bytes, 0xFF, 12);
	memset(bytes + SOURCE_IP_FROM, 0xFF, 8);
	source_words(bytes, 0, mask);
}

static bool
is_same(const uint64_t a[SOURCE_WORDS], const uint64_t b[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS])
{
	for (uint32_t i = 0; i < SOURCE_WORDS; i++)
		if (((a[i] ^ b[i]) & mask[i]) != 0)
			return false;
	return true;
}

static void
copy(uint64_t to[SOURCE_WORDS], const uint64_t from[SOURCE_WORDS])
{
	memcpy(to, from, SOURCE_WORDS * sizeof(to[0]));
}

static bool
checks_positions(const struct sources *all)
{
	return all->settings->positions != SOURCE_POSITIONS_OFF;
}

/** What passes at once: everything that is as it was, or nothing while that is in question. */
static void
arm(struct sources *all, uint32_t stream)
{
	const struct source_filter *configured = &all->settings->filter[stream];
	const struct source *st = &all->stream[stream];
	struct source_filter *f = &all->filter[stream];
	uint64_t learnt[SOURCE_WORDS];
	bool open = st->step == SOURCE_CONFIGURED || st->step == SOURCE_LEARNT;

	*f = *configured;
	if (st->step == SOURCE_LEARNT) {
		address_mask(learnt);
		for (uint32_t i = 0; i < SOURCE_WORDS; i++) {
			f->value[i] = (f->value[i] & ~learnt[i]) | (st->taken[i] & learnt[i]);
			f->mask[i] |= learnt[i];
		}
	}
	if (checks_positions(all)) {
		f->value[3] |= (uint64_t)st->position << 32;
		f->mask[3] |= (uint64_t)UINT32_MAX << 32;
		open &= st->position != SOURCE_POSITION_UNKNOWN && st->moves == 0 && !st->misplaced;
	}
	open &= st->challenged_at == 0;
	if (open)
		return;
	f->value[3] |= NEVER;
	f->mask[3] |= NEVER;
}

void
sources_init(struct sources *all, const struct source_settings *settings,
	const struct detector *detector, uint64_t stall_cycles)
{
	memset(all, 0, sizeof(*all));
	all->settings = settings;
	all->detector = detector;
	all->stall_cycles = stall_cycles;
	for (uint32_t s = 0; s < detector->streams; s++) {
		all->stream[s] = (struct source){
			.step = settings->source ? SOURCE_CONFIGURED : SOURCE_NONE,
			.needed = RTE_MAX(1u, detector_stream_expected(detector, s)),
			.position = SOURCE_POSITION_UNKNOWN,
		};
		arm(all, s);
	}
}

static void
announce(struct sources *all, struct source *st, uint32_t position)
{
	st->moves = 0;
	if (st->position == position)
		return;
	__atomic_store_n(&st->position, position, __ATOMIC_RELAXED);
	__atomic_fetch_add(&all->version, 1, __ATOMIC_RELEASE);
	st->changes++;
}

static void
learn(struct sources *all, struct source *st, const uint64_t words[SOURCE_WORDS])
{
	copy(st->taken, words);
	st->step = SOURCE_LEARNT;
	st->challenged_at = 0;
	st->count = 0;
	st->changes++;
	if (checks_positions(all))
		announce(all, st, words[3] >> 32);
}

/** A packet of somebody whom we might learn. @return whether it is the last one that this needs */
static bool
count(struct source *st, const uint64_t words[SOURCE_WORDS], const uint64_t mask[SOURCE_WORDS])
{
	if (st->count == 0 || !is_same(words, st->candidate, mask)) {
		copy(st->candidate, words);
		st->count = 0;
	}
	return ++st->count >= st->needed;
}

/** Not the source that was learnt. */
static enum source_verdict
challenge(struct sources *all, struct source *st, const uint64_t words[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS])
{
	const uint64_t now = rte_rdtsc();

	if (st->has_first && is_same(words, st->first, mask)) {
		learn(all, st, words);
		return SOURCE_OURS;
	}
	if (st->challenged_at == 0) {
		st->challenged_at = now;
		st->count = 0;
	}
	if (!count(st, words, mask) || now - st->challenged_at < all->stall_cycles)
		return SOURCE_FOREIGN;
	if (!st->has_first)
		copy(st->first, st->taken);
	st->has_first = true;
	learn(all, st, words);
	return SOURCE_OURS;
}

static enum source_verdict
judge_address(struct sources *all, struct source *st, const uint64_t words[SOURCE_WORDS])
{
	uint64_t mask[SOURCE_WORDS];

	address_mask(mask);
	switch (st->step) {
	case SOURCE_CONFIGURED:
		copy(st->taken, words); /* for people */
		return SOURCE_OURS;
	case SOURCE_NONE:
		copy(st->taken, words);
		st->step = SOURCE_FIRST;
		/* fall through */
	case SOURCE_FIRST:
		if (is_same(words, st->taken, mask)) {
			if (++st->count >= st->needed)
				learn(all, st, words);
			return SOURCE_OURS;
		}
		copy(st->rivals[0], st->taken);
		copy(st->rivals[1], words);
		st->contests++;
		st->step = SOURCE_CONTESTED;
		st->count = 0;
		count(st, words, mask);
		return SOURCE_EXPELLED;
	case SOURCE_CONTESTED:
		if (!count(st, words, mask))
			return SOURCE_FOREIGN;
		learn(all, st, words);
		return SOURCE_OURS;
	default:
		if (!is_same(words, st->taken, mask))
			return challenge(all, st, words, mask);
		st->challenged_at = 0;
		return SOURCE_OURS;
	}
}

static enum source_verdict
judge_position(struct sources *all, struct source *st, uint32_t position)
{
	/* one that is not learnt yet says nothing about others */
	if (!checks_positions(all) || st->step == SOURCE_FIRST)
		return SOURCE_OURS;
	if (st->position == SOURCE_POSITION_UNKNOWN) {
		announce(all, st, position);
	} else if (st->position == position) {
		st->moves = 0;
	} else {
		st->moves = st->moved_to == position ? st->moves + 1 : 1;
		st->moved_to = position;
		if (st->moves < SOURCE_MOVES)
			return SOURCE_MISPLACED;
		announce(all, st, position);
	}
	return SOURCE_OURS;
}

enum source_verdict
sources_judge(struct sources *all, uint32_t stream, const uint8_t *headers, uint32_t position)
{
	const struct source_filter *configured = &all->settings->filter[stream];
	struct source *st = &all->stream[stream];
	enum source_verdict verdict = SOURCE_FOREIGN;
	uint64_t words[SOURCE_WORDS];

	source_words(headers, position, words);
	if (is_same(words, configured->value, configured->mask))
		verdict = judge_address(all, st, words);
	if (verdict == SOURCE_OURS) {
		verdict = judge_position(all, st, position);
	} else {
		copy(st->rejected, words);
		st->nb_rejected++;
	}
	arm(all, stream);
	return verdict;
}

/** Where modules of a detector with so many in a column are. */
static uint32_t
canonical_position(const struct detector *d, uint32_t stream, uint32_t column_modules)
{
	const uint32_t module = detector_stream_module(d, stream);
	const uint32_t row = module % column_modules * d->interfaces + stream % d->interfaces;

	return module / column_modules << 16 | row;
}

void
sources_expected(const struct sources *all, uint32_t position[DETECTOR_STREAMS_MAX])
{
	const struct detector *d = all->detector;
	uint32_t sorted[DETECTOR_STREAMS_MAX], stream[DETECTOR_STREAMS_MAX], n = 0;

	for (uint32_t s = 0; s < d->streams; s++) {
		uint32_t at = n, p;

		position[s] = SOURCE_POSITION_UNKNOWN;
		if (!checks_positions(all))
			continue;
		if (all->settings->positions != SOURCE_POSITIONS_AUTO) {
			position[s] = canonical_position(d, s, all->settings->positions);
			continue;
		}
		p = __atomic_load_n(&all->stream[s].position, __ATOMIC_RELAXED);
		if (p == SOURCE_POSITION_UNKNOWN)
			continue;
		stream[n++] = s;
		for (; at > 0 && sorted[at - 1] >= p; at--) {
			if (sorted[at - 1] == p) {
				memset(position, 0xFF, d->streams * sizeof(position[0]));
				return;
			}
			sorted[at] = sorted[at - 1];
		}
		sorted[at] = p;
	}
	for (uint32_t i = 0; i < n; i++)
		position[stream[i]] = sorted[i];
}

uint64_t
sources_review(struct sources *all, uint64_t mine)
{
	uint32_t expected[DETECTOR_STREAMS_MAX];
	uint64_t expel = 0;

	sources_expected(all, expected);
	for (; mine != 0; mine &= mine - 1) {
		const uint32_t s = __builtin_ctzll(mine);
		struct source *st = &all->stream[s];
		const bool misplaced = st->position != SOURCE_POSITION_UNKNOWN &&
			expected[s] != SOURCE_POSITION_UNKNOWN && expected[s] != st->position;

		if (misplaced == st->misplaced)
			continue;
		st->misplaced = misplaced;
		st->changes++;
		if (misplaced)
			expel |= mine & -mine;
		arm(all, s);
	}
	return expel;
}
