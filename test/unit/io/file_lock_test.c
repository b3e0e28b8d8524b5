/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests file locks whose owner is alive, locks that outlive their owner, and read locks of others.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../stream/left_lock.h"
#include "io/dir_lock.h"
#include "io/direct_io.h"

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
	/* so long that a busy machine finds it locked */
	(void)left_lock(path, 5 * LEFT_MS);
	assert_int_equal(file_lock(fd, 0), -EBUSY);
	assert_int_equal(file_lock(fd, 60000), 0);
	assert_in_range(ms_since(&begin), 5 * LEFT_MS - 1, 30000);
	close(fd);
}

static void
test_time_limit(void **state)
{
	const pid_t holder = left_lock(path, 60000);
	int fd = open(path, O_RDWR);
	struct timespec begin;

	clock_gettime(CLOCK_MONOTONIC, &begin);
	assert_int_equal(file_lock(fd, LEFT_MS / 2), -EBUSY);
	assert_true(ms_since(&begin) >= LEFT_MS / 2 - 1);
	assert_int_equal(kill(holder, SIGKILL), 0);
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

/* Lock a file as a user does who may only read it. */
static int
read_lock(const char *name)
{
	const struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	const int fd = open(name, O_RDONLY);

	assert_true(fd >= 0);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), 0);
	return fd;
}

/* Readers prevent a write lock, but not the attempt to find that there are only readers. */
static void
test_read_locks(void **state)
{
	int fd = open(path, O_RDWR), other = open(path, O_RDWR), reader = read_lock(path);

	assert_int_equal(file_lock(fd, 0), -EBUSY);
	assert_int_equal(file_lock_or_read(fd, 60000), 1);
	/* the read lock keeps write locks away */
	close(reader);
	assert_int_equal(file_lock(other, 0), -EBUSY);
	close(fd);
	assert_int_equal(file_lock_or_read(other, 0), 0);
	fd = open(path, O_RDWR);
	assert_int_equal(file_lock_or_read(fd, 0), -EBUSY);
	close(fd);
	close(other);
}

static char dir[] = "/tmp/dir_lock_XXXXXX", run[64], lock_path[96];
static unsigned int warnings;

static void
count_warning(const char *text)
{
	warnings++;
}

static int
begin_dir(void **state)
{
	strcpy(dir + strlen(dir) - 6, "XXXXXX");
	umask(022);
	warnings = 0;
	file_lock_warn = count_warning;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(run, sizeof(run), "%s/run", dir);
	snprintf(lock_path, sizeof(lock_path), "%s/run/.lock", dir);
	return mkdir(run, 0755);
}

static int
end_dir(void **state)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

static mode_t
mode_of(const char *name)
{
	struct stat st;

	assert_int_equal(lstat(name, &st), 0);
	return st.st_mode & 07777;
}

static int
take(void)
{
	char message[PATH_MAX];

	return dir_lock(run, DIR_LOCK_NAME, true, 0, message);
}

/* Only its owner can read a lock file; the mode of an existing one is corrected. */
static void
test_dir_mode(void **state)
{
	int fd = take();

	assert_true(fd >= 0);
	assert_int_equal(mode_of(lock_path), 0600);
	assert_int_equal(take(), -EBUSY);
	dir_lock_release(fd);
	chmod(lock_path, 0644);
	fd = take();
	assert_true(fd >= 0);
	assert_int_equal(mode_of(lock_path), 0600);
	dir_lock_release(fd);
	assert_int_equal(warnings, 0);
}

/* A lock file that others have locked for reading is replaced, also after a crash in between. */
static void
test_dir_replaced(void **state)
{
	char left[128];
	int fd, reader;

	close(open(lock_path, O_RDWR | O_CREAT, 0644));
	snprintf(left, sizeof(left), "%s.new", lock_path);
	close(open(left, O_RDWR | O_CREAT, 0600));
	reader = read_lock(lock_path);
	fd = take();
	assert_true(fd >= 0);
	assert_int_equal(warnings, 1);
	assert_int_equal(mode_of(lock_path), 0600);
	assert_int_equal(access(left, F_OK), -1);
	assert_int_equal(take(), -EBUSY);
	dir_lock_release(fd);
	fd = take();
	assert_true(fd >= 0);
	dir_lock_release(fd);
	close(reader);
}

/* A process that replaces the file excludes others. */
static void
test_dir_replaced_by_other(void **state)
{
	char new[128];
	int reader, other;

	close(open(lock_path, O_RDWR | O_CREAT, 0644));
	snprintf(new, sizeof(new), "%s.new", lock_path);
	other = open(new, O_RDWR | O_CREAT, 0600);
	assert_int_equal(file_lock(other, 0), 0);
	reader = read_lock(lock_path);
	assert_int_equal(take(), -EBUSY);
	close(other);
	close(reader);
}

/* A file that was put in place of the new one is neither used nor given to another owner. */
static void
test_dir_new_is_not_ours(void **state)
{
	char new[128];
	struct stat st;
	int reader, fd;

	close(open(lock_path, O_RDWR | O_CREAT, 0644));
	snprintf(new, sizeof(new), "%s.new", lock_path);
	fd = open(new, O_RDWR | O_CREAT, 0600);
	assert_int_equal(write(fd, "secret", 6), 6);
	close(fd);
	reader = read_lock(lock_path);
	assert_int_equal(take(), -EPERM);
	assert_int_equal(stat(new, &st), 0);
	assert_int_equal(st.st_size, 6);
	assert_int_equal(st.st_uid, geteuid());
	close(reader);
	unlink(new);
}

static void
test_dir_owner(void **state)
{
	char message[PATH_MAX];

	if (geteuid() != 0)
		skip();
	close(open(lock_path, O_RDWR | O_CREAT, 0644));
	assert_int_equal(chown(lock_path, 65534, 65534), 0);
	assert_int_equal(dir_lock(run, DIR_LOCK_NAME, true, 0, message), -EPERM);
	assert_non_null(strstr(message, "owner is user 65534; expected this user (0)"));
}

static void
test_dir_shared(void **state)
{
	int fd, more;

	assert_int_equal(dir_lock_share(run, DIR_LOCK_NAME), -ENOENT);
	fd = take();
	more = dir_lock_share(run, DIR_LOCK_NAME);
	assert_true(more >= 0);
	dir_lock_release(fd);
	assert_int_equal(take(), -EBUSY);
	dir_lock_release(more);
	assert_int_equal(dir_lock_share(run, DIR_LOCK_NAME), -ENOENT);
	fd = take();
	assert_true(fd >= 0);
	dir_lock_release(fd);
}

static int
open_data(const char *name, bool existing, void **handle)
{
	const struct arrow_io_open how = {name, existing, ARROW_IO_BUFFERED, 1};

	return direct_io.open(handle, &how);
}

/* A created file cannot be read before it is locked; afterwards it has the usual mode. */
static void
test_data_mode(void **state)
{
	const struct flock whole = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
	char name[96];
	void *handle;
	int fd;

	snprintf(name, sizeof(name), "%s/a.arrow.part", run);
	umask(027);
	assert_int_equal(open_data(name, false, &handle), 0);
	assert_int_equal(mode_of(name), 0640);
	fd = open(name, O_RDONLY);
	assert_int_equal(fcntl(fd, F_OFD_SETLK, &whole), -1);
	close(fd);
	direct_io.close(handle);
}

/*
 * A file that others have locked for reading is opened under the lock of its directory. A second
 * process does not get it, and neither does this process a second time.
 */
static void
test_data_readers(void **state)
{
	char name[96], message[PATH_MAX];
	void *handle, *second;
	int reader, store, other;

	snprintf(name, sizeof(name), "%s/a.arrow", run);
	close(open(name, O_RDWR | O_CREAT, 0644));
	reader = read_lock(name);
	assert_int_equal(open_data(name, true, &handle), 0);
	assert_int_equal(warnings, 1);
	assert_int_equal(open_data(name, true, &second), -EBUSY);
	assert_int_equal(take(), -EBUSY);
	direct_io.close(handle);

	/* another process has the lock of the directory, or of the store */
	other = open(lock_path, O_RDWR);
	assert_int_equal(file_lock(other, 0), 0);
	assert_int_equal(open_data(name, true, &handle), -EBUSY);
	close(other);
	snprintf(message, sizeof(message), "%s/.lock", dir);
	other = open(message, O_RDWR | O_CREAT, 0600);
	assert_int_equal(file_lock(other, 0), 0);
	assert_int_equal(open_data(name, true, &handle), -EBUSY);
	close(other);

	/* this process has it, as a store and its commands do */
	store = dir_lock(dir, DIR_LOCK_NAME, false, 0, message);
	assert_true(store >= 0);
	assert_int_equal(open_data(name, true, &handle), 0);
	/* it lasts as long as the file is open */
	dir_lock_release(store);
	assert_int_equal(dir_lock(dir, DIR_LOCK_NAME, false, 0, message), -EBUSY);
	direct_io.close(handle);
	store = dir_lock(dir, DIR_LOCK_NAME, false, 0, message);
	assert_true(store >= 0);
	dir_lock_release(store);
	close(reader);
	assert_int_equal(open_data(name, true, &handle), 0);
	direct_io.close(handle);
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
		cmocka_unit_test(test_time_limit),
		cmocka_unit_test(test_owned),
		cmocka_unit_test(test_reader),
		cmocka_unit_test(test_read_locks),
		cmocka_unit_test_setup_teardown(test_dir_mode, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_dir_replaced, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_dir_replaced_by_other, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_dir_new_is_not_ours, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_dir_owner, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_dir_shared, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_data_mode, begin_dir, end_dir),
		cmocka_unit_test_setup_teardown(test_data_readers, begin_dir, end_dir),
	};

	return cmocka_run_group_tests(tests, begin, end);
}
