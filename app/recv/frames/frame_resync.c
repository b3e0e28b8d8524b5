/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Resynchronisation: streams that are out of window, because the detector was restarted or has lost
 * frames, or because a module counts differently from the others. RX lcores make resync requests;
 * the builder compares them, and checks which streams send.
 */

#include <inttypes.h>

#include <rte_cycles.h>

#include "counter.h"
#include "frames/frame_table_private.h"
#include "log.h"

LOG_REGISTER("frames", "frames");

/**
 * A request is refused after this many quarters of `stall_cycles`. By then it is known which
 * streams are silent.
 */
#define REFUSE_QUARTERS 5
/** Ticks for which a packet is held: a little longer than a request lives. */
#define HOLD_TICKS (REFUSE_QUARTERS + 1)
/** Microseconds between two determinations of window.front. */
#define FRONT_US 100
/** Checks of the streams in one `stall_cycles`. */
#define LOOKS 16

/**
 * Count a frame towards a resync request.
 * @param vote  it counts; else it only extends the range of frames
 * @param held  packets from the lowest frame on are held: the lowest frame stays while the numbers
 *              continue, even if they go on for more than `slots`
 * @return true once the frames of `resync_packets` packets in a row are within `slots` of each
 *   other
 */
static bool
agree(const struct frame_table *ft, struct frame_agreement *a, uint64_t frame, bool vote,
	bool ahead, bool held)
{
	const uint64_t span = ft->config.slots;

	if (!a->any || a->ahead != ahead || frame + span < a->highest ||
		frame > (held ? a->highest : a->lowest) + span)
		*a = (struct frame_agreement){
			.lowest = frame, .highest = frame, .any = true, .ahead = ahead};
	a->lowest = RTE_MIN(a->lowest, frame);
	a->highest = RTE_MAX(a->highest, frame);
	if (vote && a->votes < ft->config.resync_packets)
		a->votes++;
	return a->votes == ft->config.resync_packets;
}

/* ---- RX lcores ---- */

void
frame_rx_returned(struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t bit = UINT64_C(1) << stream;

	/*
	 * A packet that is retried arrived before the packets held now, so it does not end their
	 * request, unless the window has reached the requested position.
	 */
	if (frx->retry && ((frx->requests_ahead & bit) == 0 || frame + 1 < frx->place[stream]))
		return;
	frx->out_of_window &= ~bit;
	if ((frx->requests & bit) != 0)
		__atomic_store_n(&frx->requests, frx->requests & ~bit, __ATOMIC_RELEASE);
}

bool
frame_resync_is_refused(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t place = frx->place[stream];

	/* the request covers frames from `slots` before its position to max_gap_frames after it */
	return (__atomic_load_n(&ft->window.refused, __ATOMIC_ACQUIRE) >> stream & 1) != 0 &&
		(frx->requests >> stream & 1) != 0 &&
		__atomic_load_n(&ft->builder->request_silences[stream], __ATOMIC_RELAXED) ==
		frx->silences[stream] &&
		frame + 1 + ft->config.slots >= place &&
		frame + 1 < place + ft->config.max_gap_frames;
}

/** Return true if the window has not yet opened the position that a stream has requested. */
static bool
is_pending(const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream)
{
	const bool opened = (frx->requests_ahead >> stream & 1) != 0 &&
		frx->place[stream] <= __atomic_load_n(&ft->window.next, __ATOMIC_RELAXED);

	return (frx->requests >> stream & 1) != 0 && !opened &&
		(__atomic_load_n(&ft->window.refused, __ATOMIC_ACQUIRE) >> stream & 1) == 0;
}

/** Count a packet outside the window, and request its position if enough packets agree. */
static void
count_vote(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	bool vote, bool ahead, bool held)
{
	struct frame_agreement *a = &frx->agreement[stream];
	const uint64_t bit = UINT64_C(1) << stream;
	bool agreed, free;

	if ((frx->out_of_window & bit) == 0)
		*a = (struct frame_agreement){0};
	agreed = agree(ft, a, frame, vote, ahead, held);
	/*
	 * A requested position is not replaced by a higher one until the window has opened or
	 * refused it: packets from it on are held, and they were received first.
	 */
	free = (frx->requests & bit) == 0 ||
		(agreed && (a->lowest < frx->place[stream] || !is_pending(ft, frx, stream)));
	if (free || a->requested) {
		a->requested = agreed;
		if (frx->place[stream] != a->lowest + 1)
			__atomic_store_n(&frx->place[stream], a->lowest + 1, __ATOMIC_RELAXED);
		if (((frx->requests_ahead & bit) != 0) != ahead)
			__atomic_store_n(
				&frx->requests_ahead, frx->requests_ahead ^ bit, __ATOMIC_RELAXED);
	}
	if ((frx->out_of_window & bit) == 0)
		__atomic_store_n(&frx->out_of_window, frx->out_of_window | bit, __ATOMIC_RELEASE);
	if (agreed && (frx->requests & bit) == 0)
		__atomic_store_n(&frx->requests, frx->requests | bit, __ATOMIC_RELEASE);
}

/** Forget the request of a stream, which may be refused, if the stream was silent since. */
static void
forget_after_silence(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream)
{
	const uint32_t silences = __atomic_load_n(&ft->builder->silences[stream], __ATOMIC_RELAXED);
	const uint64_t bit = UINT64_C(1) << stream;

	if (likely(frx->silences[stream] == silences) || frx->retry)
		return;
	frx->silences[stream] = silences;
	frx->out_of_window &= ~bit;
	if ((frx->requests & bit) != 0)
		__atomic_store_n(&frx->requests, frx->requests & ~bit, __ATOMIC_RELEASE);
}

enum frame_placement
frame_resync_request(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	bool vote, bool ahead)
{
	bool refused;

	forget_after_silence(ft, frx, stream);
	refused = frame_resync_is_refused(ft, frx, stream, frame);
	count_vote(ft, frx, stream, frame, vote, ahead, !refused);
	return refused ? frame_rx_drop(ft, frx, stream, frame) : FRAME_PLACE_HOLD;
}

/** Frames from here on are too far ahead for a stream that is out of window. */
static uint64_t
far_of(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_window *w = &ft->window;
	uint64_t far = __atomic_load_n(&w->next, __ATOMIC_RELAXED);

	/* the head may lag behind the other streams */
	if ((__atomic_load_n(&w->outvoted, __ATOMIC_ACQUIRE) >> stream & 1) != 0)
		far = RTE_MAX(far, __atomic_load_n(&w->front, __ATOMIC_RELAXED));
	return far + ft->config.max_skew_frames;
}

bool
frame_resync_is_far(const struct frame_table *ft, uint32_t stream, uint64_t frame)
{
	return frame >= far_of(ft, stream);
}

/**
 * Return true if a stream with a request has reached the other streams, which have continued
 * meanwhile. The stream has then sent old packets, such as those of a pause, and the detector was
 * not restarted.
 */
static bool
has_caught_up(const struct frame_table *ft, uint32_t stream, uint64_t frame)
{
	const struct frame_window *w = &ft->window;
	uint64_t front;

	if (likely((__atomic_load_n(&w->outvoted, __ATOMIC_ACQUIRE) >> stream & 1) == 0))
		return false;
	front = __atomic_load_n(&w->front, __ATOMIC_RELAXED);
	return frame + 1 + ft->config.max_skew_frames >= front &&
		frame < front + ft->config.max_skew_frames;
}

bool
frame_resync_continues(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const struct frame_agreement *a = &frx->agreement[stream];
	const uint64_t span = ft->config.slots;
	const bool requests = (frx->requests >> stream & 1) != 0;
	uint64_t first;

	/*
	 * A single number may be corrupt or late, so a request is needed, except after silence. The
	 * rest of a frame that was interrupted does not vote, and nothing continues it.
	 */
	if ((frx->out_of_window >> stream & 1) == 0 || !a->any || a->votes == 0 || a->ahead ||
		__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED ||
		!frame_rx_is_current(ft, frx) || (!requests && !frame_rx_paused(ft, frx, stream)))
		return false;
	/*
	 * The numbers may have gone on for more than `slots` while the window waits. The packets
	 * held since the request belong to it, too.
	 */
	first = frx->retry && requests ? a->lowest : a->highest - RTE_MIN(a->highest, span);
	return frame >= first && frame <= a->highest + span &&
		!frame_resync_is_refused(ft, frx, stream, frame) &&
		!has_caught_up(ft, stream, frame);
}

bool
frame_rx_is_away(const struct frame_table *ft, const struct frame_rx *frx)
{
	const uint64_t quiet = __atomic_load_n(&ft->window.paused, __ATOMIC_RELAXED) |
		__atomic_load_n(&frx->out_of_window, __ATOMIC_ACQUIRE);

	if (__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_OPEN)
		return true;
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		if (ft->config.owner[s] == frx->id &&
			detector_stream_expected(&ft->detector, s) != 0 && (quiet >> s & 1) == 0)
			return false;
	return true;
}

bool
frame_rx_is_moving(const struct frame_table *ft, const struct frame_rx *frx)
{
	const uint32_t state = __atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE);

	return state == FRAME_WINDOW_MOVING ||
		(state != FRAME_WINDOW_CLOSED && !frame_rx_is_current(ft, frx));
}

bool
frame_rx_begin_retry(const struct frame_table *ft, struct frame_rx *frx, bool *moved)
{
	const struct frame_window *w = &ft->window;
	const uint32_t state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
	const bool first = (state == FRAME_WINDOW_OPEN || state == FRAME_WINDOW_SEARCHED) &&
		frame_rx_is_current(ft, frx) && frx->tried != frx->generation;

	frx->retry = true;
	*moved = first && frx->clean != frx->generation &&
		__atomic_load_n(&w->old_end, __ATOMIC_RELAXED) != 0;
	if (first) {
		frx->tried = frx->generation;
		frx->early = 0;
	}
	/*
	 * The window has passed a gap. The next position is that of the first packets that are
	 * still held, and not of those that were received last: held packets vote again, in order.
	 */
	frx->recount = 0;
	for (uint64_t i = first ? 0 : frx->out_of_window; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		if (is_pending(ft, frx, s) || !frx->agreement[s].ahead)
			continue;
		frx->recount |= UINT64_C(1) << s;
		frx->agreement[s] = (struct frame_agreement){0};
	}
	return first;
}

bool
frame_rx_is_near(const struct frame_table *ft, uint64_t frame)
{
	const uint64_t base = __atomic_load_n(&ft->window.base, __ATOMIC_RELAXED);

	/* open and refused frames span up to twice the slots, and lost ones may follow them */
	return frame >= base && frame - base <= 2 * ft->entry_mask;
}

enum frame_retry
frame_rx_retry(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint8_t tick)
{
	const bool over = (uint8_t)(frame_rx_tick(ft) - tick) > HOLD_TICKS;
	const struct frame_window *w = &ft->window;
	const uint32_t state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
	uint64_t base, far, ahead, horizon;

	/* the packet belongs to the run that has ended */
	if (state == FRAME_WINDOW_CLOSED)
		return FRAME_RETRY_DROP;
	if (state != FRAME_WINDOW_OPEN || !frame_rx_is_current(ft, frx))
		return FRAME_RETRY_HOLD;
	base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	far = (frx->out_of_window >> stream & 1) != 0 ? far_of(ft, stream)
						      : base + 2 * ft->entry_mask;
	if (frame_resync_continues(ft, frx, stream, frame)) {
		if (!over)
			return FRAME_RETRY_HOLD;
		frx->agreement[stream].any = false;
	}
	ahead = __atomic_load_n(&w->ahead, __ATOMIC_RELAXED);
	if (frame >= base && (frame < far || frame < ahead))
		return FRAME_RETRY_PLACE;
	horizon = __atomic_load_n(&w->horizon, __ATOMIC_RELAXED);
	if ((frx->recount >> stream & 1) != 0 && frame >= base)
		count_vote(ft, frx, stream, frame, true, frame < horizon, true);
	/* the window still moves towards this frame, unless the stream's request was refused */
	if (ahead > base && frame >= ahead && frame < horizon &&
		(__atomic_load_n(&w->refused, __ATOMIC_ACQUIRE) >> stream & 1) == 0)
		return FRAME_RETRY_HOLD;
	if (over || frame_resync_is_refused(ft, frx, stream, frame))
		return FRAME_RETRY_DROP;
	return FRAME_RETRY_HOLD;
}

uint64_t
frame_rx_blocking_streams(const struct frame_table *ft, const struct frame_rx *frx,
	const uint64_t waiting[DETECTOR_STREAMS_MAX])
{
	const struct frame_window *w = &ft->window;
	const uint64_t base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	const uint64_t far =
		__atomic_load_n(&w->next, __ATOMIC_RELAXED) + ft->config.max_skew_frames;
	uint64_t strays = 0;
	uint32_t served = 0;

	if (__atomic_load_n(&w->state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_OPEN ||
		!frame_rx_is_current(ft, frx))
		return 0;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		uint64_t frame = waiting[s] - 1;

		if (ft->config.owner[s] != frx->id)
			continue;
		if (waiting[s] == 0)
			served += frx->progress[s] > base;
		else if (!frame_rx_is_ours(ft, &frame) || frame < far)
			return 0;
		else
			strays |= UINT64_C(1) << s;
	}
	return served > (uint32_t)__builtin_popcountll(strays) ? strays : 0;
}

void
frame_rx_vote_blocking(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	(void)frame_resync_request(ft, frx, stream, frame, true, true);
}

/* ---- builder ---- */

/** Counter that changes with a stream's packets, except further packets of its last frame. */
static uint64_t
activity_of(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_rx *frx = &ft->rx[ft->config.owner[stream]];

	return counter_get(&frx->activity[stream]) + frame_stream_progress(ft, stream);
}

/** Packets of a stream's last frame, 0 = no longer known. */
static uint8_t
last_packets(const struct frame_table *ft, uint32_t stream)
{
	const uint64_t progress = frame_stream_progress(ft, stream), frame = progress - 1;
	const struct frame_stream *st =
		frame_table_stream(ft, ft->builder->slot_of[frame & ft->entry_mask], stream);

	if (progress == 0 ||
		__atomic_load_n(&st->tag, __ATOMIC_ACQUIRE) >> FRAME_TAG_SLOT_BITS != progress)
		return 0;
	return __builtin_popcountll(__atomic_load_n(&st->seen[0], __ATOMIC_RELAXED)) +
		__builtin_popcountll(__atomic_load_n(&st->seen[1], __ATOMIC_RELAXED));
}

/** Return true if a stream has sent something since the last check. */
static bool
is_active(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;

	return activity_of(ft, stream) != b->activity[stream] ||
		last_packets(ft, stream) > b->active_packets[stream];
}

bool
frame_resync_is_silent(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;

	return (b->silent >> stream & 1) != 0 && !is_active(ft, stream);
}

void
frame_resync_note_activity(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;

	b->listened_at = rte_rdtsc();
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		b->listened[i] = frame_rx_listened(ft, i);
	b->silent &= b->dead;
	__atomic_store_n(&ft->window.paused, b->silent, __ATOMIC_RELAXED);
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		b->activity[s] = activity_of(ft, s);
		b->active_packets[s] = last_packets(ft, s);
		b->paused_progress[s] = 0;
		if ((b->silent >> s & 1) == 0)
			b->active_at[s] = b->listened[ft->config.owner[s]];
	}
}

/**
 * Return true if an RX role has packets that wait, or no room to hold more. Its streams may not be
 * silent.
 */
static bool
any_waits(const struct frame_table *ft, uint32_t rx)
{
	return __atomic_load_n(&ft->rx[rx].waits_for, __ATOMIC_ACQUIRE) != 0 ||
		__atomic_load_n(&ft->rx[rx].crowded, __ATOMIC_ACQUIRE) != 0;
}

/** Read the clocks of the RX roles. Time in which packets waited in one does not count. */
static void
read_clocks(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t waited[FRAME_RX_MAX];

	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const uint64_t listened = frame_rx_listened(ft, i);

		waited[i] = any_waits(ft, i) ? listened - b->listened[i] : 0;
		b->listened[i] = listened;
	}
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		b->active_at[s] += waited[ft->config.owner[s]];
}

/**
 * Log, at most once a minute, that an RX role does not run for a part of the time. The silence of a
 * detector before it restarts must then be longer.
 */
static void
log_absence(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = ft->builder;
	const uint64_t second = rte_get_tsc_hz();

	if (now - b->absent_at < second)
		return;
	b->absent_at = now;
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const uint64_t absent = __atomic_load_n(&ft->rx[i].absent, __ATOMIC_RELAXED);
		const uint64_t more = absent - b->absent[i];

		b->absent[i] = absent;
		if (more < ft->config.stall_cycles / 8 ||
			(b->absent_logged != 0 && now - b->absent_logged < 60 * second))
			continue;
		b->absent_logged = now;
		LOG(NOTICE,
			"RX role %u did not run for %" PRIu64
			" ms; this time does not count as silence of the detector; give its lcore "
			"a CPU of its own\n",
			i, more / (second / 1000));
	}
}

/**
 * Return how long a stream has sent nothing. Only time in which its RX role has listened counts.
 */
static uint64_t
silence(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;

	return b->listened[ft->config.owner[stream]] - b->active_at[stream];
}

/**
 * Find dead streams: silent for 1.5 times `stall_cycles` while at least half of the expected
 * streams send. In a pause of the detector no stream is dead. A dead stream stays dead until it
 * sends.
 */
static void
find_dead(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint32_t expected = 0, speak = 0;

	b->dead &= b->silent;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const bool is_expected = detector_stream_expected(&ft->detector, s) != 0;

		expected += is_expected;
		speak += is_expected && (b->silent >> s & 1) == 0;
	}
	for (uint32_t s = 0; s < ft->detector.streams && 2 * speak >= expected; s++)
		if ((b->silent >> s & 1) != 0 && silence(ft, s) >= ft->config.stall_cycles / 2 * 3)
			b->dead |= UINT64_C(1) << s;
}

void
frame_resync_listen(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	const uint64_t now = rte_rdtsc();
	uint64_t paused = 0;
	bool still;

	if (likely(now - b->listened_at < ft->config.stall_cycles / LOOKS))
		return;
	b->listened_at = now;
	read_clocks(ft);
	log_absence(ft, now);
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t progress = frame_stream_progress(ft, s);

		if (is_active(ft, s)) {
			b->activity[s] = activity_of(ft, s);
			b->active_packets[s] = last_packets(ft, s);
			b->active_at[s] = b->listened[ft->config.owner[s]];
			b->silent &= ~(UINT64_C(1) << s);
		} else if (silence(ft, s) >= ft->config.stall_cycles) {
			if ((b->silent >> s & 1) == 0)
				__atomic_store_n(
					&b->silences[s], b->silences[s] + 1, __ATOMIC_RELAXED);
			b->silent |= UINT64_C(1) << s;
		}
		/* a pause lasts until a packet is placed; packets out of window do not end it */
		still = (ft->window.paused >> s & 1) != 0 && progress == b->paused_progress[s];
		if ((!still && (b->silent >> s & 1) == 0) || progress > b->next_close)
			continue;
		paused |= UINT64_C(1) << s;
		if (!still)
			__atomic_store_n(&b->paused_progress[s], progress, __ATOMIC_RELAXED);
	}
	find_dead(ft);
	__atomic_store_n(&ft->window.paused, paused, __ATOMIC_RELEASE);
	/* held packets do not age while those before them are placed */
	if (b->draining)
		b->tick_at = now;
	b->draining = false;
	if (now - b->tick_at >= ft->config.stall_cycles / 4) {
		b->tick_at = now;
		COUNTER_SET(ft->window.tick, ft->window.tick + 1);
		frame_window_changed(ft);
	}
}

/**
 * Read the resync requests of all RX roles and their positions. A gap that the window has passed is
 * no longer a request.
 * @param lone  also take streams that have sent fewer than `resync_packets` packets
 */
static void
collect(struct frame_table *ft, bool lone)
{
	struct frame_builder *b = ft->builder;
	uint64_t mine, ahead;

	b->requests = b->requests_ahead = 0;
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const struct frame_rx *frx = &ft->rx[i];

		mine = __atomic_load_n(&frx->requests, __ATOMIC_ACQUIRE);
		if (lone)
			mine |= __atomic_load_n(&frx->out_of_window, __ATOMIC_ACQUIRE);
		if (likely(mine == 0))
			continue;
		ahead = __atomic_load_n(&frx->requests_ahead, __ATOMIC_RELAXED);
		for (; mine != 0; mine &= mine - 1) {
			const uint64_t bit = mine & -mine;
			const uint32_t s = __builtin_ctzll(mine);

			b->request_position[s] = __atomic_load_n(&frx->place[s], __ATOMIC_RELAXED);
			if ((ahead & bit) != 0 && b->request_position[s] <= b->next_close)
				continue;
			b->requests |= bit;
			b->requests_ahead |= ahead & bit;
		}
	}
}

/**
 * Largest group of requests whose positions are at most `slots` above the lowest of them.
 * @param ahead  requests ahead of the window that also support each lower request, because the
 *               window passes the lower position first
 */
static uint64_t
largest_group(const struct frame_table *ft, uint64_t ahead, uint64_t *lowest)
{
	const uint64_t *place = ft->builder->request_position;
	uint64_t best = 0;

	for (uint64_t i = ft->builder->requests; i != 0; i &= i - 1) {
		const uint64_t from = place[__builtin_ctzll(i)];
		const uint64_t behind = (ahead & i & -i) != 0 ? ahead : 0;
		uint64_t group = 0;

		for (uint64_t k = ft->builder->requests; k != 0; k &= k - 1) {
			const uint32_t s = __builtin_ctzll(k);

			if (place[s] >= from &&
				(place[s] - from <= ft->config.slots || (behind >> s & 1) != 0))
				group |= UINT64_C(1) << s;
		}
		if (__builtin_popcountll(group) > __builtin_popcountll(best)) {
			best = group;
			*lowest = from;
		}
	}
	return best;
}

/** Streams that are expected, are not silent and do not belong to a group. */
static uint64_t
others(const struct frame_table *ft, uint64_t group, uint32_t *expected)
{
	uint64_t streams = 0;

	*expected = 0;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		if (detector_stream_expected(&ft->detector, s) == 0)
			continue;
		++*expected;
		if ((group >> s & 1) == 0 && !frame_resync_is_silent(ft, s))
			streams |= UINT64_C(1) << s;
	}
	return streams;
}

/**
 * Return true if a group is at least half of the expected streams, and more than the others that
 * send.
 */
static bool
is_enough(const struct frame_table *ft, uint64_t group)
{
	const uint32_t mine = __builtin_popcountll(group);
	uint32_t expected;
	const uint64_t against = others(ft, group, &expected);

	return mine > 0 && 2 * mine >= expected && mine > (uint32_t)__builtin_popcountll(against);
}

bool
frame_resync_is_unanimous(const struct frame_table *ft, uint64_t group)
{
	uint32_t expected;

	return others(ft, group, &expected) == 0;
}

/** Log streams whose request is refused, and their return to the window; at most once a second. */
static void
log_refused_requests(struct frame_table *ft, uint64_t refused)
{
	struct frame_builder *b = ft->builder;
	const struct detector *d = &ft->detector;
	const uint64_t now = rte_rdtsc();

	if (b->logged_at != 0 && now - b->logged_at < rte_get_tsc_hz())
		return;
	for (uint64_t i = refused & ~b->requests_logged; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		LOG(WARNING,
			"module %u, interface %u is at frame %" PRIu64 ", the other streams are "
			"at %" PRIu64 "; dropping its packets until it is resynchronised\n",
			detector_stream_module(d, s), s % d->interfaces,
			frame_table_number(ft, b->request_position[s] - 1),
			frame_table_number(ft, b->next_close));
		b->requests_logged |= UINT64_C(1) << s;
		b->logged_at = now;
		b->logged_progress[s] = frame_stream_progress(ft, s);
	}
	for (uint64_t i = b->requests_logged & ~b->requests; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);

		/* a request also ends when the window passes its position */
		if (frame_stream_progress(ft, s) == b->logged_progress[s])
			continue;
		LOG(NOTICE,
			"module %u, interface %u is at the same frame as the other streams "
			"again\n",
			detector_stream_module(d, s), s % d->interfaces);
		b->requests_logged &= ~(UINT64_C(1) << s);
		b->logged_at = now;
	}
}

/** Determine the frame that half of the expected streams have reached that make no request. */
static void
find_front(struct frame_table *ft, uint64_t now)
{
	struct frame_builder *b = ft->builder;
	uint64_t reach[DETECTOR_STREAMS_MAX], front = 0;
	uint32_t expected = 0, n = 0, at;

	if (now - b->front_at < FRONT_US * rte_get_tsc_hz() / 1000000)
		return;
	b->front_at = now;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		uint64_t mine;

		if (detector_stream_expected(&ft->detector, s) == 0)
			continue;
		expected++;
		if ((b->requests >> s & 1) != 0)
			continue;
		/* the highest first */
		mine = frame_head_reach(ft, s);
		for (at = n++; at > 0 && reach[at - 1] < mine; at--)
			reach[at] = reach[at - 1];
		reach[at] = mine;
	}
	if (2 * n >= expected && n > 0)
		front = reach[(expected + 1) / 2 - 1];
	__atomic_store_n(&ft->window.front, front, __ATOMIC_RELAXED);
}

/** Refuse requests that were not followed for too long: RX roles then drop their packets. */
static void
refuse(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	const uint64_t patience = ft->config.stall_cycles / 4 * REFUSE_QUARTERS;
	const uint64_t now = rte_rdtsc();
	uint64_t refused = 0, outvoted = 0, over;

	find_front(ft, now);
	b->requests_timed = b->requests;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t place = b->request_position[s];
		bool silent;

		if ((b->requests >> s & 1) == 0) {
			b->request_since[s] = 0;
			continue;
		}
		silent = frame_resync_is_silent(ft, s);
		/*
		 * A position that moves forward is still the same request. A stream that was silent
		 * makes a new one.
		 */
		if (b->request_since[s] == 0 || place + ft->config.slots < b->request_at[s] ||
			place >= b->request_at[s] + ft->config.max_gap_frames ||
			(!silent && b->request_silences[s] != b->silences[s])) {
			b->request_since[s] = now;
			b->request_front[s] = ft->window.front;
			__atomic_store_n(&b->request_silences[s], b->silences[s], __ATOMIC_RELAXED);
		}
		b->request_at[s] = place;
		if (b->request_front[s] != 0 &&
			ft->window.front > b->request_front[s] + ft->config.max_skew_frames)
			outvoted |= UINT64_C(1) << s;
		/* after that, RX roles have dropped what a silent stream had sent */
		over = silent ? patience + ft->config.stall_cycles / 4 : UINT64_MAX;
		if (now - b->request_since[s] >= patience && now - b->request_since[s] < over)
			refused |= UINT64_C(1) << s;
	}
	if (unlikely(ft->window.outvoted != outvoted)) {
		__atomic_store_n(&ft->window.outvoted, outvoted, __ATOMIC_RELEASE);
		frame_window_changed(ft);
	}
	if (unlikely(ft->window.refused != refused)) {
		__atomic_store_n(&ft->window.refused, refused, __ATOMIC_RELEASE);
		frame_window_changed(ft);
	}
	if ((refused | b->requests_logged) != 0)
		log_refused_requests(ft, refused);
}

/**
 * Find the lowest position of a group whose frame is not open yet. Positions that are open are left
 * out: the window waits for their streams there, and these streams may have no more packets.
 * @param lowest  returned if all positions are open
 */
static uint64_t
first_to_open(const struct frame_table *ft, uint64_t group, uint64_t lowest)
{
	uint64_t first = UINT64_MAX;

	for (; group != 0; group &= group - 1) {
		const uint64_t at = ft->builder->request_position[__builtin_ctzll(group)];

		if (at > ft->builder->next_open)
			first = RTE_MIN(first, at);
	}
	return first != UINT64_MAX ? first : lowest;
}

uint64_t
frame_resync_position(struct frame_table *ft, uint64_t *group)
{
	struct frame_builder *b = ft->builder;
	uint64_t lowest = 0;

	collect(ft, false);
	if (likely(b->requests == 0 && b->requests_timed == 0 && b->requests_logged == 0)) {
		b->leaving = false;
		return 0;
	}
	*group = largest_group(ft, 0, &lowest);
	if (is_enough(ft, *group))
		return lowest;
	*group = largest_group(ft, b->requests_ahead, &lowest);
	if (is_enough(ft, *group))
		return first_to_open(ft, *group, lowest);
	b->leaving = false;
	refuse(ft);
	return 0;
}

uint64_t
frame_resync_first(struct frame_table *ft, bool fewer, bool *any)
{
	uint64_t lowest = 0, group;

	collect(ft, true);
	*any = ft->builder->requests != 0;
	if (!fewer)
		collect(ft, false);
	group = largest_group(ft, 0, &lowest);
	return group != 0 && (fewer || is_enough(ft, group)) ? lowest : 0;
}
