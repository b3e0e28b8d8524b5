/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Pixels that the calibration of a run masks, from RUN_calibration.bin: those that have a photon
 * value in no gain stage. Images of photons have no value there; sparse images do not show it.
 */
#ifndef SCAN_DEAD_PIXELS_H
#define SCAN_DEAD_PIXELS_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "scan/run.h"

/**
 * Add the pixels that a calibration masks.
 * @param data    content of RUN_calibration.bin, any bytes
 * @param digest  `braggline.calibration_digest` of the run; NULL: not compared
 * @param mask    in, out: [rows][cols]; ARRAY_DEAD is added
 * @param why     out: what is wrong with the file
 * @return 0; -EBADMSG
 */
int dead_pixels_add(const uint8_t *data, size_t size, const char *digest, uint32_t rows,
	uint32_t cols, uint32_t *mask, const char **why);

/**
 * Add those of a run.
 * @param path  in: the file; empty: search the directory of the files of the run; out: the file
 * @param mask  in, out: [rows][cols]; ARRAY_DEAD is added
 * @param why   out: what is wrong with the file
 * @return 0; 1: no file was found; -EBADMSG, -errno
 */
int dead_pixels_read(
	const struct scan_run *run, char path[PATH_MAX], uint32_t *mask, const char **why);

#endif /* SCAN_DEAD_PIXELS_H */
