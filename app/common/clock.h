/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Clocks as integers. Any thread. */
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <time.h>

/** @return time of a clock, ns */
static inline int64_t
clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/** @return time since the machine was started, ns */
static inline int64_t
monotonic_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

/** @return the same, ms */
static inline int64_t
monotonic_ms(void)
{
	return monotonic_ns() / 1000000;
}

/**
 * As monotonic_ms(), but up to some ms old, for polling loops that read it in every iteration:
 * CLOCK_MONOTONIC takes ten times as long.
 */
static inline int64_t
monotonic_coarse_ms(void)
{
	return clock_ns(CLOCK_MONOTONIC_COARSE) / 1000000;
}

/** @return ns since 1970, UTC */
static inline int64_t
utc_ns(void)
{
	return clock_ns(CLOCK_REALTIME);
}

#endif /* CLOCK_H */
