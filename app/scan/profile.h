/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Radial profiles of kept frames.
 */
#ifndef SCAN_PROFILE_H
#define SCAN_PROFILE_H

#include "geometry/profile.h"
#include "scan/run.h"

#define PROFILE_BINS 1000 /**< by default */

struct profile_options {
	enum profile_unit unit; /**< PROFILE_UNITS: that of the receiver's profiles, or q */
	uint32_t bins;		/**< 0: those of the receiver's profiles, or PROFILE_BINS */
	struct profile_corrections corrections;
};

/**
 * Write radial profiles as CSV, with a line of names first: those that the receiver has made of all
 * frames, if they have the same bins and no corrections; otherwise those of all kept frames that
 * are full images.
 * @param path  `-`: standard output
 * @return 0; -EINVAL; -ENODATA: also if no kept frame is a full image; -EBADMSG; -errno: printed
 */
int profile_save(
	const struct scan_run *run, const struct profile_options *options, const char *path);

#endif /* SCAN_PROFILE_H */
