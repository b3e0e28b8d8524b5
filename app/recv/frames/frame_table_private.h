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

#include "counter.h"
#include "frames/frame_rx.h"
#include "frames/frame_table.h"

/** A time, by the clocks of builder and RX roles, and the progress of all streams at that time. */
struct frame_delay {
	uint64_t ran;			 /**< frame_builder.ran */
	uint64_t listened[FRAME_RX_MAX]; /**< frame_rx_listened() */
	uint64_t progress[DETECTOR_STREAMS_MAX];
};

/** Builder's part of the table. Private to the builder, except `unnamed`, `paused_progress`,
 * `silences` and `request_silences`. */
struct frame_builder {
	uint64_t next_close;  /**< head: lowest frame that is not closed */
	uint64_t next_open;   /**< lowest frame that is not opened */
	uint16_t *slot_of;    /**< [entries] slot, valid also after the tag has changed */
	uint32_t *free_slots; /**< [nb_free], a stack */
	uint32_t nb_free;
	uint64_t nb_releases; /**< slots published in frame_table.releases so far */
	uint64_t *released;   /**< [slots] nb_releases after its release; 0 = none */
	/** [slots] bit per stream that had packets when the frame closed. The tags of streams are
	 * cleared when the window moves, and gangs may have the frame until later. */
	uint64_t *present;
	uint16_t *recycled; /**< slots that RX roles may still be freeing: a ring, oldest first */
	uint64_t recycled_first; /**< free-running indices, like those of releases */
	uint64_t recycled_end;
	bool beginning;	    /**< a run is about to begin; some RX role has not acknowledged */
	bool fresh;	    /**< this run has had no window yet */
	uint64_t reported;  /**< frames of this run that frame_table_close() has returned */
	bool started;	    /**< a frame was returned since the last move */
	bool closing;	    /**< the head's tag is changed, its grace period runs */
	uint64_t close_end; /**< frames below it are closed together with the head */
	bool timeout;	    /**< the head closes by time */
	bool flushing;	    /**< everything open is closed, with one grace period for all */
	bool flush_graced;  /**< the grace period of the flush is over */
	uint64_t flush_end; /**< frame + 1 of the last frame of the flush that had begun */
	uint64_t moved_at;  /**< TSC of the last move, 0 = none of the old window is expected */
	uint64_t grace;	    /**< qsbr token of the closing head, or of the flush */
	uint64_t looked_at; /**< TSC of the last check of the head's progress */
	/* the delay of the head is measured by the clocks of builder and RX roles: a time in which
	 * one of them did not run does not count */
	bool held;		  /**< the head is delayed */
	uint64_t ran;		  /**< cycles in which the builder ran */
	uint64_t ran_at;	  /**< TSC of the last change of `ran` */
	struct frame_delay delay; /**< since when */
	struct frame_delay moved; /**< when a stream sent last, since then */
	/* which streams the head waits for, see is_outrun() */
	uint64_t sent_progress[DETECTOR_STREAMS_MAX]; /**< progress at `sent_at` */
	/** frame_rx.listened of the stream's RX role when its progress was last seen to change */
	uint64_t sent_at[DETECTOR_STREAMS_MAX];
	uint64_t behind; /**< bits of the streams that the head waited for at the last check */
	uint64_t short_behind; /**< ... when slots were last short: a frame closed or was refused */
	bool outrun;	       /**< the head closes because slots are short */
	uint64_t move_to;      /**< frame + 1 at which the window is to begin, 0 = no move */
	uint64_t requested;    /**< requested frame, if the window begins before it; else 0 */
	/** No waiting packet had the number of a refused frame below this. Read by RX roles. */
	uint64_t unnamed;
	uint64_t asked_at; /**< TSC of the first packet seen without a window, 0 = none */
	bool moving;	   /**< new generation is published; some RX role has not acknowledged it */
	uint64_t stalled_at[DETECTOR_STREAMS_MAX]; /**< progress + 1 at the timeout, 0 = live */
	uint64_t requests;			   /**< bits of streams with a resync request */
	uint64_t requests_ahead;		   /**< bits of requests for a gap */
	uint64_t request_position[DETECTOR_STREAMS_MAX]; /**< frame + 1 that is requested */
	uint64_t request_since[DETECTOR_STREAMS_MAX];	 /**< TSC, 0 = no request */
	uint64_t request_front[DETECTOR_STREAMS_MAX];	 /**< window.front when the request began */
	uint64_t front_at;			   /**< TSC when window.front was determined */
	uint64_t request_at[DETECTOR_STREAMS_MAX]; /**< last position of the request, which moves */
	/** `silences` when the request began: a refusal is not for a request after another silence.
	 * Read by RX roles. */
	uint32_t request_silences[DETECTOR_STREAMS_MAX];
	uint64_t requests_timed; /**< bits of streams with a request at the last check of age */
	uint64_t gap_group;	 /**< bits of the majority of streams that requests a gap */
	/** Frame + 1 at which the gap ends. Before it, the builder waits only for gap_group. */
	uint64_t gap_to;
	bool leaving; /**< a restart was seen */
	/** When it was first seen, or the time of the last step while packets wait. */
	struct frame_delay leave;
	uint64_t leave_requests;  /**< bits of the requests that the restart was seen in */
	uint64_t leave_grace;	  /**< qsbr token since then, see may_leave() */
	uint64_t leave_steps;	  /**< frames opened, closed and returned, at that check */
	bool draining;		  /**< a restart waits for packets of frames before it */
	uint64_t requests_logged; /**< bits of streams whose refused request was logged */
	uint64_t logged_at;	  /**< TSC of the last log message about a request, 0 = none */
	uint64_t logged_progress[DETECTOR_STREAMS_MAX]; /**< progress when the request was logged */
	/* which streams send */
	uint64_t listened_at; /**< TSC of the last check */
	uint64_t tick_at;     /**< TSC of the last window.tick */
	uint64_t silent;      /**< bits of streams that have sent nothing for `stall_cycles` */
	uint64_t dead;	      /**< bits of streams silent for 1.5 x stall_cycles while half send */
	uint64_t activity[DETECTOR_STREAMS_MAX];      /**< packets + progress at the last check */
	uint8_t active_packets[DETECTOR_STREAMS_MAX]; /**< of its last frame, at that check */
	/** frame_rx.listened of the stream's RX role at the last check that found more */
	uint64_t active_at[DETECTOR_STREAMS_MAX];
	uint64_t listened[FRAME_RX_MAX]; /**< frame_rx.listened at the last check */
	uint64_t absent[FRAME_RX_MAX];	 /**< frame_rx.absent at absent_at */
	uint64_t absent_at;		 /**< TSC of the last check of frame_rx.absent */
	uint64_t absent_logged;		 /**< TSC of the last message about it, 0 = none */
	/** Progress of the streams in window.paused when they paused. Read by RX roles. */
	uint64_t paused_progress[DETECTOR_STREAMS_MAX];
	uint32_t silences[DETECTOR_STREAMS_MAX]; /**< number of times that a stream became silent */
	struct frame_late *late;
	/** frames of this run whose numbers occurred in packets and that have no row */
	uint64_t late_frames;
};

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
	__atomic_store_n(&ft->window.base, ft->builder->next_close, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.next, ft->builder->next_open, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.horizon,
		RTE_MIN(ft->builder->next_close + ft->config.max_gap_frames, FRAME_NUMBER_MAX),
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
 * CPUs poll at least at this interval. If more time passes between two polls, the excess does not
 * count: the role was not running.
 */
#define FRAME_DEAF_MS 50

/** Cycles in which an RX role has listened. By the builder. */
static inline uint64_t
frame_rx_listened(const struct frame_table *ft, uint32_t rx)
{
	return counter_get(&ft->rx[rx].listened);
}

/** Return true if an RX role has acknowledged the last move of the window. By its RX lcore. */
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

/** Frame + 1 that a stream has begun: see frame_rx.begun. */
static inline uint64_t
frame_stream_begun(const struct frame_table *ft, uint32_t stream)
{
	return RTE_MAX(frame_stream_progress(ft, stream),
		__atomic_load_n(&ft->rx[ft->config.owner[stream]].begun[stream], __ATOMIC_ACQUIRE));
}

/**
 * Return true if a stream was silent, and none of its packets has been placed since. By the RX
 * lcore.
 */
static inline bool
frame_rx_paused(const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream)
{
	return (__atomic_load_n(&ft->window.paused, __ATOMIC_ACQUIRE) >> stream & 1) != 0 &&
		frx->progress[stream] ==
		__atomic_load_n(&ft->builder->paused_progress[stream], __ATOMIC_RELAXED);
}

/** Return true if a frame belongs to a resync request that was refused. By the RX lcore. */
bool frame_resync_is_refused(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Return true if a frame is too far ahead for a stream that is out of window to wait for it. By the
 * RX lcore.
 */
bool frame_resync_is_far(const struct frame_table *ft, uint32_t stream, uint64_t frame);

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

/** Return true if all expected streams that are not silent belong to a group. By the builder. */
bool frame_resync_is_unanimous(const struct frame_table *ft, uint64_t group);

/** Check which streams are silent, if the last check is long enough ago. By the builder. */
void frame_resync_listen(struct frame_table *ft);

/** Return true if a stream has sent nothing for `stall_cycles`. By the builder. */
bool frame_resync_is_silent(const struct frame_table *ft, uint32_t stream);

/** A window begins: no stream is silent yet, except dead ones. By the builder. */
void frame_resync_note_activity(struct frame_table *ft);

/** Note the time and the progress of all streams. By the builder, as below. */
void frame_delay_note(const struct frame_table *ft, struct frame_delay *now);

/**
 * Return the TSC cycles since frame_delay_note(). The time in which the builder or an RX role did
 * not run does not count: packets may have arrived meanwhile.
 */
uint64_t frame_delay_cycles(const struct frame_table *ft, const struct frame_delay *since);

/** Highest frame + 1 of a stream's packets, placed or waiting. By the builder. */
uint64_t frame_head_reach(const struct frame_table *ft, uint32_t stream);

/** Return true if a packet of the head, or of any frame after it, has arrived. By the builder. */
bool frame_head_begun(const struct frame_table *ft);

/** Allocate the state of frame_late.c. @return NULL: no memory */
struct frame_late *frame_late_create(int socket);
void frame_late_free(struct frame_late *late);

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
	struct frame_builder *b = ft->builder;

	b->requests = 0;
	for (uint32_t s = 0; s < ft->detector.streams; s++)
		b->request_since[s] = 0;
	__atomic_store_n(&ft->window.refused, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&ft->window.outvoted, 0, __ATOMIC_RELAXED);
	b->leaving = false;
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
