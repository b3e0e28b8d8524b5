/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fio as a peer: O_DIRECT through io_uring, from memory in huge pages where there are enough
 * (vm.nr_hugepages: depth x slice), else in pages of 4 KiB. Large ones are worth a factor of two
 * and more where a write is cut by the number of its pages.
 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct bench_fio {
	const char *path;
	bool writing; /* durable in the end */
	unsigned int depth;
	uint32_t slice;	     /* bytes of a call */
	uint64_t bytes;	     /* of the file, which goes when it is done */
	uint64_t sync_bytes; /* fdatasync so often */
};

/* @return bytes/s as fio says, from its first write or read on: it does not count that it makes the
 *   file, or allocates its room; 0: no fio, or it does not want to */
double bench_fio(const struct bench_fio *f);

/* Did the last run have huge pages? Without them it is no peer that a goal may be held against. */
bool bench_fio_huge(void);

/* @return kind of memory of the last run, for the table */
const char *bench_fio_memory(void);

#endif /* BENCH_FIO_H */
