/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Resolution rings of a picture: circles around the beam, each for reflections of lattice planes
 * with a spacing d.
 */
#ifndef RINGS_H
#define RINGS_H

#include "geometry/geometry.h"

#define RINGS_MAX 6

struct rings {
	unsigned int nb;
	double d[RINGS_MAX];	  /**< angstrom */
	double radius[RINGS_MAX]; /**< pixels */
};

/**
 * Choose rings: round values of d, from the edge of the picture to the beam.
 * @param farthest  from the beam to the farthest corner of the picture, pixels
 * @param apart     least difference of two radii, and least radius, pixels
 */
void rings_choose(struct rings *r, const struct geometry *g, double farthest, double apart);

#endif /* RINGS_H */
