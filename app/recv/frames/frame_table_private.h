/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAME_TABLE_PRIVATE_H
#define FRAME_TABLE_PRIVATE_H

/**
 * @file
 * Functions that the parts of the frame table share. The parts are
 *  - frame_table.c: slots,
 *  - frame_rx.c: packets whose frame has no open slot; mbufs that are returned,
 *  - frame_head.c: when the first frame of the window closes,
 *  - frame_window.c: where the window is,
 *  - frame_resync.c: streams that are out of window,
 *  - frame_late.c: frames without a row.
 */

#include <rte_log.h>

#include "frames/frame_table.h"

extern int frame_table_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, frame_table_logtype, "frames: " __VA_ARGS__)

/** The builder has changed entries or the window: let RX roles retry, see frame_window.changes. */
static inline void
frame_window_changed(struct frame_table *ft)
{
	__atomic_store_n(&ft->window.changes, ft->window.changes + 1, __ATOMIC_RELEASE);
}

/** The builder publishes where the window begins, and how far ahead of it a frame may be. */
static inline void
frame_window_publish(struct frame_table *ft)
{
	__atomic_store_n(&ft->window.base, ft->builder.next_close, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.next, ft->builder.next_open, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.horizon,
		RTE_MIN(ft->builder.next_close + ft->config.max_gap_frames, FRAME_NUMBER_MAX),
		__ATOMIC_RELAXED);
	frame_window_changed(ft);
}

/**
 * The builder sets a frame's slot, FRAME_TAG_CLOSED or FRAME_TAG_REFUSED. After one or more calls
 * it must call frame_window_changed().
 */
static inline void
frame_entry_set(struct frame_table *ft, uint64_t frame, uint32_t slot)
{
	__atomic_store_n(&ft->entry[frame & ft->entry_mask],
		(frame + 1) << FRAME_TAG_SLOT_BITS | slot, __ATOMIC_RELEASE);
}

/**
 * The longest time between two polls, in milliseconds, that counts as listening. Lcores that share
 * CPUs poll that often. Of a longer time between two polls, the rest does not count: the role was
 * not running.
 */
#define FRAME_DEAF_MS 50

/** Cycles in which an RX role has listened. By the builder. */
static inline uint64_t
frame_rx_listened(const struct frame_table *ft, uint32_t rx)
{
	return __atomic_load_n(&ft->rx[rx].listened, __ATOMIC_RELAXED);
}

/** Has an RX role acknowledged the last move of the window? By its RX lcore. */
static inline bool
frame_rx_is_current(const struct frame_table *ft, const struct frame_rx *frx)
{
	return __atomic_load_n(&ft->window.generation, __ATOMIC_ACQUIRE) == frx->generation;
}

/** A stream's progress, frame + 1: see frame_rx.progress. 0: no packet yet. */
static inline uint64_t
frame_stream_progress(const struct frame_table *ft, uint32_t stream)
{
	return __atomic_load_n(
		&ft->rx[ft->config.owner[stream]].progress[stream], __ATOMIC_ACQUIRE);
}

/** Was a stream silent, and has none of its packets been placed since? By the RX lcore. */
static inline bool
frame_rx_paused(const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream)
{
	return (__atomic_load_n(&ft->window.paused, __ATOMIC_ACQUIRE) >> stream & 1) != 0 &&
		frx->progress[stream] ==
		__atomic_load_n(&ft->builder.paused_progress[stream], __ATOMIC_RELAXED);
}

/** Does a frame belong to a resync request that was refused? By the RX lcore. */
bool frame_resync_is_refused(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Find the position that enough streams request. If they are too few, their requests are refused
 * and logged after a time limit. By the builder.
 * @param group  out: bits of the streams that request the position
 * @return frame + 1, 0 = the window stays
 */
uint64_t frame_resync_position(struct frame_table *ft, uint64_t *group);

/**
 * Find the position that streams request while there is no window. By the builder.
 * @param fewer  the largest group decides, whatever its size
 * @param any    out: whether a stream has sent anything
 * @return frame + 1, 0 = not known
 */
uint64_t frame_resync_first(struct frame_table *ft, bool fewer, bool *any);

/** Do all expected streams that are not silent belong to a group? By the builder. */
bool frame_resync_is_unanimous(const struct frame_table *ft, uint64_t group);

/** Check which streams are silent, if the last check is long enough ago. By the builder. */
void frame_resync_listen(struct frame_table *ft);

/** Has a stream sent nothing for `stall_cycles`? By the builder. */
bool frame_resync_is_silent(const struct frame_table *ft, uint32_t stream);

/** A window begins: no stream is silent yet, except dead ones. By the builder. */
void frame_resync_hear(struct frame_table *ft);

/** Has a packet of the head, or of any frame after it, arrived? By the builder. */
bool frame_head_begun(const struct frame_table *ft);

/** Allocate the state of frame_late.c. @return NULL: no memory */
struct frame_late *frame_late_create(int socket);

/** Forget the frames of the last run: a run begins. By the builder, as below. */
void frame_late_begin(struct frame_table *ft);

/** Note that a frame has a row. */
void frame_late_row(struct frame_table *ft, uint64_t frame);

/** Read the frames that RX roles have reported. */
void frame_late_collect(struct frame_table *ft);

/** Forget all resync requests: the window has moved. By the builder. */
static inline void
frame_resync_reset(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;

	b->requests = 0;
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		b->request_since[s] = 0;
	__atomic_store_n(&ft->window.refused, 0, __ATOMIC_RELAXED);
	b->leave_since = 0;
	b->requests_logged = 0;
	b->gap_group = 0;
	b->gap_to = 0;
}

/** Once all RX roles have acknowledged it, begin a run: search its window, or move to it. */
void frame_window_begin_run(struct frame_table *ft);

/**
 * The builder's steps before it opens frames: begin a run, search or move the window, or follow
 * resync requests.
 *
 * @return true if frames may be opened now
 */
bool frame_window_ready(struct frame_table *ft);

#endif
