/* SPDX-License-Identifier: BSD-3-Clause */
/** @file CPU time of a thread. */
#ifndef SQL_THREAD_TIME_H
#define SQL_THREAD_TIME_H

#include <stdint.h>
#include <time.h>

/** @return CPU time that the calling thread has used, ns */
static inline uint64_t
thread_time_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

#endif /* SQL_THREAD_TIME_H */
