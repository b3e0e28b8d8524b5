/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry of a run, from the metadata of its files.
 */
#ifndef SCAN_GEOMETRY_H
#define SCAN_GEOMETRY_H

#include "geometry/geometry.h"
#include "scan/run.h"

/** The raster that panels of the run must be in. */
struct geometry_raster scan_raster(const struct scan_run *run);

/**
 * Read the geometry of a run from its files.
 * @return NULL: there is none, or it is wrong, which is printed; to be freed with free()
 */
struct geometry *scan_geometry(const struct scan_run *run);

#endif /* SCAN_GEOMETRY_H */
