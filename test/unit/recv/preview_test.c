/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the preview: what it accumulates from kept frames, and how pictures are written. */

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "../arrow/arrow_sample.h"
#include "gk_bitshuffle.h"
#include "output/preview.h"

#define PATIENCE_S 60

static char dir[64];

/*
 * A small raster with one pixel a cell, and a large one with 3 x 3 pixels a cell and partial cells
 * at its edges.
 */
static const struct gk_geometry small = {.tiles = 4, .tile_rows = 2, .cols = 16};
static const struct gk_geometry large = {.tiles = 1102, .tile_rows = 2, .cols = 100};

/* An output slot that a test fills pixel by pixel. */
struct slot {
	struct gk_geometry geometry;
	struct gk_layout layout;
	enum gk_value value;
	uint8_t *bytes;
	struct frame_record record;
};

static void
slot_init(struct slot *s, const struct gk_geometry *geometry, enum gk_value value)
{
	memset(s, 0, sizeof(*s));
	s->geometry = *geometry;
	s->value = value;
	gk_layout_init(&s->layout, geometry, value, gk_pixels(geometry));
	s->bytes = aligned_alloc(4096, s->layout.stride);
	memset(s->bytes, 0, s->layout.stride);
	s->record.verdict = FRAME_HIT;
}

static void
slot_put(struct slot *s, uint32_t i, float v)
{
	if (s->value == GK_VALUE_F32)
		((float *)(s->bytes + s->layout.value))[i] = v;
	else
		((int16_t *)(s->bytes + s->layout.value))[i] = v != v ? INT16_MIN
			: v == INFINITY				      ? INT16_MAX
								      : (int16_t)v;
}

/* Make a frame of this format from the plane; CSR gets the values above zero. */
static void
slot_frame(struct slot *s, uint64_t frame, uint32_t kind, const float *plane)
{
	const uint32_t cols = s->geometry.cols, rows = gk_rows(&s->geometry);
	uint32_t *row_ptr = (uint32_t *)(s->bytes + s->layout.row_ptr);
	uint16_t *col = (uint16_t *)(s->bytes + s->layout.col);
	uint32_t i, n = 0;

	s->record.frame = frame;
	s->record.strong_count = frame * 10;
	s->record.kind = kind;
	for (i = 0; i < rows * cols; i++) {
		if (kind == GK_KIND_IMAGE) {
			slot_put(s, i, plane[i]);
		} else if (kind == GK_KIND_CSR) {
			if (i % cols == 0)
				row_ptr[i / cols] = n;
			if (!(plane[i] > 0))
				continue;
			col[n] = i % cols;
			slot_put(s, n++, plane[i]);
		} else {
			((uint16_t *)(s->bytes + s->layout.raw))[i] = 0x3FFF;
		}
	}
	row_ptr[rows] = n;
	s->record.nnz = n;
}

/* Replace a full image by its chunk. */
static void
slot_compress(struct slot *s)
{
	const uint64_t pixels = gk_pixels(&s->geometry);
	uint8_t *chunk = malloc(gk_bitshuffle_bound(pixels));

	assert_non_null(chunk);
	s->record.chunk_bytes = gk_bitshuffle_compress(
		(const uint16_t *)(s->bytes + s->layout.value), pixels, chunk);
	memcpy(s->bytes + s->layout.raw, chunk, s->record.chunk_bytes);
	free(chunk);
}

/*
 * Random photon counts with some masked and some saturated pixels. All are integers, so that int16
 * can hold them.
 */
static void
random_plane(struct sample *random, float *plane, uint32_t n)
{
	uint32_t i, r;

	for (i = 0; i < n; i++) {
		r = sample_random(random);
		plane[i] = r % 31 == 0 ? NAN : r % 37 == 0 ? INFINITY : (float)(r % 1000) - 300;
	}
}

static void
expect_cells(const float *found, const float *wanted, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (found[i] != wanted[i] && !(found[i] != found[i] && wanted[i] != wanted[i]))
			fail_msg("cell %zu is %g, expected %g", i, found[i], wanted[i]);
	}
}

/* Compare the accumulation of frames, all sparse, all full or mixed, with complete planes. */
static void
accumulate_placed(const struct gk_geometry *geometry, enum gk_value value, bool csr, bool image,
	const struct geometry *place)
{
	const uint32_t n = gk_pixels(geometry);
	float *plane = malloc(n * sizeof(float)), *maximum = malloc(n * sizeof(float));
	float *shown = malloc(n * sizeof(float)), *cells, *wanted;
	struct sample random = {.seed = 5};
	struct projection p;
	struct slot s;
	uint32_t i, k, kind;

	slot_init(&s, geometry, value);
	assert_int_equal(projection_init(&p, &s.geometry, &s.layout, value, place), 0);
	assert_true(p.panels.width <= PANELS_SIDE_MAX && p.panels.height <= PANELS_SIDE_MAX);
	cells = malloc(panels_cells(&p.panels) * sizeof(float));
	wanted = malloc(panels_cells(&p.panels) * sizeof(float));
	projection_grant(&p, UINT32_MAX, UINT32_MAX);
	for (i = 0; i < n; i++)
		maximum[i] = NAN;
	for (k = 0; k < 6; k++) {
		kind = csr && (!image || k % 2 == 0) ? GK_KIND_CSR : GK_KIND_IMAGE;
		random_plane(&random, plane, n);
		slot_frame(&s, 100 + k, kind, plane);
		s.record.chunk_bytes = 0;
		if (value == GK_VALUE_I16 && kind == GK_KIND_IMAGE && k % 3 > 0)
			slot_compress(&s);
		projection_want(&p);
		projection_add(&p, &s.record, s.bytes);
		assert_int_equal(projection_state(&p), PROJECTION_FILLED);
		assert_int_equal(p.shown_frame, 100 + k);
		assert_int_equal(p.shown_count, 1000 + 10 * k);
		for (i = 0; i < n; i++) {
			shown[i] = kind == GK_KIND_IMAGE ? plane[i] : plane[i] > 0 ? plane[i] : 0;
			/* a row of a sparse frame is zero at all pixels that it does not list */
			if (!(maximum[i] >= shown[i]) && shown[i] == shown[i])
				maximum[i] = shown[i];
			if (csr && !(maximum[i] >= 0))
				maximum[i] = 0;
		}
		projection_copy_shown(&p, cells);
		panels_shrink(&p.panels, shown, wanted);
		expect_cells(cells, wanted, panels_cells(&p.panels));
		projection_copy_maximum(&p, cells);
		panels_shrink(&p.panels, maximum, wanted);
		expect_cells(cells, wanted, panels_cells(&p.panels));
	}
	assert_int_equal(p.frames, 6);
	assert_int_equal(p.skipped, 0);
	projection_reset(&p);
	assert_int_equal(p.frames, 0);
	projection_copy_maximum(&p, cells);
	for (i = 0; i < panels_cells(&p.panels); i++)
		assert_true(cells[i] != cells[i]);
	projection_free(&p);
	free(s.bytes);
	free(plane);
	free(maximum);
	free(shown);
	free(cells);
	free(wanted);
}

static void
accumulate(const struct gk_geometry *geometry, enum gk_value value, bool csr, bool image)
{
	accumulate_placed(geometry, value, csr, image, NULL);
}

static void
sparse_frames(void **state)
{
	accumulate(&small, GK_VALUE_F32, true, false);
	accumulate(&small, GK_VALUE_I16, true, false);
	accumulate(&large, GK_VALUE_F32, true, false);
	accumulate(&large, GK_VALUE_I16, true, false);
}

static void
full_images(void **state)
{
	accumulate(&small, GK_VALUE_F32, false, true);
	accumulate(&small, GK_VALUE_I16, false, true);
	accumulate(&large, GK_VALUE_F32, false, true);
	accumulate(&large, GK_VALUE_I16, false, true);
}

static void
mixed_kinds(void **state)
{
	accumulate(&small, GK_VALUE_F32, true, true);
	accumulate(&large, GK_VALUE_I16, true, true);
}

/*
 * Two halves of the raster side by side with a gap, the right one lower. The last two columns are
 * in no panel.
 */
static struct geometry *
two_panels(uint32_t rows, uint32_t cols, double lower)
{
	struct geometry *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->rows = rows;
	g->cols = cols;
	g->pixel_metres = 75e-6;
	g->nb_panels = 2;
	for (uint32_t i = 0; i < 2; i++)
		g->panel[i] = (struct geometry_panel){.fs_min = i * cols / 2,
			.width = cols / 2 - 2 * i,
			.height = rows,
			.corner_x = i * (cols / 2 + 3.25) - 1,
			.corner_y = i * -lower,
			.fs_x = 1,
			.ss_y = -1};
	return g;
}

static void
placed_pixels(void **state)
{
	struct geometry *g = two_panels(8, 16, 2);
	struct panels panels;
	float plane[128] = {0}, cells[256];

	plane[7] = 5;
	plane[8] = 7;
	plane[15] = 9;
	assert_int_equal(panels_init(&panels, 8, 16, g), 0);
	assert_int_equal(panels.width, 18);
	assert_int_equal(panels.height, 10);
	panels_shrink(&panels, plane, cells);
	assert_true(cells[7] == 5);
	assert_true(isnan(cells[8]) && isnan(cells[17]) && isnan(cells[2 * 18 + 10]));
	assert_true(cells[2 * 18 + 11] == 7);
	/* pixel 15 is in no panel */
	for (unsigned int i = 0; i < 180; i++)
		assert_true(cells[i] != 9);
	panels_free(&panels);
	for (unsigned int i = 0; i < 8; i++)
		accumulate_placed(&small, i % 2 == 0 ? GK_VALUE_F32 : GK_VALUE_I16, i / 2 % 2 == 0,
			i / 2 % 2 != 0 || i / 4 != 0, g);
	free(g);
	g = two_panels(2204, 100, 333);
	accumulate_placed(&large, GK_VALUE_F32, true, false, g);
	accumulate_placed(&large, GK_VALUE_I16, false, true, g);
	/* a geometry of another raster is not used */
	accumulate_placed(&small, GK_VALUE_F32, true, true, g);
	free(g);
}

/*
 * The writer's time is limited: sparse frames are added up to a number of pixels, full images only
 * when a picture is requested, raw frames never.
 */
static void
pixel_budget_is_kept(void **state)
{
	float plane[128] = {[5] = 7, [77] = 3};
	struct projection p;
	struct slot s;
	unsigned int i;

	slot_init(&s, &small, GK_VALUE_F32);
	assert_int_equal(projection_init(&p, &s.geometry, &s.layout, s.value, NULL), 0);
	slot_frame(&s, 1, GK_KIND_CSR, plane);
	/* the frame of a requested picture needs no grant */
	projection_add(&p, &s.record, s.bytes);
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 1);
	assert_int_equal(p.skipped, 1);
	/* 2 pixels and 8 rows a frame */
	projection_grant(&p, 10 + 3 * 10 + 9, 1000);
	for (i = 0; i < 5; i++)
		projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 4);
	assert_int_equal(p.skipped, 3);
	/* unused time does not accumulate beyond the maximum */
	projection_grant(&p, 1000000, 20);
	for (i = 0; i < 5; i++)
		projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 6);
	slot_frame(&s, 2, GK_KIND_IMAGE, plane);
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 6);
	projection_want(&p);
	slot_frame(&s, 3, GK_KIND_RAW, plane);
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.raw, 1);
	assert_int_equal(projection_state(&p), PROJECTION_WANTED);
	slot_frame(&s, 4, GK_KIND_IMAGE, plane);
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 7);
	assert_int_equal(p.shown_frame, 4);
	projection_free(&p);
	free(s.bytes);
}

/* A slot with impossible values is not read beyond its end. */
static void
broken_slots(void **state)
{
	float plane[128] = {[5] = 7, [77] = 3};
	struct projection p;
	uint32_t *row_ptr;
	struct slot s;
	unsigned int i;

	slot_init(&s, &small, GK_VALUE_F32);
	assert_int_equal(projection_init(&p, &s.geometry, &s.layout, s.value, NULL), 0);
	slot_frame(&s, 1, GK_KIND_CSR, plane);
	row_ptr = (uint32_t *)(s.bytes + s.layout.row_ptr);
	for (i = 0; i <= 8; i++)
		row_ptr[i] = UINT32_MAX - i * 1000;
	for (i = 0; i < 128; i++)
		((uint16_t *)(s.bytes + s.layout.col))[i] = i % 2 ? UINT16_MAX : 16;
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 1);
	projection_free(&p);
	free(s.bytes);

	/* a damaged chunk is left out, and another frame is shown */
	slot_init(&s, &small, GK_VALUE_I16);
	assert_int_equal(projection_init(&p, &s.geometry, &s.layout, s.value, NULL), 0);
	slot_frame(&s, 1, GK_KIND_IMAGE, plane);
	slot_compress(&s);
	s.record.chunk_bytes--;
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 0);
	assert_int_equal(p.skipped, 1);
	s.record.chunk_bytes++;
	projection_add(&p, &s.record, s.bytes);
	assert_int_equal(p.frames, 1);
	projection_free(&p);
	free(s.bytes);
}

/* Read width and height from a PNG header. */
static bool
png_size(const char *path, uint32_t size[2])
{
	uint8_t head[24];
	FILE *f = fopen(path, "rb");
	unsigned int i;
	bool good;

	if (f == NULL)
		return false;
	good = fread(head, 1, sizeof(head), f) == sizeof(head) &&
		memcmp(head, "\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16) == 0;
	fclose(f);
	for (i = 0; i < 2; i++)
		size[i] = (uint32_t)head[16 + 4 * i] << 24 | head[17 + 4 * i] << 16 |
			head[18 + 4 * i] << 8 | head[19 + 4 * i];
	return good;
}

/* Size of a picture of two images, one below the other; 13 is the size of the font. */
#define WIDTH (34 * 13)

static uint32_t
height_of(uint32_t rows, uint32_t legend_lines)
{
	return 2 * (32 + 16 * rows + 4 * 13) + (1 + 2 * legend_lines) * 13;
}

static struct preview *
create(const struct slot *s)
{
	const struct preview_config c = {
		.geometry = s->geometry, .layout = s->layout, .value = s->value};
	struct preview *p = preview_create(&c);

	assert_non_null(p);
	return p;
}

static struct preview_status
wait_for(struct preview *p, uint64_t sequence, uint64_t errors)
{
	struct preview_status s;
	unsigned int i;

	for (i = 0; i < PATIENCE_S * 1000; i++) {
		preview_get_status(p, &s);
		if (s.sequence >= sequence && s.errors >= errors)
			return s;
		usleep(1000);
	}
	fail_msg("picture %lu, %lu errors", s.sequence, s.errors);
	return s;
}

/* A run's first picture is written with its first frame, and its last picture after its end. */
static void
pictures_of_runs(void **state)
{
	float plane[128] = {[5] = 7, [77] = 3};
	struct preview_status status;
	char path[2][96], part[256];
	struct preview *p;
	uint32_t size[2];
	struct slot s;
	int i;

	slot_init(&s, &small, GK_VALUE_F32);
	p = create(&s);
	for (i = 0; i < 2; i++) {
		snprintf(path[i], sizeof(path[i]), "%s/%d.png", dir, i);
		assert_int_equal(preview_begin(p, path[i], 3600, NULL), 0);
		slot_frame(&s, 10 * i + 1, GK_KIND_CSR, plane);
		preview_offer(p, &s.record, s.bytes);
		status = wait_for(p, 2 * i + 1, 0);
		assert_true(status.active);
		assert_string_equal(status.path, path[i]);
		assert_int_equal(status.frame, 10 * i + 1);
		assert_int_equal(status.frames, 1);
		assert_true(png_size(path[i], size));
		assert_int_equal(size[0], WIDTH);
		assert_int_equal(size[1], height_of(8, 1));
		assert_int_equal(unlink(path[i]), 0);
		slot_frame(&s, 10 * i + 2, GK_KIND_CSR, plane);
		preview_offer(p, &s.record, s.bytes);
		preview_end(p);
		status = wait_for(p, 2 * i + 2, 0);
		assert_false(status.active);
		assert_int_equal(status.frames, 2);
		assert_true(png_size(path[i], size));
		snprintf(part, sizeof(part), "%s.part", path[i]);
		assert_int_equal(access(part, F_OK), -1);
	}
	/* a run without a preview */
	assert_int_equal(preview_begin(p, NULL, 1, NULL), 0);
	preview_offer(p, &s.record, s.bytes);
	preview_end(p);
	preview_destroy(p);
	free(s.bytes);
}

/* Runs that begin while a picture of the run before them is drawn. */
static void
runs_that_do_not_wait(void **state)
{
	const size_t pixels = gk_pixels(&large);
	float *plane = calloc(pixels, sizeof(*plane));
	struct preview_status status;
	struct preview *p;
	struct slot s;
	char path[96];
	uint64_t i;

	assert_non_null(plane);
	plane[5] = 7;
	slot_init(&s, &large, GK_VALUE_F32);
	p = create(&s);
	for (i = 1; i <= 4; i++) {
		snprintf(path, sizeof(path), "%s/next_%" PRIu64 ".png", dir, i);
		assert_int_equal(preview_begin(p, path, 0.1, NULL), 0);
		slot_frame(&s, i, GK_KIND_CSR, plane);
		preview_offer(p, &s.record, s.bytes);
	}
	do {
		usleep(1000);
		preview_get_status(p, &status);
	} while (strcmp(status.path, path) != 0);
	assert_int_equal(status.frame, i - 1);
	assert_int_equal(status.frames, 1);
	preview_destroy(p);
	free(s.bytes);
	free(plane);
}

/* The size of the picture follows the geometry of each run. */
static void
pictures_by_geometry(void **state)
{
	struct geometry *g[] = {
		two_panels(8, 16, 2), two_panels(8, 16, 2), two_panels(8, 16, 5), NULL};
	static const uint32_t height[] = {10, 10, 13, 8};
	float plane[128] = {[5] = 7, [77] = 3};
	struct preview_status status;
	struct preview *p;
	uint32_t size[2];
	struct slot s;
	char path[96];

	slot_init(&s, &small, GK_VALUE_F32);
	p = create(&s);
	for (unsigned int i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), "%s/place_%u.png", dir, i);
		assert_int_equal(preview_begin(p, path, 3600, g[i]), 0);
		slot_frame(&s, i, GK_KIND_CSR, plane);
		preview_offer(p, &s.record, s.bytes);
		status = wait_for(p, i + 1, 0);
		assert_string_equal(status.path, path);
		assert_true(png_size(path, size));
		/* the legend has a second line if there are gaps */
		assert_int_equal(size[0], g[i] != NULL ? 5 * 13 + 16 * 18 + 15 * 13 / 2 : WIDTH);
		assert_int_equal(size[1], height_of(height[i], g[i] != NULL ? 2 : 1));
		preview_end(p);
		free(g[i]);
	}
	preview_destroy(p);
	free(s.bytes);
}

/*
 * One picture is written each period if there are new frames. At the end of the process the last
 * one is written.
 */
static void
pictures_by_period(void **state)
{
	float plane[128] = {[5] = 7, [77] = 3};
	struct preview_status status;
	uint64_t sequence = 0;
	struct preview *p;
	uint32_t size[2];
	struct slot s;
	char path[96];
	unsigned int i;

	slot_init(&s, &small, GK_VALUE_F32);
	p = create(&s);
	snprintf(path, sizeof(path), "%s/period.png", dir);
	assert_int_equal(preview_begin(p, path, 0.1, NULL), 0);
	for (i = 0; i < PATIENCE_S * 1000 && sequence < 4; i++) {
		slot_frame(&s, i, i % 8 == 0 ? GK_KIND_IMAGE : GK_KIND_CSR, plane);
		preview_offer(p, &s.record, s.bytes);
		usleep(1000);
		preview_get_status(p, &status);
		assert_true(status.sequence >= sequence);
		sequence = status.sequence;
	}
	assert_int_equal(sequence, 4);
	assert_true(status.frames > 1);
	slot_frame(&s, i, GK_KIND_CSR, plane);
	preview_offer(p, &s.record, s.bytes);
	assert_int_equal(unlink(path), 0);
	preview_destroy(p);
	assert_true(png_size(path, size));
	free(s.bytes);
}

/* An error of the file system is reported, until writing works again. */
static void
errors_of_files(void **state)
{
	float plane[128] = {[5] = 7};
	struct preview_status status;
	struct preview *p;
	char path[96];
	struct slot s;

	slot_init(&s, &small, GK_VALUE_F32);
	p = create(&s);
	snprintf(path, sizeof(path), "%s/none/a.png", dir);
	assert_int_equal(preview_begin(p, path, 0.1, NULL), 0);
	slot_frame(&s, 1, GK_KIND_CSR, plane);
	preview_offer(p, &s.record, s.bytes);
	status = wait_for(p, 0, 1);
	assert_int_equal(status.sequence, 0);
	assert_string_equal(status.path, "");
	assert_non_null(strstr(status.error, "none/a.png: No such file"));
	*strrchr(path, '/') = '\0';
	assert_int_equal(mkdir(path, 0777), 0);
	do {
		preview_offer(p, &s.record, s.bytes);
		usleep(1000);
		preview_get_status(p, &status);
	} while (status.sequence == 0);
	assert_string_equal(status.error, "");
	preview_destroy(p);
	free(s.bytes);
}

static int
setup(void **state)
{
	strcpy(dir, "/tmp/preview_XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int
teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(sparse_frames),
		cmocka_unit_test(full_images),
		cmocka_unit_test(mixed_kinds),
		cmocka_unit_test(placed_pixels),
		cmocka_unit_test(pixel_budget_is_kept),
		cmocka_unit_test(broken_slots),
		cmocka_unit_test(pictures_of_runs),
		cmocka_unit_test(runs_that_do_not_wait),
		cmocka_unit_test(pictures_by_geometry),
		cmocka_unit_test(pictures_by_period),
		cmocka_unit_test(errors_of_files),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
