/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "arrow/closing.h"
#include "arrow/stall.h"
#include "backoff.h"
#include "clock.h"
#include "counter.h"
#include "output/run_files.h"

#define NS_PER_MS 1000000ull
/* number of batches of rows that wait separately; the last entry also covers all later ones */
#define HOLDS 1024

/* A file and its counters. */
struct run_file {
	struct arrow_file file;
	enum arrow_table table;
	uint64_t accepted;	       /* rows accepted by the file */
	uint64_t lent[BATCH_SETS_MAX]; /* end of the last batch of each column buffer */
	bool failed;		       /* the failure before closing was reported */
	struct arrow_closing closing;
	struct run_file *next; /* of those that are being closed */
};

struct table_files {
	struct run_file *file;		 /* NULL: outage */
	const struct arrow_file *newest; /* the last one opened; it may be closed by now */
	struct backoff backoff;		 /* in ns */
	struct run_files_stats stats;	 /* one writer of each; read with atomic loads */
	struct run_files_status status;
	/* for run_files_watch(), as struct arrow_stall_wait; atomic @{ */
	uint64_t creating_since;
	uint64_t since;
	uint64_t nb_closing; /* files that are being closed, or were and are not joined yet */
	uint64_t writing;
	/* @} */
	struct arrow_stall stall; /* of run_files_watch() */
};

/* Rows up to offset `end` of their file wait until this number of image batches is durable. */
struct hold {
	uint64_t end;
	uint64_t images;
};

struct run_files {
	struct run_files_config config;
	struct table_files table[ARROW_TABLES];
	struct hold hold[HOLDS]; /* entries hold_tail to hold_head, in order */
	uint64_t hold_head;
	uint64_t hold_tail;
	struct run_file *closing;
	unsigned int set;
	uint64_t step;	/* sets begin at multiples of this number */
	uint64_t begin; /* start of the step of the last frame */
	uint64_t last;	/* the last frame */
	bool begun;
	uint64_t frames; /* frames since the set began */
	bool by_frames;	 /* the next set is due by frame number */
	uint64_t opened_at;
	uint64_t opened_bytes;
	uint64_t retry_at; /* for a failed change of set while both files are usable */
	int first_error;
	pthread_mutex_t lock; /* protects table[].status */
};

const char *
run_files_state_name(enum run_files_state state)
{
	static const char *const names[RUN_FILES_STATES] = {
		[RUN_FILES_WRITING] = "writing",
		[RUN_FILES_FULL] = "disk full",
		[RUN_FILES_FAILED] = "failed",
		[RUN_FILES_CLOSED] = "closed",
	};

	return names[state];
}

static bool
is_full(int error)
{
	return error == -ENOSPC || error == -EDQUOT || error == -EFBIG;
}

static void
say(const struct run_files *r, bool error, const char *text)
{
	if (r->config.log != NULL)
		r->config.log(r->config.arg, error, text);
}

static void
count_unwritten(struct table_files *t, int error, uint64_t rows)
{
	if (is_full(error))
		counter_add(&t->stats.unwritten_full, rows);
	else
		counter_add(&t->stats.unwritten_error, rows);
	counter_add(&t->stats.unwritten, rows);
}

/* Update the counters from an open or closed file. */
static void
count_file(struct table_files *t, struct run_file *f)
{
	struct arrow_file_progress p;

	arrow_file_count(&f->file, &p, &t->stats.latency);
	counter_add(&t->stats.rows, p.rows);
	counter_add(&t->stats.batches, p.batches);
	counter_add(&t->stats.bytes, p.bytes);
	counter_add(&t->stats.syncs, p.syncs);
	if (p.batches > 0)
		t->backoff.delay = 0;
}

static void
set_status(struct run_files *r, enum arrow_table table, const struct arrow_file *f)
{
	struct table_files *t = &r->table[table];
	const struct arrow_io_info *info;

	pthread_mutex_lock(&r->lock);
	/* an old file must not overwrite the status of the next one */
	if (t->newest == f)
		snprintf(t->status.path, sizeof(t->status.path), "%s", arrow_file_path(f));
	if (f->error != 0)
		snprintf(t->status.error, sizeof(t->status.error), "%s", f->message);
	if (f->out.handle != NULL) {
		info = f->out.config.io->info(f->out.handle);
		snprintf(t->status.why, sizeof(t->status.why), "%s", info->why);
		COUNTER_SET(t->stats.mode, info->mode);
	}
	pthread_mutex_unlock(&r->lock);
}

/*
 * The thread that writes is about to wait for the disk, as far as run_files_watch() is concerned,
 * which runs meanwhile.
 */
static void
begin_wait(uint64_t *since)
{
	__atomic_store_n(since, monotonic_ns(), __ATOMIC_RELAXED);
}

static void
end_wait(uint64_t *since)
{
	__atomic_store_n(since, 0, __ATOMIC_RELAXED);
}

/* Let threads close a file, and perhaps another one after it. */
static void
begin_close(struct run_files *r, struct run_file *f, struct run_file *next)
{
	counter_add(&r->table[f->table].nb_closing, 1);
	if (next != NULL)
		counter_add(&r->table[next->table].nb_closing, 1);
	arrow_closing_begin(&f->closing, next != NULL ? &next->closing : NULL, NULL);
}

/* Detach a table's file for closing. @return NULL: there is none */
static struct run_file *
take_file(struct run_files *r, enum arrow_table table)
{
	struct table_files *t = &r->table[table];
	struct run_file *f = t->file;

	if (f == NULL)
		return NULL;
	/* This thread reclaims the buffers of its batches. */
	begin_wait(&t->since);
	arrow_file_wait(&f->file, UINT64_MAX);
	end_wait(&t->since);
	COUNTER_SET(t->writing, 0);
	t->file = NULL;
	f->closing.file = &f->file;
	f->next = r->closing;
	r->closing = f;
	return f;
}

/* Close the current set: images before the rows that refer to them. */
static void
begin_close_set(struct run_files *r)
{
	struct run_file *images = take_file(r, ARROW_IMAGES);
	struct run_file *rows = take_file(r, ARROW_FRAMES);

	if (images != NULL)
		begin_close(r, images, rows);
	else if (rows != NULL)
		begin_close(r, rows, NULL);
	r->hold_tail = r->hold_head;
}

/* Count the rows of a closed file for the last time. */
static void
end_close(struct run_files *r, struct run_file *f)
{
	struct table_files *t = &r->table[f->table];

	arrow_closing_join(&f->closing);
	counter_sub(&t->nb_closing, 1);
	count_file(t, f);
	count_unwritten(t, f->file.error, f->accepted - f->file.rows);
	counter_add(&t->stats.complete, f->file.complete);
	if (f->file.error != 0 && !f->failed) {
		say(r, true, f->file.message);
		COUNTER_SET(t->stats.last_error, f->file.error);
		if (r->first_error == 0)
			r->first_error = f->file.error;
	}
	set_status(r, f->table, &f->file);
	free(f);
}

static void
reap_closed(struct run_files *r, bool all)
{
	struct run_file **at = &r->closing, *f;

	while ((f = *at) != NULL) {
		if (!all && !arrow_closing_is_over(&f->closing)) {
			at = &f->next;
			continue;
		}
		*at = f->next;
		end_close(r, f);
	}
}

static void
back_off(const struct run_files *r, struct table_files *t)
{
	backoff_extend(&t->backoff, monotonic_ns(), r->config.retry_ms * NS_PER_MS,
		r->config.retry_max_ms * NS_PER_MS);
}

/* Release all waiting rows. */
static void
release_all(struct run_files *r)
{
	struct run_file *rows = r->table[ARROW_FRAMES].file;

	r->hold_tail = r->hold_head;
	if (rows != NULL)
		async_writer_hold(&rows->file.out, UINT64_MAX);
}

/*
 * Describe what writing needs to resume: run_files_roll() reserves space for both files of the next
 * set.
 */
static void
explain_resume(const struct run_files *r, int error, char *text, size_t size)
{
	const uint64_t needed = ARROW_TABLES * r->config.resume_bytes;
	const bool exists = error != -ENOENT || access(r->config.dir, F_OK) == 0;
	struct statvfs fs;
	int n;

	if (exists && statvfs(r->config.dir, &fs) == 0 &&
		(uint64_t)fs.f_blocks * fs.f_frsize < needed) {
		snprintf(text, size,
			"writing cannot resume on this file system, which has fewer than %" PRIu64
			" MiB; start a new run with another [output] directory",
			needed >> 20);
		return;
	}
	n = snprintf(text, size,
		"writing resumes at a frame number that is a multiple of %" PRIu64
		", or where the numbers restart, when ",
		r->step);
	if (exists)
		snprintf(text + n, size - n, "%" PRIu64 " MiB are free", needed >> 20);
	else
		snprintf(text + n, size - n, "the directory exists again");
}

/* Close a failed file, and count rows as unwritten until another file is open. */
static void
begin_outage(struct run_files *r, enum arrow_table table)
{
	struct table_files *t = &r->table[table];
	char text[PATH_MAX + 512], resume[240];
	const int error = t->file->file.error;

	if (r->first_error == 0)
		r->first_error = error;
	COUNTER_SET(t->stats.error, error);
	COUNTER_SET(t->stats.last_error, error);
	COUNTER_SET(t->stats.state, is_full(error) ? RUN_FILES_FULL : RUN_FILES_FAILED);
	counter_add(&t->stats.outages, 1);
	set_status(r, table, &t->file->file);
	explain_resume(r, error, resume, sizeof(resume));
	snprintf(text, sizeof(text), "%s; rows of `%s` are no longer written; %s",
		t->file->file.message, arrow_table_name(table), resume);
	say(r, true, text);
	t->file->failed = true;
	begin_close(r, take_file(r, table), NULL);
	back_off(r, t);
	/* Lost images are counted, and no row waits for them. Lost rows do not wait either. */
	release_all(r);
}

/* Build RUN_frames, or RUN_000001_frames. @return false: too long */
static bool
file_name(const struct run_files *r, unsigned int set, enum arrow_table table, char name[NAME_MAX])
{
	const char *what = arrow_table_name(table);
	int n;

	if (set == 0)
		n = snprintf(name, NAME_MAX, "%s_%s", r->config.run, what);
	else
		n = snprintf(name, NAME_MAX, "%s_%06u_%s", r->config.run, set, what);
	return n < NAME_MAX;
}

static void
free_files(struct run_file *file[ARROW_TABLES])
{
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (file[i] != NULL)
			arrow_file_discard(&file[i]->file);
		free(file[i]);
		file[i] = NULL;
	}
}

/* Create the files of a set. After an outage they need some free space. */
static int
create_files(struct run_files *r, unsigned int set, uint64_t room,
	struct run_file *file[ARROW_TABLES], char message[PATH_MAX])
{
	char name[NAME_MAX];
	struct arrow_file *f;
	unsigned int i;
	int ret = 0;

	memset(file, 0, ARROW_TABLES * sizeof(file[0]));
	for (i = 0; i < ARROW_TABLES && ret == 0; i++) {
		file[i] = calloc(1, sizeof(*file[i]));
		if (file[i] == NULL) {
			ret = -ENOMEM;
			snprintf(message, PATH_MAX, "cannot allocate a file");
			break;
		}
		f = &file[i]->file;
		file[i]->table = i;
		if (!file_name(r, set, i, name)) {
			ret = -ENAMETOOLONG;
			snprintf(message, PATH_MAX, "file name %s is too long", name);
			break;
		}
		begin_wait(&r->table[i].creating_since);
		ret = arrow_file_create(
			f, &r->config.slices, r->config.dir, name, &r->config.tables->schema[i]);
		if (ret == 0 && room > 0)
			ret = arrow_file_reserve(f, room);
		end_wait(&r->table[i].creating_since);
		if (ret < 0)
			snprintf(message, PATH_MAX, "%.*s", PATH_MAX - 1, f->message);
	}
	if (ret < 0)
		free_files(file);
	return ret;
}

static void
take_files(struct run_files *r, struct run_file *file[ARROW_TABLES])
{
	struct table_files *t;
	unsigned int i;

	r->opened_bytes = 0;
	for (i = 0; i < ARROW_TABLES; i++) {
		t = &r->table[i];
		t->file = file[i];
		t->newest = &file[i]->file;
		t->file->file.clock = r->config.clock;
		t->file->file.clock_arg = r->config.arg;
		r->opened_bytes += t->stats.bytes;
		counter_add(&t->stats.files, 1);
		COUNTER_SET(t->stats.error, 0);
		COUNTER_SET(t->stats.state, RUN_FILES_WRITING);
		set_status(r, i, &file[i]->file);
		count_file(t, file[i]);
	}
	/* after the header */
	async_writer_hold(&file[ARROW_FRAMES]->file.out, file[ARROW_FRAMES]->file.size);
	r->opened_at = monotonic_ns();
}

static bool
is_rolled(const struct run_files_config *c)
{
	return c->roll_frames > 0 || c->roll_bytes > 0 || c->roll_ms > 0;
}

/* The first set of a run has one of two names; the other name must be unused, too. */
static int
check_other_name(const struct run_files *r, char message[PATH_MAX])
{
	char name[NAME_MAX], path[PATH_MAX];
	unsigned int i;
	size_t len;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (!file_name(r, is_rolled(&r->config) ? 0 : 1, i, name))
			continue; /* reported for the requested name */
		len = snprintf(path, sizeof(path), "%s/%s.arrow", r->config.dir, name);
		if (len + sizeof(".part") > sizeof(path))
			continue;
		if (access(path, F_OK) < 0) {
			strcat(path, ".part");
			if (access(path, F_OK) < 0)
				continue;
		}
		snprintf(message, PATH_MAX,
			"%.*s already exists; move it away or set another run name", PATH_MAX - 80,
			path);
		return -EEXIST;
	}
	return 0;
}

/* Return the smallest frame number step whose multiples end batches of both tables. */
static uint64_t
common_step(uint64_t a, uint64_t b)
{
	uint64_t x = a, y = b, rest;

	while (y != 0) {
		rest = x % y;
		x = y;
		y = rest;
	}
	return a / x * b;
}

int
run_files_open(
	struct run_files **run, const struct run_files_config *config, char message[PATH_MAX])
{
	struct run_file *file[ARROW_TABLES];
	struct run_files *r;
	unsigned int i;
	int ret;

	r = calloc(1, sizeof(*r));
	if (r == NULL) {
		snprintf(message, PATH_MAX, "cannot allocate the files of run %s", config->run);
		return -ENOMEM;
	}
	pthread_mutex_init(&r->lock, NULL);
	r->config = *config;
	if (r->config.retry_ms == 0)
		r->config.retry_ms = RUN_FILES_RETRY_MS;
	if (r->config.retry_max_ms == 0)
		r->config.retry_max_ms = RUN_FILES_RETRY_MAX_MS;
	if (r->config.resume_bytes == 0)
		r->config.resume_bytes = RUN_FILES_RESUME_BYTES;
	r->step = common_step(
		config->frames_interval ? config->frames_interval : BATCH_FRAMES_INTERVAL,
		config->images_interval ? config->images_interval : BATCH_IMAGES_INTERVAL);
	r->set = is_rolled(config) ? 1 : 0;
	for (i = 0; i < ARROW_TABLES; i++)
		r->table[i].stall.ms = config->slices.stall_ms != 0 ? config->slices.stall_ms
								    : ARROW_SLICE_STALL_MS;
	ret = check_other_name(r, message);
	if (ret == 0)
		ret = create_files(r, r->set, 0, file, message);
	if (ret < 0) {
		run_files_free(r);
		return ret;
	}
	take_files(r, file);
	*run = r;
	return 0;
}

static bool
set_is_full(const struct run_files *r, uint64_t now)
{
	uint64_t bytes = 0;
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++)
		bytes += r->table[i].stats.bytes;
	return (r->config.roll_bytes > 0 && bytes - r->opened_bytes >= r->config.roll_bytes) ||
		(r->config.roll_ms > 0 && now - r->opened_at >= r->config.roll_ms * NS_PER_MS);
}

bool
run_files_wants_roll(struct run_files *r, uint64_t frame)
{
	const uint64_t sets = (r->config.roll_frames + r->step - 1) / r->step * r->step;
	const uint64_t last = r->begin, frames = r->frames++;
	const bool restarts = r->begun && frame <= r->last;
	uint64_t now;
	unsigned int i;

	r->last = frame;
	/* all batches end at a restart, see arrow/batch.h */
	if (r->begun && !restarts && frame - last < r->step)
		return false;
	r->begin = frame / r->step * r->step;
	if (!r->begun) {
		r->begun = true;
		return false;
	}
	now = monotonic_ns();
	for (i = 0; i < ARROW_TABLES; i++) {
		if (r->table[i].file == NULL && now >= r->table[i].backoff.retry_at)
			return true;
	}
	/* short acquisitions that number from the same frame never reach a multiple of `sets` */
	r->by_frames |= sets > 0 &&
		(r->begin / sets != last / sets || (restarts && frames >= r->config.roll_frames));
	return (r->by_frames || set_is_full(r, now)) && now >= r->retry_at;
}

/* Opening the next set failed: continue with the current files and retry later. */
static void
roll_failed(struct run_files *r, unsigned int set, int error, const char *why)
{
	char text[PATH_MAX + 128];
	bool first = true;
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		if (r->table[i].file != NULL)
			continue;
		first &= r->table[i].stats.error != error;
		COUNTER_SET(r->table[i].stats.error, error);
		COUNTER_SET(r->table[i].stats.state,
			is_full(error) ? RUN_FILES_FULL : RUN_FILES_FAILED);
		counter_add(&r->table[i].stats.retries, 1);
		back_off(r, &r->table[i]);
	}
	r->retry_at = monotonic_ns() + r->config.retry_max_ms * NS_PER_MS;
	snprintf(text, sizeof(text), "cannot open the next set of files: %s", why);
	if (first)
		say(r, true, text);
	/* Files of another writer exist under this number: use the next one. */
	if (error == -EEXIST)
		r->set = set;
}

void
run_files_roll(struct run_files *r)
{
	struct run_file *file[ARROW_TABLES];
	char message[PATH_MAX], text[PATH_MAX + 128];
	bool outage = false;
	unsigned int i, set;
	int ret;

	for (i = 0; i < ARROW_TABLES; i++)
		outage |= r->table[i].file == NULL;
	set = r->set == 0 ? 2 : r->set + 1;
	ret = create_files(r, set, outage ? r->config.resume_bytes : 0, file, message);
	if (ret < 0) {
		roll_failed(r, set, ret, message);
		return;
	}
	for (i = 0; i < ARROW_TABLES; i++) {
		if (r->table[i].file == NULL)
			counter_add(&r->table[i].stats.resumes, 1);
	}
	begin_close_set(r);
	r->set = set;
	r->by_frames = false;
	r->frames = 1; /* the frame for which run_files_wants_roll() was called */
	r->retry_at = 0;
	take_files(r, file);
	snprintf(text, sizeof(text), "%s with %s", outage ? "writing resumed," : "continuing",
		file[0]->file.part);
	say(r, outage, text);
}

/* Release rows whose images are durable. */
static void
release_rows(struct run_files *r)
{
	const struct run_file *images = r->table[ARROW_IMAGES].file;
	struct run_file *rows = r->table[ARROW_FRAMES].file;

	if (rows == NULL || images == NULL)
		return;
	for (; r->hold_tail < r->hold_head; r->hold_tail++) {
		const struct hold *h = &r->hold[r->hold_tail % HOLDS];

		if (images->file.nb_durable < h->images)
			break;
		async_writer_hold(&rows->file.out, h->end);
	}
}

/* Let a batch of rows that is about to be appended wait for the images appended so far. */
static void
hold_rows(struct run_files *r, uint64_t size)
{
	struct run_file *images = r->table[ARROW_IMAGES].file;
	struct async_writer *out = &r->table[ARROW_FRAMES].file->file.out;
	const uint64_t end = out->taken + size;
	int ret = 0;

	/* outage: the images are counted as unwritten */
	if (images == NULL)
		return;
	if (end - out->limit > async_writer_hold_max(out)) {
		begin_wait(&r->table[ARROW_IMAGES].since);
		ret = arrow_file_commit(&images->file);
		end_wait(&r->table[ARROW_IMAGES].since);
	}
	if (ret < 0) {
		begin_outage(r, ARROW_IMAGES);
		return;
	}
	if (r->hold_head - r->hold_tail == HOLDS)
		r->hold_head--;
	r->hold[r->hold_head++ % HOLDS] = (struct hold){end, images->file.nb_batches};
	release_rows(r);
}

int
run_files_append(struct run_files *r, const struct batch *b)
{
	struct table_files *t = &r->table[b->table];
	int ret;

	if (t->file == NULL) {
		count_unwritten(t, t->stats.error, b->rows);
		return t->stats.error;
	}
	if (b->table == ARROW_FRAMES)
		hold_rows(r, b->metadata_size + b->body_length);
	t->file->accepted += b->rows;
	begin_wait(&t->since);
	ret = arrow_file_append(&t->file->file, b);
	end_wait(&t->since);
	if (ret < 0) {
		begin_outage(r, b->table);
		return t->stats.error;
	}
	t->file->lent[b->set] = t->file->file.size;
	count_file(t, t->file);
	return 0;
}

void
run_files_reclaim(struct run_files *r, enum arrow_table table, unsigned int set)
{
	struct table_files *t = &r->table[table];

	/* take_file() has waited for the batches of earlier files */
	if (t->file == NULL)
		return;
	begin_wait(&t->since);
	arrow_file_wait(&t->file->file, t->file->lent[set]);
	end_wait(&t->since);
}

void
run_files_poll(struct run_files *r)
{
	struct table_files *t;
	unsigned int i;
	int ret;

	/* Images first, because rows may wait for them. */
	for (i = ARROW_TABLES; i-- > 0;) {
		t = &r->table[i];
		if (t->file == NULL)
			continue;
		begin_wait(&t->since);
		ret = arrow_file_poll(&t->file->file);
		end_wait(&t->since);
		if (ret < 0) {
			begin_outage(r, i);
		} else {
			count_file(t, t->file);
			COUNTER_SET(t->writing, t->file->file.out.stalled);
		}
		if (i == ARROW_IMAGES)
			release_rows(r);
	}
	if (r->closing != NULL)
		reap_closed(r, false);
}

void
run_files_watch(struct run_files *r)
{
	char text[PATH_MAX + 256];
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		struct table_files *t = &r->table[i];
		const struct arrow_stall_wait wait = {
			.creating_since = counter_get(&t->creating_since),
			.since = counter_get(&t->since),
			.closing = counter_get(&t->nb_closing) > 0,
			.writing = counter_get(&t->writing) != 0,
		};

		if (!arrow_stall_check(&t->stall, &wait))
			continue;
		counter_add(&t->stats.stalls, t->stall.stalled);
		COUNTER_SET(t->stats.stalled, t->stall.stalled);
		arrow_stall_text(&t->stall, r->config.dir, arrow_table_name(i), text, sizeof(text));
		say(r, true, text);
	}
}

int
run_files_close(struct run_files *r)
{
	unsigned int i;

	begin_close_set(r);
	reap_closed(r, true);
	for (i = 0; i < ARROW_TABLES; i++)
		COUNTER_SET(r->table[i].stats.state, RUN_FILES_CLOSED);
	return r->first_error;
}

void
run_files_discard(struct run_files *r)
{
	struct run_file *file[ARROW_TABLES];
	unsigned int i;

	for (i = 0; i < ARROW_TABLES; i++) {
		file[i] = r->table[i].file;
		r->table[i].file = NULL;
	}
	free_files(file);
}

void
run_files_free(struct run_files *r)
{
	if (r == NULL)
		return;
	pthread_mutex_destroy(&r->lock);
	free(r);
}

void
run_files_stats_get(
	const struct run_files *r, enum arrow_table table, struct run_files_stats *stats)
{
	counters_get(stats, &r->table[table].stats, sizeof(*stats));
}

void
run_files_status(struct run_files *r, enum arrow_table table, struct run_files_status *status)
{
	pthread_mutex_lock(&r->lock);
	*status = r->table[table].status;
	pthread_mutex_unlock(&r->lock);
}
