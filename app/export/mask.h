/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The pixel mask of an export: pixels that the geometry does not use, and pixels that the
 * calibration of the run masks. The latter come from RUN_calibration.bin.
 */
#ifndef EXPORT_MASK_H
#define EXPORT_MASK_H

#include "export.h"

/**
 * Make e->mask, which the caller frees. The geometry must be known.
 * @param calibration  file of the run; NULL: search the directory of the files of the run. Without
 *                     a file, pixels that the calibration masks are marked only in images of
 *                     photons
 * @return 0; 1: no file was found; -ENOMEM; -ERANGE, -EBADMSG, -errno: e->message
 */
int mask_read(struct export *e, const char *calibration);

/**
 * Whether photons of masked pixels must be marked as invalid in the images, because a reader does
 * not know the mask: modules_mask_name().
 */
bool mask_is_in_images(const struct export *e);

#endif /* EXPORT_MASK_H */
