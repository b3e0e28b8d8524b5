/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The truth of every frame, as CSV (README.rst, Other files).
 */
#ifndef TRUTH_OUTPUT_H
#define TRUTH_OUTPUT_H

#include "frame_source.h"
#include "output/output_file.h"
#include "wire/packet_faults.h"
#include "wire/pulse_header.h"

/** Open a file and write the column names. @return 0 or -errno, reported */
int truth_output_open(struct output_file *file, const char *path);

/** Append the line of a pulse's frame. @return 0 or -errno, reported */
int truth_output_frame(struct output_file *file, const struct pulse_numbering *numbering,
	uint64_t pulse, const struct frame_truth *truth, const struct frame_outcome *outcome);

#endif /* TRUTH_OUTPUT_H */
