/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-detector: lattices, geometry, background, dark runs and drifting pedestals. */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "sim/crystal_lattice.h"
#include "detector_options.h"
#include "sim/jungfrau_geometry.h"
#include "sim/jungfrau_pattern.h"
#include "sim/model_random.h"

#define MODULE_BYTES (JUNGFRAU_PIXELS * sizeof(uint16_t))

static struct jungfrau_model_config
config_of(uint32_t modules)
{
	struct detector_options options;

	detector_options_default(&options);
	options.model.modules = options.model.column_modules = modules;
	return options.model;
}

static struct jungfrau_geometry
geometry_of(uint32_t modules, uint32_t column_modules)
{
	return (struct jungfrau_geometry){.modules = modules,
		.column_modules = column_modules,
		.rows = JUNGFRAU_ROWS,
		.distance = 1200.0};
}

static void
cosine_agrees_with_libm(void **state)
{
	for (double x = 0.0; x <= 3.1416; x += 0.001)
		assert_true(fabs(model_cosine(x) - cos(x)) < 1e-13);
}

static void
reciprocal_basis_inverts_the_cell(void **state)
{
	static const double triclinic[6] = {61.0, 72.5, 83.0, 97.0, 81.0, 112.0};
	static const double impossible[6] = {50.0, 50.0, 50.0, 20.0, 20.0, 90.0};
	struct crystal_lattice lattice, turned;
	struct model_random random = {.counter = 3};
	double direct[3][3], volume;

	assert_int_equal(crystal_lattice_init(&lattice, impossible), -EINVAL);
	assert_int_equal(crystal_lattice_init(&lattice, triclinic), 0);
	crystal_lattice_turn(&lattice, &random, &turned);

	/* a = b* x c* / (a* . (b* x c*)) and so on has the lengths and angles of the cell */
	for (int i = 0; i < 3; i++) {
		const double *p = turned.reciprocal[(i + 1) % 3],
			     *q = turned.reciprocal[(i + 2) % 3];

		for (int j = 0; j < 3; j++)
			direct[i][j] =
				p[(j + 1) % 3] * q[(j + 2) % 3] - p[(j + 2) % 3] * q[(j + 1) % 3];
	}
	volume = 0.0;
	for (int j = 0; j < 3; j++)
		volume += turned.reciprocal[0][j] * direct[0][j];
	assert_true(fabs(1.0 / volume / lattice.volume - 1.0) < 1e-9);
	for (int i = 0; i < 3; i++) {
		double squares = 0.0, product = 0.0;

		for (int j = 0; j < 3; j++) {
			squares += direct[i][j] * direct[i][j] / (volume * volume);
			product +=
				direct[(i + 1) % 3][j] * direct[(i + 2) % 3][j] / (volume * volume);
		}
		assert_true(fabs(sqrt(squares) - triclinic[i]) < 1e-9);
		product /= triclinic[(i + 1) % 3] * triclinic[(i + 2) % 3];
		assert_true(fabs(acos(product) * 180.0 / M_PI - triclinic[3 + i]) < 1e-9);
	}
}

struct found {
	uint32_t count;
	double radius, q_max, tolerance;
	const struct crystal_lattice *lattice;
};

static void
check_reflection(void *context, const struct crystal_reflection *reflection)
{
	struct found *found = context;
	double k2 = 0.0, q2 = 0.0;

	for (int i = 0; i < 3; i++) {
		double q = 0.0;

		for (int j = 0; j < 3; j++)
			q += reflection->index[j] * found->lattice->reciprocal[j][i];
		q2 += q * q;
		q += i == 2 ? found->radius : 0.0;
		assert_true(fabs(q - reflection->direction[i]) < 1e-12);
		k2 += q * q;
	}
	assert_true(fabs(sqrt(k2) - found->radius - reflection->error) < 1e-12);
	assert_true(fabs(reflection->error) <= found->tolerance * (1 + 1e-9));
	assert_true(sqrt(q2) <= found->q_max * (1 + 1e-9));
	found->count++;
}

/*
 * Finds every lattice point in the shell, and no others: compared with a search through all points.
 */
static void
reflections_are_all_near_the_ewald_sphere(void **state)
{
	static const double cell[6] = {79.1, 79.1, 37.9, 90.0, 90.0, 90.0};
	const double wavelength = 1.0, q_max = 0.4, tolerance = 5e-4;
	struct model_random random = {.counter = 17};
	struct crystal_lattice lattice, turned;

	assert_int_equal(crystal_lattice_init(&lattice, cell), 0);
	for (int trial = 0; trial < 20; trial++) {
		struct found found = {.radius = 1.0 / wavelength,
			.q_max = q_max,
			.tolerance = tolerance,
			.lattice = &turned};
		uint32_t wanted = 0;

		crystal_lattice_turn(&lattice, &random, &turned);
		crystal_lattice_reflections(
			&turned, wavelength, q_max, tolerance, check_reflection, &found);
		for (int h = -32; h <= 32; h++) {
			for (int k = -32; k <= 32; k++) {
				for (int l = -16; l <= 16; l++) {
					const int index[3] = {h, k, l};
					double k2 = 0.0, q2 = 0.0;

					for (int i = 0; i < 3; i++) {
						double q = 0.0;

						for (int j = 0; j < 3; j++)
							q += index[j] * turned.reciprocal[j][i];
						q2 += q * q;
						q += i == 2 ? found.radius : 0.0;
						k2 += q * q;
					}
					wanted += q2 > 0.0 && q2 <= q_max * q_max &&
						fabs(sqrt(k2) - found.radius) <= tolerance;
				}
			}
		}
		assert_int_equal(found.count, wanted);
		/* expected number: pi q_max^2 x twice the tolerance x volume of the cell */
		assert_in_range(wanted, 40, 250);
	}
}

static void
positions_come_back(void **state)
{
	struct jungfrau_geometry geometry = geometry_of(8, 4);
	struct jungfrau_place place;
	double x, y, width, height;

	/* PSI's JUNGFRAU 4M */
	jungfrau_geometry_extent(&geometry, &width, &height);
	assert_true(width == 2068.0 && height == 2164.0);
	geometry.beam_x = 1033.5;
	geometry.beam_y = 1081.5;
	for (uint32_t m = 0; m < 8; m++) {
		for (uint32_t i = 0; i < 1000; i++) {
			uint32_t row = i * 37 % JUNGFRAU_ROWS, column = i * 91 % JUNGFRAU_COLUMNS;

			jungfrau_geometry_position(&geometry, m, row, column, &x, &y);
			assert_true(jungfrau_geometry_find(&geometry, x + 0.3, y - 0.4, &place));
			assert_int_equal(place.module, m);
			assert_true(fabs(place.row - row + 0.4) < 1e-9);
			assert_true(fabs(place.column - column - 0.3) < 1e-9);
		}
	}
	/* there are gaps between chips and modules */
	jungfrau_geometry_position(&geometry, 3, 255, 255, &x, &y);
	assert_false(jungfrau_geometry_find(&geometry, x + 1.0, y, &place));
	assert_true(jungfrau_geometry_find(&geometry, x + 3.0, y, &place));
	assert_true(place.column == 256.0);
	assert_false(jungfrau_geometry_find(&geometry, x, y + 2.0, &place));
	jungfrau_geometry_position(&geometry, 0, 511, 5, &x, &y);
	assert_false(jungfrau_geometry_find(&geometry, x, y + 20.0, &place));
	assert_true(jungfrau_geometry_find(&geometry, x, y + 37.0, &place));
	assert_int_equal(place.module, 1);
	assert_true(place.row == 0.0);
	assert_false(jungfrau_geometry_find(&geometry, -5000.0, 0.0, &place));
	assert_false(jungfrau_geometry_find(&geometry, 0.0, 5000.0, &place));
}

/* Peaks of a planned hit lie at positions of the lattice: |k + q| = k within the tolerance. */
static void
peaks_lie_on_a_lattice(void **state)
{
	static const double cell[6] = {79.1, 79.1, 37.9, 90.0, 90.0, 90.0};
	struct jungfrau_geometry geometry = geometry_of(2, 2);
	struct jungfrau_spot spots[60];
	struct model_random random = {.counter = 5};
	struct jungfrau_pattern pattern;
	uint32_t modules = 0;

	geometry.beam_x = 515.0;
	geometry.beam_y = 532.0;
	assert_int_equal(jungfrau_pattern_init(&pattern, &geometry, cell, 1.0, 40, 1), 0);
	for (int trial = 0; trial < 50; trial++) {
		assert_int_equal(jungfrau_pattern_make(&pattern, &random, 60, spots), 60);
		for (uint32_t i = 0; i < 60; i++) {
			const struct jungfrau_spot *spot = &spots[i];
			double x, y, q, d;

			/* in the order of their errors */
			assert_true(i == 0 || fabs(spot->error) >= fabs(spots[i - 1].error));
			assert_true(fabs(spot->error) < 10.0 * pattern.tolerance);
			jungfrau_geometry_position(&geometry, spot->place.module, 0, 0, &x, &y);
			modules |= 1u << spot->place.module;
			/* add the gaps between chips */
			x += spot->place.column + 2 * (int)((spot->place.column + 0.5) / 256);
			y += spot->place.row + 2 * (int)((spot->place.row + 0.5) / 256);
			q = jungfrau_geometry_q(jungfrau_geometry_cosine(&geometry, x, y), 1.0);
			d = sqrt(spot->index[0] * spot->index[0] / (79.1 * 79.1) +
				spot->index[1] * spot->index[1] / (79.1 * 79.1) +
				spot->index[2] * spot->index[2] / (37.9 * 37.9));
			assert_true(fabs(q - d) < 2.0 * fabs(spot->error) + 1e-9);
			assert_true(spot->strength > 0.0);
		}
	}
	assert_int_equal(modules, 3);
}

/* Mean over a ring of unmasked pixels, in photons. */
static double
ring_mean(
	const struct jungfrau_calibration *calibration, const uint16_t *raw, double from, double to)
{
	double sum = 0.0, count = 0.0;

	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
		double y = i / 1024 + 2 * (i / 1024 / 256) - 256.5;
		double x = i % 1024 + 2 * (i % 1024 / 256) - 514.5;
		double z = sqrt(1030.0 * 1030.0 + 514.0 * 514.0), r2 = x * x + y * y;
		double q = sqrt(2.0 * (1.0 - z / sqrt(r2 + z * z)));

		if (calibration->mask[i] || q < from || q >= to || raw[i] >= 0x4000)
			continue;
		sum += (raw[i] - (double)calibration->pedestal[0][i]) /
			(calibration->gain[0][i] * 12.4);
		count++;
	}
	return sum / count;
}

static void
background_has_a_solvent_ring(void **state)
{
	struct jungfrau_model_config config = config_of(1);
	struct jungfrau_calibration *calibration = malloc(sizeof(*calibration));
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(MODULE_BYTES);
	struct jungfrau_model *model;
	double centre, between, ring, outside;

	config.hit_fraction = 0.0;
	config.background = 1.0;
	assert_int_equal(jungfrau_model_create(&config, &model), 0);
	jungfrau_model_calibration(model, 0, calibration);
	jungfrau_model_plan(model, 3, frame);
	jungfrau_model_draw(model, frame, 0, raw);
	centre = ring_mean(calibration, raw, 0.0, 0.05);
	between = ring_mean(calibration, raw, 0.16, 0.20);
	ring = ring_mean(calibration, raw, 0.28, 0.31);
	outside = ring_mean(calibration, raw, 0.42, 0.50);
	assert_true(centre > 1.3 * between && ring > 1.3 * between && ring > 2.0 * outside);
	jungfrau_model_destroy(model);
	free(calibration);
	free(frame);
	free(raw);
}

static void
dark_runs_hold_one_gain_stage(void **state)
{
	static const uint16_t codes[3] = {0, 1, 3};
	struct jungfrau_calibration *calibration = malloc(sizeof(*calibration));
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(MODULE_BYTES);

	for (uint32_t stage = 0; stage < 3; stage++) {
		struct jungfrau_model_config config = config_of(1);
		struct jungfrau_pixel_counts pixel_counts = {0};
		struct jungfrau_model *model;
		double sum = 0.0, squares = 0.0, good = 0.0;
		uint32_t flickers = 0;

		config.hit_fraction = 1.0;
		config.dark_run = JUNGFRAU_DARK_RUN_G0 + stage;
		assert_int_equal(jungfrau_model_create(&config, &model), 0);
		jungfrau_model_calibration(model, 0, calibration);
		jungfrau_model_plan(model, 4, frame);
		assert_true(frame->dark && !frame->hit && frame->nb_peaks == 0);
		jungfrau_model_draw(model, frame, 0, raw);
		for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
			double off;

			if (calibration->mask[i])
				continue;
			/* flickering pixels may be bright enough to leave G0 */
			if (raw[i] >> 14 != codes[stage]) {
				flickers++;
				continue;
			}
			off = (raw[i] & 0x3fff) - (double)calibration->pedestal[stage][i];
			if (fabs(off) > 400.0)
				continue; /* a pixel that flickers */
			sum += off;
			squares += off * off;
			good++;
		}
		assert_true(fabs(sum / good) < 0.2);
		assert_true(fabs(sqrt(squares / good) - (stage == 0 ? 49.2 : 8.0)) < 0.5);
		jungfrau_model_pixel_counts(model, frame, 0, raw, 10.0, &pixel_counts);
		/* the noise of G2 is 6 photons */
		assert_true(stage == 2 || pixel_counts.strong < 9);
		assert_in_range(flickers, 0, stage == 0 ? 8 : 0);
		assert_int_equal(pixel_counts.switched, stage == 0 ? flickers : (uint32_t)good);
		jungfrau_model_destroy(model);
	}
	free(calibration);
	free(frame);
	free(raw);
}

static void
pedestals_drift_by_pixel(void **state)
{
	struct jungfrau_model_config config = config_of(1);
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *still = malloc(MODULE_BYTES), *moved = malloc(MODULE_BYTES);
	struct jungfrau_model *model, *drifting;
	double sum = 0.0, squares = 0.0, mean;
	uint32_t count = 0;

	config.dark_run = JUNGFRAU_DARK_RUN_G0;
	config.noise = 0.0;
	config.rate = 100.0;
	assert_int_equal(jungfrau_model_create(&config, &model), 0);
	config.drift = 3.0;
	assert_int_equal(jungfrau_model_create(&config, &drifting), 0);

	jungfrau_model_plan(model, 0, frame);
	jungfrau_model_draw(model, frame, 0, still);
	jungfrau_model_draw(drifting, frame, 0, moved);
	assert_memory_equal(still, moved, MODULE_BYTES);

	/* 20 s later: 60 ADU on average, with half as much variation between pixels */
	jungfrau_model_plan(model, 2000, frame);
	jungfrau_model_draw(model, frame, 0, still);
	jungfrau_model_draw(drifting, frame, 0, moved);
	for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
		double by = (double)moved[i] - still[i];

		if (still[i] == 0 || still[i] >= 0x4000 || by == 0.0)
			continue;
		sum += by;
		squares += by * by;
		count++;
	}
	mean = sum / count;
	assert_true(fabs(mean - 60.0) < 0.5);
	assert_true(fabs(sqrt(squares / count - mean * mean) - 30.0) < 0.5);
	jungfrau_model_destroy(model);
	jungfrau_model_destroy(drifting);
	free(frame);
	free(still);
	free(moved);
}

static void
hits_differ_from_other_frames(void **state)
{
	static const struct {
		uint32_t modules, columns, rows;
		double energy;
	} detectors[] = {{1, 1, 512, 12.4}, {2, 1, 512, 9.0}, {1, 1, 256, 12.4}, {4, 2, 512, 17.0}};
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(MODULE_BYTES);

	for (size_t d = 0; d < sizeof(detectors) / sizeof(detectors[0]); d++) {
		struct jungfrau_model_config config = config_of(detectors[d].modules);
		struct jungfrau_model *model;

		config.column_modules = detectors[d].modules / detectors[d].columns;
		config.rows = detectors[d].rows;
		config.energy = detectors[d].energy;
		config.hit_fraction = 0.5;
		config.dark_every = 7;
		assert_int_equal(jungfrau_model_create(&config, &model), 0);
		for (uint64_t n = 1; n <= 40; n++) {
			struct jungfrau_pixel_counts pixel_counts = {0};

			jungfrau_model_plan(model, n, frame);
			for (uint32_t m = 0; m < config.modules; m++) {
				jungfrau_model_draw(model, frame, m, raw);
				jungfrau_model_pixel_counts(
					model, frame, m, raw, 10.0, &pixel_counts);
			}
			if (frame->hit != (pixel_counts.strong >= 20))
				fail_msg("detector %zu, frame %u: hit %d, %u strong pixels", d,
					(unsigned int)n, frame->hit, pixel_counts.strong);
		}
		jungfrau_model_destroy(model);
	}
	free(frame);
	free(raw);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(cosine_agrees_with_libm),
		cmocka_unit_test(reciprocal_basis_inverts_the_cell),
		cmocka_unit_test(reflections_are_all_near_the_ewald_sphere),
		cmocka_unit_test(positions_come_back),
		cmocka_unit_test(peaks_lie_on_a_lattice),
		cmocka_unit_test(background_has_a_solvent_ring),
		cmocka_unit_test(dark_runs_hold_one_gain_stage),
		cmocka_unit_test(pedestals_drift_by_pixel),
		cmocka_unit_test(hits_differ_from_other_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
