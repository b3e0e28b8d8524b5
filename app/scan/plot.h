/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Hits over time.
 */
#ifndef PLOT_H
#define PLOT_H

#include "scan/run.h"

/**
 * Save a plot, as PNG or SVG by the end of its name: Bragg peaks of every frame, or strong pixels
 * if peaks were not searched; below, the hit rate as a running mean with its 95 % confidence
 * interval. The axes are frame number and, if the files have it, the time of reception.
 * @return 0; -EINVAL, -errno: printed
 */
int plot_save(const struct scan_run *run, const char *path);

#endif /* PLOT_H */
