/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Radial profiles on one core: conversion to int16 photons, tile by tile, alone and with the
 * profile of these photons. Pixels of 0 photons cost less, so there are frames with few photons and
 * frames that have some in every second pixel.
 */

#include <stdio.h>
#include <stdlib.h>

#include "bench_rows.h"
#include "gk_bench.h"
#include "gk_radial.h"
#include "gk_tile.h"

#define BINS	 1000
#define PEDESTAL 3040
#define ADU	 520 /* of a photon */
#define FRAMES	 8

static const struct {
	const char *name;
	bool dense;
} kinds[] = {
	{"profile, few photons", false},
	{"profile, half of pixels", true},
};
#define KINDS (sizeof(kinds) / sizeof(kinds[0]))

/* Ways to process a frame. */
enum way {
	ALONE,	  /* the conversion */
	PROFILE,  /* with the profile */
	WEIGHTED, /* with weights of pixels, as for the solid angle */
	WAYS
};

struct radial_set {
	const struct gk_tile_ops *ops;
	struct gk_radial *radial[WAYS]; /* NULL: none */
	double ms[WAYS][REPEATS_MAX];	/* of a frame */
};

/* 1 to 3 photons in every second pixel, at random. */
static void
fill_dense(const struct bench *b)
{
	const struct gk_geometry *g = &b->config.geometry;
	uint64_t rng = 3;

	for (uint32_t f = 0; f < FRAMES; f++)
		for (uint32_t t = 0; t < g->tiles; t++)
			for (uint32_t i = 0; i < g->tile_rows * g->cols; i++) {
				uint32_t draw;

				rng = rng * UINT64_C(6364136223846793005) + 1442695040888963407;
				draw = (uint32_t)(rng >> 32) % 6;
				packet_of(b, f, t)[i] =
					(uint16_t)(PEDESTAL + (draw < 4 ? draw : 0) * ADU);
			}
}

/* @return ms of a frame */
static double
process(const struct bench *b, const struct radial_set *s, enum way way, struct gk_radial_bin *out)
{
	const struct gk_geometry *g = &b->config.geometry;
	const uint32_t pixels = g->tile_rows * g->cols;
	static int16_t photons[4 * 1024];
	const double start = seconds();

	for (uint32_t f = 0; f < FRAMES; f++) {
		if (s->radial[way] != NULL)
			gk_radial_begin(s->radial[way]);
		for (uint32_t t = 0; t < g->tiles; t++) {
			struct gk_tile tile = {.rows = g->tile_rows, .cols = g->cols};

			for (int i = 0; i < 3; i++) {
				tile.p[i] = b->p[i] + (uint64_t)t * pixels;
				tile.r[i] = b->r[i] + (uint64_t)t * pixels;
			}
			s->ops->photons(&tile, packet_of(b, f, t), photons);
			if (s->radial[way] != NULL)
				gk_radial_add(
					s->radial[way], t * g->tile_rows, g->tile_rows, photons);
			__asm__ volatile("" ::"r"(photons) : "memory");
		}
		if (s->radial[way] != NULL)
			gk_radial_end(s->radial[way], out);
	}
	return 1e3 * (seconds() - start) / FRAMES;
}

static void
report(const struct radial_set *s, enum gk_isa isa, const char *name, uint32_t rounds)
{
	const double alone = bench_median(s->ms[ALONE], rounds);
	const double ms = bench_median(s->ms[PROFILE], rounds);
	const double ratio = bench_median_ratio(s->ms[ALONE], s->ms[PROFILE], rounds);
	char notes[96];

	printf("%-28s %-7s %10.2f %10.2f %10.2f %8.2f %10.2f\n", name, gk_isa_name(isa), alone, ms,
		ms - alone, ratio, bench_median(s->ms[WEIGHTED], rounds) - alone);
	if (isa != (enum gk_isa)gk_isa_choose(GK_ISA_AUTO))
		return;
	snprintf(notes, sizeof(notes), "%s, %d bins; %.2f ms for the profile", gk_isa_name(isa),
		BINS, ms - alone);
	bench_row(&(struct bench_row){.stage = "profile",
		.what = name,
		.value = 1e3 / ms,
		.unit = "frames/s",
		.against = "the conversion alone",
		.other = 1e3 / alone,
		.ratio = ratio,
		.notes = notes});
}

static int
open_sets(const struct bench *b, struct radial_set *sets, const struct gk_radial_map *map)
{
	struct gk_radial_map plain = *map;

	plain.weight = NULL;
	for (uint32_t i = 0; i < b->nb_sets; i++) {
		int ret = gk_radial_create(&plain, b->set[i].isa, &sets[i].radial[PROFILE]);

		if (ret == 0)
			ret = gk_radial_create(map, b->set[i].isa, &sets[i].radial[WEIGHTED]);
		if (ret != 0) {
			fprintf(stderr, "gk_bench: no memory for radial profiles\n");
			return ret;
		}
		sets[i].ops = gk_tile_choose(b->set[i].isa);
	}
	return 0;
}

static void
run_kind(struct bench *b, struct radial_set *sets, unsigned int kind, struct gk_radial_bin *out)
{
	const double end = seconds() + b->seconds;
	uint32_t rounds = 0;

	if (kinds[kind].dense)
		fill_dense(b);
	else
		bench_bright(b, false);
	while (rounds < b->repeats && (rounds < 3 || seconds() < end)) {
		for (uint32_t i = 0; i < b->nb_sets; i++)
			for (enum way way = ALONE; way < WAYS; way++)
				sets[i].ms[way][rounds] = process(b, &sets[i], way, out);
		rounds++;
	}
	for (uint32_t i = 0; i < b->nb_sets; i++)
		report(&sets[i], b->set[i].isa, kinds[kind].name, rounds);
}

int
radial_rows(struct bench *b)
{
	static struct radial_set sets[GK_ISAS];
	static struct gk_peak_panel panel[32];
	static struct gk_radial_bin out[BINS];
	const uint64_t pixels = gk_pixels(&b->config.geometry);
	uint16_t *bin = bench_need(pixels * sizeof(*bin));
	uint32_t *weight = bench_need(pixels * sizeof(*weight));
	const struct gk_peak_map peaks = bench_map(b->modules, bin, panel);
	const struct gk_radial_map map = {peaks.rows, peaks.cols, BINS, bin, weight};
	uint32_t most = 0;
	int ret;

	for (uint64_t i = 0; i < pixels; i++)
		most = bin[i] > most ? bin[i] : most;
	for (uint64_t i = 0; i < pixels; i++) {
		bin[i] = (uint16_t)((uint32_t)bin[i] * BINS / (most + 1));
		weight[i] = GK_RADIAL_ONE;
	}
	ret = open_sets(b, sets, &map);
	if (ret == 0)
		printf("\nradial profiles with %d bins, %u modules, %d frames\n"
		       "%-28s %-7s %10s %10s %10s %8s %10s\n",
			BINS, b->modules, FRAMES, "what", "isa", "alone, ms", "with, ms",
			"more, ms", "ratio", "weights");
	for (unsigned int kind = 0; kind < KINDS && ret == 0; kind++)
		run_kind(b, sets, kind, out);
	for (uint32_t i = 0; i < b->nb_sets; i++)
		for (enum way way = ALONE; way < WAYS; way++)
			gk_radial_destroy(sets[i].radial[way]);
	free(bin);
	free(weight);
	return ret;
}
