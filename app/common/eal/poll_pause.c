/* SPDX-License-Identifier: BSD-3-Clause */

#include <sched.h>
#include <sys/prctl.h>
#include <time.h>

#include <rte_pause.h>

#include "clock.h"
#include "eal/poll_pause.h"

#define TIMER_SLACK_NS 1000 /* the default is longer than the sleep */

/* A sleep is at most this part of the time waited so far, and at least POLL_PAUSE_SHORT_US. */
#define PART_OF_WAIT 64
/* With POLL_LATER: at most this part, and at least POLL_PAUSE_LONG_US. */
#define PART_OF_LATER 4

static uint64_t
now_us(void)
{
	return (uint64_t)monotonic_ns() / 1000;
}

void
poll_pause_init(struct poll_pause *p)
{
	*p = (struct poll_pause){.cpu = -1};
	(void)sem_init(&p->wake, 0, 0);
}

void
poll_pause_destroy(struct poll_pause *p)
{
	(void)sem_destroy(&p->wake);
}

void
poll_wake(struct poll_pause *p)
{
	int waiting = 0;

	/* one is enough */
	if (sem_getvalue(&p->wake, &waiting) == 0 && waiting <= 0)
		(void)sem_post(&p->wake);
}

void
poll_forget(struct poll_pause *p)
{
	while (sem_trywait(&p->wake) == 0)
		;
}

static void
set_cpu(struct poll_pause *p, int cpu)
{
	__atomic_store_n(&p->cpu, cpu, __ATOMIC_RELAXED);
}

static void
sleep_until(struct poll_pause *p, uint64_t us)
{
	const struct timespec t = {
		.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000 * 1000)};

	if (!p->precise)
		(void)prctl(PR_SET_TIMERSLACK, TIMER_SLACK_NS);
	p->precise = true;
	set_cpu(p, -1);
	(void)sem_clockwait(&p->wake, CLOCK_MONOTONIC, &t);
	set_cpu(p, sched_getcpu());
	poll_forget(p);
}

/* A part of the time waited so far, within limits; us. */
static uint64_t
part_of(uint64_t waited, uint64_t part, uint64_t least, uint64_t most)
{
	const uint64_t length = waited / part;

	return length < least ? least : length < most ? length : most;
}

/* @return length of the sleep, us; 0: the loop polls on */
static uint64_t
sleep_length(const struct poll_pause *p, enum poll_expect expected, uint64_t now)
{
	const uint64_t waited = now - p->since;

	switch (expected) {
	case POLL_SHARED:
		return p->idle == 1 ? POLL_PAUSE_TICK_US : POLL_PAUSE_MAX_US;
	case POLL_PACKETS:
	case POLL_THREAD:
		if (waited < POLL_PAUSE_SPIN_US &&
			(p->idle <= POLL_PAUSE_TURNS || now >= p->shared_until))
			return 0;
		return part_of(waited, PART_OF_WAIT, POLL_PAUSE_SHORT_US, POLL_PAUSE_MAX_US);
	case POLL_LATER:
		return waited < POLL_PAUSE_LINGER_US
			? 0
			: part_of(waited, PART_OF_LATER, POLL_PAUSE_LONG_US, POLL_PAUSE_LATER_US);
	case POLL_NOTHING:
		break;
	}
	return waited < POLL_PAUSE_LINGER_US ? 0 : POLL_PAUSE_LONG_US;
}

void
poll_pause(struct poll_pause *p, bool busy, enum poll_expect expected)
{
	uint64_t now, length;

	set_cpu(p, sched_getcpu());
	if (busy) {
		p->idle = 0;
		p->last = 0;
		return;
	}
	now = now_us();
	if (p->last != 0 && now > p->last + POLL_PAUSE_AWAY_US)
		p->shared_until = now + POLL_PAUSE_KEEP_US;
	if (p->idle == 0)
		p->since = now;
	if (p->idle < UINT32_MAX)
		p->idle++;
	/*
	 * No sched_yield(): with Linux 6.18 the thread loses its share of a busy CPU, and waits for
	 * milliseconds. A thread that sleeps keeps its share
	 */
	length = sleep_length(p, expected, now);
	if (length > 0) {
		sleep_until(p, now + length);
		now = now_us();
	}
	p->last = now;
}

void
poll_yield(struct poll_pause *p)
{
	sleep_until(p, now_us() + POLL_PAUSE_YIELD_US);
	p->last = 0;
}

int
poll_cpu(const struct poll_pause *p)
{
	return __atomic_load_n(&p->cpu, __ATOMIC_RELAXED);
}

bool
poll_spin(struct poll_spin *s, uint64_t us, bool (*happened)(void *arg), void *arg)
{
	uint64_t now = now_us(), last;
	const uint64_t end = now + us;

	while (!happened(arg)) {
		last = now;
		now = now_us();
		if (now > last + POLL_PAUSE_AWAY_US)
			s->shared_until = now + POLL_PAUSE_KEEP_US;
		if (now < s->shared_until || now >= end)
			return happened(arg);
		rte_pause();
	}
	return true;
}
