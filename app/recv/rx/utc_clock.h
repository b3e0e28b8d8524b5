/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * UTC by the TSC: what the time was when a packet was seen, without a call for each.
 *
 * The rate that EAL knows may be wrong by 2000 ppm, which is seconds an hour: where the processor
 * tells none it is counted for 100 ms and rounded to 10 MHz. So this follows the system's clock:
 * it is compared about once a second, runs at the rate that was measured since, and makes up for
 * what is missing within the next second. It never goes back unless the system's time was set.
 * One thread.
 */
#ifndef UTC_CLOCK_H
#define UTC_CLOCK_H

#include <stdint.h>

struct utc_clock {
	uint64_t tsc; /**< here it was */
	int64_t ns;   /**< this time, since 1970 */
	double ns_per_cycle;
	int64_t real;	/**< what the system's clock said at `tsc` */
	uint64_t next;	/**< TSC from which on it is to be compared */
	uint64_t every; /**< cycles until the next time */
	double hz;	/**< of the TSC, about */
};

/** @param hz  cycles a second, as far as is known; @param ns  the system's clock at TSC `tsc` */
void utc_clock_set(struct utc_clock *c, double hz, uint64_t tsc, int64_t ns);

/** The system's clock is at ns, the TSC at tsc. */
void utc_clock_adjust(struct utc_clock *c, uint64_t tsc, int64_t ns);

/** utc_clock_set() to the system's clock. */
void utc_clock_begin(struct utc_clock *c);

/** utc_clock_adjust() to the system's clock, if it is time for that. */
void utc_clock_follow(struct utc_clock *c);

/** @return ns since 1970 at a TSC of about now */
static inline int64_t
utc_clock_ns(const struct utc_clock *c, uint64_t tsc)
{
	return c->ns + (int64_t)((double)(int64_t)(tsc - c->tsc) * c->ns_per_cycle);
}

#endif /* UTC_CLOCK_H */
