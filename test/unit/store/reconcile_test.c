/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests reconcile on files of two stores with duplicate batches, on a disk that loses writes and
 * fails: each batch is in some file at any moment, and in exactly one at the end. XFER_SEED and
 * XFER_SEEDS choose the faults.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <unistd.h>

#include <cmocka.h>

#include "tools/reconcile.h"
#include "../stream/stream_disk.h"
#include "stream/writer.h"

#define TABLE	    ARROW_FRAMES
#define BATCHES_MAX 20

/* small, so that more operations can fail */
#define SLICES                                                                            \
	{                                                                                 \
		.slice = 16384, .sync_ms = 1000000, .sync_bytes = 60000, .ahead = 1 << 17 \
	}

static uint64_t seed;
static unsigned int seeds;
static struct xfer_sample s;
static struct xfer_sample other; /* other batches with the same numbers */

/*
 * Batches in files: `a3-6,9 b4` is a file of store a and a file of store b. All stores share one
 * disk, so that the letter has no effect.
 */
static const char *const arrangements[] = {
	"a0-5 b3-9",		    /* the end of one is the beginning of the other, as usual */
	"a3-9 b0-5",		    /* the same */
	"a0-9 b3-5",		    /* duplicates in the middle */
	"a0-9 b0-9",		    /* all batches */
	"a0-5 b5-9",		    /* one batch */
	"a0,9 b0-9",		    /* the first and the last batch */
	"a0-3 a4-7 b2-5 b6-9",	    /* in several files */
	"a5-9 a0-4 b0-9",	    /* in another order */
	"a0,2,4,6,8 b0,1,2,3,8,9",  /* alternating */
	"a0-5 b3-9 a4-9",	    /* one store has duplicates itself */
	"a0-5 b3-9 c5-12 a11-14",   /* three stores */
	"a0-3 b0-3 c0-3 d0-3",	    /* four stores */
	"a0-9 b10-14 c15-19",	    /* no duplicates */
	"a1,3,5,7 b0,2,4,6 c0-7,9", /* one store has all batches */
	NULL,
};

static uint32_t
number(void)
{
	return sample_random(&s.sample);
}

static void
ignore(void *arg, bool error, const char *text)
{
}

static void
want_durable(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	assert_int_equal(status, XFER_DURABLE);
}

/* Write a file of a store. */
static void
write_file(const struct xfer_sample *sample, const char *run, const bool *batches)
{
	struct stream_writer_config c = {
		.dir = "/nowhere",
		.run = run,
		.identity = xfer_sample_identity(TABLE),
		.schema = &s.tables.schema[TABLE],
		.slices = SLICES,
		.result = want_durable,
	};
	struct stream_writer *w;
	struct stream_batch b;
	unsigned int i;

	c.slices.io = &disk_io;
	assert_int_equal(stream_writer_open(&w, &c), 0);
	for (i = 0; i < BATCHES_MAX; i++) {
		const struct xfer_sample_batch *from = &sample->batch[TABLE][i];

		b = (struct stream_batch){from->batch, from->metadata, from->body, i};
		if (batches[i])
			stream_writer_append(w, &b);
	}
	assert_int_equal(stream_writer_finish(w), 0);
	stream_writer_close(w);
}

/* Write the files of an arrangement. @return the set of all batches */
static uint32_t
arrange(const char *text)
{
	bool batches[BATCHES_MAX];
	unsigned int first, last;
	uint32_t all = 0;
	char *end;

	while (*text != '\0') {
		text++;
		memset(batches, 0, sizeof(batches));
		do {
			first = strtoul(text, &end, 10);
			last = *end == '-' ? strtoul(end + 1, &end, 10) : first;
			for (; first <= last; first++) {
				batches[first] = true;
				all |= 1u << first;
			}
			text = end + 1;
		} while (*end == ',');
		write_file(&s, "run", batches);
		text = *end == '\0' ? end : end + 1;
	}
	return all;
}

/* Write random batches into random files. */
static uint32_t
arrange_any(void)
{
	bool batches[BATCHES_MAX];
	unsigned int nb = 2 + number() % 4, i, dense;
	uint32_t all = 0;

	while (nb-- > 0) {
		memset(batches, 0, sizeof(batches));
		dense = 1 + number() % 4;
		for (i = 0; i < BATCHES_MAX; i++) {
			batches[i] = number() % 4 < dense;
			all |= (uint32_t)batches[i] << i;
		}
		batches[0] = true;
		write_file(&s, "run", batches);
		all |= 1;
	}
	return all;
}

static uint32_t
arrange_round(unsigned int round)
{
	const unsigned int given = sizeof(arrangements) / sizeof(arrangements[0]) - 1;

	return round < given ? arrange(arrangements[round]) : arrange_any();
}

static unsigned int
rounds(void)
{
	return sizeof(arrangements) / sizeof(arrangements[0]) - 1 + 2 * seeds;
}

/* Make everything written so far durable, and begin a new log. */
static void
begin_log(void)
{
	struct disk *before = disk;

	disk = disk_crash(before, before->now, number());
	disk_free(before);
}

static int
reconcile_all(struct reconcile *r, bool dry_run)
{
	const char *path[DISK_FILES];
	const unsigned int n = list_complete(path);
	struct arrow_identity id = xfer_sample_identity(TABLE);
	unsigned int i;
	int ret = 0;

	*r = (struct reconcile){
		.io = &disk_io, .slices = SLICES, .dry_run = dry_run, .say = ignore};
	for (i = 0; i < n && ret == 0; i++)
		ret = reconcile_read(r, path[i]);
	if (ret == 0) {
		(void)reconcile_inspect(r);
		/* a run without a file here may have some in other directories */
		id.incarnation++;
		assert_true(reconcile_is_kept(r, &id));
		ret = reconcile_run(r);
	}
	reconcile_free(r);
	return ret;
}

static void
each_is_there(uint32_t all, bool once)
{
	unsigned int i, n;

	for (i = 0; i < BATCHES_MAX; i++) {
		n = times_in_files(&s, TABLE, i);
		assert_true(n >= (all >> i & 1));
		assert_true(!once || n <= 1);
	}
}

/* Each batch is there once and none is lost; a second reconcile does nothing. */
static void
test_arrangements(void **state)
{
	struct reconcile r, dry;
	unsigned int round;
	size_t events;
	uint32_t all;

	for (round = 0; round < rounds(); round++) {
		disk = disk_new(seed + round);
		all = arrange_round(round);
		events = disk->nb_events;
		assert_int_equal(reconcile_all(&dry, true), 0);
		assert_int_equal(disk->nb_events, events);
		assert_int_equal(reconcile_all(&r, false), 0);
		assert_int_equal(dry.duplicates, r.duplicates);
		assert_int_equal(dry.cut, r.cut);
		assert_int_equal(dry.copied, r.copied);
		assert_int_equal(r.batches, __builtin_popcount(all));
		assert_int_equal(r.cut, r.duplicates + r.copied);
		each_is_there(all, true);
		events = disk->nb_events;
		assert_int_equal(reconcile_all(&r, false), 0);
		assert_int_equal(r.duplicates + r.cut, 0);
		assert_int_equal(disk->nb_events, events);
		disk_free(disk);
	}
}

/*
 * Duplicates at the end of a file, which are the usual cases, are cut off without copying batches.
 */
static void
test_tails(void **state)
{
	struct reconcile r;

	disk = disk_new(seed);
	(void)arrange("a0-5 b3-9");
	assert_int_equal(reconcile_all(&r, false), 0);
	assert_int_equal(r.duplicates, 3);
	assert_int_equal(r.cut, 3);
	assert_int_equal(r.copied, 0);
	assert_int_equal(r.files, 1);
	disk_free(disk);
	disk = disk_new(seed);
	(void)arrange("a0-3 a4-7 b2-3 b4-5 b6-9");
	assert_int_equal(reconcile_all(&r, false), 0);
	assert_int_equal(r.copied, 0);
	disk_free(disk);
}

/* After a power failure at any moment, and another one during the recovery, reconcile succeeds. */
static void
test_crash(void **state)
{
	struct disk *log, *first;
	unsigned int round, crashes = 0;
	struct reconcile r;
	uint32_t all;
	uint64_t at;

	for (round = 0; round < rounds(); round++) {
		disk = disk_new(seed + round);
		all = arrange_round(round);
		begin_log();
		assert_int_equal(reconcile_all(&r, false), 0);
		log = disk;
		for (at = 0; at <= log->now; at++) {
			disk = disk_crash(log, at, number());
			recover_all();
			each_is_there(all, false);
			assert_int_equal(reconcile_all(&r, false), 0);
			each_is_there(all, true);
			first = disk;
			disk = disk_crash(first, number() % (first->now + 1), number());
			disk_free(first);
			recover_all();
			each_is_there(all, false);
			assert_int_equal(reconcile_all(&r, false), 0);
			each_is_there(all, true);
			disk_free(disk);
			crashes += 2;
		}
		disk_free(log);
	}
	printf("%u crashes\n", crashes);
}

/* A call fails or the disk is full: nothing is lost, and reconcile succeeds when it is repeated. */
static void
test_errors(void **state)
{
	static const int errors[] = {-EIO, -ENOSPC};
	unsigned int round, call, failed = 0;
	struct reconcile r;
	uint32_t all;

	for (round = 0; round < rounds(); round++) {
		for (call = 0; call < 60; call++) {
			disk = disk_new(seed + round);
			all = arrange_round(round);
			disk->fail_error = errors[call % 2];
			disk->fail_from = disk->calls + call;
			disk->fail_until = disk->fail_from + 1 + number() % 3;
			failed += reconcile_all(&r, false) < 0;
			disk->fail_until = 0;
			recover_all();
			each_is_there(all, false);
			assert_int_equal(reconcile_all(&r, false), 0);
			each_is_there(all, true);
			disk_free(disk);
		}
	}
	assert_true(failed > 0);
	printf("%u times it failed\n", failed);
}

/*
 * A copy torn by a crash, or without its footer, is recovered up to that place, and then
 * reconciled.
 */
static void
test_torn(void **state)
{
	struct disk_file *f;
	struct reconcile r;
	unsigned int cut;
	uint32_t all;

	for (cut = 0; cut < 64; cut++) {
		disk = disk_new(seed);
		all = arrange("a0-5 b3-9");
		f = disk_find(disk, "/run_fedcba9876543210_000001_frames.arrow");
		assert_non_null(f);
		strcat(f->name, ".part");
		/* the last block has the footer */
		f->size -= 4096;
		f->size -= number() % (f->size / 8);
		recover_all();
		assert_int_equal(reconcile_all(&r, false), 0);
		/* only this file has 0 to 2: the torn batch may be one of them */
		each_is_there(all & ~7u, true);
		each_is_there(0, true);
		disk_free(disk);
	}
}

/* If the copy to be kept is damaged, no file is changed. */
static void
test_damaged(void **state)
{
	struct reconcile r;
	size_t events;
	struct disk_file *f;

	disk = disk_new(seed);
	(void)arrange("a0-5 b3-9");
	f = disk_find(disk, "/run_fedcba9876543210_000002_frames.arrow");
	assert_non_null(f);
	f->data[f->size / 2 - ARROW_BLOCK] ^= 4;
	events = disk->nb_events;
	assert_int_equal(reconcile_all(&r, false), -EBADMSG);
	assert_int_equal(r.cut, 0);
	assert_int_equal(disk->nb_events, events);
	/* the footer is damaged: the file cannot be opened */
	f->data[f->size / 2 - ARROW_BLOCK] ^= 4;
	f->data[f->size - 4000] ^= 4;
	f->data[f->size - 1] ^= 4;
	assert_int_equal(reconcile_all(&r, false), -EBADMSG);
	assert_int_equal(disk->nb_events, events);
	disk_free(disk);
}

/* Count the lines that name a batch and both files. */
static void
count_lines(void *arg, bool error, const char *text)
{
	unsigned int *nb = arg;

	*nb += error && strstr(text, "different: batch ") != NULL &&
		strstr(text, "/run_fedcba9876543210_000001_frames.arrow") != NULL &&
		strstr(text, "/run_fedcba9876543210_000002_frames.arrow") != NULL &&
		strstr(text, ", frame") != NULL;
}

/* If copies of a batch differ, no file of the stream is changed, and each batch is reported. */
static void
test_differing(void **state)
{
	static const bool first[BATCHES_MAX] = {true, true, true};
	static const bool second[BATCHES_MAX] = {false, true, true, true};
	struct reconcile r = {.io = &disk_io, .slices = SLICES, .say = count_lines};
	const char *path[DISK_FILES];
	unsigned int i, n, nb = 0;
	size_t events;

	disk = disk_new(seed);
	write_file(&s, "run", first);
	write_file(&other, "run", second);
	/* the same as the first: it is not cut either */
	write_file(&s, "run", first);
	events = disk->nb_events;
	r.arg = &nb;
	n = list_complete(path);
	for (i = 0; i < n; i++)
		assert_int_equal(reconcile_read(&r, path[i]), 0);
	assert_int_equal(reconcile_inspect(&r), -ENOTUNIQ);
	assert_int_equal(reconcile_run(&r), -ENOTUNIQ);
	assert_int_equal(r.duplicates, 2 + 3);
	assert_int_equal(r.cut, 0);
	assert_int_equal(nb, 2);
	assert_int_equal(disk->nb_events, events);
	reconcile_free(&r);
	disk_free(disk);
}

/* If a run has two names, no file of it is changed, with or without duplicates. */
static void
test_two_names(void **state)
{
	bool batches[BATCHES_MAX] = {true, true};
	struct reconcile r;
	unsigned int i;
	size_t events;

	for (i = 0; i < 2; i++) {
		disk = disk_new(seed);
		write_file(&s, "run", batches);
		batches[0] = i == 0;
		batches[1] = false;
		batches[2] = i != 0;
		write_file(&s, "evil", batches);
		events = disk->nb_events;
		assert_int_equal(reconcile_all(&r, false), -ENOTUNIQ);
		assert_int_equal(r.duplicates, i == 0);
		assert_int_equal(r.cut, 0);
		assert_int_equal(disk->nb_events, events);
		disk_free(disk);
	}
}

int
main(void)
{
	const char *text = getenv("XFER_SEED"), *many = getenv("XFER_SEEDS");
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_arrangements),
		cmocka_unit_test(test_tails),
		cmocka_unit_test(test_crash),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_torn),
		cmocka_unit_test(test_damaged),
		cmocka_unit_test(test_differing),
		cmocka_unit_test(test_two_names),
	};
	int ret;

	seed = text != NULL ? strtoull(text, NULL, 0) : (uint64_t)getpid();
	seeds = many != NULL ? strtoul(many, NULL, 0) : 4;
	printf("XFER_SEED=%llu\n", (unsigned long long)seed);
	xfer_sample_init(&s, seed, 250);
	xfer_sample_init(&other, seed + 1, 250);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	xfer_sample_free(&s);
	xfer_sample_free(&other);
	return ret;
}
