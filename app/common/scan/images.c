/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <string.h>

#include "arrow/bitshuffle.h"
#include "scan/images.h"

int
scan_images_open(const struct arrow_reader *r, size_t batch, struct scan_images *b)
{
	int f32 = arrow_reader_find(r, "value", ARROW_LIST, ARROW_FLOAT32);
	int i16 = arrow_reader_find(r, "value", ARROW_LIST, ARROW_INT16);
	const struct {
		int field;
		struct arrow_column *column;
	} need[] = {
		{arrow_reader_find(r, "frame", ARROW_UINT64, 0), &b->frame},
		{arrow_reader_find(r, "kind", ARROW_UINT8, 0), &b->kind},
		{arrow_reader_find(r, "row_ptr", ARROW_LIST, ARROW_UINT32), &b->row_ptr},
		{arrow_reader_find(r, "col", ARROW_LIST, ARROW_UINT16), &b->col},
		{f32 >= 0 ? f32 : i16, &b->value},
		{arrow_reader_find(r, "raw", ARROW_BINARY, 0), &b->raw},
	};
	unsigned int i;

	b->is_i16 = f32 < 0;
	for (i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		if (need[i].field < 0 ||
			arrow_reader_column(r, batch, need[i].field, need[i].column) < 0)
			return -EBADMSG;
	}
	return 0;
}

static float
batch_value(const struct scan_images *b, uint64_t i)
{
	int16_t v;

	if (!b->is_i16)
		return ((const float *)b->value.data)[i];
	v = ((const int16_t *)b->value.data)[i];
	return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
}

int
scan_images_expand(const struct scan_run *run, const struct scan_images *b, uint64_t row,
	float *plane, uint16_t *words)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	const uint32_t *row_ptr;
	const uint16_t *col;
	uint64_t start, end, ptr, ptr_end, col_start, col_end, i;
	uint32_t y;

	arrow_column_range(&b->value, row, &start, &end);
	switch (((const uint8_t *)b->kind.data)[row]) {
	case GK_KIND_CSR:
		arrow_column_range(&b->row_ptr, row, &ptr, &ptr_end);
		arrow_column_range(&b->col, row, &col_start, &col_end);
		row_ptr = (const uint32_t *)b->row_ptr.data + ptr;
		col = (const uint16_t *)b->col.data + col_start;
		if (ptr_end - ptr != (uint64_t)run->rows + 1 || row_ptr[0] != 0 ||
			col_end - col_start != end - start)
			return -EBADMSG;
		memset(plane, 0, pixels * sizeof(*plane));
		for (y = 0; y < run->rows; y++) {
			if (row_ptr[y + 1] < row_ptr[y] || row_ptr[y + 1] > end - start)
				return -EBADMSG;
			for (i = row_ptr[y]; i < row_ptr[y + 1]; i++) {
				if (col[i] >= run->cols)
					return -EBADMSG;
				plane[(uint64_t)y * run->cols + col[i]] = batch_value(b, start + i);
			}
		}
		return 0;
	case GK_KIND_IMAGE:
		if (end - start != pixels)
			return -EBADMSG;
		for (i = 0; i < pixels; i++)
			plane[i] = batch_value(b, start + i);
		return 0;
	case GK_KIND_RAW:
		arrow_column_range(&b->raw, row, &start, &end);
		if (bitshuffle_decompress(
			    (const uint8_t *)b->raw.data + start, end - start, words, pixels) < 0)
			return -EBADMSG;
		for (i = 0; i < pixels; i++)
			plane[i] = words[i] == 0xFFFF ? NAN : words[i];
		return 0;
	default:
		return -EBADMSG;
	}
}
