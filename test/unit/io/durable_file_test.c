/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests files that are replaced atomically: the order of the calls, and the failure of each call.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <dirent.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "io/durable_file.h"
#include "io/own_file.h"

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __real_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags);
int __wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags);

static char folder[] = "/tmp/durable_file_XXXXXX";
static char path[PATH_MAX];
static char calls[16]; /* s: a file is synced, r: renamed, d: a directory is synced */
static char failing;   /* the call that fails */
static ino_t synced;   /* inode of the last file synced */

static int
call(char what)
{
	const size_t n = strlen(calls);

	assert_true(n + 1 < sizeof(calls));
	calls[n] = what;
	errno = EIO;
	return what == failing ? -1 : 0;
}

int
__wrap_fsync(int fd)
{
	struct stat s;

	assert_int_equal(fstat(fd, &s), 0);
	synced = s.st_ino;
	return call(S_ISDIR(s.st_mode) ? 'd' : 's') < 0 ? -1 : __real_fsync(fd);
}

int
__wrap_rename(const char *from, const char *to)
{
	return call('r') < 0 ? -1 : __real_rename(from, to);
}

int
__wrap_renameat2(int from_at, const char *from, int to_at, const char *to, unsigned int flags)
{
	return call('r') < 0 ? -1 : __real_renameat2(from_at, from, to_at, to, flags);
}

static uint32_t
count_files(void)
{
	DIR *d = opendir(folder);
	uint32_t n = 0;

	assert_non_null(d);
	for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

static void
assert_content(const char *text)
{
	char got[64];
	FILE *f = fopen(path, "r");
	size_t n;

	assert_non_null(f);
	n = fread(got, 1, sizeof(got), f);
	fclose(f);
	assert_int_equal(n, strlen(text));
	assert_memory_equal(got, text, n);
}

static int
begin(void **state)
{
	memset(calls, 0, sizeof(calls));
	failing = 0;
	snprintf(path, sizeof(path), "%s/file", folder);
	unlink(path);
	return 0;
}

static void
test_order(void **state)
{
	assert_int_equal(durable_file_replace(path, "abc", 3), 0);
	assert_string_equal(calls, "srd");
	assert_content("abc");
	begin(NULL);
	assert_int_equal(durable_file_create(path, "def", 3), 0);
	assert_string_equal(calls, "srd");
	assert_content("def");
	assert_int_equal(count_files(), 1);
}

/* A large file is synced in several steps, each of which is progress. */
static void
test_large(void **state)
{
	const uint64_t before = durable_file_ended();
	const size_t size = ((size_t)64 << 20) + 1;
	char *data = calloc(1, size);

	assert_non_null(data);
	assert_int_equal(durable_file_replace(path, data, size), 0);
	assert_int_equal(durable_file_ended() - before, 2);
	free(data);
}

static void
test_replaces(void **state)
{
	assert_int_equal(durable_file_replace(path, "old one", 7), 0);
	assert_int_equal(durable_file_replace(path, "new", 3), 0);
	assert_content("new");
}

static void
test_replaces_no_device(void **state)
{
	struct stat st;

	/* a FIFO stands for a device, which only root can create */
	assert_int_equal(mkfifo(path, 0600), 0);
	assert_int_equal(durable_file_replace(path, "new", 3), -EMEDIUMTYPE);
	assert_int_equal(lstat(path, &st), 0);
	assert_true(S_ISFIFO(st.st_mode));
	assert_string_equal(calls, "");
	assert_int_equal(unlink(path), 0);
	assert_int_equal(mkdir(path, 0700), 0);
	assert_int_equal(durable_file_replace(path, "new", 3), -EISDIR);
	assert_int_equal(rmdir(path), 0);
	assert_int_equal(symlink("nowhere", path), 0);
	assert_int_equal(durable_file_replace(path, "new", 3), 0);
	assert_content("new");
	assert_int_equal(count_files(), 1);
}

/*
 * durable_file_create() overwrites neither the file nor its temporary file, and leaves none of its
 * own.
 */
static void
test_overwrites_nothing(void **state)
{
	char part[PATH_MAX + 8];

	snprintf(part, sizeof(part), "%s.part", path);
	assert_int_equal(durable_file_create(path, "old", 3), 0);
	assert_int_equal(durable_file_create(path, "new", 3), -EEXIST);
	assert_content("old");
	assert_int_equal(count_files(), 1);
	assert_int_equal(__real_rename(path, part), 0);
	assert_int_equal(durable_file_create(path, "new", 3), -EEXIST);
	assert_int_equal(count_files(), 1);
	/* a dangling link is an existing name, too: the rename fails */
	assert_int_equal(unlink(part), 0);
	assert_int_equal(symlink("nowhere", path), 0);
	assert_int_equal(durable_file_create(path, "new", 3), -EEXIST);
	assert_int_equal(count_files(), 1);
}

static void
test_fails(void **state)
{
	const struct rlimit small = {.rlim_cur = 2, .rlim_max = RLIM_INFINITY};
	struct rlimit before;

	for (const char *at = "sr"; *at != '\0'; at++) {
		begin(NULL);
		failing = *at;
		assert_int_equal(durable_file_create(path, "abc", 3), -EIO);
		assert_int_equal(count_files(), 0);
		failing = 0;
		assert_int_equal(durable_file_replace(path, "old", 3), 0);
		failing = *at;
		assert_int_equal(durable_file_replace(path, "new", 3), -EIO);
		assert_content("old");
		assert_int_equal(count_files(), 1);
	}
	/* the new name may be lost at a power failure: this is an error */
	begin(NULL);
	failing = 'd';
	assert_int_equal(durable_file_create(path, "abc", 3), -EIO);
	begin(NULL);
	/* file size limit */
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &before);
	setrlimit(RLIMIT_FSIZE, &small);
	assert_int_equal(durable_file_create(path, "abc", 3), -EFBIG);
	setrlimit(RLIMIT_FSIZE, &before);
	assert_int_equal(count_files(), 0);
	snprintf(path, sizeof(path), "%s/no/file", folder);
	assert_int_equal(durable_file_create(path, "abc", 3), -ENOENT);
	memset(path, 'p', sizeof(path));
	path[PATH_MAX - 3] = '\0';
	assert_true(durable_file_create(path, "abc", 3) < 0);
	assert_int_equal(durable_file_replace(path, "abc", 3), -ENAMETOOLONG);
}

/* Creating a directory makes its name durable: the parent directory is synced. */
static void
test_directory(void **state)
{
	char dir[PATH_MAX], message[PATH_MAX];
	struct stat s;
	unsigned int i;
	int fd;

	snprintf(dir, sizeof(dir), "%s/made", folder);
	assert_int_equal(stat(folder, &s), 0);
	/* the second time the directory exists, and its name ends with slashes */
	for (i = 0; i < 2; i++) {
		synced = 0;
		memset(calls, 0, sizeof(calls));
		assert_int_equal(durable_dir_make(dir, 0755), 0);
		assert_string_equal(calls, "d");
		assert_int_equal(synced, s.st_ino);
		strcat(dir, "//");
	}
	/* own_folder_make() does the same for the folder of a run */
	snprintf(dir, sizeof(dir), "%s/made", folder);
	memset(calls, 0, sizeof(calls));
	synced = 0;
	fd = own_folder_make(dir, OWN_FOLDER_RUN, message);
	assert_true(fd >= 0);
	close(fd);
	assert_string_equal(calls, "d");
	assert_int_equal(synced, s.st_ino);
	memset(calls, 0, sizeof(calls));
	failing = 'd';
	assert_int_equal(durable_dir_make(dir, 0755), -EIO);
	failing = 0;
	memset(calls, 0, sizeof(calls));
	strcat(dir, "no/parent");
	assert_int_equal(durable_dir_make(dir, 0755), -ENOENT);
	assert_string_equal(calls, "");
	snprintf(dir, sizeof(dir), "%s/made", folder);
	assert_int_equal(rmdir(dir), 0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_order, begin),
		cmocka_unit_test_setup(test_large, begin),
		cmocka_unit_test_setup(test_replaces, begin),
		cmocka_unit_test_setup(test_replaces_no_device, begin),
		cmocka_unit_test_setup(test_overwrites_nothing, begin),
		cmocka_unit_test_setup(test_fails, begin),
		cmocka_unit_test_setup(test_directory, begin),
	};
	int failed;

	if (mkdtemp(folder) == NULL)
		return EXIT_FAILURE;
	failed = cmocka_run_group_tests_name("durable_file", tests, NULL, NULL);
	begin(NULL);
	rmdir(folder);
	return failed;
}
