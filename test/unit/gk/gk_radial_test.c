/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Radial profiles: plain C, AVX2 and AVX-512 give the bytes of a naive restatement, in any order of
 * rows; and, if pyFAI and shared/oracles are there, those of pyFAI for a real frame. GK_SEED
 * repeats a random run.
 */

#include <assert.h>
#include <inttypes.h>
#include <unistd.h>

#include "geometry/profile.h"
#include "gk_radial.h"
#include "gk_rig.h"

static_assert(PROFILE_WEIGHT_ONE == GK_RADIAL_ONE, "weights of geometries are those of maps");

/* A map with its memory, and a frame. */
struct radial_rig {
	struct gk_radial_map map;
	uint64_t pixels;
	uint16_t *bin;
	uint32_t *weight;
	int16_t *photons;
	struct gk_radial_bin *expected, *found;
};

static void
open_map(struct radial_rig *r, uint32_t rows, uint32_t cols, uint32_t nb_bins, bool weights)
{
	r->pixels = (uint64_t)rows * cols;
	/* no more than needed, so that a sanitizer sees accesses after them */
	r->bin = malloc(r->pixels * sizeof(*r->bin));
	r->weight = malloc(r->pixels * sizeof(*r->weight));
	r->photons = malloc(r->pixels * sizeof(*r->photons));
	r->expected = malloc(nb_bins * sizeof(*r->expected));
	r->found = malloc(nb_bins * sizeof(*r->found));
	assert_true(r->bin != NULL && r->weight != NULL && r->photons != NULL &&
		r->expected != NULL && r->found != NULL);
	r->map = (struct gk_radial_map){rows, cols, nb_bins, r->bin, weights ? r->weight : NULL};
}

static void
close_map(struct radial_rig *r)
{
	free(r->bin);
	free(r->weight);
	free(r->photons);
	free(r->expected);
	free(r->found);
}

/* Bins that run along rows, as of circles, and bins at random; some pixels are not used. */
static void
draw_map(struct radial_rig *r, uint64_t *rng)
{
	const bool is_circle = rig_below(rng, 2) == 0;

	for (uint64_t i = 0; i < r->pixels; i++) {
		const double x = (double)(i % r->map.cols) - 20, y = (double)(i / r->map.cols) + 7;
		const uint32_t n = r->map.nb_bins;

		r->bin[i] = (uint16_t)(is_circle ? (uint32_t)sqrt(x * x + y * y) % n
						 : rig_below(rng, n));
		if (rig_below(rng, 50) == 0)
			r->bin[i] = (uint16_t)n;
		r->weight[i] = rig_below(rng, 3) == 0 ? UINT32_MAX : (uint32_t)rig_random(rng);
	}
}

/* Mostly few photons; some of any number, some that are lost; whole rows are missing. */
static void
draw_frame(struct radial_rig *r, uint64_t *rng)
{
	static const int16_t edge[] = {
		INT16_MIN, INT16_MAX, INT16_MIN + 1, INT16_MAX - 1, -1, 0, 1};
	const uint32_t odd = 1 + rig_below(rng, 100);

	for (uint64_t i = 0; i < r->pixels; i++) {
		const uint32_t what = rig_below(rng, odd);

		r->photons[i] = what > 1 ? (int16_t)(rig_below(rng, 6) - 2)
			: what == 1	 ? (int16_t)rig_random(rng)
					 : edge[rig_below(rng, 7)];
	}
	for (uint32_t row = 0; row < r->map.rows; row++)
		for (uint32_t x = 0; row % 9 == odd % 9 && x < r->map.cols; x++)
			r->photons[(uint64_t)row * r->map.cols + x] = GK_I16_INVALID;
}

/* The definition, in other words. */
static void
restate(struct radial_rig *r)
{
	for (uint32_t b = 0; b < r->map.nb_bins; b++) {
		__int128 sum = 0, norm = 0;
		uint32_t n = 0;

		for (uint64_t i = 0; i < r->pixels; i++) {
			if (r->bin[i] != b || r->photons[i] == -32768 || r->photons[i] == 32767)
				continue;
			sum += r->photons[i];
			norm += r->map.weight != NULL ? r->weight[i] : 1 << 30;
			n++;
		}
		r->expected[b] = (struct gk_radial_bin){.sum = (int64_t)(sum * 256),
			.norm = (uint64_t)norm,
			.count = n,
			.mean = norm == 0 ? rig_float_of(0x7FC00000)
					  : (float)((double)sum / ((double)norm / (1 << 30)))};
	}
}

static void
want_same(const struct radial_rig *r, const char *what)
{
	for (uint32_t b = 0; b < r->map.nb_bins; b++) {
		const struct gk_radial_bin *f = &r->found[b], *e = &r->expected[b];

		if (memcmp(f, e, sizeof(*f)) != 0)
			fail_msg("%s, bin %u of %u: sum %" PRId64 " norm %" PRIu64
				 " count %u mean %.9g, expected %" PRId64 " %" PRIu64 " %u %.9g",
				what, b, r->map.nb_bins, f->sum, f->norm, f->count, f->mean, e->sum,
				e->norm, e->count, e->mean);
	}
}

/* Compare all instruction sets, by frame and by rows in another order. */
static void
check_all(struct radial_rig *r, uint64_t *rng)
{
	for (enum gk_isa isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		struct gk_radial *radial;

		if (gk_isa_choose(isa) != (int)isa)
			continue;
		assert_int_equal(gk_radial_create(&r->map, isa, &radial), 0);
		/* what a frame that is not complete leaves must not remain */
		gk_radial_begin(radial);
		gk_radial_add(radial, 0, r->map.rows, r->photons);
		gk_radial_profile(radial, r->photons, r->found);
		want_same(r, gk_isa_name(isa));
		memset(r->found, 0xA5, r->map.nb_bins * sizeof(*r->found));
		gk_radial_begin(radial);
		for (uint32_t end = r->map.rows, n; end > 0; end -= n) {
			n = 1 + rig_below(rng, end < 5 ? end : 5);
			gk_radial_add(
				radial, end - n, n, r->photons + (uint64_t)(end - n) * r->map.cols);
		}
		gk_radial_end(radial, r->found);
		want_same(r, "rows from the last to the first");
		gk_radial_destroy(radial);
	}
}

static void
test_random(void **state)
{
	uint64_t rng = rig_seed("random");

	for (uint32_t round = 0; round < 60; round++) {
		struct radial_rig r;

		open_map(&r, 1 + rig_below(&rng, 90), 32 * (1 + rig_below(&rng, 70)),
			1 + rig_below(&rng, round % 3 == 0 ? 4 : 200), round % 2);
		draw_map(&r, &rng);
		draw_frame(&r, &rng);
		restate(&r);
		check_all(&r, &rng);
		close_map(&r);
	}
}

/* More than 32 bits hold, in one bin and both signs. */
static void
test_wide(void **state)
{
	static const int16_t values[] = {INT16_MAX - 1, INT16_MIN + 1};
	uint64_t rng = rig_seed("wide");
	struct radial_rig r;

	open_map(&r, 256, 1056, 2, false);
	memset(r.bin, 0, r.pixels * sizeof(*r.bin));
	for (int k = 0; k < 2; k++) {
		for (uint64_t i = 0; i < r.pixels; i++)
			r.photons[i] = values[k];
		restate(&r);
		assert_true(llabs(r.expected[0].sum / 256) > UINT32_MAX);
		assert_int_equal(r.expected[1].count, 0);
		check_all(&r, &rng);
		assert_memory_equal(&r.found[1].mean, &(uint32_t){GK_NAN_BITS}, 4);
	}
	close_map(&r);
}

/* The pixels that gangs mark as lost are not counted, for any word and coefficient. */
static void
test_lost(void **state)
{
	static const uint16_t lost[] = {
		GK_RAW_MISSING, GK_RAW_SATURATED, GK_RAW_G1_SATURATED, GK_RAW_INVALID};
	const float p[3] = {100, 100, 100}, one[3] = {1, 1, 1}, masked = gk_nan();
	uint64_t rng = rig_seed("lost");
	struct radial_rig r;
	float image[64];

	open_map(&r, 2, 32, 1, false);
	memset(r.bin, 0, r.pixels * sizeof(*r.bin));
	for (uint32_t i = 0; i < 64; i++) {
		const float none[3] = {masked, masked, masked};

		image[i] = gk_photons(i < 40 ? 107 : lost[i % 4], p, i == 9 ? none : one);
		r.photons[i] = gk_value_i16(image[i]);
	}
	restate(&r);
	assert_int_equal(r.expected[0].count, 39);
	assert_int_equal(r.expected[0].sum, 39 * 7 * 256);
	check_all(&r, &rng);
	close_map(&r);
}

/* Float images: each pixel in 1/256 photon; with whole photons the same as of int16 images. */
static void
test_f32(void **state)
{
	uint64_t rng = rig_seed("f32");
	struct gk_radial *radial;
	struct radial_rig r;
	float *image;

	open_map(&r, 40, 96, 30, true);
	image = malloc(r.pixels * sizeof(*image));
	assert_non_null(image);
	draw_map(&r, &rng);
	draw_frame(&r, &rng);
	restate(&r);
	assert_int_equal(gk_radial_create(&r.map, GK_ISA_PLAIN, &radial), 0);
	for (uint64_t i = 0; i < r.pixels; i++)
		image[i] = r.photons[i] == INT16_MIN ? rig_some_nan(&rng)
			: r.photons[i] == INT16_MAX
			? (rig_below(&rng, 2) == 0 ? INFINITY : -INFINITY)
			: (float)r.photons[i];
	gk_radial_profile_f32(radial, image, r.found);
	want_same(&r, "whole photons");
	for (uint32_t b = 0; b < r.map.nb_bins; b++)
		r.expected[b].sum = 0;
	for (uint64_t i = 0; i < r.pixels; i++) {
		if (isfinite(image[i]))
			image[i] = rig_below(&rng, 20) == 0
				? 1e30f
				: (float)((int32_t)rig_below(&rng, 4000) - 999) / 512;
		if (isfinite(image[i]) && r.bin[i] < r.map.nb_bins)
			r.expected[r.bin[i]].sum +=
				image[i] > 1e29f ? 1 << 30 : lrint(256.0 * image[i]);
	}
	for (uint32_t b = 0; b < r.map.nb_bins; b++)
		r.expected[b].mean = r.expected[b].norm == 0
			? gk_nan()
			: (float)((double)r.expected[b].sum * 0x1p22 / (double)r.expected[b].norm);
	gk_radial_profile_f32(radial, image, r.found);
	want_same(&r, "parts of photons");
	gk_radial_destroy(radial);
	free(image);
	close_map(&r);
}

static void
refused(const struct gk_radial_map *map, const char *what)
{
	struct gk_radial *radial;
	char why[200] = "";

	assert_int_equal(gk_radial_map_check(map, why, sizeof(why)), -EINVAL);
	assert_non_null(strstr(why, what));
	assert_int_equal(gk_radial_map_check(map, NULL, 0), -EINVAL);
	assert_int_equal(gk_radial_create(map, GK_ISA_PLAIN, &radial), -EINVAL);
}

static void
test_refused(void **state)
{
	struct gk_radial *radial;
	struct radial_rig r;

	open_map(&r, 2, 64, 7, false);
	memset(r.bin, 0, r.pixels * sizeof(*r.bin));
	r.bin[65] = 7;
	assert_int_equal(gk_radial_map_check(&r.map, NULL, 0), 0);
	assert_int_equal(gk_radial_create(&r.map, GK_ISAS, &radial), -ENOTSUP);
	r.bin[65] = 8;
	refused(&r.map, "bin 8 at column 1, row 1, expected at most 7");
	r.map.nb_bins = 0;
	refused(&r.map, "0 bins, expected 1 to 16383");
	r.map.nb_bins = GK_RADIAL_BINS_MAX + 1;
	refused(&r.map, "16384 bins");
	r.map.cols = 63;
	refused(&r.map, "2 rows of 63 pixels");
	r.map.cols = 64;
	r.map.rows = 0;
	refused(&r.map, "0 rows");
	gk_radial_destroy(NULL);
	close_map(&r);
}

/* ---- pyFAI ---- */

#define ROWS   512
#define COLS   1024
#define BINS   1000
#define PYTHON "/usr/bin/python3"

static char shared[512];

static void
read_file(const char *path, void *to, size_t size)
{
	FILE *f = fopen(path, "rb");

	if (f == NULL || fread(to, 1, size, f) != size)
		fail_msg("%s: not readable, or shorter than %zu bytes", path, size);
	fclose(f);
}

/* The geometry that radial-ref.py has by default. */
static struct geometry *
make_geometry(void)
{
	struct geometry *g = calloc(1, sizeof(*g));

	assert_non_null(g);
	g->rows = ROWS;
	g->cols = COLS;
	g->pixel_metres = 75e-6;
	g->distance_metres = 0.1;
	g->energy_ev = GEOMETRY_HC / 0.9998725;
	g->nb_panels = 1;
	g->panel[0] = (struct geometry_panel){.width = COLS,
		.height = ROWS,
		.corner_x = -100.5,
		.corner_y = 20.25,
		.fs_x = 1,
		.ss_y = 1};
	return g;
}

/* A frame of PSI, rounded, with the mask of its peaks. */
static void
read_frame(struct radial_rig *r, uint8_t *mask)
{
	float *image = malloc(r->pixels * sizeof(*image));
	char path[640];

	assert_non_null(image);
	snprintf(path, sizeof(path), "%s/data/jungfrau/mod5_conv0.bin", shared);
	read_file(path, image, r->pixels * sizeof(*image));
	snprintf(path, sizeof(path), "%s/oracles/peaks/mod5.mask", shared);
	read_file(path, mask, r->pixels);
	for (uint64_t i = 0; i < r->pixels; i++)
		r->photons[i] = mask[i] != 0 ? GK_I16_INVALID : gk_value_i16(image[i]);
	free(image);
}

/* Compare with the output of radial-ref.py. */
static void
compare(const struct radial_rig *r, const double *centre, FILE *f)
{
	uint32_t lines = 0, moved = 0, same = 0;
	char line[256];

	assert_non_null(fgets(line, sizeof(line), f));
	while (fgets(line, sizeof(line), f) != NULL) {
		double at, mean, sum, norm;
		const struct gk_radial_bin *b;
		uint32_t bin, count;

		assert_int_equal(sscanf(line, "0,%u,%lf,%lf,%lf,%lf,%u", &bin, &at, &mean, &sum,
					 &norm, &count),
			6);
		assert_int_equal(bin, lines++);
		b = &r->found[bin];
		if (fabs(centre[bin] - at) > 1e-6 * at)
			fail_msg("bin %u: centre %.9g, expected %.9g", bin, centre[bin], at);
		moved += count > b->count ? count - b->count : b->count - count;
		if (count != b->count || count == 0)
			continue;
		if ((double)b->sum / 256 != sum || fabs(b->norm * 0x1p-30 - norm) > 1e-6 * norm ||
			fabs(b->mean - mean) > 1e-6 * fabs(mean) + 1e-12)
			fail_msg("bin %u: sum %.9g norm %.9g mean %.9g, expected %.9g %.9g %.9g",
				bin, (double)b->sum / 256, b->norm * 0x1p-30, b->mean, sum, norm,
				mean);
		same++;
	}
	assert_int_equal(lines, BINS);
	print_message(
		"%u bins are the same, %u pixels at edges are in the next bin\n", same, moved / 2);
	/* pyFAI rounds positions to f4, so some pixels of 524,288 are in the next bin there */
	assert_true(same > BINS - 40 && moved <= 40);
}

static void
run_oracle(struct radial_rig *r, const char *work, enum profile_unit unit,
	const struct profile_corrections *corrections, const char *options)
{
	struct geometry *g = make_geometry();
	double centre[BINS];
	struct gk_radial *radial;
	char command[2048];
	FILE *f;

	assert_int_equal(profile_bins(g, unit, BINS, r->bin, centre), 0);
	assert_int_equal(profile_weights(g, corrections, r->weight), 0);
	free(g);
	assert_int_equal(gk_radial_create(&r->map, GK_ISA_AUTO, &radial), 0);
	gk_radial_profile(radial, r->photons, r->found);
	gk_radial_destroy(radial);
	snprintf(command, sizeof(command),
		PYTHON " '%s/oracles/radial-ref.py' %s/frame.i2 --dtype '<i2' --mask "
		       "'%s/oracles/peaks/mod5.mask' %s",
		shared, work, shared, options);
	f = popen(command, "r");
	assert_non_null(f);
	compare(r, centre, f);
	assert_int_equal(pclose(f), 0);
}

static void
test_pyfai(void **state)
{
	static const struct profile_corrections none, both = {true, true, 0.99};
	char work[] = "/tmp/gk_radial_XXXXXX", path[64];
	struct radial_rig r;
	uint8_t *mask;
	FILE *f;

	if (shared[0] == '\0') {
		print_message("skipped: needs shared/oracles, shared/data, pyFAI (Debian: "
			      "python3-pyfai)\n");
		skip();
	}
	open_map(&r, ROWS, COLS, BINS, true);
	mask = malloc(r.pixels);
	assert_non_null(mask);
	read_frame(&r, mask);
	assert_non_null(mkdtemp(work));
	snprintf(path, sizeof(path), "%s/frame.i2", work);
	f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(r.photons, sizeof(*r.photons), r.pixels, f), r.pixels);
	fclose(f);
	run_oracle(&r, work, PROFILE_Q, &none, "--unit q_A^-1");
	run_oracle(&r, work, PROFILE_TWO_THETA, &both,
		"--unit 2th_deg --solid-angle --polarization 0.99");
	unlink(path);
	rmdir(work);
	free(mask);
	close_map(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_wide),
		cmocka_unit_test(test_lost),
		cmocka_unit_test(test_f32),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_pyfai),
	};
	const char *data = getenv("BRAGGLINE_DATA");
	char path[640];

	snprintf(shared, sizeof(shared), "%s/..", data != NULL ? data : ".");
	snprintf(path, sizeof(path), "%s/oracles/radial-ref.py", shared);
	if (access(path, R_OK) != 0 || system(PYTHON " -c 'import pyFAI' 2>/dev/null") != 0)
		shared[0] = '\0';
	return cmocka_run_group_tests(tests, NULL, NULL);
}
