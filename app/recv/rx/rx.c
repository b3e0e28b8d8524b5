/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Places packets, keeps packets that wait or are held and retries them, and forwards packets of
 * streams that other RX roles own. Where packets come from is in transport.h.
 */

#include <string.h>

#include "counter.h"
#include "rx/rx.h"
#include "rx/transport.h"

const char *const rx_counter_names[RX_COUNTERS] = {
	[RX_PACKETS] = "packets",
	[RX_BYTES] = "bytes",
	[RX_BURSTS] = "bursts",
	[RX_WAITS] = "waits",
	[RX_EVENTS] = "events",
	[RX_EVENTS_LOST] = "events_lost",
	[RX_CREDITS] = "credits",
	[RX_HANDOFF_SENT] = "handoff",
	[RX_PLACED] = "placed",
	[RX_DUPLICATE] = "duplicate",
	[RX_LATE] = "late",
	[RX_OVERRUN] = "overrun",
	[RX_REFUSED] = "refused",
	[RX_OUTLIER] = "outlier",
	[RX_BEYOND] = "after_run",
	[RX_NO_RUN] = "no_run",
	[RX_OTHER] = "other_receiver",
	[RX_FOREIGN] = "foreign",
	[RX_CHECKSUM] = "bad_checksum",
	[RX_MISPLACED] = "misplaced",
	[RX_FRAGMENT] = "fragment",
	[RX_WRONG_LENGTH] = "wrong_length",
	[RX_MALFORMED] = "malformed",
	[RX_HANDOFF_FULL] = "handoff_full",
	[RX_STOPPED] = "at_stop",
};

#define FULL_POLLS 16 /* polls without a change between two checks of all pending packets */

static const enum rx_counter counter_of_place[FRAME_PLACES] = {
	[FRAME_PLACED] = RX_PLACED,
	[FRAME_PLACE_DUPLICATE] = RX_DUPLICATE,
	[FRAME_PLACE_LATE] = RX_LATE,
	[FRAME_PLACE_REFUSED] = RX_REFUSED,
	[FRAME_PLACE_OUTLIER] = RX_OUTLIER,
	[FRAME_PLACE_BEYOND] = RX_BEYOND,
	[FRAME_PLACE_NO_RUN] = RX_NO_RUN,
	[FRAME_PLACE_OTHER] = RX_OTHER,
	[FRAME_PLACE_OVERRUN] = RX_OVERRUN,
};

/** Count a packet of a frame after the last one of the run. */
static void
count_beyond(struct rx *rx, uint32_t stream, uint64_t frame)
{
	counter_set(&rx->beyond[stream].frame, frame);
	counter_add(&rx->beyond[stream].packets, 1);
}

/**
 * Forward an outgoing handoff buffer to the RX role that owns its streams.
 * @return false if packets are left in the buffer
 */
static bool
flush_handoff(struct rx *rx, uint32_t frx)
{
	const uint32_t n = rx->nb_handoff_out[frx];
	uint32_t sent;

	rx->counted = true;
	sent = rte_ring_enqueue_burst(
		rx->peers[frx]->handoff_ring, (void **)rx->handoff_out[frx], n, NULL);
	counter_add(&rx->counters[RX_HANDOFF_SENT], sent);
	if (likely(sent == n)) {
		rx->nb_handoff_out[frx] = 0;
		return true;
	}
	if (rx->drop_handoff) {
		rte_pktmbuf_free_bulk(&rx->handoff_out[frx][sent], n - sent);
		counter_add(&rx->counters[RX_HANDOFF_FULL], n - sent);
		rx->nb_handoff_out[frx] = 0;
		return true;
	}
	memmove(rx->handoff_out[frx], &rx->handoff_out[frx][sent],
		(n - sent) * sizeof(rx->handoff_out[frx][0]));
	rx->nb_handoff_out[frx] = n - sent;
	return false;
}

static bool
flush_handoffs(struct rx *rx)
{
	bool empty = true;

	for (uint32_t i = 0; i < rx->table->config.nb_rx; i++)
		if (rx->nb_handoff_out[i] > 0)
			empty &= flush_handoff(rx, i);
	return empty;
}

/**
 * Return true if a packet must wait because another packet of its stream waits, with an earlier or
 * the same frame. Otherwise the builder could open both frames between the two lookups. The later
 * packet would be placed first, the stream would seem to be done with the earlier frame, and that
 * frame could be closed.
 */
static bool
is_behind(const struct rx *rx, const struct rx_packet *p)
{
	const uint64_t waiting = rx->waiting[p->stream];

	return waiting != 0 && p->frame >= waiting;
}

/** Record the lowest number + 1 of the packets of each stream that wait. */
static void
wait_for(uint64_t waiting[DETECTOR_STREAMS_MAX], const struct rx_packet *p)
{
	uint64_t *lowest = &waiting[p->stream];

	/* the highest number is not recorded: + 1 it is 0, which means that no packet waits */
	if (p->frame != UINT64_MAX && (*lowest == 0 || p->frame + 1 < *lowest))
		counter_set(lowest, p->frame + 1);
}

static void
clear_waiting(struct rx *rx)
{
	for (uint32_t s = 0; s < rx->detector->streams; s++) {
		counter_set(&rx->waiting[s], 0);
		COUNTER_SET(rx->nb_held[s], 0);
	}
	memset(rx->nb_of_source, 0, sizeof(rx->nb_of_source));
	rx->crowded = false;
}

/**
 * Hold a packet, because its stream is out of window. One frame of packets is held for each such
 * stream, and does not stop a queue. Further packets wait if this RX role can place no other
 * packets, and are dropped otherwise.
 */
static enum frame_placement
hold(struct rx *rx, struct rx_packet *p, uint64_t frame)
{
	if (p->held == RX_NOT_HELD)
		p->tick = frame_rx_tick(rx->table);
	if (rx->nb_held[p->stream] < rx->detector->stream_packets) {
		COUNTER_SET(rx->nb_held[p->stream], rx->nb_held[p->stream] + 1);
		p->held = RX_HELD;
		return FRAME_PLACE_HOLD;
	}
	rx->crowded = true;
	p->held = RX_CROWDED;
	return frame_rx_is_early(rx->frx, p->stream) || frame_rx_is_away(rx->table, rx->frx)
		? FRAME_PLACE_WAIT
		: frame_rx_drop(rx->table, rx->frx, p->stream, frame);
}

/** Decide about a packet that is held. @return FRAME_PLACES: place it */
static enum frame_placement
check_held(struct rx *rx, struct rx_packet *p, uint64_t frame)
{
	switch (frame_rx_retry(rx->table, rx->frx, p->stream, frame, p->tick)) {
	case FRAME_RETRY_HOLD:
		return hold(rx, p, frame);
	case FRAME_RETRY_DROP:
		return frame_rx_drop(rx->table, rx->frx, p->stream, frame);
	case FRAME_RETRY_PLACE:
		break;
	}
	p->held = RX_NOT_HELD;
	return FRAME_PLACES;
}

/**
 * The window has moved: return true if a packet belongs to the old window. It does if it arrived
 * before the first held packet of its stream that belongs to the new window.
 */
static bool
is_of_old_window(struct rx *rx, const struct rx_packet *p, uint64_t frame)
{
	if (p->held >= RX_HELD && frame_rx_is_near(rx->table, frame))
		rx->arrived |= UINT64_C(1) << p->stream;
	return (rx->arrived >> p->stream & 1) == 0;
}

/** Check whether other packets must be placed before this one. @return FRAME_PLACES: no */
static enum frame_placement
check_order(struct rx *rx, struct rx_packet *p, uint64_t frame)
{
	if (rx->moved && is_of_old_window(rx, p, frame))
		return frame_rx_drop(rx->table, rx->frx, p->stream, frame);
	if (p->held >= RX_HELD && !rx->first)
		return check_held(rx, p, frame);
	p->held = RX_NOT_HELD;
	if (frame_rx_is_early(rx->frx, p->stream))
		return FRAME_PLACE_HOLD;
	/* a packet that continues the numbers after a restart does not follow those that wait */
	if (!is_behind(rx, p) || frame_rx_is_new_number(rx->table, rx->frx, p->stream, frame))
		return FRAME_PLACES;
	p->held = RX_BEHIND;
	return FRAME_PLACE_WAIT;
}

static bool
has_run(const struct rx *rx)
{
	return __atomic_load_n(&rx->table->window.state, __ATOMIC_ACQUIRE) != FRAME_WINDOW_CLOSED;
}

/** The counter of a packet that is not placed. @param retry  the packet has waited or was held */
static enum rx_counter
counter_of_drop(
	const struct rx *rx, const struct rx_packet *p, enum frame_placement result, bool retry)
{
	const enum rx_counter counter = counter_of_place[result];

	/* it came in the run that has been stopped meanwhile */
	if (retry && (counter == RX_OUTLIER || counter == RX_NO_RUN) &&
		p->frame <= FRAME_NUMBER_MAX && !has_run(rx))
		return RX_STOPPED;
	return counter;
}

/** Place a UDP packet; see rx_transport.place. */
static inline enum frame_placement
place_udp(struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest)
{
	struct rte_mbuf *m = p->m, *pixels = m;
	enum frame_placement result;
	uint64_t address;

	if (m->nb_segs > 1) {
		/* `next` is in the mbuf's second cache line: it is read only if it is used */
		pixels = m->next;
		address = rte_pktmbuf_mtod(pixels, uint64_t) + (uint64_t)rx->view;
	} else {
		address = (uint64_t)(uintptr_t)p->header + rx->detector->ops->header_bytes;
	}
	result = frame_rx_place(
		rx->table, rx->frx, p->stream, frame, p->packet, p->header, address, pixels);
	if (likely(result == FRAME_PLACED) && pixels != m) {
		/* the header segment is freed at once, the pixels stay */
		m->next = NULL;
		m->nb_segs = 1;
		*rest = m;
	}
	return result;
}

/**
 * Place packets. Packets that wait or are held are moved to the front. They do not delay packets
 * of earlier frames: a packet with a corrupt number waits alone.
 * @return packets that wait or are held
 */
static uint32_t
place(struct rx *rx, struct rx_packet *packets, uint32_t n)
{
	const bool retry = packets == rx->pending;
	struct rte_mbuf *release[RX_BURST];
	uint32_t released = 0, waiting = 0;
	uint64_t placed = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct rx_packet *p = &packets[i];
		struct rte_mbuf *rest = NULL;
		uint64_t frame = p->frame;
		enum frame_placement result = FRAME_PLACE_OTHER;

		if (likely(frame_rx_is_ours(rx->table, &frame))) {
			result = FRAME_PLACES;
			if (unlikely(rx->nb_pending + waiting > 0))
				result = check_order(rx, p, frame);
			if (likely(result == FRAME_PLACES))
				result = rx->transport->place == NULL
					? place_udp(rx, p, frame, &rest)
					: rx->transport->place(rx, p, frame, &rest);
			if (unlikely(result == FRAME_PLACE_HOLD && p->held == RX_NOT_HELD))
				result = hold(rx, p, frame);
		}
		if (unlikely(result >= FRAME_PLACE_WAIT)) {
			if (result == FRAME_PLACE_WAIT) {
				/* one that could not be held delays no other packet */
				if (p->held != RX_CROWDED)
					wait_for(rx->waiting, p);
				rx->nb_of_source[p->source]++;
			}
			packets[waiting++] = *p;
			continue;
		}
		if (likely(result == FRAME_PLACED)) {
			placed += rx_packets_of(rx, p->stream);
			if (rest == NULL)
				continue;
		} else {
			const enum rx_counter counter = counter_of_drop(rx, p, result, retry);

			rx_count_drop(rx, p, counter);
			if (result <= FRAME_PLACE_OUTLIER && counter != RX_STOPPED)
				rx_note_drop(rx, p->stream, p->frame, counter);
			else if (counter == RX_BEYOND)
				count_beyond(rx, p->stream, p->frame);
			rest = p->m;
		}
		release[released++] = rest;
		if (unlikely(released == RTE_DIM(release))) {
			rte_pktmbuf_free_bulk(release, released);
			released = 0;
		}
	}
	counter_add(&rx->counters[RX_PLACED], placed);
	if (released > 0)
		rte_pktmbuf_free_bulk(release, released);
	return waiting;
}

/**
 * Return true if there is no room for another burst of a source. Only this source is then stopped,
 * because streams that are far ahead must not keep streams of other sources from open frames.
 */
static bool
is_full(const struct rx *rx, uint32_t source)
{
	return rx->nb_of_source[source] > RX_PENDING_FULL ||
		rx->nb_pending > RX_PENDING_MAX - RX_BURST;
}

static bool
any_is_full(const struct rx *rx)
{
	if (likely(rx->nb_pending <= RX_PENDING_FULL))
		return false;
	for (uint32_t i = 0; i <= rx->nb_queues; i++)
		if (is_full(rx, i))
			return true;
	return false;
}

/**
 * Return true if all sources are full, so that no packet can be placed before the waiting ones. A
 * handoff ring that was never used does not count.
 */
static bool
all_are_full(const struct rx *rx)
{
	for (uint32_t q = 0; q < rx->nb_queues; q++)
		if (!is_full(rx, q))
			return false;
	return !rx->handoff_used || is_full(rx, rx->nb_queues);
}

/** Retry pending packets. @return packets that are no longer pending */
static uint32_t
place_pending(struct rx *rx)
{
	const uint32_t before = rx->nb_pending;

	if (frame_rx_is_moving(rx->table, rx->frx))
		return 0;
	rx->counted = true;
	clear_waiting(rx);
	rx->first = frame_rx_begin_retry(rx->table, rx->frx, &rx->moved);
	rx->arrived = 0;
	COUNTER_SET(rx->nb_pending, place(rx, rx->pending, before));
	rx->first = rx->moved = false;
	frame_rx_end_retry(rx->frx);
	return before - rx->nb_pending;
}

/**
 * No room is left: drop waiting packets of streams that are out of window, so that other streams
 * have room.
 */
static void
drop_blocking(struct rx *rx)
{
	uint64_t waiting[DETECTOR_STREAMS_MAX] = {0}, strays;
	uint32_t kept = 0;

	for (uint32_t i = 0; i < rx->nb_pending; i++)
		if (rx->pending[i].held != RX_HELD)
			wait_for(waiting, &rx->pending[i]);
	strays = frame_rx_blocking_streams(rx->table, rx->frx, waiting);
	if (strays == 0)
		return;
	rx->counted = true;
	for (uint32_t i = 0; i < rx->nb_pending; i++) {
		const struct rx_packet *p = &rx->pending[i];
		uint64_t frame = p->frame;

		if ((strays >> p->stream & 1) == 0 || p->held == RX_HELD) {
			rx->pending[kept++] = *p;
			continue;
		}
		if (frame_rx_is_ours(rx->table, &frame)) {
			if (p->held != RX_CROWDED)
				frame_rx_vote_blocking(rx->table, rx->frx, p->stream, frame);
			frame_rx_drop(rx->table, rx->frx, p->stream, frame);
		}
		rx_count_drop(rx, p, RX_OUTLIER);
		rx_note_drop(rx, p->stream, p->frame, RX_OUTLIER);
		counter_set(&rx->waiting[p->stream], 0);
		rx->nb_of_source[p->source]--;
		rte_pktmbuf_free(p->m);
	}
	COUNTER_SET(rx->nb_pending, kept);
}

/** Publish which frame the builder should open next. */
static void
publish_waits(struct rx *rx)
{
	uint64_t lowest = UINT64_MAX;

	if (likely(rx->nb_pending == 0)) {
		frame_rx_waits_for(rx->frx, 0, false);
		frame_rx_crowd(rx->frx, rx->crowded);
		rx->crowded = false;
		return;
	}
	for (uint32_t i = 0; i < rx->nb_pending; i++) {
		uint64_t frame = rx->pending[i].frame;

		if (rx->pending[i].held == RX_NOT_HELD && frame_rx_is_ours(rx->table, &frame))
			lowest = RTE_MIN(lowest, frame);
	}
	/* if all pending packets are held, no frame is requested: UINT64_MAX + 1 is 0 */
	frame_rx_waits_for(rx->frx, lowest + 1, all_are_full(rx));
	frame_rx_crowd(rx->frx, rx->crowded);
}

void
rx_take(struct rx *rx, struct rx_packet *packets, uint32_t n)
{
	const uint32_t waiting = place(rx, packets, n);

	rx->counted = true;
	if (unlikely(waiting > 0)) {
		memcpy(&rx->pending[rx->nb_pending], packets, waiting * sizeof(packets[0]));
		COUNTER_SET(rx->nb_pending, rx->nb_pending + waiting);
	}
}

/**
 * Take a few bursts of each queue and of the handoff ring, while there is room for pending packets.
 * Queues are not polled while an outgoing handoff buffer is not empty. The handoff ring is always
 * polled, because its packets never enter an outgoing handoff buffer. In this way two RX roles
 * whose handoff rings are full do not wait for each other.
 */
static uint32_t
poll_sources(struct rx *rx)
{
	uint32_t total = 0, n;
	bool more = true;

	/* round-robin: no queue gets ahead of the others by more than a burst */
	for (uint32_t b = 0; b < RX_BURSTS_A_POLL && more; b++) {
		more = false;
		for (uint32_t q = 0; q < rx->nb_queues && flush_handoffs(rx); q++) {
			if (is_full(rx, q)) {
				if (rx->transport->hold != NULL)
					rx->transport->hold(rx, q);
				continue;
			}
			n = rx->transport->poll(rx, q);
			more |= n == RX_BURST;
			total += n;
		}
		if (is_full(rx, rx->nb_queues))
			continue;
		n = rx->transport->poll(rx, rx->nb_queues);
		more |= n == RX_BURST;
		total += n;
	}
	return total;
}

static uint64_t
pending_packets(const struct rx *rx)
{
	uint64_t n = 0;

	if (likely(!rx->transport->events))
		return rx->nb_pending;
	for (uint32_t i = 0; i < rx->nb_pending; i++)
		n += rx_packets_of(rx, rx->pending[i].stream);
	return n;
}

/** Drop all pending packets, and those in the handoff ring and the outgoing buffers. */
static void
drop_waiting(struct rx *rx)
{
	struct rte_mbuf *burst[RX_BURST];
	uint32_t n;

	for (uint32_t i = 0; i < rx->nb_pending; i++) {
		uint64_t frame = rx->pending[i].frame;

		if (frame_rx_is_ours(rx->table, &frame))
			frame_rx_drop(rx->table, rx->frx, rx->pending[i].stream, frame);
		rx_count_drop(rx, &rx->pending[i], RX_STOPPED);
		rte_pktmbuf_free(rx->pending[i].m);
	}
	COUNTER_SET(rx->nb_pending, 0);
	clear_waiting(rx);
	for (uint32_t i = 0; i < rx->table->config.nb_rx; i++) {
		rte_pktmbuf_free_bulk(rx->handoff_out[i], rx->nb_handoff_out[i]);
		counter_add(&rx->counters[RX_STOPPED], rx->nb_handoff_out[i]);
		rx->nb_handoff_out[i] = 0;
	}
	while ((n = rte_ring_dequeue_burst(rx->handoff_ring, (void **)burst, RX_BURST, NULL)) > 0) {
		rte_pktmbuf_free_bulk(burst, n);
		rx->handoff_taken += n;
		counter_add(&rx->counters[RX_STOPPED], n);
	}
	rx->counted = true;
	frame_rx_waits_for(rx->frx, 0, false);
	frame_rx_crowd(rx->frx, false);
}

/*
 * The copies are written in turn, so that readers need not wait for an RX role that was interrupted
 * while it wrote. A reader that sees a new value in the copy it reads also sees the version before
 * it, which is newer than the one it began with.
 */
void
rx_publish(struct rx *rx)
{
	const uint64_t version = rx->version + 1;
	struct rx_counts *to = &rx->published[version % 2];
	uint64_t pending = pending_packets(rx);

	for (uint32_t i = 0; i < rx->table->config.nb_rx; i++)
		pending += rx->nb_handoff_out[i];
	__atomic_thread_fence(__ATOMIC_RELEASE);
	for (uint32_t c = 0; c < RX_COUNTERS; c++)
		counter_set(&to->counters[c], rx->counters[c]);
	counter_set(&to->handoff_taken, rx->handoff_taken);
	counter_set(&to->pending, pending);
	__atomic_store_n(&rx->version, version, __ATOMIC_RELEASE);
}

void
rx_get_counts(const struct rx *rx, struct rx_counts *counts)
{
	uint64_t version;

	do {
		version = __atomic_load_n(&rx->version, __ATOMIC_ACQUIRE);
		counters_get(counts, &rx->published[version % 2], sizeof(*counts));
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
	} while (__atomic_load_n(&rx->version, __ATOMIC_RELAXED) != version);
}

uint64_t
rx_polls(const struct rx *rx)
{
	return __atomic_load_n(&rx->polls, __ATOMIC_ACQUIRE);
}

/** The poll ends. */
static void
end_poll(struct rx *rx)
{
	if (rx->counted)
		rx_publish(rx);
	rx->counted = false;
	__atomic_store_n(&rx->polls, rx->polls + 1, __ATOMIC_RELEASE);
}

int
rx_poll(void *arg)
{
	struct rx *rx = arg;
	uint32_t n = 0, received;
	bool try = false;

	frame_rx_quiescent(rx->table, rx->frx);
	if (unlikely(__atomic_load_n(&rx->stop, __ATOMIC_ACQUIRE))) {
		drop_waiting(rx);
		frame_rx_reclaim(rx->table, rx->frx, UINT32_MAX);
		end_poll(rx);
		if (rx->transport->leave == NULL || rx->transport->leave(rx))
			__atomic_store_n(&rx->stopped, true, __ATOMIC_RELEASE);
		return 0;
	}
	if (rx->nb_pending > 0) {
		/* read before any lookup: later changes are handled in the next poll */
		const uint64_t changes = frame_rx_changes(rx->table);

		/* while the window is full, polls must cost a gang on this lcore little, so packets
		 * are retried only if the builder has changed something */
		try = changes != rx->changes;
		rx->changes = changes;
		if (try)
			n = place_pending(rx);
	} else {
		frame_rx_set_clean(rx->frx);
	}
	received = poll_sources(rx);
	flush_handoffs(rx);
	/* check all pending packets: while nothing changes, this is repeated only now and then */
	if (unlikely(any_is_full(rx)) && (try || received > 0 || rx->polls % FULL_POLLS == 0))
		drop_blocking(rx);
	if (rx->nb_pending > 0) {
		counter_add(&rx->counters[RX_WAITS], 1);
		rx->counted = true;
	}
	if (try || received > 0)
		publish_waits(rx);
	end_poll(rx);
	/* free slightly more mbufs than were received: the mempool cache keeps its level, and the
	 * pool is not used. If nothing was received, there is time for more. */
	n += frame_rx_reclaim(rx->table, rx->frx,
		received > 0 ? RTE_MAX(received + received / 8, (uint32_t)RX_BURST)
			     : RX_BURSTS_A_POLL * RX_BURST);
	return n + received != 0;
}
