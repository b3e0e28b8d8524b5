/* SPDX-License-Identifier: BSD-3-Clause */
/* Directories in which runs are found. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "watch.h"
#include "../io/failing_readdir.h"

static char dir[] = "/tmp/watch_test.XXXXXX";

static void
test_a_directory_that_cannot_be_read_is_reported(void **state)
{
	char *dirs[] = {dir}, *said = NULL;
	const struct watch_config config = {.dir = dirs, .nb_dirs = 1};
	FILE *const console = stderr;
	struct feed feed;
	struct watch *w;
	size_t size;
	int ret;

	assert_int_equal(feed_init(&feed), 0);
	stderr = open_memstream(&said, &size);
	assert_non_null(stderr);
	readdir_fails = true;
	ret = watch_create(&w, &config, &feed);
	readdir_fails = false;
	fclose(stderr);
	stderr = console;
	assert_int_equal(ret, 0);
	watch_destroy(w);
	feed_free(&feed);
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
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_directory_that_cannot_be_read_is_reported),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
