/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/jungfrau_background.h"

#include <errno.h>
#include <stdlib.h>

#include "sim/model_random.h"

#define LAMBDA_MAX 20.0

/* Air and the sample's envelope scatter forwards; water has a broad ring at 1/d = 0.3/angstrom. */
#define FORWARD_SHARE 0.55
#define FORWARD_Q     0.15
#define RING_SHARE    0.45
#define RING_Q	      0.30
#define RING_SIGMA    0.055
/* the brightest position uses the highest level */
#define SHAPE_SCALE 1.7

static void
count_table_init(struct jungfrau_background *background, uint32_t level, double lambda)
{
	uint32_t *cumulative = background->cumulative[level];
	double probability = model_exp_minus(lambda);
	double sum = 0.0;
	uint32_t count = 0;

	for (uint32_t n = 0; n < BACKGROUND_COUNTS; n++) {
		sum += probability;
		/* the last entry exceeds every 31-bit number and ends the search */
		cumulative[n] = sum < 1.0 && n < BACKGROUND_COUNTS - 1 ? (uint32_t)(sum * 0x1p31)
								       : 1u << 31;
		probability *= lambda / (n + 1);
	}
	for (uint32_t i = 0; i < 1u << BACKGROUND_GUIDE_BITS; i++) {
		while (i << (31 - BACKGROUND_GUIDE_BITS) >= cumulative[count])
			count++;
		background->guide[level][i] = (uint8_t)count;
	}
}

/* Expected photons of a pixel, up to a factor. */
static double
shape_at(const struct jungfrau_geometry *geometry, double wavelength, double x, double y)
{
	double cosine = jungfrau_geometry_cosine(geometry, x, y);
	double q = jungfrau_geometry_q(cosine, wavelength);
	double forward = q / FORWARD_Q, ring = (q - RING_Q) / RING_SIGMA;
	double across = x / geometry->distance * cosine;
	double shape = FORWARD_SHARE / (1.0 + forward * forward) +
		RING_SHARE * model_exp_minus(0.5 * ring * ring);

	/* horizontal polarisation, solid angle */
	return shape * (1.0 - across * across) * cosine * cosine * cosine;
}

int
jungfrau_background_init(struct jungfrau_background *background,
	const struct jungfrau_geometry *geometry, double wavelength, double mean)
{
	uint64_t pixels_of[BACKGROUND_LEVELS] = {0};
	double sum = 0.0, x, y;

	background->level = calloc(geometry->modules, sizeof(*background->level));
	if (background->level == NULL)
		return -ENOMEM;
	for (uint32_t m = 0; m < geometry->modules; m++) {
		for (uint32_t pixel = 0; pixel < JUNGFRAU_PIXELS; pixel++) {
			double shape = 0.0;
			uint32_t level;

			if (jungfrau_geometry_position(geometry, m, pixel / JUNGFRAU_COLUMNS,
				    pixel % JUNGFRAU_COLUMNS, &x, &y))
				shape = shape_at(geometry, wavelength, x, y);
			level = (uint32_t)(shape * SHAPE_SCALE * BACKGROUND_LEVELS);
			if (level >= BACKGROUND_LEVELS)
				level = BACKGROUND_LEVELS - 1;
			background->level[m][pixel] = (uint8_t)level;
			pixels_of[level]++;
		}
	}
	for (uint32_t level = 0; level < BACKGROUND_LEVELS; level++)
		sum += (double)pixels_of[level] * (level + 0.5);
	for (uint32_t level = 0; level < BACKGROUND_LEVELS; level++) {
		double lambda = mean * geometry->modules * JUNGFRAU_PIXELS * (level + 0.5) / sum;

		/* levels without pixels may exceed the table */
		count_table_init(background, level, lambda < LAMBDA_MAX ? lambda : LAMBDA_MAX);
	}
	return 0;
}

void
jungfrau_background_release(struct jungfrau_background *background)
{
	free(background->level);
	background->level = NULL;
}
