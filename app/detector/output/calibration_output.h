/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Calibration files of the model's modules, in the layout of PSI's tools (README.rst).
 */
#ifndef CALIBRATION_OUTPUT_H
#define CALIBRATION_OUTPUT_H

#include <signal.h>

#include "sim/jungfrau_model.h"

/**
 * Write the files of all modules into a directory, which is created if it does not exist.
 * @return 0 or -errno, reported; -EINTR: *stop became non-zero
 */
int calibration_output_write(const struct jungfrau_model *model, uint32_t modules,
	const char *directory, const volatile sig_atomic_t *stop);

#endif /* CALIBRATION_OUTPUT_H */
