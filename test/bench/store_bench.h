/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer of the store for GPU memory: pinned bounce buffers. */
#ifndef STORE_BENCH_H
#define STORE_BENCH_H

#include <stdint.h>

struct store_bench_io {
	const char *dir;
	uint64_t bytes;
	uint64_t sync_bytes;
	uint32_t slice;
	unsigned int threads;
	uint8_t *pattern; /* content of a body */
	uint32_t crc;	  /* CRC of it */
};

void store_bench_die(const char *what, int error) __attribute__((noreturn));

/* @return bytes/s from GPU memory through pinned host memory into a durable file */
double store_bench_bounce(const struct store_bench_io *io, int16_t gpu);

#endif /* STORE_BENCH_H */
