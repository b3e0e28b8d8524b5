/* SPDX-License-Identifier: BSD-3-Clause */
/** @file Milliseconds of the monotonic clock. */
#ifndef MONOTONIC_MS_H
#define MONOTONIC_MS_H

#include <stdint.h>
#include <time.h>

/** @return time of CLOCK_MONOTONIC, ms; any thread */
static inline int64_t
monotonic_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

#endif /* MONOTONIC_MS_H */
