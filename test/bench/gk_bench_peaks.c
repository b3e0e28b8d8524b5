/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for peaks on one core, by instruction set, compared with the algorithm as it is
 * written down (six passes over all pixels) and with a pass that only reads photons and map.
 */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "bench_rows.h"
#include "gk_bench.h"
#include "gk_peak_naive.h"

#define FRAMES	    8
#define MODULE_ROWS 512
#define MODULE_COLS 1024
#define SPOTS	    160 /* of a module, as in a frame of lysozyme */
#define NAIVE	    GK_ISAS
#define READ	    (GK_ISAS + 1)
#define WAYS	    (GK_ISAS + 2)

/* Frames, their map, and what runs on them. */
struct peak_bench {
	struct gk_peak_map map;
	struct gk_peak_panel panel[32];
	uint16_t *bin;
	int16_t *photons[FRAMES];
	float *image;
	struct gk_peaks *found;
	struct gk_peak_finder *finder[GK_ISAS];
	struct naive *naive;
	uint64_t pixels;
	double ms[WAYS][REPEATS_MAX]; /* of a frame */
};

static const struct gk_peak_params params = {.threshold = STRONG_THRESHOLD,
	.min_snr = 5,
	.min_pixels = 2,
	.max_pixels = 200,
	.bg_radius = 3,
	.saturated = 1};

static uint32_t
next_random(uint64_t *rng)
{
	*rng = *rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(*rng >> 33);
}

struct gk_peak_map
bench_map(uint32_t modules, uint16_t *bin, struct gk_peak_panel *panel)
{
	const double middle = (modules + 1) / 2 * 275.0;

	for (uint32_t m = 0; m < modules; m++) {
		const double x = m % 2 ? 8 : -8.3 - MODULE_COLS, y = m / 2 * 550 - middle;

		panel[m] = (struct gk_peak_panel){
			0, m * MODULE_ROWS, MODULE_COLS, MODULE_ROWS, INFINITY};
		for (uint32_t ss = 0; ss < MODULE_ROWS; ss++)
			for (uint32_t fs = 0; fs < MODULE_COLS; fs++)
				bin[(uint64_t)(m * MODULE_ROWS + ss) * MODULE_COLS + fs] =
					gk_peak_bin(x + fs, y + ss, 0, 0);
	}
	return (struct gk_peak_map){modules * MODULE_ROWS, MODULE_COLS, bin, panel, modules};
}

/* Poisson noise of this mean. */
static int16_t
noise(uint64_t *rng, float limit)
{
	float product = 1;
	int16_t n = -1;

	do {
		product *= (float)(next_random(rng) + 1) * (1 / 2147483648.0f);
		n++;
	} while (product > limit);
	return n;
}

/* As in real frames: half of the pixels have photons, more of them near the beam. */
static void
make_frame(struct peak_bench *p, int16_t *photons, uint64_t rng)
{
	float limit[GK_PEAK_BINS_MAX];

	for (uint32_t b = 0; b < GK_PEAK_BINS_MAX; b++)
		limit[b] = expf(-0.3f - 2 * expf(-(float)b / 500));
	for (uint64_t i = 0; i < p->pixels; i++)
		photons[i] = noise(&rng, limit[p->bin[i] & GK_PEAK_BIN_MASK]);
	for (uint32_t i = 0; i < SPOTS * p->map.nb_panels; i++) {
		const uint64_t row =
			i / SPOTS * MODULE_ROWS + 1 + next_random(&rng) % (MODULE_ROWS - 2);
		int16_t *at =
			photons + row * MODULE_COLS + 1 + next_random(&rng) % (MODULE_COLS - 2);
		const int16_t height = (int16_t)(20 + next_random(&rng) % 300);

		at[0] = height;
		at[-1] = at[1] = (int16_t)(height / 3);
		at[-MODULE_COLS] = at[MODULE_COLS] = (int16_t)(height / 4);
	}
}

static void
open_peaks(struct peak_bench *p, const struct bench *b)
{
	p->pixels = (uint64_t)b->modules * MODULE_ROWS * MODULE_COLS;
	p->bin = bench_need(p->pixels * sizeof(*p->bin));
	p->image = bench_need(p->pixels * sizeof(*p->image));
	p->found = bench_need(GK_PEAKS_SIZE);
	p->map = bench_map(b->modules, p->bin, p->panel);
	for (uint32_t f = 0; f < FRAMES; f++) {
		p->photons[f] = bench_need(p->pixels * sizeof(int16_t));
		if (f < 2)
			make_frame(p, p->photons[f], f);
		else
			memcpy(p->photons[f], p->photons[f % 2], p->pixels * sizeof(int16_t));
	}
	naive_from_i16(p->image, p->photons[0], p->pixels);
	p->naive = naive_open(&p->map);
	for (uint32_t i = 0; i < b->nb_sets; i++) {
		const enum gk_isa isa = b->set[i].isa;

		if (gk_peak_finder_create(&p->map, isa, &p->finder[isa]) != 0) {
			fprintf(stderr, "gk_bench: no memory for the search for peaks\n");
			exit(1);
		}
		gk_peaks_find(p->finder[isa], &params, p->photons[0], p->found);
	}
}

static void
close_peaks(struct peak_bench *p)
{
	for (uint32_t isa = 0; isa < GK_ISAS; isa++)
		gk_peak_finder_destroy(p->finder[isa]);
	naive_close(p->naive);
	for (uint32_t f = 0; f < FRAMES; f++)
		free(p->photons[f]);
	free(p->bin);
	free(p->image);
	free(p->found);
}

/* @return ms for a frame */
static double
find_all(struct peak_bench *p, struct gk_peak_finder *finder)
{
	const double start = seconds();

	for (uint32_t f = 0; f < FRAMES; f++)
		gk_peaks_find(finder, &params, p->photons[f], p->found);
	return 1e3 * (seconds() - start) / FRAMES;
}

static double
read_all(const struct peak_bench *p)
{
	const double start = seconds();
	uint32_t sum = 0;

	for (uint32_t f = 0; f < FRAMES; f++)
		for (uint64_t i = 0; i < p->pixels; i++)
			sum += (uint16_t)p->photons[f][i] ^ p->bin[i];
	__asm__ volatile("" ::"r"(sum));
	return 1e3 * (seconds() - start) / FRAMES;
}

static double
naive_once(struct peak_bench *p)
{
	const double start = seconds();

	naive_find(p->naive, &params, p->image, NAIVE_SEQUENTIAL, p->found);
	return 1e3 * (seconds() - start);
}

static void
report_peaks(const struct peak_bench *p, enum gk_isa isa, uint32_t rounds)
{
	const double ms = bench_median(p->ms[isa], rounds);
	const double naive = bench_median(p->ms[NAIVE], rounds);
	const double read = bench_median(p->ms[READ], rounds);
	const double faster = bench_median_ratio(p->ms[NAIVE], p->ms[isa], rounds);
	char what[48];

	printf("%-28s %-7s %10.2f %10.1f %10.2f %8.2f %10.2f %8.1f\n", "peaks", gk_isa_name(isa),
		ms, 1e3 / ms, read, bench_median_ratio(p->ms[READ], p->ms[isa], rounds), naive,
		faster);
	snprintf(what, sizeof(what), "peaks, %s", gk_isa_name(isa));
	bench_row(&(struct bench_row){.stage = "peaks",
		.what = what,
		.value = 1e3 / ms,
		.unit = "frames/s",
		.against = "six passes over all pixels",
		.other = 1e3 / naive,
		.ratio = faster,
		.goal = isa == GK_ISA_PLAIN ? "ratio >= 1.5" : "ratio >= 5"});
}

void
peak_rows(const struct bench *b)
{
	static struct peak_bench p;
	const double end = seconds() + b->seconds;
	uint32_t rounds = 0;

	open_peaks(&p, b);
	while (rounds < b->repeats && (rounds < 3 || seconds() < end)) {
		for (uint32_t i = 0; i < b->nb_sets; i++)
			p.ms[b->set[i].isa][rounds] = find_all(&p, p.finder[b->set[i].isa]);
		p.ms[READ][rounds] = read_all(&p);
		p.ms[NAIVE][rounds++] = naive_once(&p);
	}
	printf("\npeaks of int16 photons, %u modules, %d frames, %u peaks in a frame\n"
	       "%-28s %-7s %10s %10s %10s %8s %10s %8s\n",
		b->modules, FRAMES, p.found->count, "what", "isa", "ms/frame", "frames/s",
		"read, ms", "of read", "naive, ms", "x naive");
	for (uint32_t i = 0; i < b->nb_sets; i++)
		report_peaks(&p, b->set[i].isa, rounds);
	close_peaks(&p);
}
