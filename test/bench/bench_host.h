/* SPDX-License-Identifier: BSD-3-Clause */
/* The machine that a benchmark runs on, as Linux reports it. */
#ifndef BENCH_HOST_H
#define BENCH_HOST_H

#include <stdint.h>
#include <stdio.h>

#define BENCH_L3_UNKNOWN (UINT64_C(32) << 20) /* if sysfs has no value */

/* @return size of a data cache of CPU 0 in bytes; 0: sysfs has no value */
uint64_t bench_host_cache(unsigned int level);

/* Print processor, caches, huge pages, kernel and compiler. */
void bench_host_print(FILE *out);

#endif /* BENCH_HOST_H */
