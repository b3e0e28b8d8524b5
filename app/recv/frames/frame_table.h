/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The frame table. RX lcores place packets in it, and the builder takes closed frames out of it.
 *
 * Lookup. A frame is looked up in an array of *entries*, indexed by the low bits of its number. An
 * entry is one 64-bit tag, (frame + 1) << 16 | slot. Only the builder writes tags. With one load an
 * RX lcore learns whether the frame is open, and its slot. The builder opens frames in advance, for
 * as many as there are free slots. If a frame is not open, the RX lcore keeps the packet and
 * publishes the frame in frame_rx.wanted. The builder then opens the frame, refuses it, or moves
 * the window.
 *
 * A frame slot consists of
 *  - the gk_frame header and pointer table (device addresses of pixels), which the gangs read,
 *  - the mbufs that hold these pixels,
 *  - a struct frame_stream for each stream: a bitmap of packets and the contents of the detector
 *    header. Only the RX lcore that owns the stream writes it. It is empty if its tag is not the
 *    entry's tag, so it is never cleared between frames.
 *
 * Closing. If all RX roles have placed all their packets of a frame, it closes without a handshake:
 * any further packet of the frame is a duplicate and changes nothing. To close an incomplete frame,
 * the builder changes the tag, and waits until every RX lcore has passed a quiescent state
 * (rte_rcu_qsbr). Only then does it read the bitmaps. In this way no packet can enter a frame that
 * the builder has returned.
 *
 * Frames close in order. The first frame of the window, the *head*, closes when
 *  - it is complete, or
 *  - every live stream is `max_skew_frames` frames ahead, or
 *  - a stream that delays it has been silent for `stall_cycles`. The builder does not wait for this
 *    stream again until it sends.
 * If an RX role has no room for more waiting packets, and none of their frames is open, it can
 * place no packet in an open frame. Its streams then count as ahead.
 *
 * Returning mbufs. The RX lcore that placed an mbuf also frees it. The mbufs therefore stay in that
 * lcore's mempool cache, and their cache lines and reference counts do not move between CPUs. The
 * builder publishes the slots whose mbufs are no longer used (frame_table_release()). Each RX role
 * frees its own mbufs of these slots, a few in each poll. The builder reuses a slot after every RX
 * role has freed its part.
 *
 * Window and resynchronisation. app/recv/README.rst, section "The window", has the rules. If the
 * numbers of a stream cannot belong to the window, the stream is *out of window*. The caller holds
 * its packets (FRAME_PLACE_HOLD), and each of them counts once towards a *resync request*
 * (frame_resync.c). The builder moves the window if enough streams request the same position
 * (frame_window.c). Otherwise it refuses the request after a time limit.
 *
 * Frames without a row. Each RX role reports the frames of packets that it drops as late or as
 * outliers, through a ring of its own. The builder knows which frames have a row, and counts the
 * others (frame_late.c).
 *
 * Frame numbers. The table counts only the frames of this receiver (frame_run.stride). Frame f of
 * the table has the detector's number f * stride + offset (frame_table_number()). Many fields hold
 * frame + 1, so that 0 can mean "none".
 *
 * Threads. The lcore of an RX role calls frame_rx_*(), frame_resync_request() and
 * frame_resync_continues() for that role. The builder's lcore calls all other functions. No other
 * thread may use the table during frame_table_create() and frame_table_destroy().
 */
#ifndef FRAME_TABLE_H
#define FRAME_TABLE_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_rcu_qsbr.h>

#include <gk_abi.h>

#include "frames/detector.h"

#define FRAME_RX_MAX	16
#define FRAME_SLOTS_MAX 4096
#define FRAME_DROPS	1024 /**< reports of an RX role not yet read by the builder; a power of 2 */

/** Frame numbers are 48 bits in a tag (4,460 years at 2 kHz); larger ones are outliers. */
#define FRAME_NUMBER_MAX ((UINT64_C(1) << 48) - 2)

#define FRAME_TAG_SLOT_BITS 16
#define FRAME_TAG_SLOT_MASK 0xFFFFu
#define FRAME_TAG_CLOSED    0xFFFFu /**< in place of the slot: the frame is closed */
#define FRAME_TAG_REFUSED   0xFFFEu /**< in place of the slot: no slot was free */
/** No frame. It is not 0: that would be slot 0 of frame 2^64 - 1, which any sender can name. */
#define FRAME_TAG_EMPTY FRAME_TAG_CLOSED

/** Which frames a run takes. */
struct frame_run {
	bool first_known;     /**< true: the run begins at first_frame; false: it is found */
	uint64_t first_frame; /**< detector's number; unused unless first_known */
	uint64_t nb_frames;   /**< frames of the run from its first one, 0 = no end */
	/**
	 * Detectors may distribute frames over several receivers, round-robin. This receiver takes
	 * the frames whose number is offset + a multiple of stride; 0 or 1 = all frames.
	 */
	uint64_t stride;
	uint64_t offset; /**< < stride */
};

struct frame_table_config {
	const struct detector *detector;
	uint32_t nb_rx;			     /**< RX lcores, 1 ... FRAME_RX_MAX */
	uint8_t owner[DETECTOR_STREAMS_MAX]; /**< RX role of each stream */
	uint32_t slots;		  /**< frames open or in work, at most; 2 ... FRAME_SLOTS_MAX */
	uint32_t max_skew_frames; /**< frames that every live stream must be ahead; < slots */
	uint32_t resync_packets;  /**< packets in a row that make a resync request, >= 1 */
	uint64_t max_gap_frames;  /**< a number so far ahead is an outlier, not a gap */
	uint64_t stall_cycles;	  /**< TSC cycles after which a silent stream is not waited for */
	bool refuse;	      /**< no free slot: refuse the frame (true), or let RX wait (false) */
	bool no_run;	      /**< start without a run; frame_table_begin() starts the first one */
	struct frame_run run; /**< the first run, unless no_run */
	uint8_t *frames;      /**< gk_frame slots, gk_frame_stride() apart; owned by the caller */
	int socket;	      /**< NUMA socket of the allocations */
};

/** One stream of one frame. One cache line. Written by the RX role that owns the stream. */
struct frame_stream {
	uint64_t tag;	  /**< tag of the entry; any other value: no packet of this stream yet */
	uint64_t seen[2]; /**< bit per packet */
	uint64_t rx_tsc;  /**< TSC at which the first packet was read */
	struct detector_frame_info info; /**< from the header of the first packet */
	uint64_t reserved;
} __rte_cache_aligned;
static_assert(sizeof(struct frame_stream) == RTE_CACHE_LINE_SIZE, "one line a stream");

/** Result of placing a packet. */
enum frame_placement {
	FRAME_PLACED,	       /**< in a frame; the table owns the mbuf */
	FRAME_PLACE_DUPLICATE, /**< the same packet is in the frame already */
	FRAME_PLACE_LATE,      /**< its frame is closed, before the run, or of the old window */
	FRAME_PLACE_REFUSED,   /**< its frame was refused */
	FRAME_PLACE_OUTLIER,   /**< far ahead of the window, where most streams are not (yet) */
	FRAME_PLACE_BEYOND,    /**< after the last frame of the run */
	FRAME_PLACE_NO_RUN,    /**< no run is active */
	FRAME_PLACE_OTHER,     /**< its frame belongs to another receiver (frame_run.stride) */
	FRAME_PLACE_WAIT,      /**< its frame is not open yet: keep the packet and retry it */
	/** Its stream is out of window: hold the packet with the others of its stream, and call
	 * frame_rx_again() to learn its outcome. */
	FRAME_PLACE_HOLD,
	FRAME_PLACES
};

/** Packets that one RX role has placed in one slot. Written and read by that RX role. */
struct frame_rx_count {
	uint64_t tag; /**< tag of the entry; any other value: `placed` belongs to an old frame */
	uint64_t placed;
};
static_assert(sizeof(struct frame_rx_count) == 16, "four slots a line");

/**
 * Packets in a row of a stream that is out of window, whose frames lie within `slots` of each
 * other. With `resync_packets` of them the stream has a resync request.
 */
struct frame_agreement {
	uint64_t lowest; /**< lowest frame of these packets */
	uint64_t highest;
	uint32_t votes; /**< packets that count, up to resync_packets */
	bool any;	/**< false: there is no such packet, the other fields are unused */
	bool ahead;	/**< the packets are ahead of the window, by less than max_gap_frames */
	bool requested; /**< the stream's request is for the lowest of these frames */
};

/**
 * State of an RX role. Written by its RX lcore, except `nb_drops_read`.
 *
 * The builder reads the fields from `wanted` to `nb_drops_read`, without `leap`. Of the first cache
 * line it reads the constants, and now and then `listened` and, while it searches a window,
 * `elsewhere` (the streams out of window).
 */
struct frame_rx {
	uint32_t id;	     /**< index of the RX role; constant */
	uint32_t expected;   /**< packets of a frame that come through this RX role; constant */
	uint32_t generation; /**< last window move that this RX role has carried out */
	uint32_t tried;	     /**< generation in which waiting packets were first retried */
	uint32_t clean;	     /**< last generation in which no packet waited or was held */
	bool again;	     /**< waiting and held packets are being retried */
	/** TSC cycles in which this RX role has listened, see frame_rx_quiescent(). Read by the
	 * builder and by control now and then. */
	uint64_t listened;
	uint64_t out_of_window; /**< bits of the streams that are out of window */
	uint64_t early;		/**< bits of streams with packets held before there was a window */
	struct frame_rx_count *count; /**< [slots] */
	/** [entries], frame + 1 once this RX role has placed all its packets of it; 8 a line. Read
	 * by the builder. */
	uint64_t *done;

	/** Lowest frame + 1 that this RX role waits for, 0 = none. */
	uint64_t wanted __rte_cache_aligned;
	uint64_t blocked;   /**< `wanted` if no more packets can wait, else 0 */
	uint64_t passed;    /**< detector's number + 1 of the last frame dropped without a run */
	uint64_t passed_at; /**< TSC of the first packet of that frame */
	uint64_t crowded;   /**< non-zero: no room to hold more packets of streams out of window */
	uint64_t requests;  /**< bits of streams out of window with a resync request, see `place` */
	uint64_t reclaimed; /**< number of releases whose mbufs this RX role has freed */
	uint32_t acknowledged; /**< = generation; read by the builder, which waits for it */

	/** By stream: highest frame + 1 of packets whose frame was open, closed or refused.
	 * Also read by telemetry. */
	uint64_t progress[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** By stream: highest frame + 1 of packets that wait. */
	uint64_t reach[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** By stream: frame + 1 of a packet that was more than one frame ahead. It counts only if
	 * the next packet confirms it. Private to the RX role. */
	uint64_t leap[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** By stream: frame + 1 that its resync request names. */
	uint64_t place[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** By stream: counter of packets that were late or out of window. With `progress`, it shows
	 * whether the stream sends. */
	uint64_t heard[DETECTOR_STREAMS_MAX];
	/** Bits of streams whose request is a gap (frames were lost), not a restart. */
	uint64_t requests_ahead;
	/** Frames of dropped packets, for the builder: a ring. */
	uint64_t drops[FRAME_DROPS];
	uint64_t nb_drops;	/**< free-running index; written by the RX role */
	uint64_t nb_drops_read; /**< free-running index; written by the builder */
	/* private to the RX role */
	uint64_t dropped[DETECTOR_STREAMS_MAX]; /**< last frame + 1 in `drops`, by stream */
	uint64_t before[DETECTOR_STREAMS_MAX];	/**< progress in the old window, 0 = none */
	struct frame_agreement agreement[DETECTOR_STREAMS_MAX]; /**< of streams out of window */
	uint64_t recount; /**< streams out of window whose held packets are counted again */
	uint32_t silences[DETECTOR_STREAMS_MAX]; /**< frame_builder.silences at the last request */
	/** Position of frame_rx_reclaim() in the slot that it frees next. */
	uint32_t reclaim_stream;
	uint32_t reclaim_packet;
	/** TSC cycles that were not counted in `listened`. Read by the builder and by telemetry. */
	uint64_t absent;
	uint64_t polled_at; /**< TSC of the last poll */
} __rte_cache_aligned;
static_assert(offsetof(struct frame_rx, wanted) == RTE_CACHE_LINE_SIZE, "the RX role's own line");
static_assert(offsetof(struct frame_rx, progress) == 2 * RTE_CACHE_LINE_SIZE, "the builder's");
static_assert(sizeof(struct frame_rx) == 215 * RTE_CACHE_LINE_SIZE, "8 lines a number by stream");

enum frame_window_state {
	FRAME_WINDOW_CLOSED,   /**< no run: packets are dropped */
	FRAME_WINDOW_SEARCHED, /**< no window yet: packets are held, and request a position */
	FRAME_WINDOW_MOVING,   /**< the new position is known but not in force: packets wait */
	FRAME_WINDOW_OPEN,     /**< packets are placed; streams out of window request a position */
};

/** State of the window. Written by the builder, read by RX roles. */
struct frame_window {
	/* read for every packet, or changed rarely */
	uint64_t stride; /**< of the run; all frames here are counted in it */
	uint64_t offset;
	uint32_t state;	     /**< enum frame_window_state */
	uint32_t generation; /**< number of window moves */
	uint64_t refused;    /**< bits of streams whose resync request was refused */
	uint64_t ahead;	  /**< packets of frames below this may wait: most streams request a gap */
	uint64_t old_end; /**< packets of the old window have frames below this, 0 = none */
	uint64_t paused;  /**< bits of silent streams whose frames are all closed */

	/* changed with every frame, read when the fast lookup fails */
	uint64_t base __rte_cache_aligned; /**< lowest frame that is not closed */
	uint64_t horizon;		   /**< frames from here on are outliers */
	uint64_t end;			   /**< first frame after the run */
	uint64_t next;			   /**< lowest frame that is not opened */
	/** Incremented after changes of this struct and of entries, once for several changes. While
	 * it is constant, a retry of a waiting packet would have the same result. */
	uint64_t changes;
	uint32_t tick; /**< time in quarters of `stall_cycles` */
} __rte_cache_aligned;
static_assert(offsetof(struct frame_window, base) == RTE_CACHE_LINE_SIZE, "a line of its own");
static_assert(sizeof(struct frame_window) == 2 * RTE_CACHE_LINE_SIZE, "two lines");

/** Builder's part of the table. Private to the builder, except `paused_progress` and `silences`. */
struct frame_builder {
	uint64_t next_close;  /**< head: lowest frame that is not closed */
	uint64_t next_open;   /**< lowest frame that is not opened */
	uint16_t *slot_of;    /**< [entries] slot, valid also after the tag has changed */
	uint32_t *free_slots; /**< [nb_free], a stack */
	uint32_t nb_free;
	uint64_t nb_releases; /**< slots published in frame_table.releases so far */
	uint64_t *released;   /**< [slots] nb_releases after its release; 0 = none */
	uint16_t *recycled;   /**< slots that RX roles may still be freeing: a ring, oldest first */
	uint64_t recycled_first; /**< free-running indices, like those of releases */
	uint64_t recycled_end;
	bool beginning;	    /**< a run is about to begin; some RX role has not acknowledged */
	bool stopping;	    /**< no more frames are taken, see frame_table_stop() */
	bool fresh;	    /**< this run has had no window yet */
	uint64_t reported;  /**< frames of this run that frame_table_close() has returned */
	bool started;	    /**< a frame was returned since the last move */
	bool closing;	    /**< the head's tag is changed, its grace period runs */
	bool timeout;	    /**< the head closes by time */
	bool flushing;	    /**< everything open is closed, with one grace period for all */
	bool flush_graced;  /**< the grace period of the flush is over */
	uint64_t flush_end; /**< frame + 1 of the last frame of the flush that had begun */
	uint64_t moved_at;  /**< TSC of the last move, 0 = none of the old window is expected */
	uint64_t grace;	    /**< qsbr token of the closing head, or of the flush */
	uint64_t looked_at; /**< TSC of the last check of the head's progress */
	/* the delay of the head is measured by the clocks of builder and RX roles: a time in which
	 * one of them did not run does not count */
	bool held;			      /**< the head is delayed */
	uint64_t ran;			      /**< cycles in which the builder ran */
	uint64_t ran_at;		      /**< TSC of the last change of `ran` */
	uint64_t held_ran;		      /**< `ran` when the delay began */
	uint64_t held_listened[FRAME_RX_MAX]; /**< frame_rx.listened when the delay began */
	uint64_t move_to;  /**< frame + 1 at which the window is to begin, 0 = no move */
	uint64_t asked_at; /**< TSC of the first packet seen without a window, 0 = none */
	bool moving;	   /**< new generation is published; some RX role has not acknowledged it */
	uint64_t held_progress[DETECTOR_STREAMS_MAX]; /**< progress when the delay began */
	uint64_t stalled_at[DETECTOR_STREAMS_MAX];    /**< progress + 1 at the timeout, 0 = live */
	uint64_t requests;			      /**< bits of streams with a resync request */
	uint64_t requests_ahead;		      /**< bits of requests for a gap */
	uint64_t request_position[DETECTOR_STREAMS_MAX]; /**< frame + 1 that is requested */
	uint64_t request_since[DETECTOR_STREAMS_MAX];	 /**< TSC, 0 = no request */
	uint64_t request_at[DETECTOR_STREAMS_MAX]; /**< last position of the request, which moves */
	/** `silences` when the request began: a refusal is not for a request after another silence.
	 * Read by RX roles. */
	uint32_t request_silences[DETECTOR_STREAMS_MAX];
	uint64_t requests_timed; /**< bits of streams with a request at the last check of age */
	uint64_t gap_group;	 /**< bits of the majority of streams that requests a gap */
	/** Frame + 1 at which the gap ends. Before it, the builder waits only for gap_group. */
	uint64_t gap_to;
	uint64_t leave_since;	  /**< TSC when a restart was first seen, 0 = none */
	uint64_t requests_logged; /**< bits of streams whose refused request was logged */
	uint64_t logged_at;	  /**< TSC of the last log message about a request, 0 = none */
	uint64_t logged_progress[DETECTOR_STREAMS_MAX]; /**< progress when the request was logged */
	/* which streams send */
	uint64_t listened_at; /**< TSC of the last check */
	uint64_t tick_at;     /**< TSC of the last window.tick */
	uint64_t silent;      /**< bits of streams that have sent nothing for `stall_cycles` */
	uint64_t dead;	      /**< bits of streams silent for 1.5 x stall_cycles while half send */
	uint64_t heard[DETECTOR_STREAMS_MAX];	     /**< packets + progress at the last check */
	uint8_t heard_packets[DETECTOR_STREAMS_MAX]; /**< of its last frame, at that check */
	/** frame_rx.listened of the stream's RX role at the last check that found more */
	uint64_t heard_at[DETECTOR_STREAMS_MAX];
	uint64_t listened[FRAME_RX_MAX]; /**< frame_rx.listened at the last check */
	uint64_t absent[FRAME_RX_MAX];	 /**< frame_rx.absent at absent_at */
	uint64_t absent_at;		 /**< TSC of the last check of frame_rx.absent */
	uint64_t absent_logged;		 /**< TSC of the last message about it, 0 = none */
	/** Progress of the streams in window.paused when they paused. Read by RX roles. */
	uint64_t paused_progress[DETECTOR_STREAMS_MAX];
	uint32_t silences[DETECTOR_STREAMS_MAX]; /**< how often a stream became silent */
	struct frame_late *late;
	uint64_t late_frames; /**< frames of this run that packets named and that have no row */
};

struct frame_table {
	uint64_t *entry; /**< [entries] tags; written by the builder, read by RX roles */
	uint64_t entry_mask;
	struct frame_stream *streams; /**< [slot][stream] */
	uint8_t *frames;
	uint64_t frame_stride;
	struct rte_mbuf **mbufs; /**< [slot][tile] */
	struct frame_rx *rx;	 /**< [nb_rx] */
	struct rte_rcu_qsbr *qsbr;
	struct detector detector;
	struct frame_table_config config;
	uint64_t run_first; /**< first frame of the run, 0 = not known; written by the builder */
	/** TSC cycles between two polls from which on a role was not running, see FRAME_DEAF_MS. */
	uint64_t deaf_cycles;
	/** Slots whose mbufs are no longer used, in the order of frame_table_release(): number + 1
	 * of the release, and slot, packed like a tag. It is a ring of at least twice the slots, so
	 * a slot is in it at most once. If an element does not have the number that an RX role
	 * expects, it is not written yet. */
	uint64_t *releases;
	struct frame_window window;
	struct frame_builder builder __rte_cache_aligned;
};

/** How a frame left the table. */
struct frame_closed {
	uint64_t frame;	  /**< detector's number */
	uint32_t slot;	  /**< valid if packets > 0 */
	uint32_t packets; /**< 0: lost or refused */
	uint32_t missing; /**< expected packets that are not there */
	bool refused;
	bool timeout; /**< closed by time */
};

/**
 * Allocate a table. `config` is copied, except the memory of `frames`.
 * @return NULL with rte_errno set: EINVAL a number is out of range (logged by name), ENOMEM
 */
struct frame_table *frame_table_create(const struct frame_table_config *config);

/** Free a table. NULL is allowed. */
void frame_table_destroy(struct frame_table *ft);

/** Detector's number of a frame of the table. */
static inline uint64_t
frame_table_number(const struct frame_table *ft, uint64_t frame)
{
	return frame * __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED) +
		__atomic_load_n(&ft->window.offset, __ATOMIC_RELAXED);
}

/** Header and pointer table of a slot. */
static inline struct gk_frame *
frame_table_frame(const struct frame_table *ft, uint32_t slot)
{
	return (struct gk_frame *)(ft->frames + slot * ft->frame_stride);
}

/** State of a stream in a slot. */
static inline struct frame_stream *
frame_table_stream(const struct frame_table *ft, uint32_t slot, uint32_t stream)
{
	return &ft->streams[(uint64_t)slot * ft->detector.streams + stream];
}

/** Mbufs of a slot, by tile. */
static inline struct rte_mbuf **
frame_table_mbufs(const struct frame_table *ft, uint32_t slot)
{
	return &ft->mbufs[(uint64_t)slot * ft->detector.tiles];
}

/* ---- builder ---- */

/**
 * Open as many frames as there are free slots, answer RX roles that wait, and move the window.
 * @return frames opened or refused
 */
uint32_t frame_table_open(struct frame_table *ft);

/**
 * Return the next closed frame, in frame order, if there is one.
 * With packets > 0 its slot belongs to the caller until frame_table_recycle(). The gk_frame header
 * is filled, except `out`. Missing packets are 0 in the pointer table and NULL in the mbufs.
 */
bool frame_table_close(struct frame_table *ft, struct frame_closed *closed);

/** Let the RX roles free a slot's mbufs, at most once before frame_table_recycle(). */
void frame_table_release(struct frame_table *ft, uint32_t slot);

/** Return a slot. Its mbufs belong to the caller, unless it has called frame_table_release(). */
void frame_table_recycle(struct frame_table *ft, uint32_t slot);

/**
 * Begin a run. frame_table_open() does the rest.
 * @return 0, or -EBUSY: a run is active, or frame_table_close() has not returned all its frames
 */
int frame_table_begin(struct frame_table *ft, const struct frame_run *run);

/**
 * Take no more frames. Frames that have begun are the last ones of the run, and close as always.
 * When frame_table_ended() returns true, call frame_table_end().
 */
void frame_table_stop(struct frame_table *ft);

/** End the run at once: take no more packets, and close all frames like frame_table_flush(). */
void frame_table_end(struct frame_table *ft);

/**
 * End of input: close all open frames, complete or not. Frames after the last one that had begun
 * are not returned. RX lcores must continue to call frame_rx_quiescent().
 */
void frame_table_flush(struct frame_table *ft);

/** After frame_table_flush(): has frame_table_close() returned all frames? */
bool frame_table_flushed(const struct frame_table *ft);

/** Has the run's last frame been closed (frame_run.nb_frames, or frame_table_stop())? */
bool frame_table_ended(const struct frame_table *ft);

/** Packets of a stream in a slot that frame_table_close() has returned. */
uint32_t frame_table_stream_packets(const struct frame_table *ft, uint32_t slot, uint32_t stream);

/* ---- RX lcores ---- */

/** Discard the RX role's state of the old window, and acknowledge the new generation. */
void frame_rx_move(struct frame_table *ft, struct frame_rx *frx, uint32_t generation);

/**
 * Advance a clock that shows for how long its owner has run. It stops while the owner does not run,
 * because its process was stopped or its CPU had other work.
 * @param at  in, out: TSC of the last call, 0 = none
 * @return cycles to add to the clock
 */
static inline uint64_t
frame_clock_step(const struct frame_table *ft, uint64_t *at)
{
	const uint64_t now = rte_rdtsc(), gap = now - *at;
	const bool first = *at == 0;

	*at = now;
	return first ? 0 : RTE_MIN(gap, ft->deaf_cycles);
}

/** Report that this lcore holds no reference to a slot. Call it in each poll, idle or not. */
static inline void
frame_rx_quiescent(struct frame_table *ft, struct frame_rx *frx)
{
	const uint32_t generation = __atomic_load_n(&ft->window.generation, __ATOMIC_ACQUIRE);
	const uint64_t before = frx->polled_at;
	uint64_t step;

	if (unlikely(generation != frx->generation))
		frame_rx_move(ft, frx, generation);
	/* packets that arrive between two polls are received in the second one */
	step = frame_clock_step(ft, &frx->polled_at);
	__atomic_store_n(&frx->listened, frx->listened + step, __ATOMIC_RELAXED);
	if (unlikely(step == ft->deaf_cycles))
		__atomic_store_n(&frx->absent, frx->absent + frx->polled_at - before - step,
			__ATOMIC_RELAXED);
	rte_rcu_qsbr_quiescent(ft->qsbr, frx->id);
}

/**
 * Publish which frame this RX role waits for.
 * @param frame_plus_1  lowest frame + 1 of the packets that wait, 0 = none waits
 * @param full          no more packets can wait: this RX role will place nothing else
 */
static inline void
frame_rx_want(struct frame_rx *frx, uint64_t frame_plus_1, bool full)
{
	const uint64_t blocked = full ? frame_plus_1 : 0;

	if (frx->wanted != frame_plus_1)
		__atomic_store_n(&frx->wanted, frame_plus_1, __ATOMIC_RELEASE);
	if (frx->blocked != blocked)
		__atomic_store_n(&frx->blocked, blocked, __ATOMIC_RELEASE);
}

/** Publish whether there is no room to hold more packets of streams that are out of window. */
static inline void
frame_rx_crowd(struct frame_rx *frx, bool crowded)
{
	if (unlikely(frx->crowded != crowded))
		__atomic_store_n(&frx->crowded, crowded, __ATOMIC_RELEASE);
}

/** @return a counter; when it changes, packets that wait should be retried */
static inline uint64_t
frame_rx_changes(const struct frame_table *ft)
{
	return __atomic_load_n(&ft->window.changes, __ATOMIC_ACQUIRE);
}

/** A packet of a stream that was out of window was placed or is late: it is in the window again. */
void frame_rx_is_here(struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Advance a stream's progress to a frame, unless the number may be a single corrupt one.
 * @return false if the packet belongs to the old window
 */
bool frame_rx_advance(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Free mbufs that this RX role has placed in slots which the builder has released. The lcore's
 * mempool cache keeps its level if `most` is slightly more than the packets received meanwhile.
 * @param most  mbufs to check at most
 * @return mbufs checked; absent ones count
 */
uint32_t frame_rx_reclaim(struct frame_table *ft, struct frame_rx *frx, uint32_t most);

/**
 * Find streams that are out of window among those whose packets wait. Call it when an RX role has
 * no room for more waiting packets. There are none if a waiting packet's frame is among the next
 * to be opened, or if most of the RX role's streams wait.
 * @param waiting  by stream, the lowest number + 1 of its waiting packets; 0: none
 * @return bits of streams whose packets the caller passes to frame_rx_vote_blocking() and drops
 */
uint64_t frame_rx_blocking_streams(const struct frame_table *ft, const struct frame_rx *frx,
	const uint64_t waiting[DETECTOR_STREAMS_MAX]);

/** Count a packet of such a stream towards a resync request. The caller then drops the packet. */
void frame_rx_vote_blocking(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Is the window moving, or has it moved since this RX role last looked? If so, no packet that waits
 * or is held may be retried. Otherwise the window could open in the middle of the retry, and some
 * packets would be placed before others that arrived earlier.
 */
bool frame_rx_is_moving(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * Begin to retry packets that wait or are held. The retry ends with frame_rx_end_again().
 * @param moved  out: some packets may belong to the old window, namely those of each stream before
 *               its first held packet of the new window
 * @return true on the first retry in this window or search: held packets are then placed as if
 *         they had just arrived
 */
bool frame_rx_begin_again(const struct frame_table *ft, struct frame_rx *frx, bool *moved);

/** End the retry of packets that wait or are held. */
static inline void
frame_rx_end_again(struct frame_rx *frx)
{
	frx->again = false;
}

/**
 * Are packets of a stream held that arrived before there was a window or a search for one? Then
 * later packets of the stream are held, too, until these have been retried. This keeps the order,
 * and the run begins with its first frame.
 */
static inline bool
frame_rx_is_early(const struct frame_rx *frx, uint32_t stream)
{
	return (frx->early >> stream & 1) != 0;
}

/** Note that no packet waits or is held, so that none belongs to an earlier window. */
static inline void
frame_rx_none_waits(struct frame_rx *frx)
{
	frx->early = 0;
	frx->clean = frx->generation;
}

/** Is a frame in the window, or may it be soon? */
bool frame_rx_is_near(const struct frame_table *ft, uint64_t frame);

/** What to do with a held packet: see frame_rx_again(). */
enum frame_again {
	FRAME_AGAIN_HOLD,  /**< nothing has changed: continue to hold it */
	FRAME_AGAIN_PLACE, /**< its frame is near the window: place it like any other packet */
	FRAME_AGAIN_DROP   /**< the window did not move to it in time, or the run has ended */
};

/**
 * Decide again about a packet that is held.
 * @param tick  frame_rx_tick() when it was first held
 */
enum frame_again frame_rx_again(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint8_t tick);

/** Time in quarters of `stall_cycles`, modulo 256. */
static inline uint8_t
frame_rx_tick(const struct frame_table *ft)
{
	return __atomic_load_n(&ft->window.tick, __ATOMIC_RELAXED);
}

/** Are all sending streams of this RX role out of window? Then it may wait and lose nothing. */
bool frame_rx_is_away(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * Report the frame of a packet that is dropped to the builder.
 * @return FRAME_PLACE_LATE or FRAME_PLACE_OUTLIER
 */
enum frame_placement frame_rx_drop(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Take a stream's packets out of the frames that are still open, because they were not the
 * detector's. A frame that this RX role has completed keeps them: the builder may be closing it.
 * @return mbufs that were freed
 */
uint32_t frame_rx_expel(struct frame_table *ft, struct frame_rx *frx, uint32_t stream);

/**
 * Handle a packet whose number cannot belong to the window: its stream is out of window.
 * @param vote   the packet counts towards a resync request
 * @param ahead  the request is a gap (frames were lost); else the detector was restarted
 * @return FRAME_PLACE_HOLD, or how the packet is dropped
 */
enum frame_placement frame_resync_request(struct frame_table *ft, struct frame_rx *frx,
	uint32_t stream, uint64_t frame, bool vote, bool ahead);

/**
 * Does a packet continue the numbers of its stream, which is out of window? Then it is held with
 * the packets before it, although the window may have a frame of that number. That frame belongs
 * to the numbering before the restart.
 */
bool frame_resync_continues(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/** Result for a frame whose entry does not carry its tag. */
enum frame_placement frame_rx_miss(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** Result for a frame that is closed. */
enum frame_placement frame_rx_late(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** Result for a packet whose place is taken: a duplicate, or its stream was restarted. */
enum frame_placement frame_rx_duplicate(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Convert a detector's frame number to a frame of the table.
 * @return false if the frame belongs to another receiver
 */
static inline bool
frame_rx_is_ours(const struct frame_table *ft, uint64_t *frame)
{
	const uint64_t stride = __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED);
	const uint64_t offset = __atomic_load_n(&ft->window.offset, __ATOMIC_RELAXED);

	/* between runs, numbers are not converted */
	if (likely(stride == 1) || ft->window.state == FRAME_WINDOW_CLOSED)
		return true;
	if (*frame < offset || (*frame - offset) % stride != 0)
		return false;
	*frame = (*frame - offset) / stride;
	return true;
}

/**
 * Place one packet: its pixels' address enters the frame's pointer table.
 * @param frx     the caller's RX role, which owns `stream`
 * @param frame   frame of the table, from frame_rx_is_ours()
 * @param packet  number in the stream, < stream_packets
 * @param header  detector header, read for the first packet of a stream
 * @param pixels  device address of the pixels
 * @param m       mbuf that holds them: owned by the table if FRAME_PLACED, else by the caller
 */
static inline enum frame_placement
frame_rx_place(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint32_t packet, const uint8_t *header, uint64_t pixels, struct rte_mbuf *m)
{
	const uint64_t entry = frame & ft->entry_mask;
	const uint64_t tag = __atomic_load_n(&ft->entry[entry], __ATOMIC_ACQUIRE);
	const uint32_t slot = tag & FRAME_TAG_SLOT_MASK;
	const uint64_t bit = UINT64_C(1) << (packet & 63);
	struct frame_rx_count *count;
	struct frame_stream *st;
	uint32_t tile;

	/* packets that wait arrived before the resync request and are not part of it */
	if (unlikely((frx->out_of_window >> stream & 1) != 0) && !frx->again &&
		frame_resync_continues(ft, frx, stream, frame))
		return frame_resync_request(ft, frx, stream, frame, true, false);
	if (unlikely(tag >> FRAME_TAG_SLOT_BITS != frame + 1))
		return frame_rx_miss(ft, frx, stream, frame, packet);
	if (frame + 1 > frx->progress[stream] &&
		unlikely(!frame_rx_advance(ft, frx, stream, frame)))
		return frame_rx_drop(ft, frx, stream, frame);
	if (unlikely(slot >= FRAME_TAG_REFUSED))
		return slot == FRAME_TAG_REFUSED ? FRAME_PLACE_REFUSED
						 : frame_rx_late(ft, frx, stream, frame, packet);

	st = frame_table_stream(ft, slot, stream);
	/* the builder looks into the frame whether the stream sends */
	if (st->tag != tag) {
		__atomic_store_n(&st->seen[0], 0, __ATOMIC_RELAXED);
		__atomic_store_n(&st->seen[1], 0, __ATOMIC_RELAXED);
		st->rx_tsc = rte_rdtsc();
		ft->detector.ops->frame_info(header, &st->info);
		__atomic_store_n(&st->tag, tag, __ATOMIC_RELEASE);
	}
	if (unlikely(st->seen[packet >> 6] & bit))
		return frame_rx_duplicate(ft, frx, stream, frame);
	__atomic_store_n(&st->seen[packet >> 6], st->seen[packet >> 6] | bit, __ATOMIC_RELAXED);
	tile = detector_stream_tile(&ft->detector, stream) + packet;
	frame_table_frame(ft, slot)->packet[tile] = pixels;
	frame_table_mbufs(ft, slot)[tile] = m;
	if (unlikely((frx->out_of_window >> stream & 1) != 0))
		frame_rx_is_here(frx, stream, frame);

	count = &frx->count[slot];
	if (count->tag != tag) {
		count->tag = tag;
		count->placed = 0;
	}
	if (++count->placed == frx->expected)
		__atomic_store_n(&frx->done[entry], frame + 1, __ATOMIC_RELEASE);
	return FRAME_PLACED;
}

#endif /* FRAME_TABLE_H */
