/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests a store's files on a disk that loses writes, fails and is full: each batch that was
 * reported durable is in the files exactly once. XFER_SEED and XFER_SEEDS choose the faults.
 */

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../io/failing_readdir.h"
#include "stream_disk.h"
#include "stream/writer.h"

#define GIVEN_MAX 512

static uint64_t seed;
static unsigned int seeds;
static struct xfer_sample s;

/* The batches that a writer was given, and their results. */
struct given {
	unsigned int batch; /* number in the sample */
	int status;	    /* 0: no result yet */
};

struct rig {
	struct stream_writer *w;
	enum arrow_table table;
	struct given given[GIVEN_MAX];
	unsigned int nb;
	unsigned int results;
	unsigned int durable[GIVEN_MAX]; /* batches, in the order of their results */
	unsigned int nb_durable;
	struct stream_quota quota;
	unsigned int said;
};

static uint32_t
number(void)
{
	return sample_random(&s.sample);
}

static void
take_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct rig *r = arg;
	struct given *g = &r->given[tag];

	assert_true(tag < r->nb);
	assert_int_equal(g->status, 0);
	assert_int_equal(s.batch[r->table][g->batch].batch.sequence, sequence);
	g->status = status;
	r->results++;
	if (status == XFER_DURABLE)
		r->durable[r->nb_durable++] = g->batch;
}

static struct stream_writer_config
config_of(struct rig *r)
{
	return (struct stream_writer_config){
		.dir = "/nowhere",
		.run = "r",
		.identity = xfer_sample_identity(r->table),
		.schema = &s.tables.schema[r->table],
		.slices = {.io = &disk_io,
			.slice = 16384,
			.depth = 4,
			.sync_ms = 1000000,
			.sync_bytes = 60000,
			.ahead = 1 << 17},
		.roll_batches = 7,
		.retry_ms = 1,
		.retry_max_ms = 2,
		.resume_bytes = 1 << 16,
		.quota = &r->quota,
		.result = take_result,
		.arg = r,
	};
}

static void
rig_open(struct rig *r, enum arrow_table table)
{
	struct stream_writer_config c;

	memset(r, 0, sizeof(*r));
	r->table = table;
	c = config_of(r);
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
}

static void
give(struct rig *r, unsigned int batch)
{
	const struct xfer_sample_batch *from = &s.batch[r->table][batch];
	const struct stream_batch b = {from->batch, from->metadata, from->body, r->nb};

	assert_true(r->nb < GIVEN_MAX);
	r->given[r->nb++].batch = batch;
	stream_writer_append(r->w, &b);
}

/* Give batches in a mixed order: with gaps, duplicates and steps back. */
static void
give_many(struct rig *r, unsigned int nb)
{
	const unsigned int all = s.nb[r->table];
	unsigned int next = 0, batch;

	while (nb-- > 0) {
		switch (number() % 8) {
		case 0: /* a duplicate */
			batch = number() % (next + 1);
			break;
		case 1: /* a gap: another store has one */
			next += 2;
			batch = next;
			break;
		case 2: /* continue from any batch */
			next = number() % all;
			batch = next;
			break;
		default:
			batch = ++next;
		}
		give(r, batch % all);
		if (number() % 4 == 0)
			stream_writer_poll(r->w);
	}
}

static uint64_t
claim(void *arg)
{
	return ((const struct rig *)arg)->nb_durable;
}

/* Adopt the files on the disk. */
static int
adopt(struct rig *r)
{
	const char *path[DISK_FILES];
	const unsigned int n = list_complete(path);

	return stream_writer_adopt(r->w, path, n);
}

/* Start as a store does, with the files on the disk. `r` is used for nothing else. */
static void
adopt_all(struct rig *r, enum arrow_table table)
{
	rig_open(r, table);
	assert_int_equal(adopt(r), 0);
}

static void
check_results(const struct rig *r)
{
	unsigned int i;

	assert_int_equal(r->results, r->nb);
	for (i = 0; i < r->nb; i++)
		assert_int_not_equal(r->given[i].status, 0);
}

/*
 * Without faults each batch is in the files once, duplicates are reported as such, and numbers
 * ascend in each file.
 */
static void
test_order(void **state)
{
	bool seen[XFER_SAMPLE_BATCHES];
	struct stream_stats stats;
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	unsigned int i, table;
	uint64_t used;

	for (table = 0; table < ARROW_TABLES; table++) {
		disk = disk_new(seed);
		rig_open(r, table);
		give_many(r, 200);
		assert_int_equal(stream_writer_finish(r->w), 0);
		assert_true(stream_writer_settled(r->w));
		check_results(r);
		memset(seen, 0, sizeof(seen));
		for (i = 0; i < r->nb; i++) {
			assert_int_equal(r->given[i].status,
				seen[r->given[i].batch] ? XFER_DUPLICATE : XFER_DURABLE);
			seen[r->given[i].batch] = true;
			assert_int_equal(times_in_files(&s, table, r->given[i].batch), 1);
		}
		stream_writer_stats_get(r->w, &stats);
		assert_int_equal(stats.batches, r->nb_durable);
		assert_int_equal(stats.batches + stats.duplicates, r->nb);
		assert_true(stats.files > 1);
		assert_int_equal(stats.files, stats.complete);
		assert_int_equal(stats.pending, 0);
		/* complete files hold all batches, and have the recorded length */
		for (i = 0, used = 0; i < disk->nb_files; i++)
			used += has_end(disk->file[i].name, ".arrow") ? disk->file[i].size : 0;
		assert_int_equal(r->quota.used, used);
		assert_int_equal(r->quota.open, 0);
		stream_writer_close(r->w);
		/* a second process finds the same batches */
		adopt_all(again, table);
		for (i = 0; i < s.nb[table]; i++)
			assert_int_equal(interval_set_has(stream_writer_have(again->w),
						 s.batch[table][i].batch.sequence),
				seen[i]);
		/* and accepts none twice; its files have other names */
		give(again, r->given[0].batch);
		assert_int_equal(again->given[0].status, XFER_RETRY);
		assert_true(stream_writer_in_doubt(again->w));
		/* once the batch has been read */
		assert_int_equal(
			stream_writer_check(again->w, stream_writer_have(again->w), true, NULL), 0);
		give(again, r->given[0].batch);
		assert_int_equal(again->given[1].status, XFER_DUPLICATE);
		stream_writer_close(again->w);
		disk_free(disk);
	}
	free(r);
	free(again);
}

/* A body in parts of any size and place is the same in the file as a contiguous one. */
static void
test_parts(void **state)
{
	static const unsigned int nb_parts[] = {1, 2, 3, 64, ARROW_PARTS_MAX};
	struct rig *r = malloc(sizeof(*r));
	struct iovec part[ARROW_PARTS_MAX];
	uint8_t *copy[ARROW_PARTS_MAX];
	unsigned int i, k;

	disk = disk_new(seed);
	rig_open(r, ARROW_IMAGES);
	for (i = 0; i < sizeof(nb_parts) / sizeof(nb_parts[0]); i++) {
		const struct xfer_sample_batch *from = &s.batch[r->table][i];
		const uint64_t bytes = from->batch.body_bytes;
		const struct stream_batch b = {.xfer = from->batch,
			.metadata = from->metadata,
			.tag = r->nb,
			.part = part,
			.nb_parts = nb_parts[i]};

		for (k = 0; k < nb_parts[i]; k++) {
			/* odd lengths, at odd addresses */
			const uint64_t first = bytes * k / nb_parts[i];
			const uint64_t size = bytes * (k + 1) / nb_parts[i] - first;

			copy[k] = malloc(size + 1);
			assert_non_null(copy[k]);
			memcpy(copy[k] + 1, (const uint8_t *)from->body + first, size);
			part[k] = (struct iovec){copy[k] + 1, size};
		}
		r->given[r->nb++].batch = i;
		stream_writer_append(r->w, &b);
		memset(part, 0, sizeof(part));
		assert_int_equal(stream_writer_finish(r->w), 0);
		for (k = 0; k < nb_parts[i]; k++)
			free(copy[k]);
		assert_int_equal(r->given[i].status, XFER_DURABLE);
		assert_int_equal(times_in_files(&s, r->table, i), 1);
	}
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

/* After a power failure at any moment, each batch that was reported durable is there once. */
static void
test_crash(void **state)
{
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	struct disk *log;
	unsigned int round, i, tries, crashes = 0;
	uint64_t at, claimed, step;

	for (round = 0; round < seeds; round++) {
		disk = disk_new(seed + round);
		rig_open(r, round % ARROW_TABLES);
		disk->claim = claim;
		disk->claim_arg = r;
		give_many(r, 60);
		(void)stream_writer_finish(r->w);
		check_results(r);
		log = disk;
		step = log->now / 60 + 1;
		for (at = 1; at <= log->now; at += 1 + number() % step) {
			disk = disk_crash(log, at, number());
			claimed = disk_claim(log, at);
			/* the power may fail again during the recovery */
			for (tries = number() % 3; tries > 0; tries--) {
				struct disk *first = disk, *second;

				recover_all();
				second = disk_crash(first, number() % (first->now + 1), number());
				disk_free(first);
				disk = second;
			}
			recover_all();
			adopt_all(again, r->table);
			for (i = 0; i < claimed; i++) {
				assert_int_equal(times_in_files(&s, r->table, r->durable[i]), 1);
				assert_true(interval_set_has(stream_writer_have(again->w),
					s.batch[r->table][r->durable[i]].batch.sequence));
			}
			for (i = 0; i < s.nb[r->table]; i++)
				assert_true(times_in_files(&s, r->table, i) <= 1);
			stream_writer_close(again->w);
			disk_free(disk);
			crashes++;
		}
		disk = log;
		stream_writer_close(r->w);
		disk_free(log);
	}
	printf("%u crashes\n", crashes);
	free(r);
	free(again);
}

/*
 * Calls fail, once or from some call on, or the disk is full: each batch has one result, and the
 * result is true.
 */
static void
test_errors(void **state)
{
	static const int errors[] = {-EIO, -ENOSPC, -EDQUOT};
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	unsigned int round, i, k, n, returned = 0, resumed = 0;
	struct stream_stats stats;
	bool durable;

	for (round = 0; round < 20 * seeds; round++) {
		disk = disk_new(seed + round);
		rig_open(r, round % ARROW_TABLES);
		if (round % 4 == 3) {
			disk->capacity = 100000 + number() % 2000000;
		} else {
			disk->fail_error = errors[round % 3];
			disk->fail_from = number() % 200;
			disk->fail_until = disk->fail_from + 1 + number() % 30;
		}
		give_many(r, 40);
		/* the disk works again */
		disk->capacity = 0;
		for (i = 0; i < 20 && stream_writer_state(r->w) < 0; i++) {
			stream_writer_poll(r->w);
			usleep(1000);
		}
		assert_true(round % 4 != 3 || stream_writer_state(r->w) == 0);
		give_many(r, 20);
		disk->fail_until = 0;
		(void)stream_writer_finish(r->w);
		check_results(r);
		stream_writer_stats_get(r->w, &stats);
		returned += stats.returned;
		resumed += stats.resumes;
		stream_writer_close(r->w);
		/*
		 * files that stayed .part may hold more: batches that were given back are cut off
		 * when they are found a second time
		 */
		recover_all();
		adopt_all(again, r->table);
		for (i = 0; i < s.nb[r->table]; i++) {
			for (k = 0, durable = false; k < r->nb; k++)
				durable |= r->given[k].batch == i &&
					r->given[k].status == XFER_DURABLE;
			n = times_in_files(&s, r->table, i);
			assert_true(n <= 1);
			assert_true(n == 1 || !durable);
		}
		stream_writer_close(again->w);
		disk_free(disk);
	}
	assert_true(returned > seeds);
	assert_true(resumed > 0);
	printf("%u batches given back, %u times writing again\n", returned, resumed);
	free(r);
	free(again);
}

/*
 * stream_writer_cut() removes exactly the batches that other stores have: the batches after them
 * may have been reported durable. The power fails at any moment of the cut, and the cut is
 * repeated.
 */
static void
test_cut(void **state)
{
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	struct interval_set moved = {0};
	unsigned int round, i, n, cut = 0;
	uint64_t before, at, sequence, have, first;
	struct disk *log;

	for (round = 0; round < seeds; round++) {
		disk = disk_new(seed + round);
		rig_open(r, round % ARROW_TABLES);
		give_many(r, 60);
		(void)stream_writer_finish(r->w);
		first = s.batch[r->table][r->durable[r->nb_durable * 3 / 4]].batch.sequence;
		assert_int_equal(interval_set_add(&moved, first, first + 3), 0);
		have = interval_set_count(stream_writer_have(r->w));
		for (sequence = first, n = 0; sequence <= first + 3; sequence++)
			n += interval_set_has(stream_writer_have(r->w), sequence);
		before = disk->now;
		assert_int_equal(stream_writer_cut(r->w, &moved), 0);
		assert_true(n > 0);
		assert_int_equal(have - interval_set_count(stream_writer_have(r->w)), n);
		cut += n;
		log = disk;
		for (at = before; at <= log->now; at++) {
			disk = disk_crash(log, at, number());
			recover_all();
			adopt_all(again, r->table);
			for (i = 0; i < s.nb[r->table]; i++) {
				sequence = s.batch[r->table][i].batch.sequence;
				assert_true(!interval_set_has(stream_writer_have(r->w), sequence) ||
					interval_set_has(stream_writer_have(again->w), sequence));
			}
			assert_int_equal(stream_writer_cut(again->w, &moved), 0);
			for (i = 0; i < s.nb[r->table]; i++) {
				sequence = s.batch[r->table][i].batch.sequence;
				n = interval_set_has(stream_writer_have(r->w), sequence);
				assert_int_equal(times_in_files(&s, r->table, i), n);
				assert_int_equal(
					interval_set_has(stream_writer_have(again->w), sequence),
					n);
				assert_true(n == 0 || !interval_set_has(&moved, sequence));
			}
			stream_writer_close(again->w);
			disk_free(disk);
		}
		disk = log;
		/* the writer continues, in new files */
		give_many(r, 20);
		(void)stream_writer_finish(r->w);
		check_results(r);
		for (i = 0; i < s.nb[r->table]; i++)
			assert_true(times_in_files(&s, r->table, i) <= 1);
		stream_writer_close(r->w);
		disk_free(disk);
		interval_set_free(&moved);
	}
	printf("%u batches cut off\n", cut);
	free(r);
	free(again);
}

/*
 * A cut that fails at one call of the disk succeeds when it is repeated. @return whether it failed
 */
static bool
cut_again(unsigned int stay, unsigned int last, unsigned int call)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct interval_set moved = {0};
	bool failed;
	unsigned int i;

	disk = disk_new(seed);
	rig_open(r, ARROW_FRAMES);
	for (i = 0; i < 5; i++)
		give(r, i);
	(void)stream_writer_finish(r->w);
	assert_int_equal(interval_set_add(&moved, s.batch[r->table][stay].batch.sequence,
				 s.batch[r->table][last].batch.sequence),
		0);
	disk->fail_error = -EIO;
	disk->fail_from = disk->calls + call;
	disk->fail_until = disk->fail_from + 1;
	failed = stream_writer_cut(r->w, &moved) < 0;
	assert_int_equal(stream_writer_cut(r->w, &moved), 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(times_in_files(&s, r->table, i), i < stay || i > last);
		assert_int_equal(interval_set_has(stream_writer_have(r->w),
					 s.batch[r->table][i].batch.sequence),
			i < stay || i > last);
	}
	stream_writer_close(r->w);
	interval_set_free(&moved);
	disk_free(disk);
	free(r);
	return failed;
}

static void
test_cut_again(void **state)
{
	unsigned int stay, last, call;

	for (stay = 0; stay < 4; stay += 3) {
		for (last = 3; last < 5; last++) {
			for (call = 0; cut_again(stay, last, call); call++)
				;
			assert_true(call > 3);
		}
	}
}

/*
 * A batch that is to stay is damaged on the disk: the others are cut off, and the damaged one is
 * accepted again.
 */
static void
test_cut_of_damaged(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct interval_set moved = {0};
	struct disk_file *f;
	struct arrow_reader reader;
	const char *problem;
	unsigned int i;

	disk = disk_new(seed);
	rig_open(r, ARROW_FRAMES);
	for (i = 0; i < 5; i++)
		give(r, i);
	(void)stream_writer_finish(r->w);
	for (f = disk->file; !is_seen(f);)
		f++;
	assert_int_equal(arrow_reader_open_memory(&reader, f->data, f->size, &problem), 0);
	f->data[reader.batches[1].body - f->data] ^= 1;
	arrow_reader_close(&reader);
	assert_int_equal(interval_set_add(&moved, s.batch[r->table][3].batch.sequence,
				 s.batch[r->table][4].batch.sequence),
		0);
	assert_int_equal(stream_writer_cut(r->w, &moved), 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(times_in_files(&s, r->table, i), i == 0 || i == 2);
		assert_int_equal(interval_set_has(stream_writer_have(r->w),
					 s.batch[r->table][i].batch.sequence),
			i == 0 || i == 2);
	}
	give(r, 1);
	(void)stream_writer_finish(r->w);
	assert_int_equal(times_in_files(&s, r->table, 1), 1);
	stream_writer_close(r->w);
	interval_set_free(&moved);
	disk_free(disk);
	free(r);
}

static int
no_sync_dir(const char *path)
{
	return -EIO;
}

static void
poll_until_settled(struct rig *r)
{
	const time_t end = time(NULL) + 60;

	while (time(NULL) < end && !stream_writer_settled(r->w))
		stream_writer_poll(r->w);
	assert_true(stream_writer_settled(r->w));
}

/* No batch is durable in a file whose name is not durable. */
static void
test_no_name(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct stream_writer_config c;
	struct rig *r = calloc(1, sizeof(*r));
	unsigned int i;

	io.sync_dir = no_sync_dir;
	disk = disk_new(seed);
	c = config_of(r);
	c.slices.io = &io;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	for (i = 0; i < 5; i++)
		give(r, i);
	(void)stream_writer_finish(r->w);
	check_results(r);
	assert_int_equal(r->nb_durable, 0);
	assert_int_equal(interval_set_count(stream_writer_have(r->w)), 0);
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

static void
test_quota(void **state)
{
	struct rig *r = malloc(sizeof(*r));
	unsigned int i, durable = 0;

	disk = disk_new(seed);
	rig_open(r, ARROW_FRAMES);
	r->quota.limit = 200000;
	for (i = 0; i < s.nb[ARROW_FRAMES]; i++)
		give(r, i);
	assert_int_equal(stream_writer_state(r->w), -EDQUOT);
	poll_until_settled(r);
	for (i = 0; i < r->nb; i++)
		durable += r->given[i].status == XFER_DURABLE;
	assert_true(durable > 3 && durable < r->nb);
	assert_true(r->quota.used < 200000 + 7 * 2 * XFER_BLOCK);
	/*
	 * a little more room is not enough: a receiver that was notified of room would send a batch
	 * that is too large
	 */
	r->quota.limit += XFER_BLOCK;
	for (i = 0; i < 20; i++) {
		usleep(1000);
		stream_writer_poll(r->w);
	}
	assert_int_equal(stream_writer_state(r->w), -EDQUOT);
	/* a full writer gets no batches: it must detect by itself that there is room */
	r->quota.limit = 0;
	for (i = 0; i < 1000 && stream_writer_state(r->w) != 0; i++) {
		usleep(1000);
		stream_writer_poll(r->w);
	}
	assert_int_equal(stream_writer_state(r->w), 0);
	give(r, r->nb - 1);
	(void)stream_writer_finish(r->w);
	check_results(r);
	assert_int_equal(r->given[r->nb - 1].status, XFER_DURABLE);
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

static void
make_file(const char *dir, const char *name, off_t size)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(ftruncate(fileno(f), size), 0);
	fclose(f);
}

static _Atomic unsigned int nb_threads;

static void
count_thread(void)
{
	atomic_fetch_add(&nb_threads, 1);
}

/*
 * The quota counts what is on the disk, as files come and go: only complete files of this receiver.
 */
static void
test_quota_of_disk(void **state)
{
	static const char *const runs[] = {"run_1-0000000000000007-00000000000000aa",
		"run-1-0000000000000007-00000000000000ab",
		"run_1-0000000000000008-0000000000000007", "0000000000000007"};
	char root[] = "/tmp/stream_quota_XXXXXX", dir[128], file[300];
	struct stream_quota q = {.receiver_id = 7, .root = root, .open = 50};
	uint64_t nb_runs;
	unsigned int i;

	assert_non_null(mkdtemp(root));
	for (i = 0; i < 4; i++) {
		snprintf(dir, sizeof(dir), "%s/%s", root, runs[i]);
		assert_int_equal(mkdir(dir, 0755), 0);
		make_file(dir, "a.arrow", 1000 << 4 * i);
		make_file(dir, "b.arrow.part", 100000);
	}
	stream_quota_renew(&q, NULL);
	assert_int_equal(q.used, 1000 + 16000 + 50);
	/* quarantine files and the mark of an ended run count, too */
	snprintf(dir, sizeof(dir), "%s/%s", root, runs[0]);
	make_file(dir, "c.arrow.quarantine", 300);
	make_file(dir, "c.arrow.quarantine.2", 20);
	make_file(dir, ".ended-00000000000000aa", 0);
	stream_quota_renew(&q, NULL);
	assert_int_equal(q.used, 1000 + 16000 + 50 + 320 + XFER_BLOCK);
	/* a directory counts as one run, or as one for each mark */
	assert_int_equal(stream_quota_measure(root, 7, NULL, &nb_runs), 0);
	assert_int_equal(nb_runs, 2);
	make_file(dir, ".ended-00000000000000ab", 0);
	assert_int_equal(stream_quota_measure(root, 7, NULL, &nb_runs), 0);
	assert_int_equal(nb_runs, 3);
	/* by a thread; a file that is completed meanwhile is added, and may then count twice */
	q.in_thread = true;
	q.used = 7;
	stream_quota_renew(&q, count_thread);
	assert_int_equal(q.used, 7);
	q.closed += 5;
	for (i = 0; q.job != NULL && i < 10000; i++, usleep(1000))
		stream_quota_renew(&q, count_thread);
	assert_int_equal(q.used, 1000 + 16000 + 50 + 320 + 2 * XFER_BLOCK + 5);
	assert_int_equal(atomic_load(&nb_threads), 1);
	stream_quota_renew(&q, count_thread);
	stream_quota_abandon(&q);
	assert_null(q.job);
	q.in_thread = false;
	snprintf(file, sizeof(file), "rm %s/c.* %s/.ended*", dir, dir);
	assert_int_equal(system(file), 0);
	snprintf(file, sizeof(file), "%s/%s/a.arrow", root, runs[1]);
	assert_int_equal(unlink(file), 0);
	stream_quota_renew(&q, NULL);
	assert_int_equal(q.used, 1050);
	/* the files of a directory that cannot be read are not taken as absent */
	readdir_fails = true;
	assert_int_equal(stream_quota_measure(root, 7, NULL, &nb_runs), -EIO);
	stream_quota_renew(&q, NULL);
	readdir_fails = false;
	assert_int_equal(q.used, 1050);
	for (i = 0; i < 4; i++) {
		snprintf(file, sizeof(file), "%s/%s/a.arrow", root, runs[i]);
		(void)unlink(file);
		snprintf(file, sizeof(file), "%s/%s/b.arrow.part", root, runs[i]);
		(void)unlink(file);
		snprintf(dir, sizeof(dir), "%s/%s", root, runs[i]);
		assert_int_equal(rmdir(dir), 0);
	}
	assert_int_equal(rmdir(root), 0);
}

static void
count_text(void *arg, bool error, const char *text)
{
	struct rig *r = arg;

	r->said += error && strstr(text, ": disk ") != NULL;
}

static struct {
	pthread_t self;
	_Atomic bool holds;
} late;

/* Block the threads that close files while `late.holds` is set. */
static int
late_sync_dir(const char *path)
{
	while (atomic_load(&late.holds) && !pthread_equal(pthread_self(), late.self))
		usleep(100);
	return disk_io.sync_dir(path);
}

/*
 * A duplicate arrives of a batch whose file has failed and is still being closed, while a new file
 * is open and empty. At the end of the run the empty file is removed, and the duplicate still gets
 * its result.
 */
static void
test_duplicate_after_outage(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	unsigned int i;

	disk = disk_new(seed);
	io.sync_dir = late_sync_dir;
	late.self = pthread_self();
	atomic_store(&late.holds, true);
	c.slices.io = &io;
	c.slices.sync_ms = 1;
	c.roll_batches = 0;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	give(r, 0);
	disk->fail_error = -EIO;
	disk->fail_until = UINT64_MAX;
	for (i = 1; stream_writer_state(r->w) == 0; i++) {
		if (i < 20)
			give(r, i);
		usleep(100);
		stream_writer_poll(r->w);
	}
	disk->fail_until = 0;
	while (stream_writer_state(r->w) != 0) {
		usleep(1000);
		stream_writer_poll(r->w);
	}
	assert_int_equal(r->given[0].status, 0);
	give(r, 0);
	stream_writer_begin_finish(r->w);
	atomic_store(&late.holds, false);
	(void)stream_writer_finish(r->w);
	check_results(r);
	assert_true(stream_writer_settled(r->w));
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

/*
 * A file fails and can be neither completed nor cut: it still holds complete batches that were
 * given back and go to another store. The cut must report an error until they are removed.
 */
static void
test_failed_cut(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct interval_set moved = {0};
	unsigned int i;

	disk = disk_new(seed);
	rig_open(r, ARROW_FRAMES);
	for (i = 0; i < 5; i++)
		give(r, i);
	disk->fail_error = -EIO;
	disk->fail_from = disk->calls;
	disk->fail_until = UINT64_MAX;
	for (; stream_writer_state(r->w) == 0; i++)
		give(r, i);
	poll_until_settled(r);
	check_results(r);
	for (i = 0; i < r->nb; i++) {
		const uint64_t sequence = s.batch[r->table][i].batch.sequence;

		assert_int_equal(r->given[i].status, XFER_RETRY);
		assert_int_equal(interval_set_add(&moved, sequence, sequence), 0);
	}
	assert_int_equal(stream_writer_cut(r->w, &moved), -EIO);
	disk->fail_until = 0;
	assert_int_equal(stream_writer_cut(r->w, &moved), 0);
	recover_all();
	for (i = 0; i < r->nb; i++)
		assert_int_equal(times_in_files(&s, r->table, i), 0);
	stream_writer_close(r->w);
	interval_set_free(&moved);
	disk_free(disk);
	free(r);
}

static unsigned int still_part; /* number of files that could not be completed */

/*
 * A file with durable batches fails at one call of its completion, and one of the batches is
 * reassigned: the others are still there. @return whether a call failed
 */
static bool
cut_of_failed(unsigned int call)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	struct interval_set moved = {0};
	const uint64_t one = s.batch[ARROW_FRAMES][1].batch.sequence;
	unsigned int i, part = 0;
	bool failed;

	disk = disk_new(seed);
	c.slices.sync_bytes = 1;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	for (i = 0; i < 5; i++)
		give(r, i);
	for (i = 0; i < 5000 && r->nb_durable < 5; i++) {
		usleep(1000);
		stream_writer_poll(r->w);
	}
	assert_int_equal(r->nb_durable, 5);
	disk->fail_error = -EIO;
	disk->fail_from = disk->calls + call;
	disk->fail_until = disk->fail_from + 1;
	(void)stream_writer_finish(r->w);
	failed = disk->calls > disk->fail_from;
	disk->fail_until = 0;
	for (i = 0; i < disk->nb_files; i++)
		part += has_end(disk->file[i].name, ".part");
	still_part += part;
	assert_int_equal(interval_set_add(&moved, one, one), 0);
	assert_int_equal(stream_writer_cut(r->w, &moved), 0);
	for (i = 0; i < 5; i++) {
		assert_int_equal(times_in_files(&s, r->table, i), i != 1);
		assert_int_equal(interval_set_has(stream_writer_have(r->w),
					 s.batch[r->table][i].batch.sequence),
			i != 1);
	}
	for (i = 0; i < disk->nb_files; i++)
		assert_false(has_end(disk->file[i].name, ".part"));
	stream_writer_close(r->w);
	interval_set_free(&moved);
	disk_free(disk);
	free(r);
	return failed;
}

static void
test_cut_of_failed(void **state)
{
	unsigned int call;

	still_part = 0;
	for (call = 0; cut_of_failed(call); call++)
		;
	assert_true(call > 2);
	assert_true(still_part > 0);
}

static unsigned int
ended_syncs(void)
{
	unsigned int i, n = 0;

	for (i = 0; i < disk->nb_events; i++)
		n += disk->event[i].kind == DISK_SYNC && disk->event[i].ended < disk->now;
	return n;
}

/* A disk that completes nothing is reported once, and once again when it works. */
static void
test_stall(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	struct stream_stats stats;
	unsigned int i;

	disk = disk_new(seed);
	c.slices.sync_ms = 1;
	c.slices.stall_ms = 200;
	c.roll_batches = 0;
	c.log = count_text;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	for (i = 0; i < 2; i++) {
		give(r, 2 * i);
		poll_until_settled(r);
		/* a pause of the caller is no stall of the disk */
		usleep(250000);
		disk->stuck = true;
		give(r, 2 * i + 1);
		stream_writer_poll(r->w);
		stream_writer_stats_get(r->w, &stats);
		assert_int_equal(stats.stalled, 0);
		usleep(250000);
		stream_writer_poll(r->w);
		stream_writer_poll(r->w);
		stream_writer_stats_get(r->w, &stats);
		assert_int_equal(stats.stalled, 1);
		assert_int_equal(stats.stalls, i + 1);
		assert_int_equal(r->said, 2 * i + 1);
		disk->stuck = false;
		poll_until_settled(r);
		stream_writer_poll(r->w);
		stream_writer_stats_get(r->w, &stats);
		assert_int_equal(stats.stalled, 0);
		assert_int_equal(r->said, 2 * i + 2);
		/*
		 * counted in the open file: each batch has waited for its own sync; on a slow
		 * machine another sync may begin within a batch
		 */
		assert_int_equal(stats.complete, 0);
		assert_true(stats.syncs >= 2 * (i + 1));
		assert_int_equal(stats.syncs, ended_syncs());
	}
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

static int
late_open(void **handle, const struct arrow_io_open *how)
{
	while (atomic_load(&late.holds))
		usleep(100);
	return disk_io.open(handle, how);
}

/* Let 250 ms pass, which is a stall. */
static void
pass_stall_time(struct rig *r)
{
	usleep(250000);
	stream_writer_poll(r->w);
}

static void
check_stalls(const struct rig *r, unsigned int stalled, unsigned int stalls, unsigned int said)
{
	struct stream_stats stats;

	stream_writer_stats_get(r->w, &stats);
	assert_int_equal(stats.stalled, stalled);
	assert_int_equal(stats.stalls, stalls);
	assert_int_equal(r->said, said);
}

/* The quota is used up again while a thread creates a file: no peer is told to send batches. */
static void
test_quota_during_opening(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	struct stream_stats stats;

	disk = disk_new(seed);
	io.open = late_open;
	atomic_store(&late.holds, true);
	c.slices.io = &io;
	c.on_lcore = true;
	r->quota.limit = 1;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	give(r, 0);
	assert_int_equal(stream_writer_state(r->w), -EDQUOT);
	r->quota.limit = 0;
	while (stream_writer_finished(r->w)) {
		usleep(1000);
		stream_writer_poll(r->w);
	}
	r->quota.limit = 1;
	atomic_store(&late.holds, false);
	do {
		stream_writer_poll(r->w);
		stream_writer_stats_get(r->w, &stats);
	} while (stats.files == 0);
	assert_int_equal(stats.resumes, 0);
	assert_int_equal(stats.error, -EDQUOT);
	r->quota.limit = 0;
	while (stream_writer_state(r->w) != 0)
		stream_writer_poll(r->w);
	give(r, 0);
	(void)stream_writer_finish(r->w);
	assert_int_equal(r->given[1].status, XFER_DURABLE);
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

/* A disk that creates no file for an lcore is reported, too. */
static void
test_stall_of_opening(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);

	disk = disk_new(seed);
	io.open = late_open;
	atomic_store(&late.holds, true);
	c.slices.io = &io;
	c.slices.sync_ms = 1;
	c.slices.stall_ms = 200;
	c.on_lcore = true;
	c.log = count_text;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	give(r, 0);
	pass_stall_time(r);
	pass_stall_time(r);
	check_stalls(r, 1, 1, 1);
	atomic_store(&late.holds, false);
	poll_until_settled(r);
	stream_writer_poll(r->w);
	check_stalls(r, 0, 1, 2);
	assert_int_equal(r->given[0].status, XFER_DURABLE);
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

static sem_t steps; /* operations that the closing thread may complete */

static int
stepped_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	if (wait && !pthread_equal(pthread_self(), late.self))
		while (sem_wait(&steps) < 0)
			;
	return disk_io.reap(handle, wait, done);
}

/* Let the closing thread complete an operation. */
static void
step(void)
{
	const uint64_t ended = async_writer_ended();

	sem_post(&steps);
	while (async_writer_ended() == ended)
		usleep(100);
}

/*
 * A file is closed on a disk that completes nothing: one stall, even if it has begun before. A slow
 * disk that completes an operation now and then has not stalled.
 */
static void
test_stall_of_closing(void **state)
{
	struct arrow_io_ops io = disk_io;
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	unsigned int i;

	disk = disk_new(seed);
	late.self = pthread_self();
	sem_init(&steps, 0, 0);
	io.reap = stepped_reap;
	c.slices.io = &io;
	c.slices.slice = 4096;
	c.slices.sync_ms = 1;
	c.slices.stall_ms = 200;
	c.roll_batches = 0;
	c.log = count_text;
	r->table = ARROW_IMAGES;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	disk->stuck = true;
	for (i = 0; i < 8; i++)
		give(r, i);
	pass_stall_time(r);
	check_stalls(r, 1, 1, 1);
	stream_writer_begin_finish(r->w);
	stream_writer_poll(r->w);
	check_stalls(r, 1, 1, 1);
	for (i = 0; i < 4; i++) {
		step();
		stream_writer_poll(r->w);
		check_stalls(r, 0, 1, 2);
		usleep(60000);
	}
	pass_stall_time(r);
	check_stalls(r, 1, 2, 3);
	disk->stuck = false;
	while (!stream_writer_finished(r->w)) {
		sem_post(&steps);
		stream_writer_poll(r->w);
	}
	stream_writer_poll(r->w);
	check_stalls(r, 0, 2, 4);
	check_results(r);
	stream_writer_close(r->w);
	sem_destroy(&steps);
	disk_free(disk);
	free(r);
}

static unsigned int nb_waits; /* times that this thread has waited for the disk */

static void
count_wait(bool wait)
{
	nb_waits += wait && pthread_equal(pthread_self(), late.self);
}

static int
counted_reap(void *handle, bool wait, struct arrow_io_done *done)
{
	count_wait(wait);
	return disk_io.reap(handle, wait, done);
}

static int
counted_open(void **handle, const struct arrow_io_open *how)
{
	count_wait(true);
	return disk_io.open(handle, how);
}

static int
counted_sync_dir(const char *path)
{
	count_wait(true);
	return disk_io.sync_dir(path);
}

static int
counted_remove(const char *path)
{
	count_wait(true);
	return disk_io.remove(path);
}

/*
 * A stalled disk has more batches in flight than its queue has slices. @param polls  the disk
 * recovers; false: the files are completed meanwhile
 */
static void
stall_lcore(bool polls)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct arrow_io_ops io = disk_io;
	struct stream_writer_config c;
	struct stream_stats stats;
	uint64_t bytes = 0;
	unsigned int i;

	disk = disk_new(seed);
	r->table = ARROW_IMAGES;
	c = config_of(r);
	late.self = pthread_self();
	io.reap = counted_reap;
	io.open = counted_open;
	io.sync_dir = counted_sync_dir;
	io.remove = counted_remove;
	c.slices.io = &io;
	c.slices.slice = 4096;
	c.slices.sync_ms = 1;
	c.roll_batches = 0;
	c.on_lcore = true;
	nb_waits = 0;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	give(r, 0);
	poll_until_settled(r);
	disk->stuck = true;
	for (i = 1; i < s.nb[r->table]; i++) {
		bytes += XFER_BLOCK + s.batch[r->table][i].batch.body_bytes;
		give(r, i);
		stream_writer_poll(r->w);
	}
	assert_true(bytes > ARROW_SLICE_QUEUE * c.slices.slice);
	/* a duplicate of a batch that waits has its turn, too */
	give(r, i - 1);
	assert_int_equal(nb_waits, 0);
	assert_int_equal(r->results, 1);
	stream_writer_stats_get(r->w, &stats);
	assert_int_equal(stats.pending, r->nb - 1);
	assert_false(stream_writer_settled(r->w));
	if (polls) {
		disk->stuck = false;
		poll_until_settled(r);
		assert_int_equal(nb_waits, 0);
	}
	assert_int_equal(stream_writer_finish(r->w), 0);
	check_results(r);
	for (i = 0; i + 1 < r->nb; i++) {
		assert_int_equal(r->given[i].status, XFER_DURABLE);
		assert_int_equal(times_in_files(&s, r->table, i), 1);
	}
	assert_int_equal(r->given[i].status, XFER_DUPLICATE);
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

/* An lcore creates no file after an outage, and removes none that stays empty. */
static void
fail_lcore(void)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c = config_of(r);
	struct arrow_io_ops io = disk_io;
	struct stream_stats stats;

	disk = disk_new(seed);
	late.self = pthread_self();
	io.open = counted_open;
	io.sync_dir = counted_sync_dir;
	io.remove = counted_remove;
	c.slices.io = &io;
	c.slices.sync_ms = 1;
	c.on_lcore = true;
	nb_waits = 0;
	disk->fail_error = -ENOSPC;
	disk->fail_until = UINT64_MAX;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	give(r, 0);
	poll_until_settled(r);
	assert_int_equal(r->given[0].status, XFER_RETRY);
	assert_int_equal(stream_writer_state(r->w), -ENOSPC);
	disk->fail_until = 0;
	while (stream_writer_state(r->w) != 0)
		stream_writer_poll(r->w);
	while (!stream_writer_finished(r->w)) {
		stream_writer_begin_finish(r->w);
		stream_writer_poll(r->w);
	}
	stream_writer_stats_get(r->w, &stats);
	assert_int_equal(stats.files, 1);
	assert_int_equal(stats.complete, 0);
	assert_int_equal(nb_waits, 0);
	stream_writer_close(r->w);
	assert_string_equal(disk->file[0].name, "");
	disk_free(disk);
	free(r);
}

static void
test_lcore_does_not_wait(void **state)
{
	fail_lcore();
	stall_lcore(true);
	stall_lcore(false);
}

static void
test_names(void **state)
{
	struct rig r = {0};
	struct stream_writer_config c = config_of(&r);
	struct stream_writer *w;

	c.run = "../r";
	assert_int_equal(stream_writer_open(&w, &c), -EINVAL);
	c.run = "0123456789012345678901234567890123456789012345678901234567890123";
	assert_int_equal(stream_writer_open(&w, &c), -EINVAL);
}

/* ---- damage on the disk ---------------------------------------------------------------------- */

/* Make everything written so far durable, and begin a new log. */
static void
begin_log(void)
{
	struct disk *before = disk;

	disk = disk_crash(before, before->now, number());
	disk_free(before);
}

/* Flip a bit of the body of a batch in the nth complete file that has it. */
static void
rot(enum arrow_table table, unsigned int batch, unsigned int nth)
{
	const uint64_t sequence = s.batch[table][batch].batch.sequence;
	const char *path[DISK_FILES], *problem;
	const unsigned int n = list_complete(path);
	struct arrow_reader r;
	struct disk_file *f = NULL;
	uint64_t at = 0;
	unsigned int i;
	size_t k;

	for (i = 0; i < n && at == 0; i++) {
		f = disk_find(disk, path[i]);
		assert_int_equal(arrow_reader_open_memory(&r, f->data, f->size, &problem), 0);
		for (k = 0; k < r.nb_batches && at == 0; k++) {
			if (strtoull(r.batches[k].sequence, NULL, 16) == sequence && nth-- == 0)
				at = r.batches[k].body - r.data + 3;
		}
		arrow_reader_close(&r);
	}
	assert_true(at != 0);
	/* now, and after a power failure */
	f->data[at] ^= 8;
	f->base[at] ^= 8;
}

/*
 * As a receiver that holds all batches: check them and give the missing ones; then each is there
 * once. @return how many were given
 */
static unsigned int
check_and_give(struct rig *r, const bool *wanted)
{
	struct interval_set held = {0};
	unsigned int i, given = 0;

	for (i = 0; i < s.nb[r->table]; i++)
		if (wanted[i])
			assert_int_equal(
				interval_set_add(&held, s.batch[r->table][i].batch.sequence,
					s.batch[r->table][i].batch.sequence),
				0);
	assert_int_equal(stream_writer_check(r->w, &held, true, NULL), 0);
	interval_set_free(&held);
	for (i = 0; i < s.nb[r->table]; i++) {
		const bool here = interval_set_has(
			stream_writer_have(r->w), s.batch[r->table][i].batch.sequence);

		assert_int_equal(times_in_files(&s, r->table, i), here);
		if (!wanted[i] || here)
			continue;
		give(r, i);
		given++;
	}
	assert_int_equal(stream_writer_finish(r->w), 0);
	check_results(r);
	for (i = 0; i < s.nb[r->table]; i++)
		assert_int_equal(times_in_files(&s, r->table, i), wanted[i]);
	return given;
}

/*
 * Durable batches that are damaged on the disk are reported missing. Given again they are there
 * once, whenever the power fails meanwhile, and no other batch is lost.
 */
static void
test_bit_rot(void **state)
{
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	bool durable[XFER_SAMPLE_BATCHES], bad[XFER_SAMPLE_BATCHES];
	unsigned int round, i, nb_bad, crashes = 0;
	struct stream_stats stats;
	struct disk *log;
	uint64_t at;

	for (round = 0; round < seeds; round++) {
		disk = disk_new(seed + round);
		rig_open(r, round % ARROW_TABLES);
		give_many(r, 60);
		assert_int_equal(stream_writer_finish(r->w), 0);
		memset(durable, 0, sizeof(durable));
		for (i = 0; i < r->nb_durable; i++)
			durable[r->durable[i]] = true;
		stream_writer_close(r->w);
		begin_log();
		for (i = nb_bad = 0; i < s.nb[r->table]; i++) {
			bad[i] = durable[i] && (number() % 4 == 0 || nb_bad == 0);
			if (bad[i])
				rot(r->table, i, 0);
			nb_bad += bad[i];
		}
		adopt_all(again, r->table);
		assert_int_equal(check_and_give(again, durable), nb_bad);
		stream_writer_stats_get(again->w, &stats);
		assert_int_equal(stats.damaged, nb_bad);
		assert_int_equal(stats.repaired, nb_bad);
		stream_writer_close(again->w);
		log = disk;
		for (at = 0; at <= log->now; at += 1 + number() % 8, crashes++) {
			disk = disk_crash(log, at, number());
			recover_all();
			adopt_all(again, r->table);
			for (i = 0; i < s.nb[r->table]; i++)
				assert_true(!durable[i] || bad[i] ||
					times_in_files(&s, r->table, i) == 1);
			assert_true(check_and_give(again, durable) <= nb_bad);
			stream_writer_close(again->w);
			disk_free(disk);
		}
		disk = log;
		disk_free(disk);
	}
	printf("%u crashes with damaged files\n", crashes);
	free(r);
	free(again);
}

/*
 * Batches that were given back when a file failed are also in a later file, and some copies of
 * either are damaged. The later file may have only some of them. The sound copy of each batch
 * stays, whenever the power fails.
 */
static void
test_bit_rot_of_reassigned(void **state)
{
	struct rig *r = malloc(sizeof(*r)), *again = malloc(sizeof(*again));
	bool sound[XFER_SAMPLE_BATCHES], wanted[XFER_SAMPLE_BATCHES];
	unsigned int round, i, file, copies, later, crashes = 0;
	struct disk *log;
	uint64_t at;

	for (round = 0; round < 2 * seeds; round++) {
		disk = disk_new(seed + round);
		later = 1 + number() % 6;
		for (file = 0; file < 2; file++) {
			rig_open(r, round % ARROW_TABLES);
			for (i = 0; i < (file == 0 ? 6 : later); i++)
				give(r, 2 * file + i);
			assert_int_equal(stream_writer_finish(r->w), 0);
			stream_writer_close(r->w);
		}
		begin_log();
		for (i = 0; i < s.nb[r->table]; i++) {
			wanted[i] = sound[i] = i < 6 || i < 2 + later;
			if (i < 2 || i >= 6)
				continue;
			for (file = copies = 0; file < (i < 2 + later ? 2 : 1); file++) {
				if (number() % 2 == 0)
					copies++;
				else
					rot(r->table, i, file);
			}
			sound[i] = copies > 0;
		}
		adopt_all(again, r->table);
		stream_writer_close(again->w);
		log = disk;
		for (at = 0; at <= log->now; at++, crashes++) {
			disk = disk_crash(log, at, number());
			recover_all();
			adopt_all(again, r->table);
			/* a batch that is damaged in both files may be listed until it is read */
			for (i = 0; i < s.nb[r->table]; i++)
				if (sound[i] == wanted[i])
					assert_int_equal(
						times_in_files(&s, r->table, i), wanted[i]);
			(void)check_and_give(again, wanted);
			stream_writer_close(again->w);
			disk_free(disk);
		}
		disk = log;
		disk_free(disk);
	}
	printf("%u crashes with damage to reassigned batches\n", crashes);
	free(r);
	free(again);
}

/* Files of a run that has ended are not changed, even if a batch is in two of them. */
static void
test_final(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct stream_writer_config c;
	unsigned int i, k;

	disk = disk_new(seed);
	for (i = 0; i < 2; i++) {
		rig_open(r, ARROW_FRAMES);
		for (k = 0; k < (i == 0 ? 6u : 1u); k++)
			give(r, 2 * i + k);
		assert_int_equal(stream_writer_finish(r->w), 0);
		stream_writer_close(r->w);
	}
	c = config_of(r);
	c.final = true;
	assert_int_equal(stream_writer_open(&r->w, &c), 0);
	assert_int_equal(adopt(r), 0);
	for (i = 0; i < 6; i++) {
		assert_int_equal(times_in_files(&s, r->table, i), i == 2 ? 2 : 1);
		assert_true(interval_set_has(
			stream_writer_have(r->w), s.batch[r->table][i].batch.sequence));
	}
	stream_writer_close(r->w);
	disk_free(disk);
	free(r);
}

/* Write a file with some batches of a sample. */
static void
write_file(struct rig *r, const struct xfer_sample *of, unsigned int from, unsigned int to)
{
	const struct xfer_sample_batch *b;
	struct stream_batch batch;

	rig_open(r, ARROW_FRAMES);
	for (; from <= to; from++) {
		b = &of->batch[r->table][from];
		batch = (struct stream_batch){b->batch, b->metadata, b->body, r->nb};
		r->given[r->nb++].batch = from;
		stream_writer_append(r->w, &batch);
	}
	stream_writer_close(r->w);
}

/*
 * Two files have the same copies of some batches, and a third one differs in one of them: nothing
 * is truncated, in any order of the files.
 */
static void
test_differing(void **state)
{
	struct rig *r = calloc(1, sizeof(*r));
	struct xfer_sample other;
	unsigned int differing, i;
	size_t events;

	xfer_sample_init(&other, seed + 1, 200);
	for (differing = 0; differing < 4; differing++) {
		disk = disk_new(seed);
		for (i = 0; i < 3; i++) {
			if (i == differing)
				write_file(r, &other, 1, 1);
			else
				write_file(r, &s, i == 0 ? 0 : 1, 4);
		}
		events = disk->nb_events;
		rig_open(r, ARROW_FRAMES);
		if (differing < 3) {
			assert_int_equal(adopt(r), -ENOTUNIQ);
			assert_int_equal(disk->nb_events, events);
		} else {
			/* without the third one, the earlier copies are removed */
			assert_int_equal(adopt(r), 0);
			assert_true(disk->nb_events > events);
			for (i = 0; i < 5; i++)
				assert_int_equal(times_in_files(&s, r->table, i), 1);
		}
		stream_writer_close(r->w);
		disk_free(disk);
	}
	xfer_sample_free(&other);
	free(r);
}

int
main(void)
{
	const char *text = getenv("XFER_SEED"), *many = getenv("XFER_SEEDS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_crash),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_cut_again),
		cmocka_unit_test(test_cut_of_damaged),
		cmocka_unit_test(test_no_name),
		cmocka_unit_test(test_quota),
		cmocka_unit_test(test_quota_of_disk),
		cmocka_unit_test(test_duplicate_after_outage),
		cmocka_unit_test(test_failed_cut),
		cmocka_unit_test(test_cut_of_failed),
		cmocka_unit_test(test_final),
		cmocka_unit_test(test_differing),
		cmocka_unit_test(test_stall),
		cmocka_unit_test(test_quota_during_opening),
		cmocka_unit_test(test_stall_of_opening),
		cmocka_unit_test(test_stall_of_closing),
		cmocka_unit_test(test_lcore_does_not_wait),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_bit_rot),
		cmocka_unit_test(test_bit_rot_of_reassigned),
	};
	int ret;

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	seeds = many != NULL ? strtoul(many, NULL, 0) : 4;
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	xfer_sample_init(&s, seed, 250);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	xfer_sample_free(&s);
	return ret;
}
