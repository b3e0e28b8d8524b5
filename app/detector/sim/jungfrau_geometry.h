/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Where the pixels of a stack of modules are in space.
 *
 * The plane of the detector is measured in pixels of 75 um from the centre of the first pixel of
 * module 0: x along columns, y along rows. Chips of 256 x 256 pixels are two pixels apart, modules
 * as in PSI's JUNGFRAU 4M (CrystFEL's jf4m.geom). The beam is at right angles to the plane. Only
 * + - * / and sqrt are used, so that positions are the same on every machine.
 */
#ifndef JUNGFRAU_GEOMETRY_H
#define JUNGFRAU_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#define JUNGFRAU_PIXEL_MM 0.075

/** Angstrom x keV of a photon. */
#define JUNGFRAU_HC 12.398419843

struct jungfrau_geometry {
	uint32_t modules;
	uint32_t column_modules; /**< modules of one column of the stack */
	uint32_t first_row;	 /**< read out, of each module */
	uint32_t rows;		 /**< read out, from there on */
	double beam_x, beam_y;	 /**< pixels */
	double distance;	 /**< pixels */
};

/** A place on the detector; pixel centres are at whole numbers. */
struct jungfrau_place {
	uint32_t module;
	double row, column;
};

/** Extent of the stack, gaps included, pixels. */
void jungfrau_geometry_extent(
	const struct jungfrau_geometry *geometry, double *width, double *height);

/** Position of a pixel from the beam, pixels. */
void jungfrau_geometry_position(const struct jungfrau_geometry *geometry, uint32_t module,
	uint32_t row, uint32_t column, double *x, double *y);

/** Find what is at a position from the beam, pixels. @return false: a gap, or rows not read out */
bool jungfrau_geometry_find(
	const struct jungfrau_geometry *geometry, double x, double y, struct jungfrau_place *place);

/** Cosine of the scattering angle at a position from the beam. */
double jungfrau_geometry_cosine(const struct jungfrau_geometry *geometry, double x, double y);

/** Length of the scattering vector, 1/d = 2 sin(theta) / wavelength. */
double jungfrau_geometry_q(double cosine, double wavelength);

#endif /* JUNGFRAU_GEOMETRY_H */
