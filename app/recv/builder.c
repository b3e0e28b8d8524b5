/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_malloc.h>

#include "builder.h"

RTE_LOG_REGISTER(builder_logtype, braggline.builder, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, builder_logtype, "builder: " __VA_ARGS__)

enum place_state {
	PLACE_READY,	/**< its record can go to egress */
	PLACE_CLOSED,	/**< waits for a gang */
	PLACE_WITH_GANG /**< its batch is out */
};

/** A frame's place in the queue. */
struct place {
	struct frame_record *record;
	uint64_t first_tsc; /**< first packet */
	uint64_t close_tsc;
	uint32_t slot;
	uint32_t batch;
	uint8_t gang;
	uint8_t state;	   /**< enum place_state */
	uint8_t batch_end; /**< last frame of its batch */
	uint8_t veto;
};

struct builder {
	struct builder_config config;
	struct gk_ring rings[GK_GANGS_MAX];
	uint32_t next_gang;

	/* queue in frame order; indices run free: retire <= dispatch <= close */
	struct place *places;
	uint32_t retire, dispatch, close;

	struct frame_record *records;
	struct frame_record **free_records;
	uint32_t nb_free_records;
	uint32_t *free_outputs;
	uint32_t nb_free_outputs;
	double ns_per_cycle;

	/* the veto that the next frame is given to gangs with, by place in gk_channel.params */
	struct builder_veto vetoes[GK_PARAMS_MAX];
	uint64_t veto_from[GK_PARAMS_MAX];
	uint32_t veto;	       /**< in force */
	uint32_t veto_newest;  /**< last one taken, perhaps not in force yet */
	uint32_t veto_retired; /**< of the last frame retired: older ones are no longer used */

	bool running; /**< there is a run */
	bool ending;  /**< ... and the frame table closes what is open */
	bool aborting;
	bool drop_incomplete;
	uint64_t run_closed; /**< stats.closed when the run began */
	bool ended;	     /**< read by others */
	bool idle;	     /**< read by others */

	struct builder_command command; /**< written by others before `posted` */
	uint32_t posted;		/**< orders given */
	uint32_t carried_out;		/**< orders done */
	int result;
	uint64_t effective;
	uint32_t failed_gang;
	struct builder_stats stats __rte_cache_aligned;
};

static struct place *
place_at(struct builder *b, uint32_t index)
{
	return &b->places[index & (BUILDER_RECORDS - 1)];
}

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
		!in_range("frames of a batch", config->batch, GK_BATCH_MAX) ||
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
	b->idle = true;
	return b;

no_memory:
	LOG(ERR, "no memory for %u frame records\n", BUILDER_RECORDS);
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

/** Records that come back bring their output slots. */
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

static void
free_mbufs(struct builder *b, uint32_t slot)
{
	/* rte_pktmbuf_free_bulk() skips the NULLs of missing packets */
	rte_pktmbuf_free_bulk(
		frame_table_mbufs(b->config.table, slot), b->config.table->detector.tiles);
}

/** Packets that gangs have let go of. */
static uint32_t
take_raw(struct builder *b)
{
	uint32_t n = 0, batch;

	for (uint32_t g = 0; g < b->config.gangs; g++) {
		while (gk_ring_take_raw(&b->rings[g], &batch)) {
			const struct gk_work *work = gk_ring_work(&b->rings[g], batch);

			for (uint32_t i = 0; i < work->nb_frames; i++)
				free_mbufs(b, work->slot[i]);
			n++;
		}
	}
	return n;
}

/**
 * What the packets of a frame say of it: missing ones, and the header of its first stream.
 * @return TSC of the first packet of that stream
 */
static uint64_t
describe(struct builder *b, const struct frame_closed *closed, struct frame_record *r)
{
	const struct frame_table *ft = b->config.table;
	const struct detector *d = &ft->detector;
	const struct gk_frame *f = frame_table_frame(ft, closed->slot);
	const struct frame_stream *first = NULL;

	for (uint32_t s = 0; s < d->streams && (first == NULL || closed->missing > 0); s++) {
		const uint32_t present = frame_table_stream_packets(ft, closed->slot, s);

		if (present > 0 && first == NULL)
			first = frame_table_stream(ft, closed->slot, s);
		r->missing[detector_stream_module(d, s)] += d->stream_packets - present;
	}
	for (uint32_t t = 0; t < d->tiles && closed->missing > 0; t++)
		r->missing_map[t / 8] |= (f->packet[t] == 0) << (t % 8);
	r->bunch_id = first->info.bunch_id;
	r->detector_time = first->info.time;
	r->exposure = first->info.exposure;
	r->detector_status = first->info.status;
	r->receive_time = b->config.clock_ns +
		(int64_t)((double)(int64_t)(first->rx_tsc - b->config.clock_tsc) * b->ns_per_cycle);
	return first->rx_tsc;
}

/** A frame has left the table: give it a record and a place in the queue. */
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
	r->veto_version = b->vetoes[b->veto].params.version;
	r->pedestal_version = b->config.channel->coef[0].version;
	if (closed->missing > 0 && !closed->refused)
		r->flags |= FRAME_FLAG_INCOMPLETE;
	if (closed->timeout)
		r->flags |= FRAME_FLAG_TIMEOUT;
	*place = (struct place){
		.record = r, .slot = closed->slot, .state = PLACE_READY, .close_tsc = rte_rdtsc()};

	if (b->stats.closed++ == b->run_closed)
		b->stats.first_frame = closed->frame;
	b->stats.last_frame = closed->frame;
	b->stats.timeouts += closed->timeout;
	b->stats.packets += closed->packets;
	if (closed->packets == 0) {
		r->verdict = closed->refused ? FRAME_REFUSED : FRAME_LOST;
		for (uint32_t m = 0; m < d->modules; m++)
			r->missing[m] = d->module_packets;
		memset(r->missing_map, 0xFF, d->tiles / 8);
		return;
	}
	place->first_tsc = describe(b, closed, r);
	b->stats.missing_packets += closed->missing;
	for (uint32_t m = 0; m < d->modules; m++) {
		b->stats.module_frames[m] += r->missing[m] < d->module_packets;
		b->stats.module_missing[m] += r->missing[m];
	}
	if (b->aborting || (closed->missing > 0 && b->drop_incomplete)) {
		r->verdict = b->aborting ? FRAME_ABORTED : FRAME_INCOMPLETE;
		free_mbufs(b, closed->slot);
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
	b->stats.waits_records += b->nb_free_records == 0;
	return n;
}

/** Make a frame ready for a gang: where its output goes and what is wanted of it. */
static void
prepare(struct builder *b, const struct place *place)
{
	struct gk_frame *f = frame_table_frame(b->config.table, place->slot);

	const struct builder_veto *v = &b->vetoes[b->veto];

	f->out = b->free_outputs[--b->nb_free_outputs];
	place->record->veto_version = v->params.version;
	if (v->dry_run)
		f->flags |= GK_FRAME_KEEP;
	if (v->audit_every != 0 && f->frame % v->audit_every == 0)
		f->flags |= GK_FRAME_KEEP | (v->audit_raw ? GK_FRAME_KIND_RAW : 0);
}

/** Does another veto apply from this frame on? Then it is in force. */
static bool
veto_changes(struct builder *b, uint64_t frame)
{
	const uint32_t next = (b->veto + 1) % GK_PARAMS_MAX;

	if (b->veto == b->veto_newest || frame < b->veto_from[next])
		return false;
	b->veto = next;
	return true;
}

/** The gang with the fewest batches out, if it may have one more. */
static struct gk_ring *
idlest_gang(struct builder *b)
{
	struct gk_ring *best = NULL;

	for (uint32_t i = 0; i < b->config.gangs; i++) {
		struct gk_ring *r = &b->rings[(b->next_gang + i) % b->config.gangs];

		if (gk_ring_pending(r) < BUILDER_GANG_DEPTH &&
			(best == NULL || gk_ring_pending(r) < gk_ring_pending(best)))
			best = r;
	}
	return best;
}

/** Hand closed frames to gangs, oldest first. */
static uint32_t
dispatch(struct builder *b)
{
	uint32_t batches = 0;

	while (b->dispatch != b->close) {
		struct place *last = NULL;
		struct gk_ring *ring;
		struct gk_work *work;

		if (place_at(b, b->dispatch)->state == PLACE_READY) {
			b->dispatch++;
			continue;
		}
		ring = idlest_gang(b);
		if (ring == NULL)
			break;
		if (b->nb_free_outputs == 0) {
			b->stats.waits_outputs++;
			break;
		}
		while (veto_changes(b, place_at(b, b->dispatch)->record->frame))
			;
		work = gk_ring_next(ring);
		work->nb_frames = 0;
		work->params = b->veto;
		work->coef = 0;
		for (; b->dispatch != b->close && work->nb_frames < b->config.batch &&
			b->nb_free_outputs > 0;
			b->dispatch++) {
			struct place *place = place_at(b, b->dispatch);

			if (place->state == PLACE_READY)
				continue;
			/* a batch has one veto; the loop outside takes the other one up */
			if (b->veto != b->veto_newest &&
				place->record->frame >= b->veto_from[(b->veto + 1) % GK_PARAMS_MAX])
				break;
			prepare(b, place);
			place->veto = b->veto;
			work->slot[work->nb_frames++] = place->slot;
			place->gang = ring->gang;
			place->batch = ring->head;
			place->state = PLACE_WITH_GANG;
			last = place;
		}
		last->batch_end = 1;
		b->stats.batches++;
		b->stats.batched_frames += work->nb_frames;
		b->stats.gang_batches[ring->gang]++;
		b->stats.gang_frames[ring->gang] += work->nb_frames;
		b->next_gang = (ring->gang + 1) % b->config.gangs;
		gk_ring_submit(ring);
		batches++;
	}
	return batches;
}

static void
count_latency(struct builder *b, uint64_t histogram[], uint64_t since)
{
	const uint64_t us = (uint64_t)((rte_rdtsc() - since) * b->ns_per_cycle / 1000);
	const uint32_t bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);

	histogram[RTE_MIN(bucket, BUILDER_LATENCY_BUCKETS - 1u)]++;
}

/** Turn a gang's result into the rest of the record; give back what the frame no longer needs. */
static void
conclude(struct builder *b, struct place *place)
{
	const struct gk_frame *f = frame_table_frame(b->config.table, place->slot);
	const struct gk_result *result = &b->config.results[place->slot];
	struct frame_record *r = place->record;
	const bool kept = result->kind != GK_KIND_NONE;

	r->sum = (double)result->sum / 256;
	r->bragg_count = result->bragg_count;
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
		r->verdict = b->vetoes[place->veto].dry_run ? FRAME_DRY_RUN : FRAME_AUDIT;
	if (kept) {
		r->out = f->out;
		b->stats.incomplete_kept += f->missing > 0;
		if (r->kind == GK_KIND_IMAGE && b->config.channel->params[0].kind == GK_KIND_CSR)
			r->flags |= FRAME_FLAG_DENSE;
	} else {
		b->free_outputs[b->nb_free_outputs++] = f->out;
	}
	b->veto_retired = place->veto;
	count_latency(b, b->stats.latency_verdict, place->first_tsc);
	count_latency(b, b->stats.latency_gang, place->close_tsc);
	frame_table_recycle(b->config.table, place->slot);
}

/** Send records to egress in frame order, as far as results are there. */
static uint32_t
retire(struct builder *b)
{
	uint32_t n = 0;

	for (; b->retire != b->close; b->retire++, n++) {
		struct place *place = place_at(b, b->retire);
		struct gk_ring *ring = &b->rings[place->gang];

		if (place->state == PLACE_CLOSED)
			break;
		if (place->state == PLACE_WITH_GANG) {
			/* packets first: the slot is recycled below */
			if (!gk_ring_is_done(ring, place->batch) ||
				(int32_t)(ring->raw_tail - place->batch) <= 0)
				break;
			conclude(b, place);
			if (place->batch_end)
				gk_ring_collect(ring);
		}
		b->stats.verdicts[place->record->verdict]++;
		/* never full: there are no more records than the ring has room for */
		rte_ring_sp_enqueue(b->config.egress, place->record);
	}
	return n;
}

/** A gang that gave up never finishes: whoever looks at the builder has to know. */
static void
look_after_gangs(struct builder *b)
{
	for (uint32_t g = 0; g < b->config.gangs; g++)
		if (__atomic_load_n(&b->config.channel->done[g].error, __ATOMIC_ACQUIRE) != 0)
			__atomic_store_n(&b->failed_gang, g + 1, __ATOMIC_RELEASE);
}

/** The veto that the next frame would be judged by. */
static uint32_t
take_veto(struct builder *b, const struct builder_veto *veto, uint64_t from)
{
	const uint32_t next = (b->veto_newest + 1) % GK_PARAMS_MAX;

	b->vetoes[next] = *veto;
	b->veto_from[next] = from;
	b->config.channel->params[next] = veto->params;
	b->veto_newest = next;
	return next;
}

static int
change_veto(struct builder *b, const struct builder_command *c)
{
	/* frames that are closed and wait are judged by the veto that they arrived under */
	const uint64_t next = b->config.table->builder.next_close;
	const uint64_t earliest = frame_table_number(b->config.table, next);

	if (!b->running || b->ending || (b->veto_newest + 2) % GK_PARAMS_MAX == b->veto_retired)
		return -EBUSY;
	b->effective = RTE_MAX(c->from_frame, earliest);
	b->effective = RTE_MAX(b->effective, b->veto_from[b->veto_newest]);
	take_veto(b, &c->veto, b->effective);
	return 0;
}

static int
begin_run(struct builder *b, const struct builder_command *c)
{
	int ret;

	if (b->running)
		return -EBUSY;
	ret = frame_table_begin(b->config.table, &c->run);
	if (ret != 0)
		return ret;
	b->veto = take_veto(b, &c->veto, 0);
	b->veto_retired = b->veto;
	b->drop_incomplete = c->drop_incomplete;
	b->run_closed = b->stats.closed;
	b->running = true;
	b->ending = false;
	b->aborting = false;
	b->ended = false;
	__atomic_store_n(&b->idle, false, __ATOMIC_RELEASE);
	return 0;
}

/** Throw away what is closed and no gang has. */
static void
abort_waiting(struct builder *b)
{
	for (; b->dispatch != b->close; b->dispatch++) {
		struct place *place = place_at(b, b->dispatch);

		if (place->state != PLACE_CLOSED)
			continue;
		free_mbufs(b, place->slot);
		frame_table_recycle(b->config.table, place->slot);
		place->record->verdict = FRAME_ABORTED;
		place->state = PLACE_READY;
	}
}

static int
end_run(struct builder *b, bool aborting)
{
	if (!b->running)
		return -EBUSY;
	if (aborting) {
		frame_table_end(b->config.table);
		abort_waiting(b);
	} else if (!b->ending) {
		frame_table_stop(b->config.table);
	}
	b->ending = true;
	b->aborting |= aborting;
	return 0;
}

static void
carry_out(struct builder *b)
{
	const struct builder_command *c = &b->command;

	switch (c->order) {
	case BUILDER_BEGIN:
		b->result = begin_run(b, c);
		break;
	case BUILDER_END:
	case BUILDER_ABORT:
		b->result = end_run(b, c->order == BUILDER_ABORT);
		break;
	case BUILDER_VETO:
		b->result = change_veto(b, c);
		break;
	}
	__atomic_store_n(&b->carried_out, b->carried_out + 1, __ATOMIC_RELEASE);
}

/** Nothing is left to do: is the run over, or has it come to its last frame? */
static void
look_at_run(struct builder *b)
{
	if (!b->running || b->retire != b->close)
		return;
	if (!b->ending && frame_table_ended(b->config.table))
		__atomic_store_n(&b->ended, true, __ATOMIC_RELEASE);
	if (b->ending && frame_table_ended(b->config.table) &&
		b->config.table->window.state != FRAME_WINDOW_CLOSED)
		frame_table_end(b->config.table);
	if (b->ending && frame_table_flushed(b->config.table) &&
		b->nb_free_records == BUILDER_RECORDS) {
		b->running = false;
		__atomic_store_n(&b->idle, true, __ATOMIC_RELEASE);
	}
}

int
builder_poll(void *arg)
{
	struct builder *b = arg;
	uint32_t done;

	if (unlikely(__atomic_load_n(&b->posted, __ATOMIC_ACQUIRE) != b->carried_out))
		carry_out(b);
	done = take_returned(b);
	done += take_raw(b);
	done += retire(b);
	done += close_frames(b);
	done += dispatch(b);
	done += frame_table_open(b->config.table);
	if (done > 0)
		return 1;
	look_after_gangs(b);
	look_at_run(b);
	return 0;
}

int
builder_post(struct builder *b, const struct builder_command *command)
{
	if (__atomic_load_n(&b->carried_out, __ATOMIC_ACQUIRE) != b->posted)
		return -EBUSY;
	b->command = *command;
	__atomic_store_n(&b->posted, b->posted + 1, __ATOMIC_RELEASE);
	return 0;
}

int
builder_result(const struct builder *b, uint64_t *effective)
{
	if (__atomic_load_n(&b->carried_out, __ATOMIC_ACQUIRE) !=
		__atomic_load_n(&b->posted, __ATOMIC_ACQUIRE))
		return -EINPROGRESS;
	if (effective != NULL)
		*effective = b->effective;
	return b->result;
}

bool
builder_is_idle(const struct builder *b)
{
	return __atomic_load_n(&b->idle, __ATOMIC_ACQUIRE);
}

bool
builder_has_ended(const struct builder *b)
{
	return __atomic_load_n(&b->ended, __ATOMIC_ACQUIRE);
}

uint32_t
builder_failed_gang(const struct builder *b, int *error)
{
	const uint32_t gang = __atomic_load_n(&b->failed_gang, __ATOMIC_ACQUIRE);

	if (gang != 0)
		*error = (int)b->config.channel->done[gang - 1].error;
	return gang;
}

const struct builder_stats *
builder_stats(const struct builder *b)
{
	return &b->stats;
}
