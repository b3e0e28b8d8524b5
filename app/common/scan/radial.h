/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Radial profiles that the receiver has made: columns of `frames`, and their bins in the metadata.
 */
#ifndef SCAN_RADIAL_H
#define SCAN_RADIAL_H

#include "geometry/profile.h"
#include "scan/run.h"

struct scan_radial {
	enum profile_unit unit;
	uint32_t bins;
	double *centre; /**< [bins] */
};

/**
 * Read the bins of a run.
 * @return 0; -ENOENT: the run has no profiles; -EBADMSG: the metadata of a file are wrong, or files
 *   have different bins; -ENOMEM. Nothing is to be closed after an error
 */
int scan_radial_open(struct scan_radial *r, const struct scan_run *run);

void scan_radial_close(struct scan_radial *r);

/** The profiles of a batch of `frames`. */
struct scan_radial_batch {
	uint32_t bins;
	struct arrow_column sum, count;
};

/** @return 0; -EBADMSG: a column is absent or damaged */
int scan_radial_batch(const struct scan_radial *r, const struct arrow_reader *frames, size_t batch,
	struct scan_radial_batch *b);

/**
 * Find the profile of a row.
 * @param sum    out: [bins], photons
 * @param count  out: [bins], valid pixels
 * @return false: no gang has processed the frame
 */
bool scan_radial_row(const struct scan_radial_batch *b, uint64_t row, const int64_t **sum,
	const uint32_t **count);

#endif /* SCAN_RADIAL_H */
