/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fio as a peer: O_DIRECT through io_uring, from memory in huge pages if there are enough
 * (vm.nr_hugepages: depth x slice), else in 4 KiB pages. Huge pages gain a factor of two or more
 * where a write is split by its number of pages.
 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct bench_fio {
	const char *path;
	bool writing; /* durable at the end */
	unsigned int depth;
	uint32_t slice;	     /* bytes per call */
	uint64_t bytes;	     /* size of the file, which is removed afterwards */
	uint64_t sync_bytes; /* interval of fdatasync */
};

/*
 * @return bytes/s that fio reports, from its first write or read on, which excludes creating and
 * allocating the file; 0: fio is not installed, or failed
 */
double bench_fio(const struct bench_fio *f);

/* Did the last run use huge pages? Without them it must not be compared with a goal. */
bool bench_fio_huge(void);

/* @return kind of memory of the last run, for the table */
const char *bench_fio_memory(void);

#endif /* BENCH_FIO_H */
