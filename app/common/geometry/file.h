/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry files. The extension of the name selects the format: `.geom` or `.poni`.
 */
#ifndef GEOMETRY_FILE_H
#define GEOMETRY_FILE_H

#include "geometry/geometry.h"

#define GEOMETRY_FILE_MAX (4u << 20) /**< bytes of a file that is read */

/** @return whether the name of a file has the extension of a geometry */
bool geometry_file_is_name(const char *path);

/**
 * Read a file.
 * @param raster   that the panels must be in; NULL: the file determines it
 * @param message  out: file, line, panel, what was expected; "" on success
 * @return 0; -EINVAL, -ENOMEM, -errno of reading. `g` is undefined after an error
 */
int geometry_file_read(struct geometry *g, const char *path, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN]);

/**
 * Write a file. @param message out: the error @return 0; -EINVAL: not possible in the format;
 * -errno
 */
int geometry_file_write(
	const struct geometry *g, const char *path, char message[GEOMETRY_MESSAGE_LEN]);

/** Text of a `.geom` file, which the caller frees. @return NULL: out of memory */
char *geometry_text(const struct geometry *g);

#endif /* GEOMETRY_FILE_H */
