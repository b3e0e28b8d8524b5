/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine that a benchmark runs on, as Linux tells it: what its figures depend on. */
#ifndef BENCH_HOST_H
#define BENCH_HOST_H

#include <stdint.h>
#include <stdio.h>

#define BENCH_L3_UNKNOWN (UINT64_C(32) << 20) /* where sysfs does not say */

/* @return bytes of a data cache of CPU 0; 0: sysfs does not say */
uint64_t bench_host_cache(unsigned int level);

/* Lines of processor, caches, huge pages, kernel and compiler. */
void bench_host_print(FILE *out);

#endif /* BENCH_HOST_H */
