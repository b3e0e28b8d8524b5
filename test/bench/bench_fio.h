/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * fio as a peer: O_DIRECT through io_uring, twice, from memory in pages of 4 KiB and of 2 MiB. The
 * large ones are worth a factor of two and more where a write is cut by the number of its pages;
 * the better result counts.
 */
#ifndef BENCH_FIO_H
#define BENCH_FIO_H

#include <stdbool.h>
#include <stdint.h>

struct bench_fio {
	const char *path;
	bool writing; /* durable in the end; the file stays. Reading: it goes */
	unsigned int depth;
	uint32_t slice;	     /* bytes of a call */
	uint64_t bytes;	     /* of the file */
	uint64_t sync_bytes; /* fdatasync so often */
};

/* @return bytes/s as fio says; 0: no fio, or it does not want to */
double bench_fio(const struct bench_fio *f);

#endif /* BENCH_FIO_H */
