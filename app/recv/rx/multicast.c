/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Receives multicast streams: takes packets in order, assembles messages, makes events of frames.
 *
 * Pixels are copied from receive buffers into the stream's ring. A pointer to them would save the
 * copy, but a tile of 8,192 bytes is in three fragments that do not end at a row, so that the
 * pointer table would need parts of different sizes. Buffers would also be in use until the gangs
 * have read them: each frame in work would take away receives, which is when a receiver loses
 * packets. Gangs read the ring in the same way as with transport `write`.
 *
 * The RX role is the only writer of the ring. Unlike a device it does not lap it: a message waits
 * while its slot has the pixels of an earlier frame. Packets then stay in the receive buffers, and
 * if these are used up, the sender's policy decides whether it waits or overwrites.
 *
 * Each frame of which a tile has come gets one event, also if the detector's own is lost. Only in
 * this way do all slots become free again. The event is made when the frame has ended and is
 * complete. If it is not, tiles may follow, because a network before the sender has reordered them.
 * The frame remains open until the events of `skew` later frames have come, or until no tile of it
 * has come for a part of stream_timeout_ms and its event has come or the sender is gone. Meanwhile
 * it delays the events of later frames: a stream's events are in the order of its frames.
 */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include <rdma.h>

#include "counter.h"
#include "ingest/multicast.h"
#include "ingest/multicast_proof.h"
#include "rx/messages.h"
#include "rx/multicast.h"
#include "rx/rx.h"
#include "rx/transport.h"
#include "settings.h"

RTE_LOG_REGISTER(multicast_logtype, braggline.ingest, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, multicast_logtype, "ingest: " __VA_ARGS__)

#define TAKEN	   32 /* packets of a stream that a poll takes */
#define EVENTS	   8  /* CM events of a call */
#define LEAVE_MS   500
#define DESTROY_MS 2000
#define LOG_S	   60 /* a warning about a stream is logged once in this time */
#define WAIT_S	   5  /* a sender that has not admitted this member for this time is logged */
/* A group of which nothing comes for this time, while so many packets are READ, does not reach us.
 * Losses of a burst are READ within milliseconds. */
#define DEAF_MS	   2000
#define DEAF_READS 64
#define NO_TILE	   UINT32_MAX
#define OPEN_MAX   16 /* open frames of a stream */
#define SKEW_MAX   (OPEN_MAX / 2)
#define SKEW_MIN   2 /* one forged event ends no frame */
/** Of stream_timeout_ms: a frame's event must come before the builder closes the frame by time. */
#define HOLD_PART 2

const char *const rx_fragment_cause_names[RX_FRAGMENT_CAUSES] = {
	[RX_FRAGMENT_FORMAT] = "bad_format",
	[RX_FRAGMENT_STREAM] = "other_stream",
	[RX_FRAGMENT_TILE] = "wrong_tile",
	[RX_FRAGMENT_SIZE] = "wrong_size",
	[RX_FRAGMENT_ORDER] = "out_of_order",
	[RX_FRAGMENT_HEADER] = "wrong_header",
};

static const enum rx_counter counter_of_cause[RX_FRAGMENT_CAUSES] = {
	[RX_FRAGMENT_FORMAT] = RX_MALFORMED,
	[RX_FRAGMENT_STREAM] = RX_MALFORMED,
	[RX_FRAGMENT_TILE] = RX_MALFORMED,
	[RX_FRAGMENT_SIZE] = RX_WRONG_LENGTH,
	[RX_FRAGMENT_ORDER] = RX_MALFORMED,
	[RX_FRAGMENT_HEADER] = RX_MALFORMED,
};

static const char *const state_names[] = {
	[RDMA_STREAM_JOINING] = "joining",
	[RDMA_STREAM_JOINED] = "joined",
	[RDMA_STREAM_ENDED] = "ended",
	[RDMA_STREAM_LEFT] = "left",
	[RDMA_STREAM_FAILED] = "failed",
};

/** A frame of a stream that has tiles, and no event yet. */
struct open_frame {
	uint64_t frame;
	uint64_t begun; /**< stream.nb_begun when it was opened */
	uint64_t at;	/**< frame_rx.listened when the last tile came */
	uint32_t tiles; /**< that have come; 0: this element is free */
	uint32_t first; /**< first of them that came */
	uint32_t later; /**< events of later frames that have come */
	bool event;	/**< the detector's event has come */
	bool ended;	/**< it has come, or it is lost */
};

/** A stream. Written by its RX role, except where it says so. */
struct stream {
	struct rdma_stream_receiver *receiver;
	uint32_t stream;
	/* packets that the receiver has delivered; those before `taken` have been taken */
	struct rdma_stream_packet packets[TAKEN];
	uint16_t nb, taken;
	bool begun;    /**< a packet was taken: `run` and `next` are valid */
	uint64_t run;  /**< of the sender */
	uint64_t next; /**< sequence number that follows without a loss */
	/* the message that is being received */
	uint32_t tile;	/**< NO_TILE: none */
	uint32_t at;	/**< bytes of it that have come */
	uint64_t frame; /**< of this message */
	bool skip;	/**< fragments up to the beginning of the next message are dropped */
	/* frames that are being received */
	struct open_frame open[OPEN_MAX];
	uint32_t nb_open;
	uint64_t nb_begun; /**< frames that were opened */
	uint64_t last;	   /**< frame + 1 of the last event that was made; 0: none */
	uint64_t leap;	   /**< frame + 1 of a message dropped for an open frame in its slot */
	bool leaving, left;
	uint64_t leave_until; /**< TSC */
	/* read by other threads */
	bool ended;	 /**< it has ended or failed, and all packets are taken */
	uint64_t failed; /**< 1: it has failed, for good */
	uint64_t slot_waits;
	uint64_t refused[RX_FRAGMENT_CAUSES];
	/* control lcore */
	enum rdma_stream_state logged;
	uint64_t logged_run, logged_refused, log_at;
	/* when a packet of the group came last, or the stream was joined */
	struct {
		uint64_t at; /**< TSC */
		uint64_t joins, came;
		uint64_t repaired; /**< then, or at the last warning */
		bool heard;	   /**< one has come since the join */
		uint64_t seen;	   /**< repaired at the last look */
		uint64_t warn_at;  /**< TSC; not before */
	} group;
} __rte_cache_aligned;

struct rx_multicast {
	struct rx_messages *messages;
	struct ingest_proof *proof;
	uint32_t fragment_max;
	uint32_t message_bytes; /**< without a leader */
	uint32_t skew;		/**< frames that a tile may be late */
	uint64_t hold;		/**< TSC cycles that an open frame waits for its next tile */
	uint64_t control_at;	/**< TSC */
	/* control lcore */
	uint64_t joining_since; /**< TSC; 0: no stream is joining */
	bool joining_logged;
	bool ended;    /**< all streams have ended */
	uint64_t ends; /**< see rx_multicast_ends(); read by other threads */
	struct stream stream[DETECTOR_STREAMS_MAX];
};

/** Events of a poll. */
struct burst {
	struct rx_packet packets[RX_BURST];
	const uint8_t *header[RX_BURST];
	uint32_t n;
};

/* ---- the ring ---- */

static uint8_t *
message_at(const struct rx_messages *m, uint32_t stream, uint64_t frame, uint32_t tile)
{
	return (uint8_t *)(uintptr_t)ingest_address(&m->card, stream, frame, tile);
}

static uint64_t *
trailer_at(const struct rx_messages *m, uint32_t stream, uint64_t frame, uint32_t tile)
{
	return (uint64_t *)(message_at(m, stream, frame, tile) + m->card.leader_bytes +
		m->card.tile_bytes);
}

/** Number of the frame that a tile is of; FRAME_TRAILER_NONE: it is free. */
static uint64_t
number_of(const uint64_t *trailer)
{
	return rte_le_to_cpu_64(__atomic_load_n(trailer, __ATOMIC_ACQUIRE));
}

/** The pixels of a frame are not used: free its tiles. */
static void
clear(const struct rx *rx, uint32_t stream, uint64_t frame)
{
	const struct detector *d = rx->detector;

	for (uint32_t t = d->expect_from[stream]; t < d->expect_to[stream]; t++) {
		uint64_t *trailer = trailer_at(rx->messages, stream, frame, t);

		if (number_of(trailer) == frame)
			__atomic_store_n(trailer, FRAME_TRAILER_NONE, __ATOMIC_RELAXED);
	}
}

/** Write the leader: before any pixel, so that a gang that reads the tile meanwhile sees it. */
static void
write_leader(const struct rx_messages *m, uint8_t *message, uint64_t frame)
{
	uint64_t *number = (uint64_t *)(message + m->card.leader_bytes) - 1;

	memset(message, 0, m->card.leader_bytes - sizeof(*number));
	__atomic_store_n(number, rte_cpu_to_le_64(frame), __ATOMIC_RELAXED);
	__atomic_thread_fence(__ATOMIC_RELEASE);
}

/** Write the end of a message. The number in the trailer is written last: the tile is complete. */
static void
write_end(uint8_t *to, const uint8_t *from, uint32_t bytes, uint64_t frame)
{
	const uint32_t pixels = bytes - INGEST_TRAILER_BYTES;
	uint64_t *trailer = (uint64_t *)(to + pixels);

	memcpy(to, from, pixels);
	memcpy(trailer + 1, from + pixels + sizeof(*trailer),
		INGEST_TRAILER_BYTES - sizeof(*trailer));
	__atomic_store_n(trailer, rte_cpu_to_le_64(frame), __ATOMIC_RELEASE);
}

/* ---- open frames ---- */

static struct open_frame *
find_open(struct stream *st, uint64_t frame)
{
	for (uint32_t i = 0; st->nb_open > 0 && i < OPEN_MAX; i++)
		if (st->open[i].tiles > 0 && st->open[i].frame == frame)
			return &st->open[i];
	return NULL;
}

static bool
is_complete(const struct rx *rx, const struct stream *st, const struct open_frame *o)
{
	return o->tiles == detector_stream_expected(rx->detector, st->stream);
}

/** Are these late tiles of a frame whose event was made? Numbers that went back further do not
 * look like it, and the detector's event shows that it has begun the frame again. */
static bool
is_late(const struct rx_multicast *mc, const struct stream *st, const struct open_frame *o)
{
	return !o->event && o->frame < st->last && st->last - o->frame <= mc->skew + 1;
}

/** Does a frame number continue those of a stream? */
static bool
is_near(const struct rx_multicast *mc, const struct stream *st, uint64_t frame)
{
	const uint64_t from = st->last - RTE_MIN(st->last, (uint64_t)mc->skew);

	return st->last == 0 || (frame >= from && frame - from < mc->messages->card.slots);
}

/** Has nothing confirmed a frame whose number does not continue those of its stream? */
static bool
is_stray(const struct rx_multicast *mc, const struct stream *st, const struct open_frame *o)
{
	return !o->ended && !is_near(mc, st, o->frame);
}

/** Count messages of a frame that are dropped. */
static void
drop_tiles(
	struct rx *rx, const struct stream *st, uint64_t frame, uint32_t n, enum rx_counter cause)
{
	uint64_t ours = frame;

	counter_add(&rx->counters[RX_PACKETS], n);
	counter_add(&rx->counters[cause], n);
	rx->counted = true;
	if (cause != RX_LATE && cause != RX_OUTLIER)
		return;
	for (uint32_t i = 0; i < n; i++)
		rx_note_drop(rx, st->stream, frame, cause);
	if (frame_rx_is_ours(rx->table, &ours))
		frame_rx_drop(rx->table, rx->frx, st->stream, ours);
}

/** Drop an open frame, and free its tiles. */
static void
drop_open(struct rx *rx, struct stream *st, struct open_frame *o, enum rx_counter cause)
{
	drop_tiles(rx, st, o->frame, o->tiles, cause);
	clear(rx, st->stream, o->frame);
	o->tiles = 0;
	st->nb_open--;
}

/** An open frame is complete, or no more of it will come: make its event. */
static void
end_frame(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct open_frame *o,
	struct burst *b)
{
	const struct rx_messages *m = rx->messages;
	struct rx_packet *p;

	if (is_late(mc, st, o) || is_stray(mc, st, o)) {
		drop_open(rx, st, o, is_late(mc, st, o) ? RX_LATE : RX_OUTLIER);
		return;
	}
	counter_add(&rx->counters[RX_EVENTS_LOST], !o->event);
	counter_add(&rx->counters[RX_PACKETS], detector_stream_expected(rx->detector, st->stream));
	counter_add(&rx->counters[RX_BYTES], (uint64_t)o->tiles * ingest_message_bytes(&m->card));
	p = &b->packets[b->n];
	*p = (struct rx_packet){.stream = st->stream, .frame = o->frame, .packet = o->first};
	/* the slot is not written again before it is given back */
	p->header = (const uint8_t *)trailer_at(m, st->stream, o->frame, o->first);
	b->header[b->n++] = p->header;
	st->last = o->frame + 1;
	o->tiles = 0;
	st->nb_open--;
}

/** Is there room in a burst for the events of all open frames of a stream? */
static bool
has_room(const struct burst *b)
{
	return b->n + OPEN_MAX < RX_BURST;
}

/** @return the open frame with the lowest number; NULL: there is none */
static struct open_frame *
lowest_open(const struct rx_multicast *mc, struct stream *st, bool late)
{
	struct open_frame *lowest = NULL;

	for (uint32_t i = 0; st->nb_open > 0 && i < OPEN_MAX; i++) {
		struct open_frame *o = &st->open[i];

		if (o->tiles > 0 && (late || !is_late(mc, st, o)) &&
			(lowest == NULL || o->frame < lowest->frame))
			lowest = o;
	}
	return lowest;
}

/** End the frames that have all their tiles, or need not wait for more, in their order. */
static void
end_ready(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct burst *b)
{
	struct open_frame *o;

	while ((o = lowest_open(mc, st, false)) != NULL && o->ended &&
		(is_complete(rx, st, o) || o->later >= mc->skew))
		end_frame(rx, mc, st, o, b);
}

/** No more packets come: end all frames. */
static void
end_all(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct burst *b)
{
	struct open_frame *o;

	while ((o = lowest_open(mc, st, true)) != NULL)
		end_frame(rx, mc, st, o, b);
}

static bool
is_joined(const struct stream *st)
{
	struct rdma_stream_receiver_info info;

	rdma_stream_receiver_info_get(st->receiver, &info);
	return info.state == RDMA_STREAM_JOINED;
}

/**
 * End frames of which no tile has come for some time. A sender that waits for another member pauses
 * in the middle of a frame: the frame remains open until its event, or until the sender is gone.
 */
static void
end_old(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct burst *b)
{
	const uint64_t now = rx->frx->listened;
	struct open_frame *o;

	for (uint32_t i = 0; i < OPEN_MAX; i++)
		if (st->open[i].tiles > 0 && now - st->open[i].at >= mc->hold &&
			is_late(mc, st, &st->open[i]))
			end_frame(rx, mc, st, &st->open[i], b);
	while ((o = lowest_open(mc, st, false)) != NULL && now - o->at >= mc->hold &&
		(o->ended || !is_joined(st)))
		end_frame(rx, mc, st, o, b);
	end_ready(rx, mc, st, b);
}

/** A tile has come: enter it in its frame, which is opened if it is not open. */
static void
take_tile(struct rx *rx, const struct rx_multicast *mc, struct stream *st, uint64_t frame,
	uint32_t tile, struct burst *b)
{
	struct open_frame *o = find_open(st, frame);

	if (o == NULL) {
		if (st->nb_open == OPEN_MAX)
			end_frame(rx, mc, st, lowest_open(mc, st, true), b);
		for (o = st->open; o->tiles > 0; o++)
			;
		*o = (struct open_frame){.frame = frame, .begun = st->nb_begun++, .first = tile};
		st->nb_open++;
	}
	o->tiles++;
	o->at = rx->frx->listened;
	if (likely(st->nb_open == 1 && !o->ended))
		return;
	/* events of complete frames before this one would have come */
	for (uint32_t i = 0; i < OPEN_MAX; i++)
		if (st->open[i].tiles > 0 && st->open[i].frame < frame &&
			is_complete(rx, st, &st->open[i]))
			st->open[i].ended = true;
	end_ready(rx, mc, st, b);
}

/** The detector's event of a frame has come. */
static void
take_event(struct rx *rx, const struct rx_multicast *mc, struct stream *st, uint64_t frame,
	struct burst *b)
{
	struct open_frame *own = find_open(st, frame);

	counter_add(&rx->counters[RX_EVENTS], 1);
	rx->counted = true;
	if (own != NULL)
		own->event = own->ended = true;
	for (uint32_t i = 0; i < OPEN_MAX; i++) {
		struct open_frame *o = &st->open[i];

		if (o->tiles == 0 || o == own)
			continue;
		if (o->frame < frame) {
			o->ended = true;
			o->later++;
		} else if (own != NULL && o->begun < own->begun && o->frame - frame > mc->skew) {
			end_frame(rx, mc, st, o, b); /* the numbers have gone back */
		}
	}
	end_ready(rx, mc, st, b);
}

/* ---- messages ---- */

/** Count a fragment that is refused. The rest of its message is dropped. */
static void
refuse(struct rx *rx, struct stream *st, enum rx_fragment_cause cause)
{
	counter_add(&rx->counters[RX_PACKETS], 1);
	counter_add(&rx->counters[counter_of_cause[cause]], 1);
	counter_add(&st->refused[cause], 1);
	rx->counted = true;
	st->tile = NO_TILE;
	st->skip = true;
}

/** Does a fragment belong to this stream? @return RX_FRAGMENT_CAUSES: yes */
static enum rx_fragment_cause
check_fragment(const struct rx *rx, const struct rx_multicast *mc, const struct stream *st,
	const struct ingest_fragment *f)
{
	if (f->stream != st->stream)
		return RX_FRAGMENT_STREAM;
	if (f->tiles != mc->messages->card.tiles)
		return RX_FRAGMENT_SIZE;
	/* this number means in a trailer that the tile is free */
	if (f->frame == FRAME_TRAILER_NONE)
		return RX_FRAGMENT_TILE;
	if (f->tile == INGEST_EVENT)
		return RX_FRAGMENT_CAUSES;
	if (f->message != mc->message_bytes)
		return RX_FRAGMENT_SIZE;
	if (f->tile < rx->detector->expect_from[st->stream] ||
		f->tile >= rx->detector->expect_to[st->stream])
		return RX_FRAGMENT_TILE;
	return RX_FRAGMENT_CAUSES;
}

/** Does the detector's header of a message name the frame and tile of its fragments? */
static bool
is_header_of(const struct rx *rx, const uint8_t *header, const struct ingest_fragment *f)
{
	struct detector_packet parsed;

	rx->detector->ops->parse(&header, &parsed, 1);
	return parsed.packet == f->tile && parsed.frame == f->frame;
}

/** An open frame is in the slot of another one. Is it a stray one, and that is not? */
static bool
yields(const struct rx_multicast *mc, struct stream *st, uint64_t number, uint64_t frame)
{
	const struct open_frame *o = find_open(st, number);

	return o != NULL && is_stray(mc, st, o) && is_near(mc, st, frame);
}

/**
 * A message begins, and its slot has tiles of another frame.
 * @param number  of that frame
 * @return false: try again when the slot is free
 */
static bool
wait_slot(struct rx *rx, const struct rx_multicast *mc, struct stream *st, uint64_t frame,
	uint64_t number, struct burst *b)
{
	struct open_frame *o = find_open(st, number);
	const bool behind = frame < number;

	if (o == NULL) {
		counter_add(&st->slot_waits, 1);
		return false;
	}
	/* a single stray or forged message must not end a frame in progress */
	if (!o->ended && !is_late(mc, st, o) &&
		(st->leap != frame + 1 || (behind && number - frame <= mc->skew))) {
		st->leap = frame + 1;
		drop_tiles(rx, st, frame, 1, behind ? RX_LATE : RX_OUTLIER);
		st->skip = true;
		return true;
	}
	end_frame(rx, mc, st, o, b);
	return false;
}

/** Begin a message. @return false: an earlier frame is in its slot, try again */
static bool
begin_message(struct rx *rx, const struct rx_multicast *mc, struct stream *st,
	const struct ingest_fragment *f, struct burst *b)
{
	const struct rx_messages *m = rx->messages;
	const struct detector *d = rx->detector;
	const bool open = find_open(st, f->frame) != NULL;
	const uint64_t here = number_of(trailer_at(m, st->stream, f->frame, f->tile));

	if (st->tile != NO_TILE)
		refuse(rx, st, RX_FRAGMENT_ORDER); /* the message before has no end */
	for (uint32_t t = d->expect_from[st->stream]; !open && t < d->expect_to[st->stream]; t++) {
		const uint64_t number = number_of(trailer_at(m, st->stream, f->frame, t));

		if (likely(number == FRAME_TRAILER_NONE))
			continue;
		if (yields(mc, st, number, f->frame)) {
			drop_open(rx, st, find_open(st, number), RX_OUTLIER);
			continue;
		}
		if (number != f->frame)
			return wait_slot(rx, mc, st, f->frame, number, b);
		/* its event was made: gangs may have found that this tile is missing */
		drop_tiles(rx, st, f->frame, 1, here == f->frame ? RX_DUPLICATE : RX_LATE);
		st->skip = true;
		return true;
	}
	st->leap = 0;
	if (unlikely(here == f->frame)) {
		drop_tiles(rx, st, f->frame, 1, RX_DUPLICATE);
		st->skip = true;
		return true;
	}
	write_leader(m, message_at(m, st->stream, f->frame, f->tile), f->frame);
	st->tile = f->tile;
	st->frame = f->frame;
	st->at = 0;
	st->skip = false;
	return true;
}

/** Take a part of a message. */
static void
take_part(struct rx *rx, const struct rx_multicast *mc, struct stream *st,
	const struct ingest_fragment *f, const uint8_t *data, uint32_t bytes, struct burst *b)
{
	const struct rx_messages *m = rx->messages;
	uint8_t *to;

	if (st->skip)
		return;
	if (unlikely(st->tile != f->tile || st->frame != f->frame || st->at != f->offset)) {
		refuse(rx, st, RX_FRAGMENT_ORDER);
		return;
	}
	to = message_at(m, st->stream, f->frame, f->tile) + m->card.leader_bytes + f->offset;
	st->at += bytes;
	if (st->at < f->message) {
		memcpy(to, data, bytes);
		return;
	}
	if (unlikely(!is_header_of(rx, data + bytes - INGEST_TRAILER_BYTES, f))) {
		refuse(rx, st, RX_FRAGMENT_HEADER);
		return;
	}
	write_end(to, data, bytes, f->frame);
	st->tile = NO_TILE;
	take_tile(rx, mc, st, f->frame, f->tile, b);
}

/**
 * Take a packet.
 * @return false: it must wait, because its slot is in use
 */
static bool
take_packet(struct rx *rx, const struct rx_multicast *mc, struct stream *st,
	const struct rdma_stream_packet *p, struct burst *b)
{
	struct ingest_fragment f;
	enum rx_fragment_cause cause;
	bool taken = true;

	if (!st->begun || p->run != st->run || p->sequence != st->next) {
		if (st->begun && p->run != st->run) {
			end_all(rx, mc, st, b); /* the sender was started again */
			st->last = 0;
		}
		/* packets are missing before this one: the rest of their message is of no use */
		st->tile = NO_TILE;
		st->skip = true;
		st->begun = true;
		st->run = p->run;
		st->next = p->sequence;
	}
	if (ingest_fragment_decode(p->data, p->length, mc->fragment_max, &f) != 0) {
		refuse(rx, st, RX_FRAGMENT_FORMAT);
	} else if ((cause = check_fragment(rx, mc, st, &f)) != RX_FRAGMENT_CAUSES) {
		refuse(rx, st, cause);
	} else if (f.tile == INGEST_EVENT) {
		if (st->tile != NO_TILE)
			refuse(rx, st, RX_FRAGMENT_ORDER);
		take_event(rx, mc, st, f.frame, b);
	} else {
		if (f.offset == 0)
			taken = begin_message(rx, mc, st, &f, b);
		if (taken)
			take_part(rx, mc, st, &f, (const uint8_t *)p->data + sizeof(f),
				p->length - sizeof(f), b);
	}
	st->next += taken;
	return taken;
}

/* ---- polling ---- */

static void
release(struct stream *st)
{
	rdma_stream_release(st->receiver, st->packets, st->nb);
	st->nb = st->taken = 0;
}

/** Has the stream ended, and is all of it taken? Then its last frames have no more packets. */
static void
watch_end(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct burst *b)
{
	struct rdma_stream_receiver_info info;
	bool ended, failed;

	rdma_stream_receiver_info_get(st->receiver, &info);
	failed = info.state == RDMA_STREAM_FAILED;
	ended = info.state == RDMA_STREAM_ENDED || failed;
	if (unlikely(failed))
		counter_set(&st->failed, 1);
	if (likely(ended == st->ended))
		return;
	if (ended)
		end_all(rx, mc, st, b);
	__atomic_store_n(&st->ended, ended, __ATOMIC_RELEASE);
}

/** Take packets of a stream. @return how many */
static uint32_t
poll_stream(struct rx *rx, const struct rx_multicast *mc, struct stream *st, struct burst *b)
{
	uint32_t n = 0;

	/* without packets to take, this call repairs, and tells the sender what has arrived */
	if (st->nb == 0)
		st->nb = rdma_stream_receive(st->receiver, st->packets, TAKEN);
	else
		rdma_stream_receive(st->receiver, NULL, 0);
	while (st->taken < st->nb && has_room(b)) {
		if (!take_packet(rx, mc, st, &st->packets[st->taken], b))
			break;
		st->taken++;
		n++;
	}
	if (st->taken < st->nb || !has_room(b))
		return n;
	if (unlikely(st->nb_open > 0))
		end_old(rx, mc, st, b);
	if (st->nb > 0)
		release(st);
	else if (has_room(b))
		watch_end(rx, mc, st, b);
	return n;
}

/** Let rx_accept() check the events of a burst, and free the tiles of those that it drops. */
static uint32_t
accept_events(struct rx *rx, uint32_t source, struct burst *b, struct rx_batch *batch)
{
	struct detector_packet parsed[RX_BURST];
	struct rx_packet all[RX_BURST];
	struct rx_dropped drop = {.n = 0};
	uint32_t kept, k = 0;

	rx->detector->ops->parse(b->header, parsed, b->n);
	memcpy(all, b->packets, b->n * sizeof(all[0]));
	kept = rx_accept(rx, source, b->packets, parsed, b->n, batch, &drop);
	for (uint32_t i = 0; i < b->n; i++) {
		if (k < kept && b->packets[k].stream == all[i].stream &&
			b->packets[k].frame == all[i].frame)
			k++;
		else
			clear(rx, all[i].stream, all[i].frame);
	}
	return kept;
}

static bool
is_of(const struct rx *rx, uint32_t source, uint32_t stream)
{
	const struct rx_message_stream *st = &rx->messages->streams[stream];

	return st->device == rx->queues[source].port && st->poll_group == rx->queues[source].queue;
}

static uint32_t
poll_streams(struct rx *rx, uint32_t source)
{
	const struct rx_messages *m = rx->messages;
	struct rx_multicast *mc = m->multicast;
	struct rx_batch batch;
	struct burst b;
	uint32_t n = 0, of;
	bool more = false;

	if (source == rx->nb_queues)
		return 0;
	rdma_progress(m->devices[rx->queues[source].port], rx->queues[source].queue);
	b.n = 0;
	batch = (struct rx_batch){.packets = b.packets};
	rx_check_positions(rx, &batch);
	for (uint32_t s = 0; s < m->card.streams; s++) {
		if (!is_of(rx, source, s))
			continue;
		of = poll_stream(rx, mc, &mc->stream[s], &b);
		more |= of == TAKEN;
		n += of;
	}
	if (n == 0 && b.n == 0)
		return 0;
	rx->counted = true;
	counter_add(&rx->counters[RX_BURSTS], 1);
	if (b.n > 0)
		rx_take(rx, b.packets, accept_events(rx, source, &b, &batch));
	return more ? RX_BURST : RTE_MIN(RTE_MAX(n, 1u), RX_BURST - 1u);
}

/** Too many frames wait: take no packets, but remain a member. */
static void
hold_streams(struct rx *rx, uint32_t source)
{
	const struct rx_messages *m = rx->messages;

	if (source == rx->nb_queues)
		return;
	rdma_progress(m->devices[rx->queues[source].port], rx->queues[source].queue);
	for (uint32_t s = 0; s < m->card.streams; s++)
		if (is_of(rx, source, s))
			rdma_stream_receive(m->multicast->stream[s].receiver, NULL, 0);
}

/** Leave a stream, so that the sender does not wait for this member. @return whether it has left */
static bool
leave_stream(struct rx *rx, const struct rx_multicast *mc, struct stream *st)
{
	struct rdma_stream_receiver_info info;
	struct open_frame *o;

	if (st->left)
		return true;
	while ((o = lowest_open(mc, st, true)) != NULL)
		drop_open(rx, st, o, RX_STOPPED);
	if (!st->leaving) {
		st->leaving = true;
		st->leave_until = rte_rdtsc() + rte_get_tsc_hz() / 1000 * LEAVE_MS;
		rdma_stream_leave(st->receiver);
	}
	if (st->nb > 0)
		release(st);
	st->nb = rdma_stream_receive(st->receiver, st->packets, TAKEN);
	rdma_stream_receiver_info_get(st->receiver, &info);
	/* a sender that does not answer finds out by itself */
	st->left = info.state == RDMA_STREAM_LEFT || info.state == RDMA_STREAM_FAILED ||
		rte_rdtsc() > st->leave_until;
	if (st->left && st->nb > 0)
		release(st);
	return st->left;
}

static bool
leave_streams(struct rx *rx)
{
	const struct rx_messages *m = rx->messages;
	bool left = true;

	for (uint32_t q = 0; q < rx->nb_queues; q++) {
		rdma_progress(m->devices[rx->queues[q].port], rx->queues[q].queue);
		for (uint32_t s = 0; s < m->card.streams; s++)
			if (is_of(rx, q, s))
				left &= leave_stream(rx, m->multicast, &m->multicast->stream[s]);
	}
	if (rx->counted)
		rx_publish(rx);
	rx->counted = false;
	return left;
}

static enum frame_placement
place_frame(struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest)
{
	const struct rx_messages *m = rx->messages;

	RTE_SET_USED(rest);
	return frame_rx_place_stream(rx->table, rx->frx, p->stream, frame, p->header,
		(uintptr_t)message_at(m, p->stream, p->frame, 0) + m->card.leader_bytes,
		ingest_message_bytes(&m->card));
}

/**
 * An event is dropped: its frame's pixels are not used. That is also true of a duplicate: its slot
 * was free when it began, so that the pixels of the first one had been given back.
 */
static void
forget_frame(struct rx *rx, const struct rx_packet *p, enum rx_counter cause)
{
	RTE_SET_USED(cause);
	clear(rx, p->stream, p->frame);
}

const struct rx_transport rx_multicast = {
	.name = "multicast",
	.events = true,
	.poll = poll_streams,
	.hold = hold_streams,
	.leave = leave_streams,
	.place = place_frame,
	.dropped = forget_frame,
	.headers = rx_queue_pair_headers,
};

/* ---- control ---- */

static int
create_stream(struct rx_multicast *mc, uint32_t stream)
{
	const struct rx_messages *m = mc->messages;
	const struct ingest_settings *s = &m->settings->ingest;
	const struct rx_message_stream *of = &m->streams[stream];
	const struct sockaddr_in group = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(s->group + stream)};
	const struct sockaddr_in sender = {.sin_family = AF_INET,
		.sin_port = htons(s->service + stream),
		.sin_addr.s_addr = htonl(s->sender)};
	const struct rdma_stream_receiver_attr attr = {
		.dev = m->devices[of->device],
		.pd = of->pd,
		.poll_group = of->poll_group,
		.group = (const struct sockaddr *)&group,
		.sender = (const struct sockaddr *)&sender,
		.payload_max = m->card.mtu - RDMA_STREAM_HEADER_BYTES,
		.buffers = s->buffers,
		.reads = s->reads,
		.identity = mc->proof != NULL ? ingest_proof_identity(mc->proof) : 0,
		.proof = mc->proof != NULL ? ingest_proof_stream(mc->proof) : NULL,
	};
	struct stream *st = &mc->stream[stream];

	st->stream = stream;
	st->tile = NO_TILE;
	st->skip = true;
	st->receiver = rdma_stream_receiver_create(&attr);
	if (st->receiver != NULL)
		return 0;
	LOG(ERR, "stream %u: cannot receive its group: %s; [ingest] buffers = %u\n", stream,
		rte_strerror(rte_errno), s->buffers);
	return -rte_errno;
}

struct rx_multicast *
rx_multicast_create(struct rx_messages *m)
{
	const struct ingest_settings *s = &m->settings->ingest;
	struct rx_multicast *mc = rte_zmalloc("rx_multicast", sizeof(*mc), RTE_CACHE_LINE_SIZE);
	char message[PATH_MAX];
	int ret = 0;

	if (mc == NULL)
		return NULL;
	mc->messages = m;
	mc->fragment_max = ingest_fragment_max(m->card.mtu - RDMA_STREAM_HEADER_BYTES);
	mc->message_bytes = m->card.tile_bytes + m->card.trailer_bytes;
	mc->skew = RTE_MIN(
		RTE_MAX(m->settings->max_skew_frames, (uint32_t)SKEW_MIN), (uint32_t)SKEW_MAX);
	mc->hold = rte_get_tsc_hz() / 1000 * m->settings->stream_timeout_ms / HOLD_PART;
	if (s->identity != NULL) {
		ret = ingest_proof_member(&mc->proof, s->identity, s->key, message);
		if (ret != 0)
			LOG(ERR, "[ingest] key: %s\n", message);
	}
	for (uint32_t i = 0; i < m->card.streams && ret == 0; i++)
		ret = create_stream(mc, i);
	if (ret == 0)
		return mc;
	rx_multicast_destroy(mc);
	rte_errno = -ret;
	return NULL;
}

/** Poll what the destruction of receivers waits for. */
static void
poll_devices(const struct rx_messages *m)
{
	struct rdma_event event[EVENTS];

	for (uint32_t s = 0; s < m->card.streams; s++)
		rdma_progress(m->devices[m->streams[s].device], m->streams[s].poll_group);
	for (uint32_t d = 0; d < m->nb_devices; d++)
		rdma_poll_cm(m->devices[d], event, EVENTS);
}

void
rx_multicast_destroy(struct rx_multicast *mc)
{
	uint64_t end;

	if (mc == NULL)
		return;
	end = rte_rdtsc() + rte_get_tsc_hz() / 1000 * DESTROY_MS;
	for (uint32_t s = 0; s < mc->messages->card.streams; s++) {
		struct stream *st = &mc->stream[s];

		while (rdma_stream_receiver_destroy(st->receiver) == -EBUSY && rte_rdtsc() < end)
			poll_devices(mc->messages);
	}
	ingest_proof_destroy(mc->proof);
	rte_free(mc);
}

/** Log that a stream has failed, and what can be done. */
static void
log_failed(const struct rx_multicast *mc, uint32_t stream,
	const struct rdma_stream_receiver_info *info)
{
	const struct ingest_settings *s = &mc->messages->settings->ingest;
	const uint32_t payload_max = mc->messages->card.mtu - RDMA_STREAM_HEADER_BYTES;
	char advice[200] = "";

	if (info->error == -EACCES && mc->proof == NULL)
		snprintf(advice, sizeof(advice),
			"; the detector requires a proof: set [ingest] identity and key");
	else if (info->error == -EACCES)
		snprintf(advice, sizeof(advice),
			"; the detector's keyring must have [ingest] identity = %s with this key, "
			"or it was started without --keys",
			s->identity);
	else if (info->error == -EKEYREJECTED)
		snprintf(advice, sizeof(advice),
			"; the sender does not have the key of [ingest] identity, or is not the "
			"detector");
	else if (info->error == -EMSGSIZE && info->payload > payload_max)
		snprintf(advice, sizeof(advice),
			"; the detector sends packets of %u bytes, expected at most %u with "
			"[ingest] mtu = %u: set it as the detector does",
			info->payload, payload_max, mc->messages->card.mtu);
	else if (info->error == -EMSGSIZE)
		snprintf(advice, sizeof(advice),
			"; the detector's ring has %u packets: set [ingest] buffers = %u or more, "
			"found %u",
			info->slots, info->slots, s->buffers);
	LOG(ERR, "stream %u: failed: %s%s\n", stream, rte_strerror(-info->error), advice);
}

static void
log_state(const struct rx_multicast *mc, struct stream *st,
	const struct rdma_stream_receiver_info *info)
{
	if (info->state == st->logged && info->run == st->logged_run)
		return;
	if (info->state == RDMA_STREAM_FAILED)
		log_failed(mc, st->stream, info);
	else if (info->state == RDMA_STREAM_JOINED)
		LOG(NOTICE, "stream %u: joined at packet %" PRIu64 " of run %016" PRIx64 "\n",
			st->stream, info->start, info->run);
	else if (info->state == RDMA_STREAM_JOINING)
		LOG(WARNING, "stream %u: the connections to the sender have ended; joining again\n",
			st->stream);
	else
		LOG(NOTICE, "stream %u: %s\n", st->stream, state_names[info->state]);
	st->logged = info->state;
	st->logged_run = info->run;
}

/** Log that fragments of a stream are refused, and why. */
static void
log_refused(struct stream *st, uint64_t now)
{
	char text[160] = "";
	size_t used = 0;
	uint64_t n = 0;

	if (now < st->log_at)
		return;
	for (uint32_t c = 0; c < RX_FRAGMENT_CAUSES; c++) {
		const uint64_t of = counter_get(&st->refused[c]);

		n += of;
		if (of > 0 && used < sizeof(text))
			used += snprintf(text + used, sizeof(text) - used, "%s%s %" PRIu64,
				used > 0 ? ", " : "", rx_fragment_cause_names[c], of);
	}
	if (n == st->logged_refused)
		return;
	LOG(WARNING,
		"stream %u: %" PRIu64 " fragments were refused (%s); the detector must have the "
		"same modules, rows and [ingest] mtu as the receiver\n",
		st->stream, n, text);
	st->logged_refused = n;
	st->log_at = now + LOG_S * rte_get_tsc_hz();
}

/** Log, once until all streams have joined, that the sender does not admit this member. */
static void
log_joining(struct rx_multicast *mc, uint32_t joining, uint32_t first, uint64_t now)
{
	const struct ingest_settings *s = &mc->messages->settings->ingest;
	const rte_be32_t address = htonl(s->sender);
	char text[INET_ADDRSTRLEN] = "";

	if (joining == 0) {
		mc->joining_since = 0;
		mc->joining_logged = false;
		return;
	}
	if (mc->joining_since == 0)
		mc->joining_since = now;
	if (mc->joining_logged || now - mc->joining_since < WAIT_S * rte_get_tsc_hz())
		return;
	inet_ntop(AF_INET, &address, text, sizeof(text));
	LOG(WARNING,
		"stream %u: no answer of %s port %u for %u s, %u of %u streams have not joined; "
		"check that the detector runs, and [ingest] sender and service\n",
		first, text, s->service + first, WAIT_S, joining, mc->messages->card.streams);
	mc->joining_logged = true;
}

/** Log that no packet of a stream comes by multicast, although all of them arrive by READ. */
static void
log_group(const struct rx_multicast *mc, struct stream *st,
	const struct rdma_stream_receiver_info *info, uint64_t now)
{
	const rte_be32_t address = htonl(mc->messages->settings->ingest.group + st->stream);
	/* one that is behind gets packets of the group that are of no use to it */
	const uint64_t came = info->received + info->duplicate + info->stale;
	const uint64_t reads = info->repaired - st->group.repaired;
	const bool more = info->repaired != st->group.seen;
	char text[INET_ADDRSTRLEN] = "";

	st->group.seen = info->repaired;
	if (info->joins != st->group.joins || came != st->group.came) {
		st->group.heard = info->joins == st->group.joins;
		st->group.joins = info->joins;
		st->group.came = came;
		st->group.repaired = info->repaired;
		st->group.at = now;
		return;
	}
	/* a stream that is shorter than this time is judged at its end */
	if (reads < DEAF_READS || now < st->group.warn_at ||
		!(more ? now - st->group.at > rte_get_tsc_hz() / 1000 * DEAF_MS
		       : !st->group.heard && info->state == RDMA_STREAM_ENDED))
		return;
	inet_ntop(AF_INET, &address, text, sizeof(text));
	LOG(WARNING,
		"stream %u: %" PRIu64 " packets were READ, and meanwhile none came by multicast to "
		"%s; check [ingest] group, and that the switches have an IGMP querier\n",
		st->stream, reads, text);
	st->group.repaired = info->repaired;
	st->group.warn_at = now + LOG_S * rte_get_tsc_hz();
}

/**
 * Count when the last stream ends. A failed stream is over for good. Streams may have ended a
 * different number of times.
 */
static void
count_ends(struct rx_multicast *mc)
{
	bool ended = true;

	for (uint32_t s = 0; s < mc->messages->card.streams; s++)
		ended &= __atomic_load_n(&mc->stream[s].ended, __ATOMIC_ACQUIRE);
	if (ended && !mc->ended)
		counter_add(&mc->ends, 1);
	mc->ended = ended;
}

int
rx_multicast_control(struct rx_multicast *mc)
{
	const struct rx_messages *m = mc->messages;
	struct rdma_event event[EVENTS];
	const uint64_t now = rte_rdtsc();
	uint32_t joining = 0, first = 0;
	int all = 0;

	for (uint32_t d = 0; d < m->nb_devices; d++) {
		const uint16_t n = rdma_poll_cm(m->devices[d], event, EVENTS);

		for (uint16_t i = 0; i < n; i++)
			for (uint32_t s = 0; s < m->card.streams; s++)
				if (rdma_stream_receiver_event(mc->stream[s].receiver, &event[i]))
					break;
		all += n;
	}
	if (now < mc->control_at)
		return all;
	mc->control_at = now + rte_get_tsc_hz() / 1000;
	for (uint32_t s = 0; s < m->card.streams; s++) {
		struct rdma_stream_receiver_info info;

		rdma_stream_receiver_control(mc->stream[s].receiver);
		rdma_stream_receiver_info_get(mc->stream[s].receiver, &info);
		log_state(mc, &mc->stream[s], &info);
		log_refused(&mc->stream[s], now);
		log_group(mc, &mc->stream[s], &info, now);
		if (info.state == RDMA_STREAM_JOINING && joining++ == 0)
			first = s;
	}
	log_joining(mc, joining, first, now);
	count_ends(mc);
	return all;
}

void
rx_multicast_info_get(
	const struct rx_multicast *mc, uint32_t stream, struct rx_multicast_info *info)
{
	const struct stream *st = &mc->stream[stream];

	rdma_stream_receiver_info_get(st->receiver, &info->stream);
	info->state = state_names[info->stream.state];
	info->slot_waits = counter_get(&st->slot_waits);
	counters_get(info->refused, st->refused, sizeof(info->refused));
}

uint64_t
rx_multicast_ends(const struct rx_multicast *mc)
{
	bool failed = true;

	for (uint32_t s = 0; s < mc->messages->card.streams; s++)
		failed &= counter_get(&mc->stream[s].failed) != 0;
	return failed ? UINT64_MAX : counter_get(&mc->ends);
}

bool
rx_multicast_failed(const struct rx_multicast *mc)
{
	return rx_multicast_ends(mc) == UINT64_MAX;
}

void
rx_multicast_add_drops(const struct rx_multicast *mc, uint64_t drops[PORT_DROPS])
{
	for (uint32_t s = 0; s < mc->messages->card.streams; s++) {
		struct rdma_stream_receiver_info info;

		rdma_stream_receiver_info_get(mc->stream[s].receiver, &info);
		drops[PORT_REPAIRED] += info.repaired;
		drops[PORT_LOST_FOR_GOOD] += info.lost;
	}
}
