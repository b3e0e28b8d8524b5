/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * UTC from the TSC: the time at which a packet was received, without a system call for each packet.
 *
 * EAL's TSC frequency may be wrong by 2000 ppm, which is several seconds per hour: if the processor
 * does not report the frequency, EAL counts cycles for 100 ms and rounds to 10 MHz. Therefore this
 * clock follows the system's clock. The two are compared about once a second. This clock then runs
 * at the rate measured since the last comparison, and corrects the difference within the next
 * second. It never goes back, unless the system's time was set. Only one thread may use a clock.
 */
#ifndef UTC_CLOCK_H
#define UTC_CLOCK_H

#include <stdint.h>

struct utc_clock {
	uint64_t tsc;	     /**< TSC of the last comparison */
	int64_t ns;	     /**< this clock at `tsc`, ns since 1970 */
	double ns_per_cycle; /**< rate since `tsc` */
	int64_t real;	     /**< the system's clock at `tsc`, ns since 1970 */
	uint64_t next;	     /**< TSC at which the next comparison is due */
	uint64_t every;	     /**< TSC cycles between comparisons */
	double hz;	     /**< approximate TSC frequency */
};

/**
 * Set the clock.
 * @param hz   approximate TSC frequency, cycles a second
 * @param tsc  TSC at which the time is `ns`
 * @param ns   system's clock, ns since 1970
 */
void utc_clock_set(struct utc_clock *c, double hz, uint64_t tsc, int64_t ns);

/** Compare with the system's clock, which is at `ns` when the TSC is `tsc`, and adjust the rate. */
void utc_clock_adjust(struct utc_clock *c, uint64_t tsc, int64_t ns);

/** Set the clock to the system's clock. */
void utc_clock_begin(struct utc_clock *c);

/** Compare with the system's clock and adjust, if a comparison is due. */
void utc_clock_follow(struct utc_clock *c);

/** @return ns since 1970 at a TSC close to the present one */
static inline int64_t
utc_clock_ns(const struct utc_clock *c, uint64_t tsc)
{
	return c->ns + (int64_t)((double)(int64_t)(tsc - c->tsc) * c->ns_per_cycle);
}

#endif /* UTC_CLOCK_H */
