/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Calibration files to conversion coefficients.
 *
 * Files are those of PSI, one set a module, little-endian, [rows][cols] in raster order:
 *   gain      f64 [3 or more][rows][cols]  ADU/keV in order G0, G1, G2 (further maps are not read)
 *   pedestal  f32 [rows][cols]             ADU, one file a gain stage; 0 or >= 16383 = unusable
 *   mask      u8  [rows][cols]             non-zero = the pixel is masked
 * A path holds `%d` where the module number goes. Coefficients are encoded as gk_pixel.h says:
 * p = pedestal, r = f32(1 / (gain x energy)), NaN where a pixel is unusable.
 *
 * Control lcore only.
 */
#ifndef CALIBRATION_H
#define CALIBRATION_H

#include <stdint.h>

#include <gk_abi.h>

#include "detector.h"

#define CALIBRATION_STAGES 3

struct calibration_files {
	const char *gain;			  /**< NULL: nominal gain everywhere */
	const char *pedestal[CALIBRATION_STAGES]; /**< NULL: 0 everywhere */
	const char *mask;			  /**< NULL: nothing masked */
	double nominal_gain[CALIBRATION_STAGES];  /**< ADU/keV */
	double energy;				  /**< keV of a photon */
};

struct calibration {
	float *p[CALIBRATION_STAGES]; /**< [pixels], the caller's memory */
	float *r[CALIBRATION_STAGES];
	uint64_t masked;		       /**< pixels masked altogether */
	uint64_t unusable[CALIBRATION_STAGES]; /**< pixels unusable in one stage, not masked */
	uint32_t digest; /**< CRC-32C of all coefficients: names this calibration in files */
};

/** Bytes that the six planes of a detector need. */
uint64_t calibration_size(const struct detector *d);

/**
 * Read the files and compute the coefficients.
 * @param c       receives them; p and r point into `memory`
 * @param memory  calibration_size() bytes, 64-byte aligned
 * @return 0; -ENOENT, -EIO: a file cannot be read; -EINVAL: its size is wrong (all logged)
 */
int calibration_load(struct calibration *c, void *memory, const struct calibration_files *files,
	const struct detector *d);

#endif /* CALIBRATION_H */
