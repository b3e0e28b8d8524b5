/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "frames/frame_table_private.h"

#define FREE_BURST   32 /* mbufs whose lines are on their way at a time */
#define OLD_DISORDER 2	/* frames: how far a stream that goes on may go back */

void
frame_rx_move(struct frame_table *ft, struct frame_rx *lane, uint32_t generation)
{
	const struct detector *d = &ft->detector;
	const uint64_t paused = __atomic_load_n(&ft->window.paused, __ATOMIC_RELAXED);

	for (uint32_t s = 0; s < d->streams; s++) {
		if (ft->config.owner[s] != lane->id)
			continue;
		/* what it still brings of the old window, if it has not begun anew */
		lane->before[s] =
			((lane->elsewhere | paused) >> s & 1) != 0 ? 0 : lane->progress[s];
		__atomic_store_n(&lane->progress[s], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&lane->reach[s], 0, __ATOMIC_RELAXED);
		lane->leap[s] = 0;
		/* numbers may come again after a restart, and in the same slots */
		for (uint32_t slot = 0; slot < ft->config.slots; slot++)
			frame_table_stream(ft, slot, s)->tag = 0;
	}
	memset(lane->count, 0, ft->config.slots * sizeof(*lane->count));
	memset(lane->done, 0, (ft->entry_mask + 1) * sizeof(*lane->done));
	__atomic_store_n(&lane->elsewhere, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->claims, 0, __ATOMIC_RELAXED);
	memset(lane->dropped, 0, sizeof(lane->dropped));
	lane->crowded = 0;
	lane->wanted = 0;
	lane->blocked = 0;
	lane->generation = generation;
	__atomic_store_n(&lane->acknowledged, generation, __ATOMIC_RELEASE);
}

/**
 * After a move: does a packet go on where its stream was in the window before? Not once the stream
 * has sent a number from before that; nor when nothing of that window can be on its way.
 */
static bool
is_of_old_window(
	const struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	const uint64_t end = __atomic_load_n(&ft->window.old_end, __ATOMIC_RELAXED);

	if (end == 0 || frame + 1 + OLD_DISORDER < lane->before[stream]) {
		lane->before[stream] = 0;
		return false;
	}
	return frame < end;
}

/** Is a number ahead by more than a frame, and did the packet before not say so, too? */
static bool
is_leap(struct frame_rx *lane, uint32_t stream, uint64_t from, uint64_t frame)
{
	const uint64_t leap = lane->leap[stream];

	if (frame <= from || frame == leap || frame + 1 == leap)
		return false;
	lane->leap[stream] = frame + 1;
	return true;
}

bool
frame_rx_advance(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	const uint64_t progress = lane->progress[stream];

	if (unlikely(lane->before[stream] != 0) && is_of_old_window(ft, lane, stream, frame))
		return false;
	if (progress != 0 && is_leap(lane, stream, progress, frame))
		return true;
	__atomic_store_n(&lane->progress[stream], frame + 1, __ATOMIC_RELEASE);
	return true;
}

/** A packet waits: its stream is done with frames that are far behind. It says so once. */
static enum frame_place
wait_for(struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	if (!lane->again && frame + 1 > lane->reach[stream] &&
		!is_leap(lane, stream, lane->progress[stream], frame))
		__atomic_store_n(&lane->reach[stream], frame + 1, __ATOMIC_RELEASE);
	return FRAME_PLACE_WAIT;
}

enum frame_place
frame_rx_drop(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	const uint64_t nb = lane->nb_drops;

	if (frame > FRAME_NUMBER_MAX ||
		__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED)
		return FRAME_PLACE_OUTLIER;
	if (lane->dropped[stream] != frame + 1) {
		/* if there is no room the next packet of the frame tries again */
		if (nb - __atomic_load_n(&lane->nb_drops_read, __ATOMIC_ACQUIRE) < FRAME_DROPS) {
			lane->dropped[stream] = frame + 1;
			lane->drops[nb % FRAME_DROPS] = frame;
			__atomic_store_n(&lane->nb_drops, nb + 1, __ATOMIC_RELEASE);
		}
	}
	return frame < __atomic_load_n(&ft->window.base, __ATOMIC_RELAXED) ? FRAME_PLACE_LATE
									   : FRAME_PLACE_OUTLIER;
}

static enum frame_place
drop_late(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	frame_rx_drop(ft, lane, stream, frame);
	return FRAME_PLACE_LATE;
}

/**
 * Free mbufs; absent ones are NULL. It is long since they were placed, so their lines are far away:
 * all are asked for before the first one is waited for, then the counts that they lead to.
 */
static void
free_mbufs(struct rte_mbuf **m, uint32_t n)
{
	uint32_t at, i, end;

	for (at = 0; at < n; at = end) {
		end = RTE_MIN(at + FREE_BURST, n);
		for (i = at; i < end; i++) {
			if (m[i] == NULL)
				continue;
			rte_mbuf_prefetch_part1(m[i]);
			rte_mbuf_prefetch_part2(m[i]);
		}
		for (i = at; i < end; i++) {
			if (m[i] != NULL && RTE_MBUF_HAS_EXTBUF(m[i]))
				rte_prefetch0(m[i]->shinfo);
		}
		rte_pktmbuf_free_bulk(m + at, end - at);
	}
}

/**
 * Free this lane's mbufs of a slot, from where it was left off, at most `most` of them.
 * @return how many were passed; lane->reclaim_stream says whether there are more
 */
static uint32_t
reclaim_slot(struct frame_table *ft, struct frame_rx *lane, uint32_t slot, uint32_t most)
{
	const struct detector *d = &ft->detector;
	uint32_t passed = 0, n;

	for (; lane->reclaim_stream < d->streams; lane->reclaim_stream++) {
		if (ft->config.owner[lane->reclaim_stream] != lane->id)
			continue;
		n = RTE_MIN(d->stream_packets - lane->reclaim_packet, most - passed);
		free_mbufs(frame_table_mbufs(ft, slot) +
				detector_stream_tile(d, lane->reclaim_stream) +
				lane->reclaim_packet,
			n);
		passed += n;
		lane->reclaim_packet += n;
		if (lane->reclaim_packet < d->stream_packets)
			return passed;
		lane->reclaim_packet = 0;
	}
	return passed;
}

uint32_t
frame_rx_reclaim(struct frame_table *ft, struct frame_rx *lane, uint32_t most)
{
	uint64_t at = lane->reclaimed;
	uint32_t passed = 0;

	while (passed < most) {
		const uint64_t release =
			__atomic_load_n(&ft->releases[at & ft->entry_mask], __ATOMIC_ACQUIRE);

		if (release >> FRAME_TAG_SLOT_BITS != at + 1)
			break;
		passed += reclaim_slot(ft, lane, release & FRAME_TAG_SLOT_MASK, most - passed);
		if (lane->reclaim_stream < ft->detector.streams)
			break;
		lane->reclaim_stream = 0;
		__atomic_store_n(&lane->reclaimed, ++at, __ATOMIC_RELEASE);
	}
	return passed;
}

/** @return packets of a stream that were taken out of a slot */
static uint32_t
expel_from_slot(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint32_t slot)
{
	struct frame_stream *st = frame_table_stream(ft, slot, stream);
	const uint64_t frame = (st->tag >> FRAME_TAG_SLOT_BITS) - 1, entry = frame & ft->entry_mask;
	const uint32_t first = detector_stream_tile(&ft->detector, stream);
	uint32_t n = 0;

	/* closed or used again; until the next quiescent state of this lane an open one stays so */
	if (st->tag == 0 || __atomic_load_n(&ft->entry[entry], __ATOMIC_ACQUIRE) != st->tag ||
		lane->done[entry] == frame + 1)
		return 0;
	for (uint32_t p = 0; p < ft->detector.stream_packets; p++) {
		if ((st->seen[p >> 6] >> (p & 63) & 1) == 0)
			continue;
		rte_pktmbuf_free(frame_table_mbufs(ft, slot)[first + p]);
		n++;
	}
	/* no packet of this stream yet */
	st->tag = 0;
	lane->count[slot].placed -= n;
	return n;
}

uint32_t
frame_rx_expel(struct frame_table *ft, struct frame_rx *lane, uint32_t stream)
{
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < ft->config.slots; slot++)
		n += expel_from_slot(ft, lane, stream, slot);
	lane->leap[stream] = 0;
	__atomic_store_n(&lane->reach[stream], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->progress[stream], 0, __ATOMIC_RELEASE);
	return n;
}

/**
 * There is no run. Its frame is remembered: the next run would only get the rest of it. A stream
 * that is a little behind another one takes nothing back: of that one only the rest is to come.
 */
static enum frame_place
drop_unused(const struct frame_table *ft, struct frame_rx *lane, uint64_t frame)
{
	const uint64_t passed = lane->passed, at = frame + 1;
	/* numbers are the detector's now; those of the run before were so far apart */
	const uint64_t stride = __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED);
	uint64_t now;

	if (passed == at)
		return FRAME_PLACE_NO_RUN;
	now = rte_rdtsc();
	if (at < passed && passed - at <= ft->config.max_skew_frames * stride &&
		now - lane->passed_at <= ft->config.stall_cycles)
		return FRAME_PLACE_NO_RUN;
	__atomic_store_n(&lane->passed_at, now, __ATOMIC_RELAXED);
	__atomic_store_n(&lane->passed, at, __ATOMIC_RELEASE);
	return FRAME_PLACE_NO_RUN;
}

/** Has this packet of the stream's last frame been placed? If that is not known, it has. */
static bool
was_placed(const struct frame_table *ft, uint32_t stream, uint64_t frame, uint32_t packet)
{
	for (uint32_t slot = 0; slot < ft->config.slots; slot++) {
		const struct frame_stream *st = frame_table_stream(ft, slot, stream);

		if (st->tag >> FRAME_TAG_SLOT_BITS == frame + 1)
			return (st->seen[packet >> 6] >> (packet & 63) & 1) != 0;
	}
	return true;
}

enum frame_place
frame_rx_late(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame,
	uint32_t packet)
{
	uint64_t base, progress;

	if (frame > FRAME_NUMBER_MAX)
		return FRAME_PLACE_OUTLIER;
	if (__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED)
		return drop_unused(ft, lane, frame);
	if (frame >= __atomic_load_n(&ft->window.end, __ATOMIC_RELAXED))
		return FRAME_PLACE_BEYOND;
	__atomic_store_n(&lane->heard[stream], lane->heard[stream] + 1, __ATOMIC_RELAXED);
	if (lane->before[stream] != 0 && is_of_old_window(ft, lane, stream, frame))
		return drop_late(ft, lane, stream, frame);
	/*
	 * Until the first frame of a run is closed no stream has begun anew. This may be a packet
	 * of that frame, while it is closed without one: then it has no row.
	 */
	base = __atomic_load_n(&ft->window.base, __ATOMIC_RELAXED);
	if (base <= ft->run_first)
		return drop_late(ft, lane, stream, frame);
	/* it may be the rest of the last frame; what was placed before is of a new one */
	if (frame + 1 <= lane->progress[stream] && frame_rx_paused(ft, lane, stream))
		return frame_claim(ft, lane, stream, frame,
			frame + 1 < lane->progress[stream] || was_placed(ft, stream, frame, packet),
			false);
	/*
	 * What comes late is near behind what came of its own stream before. If it is not, or was
	 * not and is far behind the window still, the stream has begun anew.
	 */
	progress = lane->progress[stream] != 0 ? lane->progress[stream] : base;
	if (frame + 1 + ft->config.max_skew_frames >= progress &&
		((lane->elsewhere >> stream & 1) == 0 || base - frame <= ft->entry_mask)) {
		frame_rx_is_here(lane, stream, frame);
		return drop_late(ft, lane, stream, frame);
	}
	return frame_claim(ft, lane, stream, frame, true, false);
}

enum frame_place
frame_rx_duplicate(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame)
{
	if (frame + 1 + ft->config.max_skew_frames >= lane->progress[stream] ||
		__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_OPEN)
		return FRAME_PLACE_DUPLICATE;
	return frame_claim(ft, lane, stream, frame, true, false);
}

enum frame_place
frame_rx_miss(struct frame_table *ft, struct frame_rx *lane, uint32_t stream, uint64_t frame,
	uint32_t packet)
{
	const struct frame_window *w = &ft->window;
	uint64_t base, horizon, end;
	bool near;
	uint32_t state;

	if (frame > FRAME_NUMBER_MAX)
		return FRAME_PLACE_OUTLIER;
	state = __atomic_load_n(&w->state, __ATOMIC_ACQUIRE);
	if (state == FRAME_WINDOW_CLOSED)
		return drop_unused(ft, lane, frame);
	/*
	 * The window is moving. A packet that waited for the old window goes on waiting: it is
	 * dropped after the move. A new packet came after those: it is held for the next window.
	 */
	if ((state != FRAME_WINDOW_OPEN && state != FRAME_WINDOW_SEARCHED) ||
		!frame_rx_is_current(ft, lane)) {
		if (lane->again)
			return FRAME_PLACE_WAIT;
		lane->early |= UINT64_C(1) << stream;
		return FRAME_PLACE_HOLD;
	}
	if (state == FRAME_WINDOW_SEARCHED)
		return frame_claim(ft, lane, stream, frame, true, false);
	base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	horizon = __atomic_load_n(&w->horizon, __ATOMIC_RELAXED);
	end = __atomic_load_n(&w->end, __ATOMIC_RELAXED);

	if (frame >= end && (frame < horizon || base >= end))
		return FRAME_PLACE_BEYOND;
	if (frame < base)
		return frame_rx_late(ft, lane, stream, frame, packet);
	near = frame_rx_is_near(ft, frame);
	if (lane->before[stream] != 0 && is_of_old_window(ft, lane, stream, frame)) {
		__atomic_store_n(&lane->heard[stream], lane->heard[stream] + 1, __ATOMIC_RELAXED);
		return drop_late(ft, lane, stream, frame);
	}
	/* one that has been found to stray waits only for what is next */
	if (near && (lane->elsewhere >> stream & 1) != 0)
		near = frame <
			__atomic_load_n(&w->next, __ATOMIC_RELAXED) + ft->config.max_skew_frames;
	/* a corrupt number must not make the window run after it */
	if (frame < horizon && (near || frame < __atomic_load_n(&w->ahead, __ATOMIC_RELAXED)))
		return wait_for(lane, stream, frame);
	__atomic_store_n(&lane->heard[stream], lane->heard[stream] + 1, __ATOMIC_RELAXED);
	return frame_claim(ft, lane, stream, frame, true, frame < horizon);
}
