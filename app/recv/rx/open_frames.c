/* SPDX-License-Identifier: BSD-3-Clause */
/* Open frames of a multicast stream: when they end, and which tiles they accept. */

#include <rte_branch_prediction.h>
#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_cycles.h>

#include <rdma_stream.h>

#include "counter.h"
#include "rx/messages.h"
#include "rx/open_frames.h"
#include "rx/transport.h"
#include "settings.h"

#define SKEW_MAX (OPEN_FRAMES_MAX / 2)
#define SKEW_MIN 2 /* one forged event ends no frame */
/** Of stream_timeout_ms: a frame's event must come before the builder closes the frame by time. */
#define HOLD_PART 2

void
open_frames_init(struct open_frames *of, const struct rx_messages *m, uint32_t stream)
{
	const struct settings *s = m->settings;

	*of = (struct open_frames){.messages = m, .stream = stream};
	of->skew = RTE_MIN(RTE_MAX(s->max_skew_frames, (uint32_t)SKEW_MIN), (uint32_t)SKEW_MAX);
	of->hold = rte_get_tsc_hz() / 1000 * s->stream_timeout_ms / HOLD_PART;
}

static uint64_t *
trailer_at(const struct rx_messages *m, uint32_t stream, uint64_t frame, uint32_t tile)
{
	return (uint64_t *)(rx_message_at(m, stream, frame, tile) + m->card.leader_bytes +
		m->card.tile_bytes);
}

/** Number of the frame to which a tile belongs; FRAME_TRAILER_NONE: it is free. */
static uint64_t
number_of(const uint64_t *trailer)
{
	return rte_le_to_cpu_64(__atomic_load_n(trailer, __ATOMIC_ACQUIRE));
}

/** The pixels of a frame are no longer used: free its tiles. */
void
open_frames_clear(const struct rx *rx, uint32_t stream, uint64_t frame)
{
	const struct detector *d = rx->detector;

	for (uint32_t t = d->expect_from[stream]; t < d->expect_to[stream]; t++) {
		uint64_t *trailer = trailer_at(rx->messages, stream, frame, t);

		if (number_of(trailer) == frame)
			__atomic_store_n(trailer, FRAME_TRAILER_NONE, __ATOMIC_RELAXED);
	}
}

static struct open_frame *
find_open(struct open_frames *of, uint64_t frame)
{
	for (uint32_t i = 0; of->nb > 0 && i < OPEN_FRAMES_MAX; i++)
		if (of->open[i].tiles > 0 && of->open[i].frame == frame)
			return &of->open[i];
	return NULL;
}

static bool
is_complete(const struct rx *rx, const struct open_frames *of, const struct open_frame *o)
{
	return o->tiles == detector_stream_expected(rx->detector, of->stream);
}

/**
 * Return true if these are late tiles of a frame whose event was generated. They are not if the
 * numbers went back further, or if the detector's event shows that it has begun the frame again.
 */
static bool
is_late(const struct open_frames *of, const struct open_frame *o)
{
	return !o->event && o->frame < of->last && of->last - o->frame <= of->skew + 1;
}

/** Return true if a frame number continues those of a stream. */
static bool
is_near(const struct open_frames *of, uint64_t frame)
{
	const uint64_t from = of->last - RTE_MIN(of->last, (uint64_t)of->skew);

	return of->last == 0 || (frame >= from && frame - from < of->messages->card.slots);
}

/**
 * Return true if nothing has confirmed a frame whose number does not continue those of its stream.
 */
static bool
is_stray(const struct open_frames *of, const struct open_frame *o)
{
	return !o->ended && !is_near(of, o->frame);
}

/** Count messages of a frame that are dropped. */
static void
drop_tiles(struct rx *rx, const struct open_frames *of, uint64_t frame, uint32_t n,
	enum rx_counter cause)
{
	uint64_t ours = frame;

	counter_add(&rx->counters[RX_PACKETS], n);
	counter_add(&rx->counters[cause], n);
	rx->counted = true;
	if (cause != RX_LATE && cause != RX_OUTLIER)
		return;
	for (uint32_t i = 0; i < n; i++)
		rx_note_drop(rx, of->stream, frame, cause);
	if (frame_rx_is_ours(rx->table, &ours))
		frame_rx_drop(rx->table, rx->frx, of->stream, ours);
}

/** Drop an open frame, and free its tiles. */
static void
drop_open(struct rx *rx, struct open_frames *of, struct open_frame *o, enum rx_counter cause)
{
	drop_tiles(rx, of, o->frame, o->tiles, cause);
	open_frames_clear(rx, of->stream, o->frame);
	o->tiles = 0;
	of->nb--;
}

/** An open frame is complete, or no more of its tiles will arrive: generate its event. */
static void
end_frame(struct rx *rx, struct open_frames *of, struct open_frame *o, struct event_burst *b)
{
	const struct rx_messages *m = of->messages;
	struct rx_packet *p;

	if (is_late(of, o) || is_stray(of, o)) {
		drop_open(rx, of, o, is_late(of, o) ? RX_LATE : RX_OUTLIER);
		return;
	}
	counter_add(&rx->counters[RX_EVENTS_LOST], !o->event);
	counter_add(&rx->counters[RX_PACKETS], detector_stream_expected(rx->detector, of->stream));
	counter_add(&rx->counters[RX_BYTES], (uint64_t)o->tiles * ingest_message_bytes(&m->card));
	p = &b->packets[b->n];
	*p = (struct rx_packet){.stream = of->stream, .frame = o->frame, .packet = o->first};
	/* the slot is not written again before it is returned */
	p->header = (const uint8_t *)trailer_at(m, of->stream, o->frame, o->first);
	b->header[b->n++] = p->header;
	of->last = o->frame + 1;
	o->tiles = 0;
	of->nb--;
}

/** @return the open frame with the lowest number; NULL: there is none */
static struct open_frame *
lowest_open(struct open_frames *of, bool late)
{
	struct open_frame *lowest = NULL;

	for (uint32_t i = 0; of->nb > 0 && i < OPEN_FRAMES_MAX; i++) {
		struct open_frame *o = &of->open[i];

		if (o->tiles > 0 && (late || !is_late(of, o)) &&
			(lowest == NULL || o->frame < lowest->frame))
			lowest = o;
	}
	return lowest;
}

/** End the frames that have all their tiles, or need not wait for more, in their order. */
static void
end_ready(struct rx *rx, struct open_frames *of, struct event_burst *b)
{
	struct open_frame *o;

	while ((o = lowest_open(of, false)) != NULL && o->ended &&
		(is_complete(rx, of, o) || o->later >= of->skew))
		end_frame(rx, of, o, b);
}

void
open_frames_end_all(struct rx *rx, struct open_frames *of, struct event_burst *b)
{
	struct open_frame *o;

	while ((o = lowest_open(of, true)) != NULL)
		end_frame(rx, of, o, b);
}

static bool
is_joined(const struct rdma_stream_receiver *receiver)
{
	struct rdma_stream_receiver_info info;

	rdma_stream_receiver_info_get(receiver, &info);
	return info.state == RDMA_STREAM_JOINED;
}

/**
 * The run is being stopped: end its frames in time, so that they are closed with the tiles that
 * have arrived. Tiles and events that a sender continues to send do not delay them.
 */
static void
end_last(struct rx *rx, struct open_frames *of, struct event_burst *b)
{
	struct open_frame *o = lowest_open(of, false);

	if (likely(o == NULL || !frame_rx_is_last(rx->table, o->frame))) {
		of->stopped_at = 0;
		return;
	}
	if (of->stopped_at == 0)
		of->stopped_at = rx->frx->listened;
	if (rx->frx->listened - of->stopped_at < of->hold)
		return;
	while ((o = lowest_open(of, false)) != NULL && frame_rx_is_last(rx->table, o->frame))
		end_frame(rx, of, o, b);
}

void
open_frames_end_old(struct rx *rx, struct open_frames *of,
	const struct rdma_stream_receiver *receiver, struct event_burst *b)
{
	const uint64_t now = rx->frx->listened;
	struct open_frame *o;

	end_last(rx, of, b);
	for (uint32_t i = 0; i < OPEN_FRAMES_MAX; i++)
		if (of->open[i].tiles > 0 && now - of->open[i].at >= of->hold &&
			is_late(of, &of->open[i]))
			end_frame(rx, of, &of->open[i], b);
	while ((o = lowest_open(of, false)) != NULL &&
		(frame_rx_is_due(rx->table, o->frame) ||
			(now - o->at >= of->hold && (o->ended || !is_joined(receiver)))))
		end_frame(rx, of, o, b);
	end_ready(rx, of, b);
}

void
open_frames_restart(struct rx *rx, struct open_frames *of, struct event_burst *b)
{
	open_frames_end_all(rx, of, b);
	of->last = 0;
}

void
open_frames_stop(struct rx *rx, struct open_frames *of)
{
	struct open_frame *o;

	while ((o = lowest_open(of, true)) != NULL)
		drop_open(rx, of, o, RX_STOPPED);
}

void
open_frames_tile(
	struct rx *rx, struct open_frames *of, uint64_t frame, uint32_t tile, struct event_burst *b)
{
	struct open_frame *o = find_open(of, frame);

	if (o == NULL) {
		if (of->nb == OPEN_FRAMES_MAX)
			end_frame(rx, of, lowest_open(of, true), b);
		for (o = of->open; o->tiles > 0; o++)
			;
		*o = (struct open_frame){.frame = frame, .begun = of->nb_begun++, .first = tile};
		of->nb++;
	}
	o->tiles++;
	o->at = rx->frx->listened;
	/* as with UDP, a number that jumps counts only if another tile confirms it */
	if (is_near(of, frame) && !is_late(of, o) && (o->tiles > 1 || frame <= of->last + 1))
		frame_rx_begin(rx->table, rx->frx, of->stream, frame);
	if (likely(of->nb == 1 && !o->ended))
		return;
	/* events of complete frames before this one would have arrived */
	for (uint32_t i = 0; i < OPEN_FRAMES_MAX; i++)
		if (of->open[i].tiles > 0 && of->open[i].frame < frame &&
			is_complete(rx, of, &of->open[i]))
			of->open[i].ended = true;
	end_ready(rx, of, b);
}

void
open_frames_event(struct rx *rx, struct open_frames *of, uint64_t frame, struct event_burst *b)
{
	struct open_frame *own = find_open(of, frame);

	counter_add(&rx->counters[RX_EVENTS], 1);
	rx->counted = true;
	if (own != NULL)
		own->event = own->ended = true;
	for (uint32_t i = 0; i < OPEN_FRAMES_MAX; i++) {
		struct open_frame *o = &of->open[i];

		if (o->tiles == 0 || o == own)
			continue;
		if (o->frame < frame) {
			o->ended = true;
			o->later++;
		} else if (own != NULL && o->begun < own->begun && o->frame - frame > of->skew) {
			end_frame(rx, of, o, b); /* the numbers have gone back */
		}
	}
	end_ready(rx, of, b);
}

/**
 * An open frame is in the slot of another one. Return true if the open frame is a stray one, and
 * the other one is not.
 */
static bool
yields(struct open_frames *of, uint64_t number, uint64_t frame)
{
	const struct open_frame *o = find_open(of, number);

	return o != NULL && is_stray(of, o) && is_near(of, frame);
}

/**
 * A message begins, and its slot has tiles of another frame.
 * @param number  of that frame
 */
static enum slot_state
wait_slot(struct rx *rx, struct open_frames *of, uint64_t frame, uint64_t number,
	struct event_burst *b)
{
	struct open_frame *o = find_open(of, number);
	const bool behind = frame < number;

	if (o == NULL) {
		counter_add(&of->slot_waits, 1);
		return SLOT_BUSY;
	}
	/* a single stray or forged message must not end a frame in progress */
	if (!o->ended && !is_late(of, o) &&
		(of->leap != frame + 1 || (behind && number - frame <= of->skew))) {
		of->leap = frame + 1;
		drop_tiles(rx, of, frame, 1, behind ? RX_LATE : RX_OUTLIER);
		return SLOT_DROP;
	}
	end_frame(rx, of, o, b);
	return SLOT_BUSY;
}

enum slot_state
open_frames_begin(
	struct rx *rx, struct open_frames *of, uint64_t frame, uint32_t tile, struct event_burst *b)
{
	const struct rx_messages *m = of->messages;
	const struct detector *d = rx->detector;
	const bool open = find_open(of, frame) != NULL;
	const uint64_t here = number_of(trailer_at(m, of->stream, frame, tile));

	for (uint32_t t = d->expect_from[of->stream]; !open && t < d->expect_to[of->stream]; t++) {
		const uint64_t number = number_of(trailer_at(m, of->stream, frame, t));

		if (likely(number == FRAME_TRAILER_NONE))
			continue;
		if (yields(of, number, frame)) {
			drop_open(rx, of, find_open(of, number), RX_OUTLIER);
			continue;
		}
		if (number != frame)
			return wait_slot(rx, of, frame, number, b);
		/* its event was generated: gangs may have found that this tile is missing */
		drop_tiles(rx, of, frame, 1, here == frame ? RX_DUPLICATE : RX_LATE);
		return SLOT_DROP;
	}
	of->leap = 0;
	if (unlikely(here == frame)) {
		drop_tiles(rx, of, frame, 1, RX_DUPLICATE);
		return SLOT_DROP;
	}
	return SLOT_FREE;
}
