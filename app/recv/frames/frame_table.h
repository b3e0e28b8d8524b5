/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The frame table. RX lcores place packets in it, and the builder takes closed frames out of it.
 *
 * Lookup. A frame is looked up in an array of *entries*, indexed by the low bits of its number. An
 * entry is one 64-bit tag, (frame + 1) << 16 | slot. Only the builder writes tags. With one load an
 * RX lcore learns whether the frame is open, and its slot. The builder opens frames in advance, as
 * many as there are free slots. If a frame is not open, the RX lcore keeps the packet and publishes
 * the frame in frame_rx.waits_for. The builder then opens the frame, refuses it, or moves the
 * window.
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
 * (rte_rcu_qsbr). Only then does it read the bitmaps. Therefore no packet can enter a frame that
 * the builder has returned.
 *
 * Frames close in order. The first frame of the window, the *head*, closes when
 *  - it is complete, or
 *  - every live stream is `max_skew_frames` frames ahead, or
 *  - a stream that delays it has been silent for `stall_cycles`. The builder does not wait for this
 *    stream again until it sends, or
 *  - slots are short, frames may be refused, and most streams are ahead (is_outrun()).
 * If an RX role has no room for more waiting packets, and none of their frames is open, it can
 * place no packet in an open frame. Its streams then count as ahead.
 *
 * Returning mbufs. The RX lcore that placed an mbuf also frees it. The mbufs therefore stay in that
 * lcore's mempool cache, and their cache lines and reference counts do not move between CPUs. The
 * builder publishes the slots whose mbufs are no longer used (frame_table_release()). Each RX role
 * frees its own mbufs of these slots, a few in each poll. The builder reuses a slot after every RX
 * role has freed its part.
 *
 * Window and resynchronisation. README.rst has the rules. If the numbers of a stream cannot belong
 * to the window, the stream is *out of window*. The caller holds its packets (FRAME_PLACE_HOLD),
 * and each of them counts once towards a *resync request* (frame_resync.c). The builder moves the
 * window if enough streams request the same position (frame_window.c). Otherwise it refuses the
 * request after a time limit.
 *
 * Frames without a row. Each RX role reports the frames of packets that it drops as late or as
 * outliers, through a ring per role. The builder knows which frames have a row, and counts the
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
#include "frames/frame_run.h"

struct frame_builder;
struct frame_rx;

#define FRAME_TAG_SLOT_BITS 16
#define FRAME_TAG_SLOT_MASK 0xFFFFu
#define FRAME_TAG_CLOSED    0xFFFFu /**< in place of the slot: the frame is closed */
#define FRAME_TAG_REFUSED   0xFFFEu /**< in place of the slot: no slot was free */
/** Number in the trailer of a tile that has no frame. */
#define FRAME_TRAILER_NONE UINT64_MAX
/** No frame. It is not 0, because a sender can forge frame 2^64 - 1, whose tag in slot 0 is 0. */
#define FRAME_TAG_EMPTY FRAME_TAG_CLOSED

struct frame_table_config {
	const struct detector *detector;
	uint32_t nb_rx;			     /**< RX lcores, 1 ... FRAME_RX_MAX */
	uint8_t owner[DETECTOR_STREAMS_MAX]; /**< RX role of each stream */
	/** maximum number of frames that are open or being processed; 2 ... FRAME_SLOTS_MAX */
	uint32_t slots;
	uint32_t max_skew_frames; /**< frames that every live stream must be ahead; < slots */
	uint32_t resync_packets;  /**< packets in a row that make a resync request, >= 1 */
	uint64_t max_gap_frames;  /**< a number so far ahead is an outlier, not a gap */
	uint64_t stall_cycles;	  /**< TSC cycles after which a silent stream is not waited for */
	bool refuse; /**< no free slot: refuse the frame (true), or let RX wait (false) */
	/** packets are in memory that their sender may overwrite, with trailers after the pixels:
	 * GK_FRAME_TRAILER. There are no mbufs */
	bool trailers;
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
	uint64_t outvoted;   /**< bits of streams of a request that the others do not follow */
	uint64_t ahead;	  /**< packets of frames below this may wait: most streams request a gap */
	uint64_t old_end; /**< packets of the old window have frames below this, 0 = none */
	uint64_t paused;  /**< bits of silent streams whose frames are all closed */

	/* changed with every frame, read when the fast lookup fails */
	uint64_t base __rte_cache_aligned; /**< lowest frame that is not closed */
	uint64_t horizon;		   /**< frames from here on are outliers */
	uint64_t end;			   /**< first frame after the run */
	uint64_t next;			   /**< lowest frame that is not opened */
	uint64_t front; /**< frame + 1 that half of the streams without a request have reached */
	/** Incremented after changes of this struct and of entries, once for several changes. While
	 * it is constant, a retry of a waiting packet would have the same result. */
	uint64_t changes;
	uint64_t due;  /**< frame + 1 that soon closes by time, 0 = none; see frame_rx_is_due() */
	uint32_t tick; /**< time in quarters of `stall_cycles` */
	bool stopping; /**< no more frames are taken, see frame_table_stop() */
} __rte_cache_aligned;
static_assert(offsetof(struct frame_window, base) == RTE_CACHE_LINE_SIZE, "a line of its own");
static_assert(sizeof(struct frame_window) == 2 * RTE_CACHE_LINE_SIZE, "two lines");

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
	struct frame_builder *builder; /**< the builder's state, frame_table_private.h */
};

/** How a frame left the table. */
struct frame_closed {
	uint64_t frame;	  /**< detector's number */
	uint32_t slot;	  /**< valid if packets > 0 */
	uint32_t packets; /**< 0: lost or refused */
	uint32_t missing; /**< expected packets that are not there */
	bool refused;
	bool timeout; /**< closed by time */
	/** Bits of the streams that it, or the head before it, waited for while slots were short:
	 * it closed early or was refused for them. */
	uint64_t waited_for;
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

/** End the run immediately: take no more packets, and close all frames like frame_table_flush(). */
void frame_table_end(struct frame_table *ft);

/**
 * End of input: close all open frames, complete or not. Frames after the last one that had begun
 * are not returned. RX lcores must continue to call frame_rx_quiescent().
 */
void frame_table_flush(struct frame_table *ft);

/** After frame_table_flush(): return true if frame_table_close() has returned all frames. */
bool frame_table_flushed(const struct frame_table *ft);

/** Return true if the run's last frame is closed (frame_run.nb_frames, or frame_table_stop()). */
bool frame_table_ended(const struct frame_table *ft);

/** Detector's number of the frame that closes next; 0: the run has no window yet. */
uint64_t frame_table_next(const struct frame_table *ft);

/** Frames of this run whose numbers occurred in packets and that have no row (frame_late.c). */
uint64_t frame_table_late_frames(const struct frame_table *ft);

/** Detector's number of a stream's last frame, 0: none. Any thread. */
uint64_t frame_table_last_number(const struct frame_table *ft, uint32_t stream);

/**
 * Gangs have found that packets of a frame with trailers are missing: remove them from the slot.
 * @param map     bit t % 64 of word t / 64: tile t is missing
 * @param closed  in: as frame_table_close() has returned it; out: `packets` and `missing` without
 *                these
 */
void frame_table_lose(struct frame_table *ft, struct frame_closed *closed, const uint64_t map[]);

/** Packets of a stream in a slot that frame_table_close() has returned. */
uint32_t frame_table_stream_packets(const struct frame_table *ft, uint32_t slot, uint32_t stream);

#endif /* FRAME_TABLE_H */
