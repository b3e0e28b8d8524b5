/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Kept frames as a picture.
 */
#ifndef PICTURE_H
#define PICTURE_H

#include "scan/run.h"

#define PICTURE_BEST_FRAME UINT64_MAX /**< the kept frame with the highest strong pixel count */

/**
 * Save a picture, as PNG or SVG by the end of its name: the maximum of all kept frames, and one
 * kept frame. Raw frames are in the maximum only if there are no others, in ADC units; their gain
 * bits count as part of the value.
 * @param peaks        draw circles around the peaks of the frame
 * @param calibration  file with the masked pixels; NULL: search the directory of the files of the
 *                     run. Without a file, masked pixels of sparse frames are 0
 * @return 0; -EINVAL, -errno: printed
 */
int picture_save(const struct scan_run *run, uint64_t frame, bool peaks, const char *calibration,
	const char *path);

#endif /* PICTURE_H */
