/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A geometry reduced to the array of pixels, for programs that know no panels: where the beam is in
 * the array, and which pixels are used. Any thread.
 */
#ifndef GEOMETRY_ARRAY_H
#define GEOMETRY_ARRAY_H

#include "geometry/geometry.h"

/** Bits of pixel_mask (NXdetector). @{ */
#define ARRAY_GAP  (1u << 0) /**< in no panel */
#define ARRAY_DEAD (1u << 1) /**< masked by the calibration: no gain stage has a value */
#define ARRAY_USER (1u << 8) /**< not used by the geometry: regions, edges, panels */
/** @} */

/**
 * Position of the beam in the array, as if the panel that is closest to it were infinite. Pixels; 0
 * is the outer edge of the first pixel.
 */
void array_beam(const struct geometry *g, double *x, double *y);

/**
 * Make the mask. @param mask  out: rows x cols, ARRAY_GAP, ARRAY_USER; 0: used
 * @return 0; -ENOMEM; -ERANGE as pixels_bins()
 */
int array_mask(const struct geometry *g, uint32_t *mask);

#endif /* GEOMETRY_ARRAY_H */
