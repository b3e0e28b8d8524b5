/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for peaks: plain C, AVX2 and AVX-512 give the bytes of the restatement of the
 * algorithm (gk_peak_naive.h) for random and for hard frames. GK_SEED repeats a random run.
 */

#include <malloc.h>

#include "gk_peak_blob.h"
#include "gk_peak_rig.h"

/* Two panels of 96 pixels, one of them turned, and 32 columns that belong to no panel. */
#define ROWS  96
#define COLS  224
#define PANEL 96

/* a bin of a small panel has few pixels: bright ones are a large part, and would raise the limit */
static const struct gk_peak_params low_snr = {.threshold = 10,
	.min_snr = 1,
	.min_pixels = 2,
	.max_pixels = 200,
	.bg_radius = 3,
	.saturated = 1};

static const struct gk_peak_params usual = {.threshold = 10,
	.min_snr = 5,
	.min_pixels = 2,
	.max_pixels = 200,
	.bg_radius = 3,
	.saturated = 1};

static void
open_pair(struct peak_rig *r)
{
	const double c = cos(0.3), s = sin(0.3);

	peak_rig_open(r, ROWS, COLS);
	peak_rig_panel(r,
		&(struct peak_rig_panel){0, 0, PANEL, PANEL, -100.25, -50.5, 1, 0, 0, 1, 1000}, 0,
		0);
	peak_rig_panel(r,
		&(struct peak_rig_panel){PANEL + 32, 0, PANEL, PANEL, 3.75, -48, c, s, -s, c, 1000},
		0, 0);
	peak_rig_ready(r);
}

static void
set(struct peak_rig *r, uint32_t fs, uint32_t ss, uint32_t width, uint32_t height, int16_t value)
{
	for (uint32_t y = ss; y < ss + height; y++)
		for (uint32_t x = fs; x < fs + width; x++)
			r->photons[y * r->map.cols + x] = value;
}

/* Background of 0 to `below` - 1 photons. */
static void
fill_random(struct peak_rig *r, uint64_t *seed, uint32_t below, int32_t first)
{
	for (uint64_t i = 0; i < r->pixels; i++)
		r->photons[i] = (int16_t)(first + (int32_t)rig_below(seed, below));
}

static void
corners_and_borders(void **state)
{
	uint64_t seed = 1;
	struct peak_rig r;

	open_pair(&r);
	fill_random(&r, &seed, 4, 0);
	set(&r, 0, 0, 2, 2, 50);
	set(&r, PANEL - 2, 0, 2, 2, 50);
	set(&r, 0, PANEL - 2, 2, 2, 50);
	set(&r, PANEL - 1, PANEL - 1, 1, 1, 50); /* no seed is on the border */
	set(&r, 40, 0, 4, 1, 60);
	set(&r, 60, 1, 3, 1, 60);
	set(&r, 0, 30, 1, 3, 60);
	set(&r, PANEL - 3, 50, 40, 2, 70); /* crosses to pixels of no panel */
	set(&r, PANEL + 32, 70, 2, 2, 70);
	set(&r, COLS - 2, PANEL - 2, 2, 2, 70);
	assert_in_range(peak_rig_check(&r, &usual, "borders")->count, 6, 12);
	peak_rig_close(&r);
}

static void
touching_panels(void **state)
{
	struct peak_rig r;
	uint64_t seed = 2;
	const struct gk_peaks *found;

	peak_rig_open(&r, 64, 64);
	for (uint32_t i = 0; i < 4; i++)
		peak_rig_panel(&r,
			&(struct peak_rig_panel){i % 2 * 33, i / 2 * 31, i % 2 ? 31 : 33,
				i / 2 ? 33 : 31, 10 + i % 2 * 33, 10 + i / 2 * 31, 1, 0, 0, 1,
				1000},
			0, 0);
	peak_rig_ready(&r);
	fill_random(&r, &seed, 4, 0);
	set(&r, 31, 10, 4, 2, 80); /* in two panels */
	set(&r, 31, 29, 4, 4, 90); /* in four */
	found = peak_rig_check(&r, &low_snr, "touching panels");
	assert_int_equal(found->count, 6);
	assert_int_equal(found->peak[0].panel, 0);
	assert_int_equal(found->peak[0].pixels, 4);
	assert_int_equal(found->peak[5].panel, 3);
	peak_rig_close(&r);
}

static void
numbers_of_pixels(void **state)
{
	static const struct {
		uint32_t pixels, peaks;
	} blobs[] = {{1, 0}, {2, 1}, {199, 1}, {200, 1}, {201, 0}, {900, 0}};
	struct peak_rig r;

	peak_rig_open(&r, 320, 320);
	peak_rig_panel(
		&r, &(struct peak_rig_panel){0, 0, 320, 320, -20, -20, 1, 0, 0, 1, 1000}, 0, 0);
	peak_rig_ready(&r);
	for (size_t i = 0; i < sizeof(blobs) / sizeof(blobs[0]); i++) {
		uint64_t seed = 3;
		const struct gk_peaks *found;

		fill_random(&r, &seed, 4, 0);
		for (uint32_t k = 0; k < blobs[i].pixels; k++)
			set(&r, 205 + k % 15, 205 + k / 15, 1, 1, 100);
		found = peak_rig_check(&r, &low_snr, "number of pixels");
		assert_int_equal(found->count, blobs[i].peaks);
		if (found->count > 0)
			assert_int_equal(found->peak[0].pixels, blobs[i].pixels);
	}
	peak_rig_close(&r);
}

static void
shapes(void **state)
{
	uint64_t seed = 4;
	struct peak_rig r;

	open_pair(&r);
	fill_random(&r, &seed, 4, 0);
	for (uint32_t i = 0; i < 60; i++) {
		set(&r, 10 + i, 10 + i, 1, 1, 77);	/* a diagonal */
		set(&r, 150 + i % 2, 10 + i, 1, 1, 88); /* a zigzag */
	}
	for (uint32_t i = 0; i < 20; i++) {
		set(&r, 60 + i, 20, 1, 1, (int16_t)(50 + i)); /* a ring */
		set(&r, 60 + i, 39, 1, 1, (int16_t)(60 + i));
		set(&r, 60, 20 + i, 1, 1, (int16_t)(70 + i));
		set(&r, 79, 20 + i, 1, 1, (int16_t)(80 + i));
	}
	assert_int_equal(peak_rig_check(&r, &low_snr, "shapes")->count, 3);
	peak_rig_close(&r);
}

/* A blob around a pixel that is not used, without any background pixel around it. */
static void
masked_rings(void **state)
{
	uint64_t seed = 5;
	struct peak_rig r;
	const struct gk_peaks *found;

	peak_rig_open(&r, ROWS, COLS);
	peak_rig_panel(&r,
		&(struct peak_rig_panel){0, 0, PANEL, PANEL, -100.25, -50.5, 1, 0, 0, 1, 1000}, 0,
		0);
	for (uint32_t y = 24; y < 40; y++)
		for (uint32_t x = 24; x < 40; x++)
			if (x < 30 || x > 32 || y < 30 || y > 32 || (x == 31 && y == 31))
				r.bin[y * COLS + x] |= GK_PEAK_MASKED;
	peak_rig_ready(&r);
	fill_random(&r, &seed, 8, 0);
	set(&r, 30, 30, 3, 3, 99);
	set(&r, 60, 60, 3, 3, 99);
	set(&r, 57, 57, 9, 3, INT16_MIN); /* part of the other ring is missing in this frame */
	found = peak_rig_check(&r, &usual, "masked rings");
	assert_int_equal(found->count, 2);
	assert_int_equal(found->peak[0].pixels, 8);
	/* the mean of the bin of the masked pixel */
	assert_true(found->peak[0].background > 2 && found->peak[0].background < 5);
	assert_true(found->peak[0].snr > 1000);
	peak_rig_close(&r);
}

static void
equal_values(void **state)
{
	struct gk_peak_params p = usual;
	struct peak_rig r;
	uint64_t seed = 6;

	open_pair(&r);
	/* bins of equal values are empty after a round: no peaks there */
	set(&r, 0, 0, COLS, ROWS, 7);
	set(&r, 30, 30, 2, 2, 90);
	set(&r, 60, 50, 3, 3, 5000);
	peak_rig_check(&r, &usual, "one value");
	set(&r, 0, 0, COLS, ROWS, 0);
	peak_rig_check(&r, &usual, "zeros");
	/* pixels at the threshold are no hits */
	fill_random(&r, &seed, 2, 10);
	set(&r, 30, 30, 2, 2, 40);
	peak_rig_check(&r, &usual, "values at the threshold");
	p.threshold = 0;
	p.min_snr = 0;
	peak_rig_check(&r, &p, "no threshold");
	peak_rig_close(&r);
}

/* Limits of a bin whose variance is negative, because its sums are rounded. */
static void
negative_variance(void **state)
{
	struct gk_peak_limits l = gk_peak_clip(1, 30, 899, &usual);

	assert_float_equal(l.offset, 30, 0);
	assert_float_equal(l.upper, 25, 0);
	assert_float_equal(l.lower, 35, 0);
	l = gk_peak_clip(1, 10, 99, &usual);
	assert_float_equal(l.upper, 10, 0); /* the threshold */
	assert_float_equal(l.lower, 15, 0);
}

static void
negative_values(void **state)
{
	struct gk_peak_params p = usual;
	struct peak_rig r;
	uint64_t seed = 7;

	open_pair(&r);
	fill_random(&r, &seed, 6, -3);
	set(&r, 30, 30, 2, 2, 100);
	set(&r, 50, 30, 2, 2, -100);
	set(&r, 51, 31, 1, 1, 60);
	set(&r, 160, 60, 3, 2, INT16_MIN + 1);
	assert_in_range(peak_rig_check(&r, &usual, "negative values")->count, 1, 2);
	fill_random(&r, &seed, 6, -40);
	set(&r, 30, 30, 2, 2, -5);
	p.threshold = -20;
	peak_rig_check(&r, &p, "negative threshold");
	p.threshold = -40000;
	peak_rig_check(&r, &p, "threshold below all values");
	p.threshold = 40000;
	assert_int_equal(peak_rig_check(&r, &p, "threshold above all values")->found, 0);
	peak_rig_close(&r);
}

static void
saturated_pixels(void **state)
{
	struct gk_peak_params p = usual;
	struct peak_rig r;
	uint64_t seed = 8;

	open_pair(&r);
	fill_random(&r, &seed, 4, 0);
	set(&r, 20, 20, 2, 2, INT16_MAX);
	set(&r, 40, 20, 2, 2, 900);
	set(&r, 60, 20, 2, 2, 1003);
	assert_int_equal(peak_rig_check(&r, &p, "saturated pixels")->count, 3);
	p.saturated = 0;
	assert_int_equal(peak_rig_check(&r, &p, "saturated peaks left out")->found, 3);
	assert_int_equal(r.expected->count, 1);
	/* sums of squares far above 2^24 */
	fill_random(&r, &seed, 4000, 0);
	set(&r, 20, 20, 2, 2, 30000);
	p.saturated = 1;
	peak_rig_check(&r, &p, "bright background");
	p.min_snr = 1;
	fill_random(&r, &seed, 65536, INT16_MIN);
	peak_rig_check(&r, &p, "any values");
	peak_rig_close(&r);
}

/* More blobs than the list holds, and the same with saturated ones, which take places. */
static void
full_lists(void **state)
{
	struct gk_peak_params p = {
		.threshold = 10, .min_pixels = 1, .max_pixels = 200, .bg_radius = 1};
	struct peak_rig r;
	uint64_t seed = 9;

	peak_rig_open(&r, 256, 256);
	peak_rig_panel(
		&r, &(struct peak_rig_panel){0, 0, 256, 256, -100, -100, 1, 0, 0, 1, 60}, 0, 0);
	peak_rig_ready(&r);
	for (uint32_t i = 0; i < 4; i++) {
		p.saturated = i % 2;
		fill_random(&r, &seed, 3, 0);
		for (uint32_t y = 1; y < 255; y += 2)
			for (uint32_t x = 1; x < 255; x += i < 2 ? 2 : 5)
				set(&r, x, y, 1, 1, (int16_t)(40 + rig_below(&seed, 60)));
		peak_rig_check(&r, &p, "full list");
		assert_int_equal(r.expected->found, GK_PEAKS_MAX + 1);
		assert_int_equal(r.expected->count == GK_PEAKS_MAX, i % 2);
	}
	peak_rig_close(&r);
}

static void
all_hits(void **state)
{
	struct gk_peak_params p = usual;
	struct peak_rig r;
	uint64_t seed = 10;

	open_pair(&r);
	/* half of the pixels in few blobs, then one blob, then none that is used */
	p.min_snr = 0.1f;
	p.max_pixels = UINT32_MAX;
	for (uint64_t i = 0; i < r.pixels; i++)
		r.photons[i] = rig_below(&seed, 2) ? 40 : 0;
	peak_rig_check(&r, &p, "half of the pixels");
	p.threshold = -1;
	p.min_snr = 0;
	fill_random(&r, &seed, 100, 100);
	peak_rig_check(&r, &p, "large blobs");
	set(&r, 0, 0, COLS, ROWS, INT16_MIN);
	assert_int_equal(peak_rig_check(&r, &p, "nothing is used")->found, 0);
	set(&r, 0, 0, COLS, ROWS, INT16_MAX);
	peak_rig_check(&r, &p, "everything is saturated");
	peak_rig_close(&r);
}

static void
resolution(void **state)
{
	struct gk_peak_params p = usual;
	struct peak_rig r;
	uint64_t seed = 11;
	uint32_t in_shells = 0;

	peak_rig_open(&r, ROWS, COLS);
	peak_rig_panel(&r, &(struct peak_rig_panel){0, 0, COLS, ROWS, 0.5, 0.5, 1, 0, 0, 1, 1000},
		30, 180);
	peak_rig_ready(&r);
	/* r = 30 exactly, and rounded to 30 from above */
	assert_int_equal(r.bin[30], 30 | GK_PEAK_MASKED);
	assert_int_equal(r.bin[2 * COLS + 30], 30);
	assert_int_equal(r.bin[180], 180 | GK_PEAK_MASKED);
	assert_int_equal(r.bin[179], 179);
	fill_random(&r, &seed, 4, 0);
	for (uint32_t y = 5; y < ROWS - 5; y += 9)
		for (uint32_t x = 5; x < COLS - 5; x += 9)
			set(&r, x, y, 2, 2, 60);
	p.shells = 3;
	p.shell[0] = 50;
	p.shell[1] = 80;
	p.shell[2] = 120;
	p.shell[3] = 170;
	peak_rig_check(&r, &p, "resolution");
	for (uint32_t i = 0; i < GK_PEAK_SHELLS_MAX; i++) {
		in_shells += r.expected->shell[i];
		assert_int_equal(r.expected->shell[i] > 0, i < p.shells);
	}
	assert_in_range(in_shells, 1, r.expected->count - 1);
	peak_rig_close(&r);
}

static void
random_panels(struct peak_rig *r, uint64_t *seed)
{
	const uint32_t rows = 1 + rig_below(seed, 90), cols = 32 * (1 + rig_below(seed, 40));
	uint32_t row = 0;

	peak_rig_open(r, rows, cols);
	while (row < rows) {
		const uint32_t height = 1 + rig_below(seed, rows - row);
		uint32_t column = rig_below(seed, 3);

		while (column < cols) {
			const uint32_t width = 1 + rig_below(seed, cols - column);
			const double turn = rig_below(seed, 7), scale = 1 + rig_below(seed, 2);

			peak_rig_panel(r,
				&(struct peak_rig_panel){column, row, width, height,
					(double)rig_below(seed, 400) - 200.3,
					(double)rig_below(seed, 400) - 199.6, scale * cos(turn),
					scale * sin(turn), -sin(turn), cos(turn),
					(float)rig_below(seed, 500)},
				rig_below(seed, 4) ? 0 : rig_below(seed, 100),
				rig_below(seed, 4) ? 0 : 100 + rig_below(seed, 300));
			column += width + rig_below(seed, 3);
		}
		row += height + rig_below(seed, 3);
	}
	for (uint64_t i = 0; i < r->pixels; i++)
		if (rig_below(seed, 50) == 0)
			r->bin[i] |= GK_PEAK_MASKED;
	peak_rig_ready(r);
}

static void
random_photons(struct peak_rig *r, uint64_t *seed)
{
	static const uint32_t ranges[] = {1, 2, 3, 10, 40, 200, 4000, 65536};
	const uint32_t below = ranges[rig_below(seed, 8)];
	const int32_t first = below > 40000 ? INT16_MIN : -(int32_t)rig_below(seed, 5);
	const uint32_t spots = rig_below(seed, 2) ? (uint32_t)(r->pixels / 300) : 0;
	const uint32_t height = 30 + below * 10;

	fill_random(r, seed, below, first);
	for (uint32_t i = 0; i < spots; i++) {
		const uint32_t width = 1 + rig_below(seed, 3), at = rig_below(seed, r->pixels);
		const uint32_t fs = at % r->map.cols, ss = at / r->map.cols;

		for (uint32_t y = ss; y < r->map.rows && y < ss + width; y++)
			for (uint32_t x = fs; x < r->map.cols && x < fs + width; x++)
				r->photons[y * r->map.cols + x] =
					(int16_t)rig_below(seed, height > 32767 ? 32767 : height);
	}
	for (uint64_t i = 0; i < r->pixels; i++)
		if (rig_below(seed, 400) == 0)
			r->photons[i] = rig_below(seed, 3) ? INT16_MIN : INT16_MAX;
	if (rig_below(seed, 4) == 0)
		set(r, 0, rig_below(seed, r->map.rows), r->map.cols, 1, INT16_MIN);
}

static void
random_frames(void **state)
{
	uint64_t seed = rig_seed("random_frames");
	uint32_t peaks = 0;

	for (uint32_t i = 0; i < 150; i++) {
		struct peak_rig r;

		random_panels(&r, &seed);
		for (uint32_t k = 0; k < 3; k++) {
			struct gk_peak_params p = {.threshold = (float)rig_below(&seed, 40) - 5,
				.min_snr = (float)rig_below(&seed, 60) / 10,
				.min_pixels = rig_below(&seed, 4),
				.max_pixels = 4 + rig_below(&seed, 300),
				.bg_radius = rig_below(&seed, 6),
				.saturated = rig_below(&seed, 2),
				.shells = 2,
				.shell = {20, 100, 250}};

			if (rig_below(&seed, 20) == 0)
				p.bg_radius = GK_PEAK_RADIUS_MAX;
			random_photons(&r, &seed);
			peaks += peak_rig_check(&r, &p, "random frame")->count;
		}
		peak_rig_close(&r);
	}
	print_message("%u peaks\n", peaks);
	assert_true(peaks > 1000);
}

/* Photons that are not rounded, with NaN, infinite and masked pixels. */
static void
fractions(void **state)
{
	uint64_t seed = rig_seed("fractions");
	uint32_t peaks = 0;

	for (uint32_t i = 0; i < 60; i++) {
		const struct gk_peak_params p = {.threshold = (float)rig_below(&seed, 40) / 3,
			.min_snr = (float)rig_below(&seed, 60) / 10,
			.min_pixels = 1,
			.max_pixels = 4 + rig_below(&seed, 300),
			.bg_radius = rig_below(&seed, 6),
			.saturated = rig_below(&seed, 2)};
		struct peak_rig r;

		random_panels(&r, &seed);
		random_photons(&r, &seed);
		naive_from_i16(r.image, r.photons, r.pixels);
		for (uint64_t k = 0; k < r.pixels; k++)
			r.image[k] += (float)rig_below(&seed, 1000) / 999;
		peaks += peak_rig_check_f32(&r, &p, "fractions")->count;
		/* an infinite pixel is one of 32,767 photons */
		for (uint64_t k = 7; k < r.pixels; k += 1 + rig_below(&seed, 3000))
			r.image[k] = 32767;
		naive_find(r.naive, &p, r.image, NAIVE_SEQUENTIAL, r.expected);
		for (uint64_t k = 0; k < r.pixels; k++)
			r.image[k] = r.image[k] == 32767   ? INFINITY
				: r.image[k] != r.image[k] ? -INFINITY
							   : r.image[k];
		gk_peaks_find_f32(r.finder[GK_ISA_PLAIN], &p, r.image, r.found);
		peak_rig_same(r.found, r.expected, "f32", "infinite");
		peak_rig_close(&r);
	}
	assert_true(peaks > 100);
}

/* Bytes of the heap. 0 with a sanitizer, which has its own. */
static uint64_t
heap(void)
{
	const struct mallinfo2 m = mallinfo2();

	return m.uordblks + m.hblkhd;
}

/* gk_peak_finder_memory() is what a finder allocates, except for the allocator's rounding. */
static void
memory(void **state)
{
	struct gk_peak_finder *finder;
	uint32_t nb_bins = 0;
	struct peak_rig r;
	uint64_t before, most;

	open_pair(&r);
	for (uint64_t i = 0; i < r.pixels; i++)
		if (!(r.bin[i] & GK_PEAK_MASKED) && r.bin[i] >= nb_bins)
			nb_bins = r.bin[i] + 1;
	most = gk_peak_finder_memory(r.map.rows, r.map.cols, nb_bins);
	before = heap();
	assert_int_equal(gk_peak_finder_create(&r.map, GK_ISA_PLAIN, &finder), 0);
	if (before == 0)
		print_message("memory: the heap cannot be measured\n");
	else
		assert_in_range(heap() - before, most, most + 13 * 4096);
	gk_peak_finder_destroy(finder);
	peak_rig_close(&r);
}

/* Rows in another order, and a frame that is begun but not ended. */
static void
parts(void **state)
{
	uint64_t seed = 12;
	struct peak_rig r;

	open_pair(&r);
	fill_random(&r, &seed, 4, 0);
	for (uint32_t i = 0; i < 30; i++)
		set(&r, rig_below(&seed, COLS - 2), rig_below(&seed, ROWS - 2), 2, 2, 80);
	peak_rig_check(&r, &usual, "whole");
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		if (r.finder[isa] == NULL)
			continue;
		gk_peaks_begin(r.finder[isa], &usual);
		gk_peaks_add(r.finder[isa], 0, 50, r.photons);
		gk_peaks_begin(r.finder[isa], &usual);
		gk_peaks_add(r.finder[isa], 80, ROWS - 80, r.photons + 80 * COLS);
		for (uint32_t row = 79; row < 80; row--)
			gk_peaks_add(r.finder[isa], row, 1, r.photons + row * COLS);
		gk_peaks_end(r.finder[isa], r.photons, r.found);
		peak_rig_same(r.found, r.expected, gk_isa_name(isa), "rows in another order");
	}
	peak_rig_close(&r);
}

static void
refused_maps(void **state)
{
	struct gk_peak_finder *finder;
	struct gk_peak_map map;
	struct peak_rig r;
	char why[160];

	open_pair(&r);
#define REFUSED(text, ...)                                                                    \
	do {                                                                                  \
		map = r.map;                                                                  \
		__VA_ARGS__;                                                                  \
		assert_int_equal(gk_peak_map_check(&map, why, sizeof(why)), -EINVAL);         \
		assert_string_equal(why, text);                                               \
		assert_int_equal(gk_peak_finder_create(&map, GK_ISA_AUTO, &finder), -EINVAL); \
	} while (0)
	REFUSED("cols is 33, expected a multiple of 32 up to 65504", map.cols = 33);
	REFUSED("0 rows of 224 pixels, expected 1 to 2^32 - 1 pixels", map.rows = 0);
	REFUSED("nb_panels is 0, expected 1 to 512", map.nb_panels = 0);
	REFUSED("bin is NULL", map.bin = NULL);
	REFUSED("column 128, row 0 is in no panel, expected a masked pixel", map.nb_panels = 1);
	r.panel[1].fs = 95;
	REFUSED("panels 0 and 1 overlap at column 95, row 0, expected panels apart", (void)0);
	r.panel[1].fs = 129;
	REFUSED("panel 1: columns 129 to 224, rows 0 to 95, expected columns below 224 and rows "
		"below 96",
		(void)0);
	r.panel[1].fs = 128;
	r.panel[0].width = 0;
	REFUSED("panel 0 has 0 x 96 pixels, expected 1 to 65535 each", (void)0);
	r.panel[0].width = PANEL;
	r.bin[2 * COLS + 3] = GK_PEAK_BINS_MAX;
	REFUSED("bin 16384 at column 3, row 2, expected less than 16384, or masked", (void)0);
#undef REFUSED
	r.bin[2 * COLS + 3] = 0xFFFF; /* masked, without a bin */
	assert_int_equal(gk_peak_map_check(&r.map, NULL, 0), 0);
	peak_rig_close(&r);
}

static void
refused_params(void **state)
{
	struct gk_peak_params p;
	char why[160];

#define REFUSED(text, ...)                                                             \
	do {                                                                           \
		p = usual;                                                             \
		__VA_ARGS__;                                                           \
		assert_int_equal(gk_peak_params_check(&p, why, sizeof(why)), -EINVAL); \
		assert_string_equal(why, text);                                        \
	} while (0)
	REFUSED("threshold is nan, expected a finite number", p.threshold = NAN);
	REFUSED("min_snr is -1, expected a finite number of at least 0", p.min_snr = -1);
	REFUSED("min_pixels is 201, expected at most max_pixels, 200", p.min_pixels = 201);
	REFUSED("bg_radius is 16, expected at most 15", p.bg_radius = 16);
	REFUSED("shells is 9, expected at most 8", p.shells = 9);
	REFUSED("shell[1] is 4, expected less than shell[2], 4",
		(p.shells = 2, p.shell[0] = 3, p.shell[1] = 4, p.shell[2] = 4));
#undef REFUSED
	p = usual;
	assert_int_equal(gk_peak_params_check(&p, NULL, 0), 0);
}

static void
bins(void **state)
{
	/* coordinates are cut to whole pixels, toward the beam */
	assert_int_equal(gk_peak_bin(0.9, -0.9, 0, 0), GK_PEAK_MASKED);
	assert_int_equal(gk_peak_bin(3.99, -4.99, 0, 0), 5);
	/* half to even cannot occur: the square of n + 1/2 is no integer */
	assert_int_equal(gk_peak_bin(1, 1, 0, 0), 1);
	assert_int_equal(gk_peak_bin(16383.4, 0, 0, 0), 16383);
	assert_int_equal(gk_peak_bin(16384, 0, 0, 0), GK_PEAK_MASKED | 16383);
	assert_int_equal(gk_peak_bin(NAN, 0, 0, 0), GK_PEAK_MASKED | 16383);
	assert_int_equal(gk_peak_bin(0, -INFINITY, 0, 0), GK_PEAK_MASKED | 16383);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(corners_and_borders),
		cmocka_unit_test(touching_panels),
		cmocka_unit_test(numbers_of_pixels),
		cmocka_unit_test(shapes),
		cmocka_unit_test(masked_rings),
		cmocka_unit_test(equal_values),
		cmocka_unit_test(negative_variance),
		cmocka_unit_test(negative_values),
		cmocka_unit_test(saturated_pixels),
		cmocka_unit_test(full_lists),
		cmocka_unit_test(all_hits),
		cmocka_unit_test(resolution),
		cmocka_unit_test(random_frames),
		cmocka_unit_test(fractions),
		cmocka_unit_test(parts),
		cmocka_unit_test(memory),
		cmocka_unit_test(refused_maps),
		cmocka_unit_test(refused_params),
		cmocka_unit_test(bins),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
