/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bursts. One lcore polls a queue; nothing here locks, allocates memory, logs or makes a
 * system call. When mbufs run out the packet stays where it is and the next burst tries again: the
 * port behaves like a link with pause frames, it never drops for want of buffers.
 */
#include <string.h>

#include <rte_atomic.h>
#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_memcpy.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "replay.h"

/* Packets chosen and filled together; their mbuf pointers stay in L1. */
#define BATCH 64u

/* Distance of the prefetches from the packet at work, about the latency of DRAM. */
#define AHEAD 8u

/* Other queues' packets passed over per burst at most, so that a poll stays short. */
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

/* A copy of constant size is one instruction; fields have these sizes, nearly always. */
static inline void
store_field(uint8_t *to, uint64_t value, uint32_t length)
{
	switch (length) {
	case 8:
		memcpy(to, &value, 8);
		break;
	case 4:
		memcpy(to, &value, 4);
		break;
	default:
		memcpy(to, &value, length);
		break;
	}
}

/*
 * Adds the steps of `loop` rounds to the fields that lie inside the first `len` bytes. The captured
 * value is read from the capture: reading back what was just copied would wait for the stores.
 */
static inline void
rewrite_fields(const struct replay_devargs *args, uint8_t *frame, const uint8_t *captured,
	uint32_t len, uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		const struct replay_rewrite *field = &args->rewrites[i];
		const uint32_t spare = 64 - 8 * field->length;
		const uint64_t add = loop * field->step;
		const uint32_t off = field->offset;
		uint64_t value = 0;

		if (unlikely(off + field->length > len))
			continue;
		if (likely(off + 8 <= len))
			memcpy(&value, captured + off, 8);
		else
			memcpy(&value, captured + off, field->length);
		if (field->big_endian) {
			/* the field is the upper bytes; what is added does not reach those below */
			value = rte_cpu_to_be_64(rte_be_to_cpu_64(value) + (add << spare));
		} else {
			value = rte_cpu_to_le_64(rte_le_to_cpu_64(value) + add);
		}
		store_field(frame + off, value, field->length);
	}
}

/* The same for a frame in several segments: out of the chain, and back. */
static void
rewrite_chain(const struct replay_devargs *args, struct rte_mbuf *head, uint64_t loop)
{
	for (uint32_t i = 0; i < args->nb_rewrites; i++) {
		struct replay_devargs one = {.nb_rewrites = 1, .rewrites = {args->rewrites[i]}};
		struct replay_rewrite *field = &one.rewrites[0];
		uint8_t bytes[8], *at[8];
		uint32_t off = field->offset;
		struct rte_mbuf *m = head;

		if (off + field->length > head->pkt_len)
			continue;
		field->offset = 0;
		for (uint32_t b = 0; b < field->length; b++, off++) {
			for (; off >= m->data_len; m = m->next)
				off -= m->data_len;
			at[b] = rte_pktmbuf_mtod_offset(m, uint8_t *, off);
			bytes[b] = *at[b];
		}
		rewrite_fields(&one, bytes, bytes, field->length, loop);
		for (uint32_t b = 0; b < field->length; b++)
			*at[b] = bytes[b];
	}
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
fill_head(const struct replay_rxq *rxq, struct rte_mbuf *m, const struct replay_packet *packet)
{
	m->port = rxq->port;
	m->packet_type = packet->ptype;
	m->vlan_tci = 0;
	m->pkt_len = packet->len;
}

struct batch {
	uint32_t index[BATCH];
	uint32_t n;	    /* chosen */
	uint32_t used;	    /* of these, handed out or dropped */
	uint32_t delivered; /* of these, handed out */
	uint64_t bytes;
};

static inline void
prefetch_frame(const struct replay_rxq *rxq, const struct batch *batch, uint32_t i)
{
	const uint8_t *data;

	if (i >= batch->n)
		return;
	data = rxq->dev->capture->packets[batch->index[i]].data;
	rte_prefetch0(data);
	rte_prefetch0(data + REPLAY_LINE);
}

static inline void
rx_reference(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs)
{
	struct replay_packet *packets = rxq->dev->capture->packets;
	uint32_t i, n;

	n = take_mbufs(rxq->rest_pool, bufs, batch->n);
	for (i = 0; i < n; i++) {
		struct replay_packet *packet = &packets[batch->index[i]];

		/* an RNIC leaves fresh headers in the cache, too */
		prefetch_frame(rxq, batch, i);
		if (!attach(bufs[i], packet, 0, 0, packet->len))
			break;
		fill_head(rxq, bufs[i], packet);
		batch->bytes += packet->len;
	}
	give_back(rxq->rest_pool, bufs + i, n - i);
	batch->used = batch->delivered = i;
	rxq->count.by_reference += i;
}

static inline void
rx_reference_split(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs)
{
	const struct replay_devargs *args = &rxq->dev->args;
	struct replay_packet *packets = rxq->dev->capture->packets;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const intptr_t *away = rxq->dev->capture->away;
	const uint32_t room = rxq->first_room;
	struct rte_mbuf *rest[BATCH];
	uint32_t i, n, nb_rest, nb_used = 0;

	nb_rest = take_mbufs(rxq->rest_pool, rest, batch->n);
	n = take_mbufs(rxq->first_pool, bufs, nb_rest);
	for (i = 0; i < RTE_MIN(n, AHEAD); i++)
		prefetch_frame(rxq, batch, i);
	for (i = 0; i < n; i++) {
		struct replay_packet *packet = &packets[batch->index[i]];
		struct rte_mbuf *m = bufs[i], *payload = rest[nb_used];
		uint32_t len = RTE_MIN((uint32_t)packet->len, room);
		uint8_t *frame;

		prefetch_frame(rxq, batch, i + AHEAD);
		if (likely(packet->len > room)) {
			if (!attach(payload, packet, away[packet->chunk], room, packet->len - room))
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
		fill_head(rxq, m, packet);
		frame = rte_pktmbuf_mtod(m, uint8_t *);
		rte_memcpy(frame, packet->data, len);
		if (rewrite)
			rewrite_fields(args, frame, packet->data, len, rxq->loop);
		batch->bytes += packet->len;
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
copy_rest(const struct replay_rxq *rxq, struct rte_mbuf *head, const struct replay_packet *packet,
	uint32_t nb_rest)
{
	struct rte_mbuf *rest[SEGMENTS_MAX], *last = head;
	uint32_t off = rxq->first_room;

	if (rte_mempool_get_bulk(rxq->rest_pool, (void **)rest, nb_rest) != 0)
		return false;
	for (uint32_t i = 0; i < nb_rest; i++) {
		struct rte_mbuf *m = rest[i];
		uint32_t len = RTE_MIN((uint32_t)packet->len - off, (uint32_t)rxq->rest_room);

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
			return false;
		}
		last->next = m;
		last = m;
		off += len;
	}
	head->nb_segs = (uint16_t)(1 + nb_rest);
	return true;
}

static inline void
rx_copy(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs)
{
	const struct replay_devargs *args = &rxq->dev->args;
	const struct replay_packet *packets = rxq->dev->capture->packets;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const uint32_t room = rxq->first_room;
	/* a split packet has its two segments without asking for SCATTER */
	const uint32_t most = rxq->scatter ? SEGMENTS_MAX : rxq->split;
	uint32_t i, n, out = 0;

	n = take_mbufs(rxq->first_pool, bufs, batch->n);
	for (i = 0; i < RTE_MIN(n, AHEAD); i++)
		prefetch_frame(rxq, batch, i);
	for (i = 0; i < n; i++) {
		const struct replay_packet *packet = &packets[batch->index[i]];
		uint32_t len = RTE_MIN((uint32_t)packet->len, room), nb_rest = 0;
		struct rte_mbuf *m = bufs[out];

		prefetch_frame(rxq, batch, i + AHEAD);
		if (packet->len > room)
			nb_rest = (packet->len - room + rxq->rest_room - 1u) / rxq->rest_room;
		if (unlikely(nb_rest > most)) {
			rxq->count.oversize++;
			continue; /* its mbuf serves the next packet */
		}
		if (nb_rest != 0 && !copy_rest(rxq, m, packet, nb_rest))
			break;
		m->data_off = rxq->first_off;
		m->ol_flags = rxq->first_flags;
		m->data_len = (uint16_t)len;
		fill_head(rxq, m, packet);
		rte_memcpy(rte_pktmbuf_mtod(m, void *), packet->data, len);
		if (rewrite && nb_rest == 0)
			rewrite_fields(
				args, rte_pktmbuf_mtod(m, uint8_t *), packet->data, len, rxq->loop);
		else if (rewrite)
			rewrite_chain(args, m, rxq->loop);
		batch->bytes += packet->len;
		out++;
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

/* TSC at which a packet is due, never less than the exact time. */
static inline uint64_t
due(const struct replay_rxq *rxq, uint64_t nth)
{
	unsigned __int128 cycles = (unsigned __int128)nth * rxq->dev->tsc_period;

	return rxq->clock + (uint64_t)((cycles + UINT32_MAX) >> 32);
}

/*
 * Chooses up to `max` packets of this queue, all of one loop, and returns the packet to look at
 * when all of them have been handed out. At most `passed` packets of other queues are passed over.
 */
static inline uint32_t
choose(const struct replay_rxq *rxq, struct batch *batch, uint32_t max, uint32_t *passed,
	uint64_t now)
{
	const struct replay_dev *dev = rxq->dev;
	const uint32_t nb_packets = dev->capture->nb_packets;
	uint32_t i = rxq->next;

	batch->n = 0;
	for (; i < nb_packets && batch->n < max; i++) {
		if (dev->queue_of[i] != rxq->id) {
			if (*passed == 0)
				break;
			--*passed;
			continue;
		}
		if (dev->tsc_period != 0 &&
			(int64_t)(now - due(rxq, rxq->loop * nb_packets + i)) < 0)
			break;
		rte_prefetch0(&dev->capture->packets[i]);
		batch->index[batch->n++] = i;
	}
	return i;
}

static inline uint16_t
rx_burst(struct replay_rxq *rxq, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	const struct replay_dev *dev = rxq->dev;
	uint32_t nb_rx = 0, passed = PASSED_MAX;
	uint64_t now = 0;

	if (dev->tsc_period != 0)
		now = likely(rxq->clock != 0) ? rte_rdtsc() : clock_start(rxq);
	if (unlikely(rxq->done || dev->packets_of[rxq->id] == 0))
		return 0;
	while (nb_rx < nb_bufs) {
		struct batch batch;
		uint32_t end, max = RTE_MIN((uint32_t)nb_bufs - nb_rx, BATCH);

		batch.used = batch.delivered = 0;
		batch.bytes = 0;
		end = choose(rxq, &batch, max, &passed, now);
		if (batch.n != 0) {
			switch (rxq->mode) {
			case REPLAY_REFERENCE:
				rx_reference(rxq, &batch, bufs + nb_rx);
				break;
			case REPLAY_REFERENCE_SPLIT:
				rx_reference_split(rxq, &batch, bufs + nb_rx);
				break;
			case REPLAY_COPY:
				rx_copy(rxq, &batch, bufs + nb_rx);
				break;
			}
		}
		/* dropped packets count as passed over: a burst ends even where none fits */
		passed -= RTE_MIN(passed, batch.used - batch.delivered);
		nb_rx += batch.delivered;
		rxq->count.packets += batch.delivered;
		rxq->count.bytes += batch.bytes;
		if (batch.used < batch.n) {
			rxq->next = batch.index[batch.used];
			rxq->count.no_mbuf++;
			break;
		}
		rxq->next = end;
		if (end == dev->capture->nb_packets) {
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
	return (uint16_t)nb_rx;
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
		nb_rx = rx_burst(rxq, bufs, nb_bufs);
	__atomic_store_n(&rxq->in_burst, false, __ATOMIC_RELEASE);
	return nb_rx;
}

uint16_t
replay_tx_burst(void *queue, struct rte_mbuf **bufs, uint16_t nb_bufs)
{
	struct replay_txq *txq = queue;

	for (uint16_t i = 0; i < nb_bufs; i++)
		txq->bytes += bufs[i]->pkt_len;
	txq->packets += nb_bufs;
	rte_pktmbuf_free_bulk(bufs, nb_bufs);
	return nb_bufs;
}
