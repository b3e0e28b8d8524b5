/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The coefficient maps that a run was corrected with, beside its files: RUN_calibration.bin.
 *
 * First block: text, a line each, zeros up to ARROW_BLOCK x k bytes; then the planes as they are,
 * float32, little endian, each at a multiple of ARROW_BLOCK:
 *
 *     braggline calibration 1
 *     plane NAME float32 ROWS COLS at OFFSET crc32c XXXXXXXX
 *     ...
 *     end
 */
#ifndef ARROW_PLANES_H
#define ARROW_PLANES_H

#include <limits.h>
#include <stddef.h>
#include <stdint.h>

#include "io/file_io.h"

#define ARROW_PLANES_MAX      32
#define ARROW_PLANES_NAME_MAX 64

/** One map. */
struct arrow_plane {
	const char *name; /**< such as `pedestal_g0`; no blanks */
	const float *data;
	uint32_t rows;
	uint32_t cols;
};

/** CRC-32C of all planes, one after the other: what identifies a calibration. */
uint32_t arrow_planes_digest(const struct arrow_plane *planes, unsigned int nb);

/**
 * Write DIR/RUN_calibration.bin: afterwards it is there, whole and durable, or it is not. That of
 * a receiver which has begun the run before, with the same maps, is as good.
 * @param io       NULL: direct_io
 * @param message  out, on error: what is wrong; at least PATH_MAX bytes
 * @return 0; 1: it was there; -EEXIST: with other maps; -EINVAL: too many planes or names too long;
 *   -errno of the file system
 */
int arrow_planes_write(const struct arrow_io_ops *io, const char *dir, const char *run,
	const struct arrow_plane *planes, unsigned int nb, char message[PATH_MAX]);

#endif /* ARROW_PLANES_H */
