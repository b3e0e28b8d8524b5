/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <stdio.h>

#include "geometry/pixels.h"
#include "geometry/summary.h"
#include "plural.h"

#define OVERLAP_PIXELS	2    /* refined geometries may have less at the edges of panels */
#define OVERLAP_COFFSET 1e-3 /* m; panels behind each other may overlap in the picture */

/* Outer corners of a panel, in the order of its edges. */
static void
corners_of(const struct geometry_panel *p, double x[4], double y[4])
{
	for (int i = 0; i < 4; i++) {
		const double fs = i == 1 || i == 2 ? p->width : 0;
		const double ss = i >= 2 ? p->height : 0;

		x[i] = p->corner_x + fs * p->fs_x + ss * p->ss_x;
		y[i] = p->corner_y + fs * p->fs_y + ss * p->ss_y;
	}
}

/* How far two panels overlap along an axis of unit length. */
static double
overlap_along(const double ax[4], const double ay[4], const double bx[4], const double by[4],
	double nx, double ny)
{
	double a_low = INFINITY, a_high = -INFINITY, b_low = INFINITY, b_high = -INFINITY;

	for (int i = 0; i < 4; i++) {
		const double a = ax[i] * nx + ay[i] * ny, b = bx[i] * nx + by[i] * ny;

		a_low = fmin(a_low, a);
		a_high = fmax(a_high, a);
		b_low = fmin(b_low, b);
		b_high = fmax(b_high, b);
	}
	return fmin(a_high, b_high) - fmax(a_low, b_low);
}

/* Convex figures overlap if they do along the normals of all their edges. */
static bool
do_overlap(const struct geometry_panel *a, const struct geometry_panel *b)
{
	double x[2][4], y[2][4];

	if (fabs(a->coffset_metres - b->coffset_metres) > OVERLAP_COFFSET)
		return false;
	corners_of(a, x[0], y[0]);
	corners_of(b, x[1], y[1]);
	for (int i = 0; i < 2; i++) {
		for (int edge = 0; edge < 2; edge++) {
			const double nx = y[i][edge + 1] - y[i][edge];
			const double ny = x[i][edge] - x[i][edge + 1];
			const double length = hypot(nx, ny);

			if (!(overlap_along(x[0], y[0], x[1], y[1], nx / length, ny / length) >
				    OVERLAP_PIXELS))
				return false;
		}
	}
	return true;
}

static void
find_overlap(const struct geometry *g, struct geometry_summary *s)
{
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		for (uint32_t k = i + 1; k < g->nb_panels; k++) {
			if (!do_overlap(&g->panel[i], &g->panel[k]))
				continue;
			s->overlap = true;
			s->overlapping[0] = i;
			s->overlapping[1] = k;
			return;
		}
	}
}

/* Return true if the beam, x = y = 0, is on a panel. Solves corner + f fs + s ss = 0. */
static bool
has_beam(const struct geometry_panel *p)
{
	const double det = p->fs_x * p->ss_y - p->fs_y * p->ss_x;
	const double fs = (p->corner_y * p->ss_x - p->corner_x * p->ss_y) / det;
	const double ss = (p->corner_x * p->fs_y - p->corner_y * p->fs_x) / det;

	return fs >= 0 && fs < p->width && ss >= 0 && ss < p->height;
}

/* Largest angle of the corners of a panel to the beam. */
static double
angle_of(const struct geometry *g, const struct geometry_panel *p)
{
	const double distance = (g->distance_metres + p->coffset_metres) / g->pixel_metres;
	double x[4], y[4], angle = 0;

	corners_of(p, x, y);
	for (int i = 0; i < 4; i++) {
		const double fs = i == 1 || i == 2 ? p->width : 0;
		const double ss = i >= 2 ? p->height : 0;

		angle = fmax(
			angle, atan2(hypot(x[i], y[i]), distance + fs * p->fs_z + ss * p->ss_z));
	}
	return angle;
}

void
geometry_summary(const struct geometry *g, struct geometry_summary *s)
{
	const double wavelength = geometry_wavelength(g);
	struct pixels_picture picture;

	*s = (struct geometry_summary){.missing = (uint64_t)g->rows * g->cols,
		.two_theta = g->distance_metres > 0 ? 0 : NAN};
	if (pixels_picture(g, &picture) == 0) {
		s->width = picture.width;
		s->height = picture.height;
		s->beam_in_picture = picture.left <= 0 && picture.left + picture.width >= 0 &&
			picture.top >= 0 && picture.top - picture.height <= 0;
	}
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		const struct geometry_panel *p = &g->panel[i];

		s->missing -= (uint64_t)p->width * p->height;
		if (!s->beam_on_panel && has_beam(p)) {
			s->beam_on_panel = true;
			s->beam_panel = i;
		}
		if (g->distance_metres > 0)
			s->two_theta = fmax(s->two_theta, angle_of(g, p));
	}
	s->resolution = wavelength > 0 ? wavelength / (2 * sin(s->two_theta / 2)) : NAN;
	find_overlap(g, s);
}

const char *
geometry_summary_text(
	const struct geometry *g, const struct geometry_summary *s, char *text, size_t size)
{
	char picture[64] = "picture too large", corner[64];

	if (s->width > 0)
		snprintf(picture, sizeof(picture), "picture %u x %u", s->width, s->height);
	if (isnan(s->resolution))
		snprintf(corner, sizeof(corner), "resolution not known");
	else
		snprintf(corner, sizeof(corner), "corner at %.3g A", s->resolution);
	snprintf(text, size, "%u %s, %s, beam %s%s, %s", g->nb_panels,
		plural(g->nb_panels, "panel", "panels"), picture,
		s->beam_on_panel	     ? "on "
			: s->beam_in_picture ? "between panels"
					     : "outside",
		s->beam_on_panel ? g->panel[s->beam_panel].name : "", corner);
	return text;
}
