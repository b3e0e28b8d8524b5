/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories that cannot be read to their end, which may have more files, or have too many. */

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "data_file.h"
#include "follow.h"
#include "follow_run.h"
#include "../io/failing_readdir.h"

static char dir[] = "/tmp/directory_test.XXXXXX";

static void
test_data_files_may_be_hidden(void **state)
{
	struct export e = {.per_file = 1};

	snprintf(e.stem, sizeof(e.stem), "%s/run", dir);
	assert_int_equal(data_file_check_others(&e, false), 0);
	readdir_fails = true;
	assert_int_equal(data_file_check_others(&e, false), -EIO);
	readdir_fails = false;
	assert_non_null(strstr(e.message, dir));
	assert_non_null(strstr(e.message, strerror(EIO)));
}

static void
end_follow(int number)
{
	(void)raise(SIGTERM);
}

/* It tries again until it is ended, and what it has not seen may be missing then. */
static void
test_a_follower_reports_what_it_cannot_list(void **state)
{
	char *run[] = {dir}, *said = NULL;
	const struct options o = {.follow = true, .output = dir, .run = run, .nb_runs = 1};
	FILE *const console = stderr;
	size_t size;
	int ret;

	stderr = open_memstream(&said, &size);
	assert_non_null(stderr);
	readdir_fails = true;
	signal(SIGALRM, end_follow);
	alarm(1);
	ret = follow(&o);
	signal(SIGALRM, SIG_DFL);
	readdir_fails = false;
	fclose(stderr);
	stderr = console;
	assert_int_equal(ret, -EINVAL);
	assert_non_null(strstr(said, dir));
	assert_non_null(strstr(said, strerror(EIO)));
	free(said);
}

static void
for_sets(const char *many, bool make)
{
	char path[128];

	for (unsigned int i = 0; i <= FOLLOW_SETS_MAX; i++) {
		snprintf(path, sizeof(path), "%s/run_%06u_images.arrow", many, i);
		if (make)
			assert_int_equal(mknod(path, S_IFREG | 0600, 0), 0);
		else
			assert_int_equal(unlink(path), 0);
	}
}

/* The follower has been ended by the test before: it lists once, and keeps its lock. */
static void
test_too_many_sets_are_reported(void **state)
{
	char many[64], lock[80], *run[] = {many}, *said = NULL;
	const struct options o = {.follow = true, .output = many, .run = run, .nb_runs = 1};
	FILE *const console = stderr;
	size_t size;
	int ret;

	snprintf(many, sizeof(many), "%s/many", dir);
	assert_int_equal(mkdir(many, 0700), 0);
	for_sets(many, true);
	stderr = open_memstream(&said, &size);
	assert_non_null(stderr);
	ret = follow(&o);
	fclose(stderr);
	stderr = console;
	for_sets(many, false);
	snprintf(lock, sizeof(lock), "%s/.export.lock", many);
	(void)unlink(lock);
	assert_int_equal(rmdir(many), 0);
	assert_int_equal(ret, -EINVAL);
	assert_non_null(strstr(said, "more sets of files than --follow can read"));
	free(said);
}

static int
setup(void **state)
{
	return mkdtemp(dir) != NULL ? 0 : -1;
}

static int
teardown(void **state)
{
	char path[64];

	snprintf(path, sizeof(path), "%s/.export.lock", dir);
	(void)unlink(path);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_data_files_may_be_hidden),
		cmocka_unit_test(test_a_follower_reports_what_it_cannot_list),
		cmocka_unit_test(test_too_many_sets_are_reported),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
