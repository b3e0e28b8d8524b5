/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bitshuffle.h"
#include "canvas.h"
#include "picture.h"

#define PANEL_MAX  1024 /* larger rasters are scaled down */
#define PANEL_MIN  400
#define MARGIN	   12
#define CAPTION	   24
#define NO_VALUE   0x303848u /* masked, invalid or missing */
#define BACKGROUND 0x181818u
#define TEXT	   0xE0E0E0u

/* Where an image is. */
struct place {
	size_t set;
	size_t batch;
	uint64_t row;
};

/* Columns of a batch of images; its rows may still be wrong each by itself. */
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

/* One image as photons by pixel; -EBADMSG if its row does not fit the raster. */
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

/* Colours from dark to light in even steps of lightness; t from 0 to 1. */
static uint32_t
colour_of(float t)
{
	static const uint8_t map[][3] = {{0, 0, 8}, {30, 12, 68}, {84, 15, 109}, {136, 34, 106},
		{187, 55, 84}, {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 200}};
	const int last = sizeof(map) / sizeof(map[0]) - 1;
	uint32_t colour = 0;
	float x = (t < 0 ? 0 : t > 1 ? 1 : t) * last;
	int i = x >= last ? last - 1 : (int)x, k;

	for (k = 0; k < 3; k++)
		colour = colour << 8 |
			(uint32_t)lrintf(map[i][k] + (map[i + 1][k] - map[i][k]) * (x - i));
	return colour;
}

static int
by_value(const void *a, const void *b)
{
	const float x = *(const float *)a, y = *(const float *)b;

	return x < y ? -1 : x > y;
}

/* The panel's brightest value: all but the top thousandth of what is above zero, so that one hot
 * pixel does not leave the rest dark. */
static float
brightest(const float *panel, size_t n)
{
	float *sorted = malloc(n * sizeof(*sorted)), top = 1.0f;
	size_t i, nb = 0;

	if (sorted == NULL)
		return top;
	for (i = 0; i < n; i++) {
		if (panel[i] > 0 && panel[i] < INFINITY)
			sorted[nb++] = panel[i];
	}
	if (nb > 0) {
		qsort(sorted, nb, sizeof(*sorted), by_value);
		top = sorted[nb - 1 - nb / 1000];
	}
	free(sorted);
	return top > 1.0f ? top : 1.0f;
}

/* Scale a plane down by a whole number: of pixels that become one, the brightest counts. */
static float *
shrink(const struct scan_run *run, const float *plane, uint32_t by, uint32_t *width,
	uint32_t *height)
{
	float *panel, *p, v;
	uint32_t x, y;

	*width = (run->cols + by - 1) / by;
	*height = (run->rows + by - 1) / by;
	panel = malloc((size_t)*width * *height * sizeof(*panel));
	if (panel == NULL)
		return NULL;
	for (x = 0; x < *width * *height; x++)
		panel[x] = NAN;
	for (y = 0; y < run->rows; y++) {
		for (x = 0; x < run->cols; x++) {
			v = plane[(uint64_t)y * run->cols + x];
			p = &panel[(uint64_t)(y / by) * *width + x / by];
			if (!(*p >= v) && v == v)
				*p = v;
		}
	}
	return panel;
}

static int
draw_panel(struct canvas *c, const struct scan_run *run, const float *plane, uint32_t by, int left,
	int top)
{
	uint32_t width, height, x, y;
	float *panel = shrink(run, plane, by, &width, &height);
	float bright, v;

	if (panel == NULL)
		return -ENOMEM;
	bright = brightest(panel, (size_t)width * height);
	for (y = 0; y < height; y++) {
		for (x = 0; x < width; x++) {
			v = panel[(uint64_t)y * width + x];
			canvas_dot(c, left + x, top + y,
				v != v		? NO_VALUE
					: v > 0 ? colour_of(powf(log1pf(v) / log1pf(bright), 0.7f))
						: colour_of(0));
		}
	}
	free(panel);
	return 0;
}

/* All of the kept frames: their maximum, and where the wanted one is. */
struct collection {
	float *plane;
	float *maximum;
	uint16_t *words;
	struct place shown;
	uint64_t shown_frame;
	uint32_t shown_count;
	uint64_t images;  /* in the maximum */
	uint64_t damaged; /* rows */
	bool found;
};

static uint32_t
bragg_count_of(const struct scan_run *run, uint64_t frame)
{
	size_t low = 0, high = run->nb_frames, mid;

	/* in order but for detectors that started again; then any answer will do */
	while (low < high) {
		mid = (low + high) / 2;
		if (run->frame[mid].frame < frame)
			low = mid + 1;
		else
			high = mid;
	}
	return low < run->nb_frames && run->frame[low].frame == frame ? run->frame[low].bragg_count
								      : 0;
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
	count = bragg_count_of(run, frame);
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
		/* one that is not there has no batches */
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

static int
draw(const struct scan_run *run, const struct collection *all, struct canvas *c)
{
	const uint32_t side = run->rows > run->cols ? run->rows : run->cols;
	const uint32_t by = (side + PANEL_MAX - 1) / PANEL_MAX;
	const int width = (run->cols + by - 1) / by, height = (run->rows + by - 1) / by;
	const int step = (width > PANEL_MIN ? width : PANEL_MIN) + MARGIN;
	char text[128];
	int rc;

	rc = canvas_init(c, MARGIN + 2 * step, CAPTION + height + MARGIN, BACKGROUND);
	if (rc < 0)
		return rc;
	snprintf(text, sizeof(text), "maximum of %" PRIu64 " kept frames", all->images);
	canvas_text(c, MARGIN, 6, 2, TEXT, text);
	snprintf(text, sizeof(text), "frame %" PRIu64 ", Bragg count %u", all->shown_frame,
		all->shown_count);
	canvas_text(c, MARGIN + step, 6, 2, TEXT, text);
	rc = draw_panel(c, run, all->maximum, by, MARGIN, CAPTION);
	return rc < 0 ? rc : draw_panel(c, run, all->plane, by, MARGIN + step, CAPTION);
}

int
picture_save(const struct scan_run *run, uint64_t frame, const char *path)
{
	const uint64_t pixels = (uint64_t)run->rows * run->cols;
	struct collection all = {0};
	struct canvas canvas = {0};
	struct image_batch b;
	int rc = -ENOMEM;

	all.plane = malloc(pixels * sizeof(*all.plane));
	all.maximum = malloc(pixels * sizeof(*all.maximum));
	all.words = malloc(pixels * sizeof(*all.words));
	if (all.plane == NULL || all.maximum == NULL || all.words == NULL)
		goto out;
	collect(run, frame, false, &all);
	if (all.images == 0)
		collect(run, frame, true, &all);
	if (all.damaged > 0)
		fprintf(stderr,
			"braggline-scan: run %s: %" PRIu64 " images are damaged, left out\n",
			run->name, all.damaged);
	rc = -EINVAL;
	if (!all.found) {
		if (frame == PICTURE_BEST_FRAME)
			fprintf(stderr, "braggline-scan: run %s has no kept frame: no %s\n",
				run->name, path);
		else
			fprintf(stderr,
				"braggline-scan: run %s has no image of frame %" PRIu64 "\n",
				run->name, frame);
		goto out;
	}
	if (batch_open(images_of(run, all.shown.set), all.shown.batch, &b) < 0 ||
		densify(run, &b, all.shown.row, all.plane, all.words) < 0)
		goto out;
	rc = draw(run, &all, &canvas);
	if (rc == 0)
		rc = canvas_save(&canvas, path);
	if (rc < 0)
		fprintf(stderr, "braggline-scan: cannot write %s: %s\n", path, strerror(-rc));
out:
	canvas_free(&canvas);
	free(all.plane);
	free(all.maximum);
	free(all.words);
	return rc;
}
