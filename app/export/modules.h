/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A geometry as NXmx has it: a module for each panel, with its place in the array and its axes. The
 * laboratory frame is the geometry's, so vectors go out without a change of sign.
 */
#ifndef EXPORT_MODULES_H
#define EXPORT_MODULES_H

#include "geometry/geometry.h"
#include "h5.h"

/** Bits of pixel_mask (NXdetector). @{ */
#define MODULES_GAP  (1u << 0) /**< in no panel */
#define MODULES_DEAD (1u << 1) /**< masked by the calibration: no gain stage has a value */
#define MODULES_USER (1u << 8) /**< not used by the geometry: regions, edges, panels */
/** @} */

/** Axes of a panel, in metres. */
struct module_axes {
	double corner[3];	     /**< of its first pixel, from the end of the axis det_z */
	double fast[3], slow[3];     /**< unit vectors along rows and columns */
	double fast_size, slow_size; /**< of a pixel */
};

/** Compute the axes of a panel. */
void modules_axes(const struct geometry *g, uint32_t panel, struct module_axes *a);

/** Write the axis chain and the modules of a detector. */
void modules_put(struct h5 *h, hid_t detector, const struct geometry *g);

/**
 * Place of the beam in the array, as if the panel that is closest to it had no end. Pixels; 0 is
 * the outer edge of the first pixel.
 */
void modules_beam(const struct geometry *g, double *x, double *y);

/**
 * Name of the mask in the group of the detector. DIALS of Debian 12 ends with an error at a
 * `pixel_mask` whose modules are narrower than the array. NXdetector has further masks,
 * `pixel_mask_N`, which DIALS does not read.
 */
const char *modules_mask_name(const struct geometry *g);

/**
 * Make the mask. @param mask  out: rows x cols, MODULES_GAP, MODULES_USER; 0: used
 * @return 0; -ENOMEM; -ERANGE as pixels_bins()
 */
int modules_mask(const struct geometry *g, uint32_t *mask);

#endif /* EXPORT_MODULES_H */
