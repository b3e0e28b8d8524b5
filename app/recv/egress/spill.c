/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "arrow/reader.h"
#include "arrow/tables.h"
#include "clock.h"
#include "counter.h"
#include "egress/spill.h"
#include "fail_point.h"
#include "io/dir_lock.h"
#include "io/file_lock.h"
#include "io/own_file.h"
#include "log.h"
#include "recovery/recovery.h"
#include "stream/source.h"

LOG_REGISTER("spill", "spill");

#define SLEEP_US  500
#define REFUSE_MS 1000 /* delay before another attempt to open a directory */

enum order {
	COMMAND_BATCH,
	COMMAND_PAUSE,
	COMMAND_CLOSE,
	COMMAND_END,
};

/* Command to the thread. */
struct spill_command {
	enum order order;
	unsigned int run;
	unsigned int table;
	uint32_t batch; /* tag of the batch */
	struct journal_batch what;
};

/* A run being spilled. It belongs to the spill thread, except `closed` and the marked fields. */
struct spill_run {
	struct journal_run run; /* set before its first batch is put */
	bool named;		/* belongs to the caller of spill_put() */
	bool closing;		/* belongs to the caller of spill_put() */
	bool closed;		/* atomic: the thread has released the run */
	bool open;
	int lock;  /* of the directory */
	int error; /* reason why it could not be opened; the next attempt is at retry_at */
	uint64_t retry_at;
	char dir[PATH_MAX];
	struct arrow_reader reader[XFER_TABLES];
	struct stream_writer *writer[XFER_TABLES];
	uint64_t uncut_of[XFER_TABLES]; /* last count reported by its writer */
	uint32_t uncut;			/* atomic: summed over all runs at this index */
};

struct spill {
	struct spill_config config;
	struct stream_quota quota;
	struct rte_ring *orders;
	struct rte_ring *results;
	unsigned int nb_open; /* batches without a result; belongs to the caller of spill_put() */
	pthread_t thread;
	bool started;
	struct spill_run run[JOURNAL_RUNS];
	struct spill_stats stats;
};

static uint64_t
clock_ms(void)
{
	return monotonic_ns() / 1000000;
}

static void
on_log(void *arg, bool error, const char *text)
{
	if (error)
		LOG(ERR, "%s\n", text);
	else
		LOG(INFO, "%s\n", text);
}

/* Files of a run that recovery has examined. */
struct recovered {
	const struct spill_run *run;
	struct arrow_identity identity;
	bool busy;   /* a file of this incarnation is in use */
	bool failed; /* a file could not be completed */
};

static void
on_recovery(void *arg, const struct arrow_recovery *report)
{
	struct recovered *r = arg;

	LOG(NOTICE, "%s: %s\n", report->path, report->message);
	if (!stream_source_matches(report->path, r->run->run.name, &r->identity))
		return;
	r->busy |= report->state == ARROW_RECOVERY_BUSY;
	r->failed |= arrow_recovery_is_unknown(report);
}

#define TAG_DAMAGED (UINT64_C(1) << 32)

/* @param tag  number of the batch, with TAG_DAMAGED if its body is damaged */
static void
give_result(struct spill *s, uint64_t tag, bool durable)
{
	struct spill_result result = {(uint32_t)tag, durable, (tag & TAG_DAMAGED) != 0};

	/* The ring has room for the maximum number of batches without a result. */
	(void)rte_ring_sp_enqueue_elem(s->results, &result, sizeof(result));
}

static void
on_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct spill *s = arg;

	if (status == XFER_RETRY)
		counter_add(&s->stats.again, 1);
	FAIL_POINT("spill.synced");
	give_result(s, tag, status != XFER_RETRY);
}

/* ---- runs: in the spill thread, or before it starts ---- */

static void
close_run(struct spill_run *r)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		stream_writer_close(r->writer[i]);
		r->writer[i] = NULL;
		r->uncut_of[i] = 0;
		if (r->reader[i].data != NULL)
			arrow_reader_close(&r->reader[i]);
		r->reader[i].data = NULL;
	}
	dir_lock_release(r->lock);
	r->lock = -1;
	r->open = false;
}

/* Build the path of a run's directory. */
static int
dir_of(const struct spill *s, const struct journal_run *run, char dir[PATH_MAX])
{
	const struct arrow_identity identity = {
		s->config.receiver_id, run->run, run->incarnation, NULL};

	return stream_source_dir(dir, s->config.dir, run->name, &identity);
}

static int
lock_dir(struct spill *s, struct spill_run *r)
{
	const struct spill_run *other;
	char message[PATH_MAX];
	int ret;

	ret = dir_of(s, &r->run, r->dir);
	if (ret < 0)
		return ret;
	/*
	 * The directory's name must be durable, too, because spilled batches outlive the journal.
	 */
	ret = own_folder_make(r->dir, OWN_FOLDER_RUN, message);
	if (ret < 0) {
		LOG(ERR, "%s\n", message);
		return ret;
	}
	close(ret);
	/* Another incarnation of this run may be spilled, too: both share the lock. */
	for (other = s->run; other < s->run + JOURNAL_RUNS; other++) {
		if (other == r || !other->open || strcmp(other->dir, r->dir) != 0)
			continue;
		r->lock = dir_lock_share(r->dir, DIR_LOCK_NAME);
		return r->lock < 0 ? r->lock : 0;
	}
	r->lock = dir_lock(r->dir, DIR_LOCK_NAME, true, 0, message);
	if (r->lock == -EBUSY)
		LOG(ERR,
			"%s/" DIR_LOCK_NAME " is locked by a running braggline-store import or "
			"another receiver; trying again when it has ended\n",
			r->dir);
	else if (r->lock < 0)
		LOG(ERR, "%s\n", message);
	return r->lock < 0 ? r->lock : 0;
}

static int
open_table(struct spill *s, struct spill_run *r, unsigned int table)
{
	const char *problem = "";
	const struct stream_writer_config c = {
		.dir = r->dir,
		.run = r->run.name,
		.identity = {s->config.receiver_id, r->run.run, r->run.incarnation,
			arrow_table_name(table)},
		.schema = &r->reader[table].schema,
		.quota = s->quota.limit > 0 ? &s->quota : NULL,
		.result = on_result,
		.log = on_log,
		.arg = s,
	};
	int ret;

	ret = arrow_reader_open_memory(
		&r->reader[table], r->run.schema[table], r->run.schema_bytes[table], &problem);
	if (ret < 0) {
		LOG(ERR, "run %s: cannot read the schema of %s: %s\n", r->run.name,
			arrow_table_name(table), problem);
		return ret;
	}
	ret = stream_writer_open(&r->writer[table], &c);
	return ret < 0 ? ret : stream_writer_adopt_all(r->writer[table]);
}

static int
open_run(struct spill *s, struct spill_run *r)
{
	struct recovered recovered = {
		.run = r,
		.identity = {s->config.receiver_id, r->run.run, r->run.incarnation, NULL},
	};
	unsigned int i;
	int ret;

	r->lock = -1;
	ret = lock_dir(s, r);
	/* recover the files that a crash has left */
	if (ret == 0)
		ret = arrow_recover_dir(NULL, r->dir, on_recovery, &recovered) < 0 ? -EIO : 0;
	/* the content of a file in use is unknown, and its batches would be sent again */
	if (recovered.busy)
		ret = -EBUSY;
	else if (recovered.failed)
		ret = -EIO;
	if (s->quota.limit > 0)
		stream_quota_renew(&s->quota, NULL);
	for (i = 0; i < XFER_TABLES && ret == 0; i++)
		ret = open_table(s, r, i);
	if (ret < 0) {
		LOG(ERR, "run %s: cannot spill to %s: %s\n", r->run.name, s->config.dir,
			strerror(-ret));
		close_run(r);
		return ret;
	}
	r->open = true;
	FAIL_POINT("spill.opened");
	return 0;
}

bool
spill_was(const struct spill *s, const struct journal_run *run)
{
	char dir[PATH_MAX];

	return dir_of(s, run, dir) == 0 && access(dir, F_OK) == 0;
}

int
spill_adopt_run(struct spill *s, unsigned int run, const struct journal_run *from)
{
	const uint64_t until = clock_ms() + FILE_LOCK_MS;
	const struct timespec rest = {.tv_sec = 1};
	int ret;

	s->run[run].run = *from;
	s->run[run].named = true;
	/* locks may outlive the process that died */
	while ((ret = open_run(s, &s->run[run])) == -EBUSY && clock_ms() < until)
		nanosleep(&rest, NULL);
	return ret;
}

int
spill_check(struct spill *s, unsigned int run, unsigned int table, const struct interval_set *held)
{
	const struct spill_run *r = &s->run[run];

	return r->open ? stream_writer_check(r->writer[table], held, true, NULL) : 0;
}

bool
spill_has(const struct spill *s, const struct journal_batch *b)
{
	const struct spill_run *r = &s->run[b->run];

	return r->open && interval_set_has(stream_writer_have(r->writer[b->table]), b->sequence);
}

bool
spill_has_same(const struct spill *s, const struct journal_batch *b)
{
	const struct spill_run *r = &s->run[b->run];
	const uint64_t content = stream_content_make(b->body_crc32c, b->metadata_crc32c);
	const char *path = NULL;
	int ret;

	if (!spill_has(s, b))
		return false;
	ret = stream_writer_compare(r->writer[b->table], b->sequence, content, &path);
	if (ret < 0)
		LOG(ERR,
			"batch %" PRIu64 " of %s has other bytes in the journal than in %s; the "
			"journal keeps it\n",
			b->sequence, arrow_table_name(b->table), path != NULL ? path : "a file");
	return ret > 0;
}

uint64_t
spill_batches(const struct spill *s, unsigned int run)
{
	const struct spill_run *r = &s->run[run];
	uint64_t batches = 0;
	unsigned int i;

	for (i = 0; i < XFER_TABLES && r->open; i++)
		batches += interval_set_count(stream_writer_have(r->writer[i]));
	return batches;
}

/* ---- spill thread ---- */

static void
write_batch(struct spill *s, struct spill_command *o)
{
	struct spill_run *r = &s->run[o->run];
	const struct journal_batch *b = &o->what;
	struct iovec part[JOURNAL_PARTS];
	struct stream_batch batch = {
		.xfer = {b->sequence, b->rows, b->first, b->last, b->received, b->body_bytes,
			b->body_crc32c, 0},
		.metadata = b->metadata,
		.part = part,
		.nb_parts = journal_parts(b, part),
		.tag = o->batch,
	};

	if (!r->open && clock_ms() >= r->retry_at) {
		r->error = open_run(s, r);
		r->retry_at = clock_ms() + REFUSE_MS;
	}
	if (r->open) {
		FAIL_POINT("spill.write");
		if (journal_body_crc32c(b) != b->body_crc32c)
			batch.tag |= TAG_DAMAGED;
		stream_writer_append(r->writer[o->table], &batch);
		return;
	}
	COUNTER_SET(s->stats.error, r->error);
	counter_add(&s->stats.again, 1);
	give_result(s, o->batch, false);
}

static void
pause_all(struct spill *s)
{
	unsigned int i, k;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; s->run[i].open && k < XFER_TABLES; k++)
			stream_writer_begin_finish(s->run[i].writer[k]);
	}
}

static void
execute(struct spill *s, struct spill_command *o)
{
	switch (o->order) {
	case COMMAND_BATCH:
		write_batch(s, o);
		break;
	case COMMAND_PAUSE:
		pause_all(s);
		break;
	case COMMAND_CLOSE:
		close_run(&s->run[o->run]);
		FAIL_POINT("spill.closed");
		__atomic_store_n(&s->run[o->run].closed, true, __ATOMIC_RELEASE);
		break;
	case COMMAND_END:
		break;
	}
}

/* Write, and process completions. */
static void
poll_writers(struct spill *s)
{
	struct stream_stats of;
	unsigned int i, k;
	bool any = false;
	int error = 0;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; s->run[i].open && k < XFER_TABLES; k++) {
			stream_writer_poll(s->run[i].writer[k]);
			stream_writer_stats_get(s->run[i].writer[k], &of);
			error = of.error != 0 ? of.error : error;
			COUNTER_SET(s->run[i].uncut,
				s->run[i].uncut + (uint32_t)(of.uncut - s->run[i].uncut_of[k]));
			s->run[i].uncut_of[k] = of.uncut;
			any = true;
		}
	}
	counter_set(&s->stats.used, s->quota.used);
	if (any)
		COUNTER_SET(s->stats.error, error);
}

static void *
spill_main(void *arg)
{
	const struct timespec pause = {.tv_nsec = SLEEP_US * 1000};
	struct spill *s = arg;
	struct spill_command order;

	do {
		if (rte_ring_sc_dequeue_elem(s->orders, &order, sizeof(order)) == 0) {
			execute(s, &order);
		} else {
			order.order = COMMAND_PAUSE;
			nanosleep(&pause, NULL);
		}
		poll_writers(s);
	} while (order.order != COMMAND_END);
	return NULL;
}

/* ---- interface for the caller of spill_put() ---- */

bool
spill_has_room(const struct spill *s)
{
	return s->nb_open < SPILL_BATCHES && rte_ring_free_count(s->orders) > 0;
}

void
spill_put(struct spill *s, uint32_t batch, const struct journal_batch *b,
	const struct journal_run *run)
{
	struct spill_run *r = &s->run[b->run];
	struct spill_command order = {
		.order = COMMAND_BATCH,
		.run = b->run,
		.table = b->table,
		.batch = batch,
		.what = *b,
	};

	if (!r->named) {
		r->run = *run;
		r->named = true;
	}
	(void)rte_ring_sp_enqueue_elem(s->orders, &order, sizeof(order));
	s->nb_open++;
}

unsigned int
spill_results(struct spill *s, struct spill_result *result, unsigned int room)
{
	const unsigned int n =
		rte_ring_sc_dequeue_burst_elem(s->results, result, sizeof(*result), room, NULL);

	s->nb_open -= n;
	return n;
}

void
spill_pause(struct spill *s)
{
	struct spill_command order = {.order = COMMAND_PAUSE};

	/* If the ring is full, files stay open until their run is closed. */
	(void)rte_ring_sp_enqueue_elem(s->orders, &order, sizeof(order));
}

uint32_t
spill_uncut(const struct spill *s, unsigned int run)
{
	return __atomic_load_n(&s->run[run].uncut, __ATOMIC_RELAXED);
}

bool
spill_close_run(struct spill *s, unsigned int run)
{
	struct spill_command order = {.order = COMMAND_CLOSE, .run = run};
	struct spill_run *r = &s->run[run];

	if (!r->named)
		return true;
	if (!r->closing)
		r->closing = rte_ring_sp_enqueue_elem(s->orders, &order, sizeof(order)) == 0;
	if (!r->closing || !__atomic_load_n(&r->closed, __ATOMIC_ACQUIRE))
		return false;
	r->named = false;
	r->closing = false;
	r->closed = false;
	return true;
}

void
spill_stats_get(const struct spill *s, struct spill_stats *to)
{
	counters_get(to, &s->stats, sizeof(*to));
}

/* ---- creation and destruction ---- */

int
spill_make_folder(const char *dir, char message[PATH_MAX])
{
	int ret = own_folder_make(dir, OWN_FOLDER_DATA, message);

	if (ret < 0)
		return ret;
	close(ret);
	if (access(dir, W_OK | X_OK) == 0)
		return 0;
	ret = -errno;
	snprintf(message, PATH_MAX, "cannot write to %.3000s: %s", dir, strerror(-ret));
	return ret;
}

int
spill_create(struct spill **spill, const struct spill_config *config, char message[PATH_MAX])
{
	static_assert(sizeof(struct spill_command) % 4 == 0, "an element of a ring");
	static_assert(JOURNAL_PARTS <= ARROW_PARTS_MAX, "a file takes all parts");
	static_assert(sizeof(struct spill_result) % 4 == 0, "an element of a ring");
	const unsigned int flags = RING_F_SP_ENQ | RING_F_SC_DEQ;
	struct spill *s;
	unsigned int i;
	int ret;

	ret = spill_make_folder(config->dir, message);
	if (ret < 0)
		return ret;
	snprintf(message, PATH_MAX, "cannot allocate memory for spilling");
	s = calloc(1, sizeof(*s));
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->quota = (struct stream_quota){
		.limit = config->limit,
		.root = s->config.dir,
		.receiver_id = config->receiver_id,
		.setting = "[egress] spill_mib",
	};
	for (i = 0; i < JOURNAL_RUNS; i++)
		s->run[i].lock = -1;
	/* room for all batches without a result, and for commands on runs and pauses */
	s->orders = rte_ring_create_elem("spill_commands", sizeof(struct spill_command),
		4 * SPILL_BATCHES, SOCKET_ID_ANY, flags);
	s->results = rte_ring_create_elem("spill_results", sizeof(struct spill_result),
		2 * SPILL_BATCHES, SOCKET_ID_ANY, flags);
	if (s->orders == NULL || s->results == NULL) {
		spill_destroy(s);
		return -ENOMEM;
	}
	*spill = s;
	return 0;
}

int
spill_start(struct spill *s, const cpu_set_t *cpus)
{
	pthread_attr_t attr;
	int ret;

	pthread_attr_init(&attr);
	pthread_attr_setaffinity_np(&attr, sizeof(*cpus), cpus);
	ret = pthread_create(&s->thread, &attr, spill_main, s);
	pthread_attr_destroy(&attr);
	if (ret != 0)
		return -ret;
	pthread_setname_np(s->thread, "braggline-spill");
	s->started = true;
	return 0;
}

void
spill_destroy(struct spill *s)
{
	struct spill_command order = {.order = COMMAND_END};
	const struct timespec pause = {.tv_nsec = SLEEP_US * 1000};
	struct spill_result result[SPILL_BATCHES];
	unsigned int i;

	if (s == NULL)
		return;
	if (s->started) {
		while (rte_ring_sp_enqueue_elem(s->orders, &order, sizeof(order)) < 0)
			nanosleep(&pause, NULL);
		pthread_join(s->thread, NULL);
	}
	for (i = 0; i < JOURNAL_RUNS; i++) {
		(void)spill_results(s, result, SPILL_BATCHES);
		close_run(&s->run[i]);
	}
	rte_ring_free(s->orders);
	rte_ring_free(s->results);
	free(s);
}
