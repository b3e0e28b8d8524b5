/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Columns of a batch of `images` that hold pixels.
 */
#ifndef SCAN_IMAGES_H
#define SCAN_IMAGES_H

#include "arrow/reader.h"

/** The columns. Their rows are not checked yet. */
struct scan_images {
	struct arrow_column frame, kind, row_ptr, col, value, raw;
	bool is_i16; /**< type of `value`: int16, otherwise float32 */
};

/** @return 0; -EBADMSG: a column is absent or damaged */
int scan_images_open(const struct arrow_reader *r, size_t batch, struct scan_images *b);

#endif /* SCAN_IMAGES_H */
