/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * RUN_master.h5 by the application definition NXmx of NeXus: the images of all data files as one
 * virtual dataset, geometry, mask, columns of the run, peaks. README.rst describes it.
 */
#ifndef EXPORT_MASTER_H
#define EXPORT_MASTER_H

#include "export.h"

/** Path of the master file. */
void master_path(const struct export *e, char path[PATH_MAX]);

/**
 * Write the file, and replace an old one.
 * @return 0; -ENOMEM, -EBADMSG, -EIO, -errno: e->message
 */
int master_write(struct export *e);

#endif /* EXPORT_MASTER_H */
