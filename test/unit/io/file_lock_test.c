/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests file locks whose owner is alive, and locks that outlive their owner. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../stream/left_lock.h"

#define LEFT_MS 200

static char path[] = "/tmp/file_lock_XXXXXX";

static int
ms_since(const struct timespec *begin)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int)((now.tv_sec - begin->tv_sec) * 1000 +
		(now.tv_nsec - begin->tv_nsec) / 1000000);
}

/* A lock that outlives its owner is released in time: file_lock() waits for it. */
static void
test_waits(void **state)
{
	int fd = open(path, O_RDWR);
	struct timespec begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	left_lock(path, LEFT_MS);
	assert_int_equal(file_lock(fd, 0), -EBUSY);
	assert_int_equal(file_lock(fd, 60000), 0);
	assert_in_range(ms_since(&begin), LEFT_MS - 1, 30000);
	close(fd);
}

static void
test_gives_up(void **state)
{
	int fd = open(path, O_RDWR);
	struct timespec begin;

	left_lock(path, 2 * LEFT_MS);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(file_lock(fd, LEFT_MS / 2), -EBUSY);
	assert_true(ms_since(&begin) >= LEFT_MS / 2 - 1);
	assert_int_equal(file_lock(fd, FILE_LOCK_MS), 0);
	close(fd);
	assert_int_equal(file_lock(fd, 0), -EBADF);
}

/* file_lock() does not wait for a lock whose owner is alive. */
static void
test_owned(void **state)
{
	int fd = open(path, O_RDWR), other = open(path, O_RDWR);
	struct timespec begin;

	assert_int_equal(file_lock(other, 0), 0);
	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(file_lock(fd, 60000), -EBUSY);
	assert_true(ms_since(&begin) < 30000);
	close(other);
	assert_int_equal(file_lock(fd, 0), 0);
	close(fd);
}

/* A process that can only read a file does not prevent its lock. */
static void
test_reader(void **state)
{
	int fd = open(path, O_RDWR), reader = open(path, O_RDONLY);

	assert_int_equal(flock(reader, LOCK_EX), 0);
	assert_int_equal(file_lock(reader, 0), -EBADF);
	assert_int_equal(file_lock(fd, 0), 0);
	close(reader);
	close(fd);
}

static int
begin(void **state)
{
	int fd = mkstemp(path);

	close(fd);
	return fd < 0 ? -1 : 0;
}

static int
end(void **state)
{
	return unlink(path);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waits),
		cmocka_unit_test(test_gives_up),
		cmocka_unit_test(test_owned),
		cmocka_unit_test(test_reader),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
