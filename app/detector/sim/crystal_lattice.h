/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reciprocal lattice of a crystal in random orientation, and its points near the Ewald sphere.
 *
 * Lengths are in angstrom, reciprocal ones in 1/angstrom, without 2 pi. The beam is along z.
 */
#ifndef CRYSTAL_LATTICE_H
#define CRYSTAL_LATTICE_H

#include <stdint.h>

#include "sim/model_random.h"

struct crystal_lattice {
	double edge[3];		 /**< a, b, c */
	double reciprocal[3][3]; /**< a*, b*, c*, each x, y, z */
	double volume;		 /**< of the cell */
};

/** A lattice point near the sphere. */
struct crystal_reflection {
	int32_t index[3];    /**< h, k, l */
	double direction[3]; /**< of the scattered beam; its length is near 1 / wavelength */
	double error;	     /**< distance from the sphere, positive outside */
};

/** Called for each reflection. */
typedef void (*crystal_visitor)(void *context, const struct crystal_reflection *reflection);

/**
 * @param cell a, b, c in angstrom; alpha, beta, gamma in degrees
 * @return 0; -EINVAL: there is no cell with these angles
 */
int crystal_lattice_init(struct crystal_lattice *lattice, const double cell[6]);

/** Turn the crystal into a random orientation, uniformly distributed. */
void crystal_lattice_turn(const struct crystal_lattice *lattice, struct model_random *random,
	struct crystal_lattice *turned);

/**
 * Visit the lattice points within `tolerance` of the Ewald sphere and within `q_max` of the origin,
 * except the origin, in a fixed order.
 */
void crystal_lattice_reflections(const struct crystal_lattice *lattice, double wavelength,
	double q_max, double tolerance, crystal_visitor visit, void *context);

#endif /* CRYSTAL_LATTICE_H */
