/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <string.h>

#include "arrow/bitshuffle.h"
#include "gk_pixel.h"
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
	int missing;

	b->is_i16 = f32 < 0;
	b->place = NULL;
	for (i = 0; i < sizeof(need) / sizeof(need[0]); i++) {
		if (need[i].field < 0 ||
			arrow_reader_column(r, batch, need[i].field, need[i].column) < 0)
			return -EBADMSG;
	}
	missing = arrow_reader_find(r, "missing", ARROW_BINARY, 0);
	b->missing.field = NULL;
	return missing >= 0 ? arrow_reader_column(r, batch, missing, &b->missing) : 0;
}

uint64_t
scan_images_chunk(const struct scan_images *b, uint64_t row, const uint8_t **chunk)
{
	const uint8_t kind = ((const uint8_t *)b->kind.data)[row];
	uint64_t start, end;

	if (kind == GK_KIND_IMAGE && b->is_i16) {
		arrow_column_range(&b->value, row, &start, &end);
		if (end > start)
			return 0;
	} else if (kind != GK_KIND_RAW) {
		return 0;
	}
	arrow_column_range(&b->raw, row, &start, &end);
	*chunk = (const uint8_t *)b->raw.data + (b->place != NULL ? b->place[row] : start);
	return end - start;
}

static float
photons_of(int16_t v)
{
	return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
}

static float
batch_value(const struct scan_images *b, uint64_t i)
{
	return b->is_i16 ? photons_of(((const int16_t *)b->value.data)[i])
			 : ((const float *)b->value.data)[i];
}

/* Mark the pixels of missing packets of a sparse frame. */
static void
mark_missing(const struct scan_run *run, const struct scan_images *b, uint64_t row, float *plane)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	const uint8_t *bits;
	uint64_t start, end, each;

	if (b->missing.field == NULL || run->packets == 0 || pixels % run->packets != 0)
		return;
	arrow_column_range(&b->missing, row, &start, &end);
	bits = (const uint8_t *)b->missing.data + start;
	each = pixels / run->packets;
	for (uint64_t p = 0; p < run->packets && p / 8 < end - start; p++) {
		if ((bits[p / 8] >> p % 8 & 1) == 0)
			continue;
		for (uint64_t i = p * each; i < (p + 1) * each; i++)
			plane[i] = NAN;
	}
}

int
scan_images_expand(const struct scan_run *run, const struct scan_images *b, uint64_t row,
	float *plane, uint16_t *words)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	const uint32_t *row_ptr;
	const uint16_t *col;
	const uint8_t *chunk = NULL;
	uint64_t start, end, ptr, ptr_end, col_start, col_end, i, size;
	uint32_t y;

	size = scan_images_chunk(b, row, &chunk);
	if (size > 0 && bitshuffle_decompress(chunk, size, words, pixels) < 0)
		return -EBADMSG;
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
		mark_missing(run, b, row, plane);
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
		for (i = 0; i < pixels && size > 0; i++)
			plane[i] = photons_of((int16_t)words[i]);
		if (size > 0)
			return 0;
		if (end - start != pixels)
			return -EBADMSG;
		for (i = 0; i < pixels; i++)
			plane[i] = batch_value(b, start + i);
		return 0;
	case GK_KIND_RAW:
		if (size == 0)
			return -EBADMSG;
		for (i = 0; i < pixels; i++)
			plane[i] = words[i] == 0xFFFF ? NAN : words[i];
		return 0;
	default:
		return -EBADMSG;
	}
}

static int16_t
batch_photons(const struct scan_images *b, uint64_t i)
{
	return b->is_i16 ? ((const int16_t *)b->value.data)[i]
			 : gk_value_i16(((const float *)b->value.data)[i]);
}

static int
expand_csr(
	const struct scan_images *b, uint64_t row, uint32_t rows, uint32_t cols, int16_t *photons)
{
	uint64_t start, end, ptr, ptr_end, col_start, col_end, i;
	const uint32_t *row_ptr;
	const uint16_t *col;
	uint32_t y;

	arrow_column_range(&b->value, row, &start, &end);
	arrow_column_range(&b->row_ptr, row, &ptr, &ptr_end);
	arrow_column_range(&b->col, row, &col_start, &col_end);
	row_ptr = (const uint32_t *)b->row_ptr.data + ptr;
	col = (const uint16_t *)b->col.data + col_start;
	if (ptr_end - ptr != (uint64_t)rows + 1 || row_ptr[0] != 0 ||
		col_end - col_start != end - start)
		return -EBADMSG;
	memset(photons, 0, (uint64_t)rows * cols * sizeof(*photons));
	for (y = 0; y < rows; y++) {
		if (row_ptr[y + 1] < row_ptr[y] || row_ptr[y + 1] > end - start)
			return -EBADMSG;
		for (i = row_ptr[y]; i < row_ptr[y + 1]; i++) {
			if (col[i] >= cols)
				return -EBADMSG;
			photons[(uint64_t)y * cols + col[i]] = batch_photons(b, start + i);
		}
	}
	return 0;
}

int
scan_images_photons(const struct scan_images *b, uint64_t row, uint32_t rows, uint32_t cols,
	int16_t *room, const int16_t **photons)
{
	const uint64_t pixels = (uint64_t)rows * cols;
	const uint8_t kind = ((const uint8_t *)b->kind.data)[row];
	const uint8_t *chunk = NULL;
	uint64_t start, end, i, size;

	*photons = room;
	if (kind == GK_KIND_CSR)
		return expand_csr(b, row, rows, cols, room);
	size = kind == GK_KIND_IMAGE ? scan_images_chunk(b, row, &chunk) : 0;
	if (size > 0) /* only the bits count */
		return bitshuffle_decompress(chunk, size, (uint16_t *)room, pixels);
	arrow_column_range(&b->value, row, &start, &end);
	if (kind != GK_KIND_IMAGE || end - start != pixels)
		return -EBADMSG;
	if (b->is_i16)
		*photons = (const int16_t *)b->value.data + start;
	else
		for (i = 0; i < pixels; i++)
			room[i] = batch_photons(b, start + i);
	return 0;
}

static const struct {
	const char *column;
	enum arrow_type item;
} peak_lists[SCAN_PEAK_LISTS] = {
	[SCAN_PEAK_FS] = {"peak_fs", ARROW_FLOAT32},
	[SCAN_PEAK_SS] = {"peak_ss", ARROW_FLOAT32},
	[SCAN_PEAK_INTENSITY] = {"peak_intensity", ARROW_FLOAT32},
	[SCAN_PEAK_SNR] = {"peak_snr", ARROW_FLOAT32},
	[SCAN_PEAK_BACKGROUND] = {"peak_background", ARROW_FLOAT32},
	[SCAN_PEAK_PIXELS] = {"peak_pixels", ARROW_UINT32},
	[SCAN_PEAK_PANEL] = {"peak_panel", ARROW_UINT16},
};

int
scan_peaks_open(const struct arrow_reader *r, size_t batch, struct scan_peaks *p)
{
	int field;

	if (arrow_reader_find(r, peak_lists[0].column, ARROW_LIST, peak_lists[0].item) < 0)
		return -ENODATA;
	for (unsigned int i = 0; i < SCAN_PEAK_LISTS; i++) {
		field = arrow_reader_find(r, peak_lists[i].column, ARROW_LIST, peak_lists[i].item);
		if (field < 0 || arrow_reader_column(r, batch, field, &p->list[i]) < 0)
			return -EBADMSG;
	}
	return 0;
}

int
scan_peaks_row(const struct scan_peaks *p, uint64_t row, uint64_t start[SCAN_PEAK_LISTS])
{
	uint64_t end, nb = 0;

	for (unsigned int i = 0; i < SCAN_PEAK_LISTS; i++) {
		arrow_column_range(&p->list[i], row, &start[i], &end);
		if (i == 0)
			nb = end - start[0];
		if (end - start[i] != nb || nb > GK_PEAKS_MAX)
			return -EBADMSG;
	}
	return (int)nb;
}
