/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Diffraction patterns: the Bragg peaks that a crystal in random orientation produces on a
 * detector.
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
	double q_max;	   /**< limit of diffraction, 1/angstrom */
	/** distance from the Ewald sphere that results in the mean number of peaks */
	double tolerance;
};

struct jungfrau_spot {
	struct jungfrau_place place;
	int32_t index[3];
	double error;	 /**< distance from the Ewald sphere, 1/angstrom */
	double strength; /**< relative to the mean reflection at low angle */
	double factor;	 /**< 20 or 400 for the few reflections that are much stronger, else 1 */
};

/**
 * @param cell  a, b, c in angstrom; alpha, beta, gamma in degrees
 * @param peaks mean number of peaks, from which the tolerance is computed
 * @return 0; -EINVAL: there is no cell with these angles
 */
int jungfrau_pattern_init(struct jungfrau_pattern *pattern,
	const struct jungfrau_geometry *geometry, const double cell[6], double wavelength,
	uint32_t peaks, uint64_t seed);

/**
 * Turn the crystal at random and select the `wanted` reflections that hit a pixel and are nearest
 * to the Ewald sphere.
 * @param spots room for `wanted`
 * @return number of spots; less than `wanted` only if the crystal has no more
 */
uint32_t jungfrau_pattern_make(const struct jungfrau_pattern *pattern, struct model_random *random,
	uint32_t wanted, struct jungfrau_spot *spots);

#endif /* JUNGFRAU_PATTERN_H */
