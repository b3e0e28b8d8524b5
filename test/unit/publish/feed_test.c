/* SPDX-License-Identifier: BSD-3-Clause */
/* Cursors of braggline-publish: order, slow outputs, and runs that are dropped. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include <cmocka.h>

#include "feed.h"

#define ROWS 8
#define LONG (INT64_C(1) << 60) /* ns */

static struct feed feed;
static struct feed_cursor serial, mixed;
static struct feed_item item;
/* one raw image, which is not published, among images of photons */
static const uint64_t numbers[ROWS] = {10, 11, 12, 13, 14, 15, 16, 17};
static const uint8_t kinds[ROWS] = {GK_KIND_IMAGE, GK_KIND_CSR, GK_KIND_RAW, GK_KIND_IMAGE,
	GK_KIND_IMAGE, GK_KIND_IMAGE, GK_KIND_IMAGE, GK_KIND_IMAGE};

static int
setup(void **state)
{
	assert_int_equal(feed_init(&feed), 0);
	assert_int_equal(feed_add_cursor(&feed, &serial, true, FEED_ALL, 0), 0);
	assert_int_equal(feed_add_cursor(&feed, &mixed, false, FEED_ALL, 0), 0);
	return 0;
}

static int
teardown(void **state)
{
	feed_free_cursor(&serial);
	feed_free_cursor(&mixed);
	feed_free(&feed);
	return 0;
}

static struct feed_run *
begin(uint32_t id)
{
	struct feed_run *run = calloc(1, sizeof(*run));

	assert_non_null(run);
	run->refs = 1;
	run->series.id = id;
	feed_begin(&feed, run);
	return run;
}

/* Appends a batch of ROWS - 1 images. Its file does not exist. */
static void
append(struct feed_run *run)
{
	struct scan_record *record = calloc(1, sizeof(*record));
	struct scan_header *header = calloc(1, sizeof(*header));
	struct feed_batch batch = {.images = ROWS - 1, .seen_ns = 5};

	assert_true(record != NULL && header != NULL);
	header->refs = record->refs = 1;
	batch.file = feed_add_file(&feed, run, "/nowhere/x_images.arrow", header, 0, 0);
	record->header = header;
	record->batch.rows = ROWS;
	record->images.kind.data = kinds;
	record->images.frame.data = numbers;
	assert_int_equal(feed_append(&feed, run, &batch, record), 0);
	scan_record_drop(record);
}

static void
expect(struct feed_cursor *c, enum feed_kind kind, uint32_t series)
{
	assert_int_equal(feed_next(c, &item), kind);
	if (series > 0)
		assert_int_equal(item.series->id, series);
}

static void
expect_images(struct feed_cursor *c, uint32_t series, uint64_t first, unsigned int nb)
{
	for (uint64_t id = first; id < first + nb; id++) {
		expect(c, FEED_IMAGE, series);
		assert_int_equal(item.id, id);
		assert_int_not_equal(kinds[item.row], GK_KIND_RAW);
		assert_int_equal(item.seen_ns, 5);
	}
}

static void
test_images_of_a_run_come_in_order(void **state)
{
	struct feed_run *run;

	expect(&serial, FEED_WAIT, 0);
	run = begin(1);
	append(run);
	expect(&serial, FEED_START, 1);
	expect_images(&serial, 1, 0, ROWS - 1);
	expect(&serial, FEED_WAIT, 0);
	append(run);
	expect_images(&serial, 1, ROWS - 1, ROWS - 1);
	feed_end(&feed, run);
	expect(&serial, FEED_FINISH, 1);
	expect(&serial, FEED_WAIT, 0);
	feed_close(&feed);
	expect(&serial, FEED_CLOSED, 0);
	/* the other cursor has not moved, and its first batch cannot be read again */
	expect_images(&mixed, 1, ROWS - 1, ROWS - 1);
	assert_int_equal(mixed.gone, ROWS - 1);
	expect(&mixed, FEED_CLOSED, 0);
}

static void
test_runs_at_the_same_time(void **state)
{
	struct feed_run *a = begin(1), *b = begin(2);

	append(b);
	/* a cursor without series takes what there is; a series is not interrupted by another */
	expect_images(&mixed, 2, 0, ROWS - 1);
	expect(&serial, FEED_START, 1);
	expect(&serial, FEED_WAIT, 0);
	append(a);
	expect_images(&mixed, 1, 0, ROWS - 1);
	expect_images(&serial, 1, 0, ROWS - 1);
	expect(&serial, FEED_WAIT, 0);
	feed_end(&feed, a);
	expect(&serial, FEED_FINISH, 1);
	expect(&serial, FEED_START, 2);
	expect_images(&serial, 2, 0, ROWS - 1);
	feed_end(&feed, b);
	feed_close(&feed);
	expect(&serial, FEED_FINISH, 2);
	expect(&serial, FEED_CLOSED, 0);
	expect(&mixed, FEED_CLOSED, 0);
	assert_int_equal(feed.first, feed.next);
}

static void
test_images_that_wait_too_long_are_skipped(void **state)
{
	struct feed_run *run = begin(1);

	serial.behind = 3;
	append(run);
	append(run);
	expect(&serial, FEED_START, 1);
	/* the first batch is not read */
	expect_images(&serial, 1, 2 * (ROWS - 1) - 3, 3);
	assert_int_equal(serial.skipped, 2 * (ROWS - 1) - 3);
	assert_int_equal(serial.gone, 0);
	append(run);
	expect_images(&serial, 1, 3 * (ROWS - 1) - 3, 1);
	append(run);
	expect_images(&serial, 1, 4 * (ROWS - 1) - 3, 3);
	feed_end(&feed, run);
	expect(&serial, FEED_FINISH, 1);
}

static void
test_old_runs_are_dropped(void **state)
{
	struct feed_run *run;
	uint32_t id;

	for (id = 1; id <= FEED_RUNS + 10; id++) {
		run = begin(id);
		append(run);
		feed_end(&feed, run);
		expect_images(&mixed, id, 0, ROWS - 1);
	}
	/* the slow output has lost the first ten */
	assert_int_equal(feed.next - feed.first, FEED_RUNS);
	expect(&serial, FEED_START, 11);
	assert_int_equal(serial.skipped, 10 * (ROWS - 1));
	assert_int_equal(mixed.skipped, 0);
	expect_images(&serial, 11, 0, ROWS - 1);
	/* a run that is dropped in the middle is left */
	begin(id);
	expect(&serial, FEED_START, 12);
	assert_int_equal(serial.skipped, 10 * (ROWS - 1));
}

/* Rows that no descriptor is free for are read later, also after the longest wait for rows. */
static void
test_images_wait_for_a_descriptor_for_their_rows(void **state)
{
	const struct feed_rows all = {.first = numbers[0], .last = numbers[ROWS - 1]};
	const struct feed_rows newer = {.first = 100, .last = 100};
	struct feed_run *run = begin(1);
	struct rlimit limit, none;

	append(run);
	/* of `frames`: a batch with all rows, and a newer one, which is in memory */
	assert_int_equal(feed_rows_push(run, &all), 0);
	assert_int_equal(feed_rows_push(run, &newer), 0);
	assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = limit.rlim_max};
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
	for (unsigned int i = 0; i < 3; i++) {
		expect(&mixed, FEED_WAIT, 1);
		assert_int_equal(mixed.rows_tried, 0);
		assert_int_equal(feed_wait_ms(&mixed, 77), 77);
	}
	assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
	/* the file does not exist */
	expect_images(&mixed, 1, 0, ROWS - 1);
	assert_int_equal(mixed.rows_tried, 2);
	assert_null(item.info);
}

/* Batches of `frames` of several files: in order each, and together hardly. */
static void
test_rows_are_found(void **state)
{
	const unsigned int seed = (unsigned int)time(NULL), nb = 1000;
	uint64_t next[3] = {0}, first, last;
	struct feed_run *run = begin(1);
	struct feed_rows r;
	size_t from, to, i;

	print_message("seed %u\n", seed);
	srand(seed);
	for (unsigned int k = 0; k < nb; k++) {
		const unsigned int file = (unsigned int)rand() % 3;

		r.first = next[file] + (uint64_t)rand() % 5;
		r.last = r.first + (uint64_t)rand() % 20;
		next[file] = r.last + 1;
		assert_int_equal(feed_rows_push(run, &r), 0);
	}
	for (unsigned int k = 0; k < 200; k++) {
		first = (uint64_t)rand() % (next[0] + 100);
		last = first + (uint64_t)rand() % 50;
		feed_rows_find(run, first, last, &from, &to);
		assert_true(from <= to && to <= nb);
		for (i = 0; i < nb; i++) {
			const bool may = run->rows[i].last >= first && run->rows[i].first <= last;

			assert_false(may && (i < from || i >= to));
		}
		/* both ends are as near as they can be */
		if (from < to) {
			assert_true(run->rows[from].last >= first);
			assert_true(run->rows[to - 1].first <= last);
		}
	}
	/* one file in order: no other batch is looked at */
	run = begin(2);
	for (unsigned int k = 0; k < nb; k++) {
		r.first = k * 10;
		r.last = k * 10 + 9;
		assert_int_equal(feed_rows_push(run, &r), 0);
	}
	feed_rows_find(run, 5015, 5024, &from, &to);
	assert_int_equal(from, 501);
	assert_int_equal(to, 503);
	feed_rows_find(run, 10 * nb, 10 * nb, &from, &to);
	assert_int_equal(from, to);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(
			test_images_of_a_run_come_in_order, setup, teardown),
		cmocka_unit_test_setup_teardown(test_runs_at_the_same_time, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_images_that_wait_too_long_are_skipped, setup, teardown),
		cmocka_unit_test_setup_teardown(test_old_runs_are_dropped, setup, teardown),
		cmocka_unit_test_setup_teardown(
			test_images_wait_for_a_descriptor_for_their_rows, setup, teardown),
		cmocka_unit_test_setup_teardown(test_rows_are_found, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
