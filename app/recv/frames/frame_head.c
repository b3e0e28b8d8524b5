/* SPDX-License-Identifier: BSD-3-Clause */
/* The head: decides when the first frame of the window closes, and returns it to the builder. */

#include <rte_cycles.h>

#include "frames/frame_table_private.h"

/** Microseconds between two checks of the RX roles' progress while the head is delayed. */
#define LOOK_US 20

/** Slots are short if fewer than 1 / SHORT_PART of them are left for frames that have not begun. */
#define SHORT_PART 4
/** A stream that has sent nothing for 1 / PAUSE_PART of `stall_cycles` is not sending. */
#define PAUSE_PART 64

/** Return true if all RX roles have placed all their packets of a frame. */
static bool
all_rx_complete(const struct frame_table *ft, uint64_t frame)
{
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const struct frame_rx *frx = &ft->rx[i];

		if (frx->expected != 0 &&
			__atomic_load_n(&frx->done[frame & ft->entry_mask], __ATOMIC_ACQUIRE) !=
				frame + 1)
			return false;
	}
	return true;
}

uint64_t
frame_head_reach(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_rx *frx = &ft->rx[ft->config.owner[stream]];

	return RTE_MAX(frame_stream_progress(ft, stream),
		__atomic_load_n(&frx->reach[stream], __ATOMIC_ACQUIRE));
}

/**
 * Frame + 1 that a stream has reached, seen from the head. If all slots are open and an RX role
 * has no room for more packets of later frames, it waits for the head to close and has no packets
 * for it. Its streams then have reached the frame that blocks it.
 */
static uint64_t
stream_reach(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;
	const struct frame_rx *frx = &ft->rx[ft->config.owner[stream]];
	const uint64_t reach = frame_head_reach(ft, stream);
	uint64_t blocked;

	if (b->next_open - b->next_close < ft->config.slots)
		return reach;
	blocked = __atomic_load_n(&frx->blocked, __ATOMIC_ACQUIRE);
	return blocked > b->next_open ? RTE_MAX(reach, blocked) : reach;
}

bool
frame_head_begun(const struct frame_table *ft)
{
	const struct frame_builder *b = ft->builder;
	uint64_t highest = 0;

	for (uint32_t s = 0; s < ft->detector.streams; s++)
		highest = RTE_MAX(highest, frame_stream_progress(ft, s));
	/* after a stop, events of the last frames will place their packets */
	for (uint32_t s = 0; s < ft->detector.streams && ft->window.stopping; s++)
		highest = RTE_MAX(highest, frame_stream_begun(ft, s));
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		highest = RTE_MAX(highest, __atomic_load_n(&ft->rx[i].waits_for, __ATOMIC_ACQUIRE));
	/* most streams are past a gap: the frames before the gap have passed */
	return highest > b->next_close || b->gap_to > b->next_close + 1;
}

void
frame_delay_note(const struct frame_table *ft, struct frame_delay *now)
{
	now->ran = ft->builder->ran;
	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		now->listened[i] = frame_rx_listened(ft, i);
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		now->progress[s] = frame_stream_progress(ft, s);
}

uint64_t
frame_delay_cycles(const struct frame_table *ft, const struct frame_delay *since)
{
	uint64_t least = ft->builder->ran - since->ran;

	for (uint32_t i = 0; i < ft->config.nb_rx; i++)
		least = RTE_MIN(least, frame_rx_listened(ft, i) - since->listened[i]);
	return least;
}

/** The head is delayed: since now, or since an earlier call. */
static void
hold_head(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	bool moved = false;

	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = frame_stream_progress(ft, s);

		moved |= b->moved.progress[s] != at;
		if (b->held && at == b->sent_progress[s])
			continue;
		b->sent_progress[s] = at;
		b->sent_at[s] = frame_rx_listened(ft, ft->config.owner[s]);
	}
	if (!b->held)
		frame_delay_note(ft, &b->delay);
	if (!b->held || moved)
		frame_delay_note(ft, &b->moved);
	b->held = true;
}

/**
 * The head was delayed and is closed. If the next one had begun when a stream sent last, its delay
 * has lasted since then: the frames of an acquisition that ends incomplete close together.
 */
static void
hold_next(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	uint64_t highest = 0;

	hold_head(ft);
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		highest = RTE_MAX(highest, b->moved.progress[s]);
	b->held = highest > b->next_close;
	b->delay = b->moved;
}

/**
 * Return true if the head waits for a stream. It does not if the stream requests a restart, or a
 * gap that contains the head. If most streams request such a gap, it waits for no other streams.
 */
static bool
is_waited_for(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;

	if ((b->requests >> stream & 1) != 0)
		return (b->requests_ahead >> stream & 1) != 0 &&
			b->next_close + 1 >= b->request_position[stream];
	return b->next_close + 1 >= b->gap_to || (b->gap_group >> stream & 1) != 0;
}

/**
 * Return true if a stream has sent nothing for 1 / PAUSE_PART of `stall_cycles`. Only after
 * hold_head().
 */
static bool
has_paused(const struct frame_table *ft, uint32_t stream)
{
	const struct frame_builder *b = ft->builder;

	return frame_rx_listened(ft, ft->config.owner[stream]) - b->sent_at[stream] >=
		ft->config.stall_cycles / PAUSE_PART;
}

/**
 * Return true if slots are short, so that the head may close without the streams that are behind.
 * Otherwise frames would be refused soon, and these have the pixels of all modules. Most streams
 * must be `max_skew_frames` ahead of the head and leave fewer than 1 / SHORT_PART of the slots. So
 * numbers of a few streams, which may be forged, close no frame of the others.
 */
static bool
is_outrun(const struct frame_table *ft)
{
	const struct frame_builder *b = ft->builder;
	const uint64_t least = b->next_open + b->nb_free -
		RTE_MIN(b->next_open, (uint64_t)ft->config.slots / SHORT_PART);
	const uint64_t passed = b->next_close + 1 + ft->config.max_skew_frames;
	uint32_t expected = 0, ahead = 0, others = 0;

	if (!ft->config.refuse)
		return false;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		if (detector_stream_expected(&ft->detector, s) == 0)
			continue;
		expected++;
		if (stream_reach(ft, s) > RTE_MAX(least, passed - 1))
			ahead++;
		else if (!has_paused(ft, s))
			others++;
	}
	return detector_are_most(ahead, others, expected);
}

/**
 * Return true if the head, which is incomplete, may be closed: if every live stream is
 * `max_skew_frames` frames ahead, if slots are short, or after the timeout. Streams that delayed
 * the head are then no longer live. If no stream is live, but a stream that is not silent has begun
 * the head, it also closes only after the timeout, because the other streams may be about to send.
 * This does not apply after a restart while packets wait.
 *
 * If so, the frames below b->close_end, of which the streams are ahead, too, close with the head.
 */
static bool
head_given_up(struct frame_table *ft)
{
	struct frame_builder *b = ft->builder;
	const uint64_t passed = b->next_close + 1 + ft->config.max_skew_frames;
	const uint64_t now = rte_rdtsc();
	uint32_t behind = 0, live = 0, began = 0;
	uint64_t waited_for = 0, end = RTE_MIN(b->next_open, ft->window.end);
	uint64_t delay;

	if (now - b->looked_at < LOOK_US * rte_get_tsc_hz() / 1000000)
		return false;
	/* an RX role that waits for this frame places its packets in its next poll */
	for (uint32_t i = 0; i < ft->config.nb_rx; i++) {
		const uint64_t at = __atomic_load_n(&ft->rx[i].waits_for, __ATOMIC_ACQUIRE);

		if (at != 0 && at <= b->next_close + 1)
			return false;
		if (at != 0)
			end = RTE_MIN(end, at - 1);
	}
	b->looked_at = now;
	b->ran += frame_clock_step(ft, &b->ran_at);
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = frame_stream_progress(ft, s);
		uint64_t reach;

		if (b->stalled_at[s] != at + 1)
			b->stalled_at[s] = 0; /* it sends (again) */
		began += at > b->next_close && !frame_resync_is_silent(ft, s);
		if (b->stalled_at[s] == 0 && detector_stream_expected(&ft->detector, s) != 0 &&
			is_waited_for(ft, s)) {
			live++;
			reach = frame_head_reach(ft, s);
			end = RTE_MIN(end, reach - RTE_MIN(reach, ft->config.max_skew_frames));
			if (stream_reach(ft, s) >= passed)
				continue;
			behind++;
			waited_for |= UINT64_C(1) << s;
		}
	}
	b->behind = waited_for;
	/*
	 * all streams were restarted, and packets wait for later frames: no stream sends the rest
	 */
	if (live == 0 && b->next_close + 1 >= b->gap_to && !b->draining)
		behind = began;
	if (!frame_head_begun(ft)) {
		b->held = false; /* no packet of this frame or a later one: the line is idle */
		return false;
	}
	b->close_end = b->next_close + 1;
	if (behind == 0) {
		/* in a gap, each frame waits for other streams */
		if (live > 0 && b->requests == 0 && b->gap_to <= b->next_close + 1)
			b->close_end = RTE_MAX(b->close_end, end);
		return true;
	}
	hold_head(ft);
	if (is_outrun(ft)) {
		b->outrun = true;
		b->short_behind = waited_for;
		for (uint32_t s = 0; s < ft->detector.streams; s++)
			if ((waited_for >> s & 1) != 0 && has_paused(ft, s))
				b->stalled_at[s] = b->sent_progress[s] + 1;
		return true;
	}
	delay = frame_delay_cycles(ft, &b->delay);
	/* an RX role polls at least once until the frame closes: a poll counts as 1/8 at most */
	if (delay >= ft->config.stall_cycles / 4 * 3)
		__atomic_store_n(&ft->window.due, b->next_close + 1, __ATOMIC_RELAXED);
	if (delay < ft->config.stall_cycles)
		return false;
	for (uint32_t s = 0; s < ft->detector.streams; s++) {
		const uint64_t at = frame_stream_progress(ft, s);

		/* one that is ahead of the head was silent, too, unless its packets wait */
		if (at == b->delay.progress[s] && (at < passed || stream_reach(ft, s) == at))
			b->stalled_at[s] = at + 1;
	}
	b->timeout = true;
	return true;
}

/** Streams that have packets in a slot whose frame closes. */
static uint64_t
streams_present(const struct frame_table *ft, uint64_t frame, uint32_t slot)
{
	uint64_t present = 0;

	for (uint32_t s = 0; s < ft->detector.streams; s++)
		present |= (uint64_t)(frame_table_stream(ft, slot, s)->tag ==
				   ((frame + 1) << FRAME_TAG_SLOT_BITS | slot))
			<< s;
	return present;
}

/** Fill the slot's header, and clear missing packets. @return packets present */
static uint32_t
seal(struct frame_table *ft, uint64_t frame, uint32_t slot, bool complete)
{
	struct gk_frame *f = frame_table_frame(ft, slot);
	const struct detector *d = &ft->detector;
	uint32_t packets = 0;

	f->frame = frame_table_number(ft, frame);
	f->flags = ft->config.trailers ? GK_FRAME_TRAILER | GK_FRAME_LEADER : 0;
	f->trailer = f->frame;
	f->out = GK_NO_OUT;
	f->missing = 0;
	ft->builder->present[slot] = UINT64_MAX;
	if (complete)
		return d->expected;
	ft->builder->present[slot] = streams_present(ft, frame, slot);
	for (uint32_t s = 0; s < d->streams; s++) {
		const struct frame_stream *st = frame_table_stream(ft, slot, s);
		const uint32_t present = frame_table_stream_packets(ft, slot, s);
		const uint32_t tile = detector_stream_tile(d, s);

		packets += present;
		if (present == detector_stream_expected(d, s))
			continue;
		/* absent streams and rows that are not read out were never written */
		for (uint32_t p = d->expect_from[s]; p < d->expect_to[s]; p++) {
			if (present != 0 && (st->seen[p >> 6] >> (p & 63) & 1) != 0)
				continue;
			for (uint32_t i = 0; i < d->parts; i++)
				f->packet[(tile + p) * d->parts + i] = 0;
			frame_table_mbufs(ft, slot)[tile + p] = NULL;
		}
	}
	f->missing = d->expected - packets;
	return packets;
}

/** Frame + 1 of the last open frame that had begun. All are closed and used by no RX role. */
static uint64_t
last_begun(const struct frame_table *ft)
{
	const struct frame_builder *b = ft->builder;

	for (uint64_t f = b->next_open; f-- > b->next_close;) {
		const uint32_t slot = b->slot_of[f & ft->entry_mask];
		const uint64_t tag = (f + 1) << FRAME_TAG_SLOT_BITS | slot;

		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) == FRAME_TAG_REFUSED)
			return f + 1;
		for (uint32_t s = 0; s < ft->detector.streams; s++)
			if (frame_table_stream(ft, slot, s)->tag == tag)
				return f + 1;
	}
	return 0;
}

/** The head is closed: describe it and advance. @return false: the caller does not get the frame */
static bool
pass_head(struct frame_table *ft, bool complete, struct frame_closed *closed)
{
	struct frame_builder *b = ft->builder;
	const uint64_t frame = b->next_close++;
	const uint64_t tag = ft->entry[frame & ft->entry_mask];
	bool report;

	*closed = (struct frame_closed){
		.frame = frame_table_number(ft, frame), .timeout = b->timeout};
	if ((tag & FRAME_TAG_SLOT_MASK) == FRAME_TAG_REFUSED) {
		closed->refused = true;
	} else {
		closed->slot = b->slot_of[frame & ft->entry_mask];
		closed->packets = seal(ft, frame, closed->slot, complete);
		if (closed->packets == 0)
			b->free_slots[b->nb_free++] = closed->slot;
		frame_entry_set(ft, frame, FRAME_TAG_CLOSED);
	}
	closed->missing = ft->detector.expected - closed->packets;
	if (closed->refused || (b->outrun && closed->missing > 0))
		closed->waited_for = b->short_behind;
	report = closed->packets > 0 || (closed->refused && frame >= b->unnamed) ||
		(b->started && (!b->flushing || frame < b->flush_end));
	b->started |= report;
	b->reported += report;
	if (report)
		frame_late_row(ft, frame);
	b->closing = b->closing && b->next_close < b->close_end;
	b->timeout = false;
	b->outrun = false;
	if (b->held)
		hold_next(ft);
	frame_window_publish(ft);
	return report;
}

/**
 * Close the frames below b->close_end for RX roles, and begin to wait until none of them uses them.
 * The grace period may be long if RX roles share CPUs, so it is one for all.
 */
static void
begin_closing(struct frame_table *ft)
{
	for (uint64_t f = ft->builder->next_close; f < ft->builder->close_end; f++)
		if ((ft->entry[f & ft->entry_mask] & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED)
			frame_entry_set(ft, f, FRAME_TAG_CLOSED);
	frame_window_changed(ft);
	ft->builder->closing = true;
	ft->builder->grace = rte_rcu_qsbr_start(ft->qsbr);
}

bool
frame_table_close(struct frame_table *ft, struct frame_closed *closed)
{
	struct frame_builder *b = ft->builder;

	/* frames that are open after the run's end are closed only by a flush */
	while (b->next_close <
		(b->flushing ? b->next_open : RTE_MIN(b->next_open, ft->window.end))) {
		const uint64_t tag = ft->entry[b->next_close & ft->entry_mask];
		bool complete = false;

		if (b->flushing) {
			if (!b->flush_graced && rte_rcu_qsbr_check(ft->qsbr, b->grace, false) == 0)
				return false;
			if (!b->flush_graced)
				b->flush_end = last_begun(ft);
			b->flush_graced = true;
		} else if (b->closing) {
			if (rte_rcu_qsbr_check(ft->qsbr, b->grace, false) == 0)
				return false;
		} else if ((tag & FRAME_TAG_SLOT_MASK) != FRAME_TAG_REFUSED) {
			complete = all_rx_complete(ft, b->next_close);
			if (!complete && !head_given_up(ft))
				return false;
			if (!complete) {
				begin_closing(ft);
				continue;
			}
		}
		if (pass_head(ft, complete, closed))
			return true;
	}
	return false;
}
