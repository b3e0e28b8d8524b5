/* SPDX-License-Identifier: BSD-3-Clause */
/* A clock that converts the TSC to UTC and follows the system's clock: see utc_clock.h. */

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include <rte_cycles.h>

#include "clock.h"
#include "utc_clock.h"

#define FIRST_S 0.01 /* first interval between comparisons; it doubles up to EVERY_S */
#define EVERY_S 1.0
#define STEP_NS (100 * 1000000LL) /* a larger difference is no drift: the time was set */
#define AWAY_NS (20 * 1000)	  /* reading takes longer if the thread was interrupted */

void
utc_clock_set(struct utc_clock *c, double hz, uint64_t tsc, int64_t ns)
{
	*c = (struct utc_clock){
		.tsc = tsc,
		.ns = ns,
		.real = ns,
		.ns_per_cycle = NS_PER_S / hz,
		.every = (uint64_t)(FIRST_S * hz),
		.hz = hz,
	};
	c->next = tsc + c->every;
}

void
utc_clock_adjust(struct utc_clock *c, uint64_t tsc, int64_t ns)
{
	const double cycles = (double)(tsc - c->tsc);
	const double rate = (double)(ns - c->real) / cycles;
	const int64_t here = utc_clock_ns(c, tsc);

	if (llabs(ns - here) > STEP_NS) {
		utc_clock_set(c, c->hz, tsc, ns);
		return;
	}
	if (c->every * 2 <= (uint64_t)(EVERY_S * c->hz))
		c->every *= 2;
	c->tsc = tsc;
	c->ns = here;
	c->real = ns;
	/* correct the difference until the next comparison, but never stop the clock */
	c->ns_per_cycle = fmax(rate + (double)(ns - here) / (double)c->every, rate / 2);
	c->next = tsc + c->every;
}

/* Read both clocks at the same time. @return false: the thread was interrupted between them */
static bool
read_clocks(double hz, uint64_t *tsc, int64_t *ns)
{
	const uint64_t before = rte_rdtsc();
	uint64_t after;

	*ns = utc_ns();
	after = rte_rdtsc();
	*tsc = before + (after - before) / 2;
	return (double)(after - before) < AWAY_NS * hz / NS_PER_S;
}

void
utc_clock_begin(struct utc_clock *c)
{
	const double hz = (double)rte_get_tsc_hz();
	uint64_t tsc;
	int64_t ns;

	for (int i = 0; i < 10 && !read_clocks(hz, &tsc, &ns); i++)
		;
	utc_clock_set(c, hz, tsc, ns);
}

void
utc_clock_follow(struct utc_clock *c)
{
	uint64_t tsc;
	int64_t ns;

	if ((int64_t)(rte_rdtsc() - c->next) >= 0 && read_clocks(c->hz, &tsc, &ns))
		utc_clock_adjust(c, tsc, ns);
}
