/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Rx bursts. One lcore polls a queue; nothing here locks, allocates memory, logs or makes a
 * system call. When mbufs run out the packet stays where it is and the next burst tries again: the
 * port behaves like a link with pause frames, it never drops for want of buffers.
 */
#include <string.h>

#include <rte_atomic.h>
#include <rte_cycles.h>
#include <rte_memcpy.h>
#include <rte_mbuf_dyn.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "replay.h"
#include "replay_rewrite.h"

/* Packets chosen and filled together; their mbuf pointers stay in L1. */
#define BATCH 64u

/* Distance of the prefetches from the packet at work, about the latency of DRAM. */
#define AHEAD 8u

/* Packets lost on purpose or dropped per burst at most, so that a poll stays short. */
#define PASSED_MAX 8192u

/* Smallest room of a further segment, see replay_queue.c: a frame of 64 KiB needs 1,024. */
#define SEGMENTS_MAX 1024u

/* As many as there are, in one piece: a pool that is nearly empty still gives its last mbufs. */
static inline uint32_t
take_mbufs(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t n)
{
	while (n > 0 && rte_mempool_get_bulk(pool, (void **)mbufs, n) != 0)
		n /= 2;
	return n;
}

static inline void
give_back(struct rte_mempool *pool, struct rte_mbuf **mbufs, uint32_t n)
{
	if (n > 0)
		rte_mempool_put_bulk(pool, (void **)mbufs, n);
}

/*
 * A reference to `len` bytes of the packet from `off` on, or of its twin that is so far `away`.
 * Fails when the 16-bit count is full.
 *
 * A count of 1 is the port's own: nobody else holds the packet, so nobody can change the count and
 * it may be raised by a plain store. rte_mbuf_ext_refcnt_update() does that.
 */
static inline bool
attach(struct rte_mbuf *m, struct replay_packet *packet, intptr_t away, uint32_t off, uint32_t len)
{
	uint8_t *data = (uint8_t *)((intptr_t)packet->data + away) + off;

	if (unlikely(rte_mbuf_ext_refcnt_read(&packet->shared) == UINT16_MAX))
		return false;
	rte_mbuf_ext_refcnt_update(&packet->shared, 1);
	/* the driver asks EAL for IOVA as VA (RTE_VDEV_DRV_NEED_IOVA_AS_VA) */
	rte_pktmbuf_attach_extbuf(
		m, data, (rte_iova_t)(uintptr_t)data, (uint16_t)len, &packet->shared);
	m->ol_flags = RTE_MBUF_F_EXTERNAL; /* and nothing of its last life */
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	return true;
}

static inline void
fill_head(const struct replay_rxq *rxq, struct rte_mbuf *m, uint32_t ptype, uint32_t len)
{
	m->port = rxq->port;
	m->packet_type = ptype;
	m->vlan_tci = 0;
	m->pkt_len = len;
}

struct batch {
	struct replay_packet *packet[BATCH];
	uint64_t due[BATCH];		/* TSC, with pacing */
	uint32_t from[BATCH];		/* which of the chosen each mbuf holds */
	struct replay_pick pick[BATCH]; /* with faults */
	uint32_t n;			/* chosen */
	uint32_t used;			/* of these, handed out or dropped */
	uint32_t delivered;		/* of these, handed out */
	enum replay_wait wait;		/* if not all were used */
	uint16_t lost[2];		/* by REPLAY_LOSS, REPLAY_BURST_LOSS */
	uint64_t bytes;
};

/* Bytes of a packet as it arrives. */
static __rte_always_inline uint32_t
length(const struct batch *batch, uint32_t i, const struct replay_packet *packet, bool faulty)
{
	return faulty ? batch->pick[i].len : packet->len;
}

/* What a packet is as it arrives. */
static __rte_always_inline uint32_t
type(const struct batch *batch, uint32_t i, const struct replay_packet *packet, bool faulty)
{
	return faulty ? batch->pick[i].ptype : packet->ptype;
}

static inline void
prefetch_frame(const struct batch *batch, uint32_t i)
{
	const uint8_t *data;

	if (i >= batch->n)
		return;
	data = batch->packet[i]->data;
	rte_prefetch0(data);
	rte_prefetch0(data + REPLAY_LINE);
}

/* The rest of a packet from `off` on: by reference, unless it is to be changed. */
static __rte_always_inline bool
attach_rest(struct replay_rxq *rxq, struct batch *batch, uint32_t i, struct rte_mbuf *m,
	struct replay_packet *packet, intptr_t away, uint32_t off, bool faulty)
{
	const bool changed = faulty && unlikely(batch->pick[i].corrupt);
	bool attached;

	if (changed)
		attached = replay_spares_attach(
			rxq->spares, &rxq->dev->args.faults, &batch->pick[i], m, packet->data, off);
	else
		attached = attach(m, packet, away, off, length(batch, i, packet, faulty) - off);
	if (unlikely(!attached))
		batch->wait = changed ? REPLAY_WAIT_SPARE : REPLAY_WAIT_REFERENCE;
	return attached;
}

static __rte_always_inline void
rx_reference(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	uint32_t i, n;

	n = take_mbufs(rxq->rest_pool, bufs, batch->n);
	for (i = 0; i < n; i++) {
		struct replay_packet *packet = batch->packet[i];

		/* an RNIC leaves fresh headers in the cache, too */
		prefetch_frame(batch, i);
		if (!attach_rest(rxq, batch, i, bufs[i], packet, 0, 0, faulty))
			break;
		fill_head(rxq, bufs[i], type(batch, i, packet, faulty), bufs[i]->pkt_len);
		batch->bytes += bufs[i]->pkt_len;
	}
	give_back(rxq->rest_pool, bufs + i, n - i);
	batch->used = batch->delivered = i;
	rxq->count.by_reference += i;
}

static __rte_always_inline void
rx_reference_split(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	const struct replay_devargs *args = &rxq->dev->args;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const intptr_t *away = rxq->dev->capture->away;
	const uint32_t room = rxq->first_room;
	struct rte_mbuf *rest[BATCH];
	uint32_t i, n, nb_rest, nb_used = 0;

	nb_rest = take_mbufs(rxq->rest_pool, rest, batch->n);
	n = take_mbufs(rxq->first_pool, bufs, nb_rest);
	for (i = 0; i < RTE_MIN(n, AHEAD); i++)
		prefetch_frame(batch, i);
	for (i = 0; i < n; i++) {
		struct replay_packet *packet = batch->packet[i];
		struct rte_mbuf *m = bufs[i], *payload = rest[nb_used];
		const uint32_t whole = length(batch, i, packet, faulty);
		uint32_t len = RTE_MIN(whole, room);
		uint8_t *frame;

		prefetch_frame(batch, i + AHEAD);
		if (likely(whole > room)) {
			if (!attach_rest(rxq, batch, i, payload, packet, away[packet->chunk], room,
				    faulty))
				break;
			payload->port = rxq->port;
			payload->packet_type = 0;
			m->next = payload;
			m->nb_segs = 2;
			nb_used++;
		}
		m->data_off = rxq->first_off;
		m->ol_flags = rxq->first_flags;
		m->data_len = (uint16_t)len;
		fill_head(rxq, m, type(batch, i, packet, faulty), whole);
		frame = rte_pktmbuf_mtod(m, uint8_t *);
		rte_memcpy(frame, packet->data, len);
		if (rewrite)
			rewrite_fields(args, frame, packet->data, len, rxq->loop);
		if (faulty && unlikely(batch->pick[i].corrupt))
			replay_fault_flip(&args->faults, &batch->pick[i], frame, 0, len);
		batch->bytes += whole;
	}
	give_back(rxq->first_pool, bufs + i, n - i);
	give_back(rxq->rest_pool, rest + nb_used, nb_rest - nb_used);
	batch->used = batch->delivered = i;
	rxq->count.by_reference += nb_used;
	rxq->count.copied += i - nb_used; /* frames that end inside the header segment */
}

static inline bool
copy_segment(const struct replay_rxq *rxq, struct rte_mbuf *m, const uint8_t *from, uint32_t len)
{
	const struct net_replay_memory *memory = &rxq->dev->memory;

	if (unlikely(rxq->far))
		return memory->copy(memory->arg, rte_pktmbuf_mtod(m, void *), from, len) == 0;
	rte_memcpy(rte_pktmbuf_mtod(m, void *), from, len);
	return true;
}

/*
 * Copies what the first segment did not take into further ones. False when mbufs run out, or cannot
 * be written: then, too, the packet stays where it is.
 */
static inline bool
copy_rest(const struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf *head,
	const struct replay_packet *packet, uint32_t whole, uint32_t nb_rest)
{
	struct rte_mbuf *rest[SEGMENTS_MAX], *last = head;
	uint32_t off = rxq->first_room;

	if (rte_mempool_get_bulk(rxq->rest_pool, (void **)rest, nb_rest) != 0)
		return false;
	for (uint32_t i = 0; i < nb_rest; i++) {
		struct rte_mbuf *m = rest[i];
		uint32_t len = RTE_MIN(whole - off, (uint32_t)rxq->rest_room);

		m->data_off = rxq->rest_off;
		m->ol_flags = rxq->rest_flags;
		m->data_len = (uint16_t)len;
		m->pkt_len = len;
		m->packet_type = 0;
		m->port = rxq->port;
		if (unlikely(!copy_segment(rxq, m, packet->data + off, len))) {
			last->next = NULL;
			rte_pktmbuf_free(head->next);
			head->next = NULL;
			give_back(rxq->rest_pool, rest + i, nb_rest - i);
			batch->wait = REPLAY_WAIT_COPY;
			return false;
		}
		last->next = m;
		last = m;
		off += len;
	}
	head->nb_segs = (uint16_t)(1 + nb_rest);
	return true;
}

static __rte_always_inline void
rx_copy(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	const struct replay_devargs *args = &rxq->dev->args;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const uint32_t room = rxq->first_room;
	/* a split packet has its two segments without asking for SCATTER */
	const uint32_t most = rxq->scatter ? SEGMENTS_MAX : rxq->split;
	uint32_t i, n, out = 0;

	n = take_mbufs(rxq->first_pool, bufs, batch->n);
	for (i = 0; i < RTE_MIN(n, AHEAD); i++)
		prefetch_frame(batch, i);
	for (i = 0; i < n; i++) {
		const struct replay_packet *packet = batch->packet[i];
		const uint32_t whole = length(batch, i, packet, faulty);
		uint32_t len = RTE_MIN(whole, room), nb_rest = 0;
		struct rte_mbuf *m = bufs[out];

		prefetch_frame(batch, i + AHEAD);
		if (whole > room)
			nb_rest = (whole - room + rxq->rest_room - 1u) / rxq->rest_room;
		if (unlikely(nb_rest > most)) {
			rxq->count.oversize++;
			continue; /* its mbuf serves the next packet */
		}
		if (nb_rest != 0 && !copy_rest(rxq, batch, m, packet, whole, nb_rest))
			break;
		m->data_off = rxq->first_off;
		m->ol_flags = rxq->first_flags;
		m->data_len = (uint16_t)len;
		fill_head(rxq, m, type(batch, i, packet, faulty), whole);
		rte_memcpy(rte_pktmbuf_mtod(m, void *), packet->data, len);
		if (rewrite)
			rewrite_fields(
				args, rte_pktmbuf_mtod(m, uint8_t *), packet->data, len, rxq->loop);
		if (rewrite && nb_rest != 0)
			rewrite_rest(args, m, packet->data, rxq->loop);
		if (faulty && unlikely(batch->pick[i].corrupt))
			replay_fault_flip_chain(&args->faults, &batch->pick[i], m);
		batch->bytes += whole;
		batch->from[out++] = i;
	}
	give_back(rxq->first_pool, bufs + out, n - out);
	batch->used = i;
	batch->delivered = out;
	rxq->count.copied += out;
}

/* The clock of the port starts with the first burst on any of its queues. */
static inline uint64_t
clock_start(struct replay_rxq *rxq)
{
	uint64_t now = rte_rdtsc(), started = 0;

	if (__atomic_compare_exchange_n(
		    &rxq->dev->clock, &started, now, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		started = now;
	rxq->clock = started;
	return now;
}

/* The place in its loop of packet `own` of the queue. */
static inline uint32_t
position_of(struct replay_rxq *rxq, uint32_t own)
{
	uint32_t position;

	replay_fault_order(rxq, own, &position);
	return position;
}

/* Packets of the queue, over all loops, that are due at a time of the port's clock. */
static uint64_t
due_at(const struct replay_rxq *rxq, uint64_t cycles)
{
	const struct replay_dev *dev = rxq->dev;
	const uint32_t nb_packets = dev->capture->nb_packets;
	uint64_t due = UINT64_MAX;

	if (dev->pace.offset != NULL)
		due = replay_pace_passed(&dev->pace, cycles);
	if (dev->args.loops != 0)
		due = RTE_MIN(due, dev->args.loops * nb_packets);
	return replay_passed(rxq->mine, rxq->nb_mine, due, nb_packets);
}

/*
 * overrun=drop: packets that are due lie in a ring of nb_desc descriptors, and those that find it
 * full are lost. The oldest go, where a NIC would lose the newest: there are as many of them. How
 * many are due is computed and not counted: a poll that comes late takes no longer than any other.
 */
static void
fill_ring(struct replay_rxq *rxq, uint64_t now)
{
	const uint64_t taken = rxq->loop * rxq->nb_mine + rxq->next;
	uint64_t due, next;

	/* another queue may have started the clock since */
	if ((int64_t)(now - rxq->clock) < 0)
		return;
	due = due_at(rxq, now - rxq->clock);
	if (due <= taken)
		return;
	rxq->count.most_waiting = RTE_MAX(rxq->count.most_waiting, due - taken);
	if (due - taken <= rxq->nb_desc)
		return;
	next = due - rxq->nb_desc;
	rxq->count.missed += next - taken;
	rxq->loop = next / rxq->nb_mine;
	rxq->next = (uint32_t)(next % rxq->nb_mine);
}

uint32_t
replay_rx_queue_count(void *queue)
{
	const struct replay_rxq *rxq = queue;
	const uint64_t now = rte_rdtsc();
	uint64_t taken, due;

	if (rxq->done || rxq->nb_mine == 0)
		return 0;
	taken = rxq->loop * rxq->nb_mine + rxq->next;
	/* the clock starts with the first burst, and that finds the first packet */
	due = due_at(rxq, rxq->clock != 0 && now > rxq->clock ? now - rxq->clock : 0);
	return due > taken ? (uint32_t)RTE_MIN(due - taken, rxq->nb_desc) : 0;
}

/*
 * Chooses up to `max` packets of this queue, all of one loop, and returns the one to look at next
 * when all of them have been handed out.
 */
static inline uint32_t
choose(const struct replay_rxq *rxq, struct batch *batch, uint32_t max)
{
	const struct replay_capture *capture = rxq->dev->capture;
	const uint32_t *mine = rxq->mine + rxq->next;
	const uint32_t n = RTE_MIN(max, rxq->nb_mine - rxq->next);

	for (; batch->n < n; batch->n++) {
		batch->packet[batch->n] = replay_capture_packet(capture, mine[batch->n]);
		rte_prefetch0(batch->packet[batch->n]);
	}
	return rxq->next + n;
}

/* The same with a pace: those that are due. */
static inline uint32_t
choose_due(struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint64_t now)
{
	const struct replay_dev *dev = rxq->dev;
	const struct replay_pace_loop loop = replay_pace_loop(&dev->pace, rxq->loop);
	uint32_t k = rxq->next;

	for (; k < rxq->nb_mine && batch->n < max; k++) {
		const uint32_t i = rxq->mine[k];
		const uint64_t due =
			rxq->clock + replay_pace_due(&dev->pace, &rxq->burst, &loop, i);

		if ((int64_t)(now - due) < 0)
			break;
		batch->due[batch->n] = due;
		batch->packet[batch->n] = replay_capture_packet(dev->capture, i);
		rte_prefetch0(batch->packet[batch->n++]);
	}
	return k;
}

/* A packet that arrives is added; false when it has to wait for the next batch. */
static inline bool
pick(const struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint32_t index,
	const struct replay_pick *one, uint64_t due)
{
	struct replay_pick *p = &batch->pick[batch->n];

	if (batch->n == max)
		return false;
	*p = *one;
	batch->packet[batch->n] = replay_capture_packet(rxq->dev->capture, index);
	replay_fault_pick(&rxq->dev->args.faults, p, batch->packet[batch->n]);
	p->lost[0] = batch->lost[0];
	p->lost[1] = batch->lost[1];
	batch->due[batch->n++] = due;
	return true;
}

/* The same when things go wrong on the way. `again` is what rxq->again will be. */
static uint32_t
choose_faulty(struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint32_t *passed,
	uint64_t now, bool *again)
{
	const struct replay_dev *dev = rxq->dev;
	const struct replay_faults *faults = &dev->args.faults;
	const struct replay_pace_loop loop = replay_pace_loop(&dev->pace, rxq->loop);
	uint64_t due = now;
	uint32_t k;

	*again = rxq->again;
	for (k = rxq->next; k < rxq->nb_mine && batch->n < max; k++, *again = false) {
		struct replay_pick one = {.own = k};
		const uint32_t index = replay_fault_order(rxq, k, &one.position);

		one.nth = rxq->loop * dev->capture->nb_packets + one.position;
		one.moved = index != one.position;
		if (dev->pace.offset != NULL) {
			due = rxq->clock +
				replay_pace_due(&dev->pace, &rxq->burst, &loop, one.position);
			if ((int64_t)(now - due) < 0)
				break;
		}
		if (*passed == 0)
			break;
		if (replay_fault_hits(faults, REPLAY_LOSS, one.nth)) {
			batch->lost[0]++;
			--*passed;
			continue;
		}
		if (replay_fault_hits(faults, REPLAY_BURST_LOSS, one.nth / faults->run)) {
			batch->lost[1]++;
			--*passed;
			continue;
		}
		if (!*again)
			pick(rxq, batch, max, index, &one, due);
		if (!replay_fault_hits(faults, REPLAY_DUPLICATE, one.nth))
			continue;
		one.second = true;
		if (!pick(rxq, batch, max, index, &one, due)) {
			*again = true;
			break;
		}
	}
	return k;
}

/* Counts what happened to packets up to the first that was not used. */
static void
count_faults(struct replay_rxq *rxq, const struct batch *batch)
{
	uint64_t *count = rxq->count.fault;
	const uint16_t *lost = batch->lost;

	if (batch->used < batch->n)
		lost = batch->pick[batch->used].lost;
	count[REPLAY_LOSS] += lost[0];
	count[REPLAY_BURST_LOSS] += lost[1];
	for (uint32_t i = 0; i < batch->used; i++) {
		count[REPLAY_REORDER] += batch->pick[i].moved && !batch->pick[i].second;
		count[REPLAY_DUPLICATE] += batch->pick[i].second;
		count[REPLAY_CORRUPT] += batch->pick[i].corrupt;
		count[REPLAY_TRUNCATE] += batch->pick[i].truncated;
	}
}

static void
count_lateness(struct replay_rxq *rxq, const struct batch *batch, uint64_t now)
{
	const uint64_t ns_per_cycle = rxq->dev->ns_per_cycle;

	for (uint32_t i = 0; i < batch->used; i++) {
		const unsigned __int128 late =
			(unsigned __int128)(now - batch->due[i]) * ns_per_cycle;

		rxq->count.late[replay_late_bin((uint64_t)(late >> 32))]++;
	}
}

static void
stamp(const struct replay_rxq *rxq, const struct batch *batch, struct rte_mbuf **bufs, uint64_t now)
{
	const struct replay_dev *dev = rxq->dev;
	const bool paced = dev->pace.offset != NULL;

	for (uint32_t i = 0; i < batch->delivered; i++) {
		const uint32_t from = rxq->mode == REPLAY_COPY ? batch->from[i] : i;
		rte_mbuf_timestamp_t at = paced ? batch->due[from] : now;

		if (dev->args.stamp == REPLAY_STAMP_CAPTURED)
			at = batch->packet[from]->time_ns;
		*RTE_MBUF_DYNFIELD(bufs[i], dev->stamp_offset, rte_mbuf_timestamp_t *) = at;
		bufs[i]->ol_flags |= dev->stamp_flag;
	}
}

static __rte_always_inline void
fill(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	switch (rxq->mode) {
	case REPLAY_REFERENCE:
		rx_reference(rxq, batch, bufs, faulty);
		break;
	case REPLAY_REFERENCE_SPLIT:
		rx_reference_split(rxq, batch, bufs, faulty);
		break;
	case REPLAY_COPY:
		rx_copy(rxq, batch, bufs, faulty);
		break;
	}
}

/* Says how far the queue has come, with one store. */
static inline void
publish(struct replay_rxq *rxq, bool faulty)
{
	uint64_t place = rxq->loop * rxq->dev->capture->nb_packets;

	if (rxq->next != 0)
		place += faulty ? position_of(rxq, rxq->next) : rxq->mine[rxq->next];
	__atomic_store_n(&rxq->place, place, __ATOMIC_RELAXED);
}

static __rte_always_inline uint16_t
rx_burst(struct replay_rxq *rxq, struct rte_mbuf **bufs, uint16_t nb_bufs, bool faulty)
{
	const struct replay_dev *dev = rxq->dev;
	const bool paced = dev->pace.offset != NULL;
	const uint64_t loop = rxq->loop;
	const uint32_t next = rxq->next;
	uint32_t nb_rx = 0, passed = PASSED_MAX;
	uint64_t now = 0;

	if (paced)
		now = likely(rxq->clock != 0) ? rte_rdtsc() : clock_start(rxq);
	else if (rxq->stamps)
		now = rte_rdtsc();
	if (unlikely(rxq->done || rxq->nb_mine == 0))
		return 0;
	if (unlikely(dev->args.overrun_drops))
		fill_ring(rxq, now);
	while (nb_rx < nb_bufs) {
		uint32_t end, max = RTE_MIN((uint32_t)nb_bufs - nb_rx, BATCH);
		struct batch batch;
		bool again = false;

		batch.n = batch.used = batch.delivered = 0;
		batch.lost[0] = batch.lost[1] = 0;
		batch.bytes = 0;
		batch.wait = REPLAY_WAIT_MBUF;
		if (faulty)
			end = choose_faulty(rxq, &batch, max, &passed, now, &again);
		else if (paced)
			end = choose_due(rxq, &batch, max, now);
		else
			end = choose(rxq, &batch, max);
		if (batch.n != 0)
			fill(rxq, &batch, bufs + nb_rx, faulty);
		if (faulty)
			count_faults(rxq, &batch);
		if (paced)
			count_lateness(rxq, &batch, now);
		if (rxq->stamps)
			stamp(rxq, &batch, bufs + nb_rx, now);
		/* dropped packets count as passed over: a burst ends even where none fits */
		passed -= RTE_MIN(passed, batch.used - batch.delivered);
		nb_rx += batch.delivered;
		rxq->count.packets += batch.delivered;
		rxq->count.bytes += batch.bytes;
		if (batch.used < batch.n) {
			rxq->next = faulty ? batch.pick[batch.used].own : rxq->next + batch.used;
			rxq->again = faulty && batch.pick[batch.used].second;
			rxq->count.wait[batch.wait]++;
			break;
		}
		rxq->next = end;
		rxq->again = again;
		if (end == rxq->nb_mine) {
			rxq->next = 0;
			if (++rxq->loop == dev->args.loops) {
				rxq->done = true;
				break;
			}
		} else if (batch.n < max) {
			break; /* nothing more is due */
		}
		if (passed == 0)
			break;
	}
	if (rxq->next != next || rxq->loop != loop)
		publish(rxq, faulty);
	return (uint16_t)nb_rx;
}

void
replay_rx_seek(struct replay_rxq *rxq)
{
	const uint32_t position = (uint32_t)(rxq->place % rxq->dev->capture->nb_packets);
	const uint32_t window = rxq->dev->args.faults.window;

	rxq->window.number = UINT64_MAX;
	/* packets of windows before this one came before; inside, their order is looked at */
	rxq->next = replay_count_below(rxq->mine, rxq->nb_mine, position - position % window);
	while (rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) < position)
		rxq->next++;
	/* the second of two equal packets goes with the first */
	rxq->again &= rxq->next < rxq->nb_mine && position_of(rxq, rxq->next) == position;
}

uint16_t
replay_rx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_rxq *rxq = queue;
	uint16_t nb_rx = 0;

	/* whoever changes flow rules brings the fence between these two, replay_flow.c */
	__atomic_store_n(&rxq->in_burst, true, __ATOMIC_RELAXED);
	rte_compiler_barrier();
	if (likely(!__atomic_load_n(&rxq->dev->paused, __ATOMIC_ACQUIRE)))
		nb_rx = likely(!rxq->dev->args.faults.any) ? rx_burst(rxq, bufs, nb_bufs, false)
							   : rx_burst(rxq, bufs, nb_bufs, true);
	__atomic_store_n(&rxq->in_burst, false, __ATOMIC_RELEASE);
	return nb_rx;
}
