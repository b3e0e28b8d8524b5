/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_ring.h>

#include "builder/compressor.h"
#include "clock.h"
#include "counter.h"
#include "egress/egress.h"
#include "log.h"
#include "output/batch_writer.h"

LOG_REGISTER("writer", "writer");

/* time between two looks at the thread at its end */
#define JOIN_US 1000

enum request {
	RUN,
	STOP,  /* stop when the ring is empty */
	ABORT, /* stop immediately */
};

struct batch_writer {
	struct batch_writer_config config;
	struct arrow_tables tables;
	struct batch_builder *builder;
	struct run_files *run;
	pthread_t thread;
	bool started;
	bool closed;
	bool began; /* a run was begun at the egress */
	bool has_calibration;
	bool refers;	      /* the output slots are in the journal: batches refer to them */
	uint32_t slot;	      /* a free output slot; JOURNAL_NO_SLOT: none */
	int error;	      /* of the run, when it is closed */
	enum request request; /* atomic; written by the controlling thread */
	struct batch_writer_stats stats; /* written by the writer's thread only; without table[] */
	struct run_files_status status[ARROW_TABLES]; /* as last read by batch_writer_path() */
	/* copy of a record whose output is in the staging buffer */
	struct frame_record fetched;
	uint64_t now; /* in ms, coarse clock */
	/* `now` at the arrival of the oldest row in an open batch; 0: there is none */
	uint64_t since;
};

static void
writer_log(void *arg, bool error, const char *text)
{
	if (error)
		LOG(ERR, "%s\n", text);
	else
		LOG(INFO, "%s\n", text);
}

static void
writer_emit(void *arg, const struct batch *b)
{
	struct batch_writer *w = arg;
	int ret;

	if (w->config.egress != NULL)
		ret = egress_put(w->config.egress, b);
	else
		ret = run_files_append(w->run, b);
	if (ret == 0) {
		counter_add(&w->stats.kept_bytes, b->kept_bytes);
		counter_add(&w->stats.copied_bytes, b->copied_bytes);
	}
	if (ret != 0 && b->table == ARROW_IMAGES)
		batch_builder_disown(w->builder, b->first, b->last);
	/* the current row, which is not added yet, will begin the next batch */
	if (b->table == ARROW_FRAMES)
		w->since = 0;
}

/* Files are written from the builder's memory. */
static void
writer_reclaim(void *arg, enum arrow_table table, unsigned int set)
{
	const struct batch_writer *w = arg;

	run_files_reclaim(w->run, table, set);
}

/* Stores are sent batches from the journal. */
static uint8_t *
writer_place(void *arg, uint64_t size)
{
	const struct batch_writer *w = arg;

	return egress_room(w->config.egress, ARROW_IMAGES, size);
}

static int64_t
writer_clock(void *arg)
{
	const struct batch_writer *w = arg;

	return w->config.clock(w->config.clock_arg);
}

static void
idle_sleep(struct batch_writer *w)
{
	const struct timespec t = {.tv_nsec = BATCH_WRITER_NAP_US * 1000};

	nanosleep(&t, NULL);
}

/* Flush a batch that has been open for batch_ms, even if no record follows. */
static void
end_old_batches(struct batch_writer *w)
{
	const uint64_t most = w->config.batch_ms;

	if (most == 0)
		return;
	w->now = monotonic_coarse_ms();
	if (w->since != 0 && w->now - w->since >= most)
		batch_builder_flush(w->builder);
}

static int
fetch_part(struct batch_writer *w, const uint8_t *slot, uint64_t at, uint64_t size)
{
	const struct batch_writer_config *c = &w->config;

	return size == 0 ? 0 : c->fetch(c->fetch_arg, c->staging + at, slot + at, size);
}

static int
fetch_peaks(struct batch_writer *w, const uint8_t *slot, const struct frame_record *record)
{
	const struct gk_layout *l = &w->config.layout;
	const uint64_t n = RTE_MIN(record->peaks, l->peaks_cap);

	if (record->peaks == FRAME_NO_SEARCH)
		return 0;
	return fetch_part(w, slot, l->peaks, n * sizeof(struct gk_peak));
}

/* Fetch only the used part of a slot, because it crosses the bus. */
static int
fetch_output(struct batch_writer *w, const struct frame_record *record)
{
	const struct batch_writer_config *c = &w->config;
	const struct gk_layout *l = &c->layout;
	const uint8_t *slot = c->outputs + record->out * l->stride;
	const uint64_t pixels = gk_pixels(&c->geometry), rows = gk_rows(&c->geometry);
	uint32_t nnz;
	int ret;

	ret = fetch_peaks(w, slot, record);
	if (ret != 0)
		return ret;
	if (record->chunk_bytes > gk_bitshuffle_bound(pixels))
		return -EINVAL;
	if (record->chunk_bytes > 0)
		return fetch_part(w, slot, l->raw, record->chunk_bytes);
	switch (record->kind) {
	case GK_KIND_CSR:
		if (record->nnz > l->nnz_cap)
			return -EINVAL;
		ret = fetch_part(w, slot, l->row_ptr, (rows + 1) * sizeof(uint32_t));
		if (ret == 0)
			ret = fetch_part(w, slot, l->col, record->nnz * sizeof(uint16_t));
		if (ret == 0)
			ret = fetch_part(w, slot, l->value, (uint64_t)record->nnz * l->value_size);
		memcpy(&nnz, c->staging + l->row_ptr + rows * sizeof(nnz), sizeof(nnz));
		return ret != 0 || nnz == record->nnz ? ret : -EINVAL;
	case GK_KIND_IMAGE:
		return fetch_part(w, slot, l->value, pixels * l->value_size);
	case GK_KIND_RAW:
		return fetch_part(w, slot, l->raw, pixels * sizeof(uint16_t));
	default:
		return -EINVAL;
	}
}

/* Return a copy of the record that refers to the staging buffer as its output slot. */
static const struct frame_record *
fetch(struct batch_writer *w, const struct frame_record *record)
{
	w->fetched = *record;
	w->fetched.out = GK_NO_OUT;
	if (record->out < w->config.nb_outputs && fetch_output(w, record) == 0)
		w->fetched.out = 0;
	return &w->fetched;
}

/*
 * Add a record whose output slot a batch may refer to, if the gangs can get a free slot instead.
 * Otherwise the output is copied.
 */
static int
refer(struct batch_writer *w, const struct frame_record *record)
{
	if (w->slot == JOURNAL_NO_SLOT)
		w->slot = egress_slot_take(w->config.egress);
	if (w->slot != JOURNAL_NO_SLOT)
		return batch_builder_refer(w->builder, record);
	counter_add(&w->stats.no_slot, 1);
	return batch_builder_add(w->builder, record);
}

/* A frame that is compressed ahead. */
struct ahead {
	struct compress_job *job; /* NULL: the output is not being compressed */
	uint32_t slot; /* free slot of the journal with the chunk; JOURNAL_NO_SLOT: none */
};

/* Add a record whose output was compressed into another slot, of the journal. */
static int
refer_chunk(struct batch_writer *w, const struct frame_record *record, uint32_t slot, size_t size)
{
	struct frame_record chunk = *record;
	int ret;

	chunk.out = slot;
	chunk.chunk_bytes = size;
	chunk.chunk_crc32c = 0;
	ret = batch_builder_refer(w->builder, &chunk);
	if (ret == 1)
		return 0;
	egress_slot_return(w->config.egress, slot);
	return ret;
}

/*
 * @return 1: the output slot of the record belongs to the batch. Otherwise as batch_builder_add()
 */
static int
add(struct batch_writer *w, const struct frame_record *record, const struct ahead *ahead)
{
	struct compress_job *job = ahead->job;
	struct batch_chunk chunk;
	int ret;

	if (job == NULL && w->refers && frame_verdict_is_kept(record->verdict))
		return refer(w, record);
	if (job == NULL)
		return batch_builder_add(w->builder, record);
	chunk.size = compressor_finish(w->config.compressor, job, &chunk.bytes);
	ret = ahead->slot != JOURNAL_NO_SLOT ? refer_chunk(w, record, ahead->slot, chunk.size)
					     : batch_builder_add_packed(w->builder, record, &chunk);
	compressor_release(w->config.compressor, job);
	return ret;
}

static void
take(struct batch_writer *w, struct frame_record *from, const struct ahead *ahead)
{
	const bool kept = frame_verdict_is_kept(from->verdict), far = w->config.staging != NULL;
	const struct frame_record *record = kept && far ? fetch(w, from) : from;

	const struct batch_writer_config *c = &w->config;
	struct batch_writer_stats *s = &w->stats;
	int added;

	counter_add(&s->records, 1);
	if (kept)
		counter_add(&s->kept, 1);
	if (w->run != NULL && run_files_wants_roll(w->run, record->frame)) {
		/* the next set begins where all batches end in any case */
		batch_builder_flush(w->builder);
		run_files_roll(w->run);
	}
	added = add(w, record, ahead);
	if (w->since == 0)
		w->since = w->now;
	if (added >= 0) {
		if (kept && c->kept != NULL)
			c->kept(c->kept_arg, record,
				far ? c->staging : c->outputs + record->out * c->layout.stride);
		if (added == 1) {
			/* the gangs get a free slot instead */
			from->out = w->slot;
			w->slot = JOURNAL_NO_SLOT;
		}
		return;
	}
	counter_add(&s->bad_records, 1);
	if (s->bad_records == 1)
		LOG(ERR,
			"frame %" PRIu64 " cannot be written: output slot %u (of %u) and kind %u "
			"are not an image; further frames are not logged\n",
			record->frame, from->out, w->config.nb_outputs, record->kind);
}

/* Return true if the record has plain values that are to be a chunk, in memory of the CPU. */
static bool
is_plain(const struct batch_writer_config *c, const struct frame_record *record)
{
	return c->compressor != NULL && c->staging == NULL &&
		(record->kind == GK_KIND_RAW || (record->kind == GK_KIND_IMAGE && c->chunks)) &&
		record->chunk_bytes == 0 && frame_verdict_is_kept(record->verdict) &&
		record->out < c->nb_outputs;
}

/*
 * Start to compress frames from `at` on, as long as jobs are free.
 * @return index of the first frame that was not examined
 */
static unsigned int
compress_ahead(struct batch_writer *w, void *const record[], struct ahead ahead[], unsigned int at,
	unsigned int n)
{
	const struct batch_writer_config *c = &w->config;

	for (; at < n; at++) {
		const struct frame_record *r = record[at];
		struct ahead *a = &ahead[at];
		uint8_t *area, *chunk = NULL;
		uint64_t slot_bytes;
		uint32_t slots;
		bool refers;

		*a = (struct ahead){NULL, JOURNAL_NO_SLOT};
		if (!is_plain(c, r))
			continue;
		/* peaks are read from the slot of the chunk */
		refers = w->refers && r->peaks == FRAME_NO_SEARCH;
		if (refers)
			a->slot = egress_slot_take(c->egress);
		if (a->slot != JOURNAL_NO_SLOT) {
			area = egress_area(c->egress, &slot_bytes, &slots);
			chunk = area + a->slot * slot_bytes + c->layout.raw;
		}
		a->job = compressor_begin(c->compressor,
			(const uint16_t *)(c->outputs + r->out * c->layout.stride + c->layout.raw),
			chunk);
		if (a->job != NULL) {
			counter_add(&w->stats.no_slot, refers && a->slot == JOURNAL_NO_SLOT);
			continue;
		}
		if (a->slot != JOURNAL_NO_SLOT)
			egress_slot_return(c->egress, a->slot);
		a->slot = JOURNAL_NO_SLOT;
		break;
	}
	return at;
}

static void *
writer_main(void *arg)
{
	struct batch_writer *w = arg;
	struct ahead ahead[BATCH_WRITER_BURST];
	void *record[BATCH_WRITER_BURST];
	unsigned int i, n, examined;
	enum request request;

	for (;;) {
		/*
		 * Read the request before the ring, so that records enqueued before a stop request
		 * are seen below.
		 */
		request = __atomic_load_n(&w->request, __ATOMIC_ACQUIRE);
		if (request == ABORT)
			break;
		end_old_batches(w);
		n = rte_ring_sc_dequeue_burst(w->config.records, record, BATCH_WRITER_BURST, NULL);
		if (n == 0) {
			if (request == STOP)
				break;
			if (w->run != NULL)
				run_files_poll(w->run);
			idle_sleep(w);
			continue;
		}
		for (i = examined = 0; i < n; i++) {
			examined = compress_ahead(w, record, ahead, RTE_MAX(examined, i), n);
			take(w, record[i], &ahead[i]);
			/* keep the disk busy while batches are filled */
			if (w->run != NULL)
				run_files_poll(w->run);
			/* One by one, because the datapath runs out of output slots first. */
			while (rte_ring_sp_enqueue(w->config.returns, record[i]) < 0 &&
				__atomic_load_n(&w->request, __ATOMIC_RELAXED) != ABORT)
				idle_sleep(w);
		}
	}
	batch_builder_flush(w->builder);
	w->error = w->run != NULL ? run_files_close(w->run) : egress_end(w->config.egress);
	w->closed = true;
	return NULL;
}

/* Return true if the output slots are those of the journal. */
static bool
are_in_journal(const struct batch_writer_config *c)
{
	uint64_t slot_bytes;
	uint32_t slots;

	return c->egress != NULL && c->staging == NULL && c->outputs != NULL &&
		egress_area(c->egress, &slot_bytes, &slots) == c->outputs;
}

static int
create_tables(struct batch_writer *w)
{
	const struct batch_writer_config *c = &w->config;
	char name[NAME_MAX], digest[32];
	struct arrow_meta meta[c->nb_meta + 2];
	const struct arrow_tables_config tables = {
		.modules = c->modules,
		.rows = gk_rows(&c->geometry),
		.cols = c->geometry.cols,
		.packets = c->geometry.tiles,
		.value = c->value,
		.chunks = c->chunks,
		.peaks = c->layout.peaks_cap > 0,
		.radial_bins = c->radial_bins,
		.meta = meta,
		.nb_meta = c->nb_meta + (c->nb_planes > 0 ? 2 : 0),
	};

	if (c->nb_meta > 0)
		memcpy(meta, c->meta, c->nb_meta * sizeof(meta[0]));
	if (c->nb_planes > 0) {
		snprintf(name, sizeof(name), "%s_calibration.bin", c->run);
		snprintf(digest, sizeof(digest), "crc32c:%08x",
			calibration_file_digest(c->planes, c->nb_planes));
		meta[c->nb_meta] = (struct arrow_meta){ARROW_META_CALIBRATION_FILE, name};
		meta[c->nb_meta + 1] = (struct arrow_meta){ARROW_META_CALIBRATION, digest};
	}
	return arrow_tables_init(&w->tables, &tables);
}

static int
create_builder(struct batch_writer *w)
{
	const struct batch_writer_config *c = &w->config;
	const struct batch_builder_config builder = {
		.geometry = c->geometry,
		.layout = c->layout,
		.value = c->value,
		.tables = &w->tables,
		.receiver_id = c->receiver_id,
		.run = c->run_id,
		.incarnation = c->incarnation,
		.outputs = c->staging != NULL ? c->staging : c->outputs,
		.nb_outputs = c->staging != NULL ? 1 : c->nb_outputs,
		.panels = c->panels,
		.nb_panels = c->nb_panels,
		.profiles = c->profiles,
		.nb_profiles = c->nb_profiles,
		.frames_interval = c->frames_interval,
		.images_interval = c->images_interval,
		.byte_limit = c->byte_limit,
		.emit = writer_emit,
		.reclaim = c->egress != NULL ? NULL : writer_reclaim,
		.place = c->egress != NULL ? writer_place : NULL,
		.references = w->refers ? JOURNAL_REFERENCES : 0,
		/* a batch is in the journal when writer_emit() returns */
		.sets = c->egress != NULL ? 1 : BATCH_WRITER_SETS,
		.arg = w,
	};
	int ret;

	ret = create_tables(w);
	return ret < 0 ? ret : batch_builder_create(&w->builder, &builder);
}

/* Compute the maximum body of each table, which a remote slot must hold. */
static int
begin_egress(struct batch_writer *w, char message[PATH_MAX])
{
	const struct batch_writer_config *c = &w->config;
	const uint64_t pixels = gk_pixels(&c->geometry);
	const uint32_t rows = c->frames_interval > 0 ? c->frames_interval : BATCH_FRAMES_INTERVAL;
	const uint64_t row =
		256 + 2 * c->modules + (c->radial_bins > 0 ? gk_profile_stride(c->radial_bins) : 0);
	/* Gaps between all buffers. A CSR pixel needs column and value. A raw chunk may grow. */
	const uint64_t gaps = ARROW_BUFFERS_MAX * ARROW_BLOCK;
	const uint64_t frame = pixels * 6 + gk_rows(&c->geometry) * 4 + pixels / 8 +
		c->layout.peaks_cap * sizeof(struct gk_peak);
	const uint64_t images = c->byte_limit > frame ? c->byte_limit : frame;
	const struct egress_begin begin = {
		.name = c->run,
		.run = c->run_id,
		.incarnation = c->incarnation,
		.tables = &w->tables,
		.body_max = {(rows * row + gaps + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK,
			(images + gaps + ARROW_BLOCK - 1) / ARROW_BLOCK * ARROW_BLOCK},
		.clock = c->clock,
		.clock_arg = c->clock_arg,
	};

	return egress_begin(c->egress, &begin, message);
}

static int
create_files(struct batch_writer *w, char message[PATH_MAX])
{
	const struct batch_writer_config *c = &w->config;
	const struct run_files_config run = {
		.dir = c->dir,
		.run = c->run,
		.tables = &w->tables,
		.slices = c->slices,
		.frames_interval = c->frames_interval,
		.images_interval = c->images_interval,
		.roll_frames = c->roll_frames,
		.roll_bytes = c->roll_bytes,
		.roll_ms = c->roll_ms,
		.retry_ms = c->retry_ms,
		.retry_max_ms = c->retry_max_ms,
		.resume_bytes = c->resume_bytes,
		.log = writer_log,
		.clock = c->clock != NULL ? writer_clock : NULL,
		.arg = w,
	};
	int ret = 0;

	/* before the tables, which allocate free space of the file system for their next writes */
	if (c->nb_planes > 0)
		ret = calibration_file_write(
			c->slices.io, c->dir, c->run, c->planes, c->nb_planes, message);
	if (ret < 0)
		return ret;
	/* 1: the file existed, and another receiver owns it */
	w->has_calibration = c->nb_planes > 0 && ret == 0;
	ret = c->egress != NULL ? begin_egress(w, message) : run_files_open(&w->run, &run, message);
	w->began = ret == 0 && c->egress != NULL;
	return ret;
}

int
batch_writer_create(struct batch_writer **writer, const struct batch_writer_config *config,
	char message[PATH_MAX])
{
	struct batch_writer *w;
	int ret;

	message[0] = '\0';
	if (config->run[0] == '\0' || strchr(config->run, '/') != NULL) {
		snprintf(message, PATH_MAX,
			"run name '%s' cannot begin a file name; expected a name without slashes",
			config->run);
		return -EINVAL;
	}
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->config = *config;
	w->slot = JOURNAL_NO_SLOT;
	w->refers = are_in_journal(config);
	ret = create_builder(w);
	if (ret < 0) {
		snprintf(message, PATH_MAX, "cannot prepare the tables of run %s: %s", config->run,
			strerror(-ret));
		goto fail;
	}
	ret = create_files(w, message);
	if (ret < 0)
		goto fail;
	*writer = w;
	return 0;

fail:
	batch_writer_destroy(w);
	return ret;
}

int
batch_writer_start(struct batch_writer *w)
{
	pthread_attr_t attr;
	int ret;

	pthread_attr_init(&attr);
	if (w->config.cpus != NULL)
		pthread_attr_setaffinity_np(&attr, sizeof(*w->config.cpus), w->config.cpus);
	ret = pthread_create(&w->thread, &attr, writer_main, w);
	pthread_attr_destroy(&attr);
	if (ret != 0)
		return -ret;
	pthread_setname_np(w->thread, "braggline-write");
	w->started = true;
	return 0;
}

void
batch_writer_watch(struct batch_writer *w)
{
	if (w->run != NULL)
		run_files_watch(w->run);
}

/* Wait for the thread, which may wait for the disk, or for this one: see egress_rest(). */
static void
join(struct batch_writer *w)
{
	while (pthread_tryjoin_np(w->thread, NULL) == EBUSY) {
		if (w->config.egress != NULL) {
			egress_wait(w->config.egress);
			continue;
		}
		batch_writer_watch(w);
		usleep(JOIN_US);
	}
	batch_writer_watch(w);
}

int
batch_writer_stop(struct batch_writer *w, bool drain)
{
	if (w->started) {
		__atomic_store_n(&w->request, drain ? STOP : ABORT, __ATOMIC_RELEASE);
		join(w);
		w->started = false;
	}
	return w->error;
}

static void
get_table_stats(const struct batch_writer *w, enum arrow_table table, struct run_files_stats *to,
	struct batch_writer_stats *sum)
{
	struct egress_stats e;
	const struct egress_put_stats *put = &e.put;
	const struct egress_outcome_stats *outcome = &e.outcome;

	if (w->run != NULL) {
		run_files_stats_get(w->run, table, to);
		return;
	}
	egress_stats_get(w->config.egress, table, &e);
	sum->held =
		put->rows - outcome->durable_rows - outcome->spilled_rows - outcome->damaged_rows;
	sum->spilled = outcome->spilled_rows;
	sum->held_batches[table] =
		put->batches - outcome->durable - outcome->spilled - outcome->damaged;
	sum->spilled_batches[table] = outcome->spilled;
	sum->unretained = put->refused_rows;
	*to = (struct run_files_stats){
		.rows = outcome->durable_rows,
		.batches = outcome->durable,
		.bytes = put->bytes,
		.unwritten = put->refused_rows + put->oversize_rows + outcome->damaged_rows,
		.unwritten_full = put->refused_rows,
		.unwritten_error = put->oversize_rows + outcome->damaged_rows,
	};
	to->latency = outcome->latency;
}

void
batch_writer_stats_get(const struct batch_writer *w, struct batch_writer_stats *stats)
{
	struct run_files_stats *images = &stats->table[ARROW_IMAGES];
	unsigned int i;

	counters_get(stats, &w->stats, sizeof(*stats));
	for (i = 0; i < ARROW_TABLES; i++)
		get_table_stats(w, i, &stats->table[i], stats);
	images->unwritten_bad = stats->bad_records;
	images->unwritten += stats->bad_records;
	stats->frames_unwritten = stats->table[ARROW_FRAMES].unwritten + images->unwritten;
}

void
batch_writer_status(struct batch_writer *w, enum arrow_table table, struct run_files_status *status)
{
	if (w->run != NULL) {
		run_files_status(w->run, table, status);
		return;
	}
	memset(status, 0, sizeof(*status));
	snprintf(status->path, sizeof(status->path), "stores: %s of %s", arrow_table_name(table),
		w->config.run);
}

uint64_t
batch_writer_incarnation(const struct batch_writer *w)
{
	return w->config.incarnation;
}

const char *
batch_writer_path(struct batch_writer *w, enum arrow_table table)
{
	batch_writer_status(w, table, &w->status[table]);
	return w->status[table].path;
}

const char *
batch_writer_error(struct batch_writer *w, enum arrow_table table)
{
	batch_writer_status(w, table, &w->status[table]);
	return w->status[table].error;
}

/* Remove the files of a writer that was never started. */
static void
discard_files(struct batch_writer *w)
{
	char path[PATH_MAX];

	if (w->closed)
		return;
	if (w->began)
		(void)egress_end(w->config.egress);
	if (w->run != NULL)
		run_files_discard(w->run);
	if (w->has_calibration &&
		snprintf(path, sizeof(path), "%s/%s_calibration.bin", w->config.dir,
			w->config.run) < (int)sizeof(path))
		unlink(path);
}

void
batch_writer_destroy(struct batch_writer *w)
{
	if (w == NULL)
		return;
	batch_writer_stop(w, false);
	if (w->slot != JOURNAL_NO_SLOT)
		egress_slot_return(w->config.egress, w->slot);
	discard_files(w);
	if (w->run != NULL)
		run_files_free(w->run);
	batch_builder_destroy(w->builder);
	arrow_tables_free(&w->tables);
	free(w);
}
