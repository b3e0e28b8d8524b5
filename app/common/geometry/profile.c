/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>

#include "geometry/pixels.h"
#include "geometry/profile.h"

const char *const profile_unit_names[PROFILE_UNITS] = {
	[PROFILE_Q] = "q",
	[PROFILE_D] = "d",
	[PROFILE_TWO_THETA] = "2theta",
};

/* Centre of a pixel, in pixels from the sample. */
struct place {
	double x, y, z;
};

static struct place
place_of(const struct geometry *g, const struct geometry_panel *p, uint32_t fs, uint32_t ss)
{
	const double f = fs + 0.5, s = ss + 0.5;

	return (struct place){
		p->corner_x + f * p->fs_x + s * p->ss_x,
		p->corner_y + f * p->fs_y + s * p->ss_y,
		(g->distance_metres + p->coffset_metres) / g->pixel_metres + f * p->fs_z +
			s * p->ss_z,
	};
}

static double
value_of(const struct place *at, enum profile_unit unit, double wavelength)
{
	const double two_theta = atan2(sqrt(at->x * at->x + at->y * at->y), at->z);

	if (unit == PROFILE_TWO_THETA)
		return two_theta * 180 / M_PI;
	return 4 * M_PI / wavelength * sin(two_theta / 2);
}

int
profile_bins(const struct geometry *g, enum profile_unit unit, uint32_t nb_bins, uint16_t *bin,
	double *centre)
{
	const double wavelength = geometry_wavelength(g);
	double first = INFINITY, last = -INFINITY, range;

	if (g->distance_metres <= 0 || (unit != PROFILE_TWO_THETA && wavelength <= 0))
		return -ENODATA;
	if (nb_bins < 1 || nb_bins >= UINT16_MAX)
		return -ERANGE;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				const struct place at = place_of(g, p, fs, ss);
				const double value = value_of(&at, unit, wavelength);

				first = fmin(first, value);
				last = fmax(last, value);
			}
		}
	}
	/* the last value is in the last bin */
	range = last * (1 + 0x1p-23) - first;
	if (!(last > first))
		return -ERANGE;
	for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
		bin[i] = (uint16_t)nb_bins;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				const struct place at = place_of(g, p, fs, ss);
				const double value = value_of(&at, unit, wavelength);
				const double b = floor((value - first) / range * nb_bins);

				if (!pixels_is_bad(g, n, fs, ss))
					bin[pixels_index(g, p, fs, ss)] =
						(uint16_t)fmin(b, nb_bins - 1);
			}
		}
	}
	for (uint32_t b = 0; b < nb_bins; b++) {
		centre[b] = first + (b + 0.5) * range / nb_bins;
		if (unit == PROFILE_D)
			centre[b] = 2 * M_PI / centre[b];
	}
	return 0;
}

/* Solid angle of a pixel, relative to that of one at right angles to the beam at `distance`. */
static double
solid_angle_of(const struct geometry_panel *p, const struct place *at, double distance)
{
	/* normal of the panel, as long as the area of a pixel */
	const double nx = p->fs_y * p->ss_z - p->fs_z * p->ss_y;
	const double ny = p->fs_z * p->ss_x - p->fs_x * p->ss_z;
	const double nz = p->fs_x * p->ss_y - p->fs_y * p->ss_x;
	const double square = at->x * at->x + at->y * at->y + at->z * at->z;
	const double area = fabs(nx * at->x + ny * at->y + nz * at->z) / sqrt(square);

	return area * distance * distance / square;
}

/* 0.5 (1 + cos^2(2 theta) - P cos(2 chi) sin^2(2 theta)) */
static double
polarisation_of(const struct place *at, double polarisation)
{
	const double radial = at->x * at->x + at->y * at->y, square = radial + at->z * at->z;
	const double cos2 = at->z * at->z / square, sin2 = radial / square;
	const double cos_2chi = radial > 0 ? (at->x * at->x - at->y * at->y) / radial : 1;

	return 0.5 * (1 + cos2 - polarisation * cos_2chi * sin2);
}

int
profile_weights(
	const struct geometry *g, const struct profile_corrections *corrections, uint32_t *weight)
{
	const double distance = g->distance_metres / g->pixel_metres;

	if (g->distance_metres <= 0)
		return -ENODATA;
	for (size_t i = 0; i < (size_t)g->rows * g->cols; i++)
		weight[i] = 0;
	for (uint32_t n = 0; n < g->nb_panels; n++) {
		const struct geometry_panel *p = &g->panel[n];

		for (uint32_t ss = 0; ss < p->height; ss++) {
			for (uint32_t fs = 0; fs < p->width; fs++) {
				const struct place at = place_of(g, p, fs, ss);
				double w = 1;

				if (corrections->solid_angle)
					w *= solid_angle_of(p, &at, distance);
				if (corrections->polarised)
					w *= polarisation_of(&at, corrections->polarisation);
				w = rint(w * PROFILE_WEIGHT_ONE);
				if (!(w >= 0 && w <= UINT32_MAX))
					return -ERANGE;
				weight[pixels_index(g, p, fs, ss)] = (uint32_t)w;
			}
		}
	}
	return 0;
}
