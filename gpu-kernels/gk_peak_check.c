/* SPDX-License-Identifier: BSD-3-Clause */
/* Checks of maps and options of the search for peaks, with their error messages. */

#include <errno.h>
#include <stdlib.h>

#include "gk_peak_blob.h"
#include "gk_reason.h"

static int
check_panel(const struct reason *why, const struct gk_peak_map *map, uint32_t i)
{
	const struct gk_peak_panel *p = &map->panel[i];

	if (p->width == 0 || p->height == 0 || p->width > GK_PEAK_PANEL_MAX ||
		p->height > GK_PEAK_PANEL_MAX)
		return refuse(why, "panel %u has %u x %u pixels, expected 1 to %d each", i,
			p->width, p->height, GK_PEAK_PANEL_MAX);
	if (p->fs >= map->cols || p->width > map->cols - p->fs || p->ss >= map->rows ||
		p->height > map->rows - p->ss)
		return refuse(why,
			"panel %u: columns %u to %u, rows %u to %u, expected columns below %u and "
			"rows below %u",
			i, p->fs, p->fs + p->width - 1, p->ss, p->ss + p->height - 1, map->cols,
			map->rows);
	return 0;
}

/* @param owner  [rows][cols], receives the number of the pixel's panel + 1 */
static int
place_panel(
	const struct reason *why, const struct gk_peak_map *map, uint32_t number, uint16_t *owner)
{
	const struct gk_peak_panel *p = &map->panel[number];

	for (uint32_t ss = p->ss; ss < p->ss + p->height; ss++) {
		for (uint32_t fs = p->fs; fs < p->fs + p->width; fs++) {
			uint16_t *to = &owner[(uint64_t)ss * map->cols + fs];

			if (*to != 0)
				return refuse(why,
					"panels %u and %u overlap at column %u, row %u, expected "
					"panels apart",
					*to - 1, number, fs, ss);
			*to = (uint16_t)(number + 1);
		}
	}
	return 0;
}

static int
check_pixels(const struct reason *why, const struct gk_peak_map *map, const uint16_t *owner)
{
	const uint64_t pixels = (uint64_t)map->rows * map->cols;

	for (uint64_t i = 0; i < pixels; i++) {
		const uint32_t fs = (uint32_t)(i % map->cols), ss = (uint32_t)(i / map->cols);

		if (map->bin[i] & GK_PEAK_MASKED)
			continue;
		if (map->bin[i] >= GK_PEAK_BINS_MAX)
			return refuse(why,
				"bin %u at column %u, row %u, expected less than %d, or masked",
				map->bin[i], fs, ss, GK_PEAK_BINS_MAX);
		if (owner[i] == 0)
			return refuse(why,
				"column %u, row %u is in no panel, expected a masked pixel", fs,
				ss);
	}
	return 0;
}

int
gk_peak_map_check(const struct gk_peak_map *map, char *text, size_t size)
{
	const struct reason why = {text, size};
	uint16_t *owner;
	int ret = 0;

	if (map->cols == 0 || map->cols % 32 != 0 || map->cols > GK_COLS_MAX)
		return refuse(&why, "cols is %u, expected a multiple of 32 up to %u", map->cols,
			GK_COLS_MAX);
	if (map->rows == 0 || (uint64_t)map->rows * map->cols > UINT32_MAX)
		return refuse(&why, "%u rows of %u pixels, expected 1 to 2^32 - 1 pixels",
			map->rows, map->cols);
	if (map->nb_panels == 0 || map->nb_panels > GK_PEAK_PANELS_MAX)
		return refuse(&why, "nb_panels is %u, expected 1 to %d", map->nb_panels,
			GK_PEAK_PANELS_MAX);
	if (map->bin == NULL || map->panel == NULL)
		return refuse(&why, "%s is NULL", map->bin == NULL ? "bin" : "panel");
	for (uint32_t i = 0; i < map->nb_panels && ret == 0; i++)
		ret = check_panel(&why, map, i);
	if (ret != 0)
		return ret;
	owner = calloc((uint64_t)map->rows * map->cols, sizeof(*owner));
	if (owner == NULL)
		return -ENOMEM;
	for (uint32_t i = 0; i < map->nb_panels && ret == 0; i++)
		ret = place_panel(&why, map, i, owner);
	if (ret == 0)
		ret = check_pixels(&why, map, owner);
	free(owner);
	return ret;
}

int
gk_peak_params_check(const struct gk_peak_params *p, char *text, size_t size)
{
	const struct reason why = {text, size};

	if (!isfinite(p->threshold))
		return refuse(&why, "threshold is %g, expected a finite number", p->threshold);
	if (!isfinite(p->min_snr) || p->min_snr < 0)
		return refuse(
			&why, "min_snr is %g, expected a finite number of at least 0", p->min_snr);
	if (p->min_pixels > p->max_pixels)
		return refuse(&why, "min_pixels is %u, expected at most max_pixels, %u",
			p->min_pixels, p->max_pixels);
	if (p->bg_radius > GK_PEAK_RADIUS_MAX)
		return refuse(&why, "bg_radius is %u, expected at most %d", p->bg_radius,
			GK_PEAK_RADIUS_MAX);
	if (p->shells > GK_PEAK_SHELLS_MAX)
		return refuse(
			&why, "shells is %u, expected at most %d", p->shells, GK_PEAK_SHELLS_MAX);
	for (uint32_t i = 0; i < p->shells; i++)
		if (p->shell[i] >= p->shell[i + 1])
			return refuse(&why, "shell[%u] is %u, expected less than shell[%u], %u", i,
				p->shell[i], i + 1, p->shell[i + 1]);
	return 0;
}
