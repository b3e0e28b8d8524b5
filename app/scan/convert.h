/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Files of geometries: that of a run, and conversion of formats.
 */
#ifndef CONVERT_H
#define CONVERT_H

#include "scan/run.h"

/** Write the geometry of a run to a file. @return 0; -EINVAL, -errno: printed */
int convert_run(const struct scan_run *run, const char *path);

/** Write the geometry of a file to another one. @return 0; -EINVAL, -errno: printed */
int convert_file(const char *from, const char *path);

#endif /* CONVERT_H */
