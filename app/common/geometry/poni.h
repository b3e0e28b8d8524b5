/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * PONI files of pyFAI, version 2. Such a file describes one flat grid of pixels: the picture with
 * all gaps, which is the raster only if the detector is a single panel.
 */
#ifndef PONI_H
#define PONI_H

#include <stdio.h>

#include "geometry/geometry.h"

/**
 * Read a geometry with one panel, which has the name `poni`.
 * @param raster  that the grid must be; NULL: the raster has the grid's size
 * @return as crystfel_read()
 */
int poni_read(struct geometry *g, const char *text, size_t size, const char *name,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN]);

/**
 * Write the picture of a flat detector at right angles to the beam.
 * @param message out: why not; "" on success
 * @return 0; -EINVAL: not such a detector, or distance or photon energy are not known; -errno
 */
int poni_write(const struct geometry *g, FILE *f, char message[GEOMETRY_MESSAGE_LEN]);

#endif /* PONI_H */
