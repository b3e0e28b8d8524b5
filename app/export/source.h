/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The run that is exported: what its files must have in common, the kind of its images, and its
 * geometry. Errors are printed.
 */
#ifndef EXPORT_SOURCE_H
#define EXPORT_SOURCE_H

#include "export.h"
#include "options.h"

/**
 * All files must be of one run: of one name, and with the same type of values. Sets e->detector.
 * @return 0; -EINVAL
 */
int source_check(struct export *e);

/** @return number of files that are damaged or incomplete, which are printed */
unsigned int source_report_damage(const struct scan_run *run);

/**
 * Print a warning if the files seem to be of different runs of the same name (scan/same_name.h).
 * @return 0; -ENOMEM
 */
int source_report_same_name(const struct scan_run *run);

/** @return true if kept frames have no image, which is printed */
bool source_report_lost(const struct export *e);

/**
 * Choose the kind of images: photons, or detector words if there is nothing else. Images of other
 * kinds leave the selection.
 * @return 0; -EINVAL
 */
int source_choose_kind(struct export *e, enum options_format format);

/**
 * Read e->geometry, which the caller frees.
 * @param path  file; NULL: that of the run
 * @return 0; -EINVAL; -ENOMEM
 */
int source_geometry(struct export *e, const char *path);

#endif /* EXPORT_SOURCE_H */
