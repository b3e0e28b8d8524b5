/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What a geometry gives for each pixel: radial bin, radius, resolution, angles, and the position in
 * the picture. Arrays have rows x cols elements.
 */
#ifndef PIXELS_H
#define PIXELS_H

#include "geometry/geometry.h"

#define PIXELS_NOWHERE	UINT32_MAX /**< position of a pixel that is in no panel */
#define PIXELS_SIDE_MAX 16384	   /**< width and height of a picture */

/** Quantities of pixels_map(), at the centres of pixels. */
enum pixels_quantity {
	PIXELS_RADIUS,	   /**< distance to the beam in x and y, pixels */
	PIXELS_RESOLUTION, /**< 1/d = 2 sin(theta) / wavelength, 1/angstrom */
	PIXELS_TWO_THETA,  /**< angle to the beam, radians */
	PIXELS_CHI,	   /**< angle around the beam, atan2(y, x), radians */
};

/** Index of a pixel of a panel in the raster. */
static inline size_t
pixels_index(const struct geometry *g, const struct geometry_panel *p, uint32_t fs, uint32_t ss)
{
	return (size_t)(p->ss_min + ss) * g->cols + p->fs_min + fs;
}

/** Return true if a pixel of a panel is not used: its panel is not, or it is in a bad region. */
bool pixels_is_bad(const struct geometry *g, uint32_t panel, uint32_t fs, uint32_t ss);

/**
 * Radial bins as CrystFEL's peakfinder8 computes them: from the outer corners of pixels, with x and
 * y truncated to integers, and the square root in f4 rounded half to even.
 * @param bin      out: GEOMETRY_MASKED for pixels that are in no panel, or not used
 * @param nb_bins  out: number of bins of all panels, also of pixels that are not used
 * @return 0; -ERANGE: 65,535 bins or more
 */
int pixels_bins(const struct geometry *g, uint16_t *bin, uint32_t *nb_bins);

/**
 * A quantity of all pixels; NaN for pixels that are in no panel.
 * @return 0; -ENODATA: the distance is not known, or for the resolution the photon energy
 */
int pixels_map(const struct geometry *g, enum pixels_quantity quantity, float *value);

/**
 * First bins of resolution shells, for panels at right angles to the beam.
 * @param d    nb limits in angstrom, falling, such as 50, 10, 4
 * @param bin  out: nb bins, rising; pixels of shell i have the bins bin[i] ... bin[i + 1] - 1
 * @return 0; -EINVAL: not falling, or a limit is not positive; -ERANGE: below the smallest d of
 *         forward scattering, wavelength / sqrt(2); -ENODATA as in pixels_map()
 */
int pixels_shells(const struct geometry *g, const double *d, unsigned int nb, uint32_t *bin);

/** Radius in pixels of a resolution in angstrom. @return NaN: not in forward direction, unknown */
double pixels_radius_of(const struct geometry *g, double d);

/** The picture: a plane at right angles to the beam. Column 0 is at `left`, row 0 at `top`. */
struct pixels_picture {
	uint32_t width, height;
	double left, top; /**< x and y of the outer corner of the first pixel */
};

/** Size of the picture of all panels. @return 0; -ERANGE: larger than PIXELS_SIDE_MAX */
int pixels_picture(const struct geometry *g, struct pixels_picture *p);

/**
 * Place pixels in the picture; each goes to the pixel in which its centre lies.
 * @param at  out: row x width + column; PIXELS_NOWHERE: the pixel is in no panel
 */
void pixels_place(const struct geometry *g, const struct pixels_picture *p, uint32_t *at);

#endif /* PIXELS_H */
