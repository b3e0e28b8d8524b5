/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "builder/builder_private.h"
#include "histogram.h"

RTE_LOG_REGISTER(builder_logtype, braggline.builder, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, builder_logtype, "builder: " __VA_ARGS__)

static bool
in_range(const char *name, uint32_t value, uint32_t high)
{
	if (value >= 1 && value <= high)
		return true;
	LOG(ERR, "%s is %u, must be 1 ... %u\n", name, value, high);
	rte_errno = EINVAL;
	return false;
}

struct builder *
builder_create(const struct builder_config *config)
{
	struct builder *b;

	if (!in_range("number of gangs", config->gangs, GK_GANGS_MAX) ||
		!in_range("frames per batch", config->batch, GK_BATCH_MAX) ||
		!in_range("number of output slots", config->outputs, GK_NO_OUT - 1))
		return NULL;
	b = rte_zmalloc_socket("builder", sizeof(*b), RTE_CACHE_LINE_SIZE, config->socket);
	if (b == NULL)
		goto no_memory;
	b->config = *config;
	b->places = rte_zmalloc_socket(
		"builder_places", BUILDER_RECORDS * sizeof(*b->places), 64, config->socket);
	b->records = rte_zmalloc_socket(
		"builder_records", BUILDER_RECORDS * sizeof(*b->records), 64, config->socket);
	b->free_records = rte_zmalloc_socket("builder_free_records",
		BUILDER_RECORDS * sizeof(*b->free_records), 64, config->socket);
	b->free_outputs = rte_zmalloc_socket("builder_free_outputs",
		config->outputs * sizeof(*b->free_outputs), 64, config->socket);
	if (b->places == NULL || b->records == NULL || b->free_records == NULL ||
		b->free_outputs == NULL)
		goto no_memory;
	for (uint32_t i = 0; i < BUILDER_RECORDS; i++)
		b->free_records[b->nb_free_records++] = &b->records[BUILDER_RECORDS - 1 - i];
	for (uint32_t i = 0; i < config->outputs; i++)
		b->free_outputs[b->nb_free_outputs++] = config->outputs - 1 - i;
	for (uint32_t i = 0; i < config->gangs; i++)
		gk_ring_init(&b->rings[i], config->channel, i);
	b->ns_per_cycle = 1e9 / rte_get_tsc_hz();
	utc_clock_begin(&b->utc);
	for (uint32_t i = 0; i < config->table->detector.streams; i++)
		b->module_expected[detector_stream_module(&config->table->detector, i)] +=
			detector_stream_expected(&config->table->detector, i);
	b->idle = true;
	return b;

no_memory:
	LOG(ERR, "cannot allocate %u frame records\n", BUILDER_RECORDS);
	builder_destroy(b);
	rte_errno = ENOMEM;
	return NULL;
}

void
builder_destroy(struct builder *b)
{
	if (b == NULL)
		return;
	rte_free(b->places);
	rte_free(b->records);
	rte_free(b->free_records);
	rte_free(b->free_outputs);
	rte_free(b);
}

/** Collect records that egress returned, and free their output slots. */
static uint32_t
take_returned(struct builder *b)
{
	struct frame_record *records[64];
	uint32_t n;

	n = rte_ring_sc_dequeue_burst(b->config.returned, (void **)records, RTE_DIM(records), NULL);
	for (uint32_t i = 0; i < n; i++) {
		if (records[i]->out != GK_NO_OUT)
			b->free_outputs[b->nb_free_outputs++] = records[i]->out;
		b->free_records[b->nb_free_records++] = records[i];
	}
	return n;
}

/** Free packets that gangs have released. */
static uint32_t
take_raw(struct builder *b)
{
	uint32_t n = 0, batch;

	for (uint32_t g = 0; g < b->config.gangs; g++) {
		while (gk_ring_take_raw(&b->rings[g], &batch)) {
			const struct gk_work *work = gk_ring_work(&b->rings[g], batch);

			for (uint32_t i = 0; i < work->nb_frames; i++)
				frame_table_release(b->config.table, work->slot[i]);
			n++;
		}
	}
	return n;
}

/**
 * Return true if modules disagree on storage cell or gain mode, or if these differ from the
 * configuration.
 */
static bool
is_odd(const struct frame_table *ft, const struct frame_closed *closed,
	const struct frame_stream *first)
{
	const struct detector *d = &ft->detector;
	const uint32_t status = first->info.status;

	if ((status & d->status_mask) != d->status_value)
		return true;
	for (uint32_t s = 0; s < d->streams; s++) {
		const struct frame_stream *st = frame_table_stream(ft, closed->slot, s);

		if (((st->info.status ^ status) & d->ops->status_common) != 0 &&
			frame_table_stream_packets(ft, closed->slot, s) != 0)
			return true;
	}
	return false;
}

/**
 * Build the map of missing packets from the streams' bitmaps, one cache line each. The pointers to
 * packets would be many times as many lines.
 */
static void
map_missing(const struct frame_table *ft, uint32_t slot, struct frame_record *r)
{
	const struct detector *d = &ft->detector;

	for (uint32_t s = 0; s < d->streams; s++) {
		const struct frame_stream *st = frame_table_stream(ft, slot, s);
		const bool any = frame_table_stream_packets(ft, slot, s) > 0;
		uint32_t tile = detector_stream_tile(d, s);

		for (uint32_t p = 0; p < d->stream_packets; p++, tile++) {
			const bool here = any && (st->seen[p >> 6] >> (p & 63) & 1) != 0;

			r->missing_map[tile / 8] |= !here << (tile % 8);
		}
	}
}

/**
 * Get a frame's missing packets, and the packet header of its first stream.
 * @return TSC of the first packet of that stream
 */
static uint64_t
describe(struct builder *b, const struct frame_closed *closed, struct frame_record *r)
{
	const struct frame_table *ft = b->config.table;
	const struct detector *d = &ft->detector;
	const struct frame_stream *first = NULL;

	for (uint32_t s = 0; s < d->streams && (first == NULL || closed->missing > 0); s++) {
		const uint32_t present = frame_table_stream_packets(ft, closed->slot, s);

		if (present > 0 && first == NULL)
			first = frame_table_stream(ft, closed->slot, s);
		r->missing[detector_stream_module(d, s)] +=
			detector_stream_expected(d, s) - present;
	}
	if (closed->missing > 0 || d->expected < d->tiles)
		map_missing(ft, closed->slot, r);
	if (is_odd(ft, closed, first)) {
		r->flags |= FRAME_FLAG_STATUS;
		counter_add(&b->stats.status_mismatch, 1);
	}
	r->bunch_id = first->info.bunch_id;
	r->detector_time = first->info.time;
	r->exposure = first->info.exposure;
	r->detector_status = first->info.status;
	utc_clock_follow(&b->utc);
	r->receive_time = utc_clock_ns(&b->utc, first->rx_tsc);
	return first->rx_tsc;
}

/** @return true if a stream is absent from this frame */
static bool
note_stream(struct builder *b, const struct frame_closed *closed, uint32_t s)
{
	const struct frame_table *ft = b->config.table;
	const uint32_t expected = detector_stream_expected(&ft->detector, s);
	const struct frame_stream *st = frame_table_stream(ft, closed->slot, s);
	struct builder_stream *of = &b->stats.stream[s];
	const uint32_t present =
		closed->missing == 0 ? expected : frame_table_stream_packets(ft, closed->slot, s);

	if (expected == 0)
		return false;
	counter_add(&of->missing, expected - present);
	if (present == 0) {
		if (of->absent == 0)
			counter_set(&of->absent_from, closed->frame);
		if (of->absent + 1 == BUILDER_SILENT_FRAMES) {
			counter_set(&of->silent_from, of->absent_from);
			counter_set(&of->silent_to, 0);
			counter_add(&of->silences, 1);
		}
		counter_add(&of->absent, 1);
		return true;
	}
	if (of->absent >= BUILDER_SILENT_FRAMES)
		counter_set(&of->silent_to, closed->frame);
	counter_set(&of->absent, 0);
	if (closed->missing > 0) {
		counter_add(&of->frames, 1);
		counter_set(&of->seen[0], of->seen[0] | st->seen[0]);
		counter_set(&of->seen[1], of->seen[1] | st->seen[1]);
	}
	return false;
}

/** Update the stream statistics for a frame. Complete frames need no update. */
static void
note_streams(struct builder *b, const struct frame_closed *closed)
{
	bool any = false;

	counter_add(&b->stats.complete, closed->missing == 0);
	if (likely(closed->missing == 0 && !b->any_absent))
		return;
	for (uint32_t s = 0; s < b->config.table->detector.streams; s++)
		any |= note_stream(b, closed, s);
	b->any_absent = any;
}

/** Give a frame that left the frame table a record and an entry in the queue. */
static void
queue_closed(struct builder *b, const struct frame_closed *closed)
{
	const struct detector *d = &b->config.table->detector;
	struct place *place = place_at(b, b->close++);
	struct frame_record *r = b->free_records[--b->nb_free_records];

	memset(r, 0, sizeof(*r));
	r->frame = closed->frame;
	r->kind = GK_KIND_NONE;
	r->out = GK_NO_OUT;
	if (closed->missing > 0 && !closed->refused)
		r->flags |= FRAME_FLAG_INCOMPLETE;
	if (closed->timeout)
		r->flags |= FRAME_FLAG_TIMEOUT;
	*place = (struct place){
		.record = r, .slot = closed->slot, .state = PLACE_READY, .close_tsc = rte_rdtsc()};

	if (b->stats.closed == b->run_closed)
		counter_set(&b->stats.first_frame, closed->frame);
	counter_add(&b->stats.closed, 1);
	counter_set(&b->stats.last_frame, closed->frame);
	counter_add(&b->stats.timeouts, closed->timeout);
	counter_add(&b->stats.packets, closed->packets);
	if (closed->packets == 0) {
		r->verdict = closed->refused ? FRAME_REFUSED : FRAME_LOST;
		for (uint32_t i = 0; i < d->streams; i++)
			r->missing[detector_stream_module(d, i)] += detector_stream_expected(d, i);
		memset(r->missing_map, 0xFF, d->tiles / 8);
		return;
	}
	place->first_tsc = describe(b, closed, r);
	note_streams(b, closed);
	counter_add(&b->stats.missing_packets, closed->missing);
	for (uint32_t m = 0; m < d->modules; m++) {
		counter_add(&b->stats.module_frames[m], r->missing[m] < b->module_expected[m]);
		counter_add(&b->stats.module_missing[m], r->missing[m]);
	}
	if (b->aborting || (closed->missing > 0 && closed->packets < b->packets_min)) {
		r->verdict = b->aborting ? FRAME_ABORTED : FRAME_INCOMPLETE;
		frame_table_release(b->config.table, closed->slot);
		frame_table_recycle(b->config.table, closed->slot);
		return;
	}
	place->state = PLACE_CLOSED;
}

static uint32_t
close_frames(struct builder *b)
{
	struct frame_closed closed;
	uint32_t n = 0;

	while (b->nb_free_records > 0 && frame_table_close(b->config.table, &closed)) {
		queue_closed(b, &closed);
		n++;
	}
	counter_add(&b->stats.no_record, b->nb_free_records == 0);
	return n;
}

/** Prepare a frame for a gang: its output slot and flags. */
static void
prepare(struct builder *b, const struct place *place)
{
	struct gk_frame *f = frame_table_frame(b->config.table, place->slot);

	const struct builder_veto *v = &b->vetoes[b->veto];

	f->out = b->free_outputs[--b->nb_free_outputs];
	if (v->dry_run)
		f->flags |= GK_FRAME_KEEP;
	if (builder_is_dark(b, place->record)) {
		place->record->flags |= FRAME_FLAG_DARK;
		/*
		 * Without pedestal intervals nothing clears the accumulators, and the sums would
		 * overflow.
		 */
		if (builder_is_tracking(b))
			f->flags |= GK_FRAME_DARK;
	}
	if (v->prescale != 0 && f->frame % v->prescale == 0)
		f->flags |= GK_FRAME_KEEP | (v->prescale_raw ? GK_FRAME_KIND_RAW : 0);
}

/** Record a failed gang for other threads, because it never finishes its batches. */
static void
fail_gang(struct builder *b, uint32_t gang, int error)
{
	if (b->failed_gang != 0)
		return;
	b->failed_error = error;
	__atomic_store_n(&b->failed_gang, gang + 1, __ATOMIC_RELEASE);
}

/** Hand closed frames to gangs, oldest first. */
static uint32_t
dispatch(struct builder *b)
{
	uint32_t batches = 0;

	while (b->dispatch != b->close && likely(b->unordered == 0)) {
		struct frame_record *first = place_at(b, b->dispatch)->record;
		struct place *last = NULL;
		struct gk_ring *ring;
		struct gk_work *work;

		if (!builder_interval_enter(b, first->frame))
			break;
		builder_set_versions(b, first);
		if (place_at(b, b->dispatch)->state == PLACE_READY) {
			b->dispatch++;
			continue;
		}
		ring = builder_idlest_gang(b);
		if (ring == NULL)
			break;
		if (b->nb_free_outputs == 0) {
			counter_add(&b->stats.no_output_slot, 1);
			break;
		}
		work = gk_ring_next(ring);
		work->nb_frames = 0;
		work->params = b->veto;
		work->coef = b->coef;
		work->op = GK_OP_FRAMES;
		work->dark = b->interval % GK_DARK_MAX;
		for (; b->dispatch != b->close && work->nb_frames < b->config.batch &&
			b->nb_free_outputs > 0;
			b->dispatch++) {
			struct place *place = place_at(b, b->dispatch);

			/*
			 * A batch has one veto and one pedestal interval. The outer loop switches
			 * to the next ones.
			 */
			if (builder_veto_differs(b, place->record->frame) ||
				builder_interval_of(b, place->record->frame) != b->interval)
				break;
			builder_set_versions(b, place->record);
			if (place->state == PLACE_READY)
				continue;
			prepare(b, place);
			place->veto = b->veto;
			work->slot[work->nb_frames++] = place->slot;
			place->gang = ring->gang;
			place->batch = ring->head;
			place->state = PLACE_WITH_GANG;
			last = place;
		}
		last->batch_end = 1;
		counter_add(&b->stats.batches, 1);
		counter_add(&b->stats.batched_frames, work->nb_frames);
		counter_add(&b->stats.gang_batches[ring->gang], 1);
		counter_add(&b->stats.gang_frames[ring->gang], work->nb_frames);
		b->next_gang = (ring->gang + 1) % b->config.gangs;
		/* A NIC's writes must be visible before the doorbell is rung. */
		if (b->config.gpu_writes) {
			b->unordered = rte_gpu_wmb(b->config.gpu);
			if (unlikely(b->unordered != 0)) {
				fail_gang(b, ring->gang, b->unordered);
				break;
			}
		}
		gk_ring_submit(ring);
		batches++;
	}
	return batches;
}

static void
count_latency(struct builder *b, uint64_t histogram[], uint64_t since)
{
	const uint64_t us = (uint64_t)((rte_rdtsc() - since) * b->ns_per_cycle / 1000);

	counter_add(&histogram[latency_bucket(us, BUILDER_LATENCY_BUCKETS)], 1);
}

/** Complete the record with a gang's result, and free what the frame no longer needs. */
static void
conclude(struct builder *b, struct place *place)
{
	const struct gk_frame *f = frame_table_frame(b->config.table, place->slot);
	const struct gk_result *result = &b->config.results[place->slot];
	struct frame_record *r = place->record;
	const bool kept = result->kind != GK_KIND_NONE;

	r->sum = (double)result->sum / 256;
	r->strong_count = result->strong_count;
	r->saturated = result->saturated;
	r->invalid = result->invalid;
	r->nnz = result->nnz;
	r->kind = result->kind;
	r->veto_version = result->params;
	r->pedestal_version = result->coef;
	if (result->verdict == GK_VERDICT_HIT)
		r->verdict = FRAME_HIT;
	else if (!kept)
		r->verdict = FRAME_VETOED;
	else
		r->verdict = b->vetoes[place->veto].dry_run ? FRAME_DRY_RUN : FRAME_PRESCALED;
	if (kept) {
		r->out = f->out;
		counter_add(&b->stats.incomplete_kept, f->missing > 0);
		if (r->kind == GK_KIND_IMAGE && b->vetoes[place->veto].params.kind == GK_KIND_CSR)
			r->flags |= FRAME_FLAG_DENSE;
	} else {
		b->free_outputs[b->nb_free_outputs++] = f->out;
	}
	b->veto_retired = place->veto;
	count_latency(b, b->stats.latency_verdict, place->first_tsc);
	count_latency(b, b->stats.latency_gang, place->close_tsc);
	frame_table_recycle(b->config.table, place->slot);
}

/** Send records to egress in frame order, as far as results are complete. */
static uint32_t
retire(struct builder *b)
{
	uint32_t n = 0;

	/*
	 * Stop at the dispatch index: a pedestal interval begins when all dispatched frames are
	 * retired.
	 */
	for (; b->retire != b->dispatch; b->retire++, n++) {
		struct place *place = place_at(b, b->retire);
		struct gk_ring *ring = &b->rings[place->gang];

		if (place->state == PLACE_WITH_GANG) {
			/* Free the packets first: the slot is reused below. */
			if (!gk_ring_is_done(ring, place->batch) ||
				(int32_t)(ring->raw_tail - place->batch) <= 0)
				break;
			conclude(b, place);
			if (place->batch_end)
				gk_ring_collect(ring);
		}
		counter_add(&b->stats.verdicts[place->record->verdict], 1);
		/* Never full: the ring has room for all records. */
		rte_ring_sp_enqueue(b->config.egress, place->record);
	}
	return n;
}

/** Check for a failed gang. */
static void
look_after_gangs(struct builder *b)
{
	for (uint32_t g = 0; g < b->config.gangs; g++) {
		const uint32_t error =
			__atomic_load_n(&b->config.channel->done[g].error, __ATOMIC_ACQUIRE);

		if (error != 0)
			fail_gang(b, g, (int)error);
	}
}

int
builder_poll(void *arg)
{
	struct builder *b = arg;
	uint32_t done;
	uint64_t late;

	if (unlikely(__atomic_load_n(&b->order, __ATOMIC_ACQUIRE) == BUILDER_COMMAND_POSTED))
		builder_carry_out(b);
	done = take_returned(b);
	done += take_raw(b);
	done += retire(b);
	done += close_frames(b);
	done += builder_interval_poll(b);
	done += dispatch(b);
	done += frame_table_open(b->config.table);
	late = b->run_late + b->config.table->builder.late_frames;
	if (unlikely(late != b->stats.late_frames))
		counter_set(&b->stats.late_frames, late);
	if (done > 0)
		return 1;
	look_after_gangs(b);
	builder_check_run(b);
	return 0;
}

uint32_t
builder_failed_gang(const struct builder *b, int *error)
{
	const uint32_t gang = __atomic_load_n(&b->failed_gang, __ATOMIC_ACQUIRE);

	if (gang != 0)
		*error = b->failed_error;
	return gang;
}

struct builder_stats
builder_stats(const struct builder *b)
{
	struct builder_stats stats;

	counters_get(&stats, &b->stats, sizeof(stats));
	return stats;
}
