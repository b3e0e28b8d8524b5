/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fills mbufs with the packets chosen for a burst: by reference (split or not) or as copies. Only
 * replay_rx.c includes it. Everything is inlined there, with and without faults.
 */
#ifndef REPLAY_FILL_H
#define REPLAY_FILL_H

#include <string.h>

#include <rte_memcpy.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>

#include "replay.h"
#include "replay_rewrite.h"

/* Builds with sanitizers do not force it: clang would compile replay_rx.c for a minute. */
#ifndef REPLAY_INLINE
#define REPLAY_INLINE __rte_always_inline
#endif

/* Packets chosen and filled together. Their mbuf pointers stay in L1. */
#define BATCH 64u

/* Prefetch distance in packets, about the latency of DRAM. */
#define AHEAD 8u

/* A frame of 64 KiB in segments of the smallest room, see replay_queue.c: 1,024 segments. */
#define SEGMENTS_MAX 1024u

/* Allocates up to n mbufs in bulk. A pool that is nearly empty still provides its last mbufs. */
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
 * Attaches a reference to `len` bytes of the packet from offset `off`, or of its copy at distance
 * `copy_offset`. Fails if the 16-bit reference count is at its maximum.
 *
 * A count of 1 is the port's own reference: no other thread holds the packet or can change the
 * count, so a plain store may increment it. rte_mbuf_ext_refcnt_update() does that.
 */
static inline bool
attach(struct rte_mbuf *m, struct replay_packet *packet, intptr_t copy_offset, uint32_t off,
	uint32_t len)
{
	uint8_t *data = (uint8_t *)((intptr_t)packet->data + copy_offset) + off;

	if (unlikely(rte_mbuf_ext_refcnt_read(&packet->shared) == UINT16_MAX))
		return false;
	rte_mbuf_ext_refcnt_update(&packet->shared, 1);
	/* the driver requires IOVA as VA (RTE_VDEV_DRV_NEED_IOVA_AS_VA) */
	rte_pktmbuf_attach_extbuf(
		m, data, (rte_iova_t)(uintptr_t)data, (uint16_t)len, &packet->shared);
	m->ol_flags = RTE_MBUF_F_EXTERNAL; /* clear the flags of its previous use */
	m->data_len = (uint16_t)len;
	m->pkt_len = len;
	return true;
}

/* Call it after ol_flags were set. */
static inline void
fill_head(const struct replay_rxq *rxq, struct rte_mbuf *m, uint32_t ptype, uint32_t checksums,
	uint32_t len)
{
	m->ol_flags |= checksums & rxq->checksums;
	m->port = rxq->port;
	m->packet_type = ptype;
	m->vlan_tci = 0;
	m->pkt_len = len;
}

struct batch {
	struct replay_packet *packet[BATCH];
	uint64_t due[BATCH];		/* TSC, with pacing */
	uint32_t from[BATCH];		/* index in `packet` of each mbuf */
	struct replay_pick pick[BATCH]; /* with faults */
	uint32_t n;			/* packets chosen */
	uint32_t used;			/* of these, delivered or dropped */
	uint32_t delivered;		/* of these, delivered */
	enum replay_wait wait;		/* reason if not all were used */
	uint16_t lost[2];		/* by REPLAY_LOSS, REPLAY_BURST_LOSS */
	uint64_t bytes;
};

/* Length of a packet as delivered. */
static REPLAY_INLINE uint32_t
length(const struct batch *batch, uint32_t i, const struct replay_packet *packet, bool faulty)
{
	return faulty ? batch->pick[i].len : packet->len;
}

/* packet_type of a packet as delivered. */
static REPLAY_INLINE uint32_t
type(const struct batch *batch, uint32_t i, const struct replay_packet *packet, bool faulty)
{
	return faulty ? batch->pick[i].ptype : packet->ptype;
}

/* Checksum flags of a packet as delivered. A fault changes a packet after the port's check. */
static REPLAY_INLINE uint32_t
checksums(const struct batch *batch, uint32_t i, const struct replay_packet *packet, bool faulty)
{
	const bool changed = faulty && (batch->pick[i].corrupt || batch->pick[i].truncated);

	return changed ? 0 : packet->checksums;
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

/* Attaches the rest of a packet from offset `off`: by reference, unless it must be changed. */
static REPLAY_INLINE bool
attach_rest(struct replay_rxq *rxq, struct batch *batch, uint32_t i, struct rte_mbuf *m,
	struct replay_packet *packet, intptr_t copy_offset, uint32_t off, bool faulty)
{
	const bool changed = faulty && unlikely(batch->pick[i].corrupt);
	bool attached;

	if (changed)
		attached = replay_spares_attach(
			rxq->spares, &rxq->dev->args.faults, &batch->pick[i], m, packet->data, off);
	else
		attached =
			attach(m, packet, copy_offset, off, length(batch, i, packet, faulty) - off);
	if (unlikely(!attached))
		batch->wait = changed ? REPLAY_WAIT_SPARE : REPLAY_WAIT_REFERENCE;
	return attached;
}

static REPLAY_INLINE void
rx_reference(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	uint32_t i, n;

	n = take_mbufs(rxq->rest_pool, bufs, batch->n);
	for (i = 0; i < n; i++) {
		struct replay_packet *packet = batch->packet[i];

		/* an RNIC also leaves new headers in the cache */
		prefetch_frame(batch, i);
		if (!attach_rest(rxq, batch, i, bufs[i], packet, 0, 0, faulty))
			break;
		fill_head(rxq, bufs[i], type(batch, i, packet, faulty),
			checksums(batch, i, packet, faulty), bufs[i]->pkt_len);
		batch->bytes += bufs[i]->pkt_len;
	}
	give_back(rxq->rest_pool, bufs + i, n - i);
	batch->used = batch->delivered = i;
	counter_add(&rxq->count.by_reference, i);
}

static REPLAY_INLINE void
rx_reference_split(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	const struct replay_devargs *args = &rxq->dev->args;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const intptr_t *copy_offset = rxq->dev->capture->copy_offset;
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
			if (!attach_rest(rxq, batch, i, payload, packet, copy_offset[packet->chunk],
				    room, faulty))
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
		fill_head(rxq, m, type(batch, i, packet, faulty),
			checksums(batch, i, packet, faulty), whole);
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
	counter_add(&rxq->count.by_reference, nb_used);
	/* frames that end inside the header segment */
	counter_add(&rxq->count.copied, i - nb_used);
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
 * Copies the part of a frame after the first segment into further segments. False if mbufs run out
 * or cannot be written: the packet is then kept for the next burst.
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

static REPLAY_INLINE void
rx_copy(struct replay_rxq *rxq, struct batch *batch, struct rte_mbuf **bufs, bool faulty)
{
	const struct replay_devargs *args = &rxq->dev->args;
	const bool rewrite = args->nb_rewrites != 0 && rxq->loop != 0;
	const uint32_t room = rxq->first_room;
	/* two segments of a split packet do not require SCATTER */
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
			counter_add(&rxq->count.oversize, 1);
			continue; /* the next packet uses its mbuf */
		}
		if (nb_rest != 0 && !copy_rest(rxq, batch, m, packet, whole, nb_rest))
			break;
		m->data_off = rxq->first_off;
		m->ol_flags = rxq->first_flags;
		m->data_len = (uint16_t)len;
		fill_head(rxq, m, type(batch, i, packet, faulty),
			checksums(batch, i, packet, faulty), whole);
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
	counter_add(&rxq->count.copied, out);
}

#endif /* REPLAY_FILL_H */
