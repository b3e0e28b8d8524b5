/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "geometry/array.h"
#include "geometry/pixels.h"

/* Coordinates of the beam in a panel, and how far outside the panel that is, in pixels. */
static double
beam_in_panel(const struct geometry_panel *p, double *fs, double *ss)
{
	const double det = p->fs_x * p->ss_y - p->fs_y * p->ss_x;
	double dx, dy;

	*fs = (p->ss_x * p->corner_y - p->ss_y * p->corner_x) / det;
	*ss = (p->fs_y * p->corner_x - p->fs_x * p->corner_y) / det;
	dx = fmax(0, fmax(-*fs, *fs - p->width));
	dy = fmax(0, fmax(-*ss, *ss - p->height));
	return sqrt(dx * dx + dy * dy);
}

void
array_beam(const struct geometry *g, double *x, double *y)
{
	double closest = INFINITY, fs, ss, far;

	*x = 0;
	*y = 0;
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		far = beam_in_panel(&g->panel[i], &fs, &ss);
		/* a panel along the beam has no such place: its distance is NaN or infinite */
		if (!(far < closest))
			continue;
		closest = far;
		*x = g->panel[i].fs_min + fs;
		*y = g->panel[i].ss_min + ss;
	}
}

int
array_mask(const struct geometry *g, uint32_t *mask)
{
	const size_t pixels = (size_t)g->rows * g->cols;
	uint16_t *bin = malloc(pixels * sizeof(*bin));
	uint32_t nb_bins;
	int ret = bin != NULL ? pixels_bins(g, bin, &nb_bins) : -ENOMEM;

	for (size_t i = 0; ret == 0 && i < pixels; i++)
		mask[i] = ARRAY_GAP;
	for (uint32_t k = 0; ret == 0 && k < g->nb_panels; k++) {
		const struct geometry_panel *p = &g->panel[k];

		for (uint32_t y = p->ss_min; y < p->ss_min + p->height; y++)
			for (uint32_t x = p->fs_min; x < p->fs_min + p->width; x++) {
				const size_t at = (size_t)y * g->cols + x;

				mask[at] = bin[at] == GEOMETRY_MASKED ? ARRAY_USER : 0;
			}
	}
	free(bin);
	return ret;
}
