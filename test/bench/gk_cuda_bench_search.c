/* SPDX-License-Identifier: BSD-3-Clause */
/* The search for peaks and radial profiles in gk_cuda_bench: maps of pixels, and parameters. */

#include <math.h>

#include "gk_cuda_bench.h"
#include "gk_peaks.h"

#define MODULE_ROWS 512

/* Column and row of a module's first pixel from the beam: two columns of modules around it. */
static void
module_place(const struct bench *b, uint32_t module, double *x, double *y)
{
	const uint32_t modules = gk_rows(&b->geometry) / MODULE_ROWS;

	*x = module % 2 ? 8 : -8.3 - b->geometry.cols;
	*y = module / 2 * 550 - modules / 4 * 550.0;
}

void
radial_map(struct bench *b, uint32_t bins)
{
	const uint32_t rows = gk_rows(&b->geometry), cols = b->geometry.cols;
	double most = 0, x, y;

	b->bins = bins;
	b->radial = bench_memory(b, b->pixels * sizeof(*b->radial));
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t row = 0; row < rows; row++) {
			module_place(b, row / MODULE_ROWS, &x, &y);
			for (uint32_t col = 0; col < cols; col++) {
				const double r = hypot(x + col, y + row % MODULE_ROWS);

				if (pass == 0)
					most = fmax(most, r + 1);
				else
					b->radial[(uint64_t)row * cols + col] =
						(uint16_t)(r / most * bins);
			}
		}
}

void
radial_map_free(struct bench *b)
{
	bench_free(b, b->radial);
	b->radial = NULL;
}

void
search_map(struct bench *b)
{
	const uint32_t rows = gk_rows(&b->geometry), cols = b->geometry.cols;
	const uint32_t modules = rows / MODULE_ROWS;
	double x, y;

	b->nb_panels = modules;
	b->bin = bench_memory(b, b->pixels * sizeof(*b->bin));
	b->panel = bench_memory(b, modules * sizeof(*b->panel));
	for (uint32_t m = 0; m < modules; m++) {
		module_place(b, m, &x, &y);
		b->panel[m] =
			(struct gk_peak_panel){0, m * MODULE_ROWS, cols, MODULE_ROWS, INFINITY};
		for (uint32_t i = 0; i < MODULE_ROWS * cols; i++)
			b->bin[(uint64_t)m * MODULE_ROWS * cols + i] =
				gk_peak_bin(x + i % cols, y + i / cols, 0, 0);
	}
}

void
player_search(struct player *p, enum gk_search search, uint32_t strong_min)
{
	p->config.channel->params[0] = (struct gk_params){.strong_threshold = BENCH_PEAK_THRESHOLD,
		.csr_threshold = BENCH_PEAK_THRESHOLD,
		.strong_min = strong_min,
		.strong_max = search == GK_SEARCH_NONE ? 0 : UINT32_MAX,
		.search = search,
		.peaks_min = GK_PEAKS_MAX + 1,
		.peaks_max = UINT32_MAX};
	p->config.channel->peak[0] = (struct gk_peak_params){.threshold = BENCH_PEAK_THRESHOLD,
		.min_snr = 5,
		.min_pixels = 2,
		.max_pixels = 200,
		.bg_radius = 3,
		.saturated = 1};
}
