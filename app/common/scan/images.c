/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>

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
