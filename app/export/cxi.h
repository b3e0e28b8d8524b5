/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RUN.cxi: images, mask and lists of peaks in one file, with the names of the CXI file format 1.6
 * (https://www.cxidb.org/cxi.html) that CrystFEL, Cheetah and cxiview read.
 */
#ifndef EXPORT_CXI_H
#define EXPORT_CXI_H

#include "export.h"

/** Paths of objects that the geometry file names. @{ */
#define CXI_DATA  "/entry_1/data_1/data"
#define CXI_MASK  "/entry_1/data_1/mask"
#define CXI_PEAKS "/entry_1/result_1"
/** @} */

#define CXI_FRAMES "/entry_1/frames" /**< columns of the images */

/** Path of the file. */
void cxi_path(const struct export *e, char path[PATH_MAX]);

/**
 * Write the file, and replace an old one.
 * @return 0; -EINTR: export_stopped(), nothing was left; -ENOMEM, -EBADMSG, -EIO, -errno:
 *         e->message
 */
int cxi_write(struct export *e, void (*progress)(uint64_t bytes));

#endif /* EXPORT_CXI_H */
