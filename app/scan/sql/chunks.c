/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include "arrow/bitshuffle.h"
#include "arrow/tables.h"
#include "sql/chunks.h"
#include "whole_number.h"

/* LZ4 makes at most this number of bytes from one. */
#define LZ4_RATIO_MAX 255

/* @return rows or columns of the raster; 0: not known */
static uint64_t
side_of(const struct arrow_reader *r, const char *key)
{
	const char *text = arrow_reader_meta(r, key);
	uint64_t side;

	return text != NULL && whole_number(text, 1, UINT16_MAX + 1, &side) ? side : 0;
}

/* @return size of the chunk of a full image; 0: it is none */
static uint64_t
chunk_of(const struct sql_chunks *c, uint64_t row, const uint8_t **chunk)
{
	if (((const uint8_t *)c->images.kind.data)[row] != GK_KIND_IMAGE)
		return 0;
	return scan_images_chunk(&c->images, row, chunk);
}

bool
sql_chunks_may(const struct arrow_reader *r)
{
	const char *format = arrow_reader_meta(r, ARROW_META_FORMAT);

	return format != NULL && strcmp(format, "1") != 0;
}

void
sql_chunks_open(struct sql_chunks *c, const struct arrow_reader *r, size_t batch)
{
	const uint8_t *chunk;

	c->some = false;
	if (scan_images_open(r, batch, &c->images) < 0)
		return;
	c->pixels = side_of(r, ARROW_META_ROWS) * side_of(r, ARROW_META_COLS);
	for (uint64_t row = 0; row < r->batches[batch].rows && !c->some; row++)
		c->some = chunk_of(c, row, &chunk) > 0;
}

uint64_t
sql_chunks_items(const struct sql_chunks *c, uint64_t row)
{
	uint64_t start, end, size;
	const uint8_t *chunk;

	size = chunk_of(c, row, &chunk);
	if (size > 0) /* no memory for values that a chunk of this size cannot have */
		return c->pixels * sizeof(int16_t) / LZ4_RATIO_MAX <= size ? c->pixels : 0;
	arrow_column_range(&c->images.value, row, &start, &end);
	return end - start;
}

int
sql_chunks_copy(const struct sql_chunks *c, uint64_t row, int16_t *to)
{
	uint64_t start, end, size;
	const uint8_t *chunk;

	size = chunk_of(c, row, &chunk);
	if (size > 0) /* only the bits count */
		return bitshuffle_decompress(chunk, size, (uint16_t *)to, sql_chunks_items(c, row));
	arrow_column_range(&c->images.value, row, &start, &end);
	if (end > start)
		memcpy(to, (const int16_t *)c->images.value.data + start,
			(end - start) * sizeof(*to));
	return 0;
}
