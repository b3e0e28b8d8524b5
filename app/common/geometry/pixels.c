/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <string.h>

#include "geometry/pixels.h"

/* Position of the outer corner of a pixel; the order of operations is CrystFEL's. */
static void
corner_of(const struct geometry_panel *p, double fs, double ss, double *x, double *y)
{
	*x = p->corner_x + fs * p->fs_x + ss * p->ss_x;
	*y = p->corner_y + fs * p->fs_y + ss * p->ss_y;
}

bool
pixels_is_bad(const struct geometry *g, uint32_t panel, uint32_t fs, uint32_t ss)
{
	const struct geometry_panel *p = &g->panel[panel];
	double x, y;

	if (p->unused || fs < p->edge || ss < p->edge || fs + p->edge >= p->width ||
		ss + p->edge >= p->height)
		return true;
	for (uint32_t i = 0; i < g->nb_bad; i++) {
		const struct geometry_bad *b = &g->bad[i];

		if (b->in_panel && b->panel != panel)
			continue;
		if (b->in_panel) {
			x = p->fs_min + fs;
			y = p->ss_min + ss;
			if (x >= b->min_x && x <= b->max_x && y >= b->min_y && y <= b->max_y)
				return true;
			continue;
		}
		corner_of(p, fs, ss, &x, &y);
		if (x > b->min_x && x < b->max_x && y > b->min_y && y < b->max_y)
			return true;
	}
	return false;
}

int
pixels_bins(const struct geometry *g, uint16_t *bin, uint32_t *nb_bins)
{
	float largest = 0;

	for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
		bin[i] = GEOMETRY_MASKED;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				double x, y;
				float r;

				corner_of(p, fs, ss, &x, &y);
				x = trunc(x);
				y = trunc(y);
				r = (float)sqrt(x * x + y * y);
				largest = r > largest ? r : largest;
				if (r < GEOMETRY_MASKED - 1 && !pixels_is_bad(g, n, fs, ss))
					bin[pixels_index(g, p, fs, ss)] = (uint16_t)rintf(r);
			}
		}
	}
	if (!(largest < GEOMETRY_MASKED - 1))
		return -ERANGE;
	*nb_bins = (uint32_t)ceilf(largest) + 1;
	return 0;
}

int
pixels_map(const struct geometry *g, enum pixels_quantity quantity, float *value)
{
	const double wavelength = geometry_wavelength(g);

	if ((quantity == PIXELS_RESOLUTION || quantity == PIXELS_TWO_THETA) &&
		g->distance_metres <= 0)
		return -ENODATA;
	if (quantity == PIXELS_RESOLUTION && wavelength <= 0)
		return -ENODATA;
	for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
		value[i] = NAN;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];
		const double distance = (g->distance_metres + p->coffset_metres) / g->pixel_metres;

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				const double f = fs + 0.5, s = ss + 0.5;
				const double z = distance + f * p->fs_z + s * p->ss_z;
				double x, y, v;

				corner_of(p, f, s, &x, &y);
				if (quantity == PIXELS_RADIUS)
					v = sqrt(x * x + y * y);
				else if (quantity == PIXELS_CHI)
					v = atan2(y, x);
				else if (quantity == PIXELS_TWO_THETA)
					v = atan2(sqrt(x * x + y * y), z);
				else
					v = 2 * sin(atan2(sqrt(x * x + y * y), z) / 2) / wavelength;
				value[pixels_index(g, p, fs, ss)] = (float)v;
			}
		}
	}
	return 0;
}

double
pixels_radius_of(const struct geometry *g, double d)
{
	const double wavelength = geometry_wavelength(g);
	const double sine = wavelength / (2 * d); /* of theta */
	double offset = 0;

	/* 2 theta is less than 90 degrees */
	if (!(g->distance_metres > 0 && wavelength > 0 && d > 0 && sine < sqrt(0.5)))
		return NAN;
	for (uint32_t i = 0; i < g->nb_panels; i++)
		offset += g->panel[i].coffset_metres / g->nb_panels;
	return (g->distance_metres + offset) / g->pixel_metres * tan(2 * asin(sine));
}

int
pixels_shells(const struct geometry *g, const double *d, unsigned int nb, uint32_t *bin)
{
	for (unsigned int i = 0; i < nb; i++) {
		double r;

		if (!(d[i] > 0) || (i > 0 && d[i] >= d[i - 1]))
			return -EINVAL;
		if (g->distance_metres <= 0 || g->energy_ev <= 0)
			return -ENODATA;
		r = pixels_radius_of(g, d[i]);
		if (!(r >= 0 && r < 1e9))
			return -ERANGE;
		bin[i] = (uint32_t)rint(r);
	}
	return 0;
}

int
pixels_picture(const struct geometry *g, struct pixels_picture *out)
{
	double left = INFINITY, right = -INFINITY, top = -INFINITY, bottom = INFINITY;

	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (int corner = 0; corner < 4; corner++) {
			double x, y;

			corner_of(p, corner % 2 ? p->width : 0, corner / 2 ? p->height : 0, &x, &y);
			left = fmin(left, x);
			right = fmax(right, x);
			top = fmax(top, y);
			bottom = fmin(bottom, y);
		}
	}
	if (!(right - left <= PIXELS_SIDE_MAX && top - bottom <= PIXELS_SIDE_MAX))
		return -ERANGE;
	/* 1e-6: rounding errors of corners must not add a column */
	out->width = (uint32_t)fmax(ceil(right - left - 1e-6), 1);
	out->height = (uint32_t)fmax(ceil(top - bottom - 1e-6), 1);
	out->left = left;
	out->top = top;
	return 0;
}

/* Pixel of the picture for a distance from its edge. */
static uint32_t
picture_pixel(double distance, uint32_t size)
{
	return distance <= 0 ? 0 : distance >= size ? size - 1 : (uint32_t)distance;
}

void
pixels_place(const struct geometry *g, const struct pixels_picture *picture, uint32_t *at)
{
	for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
		at[i] = PIXELS_NOWHERE;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				double x, y;

				corner_of(p, fs + 0.5, ss + 0.5, &x, &y);
				at[pixels_index(g, p, fs, ss)] =
					picture_pixel(picture->top - y, picture->height) *
						picture->width +
					picture_pixel(x - picture->left, picture->width);
			}
		}
	}
}
