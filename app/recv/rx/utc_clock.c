/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>

#include <rte_cycles.h>

#include "rx/utc_clock.h"

#define FIRST_S 0.01 /* twice as long each time, up to */
#define EVERY_S 1.0
#define STEP_NS (100 * 1000000LL) /* more is no drift: somebody has set the time */
#define AWAY_NS (20 * 1000)	  /* a thread that was interrupted reads a wrong pair */

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
	/* what is missing, by the next time; what is too much never makes it stand still */
	c->ns_per_cycle = fmax(rate + (double)(ns - here) / (double)c->every, rate / 2);
	c->next = tsc + c->every;
}

/* Both clocks at once. @return false: they may be of different moments */
static bool
read_clocks(double hz, uint64_t *tsc, int64_t *ns)
{
	const uint64_t before = rte_rdtsc();
	struct timespec now;
	uint64_t after;

	clock_gettime(CLOCK_REALTIME, &now);
	after = rte_rdtsc();
	*tsc = before + (after - before) / 2;
	*ns = now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
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
