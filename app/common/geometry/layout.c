/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "geometry/layout.h"

static const struct layout layouts[] = {
	{.name = "jungfrau",
		.module_rows = LAYOUT_JUNGFRAU_ROWS,
		.module_cols = LAYOUT_JUNGFRAU_COLUMNS,
		.chip = LAYOUT_JUNGFRAU_CHIP,
		.pixel_metres = LAYOUT_JUNGFRAU_PIXEL_UM / 1e6,
		.chip_gap = LAYOUT_JUNGFRAU_CHIP_GAP,
		.gap_x = LAYOUT_JUNGFRAU_GAP_X,
		.gap_y = LAYOUT_JUNGFRAU_GAP_Y},
};

const struct layout *
layout_find(const char *name)
{
	for (unsigned int i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++)
		if (strcmp(layouts[i].name, name) == 0)
			return &layouts[i];
	return NULL;
}

/* Pixels from a module to the next one. */
static double
pitch(const struct layout *l, uint32_t pixels, double gap)
{
	return pixels + (pixels / l->chip - 1) * l->chip_gap + gap;
}

void
layout_extent(const struct layout *l, double *width, double *height)
{
	const uint32_t columns = (l->modules + l->column_modules - 1) / l->column_modules;

	*width = columns * pitch(l, l->module_cols, l->gap_x) - l->gap_x;
	*height = l->column_modules * pitch(l, l->module_rows, l->gap_y) - l->gap_y;
}

int
layout_geometry(struct geometry *g, const struct layout *l, double beam_x, double beam_y)
{
	const bool chips = l->chip_gap != 0;
	const uint32_t width = chips ? l->chip : l->module_cols;
	const uint32_t height = chips ? l->chip : l->module_rows;
	const uint32_t across = l->module_cols / width, down = l->module_rows / height;

	memset(g, 0, sizeof(*g));
	if (l->modules == 0 || l->modules > GEOMETRY_PANELS_MAX / (across * down))
		return -E2BIG;
	g->rows = l->modules * l->module_rows;
	g->cols = l->module_cols;
	g->pixel_metres = l->pixel_metres;
	for (uint32_t m = 0; m < l->modules; m++) {
		const double x =
			m / l->column_modules * pitch(l, l->module_cols, l->gap_x) - beam_x;
		const double y =
			m % l->column_modules * pitch(l, l->module_rows, l->gap_y) - beam_y;

		for (uint32_t i = 0; i < across * down; i++) {
			const uint32_t column = i % across, row = i / across;
			struct geometry_panel *p = &g->panel[g->nb_panels++];

			snprintf(p->name, sizeof(p->name), chips ? "m%uc%u" : "m%u", m, i);
			p->fs_min = column * width;
			p->ss_min = m * l->module_rows + row * height;
			p->width = width;
			p->height = height;
			p->corner_x = x + column * (width + l->chip_gap);
			p->corner_y = -(y + row * (height + l->chip_gap));
			p->fs_x = 1;
			p->ss_y = -1;
			p->max_adu = INFINITY;
		}
	}
	return 0;
}
