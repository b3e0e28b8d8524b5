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

bool
frame_claim(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame,
	bool ahead)
{
	struct frame_agreement *a = &lane->agreement[stream];
	const uint64_t bit = UINT64_C(1) << stream;

	if ((lane->elsewhere & bit) == 0)
		a->votes = 0;
	lane->elsewhere |= bit;
	__atomic_store_n(&lane->dropped[stream], lane->dropped[stream] + 1, __ATOMIC_RELAXED);
	if (!frame_agree(ft, a, frame))
		return false;
	if (lane->place[stream] != a->lowest + 1)
		__atomic_store_n(&lane->place[stream], a->lowest + 1, __ATOMIC_RELAXED);
	if (((lane->claims_ahead & bit) != 0) != ahead)
		__atomic_store_n(&lane->claims_ahead, lane->claims_ahead ^ bit, __ATOMIC_RELAXED);
	if ((lane->claims & bit) == 0)
		__atomic_store_n(&lane->claims, lane->claims | bit, __ATOMIC_RELEASE);
	return (__atomic_load_n(&ft->window.refused_claims, __ATOMIC_ACQUIRE) & bit) == 0;
}

uint64_t
frame_lane_strays(const struct frame_table *ft, const struct frame_lane *lane,
	const uint64_t waiting[DETECTOR_STREAMS_MAX])
{
	const struct frame_window *w = &ft->window;
	const uint64_t base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	const uint64_t far = __atomic_load_n(&w->next, __ATOMIC_RELAXED) + ft->config.give_up;
	uint64_t strays = 0;
	uint32_t served = 0;

	if (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_OPEN ||
		__atomic_load_n(&w->generation, __ATOMIC_ACQUIRE) != lane->generation)
		return 0;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		uint64_t frame = waiting[s] - 1;

		if (ft->config.owner[s] != lane->id)
			continue;
		if (waiting[s] == 0)
			served += lane->progress[s] > base;
		else if (!frame_lane_is_ours(ft, &frame) || frame < far)
			return 0;
		else
			strays |= UINT64_C(1) << s;
	}
	return served > (uint32_t)__builtin_popcountll(strays) ? strays : 0;
}

void
frame_lane_drop(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame)
{
	(void)frame_claim(ft, lane, stream, frame, true);
}

/* ---- builder ---- */

/** Claims of all lanes, and where they are. A gap that the window has passed is none any more. */
static void
collect(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;
	uint64_t mine, ahead;

	b->claims = b->claims_ahead = 0;
	for (uint32_t i = 0; i < ft->config.lanes; i++) {
		const struct frame_lane *lane = &ft->lanes[i];

		mine = __atomic_load_n(&lane->claims, __ATOMIC_ACQUIRE);
		if (likely(mine == 0))
			continue;
		ahead = __atomic_load_n(&lane->claims_ahead, __ATOMIC_RELAXED);
		for (; mine != 0; mine &= mine - 1) {
			const uint64_t bit = mine & -mine;
			const uint32_t s = __builtin_ctzll(mine);

			b->claim_place[s] = __atomic_load_n(&lane->place[s], __ATOMIC_RELAXED);
			if ((ahead & bit) != 0 && b->claim_place[s] <= b->next_close)
				continue;
			b->claims |= bit;
			b->claims_ahead |= ahead & bit;
		}
	}
}

/** The most claims that are within `slots` frames from the lowest of them. */
static uint64_t
largest_group(const struct frame_table *ft, uint64_t *lowest)
{
	const uint64_t *place = ft->builder.claim_place;
	uint64_t best = 0;

	for (uint64_t i = ft->builder.claims; i != 0; i &= i - 1) {
		const uint64_t from = place[__builtin_ctzll(i)];
		uint64_t group = 0;

		for (uint64_t k = ft->builder.claims; k != 0; k &= k - 1) {
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

static uint64_t
dropped_of(const struct frame_table *ft, uint32_t stream)
{
	return __atomic_load_n(
		&ft->lanes[ft->config.owner[stream]].dropped[stream], __ATOMIC_RELAXED);
}

/** Look from now on who speaks. */
static void
look_anew(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = &ft->builder;

	b->claimed_at = now;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		b->claim_progress[s] = frame_stream_progress(ft, s);
		b->claim_dropped[s] = dropped_of(ft, s);
	}
}

/** Has a stream spoken since? */
static bool
speaks(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = &ft->builder;

	/* what waits has come, too */
	return frame_stream_progress(ft, stream) != b->claim_progress[stream] ||
		dropped_of(ft, stream) != b->claim_dropped[stream] ||
		__atomic_load_n(&ft->lanes[ft->config.owner[stream]].wanted, __ATOMIC_ACQUIRE) != 0;
}

/**
 * Are those of a group more than the others? At first of all streams that are expected and were not
 * given up on; after `stall_cycles` of those that have spoken meanwhile: in a pause of the detector
 * that is nobody.
 */
static bool
is_majority(const struct frame_table *ft, uint64_t group, bool stalled)
{
	const struct frame_builder *b = &ft->builder;
	uint32_t mine = 0, others = 0;

	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const bool here = (b->claims >> s & 1) == 0;

		if (detector_stream_expected(&ft->detector, s) == 0 ||
			(here && b->stalled_at[s] == frame_stream_progress(ft, s) + 1) ||
			(stalled && !speaks(ft, s)))
			continue;
		if (group >> s & 1)
			mine++;
		else
			others++;
	}
	return mine > others;
}

/** Streams that are told of, and that count as the others again; no more than once a second. */
static void
tell(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = &ft->builder;
	const struct detector *d = &ft->detector;

	if (b->told_at != 0 && now - b->told_at < rte_get_tsc_hz())
		return;
	for (uint64_t i = b->claims & ~b->claims_told; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		LOG(WARNING,
			"module %u, interface %u is at frame %" PRIu64 ", not at %" PRIu64
			" as others, and no majority is: its packets are dropped until it is\n",
			detector_stream_module(d, s), s % d->interfaces,
			frame_table_number(ft, b->claim_place[s] - 1),
			frame_table_number(ft, b->next_close));
		b->claims_told |= UINT64_C(1) << s;
		b->told_at = now;
		b->told_progress[s] = frame_stream_progress(ft, s);
	}
	for (uint64_t i = b->claims_told & ~b->claims; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		/* a claim ends as well because its place was passed */
		if (frame_stream_progress(ft, s) == b->told_progress[s])
			continue;
		LOG(NOTICE, "module %u, interface %u counts as the others again\n",
			detector_stream_module(d, s), s % d->interfaces);
		b->claims_told &= ~(UINT64_C(1) << s);
		b->told_at = now;
	}
}

/** Lanes need not wait for an answer to these. */
static void
answer(struct frame_table *ft, uint64_t refused)
{
	if (likely(ft->window.refused_claims == refused))
		return;
	__atomic_store_n(&ft->window.refused_claims, refused, __ATOMIC_RELEASE);
	frame_window_changed(ft);
}

uint64_t
frame_claims_place(struct frame_table *ft, uint64_t *group, bool *all)
{
	struct frame_builder *b = &ft->builder;
	uint64_t lowest = 0, now;
	bool stalled;

	collect(ft);
	if (likely(b->claims == 0)) {
		b->claimed_at = 0;
		if (unlikely(b->claims_told != 0))
			tell(ft, rte_rdtsc());
		answer(ft, 0);
		return 0;
	}
	now = rte_rdtsc();
	if (b->claimed_at == 0)
		look_anew(ft, now);
	stalled = now - b->claimed_at >= ft->config.stall_cycles;
	*group = largest_group(ft, &lowest);
	*all = is_majority(ft, *group, false);
	if (*all || (stalled && is_majority(ft, *group, true))) {
		b->claimed_at = 0;
		return lowest;
	}
	if (stalled) {
		tell(ft, now);
		look_anew(ft, now);
	}
	answer(ft, b->claims);
	return 0;
}
