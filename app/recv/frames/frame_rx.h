/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The RX lcores' part of the frame table: placing packets, and handling packets whose frame is not
 * open. frame_table.h describes the table. Only the lcore of an RX role calls the functions for
 * that role.
 */
#ifndef FRAME_RX_H
#define FRAME_RX_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_branch_prediction.h>
#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_mbuf.h>
#include <rte_rcu_qsbr.h>

#include "counter.h"
#include "frames/frame_table.h"
#include "frames/frame_use.h"

#define FRAME_DROPS 1024 /**< reports of an RX role not yet read by the builder; a power of 2 */

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
	FRAME_PLACE_OVERRUN,   /**< its sender has overwritten it with a later frame */
	FRAME_PLACE_WAIT,      /**< its frame is not open yet: keep the packet and retry it */
	/** Its stream is out of window: hold the packet with the others of its stream, and call
	 * frame_rx_retry() to learn its outcome. */
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
 * The builder reads the fields from `waits_for` to `nb_drops_read`, without `leap`. Of the first
 * cache line it reads the constants, and now and then `listened` and, while it searches a window,
 * `out_of_window`.
 */
struct frame_rx {
	uint32_t id;	     /**< index of the RX role; constant */
	uint32_t expected;   /**< packets of a frame that come through this RX role; constant */
	uint32_t generation; /**< last window move that this RX role has carried out */
	uint32_t tried;	     /**< generation in which waiting packets were first retried */
	uint32_t clean;	     /**< last generation in which no packet waited or was held */
	bool retry;	     /**< waiting and held packets are being retried */
	/** TSC cycles in which this RX role has listened, see frame_rx_quiescent(). Read by the
	 * builder and by control now and then. */
	uint64_t listened;
	uint64_t out_of_window;	      /**< bits of the streams that are out of window */
	uint64_t early;		      /**< bits of streams with packets held before this window */
	struct frame_rx_count *count; /**< [slots] */
	/** [entries], frame + 1 once this RX role has placed all its packets of it; 8 a line. Read
	 * by the builder. */
	uint64_t *done;

	/** Lowest frame + 1 that this RX role waits for, 0 = none. */
	uint64_t waits_for __rte_cache_aligned;
	uint64_t blocked;   /**< `waits_for` if no more packets can wait, else 0 */
	uint64_t passed;    /**< detector's number + 1 of the last frame that no run uses */
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
	uint64_t activity[DETECTOR_STREAMS_MAX];
	/** By stream: highest frame + 1 of which packets have arrived that an event will place. */
	uint64_t begun[DETECTOR_STREAMS_MAX];
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
	/** [streams] packets in memory: slots of the streams' rings; NULL: in mbufs. Private to the
	 * RX role, which uses those of its streams */
	struct frame_use *use;
} __rte_cache_aligned;
static_assert(offsetof(struct frame_rx, waits_for) == RTE_CACHE_LINE_SIZE,
	"waits_for begins the lines of the RX role");
static_assert(offsetof(struct frame_rx, progress) == 2 * RTE_CACHE_LINE_SIZE,
	"progress begins those of the builder");
static_assert(sizeof(struct frame_rx) == 223 * RTE_CACHE_LINE_SIZE,
	"each uint64_t array by stream has 8 lines");

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
	counter_add(&frx->listened, step);
	if (unlikely(step == ft->deaf_cycles))
		__atomic_store_n(&frx->absent, frx->absent + frx->polled_at - before - step,
			__ATOMIC_RELAXED);
	rte_rcu_qsbr_quiescent(ft->qsbr, frx->id);
}

/**
 * Publish the frame that this RX role waits for.
 * @param frame_plus_1  lowest frame + 1 of the packets that wait, 0 = none waits
 * @param full          no more packets can wait: this RX role will place nothing else
 */
static inline void
frame_rx_waits_for(struct frame_rx *frx, uint64_t frame_plus_1, bool full)
{
	const uint64_t blocked = full ? frame_plus_1 : 0;

	if (frx->waits_for != frame_plus_1)
		__atomic_store_n(&frx->waits_for, frame_plus_1, __ATOMIC_RELEASE);
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
void frame_rx_returned(struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Advance a stream's progress to a frame, unless the number may be a single corrupt one.
 * @return false if the packet belongs to the old window
 */
bool frame_rx_advance(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Packets of a frame have arrived that an event will place. If the run is stopped before that
 * event, the frame belongs to the run. The caller is sure of the frame number.
 * @param frame  detector's number
 */
void frame_rx_begin(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Return true if a frame that has begun belongs to a run that is being stopped. Its event must then
 * arrive within stall_cycles.
 * @param frame  detector's number
 */
bool frame_rx_is_last(const struct frame_table *ft, uint64_t frame);

/**
 * Return true if the builder closes a frame soon, because it has waited for it for 3/4 of
 * stall_cycles. Packets that wait for their event are late unless the RX role places them in its
 * next poll.
 * @param frame  detector's number
 */
bool frame_rx_is_due(const struct frame_table *ft, uint64_t frame);

/**
 * Free mbufs that this RX role has placed in slots that the builder has released. The lcore's
 * mempool cache keeps its level if `most` is slightly more than the packets received meanwhile.
 * @param most  maximum number of mbufs to check
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
 * Return true if the window is moving, or has moved since this RX role last checked. If so, no
 * packet that waits or is held may be retried. Otherwise the window could open in the middle of the
 * retry, and some packets would be placed before others that arrived earlier.
 */
bool frame_rx_is_moving(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * Begin to retry packets that wait or are held. The retry ends with frame_rx_end_retry().
 * @param moved  out: some packets may belong to the old window, namely those of each stream before
 *               its first held packet of the new window
 * @return true on the first retry in this window or search: held packets are then placed as if
 *         they had just arrived
 */
bool frame_rx_begin_retry(const struct frame_table *ft, struct frame_rx *frx, bool *moved);

/** End the retry of packets that wait or are held. */
static inline void
frame_rx_end_retry(struct frame_rx *frx)
{
	frx->retry = false;
}

/**
 * Return true if packets of a stream are held that arrived before there was a window or a search
 * for one. Later packets of the stream are then held, too, until these have been retried. This
 * keeps the order, and the run begins with its first frame.
 */
static inline bool
frame_rx_is_early(const struct frame_rx *frx, uint32_t stream)
{
	return (frx->early >> stream & 1) != 0;
}

/** Note that no packet waits or is held, so that none belongs to an earlier window. */
static inline void
frame_rx_set_clean(struct frame_rx *frx)
{
	frx->early = 0;
	frx->clean = frx->generation;
}

/** Return true if a frame is in the window, or may be soon. */
bool frame_rx_is_near(const struct frame_table *ft, uint64_t frame);

/** Decision about a held packet: see frame_rx_retry(). */
enum frame_retry {
	FRAME_RETRY_HOLD,  /**< nothing has changed: continue to hold it */
	FRAME_RETRY_PLACE, /**< its frame is near the window: place it like any other packet */
	FRAME_RETRY_DROP   /**< the window did not move to it in time, or the run has ended */
};

/**
 * Decide again about a packet that is held.
 * @param tick  frame_rx_tick() when it was first held
 */
enum frame_retry frame_rx_retry(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint8_t tick);

/** Time in quarters of `stall_cycles`, modulo 256. */
static inline uint8_t
frame_rx_tick(const struct frame_table *ft)
{
	return __atomic_load_n(&ft->window.tick, __ATOMIC_RELAXED);
}

/**
 * Return true if all sending streams of an RX role are out of window. The RX role may then wait
 * without loss. By its RX lcore and by the builder.
 */
bool frame_rx_is_away(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * Report the frame of a packet that is dropped to the builder.
 * @return FRAME_PLACE_LATE or FRAME_PLACE_OUTLIER
 */
enum frame_placement frame_rx_drop(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Remove a stream's packets from the frames that are still open, because the detector did not send
 * them. A frame that this RX role has completed keeps them: the builder may be closing it.
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
 * Return true if a packet continues the numbers of its stream, which is out of window. It is then
 * held with the packets before it, although the window may have a frame of that number. That frame
 * belongs to the numbering before the restart.
 */
bool frame_resync_continues(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/** Result for a frame whose entry does not carry its tag. */
enum frame_placement frame_rx_miss(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** Result for a frame that is closed. */
enum frame_placement frame_rx_late(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** Result for a frame that was refused. */
enum frame_placement frame_rx_refused(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/** Result for a packet whose bit is already set: a duplicate, or its stream was restarted. */
enum frame_placement frame_rx_duplicate(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Convert a detector's frame number to a frame of the table.
 * @return false if the frame belongs to another receiver
 */
static inline bool
frame_rx_is_ours(const struct frame_table *ft, uint64_t *frame)
{
	/* the stride and the offset of a run are set before its window is opened */
	const uint32_t state = __atomic_load_n(&ft->window.state, __ATOMIC_ACQUIRE);
	const uint64_t stride = __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED);
	const uint64_t offset = __atomic_load_n(&ft->window.offset, __ATOMIC_RELAXED);

	/* between runs, numbers are not converted */
	if (likely(stride == 1) || state == FRAME_WINDOW_CLOSED)
		return true;
	if (*frame < offset || (*frame - offset) % stride != 0)
		return false;
	*frame = (*frame - offset) / stride;
	return true;
}

/**
 * Return true if a packet that has just arrived continues the numbers of its stream, which is out
 * of window. A packet that is retried arrived before the resync request and is not part of it.
 */
static inline bool
frame_rx_is_new_number(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame)
{
	return unlikely((frx->out_of_window >> stream & 1) != 0) && !frx->retry &&
		frame_resync_continues(ft, frx, stream, frame);
}

/**
 * Enter the addresses of the parts of a packet.
 * @param pixels  device address of the first part
 * @param m       segments of the parts
 */
void frame_rx_set_parts(struct frame_table *ft, uint32_t slot, uint32_t tile, uint64_t pixels,
	const struct rte_mbuf *m);

/**
 * Find the slot of an open frame, and prepare it for the first packet of a stream. Arguments as
 * those of frame_rx_place().
 * @return FRAME_PLACED; else how the packet is dropped, or that it must wait
 */
static inline enum frame_placement
frame_rx_find(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint32_t packet, const uint8_t *header, struct frame_stream **of, uint32_t *slot_of)
{
	const uint64_t tag = __atomic_load_n(&ft->entry[frame & ft->entry_mask], __ATOMIC_ACQUIRE);
	const uint32_t slot = tag & FRAME_TAG_SLOT_MASK;
	struct frame_stream *st;

	if (frame_rx_is_new_number(ft, frx, stream, frame))
		return frame_resync_request(ft, frx, stream, frame, true, false);
	if (unlikely(tag >> FRAME_TAG_SLOT_BITS != frame + 1))
		return frame_rx_miss(ft, frx, stream, frame, packet);
	if (frame + 1 > frx->progress[stream] &&
		unlikely(!frame_rx_advance(ft, frx, stream, frame)))
		return frame_rx_drop(ft, frx, stream, frame);
	if (unlikely(slot >= FRAME_TAG_REFUSED))
		return slot == FRAME_TAG_REFUSED ? frame_rx_refused(ft, frx, stream, frame)
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
	*of = st;
	*slot_of = slot;
	return FRAME_PLACED;
}

/** Count packets that were placed in a slot. */
static inline void
frame_rx_count(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint32_t slot, uint32_t packets)
{
	const uint64_t tag = (frame + 1) << FRAME_TAG_SLOT_BITS | slot;
	struct frame_rx_count *count = &frx->count[slot];

	if (unlikely((frx->out_of_window >> stream & 1) != 0))
		frame_rx_returned(frx, stream, frame);
	if (count->tag != tag) {
		count->tag = tag;
		count->placed = 0;
	}
	count->placed += packets;
	if (count->placed == frx->expected)
		__atomic_store_n(&frx->done[frame & ft->entry_mask], frame + 1, __ATOMIC_RELEASE);
}

/**
 * Place one packet: its pixels' address enters the frame's pointer table.
 * @param frx     the caller's RX role, which owns `stream`
 * @param frame   frame of the table, from frame_rx_is_ours()
 * @param packet  number in the stream, < stream_packets
 * @param header  detector header, read for the first packet of a stream
 * @param pixels  device address of the pixels, or of their first part
 * @param m       mbuf that holds them: owned by the table if FRAME_PLACED, else by the caller. Each
 *                part has a segment of its own, and a segment's data begins with its pixels
 */
static inline enum frame_placement
frame_rx_place(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame,
	uint32_t packet, const uint8_t *header, uint64_t pixels, struct rte_mbuf *m)
{
	const uint64_t bit = UINT64_C(1) << (packet & 63);
	struct frame_stream *st = NULL;
	enum frame_placement result;
	uint32_t tile, slot = 0;

	result = frame_rx_find(ft, frx, stream, frame, packet, header, &st, &slot);
	if (unlikely(result != FRAME_PLACED))
		return result;
	if (unlikely(st->seen[packet >> 6] & bit))
		return frame_rx_duplicate(ft, frx, stream, frame);
	__atomic_store_n(&st->seen[packet >> 6], st->seen[packet >> 6] | bit, __ATOMIC_RELAXED);
	tile = detector_stream_tile(&ft->detector, stream) + packet;
	if (likely(ft->detector.parts == 1))
		frame_table_frame(ft, slot)->packet[tile] = pixels;
	else
		frame_rx_set_parts(ft, slot, tile, pixels, m);
	frame_table_mbufs(ft, slot)[tile] = m;
	frame_rx_count(ft, frx, stream, frame, slot, 1);
	return FRAME_PLACED;
}

/**
 * Place all packets that a stream sends for a frame, which a device has written into memory. The
 * arguments are those of frame_rx_place(). Some of the packets may not have arrived: the gangs
 * detect this by their trailers.
 * @param pixels  device address of those of packet 0
 * @param stride  bytes from the pixels of a packet to those of the next one
 */
enum frame_placement frame_rx_place_stream(struct frame_table *ft, struct frame_rx *frx,
	uint32_t stream, uint64_t frame, const uint8_t *header, uint64_t pixels, uint64_t stride);

#endif /* FRAME_RX_H */
