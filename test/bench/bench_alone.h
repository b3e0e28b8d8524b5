/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short windows in which no other program uses the CPUs of a polling benchmark. If permitted (root,
 * CAP_SYS_NICE), a thread gets real-time priority. Linux withdraws it from a thread that uses 0.95
 * s of a second, so windows alternate with pauses.
 */
#ifndef BENCH_ALONE_H
#define BENCH_ALONE_H

#include <stdbool.h>

#define BENCH_WINDOW_MAX 0.6 /* s */

/*
 * Applies to this thread and the threads that it creates later. @return false: not permitted, so
 * other programs interfere
 */
bool bench_alone_begin(void);
void bench_alone_end(void);

/*
 * The same for all threads that the process has now, or back. The calling thread gets the higher
 * priority: it has little to do, and the others poll. @return false: not permitted
 */
bool bench_alone_process(bool alone);

/* Does the host have this much free memory in huge pages? */
bool bench_huge_pages(unsigned int mib);

/* Pause long enough for another window. */
void bench_alone_rest(void);

#endif /* BENCH_ALONE_H */
