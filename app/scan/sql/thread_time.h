/* SPDX-License-Identifier: BSD-3-Clause */
/** @file CPU time of a thread. */
#ifndef SQL_THREAD_TIME_H
#define SQL_THREAD_TIME_H

#include <stdint.h>
#include <time.h>

#include "clock.h"

/** @return CPU time that the calling thread has used, ns */
static inline uint64_t
thread_time_ns(void)
{
	return (uint64_t)clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

#endif /* SQL_THREAD_TIME_H */
