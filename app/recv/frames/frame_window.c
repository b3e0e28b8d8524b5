/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window: runs begin and end, the first window of a run is searched, and the window moves to
 * the position that enough streams request.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_cycles.h>

#include "frames/frame_table_private.h"
#include "log.h"

LOG_REGISTER("frames", "frames");

/**
 * After a restart, open frames wait 1 / LEAVE_PART of `stall_cycles` for the streams that continue
 * in the old window.
 */
#define LEAVE_PART 8

/** Return true if all RX roles have acknowledged the last generation. */
static bool
all_rx_acknowledged(const struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		if (__atomic_load_n(&ft->rx[i].acknowledged, __ATOMIC_ACQUIRE) !=
			ft->window.generation)
			return false;
	return true;
}

static void
set_state(struct frame_table *ft, enum frame_window_state state)
{
	__atomic_store_n(&ft->window.state, state, __ATOMIC_RELEASE);
	frame_window_changed(ft);
}

/**
 * Let a run that begins while the detector sends begin with a complete frame: not with one of which
 * packets were dropped before the run. If the detector has been silent since, its numbers may have
 * been restarted, and nothing changes.
 * @param at  frame + 1
 * @return frame + 1
 */
static uint64_t
first_whole(const struct frame_table *ft, uint64_t at)
{
	const struct frame_window *w = &ft->window;
	uint64_t first = at;

	for (uint32_t i = 0; i < ft->config.nb_rx && ft->builder->fresh; i++) {
		const struct frame_rx *frx = &ft->rx[i];
		const uint64_t passed = __atomic_load_n(&frx->passed, __ATOMIC_ACQUIRE);
		uint64_t next;

		if (passed <= w->offset ||
			rte_rdtsc() - __atomic_load_n(&frx->passed_at, __ATOMIC_RELAXED) >
				ft->config.stall_cycles)
			continue;
		/* `passed` is a detector's number + 1: this receiver's next frame after it, + 1 */
		next = (passed - 1 - w->offset) / w->stride + 2;
		if (next > first && next - at <= ft->config.slots)
			first = next;
	}
	return first;
}

/** Prepare to move the window. @param at  frame + 1 at which it begins */
static void
move_towards(struct frame_table *ft, uint64_t at)
{
	struct frame_builder *b = ft->builder;

	b->move_to = first_whole(ft, at);
	if (b->move_to != at)
		ft->run_first = b->move_to - 1; /* packets of the frame before are late */
	/*
	 * Other RX roles may have received slightly older packets, so the window begins
	 * max_skew_frames earlier. Frames there that no packet belongs to are not reported. If the
	 * run's frames are counted, it begins at the requested frame.
	 */
	if (b->move_to == at && ft->config.run.nb_frames == 0)
		b->move_to = at > ft->config.max_skew_frames ? at - ft->config.max_skew_frames : 1;
	b->requested = b->move_to < at ? at - 1 : 0;
	__atomic_store_n(&b->unnamed, 0, __ATOMIC_RELAXED);
	set_state(ft, FRAME_WINDOW_MOVING);
}

/** Return true if an RX role has no room to hold more packets. */
static bool
any_is_crowded(const struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		if (__atomic_load_n(&ft->rx[i].crowded, __ATOMIC_ACQUIRE) != 0)
			return true;
	return false;
}

/**
 * Search the window. After `stall_cycles`, or if there is no room to hold more packets, the largest
 * group of streams decides.
 */
static void
find_window(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	const bool crowded = any_is_crowded(ft);
	bool fewer = crowded, any;
	uint64_t at;

	if (b->asked_at != 0 && rte_rdtsc() - b->asked_at > ft->config.stall_cycles)
		fewer = true;
	at = frame_resync_first(ft, fewer, &any);
	if (at != 0)
		move_towards(ft, at);
	else if (any && b->asked_at == 0)
		b->asked_at = rte_rdtsc();
}

/** RX roles look entries up meanwhile, so each store is atomic. */
static void
clear_entries(struct frame_table *ft)
{
	for (uint64_t i = 0; i <= ft->entry_mask; i++)
		__atomic_store_n(&ft->entry[i], FRAME_TAG_EMPTY, __ATOMIC_RELAXED);
}

/** Move in two steps: a new generation, which every RX role acknowledges; then the window. */
static void
move_window(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;

	if (!b->moving) {
		clear_entries(ft);
		__atomic_store_n(
			&ft->window.generation, ft->window.generation + 1, __ATOMIC_RELEASE);
		frame_window_changed(ft);
		b->moving = true;
	}
	if (!all_rx_acknowledged(ft))
		return;
	if (!b->fresh) {
		ft->window.old_end = RTE_MAX(b->next_open + ft->config.slots, ft->window.ahead);
		b->moved_at = rte_rdtsc();
	}
	b->next_close = b->next_open = b->move_to - 1;
	b->started = ft->config.run.first_known && b->fresh;
	if (!b->fresh)
		ft->run_first = 0;
	b->fresh = false;
	if (ft->config.run.nb_frames != 0)
		ft->window.end = b->next_close + ft->config.run.nb_frames -
			RTE_MIN(b->reported, ft->config.run.nb_frames);
	b->move_to = 0;
	b->asked_at = 0;
	b->moving = false;
	b->flushing = false;
	b->held = false;
	__atomic_store_n(&ft->window.due, 0, __ATOMIC_RELAXED);
	frame_resync_reset(ft);
	frame_resync_note_activity(ft);
	/* dead streams are not waited for: they have sent nothing in the new window */
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		b->stalled_at[s] = b->dead >> s & 1;
	ft->window.ahead = 0;
	frame_window_publish(ft);
	set_state(ft, FRAME_WINDOW_OPEN);
	LOG(DEBUG, "window begins at frame %" PRIu64 "\n", b->next_open);
}

/** After `stall_cycles`, packets of the old window are no longer expected. */
static void
forget_old_window(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;

	if (rte_rdtsc() - b->moved_at < ft->config.stall_cycles)
		return;
	__atomic_store_n(&ft->window.old_end, 0, __ATOMIC_RELAXED);
	frame_window_changed(ft);
	b->moved_at = 0;
}

int
frame_table_begin(struct frame_table *ft, const struct frame_run *run)
{
	const uint64_t stride = RTE_MAX(run->stride, 1u);
	struct frame_builder *b = ft->builder;

	if (ft->window.state != FRAME_WINDOW_CLOSED || b->beginning ||
		b->next_close != b->next_open)
		return -EBUSY;
	ft->config.run = *run;
	b->reported = 0;
	b->flushing = false;
	b->beginning = true;
	__atomic_store_n(&ft->window.stopping, false, __ATOMIC_RELAXED);
	b->fresh = true;
	b->asked_at = 0;
	b->moved_at = 0;
	frame_late_begin(ft);
	frame_resync_reset(ft);
	b->dead = 0;
	frame_resync_note_activity(ft);
	/* RX roles may read these now. Each store is atomic; a packet that sees a mix of old and
	 * new values is dropped or waits. */
	__atomic_store_n(&ft->window.stride, stride, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.offset, stride == 1 ? 0 : run->offset, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.old_end, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.end, UINT64_MAX, __ATOMIC_RELAXED);
	/* the entries still name frames of the last run, and the same numbers may come again */
	clear_entries(ft);
	/* packets wait from now on; RX roles discard their state of earlier runs */
	set_state(ft, FRAME_WINDOW_MOVING);
	__atomic_store_n(&ft->window.generation, ft->window.generation + 1, __ATOMIC_RELEASE);
	frame_window_changed(ft);
	return 0;
}

void
frame_window_begin_run(struct frame_table *ft)
{
	const struct frame_run *run = &ft->config.run;
	const struct frame_window *w = &ft->window;
	struct frame_builder *b = ft->builder;

	if (!all_rx_acknowledged(ft))
		return;
	b->beginning = false;
	ft->run_first = 0;
	if (!run->first_known) {
		set_state(ft, FRAME_WINDOW_SEARCHED);
		return;
	}
	if (run->first_frame > w->offset)
		ft->run_first = (run->first_frame - w->offset + w->stride - 1) / w->stride;
	b->move_to = ft->run_first + 1;
	set_state(ft, FRAME_WINDOW_MOVING);
}

void
frame_table_stop(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t end = b->next_close;

	if (ft->window.state != FRAME_WINDOW_OPEN || b->flushing) {
		frame_table_end(ft);
		return;
	}
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		end = RTE_MAX(end, frame_stream_progress(ft, s));
	/* a frame that is not open here has no place for the packets that have arrived */
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		end = RTE_MAX(end, RTE_MIN(frame_stream_begun(ft, s), b->next_open));
	end = RTE_MIN(end, ft->window.end);
	__atomic_store_n(&ft->window.end, end, __ATOMIC_RELEASE);
	__atomic_store_n(&ft->window.stopping, true, __ATOMIC_RELEASE);
	for (uint64_t f = RTE_MAX(end, b->next_close); f < b->next_open; f++)
		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED)
			frame_entry_set(ft, f, FRAME_TAG_CLOSED);
	frame_window_changed(ft);
}

void
frame_table_end(struct frame_table *ft)
{
	ft->builder->beginning = false;
	ft->builder->moving = false;
	ft->builder->move_to = 0;
	set_state(ft, FRAME_WINDOW_CLOSED);
	frame_table_flush(ft);
}

/** Detector's number of the last frame that has begun. */
static uint64_t
last_number(const struct frame_table *ft)
{
	uint64_t last = ft->builder->next_close;

	for (uint32_t s = 0; s < ft->detector.streams; s++)
		last = RTE_MAX(last, frame_stream_progress(ft, s));
	return frame_table_number(ft, last == 0 ? 0 : last - 1);
}

/**
 * Return true if an RX role drops packets of the new numbers, because it has no room to hold more.
 */
static bool
any_drops(const struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		/* if all streams of the role are out of window, their packets wait in the queues */
		if (__atomic_load_n(&ft->rx[i].crowded, __ATOMIC_ACQUIRE) != 0 &&
			!frame_rx_is_away(ft, &ft->rx[i]))
			return true;
	return false;
}

/** Return true if packets wait for frames of the window that are not open yet. */
static bool
any_waits(const struct frame_table *ft)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		if (__atomic_load_n(&ft->rx[i].waits_for, __ATOMIC_ACQUIRE) != 0)
			return true;
	return false;
}

/**
 * The detector was restarted: return true if the open frames may be closed now. They may not while
 * packets wait for frames before the restart, unless packets after it are dropped, and not while
 * other streams may complete the open frames and there is room to hold new packets. Both rules
 * apply up to a time limit. The limit is longer while packets wait and gangs have slots, because
 * gangs will return them. If all streams were restarted, the time limit also begins again with each
 * frame that is opened, closed or returned.
 *
 * An RX role publishes at the end of a poll that packets wait, but a request in the middle of it.
 * If it does not run in between, packets before the request may wait unseen. So no frame is closed
 * until every RX role has begun another poll.
 */
static bool
may_leave(struct frame_table *ft, uint64_t group)
{
	struct frame_builder *b = ft->builder;
	const uint64_t steps = b->next_close + b->next_open + b->recycled_end;
	/* if streams continue in the old window, packets for it keep arriving */
	const bool all = frame_resync_is_unanimous(ft, group);
	uint64_t limit = ft->config.stall_cycles / LEAVE_PART;
	bool waits;

	b->draining = false;
	b->ran += frame_clock_step(ft, &b->ran_at);
	if (!b->leaving || (b->requests & ~b->leave_requests) != 0) {
		if (!b->leaving)
			frame_delay_note(ft, &b->leave);
		b->leaving = true;
		b->leave_requests = b->requests;
		b->leave_grace = rte_rcu_qsbr_start(ft->qsbr);
	}
	if (rte_rcu_qsbr_check(ft->qsbr, b->leave_grace, false) == 0)
		return false;
	waits = any_waits(ft);
	/* `waits` may be true a little longer than packets wait */
	if (waits ? any_drops(ft) : !frame_head_begun(ft) || any_is_crowded(ft))
		return true;
	if (all && waits && steps != b->leave_steps)
		frame_delay_note(ft, &b->leave);
	b->leave_steps = steps;
	if (waits && b->next_open - b->next_close + b->nb_free < ft->config.slots)
		limit = ft->config.stall_cycles;
	if (frame_delay_cycles(ft, &b->leave) >= limit)
		return true;
	b->draining = all && waits;
	return all && !waits;
}

/**
 * Enough streams request a position outside the window.
 * @param at  frame + 1
 * @return whether frames may be opened in the present window
 */
static bool
follow(struct frame_table *ft, uint64_t at, uint64_t group)
{
	struct frame_builder *b = ft->builder;

	if (at > b->next_close && at <= ft->window.horizon) {
		/* frames were lost: packets of the frames after the gap may wait */
		b->gap_group = group;
		b->gap_to = at;
		if (ft->window.ahead < at + ft->config.slots) {
			__atomic_store_n(
				&ft->window.ahead, at + ft->config.slots, __ATOMIC_RELAXED);
			frame_window_changed(ft);
		}
		return true;
	}
	if (!may_leave(ft, group))
		return true;
	if (ft->window.stopping) {
		/* frames after a restart do not belong to a run that stops: it ends here */
		frame_table_end(ft);
		return false;
	}
	LOG(NOTICE, "detector restarted: frame %" PRIu64 " after frame %" PRIu64 "\n",
		frame_table_number(ft, at - 1), last_number(ft));
	frame_table_flush(ft);
	move_towards(ft, at);
	return false;
}

bool
frame_window_ready(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t at, group;

	frame_late_collect(ft);
	if (b->beginning)
		frame_window_begin_run(ft);
	if (b->beginning)
		return false;
	frame_resync_listen(ft);
	if (ft->window.state == FRAME_WINDOW_SEARCHED)
		find_window(ft);
	/* the window moves after all frames of the old window have been returned */
	if (ft->window.state == FRAME_WINDOW_MOVING && (!b->flushing || frame_table_flushed(ft)))
		move_window(ft);
	if (ft->window.state != FRAME_WINDOW_OPEN)
		return false;
	if (b->flushing)
		return false;
	if (unlikely(b->moved_at != 0))
		forget_old_window(ft);
	at = frame_resync_position(ft, &group);
	return likely(at == 0) || follow(ft, at, group);
}
