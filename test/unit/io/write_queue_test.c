/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Writes in flight: each has one completion, whatever io_uring does with it, and the file has the
 * bytes of those that did not fail.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/write_queue.h"
#include "ring_faults.h"

#define WRITES 8
#define SIZE   (32 << 10)

static char path[] = "/tmp/write_queue_test.XXXXXX";
static uint8_t data[WRITES * SIZE] __attribute__((aligned(4096)));
static uint8_t stored[SIZE] __attribute__((aligned(4096)));
static struct iovec part[WRITES][2];
static int fd;
static int fault;		  /* of every second write that is submitted */
static unsigned int ring_writes;  /* that were submitted */
static unsigned int calls;	  /* pwritev(2) */
static unsigned int direct_calls; /* of them, with O_DIRECT */
static size_t short_size;	  /* of the next call of pwritev(2); 0: it is whole */

ssize_t __real_pwritev64(int file, const struct iovec *iov, int nb, off_t at);
ssize_t __wrap_pwritev64(int file, const struct iovec *iov, int nb, off_t at);

ssize_t
__wrap_pwritev64(int file, const struct iovec *iov, int nb, off_t at)
{
	const int flags = fcntl(file, F_GETFL);
	const struct iovec begin = {iov->iov_base, short_size};
	ssize_t n;

	calls++;
	direct_calls += (flags & O_DIRECT) != 0;
	if (short_size > 0) {
		short_size = 0;
		/* of any size */
		assert_int_equal(fcntl(file, F_SETFL, flags & ~O_DIRECT), 0);
		n = __real_pwritev64(file, &begin, 1, at);
		assert_int_equal(fcntl(file, F_SETFL, flags), 0);
		return n;
	}
	return __real_pwritev64(file, iov, nb, at);
}

static int
ring_write(int file, const struct iovec *iov, unsigned int nb)
{
	return ++ring_writes % 2 == 0 ? fault : 0;
}

static struct write_queue *
start(void)
{
	struct write_queue *q;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = i * 2654435761U >> 24 | 1;
	strcpy(strrchr(path, '.'), ".XXXXXX");
	fd = mkstemp(path);
	assert_true(fd >= 0);
	assert_int_equal(unlink(path), 0);
	/* a file system in memory may refuse it */
	(void)fcntl(fd, F_SETFL, O_DIRECT);
	ring_refusal = ring_rejection = fault = 0;
	ring_is_held = false;
	ring_submissions = ring_writes = calls = direct_calls = 0;
	short_size = 0;
	assert_int_equal(write_queue_open(&q, fd, WRITES), 0);
	if (write_queue_use_ring(q) < 0) {
		write_queue_close(q);
		close(fd);
		print_message("io_uring is not available\n");
		skip();
	}
	return q;
}

/* Starts a write of two parts. */
static void
put(struct write_queue *q, unsigned int i)
{
	part[i][0] = (struct iovec){data + i * SIZE, SIZE / 2};
	part[i][1] = (struct iovec){data + i * SIZE + SIZE / 2, SIZE / 2};
	assert_int_equal(write_queue_write(q, part[i], 2, (uint64_t)i * SIZE, i), 0);
}

static bool
is_stored(unsigned int i)
{
	const ssize_t n = pread(fd, stored, SIZE, (off_t)i * SIZE);

	return n == SIZE && memcmp(stored, data + i * SIZE, SIZE) == 0;
}

/* Each write has one completion: with `error` that of every second write, otherwise 0. */
static void
check_all(struct write_queue *q, int error)
{
	struct arrow_io_done done;
	unsigned int seen = 0;

	for (unsigned int i = 0; i < WRITES; i++) {
		assert_int_equal(write_queue_reap(q, true, &done), 1);
		assert_int_equal(done.error, done.tag % 2 == 1 ? error : 0);
		assert_true(done.error != 0 || is_stored(done.tag));
		seen |= 1U << done.tag;
	}
	assert_int_equal(seen, (1U << WRITES) - 1);
	assert_int_equal(write_queue_reap(q, true, &done), 0);
	assert_int_equal(write_queue_reap(q, false, &done), 0);
	write_queue_close(q);
	close(fd);
}

static void
write_all(struct write_queue *q, int error)
{
	for (unsigned int i = 0; i < WRITES; i++)
		put(q, i);
	check_all(q, error);
}

static void
test_writes_are_in_flight_together(void **state)
{
	struct write_queue *q = start();
	struct arrow_io_done done;

	ring_is_held = true;
	for (unsigned int i = 0; i < WRITES; i++)
		put(q, i);
	assert_int_equal(write_queue_reap(q, false, &done), 0);
	assert_false(is_stored(0));
	assert_int_equal(calls, 0);
	/* a sync may be added, but no further write */
	assert_int_equal(write_queue_sync(q, WRITES), 0);
	assert_int_equal(write_queue_write(q, part[0], 2, 0, 0), -EINVAL);
	for (unsigned int i = 0; i <= WRITES; i++) {
		assert_int_equal(write_queue_reap(q, true, &done), 1);
		assert_int_equal(done.error, 0);
	}
	for (unsigned int i = 0; i < WRITES; i++)
		assert_true(is_stored(i));
	assert_int_equal(write_queue_reap(q, true, &done), 0);
	write_queue_close(q);
	close(fd);
}

static void
test_short_writes_continue(void **state)
{
	struct write_queue *q = start();

	fault = RING_FIRST_HALF;
	write_all(q, 0);
	assert_int_equal(calls, WRITES / 2);
}

static void
test_interrupted_and_cancelled_writes_are_repeated(void **state)
{
	static const int errors[] = {EINTR, EAGAIN, ECANCELED};

	for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
		struct write_queue *q = start();

		fault = -errors[i];
		write_all(q, 0);
		assert_int_equal(calls, WRITES / 2);
	}
}

static void
test_each_failed_write_is_reported_once(void **state)
{
	struct write_queue *q = start();

	fault = -ENOSPC;
	write_all(q, -ENOSPC);
	assert_int_equal(calls, 0);
}

static struct write_queue *
start_direct(void)
{
	struct write_queue *q = start();

	if ((fcntl(fd, F_GETFL) & O_DIRECT) == 0) {
		write_queue_close(q);
		close(fd);
		print_message("O_DIRECT is not available\n");
		skip();
	}
	return q;
}

/* The rest of a block cannot be written with O_DIRECT. Other writes are. */
static void
test_a_short_write_within_a_block_continues(void **state)
{
	struct write_queue *q = start_direct();

	/* it is repeated by two calls, and those after it by one */
	fault = -ECANCELED;
	short_size = 100;
	for (unsigned int i = 0; i < WRITES; i++)
		put(q, i);
	check_all(q, 0);
	assert_int_equal(calls, WRITES / 2 + 1);
	assert_int_equal(direct_calls, WRITES / 2);
}

/* All writes in flight may be refused, not only the first one. */
static void
test_refused_direct_writes_are_repeated(void **state)
{
	struct write_queue *q = start_direct();

	assert_false(write_queue_refused_direct(q));
	fault = -EINVAL;
	for (unsigned int i = 0; i < WRITES; i++)
		put(q, i);
	assert_int_equal(fcntl(fd, F_GETFL) & O_DIRECT, O_DIRECT);
	check_all(q, 0);
	assert_int_equal(calls, WRITES / 2);
}

/* The entry of a rejected write stays in the ring: a later submission would write it again. */
static void
test_without_submission_writes_are_made_at_once(void **state)
{
	struct write_queue *q = start();

	put(q, 0);
	ring_rejection = EAGAIN;
	put(q, 1);
	assert_true(is_stored(1));
	ring_rejection = 0;
	ring_submissions = 0;
	for (unsigned int i = 2; i < WRITES; i++)
		put(q, i);
	assert_int_equal(calls, WRITES - 1);
	assert_int_equal(ring_submissions, 0);
	check_all(q, 0);
}

static void
test_without_io_uring_writes_are_made_at_once(void **state)
{
	struct write_queue *q = start();

	write_queue_close(q);
	assert_int_equal(write_queue_open(&q, fd, WRITES), 0);
	ring_refusal = EPERM;
	assert_int_equal(write_queue_use_ring(q), -EPERM);
	write_all(q, 0);
	assert_int_equal(calls, WRITES);
	assert_int_equal(ring_submissions, 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_writes_are_in_flight_together),
		cmocka_unit_test(test_short_writes_continue),
		cmocka_unit_test(test_interrupted_and_cancelled_writes_are_repeated),
		cmocka_unit_test(test_each_failed_write_is_reported_once),
		cmocka_unit_test(test_a_short_write_within_a_block_continues),
		cmocka_unit_test(test_refused_direct_writes_are_repeated),
		cmocka_unit_test(test_without_submission_writes_are_made_at_once),
		cmocka_unit_test(test_without_io_uring_writes_are_made_at_once),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
