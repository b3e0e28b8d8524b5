/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Writes the coefficient maps of a run to RUN_calibration.bin, in the directory of its files.
 *
 * The file begins with text lines, padded with zeros to a multiple of ARROW_BLOCK. The planes
 * follow, unchanged: float32, little-endian, each at a multiple of ARROW_BLOCK:
 *
 *     braggline calibration 1
 *     plane NAME float32 ROWS COLS at OFFSET crc32c XXXXXXXX
 *     ...
 *     end
 */
#ifndef CALIBRATION_FILE_H
#define CALIBRATION_FILE_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_io.h"

#define CALIBRATION_FILE_MAX	  32
#define CALIBRATION_FILE_NAME_MAX 64

/** One map. */
struct arrow_plane {
	const char *name; /**< such as `pedestal_g0`; no white space */
	const float *data;
	uint32_t rows;
	uint32_t cols;
};

/** Return the CRC-32C over all planes in order. It identifies a calibration. */
uint32_t calibration_file_digest(const struct arrow_plane *planes, unsigned int nb);

/**
 * Write DIR/RUN_calibration.bin. Afterwards the file is either complete and durable, or absent. A
 * file with the same maps that another receiver of the run wrote is accepted.
 * @param io       NULL: direct_io
 * @param message  out, on error: the reason; at least PATH_MAX bytes
 * @return 0; 1: the file existed; -EEXIST: it exists with other maps; -EINVAL: too many planes or
 *   names too long; -errno of the file system
 */
int calibration_file_write(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_plane *planes, unsigned int nb, char message[PATH_MAX]);

#endif /* CALIBRATION_FILE_H */
