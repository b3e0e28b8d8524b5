/* SPDX-License-Identifier: BSD-3-Clause */
/* A polling loop that gives its CPU to a thread that it has woken. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "eal/poll_pause.h"

#define TRIES 50 /* other programs may have the CPU */

static uint64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

/* @return shortest time of poll_yield(), us, after the calls that are true, in their order */
static uint64_t
yield(bool wake, bool forget, bool wake_again)
{
	uint64_t start, shortest = UINT64_MAX;
	struct poll_pause p;
	unsigned int i;

	poll_pause_init(&p);
	for (i = 0; i < TRIES; i++) {
		if (wake)
			poll_wake(&p);
		if (forget)
			poll_forget(&p);
		if (wake_again)
			poll_wake(&p);
		start = now_us();
		poll_yield(&p);
		if (now_us() - start < shortest)
			shortest = now_us() - start;
	}
	poll_pause_destroy(&p);
	return shortest;
}

/*
 * The thread may run at once in place of the loop, and call poll_wake() before the loop calls
 * poll_yield(). A loop that slept then would delay what the thread waits for.
 */
static void
thread_was_faster(void **state)
{
	assert_true(yield(false, true, true) < POLL_PAUSE_YIELD_US / 2);
	assert_true(yield(true, true, true) < POLL_PAUSE_YIELD_US / 2);
}

/* Calls of poll_wake() before the loop has woken the thread do not end the sleep. */
static void
forgotten(void **state)
{
	assert_true(yield(false, true, false) >= POLL_PAUSE_YIELD_US);
	assert_true(yield(true, true, false) >= POLL_PAUSE_YIELD_US);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread_was_faster),
		cmocka_unit_test(forgotten),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
