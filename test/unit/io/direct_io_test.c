/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests direct I/O on the kernel's own file systems: every mode writes the same bytes and reports
 * the mode in use.
 */

#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/async_writer.h"
#include "io/direct_io.h"

#define SIZE (1 << 20)

static char path[64];
static uint8_t *data;

static int
setup(void **state)
{
	unsigned int i;

	strcpy(path, "/tmp/direct_io_XXXXXX");
	close(mkstemp(path));
	unlink(path);
	data = aligned_alloc(4096, SIZE);
	for (i = 0; i < SIZE; i++)
		data[i] = i * 2654435761u >> 24;
	return 0;
}

static int
teardown(void **state)
{
	unlink(path);
	free(data);
	return 0;
}

static void
check_file(const char *name, uint64_t size)
{
	uint8_t *found = malloc(size + 1);
	FILE *f = fopen(name, "r");

	assert_non_null(f);
	assert_int_equal(fread(found, 1, size + 1, f), size);
	assert_memory_equal(found, data, size);
	fclose(f);
	free(found);
}

/* Write full and partial slices from aligned and unaligned memory; the file has the same bytes. */
static void
write_all(enum arrow_io_mode mode, const char *name)
{
	const struct async_writer_config config = {
		.mode = mode, .slice = 65536, .depth = 4, .sync_bytes = 200000, .ahead = 1 << 18};
	uint8_t *shifted = malloc(SIZE + 64);
	const struct arrow_io_info *info;
	struct async_writer s;
	struct iovec iov[3];
	uint64_t at, part;
	unsigned int n;
	struct stat st;

	memcpy(shifted + 8, data, SIZE);
	assert_int_equal(async_writer_open(&s, &config, name), 0);
	info = direct_io.info(s.handle);
	assert_true(mode == ARROW_IO_AUTO || info->mode <= mode);
	print_message("%s: %s %s\n", name, arrow_io_mode_name(info->mode), info->why);
	assert_int_equal(info->mode == ARROW_IO_DIRECT_URING, info->why[0] == '\0');
	for (at = 0, n = 0; at < SIZE; at += part, n++) {
		part = 4096 * (1 + n * 7 % 60);
		if (part > SIZE - at)
			part = SIZE - at;
		if (n % 3 == 0) {
			/*
			 * two parts, the first of 64 bytes: direct I/O can write neither from where
			 * it lies
			 */
			iov[0] = (struct iovec){data + at, 64};
			iov[1] = (struct iovec){shifted + 8 + at + 64, part - 64};
			iov[2] = (struct iovec){NULL, 0};
		} else {
			iov[0] = (struct iovec){data + at, part / 8192 * 4096};
			iov[1] = (struct iovec){data + at, 0};
			iov[2] = (struct iovec){data + at + iov[0].iov_len, part - iov[0].iov_len};
		}
		assert_int_equal(async_writer_put(&s, iov, 3, n % 3 != 0), 0);
	}
	assert_int_equal(async_writer_end(&s), 0);
	assert_int_equal(s.durable, SIZE);
	assert_true(s.syncs >= 1); /* the number of further syncs depends on timing */
	async_writer_close(&s);
	assert_int_equal(stat(name, &st), 0);
	assert_int_equal(st.st_size, SIZE);
	check_file(name, SIZE);
	free(shifted);
}

static void
every_mode(void **state)
{
	enum arrow_io_mode mode;

	for (mode = ARROW_IO_AUTO; mode <= ARROW_IO_DIRECT_URING; mode++) {
		write_all(mode, path);
		unlink(path);
	}
}

/* A file that nobody can write is not left behind. */
static void
wrong_depth(void **state)
{
	static const unsigned int depths[] = {0, ARROW_IO_DEPTH_MAX + 1};
	void *handle;

	for (size_t i = 0; i < sizeof(depths) / sizeof(depths[0]); i++) {
		const struct arrow_io_open how = {path, false, ARROW_IO_AUTO, depths[i]};

		assert_int_equal(direct_io.open(&handle, &how), -EINVAL);
		assert_int_equal(access(path, F_OK), -1);
	}
}

/*
 * Recent kernels accept O_DIRECT on a file system in memory; the mode must not be reported as
 * direct.
 */
static void
in_memory(void **state)
{
	char name[48];
	const struct arrow_io_open how = {name, false, ARROW_IO_DIRECT_URING, 2};
	void *handle;

	snprintf(name, sizeof(name), "/dev/shm/direct_io_test-%d", getpid());
	unlink(name);
	if (direct_io.open(&handle, &how) < 0) {
		print_message("no /dev/shm\n");
		skip();
	}
	assert_int_equal(direct_io.info(handle)->mode, ARROW_IO_BUFFERED);
	assert_non_null(strstr(direct_io.info(handle)->why, "memory"));
	direct_io.close(handle);
	unlink(name);
	write_all(ARROW_IO_AUTO, name);
	unlink(name);
}

/* A short write is continued, and fails if the file cannot grow. */
static void
short_writes(void **state)
{
	const struct async_writer_config config = {.slice = 65536, .depth = 4};
	const struct rlimit less = {5 * 65536 + 8192, RLIM_INFINITY};
	struct async_writer_config c = config;
	struct iovec iov = {data, SIZE};
	enum arrow_io_mode mode;
	struct async_writer s;
	struct rlimit before;

	signal(SIGXFSZ, SIG_IGN);
	for (mode = ARROW_IO_BUFFERED; mode <= ARROW_IO_DIRECT_URING; mode++) {
		c.mode = mode;
		assert_int_equal(async_writer_open(&s, &c, path), 0);
		getrlimit(RLIMIT_FSIZE, &before);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &less), 0);
		async_writer_put(&s, &iov, 1, true);
		assert_int_equal(async_writer_flush(&s), -EFBIG);
		assert_int_equal(s.written, 5 * 65536);
		/* the part that is known to be written can be closed */
		async_writer_cut(&s, 4 * 65536);
		assert_int_equal(async_writer_end(&s), 0);
		async_writer_close(&s);
		setrlimit(RLIMIT_FSIZE, &before);
		check_file(path, 4 * 65536);
		unlink(path);
	}
}

/* Replacements of libc's functions: pwritev() writes at most this many bytes, fdatasync() fails. */
static size_t write_at_most;
static int sync_error;

ssize_t
pwritev(int fd, const struct iovec *iov, int n, off_t offset)
{
	const size_t size = write_at_most < iov->iov_len ? write_at_most : iov->iov_len;

	if (write_at_most > 0)
		return pwrite(fd, iov->iov_base, size, offset);
	return syscall(SYS_pwritev, fd, iov, n, offset, 0);
}

int
fdatasync(int fd)
{
	errno = sync_error;
	return sync_error != 0 ? -1 : (int)syscall(SYS_fdatasync, fd);
}

/* Without io_uring: the rest of a short write is written by the next call; errors are reported. */
static void
rest_of_a_write(void **state)
{
	const struct arrow_io_open how = {path, false, ARROW_IO_BUFFERED, 1};
	const struct iovec iov[2] = {{data, 10000}, {data + 10000, 5000}};
	struct arrow_io_done done;
	void *handle;

	assert_int_equal(direct_io.open(&handle, &how), 0);
	write_at_most = 4096;
	assert_int_equal(direct_io.write(handle, iov, 2, 0, 7), 0);
	write_at_most = 0;
	assert_int_equal(direct_io.reap(handle, true, &done), 1);
	assert_int_equal(done.tag, 7);
	assert_int_equal(done.error, 0);
	sync_error = EIO;
	assert_int_equal(direct_io.sync(handle, 8), 0);
	sync_error = 0;
	assert_int_equal(direct_io.reap(handle, true, &done), 1);
	assert_int_equal(done.tag, 8);
	assert_int_equal(done.error, -EIO);
	assert_int_equal(direct_io.close(handle), 0);
	check_file(path, 15000);
	unlink(path);
}

/* Opening, renaming and removing: which errors existing, missing and locked files give. */
static void
names(void **state)
{
	const struct arrow_io_open create = {path, false, ARROW_IO_AUTO, 1};
	const struct arrow_io_open existing = {path, true, ARROW_IO_BUFFERED, 1};
	char other[80];
	void *a, *b;

	snprintf(other, sizeof(other), "%s.other", path);
	assert_int_equal(direct_io.open(&a, &existing), -ENOENT);
	assert_int_equal(direct_io.open(&a, &create), 0);
	assert_int_equal(direct_io.open(&b, &create), -EEXIST);
	assert_int_equal(direct_io.open(&b, &existing), -EBUSY);
	assert_int_equal(direct_io.rename(path, other), 0);
	assert_int_equal(direct_io.rename(path, other), -ENOENT);
	assert_int_equal(direct_io.open(&b, &create), 0);
	assert_int_equal(direct_io.rename(path, other), -EEXIST);
	assert_int_equal(direct_io.sync_dir(path), 0);
	assert_int_equal(direct_io.close(a), 0);
	assert_int_equal(direct_io.close(b), 0);
	assert_int_equal(direct_io.remove(other), 0);
	assert_int_equal(direct_io.remove(other), -ENOENT);
	assert_int_equal(direct_io.open(&b, &existing), 0);
	direct_io.close(b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(every_mode, setup, teardown),
		cmocka_unit_test_setup_teardown(wrong_depth, setup, teardown),
		cmocka_unit_test_setup_teardown(in_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(short_writes, setup, teardown),
		cmocka_unit_test_setup_teardown(rest_of_a_write, setup, teardown),
		cmocka_unit_test_setup_teardown(names, setup, teardown),
	};

	return cmocka_run_group_tests_name("direct_io", tests, NULL, NULL);
}
