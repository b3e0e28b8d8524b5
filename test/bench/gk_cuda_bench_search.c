/* SPDX-License-Identifier: BSD-3-Clause */
/* The search for peaks in gk_cuda_bench: its map of pixels and its parameters. */

#include <math.h>

#include "gk_cuda_bench.h"
#include "gk_peaks.h"

#define MODULE_ROWS 512

void
search_map(struct bench *b)
{
	const uint32_t rows = gk_rows(&b->geometry), cols = b->geometry.cols;
	const uint32_t modules = rows / MODULE_ROWS;

	b->nb_panels = modules;
	b->bin = bench_memory(b, b->pixels * sizeof(*b->bin));
	b->panel = bench_memory(b, modules * sizeof(*b->panel));
	for (uint32_t m = 0; m < modules; m++) {
		/* in two columns around the beam */
		const double x = m % 2 ? 8 : -8.3 - cols, y = m / 2 * 550 - modules / 4 * 550.0;

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
