/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Rows of `frames` for the images of a batch. Numbers of frames join both tables.
 */
#ifndef PUBLISH_ROWS_H
#define PUBLISH_ROWS_H

#include "scan/record.h"
#include "wire.h"

/**
 * The images of a batch, and the rows of their frames as far as they were read. Zero-initialized:
 * no batch.
 */
struct rows_join {
	struct wire_frame *frame; /**< [nb], by row of the batch */
	bool *known;		  /**< [nb] */
	uint64_t nb;
	uint64_t missing;     /**< rows to be published that are not known */
	uint64_t first, last; /**< frame numbers of the rows to be published */
};

/**
 * Begin. @param published  [rows of the batch] whether a row is published
 * @return 0; -ENOMEM
 */
int rows_begin(struct rows_join *j, const struct scan_record *images, const bool *published);

/**
 * Add what a batch of `frames` has. A row that is known stays.
 * @return 0; -EBADMSG: a column is absent or damaged
 */
int rows_add(struct rows_join *j, const struct scan_record *images, const bool *published,
	const struct scan_record *frames);

/** @return NULL: not known */
const struct wire_frame *rows_get(const struct rows_join *j, uint64_t row);

/**
 * Frame numbers of a batch of `frames`. @param first, last  out
 * @return 0; -ENODATA: it has no rows; -EBADMSG: the column is absent or damaged
 */
int rows_range(const struct scan_record *frames, uint64_t *first, uint64_t *last);

void rows_end(struct rows_join *j);

#endif /* PUBLISH_ROWS_H */
