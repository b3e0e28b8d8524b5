/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests how a store completes the files that a killed store has left, while their receivers
 * reconnect late or never.
 */

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "clock.h"
#include "io/file_lock.h"
#include "recovery/recovery.h"
#include "arrow/async_writer.h"
#include "io/direct_io.h"
#include "../io/failing_readdir.h"
#include "../xfer/xfer_sample.h"
#include "server/completion.h"
#include "stream/source.h"
#include "stream/writer.h"

#define SECONDS	 20
#define NS_PER_S UINT64_C(1000000000)
#define BATCHES	 3
#define PATH	 256

static struct xfer_sample s;
static char root[64];
static struct store_completion *c;
static struct arrow_io_ops slow; /* a disk whose reads wait for `reads` */
static bool reads;		 /* atomic */
static unsigned int readers;	 /* waiting; atomic */

static void
take_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	assert_int_equal(status, XFER_DURABLE);
}

static void
path_of(char path[PATH], unsigned int run, const char *end)
{
	snprintf(path, PATH, "%s/r-%u/r_fedcba9876543210_000001_frames.arrow%s", root, run, end);
}

static bool
is_there(unsigned int run, const char *end)
{
	char path[PATH];

	path_of(path, run, end);
	return access(path, F_OK) == 0;
}

/* Make a directory and a file as a store leaves them when it is killed. */
static void
leave(unsigned int run)
{
	char dir[PATH / 2], path[PATH], name[2 * PATH];
	struct stream_writer_config config = {
		.dir = dir,
		.run = "r",
		.identity = xfer_sample_identity(ARROW_FRAMES),
		.schema = &s.tables.schema[ARROW_FRAMES],
		.slices = {.mode = ARROW_IO_BUFFERED, .sync_ms = 1, .ahead = 1 << 17},
		.result = take_result,
	};
	struct stream_writer *w;
	unsigned int i;

	snprintf(dir, sizeof(dir), "%s/r-%u", root, run);
	assert_int_equal(mkdir(dir, 0755), 0);
	assert_int_equal(stream_writer_open(&w, &config), 0);
	for (i = 0; i < BATCHES; i++) {
		const struct xfer_sample_batch *b = &s.batch[ARROW_FRAMES][i];

		stream_writer_append(w, &(struct stream_batch){b->batch, b->metadata, b->body, i});
	}
	while (!stream_writer_settled(w))
		stream_writer_poll(w);
	/* restore the file as it was before stream_writer_close() */
	path_of(path, run, ".part");
	snprintf(name, sizeof(name), "cp %s %s/copy", path, dir);
	assert_int_equal(system(name), 0);
	stream_writer_close(w);
	snprintf(name, sizeof(name), "%s/copy", dir);
	assert_int_equal(rename(name, path), 0);
	path_of(path, run, "");
	assert_int_equal(unlink(path), 0);
}

static void
begin(const struct arrow_io_ops *io, uint64_t grace_ms)
{
	const struct store_completion_config config = {
		.root = root, .io = io, .grace_ms = grace_ms, .retry_ms = 20};

	assert_int_equal(store_completion_open(&c, &config), 0);
}

/* A root that cannot be read may have files. */
static void
test_a_root_that_cannot_be_read(void **state)
{
	const struct store_completion_config config = {.root = root};

	readdir_fails = true;
	assert_int_equal(store_completion_open(&c, &config), -EIO);
	readdir_fails = false;
	assert_null(c);
}

static struct store_completion_stats
look(void)
{
	struct store_completion_stats stats;

	store_completion_stats_get(c, &stats);
	return stats;
}

#define UNTIL(condition)                                                    \
	do {                                                                \
		const uint64_t limit = monotonic_ns() + SECONDS * NS_PER_S; \
		while (!(condition)) {                                      \
			assert_true(monotonic_ns() < limit);                \
			usleep(1000);                                       \
		}                                                           \
	} while (0)

/* The file is complete, and has all batches. */
static void
assert_is_whole(unsigned int run)
{
	char path[PATH];
	const char *problem;
	struct arrow_reader r;

	path_of(path, run, "");
	assert_int_equal(arrow_reader_open(&r, path, &problem), 0);
	assert_true(r.complete);
	assert_int_equal(r.nb_batches, BATCHES);
	arrow_reader_close(&r);
	assert_false(is_there(run, ".part"));
}

static int
begin_test(void **state)
{
	snprintf(root, sizeof(root), "/tmp/store_completion_XXXXXX");
	reads = false;
	readers = 0;
	c = NULL;
	return mkdtemp(root) != NULL ? 0 : -1;
}

static int
end_test(void **state)
{
	char command[128];

	store_completion_close(c);
	snprintf(command, sizeof(command), "rm -r %s", root);
	return system(command);
}

static void
test_nothing(void **state)
{
	begin(NULL, 0);
	assert_null(c);
	/* the functions accept a store with nothing to complete */
	store_completion_claim(c, NULL, "x");
	store_completion_release(c, NULL, NULL, NULL);
	assert_int_equal(look().files, 0);
}

/* No receiver reconnects: all files of stores are completed, other files are left alone. */
static void
test_no_receiver_reconnects(void **state)
{
	char path[PATH];
	struct stat st;
	FILE *f;

	leave(1);
	leave(2);
	path_of(path, 1, ".part");
	assert_int_equal(stat(path, &st), 0);
	snprintf(path, sizeof(path), "%s/r-1/.r_fedcba9876543210_000002_frames.arrow.part", root);
	f = fopen(path, "w");
	assert_non_null(f);
	fclose(f);
	begin(NULL, 300);
	assert_int_equal(look().files, 2);
	assert_int_equal(look().bytes, 2 * st.st_size);
	assert_true(is_there(1, ".part"));
	UNTIL(look().files == 0);
	assert_int_equal(look().bytes, 0);
	assert_int_equal(look().completed, 2);
	assert_int_equal(look().failed, 0);
	assert_is_whole(1);
	assert_is_whole(2);
	assert_int_equal(access(path, F_OK), 0);
}

/*
 * A receiver reconnects first: the files of its run are left to it, those of other runs are
 * completed.
 */
static void
test_claimed(void **state)
{
	const struct arrow_identity id = xfer_sample_identity(ARROW_IMAGES);
	struct store_claim claim, late;
	char dir[PATH / 2], late_dir[PATH / 2];

	leave(1);
	leave(2);
	leave(3);
	snprintf(dir, sizeof(dir), "%s/r-1", root);
	snprintf(late_dir, sizeof(late_dir), "%s/r-3", root);
	/* the claims are made within this time, also if the machine is busy */
	begin(NULL, 500);
	store_completion_claim(c, &claim, dir);
	store_completion_claim(c, &late, late_dir);
	UNTIL(look().completed == 1);
	assert_is_whole(2);
	usleep(50 * 1000);
	assert_true(is_there(1, ".part"));
	assert_true(is_there(3, ".part"));
	/*
	 * the first stream could not be opened; the second one writes its own files from now on
	 */
	store_completion_release(c, &late, NULL, NULL);
	store_completion_release(c, &claim, "r", &id);
	UNTIL(look().files == 0);
	assert_is_whole(3);
	assert_true(is_there(1, ".part"));
	assert_int_equal(look().completed, 2);
}

static int
slow_size(void *handle, uint64_t *size, uint64_t *allocated)
{
	__atomic_add_fetch(&readers, 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&reads, __ATOMIC_ACQUIRE))
		usleep(1000);
	return direct_io.size(handle, size, allocated);
}

static void *
let_read(void *arg)
{
	usleep(50 * 1000);
	__atomic_store_n(&reads, true, __ATOMIC_RELEASE);
	return NULL;
}

/*
 * A receiver claims its files while one is being read: the file is unchanged when the claim
 * returns.
 */
static void
test_given_up(void **state)
{
	struct store_claim claim;
	char dir[PATH / 2];
	pthread_t thread;

	slow = direct_io;
	slow.size = slow_size;
	leave(1);
	snprintf(dir, sizeof(dir), "%s/r-1", root);
	begin(&slow, 0);
	UNTIL(__atomic_load_n(&readers, __ATOMIC_ACQUIRE) == 1);
	assert_int_equal(pthread_create(&thread, NULL, let_read, NULL), 0);
	store_completion_claim(c, &claim, dir);
	assert_true(is_there(1, ".part"));
	assert_false(is_there(1, ""));
	assert_int_equal(look().files, 1);
	pthread_join(thread, NULL);
	store_completion_release(c, &claim, NULL, NULL);
	UNTIL(look().files == 0);
	assert_is_whole(1);
}

/* At SIGTERM the program does not wait until all files are read. */
static void
test_stopped(void **state)
{
	pthread_t thread;

	slow = direct_io;
	slow.size = slow_size;
	leave(1);
	leave(2);
	begin(&slow, 0);
	UNTIL(__atomic_load_n(&readers, __ATOMIC_ACQUIRE) == 1);
	store_completion_stop(c);
	assert_int_equal(pthread_create(&thread, NULL, let_read, NULL), 0);
	store_completion_close(c);
	c = NULL;
	pthread_join(thread, NULL);
	assert_true(is_there(1, ".part"));
	assert_true(is_there(2, ".part"));
	assert_int_equal(readers, 1);
	/* the next start completes all of them */
	begin(NULL, 0);
	UNTIL(look().files == 0);
	assert_is_whole(1);
	assert_is_whole(2);
}

/*
 * A file whose lock has outlived its process is completed later; a file that cannot be recovered is
 * kept.
 */
static void
test_locked_and_damaged(void **state)
{
	char path[PATH];
	int fd;

	leave(1);
	leave(2);
	path_of(path, 2, ".part");
	fd = open(path, O_WRONLY);
	assert_true(fd >= 0);
	/* both copies of its schema */
	assert_int_equal(pwrite(fd, "garbage", 7, 0), 7);
	assert_int_equal(pwrite(fd, "garbage", 7, ARROW_BLOCK), 7);
	close(fd);
	path_of(path, 1, ".part");
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	assert_int_equal(file_lock(fd, 0), 0);
	begin(NULL, 0);
	UNTIL(look().failed == 1);
	assert_true(is_there(2, ".part"));
	usleep(50 * 1000);
	assert_int_equal(look().files, 1);
	assert_true(is_there(1, ".part"));
	close(fd);
	UNTIL(look().files == 0);
	assert_is_whole(1);
	assert_int_equal(look().failed, 1);
}

#define NOBODY 65534

static void
folder_of(char dir[PATH], unsigned int run)
{
	snprintf(dir, PATH, "%s/r-%u", root, run);
}

/*
 * Files that another user made or can change are left alone; our own files next to them are
 * completed.
 */
static void
test_others(void **state)
{
	char dir[PATH], path[PATH], other[PATH];
	unsigned int run;

	if (geteuid() != 0)
		skip();
	assert_int_equal(chmod(root, 01777), 0);
	for (run = 1; run <= 7; run++)
		leave(run);
	folder_of(dir, 2);
	assert_int_equal(chmod(dir, 0777), 0);
	folder_of(dir, 3);
	assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
	path_of(path, 4, ".part");
	assert_int_equal(chown(path, NOBODY, NOBODY), 0);
	path_of(path, 5, ".part");
	snprintf(other, sizeof(other), "%s/second", root);
	assert_int_equal(link(path, other), 0);
	folder_of(dir, 6);
	snprintf(other, sizeof(other), "%s/.away", root);
	assert_int_equal(rename(dir, other), 0);
	assert_int_equal(symlink(other, dir), 0);
	path_of(path, 7, ".part");
	assert_int_equal(chmod(path, 0666), 0);
	begin(NULL, 0);
	UNTIL(look().files == 0);
	assert_int_equal(look().completed, 1);
	assert_int_equal(look().refused, 6);
	assert_is_whole(1);
	for (run = 2; run <= 7; run++)
		assert_true(is_there(run, ".part"));
}

/* The same if the files are changed after they were listed. */
static void
test_others_later(void **state)
{
	char dir[PATH], path[PATH], other[PATH];
	unsigned int run;

	if (geteuid() != 0)
		skip();
	for (run = 1; run <= 4; run++)
		leave(run);
	begin(NULL, 500);
	assert_int_equal(look().files, 4);
	path_of(path, 2, ".part");
	assert_int_equal(chown(path, NOBODY, NOBODY), 0);
	folder_of(dir, 3);
	snprintf(other, sizeof(other), "%s/.away", root);
	assert_int_equal(rename(dir, other), 0);
	assert_int_equal(symlink(other, dir), 0);
	folder_of(dir, 4);
	assert_int_equal(chown(dir, NOBODY, NOBODY), 0);
	UNTIL(look().files == 0);
	assert_int_equal(look().completed, 1);
	assert_int_equal(look().failed, 3);
	assert_is_whole(1);
	for (run = 2; run <= 4; run++)
		assert_true(is_there(run, ".part"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_nothing, begin_test, end_test),
		cmocka_unit_test_setup_teardown(
			test_a_root_that_cannot_be_read, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_no_receiver_reconnects, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_claimed, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_given_up, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_stopped, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_locked_and_damaged, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_others, begin_test, end_test),
		cmocka_unit_test_setup_teardown(test_others_later, begin_test, end_test),
	};
	int ret;

	xfer_sample_init(&s, 1, 64);
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	xfer_sample_free(&s);
	return ret;
}
