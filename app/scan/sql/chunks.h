/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Full images that are chunks (arrow_tables_config.chunks), as pixels: queries see them in the
 * column `value`, as in files without chunks. Any thread.
 */
#ifndef SQL_CHUNKS_H
#define SQL_CHUNKS_H

#include <stdbool.h>

#include "scan/images.h"

/** Images of a batch. It refers to the reader's bytes. */
struct sql_chunks {
	bool some; /**< the batch has full images that are chunks; otherwise the rest is not set */
	struct scan_images images;
	uint64_t pixels; /**< of an image */
};

/** Whether full images of a file may be chunks, as its schema says. */
bool sql_chunks_may(const struct arrow_reader *r);

/** Open a batch of `images` whose columns are checked. */
void sql_chunks_open(struct sql_chunks *c, const struct arrow_reader *r, size_t batch);

/** @return number of values of a row of `value` */
uint64_t sql_chunks_items(const struct sql_chunks *c, uint64_t row);

/**
 * Copy the values of a row.
 * @param to  sql_chunks_items() values
 * @return 0; -EBADMSG: the chunk is damaged
 */
int sql_chunks_copy(const struct sql_chunks *c, uint64_t row, int16_t *to);

#endif /* SQL_CHUNKS_H */
