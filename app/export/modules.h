/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A geometry as NXmx has it: a module for each panel, with its place in the array and its axes. The
 * laboratory frame is the geometry's, so vectors go out without a change of sign.
 */
#ifndef EXPORT_MODULES_H
#define EXPORT_MODULES_H

#include "geometry/array.h"
#include "h5.h"

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
 * Name of the mask in the group of the detector. DIALS of Debian 12 ends with an error at a
 * `pixel_mask` whose modules are narrower than the array. NXdetector has further masks,
 * `pixel_mask_N`, which DIALS does not read.
 */
const char *modules_mask_name(const struct geometry *g);

#endif /* EXPORT_MODULES_H */
