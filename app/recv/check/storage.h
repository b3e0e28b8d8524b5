/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: calibration and storage.
 */
#ifndef CHECK_STORAGE_H
#define CHECK_STORAGE_H

#include <stdbool.h>

#include "calib/calibration.h"

struct check;
struct settings;

/** The calibration, loaded as in a run. */
struct check_maps {
	struct calibration calibration;
	void *memory; /**< memory of the coefficients */
	bool loaded;
};

/**
 * Check the calibration. Fail: files that a run refuses; warn: gain stages without pedestals, or a
 * module with implausible maps (one row each).
 * @param maps  out; free with check_free_maps()
 */
void check_calibration(struct check *c, const struct settings *s, struct check_maps *maps);

void check_free_maps(struct check_maps *maps);

/** Create the files of the run as at its start, and remove them again. */
void check_directory(struct check *c, const struct settings *s, const struct check_maps *maps);

/** Check the free disk space, in full images. */
void check_space(struct check *c, const struct settings *s);

/** Check that the files of [output] preview and live can be written, if they are paths. */
void check_preview(struct check *c, const struct settings *s);

/** Check that the file system supports direct I/O with our block size, on a temporary file. */
void check_direct_io(struct check *c, const struct settings *s);

#endif /* CHECK_STORAGE_H */
