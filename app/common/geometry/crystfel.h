/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry files of CrystFEL 0.12 (crystfel_geometry(5)). README.rst lists the keys.
 */
#ifndef CRYSTFEL_H
#define CRYSTFEL_H

#include <stdio.h>

#include "geometry/geometry.h"

/**
 * Read a geometry.
 * @param text    content of the file, `size` bytes; any bytes
 * @param name    of the file, for the message
 * @param raster  that the panels must be in; NULL: the raster ends with the last panel
 * @param message out: "FILE:LINE: panel NAME: found, expected, what to do"; "" on success
 * @return 0; -EINVAL: the message says why; -ENOMEM. `g` is undefined after an error
 */
int crystfel_read(struct geometry *g, const char *text, size_t size, const char *name,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN]);

/**
 * Check a geometry that was made in another way, such as read from a NeXus file, as crystfel_read()
 * checks a file: names, limits, overlaps, the raster. Properties that a `.geom` file cannot express
 * are lost.
 * @param g       in, out: rows and columns are set
 * @param name    of its source, for the message: "NAME: panel NAME: found, expected, what to do"
 * @return 0; -EINVAL: the message says why; -ENOMEM. `g` is undefined after an error
 */
int crystfel_check(struct geometry *g, const char *name, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN]);

/** What a geometry file says about the files of a run. */
struct crystfel_array {
	const char *data;    /**< path of the images */
	const char *mask;    /**< path of the mask; 0: good pixels */
	const char *peaks;   /**< path of the lists of peaks; NULL: none */
	int32_t least, most; /**< values of pixels that are not lost or masked, both included */
	/**
	 * Largest value of pixels that are not saturated; INFINITY: no pixel is. CrystFEL includes
	 * saturated pixels in its search for peaks, but does not integrate reflections that contain
	 * them.
	 */
	double max_adu;
	/**
	 * for messages of braggline-publish, one image each, instead of files; no `data`, no `mask`
	 */
	bool live;
};

/**
 * Write a geometry file for arrays [frame][row][column] of the raster, with the paths of our NeXus
 * files or the keys of our messages. Reading it gives the same geometry, except that directions
 * have 20 decimals.
 * @param array  NULL: int16 photons of the receiver, with peaks. Saturation is then only that of
 *               the geometry
 * @return 0; -errno of stdio
 */
int crystfel_write(const struct geometry *g, const struct crystfel_array *array, FILE *f);

/** Files of braggline-export: int16 photons, of which 32767 is saturated. */
extern const struct crystfel_array crystfel_photons;

#endif /* CRYSTFEL_H */
