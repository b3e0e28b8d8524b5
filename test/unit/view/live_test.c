/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests the live file: a receiver's frames as braggline-view reads them, runs that follow each
 * other, and files that are no live files.
 */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "../arrow/arrow_sample.h"
#include "geometry/layout.h"
#include "gk_bitshuffle.h"
#include "images.h"
#include "live_reader.h"
#include "output/live.h"

#define NPY_HEAD   128
#define PATIENCE_S 60
#define ROWS	   16
#define COLS	   64
#define PIXELS	   (ROWS * COLS)

static const struct gk_geometry geometry = {.tiles = 8, .tile_rows = 2, .cols = COLS};
static const struct gk_peak_panel panels[] = {{.fs = 0, .ss = 0}, {.fs = 32, .ss = 8}};
static char dir[64], path[96];

/* An output slot and its record. */
struct slot {
	struct gk_layout layout;
	enum gk_value value;
	struct frame_record record;
	uint8_t *bytes;
};

static void
slot_init(struct slot *s, enum gk_value value)
{
	memset(s, 0, sizeof(*s));
	s->value = value;
	gk_layout_init(&s->layout, &geometry, value, PIXELS);
	gk_layout_add_peaks(&s->layout, 8);
	s->bytes = aligned_alloc(4096, s->layout.stride);
	memset(s->bytes, 0, s->layout.stride);
	s->record.verdict = FRAME_HIT;
	s->record.peaks = FRAME_NO_SEARCH;
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

/* CSR frames have the pixels above 0 only. */
static void
slot_fill(struct slot *s, uint64_t frame, uint32_t kind, const float *plane)
{
	uint32_t *row_ptr = (uint32_t *)(s->bytes + s->layout.row_ptr), n = 0;
	uint16_t *col = (uint16_t *)(s->bytes + s->layout.col);

	s->record.frame = frame;
	s->record.kind = kind;
	s->record.strong_count = (uint32_t)frame * 3;
	for (uint32_t i = 0; i < PIXELS; i++) {
		if (kind == GK_KIND_IMAGE) {
			slot_put(s, i, plane[i]);
			continue;
		}
		if (i % COLS == 0)
			row_ptr[i / COLS] = n;
		if (!(plane[i] > 0))
			continue;
		col[n] = i % COLS;
		slot_put(s, n++, plane[i]);
	}
	row_ptr[ROWS] = n;
	s->record.nnz = n;
}

/* Replace a full image by its chunk. */
static void
slot_compress(struct slot *s)
{
	uint8_t *chunk = malloc(gk_bitshuffle_bound(PIXELS));

	assert_non_null(chunk);
	s->record.chunk_bytes = gk_bitshuffle_compress(
		(const uint16_t *)(s->bytes + s->layout.value), PIXELS, chunk);
	memcpy(s->bytes + s->layout.raw, chunk, s->record.chunk_bytes);
	free(chunk);
}

/* Whole photons, a masked column, some saturated pixels and, in images, negative ones. */
static void
random_plane(struct sample *random, float *plane)
{
	for (uint32_t i = 0; i < PIXELS; i++) {
		const uint32_t r = sample_random(random);

		plane[i] = i % COLS == 5 ? NAN
			: r % 97 == 0	 ? INFINITY
			: r % 3 == 0	 ? (float)(r / 3 % 500) - 100
					 : 0;
	}
}

static struct live *
make(const struct slot *s)
{
	const struct live_config c = {.geometry = geometry,
		.layout = s->layout,
		.value = s->value,
		.panels = panels,
		.nb_panels = 2};

	return live_create(&c);
}

static void
begin(struct live *l, const char *name, double period, const struct geometry *g)
{
	static float photons[PIXELS];
	const struct live_run run = {.path = path,
		.name = name,
		.period = period,
		.csr_threshold = 1,
		.geometry = g,
		.photons_per_adu = photons};

	for (uint32_t i = 0; i < PIXELS; i++)
		photons[i] = i % COLS == 5 ? NAN : 1;
	assert_int_equal(live_begin(l, &run), 0);
}

/* Wait until the thread has added this number of frames. */
static void
wait_for(struct live *l, uint64_t frames)
{
	const time_t end = time(NULL) + PATIENCE_S;
	struct live_status status;

	do {
		usleep(1000);
		live_get_status(l, &status);
		assert_true(time(NULL) < end);
	} while (status.frames < frames);
	assert_int_equal(status.frames, frames);
}

/* Offer a frame until it is the newest one in the file, which it is at the next period. */
static void
show(struct live *l, struct slot *s)
{
	const time_t end = time(NULL) + PATIENCE_S;
	struct live_status status;
	uint64_t before;

	live_get_status(l, &status);
	for (before = status.sequence; status.sequence == before;) {
		assert_true(time(NULL) < end);
		live_offer(l, &s->record, s->bytes);
		live_get_status(l, &status);
		usleep(1000);
	}
}

static float
npy_at(const struct body *body, enum gk_value value, uint32_t i)
{
	const uint8_t *data = body->bytes + NPY_HEAD;

	if (value == GK_VALUE_I16) {
		const int16_t v = ((const int16_t *)data)[i];

		return v == INT16_MIN ? NAN : v == INT16_MAX ? INFINITY : v;
	}
	return ((const float *)data)[i];
}

static void
expect_plane(enum request_plane plane, enum gk_value value, const float *wanted)
{
	struct body body;

	assert_int_equal(images_plane(path, plane, &body), 0);
	assert_memory_equal(body.bytes, "\x93NUMPY\x01\x00\x76\x00", 10);
	assert_int_equal(body.bytes[NPY_HEAD - 1], '\n');
	for (uint32_t i = 0; i < PIXELS; i++) {
		const float found = npy_at(&body, value, i);

		if (found != wanted[i] && !(isnan(found) && isnan(wanted[i])))
			fail_msg("plane %d, pixel %u: %g, expected %g", plane, i, found, wanted[i]);
	}
	free(body.bytes);
}

/* All frames of a run in maximum and mean, the last one unchanged. */
static void
accumulate(enum gk_value value, uint32_t kind)
{
	float plane[PIXELS], maximum[PIXELS], mean[PIXELS], shown[PIXELS];
	double sum[PIXELS] = {0};
	struct sample random = {.seed = 7};
	struct live *l;
	struct slot s;
	uint32_t n = 0;

	slot_init(&s, value);
	l = make(&s);
	assert_non_null(l);
	begin(l, "one", 0.02, NULL);
	for (uint32_t i = 0; i < PIXELS; i++)
		maximum[i] = -INFINITY;
	for (uint32_t k = 0; k < 5; k++) {
		random_plane(&random, plane);
		slot_fill(&s, 10 + k, kind, plane);
		s.record.chunk_bytes = 0;
		if (kind == GK_KIND_IMAGE && value == GK_VALUE_I16 && k % 2 == 1)
			slot_compress(&s);
		/* of full images only those that are shown are used */
		if (kind == GK_KIND_IMAGE)
			show(l, &s);
		else
			live_offer(l, &s.record, s.bytes);
		n++;
		wait_for(l, n);
		for (uint32_t i = 0; i < PIXELS; i++) {
			const float v = kind == GK_KIND_CSR && !(plane[i] > 0) ? 0 : plane[i];

			shown[i] = i % COLS == 5 ? NAN : v;
			maximum[i] = v > maximum[i] ? v : maximum[i];
			sum[i] += isnan(v) ? 0 : v;
		}
	}
	for (uint32_t i = 0; i < PIXELS; i++) {
		mean[i] = i % COLS == 5 ? NAN : (float)(sum[i] / n);
		maximum[i] = i % COLS == 5 ? NAN : maximum[i];
	}
	expect_plane(REQUEST_PLANE_MAXIMUM, GK_VALUE_F32, maximum);
	expect_plane(REQUEST_PLANE_MEAN, GK_VALUE_F32, mean);
	if (kind == GK_KIND_IMAGE)
		expect_plane(REQUEST_PLANE_FRAME, value, shown);
	live_destroy(l);
	assert_int_equal(access(path, F_OK), -1);
	free(s.bytes);
}

static void
test_planes_of_a_run(void **state)
{
	accumulate(GK_VALUE_F32, GK_KIND_CSR);
	accumulate(GK_VALUE_I16, GK_KIND_CSR);
	accumulate(GK_VALUE_F32, GK_KIND_IMAGE);
	accumulate(GK_VALUE_I16, GK_KIND_IMAGE);
}

/* A sparse frame with a missing packet, as a raster and as a list. */
static void
test_missing_packets_and_peaks(void **state)
{
	float plane[PIXELS] = {0}, wanted[PIXELS] = {0}, mean[PIXELS];
	struct live_file_frame f;
	struct live_reader r;
	struct gk_peak *peak;
	struct body body;
	struct live *l;
	struct slot s;

	plane[0] = 9;
	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	begin(l, "one", 0.02, NULL);
	assert_int_equal(images_plane(path, REQUEST_PLANE_FRAME, &body), -ENODATA);
	slot_fill(&s, 3, GK_KIND_CSR, plane);
	/* packet 2: rows 4 and 5 */
	s.record.missing_map[0] = 1 << 2;
	s.record.flags = FRAME_FLAG_INCOMPLETE;
	/* a peak of a panel that does not exist is left out */
	s.record.peaks = 3;
	peak = (struct gk_peak *)(s.bytes + s.layout.peaks);
	peak[0] = (struct gk_peak){.fs = 1.5f, .ss = 2.25f, .panel = 1, .intensity = 50, .snr = 7};
	peak[1] = (struct gk_peak){.panel = 2};
	peak[2] = (struct gk_peak){.fs = 4, .ss = 5, .panel = 0};
	live_offer(l, &s.record, s.bytes);
	wait_for(l, 1);
	for (uint32_t i = 0; i < PIXELS; i++) {
		wanted[i] = i % COLS == 5 || i / COLS / 2 == 2 ? NAN : plane[i];
		mean[i] = wanted[i];
	}
	expect_plane(REQUEST_PLANE_FRAME, GK_VALUE_F32, wanted);
	/* no frame has these pixels */
	expect_plane(REQUEST_PLANE_MEAN, GK_VALUE_F32, mean);
	assert_int_equal(live_reader_open(&r, path), 0);
	assert_int_equal(live_reader_frame(&r, &f, NULL), 0);
	assert_int_equal(f.nb_peaks, 2);
	assert_true(f.peak[0].col == 33.5f && f.peak[0].row == 10.25f);
	assert_true(f.peak[1].col == 4 && f.peak[1].row == 5);
	live_reader_close(&r);
	assert_int_equal(images_frame(path, NULL, NULL, &body), 0);
	assert_true((*(uint64_t *)body.bytes & 7) == 0 && *(uint64_t *)body.bytes < body.size);
	free(body.bytes);
	live_destroy(l);
	free(s.bytes);
}

/* Another frame replaces each one that is read while `replaced` is set. */
static struct live *replaced;
static struct slot *replacement;

int __real_live_reader_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels);
int __wrap_live_reader_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels);

int
__wrap_live_reader_frame(struct live_reader *r, struct live_file_frame *f, uint8_t **pixels)
{
	const int ret = __real_live_reader_frame(r, f, pixels);

	if (replaced != NULL)
		show(replaced, replacement);
	return ret;
}

/* @param label  of packet 2, which is missing in one frame only */
static void
expect_window(float first, uint32_t label)
{
	const struct request_window window = {.width = COLS, .height = ROWS, .bin = 1};
	struct images_cache *cache = images_cache_create();
	struct body body;
	char etag[64];

	assert_int_equal(images_etag(path, REQUEST_PLANE_FRAME, etag), 0);
	assert_int_equal(images_window(path, REQUEST_PLANE_FRAME, &window, cache, &body), 0);
	assert_string_equal(body.etag, etag);
	assert_memory_equal(body.bytes + NPY_HEAD, &first, sizeof(first));
	/* row 4, masked pixel */
	assert_memory_equal(
		body.bytes + NPY_HEAD + (4 * COLS + 5) * sizeof(float), &label, sizeof(label));
	free(body.bytes);
	images_cache_free(cache);
}

/* A frame that is replaced while it is shown is shown as it was: with its missing packets. */
static void
test_frame_replaced_within_window(void **state)
{
	const float missing[PIXELS] = {[0] = 9}, whole[PIXELS] = {[0] = 7};
	struct live *l;
	struct slot s;

	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	begin(l, "one", 0.02, NULL);
	slot_fill(&s, 3, GK_KIND_CSR, missing);
	/* packet 2: rows 4 and 5 */
	s.record.missing_map[0] = 1 << 2;
	show(l, &s);
	slot_fill(&s, 4, GK_KIND_CSR, whole);
	s.record.missing_map[0] = 0;
	replacement = &s;
	replaced = l;
	expect_window(9, IMAGES_MISSING);
	expect_window(7, IMAGES_MASKED);
	replaced = NULL;
	live_destroy(l);
	free(s.bytes);
}

/* What a gang writes into its slot is checked. */
static void
test_indices_outside_the_raster(void **state)
{
	float plane[PIXELS] = {0}, wanted[PIXELS];
	struct live *l;
	struct slot s;

	plane[7] = 1;
	plane[8] = 2;
	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	begin(l, "one", 0.02, NULL);
	slot_fill(&s, 3, GK_KIND_CSR, plane);
	((uint16_t *)(s.bytes + s.layout.col))[1] = 65535;
	((uint32_t *)(s.bytes + s.layout.row_ptr))[ROWS] = UINT32_MAX;
	live_offer(l, &s.record, s.bytes);
	wait_for(l, 1);
	for (uint32_t i = 0; i < PIXELS; i++)
		wanted[i] = i % COLS == 5 ? NAN : i == 7 ? 1 : 0;
	expect_plane(REQUEST_PLANE_FRAME, GK_VALUE_F32, wanted);
	expect_plane(REQUEST_PLANE_MAXIMUM, GK_VALUE_F32, wanted);
	/* more entries than a slot has */
	s.record.nnz = PIXELS + 1;
	live_offer(l, &s.record, s.bytes);
	/* raw frames are not shown */
	s.record.kind = GK_KIND_RAW;
	live_offer(l, &s.record, s.bytes);
	wait_for(l, 1);
	live_destroy(l);
	free(s.bytes);
}

static uint64_t
file_id(void)
{
	struct live_reader r;

	assert_int_equal(live_reader_open(&r, path), 0);
	live_reader_close(&r);
	return r.head.id;
}

static void
make_geometry(struct geometry *g)
{
	memset(g, 0, sizeof(*g));
	g->rows = ROWS;
	g->cols = COLS;
	g->pixel_metres = 75e-6;
	g->distance_metres = 0.1;
	g->energy_ev = 12400;
	g->nb_panels = 1;
	strcpy(g->panel[0].name, "p0");
	g->panel[0] = (struct geometry_panel){.name = "p0",
		.width = COLS,
		.height = ROWS,
		.corner_x = -32,
		.corner_y = 8,
		.fs_x = 1,
		.ss_y = -1,
		.max_adu = INFINITY};
}

/* The same file serves runs that follow each other; another geometry gets another file. */
static void
test_runs(void **state)
{
	float plane[PIXELS] = {1};
	struct geometry *g = calloc(1, sizeof(*g));
	char etag[2][64];
	struct live_reader r;
	uint64_t id[3];
	struct body body;
	struct live *l;
	struct slot s;

	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	slot_fill(&s, 1, GK_KIND_CSR, plane);
	begin(l, "one", 0.02, NULL);
	live_offer(l, &s.record, s.bytes);
	wait_for(l, 1);
	live_end(l);
	assert_int_equal(images_etag(path, REQUEST_PLANE_FRAME, etag[0]), 0);
	assert_int_equal(images_geometry(path, &body), -ENODATA);
	assert_int_equal(live_reader_open(&r, path), 0);
	assert_false(live_reader_is_stale(&r));
	id[0] = r.head.id;
	/* frames that arrive without a run are not used */
	live_offer(l, &s.record, s.bytes);
	begin(l, "two", 0.02, NULL);
	assert_true(live_reader_is_stale(&r));
	live_reader_close(&r);
	id[1] = file_id();
	assert_true(id[0] == id[1]);
	assert_int_equal(images_plane(path, REQUEST_PLANE_FRAME, &body), -ENODATA);
	assert_int_equal(images_etag(path, REQUEST_PLANE_FRAME, etag[1]), 0);
	assert_string_not_equal(etag[0], etag[1]);
	make_geometry(g);
	begin(l, "three", 0.02, g);
	id[2] = file_id();
	assert_true(id[1] != id[2]);
	assert_int_equal(images_geometry(path, &body), 0);
	assert_non_null(strstr((char *)body.bytes, "\"width\":64"));
	free(body.bytes);
	assert_int_equal(images_places(path, &body), 0);
	assert_int_equal(((uint32_t *)(body.bytes + NPY_HEAD))[COLS + 3], COLS + 3);
	free(body.bytes);
	live_destroy(l);
	free(s.bytes);
	free(g);
}

/* A file of something else is not replaced, and a run without a live file is possible. */
static void
test_files_that_are_not_replaced(void **state)
{
	const struct live_run run = {.path = path, .name = "x", .period = 1};
	const struct live_run none = {.path = NULL};
	struct live_status status;
	struct live *l;
	struct slot s;
	FILE *f;

	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	f = fopen(path, "w");
	fputs("something else", f);
	fclose(f);
	assert_int_equal(live_begin(l, &run), -EEXIST);
	live_offer(l, &s.record, s.bytes);
	live_get_status(l, &status);
	assert_string_equal(status.path, "");
	assert_int_equal(live_begin(l, &none), 0);
	live_offer(l, &s.record, s.bytes);
	live_destroy(l);
	assert_int_equal(access(path, F_OK), 0);
	unlink(path);
	/* a file that a killed receiver has left is replaced */
	f = fopen(path, "w");
	fputs(LIVE_FILE_MAGIC, f);
	fclose(f);
	l = make(&s);
	begin(l, "one", 1, NULL);
	live_destroy(l);
	free(s.bytes);
}

/* Each number of the head that leads outside the file is refused. */
static void
test_wrong_heads(void **state)
{
	struct live_file_head good, h;
	struct live_reader r;
	struct live *l;
	struct slot s;

	slot_init(&s, GK_VALUE_F32);
	l = make(&s);
	begin(l, "one", 1, NULL);
	assert_int_equal(live_reader_open(&r, path), 0);
	good = r.head;
	live_reader_close(&r);
	assert_int_equal(live_reader_check(&good, good.size), 0);
	assert_int_equal(live_reader_check(&good, good.size - 1), -EPROTO);
#define WRONG(field, number)                                                 \
	do {                                                                 \
		h = good;                                                    \
		h.field = number;                                            \
		assert_int_equal(live_reader_check(&h, good.size), -EPROTO); \
	} while (0)
	WRONG(magic[7], '9');
	WRONG(rows, 0);
	WRONG(rows, ROWS + 2);
	WRONG(cols, 0);
	WRONG(cols, UINT32_MAX);
	WRONG(packets, 0);
	WRONG(packets, FRAME_PACKETS_MAX + 1);
	WRONG(packet_rows, 0);
	WRONG(value, 2);
	WRONG(nnz_cap, PIXELS + 1);
	WRONG(row_ptr, good.size);
	WRONG(row_ptr, UINT64_MAX - 7);
	WRONG(row_ptr, 1);
	/* lists after the values of a sparse frame */
	WRONG(row_ptr, good.values);
	WRONG(col, good.values);
	WRONG(values, good.col);
	WRONG(col, UINT64_MAX - 7);
	WRONG(values, UINT64_MAX - 7);
	WRONG(values, good.values + 4);
	WRONG(slot[0], good.size - 8);
	WRONG(slot[1], UINT64_MAX);
	WRONG(maximum, good.size);
	WRONG(sum, UINT64_MAX);
	WRONG(mask, good.size - PIXELS + 1);
	WRONG(geometry, good.size + 1);
	WRONG(geometry_size, UINT64_MAX);
	h = good;
	memset(h.run, 'x', sizeof(h.run));
	assert_int_equal(live_reader_check(&h, good.size), -EPROTO);
	live_destroy(l);
	assert_int_equal(live_reader_open(&r, path), -ENOENT);
	assert_int_equal(live_reader_open(&r, dir), -EISDIR);
	free(s.bytes);
}

static int
set_up(void **state)
{
	strcpy(dir, "/tmp/live_XXXXXX");
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/live", dir);
	return 0;
}

static int
tear_down(void **state)
{
	unlink(path);
	return rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planes_of_a_run),
		cmocka_unit_test(test_missing_packets_and_peaks),
		cmocka_unit_test(test_frame_replaced_within_window),
		cmocka_unit_test(test_indices_outside_the_raster),
		cmocka_unit_test(test_runs),
		cmocka_unit_test(test_files_that_are_not_replaced),
		cmocka_unit_test(test_wrong_heads),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
