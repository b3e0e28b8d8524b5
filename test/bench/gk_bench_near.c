/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The speed of gangs on a tile that fits into the caches: the ceiling of their arithmetic. Cycles
 * are measured with a chain of dependent additions, one a cycle on any processor, that runs
 * alternately. A changing clock, or another thread on the same core, affects both in the same way.
 */

#include <stdio.h>
#include <string.h>

#include "bench_rows.h"
#include "gk_bench.h"
#include "gk_tile.h"

#define WORD	   32	   /* pixels, the unit of the result */
#define CHAIN	   1000000 /* additions */
#define RUN	   0.002   /* s, one measurement */
#define ROUNDS	   5	   /* measurements per repeat, as they are short */
#define STRIP_ROWS 1	   /* 24 KiB with eight frames */
#define TILE_ROWS  4	   /* 96 KiB */

static const struct {
	const char *name;
	uint32_t rows;
	bool lists;
} kinds[] = {
	{"count from L1", STRIP_ROWS, false},
	{"count from L2", TILE_ROWS, false},
	{"count and lists from L1", STRIP_ROWS, true},
	{"count and lists from L2", TILE_ROWS, true},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* The same tile of a batch, processed repeatedly. */
struct near {
	const struct gk_tile_ops *ops;
	struct gk_tile tile;
	const uint16_t *raw[BATCH_MAX];
	struct gk_tile_counts counts[BATCH_MAX];
	uint16_t *row_nnz[BATCH_MAX];
	uint32_t *bits[BATCH_MAX];
	uint16_t *col;
	float *value;
	bool lists;
};

/* @return seconds of a dependent addition, which takes one cycle */
static double
cycle(void)
{
	const double start = seconds();
	uint64_t x = 1, y = 3;

	__asm__("" : "+r"(y)); /* in a register: prevents constant folding */
#pragma GCC unroll 64
	for (int i = 0; i < CHAIN; i++) {
		x += y;
		__asm__ volatile("" : "+r"(x));
	}
	return (seconds() - start) / CHAIN;
}

static void
run_once(struct near *n)
{
	static const uint16_t *const nothing_ahead[BATCH_MAX];
	static void *const no_image[BATCH_MAX];

	n->ops->stats(&n->tile, BATCH_MAX, n->raw, nothing_ahead, n->counts, n->row_nnz, n->bits,
		GK_VALUE_F32, no_image);
	for (uint32_t i = 0; n->lists && i < BATCH_MAX; i++)
		n->ops->csr(&n->tile, n->raw[i], n->bits[i], GK_VALUE_F32, n->col, n->value);
}

/* @return seconds per word of a frame */
static double
measure(struct near *n)
{
	const double words = BATCH_MAX * (double)n->tile.rows * n->tile.cols / WORD;
	uint64_t times = 0;
	double start, now;

	run_once(n);
	start = seconds();
	do {
		for (int i = 0; i < 16; i++)
			run_once(n);
		times += 16;
		now = seconds();
	} while (now - start < RUN);
	return (now - start) / (double)times / words;
}

static void
put_row(const struct bench *b, const char *name, enum gk_isa isa, double word, double cycles,
	double fewest)
{
	const double frame = word * (double)gk_pixels(&b->config.geometry) / WORD;
	char notes[128];

	snprintf(notes, sizeof(notes),
		"%s, batches of %d; %.2f ns, %.1f cycles for %d pixels, at best %.1f",
		gk_isa_name(isa), BATCH_MAX, 1e9 * word, cycles, WORD, fewest);
	bench_row(&(struct bench_row){.stage = "gang",
		.what = name,
		.value = 1 / frame,
		.unit = "frames/s",
		.role = BENCH_CEILING,
		.notes = notes});
}

static void
run_kind(const struct bench *b, struct near *n, unsigned int kind, enum gk_isa isa)
{
	const uint32_t rounds =
		b->repeats * ROUNDS < REPEATS_MAX ? b->repeats * ROUNDS : REPEATS_MAX;
	double word[REPEATS_MAX], cycles[REPEATS_MAX], ns, median;

	n->ops = gk_tile_choose(isa);
	n->tile.rows = kinds[kind].rows;
	n->lists = kinds[kind].lists;
	for (uint32_t i = 0; i < rounds; i++) {
		word[i] = measure(n);
		cycles[i] = word[i] / cycle();
	}
	ns = bench_sort(word, rounds);
	median = bench_sort(cycles, rounds);
	printf("%-28s %-7s %8.2f %8.2f %8.2f %10.1f\n", kinds[kind].name, gk_isa_name(isa),
		1e9 * ns, median, cycles[0], WORD / ns / (double)gk_pixels(&b->config.geometry));
	if (isa == (enum gk_isa)gk_isa_choose(GK_ISA_AUTO))
		put_row(b, kinds[kind].name, isa, ns, median, cycles[0]);
}

void
near_rows(const struct bench *b)
{
	static uint16_t row_nnz[BATCH_MAX][TILE_ROWS], col[TILE_ROWS * 1024];
	static uint32_t bits[BATCH_MAX][TILE_ROWS * 64];
	static float value[TILE_ROWS * 1024];
	struct near n = {.tile = {.cols = b->config.geometry.cols,
				 .strong_threshold = STRONG_THRESHOLD,
				 .csr_threshold = CSR_THRESHOLD},
		.col = col,
		.value = value};

	for (int i = 0; i < 3; i++) {
		n.tile.p[i] = b->p[i];
		n.tile.r[i] = b->r[i];
	}
	for (uint32_t i = 0; i < BATCH_MAX; i++) {
		n.raw[i] = packet_of(b, i, 0);
		n.row_nnz[i] = row_nnz[i];
		n.bits[i] = bits[i];
	}
	printf("\n%d frames of one tile in the caches, %d pixels of a frame\n%-28s %-7s %8s %8s "
	       "%8s %10s\n",
		BATCH_MAX, WORD, "what", "isa", "ns", "cycles", "fewest", "frames/s");
	for (unsigned int kind = 0; kind < KINDS; kind++)
		for (uint32_t i = 0; i < b->nb_sets; i++)
			run_kind(b, &n, kind, b->set[i].isa);
}
