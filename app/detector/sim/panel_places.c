/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/panel_places.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/pixels.h"

#define NO_PANEL   0x7fff
#define NOT_USED   0x8000 /* bit of a pixel that the geometry does not use */
#define PANEL_BITS 0x7fff

static_assert(GEOMETRY_PANELS_MAX < NO_PANEL, "panels have 15 bits");

/* A panel as vectors. */
struct plane {
	double corner[3], fs[3], ss[3];
	double normal[3]; /* fs x ss */
	double square;	  /* squared length of the normal */
	double height;	  /* normal . corner */
};

struct panel_places {
	struct geometry geometry;
	struct plane plane[GEOMETRY_PANELS_MAX];
	uint16_t panel[]; /* [pixels] panel of each pixel; NOT_USED: none */
};

static double
dot(const double a[3], const double b[3])
{
	return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

static void
cross(const double a[3], const double b[3], double c[3])
{
	c[0] = a[1] * b[2] - a[2] * b[1];
	c[1] = a[2] * b[0] - a[0] * b[2];
	c[2] = a[0] * b[1] - a[1] * b[0];
}

static int
plane_init(struct plane *plane, const struct geometry *g, const struct geometry_panel *p,
	double distance)
{
	*plane = (struct plane){
		.corner = {p->corner_x, -p->corner_y,
			distance + p->coffset_metres / g->pixel_metres},
		.fs = {p->fs_x, -p->fs_y, p->fs_z},
		.ss = {p->ss_x, -p->ss_y, p->ss_z},
	};
	cross(plane->fs, plane->ss, plane->normal);
	plane->square = dot(plane->normal, plane->normal);
	plane->height = dot(plane->normal, plane->corner);
	return plane->square > 1e-6 ? 0 : -EINVAL;
}

/* Marks the pixels of panels, and those that are not used. */
static int
map_init(struct panel_places *places)
{
	const struct geometry *g = &places->geometry;
	const size_t pixels = (size_t)g->rows * g->cols;
	uint16_t *bin = malloc(pixels * sizeof(*bin));
	uint32_t nb_bins;
	int ret;

	if (bin == NULL)
		return -ENOMEM;
	ret = pixels_bins(g, bin, &nb_bins);
	for (size_t i = 0; ret == 0 && i < pixels; i++)
		places->panel[i] = NO_PANEL | (bin[i] == GEOMETRY_MASKED ? NOT_USED : 0);
	free(bin);
	for (uint32_t n = 0; ret == 0 && n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t i = 0; i < p->height * p->width; i++) {
			uint16_t *panel =
				&places->panel[(size_t)(p->ss_min + i / p->width) * g->cols +
					p->fs_min + i % p->width];

			*panel = (uint16_t)((*panel & NOT_USED) | n);
		}
	}
	return ret;
}

int
panel_places_create(const struct geometry *g, double distance, struct panel_places **result)
{
	struct panel_places *places;
	int ret = 0;

	places = malloc(sizeof(*places) + (size_t)g->rows * g->cols * sizeof(places->panel[0]));
	if (places == NULL)
		return -ENOMEM;
	places->geometry = *g;
	for (uint32_t n = 0; ret == 0 && n < g->nb_panels; n++)
		ret = plane_init(&places->plane[n], g, &g->panel[n], distance);
	if (ret == 0)
		ret = map_init(places);
	if (ret != 0) {
		free(places);
		return ret;
	}
	*result = places;
	return 0;
}

void
panel_places_destroy(struct panel_places *places)
{
	free(places);
}

static uint16_t
panel_at(const struct panel_places *places, uint32_t row, uint32_t column)
{
	return places->panel[(size_t)row * places->geometry.cols + column];
}

bool
panel_places_pixel(const struct panel_places *places, uint32_t row, uint32_t column, double at[3])
{
	const uint32_t n = panel_at(places, row, column) & PANEL_BITS;
	const struct geometry_panel *p = &places->geometry.panel[n];
	const struct plane *plane = &places->plane[n];

	if (n == NO_PANEL)
		return false;
	for (int i = 0; i < 3; i++)
		at[i] = plane->corner[i] + (column - p->fs_min + 0.5) * plane->fs[i] +
			(row - p->ss_min + 0.5) * plane->ss[i];
	return true;
}

bool
panel_places_hit(
	const struct panel_places *places, const double ray[3], double *row, double *column)
{
	for (uint32_t n = 0; n < places->geometry.nb_panels; n++) {
		const struct geometry_panel *p = &places->geometry.panel[n];
		const struct plane *plane = &places->plane[n];
		const double slope = dot(plane->normal, ray);
		double at[3], across[3], fs, ss;

		/* the panel is behind the sample, or seen from its edge */
		if (!(slope * plane->height > 0.0))
			continue;
		for (int i = 0; i < 3; i++)
			at[i] = ray[i] * plane->height / slope - plane->corner[i];
		cross(at, plane->ss, across);
		fs = dot(across, plane->normal) / plane->square;
		cross(plane->fs, at, across);
		ss = dot(across, plane->normal) / plane->square;
		if (!(fs >= 0.0 && fs < p->width && ss >= 0.0 && ss < p->height))
			continue;
		if (panel_at(places, p->ss_min + (uint32_t)ss, p->fs_min + (uint32_t)fs) & NOT_USED)
			return false;
		*column = p->fs_min + fs - 0.5;
		*row = p->ss_min + ss - 0.5;
		return true;
	}
	return false;
}

bool
panel_places_same(const struct panel_places *places, uint32_t row, uint32_t column,
	uint32_t other_row, uint32_t other_column)
{
	return ((panel_at(places, row, column) ^ panel_at(places, other_row, other_column)) &
		       PANEL_BITS) == 0;
}

const char *
panel_places_name(const struct panel_places *places, uint32_t row, uint32_t column)
{
	const uint32_t n = panel_at(places, row, column) & PANEL_BITS;

	return n == NO_PANEL ? "-" : places->geometry.panel[n].name;
}
