/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "escaped_text.h"
#include "arrow/bitshuffle.h"
#include "io/own_file.h"
#include "picture/panels.h"
#include "peak_lists.h"
#include "picture.h"

/* Location of an image. */
struct place {
	size_t set;
	size_t batch;
	uint64_t row;
};

/* Columns of a batch of images. Its rows are not checked yet. */
struct image_batch {
	struct arrow_column frame, kind, row_ptr, col, value, raw;
	bool is_i16;
};

static int
batch_open(const struct arrow_reader *r, size_t batch, struct image_batch *b)
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
batch_value(const struct image_batch *b, uint64_t i)
{
	int16_t v;

	if (!b->is_i16)
		return ((const float *)b->value.data)[i];
	v = ((const int16_t *)b->value.data)[i];
	return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
}

/* Expands one image to photons per pixel; -EBADMSG if its row does not fit the detector's size. */
static int
densify(const struct scan_run *run, const struct image_batch *b, uint64_t row, float *plane,
	uint16_t *words)
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

/* Collects all kept frames: their maximum, and the location of the requested one. */
struct collection {
	float *plane;
	float *maximum;
	uint16_t *words;
	struct place shown;
	uint64_t shown_frame;
	uint32_t shown_count;
	uint64_t images;  /* included in the maximum */
	uint64_t damaged; /* damaged rows */
	bool found;
};

static uint32_t
strong_count_of(const struct scan_run *run, uint64_t frame)
{
	const struct scan_frame *f = scan_run_find(run, frame);

	return f != NULL ? f->strong_count : 0;
}

static void
collect_row(const struct scan_run *run, const struct image_batch *b, struct place at,
	uint64_t wanted, bool want_raw, struct collection *all)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	const uint64_t frame = ((const uint64_t *)b->frame.data)[at.row];
	const bool raw = ((const uint8_t *)b->kind.data)[at.row] == GK_KIND_RAW;
	uint32_t count;
	uint64_t i;

	if (raw != want_raw && frame != wanted)
		return;
	if (densify(run, b, at.row, all->plane, all->words) < 0) {
		all->damaged++;
		return;
	}
	if (raw == want_raw) {
		for (i = 0; i < pixels; i++) {
			if (!(all->maximum[i] >= all->plane[i]) && all->plane[i] == all->plane[i])
				all->maximum[i] = all->plane[i];
		}
		all->images++;
	}
	count = strong_count_of(run, frame);
	if (wanted == PICTURE_BEST_FRAME ? !all->found || count > all->shown_count
					 : frame == wanted) {
		all->found = true;
		all->shown = at;
		all->shown_frame = frame;
		all->shown_count = count;
	}
}

static const struct arrow_reader *
images_of(const struct scan_run *run, size_t set)
{
	return &run->set[set].file[ARROW_IMAGES].reader;
}

static void
collect(const struct scan_run *run, uint64_t wanted, bool want_raw, struct collection *all)
{
	const struct arrow_reader *r;
	struct image_batch b;
	struct place at;
	uint64_t i;

	for (i = 0; i < (uint64_t)run->rows * run->cols; i++)
		all->maximum[i] = NAN;
	for (at.set = 0; at.set < run->nb_sets; at.set++) {
		/* a file that does not exist has no batches */
		r = images_of(run, at.set);
		for (at.batch = 0; at.batch < r->nb_batches; at.batch++) {
			if (batch_open(r, at.batch, &b) < 0) {
				all->damaged += r->batches[at.batch].rows;
				continue;
			}
			for (at.row = 0; at.row < r->batches[at.batch].rows; at.row++)
				collect_row(run, &b, at, wanted, want_raw, all);
		}
	}
}

/* Mark the peaks of the shown frame. @return their number; -EBADMSG, -ENOENT: no list */
static int64_t
mark_peaks(const struct scan_run *run, const struct collection *all, const struct panels *panels,
	struct canvas *c)
{
	struct peak_lists lists;
	struct peak_list list;
	int ret;

	ret = peak_lists_open(images_of(run, all->shown.set), all->shown.batch, &lists);
	if (ret == 0)
		ret = peak_lists_row(&lists, all->shown.row, &list);
	if (ret != 0)
		return ret;
	for (uint64_t i = 0; i < list.nb; i++)
		panels_mark(panels, c, 1, (double)list.ss[i], (double)list.fs[i]);
	return (int64_t)list.nb;
}

static int
draw(const struct scan_run *run, const struct collection *all, bool peaks, struct canvas *c)
{
	struct geometry *g = convert_read_run(run);
	struct panels panels;
	const struct scan_frame *shown;
	float *cells = NULL;
	char text[128], peaks_text[32];
	int ret;

	ret = panels_init(&panels, run->rows, run->cols, g);
	free(g);
	if (ret == 0)
		ret = panels_canvas(&panels, 2, c);
	if (ret < 0)
		goto out;
	cells = malloc(panels_cells(&panels) * sizeof(*cells));
	if (cells == NULL) {
		ret = -ENOMEM;
		goto out;
	}
	panels_shrink(&panels, all->maximum, cells);
	snprintf(text, sizeof(text), "maximum of %" PRIu64 " kept frames", all->images);
	panels_draw(&panels, c, 0, text, cells);
	panels_shrink(&panels, all->plane, cells);
	shown = scan_run_find(run, all->shown_frame);
	snprintf(peaks_text, sizeof(peaks_text), ", %u peaks", shown != NULL ? shown->peaks : 0);
	snprintf(text, sizeof(text), "frame %" PRIu64 ", strong pixel count %u%s", all->shown_frame,
		all->shown_count,
		shown != NULL && shown->peaks != FRAME_NO_SEARCH ? peaks_text : "");
	panels_draw(&panels, c, 1, text, cells);
	if (peaks && mark_peaks(run, all, &panels, c) < 0)
		escaped_line(stderr,
			"braggline-scan: run %s has no list of peaks of frame %" PRIu64
			"; none are drawn",
			run->name, all->shown_frame);
out:
	free(cells);
	panels_free(&panels);
	return ret;
}

int
picture_save(const struct scan_run *run, uint64_t frame, bool peaks, const char *path)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	struct collection all = {0};
	struct canvas canvas = {0};
	struct image_batch b;
	int ret = -ENOMEM;

	all.plane = malloc(pixels * sizeof(*all.plane));
	all.maximum = malloc(pixels * sizeof(*all.maximum));
	all.words = malloc(pixels * sizeof(*all.words));
	if (all.plane == NULL || all.maximum == NULL || all.words == NULL)
		goto out;
	collect(run, frame, false, &all);
	if (all.images == 0)
		collect(run, frame, true, &all);
	if (all.damaged > 0)
		escaped_line(stderr,
			"braggline-scan: run %s: %" PRIu64 " images are damaged and left out",
			run->name, all.damaged);
	ret = -EINVAL;
	if (!all.found) {
		if (frame == PICTURE_BEST_FRAME)
			escaped_line(stderr,
				"braggline-scan: run %s has no kept frame; %s not written",
				run->name, path);
		else
			escaped_line(stderr,
				"braggline-scan: run %s has no image of frame %" PRIu64, run->name,
				frame);
		goto out;
	}
	if (batch_open(images_of(run, all.shown.set), all.shown.batch, &b) < 0 ||
		densify(run, &b, all.shown.row, all.plane, all.words) < 0)
		goto out;
	ret = draw(run, &all, peaks, &canvas);
	if (ret == 0)
		ret = canvas_save(&canvas, path, CANVAS_SMALL);
	if (ret < 0)
		escaped_line(
			stderr, "braggline-scan: cannot write %s: %s", path, own_file_error(ret));
out:
	canvas_free(&canvas);
	free(all.plane);
	free(all.maximum);
	free(all.words);
	return ret;
}
