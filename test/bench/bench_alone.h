/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Short windows in which no other program has the CPUs of a polling benchmark. Where that is
 * allowed (root, CAP_SYS_NICE) a thread is given real-time priority; Linux takes it away from
 * whoever keeps it for 0.95 s of a second, hence windows and rests.
 */
#ifndef BENCH_ALONE_H
#define BENCH_ALONE_H

#include <stdbool.h>

#define BENCH_WINDOW_MAX 0.6 /* s */

/* This thread, and those that it makes from now on. @return false: not allowed, others disturb */
bool bench_alone_begin(void);
void bench_alone_end(void);

/* Has the host so much free memory in huge pages? */
bool bench_huge_pages(unsigned int mib);

/* So long that a window may follow. */
void bench_alone_rest(void);

#endif /* BENCH_ALONE_H */
