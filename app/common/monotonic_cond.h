/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Condition variables whose time limits do not depend on the time of day.
 */
#ifndef MONOTONIC_COND_H
#define MONOTONIC_COND_H

#include <pthread.h>
#include <time.h>

/** Initialize a condition variable whose time limits are times of CLOCK_MONOTONIC. */
static inline void
monotonic_cond_init(pthread_cond_t *cond)
{
	pthread_condattr_t attr;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(cond, &attr);
	pthread_condattr_destroy(&attr);
}

#endif /* MONOTONIC_COND_H */
