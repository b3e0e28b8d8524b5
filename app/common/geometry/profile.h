/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Radial profiles: the bin and the weight of each pixel, computed once for a geometry. Any thread
 * may call this.
 */
#ifndef GEOMETRY_PROFILE_H
#define GEOMETRY_PROFILE_H

#include "geometry/geometry.h"

/** Quantity in which the bins have equal widths. */
enum profile_unit {
	PROFILE_Q,	   /**< 4 pi sin(theta) / wavelength, 1/angstrom */
	PROFILE_D,	   /**< 1/d as for q, but centres are given as d, angstrom */
	PROFILE_TWO_THETA, /**< degrees */
	PROFILE_UNITS
};

/** Name of a unit in options and files: q, d, 2theta. */
extern const char *const profile_unit_names[PROFILE_UNITS];

#define PROFILE_WEIGHT_ONE (1u << 30) /**< weight 1; equals GK_RADIAL_ONE */

/** Corrections, which are weights of pixels. */
struct profile_corrections {
	bool solid_angle; /**< cos^3(2 theta) for panels at right angles to the beam */
	bool polarised;
	double polarisation; /**< with `polarised`: 1 along x, -1 along y, 0 unpolarised */
};

/**
 * Bin of each pixel, at its centre in f8, and the centre of each bin. The bins cover the range of
 * all pixels of panels, also of those that are not used, so that masks change no bin:
 * bin = floor((q - q_min) / (q_max (1 + 2^-23) - q_min) x nb_bins), as in pyFAI.
 * @param bin     out: [rows][cols]; nb_bins: in no panel, or not used
 * @param centre  out: [nb_bins]
 * @return 0; -ENODATA: the distance is not known, or for q and d the photon energy; -ERANGE:
 *   nb_bins is not 1 to 65,534, or all pixels have the same value
 */
int profile_bins(const struct geometry *g, enum profile_unit unit, uint32_t nb_bins, uint16_t *bin,
	double *centre);

/**
 * Weight of each pixel in units of 1 / PROFILE_WEIGHT_ONE, rounded to nearest. The solid angle is
 * relative to that of a pixel at right angles to the beam, at the distance of the geometry.
 * @param weight  out: [rows][cols]; 0: in no panel
 * @return 0; -ENODATA as in profile_bins(); -ERANGE: a weight of 4 or more, from a panel that is
 *   much nearer than the distance
 */
int profile_weights(
	const struct geometry *g, const struct profile_corrections *corrections, uint32_t *weight);

#endif /* GEOMETRY_PROFILE_H */
