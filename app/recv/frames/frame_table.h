/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The frame table: where RX lcores place packets and the builder makes frames of them.
 *
 * A frame number is looked up in a ring of *entries*. An entry is one 64-bit tag,
 * (frame + 1) << 16 | slot, written by the builder alone, so that an RX lcore learns with one load
 * whether the frame is open and where it goes. The builder opens frames ahead of the packets, as
 * far as free slots reach; an RX lcore that runs into a frame which is not open keeps its burst
 * and asks for it (frame_rx.wanted): the builder opens it, refuses it or moves the window.
 *
 * A frame slot is
 *  - the gk_frame header and pointer table that the gangs read (device addresses of pixels),
 *  - the mbufs behind those addresses,
 *  - a line per stream: bitmap of packets and what the header said, written by the RX lcore that
 *    owns the stream and by nobody else. A stream line that does not carry the entry's tag is
 *    empty: nobody ever clears one.
 *
 * Closing. A frame whose RX roles are all complete needs no handshake: anything more that comes for
 * it is a duplicate, which touches nothing. An incomplete frame is closed by changing its tag and
 * waiting until every RX lcore has passed a quiescent state (rte_rcu_qsbr); only then the builder
 * reads the bitmaps. So no packet can land in a frame that was handed on.
 *
 * Frames close in order: when they are complete; or when every live stream is `max_skew_frames`
 * frames ahead; or when a stream that holds them back has been silent for `stall_cycles`. Such a
 * stream is not waited for again until it speaks. A RX role that can hold no more packets, of which
 * none has its frame open, will not bring anything for open frames: its streams count as ahead.
 *
 * Giving back. Mbufs are freed by the RX lcores that have placed them: so they stay in those
 * lcores' mempool caches, and neither they nor their buffers' counts travel between CPUs. The
 * builder says which slots are done with (frame_table_release()); each RX role walks its own part
 * of them, a few mbufs a round. A slot is opened again once every RX role has passed it.
 *
 * Where the window is: app/recv/README.rst has the rule. A stream with numbers that the window
 * cannot be near is *elsewhere*; its packets are held by the caller (FRAME_PLACE_HOLD), and count
 * once each towards a request (frames/frame_resync.c). The builder goes where enough streams
 * request to be (frame_window.c), or refuses a request after a while.
 *
 * Frames without a row. RX roles report the frames of packets that they drop as late or as
 * outliers, through a ring each; the builder knows which numbers have a row, and counts the others
 * (frame_late.c).
 *
 * Threads: frame_rx_*() by the RX lcore of that RX role, all else by the builder's lcore; create
 * and destroy need everybody at rest.
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
/** No frame. Not 0: that would be slot 0 of frame 2^64 - 1, which anybody may send. */
#define FRAME_TAG_EMPTY FRAME_TAG_CLOSED

/** Which frames a run takes. */
struct frame_run {
	bool first_known; /**< the first frame is first_frame (true), or is found (false) */
	uint64_t first_frame;
	uint64_t nb_frames; /**< frames of the run from its first one, 0 = no end */
	/**
	 * Detectors deal frames out to several receivers in turn: ours are those whose number is
	 * offset + a multiple of stride; 0 or 1 = all of them.
	 */
	uint64_t stride;
	uint64_t offset; /**< < stride */
};

struct frame_table_config {
	const struct detector *detector;
	uint32_t nb_rx;			     /**< RX lcores, 1 ... FRAME_RX_MAX */
	uint8_t owner[DETECTOR_STREAMS_MAX]; /**< RX role of each stream */
	uint32_t slots;		  /**< frames open or in work, at most; 2 ... FRAME_SLOTS_MAX */
	uint32_t max_skew_frames; /**< K: frames that every live stream must be ahead; < slots */
	uint32_t resync_packets;  /**< packets of a stream that must agree on a new place, >= 1 */
	uint64_t max_gap_frames; /**< numbers so far ahead of the window are outliers, not losses */
	uint64_t stall_cycles;	 /**< TSC cycles after which a silent stream is not waited for */
	bool refuse;	      /**< no free slot: refuse the frame (true), or let RX wait (false) */
	bool no_run;	      /**< begin closed: frame_table_begin() starts the first run */
	struct frame_run run; /**< else the first run */
	uint8_t *frames;      /**< gk_frame slots, gk_frame_stride() apart; stays the caller's */
	int socket;
};

/** One stream of one frame. One cache line, one writer. */
struct frame_stream {
	uint64_t tag;	  /**< of the entry; another tag = no packet of this stream yet */
	uint64_t seen[2]; /**< bit per packet */
	uint64_t rx_tsc;  /**< when the first packet was seen */
	struct detector_frame_info info;
	uint64_t reserved;
} __rte_cache_aligned;
static_assert(sizeof(struct frame_stream) == RTE_CACHE_LINE_SIZE, "one line a stream");

/** What became of a packet. */
enum frame_placement {
	FRAME_PLACED,
	FRAME_PLACE_DUPLICATE, /**< that packet is there already */
	FRAME_PLACE_LATE,      /**< its frame is closed, or lies before the run */
	FRAME_PLACE_REFUSED,   /**< its frame was refused */
	FRAME_PLACE_OUTLIER,   /**< number far from the window, where most streams are not (yet) */
	FRAME_PLACE_BEYOND,    /**< after the last frame of the run */
	FRAME_PLACE_NO_RUN,    /**< there is no run at present */
	FRAME_PLACE_OTHER,     /**< its frame is another receiver's (frame_run.stride) */
	FRAME_PLACE_WAIT,      /**< not open yet: keep the packet and come again */
	/** Its stream is elsewhere: keep the packet, with others of its stream, and ask
	 * frame_rx_again() what becomes of it. */
	FRAME_PLACE_HOLD,
	FRAME_PLACES
};

/** Packets that one RX lcore has placed in one slot. */
struct frame_rx_count {
	uint64_t tag;
	uint64_t placed;
};
static_assert(sizeof(struct frame_rx_count) == 16, "four slots a line");

/** Packets in a row that agree on a place within `slots` frames. */
struct frame_agreement {
	uint64_t lowest; /**< frames of it */
	uint64_t highest;
	uint32_t votes; /**< packets of it that count */
	bool any;	/**< there is one */
	bool ahead;	/**< of the window */
	bool requested; /**< the stream's request is for its lowest frame */
};

/** An RX lcore's end of the table. The builder reads what follows `wanted`, but not `leap`, the
 * agreements and what is behind them; of the first line `polls` alone, now and then. */
struct frame_rx {
	uint32_t id;
	uint32_t expected;   /**< packets of a frame that come through this RX role */
	uint32_t generation; /**< window move that this RX role has taken note of */
	uint32_t tried;	     /**< ... after which what waits was tried again */
	uint32_t clean;	     /**< ... before which nothing waited */
	bool again;	     /**< packets that waited are tried again */
	uint64_t polls;	    /**< rounds of this RX role's lcore; read by the builder now and then */
	uint64_t elsewhere; /**< streams with numbers that the window is not near */
	uint64_t early;	    /**< streams with packets that came before there was a window */
	struct frame_rx_count *count; /**< [slots] */
	uint64_t *done; /**< frame + 1 by entry, once this RX role has all its packets; 8 a line */

	/** frame + 1 that blocks this RX role, 0 = none. */
	uint64_t wanted __rte_cache_aligned;
	uint64_t blocked;   /**< ... and it can hold no more packets, 0 = it can */
	uint64_t passed;    /**< number + 1 of where packets are dropped because there is no run, */
	uint64_t passed_at; /**< ... TSC, of the first one of that frame */
	uint64_t crowded;   /**< there is no room to hold more packets from elsewhere */
	uint64_t requests;  /**< of `elsewhere`: streams that agree with themselves; see `place` */
	uint64_t reclaimed; /**< releases whose mbufs this RX role has freed */
	uint32_t acknowledged; /**< = generation, for the builder */

	/** Highest frame + 1 of which there are packets, by stream. */
	uint64_t progress[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** ... and of packets that wait. */
	uint64_t reach[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** Frame + 1 of a packet that was ahead by more than a frame: the next one confirms it. */
	uint64_t leap[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	/** Frame + 1 of a request, by stream, and packets that were not placed at once. */
	uint64_t place[DETECTOR_STREAMS_MAX] __rte_cache_aligned;
	uint64_t heard[DETECTOR_STREAMS_MAX];
	uint64_t requests_ahead; /**< of `requests`: where frames would have been lost */
	/** Frames of ours of packets that were dropped: a ring. */
	uint64_t drops[FRAME_DROPS];
	uint64_t nb_drops;	/**< index runs free; written by the RX role */
	uint64_t nb_drops_read; /**< ... and by the builder */
	/* the RX role's own */
	uint64_t dropped[DETECTOR_STREAMS_MAX]; /**< last frame + 1 that was reported */
	uint64_t before[DETECTOR_STREAMS_MAX];	/**< progress in the window before, 0 = none */
	struct frame_agreement agreement[DETECTOR_STREAMS_MAX]; /**< of a stream elsewhere */
	uint64_t recount; /**< of `elsewhere`: streams whose held packets vote again */
	/** How far frame_rx_reclaim() is in the slot that is its next. */
	uint32_t reclaim_stream;
	uint32_t reclaim_packet;
} __rte_cache_aligned;
static_assert(offsetof(struct frame_rx, wanted) == RTE_CACHE_LINE_SIZE, "the RX role's own line");
static_assert(offsetof(struct frame_rx, progress) == 2 * RTE_CACHE_LINE_SIZE, "the builder's");
static_assert(sizeof(struct frame_rx) == 211 * RTE_CACHE_LINE_SIZE, "8 lines a number by stream");

enum frame_window_state {
	FRAME_WINDOW_CLOSED,   /**< there is no run: packets are dropped */
	FRAME_WINDOW_SEARCHED, /**< there is none: packets are held, and request where it is */
	FRAME_WINDOW_MOVING,   /**< decided where, not there yet: packets wait */
	FRAME_WINDOW_OPEN,     /**< packets are placed; those far off are dropped, and requests */
};

/** What the builder tells RX lcores. */
struct frame_window {
	/* read for every packet, or changed once in a while */
	uint64_t stride; /**< of the run; everything here counts frames of ours */
	uint64_t offset;
	uint32_t state;	     /**< enum frame_window_state */
	uint32_t generation; /**< moves of the window */
	uint64_t refused;    /**< streams whose requests were seen for long, and not followed */
	uint64_t ahead;	     /**< frames below this have been reached, as most streams request */
	uint64_t old_end;    /**< stragglers of the window before have numbers below this */
	uint64_t paused;     /**< streams that are silent, and all their frames closed */

	/* changed with every frame, read when the fast lookup fails */
	uint64_t base __rte_cache_aligned; /**< lowest frame that is not closed */
	uint64_t horizon;		   /**< numbers from here on are outliers */
	uint64_t end;			   /**< first frame after the run */
	uint64_t next;			   /**< lowest frame that is not opened */
	/** Changes of the above and of entries, counted after them, several as one: as long as it
	 * is the same, a packet that waits would wait again. */
	uint64_t changes;
	uint32_t tick; /**< quarters of `stall_cycles` */
} __rte_cache_aligned;
static_assert(offsetof(struct frame_window, base) == RTE_CACHE_LINE_SIZE, "a line of its own");
static_assert(sizeof(struct frame_window) == 2 * RTE_CACHE_LINE_SIZE, "two lines");

/** Builder's part of the table. */
struct frame_builder {
	uint64_t next_close; /**< head: lowest frame that is not closed */
	uint64_t next_open;  /**< lowest frame that is not opened */
	uint16_t *slot_of;   /**< slot by entry, also after the tag has changed */
	uint32_t *free_slots;
	uint32_t nb_free;
	uint64_t nb_releases;
	uint64_t *released;	 /**< nb_releases after its release, by slot; 0 = none */
	uint16_t *recycled;	 /**< slots that RX roles may still be at: a ring, oldest first */
	uint64_t recycled_first; /**< indices run free, as those of releases */
	uint64_t recycled_end;
	bool beginning;	     /**< a run is to begin, RX roles have not all acknowledged */
	bool stopping;	     /**< no more frames are taken, see frame_table_stop() */
	bool fresh;	     /**< no window of this run yet */
	uint64_t reported;   /**< frames of this run that frame_table_close() has given out */
	bool started;	     /**< a frame was given out since the last move */
	bool closing;	     /**< the head's tag is changed, its grace period runs */
	bool timeout;	     /**< ... because of time */
	bool flushing;	     /**< everything open is closed, one grace period for all */
	bool flush_graced;   /**< ... and over */
	uint64_t flush_end;  /**< frame + 1 of the last one that had begun */
	uint64_t moved_at;   /**< TSC of the last move, 0 = stragglers are not expected any more */
	uint64_t grace;	     /**< qsbr token of the closing head */
	uint64_t held_since; /**< TSC when the head was first held back, 0 = it is not */
	uint64_t looked_at;  /**< TSC of the last look at progress */
	uint64_t move_to;    /**< frame + 1 of a wanted move, 0 = none */
	uint64_t asked_at;   /**< TSC when a RX role first asked without a window, 0 = not */
	uint64_t polls[FRAME_RX_MAX]; /**< of the RX roles at that look */
	bool moving; /**< new generation is out, RX roles have not all acknowledged */
	uint64_t held_progress[DETECTOR_STREAMS_MAX]; /**< at held_since */
	uint64_t stalled_at[DETECTOR_STREAMS_MAX];    /**< progress + 1 when given up, 0 = live */
	uint64_t requests;			      /**< streams that request to be elsewhere, */
	uint64_t requests_ahead;		      /**< those of them that request a gap, */
	uint64_t request_position[DETECTOR_STREAMS_MAX]; /**< and frame + 1 where */
	uint64_t request_since[DETECTOR_STREAMS_MAX];	 /**< TSC, 0 = it does not request */
	uint64_t request_at[DETECTOR_STREAMS_MAX]; /**< place of that request, as it goes on */
	uint64_t requests_timed; /**< streams that had a request when it was last looked */
	uint64_t gap_group;	 /**< streams that request a gap, and are most of them, */
	uint64_t gap_to; /**< and frame + 1 where it ends: until then no others are waited for */
	uint64_t leave_since; /**< TSC when it was first seen that the window is to move, 0 = not */
	uint64_t requests_logged; /**< streams of requests that are too few, and were told of, */
	uint64_t told_at;	  /**< TSC of the last time, */
	uint64_t told_progress[DETECTOR_STREAMS_MAX]; /**< and where they were here */
	/* who speaks */
	uint64_t listened_at; /**< TSC of the last look */
	uint64_t tick_at;
	uint64_t silent; /**< streams that said nothing for long */
	uint64_t dead;	 /**< those of them that went on to, while a half of all spoke */
	uint64_t heard[DETECTOR_STREAMS_MAX];		/**< what had come of them at that look */
	uint64_t heard_at[DETECTOR_STREAMS_MAX];	/**< TSC of the look at which more had */
	uint64_t heard_polls[FRAME_RX_MAX];		/**< of the RX roles at that look */
	uint64_t paused_progress[DETECTOR_STREAMS_MAX]; /**< of streams in window.paused */
	struct frame_late *late;
	uint64_t late_frames; /**< of this run: named by packets, and without a row */
};

struct frame_table {
	uint64_t *entry;
	uint64_t entry_mask;
	struct frame_stream *streams; /**< [slot][stream] */
	uint8_t *frames;
	uint64_t frame_stride;
	struct rte_mbuf **mbufs; /**< [slot][tile] */
	struct frame_rx *rx;
	struct rte_rcu_qsbr *qsbr;
	struct detector detector;
	struct frame_table_config config;
	uint64_t run_first; /**< first frame of the run, counted as ours are; 0 = not known */
	/** Slots whose mbufs are no longer used, in the order in which the builder says so:
	 * number + 1 of the release and slot, as in a frame's tag. A ring of twice the slots, so no
	 * slot is in it twice; what is not of the number that a RX role looks for is to come. */
	uint64_t *releases;
	struct frame_window window;
	struct frame_builder builder __rte_cache_aligned;
};

/** How a frame left the table. */
struct frame_closed {
	uint64_t frame;
	uint32_t slot;	  /**< valid if packets > 0 */
	uint32_t packets; /**< 0: lost or refused */
	uint32_t missing;
	bool refused;
	bool timeout; /**< time closed it */
};

/**
 * Allocate a table. Everything in `config` is copied but the memory of `frames`.
 * @return NULL with rte_errno set: EINVAL a number is out of range (logged by name), ENOMEM
 */
struct frame_table *frame_table_create(const struct frame_table_config *config);
void frame_table_destroy(struct frame_table *ft);

/** Number of a frame of ours, as the detector counts. */
static inline uint64_t
frame_table_number(const struct frame_table *ft, uint64_t frame)
{
	return frame * __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED) +
		__atomic_load_n(&ft->window.offset, __ATOMIC_RELAXED);
}

static inline struct gk_frame *
frame_table_frame(const struct frame_table *ft, uint32_t slot)
{
	return (struct gk_frame *)(ft->frames + slot * ft->frame_stride);
}

static inline struct frame_stream *
frame_table_stream(const struct frame_table *ft, uint32_t slot, uint32_t stream)
{
	return &ft->streams[(uint64_t)slot * ft->detector.streams + stream];
}

static inline struct rte_mbuf **
frame_table_mbufs(const struct frame_table *ft, uint32_t slot)
{
	return &ft->mbufs[(uint64_t)slot * ft->detector.tiles];
}

/* ---- builder ---- */

/**
 * Open frames as far as free slots reach, answer RX roles that wait, move the window.
 * @return frames opened or refused
 */
uint32_t frame_table_open(struct frame_table *ft);

/**
 * The next frame in order that is closed, if there is one.
 * With packets > 0 its slot belongs to the caller until frame_table_recycle(): the gk_frame header
 * is filled but for `out`, absent packets are 0 in the pointer table and NULL in the mbufs.
 */
bool frame_table_close(struct frame_table *ft, struct frame_closed *closed);

/** A slot's mbufs are not used any more: the RX roles free them. At most once before recycling. */
void frame_table_release(struct frame_table *ft, uint32_t slot);

/** Give a slot back. Its mbufs are the caller's, unless it has released them. */
void frame_table_recycle(struct frame_table *ft, uint32_t slot);

/** Begin a run, when there is none: frame_table_open() does the rest. @return 0 or -EBUSY */
int frame_table_begin(struct frame_table *ft, const struct frame_run *run);

/**
 * Take no more frames: those that have begun are the run's last, and close as always. Then
 * frame_table_ended(), and frame_table_end() is due.
 */
void frame_table_stop(struct frame_table *ft);

/** End the run at once: take no more packets, close everything as frame_table_flush() does. */
void frame_table_end(struct frame_table *ft);

/**
 * End of input: close everything that is open, whatever is missing. Frames after the last one that
 * had begun are not reported. RX lcores go on calling frame_rx_quiescent().
 */
void frame_table_flush(struct frame_table *ft);

/** After frame_table_flush(): has frame_table_close() given out everything? */
bool frame_table_flushed(const struct frame_table *ft);

/** Has the run's last frame been closed (frame_run.nb_frames, or frame_table_stop())? */
bool frame_table_ended(const struct frame_table *ft);

/** Packets of a stream in a slot that frame_table_close() has given out. */
uint32_t frame_table_stream_packets(const struct frame_table *ft, uint32_t slot, uint32_t stream);

/* ---- RX lcores ---- */

/** Forget what belonged to an earlier window. */
void frame_rx_move(struct frame_table *ft, struct frame_rx *frx, uint32_t generation);

/** Say that this lcore holds no reference to a slot: once per polling loop, idle or not. */
static inline void
frame_rx_quiescent(struct frame_table *ft, struct frame_rx *frx)
{
	const uint32_t generation = __atomic_load_n(&ft->window.generation, __ATOMIC_ACQUIRE);

	if (unlikely(generation != frx->generation))
		frame_rx_move(ft, frx, generation);
	__atomic_store_n(&frx->polls, frx->polls + 1, __ATOMIC_RELAXED);
	rte_rcu_qsbr_quiescent(ft->qsbr, frx->id);
}

/**
 * Tell the builder what this RX role waits for.
 * @param frame_plus_1  lowest frame + 1 of the packets that wait, 0 = none waits
 * @param full          there is no room for more of them: nothing else will be placed
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

/** Tell the builder whether there is no room to hold more packets from elsewhere. */
static inline void
frame_rx_crowd(struct frame_rx *frx, bool crowded)
{
	if (unlikely(frx->crowded != crowded))
		__atomic_store_n(&frx->crowded, crowded, __ATOMIC_RELEASE);
}

/** @return a count that changes when a packet that waits should be tried again */
static inline uint64_t
frame_rx_changes(const struct frame_table *ft)
{
	return __atomic_load_n(&ft->window.changes, __ATOMIC_ACQUIRE);
}

/** A stream that had numbers from elsewhere has a packet placed: it is here. */
void frame_rx_is_here(struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * A stream has reached a frame, if this is not one corrupt number.
 * @return false if the packet is of the window before
 */
bool frame_rx_advance(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Free mbufs that this RX role has placed in slots which the builder has released. About as many as
 * came in the meantime, and a few more, keep the lcore's mempool cache as full as it is.
 * @param most  mbufs to pass at most
 * @return mbufs passed
 */
uint32_t frame_rx_reclaim(struct frame_table *ft, struct frame_rx *frx, uint32_t most);

/**
 * A RX role has no room for more packets: are those that wait of streams that are somewhere else?
 * Not if any is next in line to be opened, nor if most of the RX role's streams wait.
 * @param waiting  of each stream, the lowest number + 1 of which packets wait; 0: none
 * @return bits of streams whose packets are to be given to frame_rx_stray()
 */
uint64_t frame_rx_strays(const struct frame_table *ft, const struct frame_rx *frx,
	const uint64_t waiting[DETECTOR_STREAMS_MAX]);

/** A packet of those: where its stream requests to be. It is to be dropped. */
void frame_rx_stray(struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Does the window move, or has it moved since this RX role last looked? Then no packet that waits
 * or is held is tried again: if the window opened in the middle of that, some of them would be
 * placed before others that came earlier.
 */
bool frame_rx_is_moving(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * Packets that wait or are held are tried again, from here to frame_rx_end_again().
 * @param moved  out: some may be of a window before: what came of a stream before its first held
 *               packet of the new one is
 * @return true if it is the first time that this window, or the search for one, is seen: then held
 *         packets are placed as if they had just come
 */
bool frame_rx_begin_again(const struct frame_table *ft, struct frame_rx *frx, bool *moved);

static inline void
frame_rx_end_again(struct frame_rx *frx)
{
	frx->again = false;
}

/**
 * Are packets of a stream held that came before there was a window, or a search for one? What comes
 * after them is held, too, until they have been tried: a run begins with the first frame.
 */
static inline bool
frame_rx_is_early(const struct frame_rx *frx, uint32_t stream)
{
	return (frx->early >> stream & 1) != 0;
}

/** No packet waits or is held: none is of a window before. */
static inline void
frame_rx_none_waits(struct frame_rx *frx)
{
	frx->early = 0;
	frx->clean = frx->generation;
}

/** Is a frame in the window, or may it soon be? */
bool frame_rx_is_near(const struct frame_table *ft, uint64_t frame);

/** What becomes of a packet that is held: see frame_rx_again(). */
enum frame_again {
	FRAME_AGAIN_HOLD,  /**< nothing has changed */
	FRAME_AGAIN_PLACE, /**< its frame is near now: it is placed, or waits, as any other */
	FRAME_AGAIN_DROP   /**< it was held in vain */
};

/**
 * Look again at a packet that is held.
 * @param tick  frame_rx_tick() when it was first held
 */
enum frame_again frame_rx_again(const struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint8_t tick);

static inline uint8_t
frame_rx_tick(const struct frame_table *ft)
{
	return __atomic_load_n(&ft->window.tick, __ATOMIC_RELAXED);
}

/** Are all streams of this RX role that speak elsewhere? Then nothing is missed while it waits. */
bool frame_rx_is_away(const struct frame_table *ft, const struct frame_rx *frx);

/**
 * A packet is dropped that waited or was held: its frame is reported to the builder.
 * @return FRAME_PLACE_LATE or FRAME_PLACE_OUTLIER
 */
enum frame_placement frame_rx_drop(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Take a stream's packets out of frames that are still open: they were not the detector's. What
 * this RX role has brought completely stays: the builder may be closing that frame.
 * @return mbufs that were freed
 */
uint32_t frame_rx_expel(struct frame_table *ft, struct frame_rx *frx, uint32_t stream);

/**
 * A number of which the window cannot be near: its stream is elsewhere.
 * @param vote   it counts towards a request
 * @param ahead  frames would have been lost; else the detector would have been restarted
 * @return FRAME_PLACE_HOLD, or how the packet is dropped
 */
enum frame_placement frame_resync_request(struct frame_table *ft, struct frame_rx *frx,
	uint32_t stream, uint64_t frame, bool vote, bool ahead);

/**
 * Does a packet go on where its stream is, which is elsewhere? Then it is held with those before
 * it, though the window may have frames of that number: those of an acquisition before.
 */
bool frame_resync_continues(
	const struct frame_table *ft, const struct frame_rx *frx, uint32_t stream, uint64_t frame);

/** The answer for a frame whose entry does not carry its tag. */
enum frame_placement frame_rx_miss(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** The answer for a frame that is closed. */
enum frame_placement frame_rx_late(struct frame_table *ft, struct frame_rx *frx, uint32_t stream,
	uint64_t frame, uint32_t packet);

/** The answer for a packet that is there already: a duplicate, or its stream has begun again. */
enum frame_placement frame_rx_duplicate(
	struct frame_table *ft, struct frame_rx *frx, uint32_t stream, uint64_t frame);

/**
 * Count a detector's frame number as frames of ours are counted.
 * @return false if the frame is another receiver's
 */
static inline bool
frame_rx_is_ours(const struct frame_table *ft, uint64_t *frame)
{
	const uint64_t stride = __atomic_load_n(&ft->window.stride, __ATOMIC_RELAXED);
	const uint64_t offset = __atomic_load_n(&ft->window.offset, __ATOMIC_RELAXED);

	/* between runs every number counts as it is */
	if (likely(stride == 1) || ft->window.state == FRAME_WINDOW_CLOSED)
		return true;
	if (*frame < offset || (*frame - offset) % stride != 0)
		return false;
	*frame = (*frame - offset) / stride;
	return true;
}

/**
 * Place one packet.
 * @param RX role    the caller's RX role, which owns `stream`
 * @param frame   frame number from the packet, by frame_rx_is_ours()
 * @param packet  number in the stream, < stream_packets
 * @param header  detector header, read for the first packet of a stream
 * @param pixels  device address of the pixels
 * @param m       mbuf that holds them: the table's if FRAME_PLACED, else still the caller's
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

	/* what waited came before the request and is no part of it */
	if (unlikely((frx->elsewhere >> stream & 1) != 0) && !frx->again &&
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
	if (st->tag != tag) {
		st->seen[0] = 0;
		st->seen[1] = 0;
		st->rx_tsc = rte_rdtsc();
		ft->detector.ops->frame_info(header, &st->info);
		st->tag = tag;
	}
	if (unlikely(st->seen[packet >> 6] & bit))
		return frame_rx_duplicate(ft, frx, stream, frame);
	st->seen[packet >> 6] |= bit;
	tile = detector_stream_tile(&ft->detector, stream) + packet;
	frame_table_frame(ft, slot)->packet[tile] = pixels;
	frame_table_mbufs(ft, slot)[tile] = m;
	if (unlikely((frx->elsewhere >> stream & 1) != 0))
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
