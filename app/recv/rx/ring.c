/* SPDX-License-Identifier: BSD-3-Clause */
/* Events of RoCE streams whose pixels are in memory, and the rings in that memory. */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>
#include <rte_prefetch.h>

#include <rdma.h>

#include "counter.h"
#include "log.h"
#include "port/memory.h"
#include "rx/credits.h"
#include "rx/ring.h"
#include "rx/rx.h"
#include "rx/transport.h"
#include "settings.h"

LOG_REGISTER("ingest", "ingest");

/** Receives of a queue pair: events that may arrive between two polls. */
#define RECEIVES 1024
/** Receives that are posted at a time: a doorbell of an adapter costs some 100 ns. */
#define RECEIVES_BATCH 32

/**
 * Maximum number of frames that a poll looks up without finding them. Each costs a cache miss for
 * each of its tiles, and after a jump of the frame number there may be as many as slots.
 */
#define ABSENT_A_POLL 8

/** Time between two checks of the free slots: a check reads a few cache lines of each stream. */
#define CREDITS_US 10

/** Alignment of a stream's ring: a huge page, so that a region holds a whole number of rings. */
#define RING_ALIGN (UINT64_C(2) << 20)

/** User of a stream's queue pair. The control lcore may replace it; the RX role never waits. */
enum ring_user {
	RING_NOBODY,
	RING_RX,      /**< the RX role posts receives or a credit */
	RING_CONTROL, /**< there is no queue pair, or it is being replaced */
};

/** The header of a tile, as the RX role has copied it. */
struct rx_ring_header {
	/** begins with the frame number, which is read as a word */
	uint8_t bytes[INGEST_TRAILER_BYTES] __rte_aligned(sizeof(uint64_t));
};

/** Ring of a stream. Written by the RX role that owns the stream. */
struct rx_ring_stream {
	uint8_t *base;
	/** [slots]: an event may wait as long as its frame is in the ring */
	struct rx_ring_header *headers;
	/** Frame + 1 of the last event, 0: none. With it the immediate becomes a frame number, and
	 * a hole in the frames is a lost event. */
	uint64_t last;
	uint64_t next;	   /**< frames next ... end - 1 are taken before the next event */
	uint64_t end;	   /**< frame + 1 of the event that is being taken */
	bool repeated;	   /**< this event is the last one again */
	uint32_t unposted; /**< receives that have completed and are not posted again, or fewer */
	uint32_t user;	   /**< enum ring_user: who may post */
	struct rdma_buffer buffer;
	struct rdma_pool *pool;
	struct rx_credit credit;
} __rte_cache_aligned;

/** Completion queue of a poll group. Written by the RX role that polls it. */
struct rx_ring_queue {
	struct rdma_cq *cq;
	uint32_t nb_wc, taken; /**< completions in `wc`, and how many are taken */
	struct rx_ring_stream
		*filling; /**< stream with frames to take; NULL: take the next event */
	uint32_t filling_stream;
	uint64_t streams;    /**< bits of its streams; constant */
	uint64_t credits_at; /**< TSC when credits are due */
	struct rdma_wc wc[RX_BURST];
} __rte_cache_aligned;

struct rx_ring {
	struct rx_messages *messages;
	const struct detector *detector;
	struct memory *memory;
	uint64_t slot_mask;
	uint64_t slot_bytes;
	uint64_t tile_stride;
	uint64_t ring_bytes; /**< of a stream, rounded up */
	uint64_t prefault_ns, register_ns, bytes;
	uint64_t created_at; /**< TSC */
	enum rdma_pages_kind kind;
	struct rx_ring_stream stream[DETECTOR_STREAMS_MAX];
	struct frame_use use[DETECTOR_STREAMS_MAX];
	struct rx_ring_queue queue[RX_DEVICES_MAX][FRAME_RX_MAX];
};

static uint8_t *
tile_at(const struct rx_ring *r, const struct rx_ring_stream *st, uint64_t frame, uint32_t tile)
{
	return st->base + (frame & r->slot_mask) * r->slot_bytes + tile * r->tile_stride +
		r->messages->card.leader_bytes;
}

static uint64_t *
trailer_at(const struct rx_ring *r, const struct rx_ring_stream *st, uint64_t frame, uint32_t tile)
{
	return (uint64_t *)(tile_at(r, st, frame, tile) + r->messages->card.tile_bytes);
}

/** Number of the frame to which a trailer belongs. */
static uint64_t
number_of(const uint64_t *trailer)
{
	return rte_le_to_cpu_64(__atomic_load_n(trailer, __ATOMIC_ACQUIRE));
}

/** Contents of the tiles of a stream's slot. */
struct found {
	uint32_t tile;	 /**< first tile with the frame's number */
	bool any;	 /**< there is one */
	bool newer;	 /**< a tile belongs to a later frame: the detector has lapped the ring */
	uint64_t number; /**< of a tile that has the same low 24 bits as the frame; 0: none */
};

/** Look for the first tile of a frame in its slot. */
static void
find_tile(const struct rx_ring *r, uint32_t stream, uint64_t frame, struct found *f)
{
	const struct rx_ring_stream *st = &r->stream[stream];
	const uint32_t end = r->detector->expect_to[stream];

	*f = (struct found){0};
	for (uint32_t t = r->detector->expect_from[stream]; t < end; t++) {
		const uint64_t number = number_of(trailer_at(r, st, frame, t));

		if (likely(number == frame)) {
			f->any = true;
			f->tile = t;
			return;
		}
		if (number == FRAME_TRAILER_NONE)
			continue;
		if (((number ^ frame) & 0xFFFFFF) == 0)
			f->number = number;
		f->newer |= number > frame;
	}
}

/** Return true if any tile of a frame has arrived. */
static bool
is_there(const struct rx_ring *r, uint32_t stream, uint64_t frame)
{
	struct found f;

	find_tile(r, stream, frame, &f);
	return f.any;
}

/** Copy the header of a tile. @return false: of another frame, or overwritten meanwhile */
static bool
copy_header(const struct rx_ring *r, uint32_t stream, uint64_t frame, uint32_t tile,
	struct rx_ring_header *to)
{
	const uint64_t *trailer = trailer_at(r, &r->stream[stream], frame, tile);

	memcpy(to, trailer, sizeof(*to));
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return number_of((const uint64_t *)to->bytes) == frame && number_of(trailer) == frame;
}

/** The pixels of a stream's frame are not used: clear its trailers. */
static void
clear(struct rx_ring *r, uint32_t stream, uint64_t frame)
{
	const struct rx_ring_stream *st = &r->stream[stream];

	for (uint32_t t = r->detector->expect_from[stream]; t < r->detector->expect_to[stream];
		t++) {
		uint64_t *trailer = trailer_at(r, st, frame, t);

		if (number_of(trailer) == frame)
			__atomic_store_n(trailer, FRAME_TRAILER_NONE, __ATOMIC_RELAXED);
	}
}

/** Count an invalid event: with another stream's number, or with data. */
static void
refuse_event(struct rx *rx, uint32_t stream, const struct rdma_wc *wc)
{
	const rte_be32_t imm = rte_cpu_to_be_32(wc->imm);
	const struct rx_excerpt e = {.headers = rx->messages->headers[stream],
		.data = &imm,
		.bytes = sizeof(imm),
		.length = SOURCE_HEADERS + wc->byte_len};

	counter_add(&rx->counters[RX_PACKETS], 1);
	counter_add(&rx->counters[RX_MALFORMED], 1);
	rx_keep_sample(rx, RX_MALFORMED, stream, &e);
}

/**
 * Find the frame of an event. The immediate has its low 24 bits. The others follow from the event
 * before, or, if the detector was restarted since, from a trailer.
 */
static uint64_t
frame_of(const struct rx_ring *r, uint32_t stream, uint32_t imm)
{
	const uint64_t last = r->stream[stream].last;
	const uint64_t frame = ingest_immediate_frame(imm, last == 0 ? 0 : last - 1);
	struct found f;

	find_tile(r, stream, frame, &f);
	return f.any || f.number == 0 ? frame : f.number;
}

/**
 * The frame numbers of a stream go back: its detector was restarted. Earlier frames that were
 * returned have no number in the ring. Frames after the last event were not returned, and are
 * cleared here: if tiles of the same frame numbers are lost now, the old tiles must not be taken
 * for them.
 */
static void
restart(struct rx_ring *r, uint32_t stream, uint64_t frame)
{
	struct rx_ring_stream *st = &r->stream[stream];

	for (uint64_t i = 0; i <= r->slot_mask; i++)
		clear(r, stream, st->last + i);
	st->next = frame - RTE_MIN(frame, r->slot_mask);
}

/** Use a stream's queue pair from its RX role. @return false: the control lcore replaces it */
static bool
lock(struct rx_ring_stream *st)
{
	uint32_t nobody = RING_NOBODY;

	return __atomic_compare_exchange_n(
		&st->user, &nobody, RING_RX, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}

static void
unlock(struct rx_ring_stream *st)
{
	__atomic_store_n(&st->user, RING_NOBODY, __ATOMIC_RELEASE);
}

/** Post receives without bytes. @return how many */
static uint32_t
post_receives(struct rdma_qp *qp, uint32_t n)
{
	static const struct rdma_recv_wr wr[RECEIVES_BATCH];
	uint32_t posted = 0, now = 1;

	for (; posted < n && now > 0; posted += now)
		now = rdma_post_recv(qp, wr, RTE_MIN(n - posted, (uint32_t)RECEIVES_BATCH));
	return posted;
}

/** Post the receives of events that were taken. */
static void
post(struct rx_ring *r, uint32_t stream)
{
	struct rx_ring_stream *st = &r->stream[stream];

	if (!lock(st))
		return;
	st->unposted -= post_receives(r->messages->streams[stream].qp, st->unposted);
	unlock(st);
}

/**
 * Take the next event of a queue. Its frame is taken next, and before it those whose events were
 * lost: as many as are still in the ring.
 * @return false: there is none
 */
static bool
take_event(struct rx *rx, struct rx_ring *r, struct rx_ring_queue *q)
{
	const struct rdma_wc *wc;
	const struct rx_message_stream *of;
	struct rx_ring_stream *st;
	uint64_t frame;

	if (q->taken == q->nb_wc) {
		q->taken = 0;
		q->nb_wc = rdma_poll_cq(q->cq, q->wc, RTE_DIM(q->wc));
		if (q->nb_wc == 0)
			return false;
	}
	wc = &q->wc[q->taken++];
	of = wc->qp_context;
	/* the queue pair is in error, and ROLE_CONNECT replaces it */
	if (unlikely(wc->status != RDMA_WC_SUCCESS || of->qp != wc->qp))
		return true;
	st = &r->stream[of->stream];
	if (wc->op == RDMA_WC_WRITE) {
		rx_credit_done(&st->credit);
		return true;
	}
	if (++st->unposted >= RECEIVES_BATCH)
		post(r, of->stream);
	if (unlikely((wc->flags & RDMA_WC_WITH_IMM) == 0 || wc->byte_len != 0 ||
		    ingest_immediate_stream(wc->imm) != of->stream)) {
		refuse_event(rx, of->stream, wc);
		return true;
	}
	frame = frame_of(r, of->stream, wc->imm);
	if (unlikely(frame + 1 < st->last && !is_there(r, of->stream, frame))) {
		/* an earlier event, or a wrong one: no tile of this frame has arrived since */
		refuse_event(rx, of->stream, wc);
		return true;
	}
	counter_add(&rx->counters[RX_EVENTS], 1);
	st->next = frame;
	if (frame >= st->last)
		st->next = RTE_MAX(st->last, frame - RTE_MIN(frame, r->slot_mask));
	else if (frame + 1 < st->last)
		restart(r, of->stream, frame);
	st->repeated = frame + 1 == st->last;
	st->last = st->end = frame + 1;
	q->filling = st;
	q->filling_stream = of->stream;
	return true;
}

/** Packets of a burst, before their headers are parsed. */
struct burst {
	struct rx_packet packets[RX_BURST];
	const uint8_t *header[RX_BURST];
	uint32_t n;
};

/**
 * Return true if a tile is at the address that belongs to its packet number. If a detector computed
 * wrong addresses, pixels would appear at wrong positions. One tile of each frame is checked,
 * another one each time, so that the check reads only one cache line.
 */
static bool
is_in_place(const struct rx_ring *r, uint32_t stream, uint64_t frame)
{
	const struct detector *d = r->detector;
	const uint32_t tile = d->expect_from[stream] + frame % detector_stream_expected(d, stream);
	struct rx_ring_header copy;
	const uint8_t *header = copy.bytes;
	struct detector_packet parsed;

	if (!copy_header(r, stream, frame, tile, &copy))
		return true;
	d->ops->parse(&header, &parsed, 1);
	return parsed.packet == tile;
}

/**
 * Take the next frame of the stream that is being filled.
 * @return false: nothing shows that the detector has sent it
 */
static bool
take_frame(struct rx *rx, struct rx_ring *r, struct rx_ring_queue *q, struct burst *b)
{
	const uint32_t stream = q->filling_stream;
	struct rx_ring_stream *st = q->filling;
	const uint64_t frame = st->next++;
	const uint32_t expected = detector_stream_expected(r->detector, stream);
	const bool event = st->next == st->end;
	struct frame_use *use = &r->use[stream];
	struct found f;

	if (event)
		q->filling = NULL;
	find_tile(r, stream, frame, &f);
	/* without an event and a tile: the detector's numbers may have skipped it */
	if (!f.any && !(event && (f.newer || st->repeated)))
		return false;
	counter_add(&rx->counters[RX_EVENTS_LOST], !event);
	counter_add(&rx->counters[RX_PACKETS], expected);
	if ((!f.any && !f.newer) || (event && st->repeated && frame_use_is_placed(use, frame))) {
		counter_add(&rx->counters[RX_DUPLICATE], expected);
		return true;
	}
	counter_add(&rx->counters[RX_BYTES], expected * r->tile_stride);
	if (!f.any || !copy_header(r, stream, frame, f.tile, &st->headers[frame & r->slot_mask])) {
		counter_add(&rx->counters[RX_OVERRUN], expected);
		clear(r, stream, frame);
		return true;
	}
	if (unlikely(!is_in_place(r, stream, frame))) {
		counter_add(&rx->counters[RX_MALFORMED], expected);
		clear(r, stream, frame);
		return true;
	}
	frame_use_take(use, frame);
	b->packets[b->n] = (struct rx_packet){.header = st->headers[frame & r->slot_mask].bytes,
		.stream = stream,
		.frame = frame,
		.packet = f.tile};
	b->header[b->n] = b->packets[b->n].header;
	b->n++;
	return true;
}

/** Report to the detectors of a queue's streams which slots are free. */
static void
write_credits(struct rx *rx, struct rx_ring *r, struct rx_ring_queue *q)
{
	const uint64_t now = rte_rdtsc();

	if (likely((int64_t)(now - q->credits_at) < 0))
		return;
	q->credits_at = now + rte_get_tsc_hz() / 1000000 * CREDITS_US;
	for (uint64_t i = q->streams; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);
		struct rx_ring_stream *st = &r->stream[s];

		if (__atomic_load_n(&st->credit.address, __ATOMIC_RELAXED) == 0 || !lock(st))
			continue;
		rx_credit_advance(&st->credit, &r->use[s], st->last);
		if (rx_credit_write(&st->credit, r->messages->streams[s].qp, now)) {
			counter_add(&rx->counters[RX_CREDITS], 1);
			rx->counted = true;
		}
		unlock(st);
	}
}

static uint32_t
poll_ring(struct rx *rx, uint32_t source)
{
	const struct rx_messages *m = rx->messages;
	struct rx_ring *r = m->ring;
	struct detector_packet parsed[RX_BURST];
	struct rx_batch batch;
	struct rx_dropped drop;
	struct rx_ring_queue *q;
	struct burst b;
	uint32_t n = 0, absent = 0, more, kept;

	if (source == rx->nb_queues)
		return 0;
	q = &r->queue[rx->queues[source].port][rx->queues[source].queue];
	rdma_progress(m->devices[rx->queues[source].port], rx->queues[source].queue);
	batch = (struct rx_batch){.packets = b.packets};
	b.n = drop.n = 0;
	rx_check_positions(rx, &batch);
	while (b.n < RX_BURST && n < RX_BURST && absent < ABSENT_A_POLL) {
		if (q->filling != NULL) {
			absent += !take_frame(rx, r, q, &b);
			continue;
		}
		if (!take_event(rx, r, q))
			break;
		n++;
	}
	write_credits(rx, r, q);
	more = q->filling != NULL ? RX_BURST : n;
	if (n == 0 && b.n == 0)
		return more;
	rx->counted = true;
	counter_add(&rx->counters[RX_BURSTS], 1);
	if (b.n > 0)
		rx->detector->ops->parse(b.header, parsed, b.n);
	/* the header of another packet was written to this address */
	for (uint32_t i = 0; i < b.n; i++)
		if (unlikely(parsed[i].packet != b.packets[i].packet))
			parsed[i].packet = DETECTOR_PACKET_BAD;
	kept = rx_accept(rx, source, b.packets, parsed, b.n, &batch, &drop);
	rx_take(rx, b.packets, kept);
	return more;
}

static enum frame_placement
place_stream(struct rx *rx, const struct rx_packet *p, uint64_t frame, struct rte_mbuf **rest)
{
	struct rx_ring *r = rx->messages->ring;
	const struct rx_ring_stream *st = &r->stream[p->stream];
	enum frame_placement result;

	RTE_SET_USED(rest);
	/* while the event waited, a later frame was written to its slot and overwrote the header */
	if (unlikely(number_of((const uint64_t *)(uintptr_t)p->header) != p->frame)) {
		frame_rx_drop(rx->table, rx->frx, p->stream, frame);
		return FRAME_PLACE_OVERRUN;
	}
	result = frame_rx_place_stream(rx->table, rx->frx, p->stream, frame, p->header,
		(uintptr_t)tile_at(r, st, p->frame, 0), r->tile_stride);
	if (likely(result == FRAME_PLACED))
		frame_use_place(&r->use[p->stream], p->frame);
	return result;
}

/** An event is dropped: its frame's pixels are not used, unless it came twice. */
static void
forget_event(struct rx *rx, const struct rx_packet *p, enum rx_counter cause)
{
	struct rx_ring *r = rx->messages->ring;

	RTE_SET_USED(cause);
	if (frame_use_is_placed(&r->use[p->stream], p->frame))
		return;
	clear(r, p->stream, p->frame);
	frame_use_free(&r->use[p->stream], p->frame);
}

const struct rx_transport rx_memory = {
	.name = "memory",
	.events = true,
	.poll = poll_ring,
	.place = place_stream,
	.dropped = forget_event,
	.headers = rx_queue_pair_headers,
};

/* ---- creation ---- */

/** Create the completion queues of a device's poll groups. */
static int
create_queues(struct rx_ring *r, uint32_t device)
{
	struct rx_messages *m = r->messages;
	uint32_t streams[FRAME_RX_MAX] = {0};

	for (uint32_t s = 0; s < m->card.streams; s++)
		if (m->streams[s].device == device)
			streams[m->streams[s].poll_group]++;
	for (uint32_t g = 0; g < FRAME_RX_MAX; g++) {
		if (streams[g] == 0)
			continue;
		r->queue[device][g].cq = rdma_cq_create(
			m->devices[device], streams[g] * (RECEIVES + RX_CREDIT_SENDS), g);
		if (r->queue[device][g].cq == NULL)
			return -rte_errno;
	}
	for (uint32_t s = 0; s < m->card.streams; s++)
		if (m->streams[s].device == device)
			r->queue[device][m->streams[s].poll_group].streams |= UINT64_C(1) << s;
	return 0;
}

/**
 * Allocate and register a stream's ring, in the protection domain of its queue pair: no other
 * stream can write to it, even if its sender knows the key.
 */
static int
create_pool(struct rx_ring *r, uint32_t stream)
{
	struct rdma_pool_attr attr = {
		.bytes = r->ring_bytes,
		.access = RDMA_ACCESS_LOCAL_WRITE,
		.numa_node = -1,
	};
	struct rx_ring_stream *st = &r->stream[stream];
	struct rdma_pool_info info;

	/* rings of multicast streams are written by the RX role */
	if (r->messages->card.transport == INGEST_WRITE)
		attr.access |= RDMA_ACCESS_REMOTE_WRITE;
	st->pool = rdma_pool_create(r->messages->streams[stream].pd, &attr);
	if (st->pool == NULL) {
		LOG(ERR,
			"stream %u: cannot allocate %" PRIu64
			" MiB for its ring: %s; set [ingest] slots lower, or give the host more "
			"huge pages\n",
			stream, attr.bytes >> 20, rte_strerror(rte_errno));
		return -rte_errno;
	}
	rdma_pool_info_get(st->pool, &info);
	r->bytes += info.bytes;
	r->prefault_ns += info.prefault_ns;
	r->register_ns += info.register_ns;
	r->kind = RTE_MAX(r->kind, info.kind);
	return 0;
}

/** No tile has a frame yet. */
static void
clear_ring(const struct rx_ring *r, const struct rx_ring_stream *st)
{
	for (uint64_t slot = 0; slot <= r->slot_mask; slot++)
		for (uint32_t t = 0; t < r->messages->card.tiles; t++)
			*trailer_at(r, st, slot, t) = FRAME_TRAILER_NONE;
}

/** Allocate a stream's ring, register it with the GPU and enter it in the card. */
static int
create_stream(struct rx_ring *r, uint32_t stream)
{
	struct rx_messages *m = r->messages;
	struct rx_ring_stream *st = &r->stream[stream];
	uint64_t begin;
	int ret;

	st->headers = rte_zmalloc(
		"ring_headers", (r->slot_mask + 1) * sizeof(*st->headers), RTE_CACHE_LINE_SIZE);
	r->use[stream].mask = r->slot_mask;
	r->use[stream].slot = rte_zmalloc(
		"ring_use", (r->slot_mask + 1) * sizeof(*r->use[stream].slot), RTE_CACHE_LINE_SIZE);
	if (st->headers == NULL || r->use[stream].slot == NULL)
		return -ENOMEM;
	ret = create_pool(r, stream);
	if (ret == 0)
		ret = rdma_pool_alloc(st->pool, r->ring_bytes, RING_ALIGN, &st->buffer);
	if (ret != 0)
		return ret;
	st->base = st->buffer.addr;
	st->user = RING_CONTROL;
	clear_ring(r, st);
	begin = rte_rdtsc();
	ret = memory_adopt(r->memory, st->base, r->ring_bytes);
	r->register_ns += (rte_rdtsc() - begin) * 1e9 / rte_get_tsc_hz();
	m->card.stream[stream].base = (uintptr_t)st->base;
	m->card.stream[stream].rkey = st->buffer.rkey;
	return ret;
}

uint64_t
rx_ring_bytes(const struct ingest_card *card)
{
	return RTE_ALIGN_CEIL(card->slots * card->slot_bytes, RING_ALIGN);
}

uint64_t
rx_ring_heap(const struct ingest_card *card)
{
	return card->slots * (sizeof(struct rx_ring_header) + sizeof(uint64_t));
}

struct rx_ring *
rx_ring_create(struct rx_messages *m, struct memory *memory)
{
	static const char *const kinds[] = {"huge pages", "transparent huge pages", "small pages"};
	struct rx_ring *r = rte_zmalloc("rx_ring", sizeof(*r), RTE_CACHE_LINE_SIZE);
	int ret = 0;

	if (r == NULL)
		return NULL;
	r->messages = m;
	r->detector = &m->settings->detector;
	r->memory = memory;
	r->slot_mask = m->card.slots - 1;
	r->slot_bytes = m->card.slot_bytes;
	r->tile_stride = ingest_message_bytes(&m->card);
	r->ring_bytes = rx_ring_bytes(&m->card);
	for (uint32_t d = 0; d < m->nb_devices && ret == 0; d++) {
		if (m->card.transport == INGEST_WRITE)
			ret = create_queues(r, d);
	}
	for (uint32_t s = 0; s < m->card.streams && ret == 0; s++)
		ret = create_stream(r, s);
	if (ret != 0) {
		rx_ring_destroy(r);
		rte_errno = -ret;
		return NULL;
	}
	r->created_at = rte_rdtsc();
	LOG(INFO,
		"rings of %u streams: %" PRIu64 " MiB on %s, faulted in in %.1f ms, registered in "
		"%.1f ms\n",
		m->card.streams, r->bytes >> 20, kinds[r->kind], r->prefault_ns / 1e6,
		r->register_ns / 1e6);
	return r;
}

void
rx_ring_destroy(struct rx_ring *r)
{
	if (r == NULL)
		return;
	for (uint32_t s = 0; s < r->messages->card.streams; s++) {
		struct rx_ring_stream *st = &r->stream[s];

		if (st->base != NULL) {
			memory_abandon(r->memory, st->base);
			rdma_pool_free(st->pool, &st->buffer);
		}
		if (st->pool != NULL)
			rdma_pool_destroy(st->pool);
		rte_free(st->headers);
		rte_free(r->use[s].slot);
	}
	for (uint32_t d = 0; d < r->messages->nb_devices; d++)
		for (uint32_t g = 0; g < FRAME_RX_MAX; g++)
			if (r->queue[d][g].cq != NULL)
				rdma_cq_destroy(r->queue[d][g].cq);
	rte_free(r);
}

struct frame_use *
rx_ring_use(struct rx_ring *r)
{
	return r->use;
}

void
rx_ring_describe(struct rx_ring *r, uint32_t stream, struct rdma_qp_attr *attr)
{
	const struct rx_message_stream *st = &r->messages->streams[stream];

	attr->send_cq = attr->recv_cq = r->queue[st->device][st->poll_group].cq;
	attr->max_recv_wr = RECEIVES;
	attr->max_send_wr = RX_CREDIT_SENDS;
	attr->max_inline = RX_CREDIT_BYTES;
}

void
rx_ring_detach(struct rx_ring *r, uint32_t stream)
{
	uint32_t *user = &r->stream[stream].user;
	uint32_t nobody;

	do {
		nobody = RING_NOBODY;
		if (__atomic_load_n(user, __ATOMIC_RELAXED) == RING_CONTROL)
			return;
	} while (!__atomic_compare_exchange_n(
		user, &nobody, RING_CONTROL, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED));
}

int
rx_ring_attach(struct rx_ring *r, uint32_t stream)
{
	const uint32_t n = post_receives(r->messages->streams[stream].qp, RECEIVES);

	rx_credit_begin(&r->stream[stream].credit, 0, 0);
	unlock(&r->stream[stream]);
	return n == RECEIVES ? 0 : -rte_errno;
}

void
rx_ring_credit(struct rx_ring *r, uint32_t stream, uint64_t address, uint32_t rkey)
{
	rx_ring_detach(r, stream);
	rx_credit_begin(&r->stream[stream].credit, address, rkey);
	unlock(&r->stream[stream]);
}

void
rx_ring_info_get(const struct rx_ring *r, struct rx_ring_info *info)
{
	*info = (struct rx_ring_info){.bytes = r->bytes,
		.kind = r->kind,
		.prefault_ns = r->prefault_ns,
		.register_ns = r->register_ns,
		.used_ns = (rte_rdtsc() - r->created_at) * 1e9 / rte_get_tsc_hz()};
}
