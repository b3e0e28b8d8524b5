/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Real frames of one JUNGFRAU module: with raw words and pedestals as published by PSI, and gains,
 * the result must agree with PSI's own converted images. They lie in BRAGGLINE_DATA/jungfrau; the
 * test is skipped without it.
 *
 * PSI divides, while this code multiplies by a rounded reciprocal, and the gains were recovered
 * from these images (shared/data/README.md). So the results cannot be identical: in G0 at least 97
 * % of the pixels must agree within one unit in the last place, and all within four. Gains of G1
 * and G2 are mostly nominal values, and are not compared. The results of each instruction set for
 * these frames, with all gains and special words, must equal those of plain C exactly.
 */

#include <sys/stat.h>

#include "gk_rig.h"

#define MODULE_ROWS 512
#define MODULE_COLS 1024
#define PIXELS	    (MODULE_ROWS * MODULE_COLS)
#define FRAMES	    6
#define SATURATED   32678.0f /* in the published images, with all their digits */

static char folder[512];

static void *
load(const char *name, uint64_t size)
{
	void *data = rig_alloc(size);
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	f = fopen(path, "rb");
	if (f == NULL || fread(data, 1, size, f) != size || fgetc(f) != EOF)
		fail_msg(
			"%s: cannot be read, or is not %llu bytes", path, (unsigned long long)size);
	fclose(f);
	return data;
}

/* Distance in units in the last place: floats ordered by their bits. */
static uint32_t
ulps(float a, float b)
{
	int32_t x, y;

	memcpy(&x, &a, sizeof(x));
	memcpy(&y, &b, sizeof(y));
	x = x < 0 ? INT32_MIN - x : x;
	y = y < 0 ? INT32_MIN - y : y;
	return (uint32_t)(x > y ? (int64_t)x - y : (int64_t)y - x);
}

static void
load_coef(struct rig *rig, uint8_t *masked)
{
	double *gain = load("mod5_gain_adu_per_photon.bin", 3 * PIXELS * sizeof(double));
	char name[32];

	for (int g = 0; g < 3; g++) {
		snprintf(name, sizeof(name), "mod5_pedeG%d.bin", g);
		free(rig->p[g]);
		rig->p[g] = load(name, PIXELS * sizeof(float));
		rig->config.channel->coef[0].p[g] = (uintptr_t)rig->p[g];
		for (uint32_t x = 0; x < PIXELS; x++) {
			const double adu = gain[g * PIXELS + x];
			const float p = rig->p[g][x];
			const int bad = adu == 0 || p == 0 || p >= 16383;

			masked[x] |= bad << g;
			rig->r[g][x] = bad ? NAN : (float)(1.0 / adu);
		}
	}
	free(gain);
}

/* Process all frames with one host gang and this output. */
static void
run_frames(struct rig *rig, uint8_t *masked, enum gk_isa isa, enum gk_value value,
	const struct gk_params *params)
{
	const struct gk_geometry g = {128, 4, MODULE_COLS};
	struct gk_ring *ring = &rig->ring[0];
	char name[32];

	rig_open(rig, &g, value, PIXELS, 1, FRAMES, 0);
	rig->ops->destroy(rig->gk);
	rig->config.isa = isa;
	load_coef(rig, masked);
	assert_int_equal(rig->ops->create(&rig->config, &rig->gk), 0);
	rig->config.channel->params[0] = *params;
	*gk_ring_next(ring) = (struct gk_work){.nb_frames = FRAMES, .slot = {0, 1, 2, 3, 4, 5}};
	for (uint32_t f = 0; f < FRAMES; f++) {
		uint16_t *raw;

		snprintf(name, sizeof(name), "mod5_raw%u.bin", f);
		raw = load(name, PIXELS * 2);
		memcpy(rig_tile(rig, f, 0), raw, PIXELS * 2);
		free(raw);
		rig_frame(rig, f)->out = f;
		for (uint32_t t = 0; t < g.tiles; t++)
			rig_frame(rig, f)->packet[t] = (uintptr_t)rig_tile(rig, f, t);
	}
	assert_int_equal(rig->ops->start(rig->gk), 0);
	gk_ring_submit(ring);
	rig_poll_all(rig);
	assert_int_equal(gk_ring_is_done(ring, 0), 1);
	assert_int_equal(rig->ops->stop(rig->gk), 0);
}

static void
test_published_images(void **state)
{
	const struct gk_params params = {.kind = GK_KIND_IMAGE, .strong_max = UINT32_MAX};
	uint8_t *masked = rig_alloc(PIXELS);
	uint32_t g0 = 0, exact = 0, one = 0, four = 0, worst = 0, saturated = 0, invalid = 0;
	struct rig rig;
	char name[32];

	run_frames(&rig, masked, rig_isa(), GK_VALUE_F32, &params);
	for (uint32_t f = 0; f < FRAMES; f++) {
		const float *found = (const float *)(rig_output(&rig, f) + rig.config.layout.value);
		const uint16_t *raw = rig_tile(&rig, f, 0);
		float *wanted;

		snprintf(name, sizeof(name), "mod5_conv%u.bin", f);
		wanted = load(name, PIXELS * sizeof(float));
		for (uint32_t x = 0; x < PIXELS; x++) {
			uint32_t off;

			if (raw[x] == 0xC000 && !isnan(rig.p[2][x])) {
				assert_true(wanted[x] == SATURATED);
				assert_true(found[x] == INFINITY);
				saturated++;
				continue;
			}
			if (raw[x] == 0xFFFF || raw[x] == 0x4000 || raw[x] >> 14 == 2) {
				assert_true(isnan(found[x]));
				invalid++;
				continue;
			}
			if (raw[x] >> 14 != 0)
				continue;
			if (masked[x] & 1) {
				assert_true(isnan(found[x]));
				continue;
			}
			g0++;
			off = ulps(found[x], wanted[x]);
			exact += off == 0;
			one += off <= 1;
			four += off <= 4;
			worst = off > worst ? off : worst;
		}
		free(wanted);
	}
	print_message("%u G0 pixels: %.4f %% equal, %.4f %% within 1 ULP, %.4f %% within 4, worst "
		      "%u; %u saturated, %u invalid words\n",
		g0, 100.0 * exact / g0, 100.0 * one / g0, 100.0 * four / g0, worst, saturated,
		invalid);
	assert_true(g0 > PIXELS);
	assert_true(one >= 0.97 * g0);
	assert_int_equal(four, g0);
	free(masked);
	rig_close(&rig);
}

static void
test_same_bytes(void **state)
{
	/* the receiver's defaults, thresholds in the noise, and some with long fractions */
	static const float thresholds[][2] = {{10, 2}, {0.5f, -1}, {3.3f, 0.37f}};
	uint8_t *masked = rig_alloc(PIXELS);
	uint32_t nnz = 0;

	for (size_t i = 0; i < 2 * 2 * sizeof(thresholds) / sizeof(thresholds[0]); i++) {
		const enum gk_value value = i & 1 ? GK_VALUE_I16 : GK_VALUE_F32;
		const struct gk_params params = {
			.kind = i & 2 ? GK_KIND_CSR : GK_KIND_IMAGE,
			.strong_threshold = thresholds[i / 4][0],
			.csr_threshold = thresholds[i / 4][1],
			.strong_max = UINT32_MAX,
			.nnz_max = PIXELS,
		};
		struct rig plain, other;

		run_frames(&plain, masked, GK_ISA_PLAIN, value, &params);
		run_frames(&other, masked, rig_isa(), value, &params);
		assert_memory_equal(plain.config.results, other.config.results,
			FRAMES * sizeof(*plain.config.results));
		assert_memory_equal(plain.config.outputs, other.config.outputs,
			FRAMES * plain.config.layout.stride);
		for (uint32_t f = 0; f < FRAMES; f++)
			nnz += plain.config.results[f].nnz;
		rig_close(&plain);
		rig_close(&other);
	}
	assert_true(nnz > PIXELS);
	free(masked);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_published_images),
		cmocka_unit_test(test_same_bytes),
	};
	const char *data = getenv("BRAGGLINE_DATA");
	struct stat st;

	if (rig_lacks_isa())
		return 77;
	snprintf(folder, sizeof(folder), "%s/jungfrau", data != NULL ? data : "");
	if (data == NULL || stat(folder, &st) != 0) {
		printf("skipped: real JUNGFRAU frames are missing: %s%s\n",
			data == NULL ? "BRAGGLINE_DATA is not set" : "no folder ",
			data == NULL ? "" : folder);
		return 77;
	}
	return cmocka_run_group_tests_name("gk_frames", tests, NULL, NULL);
}
