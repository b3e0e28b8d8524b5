/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * RX lcore's part of the frame table, except for the fast path: packets whose frame is not open,
 * window moves, and mbufs of finished frames.
 */

#include <string.h>

#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_prefetch.h>

#include "counter.h"
#include "frames/frame_table_private.h"

#define FREE_BURST   32 /* mbufs whose cache lines are prefetched at a time */
#define OLD_DISORDER 2	/* maximum frames that a stream goes back without a restart */

void
frame_rx_move(struct frame_table *ft, struct frame_rx *frx, uint32_t generation)
{
	const struct detector *d = &ft->detector;
	const uint64_t paused = __atomic_load_n(&ft->window.paused, __ATOMIC_RELAXED);

	for (uint32_t s = 0; s < d->streams; s++) {
		if (ft->config.owner[s] != frx->id)
			continue;
		/* its progress in the old window, unless the stream was silent or restarted */
		frx->before[s] =
			((frx->out_of_window | paused) >> s & 1) != 0 ? 0 : frx->progress[s];
		__atomic_store_n(&frx->progress[s], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&frx->reach[s], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&frx->begun[s], 0, __ATOMIC_RELAXED);
		frx->leap[s] = 0;
		/* requests from now on are not from before a silence, see forget_after_silence() */
		frx->silences[s] = __atomic_load_n(&ft->builder->silences[s], __ATOMIC_RELAXED);
		/* after a restart the same numbers may arrive again, and in the same slots */
		for (uint32_t slot = 0; slot < ft->config.slots; slot++)
			__atomic_store_n(
				&frame_table_stream(ft, slot, s)->tag, 0, __ATOMIC_RELAXED);
	}
	memset(frx->count, 0, ft->config.slots * sizeof(*frx->count));
	memset(frx->done, 0, (ft->entry_mask + 1) * sizeof(*frx->done));
	/* the window may open before the held packets are retried: new ones must not pass them */
	frx->early |= frx->out_of_window;
	__atomic_store_n(&frx->out_of_window, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&frx->requests, 0, __ATOMIC_RELAXED);
	memset(frx->dropped, 0, sizeof(frx->dropped));
	__atomic_store_n(&frx->crowded, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&frx->waits_for, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&frx->blocked, 0, __ATOMIC_RELAXED);
	frx->generation = generation;
	__atomic_store_n(&frx->acknowledged, generation, __ATOMIC_RELEASE);
}

void
frame_rx_begin(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	if (frame_rx_is_ours(ft, &frame) && frame + 1 > frx->begun[stream])
		__atomic_store_n(&frx->begun[stream], frame + 1, __ATOMIC_RELEASE);
}

bool
frame_rx_is_last(const struct frame_table *ft, uint64_t frame)
{
	return __atomic_load_n(&ft->window.stopping, __ATOMIC_ACQUIRE) &&
		frame_rx_is_ours(ft, &frame) &&
		frame < __atomic_load_n(&ft->window.end, __ATOMIC_ACQUIRE);
}

bool
frame_rx_is_due(const struct frame_table *ft, uint64_t frame)
{
	const uint64_t due = __atomic_load_n(&ft->window.due, __ATOMIC_RELAXED);

	return due != 0 && frame_rx_is_ours(ft, &frame) && frame + 1 == due;
}

/**
 * After a move: return true if a packet continues the numbers that its stream had in the old
 * window. It does not if the stream has sent a lower number since, or once no packets of the old
 * window are expected.
 */
static bool
is_of_old_window(
	const struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t end = __atomic_load_n(&ft->window.old_end, __ATOMIC_RELAXED);

	if (end == 0 || frame + 1 + OLD_DISORDER < frx->before[stream]) {
		frx->before[stream] = 0;
		return false;
	}
	return frame < end;
}

/** Return true if a number is more than one frame ahead, and not confirmed by the packet before. */
static bool
is_leap(struct frame_rx *frx, uint32_t stream, uint64_t from, uint64_t frame)
{
	const uint64_t leap = frx->leap[stream];

	if (frame <= from || frame == leap || frame + 1 == leap)
		return false;
	frx->leap[stream] = frame + 1;
	return true;
}

/**
 * Return true if a stream was silent together with at least half of the others, and none of its
 * packets has been placed since. Its first packet may then begin a restart. If most of the others
 * still send, the detector was not restarted.
 */
static bool
is_new(const struct frame_table *ft, uint32_t stream)
{
	const uint64_t paused = __atomic_load_n(&ft->window.paused, __ATOMIC_ACQUIRE);
	uint32_t others = 0, silent = 0;

	if ((paused >> stream & 1) == 0)
		return false;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		if (s == stream || detector_stream_expected(&ft->detector, s) == 0)
			continue;
		others++;
		silent += paused >> s & 1;
	}
	return 2 * silent >= others;
}

static bool
is_closed(const struct frame_table *ft, uint64_t frame)
{
	const uint64_t tag = __atomic_load_n(&ft->entry[frame & ft->entry_mask], __ATOMIC_ACQUIRE);

	return tag == ((frame + 1) << FRAME_TAG_SLOT_BITS | FRAME_TAG_CLOSED);
}

bool
frame_rx_advance(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t progress = frx->progress[stream];

	if (unlikely(frx->before[stream] != 0) && is_of_old_window(ft, frx, stream, frame))
		return false;
	if (progress != 0 && is_leap(frx, stream, progress, frame))
		return true;
	/* it may be a restart: see frame_rx_late() */
	if (progress == 0 && is_closed(ft, frame) && is_new(ft, stream))
		return true;
	__atomic_store_n(&frx->progress[stream], frame + 1, __ATOMIC_RELEASE);
	return true;
}

/** Bits of the packets below number `end`, in word `i` of frame_stream.seen. */
static uint64_t
bits_below(uint32_t end, uint32_t i)
{
	const uint32_t n = RTE_MAX(end, 64 * i) - 64 * i;

	return n >= 64 ? UINT64_MAX : (UINT64_C(1) << n) - 1;
}

/** Let a packet wait. Its stream has reached the packet's frame; that is recorded only once. */
static enum frame_placement
wait_for(struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	if (!frx->retry && frame + 1 > frx->reach[stream] &&
		!is_leap(frx, stream, frx->progress[stream], frame))
		__atomic_store_n(&frx->reach[stream], frame + 1, __ATOMIC_RELEASE);
	return FRAME_PLACE_WAIT;
}

enum frame_placement
frame_rx_drop(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t nb = frx->nb_drops;

	if (frame > FRAME_NUMBER_MAX ||
		__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED)
		return FRAME_PLACE_OUTLIER;
	if (frx->dropped[stream] != frame + 1) {
		/* if the ring is full, the next packet of the frame tries again */
		if (nb - __atomic_load_n(&frx->nb_drops_read, __ATOMIC_ACQUIRE) < FRAME_DROPS) {
			frx->dropped[stream] = frame + 1;
			frx->drops[nb % FRAME_DROPS] = frame;
			__atomic_store_n(&frx->nb_drops, nb + 1, __ATOMIC_RELEASE);
		}
	}
	return frame < __atomic_load_n(&ft->window.base, __ATOMIC_RELAXED) ? FRAME_PLACE_LATE
									   : FRAME_PLACE_OUTLIER;
}

static enum frame_placement
drop_late(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	frame_rx_drop(ft, frx, stream, frame);
	return FRAME_PLACE_LATE;
}

/**
 * Free mbufs; absent ones are NULL. They were placed long ago and have left the CPU's caches, so
 * all mbufs of a burst are prefetched first, and then the reference counts of their buffers.
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
 * Return tiles in memory: clear the frame number in their trailers. If a restarted detector sends
 * the same number again and a tile of that frame is lost, the old pixels do not appear as pixels of
 * that frame. A tile that its sender has overwritten meanwhile belongs to a later frame.
 */
static void
clear_trailers(struct frame_table *ft, uint32_t slot, uint32_t tile, uint32_t n, uint64_t number)
{
	const struct gk_frame *f = frame_table_frame(ft, slot);

	for (uint32_t i = tile; i < tile + n; i++) {
		uint64_t *trailer;

		if (f->packet[i] == 0)
			continue;
		trailer = (uint64_t *)(uintptr_t)(f->packet[i] + ft->detector.ops->pixel_bytes);
		if (__atomic_load_n(trailer, __ATOMIC_RELAXED) == number)
			__atomic_store_n(trailer, FRAME_TRAILER_NONE, __ATOMIC_RELAXED);
	}
}

/**
 * Free this RX role's mbufs of a slot, from the position of the last call, at most `most` of them.
 * @return number of mbufs checked; frx->reclaim_stream < streams: the slot is not finished
 */
static uint32_t
reclaim_slot(struct frame_table *ft, struct frame_rx *frx, uint32_t slot, uint32_t most)
{
	const struct detector *d = &ft->detector;
	uint32_t passed = 0, n, tile;

	for (; frx->reclaim_stream < d->streams; frx->reclaim_stream++) {
		if (ft->config.owner[frx->reclaim_stream] != frx->id)
			continue;
		n = RTE_MIN(d->stream_packets - frx->reclaim_packet, most - passed);
		tile = detector_stream_tile(d, frx->reclaim_stream) + frx->reclaim_packet;
		if (ft->config.trailers)
			clear_trailers(ft, slot, tile, n, frame_table_frame(ft, slot)->trailer);
		else
			free_mbufs(frame_table_mbufs(ft, slot) + tile, n);
		passed += n;
		frx->reclaim_packet += n;
		if (frx->reclaim_packet < d->stream_packets)
			return passed;
		frx->reclaim_packet = 0;
		if (frx->use != NULL)
			frame_use_free(&frx->use[frx->reclaim_stream],
				frame_table_frame(ft, slot)->trailer);
	}
	return passed;
}

uint32_t
frame_rx_reclaim(struct frame_table *ft, struct frame_rx *frx, uint32_t most)
{
	uint64_t at = frx->reclaimed;
	uint32_t passed = 0;

	while (passed < most) {
		const uint64_t release =
			__atomic_load_n(&ft->releases[at & ft->entry_mask], __ATOMIC_ACQUIRE);

		if (release >> FRAME_TAG_SLOT_BITS != at + 1)
			break;
		passed += reclaim_slot(ft, frx, release & FRAME_TAG_SLOT_MASK, most - passed);
		if (frx->reclaim_stream < ft->detector.streams)
			break;
		frx->reclaim_stream = 0;
		__atomic_store_n(&frx->reclaimed, ++at, __ATOMIC_RELEASE);
	}
	return passed;
}

void
frame_rx_set_parts(struct frame_table *ft, uint32_t slot, uint32_t tile, uint64_t pixels,
	const struct rte_mbuf *m)
{
	const uint64_t view = pixels - rte_pktmbuf_mtod(m, uint64_t);
	const uint32_t parts = ft->detector.parts;
	uint64_t *to = &frame_table_frame(ft, slot)->packet[tile * parts];

	for (uint32_t i = 0; i < parts; i++, m = m->next)
		to[i] = rte_pktmbuf_mtod(m, uint64_t) + view;
}

enum frame_placement
frame_rx_place_stream(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	const uint8_t *header, uint64_t pixels, uint64_t stride)
{
	const struct detector *d = &ft->detector;
	const uint32_t from = d->expect_from[stream], to = d->expect_to[stream];
	const uint32_t tile = detector_stream_tile(d, stream);
	struct frame_stream *st = NULL;
	enum frame_placement result;
	uint64_t *packet;
	uint32_t slot = 0;

	result = frame_rx_find(ft, frx, stream, frame, from, header, &st, &slot);
	if (result != FRAME_PLACED)
		return result;
	if ((st->seen[0] | st->seen[1]) != 0)
		return frame_rx_duplicate(ft, frx, stream, frame);
	packet = &frame_table_frame(ft, slot)->packet[tile];
	for (uint32_t p = from; p < to; p++)
		packet[p] = pixels + p * stride;
	for (uint32_t i = 0; i < 2; i++)
		__atomic_store_n(
			&st->seen[i], bits_below(to, i) & ~bits_below(from, i), __ATOMIC_RELAXED);
	frame_rx_count(ft, frx, stream, frame, slot, to - from);
	return FRAME_PLACED;
}

/** @return packets of a stream that were taken out of a slot */
static uint32_t
expel_from_slot(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint32_t slot)
{
	struct frame_stream *st = frame_table_stream(ft, slot, stream);
	const uint64_t frame = (st->tag >> FRAME_TAG_SLOT_BITS) - 1, entry = frame & ft->entry_mask;
	const uint32_t first = detector_stream_tile(&ft->detector, stream);
	const uint64_t number = frame_table_number(ft, frame);
	uint32_t n = 0;

	/*
	 * Skip a slot whose frame is closed, reused or completed. An open frame stays open until
	 * the next quiescent state of this RX role.
	 */
	if (st->tag == 0 || __atomic_load_n(&ft->entry[entry], __ATOMIC_ACQUIRE) != st->tag ||
		frx->done[entry] == frame + 1)
		return 0;
	for (uint32_t p = 0; p < ft->detector.stream_packets; p++) {
		if ((st->seen[p >> 6] >> (p & 63) & 1) == 0)
			continue;
		if (ft->config.trailers)
			clear_trailers(ft, slot, first + p, 1, number);
		else
			rte_pktmbuf_free(frame_table_mbufs(ft, slot)[first + p]);
		n++;
	}
	if (frx->use != NULL)
		frame_use_free(&frx->use[stream], number);
	/* the slot no longer has a packet of this stream */
	__atomic_store_n(&st->tag, 0, __ATOMIC_RELAXED);
	frx->count[slot].placed -= n;
	return n;
}

uint32_t
frame_rx_expel(struct frame_table *ft, struct frame_rx *frx, uint32_t stream)
{
	uint32_t n = 0;

	for (uint32_t slot = 0; slot < ft->config.slots; slot++)
		n += expel_from_slot(ft, frx, stream, slot);
	frx->leap[stream] = 0;
	__atomic_store_n(&frx->reach[stream], 0, __ATOMIC_RELAXED);
	__atomic_store_n(&frx->progress[stream], 0, __ATOMIC_RELEASE);
	return n;
}

/**
 * Record the frame of a packet that no run uses: a run that begins now would get only the rest of
 * that frame (frame_window.c: first_whole()). A stream that is slightly behind another one does not
 * lower the recorded frame, because that one remains incomplete.
 * @param number  detector's number of the frame
 */
static void
note_unused(const struct frame_table *ft, struct frame_rx *frx, uint64_t number)
{
	const uint64_t passed = frx->passed, at = number + 1;
	/* between runs, numbers are not converted; those of the last run were `stride` apart */
	const uint64_t stride = __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED);
	uint64_t now;

	if (passed == at)
		return;
	now = rte_rdtsc();
	if (at < passed && passed - at <= ft->config.max_skew_frames * stride &&
		now - frx->passed_at <= ft->config.stall_cycles)
		return;
	__atomic_store_n(&frx->passed_at, now, __ATOMIC_RELAXED);
	__atomic_store_n(&frx->passed, at, __ATOMIC_RELEASE);
}

static enum frame_placement
drop_unused(const struct frame_table *ft, struct frame_rx *frx, uint64_t frame)
{
	note_unused(ft, frx, frame);
	return FRAME_PLACE_NO_RUN;
}

/**
 * Drop a packet after the last frame of the run. This RX role may not run between this run and the
 * next one, so the next run may begin in the middle of this frame.
 */
static enum frame_placement
drop_beyond(const struct frame_table *ft, struct frame_rx *frx, uint64_t frame)
{
	note_unused(ft, frx, frame_table_number(ft, frame));
	return FRAME_PLACE_BEYOND;
}

/** Return true if this packet of the stream's last frame was placed, or if that is unknown. */
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

/**
 * Return the highest frame + 1 that a stream has sent before a packet whose frame is closed or has
 * the packet already. It includes the packets that wait, except in two cases: if the packet is not
 * below the placed ones, since a stream may send the frames of a pause after a packet of the next
 * frame; and if the packet is retried, since it arrived before those that still wait.
 */
static uint64_t
last_number(const struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	const uint64_t progress = frx->progress[stream];

	return frx->retry || frame + 1 >= progress ? progress
						   : RTE_MAX(progress, frx->reach[stream]);
}

enum frame_placement
frame_rx_late(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint32_t packet)
{
	uint64_t base, progress, last;

	if (frame > FRAME_NUMBER_MAX)
		return FRAME_PLACE_OUTLIER;
	if (__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) == FRAME_WINDOW_CLOSED)
		return drop_unused(ft, frx, frame);
	if (frame >= __atomic_load_n(&ft->window.end, __ATOMIC_RELAXED))
		return drop_beyond(ft, frx, frame);
	counter_add(&frx->activity[stream], 1);
	if (frx->before[stream] != 0 && is_of_old_window(ft, frx, stream, frame))
		return drop_late(ft, frx, stream, frame);
	/*
	 * Until the first frame of a run is closed, no stream counts as restarted. The packet may
	 * belong to that frame while it is closed without any packet. The frame then has no row.
	 */
	base = __atomic_load_n(&ft->window.base, __ATOMIC_RELAXED);
	if (base <= ft->run_first)
		return drop_late(ft, frx, stream, frame);
	/*
	 * The stream was silent. The packet may be the rest of its last frame. It counts towards a
	 * resync request if its frame is lower, or if the same packet was placed before. A stream
	 * of which no packet was placed has no last frame.
	 */
	progress = frx->progress[stream];
	if (progress == 0 ? is_new(ft, stream)
			  : frame + 1 <= progress && frame_rx_paused(ft, frx, stream))
		return frame_resync_request(ft, frx, stream, frame,
			progress == 0 || frame + 1 < progress ||
				was_placed(ft, stream, frame, packet),
			false);
	/*
	 * A late packet is at most max_skew_frames behind its stream's last number. If it is
	 * further behind, the stream was restarted; even if the stream is out of window and the
	 * packet is still far behind the window.
	 */
	last = last_number(frx, stream, frame);
	if (frame + 1 + ft->config.max_skew_frames >= (last != 0 ? last : base) &&
		((frx->out_of_window >> stream & 1) == 0 || base <= frame + ft->entry_mask)) {
		frame_rx_returned(frx, stream, frame);
		return drop_late(ft, frx, stream, frame);
	}
	return frame_resync_request(ft, frx, stream, frame, true, false);
}

enum frame_placement
frame_rx_refused(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	/* the others have a row, see pass_head() */
	if (frame < __atomic_load_n(&ft->builder->unnamed, __ATOMIC_RELAXED))
		frame_rx_drop(ft, frx, stream, frame);
	return FRAME_PLACE_REFUSED;
}

enum frame_placement
frame_rx_duplicate(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	if (frame + 1 + ft->config.max_skew_frames >= last_number(frx, stream, frame) ||
		__atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_OPEN)
		return FRAME_PLACE_DUPLICATE;
	return frame_resync_request(ft, frx, stream, frame, true, false);
}

enum frame_placement
frame_rx_miss(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
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
		return drop_unused(ft, frx, frame);
	/*
	 * The window is moving. A packet that waited for the old window continues to wait, and is
	 * dropped after the move. A new packet arrived after those: it is held for the next window.
	 */
	if ((state != FRAME_WINDOW_OPEN && state != FRAME_WINDOW_SEARCHED) ||
		!frame_rx_is_current(ft, frx)) {
		if (frx->retry)
			return FRAME_PLACE_WAIT;
		frx->early |= UINT64_C(1) << stream;
		return FRAME_PLACE_HOLD;
	}
	if (state == FRAME_WINDOW_SEARCHED)
		return frame_resync_request(ft, frx, stream, frame, true, false);
	base = __atomic_load_n(&w->base, __ATOMIC_RELAXED);
	horizon = __atomic_load_n(&w->horizon, __ATOMIC_RELAXED);
	end = __atomic_load_n(&w->end, __ATOMIC_RELAXED);

	if (frame >= end && (frame < horizon || base >= end))
		return drop_beyond(ft, frx, frame);
	if (frame < base)
		return frame_rx_late(ft, frx, stream, frame, packet);
	near = frame_rx_is_near(ft, frame);
	if (frx->before[stream] != 0 && is_of_old_window(ft, frx, stream, frame)) {
		counter_add(&frx->activity[stream], 1);
		return drop_late(ft, frx, stream, frame);
	}
	/* a packet of a stream that is out of window may wait only for the next frames */
	if (near && (frx->out_of_window >> stream & 1) != 0)
		near = !frame_resync_is_far(ft, stream, frame);
	/* a corrupt number must not make the window advance to it */
	if (frame < horizon && (near || frame < __atomic_load_n(&w->ahead, __ATOMIC_RELAXED)))
		return wait_for(frx, stream, frame);
	counter_add(&frx->activity[stream], 1);
	return frame_resync_request(ft, frx, stream, frame, true, frame < horizon);
}
