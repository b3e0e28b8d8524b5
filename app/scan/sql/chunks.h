/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Full images that are chunks (arrow_tables_config.chunks), as pixels: queries see them in the
 * column `value`, as in files without chunks. Any thread.
 */
#ifndef SQL_CHUNKS_H
#define SQL_CHUNKS_H

#include <stdbool.h>

#include "arrow/reader.h"

/** Values of a row, in the bytes of the reader. */
struct sql_chunks_row {
	const uint8_t *chunk;  /**< it has them; NULL: `values` are not in a chunk */
	const int16_t *values; /**< without a chunk */
	uint64_t size;	       /**< bytes of the chunk */
	uint64_t items;	       /**< number of values */
};

/**
 * Images of a batch. The first one is initialised with zeros. Where values are is read from the
 * file and checked once, since another process may write to the file.
 */
struct sql_chunks {
	bool some; /**< the batch has full images that are chunks */
	struct sql_chunks_row *row;
	uint64_t room;	 /**< rows */
	uint64_t pixels; /**< of an image */
};

/** Whether full images of a file may be chunks, as its schema says: it has all columns for it. */
bool sql_chunks_may(const struct arrow_reader *r);

/**
 * Open a batch of `images` whose columns were checked, of a file that may have chunks.
 * @param value  its column `value`, with offsets that no other process changes
 * @return 0; -ENOMEM; -EUCLEAN: the batch is not valid any more
 */
int sql_chunks_open(struct sql_chunks *c, const struct arrow_reader *r, size_t batch,
	const struct arrow_column *value);

/**
 * Copy the values of a row.
 * @param to  sql_chunks_row.items values
 * @return 0; -EBADMSG: the chunk is damaged
 */
int sql_chunks_copy(const struct sql_chunks *c, uint64_t row, int16_t *to);

/** Free the memory of the rows. */
void sql_chunks_free(struct sql_chunks *c);

#endif /* SQL_CHUNKS_H */
