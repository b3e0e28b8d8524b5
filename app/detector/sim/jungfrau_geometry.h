/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Positions in space of the pixels of a stack of modules.
 *
 * The plane of the detector is measured in pixels of 75 um from the centre of the first pixel of
 * module 0: x along columns, y along rows. Chips and modules have the gaps of geometry/layout.h,
 * which counts from the outer corner of that pixel. The beam is at right angles to the plane. The
 * only operations are addition, subtraction, multiplication, division and sqrt, so that positions
 * are the same on every machine.
 *
 * With a geometry from a file, panels may be anywhere in space. A position on the plane then
 * represents the ray from the sample through this position.
 */
#ifndef JUNGFRAU_GEOMETRY_H
#define JUNGFRAU_GEOMETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "geometry/layout.h"
#include "sim/panel_places.h"

#define JUNGFRAU_PIXEL_MM (LAYOUT_JUNGFRAU_PIXEL_UM / 1e3)

/** Wavelength in angstrom x photon energy in keV. */
#define JUNGFRAU_HC (GEOMETRY_HC / 1e3)

struct jungfrau_geometry {
	uint32_t modules;
	uint32_t column_modules; /**< modules in one column of the stack */
	uint32_t first_row;	 /**< first row that is read out of each module */
	uint32_t rows;		 /**< number of rows that are read out */
	double beam_x, beam_y;	 /**< pixels */
	double distance;	 /**< pixels */
	/** geometry of a file; NULL: the stack. The beam is then 0, 0 */
	const struct panel_places *places;
};

/** A position on the detector; pixel centres are at whole numbers. */
struct jungfrau_place {
	uint32_t module;
	double row, column;
};

/** Extent of the stack including gaps, pixels. */
void jungfrau_geometry_extent(
	const struct jungfrau_geometry *geometry, double *width, double *height);

/**
 * Position of a pixel relative to the beam, pixels.
 * @return false: the pixel is in no panel of the file
 */
bool jungfrau_geometry_position(const struct jungfrau_geometry *geometry, uint32_t module,
	uint32_t row, uint32_t column, double *x, double *y);

/**
 * Find the pixel at a position relative to the beam, pixels.
 * @return false: a gap, pixels that the file does not use, or rows that are not read out
 */
bool jungfrau_geometry_find(
	const struct jungfrau_geometry *geometry, double x, double y, struct jungfrau_place *place);

/** Cosine of the scattering angle at a position relative to the beam. */
double jungfrau_geometry_cosine(const struct jungfrau_geometry *geometry, double x, double y);

/** Length of the scattering vector, 1/d = 2 sin(theta) / wavelength. */
double jungfrau_geometry_q(double cosine, double wavelength);

#endif /* JUNGFRAU_GEOMETRY_H */
