/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The builder role: closes frames, distributes them to gangs as batches, and sends their records to
 * the writer in frame order. All state belongs to the builder's lcore, except where a comment says
 * otherwise.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_gpudev.h>
#include <rte_malloc.h>

#include <gk_ring.h>

#include "builder/builder.h"
#include "builder/command.h"
#include "counter.h"
#include "frames/frame_table.h"
#include "log.h"
#include "mailbox.h"
#include "utc_clock.h"

LOG_REGISTER("builder", "builder");

enum queued_state {
	QUEUED_READY,	 /**< the record can go to the writer */
	QUEUED_CLOSED,	 /**< the frame waits for a gang */
	QUEUED_WITH_GANG /**< a gang has the frame's batch */
};

/** Entry of a frame in the queue. */
struct queued {
	struct frame_record *record;
	uint64_t first_tsc; /**< time of the first packet */
	uint64_t close_tsc;
	uint32_t slot;
	uint32_t batch;
	uint8_t gang;
	uint8_t state;	   /**< enum queued_state */
	uint8_t batch_end; /**< the frame is the last one of its batch */
	uint8_t veto;
};

/** A gang's task that does not process frames (GK_OP_UPDATE, GK_OP_CLEAR). */
struct builder_task {
	uint32_t gang;
	uint32_t batch;
};

struct builder {
	struct builder_config config;
	struct gk_ring rings[GK_GANGS_MAX];
	uint32_t next_gang;
	/**
	 * errno of a failed rte_gpu_wmb(): writes of the NIC are no longer ordered, and gangs get
	 * no batches
	 */
	int unordered;

	/* Queue in frame order. The indices run freely: retire <= dispatch <= close. */
	struct queued *queue;
	uint32_t retire, dispatch, close;

	struct frame_record *records;
	struct frame_record **free_records;
	uint32_t nb_free_records;
	uint32_t *free_outputs;
	uint32_t nb_free_outputs;
	/*
	 * Areas of radial profiles: of each frame slot, then of each record. A record whose frame
	 * is concluded has the area that the slot had, and the slot has the record's. NULL: none.
	 */
	uint32_t *profiles;
	double ns_per_cycle;
	struct utc_clock utc;			     /* converts receive times */
	uint32_t module_expected[FRAME_MODULES_MAX]; /**< expected packets of a module in a frame */
	struct gk_geometry geometry;		     /* of frames for gangs */

	/*
	 * Vetoes, by index into gk_channel.params. `veto` applies to the next frame given to a
	 * gang.
	 */
	struct builder_veto vetoes[GK_PARAMS_MAX];
	uint64_t veto_from[GK_PARAMS_MAX];
	uint32_t veto;	      /**< in force */
	uint32_t veto_newest; /**< last accepted veto, which may not be in force yet */
	/** veto of the last retired frame; older vetoes are no longer in use */
	uint32_t veto_retired;

	bool running; /**< a run exists */
	bool ending;  /**< the run is ending: the frame table closes its open frames */
	bool aborting;
	bool any_absent;      /**< the last frame lacked all packets of some stream */
	uint32_t packets_min; /**< incomplete frames with fewer packets are dropped */
	uint64_t run_closed;  /**< stats.closed when the run began */
	uint64_t run_late;    /**< stats.late_frames when the run began */
	bool ended;	      /**< atomic, because other threads read it */
	bool idle;	      /**< atomic, because other threads read it */

	/* pedestal intervals and dark frames */
	struct builder_dark dark;
	uint64_t interval;	 /**< interval of the frames that gangs get now */
	uint64_t interval_first; /**< first interval of the run, or since the detector restarted */
	uint64_t interval_ready; /**< latest interval whose coefficients are ready */
	bool interval_known;	 /**< a frame of the run has been examined */
	uint32_t coef;		 /**< index into gk_channel.coef of the version in force */
	struct builder_task tasks[GK_DARK_MAX]; /**< UPDATE and CLEAR tasks in progress */
	uint32_t nb_tasks;
	bool clearing;		/**< CLEAR tasks are in progress, and frames wait */
	uint64_t task_interval; /**< pedestal interval that the pending UPDATE prepares */

	struct mailbox mailbox;
	struct builder_command command; /**< in the mailbox */
	uint64_t effective;		/**< written before the mailbox is answered */
	uint32_t failed_gang;		/**< number of the gang + 1, 0: none; atomic */
	int failed_error;		/**< written before `failed_gang` */
	struct builder_stats stats __rte_cache_aligned;
};

static inline struct queued *
queued_at(struct builder *b, uint32_t index)
{
	return &b->queue[index & (BUILDER_RECORDS - 1)];
}

/** Return the gang with the fewest pending batches; NULL: all gangs have the maximum. */
static inline struct gk_ring *
builder_idlest_gang(struct builder *b)
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

/**
 * Return true if dark frames of this run update the pedestals. Otherwise the builder only marks
 * them.
 */
static inline bool
builder_is_tracking(const struct builder *b)
{
	return b->dark.select != BUILDER_DARK_NONE && b->dark.interval_frames != 0;
}

/** Return the number of a frame's pedestal interval. */
static inline uint64_t
builder_interval_of(const struct builder *b, uint64_t frame)
{
	return builder_is_tracking(b) ? frame / b->dark.interval_frames : 0;
}

/* ---- pedestal intervals and dark frames ---- */

/*
 * Overview (gk_abi.h, struct gk_dark).
 *
 * The frame number determines the pedestal interval. Dark frames of interval e are summed in
 * accumulator set e % 2 and take effect from interval e + 2 on. The update for interval e + 2 is
 * handed out when all frames of interval e have retired, while frames of interval e + 1 go to
 * gangs. Frames of interval e + 2 wait until the update is done. The update therefore runs in
 * parallel with frames, and a frame waits only if the interval is shorter than the pipeline. The
 * coefficient versions alternate between entries 0 and 1 of gk_channel.coef.
 */

/** Return true if the run's rule selects this frame as a dark frame. */
static bool
builder_is_dark(const struct builder *b, const struct frame_record *r)
{
	const struct builder_dark *d = &b->dark;

	switch (d->select) {
	case BUILDER_DARK_STATUS:
		return (r->detector_status & d->mask) == d->value;
	case BUILDER_DARK_BUNCH:
		return r->bunch_id % d->every == d->phase;
	case BUILDER_DARK_FRAME:
		return r->frame % d->every == d->phase;
	case BUILDER_DARK_RUN:
		return true;
	case BUILDER_DARK_NONE:
	default:
		return false;
	}
}

/** Hand out a task that does not process frames. @return false: no gang can accept it now */
static bool
hand_out(struct builder *b, enum gk_op op, uint32_t set, uint32_t coef_to)
{
	struct gk_ring *ring = builder_idlest_gang(b);
	struct builder_task *task;
	struct gk_work *work;

	if (ring == NULL || b->nb_tasks == GK_DARK_MAX)
		return false;
	work = gk_ring_next(ring);
	work->nb_frames = 0;
	work->op = op;
	work->params = b->veto;
	work->coef = b->coef;
	work->dark = set;
	work->coef_to = coef_to;
	task = &b->tasks[b->nb_tasks++];
	task->gang = ring->gang;
	task->batch = gk_ring_submit(ring);
	return true;
}

/**
 * Reset the state at the start of a run. No pedestal interval is known, and the coefficients of the
 * calibration are in force.
 */
static void
builder_interval_begin(struct builder *b, const struct builder_dark *dark)
{
	b->dark = *dark;
	b->interval = 0;
	b->interval_ready = 0;
	b->clearing = false;
	b->interval_known = false;
	b->coef = 0;
}

/** Begin with this pedestal interval, and clear the sums of earlier ones. */
static void
begin_at(struct builder *b, uint64_t interval)
{
	/* nothing else is in flight, so there is room for two tasks */
	if (b->retire != b->dispatch || b->nb_tasks > 0)
		return;
	for (uint32_t set = 0; set < GK_DARK_MAX; set++)
		hand_out(b, GK_OP_CLEAR, set, 0);
	b->clearing = true;
	b->interval_known = true;
	b->interval = interval;
	b->interval_first = interval;
	/* the first two pedestal intervals use the existing coefficients */
	b->interval_ready = interval + 1;
}

/**
 * Check whether the frame can go to a gang, that is, whether the coefficients of its pedestal
 * interval are ready. If so, this interval takes effect.
 */
static bool
builder_interval_enter(struct builder *b, uint64_t frame)
{
	const uint64_t interval = builder_interval_of(b, frame);

	if (!builder_is_tracking(b))
		return true;
	/* the run begins, or the detector restarted its frame numbers */
	if (!b->interval_known || interval < b->interval || interval > b->interval + 1) {
		begin_at(b, interval);
		return false;
	}
	if (b->clearing)
		return false;
	if (interval == b->interval)
		return true;
	if (interval > b->interval_ready)
		return false;
	if (interval >= b->interval_first + 2)
		b->coef ^= 1;
	b->interval = interval;
	return true;
}

/** Return true if all frames up to the end of this pedestal interval are retired. */
static bool
interval_has_retired(struct builder *b, uint64_t interval)
{
	if (b->retire == b->close)
		return true;
	return builder_interval_of(b, queued_at(b, b->retire)->record->frame) > interval;
}

/** Start the update for the interval that follows the one in force, as soon as possible. */
static uint32_t
update(struct builder *b)
{
	const uint64_t next = b->interval + 1;
	const uint32_t to = b->coef ^ 1;
	struct gk_coef *coef = b->config.channel->coef;

	if (!b->interval_known || b->nb_tasks > 0 || b->interval_ready >= next || !b->running ||
		!interval_has_retired(b, next - 2))
		return 0;
	coef[to].version = coef[b->coef].version + 1;
	if (!hand_out(b, GK_OP_UPDATE, next % GK_DARK_MAX, to))
		return 0;
	b->task_interval = next;
	return 1;
}

/** Count the result of a completed update. */
static void
note_update(struct builder *b)
{
	const struct gk_update *u = &b->config.channel->update[b->task_interval % GK_DARK_MAX];

	b->interval_ready = b->task_interval;
	counter_add(&b->stats.updates, 1);
	counter_add(&b->stats.update_samples, u->samples);
	COUNTER_SET(b->stats.update_pixels, u->updated);
	COUNTER_SET(b->stats.update_drift_q8, u->drift);
	COUNTER_SET(b->stats.pedestal_version, u->to);
}

/** Collect completed tasks, and hand out those that are due. @return number of tasks */
static uint32_t
builder_interval_poll(struct builder *b)
{
	uint32_t done = 0;

	for (uint32_t i = 0; i < b->nb_tasks;) {
		struct gk_ring *ring = &b->rings[b->tasks[i].gang];

		if (!gk_ring_is_done(ring, b->tasks[i].batch) ||
			(int32_t)(ring->raw_tail - b->tasks[i].batch) <= 0) {
			i++;
			continue;
		}
		gk_ring_collect(ring);
		b->tasks[i] = b->tasks[--b->nb_tasks];
		if (!b->clearing)
			note_update(b);
		done++;
	}
	if (b->nb_tasks == 0)
		b->clearing = false;
	if (builder_is_tracking(b))
		done += update(b);
	return done;
}

/* ---- runs, commands and thresholds ---- */

/** Return true if another veto than the one in force applies to this frame. */
static bool
builder_veto_differs(const struct builder *b, uint64_t frame)
{
	return b->veto != b->veto_newest && frame >= b->veto_from[(b->veto + 1) % GK_PARAMS_MAX];
}

/**
 * Activate all vetoes that apply from this frame on, and store the versions in the record. This is
 * done in frame order, also for frames that go to no gang, so that the result does not depend on
 * the progress of the gangs.
 */
static void
builder_set_versions(struct builder *b, struct frame_record *r)
{
	while (builder_veto_differs(b, r->frame))
		b->veto = (b->veto + 1) % GK_PARAMS_MAX;
	r->veto_version = b->vetoes[b->veto].params.version;
	r->pedestal_version = b->config.channel->coef[b->coef].version;
}

/** Store a veto that applies from frame `from` on. @return its index */
static uint32_t
take_veto(struct builder *b, const struct builder_veto *veto, uint64_t from)
{
	const uint32_t next = (b->veto_newest + 1) % GK_PARAMS_MAX;

	b->vetoes[next] = *veto;
	b->veto_from[next] = from;
	b->config.channel->params[next] = veto->params;
	b->config.channel->params[next].chunks &= b->config.chunks;
	b->config.channel->peak[next] = veto->peak;
	b->veto_newest = next;
	return next;
}

static int
change_veto(struct builder *b, const struct builder_command *c)
{
	/*
	 * Closed frames that wait keep the veto that was in force when they arrived. In a run
	 * without packets the first frame number is unknown.
	 */
	const uint64_t earliest = frame_table_next(b->config.table);

	if (!b->running || b->ending || (b->veto_newest + 2) % GK_PARAMS_MAX == b->veto_retired)
		return -EBUSY;
	b->effective = RTE_MAX(c->from_frame, earliest);
	/* Vetoes apply in the order in which they were posted, even if one is not in force yet. */
	if (b->veto != b->veto_newest)
		b->effective = RTE_MAX(b->effective, b->veto_from[b->veto_newest]);
	take_veto(b, &c->veto, b->effective);
	return 0;
}

static void
forget_streams(struct builder *b)
{
	uint64_t *words = (uint64_t *)b->stats.stream;

	for (uint32_t i = 0; i < sizeof(b->stats.stream) / (sizeof(uint64_t)); i++)
		counter_set(&words[i], 0);
	counter_set(&b->stats.complete, 0);
	b->any_absent = false;
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
	b->packets_min = c->packets_min;
	builder_interval_begin(b, &c->dark);
	b->run_closed = b->stats.closed;
	forget_streams(b);
	b->run_late = b->stats.late_frames;
	counter_set(&b->stats.first_frame, 0);
	counter_set(&b->stats.last_frame, 0);
	b->running = true;
	b->ending = false;
	b->aborting = false;
	__atomic_store_n(&b->ended, false, __ATOMIC_RELEASE);
	__atomic_store_n(&b->idle, false, __ATOMIC_RELEASE);
	return 0;
}

static void note_closed(struct builder *b, const struct queued *q);

/** Discard closed frames that no gang has. */
static void
abort_waiting(struct builder *b)
{
	for (; b->dispatch != b->close; b->dispatch++) {
		struct queued *q = queued_at(b, b->dispatch);

		builder_set_versions(b, q->record);
		if (q->state != QUEUED_CLOSED)
			continue;
		if (b->config.table->config.trailers)
			note_closed(b, q);
		frame_table_release(b->config.table, q->slot);
		frame_table_recycle(b->config.table, q->slot);
		q->record->verdict = FRAME_ABORTED;
		q->state = QUEUED_READY;
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

/** Execute the command in the mailbox. @return its result */
static int
execute_command(struct builder *b)
{
	const struct builder_command *c = &b->command;

	switch (c->order) {
	case BUILDER_BEGIN:
		return begin_run(b, c);
	case BUILDER_END:
	case BUILDER_ABORT:
		return end_run(b, c->order == BUILDER_ABORT);
	case BUILDER_VETO:
		return change_veto(b, c);
	}
	return -EINVAL;
}

/** Check whether the run is over or has reached its last frame. Called when no work is left. */
static void
builder_check_run(struct builder *b)
{
	if (!b->running || b->retire != b->close || b->nb_tasks > 0)
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
builder_post(struct builder *b, const struct builder_command *command)
{
	if (!mailbox_is_free(&b->mailbox))
		return -EBUSY;
	b->command = *command;
	mailbox_post(&b->mailbox);
	return 0;
}

bool
builder_cancel(struct builder *b)
{
	return mailbox_cancel(&b->mailbox);
}

int
builder_result(const struct builder *b, uint64_t *effective)
{
	const int ret = mailbox_result(&b->mailbox);

	if (effective != NULL && ret != -EINPROGRESS)
		*effective = b->effective;
	return ret;
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

/* ---- creation and destruction ---- */

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
	const uint32_t areas = config->table->config.slots + BUILDER_RECORDS;

	if (config->profiles > 0 && config->profiles < areas) {
		LOG(ERR, "%u areas of radial profiles, expected at least %u\n", config->profiles,
			areas);
		rte_errno = EINVAL;
		return NULL;
	}
	if (!in_range("number of gangs", config->gangs, GK_GANGS_MAX) ||
		!in_range("frames per batch", config->batch, GK_BATCH_MAX) ||
		!in_range("number of output slots", config->outputs, GK_NO_OUT - 1))
		return NULL;
	b = rte_zmalloc_socket("builder", sizeof(*b), RTE_CACHE_LINE_SIZE, config->socket);
	if (b == NULL)
		goto no_memory;
	b->config = *config;
	b->queue = rte_zmalloc_socket(
		"builder_queue", BUILDER_RECORDS * sizeof(*b->queue), 64, config->socket);
	b->records = rte_zmalloc_socket(
		"builder_records", BUILDER_RECORDS * sizeof(*b->records), 64, config->socket);
	b->free_records = rte_zmalloc_socket("builder_free_records",
		BUILDER_RECORDS * sizeof(*b->free_records), 64, config->socket);
	b->free_outputs = rte_zmalloc_socket("builder_free_outputs",
		config->outputs * sizeof(*b->free_outputs), 64, config->socket);
	if (config->profiles > 0)
		b->profiles = rte_malloc_socket("builder_profiles",
			config->profiles * sizeof(*b->profiles), 64, config->socket);
	if (b->queue == NULL || b->records == NULL || b->free_records == NULL ||
		b->free_outputs == NULL || (config->profiles > 0 && b->profiles == NULL))
		goto no_memory;
	for (uint32_t i = 0; i < BUILDER_RECORDS; i++)
		b->free_records[b->nb_free_records++] = &b->records[BUILDER_RECORDS - 1 - i];
	for (uint32_t i = 0; i < config->outputs; i++)
		b->free_outputs[b->nb_free_outputs++] =
			config->output != NULL ? config->output[i] : config->outputs - 1 - i;
	for (uint32_t i = 0; i < config->profiles; i++)
		b->profiles[i] = i;
	for (uint32_t i = 0; i < config->gangs; i++)
		gk_ring_init(&b->rings[i], config->channel, i);
	b->ns_per_cycle = 1e9 / rte_get_tsc_hz();
	utc_clock_begin(&b->utc);
	for (uint32_t i = 0; i < config->table->detector.streams; i++)
		b->module_expected[detector_stream_module(&config->table->detector, i)] +=
			detector_stream_expected(&config->table->detector, i);
	b->geometry.tiles = config->table->detector.tiles * config->table->detector.parts;
	b->geometry.tile_rows = config->table->detector.ops->tile_rows;
	b->geometry.cols = config->table->detector.ops->cols;
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
	rte_free(b->queue);
	rte_free(b->records);
	rte_free(b->free_records);
	rte_free(b->free_outputs);
	rte_free(b->profiles);
	rte_free(b);
}

/* ---- records of closed frames ---- */

/** Collect the records that the writer has returned, and free their output slots. */
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

/** Free the packets that gangs have released. */
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
 * Compare the headers of a frame's streams: storage cell and gain mode with each other and with the
 * configuration, and the bunch ids with each other. Count the frame if they differ.
 * @param first  number of the first stream with a packet
 * @return flags of the frame
 */
static uint32_t
compare_streams(struct builder *b, const struct frame_closed *closed, uint32_t first)
{
	const struct frame_table *ft = b->config.table;
	const struct detector *d = &ft->detector;
	const struct detector_frame_info *of = &frame_table_stream(ft, closed->slot, first)->info;
	struct builder_stats *stats = &b->stats;
	uint32_t status_stream = first, bunch_stream = first, flags = 0;

	if ((of->status & d->status_mask) != d->status_value)
		flags |= FRAME_FLAG_STATUS;
	for (uint32_t s = first + 1; s < d->streams; s++) {
		const struct detector_frame_info *info =
			&frame_table_stream(ft, closed->slot, s)->info;
		const bool status = ((info->status ^ of->status) & d->ops->status_common) != 0;
		const bool bunch = info->bunch_id != of->bunch_id && !d->bunch_any;

		if (likely(!status && !bunch) ||
			frame_table_stream_packets(ft, closed->slot, s) == 0)
			continue;
		if (status) {
			flags |= FRAME_FLAG_STATUS;
			status_stream = s;
		}
		if (bunch) {
			flags |= FRAME_FLAG_BUNCH;
			bunch_stream = s;
		}
	}
	if (unlikely(flags & FRAME_FLAG_STATUS)) {
		counter_set(&stats->status_seen,
			(uint64_t)frame_table_stream(ft, closed->slot, status_stream)->info.status
					<< 32 |
				of->status);
		counter_set(&stats->status_stream, status_stream);
		counter_add(&stats->status_mismatch, 1);
	}
	if (unlikely(flags & FRAME_FLAG_BUNCH)) {
		counter_set(&stats->bunch_frame, closed->frame);
		counter_set(&stats->bunch_first, of->bunch_id);
		counter_set(&stats->bunch_seen,
			frame_table_stream(ft, closed->slot, bunch_stream)->info.bunch_id);
		counter_set(&stats->bunch_streams, (uint64_t)bunch_stream << 32 | first);
		counter_add(&stats->bunch_mismatch, 1);
	}
	return flags;
}

/**
 * Build the map of missing packets from the streams' bitmaps, which have one cache line each. The
 * pointers to the packets occupy many times as many cache lines.
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

/** Fill in a frame's missing packets, by module and as a map. */
static void
describe_missing(const struct builder *b, const struct frame_closed *closed, struct frame_record *r)
{
	const struct frame_table *ft = b->config.table;
	const struct detector *d = &ft->detector;

	for (uint32_t s = 0; s < d->streams && closed->missing > 0; s++)
		r->missing[detector_stream_module(d, s)] += detector_stream_expected(d, s) -
			frame_table_stream_packets(ft, closed->slot, s);
	if (closed->missing > 0 || d->expected < d->tiles)
		map_missing(ft, closed->slot, r);
}

/**
 * Fill in a frame's missing packets, and the fields of the packet header of its first stream.
 * @return TSC of the first packet of that stream
 */
static uint64_t
describe(struct builder *b, const struct frame_closed *closed, struct frame_record *r)
{
	const struct frame_table *ft = b->config.table;
	const struct detector *d = &ft->detector;
	const struct frame_stream *first = NULL;
	uint32_t first_stream = 0;

	for (uint32_t s = 0; s < d->streams && first == NULL; s++) {
		if (frame_table_stream_packets(ft, closed->slot, s) == 0)
			continue;
		first = frame_table_stream(ft, closed->slot, s);
		first_stream = s;
	}
	describe_missing(b, closed, r);
	r->flags |= compare_streams(b, closed, first_stream);
	r->bunch_id = first->info.bunch_id;
	r->detector_time = first->info.time;
	r->exposure = first->info.exposure;
	r->detector_status = first->info.status;
	utc_clock_follow(&b->utc);
	r->receive_time = utc_clock_ns(&b->utc, first->rx_tsc);
	return first->rx_tsc;
}

/** Update the statistics of one stream. @return true if the stream is absent from this frame */
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

/** Update the statistics of all streams for a frame. Complete frames need no update. */
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

/** Update the statistics of packets for a frame that has any. */
static void
note_packets(struct builder *b, const struct frame_closed *closed, const struct frame_record *r)
{
	note_streams(b, closed);
	counter_add(&b->stats.packets, closed->packets);
	counter_add(&b->stats.missing_packets, closed->missing);
	for (uint32_t m = 0; m < b->config.table->detector.modules; m++) {
		counter_add(&b->stats.module_frames[m], r->missing[m] < b->module_expected[m]);
		counter_add(&b->stats.module_missing[m], r->missing[m]);
	}
}

/** A frame in the queue, as frame_table_close() has returned it. */
static struct frame_closed
closed_of(const struct builder *b, const struct queued *q)
{
	const struct frame_table *ft = b->config.table;
	const uint32_t missing = frame_table_frame(ft, q->slot)->missing;

	return (struct frame_closed){.frame = q->record->frame,
		.slot = q->slot,
		.packets = ft->detector.expected - missing,
		.missing = missing};
}

/** Update the statistics for a frame that goes to no gang. */
static void
note_closed(struct builder *b, const struct queued *q)
{
	const struct frame_closed closed = closed_of(b, q);

	note_packets(b, &closed, q->record);
}

/** Count a frame that was closed early, or refused, because of streams that were behind. */
static void
note_waited_for(struct builder *b, const struct frame_closed *closed)
{
	counter_add(closed->refused ? &b->stats.refused_behind : &b->stats.closed_early, 1);
	for (uint64_t i = closed->waited_for; i != 0; i &= i - 1)
		counter_add(&b->stats.stream[__builtin_ctzll(i)].waited_for, 1);
}

/** Assign a record and an entry in the queue to a frame that has left the frame table. */
static void
queue_closed(struct builder *b, const struct frame_closed *closed)
{
	const struct detector *d = &b->config.table->detector;
	struct queued *q = queued_at(b, b->close++);
	struct frame_record *r = b->free_records[--b->nb_free_records];

	memset(r, 0, sizeof(*r));
	r->frame = closed->frame;
	r->kind = GK_KIND_NONE;
	r->out = GK_NO_OUT;
	r->peaks = FRAME_NO_SEARCH;
	r->profile = FRAME_NO_PROFILE;
	if (closed->missing > 0 && !closed->refused)
		r->flags |= FRAME_FLAG_INCOMPLETE;
	if (closed->timeout)
		r->flags |= FRAME_FLAG_TIMEOUT;
	*q = (struct queued){
		.record = r, .slot = closed->slot, .state = QUEUED_READY, .close_tsc = rte_rdtsc()};

	if (b->stats.closed == b->run_closed)
		counter_set(&b->stats.first_frame, closed->frame);
	counter_add(&b->stats.closed, 1);
	counter_set(&b->stats.last_frame, closed->frame);
	counter_add(&b->stats.timeouts, closed->timeout);
	if (unlikely(closed->waited_for != 0))
		note_waited_for(b, closed);
	if (closed->packets == 0) {
		r->verdict = closed->refused ? FRAME_REFUSED : FRAME_LOST;
		for (uint32_t i = 0; i < d->streams; i++)
			r->missing[detector_stream_module(d, i)] += detector_stream_expected(d, i);
		memset(r->missing_map, 0xFF, d->tiles / 8);
		return;
	}
	q->first_tsc = describe(b, closed, r);
	if (b->aborting || (closed->missing > 0 && closed->packets < b->packets_min)) {
		r->verdict = b->aborting ? FRAME_ABORTED : FRAME_INCOMPLETE;
		note_packets(b, closed, r);
		frame_table_release(b->config.table, closed->slot);
		frame_table_recycle(b->config.table, closed->slot);
		return;
	}
	q->state = QUEUED_CLOSED;
	/* gangs may find that more packets of a frame in memory are missing */
	if (likely(!b->config.table->config.trailers))
		note_packets(b, closed, r);
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

/* ---- batches for gangs ---- */

/** Prepare a frame for a gang: assign an output slot, and set its flags. */
static void
prepare(struct builder *b, const struct queued *q)
{
	struct gk_frame *f = frame_table_frame(b->config.table, q->slot);

	const struct builder_veto *v = &b->vetoes[b->veto];

	f->out = b->free_outputs[--b->nb_free_outputs];
	if (b->profiles != NULL)
		f->profile = b->profiles[q->slot];
	if (v->dry_run)
		f->flags |= GK_FRAME_KEEP;
	if (builder_is_dark(b, q->record)) {
		q->record->flags |= FRAME_FLAG_DARK;
		/*
		 * Without pedestal intervals the accumulators are never cleared, and the sums would
		 * overflow.
		 */
		if (builder_is_tracking(b))
			f->flags |= GK_FRAME_DARK;
	}
	if (v->prescale != 0 && f->frame % v->prescale == 0)
		f->flags |= GK_FRAME_KEEP | (v->prescale_raw ? GK_FRAME_KIND_RAW : 0);
}

/** Report a failed gang to other threads. It never finishes its batches. */
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
		struct frame_record *first = queued_at(b, b->dispatch)->record;
		struct queued *last = NULL;
		struct gk_ring *ring;
		struct gk_work *work;

		if (!builder_interval_enter(b, first->frame))
			break;
		builder_set_versions(b, first);
		if (queued_at(b, b->dispatch)->state == QUEUED_READY) {
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
			struct queued *q = queued_at(b, b->dispatch);

			/*
			 * A batch has one veto and one pedestal interval. The outer loop switches
			 * to the next ones.
			 */
			if (builder_veto_differs(b, q->record->frame) ||
				builder_interval_of(b, q->record->frame) != b->interval)
				break;
			builder_set_versions(b, q->record);
			if (q->state == QUEUED_READY)
				continue;
			prepare(b, q);
			q->veto = b->veto;
			work->slot[work->nb_frames++] = q->slot;
			q->gang = ring->gang;
			q->batch = ring->head;
			q->state = QUEUED_WITH_GANG;
			last = q;
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

/* ---- results ---- */

static void
count_latency(struct builder *b, struct histogram *histogram, uint64_t since)
{
	histogram_count(histogram, (uint64_t)((rte_rdtsc() - since) * b->ns_per_cycle / 1000));
}

/**
 * A gang has read a frame whose packets are in memory: remove the packets that it has not found
 * there.
 * @return false: too few packets are left to keep the frame
 */
static bool
check_trailers(struct builder *b, struct queued *q, const struct gk_result *result)
{
	struct frame_table *ft = b->config.table;
	struct frame_record *r = q->record;
	struct frame_closed closed = closed_of(b, q);

	counter_add(&b->stats.not_found, result->missing);
	counter_add(&b->stats.overrun, result->overrun);
	if (result->missing + result->overrun > 0) {
		frame_table_lose(
			ft, &closed, gk_missing_map(&b->geometry, frame_table_frame(ft, q->slot)));
		memset(r->missing, 0, sizeof(r->missing));
		memset(r->missing_map, 0, sizeof(r->missing_map));
		describe_missing(b, &closed, r);
		r->flags |= FRAME_FLAG_INCOMPLETE;
	}
	if (closed.packets == 0) {
		r->verdict = FRAME_LOST;
		return false;
	}
	note_packets(b, &closed, r);
	if (closed.missing == 0 || closed.packets >= b->packets_min)
		return true;
	r->verdict = FRAME_INCOMPLETE;
	return false;
}

/** Copy the numbers of peaks of a frame that was searched. */
static void
note_peaks(const struct builder *b, const struct queued *q, const struct gk_result *result)
{
	struct frame_record *r = q->record;

	r->peaks = result->peaks;
	r->shells = b->vetoes[q->veto].peak.shells;
	memcpy(r->shell_peaks, b->config.details[q->slot].shell_peaks, sizeof(r->shell_peaks));
}

/** Give the frame's profile to the record, and the slot the area that the record had. */
static void
note_profile(struct builder *b, const struct queued *q)
{
	struct frame_record *r = q->record;
	uint32_t *slot = &b->profiles[q->slot];
	uint32_t *record = &b->profiles[b->config.table->config.slots + (r - b->records)];

	r->profile = *slot;
	*slot = *record;
	*record = r->profile;
}

/**
 * Complete the record with a gang's result, and free the resources that the frame no longer needs.
 */
static void
conclude(struct builder *b, struct queued *q)
{
	const struct gk_frame *f = frame_table_frame(b->config.table, q->slot);
	const struct gk_result *result = &b->config.results[q->slot];
	struct frame_record *r = q->record;
	const bool whole =
		likely((f->flags & GK_FRAME_TRAILER) == 0) || check_trailers(b, q, result);
	const bool kept = whole && result->kind != GK_KIND_NONE;

	if (!whole)
		goto concluded;
	r->sum = (double)result->sum / 256;
	r->strong_count = result->strong_count;
	r->saturated = result->saturated;
	r->invalid = result->invalid;
	r->nnz = result->nnz;
	r->kind = result->kind;
	r->chunk_bytes = kept && b->config.chunks ? b->config.details[q->slot].chunk_bytes : 0;
	r->chunk_crc32c = r->chunk_bytes > 0 ? b->config.details[q->slot].chunk_crc32c : 0;
	r->veto_version = result->params;
	r->pedestal_version = result->coef;
	if (result->peaks_found != GK_NOT_SEARCHED && b->config.details != NULL)
		note_peaks(b, q, result);
	if (b->profiles != NULL)
		note_profile(b, q);
	if (result->verdict == GK_VERDICT_HIT && b->dark.select != BUILDER_DARK_RUN)
		r->verdict = FRAME_HIT;
	else if (!kept)
		r->verdict = FRAME_VETOED;
	else
		r->verdict = b->vetoes[q->veto].dry_run ? FRAME_DRY_RUN : FRAME_PRESCALED;
concluded:
	if (kept) {
		r->out = f->out;
		counter_add(&b->stats.incomplete_kept, (r->flags & FRAME_FLAG_INCOMPLETE) != 0);
		if (r->kind == GK_KIND_IMAGE && b->vetoes[q->veto].params.kind == GK_KIND_CSR)
			r->flags |= FRAME_FLAG_DENSE;
	} else {
		b->free_outputs[b->nb_free_outputs++] = f->out;
	}
	b->veto_retired = q->veto;
	count_latency(b, &b->stats.latency_verdict, q->first_tsc);
	count_latency(b, &b->stats.latency_gang, q->close_tsc);
	frame_table_recycle(b->config.table, q->slot);
}

/** Send records with complete results to the writer, in frame order. */
static uint32_t
retire(struct builder *b)
{
	uint32_t n = 0;

	/*
	 * Stop at the dispatch index, because a pedestal interval begins only when all dispatched
	 * frames are retired.
	 */
	for (; b->retire != b->dispatch; b->retire++, n++) {
		struct queued *q = queued_at(b, b->retire);
		struct gk_ring *ring = &b->rings[q->gang];

		if (q->state == QUEUED_WITH_GANG) {
			/* Free the packets first: the slot is reused below. */
			if (!gk_ring_is_done(ring, q->batch) ||
				(int32_t)(ring->raw_tail - q->batch) <= 0)
				break;
			conclude(b, q);
			if (q->batch_end)
				gk_ring_collect(ring);
		}
		counter_add(&b->stats.verdicts[q->record->verdict], 1);
		/* Never full: the ring has room for all records. */
		rte_ring_sp_enqueue(b->config.egress, q->record);
	}
	return n;
}

/* ---- polling and statistics ---- */

/** Check for a failed gang. */
static void
check_gangs(struct builder *b)
{
	for (uint32_t g = 0; g < b->config.gangs; g++) {
		const uint32_t error =
			__atomic_load_n(&b->config.channel->done[g].error, __ATOMIC_ACQUIRE);

		if (error != 0)
			fail_gang(b, g, (int)error);
	}
}

/*
 * In the life of a frame the order of these steps is: frame_table_open(), close_frames(),
 * dispatch(), take_raw(), retire(), take_returned(). Steps that free records, output slots and
 * packets are called first, so that the others can use them in the same call.
 */
int
builder_poll(void *arg)
{
	struct builder *b = arg;
	uint32_t done;
	uint64_t late;

	if (unlikely(mailbox_take(&b->mailbox)))
		mailbox_answer(&b->mailbox, execute_command(b));
	done = take_returned(b);
	done += take_raw(b);
	done += retire(b);
	done += close_frames(b);
	done += builder_interval_poll(b);
	done += dispatch(b);
	done += frame_table_open(b->config.table);
	late = b->run_late + frame_table_late_frames(b->config.table);
	if (unlikely(late != b->stats.late_frames))
		counter_set(&b->stats.late_frames, late);
	if (done > 0)
		return 1;
	check_gangs(b);
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
