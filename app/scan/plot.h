/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Hits over time.
 */
#ifndef PLOT_H
#define PLOT_H

#include "scan/run.h"

/**
 * Save a PNG: strong pixel count by frame number, and the hit rate as a running mean.
 * @return 0; -EINVAL, -errno: printed
 */
int plot_save(const struct scan_run *run, const char *path);

#endif /* PLOT_H */
