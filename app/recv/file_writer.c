/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_log.h>
#include <rte_ring.h>

#include "file_writer.h"

RTE_LOG_REGISTER(file_writer_logtype, braggline.writer, NOTICE);

#define WRITER_LOG(level, ...) rte_log(RTE_LOG_##level, file_writer_logtype, "writer: " __VA_ARGS__)

enum request {
	RUN,
	STOP,  /* when the ring is empty */
	ABORT, /* now */
};

struct file_writer {
	struct file_writer_config config;
	struct arrow_tables tables;
	struct batch_builder *builder;
	struct arrow_file file[ARROW_TABLES];
	pthread_t thread;
	bool started;
	enum request request;		/* atomic; by the controlling thread */
	struct file_writer_stats stats; /* by the writing thread alone; read with atomic loads */
};

/* Counters have one writer: a plain store that readers cannot see half of. */
static void
count(uint64_t *counter, uint64_t n)
{
	__atomic_store_n(counter, *counter + n, __ATOMIC_RELAXED);
}

static void
note_error(struct file_writer *w, enum arrow_table table)
{
	struct file_writer_table_stats *s = &w->stats.table[table];

	if (s->error != 0)
		return;
	__atomic_store_n(&s->error, w->file[table].error, __ATOMIC_RELAXED);
	WRITER_LOG(ERR, "%s; rows from here on are missing, those before stay there\n",
		w->file[table].message);
}

static void
writer_emit(void *arg, const struct batch *b)
{
	struct file_writer *w = arg;
	struct file_writer_table_stats *s = &w->stats.table[b->table];
	struct arrow_file *f = &w->file[b->table];

	if (arrow_file_append(
		    f, b->metadata, b->metadata_size, b->body, b->nb_body, b->body_length) < 0) {
		count(&s->unwritten, b->rows);
		count(&w->stats.frames_unwritten, b->rows);
		note_error(w, b->table);
		return;
	}
	count(&s->rows, b->rows);
	count(&s->batches, 1);
	__atomic_store_n(&s->bytes, f->size, __ATOMIC_RELAXED);
}

static void
nap(struct file_writer *w)
{
	const struct timespec t = {.tv_nsec = FILE_WRITER_NAP_US * 1000};

	count(&w->stats.naps, 1);
	nanosleep(&t, NULL);
}

static void
take(struct file_writer *w, const struct frame_record *record)
{
	struct file_writer_stats *s = &w->stats;

	count(&s->records, 1);
	if (frame_verdict_is_kept(record->verdict))
		count(&s->kept, 1);
	if (batch_builder_add(w->builder, record) == 0)
		return;
	count(&s->bad_records, 1);
	count(&s->table[ARROW_IMAGES].unwritten, 1);
	count(&s->frames_unwritten, 1);
	if (s->bad_records == 1)
		WRITER_LOG(ERR,
			"frame %" PRIu64
			" is to be kept, but output slot %u of %u and kind %u make no image; "
			"only the first is logged\n",
			record->frame, record->out, w->config.nb_outputs, record->kind);
}

static void *
writer_main(void *arg)
{
	struct file_writer *w = arg;
	void *record[FILE_WRITER_BURST];
	unsigned int i, n;
	enum request request;

	for (;;) {
		/* before the ring: what was there when stop was asked for is seen below */
		request = __atomic_load_n(&w->request, __ATOMIC_ACQUIRE);
		if (request == ABORT)
			break;
		n = rte_ring_sc_dequeue_burst(w->config.records, record, FILE_WRITER_BURST, NULL);
		if (n == 0) {
			if (request == STOP)
				break;
			nap(w);
			continue;
		}
		for (i = 0; i < n; i++) {
			take(w, record[i]);
			/* one by one: output slots are what the datapath runs short of */
			while (rte_ring_sp_enqueue(w->config.returns, record[i]) < 0 &&
				__atomic_load_n(&w->request, __ATOMIC_RELAXED) != ABORT)
				nap(w);
		}
	}
	batch_builder_flush(w->builder);
	for (i = 0; i < ARROW_TABLES; i++) {
		if (arrow_file_close(&w->file[i]) < 0)
			note_error(w, i);
		else
			__atomic_store_n(&w->stats.table[i].complete, 1, __ATOMIC_RELAXED);
		__atomic_store_n(&w->stats.table[i].bytes, w->file[i].size, __ATOMIC_RELAXED);
	}
	return NULL;
}

static int
create_builder(struct file_writer *w)
{
	const struct file_writer_config *c = &w->config;
	const struct arrow_tables_config tables = {
		.modules = c->modules,
		.rows = gk_rows(&c->geometry),
		.cols = c->geometry.cols,
		.packets = c->geometry.tiles,
		.value = c->value,
		.meta = c->meta,
		.nb_meta = c->nb_meta,
	};
	const struct batch_builder_config builder = {
		.geometry = c->geometry,
		.layout = c->layout,
		.value = c->value,
		.tables = &w->tables,
		.producer = c->producer,
		.run = c->run_id,
		.incarnation = c->incarnation,
		.outputs = c->outputs,
		.nb_outputs = c->nb_outputs,
		.frames_interval = c->frames_interval,
		.images_interval = c->images_interval,
		.byte_limit = c->byte_limit,
		.emit = writer_emit,
		.arg = w,
	};
	int rc;

	rc = arrow_tables_init(&w->tables, &tables);
	return rc < 0 ? rc : batch_builder_create(&w->builder, &builder);
}

int
file_writer_create(struct file_writer **writer, const struct file_writer_config *config,
	char message[PATH_MAX])
{
	struct file_writer *w;
	char name[NAME_MAX];
	unsigned int i;
	int rc;

	message[0] = '\0';
	if (config->run[0] == '\0' || strchr(config->run, '/') != NULL) {
		snprintf(message, PATH_MAX,
			"run name '%s' is to begin file names: wanted letters without a slash",
			config->run);
		return -EINVAL;
	}
	w = calloc(1, sizeof(*w));
	if (w == NULL)
		return -ENOMEM;
	w->config = *config;
	rc = create_builder(w);
	if (rc < 0) {
		snprintf(message, PATH_MAX, "cannot prepare the tables of run %s: %s", config->run,
			strerror(-rc));
		goto fail;
	}
	for (i = 0; i < ARROW_TABLES; i++) {
		snprintf(name, sizeof(name), "%s_%s", config->run, arrow_table_name(i));
		rc = arrow_file_create(
			&w->file[i], config->io, config->dir, name, &w->tables.schema[i]);
		if (rc < 0) {
			snprintf(message, PATH_MAX, "%s", w->file[i].message);
			goto fail;
		}
		w->stats.table[i].bytes = w->file[i].size;
	}
	*writer = w;
	return 0;

fail:
	file_writer_destroy(w);
	return rc;
}

int
file_writer_start(struct file_writer *w)
{
	pthread_attr_t attr;
	int rc;

	pthread_attr_init(&attr);
	if (w->config.cpus != NULL)
		pthread_attr_setaffinity_np(&attr, sizeof(*w->config.cpus), w->config.cpus);
	rc = pthread_create(&w->thread, &attr, writer_main, w);
	pthread_attr_destroy(&attr);
	if (rc != 0)
		return -rc;
	pthread_setname_np(w->thread, "braggline-write");
	w->started = true;
	return 0;
}

int
file_writer_stop(struct file_writer *w, bool drain)
{
	unsigned int i;

	if (w->started) {
		__atomic_store_n(&w->request, drain ? STOP : ABORT, __ATOMIC_RELEASE);
		pthread_join(w->thread, NULL);
		w->started = false;
	}
	for (i = 0; i < ARROW_TABLES; i++) {
		if (w->file[i].error < 0)
			return w->file[i].error;
	}
	return 0;
}

void
file_writer_stats_get(const struct file_writer *w, struct file_writer_stats *stats)
{
	const struct file_writer_stats *from = &w->stats;
	unsigned int i;

#define GET(member) __atomic_load(&from->member, &stats->member, __ATOMIC_RELAXED)
	GET(records);
	GET(kept);
	GET(bad_records);
	GET(frames_unwritten);
	GET(naps);
	for (i = 0; i < ARROW_TABLES; i++) {
		GET(table[i].rows);
		GET(table[i].batches);
		GET(table[i].bytes);
		GET(table[i].unwritten);
		GET(table[i].error);
		GET(table[i].complete);
	}
#undef GET
}

const char *
file_writer_path(const struct file_writer *w, enum arrow_table table)
{
	return w->stats.table[table].complete ? w->file[table].path : w->file[table].part;
}

const char *
file_writer_error(const struct file_writer *w, enum arrow_table table)
{
	return w->file[table].message;
}

void
file_writer_destroy(struct file_writer *w)
{
	unsigned int i;

	if (w == NULL)
		return;
	file_writer_stop(w, false);
	/* never started: two files that nothing was written to, not worth a name */
	for (i = 0; i < ARROW_TABLES; i++)
		arrow_file_discard(&w->file[i]);
	batch_builder_destroy(w->builder);
	arrow_tables_free(&w->tables);
	free(w);
}
