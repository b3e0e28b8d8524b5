/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "rows.h"

/* Columns that have a place of the same type in struct wire_frame. */
static const struct {
	const char *name;
	enum arrow_type type;
	size_t at;
} columns[] = {
	{"bunch_id", ARROW_UINT64, offsetof(struct wire_frame, bunch_id)},
	{"detector_time", ARROW_UINT64, offsetof(struct wire_frame, detector_time)},
	{"receive_time", ARROW_TIMESTAMP_NS, offsetof(struct wire_frame, receive_time)},
	{"exposure", ARROW_UINT32, offsetof(struct wire_frame, exposure)},
	{"detector_status", ARROW_UINT32, offsetof(struct wire_frame, detector_status)},
	{"flags", ARROW_UINT32, offsetof(struct wire_frame, flags)},
	{"strong_count", ARROW_UINT32, offsetof(struct wire_frame, strong_count)},
	{"sum", ARROW_FLOAT64, offsetof(struct wire_frame, sum)},
	{"saturated", ARROW_UINT32, offsetof(struct wire_frame, saturated)},
	{"invalid", ARROW_UINT32, offsetof(struct wire_frame, invalid)},
	{"verdict", ARROW_UINT8, offsetof(struct wire_frame, verdict)},
	{"veto_version", ARROW_UINT32, offsetof(struct wire_frame, veto_version)},
	{"pedestal_version", ARROW_UINT32, offsetof(struct wire_frame, pedestal_version)},
};

#define NB (sizeof(columns) / sizeof(columns[0]))

/* The columns of a batch of `frames`. */
struct batch {
	struct arrow_column number, value[NB], peaks, shells;
	bool has_peaks, has_shells;
};

/* @return 0; -ENODATA: no such column; -EBADMSG: damaged */
static int
open_column(const struct scan_record *r, const char *name, enum arrow_type type,
	enum arrow_type item, struct arrow_column *c)
{
	const int field = arrow_reader_find(&r->reader, name, type, item);

	return field < 0 ? -ENODATA : arrow_reader_column(&r->reader, 0, field, c);
}

static int
open_batch(const struct scan_record *r, struct batch *b)
{
	int ret = open_column(r, "frame", ARROW_UINT64, 0, &b->number);

	for (size_t i = 0; ret == 0 && i < NB; i++)
		ret = open_column(r, columns[i].name, columns[i].type, 0, &b->value[i]);
	if (ret < 0)
		return -EBADMSG;
	/* only of runs with a search for peaks */
	ret = open_column(r, "peaks", ARROW_UINT32, 0, &b->peaks);
	b->has_peaks = ret == 0;
	if (ret == 0 || ret == -ENODATA)
		ret = open_column(r, "shell_peaks", ARROW_LIST, ARROW_UINT32, &b->shells);
	b->has_shells = ret == 0;
	return ret == -ENODATA ? 0 : ret;
}

static void
read_row(const struct batch *b, uint64_t row, struct wire_frame *f)
{
	uint64_t start, end, n;
	size_t width;

	memset(f, 0, sizeof(*f));
	for (size_t i = 0; i < NB; i++) {
		width = columns[i].type == ARROW_TIMESTAMP_NS ? sizeof(int64_t)
							      : arrow_type_width(columns[i].type);
		memcpy((uint8_t *)f + columns[i].at,
			(const uint8_t *)b->value[i].data + row * width, width);
	}
	f->searched = b->has_peaks && !arrow_column_is_null(&b->peaks, row);
	if (!f->searched)
		return;
	f->peaks = ((const uint32_t *)b->peaks.data)[row];
	if (!b->has_shells)
		return;
	arrow_column_range(&b->shells, row, &start, &end);
	n = end - start;
	f->nb_shells = n < FRAME_SHELLS_MAX ? n : FRAME_SHELLS_MAX;
	if (f->nb_shells > 0)
		memcpy(f->shell_peaks, (const uint32_t *)b->shells.data + start,
			f->nb_shells * sizeof(f->shell_peaks[0]));
}

int
rows_begin(struct rows_join *j, const struct scan_record *images, const bool *published)
{
	const uint64_t *number = images->images.frame.data;
	const uint64_t nb = images->batch.rows;

	rows_end(j);
	j->frame = calloc(nb + 1, sizeof(*j->frame));
	j->known = calloc(nb + 1, sizeof(*j->known));
	if (j->frame == NULL || j->known == NULL) {
		rows_end(j);
		return -ENOMEM;
	}
	j->nb = nb;
	for (uint64_t i = 0; i < nb; i++) {
		if (!published[i])
			continue;
		if (j->missing == 0 || number[i] < j->first)
			j->first = number[i];
		if (j->missing == 0 || number[i] > j->last)
			j->last = number[i];
		j->missing++;
	}
	return 0;
}

int
rows_add(struct rows_join *j, const struct scan_record *images, const bool *published,
	const struct scan_record *frames)
{
	const uint64_t *number = images->images.frame.data, *other;
	const uint64_t rows = frames->batch.rows;
	uint64_t i, k, at = 0;
	struct batch b;

	if (open_batch(frames, &b) < 0)
		return -EBADMSG;
	other = b.number.data;
	for (i = 0; i < j->nb && j->missing > 0; i++) {
		if (!published[i] || j->known[i])
			continue;
		/* both tables have the same order: the row often follows the previous one */
		for (k = 0; k < rows && other[at] != number[i]; k++)
			at = at + 1 < rows ? at + 1 : 0;
		if (k == rows)
			continue;
		read_row(&b, at, &j->frame[i]);
		j->known[i] = true;
		j->missing--;
	}
	return 0;
}

const struct wire_frame *
rows_get(const struct rows_join *j, uint64_t row)
{
	return row < j->nb && j->known[row] ? &j->frame[row] : NULL;
}

int
rows_range(const struct scan_record *frames, uint64_t *first, uint64_t *last)
{
	struct arrow_column c;
	const uint64_t *number;

	if (open_column(frames, "frame", ARROW_UINT64, 0, &c) < 0)
		return -EBADMSG;
	if (frames->batch.rows == 0)
		return -ENODATA;
	number = c.data;
	*first = *last = number[0];
	for (uint64_t i = 1; i < frames->batch.rows; i++) {
		*first = number[i] < *first ? number[i] : *first;
		*last = number[i] > *last ? number[i] : *last;
	}
	return 0;
}

void
rows_end(struct rows_join *j)
{
	free(j->frame);
	free(j->known);
	*j = (struct rows_join){0};
}
