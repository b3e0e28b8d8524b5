/* SPDX-License-Identifier: BSD-3-Clause */

#include <sys/prctl.h>
#include <time.h>

#include "eal/poll_pause.h"

#define TIMER_SLACK_NS 1000 /* the default is longer than the sleep */

static uint64_t
now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000 + (uint64_t)t.tv_nsec / 1000;
}

static void
sleep_us(struct poll_pause *p, long us)
{
	const struct timespec t = {.tv_nsec = us * 1000};

	if (!p->precise)
		(void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	p->precise = true;
	nanosleep(&t, NULL);
}

void
poll_pause(struct poll_pause *p, bool busy, bool expected)
{
	uint64_t now;

	if (busy) {
		p->idle = 0;
		p->last = 0;
		return;
	}
	now = now_us();
	if (p->last != 0 && now > p->last + POLL_PAUSE_AWAY_US)
		p->shared_until = now + POLL_PAUSE_KEEP_US;
	if (p->idle < POLL_PAUSE_TURNS)
		p->idle++;
	/*
	 * No sched_yield(): with Linux 6.18 the thread gives up its share of a CPU that is in
	 * demand, and waits for milliseconds. A thread that sleeps keeps it
	 */
	if (p->idle == POLL_PAUSE_TURNS || (p->idle > POLL_PAUSE_SPIN && now < p->shared_until)) {
		sleep_us(p, expected ? POLL_PAUSE_SHORT_US : POLL_PAUSE_LONG_US);
		now = now_us();
	}
	p->last = now;
}
