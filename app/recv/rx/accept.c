/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Checks packets whose detector headers were read: packet number, source, position. Keeps samples
 * of packets that cannot be used.
 */

#include <string.h>

#include "counter.h"
#include "rx/messages.h"
#include "rx/rx.h"
#include "rx/sources.h"
#include "rx/transport.h"

const uint8_t *
rx_queue_pair_headers(const struct rx *rx, const struct rx_packet *p)
{
	return rx->messages->headers[p->stream];
}

void
rx_keep_sample(struct rx *rx, enum rx_counter cause, uint32_t stream, const struct rx_excerpt *e)
{
	struct rx_samples *all = &rx->samples;
	const uint32_t waiting = all->head - __atomic_load_n(&all->tail, __ATOMIC_ACQUIRE);
	struct rx_sample *s;
	uint64_t n;

	counter_add(&all->total, 1);
	if (cause == RX_CHECKSUM || cause == RX_WRONG_LENGTH || cause == RX_MALFORMED)
		counter_add(&all->stream[stream].packets, 1);
	if (waiting == 0)
		all->since = 0;
	n = all->since++;
	if ((n & (n - 1)) != 0 || waiting == RX_SAMPLES)
		return;
	s = &all->ring[all->head % RX_SAMPLES];
	s->length = e->length;
	s->cause = cause;
	s->bytes = 0;
	if (e->headers != NULL) {
		s->bytes = SOURCE_HEADERS;
		memcpy(s->data, e->headers, SOURCE_HEADERS);
	}
	n = RTE_MIN(e->bytes, (uint32_t)(RX_SAMPLE_BYTES - s->bytes));
	memcpy(s->data + s->bytes, e->data, n);
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
keep_malformed(struct rx *rx, const struct rx_packet *p, uint32_t packet)
{
	const struct detector_ops *ops = rx->detector->ops;
	struct rx_unusable *of = &rx->samples.stream[p->stream];
	const struct rx_excerpt e = {.headers = rx_headers(rx, p),
		.data = p->header,
		.bytes = ops->header_bytes,
		.length = SOURCE_HEADERS + ops->header_bytes + ops->pixel_bytes};

	if (packet != DETECTOR_PACKET_BAD) {
		if (of->lowest == 0 || packet + 1 < of->lowest)
			__atomic_store_n(&of->lowest, packet + 1, __ATOMIC_RELAXED);
		if (packet + 1 > of->highest)
			__atomic_store_n(&of->highest, packet + 1, __ATOMIC_RELAXED);
	}
	rx_keep_sample(rx, RX_MALFORMED, p->stream, &e);
}

void
rx_note_drop(struct rx *rx, uint32_t stream, uint64_t frame, enum rx_counter cause)
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
		rx_count_drop(rx, &packets[i], cause);
		rx_note_drop(rx, packets[i].stream, packets[i].frame, cause);
		rte_pktmbuf_free(packets[i].m);
	}
	return kept;
}

/** Drop all packets of some streams, placed, pending or in this burst: their source was wrong. */
static void
expel(struct rx *rx, uint64_t streams, enum rx_counter cause, struct rx_batch *batch)
{
	for (uint64_t i = streams; i != 0; i &= i - 1) {
		const uint32_t s = __builtin_ctzll(i);
		const uint32_t n = frame_rx_expel(rx->table, rx->frx, s);

		counter_set(&rx->counters[RX_PLACED], rx->counters[RX_PLACED] - n);
		counter_add(&rx->counters[cause], n);
		counter_set(&rx->waiting[s], 0);
	}
	for (uint32_t i = 0; i < rx->nb_pending; i++)
		if ((streams >> rx->pending[i].stream & 1) != 0 && rx->pending[i].held != RX_HELD)
			rx->nb_of_source[rx->pending[i].source]--;
	for (uint64_t i = streams; i != 0; i &= i - 1)
		COUNTER_SET(rx->nb_held[__builtin_ctzll(i)], 0);
	COUNTER_SET(rx->nb_pending, drop_streams(rx, rx->pending, rx->nb_pending, streams, cause));
	batch->n = drop_streams(rx, batch->packets, batch->n, streams, cause);
}

/** A stream of any RX role has announced another position: check those of this role's streams. */
static void
review_positions(struct rx *rx, uint32_t version, struct rx_batch *batch)
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

void
rx_check_positions(struct rx *rx, struct rx_batch *batch)
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
	struct rx_batch *batch)
{
	const enum source_verdict v = sources_verdict(rx->sources, stream, headers, position);

	if (v == SOURCE_EXPELLED)
		expel(rx, UINT64_C(1) << stream, RX_FOREIGN, batch);
	rx_check_positions(rx, batch);
	if (v != SOURCE_OURS)
		return v == SOURCE_MISPLACED ? RX_MISPLACED : RX_FOREIGN;
	return rx->sources->stream[stream].misplaced ? RX_MISPLACED : RX_PLACED;
}

/** Decide about a packet whose detector header was parsed. @return RX_PLACED if it may be placed */
static inline enum rx_counter
check_packet(struct rx *rx, const struct rx_packet *p, const struct detector_packet *parsed,
	struct rx_batch *batch)
{
	const uint8_t *headers;

	if (unlikely(parsed->packet < rx->detector->expect_from[p->stream] ||
		    parsed->packet >= rx->detector->expect_to[p->stream])) {
		keep_malformed(rx, p, parsed->packet);
		return RX_MALFORMED;
	}
	if (unlikely(rx->table->config.owner[p->stream] != rx->frx->id))
		return RX_HANDOFF_SENT;
	headers = rx_headers(rx, p);
	if (likely(source_takes(&rx->sources->filter[p->stream], headers, parsed->position)))
		return RX_PLACED;
	return judge(rx, p->stream, headers, parsed->position, batch);
}

uint32_t
rx_accept(struct rx *rx, uint32_t source, struct rx_packet *out,
	const struct detector_packet *parsed, uint32_t valid, struct rx_batch *batch,
	struct rx_dropped *drop)
{
	for (uint32_t i = 0; i < valid; i++) {
		const uint32_t stream = out[i].stream;
		const enum rx_counter c = check_packet(rx, &out[i], &parsed[i], batch);
		struct rx_packet *p;

		if (unlikely(c == RX_HANDOFF_SENT)) {
			const uint32_t to = rx->table->config.owner[stream];

			rx->handoff_out[to][rx->nb_handoff_out[to]++] = out[i].m;
			continue;
		}
		if (unlikely(c != RX_PLACED)) {
			rx_count_drop(rx, &out[i], c);
			if (c != RX_MALFORMED)
				rx_note_drop(rx, stream, parsed[i].frame, c);
			drop->m[drop->n++] = out[i].m;
			continue;
		}
		p = &out[batch->n++];
		if (unlikely(p != &out[i]))
			*p = out[i];
		p->source = source;
		p->frame = parsed[i].frame;
		p->packet = parsed[i].packet;
		p->held = RX_NOT_HELD;
	}
	if (drop->n > 0)
		rte_pktmbuf_free_bulk(drop->m, drop->n);
	return batch->n;
}
