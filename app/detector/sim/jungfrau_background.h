/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Scattering background: Poisson numbers whose mean depends on the distance from the beam.
 *
 * The mean is quantised to levels. Counts are drawn by inversion of 31-bit cumulative tables. The
 * upper bits select the start of the search in a guide table, so that one comparison is enough for
 * nearly every pixel.
 */
#ifndef JUNGFRAU_BACKGROUND_H
#define JUNGFRAU_BACKGROUND_H

#include <stdint.h>

#include "sim/jungfrau_geometry.h"
#include "sim/jungfrau_model.h"

#define BACKGROUND_LEVELS     64
#define BACKGROUND_COUNTS     64 /* a mean of 20 exceeds it once in 10^13 */
#define BACKGROUND_GUIDE_BITS 8

struct jungfrau_background {
	uint32_t cumulative[BACKGROUND_LEVELS][BACKGROUND_COUNTS];
	uint8_t guide[BACKGROUND_LEVELS][1 << BACKGROUND_GUIDE_BITS];
	uint8_t (*level)[JUNGFRAU_PIXELS]; /**< by module */
};

/**
 * @param mean       photons per pixel, over the whole detector
 * @param wavelength angstrom
 * @return 0; -ENOMEM
 */
int jungfrau_background_init(struct jungfrau_background *background,
	const struct jungfrau_geometry *geometry, double wavelength, double mean);

void jungfrau_background_release(struct jungfrau_background *background);

/** Photons of a pixel. Only the lower 32 bits of `random` are used. */
static inline uint32_t
jungfrau_background_photons(const struct jungfrau_background *background, const uint8_t *levels,
	uint32_t pixel, uint64_t random)
{
	uint32_t uniform = (uint32_t)random >> 1;
	uint32_t level = levels[pixel];
	uint32_t count = background->guide[level][uniform >> (31 - BACKGROUND_GUIDE_BITS)];

	while (uniform >= background->cumulative[level][count])
		count++;
	return count;
}

#endif /* JUNGFRAU_BACKGROUND_H */
