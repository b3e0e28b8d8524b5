/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw frames as bitshuffle + LZ4 chunks on one core, by instruction set: the bit transposition
 * compared with a copy of as many bytes, and the whole compression compared with liblz4 alone on
 * transposed data.
 */

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <lz4.h>

#include "bench_median.h"
#include "bench_rows.h"
#include "arrow/bitshuffle.h"
#include "arrow/bitshuffle_simd.h"

#define REPEATS_MAX BENCH_ROUNDS_MAX
#define BLOCK_BYTES (BITSHUFFLE_BLOCK * 2)

enum {
	SPLIT,
	COPY,
	CHUNK,
	LZ4,
	PASSES
};

struct bench {
	size_t n; /* values of a frame, a multiple of the block size */
	uint16_t *raw;
	uint8_t *planes;
	uint8_t *chunk;
	size_t packed;
};

/* CPU time of this thread, so that other programs affect it as little as possible. */
static double
seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* All blocks go to the same buffer, as before LZ4. @return GB/s of raw data */
static double
run(struct bench *b, const struct bitshuffle_planes *planes, int pass)
{
	const double start = seconds();
	uint8_t block[BLOCK_BYTES];
	size_t at = 0;

	switch (pass) {
	case SPLIT:
	case COPY:
		for (size_t i = 0; i < b->n; i += BITSHUFFLE_BLOCK) {
			if (pass == SPLIT)
				planes->split(b->raw + i, BITSHUFFLE_BLOCK, block);
			else
				memcpy(block, b->raw + i, BLOCK_BYTES);
			__asm__ volatile("" : : "r"(block) : "memory"); /* keep the stores */
		}
		break;
	case CHUNK:
		b->packed = bitshuffle_compress_by(planes, b->raw, b->n, b->chunk);
		break;
	default:
		for (size_t i = 0; i < b->n * 2; i += BLOCK_BYTES)
			at += (size_t)LZ4_compress_default((const char *)b->planes + i,
				(char *)b->chunk + at, BLOCK_BYTES, LZ4_COMPRESSBOUND(BLOCK_BYTES));
		break;
	}
	return 2e-9 * (double)b->n / (seconds() - start);
}

/* Background with noise of a few photons, 1 % of pixels with 10 photons, all in G0. */
static int
open_bench(struct bench *b, size_t n)
{
	uint64_t rng = 1;

	b->n = n;
	b->raw = malloc(n * 2);
	b->planes = malloc(n * 2);
	b->chunk = malloc(bitshuffle_bound(n));
	if (b->raw == NULL || b->planes == NULL || b->chunk == NULL)
		return -1;
	for (size_t i = 0; i < n; i++) {
		rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
		b->raw[i] = (uint16_t)(3000 + (rng >> 58) + ((rng >> 32) % 100 == 0 ? 5084 : 0));
	}
	for (size_t i = 0; i < n; i += BITSHUFFLE_BLOCK)
		bitshuffle_planes_find("plain")->split(
			b->raw + i, BITSHUFFLE_BLOCK, b->planes + i * 2);
	memset(b->chunk, 0, bitshuffle_bound(n));
	return 0;
}

static void
run_row(struct bench *b, const struct bitshuffle_planes *planes, uint32_t repeats, int best)
{
	double speed[PASSES][REPEATS_MAX], ratio, m[PASSES];

	/* in round-robin order, so that all see the same state of the machine */
	for (uint32_t i = 0; i < repeats; i++)
		for (int pass = 0; pass < PASSES; pass++)
			speed[pass][i] = run(b, planes, pass);
	for (int pass = 0; pass < PASSES; pass++)
		m[pass] = bench_median(speed[pass], repeats);
	ratio = bench_median_ratio(speed[CHUNK], speed[LZ4], repeats);
	printf("%-8s %8.2f %8.2f %7.2f %10.2f %10.2f %7.2f %9.2f\n", planes->name, m[SPLIT],
		m[COPY], m[SPLIT] / m[COPY], m[CHUNK], m[LZ4], ratio,
		2.0 * (double)b->n / (double)b->packed);
	if (best)
		bench_row(&(struct bench_row){.stage = "raw",
			.what = "bitshuffle + LZ4 of frames",
			.value = m[CHUNK] * 1e9 / (2.0 * (double)b->n),
			.unit = "frames/s",
			.against = "liblz4 alone",
			.other = m[LZ4] * 1e9 / (2.0 * (double)b->n),
			.ratio = ratio,
			.goal = "ratio >= 0.6",
			.bytes = 2.0 * (double)b->n + (double)b->packed,
			.notes = planes->name});
}

int
main(int argc, char **argv)
{
	static const struct option options[] = {{"modules", required_argument, NULL, 'm'},
		{"repeats", required_argument, NULL, 'r'}, {"rows", required_argument, NULL, 'o'},
		{"help", no_argument, NULL, 'h'}, {0}};
	uint32_t modules = 8, repeats = 9;
	const struct bitshuffle_planes *planes;
	struct bench b;
	int option;

	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		if (option == 'm')
			modules = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 'r')
			repeats = (uint32_t)strtoul(optarg, NULL, 0);
		else if (option == 'o')
			bench_rows_to(optarg);
		else
			modules = 0;
	}
	if (modules < 1 || modules > 32 || repeats < 1 || repeats > REPEATS_MAX) {
		fprintf(stderr,
			"Usage: bitshuffle_bench [--modules N] [--repeats N] [--rows FILE]\n"
			"Raw frames of N JUNGFRAU modules (1 to 32, default 8) as bitshuffle and\n"
			"LZ4 on one core; the median of up to %d repeats (default 9) counts.\n",
			REPEATS_MAX);
		return 1;
	}
	if (open_bench(&b, (size_t)modules * 512 * 1024) != 0) {
		fprintf(stderr, "bitshuffle_bench: no memory for a frame of %u modules\n", modules);
		return 1;
	}
	printf("raw data of %u modules (%.1f MB), 1 core; GB/s of raw data, median of %u\n",
		modules, 2e-6 * (double)b.n, repeats);
	printf("%-8s %8s %8s %7s %10s %10s %7s %9s\n", "isa", "planes", "copy", "ratio", "chunk",
		"LZ4 alone", "ratio", "smaller x");
	for (size_t i = 0; (planes = bitshuffle_planes_get(i)) != NULL; i++) {
		if (planes->have())
			run_row(&b, planes, repeats, planes == bitshuffle_planes_find(NULL));
		else
			printf("%-8s skipped: not supported by this CPU\n", planes->name);
	}
	free(b.raw);
	free(b.planes);
	free(b.chunk);
	return 0;
}
