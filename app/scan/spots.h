/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Comparison of the peaks of a run with true spots.
 */
#ifndef SPOTS_H
#define SPOTS_H

#include "scan/run.h"

/** Expected photons of a spot that a search should find. */
#define SPOTS_BRIGHT 50.0

/** A peak belongs to a spot if it is not farther away, pixels. */
#define SPOTS_REACH 2.0

/**
 * Compare the peaks of the kept frames that were searched with spots, and print three lines.
 * @param path  CSV file with a line of names, among them frame, fs, ss (0.5 is the centre of the
 *              first pixel) and photons
 * @return 0; -EINVAL, -EBADMSG, -ENOMEM: printed
 */
int spots_compare(const struct scan_run *run, const char *path);

#endif /* SPOTS_H */
