/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares dark runs with a reference that computes one pixel at a time by the rules in pedestal.h,
 * and tests the files that they write.
 */

#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include <rte_errno.h>

#include "arrow/crc32c.h"
#include "calib/calibration.h"
#include "calib/pedestal.h"
#include "calib/pedestal_file.h"

#define ROWS	8
#define COLS	96
#define PIXELS	(ROWS * COLS)
#define MODULES 3
#define FRAMES	200

/* A JUNGFRAU small enough for tests. */
static const struct detector_ops small_ops = {
	.name = "jungfrau", .rows = ROWS, .cols = COLS, .tile_rows = 4, .interfaces_max = 2};

static const uint16_t codes[PEDESTAL_STAGES] = {0, 0x4000, 0xC000};
static const uint32_t forced[PEDESTAL_STAGES] = {0, 1 << 12, 1 << 13};

struct frame {
	uint16_t raw[MODULES * PIXELS];
	uint16_t missing[MODULES];
};

static struct frame frames[FRAMES];
static struct detector detector;
static char folder[] = "pedestal_test_XXXXXX";

static uint64_t rng;

static uint32_t
below(uint32_t n)
{
	rng = rng * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((rng >> 33) % n);
}

/*
 * Make dark frames of a stage: some pixels are noisy, some have another gain bit sometimes, some
 * always.
 */
static void
fill(uint32_t stage, uint32_t n, bool holes)
{
	for (uint32_t f = 0; f < n; f++) {
		for (uint32_t m = 0; m < MODULES; m++)
			frames[f].missing[m] = holes && below(5) == 0 ? 1 + below(128) : 0;
		for (uint32_t x = 0; x < MODULES * PIXELS; x++) {
			const uint32_t level = stage == 0 ? 3000 + x % 50 : 15000 + x % 20;
			uint16_t adu = (uint16_t)(level + below(20));

			if (x % 61 == 1)
				adu = (uint16_t)below(16384);
			frames[f].raw[x] = adu | codes[stage];
			if (x % 67 == 2 && below(40) == 0)
				frames[f].raw[x] = (uint16_t)(adu | below(4) << 14);
			if (x % 71 == 3)
				frames[f].raw[x] = adu ^ 0x4000;
		}
	}
}

struct truth {
	double mean;
	double rms;
	uint64_t frames;
	uint32_t wrong;
};

static struct truth
ref_pixel(uint32_t stage, uint32_t n, uint32_t x, double window)
{
	struct truth t = {0};
	double s = 0, s2 = 0;

	for (uint32_t f = 0; f < n; f++) {
		const uint16_t word = frames[f].raw[x];
		const double adu = word % 16384;
		const bool right = word / 16384 == codes[stage] / 16384;

		if (frames[f].missing[x / PIXELS] != 0)
			continue;
		t.wrong += !right;
		if (t.frames++ < window) {
			s = s + adu;
			s2 = s2 + adu * adu;
		} else if (right) {
			s = s + (adu - s / window);
			s2 = s2 + (adu * adu - s2 / window);
		}
	}
	t.mean = s / window;
	t.rms = s2 / window - t.mean * t.mean;
	t.rms = t.rms > 0 ? sqrt(t.rms) : 0;
	return t;
}

static void
check_stage(
	const struct pedestal *p, const struct pedestal_params *params, uint32_t stage, uint32_t n)
{
	float mean[PIXELS], rms[PIXELS];
	uint8_t mask[PIXELS];

	for (uint32_t m = 0; m < MODULES; m++) {
		struct pedestal_masked found, wanted = {0};

		memset(mask, 0x80, sizeof(mask)); /* other bits stay unchanged */
		pedestal_maps(p, stage, m, mean, rms, mask, &found);
		for (uint32_t x = 0; x < PIXELS; x++) {
			const struct truth t = ref_pixel(stage, n, m * PIXELS + x, params->window);
			const bool few = t.frames < params->window;
			const bool wrong = t.wrong > params->wrong_max[stage];
			const bool noisy = !few && t.rms > params->rms_max;
			uint8_t bits = 0x80;

			if (few || wrong)
				bits |= 2 << stage;
			if (noisy)
				bits |= 16 << stage;
			assert_int_equal(pedestal_frames(p, stage, m), t.frames);
			assert_int_equal(mask[x], bits);
			assert_true(mean[x] == (bits != 0x80 ? 16383.5f : (float)t.mean));
			assert_true(few ? isnan(rms[x]) : rms[x] == (float)t.rms);
			wanted.frames += few;
			wanted.gain += wrong;
			wanted.rms += noisy;
			wanted.pixels += bits != 0x80;
			wanted.read_out++;
		}
		assert_memory_equal(&found, &wanted, sizeof(wanted));
	}
}

static void
add_all(struct pedestal *p, uint32_t stage, uint32_t n)
{
	for (uint32_t f = 0; f < n; f++) {
		int complete = 0;

		for (uint32_t m = 0; m < MODULES; m++)
			complete += frames[f].missing[m] == 0;
		/* with random status bits that do not select a forced gain */
		assert_int_equal(pedestal_add(p, frames[f].raw, frames[f].missing,
					 forced[stage] | (below(1u << 19) << 13 & ~0x3000u)),
			complete);
	}
}

static void
test_rules(void **state)
{
	static const uint32_t windows[] = {128, 1, 100, 7};

	for (uint32_t i = 0; i < 4; i++) {
		struct pedestal_params params = pedestal_defaults;
		struct pedestal *p;

		params.window = windows[i];
		params.wrong_max[1] = i;
		params.rms_max = i == 2 ? 5.7 : 100;
		p = pedestal_create(&detector, i == 0 ? NULL : &params);
		assert_non_null(p);
		if (i == 0)
			params = pedestal_defaults;
		for (uint32_t stage = 0; stage < PEDESTAL_STAGES; stage++) {
			/* many frames, exactly the window, one less */
			const uint32_t counts[] = {FRAMES, 128, 127};
			const uint32_t n = i == 0 ? counts[stage] : FRAMES;

			fill(stage, n, i != 0);
			add_all(p, stage, n);
			check_stage(p, &params, stage, n);
		}
		pedestal_destroy(p);
	}
}

static void
test_refused(void **state)
{
	struct pedestal_params params = pedestal_defaults;
	const struct pedestal_output out = {.dir = folder, .run = "none"};
	struct pedestal *p = pedestal_create(&detector, NULL);

	assert_int_equal(pedestal_stage(0xFFFFCFFF), 0);
	assert_int_equal(pedestal_stage(0x1000), 1);
	assert_int_equal(pedestal_stage(0x2004), 2);
	assert_int_equal(pedestal_stage(0x3000), -EINVAL);
	fill(0, 1, false);
	assert_int_equal(pedestal_add(p, frames[0].raw, NULL, 0x3000), -EINVAL);
	assert_int_equal(pedestal_stats(p)->unknown, 1);
	/* every module misses packets: the frame is not used */
	for (uint32_t m = 0; m < MODULES; m++)
		frames[0].missing[m] = 1;
	assert_int_equal(pedestal_add(p, frames[0].raw, frames[0].missing, 0), 0);
	assert_int_equal(pedestal_stats(p)->incomplete, MODULES);
	assert_int_equal(pedestal_stats(p)->frames[0], 0);
	assert_int_equal(pedestal_write(p, &out, NULL), -ENODATA);
	assert_int_equal(pedestal_add(p, frames[0].raw, NULL, 0), MODULES);
	assert_int_equal(pedestal_stats(p)->frames[0], 1);
	pedestal_destroy(p);
	pedestal_destroy(NULL);

	params.window = 0;
	assert_null(pedestal_create(&detector, &params));
	assert_int_equal(rte_errno, EINVAL);
	params.window = 1;
	params.rms_max = NAN;
	assert_null(pedestal_create(&detector, &params));
}

/* Read a file; fail if its size differs. */
static void
load(const char *name, void *data, size_t bytes)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL)
		fail_msg("%s: %s", path, strerror(errno));
	assert_int_equal(fread(data, 1, bytes, f), bytes);
	assert_int_equal(fgetc(f), EOF);
	fclose(f);
}

static uint32_t
count_files(void)
{
	DIR *d = opendir(folder);
	uint32_t n = 0;

	assert_non_null(d);
	while (readdir(d) != NULL)
		n++;
	closedir(d);
	return n - 2;
}

/* Write files from G0 and G2 dark frames, and load them as the receiver does. */
static void
test_files(void **state)
{
	const uint32_t ids[MODULES] = {100, 7, 65535};
	const struct pedestal_output out = {
		.dir = folder, .run = "dark_7", .module_ids = ids, .time = 1740830400};
	struct pedestal *p = pedestal_create(&detector, NULL);
	float mean[PIXELS], rms[PIXELS], map[PIXELS];
	uint8_t mask[PIXELS], mask_file[PIXELS];
	struct pedestal_masked masked[PEDESTAL_STAGES], one, sum = {0};
	char g0[64], g2[64], path[256];
	struct calibration_files files = {
		.pedestal = {g0, NULL, g2}, .nominal_gain = {41, -1.4, -0.1}, .energy = 12};
	struct pedestal_sidecar s;
	struct calibration c;
	void *memory;

	fill(0, FRAMES, true);
	add_all(p, 0, FRAMES);
	fill(2, 150, false);
	add_all(p, 2, 150);
	assert_int_equal(pedestal_write(p, &out, masked), 0);
	/* per module: two pedestals, two sidecars, two RMS maps, a mask */
	assert_int_equal(count_files(), MODULES * 7);
	for (uint32_t m = 0; m < MODULES; m++) {
		memset(mask, 0, sizeof(mask));
		pedestal_maps(p, 2, m, mean, rms, mask, &one);
		pedestal_maps(p, 0, m, mean, rms, mask, &one);
		snprintf(path, sizeof(path), "dark_7_pedestal_g0_m%u.bin", m);
		load(path, map, sizeof(map));
		assert_memory_equal(map, mean, sizeof(map));
		snprintf(path, sizeof(path), "dark_7_rms_g0_m%u.bin", m);
		load(path, map, sizeof(map));
		assert_memory_equal(map, rms, sizeof(map));
		snprintf(path, sizeof(path), "dark_7_dark_mask_m%u.bin", m);
		load(path, mask_file, sizeof(mask_file));
		assert_memory_equal(mask_file, mask, sizeof(mask));
		snprintf(path, sizeof(path), "%s/dark_7_pedestal_g0_m%u.bin", folder, m);
		assert_int_equal(pedestal_sidecar_read(path, &s), 0);
		assert_string_equal(s.detector, "jungfrau");
		assert_string_equal(s.run, "dark_7");
		assert_int_equal(s.modules, MODULES);
		assert_int_equal(s.module, m);
		assert_int_equal(s.module_id, ids[m]);
		assert_int_equal(s.stage, 0);
		assert_int_equal(s.time, 1740830400);
		assert_int_equal(s.frames, pedestal_frames(p, 0, m));
		assert_int_equal(s.masked_frames, one.frames);
		assert_int_equal(s.masked_gain, one.gain);
		assert_int_equal(s.masked_rms, one.rms);
		assert_int_equal(s.digest, arrow_crc32c(0, mean, sizeof(mean)));
		sum.pixels += one.pixels;
		sum.rms += one.rms;
	}
	assert_int_equal(masked[0].pixels, sum.pixels);
	assert_int_equal(masked[0].rms, sum.rms);
	assert_true(sum.rms > 0 && masked[0].gain > 0 && masked[2].pixels > 0);
	pedestal_destroy(p);

	snprintf(g0, sizeof(g0), "%s/dark_7_pedestal_g0_m%%d.bin", folder);
	snprintf(g2, sizeof(g2), "%s/dark_7_pedestal_g2_m%%d.bin", folder);
	memory = aligned_alloc(64, calibration_size(&detector));
	assert_int_equal(calibration_load(&c, memory, &files, &detector), 0);
	assert_int_equal(c.masked, 0);
	assert_int_equal(c.unusable[0], masked[0].pixels);
	assert_int_equal(c.unusable[2], masked[2].pixels);
	free(memory);
}

/* A stage with fewer frames than the window writes no file, and the dark run fails. */
static void
test_too_few(void **state)
{
	const struct pedestal_output out = {.dir = folder, .run = "few"};
	const uint32_t before = count_files();
	struct pedestal *p = pedestal_create(&detector, NULL);

	fill(0, PEDESTAL_WINDOW - 1, false);
	add_all(p, 0, PEDESTAL_WINDOW - 1);
	assert_int_equal(pedestal_write(p, &out, NULL), -ERANGE);
	assert_int_equal(count_files(), before);
	/* G1 has enough frames: its files are written */
	fill(1, PEDESTAL_WINDOW + 2, false);
	add_all(p, 1, PEDESTAL_WINDOW + 2);
	assert_int_equal(pedestal_write(p, &out, NULL), -ERANGE);
	for (uint32_t m = 0; m < MODULES; m++)
		assert_true(pedestal_frames(p, 0, m) < PEDESTAL_WINDOW);
	assert_true(count_files() > before);
	pedestal_destroy(p);
}

/* A failed write keeps the old file, and leaves no other file. */
static void
test_write_fails(void **state)
{
	char path[256], text[4];
	const uint32_t before = count_files();

	snprintf(path, sizeof(path), "%s/a/b", folder);
	assert_int_equal(pedestal_file_write(path, "abc", 3), -ENOENT);
	snprintf(path, sizeof(path), "%s/old", folder);
	assert_int_equal(pedestal_file_write(path, "abc", 3), 0);
	assert_int_equal(pedestal_file_write(path, "def", 3), 0);
	load("old", text, 3);
	assert_memory_equal(text, "def", 3);
	unlink(path);
	/* a directory prevents the rename */
	assert_int_equal(mkdir(path, 0777), 0);
	assert_true(pedestal_file_write(path, "abc", 3) < 0);
	assert_int_equal(count_files(), before + 1);
	rmdir(path);
}

static void
test_sidecar_path(void **state)
{
	char path[32];

	assert_int_equal(pedestal_sidecar_path(path, sizeof(path), "a.b/c.d.bin"), 0);
	assert_string_equal(path, "a.b/c.d.ini");
	assert_int_equal(pedestal_sidecar_path(path, sizeof(path), "a.b/c"), 0);
	assert_string_equal(path, "a.b/c.ini");
	assert_int_equal(pedestal_sidecar_path(path, sizeof(path), "a.b/.c"), 0);
	assert_string_equal(path, "a.b/.c.ini");
	assert_int_equal(pedestal_sidecar_path(path, 8, "a.b/c.d.bin"), -ENAMETOOLONG);
}

static int
setup(void **state)
{
	const char *seed = getenv("PEDESTAL_SEED");

	rng = seed != NULL ? strtoull(seed, NULL, 0) : (uint64_t)getpid() * 0x9E3779B97F4A7C15;
	print_message("PEDESTAL_SEED=0x%llx\n", (unsigned long long)rng);
	return detector_init(&detector, &small_ops, MODULES, 2) != 0 || mkdtemp(folder) == NULL;
}

static int
teardown(void **state)
{
	DIR *d = opendir(folder);
	const struct dirent *e;
	char path[512];

	while (d != NULL && (e = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
		unlink(path);
	}
	closedir(d);
	return rmdir(folder);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_rules),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_too_few),
		cmocka_unit_test(test_write_fails),
		cmocka_unit_test(test_sidecar_path),
	};

	return cmocka_run_group_tests_name("pedestal", tests, setup, teardown);
}
