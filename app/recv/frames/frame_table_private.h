/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAME_TABLE_PRIVATE_H
#define FRAME_TABLE_PRIVATE_H

/**
 * @file
 * What the parts of the frame table share: frame_table.c (slots), frame_rx.c (what an RX lcore
 * does about a frame without a slot), frames/frame_resync.c (streams that are somewhere else),
 * frame_window.c (where the window is), frame_head.c (when its first frame closes) and frame_late.c
 * (frames without a row).
 */

#include <rte_log.h>

#include "frames/frame_table.h"

extern int frame_table_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, frame_table_logtype, "frames: " __VA_ARGS__)

/** The builder has changed what RX roles make of a frame: after that; see frame_window.changes. */
static inline void
frame_window_changed(struct frame_table *ft)
{
	__atomic_store_n(&ft->window.changes, ft->window.changes + 1, __ATOMIC_RELEASE);
}

/** The builder says where the window begins, and how far behind that a frame may lie. */
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
 * The builder gives a frame a slot, or says FRAME_TAG_CLOSED or FRAME_TAG_REFUSED of it. Then, once
 * for all of them, frame_window_changed() is due.
 */
static inline void
frame_entry_set(struct frame_table *ft, uint64_t frame, uint32_t slot)
{
	__atomic_store_n(&ft->entry[frame & ft->entry_mask],
		(frame + 1) << FRAME_TAG_SLOT_BITS | slot, __ATOMIC_RELEASE);
}

/** A builder that has not looked for so long was not running. */
#define FRAME_DEAF_MS 50

/** Has an RX lcore acknowledged the last move of the window? Called by that lcore. */
static inline bool
frame_rx_is_current(const struct frame_table *ft, const struct frame_rx *frx)
{
	return __atomic_load_n(&ft->window.generation, __ATOMIC_ACQUIRE) == frx->generation;
}

/** Highest frame + 1 that came of a stream; 0: none yet. */
static inline uint64_t
frame_stream_progress(const struct frame_table *ft, uint32_t stream)
{
	return __atomic_load_n(
		&ft->rx[ft->config.owner[stream]].progress[stream], __ATOMIC_ACQUIRE);
}

/** Was a stream silent, and nothing of it has been placed since? By the RX lcore. */
static inline bool
frame_rx_paused(const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream)
{
	return (__atomic_load_n(&ft->window.paused, __ATOMIC_ACQUIRE) >> stream & 1) != 0 &&
		frx->progress[stream] ==
		__atomic_load_n(&ft->builder.paused_progress[stream], __ATOMIC_RELAXED);
}

/** Was a request refused of which a frame may be? */
bool frame_resync_is_refused(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Where enough streams request to be; those that are too few are refused after a while, and told
 * of. By the builder.
 * @param group  out: these streams
 * @return frame + 1, 0 = here
 */
uint64_t frame_resync_position(struct frame_table *ft, uint64_t *group);

/**
 * Where streams request to be while there is no window. By the builder.
 * @param fewer  the largest group decides, whatever its size
 * @param any    out: whether a stream has sent anything
 * @return frame + 1, 0 = not known
 */
uint64_t frame_resync_first(struct frame_table *ft, bool fewer, bool *any);

/** Do all streams that speak belong to a group? By the builder. */
bool frame_resync_is_unanimous(const struct frame_table *ft, uint64_t group);

/** Now and then the builder looks who speaks. */
void frame_resync_listen(struct frame_table *ft);

/** Has nothing come of a stream for `stall_cycles`? By the builder. */
bool frame_resync_is_silent(const struct frame_table *ft, uint32_t stream);

/** A window begins: nobody is silent yet. */
void frame_resync_hear(struct frame_table *ft);

/** Has the head begun, or any frame after it? By the builder. */
bool frame_head_begun(const struct frame_table *ft);

struct frame_late *frame_late_create(int socket);

/** A run begins. */
void frame_late_begin(struct frame_table *ft);

/** A frame gets a row. */
void frame_late_row(struct frame_table *ft, uint64_t frame);

/** Read what RX roles have reported. */
void frame_late_collect(struct frame_table *ft);

/** No more of what was requested: the window is elsewhere. */
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

/** Once all RX roles are ready for it, look for the run's window, or go where it is to be. */
void frame_window_begin_run(struct frame_table *ft);

/**
 * The builder's look at the window before it opens frames: begin, search, move, or follow a
 * detector that has begun again.
 *
 * @return true if frames may be opened now
 */
bool frame_window_ready(struct frame_table *ft);

#endif
