/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file The positions of the peaks of kept frames.
 */
#ifndef PEAK_LISTS_H
#define PEAK_LISTS_H

#include "arrow/reader.h"

/** Peaks of a frame. Column and row in the raster; 0 is the centre of the first pixel. */
struct peak_list {
	const float *fs, *ss;
	uint64_t nb;
};

struct peak_lists {
	struct arrow_column fs, ss;
};

/** @return 0; -ENOENT: the run has no lists; -EBADMSG: damaged */
int peak_lists_open(const struct arrow_reader *images, size_t batch, struct peak_lists *lists);

/** @return 0; -EBADMSG: the lists of fs and ss have different lengths */
int peak_lists_row(const struct peak_lists *lists, uint64_t row, struct peak_list *list);

#endif /* PEAK_LISTS_H */
