/* SPDX-License-Identifier: BSD-3-Clause */
/* A polling loop that pauses, and that gives its CPU to a thread that it has woken. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

#include "eal/poll_pause.h"

#define TRIES 50 /* other programs may have the CPU */

static uint64_t simulated_us; /* time; 0: it is not simulated */
static unsigned int nb_sleeps;

int __real_clock_gettime(clockid_t clock, struct timespec *t);
int __wrap_clock_gettime(clockid_t clock, struct timespec *t);
int __real_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t);
int __wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t);

int
__wrap_clock_gettime(clockid_t clock, struct timespec *t)
{
	if (simulated_us == 0)
		return __real_clock_gettime(clock, t);
	/* a turn of a loop */
	simulated_us += 1;
	*t = (struct timespec){.tv_sec = (time_t)(simulated_us / 1000000),
		.tv_nsec = (long)(simulated_us % 1000000 * 1000)};
	return 0;
}

int
__wrap_sem_clockwait(sem_t *sem, clockid_t clock, const struct timespec *t)
{
	if (simulated_us == 0)
		return __real_sem_clockwait(sem, clock, t);
	simulated_us = (uint64_t)t->tv_sec * 1000000 + (uint64_t)t->tv_nsec / 1000;
	nb_sleeps++;
	errno = ETIMEDOUT;
	return -1;
}

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

/* @return number of sleeps of a loop that has no work for a time */
static unsigned int
sleeps(enum poll_expect expected, uint64_t us)
{
	struct poll_pause p;

	nb_sleeps = 0;
	simulated_us = 1000000;
	poll_pause_init(&p);
	while (simulated_us < 1000000 + us)
		poll_pause(&p, false, expected);
	poll_pause_destroy(&p);
	simulated_us = 0;
	return nb_sleeps;
}

/* A loop without waiting users wakes up some 50 times a second, after half a second at most. */
static void
later(void **state)
{
	assert_in_range(sleeps(POLL_LATER, 500000), 20, 60);
	assert_in_range(sleeps(POLL_LATER, 10500000) - sleeps(POLL_LATER, 500000), 490, 510);
	/* no sleep soon after packets, so that more packets do not wait */
	assert_int_equal(sleeps(POLL_LATER, POLL_PAUSE_LINGER_US), 0);
	assert_in_range(sleeps(POLL_PACKETS, 10000000), 9000, 12000);
}

/*
 * For a thread on its CPU, a loop first sleeps past the scheduler's tick, so that most threads have
 * ended before a timer was set; then a thread that takes long delays others by a millisecond.
 */
static void
shared(void **state)
{
	assert_int_equal(sleeps(POLL_SHARED, 4000), 1);
	assert_int_equal(sleeps(POLL_SHARED, POLL_PAUSE_TICK_US + 10 * POLL_PAUSE_MAX_US), 11);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread_was_faster),
		cmocka_unit_test(forgotten),
		cmocka_unit_test(later),
		cmocka_unit_test(shared),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
