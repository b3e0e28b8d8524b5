/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Learns the source of each stream, and accepts or refuses packets by it. sources.h describes the
 * algorithm.
 */

#include <rte_cycles.h>

#include "rx/sources.h"

/** Bit of the port's word above the port. No packet has it, so a filter with it passes none. */
#define NEVER (UINT32_C(1) << 31)

const char *const source_step_names[SOURCE_STEPS] = {
	[SOURCE_CONFIGURED] = "configured",
	[SOURCE_NONE] = "none",
	[SOURCE_FIRST] = "first",
	[SOURCE_CONTESTED] = "contested",
	[SOURCE_LEARNT] = "learnt",
};

/** Bits that identify a learnt source: MAC and IP addresses of both ends. A port may change. */
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

/**
 * Update a stream's filter. It passes packets with the known addresses and position, or no packets
 * while these are not certain.
 */
static void
arm(struct sources *all, uint32_t stream)
{
	const struct source *st = &all->stream[stream];
	struct source_filter *f = &all->filter[stream], next = all->settings->filter[stream];
	bool open = st->step == SOURCE_CONFIGURED || st->step == SOURCE_LEARNT;
	uint64_t learnt[SOURCE_WORDS];

	if (st->step == SOURCE_LEARNT) {
		/* the port is not learnt */
		address_mask(learnt);
		for (uint32_t i = 0; i < RTE_DIM(next.value); i++) {
			next.value[i] = (next.value[i] & ~learnt[i]) | (st->taken[i] & learnt[i]);
			next.mask[i] |= learnt[i];
		}
	}
	if (checks_positions(all)) {
		next.value[1] |= (uint64_t)st->position << 32;
		next.mask[1] |= (uint64_t)UINT32_MAX << 32;
		open &= st->position != SOURCE_POSITION_UNKNOWN && st->moves == 0 && !st->misplaced;
	}
	if (!open) {
		next.port |= NEVER;
		next.port_mask |= NEVER;
	}
	next.taken = f->taken;
	*f = next;
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
			.needed = RTE_MAX(
				(uint32_t)SOURCE_NEEDED_MIN, detector_stream_expected(detector, s)),
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

/** Time windows in which the learnt source can have sent half of `needed`, with its credit. */
static uint64_t
tenure(const struct sources *all, uint32_t stream, uint64_t now)
{
	const struct source *st = &all->stream[stream];
	const uint64_t by_time = (now - st->learnt_at) / RTE_MAX(all->stall_cycles, 1u);
	const uint64_t by_number = 2 * all->filter[stream].taken / st->needed;

	return st->credit + RTE_MIN(by_time, by_number);
}

static void
learn(struct sources *all, uint32_t stream, const uint64_t words[SOURCE_WORDS], uint64_t now,
	enum source_reason reason)
{
	struct source *st = &all->stream[stream];

	copy(st->taken, words);
	st->step = SOURCE_LEARNT;
	st->reason = reason;
	all->filter[stream].taken = st->count;
	st->learnt_at = now;
	st->window_at = 0;
	st->windows = 0;
	st->count = 0;
	st->changes++;
	if (checks_positions(all))
		announce(all, st, source_words_position(words));
}

/**
 * Learn the candidate. The tenures of the source before and of the displaced source are kept.
 * @param words  addresses and position of the packet
 */
static enum source_verdict
replace(struct sources *all, uint32_t stream, const uint64_t words[SOURCE_WORDS], uint64_t now,
	enum source_reason reason)
{
	struct source *st = &all->stream[stream];
	struct source_tenant leaves = {.tenure = tenure(all, stream, now)};
	uint64_t mask[SOURCE_WORDS];

	address_mask(mask);
	copy(leaves.words, st->taken);
	st->credit = 0;
	/* while the candidate sent more, it has earned tenure, and the source before has not */
	if (reason == SOURCE_BY_NUMBER) {
		leaves.tenure = st->to_win;
		st->credit = st->windows;
	}
	if (is_same(st->candidate, st->displaced.words, mask)) {
		st->credit += st->displaced.tenure;
		st->displaced = leaves;
	} else if (leaves.tenure >= st->displaced.tenure) {
		st->displaced = leaves;
	}
	copy(st->before, leaves.words);
	learn(all, stream, st->candidate, now, reason);
	return is_same(words, st->taken, mask) ? SOURCE_OURS : SOURCE_FOREIGN;
}

/**
 * Count a packet of a source that may be learnt, for the candidate or against it.
 * @return whether the candidate leads by `needed`
 */
static bool
vote(struct source *st, const uint64_t words[SOURCE_WORDS], const uint64_t mask[SOURCE_WORDS])
{
	if (st->count == 0)
		copy(st->candidate, words);
	if (!is_same(words, st->candidate, mask)) {
		st->count--;
		return false;
	}
	st->count += st->count < UINT32_MAX;
	return st->count >= st->needed;
}

static void
begin_window(struct source *st, uint64_t taken, uint64_t now)
{
	st->window_at = now;
	st->window_from = taken;
	st->count = 0;
}

/** The candidate has won a time window. @return whether it has won enough of them */
static bool
win(struct sources *all, uint32_t stream, const uint64_t mask[SOURCE_WORDS])
{
	struct source *st = &all->stream[stream];

	if (st->windows == 0 || !is_same(st->candidate, st->ahead, mask)) {
		copy(st->ahead, st->candidate);
		st->windows = 0;
		/* the learnt source earns no tenure while it is challenged */
		st->to_win = tenure(all, stream, st->window_at);
	}
	return ++st->windows > st->to_win;
}

static bool
had_it_longer(
	const struct sources *all, uint32_t stream, const uint64_t mask[SOURCE_WORDS], uint64_t now)
{
	const struct source *st = &all->stream[stream];

	return is_same(st->candidate, st->displaced.words, mask) &&
		st->displaced.tenure > tenure(all, stream, now);
}

/** Decide about a packet that does not come from the learnt source. */
static enum source_verdict
challenge(struct sources *all, uint32_t stream, const uint64_t words[SOURCE_WORDS],
	const uint64_t mask[SOURCE_WORDS])
{
	struct source *st = &all->stream[stream];
	const uint64_t taken = all->filter[stream].taken, now = rte_rdtsc();
	bool leads, is_silent;
	uint64_t sent;

	if (st->window_at == 0)
		begin_window(st, taken, now);
	sent = taken - st->window_from;
	(void)vote(st, words, mask);
	leads = st->count >= st->needed;
	if (now - st->window_at < all->stall_cycles)
		return SOURCE_FOREIGN;
	is_silent = 2 * sent < st->needed;
	/* at a low frame rate, `needed` packets take longer: the time window continues */
	if (is_silent && !leads)
		return SOURCE_FOREIGN;
	if (is_silent)
		return replace(all, stream, words, now, SOURCE_BY_SILENCE);
	if (leads && 2 * (uint64_t)st->count >= sent && had_it_longer(all, stream, mask, now))
		return replace(all, stream, words, now, SOURCE_IS_BACK);
	if (!leads || st->count <= sent)
		st->windows = 0;
	else if (win(all, stream, mask))
		return replace(all, stream, words, now, SOURCE_BY_NUMBER);
	begin_window(st, taken, now);
	return SOURCE_FOREIGN;
}

static enum source_verdict
judge_address(struct sources *all, uint32_t stream, const uint64_t words[SOURCE_WORDS])
{
	struct source *st = &all->stream[stream];
	uint64_t mask[SOURCE_WORDS];
	enum source_verdict verdict = SOURCE_OURS;

	address_mask(mask);
	switch (st->step) {
	case SOURCE_CONFIGURED:
		copy(st->taken, words); /* for telemetry */
		return SOURCE_OURS;
	case SOURCE_LEARNT:
		if (!is_same(words, st->taken, mask))
			return challenge(all, stream, words, mask);
		all->filter[stream].taken++;
		return SOURCE_OURS;
	case SOURCE_NONE:
		copy(st->taken, words);
		st->step = SOURCE_FIRST;
		break;
	case SOURCE_FIRST:
		if (is_same(words, st->taken, mask))
			break;
		copy(st->rivals[0], st->taken);
		copy(st->rivals[1], words);
		st->contests++;
		st->step = SOURCE_CONTESTED;
		verdict = SOURCE_EXPELLED;
		break;
	case SOURCE_CONTESTED:
	default:
		verdict = SOURCE_FOREIGN;
		break;
	}
	if (!vote(st, words, mask))
		return verdict;
	learn(all, stream, words, rte_rdtsc(), SOURCE_BY_VOTE);
	return SOURCE_OURS;
}

static enum source_verdict
judge_position(struct sources *all, struct source *st, uint32_t position)
{
	/* a source that is not learnt yet cannot make other streams misplaced */
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
sources_verdict(struct sources *all, uint32_t stream, const uint8_t *headers, uint32_t position)
{
	const struct source_filter *configured = &all->settings->filter[stream];
	struct source *st = &all->stream[stream];
	enum source_verdict verdict = SOURCE_FOREIGN;
	uint64_t words[SOURCE_WORDS];

	source_words(headers, position, words);
	rte_seqcount_write_begin(&st->written);
	if (source_filter_takes(configured, words))
		verdict = judge_address(all, stream, words);
	if (verdict == SOURCE_OURS) {
		verdict = judge_position(all, st, position);
	} else {
		copy(st->rejected, words);
		st->nb_rejected++;
	}
	rte_seqcount_write_end(&st->written);
	arm(all, stream);
	return verdict;
}

void
sources_get(const struct sources *all, uint32_t stream, struct source *to)
{
	const struct source *st = &all->stream[stream];
	uint32_t count;

	do {
		count = rte_seqcount_read_begin(&st->written);
		*to = *st;
	} while (rte_seqcount_read_retry(&st->written, count));
}

uint64_t
sources_review(struct sources *all, uint64_t mine)
{
	uint32_t expected[DETECTOR_STREAMS_MAX];
	uint64_t expel = 0;

	(void)sources_expected(all, expected);
	for (; mine != 0; mine &= mine - 1) {
		const uint32_t s = __builtin_ctzll(mine);
		struct source *st = &all->stream[s];
		const bool misplaced = st->position != SOURCE_POSITION_UNKNOWN &&
			expected[s] != SOURCE_POSITION_UNKNOWN && expected[s] != st->position;

		if (misplaced == st->misplaced)
			continue;
		rte_seqcount_write_begin(&st->written);
		st->misplaced = misplaced;
		st->changes++;
		rte_seqcount_write_end(&st->written);
		if (misplaced)
			expel |= mine & -mine;
		arm(all, s);
	}
	return expel;
}
