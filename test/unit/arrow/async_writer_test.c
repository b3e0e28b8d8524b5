/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests when slices are written and syncs are begun, with a fake clock and a disk in memory. */

#include <stdint.h>
#include <time.h>

static uint64_t now_ms = 1000;

static int
clock_told(clockid_t id, struct timespec *t)
{
	t->tv_sec = now_ms / 1000;
	t->tv_nsec = now_ms % 1000 * 1000000;
	return 0;
}

/* before cmocka.h, which defines a macro fail() */
#define clock_gettime clock_told
#include "arrow/async_writer.c"
#undef clock_gettime

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "arrow_disk.h"

#define SYNC_MS 100

static uint8_t block[65536] __attribute__((aligned(4096)));

static void
open_slices(struct async_writer *s)
{
	const struct async_writer_config config = {
		.io = &disk_io, .slice = 65536, .depth = 3, .sync_ms = SYNC_MS, .stall_ms = 100000};

	disk = disk_new(1);
	assert_int_equal(async_writer_open(s, &config, "/nowhere/file.part"), 0);
}

static void
close_slices(struct async_writer *s)
{
	async_writer_close(s);
	disk_free(disk);
}

static void
put_blocks(struct async_writer *s, unsigned int nb)
{
	const struct iovec iov = {block, (size_t)nb * ARROW_BLOCK};

	/* fill each block with its number */
	for (unsigned int i = 0; i < nb; i++)
		memset(block + i * ARROW_BLOCK, (s->taken / ARROW_BLOCK + i) % 251 + 1,
			ARROW_BLOCK);
	assert_int_equal(async_writer_put(s, &iov, 1, false), 0);
}

/* Poll until the disk has completed all operations, including those that follow from others. */
static void
poll_at(struct async_writer *s, uint64_t ms)
{
	now_ms = ms;
	for (unsigned int i = 0; i < 64; i++)
		assert_int_equal(async_writer_poll(s), 0);
}

/*
 * A byte is durable sync_ms after it was put, even if it was put while a sync before it waited for
 * a slow disk.
 */
static void
sync_ms_is_a_bound(void **state)
{
	struct async_writer s;

	open_slices(&s);
	now_ms = 1000;
	put_blocks(&s, 1);
	poll_at(&s, 1000 + SYNC_MS - 1);
	assert_int_equal(s.syncs, 0);
	/* a partial slice is written; the disk is slow */
	disk->stuck = true;
	poll_at(&s, 1000 + SYNC_MS);
	assert_int_equal(s.submitted, ARROW_BLOCK);
	now_ms = 1000 + SYNC_MS + 20;
	put_blocks(&s, 1);
	disk->stuck = false;
	poll_at(&s, 1000 + SYNC_MS + 80);
	assert_int_equal(s.syncs, 1);
	assert_int_equal(s.durable, ARROW_BLOCK);
	/* due sync_ms after the byte was put, not after the sync before */
	poll_at(&s, 1000 + 2 * SYNC_MS + 19);
	assert_int_equal(s.syncs, 1);
	poll_at(&s, 1000 + 2 * SYNC_MS + 20);
	assert_int_equal(s.syncs, 2);
	assert_int_equal(s.durable, 2 * ARROW_BLOCK);
	close_slices(&s);
}

/* Bytes are put steadily, but slower than slices fill: no byte waits for a full slice. */
static void
trickle(void **state)
{
	uint64_t given[1000], ms;
	struct async_writer s;
	unsigned int nb = 0;

	open_slices(&s);
	for (ms = 2000; ms < 4000; ms += 7) {
		now_ms = ms;
		given[nb++] = ms;
		put_blocks(&s, 1);
		poll_at(&s, ms);
		if (s.durable / ARROW_BLOCK < nb)
			assert_true(ms - given[s.durable / ARROW_BLOCK] < SYNC_MS + 7);
	}
	assert_true(s.syncs >= 2000 / SYNC_MS / 2 && s.syncs <= 2000 / SYNC_MS + 1);
	close_slices(&s);
}

/*
 * Bytes that are held back are not written before they are released. The sync of released bytes
 * does not wait for them.
 */
static void
held_back(void **state)
{
	struct async_writer s;

	open_slices(&s);
	now_ms = 1000;
	put_blocks(&s, 1);
	async_writer_hold(&s, ARROW_BLOCK);
	poll_at(&s, 1000 + SYNC_MS);
	assert_int_equal(s.durable, ARROW_BLOCK);
	/* hold back some full slices and a partial one */
	now_ms = 2000;
	for (unsigned int i = 0; i < 40; i++)
		put_blocks(&s, 1);
	assert_true(40 * ARROW_BLOCK <= async_writer_hold_max(&s));
	poll_at(&s, 2000 + 3 * SYNC_MS);
	assert_int_equal(s.written, ARROW_BLOCK);
	assert_int_equal(s.durable, ARROW_BLOCK);
	/* release a part: the slices that end before the limit are written */
	async_writer_hold(&s, 20 * ARROW_BLOCK);
	poll_at(&s, 2000 + 3 * SYNC_MS);
	assert_int_equal(s.written, 16 * ARROW_BLOCK);
	assert_int_equal(s.durable, 16 * ARROW_BLOCK);
	async_writer_hold(&s, 41 * ARROW_BLOCK);
	poll_at(&s, 2000 + 3 * SYNC_MS);
	assert_int_equal(s.durable, 41 * ARROW_BLOCK);
	assert_int_equal(disk->file[0].size >= 41 * ARROW_BLOCK, 1);
	/* release a part of the slice being filled: the rest is written when it is released */
	now_ms = 3000;
	put_blocks(&s, 4);
	async_writer_hold(&s, 43 * ARROW_BLOCK);
	put_blocks(&s, 2);
	poll_at(&s, 3000 + SYNC_MS);
	assert_int_equal(s.durable, 43 * ARROW_BLOCK);
	async_writer_hold(&s, 47 * ARROW_BLOCK);
	poll_at(&s, 3000 + 2 * SYNC_MS);
	assert_int_equal(s.durable, 47 * ARROW_BLOCK);
	for (unsigned int i = 0; i < 47 * ARROW_BLOCK; i += 64)
		assert_int_equal(disk->file[0].data[i], i / ARROW_BLOCK % 251 + 1);
	/* release everything at once */
	put_blocks(&s, 3);
	assert_int_equal(s.written, 47 * ARROW_BLOCK);
	async_writer_hold(&s, UINT64_MAX);
	assert_int_equal(async_writer_commit(&s), 0);
	assert_int_equal(s.durable, 50 * ARROW_BLOCK);
	close_slices(&s);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sync_ms_is_a_bound),
		cmocka_unit_test(trickle),
		cmocka_unit_test(held_back),
	};

	return cmocka_run_group_tests_name("async_writer", tests, NULL, NULL);
}
