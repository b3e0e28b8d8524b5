/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Streams whose numbers the window is not near: a detector that was restarted or has lost frames,
 * or a module that counts otherwise than the others.
 */

#include <inttypes.h>

#include <rte_cycles.h>

#include "frame_table_private.h"

bool
frame_agree(const struct frame_table *ft, struct frame_agreement *a, uint64_t frame)
{
	const uint64_t span = ft->config.slots;

	if (frame > FRAME_NUMBER_MAX)
		return false;
	if (a->votes == 0 || frame + span < a->highest || frame > a->lowest + span)
		*a = (struct frame_agreement){.lowest = frame, .highest = frame};
	a->lowest = RTE_MIN(a->lowest, frame);
	a->highest = RTE_MAX(a->highest, frame);
	if (a->votes < ft->config.agree)
		a->votes++;
	return a->votes == ft->config.agree;
}

/* ---- RX lcores ---- */

void
frame_lane_is_here(struct frame_lane *lane, uint32_t stream)
{
	const uint64_t bit = UINT64_C(1) << stream;

	lane->elsewhere &= ~bit;
	if ((lane->claims & bit) != 0)
		__atomic_store_n(&lane->claims, lane->claims & ~bit, __ATOMIC_RELEASE);
}

void
frame_claim(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame,
	bool ahead)
{
	struct frame_agreement *a = &lane->agreement[stream];
	const uint64_t bit = UINT64_C(1) << stream;

	if ((lane->elsewhere & bit) == 0)
		a->votes = 0;
	lane->elsewhere |= bit;
	if (!frame_agree(ft, a, frame))
		return;
	if (lane->place[stream] != a->lowest + 1)
		__atomic_store_n(&lane->place[stream], a->lowest + 1, __ATOMIC_RELAXED);
	if (((lane->claims_ahead & bit) != 0) != ahead)
		__atomic_store_n(&lane->claims_ahead, lane->claims_ahead ^ bit, __ATOMIC_RELAXED);
	if ((lane->claims & bit) == 0)
		__atomic_store_n(&lane->claims, lane->claims | bit, __ATOMIC_RELEASE);
}

/* ---- builder ---- */

/** Claims of all lanes, and where they are. A gap that the window has passed is none any more. */
static uint64_t
collect(const struct frame_table *ft, uint64_t place[DETECTOR_STREAMS_MAX])
{
	uint64_t all = 0, mine;

	for (uint32_t i = 0; i < ft->config.lanes; i++) {
		const struct frame_lane *lane = &ft->lanes[i];
		uint64_t ahead;

		mine = __atomic_load_n(&lane->claims, __ATOMIC_ACQUIRE);
		ahead = __atomic_load_n(&lane->claims_ahead, __ATOMIC_RELAXED);
		for (; mine != 0; mine &= mine - 1) {
			const uint32_t s = __builtin_ctzll(mine);

			place[s] = __atomic_load_n(&lane->place[s], __ATOMIC_RELAXED);
			if ((ahead >> s & 1) == 0 || place[s] > ft->builder.next_close)
				all |= UINT64_C(1) << s;
		}
	}
	return all;
}

/** The most claims that are within `slots` frames from the lowest of them. */
static uint64_t
largest_group(const struct frame_table *ft, uint64_t claims,
	const uint64_t place[DETECTOR_STREAMS_MAX], uint64_t *lowest)
{
	uint64_t best = 0;

	for (uint64_t i = claims; i != 0; i &= i - 1) {
		const uint64_t from = place[__builtin_ctzll(i)];
		uint64_t group = 0;

		for (uint64_t k = claims; k != 0; k &= k - 1) {
			const uint32_t s = __builtin_ctzll(k);

			if (place[s] >= from && place[s] - from <= ft->config.slots)
				group |= UINT64_C(1) << s;
		}
		if (__builtin_popcountll(group) > __builtin_popcountll(best)) {
			best = group;
			*lowest = from;
		}
	}
	return best;
}

/** Look from now on who speaks. */
static void
look_anew(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = &ft->builder;

	b->claimed_at = now;
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		b->claim_progress[s] = frame_stream_progress(ft, s);
}

/**
 * Streams that speak and do not belong to a group: those that claim something else, and those that
 * are here. After `stall_cycles` only those count as here that had a packet placed meanwhile.
 */
static uint32_t
count_others(const struct frame_table *ft, uint64_t claims, uint64_t group, bool stalled)
{
	const struct frame_builder *b = &ft->builder;
	uint32_t others = __builtin_popcountll(claims & ~group);

	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = frame_stream_progress(ft, s);

		if ((claims >> s & 1) == 0 && at != 0 && b->stalled_at[s] != at + 1)
			others += !stalled || at != b->claim_progress[s];
	}
	return others;
}

static void
tell(struct frame_table *ft, uint64_t claims, const uint64_t place[DETECTOR_STREAMS_MAX])
{
	struct frame_builder *b = &ft->builder;
	const struct detector *d = &ft->detector;

	for (uint64_t i = claims & ~b->claims_told; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		LOG(WARNING,
			"module %u, interface %u is at frame %" PRIu64
			", most of the others are at %" PRIu64
			": its packets are dropped until it counts as they do\n",
			detector_stream_module(d, s), s % d->interfaces,
			frame_table_number(ft, place[s] - 1),
			frame_table_number(ft, b->next_close));
	}
	for (uint64_t i = b->claims_told & ~claims; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		LOG(NOTICE, "module %u, interface %u counts as the others again\n",
			detector_stream_module(d, s), s % d->interfaces);
	}
	b->claims_told = claims;
}

uint64_t
frame_claims_place(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint64_t place[DETECTOR_STREAMS_MAX], lowest = 0;
	const uint64_t claims = collect(ft, place);
	const uint64_t now = rte_rdtsc();
	uint64_t group;
	bool stalled;

	if (likely(claims == 0)) {
		b->claimed_at = 0;
		if (unlikely(b->claims_told != 0))
			tell(ft, 0, place);
		return 0;
	}
	if (b->claimed_at == 0)
		look_anew(ft, now);
	stalled = now - b->claimed_at >= ft->config.stall_cycles;
	group = largest_group(ft, claims, place, &lowest);
	if (count_others(ft, claims, group, stalled) < (uint32_t)__builtin_popcountll(group)) {
		b->claimed_at = 0;
		return lowest;
	}
	if (stalled) {
		tell(ft, claims, place);
		look_anew(ft, now);
	}
	return 0;
}
