/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>

#include "peak_lists.h"

int
peak_lists_open(const struct arrow_reader *images, size_t batch, struct peak_lists *lists)
{
	const int fs = arrow_reader_find(images, "peak_fs", ARROW_LIST, ARROW_FLOAT32);
	const int ss = arrow_reader_find(images, "peak_ss", ARROW_LIST, ARROW_FLOAT32);

	if (fs < 0 || ss < 0)
		return -ENOENT;
	if (arrow_reader_column(images, batch, fs, &lists->fs) < 0 ||
		arrow_reader_column(images, batch, ss, &lists->ss) < 0)
		return -EBADMSG;
	return 0;
}

int
peak_lists_row(const struct peak_lists *lists, uint64_t row, struct peak_list *list)
{
	uint64_t start, end, start_ss, end_ss;

	arrow_column_range(&lists->fs, row, &start, &end);
	arrow_column_range(&lists->ss, row, &start_ss, &end_ss);
	if (end - start != end_ss - start_ss)
		return -EBADMSG;
	*list = (struct peak_list){.fs = (const float *)lists->fs.data + start,
		.ss = (const float *)lists->ss.data + start_ss,
		.nb = end - start};
	return 0;
}
