/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Files of geometries: those of runs, and conversion of formats.
 */
#ifndef CONVERT_H
#define CONVERT_H

#include "geometry/geometry.h"
#include "run.h"

/**
 * Read the geometry of a run from its files.
 * @return NULL: there is none, or it is wrong, which is printed; to be freed with free()
 */
struct geometry *convert_read_run(const struct scan_run *run);

/** Write the geometry of a run to a file. @return 0; -EINVAL, -errno: printed */
int convert_run(const struct scan_run *run, const char *path);

/** Write the geometry of a file to another one. @return 0; -EINVAL, -errno: printed */
int convert_file(const char *from, const char *path);

#endif /* CONVERT_H */
