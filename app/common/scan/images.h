/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Columns of a batch of `images` that hold pixels.
 */
#ifndef SCAN_IMAGES_H
#define SCAN_IMAGES_H

#include "arrow/reader.h"
#include "scan/run.h"

/** The columns. Their rows are not checked yet. */
struct scan_images {
	struct arrow_column frame, kind, row_ptr, col, value, raw;
	bool is_i16; /**< type of `value`: int16, otherwise float32 */
};

/** @return 0; -EBADMSG: a column is absent or damaged */
int scan_images_open(const struct arrow_reader *r, size_t batch, struct scan_images *b);

/**
 * Expand an image to photons of all pixels: NaN masked or missing, infinity saturated; 0 for pixels
 * that a sparse frame does not list. Raw frames give their words.
 * @param plane  out: [rows][cols]
 * @param words  [rows][cols], used for raw frames
 * @return 0; -EBADMSG: the row does not fit the detector's size
 */
int scan_images_expand(const struct scan_run *run, const struct scan_images *b, uint64_t row,
	float *plane, uint16_t *words);

#endif /* SCAN_IMAGES_H */
