/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "arrow/bitshuffle.h"
#include "arrow/tables.h"
#include "gk_abi.h"
#include "sql/chunks.h"
#include "sql/offsets.h"
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

bool
sql_chunks_may(const struct arrow_reader *r)
{
	const char *format = arrow_reader_meta(r, ARROW_META_FORMAT);

	return format != NULL && strcmp(format, "1") != 0 &&
		arrow_reader_find(r, "kind", ARROW_UINT8, 0) >= 0 &&
		arrow_reader_find(r, "raw", ARROW_BINARY, 0) >= 0 &&
		arrow_reader_find(r, "value", ARROW_LIST, ARROW_INT16) >= 0;
}

/* Find the pixels of a row. @return 0; -EUCLEAN */
static int
open_row(struct sql_chunks *c, const struct arrow_column *value, const struct arrow_column *raw,
	bool image, uint64_t row)
{
	struct sql_chunks_row *to = &c->row[row];
	uint64_t start, end;

	arrow_column_range(value, row, &start, &end);
	*to = (struct sql_chunks_row){
		.values = (const int16_t *)value->data + start, .items = end - start};
	if (!image || to->items > 0)
		return 0;
	if (!offsets_range(raw->offsets, row, raw->items, &start, &end))
		return -EUCLEAN;
	to->size = end - start;
	if (to->size == 0)
		return 0;
	c->some = true;
	to->chunk = (const uint8_t *)raw->data + start;
	/* no memory for values that a chunk of this size cannot have */
	if (c->pixels * sizeof(*to->values) / LZ4_RATIO_MAX <= to->size)
		to->items = c->pixels;
	return 0;
}

int
sql_chunks_open(struct sql_chunks *c, const struct arrow_reader *r, size_t batch,
	const struct arrow_column *value)
{
	struct arrow_column kind, raw;
	struct sql_chunks_row *rows;
	uint64_t row;
	int ret = 0;

	c->some = false;
	if (arrow_reader_column(r, batch, arrow_reader_find(r, "kind", ARROW_UINT8, 0), &kind) <
			0 ||
		arrow_reader_column(r, batch, arrow_reader_find(r, "raw", ARROW_BINARY, 0), &raw) <
			0)
		return -EUCLEAN;
	if (value->rows > c->room) {
		rows = realloc(c->row, value->rows * sizeof(*rows));
		if (rows == NULL)
			return -ENOMEM;
		c->row = rows;
		c->room = value->rows;
	}
	c->pixels = side_of(r, ARROW_META_ROWS) * side_of(r, ARROW_META_COLS);
	for (row = 0; row < value->rows && ret == 0; row++)
		ret = open_row(
			c, value, &raw, ((const uint8_t *)kind.data)[row] == GK_KIND_IMAGE, row);
	return ret;
}

int
sql_chunks_copy(const struct sql_chunks *c, uint64_t row, int16_t *to)
{
	const struct sql_chunks_row *from = &c->row[row];

	if (from->chunk != NULL) /* only the bits count */
		return bitshuffle_decompress(from->chunk, from->size, (uint16_t *)to, from->items);
	if (from->items > 0)
		memcpy(to, from->values, from->items * sizeof(*to));
	return 0;
}

void
sql_chunks_free(struct sql_chunks *c)
{
	free(c->row);
}
