/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the check of bodies of all sizes by the lcore and by threads.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "io/body_check.h"

#define JOBS 32
#define BODY (2u * STORE_CHECK_INLINE)

static struct store_check check;
static char message[PATH_MAX];

static void
open_host(enum store_check_mode mode)
{
	const struct store_bodies bodies = {.gpu = -1, .system = true};

	assert_int_equal(store_check_open(&check, mode, &bodies, message), 0);
}

static void
test_modes(void **state)
{
	const struct store_bodies gpu = {.gpu = 0};

	open_host(STORE_CHECK_AUTO);
	assert_int_equal(check.mode, STORE_CHECK_ALL);
	store_check_close(&check);
	open_host(STORE_CHECK_OFF);
	assert_int_equal(check.mode, STORE_CHECK_OFF);
	assert_null(check.pool);
	store_check_close(&check);
	assert_int_equal(store_check_open(&check, STORE_CHECK_AUTO, &gpu, message), 0);
	assert_int_equal(check.mode, STORE_CHECK_SAMPLED);
	assert_false(check.host);
	store_check_close(&check);
}

static void
test_bodies(void **state)
{
	static struct store_check_job job[JOBS];
	uint8_t *body = malloc(BODY);
	unsigned int i;

	assert_non_null(body);
	for (i = 0; i < BODY; i++)
		body[i] = i * 2654435761u >> 24;
	open_host(STORE_CHECK_ALL);
	for (i = 0; i < JOBS; i++) {
		job[i].body = body;
		job[i].bytes = i % 2 ? BODY - 4096 * i : 4096 * (i + 1);
		store_check_begin(&check, &job[i]);
		assert_true(job[i].bytes > STORE_CHECK_INLINE || store_check_is_done(&job[i]));
	}
	for (i = 0; i < JOBS; i++) {
		while (!store_check_is_done(&job[i]))
			usleep(100);
		assert_int_equal(job[i].error, 0);
		assert_int_equal(job[i].crc, arrow_crc32c(0, body, job[i].bytes));
	}
	store_check_close(&check);
	free(body);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_bodies),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
