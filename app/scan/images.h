/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Batches of kept frames, and their pixels.
 */
#ifndef IMAGES_H
#define IMAGES_H

#include "run.h"

/** Columns of a batch of images. Its rows are not checked yet. */
struct image_batch {
	struct arrow_column frame, kind, row_ptr, col, value, raw;
	bool is_i16;
};

/** @return 0; -EBADMSG: the batch lacks a column */
int images_open(const struct arrow_reader *r, size_t batch, struct image_batch *b);

/**
 * Expand an image to photons of all pixels: NaN masked or missing, infinity saturated; 0 for pixels
 * that a sparse frame does not list. Raw frames give their words.
 * @param plane  out: [rows][cols]
 * @param words  [rows][cols], used for raw frames
 * @return 0; -EBADMSG: the row does not fit the detector's size
 */
int images_expand(const struct scan_run *run, const struct image_batch *b, uint64_t row,
	float *plane, uint16_t *words);

#endif /* IMAGES_H */
