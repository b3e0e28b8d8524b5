/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads headers and places packets, keeps packets that wait or are held and retries them, and
 * forwards packets of streams that other RX roles own.
 */

#include <assert.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_ethdev.h>
#include <rte_ether.h>
#include <rte_ip.h>
#include <rte_prefetch.h>
#include <rte_udp.h>

#include <rdma.h>
#include <rdma_roce.h>

#include "counter.h"
#include "rx/messages.h"
#include "rx/rx.h"
#include "rx/sources.h"

const char *const rx_counter_names[RX_COUNTERS] = {
	[RX_PACKETS] = "packets",
	[RX_BYTES] = "bytes",
	[RX_BURSTS] = "bursts",
	[RX_WAITS] = "waits",
	[RX_EVENTS] = "events",
	[RX_HANDOFF_SENT] = "handoff",
	[RX_PLACED] = "placed",
	[RX_DUPLICATE] = "duplicate",
	[RX_LATE] = "late",
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

static const enum rx_counter counter_of_place[FRAME_PLACES] = {
	[FRAME_PLACED] = RX_PLACED,
	[FRAME_PLACE_DUPLICATE] = RX_DUPLICATE,
	[FRAME_PLACE_LATE] = RX_LATE,
	[FRAME_PLACE_REFUSED] = RX_REFUSED,
	[FRAME_PLACE_OUTLIER] = RX_OUTLIER,
	[FRAME_PLACE_BEYOND] = RX_BEYOND,
	[FRAME_PLACE_NO_RUN] = RX_NO_RUN,
	[FRAME_PLACE_OTHER] = RX_OTHER,
};

struct headers {
	struct rte_ether_hdr ether;
	struct rte_ipv4_hdr ip;
	struct rte_udp_hdr udp;
	uint8_t detector[];
} __rte_packed __rte_aligned(2);
static_assert(sizeof(struct headers) == 42, "Ethernet, IPv4 and UDP without options");

/**
 * Are the headers as the sender wrote them? If the port checks checksums, its result counts.
 * Exception: a UDP checksum of 0 means "not computed" and is never wrong.
 */
static bool
is_intact(const struct rte_mbuf *m, const struct headers *h)
{
	const uint64_t ip = m->ol_flags & RTE_MBUF_F_RX_IP_CKSUM_MASK;

	if (unlikely((m->ol_flags & RTE_MBUF_F_RX_L4_CKSUM_MASK) == RTE_MBUF_F_RX_L4_CKSUM_BAD &&
		    h->udp.dgram_cksum != 0))
		return false;
	if (ip == RTE_MBUF_F_RX_IP_CKSUM_GOOD)
		return true;
	return ip != RTE_MBUF_F_RX_IP_CKSUM_BAD && rte_raw_cksum(&h->ip, sizeof(h->ip)) == 0xFFFF;
}

/**
 * Read Ethernet, IPv4 and UDP headers.
 * @return RX_PLACED if the packet may be the detector's, else the counter of the reason
 */
static enum rx_counter
classify(const struct rx *rx, const struct rte_mbuf *m, struct rx_packet *p)
{
	const struct detector_ops *ops = rx->detector->ops;
	const uint32_t header_bytes = sizeof(struct headers) + ops->header_bytes;
	const struct headers *h = rte_pktmbuf_mtod(m, const struct headers *);

	if (m->data_len < sizeof(*h) || h->ether.ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		h->ip.version_ihl != RTE_IPV4_VHL_DEF || h->ip.next_proto_id != IPPROTO_UDP)
		return RX_FOREIGN;
	/* only the first fragment has a UDP header, and no fragment can be used */
	if ((h->ip.fragment_offset & RTE_BE16(RTE_IPV4_HDR_MF_FLAG | RTE_IPV4_HDR_OFFSET_MASK)) !=
		0)
		return RX_FRAGMENT;
	p->stream = rx->streams->stream[rte_be_to_cpu_16(h->udp.dst_port)];
	if (p->stream == RX_NO_STREAM)
		return RX_FOREIGN;
	if (unlikely(!is_intact(m, h)))
		return RX_CHECKSUM;
	if (h->udp.dgram_len !=
			rte_cpu_to_be_16(sizeof(h->udp) + ops->header_bytes + ops->pixel_bytes) ||
		m->pkt_len < header_bytes + ops->pixel_bytes)
		return RX_WRONG_LENGTH;
	/* the pixels must be contiguous: after the headers, or alone in the next segment */
	if (m->nb_segs > 1 ? m->data_len != header_bytes || m->next->data_len < ops->pixel_bytes
			   : m->data_len < header_bytes + ops->pixel_bytes)
		return RX_WRONG_LENGTH;
	p->header = h->detector;
	return RX_PLACED;
}

/** Count a packet of the detector's length to a port near those of the streams. */
static void
count_near(struct rx *rx, const struct rte_mbuf *m)
{
	const struct detector_ops *ops = rx->detector->ops;
	const struct headers *h = rte_pktmbuf_mtod(m, const struct headers *);
	int i;

	if (m->data_len < sizeof(*h) || h->ether.ether_type != RTE_BE16(RTE_ETHER_TYPE_IPV4) ||
		h->ip.version_ihl != RTE_IPV4_VHL_DEF || h->ip.next_proto_id != IPPROTO_UDP ||
		h->udp.dgram_len !=
			rte_cpu_to_be_16(sizeof(h->udp) + ops->header_bytes + ops->pixel_bytes))
		return;
	i = rte_be_to_cpu_16(h->udp.dst_port) - rx->streams->udp_port + RX_NEAR_PORTS;
	if (i >= 0 && i < 2 * RX_NEAR_PORTS)
		counter_add(&rx->samples.near[i], 1);
}

/**
 * Count a packet that cannot be used, and keep a sample of it as struct rx_samples describes.
 * @param stream  of its port; unused unless the cause is found after the port is
 */
static void
keep_sample(struct rx *rx, const struct rte_mbuf *m, enum rx_counter cause, uint32_t stream)
{
	struct rx_samples *all = &rx->samples;
	const uint32_t waiting = all->head - __atomic_load_n(&all->tail, __ATOMIC_ACQUIRE);
	struct rx_sample *s;
	uint64_t n;

	counter_add(&all->total, 1);
	if (cause == RX_CHECKSUM || cause == RX_WRONG_LENGTH || cause == RX_MALFORMED)
		counter_add(&all->stream[stream].packets, 1);
	else if (cause == RX_FOREIGN)
		count_near(rx, m);
	if (waiting == 0)
		all->since = 0;
	n = all->since++;
	if ((n & (n - 1)) != 0 || waiting == RX_SAMPLES)
		return;
	s = &all->ring[all->head % RX_SAMPLES];
	s->length = m->pkt_len;
	s->cause = cause;
	s->bytes = 0;
	if (rx->messages != NULL) {
		/* as if it were a UDP packet: the headers of its queue pair, and the trailer */
		s->length += SOURCE_HEADERS;
		s->bytes = SOURCE_HEADERS;
		memcpy(s->data, rx->messages->headers[stream], SOURCE_HEADERS);
		m = rte_pktmbuf_lastseg((struct rte_mbuf *)(uintptr_t)m);
	}
	n = RTE_MIN((uint32_t)m->data_len, (uint32_t)(RX_SAMPLE_BYTES - s->bytes));
	memcpy(s->data + s->bytes, rte_pktmbuf_mtod(m, const void *), n);
	s->bytes += n;
	__atomic_store_n(&all->head, all->head + 1, __ATOMIC_RELEASE);
}

bool
rx_take_sample(struct rx *rx, struct rx_sample *sample)
{
	struct rx_samples *all = &rx->samples;
	const uint32_t tail = all->tail;

	if (__atomic_load_n(&all->head, __ATOMIC_ACQUIRE) == tail)
		return false;
	*sample = all->ring[tail % RX_SAMPLES];
	__atomic_store_n(&all->tail, tail + 1, __ATOMIC_RELEASE);
	return true;
}

/** Keep a sample of a packet with another format, or with a number out of range. */
static void
keep_malformed(struct rx *rx, const struct rte_mbuf *m, uint32_t stream, uint32_t packet)
{
	struct rx_unusable *of = &rx->samples.stream[stream];

	if (packet != DETECTOR_PACKET_BAD) {
		if (of->lowest == 0 || packet + 1 < of->lowest)
			__atomic_store_n(&of->lowest, packet + 1, __ATOMIC_RELAXED);
		if (packet + 1 > of->highest)
			__atomic_store_n(&of->highest, packet + 1, __ATOMIC_RELAXED);
	}
	keep_sample(rx, m, RX_MALFORMED, stream);
}

/** Record a packet that is dropped although it has the detector's format. */
static void
note_drop(struct rx *rx, uint32_t stream, uint64_t frame, enum rx_counter cause)
{
	const uint64_t progress = rx->frx->progress[stream];
	struct rx_drop *d = &rx->drops[stream];

	counter_set(&d->in_row, d->progress == progress ? d->in_row + 1 : 1);
	counter_set(&d->progress, progress);
	__atomic_store_n(&d->frame, frame, __ATOMIC_RELAXED);
	__atomic_store_n(&d->cause, cause, __ATOMIC_RELAXED);
	counter_add(&d->packets, 1);
	if (cause == RX_LATE && frame < __atomic_load_n(&rx->first_frame, __ATOMIC_RELAXED))
		counter_add(&d->early, 1);
}

/** Record a packet that is after the last frame of the run. */
static void
note_beyond(struct rx *rx, uint32_t stream, uint64_t frame)
{
	counter_set(&rx->beyond[stream].frame, frame);
	counter_add(&rx->beyond[stream].packets, 1);
}

/** Packets of a burst whose headers were read. They may be placed. */
struct batch {
	struct rx_packet *packets;
	uint32_t n;
};

/** Free the packets of some streams. @return number of the others */
static uint32_t
drop_streams(struct rx *rx, struct rx_packet *packets, uint32_t n, uint64_t streams,
	enum rx_counter cause)
{
	uint32_t kept = 0;

	for (uint32_t i = 0; i < n; i++) {
		if ((streams >> packets[i].stream & 1) == 0) {
			packets[kept++] = packets[i];
			continue;
		}
		counter_add(&rx->counters[cause], 1);
		note_drop(rx, packets[i].stream, packets[i].frame, cause);
		rte_pktmbuf_free(packets[i].m);
	}
	return kept;
}

/** Drop all packets of some streams, placed, pending or in this burst: their source was wrong. */
static void
expel(struct rx *rx, uint64_t streams, enum rx_counter cause, struct batch *batch)
{
	for (uint64_t i = streams; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);
		const uint32_t n = frame_rx_expel(rx->table, rx->frx, s);

		counter_set(&rx->counters[RX_PLACED], rx->counters[RX_PLACED] - n);
		counter_add(&rx->counters[cause], n);
		rx->waiting[s] = 0;
	}
	for (uint32_t i = 0; i < rx->nb_pending; i++)
		if ((streams >> rx->pending[i].stream & 1) != 0 && rx->pending[i].held != RX_HELD)
			rx->nb_of_source[rx->pending[i].source]--;
	for (uint64_t i = streams; i != 0; i &= i - 1)
		rx->nb_held[__builtin_ctzll(i)] = 0;
	rx->nb_pending = drop_streams(rx, rx->pending, rx->nb_pending, streams, cause);
	batch->n = drop_streams(rx, batch->packets, batch->n, streams, cause);
}

/** Check positions again: a stream of any RX role has announced another one. */
static void
review_positions(struct rx *rx, uint32_t version, struct batch *batch)
{
	const struct frame_table_config *c = &rx->table->config;
	uint64_t mine = 0, misplaced;

	for (uint32_t s = 0; s < rx->detector->streams; s++)
		if (c->owner[s] == rx->frx->id)
			mine |= UINT64_C(1) << s;
	rx->sources_version = version;
	misplaced = sources_review(rx->sources, mine);
	if (misplaced != 0)
		expel(rx, misplaced, RX_MISPLACED, batch);
}

static void
check_positions(struct rx *rx, struct batch *batch)
{
	const uint32_t version = __atomic_load_n(&rx->sources->version, __ATOMIC_ACQUIRE);

	if (unlikely(version != rx->sources_version))
		review_positions(rx, version, batch);
}

/**
 * Decide about a packet that does not pass its stream's filter.
 * @return RX_PLACED if it is taken, else the counter of the reason
 */
static enum rx_counter
judge(struct rx *rx, uint32_t stream, const uint8_t *headers, uint32_t position,
	struct batch *batch)
{
	const enum source_verdict v = sources_judge(rx->sources, stream, headers, position);

	if (v == SOURCE_EXPELLED)
		expel(rx, UINT64_C(1) << stream, RX_FOREIGN, batch);
	check_positions(rx, batch);
	if (v != SOURCE_OURS)
		return v == SOURCE_MISPLACED ? RX_MISPLACED : RX_FOREIGN;
	return rx->sources->stream[stream].misplaced ? RX_MISPLACED : RX_PLACED;
}

/** Packets of a burst that are dropped. */
struct dropped {
	struct rte_mbuf *m[RX_BURST];
	uint32_t n;
};

/** Ethernet, IPv4 and UDP headers of a packet, or those that stand for its queue pair. */
static const uint8_t *
network_headers(const struct rx *rx, const struct rx_packet *p)
{
	if (rx->messages != NULL)
		return rx->messages->headers[p->stream];
	return p->header - sizeof(struct headers);
}

/**
 * Check packets whose detector headers were parsed: packet number, source, position. Packets of
 * other RX roles enter the outgoing handoff buffer of that role, which has room for a burst (see
 * poll_sources()).
 * @param out     packets; those that may be placed are moved to the front
 * @param valid   number of packets
 * @param source  queue, or rx.nb_queues for the handoff ring
 * @return packets that may be placed
 */
static uint32_t
accept_packets(struct rx *rx, uint32_t source, struct rx_packet *out,
	const struct detector_packet *parsed, uint32_t valid, struct batch *batch,
	struct dropped *drop)
{
	const uint8_t *owner = rx->table->config.owner;
	const uint32_t frx = rx->frx->id;

	for (uint32_t i = 0; i < valid; i++) {
		const uint32_t stream = out[i].stream;
		struct rx_packet *p;

		if (unlikely(parsed[i].packet < rx->detector->expect_from[stream] ||
			    parsed[i].packet >= rx->detector->expect_to[stream])) {
			counter_add(&rx->counters[RX_MALFORMED], 1);
			keep_malformed(rx, out[i].m, stream, parsed[i].packet);
			drop->m[drop->n++] = out[i].m;
			continue;
		}
		if (unlikely(owner[stream] != frx)) {
			const uint32_t to = owner[stream];

			rx->handoff_out[to][rx->nb_handoff_out[to]++] = out[i].m;
			continue;
		}
		if (unlikely(!source_takes(&rx->sources->filter[stream],
			    network_headers(rx, &out[i]), parsed[i].position))) {
			const enum rx_counter c = judge(rx, stream, network_headers(rx, &out[i]),
				parsed[i].position, batch);

			if (c != RX_PLACED) {
				counter_add(&rx->counters[c], 1);
				note_drop(rx, stream, parsed[i].frame, c);
				drop->m[drop->n++] = out[i].m;
				continue;
			}
		}
		p = &out[batch->n++];
		*p = out[i];
		p->source = source;
		p->frame = parsed[i].frame;
		p->packet = parsed[i].packet;
		p->held = RX_NOT_HELD;
	}
	return batch->n;
}

/**
 * Read the headers of a burst. Packets that are not the detector's are dropped.
 * @return packets in `out`
 */
static uint32_t
read_headers(
	struct rx *rx, uint32_t source, struct rte_mbuf **burst, uint32_t n, struct rx_packet *out)
{
	struct detector_packet parsed[RX_BURST];
	const uint8_t *header[RX_BURST];
	struct batch batch = {.packets = out};
	struct dropped drop;
	uint32_t valid = 0, kept;

	drop.n = 0;
	check_positions(rx, &batch);

	/* headers span two cache lines: the fields that identify the detector are at the end */
	for (uint32_t i = 0; i < n; i++) {
		rte_prefetch0(rte_pktmbuf_mtod(burst[i], void *));
		rte_prefetch0(rte_pktmbuf_mtod_offset(burst[i], void *, RTE_CACHE_LINE_SIZE));
	}
	for (uint32_t i = 0; i < n; i++) {
		const enum rx_counter c = classify(rx, burst[i], &out[valid]);

		if (unlikely(c != RX_PLACED)) {
			counter_add(&rx->counters[c], 1);
			keep_sample(rx, burst[i], c, out[valid].stream);
			drop.m[drop.n++] = burst[i];
			continue;
		}
		if (burst[i]->nb_segs > 1)
			rte_prefetch0(burst[i]->next);
		header[valid] = out[valid].header;
		out[valid++].m = burst[i];
	}
	if (likely(valid > 0))
		rx->detector->ops->parse(header, parsed, valid);
	kept = accept_packets(rx, source, out, parsed, valid, &batch, &drop);
	if (drop.n > 0)
		rte_pktmbuf_free_bulk(drop.m, drop.n);
	return kept;
}

/**
 * Find the trailer of a message: its last segment. The pixels are in the segments before, one for
 * each part.
 * @return NULL: the message has another form
 */
static const uint8_t *
find_trailer(const struct rx *rx, const struct rdma_roce_message *message)
{
	const struct detector *d = rx->detector;
	const uint32_t part_bytes = d->ops->pixel_bytes / d->parts;
	const struct rte_mbuf *m = message->m;

	if (message->length != d->ops->pixel_bytes + INGEST_TRAILER_BYTES ||
		m->nb_segs != d->parts + 1)
		return NULL;
	for (uint32_t i = 0; i < d->parts; i++, m = m->next)
		if (m->data_len != part_bytes)
			return NULL;
	return rte_pktmbuf_mtod(m, const uint8_t *);
}

/**
 * Read the trailers of messages. Messages without data are events: they are counted. Messages that
 * are not the detector's are dropped.
 * @return packets in `out`
 */
static uint32_t
read_messages(struct rx *rx, uint32_t source, const struct rdma_roce_message *message, uint32_t n,
	struct rx_packet *out)
{
	const struct ingest_card *card = &rx->messages->card;
	struct detector_packet parsed[RX_BURST];
	const uint8_t *header[RX_BURST];
	uint64_t address[RX_BURST];
	struct batch batch = {.packets = out};
	struct dropped drop;
	uint32_t valid = 0, kept;

	drop.n = 0;
	check_positions(rx, &batch);
	for (uint32_t i = 0; i < n; i++) {
		const struct rx_message_stream *of = message[i].qp_context;

		if (message[i].m == NULL) {
			counter_add(&rx->counters[RX_EVENTS], 1);
			continue;
		}
		counter_add(&rx->counters[RX_PACKETS], 1);
		counter_add(&rx->counters[RX_BYTES], message[i].length);
		out[valid].stream = of->stream;
		header[valid] = find_trailer(rx, &message[i]);
		if (unlikely(header[valid] == NULL ||
			    (message[i].op != RDMA_WC_RECV) !=
				    (card->transport == INGEST_WRITE))) {
			counter_add(&rx->counters[RX_WRONG_LENGTH], 1);
			keep_sample(rx, message[i].m, RX_WRONG_LENGTH, of->stream);
			drop.m[drop.n++] = message[i].m;
			continue;
		}
		address[valid] = message[i].addr;
		out[valid].header = header[valid];
		out[valid++].m = message[i].m;
	}
	if (likely(valid > 0))
		rx->detector->ops->parse(header, parsed, valid);
	/* an RDMA WRITE to the address of another packet is no packet of this one */
	for (uint32_t i = 0; i < valid && card->transport == INGEST_WRITE; i++)
		if (unlikely(address[i] !=
			    ingest_address(card, out[i].stream, parsed[i].frame, parsed[i].packet)))
			parsed[i].packet = DETECTOR_PACKET_BAD;
	kept = accept_packets(rx, source, out, parsed, valid, &batch, &drop);
	if (drop.n > 0)
		rte_pktmbuf_free_bulk(drop.m, drop.n);
	return kept;
}

/**
 * Forward an outgoing handoff buffer to the RX role that owns its streams.
 * @return false if packets are left in the buffer
 */
static bool
hand_on(struct rx *rx, uint32_t frx)
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
hand_all_on(struct rx *rx)
{
	bool empty = true;

	for (uint32_t i = 0; i < rx->table->config.nb_rx; i++)
		if (rx->nb_handoff_out[i] > 0)
			empty &= hand_on(rx, i);
	return empty;
}

/**
 * Must a packet wait because another packet of its stream waits, with an earlier or the same frame?
 * Otherwise the builder could open both frames between the two lookups. The later packet would be
 * placed first, the stream would seem to be done with the earlier frame, and that frame could be
 * closed.
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
		*lowest = p->frame + 1;
}

static void
none_waits(struct rx *rx)
{
	memset(rx->waiting, 0, sizeof(rx->waiting));
	memset(rx->nb_of_source, 0, sizeof(rx->nb_of_source));
	memset(rx->nb_held, 0, sizeof(rx->nb_held));
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
		rx->nb_held[p->stream]++;
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
	switch (frame_rx_again(rx->table, rx->frx, p->stream, frame, p->tick)) {
	case FRAME_AGAIN_HOLD:
		return hold(rx, p, frame);
	case FRAME_AGAIN_DROP:
		return frame_rx_drop(rx->table, rx->frx, p->stream, frame);
	case FRAME_AGAIN_PLACE:
		break;
	}
	p->held = RX_NOT_HELD;
	return FRAME_PLACES;
}

/**
 * The window has moved: does a packet belong to the old one? Yes if it arrived before the first
 * held packet of its stream that belongs to the new one.
 */
static bool
is_of_before(struct rx *rx, const struct rx_packet *p, uint64_t frame)
{
	if (p->held >= RX_HELD && frame_rx_is_near(rx->table, frame))
		rx->arrived |= UINT64_C(1) << p->stream;
	return (rx->arrived >> p->stream & 1) == 0;
}

/** Check whether other packets must be placed before this one. @return FRAME_PLACES: no */
static enum frame_placement
check_order(struct rx *rx, struct rx_packet *p, uint64_t frame)
{
	if (rx->moved && is_of_before(rx, p, frame))
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

/** What a packet counts as that is not placed. @param retry  it has waited or was held */
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

/** Separate a message's trailer from the pixels, which stay. @return segment of the trailer */
static struct rte_mbuf *
cut_trailer(const struct rx *rx, struct rte_mbuf *m)
{
	struct rte_mbuf *last = m, *trailer;

	for (uint32_t i = 1; i < rx->detector->parts; i++)
		last = last->next;
	trailer = last->next;
	last->next = NULL;
	m->nb_segs--;
	m->pkt_len -= trailer->data_len;
	return trailer;
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

	for (uint32_t i = 0; i < n; i++) {
		struct rx_packet *p = &packets[i];
		struct rte_mbuf *m = p->m, *pixels = m;
		uint64_t frame = p->frame, address;
		enum frame_placement result;

		if (rx->messages != NULL) {
			address = rte_pktmbuf_mtod(m, uint64_t) + (uint64_t)rx->view;
		} else if (m->nb_segs > 1) {
			/* `next` is in the mbuf's second cache line: it is read only if it is used */
			pixels = m->next;
			address = rte_pktmbuf_mtod(pixels, uint64_t) + (uint64_t)rx->view;
		} else {
			address = (uint64_t)(uintptr_t)p->header + rx->detector->ops->header_bytes;
		}
		result = FRAME_PLACE_OTHER;
		if (likely(frame_rx_is_ours(rx->table, &frame))) {
			result = FRAME_PLACES;
			if (unlikely(rx->nb_pending + waiting > 0))
				result = check_order(rx, p, frame);
			if (likely(result == FRAME_PLACES))
				result = frame_rx_place(rx->table, rx->frx, p->stream, frame,
					p->packet, p->header, address, pixels);
			if (unlikely(result == FRAME_PLACE_HOLD && p->held == RX_NOT_HELD))
				result = hold(rx, p, frame);
		}
		if (unlikely(result >= FRAME_PLACE_WAIT)) {
			if (result == FRAME_PLACE_WAIT) {
				/* no packet waits behind one that is held without room */
				if (p->held != RX_CROWDED)
					wait_for(rx->waiting, p);
				rx->nb_of_source[p->source]++;
			}
			packets[waiting++] = *p;
			continue;
		}
		if (likely(result == FRAME_PLACED)) {
			counter_add(&rx->counters[RX_PLACED], 1);
			if (rx->messages != NULL) {
				m = cut_trailer(rx, m);
			} else if (pixels == m) {
				continue;
			} else {
				/* the header segment is freed at once, the pixels stay */
				m->next = NULL;
				m->nb_segs = 1;
			}
		} else {
			const enum rx_counter counter = counter_of_drop(rx, p, result, retry);

			counter_add(&rx->counters[counter], 1);
			if (result <= FRAME_PLACE_OUTLIER && counter != RX_STOPPED)
				note_drop(rx, p->stream, p->frame, counter);
			else if (counter == RX_BEYOND)
				note_beyond(rx, p->stream, p->frame);
		}
		release[released++] = m;
		if (unlikely(released == RTE_DIM(release))) {
			rte_pktmbuf_free_bulk(release, released);
			released = 0;
		}
	}
	if (released > 0)
		rte_pktmbuf_free_bulk(release, released);
	return waiting;
}

/**
 * Is there no room for another burst of a source? Only this source is then stopped, because streams
 * that are far ahead must not keep streams of other sources from open frames.
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
 * Are all sources full, so that no packet can be placed before the waiting ones? A handoff ring
 * that was never used does not count.
 */
static bool
all_are_full(const struct rx *rx)
{
	for (uint32_t q = 0; q < rx->nb_queues; q++)
		if (!is_full(rx, q))
			return false;
	return !rx->handoff_used || is_full(rx, rx->nb_queues);
}

/** Set the number of pending packets, which telemetry and the control lcore read. */
static void
set_pending(struct rx *rx, uint32_t n)
{
	__atomic_store_n(&rx->nb_pending, n, __ATOMIC_RELAXED);
}

/** Retry pending packets. @return packets that are no longer pending */
static uint32_t
place_pending(struct rx *rx)
{
	const uint32_t before = rx->nb_pending;

	if (frame_rx_is_moving(rx->table, rx->frx))
		return 0;
	rx->counted = true;
	none_waits(rx);
	rx->first = frame_rx_begin_again(rx->table, rx->frx, &rx->moved);
	rx->arrived = 0;
	set_pending(rx, place(rx, rx->pending, before));
	rx->first = rx->moved = false;
	frame_rx_end_again(rx->frx);
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
		counter_add(&rx->counters[RX_OUTLIER], 1);
		note_drop(rx, p->stream, p->frame, RX_OUTLIER);
		rx->waiting[p->stream] = 0;
		rx->nb_of_source[p->source]--;
		rte_pktmbuf_free(p->m);
	}
	set_pending(rx, kept);
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

/** Place packets that were read. Those that must wait become pending; there is room for a burst. */
static void
take(struct rx *rx, struct rx_packet *packets, uint32_t n)
{
	const uint32_t waiting = place(rx, packets, n);

	rx->counted = true;
	if (unlikely(waiting > 0)) {
		memcpy(&rx->pending[rx->nb_pending], packets, waiting * sizeof(packets[0]));
		set_pending(rx, rx->nb_pending + waiting);
	}
}

/** Run the poll group of a queue that is a RoCE device's, and take messages. */
static uint32_t
poll_messages(struct rx *rx, uint32_t q)
{
	struct rdma_roce_message messages[RX_BURST];
	struct rx_packet packets[RX_BURST];
	struct rdma_dev *dev = rx->messages->devices[rx->queues[q].port];
	const uint16_t group = rx->queues[q].queue;
	uint32_t n;

	rdma_progress(dev, group);
	n = rdma_roce_poll_messages(dev, group, messages, RX_BURST);
	if (n == 0)
		return 0;
	counter_add(&rx->counters[RX_BURSTS], 1);
	take(rx, packets, read_messages(rx, q, messages, n, packets));
	return n;
}

static uint32_t
poll_queue(struct rx *rx, uint32_t q)
{
	struct rx_packet packets[RX_BURST];
	struct rte_mbuf *burst[RX_BURST];
	const uint32_t n =
		rte_eth_rx_burst(rx->queues[q].port, rx->queues[q].queue, burst, RX_BURST);

	if (n == 0)
		return 0;
	counter_add(&rx->counters[RX_PACKETS], n);
	counter_add(&rx->counters[RX_BURSTS], 1);
	for (uint32_t i = 0; i < n; i++)
		counter_add(&rx->counters[RX_BYTES], burst[i]->pkt_len);
	take(rx, packets, read_headers(rx, q, burst, n, packets));
	return n;
}

static uint32_t
poll_handoff_ring(struct rx *rx)
{
	struct rx_packet packets[RX_BURST];
	struct rte_mbuf *burst[RX_BURST];
	const uint32_t n = rte_ring_dequeue_burst(rx->handoff_ring, (void **)burst, RX_BURST, NULL);

	if (n == 0)
		return 0;
	rx->handoff_used = true;
	rx->handoff_taken += n;
	take(rx, packets, read_headers(rx, rx->nb_queues, burst, n, packets));
	return n;
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
		for (uint32_t q = 0; q < rx->nb_queues && hand_all_on(rx); q++) {
			if (is_full(rx, q))
				continue;
			n = rx->messages != NULL ? poll_messages(rx, q) : poll_queue(rx, q);
			more |= n == RX_BURST;
			total += n;
		}
		if (is_full(rx, rx->nb_queues))
			continue;
		n = poll_handoff_ring(rx);
		more |= n == RX_BURST;
		total += n;
	}
	return total;
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
		rte_pktmbuf_free(rx->pending[i].m);
	}
	counter_add(&rx->counters[RX_STOPPED], rx->nb_pending);
	set_pending(rx, 0);
	none_waits(rx);
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
	uint64_t pending = rx->nb_pending;

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
		frame_rx_none_waits(rx->frx);
	}
	received = poll_sources(rx);
	hand_all_on(rx);
	if (unlikely(any_is_full(rx)))
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
