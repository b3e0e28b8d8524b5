/* SPDX-License-Identifier: BSD-3-Clause */

#include <sched.h>
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
	if (!expected && p->idle == POLL_PAUSE_TURNS)
		sleep_us(p, POLL_PAUSE_IDLE_US);
	else if (expected && now < p->shared_until)
		sleep_us(p, POLL_PAUSE_SHARED_US);
	else if (expected)
		sched_yield();
	else
		return;
	/* the time of a yield counts: others ran */
	p->last = expected && now >= p->shared_until ? now : now_us();
}
