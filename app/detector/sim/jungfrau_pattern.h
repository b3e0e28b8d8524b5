/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Diffraction patterns: which Bragg peaks of a crystal in random orientation a detector sees.
 */
#ifndef JUNGFRAU_PATTERN_H
#define JUNGFRAU_PATTERN_H

#include "sim/crystal_lattice.h"
#include "sim/jungfrau_geometry.h"
#include "sim/model_random.h"

struct jungfrau_pattern {
	struct jungfrau_geometry geometry;
	struct crystal_lattice lattice;
	uint64_t seed;
	double wavelength; /**< angstrom */
	double q_max;	   /**< the crystal diffracts so far, 1/angstrom */
	double tolerance; /**< distance from the Ewald sphere that gives the mean number of peaks */
};

struct jungfrau_spot {
	struct jungfrau_place place;
	int32_t index[3];
	double error;	 /**< distance from the Ewald sphere, 1/angstrom */
	double strength; /**< of the mean reflection at low angle */
	double factor;	 /**< 20 or 400 for the few reflections that are far stronger, else 1 */
};

/**
 * @param cell  a, b, c in angstrom; alpha, beta, gamma in degrees
 * @param peaks mean number of peaks that the tolerance is chosen for
 * @return 0; -EINVAL: no cell has these angles
 */
int jungfrau_pattern_init(struct jungfrau_pattern *pattern,
	const struct jungfrau_geometry *geometry, const double cell[6], double wavelength,
	uint32_t peaks, uint64_t seed);

/**
 * Turn the crystal at random and take the `wanted` reflections nearest to the Ewald sphere that
 * meet a pixel.
 * @param spots room for `wanted`
 * @return number of spots; less than wanted only if the crystal has no more
 */
uint32_t jungfrau_pattern_make(const struct jungfrau_pattern *pattern, struct model_random *random,
	uint32_t wanted, struct jungfrau_spot *spots);

#endif /* JUNGFRAU_PATTERN_H */
