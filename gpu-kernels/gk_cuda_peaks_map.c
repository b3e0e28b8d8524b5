/* SPDX-License-Identifier: BSD-3-Clause */
/* Memory of the search for peaks on a GPU: sizes, addresses, arrays that never change. */

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gk_cuda_peaks.h"

#define LINE 128 /* bytes of a line of the L2 cache */

#define KEYS_HUNDREDS  1024
#define KEYS_THOUSANDS 32768

static uint32_t
round_up(uint32_t n, uint32_t multiple)
{
	return (n + multiple - 1) / multiple * multiple;
}

/* @return false: the tile has no pixels that are used */
static bool
look_at_tile(const struct gk_peak_map *map, uint32_t row, uint32_t col, struct gk_cuda_peak_tile *t)
{
	const uint32_t rows = map->rows - row, cols = map->cols - col;
	uint32_t least = GK_PEAK_MASKED, end = 0;

	t->at = row * map->cols + col;
	t->rows = (uint16_t)(rows < GK_CUDA_PEAK_ROWS ? rows : GK_CUDA_PEAK_ROWS);
	t->cols = (uint16_t)(cols < GK_CUDA_PEAK_COLS ? cols : GK_CUDA_PEAK_COLS);
	for (uint32_t y = 0; y < t->rows; y++) {
		const uint16_t *bin = map->bin + t->at + (uint64_t)y * map->cols;

		for (uint32_t x = 0; x < t->cols; x++) {
			if (bin[x] & GK_PEAK_MASKED)
				continue;
			least = bin[x] < least ? bin[x] : least;
			end = bin[x] >= end ? bin[x] + 1u : end;
		}
	}
	t->bin = (uint16_t)least;
	t->end = (uint16_t)end;
	return end != 0;
}

/* List the tiles in raster order. @param tile  NULL: only count them */
static uint32_t
list_tiles(const struct gk_peak_map *map, struct gk_cuda_peak_tile *tile, uint32_t *nb_bins)
{
	struct gk_cuda_peak_tile t;
	uint32_t n = 0;

	*nb_bins = 0;
	for (uint32_t row = 0; row < map->rows; row += GK_CUDA_PEAK_ROWS) {
		for (uint32_t col = 0; col < map->cols; col += GK_CUDA_PEAK_COLS) {
			if (!look_at_tile(map, row, col, &t))
				continue;
			if (tile != NULL)
				tile[n] = t;
			n++;
			*nb_bins = t.end > *nb_bins ? t.end : *nb_bins;
		}
	}
	return n;
}

static int
order_of_tiles(const void *x, const void *y)
{
	const struct gk_cuda_peak_tile *a = x, *b = y;

	if (a->bin != b->bin)
		return a->bin < b->bin ? -1 : 1;
	return a->at < b->at ? -1 : a->at > b->at;
}

static void
set_shape(struct gk_cuda_peak_shape *s, uint32_t rows, uint32_t cols, uint32_t keys, uint32_t seeds)
{
	s->rows = rows;
	s->cols = cols;
	s->pixels = rows * cols;
	s->words = s->pixels / 32;
	/* 4 more before and after, so that groups of 4 are aligned */
	s->hit_words = round_up(s->words, 4) + 8;
	s->at_hundreds = round_up(keys, KEYS_HUNDREDS) / 32;
	s->at_thousands = s->at_hundreds + round_up(keys, KEYS_THOUSANDS) / KEYS_HUNDREDS;
	s->nb_thousands = round_up(keys, KEYS_THOUSANDS) / KEYS_THOUSANDS;
	s->key_words = round_up(s->at_thousands + s->nb_thousands, 4);
	s->seeds_max = seeds;
}

int
gk_cuda_peaks_shape(const struct gk_peak_map *map, struct gk_cuda_peak_shape *s)
{
	uint64_t keys = 0, seeds = 0;

	memset(s, 0, sizeof(*s));
	if ((uint64_t)map->rows * map->cols > INT32_MAX)
		return -E2BIG;
	for (uint32_t i = 0; i < map->nb_panels; i++) {
		const uint64_t width = map->panel[i].width, height = map->panel[i].height;

		keys += width * height;
		/* seeds are not at the border, and two are never neighbours */
		seeds += (width / 2) * (height / 2);
	}
	set_shape(s, map->rows, map->cols, (uint32_t)keys, (uint32_t)seeds);
	s->nb_panels = map->nb_panels;
	s->nb_tiles = list_tiles(map, NULL, &s->nb_bins);
	return 0;
}

void
gk_cuda_peaks_most(uint32_t rows, uint32_t cols, struct gk_cuda_peak_shape *s)
{
	memset(s, 0, sizeof(*s));
	set_shape(s, rows, cols, rows * cols, rows * cols / 4);
	s->nb_panels = GK_PEAK_PANELS_MAX;
	s->nb_bins = GK_PEAK_BINS_MAX;
	s->nb_tiles = (rows + GK_CUDA_PEAK_ROWS - 1) / GK_CUDA_PEAK_ROWS *
		((cols + GK_CUDA_PEAK_COLS - 1) / GK_CUDA_PEAK_COLS);
}

/* Memory that is handed out in parts. */
struct memory {
	uint8_t *base;
	uint64_t size;
};

static void *
take(struct memory *m, uint64_t count, uint64_t size)
{
	uint8_t *part = m->base != NULL ? m->base + m->size : NULL;

	m->size += (count * size + LINE - 1) / LINE * LINE;
	return part;
}

uint64_t
gk_cuda_peaks_place(struct gk_cuda_peaks *a, uint32_t gangs, uint8_t *base, uint64_t *constant)
{
	const struct gk_cuda_peak_shape *s = &a->s;
	const uint64_t slots = (uint64_t)gangs * GK_CUDA_PEAK_FRAMES;
	struct memory m = {base, 0};

#define TAKE(field, count) a->field = take(&m, count, sizeof(*a->field))
	TAKE(bin, s->pixels);
	TAKE(panel_of, s->pixels);
	TAKE(panel, s->nb_panels);
	TAKE(first_key, s->nb_panels);
	TAKE(used, s->nb_bins);
	TAKE(start, s->nb_bins);
	TAKE(tile, s->nb_tiles);
	TAKE(inner, s->words);
	TAKE(rim, s->words);
	*constant = m.size;
	TAKE(photons, slots * s->pixels);
	TAKE(values, slots * s->nb_bins * GK_CUDA_PEAK_VALUES);
	TAKE(listed, slots * s->nb_bins);
	TAKE(rest, slots * s->pixels);
	TAKE(offset, slots * (GK_PEAK_BIN_MASK + 1));
	TAKE(upper, slots * (GK_PEAK_BIN_MASK + 1));
	TAKE(hits, slots * s->hit_words);
	TAKE(keys, slots * 2 * s->key_words);
	TAKE(counters, slots);
	TAKE(list, slots * GK_PEAKS_MAX);
	TAKE(parent, (uint64_t)gangs * s->pixels);
	TAKE(size, (uint64_t)gangs * s->pixels);
	TAKE(smallest, (uint64_t)gangs * s->pixels);
	TAKE(position, (uint64_t)gangs * s->pixels);
	TAKE(seed, (uint64_t)gangs * s->seeds_max);
	TAKE(record, (uint64_t)gangs * s->seeds_max);
#undef TAKE
	return m.size;
}

static void
fill_panel(const struct gk_peak_map *map, const struct gk_cuda_peaks *a, uint32_t number)
{
	const struct gk_peak_panel *p = &map->panel[number];

	for (uint32_t ss = 0; ss < p->height; ss++) {
		for (uint32_t fs = 0; fs < p->width; fs++) {
			const uint32_t at = (p->ss + ss) * map->cols + p->fs + fs;
			const bool inner =
				fs > 0 && ss > 0 && fs + 1 < p->width && ss + 1 < p->height;
			const bool rim = inner && (fs == 1 || ss == 1 || fs + 2 == p->width);

			a->panel_of[at] = (uint16_t)number;
			a->inner[at / 32] |= (uint32_t)inner << at % 32;
			a->rim[at / 32] |= (uint32_t)rim << at % 32;
		}
	}
}

void
gk_cuda_peaks_fill(const struct gk_peak_map *map, const struct gk_cuda_peaks *a)
{
	const struct gk_cuda_peak_shape *s = &a->s;
	uint32_t nb_bins, keys = 0, listed = 0;

	memcpy(a->bin, map->bin, s->pixels * sizeof(*a->bin));
	memset(a->panel_of, 0, s->pixels * sizeof(*a->panel_of));
	memcpy(a->panel, map->panel, s->nb_panels * sizeof(*a->panel));
	memset(a->inner, 0, s->words * sizeof(*a->inner));
	memset(a->rim, 0, s->words * sizeof(*a->rim));
	memset(a->used, 0, s->nb_bins * sizeof(*a->used));
	for (uint32_t i = 0; i < s->nb_panels; i++) {
		a->first_key[i] = keys;
		keys += map->panel[i].width * map->panel[i].height;
		fill_panel(map, a, i);
	}
	for (uint32_t i = 0; i < s->pixels; i++)
		if (!(map->bin[i] & GK_PEAK_MASKED))
			a->used[map->bin[i]]++;
	for (uint32_t i = 0; i < s->nb_bins; i++) {
		a->start[i] = listed;
		listed += a->used[i];
	}
	list_tiles(map, a->tile, &nb_bins);
	qsort(a->tile, s->nb_tiles, sizeof(*a->tile), order_of_tiles);
}

void *
gk_cuda_peaks_make(
	const struct gk_peak_map *map, struct gk_cuda_peaks *a, uint32_t gangs, uint64_t *size)
{
	uint8_t *memory;

	gk_cuda_peaks_place(a, gangs, NULL, size);
	memory = malloc(*size);
	if (memory == NULL)
		return NULL;
	gk_cuda_peaks_place(a, gangs, memory, size);
	gk_cuda_peaks_fill(map, a);
	return memory;
}
