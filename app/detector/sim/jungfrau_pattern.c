/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/jungfrau_pattern.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "sim/jungfrau_module.h"

/* Diffraction ends at 2 angstrom. Up to there it falls as with a temperature factor B of 10. */
#define Q_MAX	    0.5
#define TEMPERATURE 10.0

/* Radius of the beam stop's shadow, pixels. */
#define BEAM_STOP 20.0

/* Number of reflections considered: the wanted ones are selected from three times as many. */
#define CANDIDATES    4096
#define WINDOW	      3.0
#define TOLERANCE_MAX 0.02

struct search {
	const struct jungfrau_pattern *pattern;
	uint32_t count;
	struct jungfrau_spot spot[CANDIDATES];
};

static uint32_t
samples_in_reach(const struct jungfrau_pattern *pattern, double *solid_angle)
{
	const struct jungfrau_geometry *geometry = &pattern->geometry;
	const uint32_t step = 8; /* pixels per sample, much smaller than the distance */
	uint32_t samples = 0;
	double x, y, cosine;

	*solid_angle = 0.0;
	for (uint32_t m = 0; m < geometry->modules; m++) {
		for (uint32_t row = 0; row < geometry->rows; row += step) {
			for (uint32_t column = 0; column < JUNGFRAU_COLUMNS; column += step) {
				if (!jungfrau_geometry_position(geometry, m,
					    geometry->first_row + row + step / 2, column + step / 2,
					    &x, &y))
					continue;
				cosine = jungfrau_geometry_cosine(geometry, x, y);
				if (jungfrau_geometry_q(cosine, pattern->wavelength) >
					pattern->q_max)
					continue;
				*solid_angle += cosine * cosine * cosine;
				samples++;
			}
		}
	}
	*solid_angle *= step * step / (geometry->distance * geometry->distance);
	return samples;
}

int
jungfrau_pattern_init(struct jungfrau_pattern *pattern, const struct jungfrau_geometry *geometry,
	const double cell[6], double wavelength, uint32_t peaks, uint64_t seed)
{
	double solid_angle;

	*pattern = (struct jungfrau_pattern){.geometry = *geometry,
		.seed = seed,
		.wavelength = wavelength,
		.q_max = Q_MAX,
		.tolerance = TOLERANCE_MAX};
	if (crystal_lattice_init(&pattern->lattice, cell) != 0)
		return -EINVAL;
	/* points in a shell: cell volume x area on the sphere x thickness */
	if (samples_in_reach(pattern, &solid_angle) > 0)
		pattern->tolerance = peaks * wavelength * wavelength /
			(2.0 * solid_angle * pattern->lattice.volume);
	if (pattern->tolerance > TOLERANCE_MAX)
		pattern->tolerance = TOLERANCE_MAX;
	return 0;
}

/* Properties of a reflection and its Friedel mate that do not depend on the orientation. */
static void
structure_factor(const struct jungfrau_pattern *pattern, struct jungfrau_spot *spot, double q)
{
	const int32_t *i = spot->index;
	int64_t sign = i[0] < 0 || (i[0] == 0 && (i[1] < 0 || (i[1] == 0 && i[2] < 0))) ? -1 : 1;
	struct model_random random = {
		.counter = model_random_key(pattern->seed, MODEL_PURPOSE_STRUCTURE,
			(uint64_t)(sign * i[0]),
			(uint64_t)(sign * i[1]) << 32 ^ (uint64_t)(sign * i[2]))};
	double kind;

	/* Wilson: the intensities of an acentric crystal are distributed exponentially */
	spot->strength =
		model_random_exponential(&random) * model_exp_minus(0.5 * TEMPERATURE * q * q);
	/* low orders are much stronger than the rest: 3 % reach G2, 0.1 % may saturate */
	kind = model_random_uniform(&random);
	spot->factor = kind < 0.001 ? 400.0 : kind < 0.031 ? 20.0 : 1.0;
}

/* Turn the scattering vector of a reflection onto the Ewald sphere, as a block of a mosaic crystal
 * does that diffracts: its length stays, and Bragg's law holds. */
static bool
turn_onto_sphere(const double direction[3], double wavelength, double turned[3])
{
	const double along = direction[2] - 1.0 / wavelength;
	const double across2 = direction[0] * direction[0] + direction[1] * direction[1];
	const double q2 = across2 + along * along;
	const double turned_along = -0.5 * wavelength * q2;
	const double turned_across2 = q2 - turned_along * turned_along;
	double stretch;

	if (!(across2 > 0.0 && turned_across2 > 0.0))
		return false;
	stretch = sqrt(turned_across2 / across2);
	turned[0] = direction[0] * stretch;
	turned[1] = direction[1] * stretch;
	turned[2] = 1.0 / wavelength + turned_along;
	return true;
}

static void
consider(void *context, const struct crystal_reflection *reflection)
{
	struct search *search = context;
	const struct jungfrau_pattern *pattern = search->pattern;
	const double *k = reflection->direction;
	struct jungfrau_spot *spot = &search->spot[search->count];
	double turned[3], x, y;

	if (search->count == CANDIDATES)
		return;
	/* without a geometry file, frames must be identical to those of earlier versions */
	if (pattern->geometry.places != NULL) {
		if (!turn_onto_sphere(k, pattern->wavelength, turned))
			return;
		k = turned;
	}
	if (k[2] <= 0.0)
		return;
	x = k[0] / k[2] * pattern->geometry.distance;
	y = k[1] / k[2] * pattern->geometry.distance;
	if (x * x + y * y < BEAM_STOP * BEAM_STOP ||
		!jungfrau_geometry_find(&pattern->geometry, x, y, &spot->place))
		return;
	for (int i = 0; i < 3; i++)
		spot->index[i] = reflection->index[i];
	spot->error = reflection->error;
	search->count++;
}

static int
compare_spots(const void *a, const void *b)
{
	const struct jungfrau_spot *x = a, *y = b;
	double ex = fabs(x->error), ey = fabs(y->error);

	if (ex != ey)
		return ex < ey ? -1 : 1;
	for (int i = 0; i < 3; i++)
		if (x->index[i] != y->index[i])
			return x->index[i] < y->index[i] ? -1 : 1;
	return 0;
}

/* Length of a spot's scattering vector. In a stack, the gaps of chips are left out. */
static double
spot_q(const struct jungfrau_pattern *pattern, const struct jungfrau_spot *spot)
{
	const struct jungfrau_geometry *geometry = &pattern->geometry;
	const struct jungfrau_place *place = &spot->place;
	double x, y;

	/* within half a pixel */
	if (geometry->places == NULL ||
		!jungfrau_geometry_position(geometry, place->module, (uint32_t)(place->row + 0.5),
			(uint32_t)(place->column + 0.5), &x, &y)) {
		jungfrau_geometry_position(geometry, place->module, 0, 0, &x, &y);
		x += place->column;
		y += place->row;
	}
	return jungfrau_geometry_q(jungfrau_geometry_cosine(geometry, x, y), pattern->wavelength);
}

uint32_t
jungfrau_pattern_make(const struct jungfrau_pattern *pattern, struct model_random *random,
	uint32_t wanted, struct jungfrau_spot *spots)
{
	double window = WINDOW * pattern->tolerance;
	struct search search = {.pattern = pattern};
	struct crystal_lattice turned;

	crystal_lattice_turn(&pattern->lattice, random, &turned);
	for (;;) {
		search.count = 0;
		crystal_lattice_reflections(
			&turned, pattern->wavelength, pattern->q_max, window, consider, &search);
		if (search.count >= wanted || window > TOLERANCE_MAX)
			break;
		window *= 2.0; /* few planes meet the sphere if an axis is along the beam */
	}
	qsort(search.spot, search.count, sizeof(search.spot[0]), compare_spots);
	if (wanted > search.count)
		wanted = search.count;
	for (uint32_t i = 0; i < wanted; i++) {
		struct jungfrau_spot *spot = &search.spot[i];
		const double e = spot->error / pattern->tolerance;

		structure_factor(pattern, spot, spot_q(pattern, spot));
		spot->strength /= 1.0 + e * e; /* partly outside the sphere's thickness */
		spots[i] = *spot;
	}
	return wanted;
}
