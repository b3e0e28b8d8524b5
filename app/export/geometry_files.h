/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry files in the directory of the HDF5 files: of CrystFEL, with the paths of these files,
 * and of pyFAI.
 */
#ifndef EXPORT_GEOMETRY_FILES_H
#define EXPORT_GEOMETRY_FILES_H

#include "export.h"

/** @return true if a file of pyFAI fits the images */
bool geometry_files_have_poni(const struct export *e);

/**
 * Write the files. Errors are printed.
 * @param cxi  for RUN.cxi: RUN_cxi.geom
 * @return 0; -EINVAL; -ENOMEM
 */
int geometry_files_write(const struct export *e, bool cxi);

#endif /* EXPORT_GEOMETRY_FILES_H */
