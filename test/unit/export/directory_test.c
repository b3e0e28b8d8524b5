/* SPDX-License-Identifier: BSD-3-Clause */
/* A directory that cannot be read to its end is an error: more files may be in it. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "data_file.h"
#include "follow.h"
#include "../io/failing_readdir.h"

#define PATIENCE_S 20

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
test_a_follower_does_not_wait_for_what_it_cannot_list(void **state)
{
	char *run[] = {dir}, *said = NULL;
	const struct options o = {.follow = true, .output = dir, .run = run, .nb_runs = 1};
	FILE *const console = stderr;
	size_t size;
	int ret;

	stderr = open_memstream(&said, &size);
	assert_non_null(stderr);
	readdir_fails = true;
	/* a follower that goes on ends this test */
	alarm(PATIENCE_S);
	ret = follow(&o);
	alarm(0);
	readdir_fails = false;
	fclose(stderr);
	stderr = console;
	assert_int_equal(ret, -EINVAL);
	assert_non_null(strstr(said, dir));
	assert_non_null(strstr(said, strerror(EIO)));
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
		cmocka_unit_test(test_a_follower_does_not_wait_for_what_it_cannot_list),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
