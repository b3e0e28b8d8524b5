/* SPDX-License-Identifier: BSD-3-Clause */
/* A polling loop that pauses, and that gives its CPU to a thread that it has woken. */

#include <errno.h>
#include <limits.h>
#include <sched.h>
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
static const struct poll_pause *sleeping;
static int cpu_of_sleep; /* poll_cpu() of `sleeping` while it sleeps */

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
	if (sleeping != NULL)
		cpu_of_sleep = poll_cpu(sleeping);
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

/* What another thread does, by the simulated time. */
struct event {
	unsigned int calls;
	unsigned int at;   /* number of the call at which it has happened */
	unsigned int gone; /* number of the call after which the thread loses its CPU */
};

static bool
happened(void *arg)
{
	struct event *e = arg;

	if (++e->calls == e->gone)
		simulated_us += POLL_PAUSE_AWAY_US + 1;
	return e->calls >= e->at;
}

/* @return whether it happened while the thread polled for 1,000 us at most */
static bool
spin(struct poll_spin *s, struct event *e)
{
	bool ret;

	nb_sleeps = 0;
	simulated_us = simulated_us > 0 ? simulated_us : 1000000;
	ret = poll_spin(s, 1000, happened, e);
	assert_int_equal(nb_sleeps, 0);
	return ret;
}

/* A thread polls until something has happened, or its time is over. */
static void
polls_for_event(void **state)
{
	struct event soon = {.at = 100}, late = {.at = 5000}, now = {.at = 1};
	struct poll_spin s = {0};

	assert_true(spin(&s, &soon));
	assert_int_equal(soon.calls, 100);
	assert_false(spin(&s, &late));
	assert_in_range(late.calls, 900, 1002);
	assert_true(spin(&s, &now));
	simulated_us = 0;
}

/* If others need its CPU, it does not poll, for some time. */
static void
polls_on_own_cpu(void **state)
{
	struct event gone = {.at = 500, .gone = 50}, again = {.at = 500}, later = {.at = 500};
	struct poll_spin s = {0};

	assert_false(spin(&s, &gone));
	assert_in_range(gone.calls, 50, 52);
	assert_false(spin(&s, &again));
	assert_in_range(again.calls, 1, 2);
	simulated_us += POLL_PAUSE_KEEP_US;
	assert_true(spin(&s, &later));
	simulated_us = 0;
}

/* The CPU of a loop is known while it polls. */
static void
knows_cpu(void **state)
{
	const int cpu = sched_getcpu();
	struct poll_pause p;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
	poll_pause_init(&p);
	assert_int_equal(poll_cpu(&p), -1);
	poll_pause(&p, true, POLL_NOTHING);
	assert_int_equal(poll_cpu(&p), cpu);
	cpu_of_sleep = INT_MAX;
	simulated_us = 1000000;
	sleeping = &p;
	poll_yield(&p);
	sleeping = NULL;
	simulated_us = 0;
	assert_int_equal(cpu_of_sleep, -1);
	assert_int_equal(poll_cpu(&p), cpu);
	poll_pause_destroy(&p);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(thread_was_faster),
		cmocka_unit_test(forgotten),
		cmocka_unit_test(later),
		cmocka_unit_test(shared),
		cmocka_unit_test(polls_for_event),
		cmocka_unit_test(polls_on_own_cpu),
		cmocka_unit_test(knows_cpu),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
