/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the list of finished runs of folders on a slow disk, where each look at a file takes 20 ms,
 * and on one with errors.
 */

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "runs.h"
#include "../io/failing_readdir.h"

#define FILES	   500
#define LOOK_MS	   20
#define PATIENCE_S 5

static char dir[64];
static unsigned int looks; /* atomic */

int __real_fstatat(int folder, const char *path, struct stat *st, int flags);
int __wrap_fstatat(int folder, const char *path, struct stat *st, int flags);
int __wrap_fstatat64(int folder, const char *path, struct stat *st, int flags);

static void
pause_ms(unsigned int ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

int
__wrap_fstatat(int folder, const char *path, struct stat *st, int flags)
{
	__atomic_add_fetch(&looks, 1, __ATOMIC_RELAXED);
	pause_ms(LOOK_MS);
	return __real_fstatat(folder, path, st, flags);
}

/* glibc's name of it if offsets have 64 bits */
int
__wrap_fstatat64(int folder, const char *path, struct stat *st, int flags)
{
	return __wrap_fstatat(folder, path, st, flags);
}

static void
for_files(const char *end, bool make)
{
	char path[128];
	int fd;

	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof(path), "%s/run%d%s", dir, i, end);
		if (!make) {
			unlink(path);
			continue;
		}
		fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
		assert_true(fd >= 0);
		close(fd);
	}
}

/* The list of the folder takes 10 s; the program must end before. */
static void
test_stop_while_listing(void **state)
{
	const char *const folders[] = {dir};
	struct runs *r;
	time_t begin;

	(void)state;
	for_files("_frames.arrow", true);
	looks = 0;
	r = runs_start(folders, 1);
	assert_non_null(r);
	for (int i = 0; i < PATIENCE_S * 100 && __atomic_load_n(&looks, __ATOMIC_RELAXED) < 3; i++)
		pause_ms(10);
	assert_true(__atomic_load_n(&looks, __ATOMIC_RELAXED) >= 3);
	begin = time(NULL);
	runs_stop(r);
	assert_true(time(NULL) - begin < PATIENCE_S);
	for_files("_frames.arrow", false);
}

static char *
wait_for_text(struct runs *r)
{
	char *text = NULL;

	for (int i = 0; i < PATIENCE_S * 100 && text == NULL; i++) {
		pause_ms(10);
		text = runs_text(r);
	}
	assert_non_null(text);
	return text;
}

/* Files of others need no look: a folder of data can have very many. */
static void
test_other_files_cost_nothing(void **state)
{
	const char *const folders[] = {dir};
	struct runs *r;
	char *text;

	(void)state;
	for_files(".cbf", true);
	looks = 0;
	r = runs_start(folders, 1);
	assert_non_null(r);
	text = wait_for_text(r);
	runs_stop(r);
	for_files(".cbf", false);
	assert_non_null(strstr(text, "\"runs\":[]"));
	free(text);
	assert_int_equal(looks, 0);
}

/* A folder that cannot be read may have more runs. */
static void
test_an_error_is_no_end(void **state)
{
	const char *const folders[] = {dir};
	FILE *const console = stderr;
	char *text, *said = NULL;
	struct runs *r;
	size_t size;

	(void)state;
	stderr = open_memstream(&said, &size);
	assert_non_null(stderr);
	__atomic_store_n(&readdir_fails, true, __ATOMIC_RELAXED);
	r = runs_start(folders, 1);
	text = wait_for_text(r);
	runs_stop(r);
	__atomic_store_n(&readdir_fails, false, __ATOMIC_RELAXED);
	fclose(stderr);
	stderr = console;
	assert_non_null(strstr(text, "\"truncated\":true"));
	assert_non_null(strstr(said, dir));
	assert_non_null(strstr(said, strerror(EIO)));
	free(text);
	free(said);
}

static int
set_up(void **state)
{
	(void)state;
	/* tmpfs reports the types of files in readdir(3) */
	strcpy(dir, "/dev/shm/runs_test.XXXXXX");
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static int
tear_down(void **state)
{
	(void)state;
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_stop_while_listing),
		cmocka_unit_test(test_other_files_cost_nothing),
		cmocka_unit_test(test_an_error_is_no_end),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
