/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Reads the geometry of a NeXus file (NXmx): modules with their chains of axes, wavelength, and the
 * distance. The receiver does not link HDF5: `braggline-export --convert` writes a .geom file for
 * it.
 *
 * Sources: NXmx, NXdetector_module and NXtransformations of the NeXus manual.
 */
#ifndef EXPORT_NXMX_GEOMETRY_H
#define EXPORT_NXMX_GEOMETRY_H

#include "geometry/geometry.h"

/**
 * Read the first detector of the first entry with modules.
 * @param raster   that the modules must be in; NULL: the raster ends with the last module
 * @param message  out: file, object, what was found and expected; "" on success
 * @return 0; -EINVAL, -ENOMEM. `g` is undefined after an error
 */
int nxmx_geometry_read(struct geometry *g, const char *path, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN]);

/** As nxmx_geometry_read(), which calls it in a child process (child_process.h). */
int nxmx_geometry_read_here(struct geometry *g, const char *path,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN]);

/** @return true if the name of a file ends as those of NeXus files do: .h5, .nxs, .hdf5, .cxi */
bool nxmx_geometry_is_name(const char *path);

#endif /* EXPORT_NXMX_GEOMETRY_H */
