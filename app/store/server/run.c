/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "counter.h"
#include "log.h"
#include "recovery/recovery.h"
#include "arrow/tables.h"
#include "io/directory.h"
#include "io/own_file.h"
#include "eal/process_cpus.h"
#include "stream/ended.h"
#include "stream/run_name.h"
#include "server/run.h"
#include "stream/source.h"

LOG_REGISTER("store.run", "store");

static void
on_log(void *arg, bool error, const char *text)
{
	if (error)
		LOG(ERR, "%s\n", text);
	else
		LOG(INFO, "%s\n", text);
}

static int64_t
on_clock(void *arg)
{
	return utc_ns();
}

/* Result of the recovery of a run's files. */
struct recovered {
	const char *run;
	const struct arrow_identity *identity;
	bool busy;   /* a file is being written */
	bool failed; /* a file could not be completed: its content is unknown */
};

static void
on_recovery(void *arg, const struct arrow_recovery *report)
{
	struct recovered *r = arg;
	const bool busy = report->state == ARROW_RECOVERY_BUSY,
		   unknown = arrow_recovery_is_unknown(report);

	if (stream_source_matches(report->path, r->run, r->identity)) {
		r->busy |= busy;
		r->failed |= unknown;
	} else if (busy) {
		return; /* file of another incarnation that is being written here */
	}
	if (unknown && !busy)
		LOG(ERR,
			"%s: %s: its batches are unknown, so nothing is stored after them; "
			"repair or remove the file\n",
			report->path, report->message);
	else
		LOG(NOTICE, "%s: %s\n", report->path, report->message);
}

/* Find or create the entry of a receiver. There are at most as many as runs. */
static struct store_receiver_id *
owner_of(struct store_runs *s, uint64_t receiver_id)
{
	struct store_receiver_id *p, *free_one = NULL;
	unsigned int i;

	for (i = 0; i < STORE_RUNS; i++) {
		p = &s->receiver_id[i];
		if (p->quota.root != NULL && p->receiver_id == receiver_id)
			break;
		if (p->nb_runs == 0 && free_one == NULL)
			free_one = p;
	}
	if (i == STORE_RUNS) {
		p = free_one;
		stream_quota_abandon(&p->quota);
		*p = (struct store_receiver_id){
			.receiver_id = receiver_id,
			.quota =
				{
					.limit = s->files.quota,
					.root = s->files.root,
					.receiver_id = receiver_id,
					.setting = "[files] quota_mib",
					.in_thread = true,
				},
		};
	}
	p->nb_runs++;
	return p;
}

static enum xfer_reason
open_schema(struct store_run *r, const struct xfer_auth *h, unsigned int table)
{
	const uint32_t size = h->request.table[table].schema_bytes;
	const char *problem;

	r->schema[table] = malloc(size);
	if (r->schema[table] == NULL)
		return XFER_REASON_FAILED;
	memcpy(r->schema[table], h->schema[table], size);
	r->schema_bytes[table] = size;
	if (arrow_reader_open_memory(&r->reader[table], r->schema[table], size, &problem) < 0) {
		LOG(WARNING, "run %s: cannot read the schema of %s: %s\n", r->name,
			arrow_table_name(table), problem);
		return XFER_REASON_SCHEMA;
	}
	return XFER_REASON_NONE;
}

static enum xfer_reason
open_writer(struct store_runs *s, struct store_run *r, unsigned int table)
{
	const struct stream_writer_config c = {
		.dir = r->dir,
		.run = r->name,
		.final = r->ended,
		.identity = {r->receiver_id, r->run, r->incarnation, arrow_table_name(table)},
		.schema = &r->reader[table].schema,
		.slices = s->files.slices,
		.roll_bytes = s->files.roll_bytes,
		.roll_ms = s->files.roll_ms,
		.on_lcore = true,
		.quota = &r->owner->quota,
		.result = s->files.result,
		.log = on_log,
		.clock = on_clock,
		.enter = process_cpus_take,
		.arg = s->files.arg,
	};
	int ret;

	ret = stream_writer_open(&r->writer[table], &c);
	if (ret == 0)
		ret = stream_writer_adopt_all(r->writer[table]);
	if (ret < 0)
		return ret == -EBUSY	   ? XFER_REASON_BUSY
			: ret == -ENOTUNIQ ? XFER_REASON_DIFFERS
					   : XFER_REASON_FAILED;
	return XFER_REASON_NONE;
}

void
store_run_report_differing(const struct store_run *r, unsigned int table, uint64_t sequence,
	const char *what, const char *path)
{
	LOG(ERR,
		"run %s, incarnation %016" PRIx64 ": batch %" PRIu64 " of %s that its receiver "
		"has %s has other bytes than the stored one in %s; nothing is changed or "
		"released\n",
		r->name, r->incarnation, sequence, arrow_table_name(table), what, path);
}

/* Held while another thread reads runs and their writers, and while one begins or is freed. */
static pthread_mutex_t view_lock = PTHREAD_MUTEX_INITIALIZER;

static void
show_run(struct store_run *r, bool visible)
{
	pthread_mutex_lock(&view_lock);
	r->visible = visible;
	pthread_mutex_unlock(&view_lock);
}

static void
reset_run(struct store_run *r, const struct store_run *to)
{
	pthread_mutex_lock(&view_lock);
	*r = *to;
	pthread_mutex_unlock(&view_lock);
}

static void
free_run(struct store_run *r)
{
	unsigned int i;

	show_run(r, false);
	for (i = 0; i < XFER_TABLES; i++) {
		stream_writer_close(r->writer[i]);
		if (r->reader[i].data != NULL)
			arrow_reader_close(&r->reader[i]);
		free(r->schema[i]);
	}
	if (r->owner != NULL)
		r->owner->nb_runs--;
	reset_run(r, &(struct store_run){0});
}

/* Create a run without its files, which are read later. */
static enum xfer_reason
make_run(struct store_runs *s, struct store_run *r, const struct xfer_auth *h)
{
	enum xfer_reason reason = XFER_REASON_NONE;
	struct arrow_identity identity;
	unsigned int i;

	reset_run(r,
		&(struct store_run){
			.used = true,
			.receiver_id = h->receiver.node,
			.run = h->request.run,
			.incarnation = h->request.incarnation,
		});
	memcpy(r->name, h->request.name, sizeof(r->name));
	identity = (struct arrow_identity){r->receiver_id, r->run, r->incarnation, NULL};
	if (stream_source_dir(r->dir, s->files.root, r->name, &identity) < 0)
		return XFER_REASON_FAILED;
	for (i = 0; i < XFER_TABLES && reason == XFER_REASON_NONE; i++)
		reason = open_schema(r, h, i);
	if (reason == XFER_REASON_NONE)
		r->owner = owner_of(s, r->receiver_id);
	return reason;
}

/* Whether the store has files of this incarnation, also its marker. @return true: or unknown */
static bool
is_known(const struct store_run *r)
{
	const struct arrow_identity identity = {r->receiver_id, r->run, r->incarnation, NULL};
	const struct dirent *entry;
	bool known;
	DIR *dir = opendir(r->dir);

	if (dir == NULL)
		return errno != ENOENT;
	known = store_ended_read(r->dir, r->incarnation) != 0;
	while (!known && (entry = directory_next(dir)) != NULL)
		known = stream_source_matches(entry->d_name, r->name, &identity);
	known = known || errno != 0;
	closedir(dir);
	return known;
}

/*
 * Serializes beginning a run: the directory that one thread makes must be included in the next
 * measurement.
 */
static pthread_mutex_t begin_lock = PTHREAD_MUTEX_INITIALIZER;

/*
 * Whether a receiver may begin a run: a receiver with a limit of bytes must not use up all inodes
 * either.
 */
static enum xfer_reason
may_begin(const struct store_runs *s, struct store_run *r)
{
	const uint64_t quota = s->files.quota, most = s->files.runs_max;
	uint64_t runs;

	if ((quota == 0 && most == 0) || is_known(r))
		return XFER_REASON_NONE;
	if (stream_quota_measure(
		    s->files.root, r->receiver_id, quota > 0 ? &r->bytes_disk : NULL, &runs) < 0)
		return XFER_REASON_FAILED;
	if (quota > 0 && r->bytes_disk + r->bytes_open >= quota)
		return XFER_REASON_QUOTA;
	if (most == 0 || runs < most)
		return XFER_REASON_NONE;
	r->too_many = runs;
	return XFER_REASON_QUOTA;
}

/* Begin a run that its receiver may begin, with its directory. */
static enum xfer_reason
begin_run(const struct store_runs *s, struct store_run *r)
{
	enum xfer_reason reason;
	char message[PATH_MAX];
	int fd = 0;

	pthread_mutex_lock(&begin_lock);
	reason = may_begin(s, r);
	if (reason == XFER_REASON_NONE)
		fd = own_folder_make(r->dir, OWN_FOLDER_RUN, message);
	pthread_mutex_unlock(&begin_lock);
	if (reason != XFER_REASON_NONE)
		return reason;
	if (fd < 0) {
		LOG(ERR, "%s\n", message);
		return XFER_REASON_FAILED;
	}
	close(fd);
	return XFER_REASON_NONE;
}

void
store_run_recover_begin(struct store_run *r)
{
	r->settling = true;
	r->too_many = 0;
	r->bytes_open = r->owner->quota.open;
	r->bytes_closed = r->owner->quota.closed;
}

enum xfer_reason
store_run_open(struct store_runs *s, struct store_run *r)
{
	const struct arrow_identity identity = {r->receiver_id, r->run, r->incarnation, NULL};
	struct recovered recovered = {.run = r->name, .identity = &identity};
	enum xfer_reason reason = XFER_REASON_NONE;
	char message[PATH_MAX];
	unsigned int i;
	uint64_t runs;
	int ended, other;
	bool fresh;

	if (r->open)
		return reason;
	other = stream_run_other(s->files.root, r->name, &identity, message);
	if (other != 0) {
		LOG(ERR, "run %s, incarnation %016" PRIx64 ": %s%s\n", r->name, r->incarnation,
			message,
			other > 0 ? " has this run under another name" : ": cannot list it");
		return other > 0 ? XFER_REASON_NAME : XFER_REASON_FAILED;
	}
	fresh = access(r->dir, F_OK) < 0 && errno == ENOENT;
	reason = begin_run(s, r);
	if (reason != XFER_REASON_NONE)
		return reason;
	/*
	 * recover files after a crash, also those of other incarnations that are not being written
	 */
	if (arrow_recover_dir(NULL, r->dir, on_recovery, &recovered) < 0)
		return XFER_REASON_FAILED;
	/*
	 * The content of the files is unknown, so batches would be stored again. The kernel may
	 * hold the lock of a killed process until its io_uring has ended.
	 */
	if (recovered.busy)
		return XFER_REASON_BUSY;
	if (recovered.failed)
		return XFER_REASON_FAILED;
	ended = store_ended_read(r->dir, r->incarnation);
	if (ended < 0) {
		LOG(ERR, "cannot determine whether run %s has ended: %s\n", r->dir,
			strerror(-ended));
		return XFER_REASON_FAILED;
	}
	r->ended = ended;
	for (i = 0; i < XFER_TABLES && reason == XFER_REASON_NONE; i++)
		reason = open_writer(s, r, i);
	/* recovered files count, too; may_begin() measured before a new directory was made */
	if (reason == XFER_REASON_NONE && s->files.quota > 0 && !fresh &&
		stream_quota_measure(s->files.root, r->receiver_id, &r->bytes_disk, &runs) < 0)
		reason = XFER_REASON_FAILED;
	r->open = reason == XFER_REASON_NONE;
	return reason;
}

static bool
is_run(const struct store_run *r, const struct xfer_auth *h)
{
	return r->used && r->receiver_id == h->receiver.node && r->run == h->request.run &&
		r->incarnation == h->request.incarnation;
}

static bool
schemas_agree(const struct store_run *r, const struct xfer_auth *h)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		if (r->schema_bytes[i] != h->request.table[i].schema_bytes ||
			memcmp(r->schema[i], h->schema[i], r->schema_bytes[i]) != 0)
			return false;
	}
	return true;
}

struct store_run *
store_run_find(struct store_runs *s, const struct xfer_auth *h, enum xfer_reason *reason)
{
	struct store_run *r, *free_one = NULL;
	unsigned int i;

	*reason = XFER_REASON_NONE;
	for (i = 0; i < STORE_RUNS; i++) {
		r = &s->run[i];
		if (!r->used && free_one == NULL)
			free_one = r;
		if (!is_run(r, h))
			continue;
		if (memcmp(r->name, h->request.name, sizeof(r->name)) != 0)
			*reason = XFER_REASON_NAME;
		else if (schemas_agree(r, h))
			return r;
		else
			*reason = XFER_REASON_SCHEMA;
		goto refused;
	}
	*reason = XFER_REASON_BUSY;
	if (free_one == NULL)
		goto refused;
	*reason = make_run(s, free_one, h);
	if (*reason == XFER_REASON_NONE) {
		if (s->nb <= free_one - s->run)
			s->nb = free_one - s->run + 1;
		return free_one;
	}
	free_run(free_one);
refused:
	s->refused++;
	return NULL;
}

/* Report once that a receiver may begin no run. */
static void
log_refused(const struct store_runs *s, const struct store_run *r)
{
	if (r->owner->told)
		return;
	r->owner->told = true;
	if (r->too_many > 0)
		LOG(WARNING,
			"run %s refused: receiver %016" PRIx64 " has %" PRIu64
			" runs in %s, the limit is %" PRIu64
			" ([files] runs_max); remove some, or raise the limit\n",
			r->name, r->receiver_id, r->too_many, s->files.root, s->files.runs_max);
	else
		LOG(WARNING,
			"run %s refused: files of receiver %016" PRIx64 " in %s have %" PRIu64
			" MiB, the limit is %" PRIu64
			" MiB ([files] quota_mib); remove some, or raise the limit\n",
			r->name, r->receiver_id, s->files.root,
			(r->bytes_disk + r->bytes_open) >> 20, s->files.quota >> 20);
}

/*
 * Remove the directory of a run that has neither files nor ended, unless another incarnation uses
 * it. An empty directory would count as one of the receiver's runs.
 */
static void
remove_empty(const struct store_runs *s, const struct store_run *r)
{
	unsigned int i;

	for (i = 0; i < s->nb; i++) {
		if (s->run[i].used && &s->run[i] != r && strcmp(s->run[i].dir, r->dir) == 0)
			return;
	}
	(void)rmdir(r->dir);
}

void
store_run_recover_end(struct store_runs *s, struct store_run *r, enum xfer_reason reason)
{
	r->settling = false;
	if (reason == XFER_REASON_QUOTA)
		log_refused(s, r);
	if (r->open && !r->visible) {
		if (s->files.quota > 0)
			stream_quota_apply(&r->owner->quota, r->bytes_disk, r->bytes_closed);
		r->owner->told = false;
		s->opened++;
		show_run(r, true);
	} else if (!r->open) {
		s->refused++;
		remove_empty(s, r);
		free_run(r);
	}
}

void
store_runs_poll(struct store_runs *s, uint64_t now)
{
	struct store_run *r;
	unsigned int i, k;

	for (i = 0; i < s->nb; i++) {
		r = &s->run[i];
		if (!r->used || r->settling)
			continue;
		if (!r->open) {
			/* its connection ended before the recovery began */
			if (r->connection == NULL)
				free_run(r);
			continue;
		}
		for (k = 0; k < XFER_TABLES; k++)
			stream_writer_poll(r->writer[k]);
		if (r->connection != NULL)
			r->idle_since = 0;
		else if (r->idle_since == 0)
			r->idle_since = now;
		else if (s->files.idle_ms > 0 && now - r->idle_since >= s->files.idle_ms &&
			store_run_recovered(r) && store_run_finish(r)) {
			LOG(NOTICE,
				"run %s: no receiver connected for %" PRIu64 " ms; "
				"completed its files\n",
				r->name, now - r->idle_since);
			s->idle++;
			(void)store_run_end(s, r);
		}
	}
}

bool
store_run_recovered(const struct store_run *r)
{
	return stream_writer_settled(r->writer[0]) && stream_writer_settled(r->writer[1]);
}

bool
store_run_finish(struct store_run *r)
{
	unsigned int i;

	/* repeated, since a writer may have opened another file after an error */
	for (i = 0; i < XFER_TABLES; i++)
		stream_writer_begin_finish(r->writer[i]);
	return stream_writer_finished(r->writer[0]) && stream_writer_finished(r->writer[1]);
}

enum xfer_state
store_run_state(const struct store_run *r)
{
	enum xfer_state state = XFER_STATE_GOOD;
	unsigned int i;
	int error;

	for (i = 0; i < XFER_TABLES; i++) {
		error = stream_writer_state(r->writer[i]);
		if (error == -ENOSPC || error == -EDQUOT)
			state = state == XFER_STATE_GOOD ? XFER_STATE_FULL : state;
		else if (error < 0)
			state = XFER_STATE_FAILED;
	}
	return state;
}

static void
add_latency(struct histogram *to, const struct stream_writer *w)
{
	struct stream_stats stats;

	stream_writer_stats_get(w, &stats);
	histogram_add(to, &stats.latency);
}

int
store_run_end(struct store_runs *s, struct store_run *r)
{
	int ret = 0, error;
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		error = stream_writer_finish(r->writer[i]);
		ret = ret == 0 ? error : ret;
	}
	s->ended++;
	pthread_mutex_lock(&view_lock);
	for (i = 0; i < XFER_TABLES; i++)
		add_latency(&s->latency, r->writer[i]);
	r->visible = false;
	pthread_mutex_unlock(&view_lock);
	remove_empty(s, r);
	free_run(r);
	return ret;
}

bool
store_runs_view(const struct store_runs *s, unsigned int run, unsigned int table,
	struct store_stream_view *view)
{
	const struct store_run *r;
	bool visible;

	if (run >= STORE_RUNS || table >= XFER_TABLES)
		return false;
	r = &s->run[run];
	memset(view, 0, sizeof(*view));
	pthread_mutex_lock(&view_lock);
	visible = r->visible;
	if (visible) {
		memcpy(view->run, r->name, sizeof(view->run));
		view->receiver_id = r->receiver_id;
		view->incarnation = r->incarnation;
		view->connected = __atomic_load_n(&r->connection, __ATOMIC_RELAXED) != NULL;
		view->quota = s->files.quota;
		view->quota_used = view->quota > 0 ? counter_get(&r->owner->quota.used) : 0;
		stream_writer_stats_get(r->writer[table], &view->stats);
	}
	pthread_mutex_unlock(&view_lock);
	return visible;
}

struct histogram
store_runs_latency(const struct store_runs *s)
{
	struct histogram latency;
	unsigned int i, k;

	pthread_mutex_lock(&view_lock);
	latency = s->latency;
	for (i = 0; i < STORE_RUNS; i++) {
		for (k = 0; k < XFER_TABLES && s->run[i].visible; k++)
			add_latency(&latency, s->run[i].writer[k]);
	}
	pthread_mutex_unlock(&view_lock);
	return latency;
}

int
store_runs_close(struct store_runs *s)
{
	unsigned int i;
	int ret = 0, error;

	for (i = 0; i < STORE_RUNS; i++) {
		if (!s->run[i].used)
			continue;
		if (!s->run[i].open) {
			free_run(&s->run[i]);
			continue;
		}
		error = store_run_end(s, &s->run[i]);
		ret = ret == 0 ? error : ret;
	}
	return ret;
}
