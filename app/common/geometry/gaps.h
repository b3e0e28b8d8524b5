/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometries of rasters whose modules have pixels in the gaps between their chips: JUNGFRAU files
 * of PSI often have modules of 514 x 1030 pixels. The pixels in gaps are removed.
 */
#ifndef GAPS_H
#define GAPS_H

#include "geometry/layout.h"

/** The raster of the modules of a layout with pixels in gaps. */
struct geometry_raster gaps_raster(const struct layout *l);

/**
 * Change a geometry of such a raster into one without these pixels. A panel that spans several
 * chips is split into one panel per chip, `NAME_cCHIP`.
 * @param message  out: panel, why not; "" on success
 * @return 0; -EINVAL: too many panels or regions, names that are too long, a panel with edges that
 *         are not used; -ENOMEM. `g` is undefined after an error
 */
int gaps_remove(struct geometry *g, const struct layout *l, char message[GEOMETRY_MESSAGE_LEN]);

#endif /* GAPS_H */
