/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Columns of the run in the master file: /entry/frames has a value for each image, /entry/peaks the
 * lists of peaks with the names of CXI files.
 */
#ifndef EXPORT_COLUMNS_H
#define EXPORT_COLUMNS_H

#include "export.h"
#include "h5.h"

/** Values of a column for all images, which the caller frees; 0 without a row of `frames`. */
void *columns_read(const struct export *e, const char *name, enum arrow_type type);

/** Write /entry/frames. @return 0; -ENOMEM */
int columns_put_frames(struct h5 *h, hid_t entry, const struct export *e);

/** @return true if the files of the run have lists of peaks */
bool columns_have_peaks(const struct export *e);

/**
 * Count the peaks of each image.
 * @param count  out: a number for each image
 * @return the largest number; -EBADMSG: e->message
 */
int columns_count_peaks(struct export *e, int32_t *count);

/**
 * Write the lists of peaks.
 * @param name  of the group
 * @return 0; -ENOMEM; -EBADMSG: e->message
 */
int columns_put_peaks(struct h5 *h, hid_t entry, const char *name, struct export *e);

#endif /* EXPORT_COLUMNS_H */
