/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Random detectors, options and frames for searches for peaks, from a seed: panels of any size with
 * gaps, rings and single pixels that are masked, few and many bins; frames of noise, spots, lines,
 * squares, spirals, equal values, single pixels, clouds of hits that are connected in large parts.
 * For C and C++.
 */
#ifndef GK_PEAK_CASES_H
#define GK_PEAK_CASES_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "gk_peaks.h"

struct peak_case {
	uint64_t rng;
	struct gk_peak_map map;
	struct gk_peak_params params;
	struct gk_peak_panel panel[GK_PEAK_PANELS_MAX];
	uint16_t *bin;	  /* room for all pixels */
	int16_t *photons; /* likewise */
};

static inline uint32_t
case_random(struct peak_case *c)
{
	c->rng = c->rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)(c->rng >> 33);
}

static inline uint32_t
case_below(struct peak_case *c, uint32_t n)
{
	return (uint32_t)((uint64_t)case_random(c) * n >> 31);
}

static inline bool
case_chance(struct peak_case *c, uint32_t of_1000)
{
	return case_below(c, 1000) < of_1000;
}

static inline uint16_t
case_bin(struct peak_case *c, uint32_t kind, double x, double y, uint32_t min_res, uint32_t max_res)
{
	switch (kind) {
	case 0: /* one bin */
		return 7;
	case 1: /* bins without order */
		return (uint16_t)case_below(c, 900);
	case 2: /* the largest bins */
		return (uint16_t)(GK_PEAK_BINS_MAX - 1 - case_below(c, 3));
	default:
		return gk_peak_bin(x, y, min_res, max_res);
	}
}

/* Panels in a grid of columns and rows, with gaps. */
static inline void
case_map(struct peak_case *c)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols, kind = case_below(c, 12);
	const uint32_t across = 1 + case_below(c, cols < 16 ? 1 : cols / 16 < 4 ? cols / 16 : 4);
	const uint32_t down = 1 + case_below(c, rows < 16 ? 1 : rows / 16 < 4 ? rows / 16 : 4);
	const uint32_t gap = case_below(c, 4), bad = case_chance(c, 400) ? case_below(c, 200) : 0;
	const uint32_t min_res = case_chance(c, 300) ? case_below(c, 40) : 0;
	const uint32_t max_res = case_chance(c, 300) ? 20 + case_below(c, cols) : 0;
	const uint32_t ring = case_chance(c, 300) ? 10 + case_below(c, 60) : UINT32_MAX;
	const double turn = case_below(c, 3) * 0.3;

	for (uint64_t i = 0; i < (uint64_t)rows * cols; i++)
		c->bin[i] = GK_PEAK_MASKED | 5;
	c->map.bin = c->bin;
	c->map.panel = c->panel;
	c->map.nb_panels = 0;
	for (uint32_t p = 0; p < across * down; p++) {
		struct gk_peak_panel *to = &c->panel[c->map.nb_panels];
		const double corner_x = (int)case_below(c, cols) - (double)cols / 2 + 0.3;
		const double corner_y = (int)case_below(c, rows) - (double)rows / 2 + 0.6;

		to->fs = p % across * (cols / across) + (p % across ? gap : 0);
		to->ss = p / across * (rows / down) + (p / across ? gap : 0);
		to->width = (p % across + 1) * (cols / across) - to->fs;
		to->height = (p / across + 1) * (rows / down) - to->ss;
		to->max_adu = case_chance(c, 500) ? (float)case_below(c, 300) : 32000.0f;
		for (uint32_t ss = 0; ss < to->height; ss++) {
			for (uint32_t fs = 0; fs < to->width; fs++) {
				const double x = corner_x + fs * (1 - turn / 8) + ss * turn;
				const double y = corner_y - fs * turn + ss * (1 - turn / 8);
				uint16_t bin = case_bin(c, kind, x, y, min_res, max_res);

				if (bin == ring || bin == ring + 1 || case_chance(c, bad))
					bin |= GK_PEAK_MASKED;
				c->bin[(uint64_t)(to->ss + ss) * cols + to->fs + fs] = bin;
			}
		}
		c->map.nb_panels++;
	}
	if (case_chance(c, 20)) /* all pixels are masked */
		for (uint64_t i = 0; i < (uint64_t)rows * cols; i++)
			c->bin[i] |= GK_PEAK_MASKED;
}

static inline void
case_params(struct peak_case *c)
{
	static const float threshold[] = {-20, 0, 0.5f, 2, 5, 20, 60, 150, 800, 40000};
	static const float snr[] = {0, 0.5f, 1, 2, 3, 5};
	static const uint32_t most[] = {1, 3, 20, 200, 200, 1000, 5000, UINT32_MAX};
	struct gk_peak_params *p = &c->params;

	memset(p, 0, sizeof(*p));
	p->threshold = threshold[case_below(c, 10)];
	p->min_snr = snr[case_below(c, 6)];
	p->min_pixels = case_below(c, 4);
	p->max_pixels = most[case_below(c, 8)];
	if (p->max_pixels < p->min_pixels)
		p->max_pixels = p->min_pixels;
	p->bg_radius = case_chance(c, 500) ? 3 : case_below(c, GK_PEAK_RADIUS_MAX + 1);
	p->saturated = case_below(c, 2);
	p->shells = case_below(c, GK_PEAK_SHELLS_MAX + 1);
	for (uint32_t i = 0; i < p->shells; i++)
		p->shell[i + 1] = p->shell[i] + 1 + case_below(c, 60);
}

/* Poisson noise of this mean. */
static inline int16_t
case_noise(struct peak_case *c, float exp_mean)
{
	float product = 1;
	int n = -1;

	do {
		product *= (float)(case_random(c) + 1) * (1 / 2147483648.0f);
		n++;
	} while (product > exp_mean && n < 400);
	return (int16_t)n;
}

static inline void
case_spot(struct peak_case *c, uint32_t row, uint32_t col, int height)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols;

	for (uint32_t y = row > 0 ? row - 1 : 0; y <= row + 1 && y < rows; y++) {
		for (uint32_t x = col > 0 ? col - 1 : 0; x <= col + 1 && x < cols; x++) {
			const int away = (y != row) + (x != col);
			int16_t *to = &c->photons[(uint64_t)y * cols + x];
			const int sum = *to + (height >> 2 * away);

			*to = (int16_t)(sum < INT16_MAX ? sum : INT16_MAX);
		}
	}
}

static inline void
case_line(struct peak_case *c, int16_t value)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols;
	int64_t row = case_below(c, rows), col = case_below(c, cols);
	const int down = (int)case_below(c, 3) - 1, right = (int)case_below(c, 3) - 1;

	for (uint32_t n = case_below(c, 90); n > 0; n--) {
		if (row < 0 || row >= rows || col < 0 || col >= cols)
			return;
		c->photons[row * cols + col] = value;
		row += down;
		col += right;
	}
}

/* Walls of a spiral or comb: one blob of many arms, whose first pixels in raster order are apart */
static inline void
case_comb(struct peak_case *c, int16_t value)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols;
	const uint32_t height = 2 + case_below(c, 50), width = 3 + case_below(c, 90);
	const uint32_t row = case_below(c, rows), col = case_below(c, cols);
	const bool open = case_chance(c, 500);

	for (uint32_t y = row; y < row + height && y < rows; y++)
		for (uint32_t x = col; x < col + width && x < cols; x++)
			if ((x - col) % 2 == 0 || y == (open ? row + height - 1 : row))
				c->photons[(uint64_t)y * cols + x] = value;
}

static inline void
case_block(struct peak_case *c, int16_t value)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols;
	const uint32_t height = 1 + case_below(c, 40), width = 1 + case_below(c, 80);
	const uint32_t row = case_below(c, rows), col = case_below(c, cols);

	for (uint32_t y = row; y < row + height && y < rows; y++)
		for (uint32_t x = col; x < col + width && x < cols; x++)
			c->photons[(uint64_t)y * cols + x] = value;
}

/* Content of c->photons; `kind`: UINT32_MAX for a random one. */
static inline void
case_frame(struct peak_case *c, uint32_t kind)
{
	const uint32_t rows = c->map.rows, cols = c->map.cols;
	const uint64_t pixels = (uint64_t)rows * cols;
	const uint32_t things = 1 + (uint32_t)(pixels / 1500);
	const uint32_t density = case_below(c, 1000);
	const int16_t level = (int16_t)(5 + case_below(c, 300));
	const int offset = (int)case_below(c, 40) - 20;
	float exp_mean = expf(-0.2f - (float)case_below(c, 3000) / 1000);

	if (kind == UINT32_MAX)
		kind = case_below(c, 16);
	if (kind == 1)
		exp_mean = 1e-37f; /* mean 85, so that many are not in tables */
	for (uint64_t i = 0; i < pixels; i++) {
		int value = 0;

		switch (kind) {
		case 2: /* equal */
			value = level;
			break;
		case 3: /* clouds */
			value = case_chance(c, density) ? level : 0;
			break;
		case 4: /* anything */
			value = (int16_t)case_random(c);
			break;
		case 5: /* single pixels */
			value = i % cols % 2 == 0 && i / cols % 2 == 0 ? level : 0;
			break;
		case 6: /* bright */
			value = 200 + (int)case_below(c, 400);
			break;
		case 7: /* nothing */
			break;
		case 8: /* saturated */
			value = case_chance(c, density) ? INT16_MAX : (int)case_below(c, 3);
			break;
		case 9: /* invalid */
			value = case_chance(c, density) ? INT16_MIN : (int)case_below(c, 5);
			break;
		case 10: /* negative */
			value = (int)case_below(c, 30) + offset;
			break;
		default:
			value = case_noise(c, exp_mean);
		}
		c->photons[i] = (int16_t)value;
	}
	for (uint32_t i = 0; i < things && kind != 2 && kind != 6; i++) {
		if (kind <= 1 || kind >= 7)
			case_spot(c, case_below(c, rows), case_below(c, cols),
				10 + (int)case_below(c, case_chance(c, 30) ? 40000 : 400));
		if (kind == 11)
			case_line(c, level);
		if (kind == 12 && i % 8 == 0)
			case_comb(c, level);
		if (kind == 13 && i % 4 == 0)
			case_block(c, level);
		if (kind == 14)
			c->photons[case_below(c, (uint32_t)pixels)] = INT16_MIN;
	}
}

#endif /* GK_PEAK_CASES_H */
