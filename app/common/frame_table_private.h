/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef FRAME_TABLE_PRIVATE_H
#define FRAME_TABLE_PRIVATE_H

/**
 * @file
 * What the parts of the frame table share: frame_table.c (slots), frame_lane.c (what an RX lcore
 * does about a frame without a slot), frame_claims.c (streams that are somewhere else),
 * frame_window.c (where the window is) and frame_head.c (when its first frame closes).
 */

#include <rte_log.h>

#include "frame_table.h"

extern int frame_table_logtype;

#define LOG(level, ...) rte_log(RTE_LOG_##level, frame_table_logtype, "frames: " __VA_ARGS__)

/** The builder has changed what lanes make of a frame: after that; see frame_window.changes. */
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
		RTE_MIN(ft->builder.next_close + ft->config.jump, FRAME_NUMBER_MAX),
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

/** Highest frame + 1 that came of a stream; 0: none yet. */
static inline uint64_t
frame_stream_progress(const struct frame_table *ft, uint32_t stream)
{
	return __atomic_load_n(
		&ft->lanes[ft->config.owner[stream]].progress[stream], __ATOMIC_ACQUIRE);
}

/** Count a number towards an agreement. @return true once `agree` in a row lie within `slots` */
bool frame_agree(const struct frame_table *ft, struct frame_agreement *a, uint64_t frame);

/**
 * A number of which the window cannot be near: it counts towards a claim of its stream. By the RX
 * lcore.
 * @param ahead  frames would have been lost; else the detector would have been restarted
 * @return whether the builder has not seen the claim yet: the packet may wait for its answer
 */
bool frame_claim(struct frame_table *ft, struct frame_lane *lane, uint32_t stream, uint64_t frame,
	bool ahead);

/**
 * Where most of the streams claim to be; those that are too few are told of after a while. By the
 * builder.
 * @param group  out: these streams
 * @param all    out: more than all others together, whether those speak or not
 * @return frame + 1, 0 = here
 */
uint64_t frame_claims_place(struct frame_table *ft, uint64_t *group, bool *all);

/** No more of what was claimed: the window is elsewhere. */
static inline void
frame_claims_forget(struct frame_table *ft)
{
	struct frame_builder *b = &ft->builder;

	b->claims = 0;
	__atomic_store_n(&ft->window.refused_claims, 0, __ATOMIC_RELAXED);
	b->claimed_at = 0;
	b->claims_told = 0;
	b->gap_group = 0;
	b->gap_to = 0;
}

/** Once all lanes are ready for it, look for the run's window, or go where it is to be. */
void frame_window_begin_run(struct frame_table *ft);

/**
 * The builder's look at the window before it opens frames: begin, search, move, or follow a
 * detector that has begun anew.
 *
 * @return true if frames may be opened now
 */
bool frame_window_ready(struct frame_table *ft);

#endif
