/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The peaks of every frame, as CSV (README.rst, Other files).
 */
#ifndef SPOTS_OUTPUT_H
#define SPOTS_OUTPUT_H

#include "output/output_file.h"
#include "sim/jungfrau_model.h"

/** Open a file and write the column names. @return 0 or -errno, reported */
int spots_output_open(struct output_file *file, const char *path);

/** Append the lines of a frame. @param number  of the frame @return 0 or -errno, reported */
int spots_output_frame(struct output_file *file, const struct jungfrau_model *model,
	uint64_t number, const struct jungfrau_frame *frame);

#endif /* SPOTS_OUTPUT_H */
