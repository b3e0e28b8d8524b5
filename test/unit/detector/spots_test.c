/* SPDX-License-Identifier: BSD-3-Clause */
/* braggline-detector: spots on the panels of a geometry, and their file. */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "detector_options.h"
#include "geometry/layout.h"
#include "output/spots_output.h"
#include "sim/panel_places.h"

#define ENERGY	 12400.0
#define DISTANCE 0.0863 /* metres, as in create() */
#define FRAMES	 30
#define UNUSED	 6 /* panel without spots */
#define TILTED	 2
#define NEARER	 9

/* triclinic, so that no angle or sign is hidden by symmetry */
static const double cell[6] = {61.0, 72.5, 83.0, 97.0, 81.0, 112.0};
static struct geometry g;

/* Two modules in a column, turned around the beam; one panel is tilted, one is nearer. */
static void
set_geometry(void)
{
	const double c = cos(0.03), s = sin(0.03), tilt = 0.06;
	struct layout l = *layout_find("jungfrau");

	l.modules = l.column_modules = 2;
	assert_int_equal(layout_geometry(&g, &l, 515.3, 531.8), 0);
	g.distance_metres = DISTANCE;
	g.energy_ev = ENERGY;
	for (uint32_t i = 0; i < g.nb_panels; i++) {
		struct geometry_panel *p = &g.panel[i];
		const double x = p->corner_x, y = p->corner_y, t = i == TILTED ? tilt : 0;

		p->corner_x = c * x - s * y;
		p->corner_y = s * x + c * y;
		p->fs_x = c * cos(t);
		p->fs_y = s * cos(t);
		p->fs_z = sin(t);
		p->ss_x = s;
		p->ss_y = -c;
	}
	g.panel[NEARER].coffset_metres = -0.004;
	g.panel[UNUSED].unused = true;
	g.nb_bad = 1;
	g.bad[0] = (struct geometry_bad){.name = "bad",
		.in_panel = true,
		.panel = 1,
		.min_x = 256,
		.max_x = 300,
		.min_y = 0,
		.max_y = 255};
}

static struct jungfrau_model *
create(const struct geometry *geometry)
{
	struct detector_options options;
	struct jungfrau_model *model;

	detector_options_default(&options);
	options.model.modules = options.model.column_modules = 2;
	memcpy(options.model.cell, cell, sizeof(cell));
	options.model.energy = ENERGY / 1e3;
	options.model.distance = 86.3;
	options.model.hit_fraction = 1;
	options.model.geometry = geometry;
	assert_int_equal(jungfrau_model_create(&options.model, &model), 0);
	return model;
}

/* Panel and place in space of a point of the raster, 0 is the outer corner. */
static uint32_t
place_of(double fs, double ss, double at[3])
{
	for (uint32_t i = 0; i < g.nb_panels; i++) {
		const struct geometry_panel *p = &g.panel[i];
		const double f = fs - p->fs_min, s = ss - p->ss_min;

		if (f < 0 || f >= p->width || s < 0 || s >= p->height)
			continue;
		at[0] = p->corner_x + f * p->fs_x + s * p->ss_x;
		at[1] = p->corner_y + f * p->fs_y + s * p->ss_y;
		at[2] = (DISTANCE + p->coffset_metres) / g.pixel_metres + f * p->fs_z + s * p->ss_z;
		return i;
	}
	fail_msg("%g, %g is in no panel", fs, ss);
	return 0;
}

/* 1/d of a reflection: the triclinic formula, from the cell. */
static double
inverse_d(const int32_t index[3])
{
	const double a = cell[0], b = cell[1], c = cell[2];
	const double ca = cos(cell[3] * M_PI / 180), cb = cos(cell[4] * M_PI / 180);
	const double cg = cos(cell[5] * M_PI / 180);
	const double v2 =
		a * a * b * b * c * c * (1 - ca * ca - cb * cb - cg * cg + 2 * ca * cb * cg);
	const double h = index[0], k = index[1], l = index[2];

	return sqrt((b * b * c * c * (1 - ca * ca) * h * h + a * a * c * c * (1 - cb * cb) * k * k +
			    a * a * b * b * (1 - cg * cg) * l * l +
			    2 * a * b * c * c * (ca * cb - cg) * h * k +
			    2 * a * a * b * c * (cb * cg - ca) * k * l +
			    2 * a * b * b * c * (cg * ca - cb) * h * l) /
		v2);
}

static double
determinant(double m[3][3])
{
	return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
		m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
		m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

/* The reciprocal basis that fits indices and scattering vectors best, by Cramer's rule. */
static void
fit(double hh[3][3], double hq[3][3], double basis[3][3])
{
	const double d = determinant(hh);

	for (int axis = 0; axis < 3; axis++) {
		for (int i = 0; i < 3; i++) {
			double m[3][3];

			memcpy(m, hh, sizeof(m));
			for (int j = 0; j < 3; j++)
				m[j][i] = hq[j][axis];
			basis[i][axis] = determinant(m) / d;
		}
	}
}

/*
 * Each spot is at the angle of its reflection, 2 d sin(theta) = lambda, to 0.1 pixel; the spots of
 * a frame have one orientation; and the basis is right-handed.
 */
static void
spots_obey_braggs_law(void **state)
{
	const double lambda = GEOMETRY_HC / ENERGY;
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint32_t of_panel[GEOMETRY_PANELS_MAX] = {0};
	struct jungfrau_model *model;

	set_geometry();
	model = create(&g);
	for (uint64_t n = 1; n <= FRAMES; n++) {
		double hh[3][3] = {0}, hq[3][3] = {0}, basis[3][3];

		jungfrau_model_plan(model, n, frame);
		assert_true(frame->hit && frame->nb_peaks >= 10);
		for (uint32_t i = 0; i < frame->nb_peaks; i++) {
			const struct jungfrau_peak *p = &frame->peak[i];
			double at[3], angle, length;

			/* not in the bad region */
			assert_false(p->module == 0 && p->row < 255.4f && p->column > 255.6f &&
				p->column < 300.4f);

			of_panel[place_of((double)p->column + 0.5,
				p->module * 512 + (double)p->row + 0.5, at)]++;
			angle = 2 * asin(lambda * inverse_d(p->index) / 2);
			assert_true(fabs(hypot(at[0], at[1]) - at[2] * tan(angle)) < 0.1);
			length = sqrt(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
			for (int k = 0; k < 9; k++) {
				const double q = (at[k % 3] / length - (k % 3 == 2)) / lambda;

				hh[k / 3][k % 3] += p->index[k / 3] * p->index[k % 3];
				hq[k / 3][k % 3] += p->index[k / 3] * q;
			}
		}
		fit(hh, hq, basis);
		assert_true(determinant(basis) > 0);
		for (uint32_t i = 0; i < frame->nb_peaks; i++) {
			const struct jungfrau_peak *p = &frame->peak[i];
			double at[3], length;

			place_of((double)p->column + 0.5, p->module * 512 + (double)p->row + 0.5,
				at);
			length = sqrt(at[0] * at[0] + at[1] * at[1] + at[2] * at[2]);
			for (int k = 0; k < 3; k++) {
				const double q = (at[k] / length - (k == 2)) / lambda;
				double fitted = 0;

				for (int j = 0; j < 3; j++)
					fitted += p->index[j] * basis[j][k];
				/* the width of mosaic blocks; axes are 0.012 apart */
				assert_true(fabs(fitted - q) < 2e-3);
			}
		}
	}
	/* all panels but the unused one have spots */
	for (uint32_t i = 0; i < g.nb_panels; i++)
		assert_true((of_panel[i] > 0) == (i != UNUSED));
	jungfrau_model_destroy(model);
	free(frame);
}

/* Light that misses a panel is lost; the neighbour in the raster does not receive it. */
static void
spots_end_at_the_edge_of_their_panel(void **state)
{
	const size_t bytes = JUNGFRAU_PIXELS * sizeof(uint16_t);
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *with = malloc(bytes), *without = malloc(bytes);
	const struct jungfrau_peak at_edge = {
		.module = 0, .row = 100.f, .column = 255.4f, .photons = 5000, .width = 1.5f};
	struct jungfrau_model *model;
	uint32_t inside = 0, outside = 0;
	double cut, whole;

	for (int file = 0; file < 2; file++) {
		set_geometry();
		model = create(file ? &g : NULL);
		jungfrau_model_plan(model, 1, frame);
		frame->nb_peaks = 0;
		jungfrau_model_draw(model, frame, 0, without);
		frame->nb_peaks = 1;
		frame->peak[0] = at_edge;
		jungfrau_model_draw(model, frame, 0, with);
		inside = outside = 0;
		for (uint32_t i = 0; i < JUNGFRAU_PIXELS; i++) {
			if (with[i] == without[i])
				continue;
			if (i % 1024 < 256)
				inside++;
			else
				outside++;
		}
		assert_true(inside > 10);
		/* a stack has no panels: its frames stay those of earlier versions */
		assert_true((outside == 0) == (file == 1));
		whole = at_edge.photons;
		cut = jungfrau_model_peak_photons(model, &at_edge);
		if (file)
			assert_true(cut > 0.5 * whole && cut < 0.8 * whole);
		else
			assert_true(fabs(cut - whole) < 0.1);
		jungfrau_model_destroy(model);
	}
	free(frame);
	free(with);
	free(without);
}

/* What is written is what was planned. */
static void
file_has_each_spot(void **state)
{
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	char folder[] = "spots_test_XXXXXX", path[64], line[256], panel[64];
	struct output_file file = {0};
	struct jungfrau_model *model;
	unsigned long long number;
	double fs, ss, photons, at[3];
	int h, k, l;
	FILE *f;

	set_geometry();
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/spots.csv", folder);
	for (int with_file = 0; with_file < 2; with_file++) {
		model = create(with_file ? &g : NULL);
		assert_int_equal(spots_output_open(&file, path), 0);
		for (uint64_t n = 1; n <= 3; n++) {
			jungfrau_model_plan(model, n, frame);
			assert_int_equal(spots_output_frame(&file, model, n + 1000, frame), 0);
		}
		assert_int_equal(output_file_commit(&file), 0);
		f = fopen(path, "r");
		assert_non_null(f);
		assert_non_null(fgets(line, sizeof(line), f));
		assert_string_equal(line, "frame,fs,ss,photons,h,k,l,panel\n");
		for (uint64_t n = 1; n <= 3; n++) {
			jungfrau_model_plan(model, n, frame);
			for (uint32_t i = 0; i < frame->nb_peaks; i++) {
				const struct jungfrau_peak *p = &frame->peak[i];

				assert_int_equal(
					fscanf(f, "%llu,%lf,%lf,%lf,%d,%d,%d,%63s\n", &number, &fs,
						&ss, &photons, &h, &k, &l, panel),
					8);
				assert_int_equal(number, n + 1000);
				assert_true(fabs(fs - 0.5 - (double)p->column) < 0.001);
				assert_true(
					fabs(ss - 0.5 - p->module * 512 - (double)p->row) < 0.001);
				assert_true(photons > 0 && photons < (double)p->photons + 0.01);
				assert_int_equal(h, p->index[0]);
				assert_int_equal(k, p->index[1]);
				assert_int_equal(l, p->index[2]);
				/* without a file, the names are those of the layout */
				assert_string_equal(panel, g.panel[place_of(fs, ss, at)].name);
			}
		}
		assert_int_equal(fgetc(f), EOF);
		fclose(f);
		jungfrau_model_destroy(model);
	}
	unlink(path);
	rmdir(folder);
	free(frame);
}

/* Without a geometry, a seed gives the same frames as in earlier versions. */
static void
frames_of_a_stack_stay(void **state)
{
	struct jungfrau_frame *frame = malloc(sizeof(*frame));
	uint16_t *raw = malloc(JUNGFRAU_PIXELS * sizeof(*raw));
	struct jungfrau_model *model = create(NULL);
	uint32_t crc = 0;

	for (uint64_t n = 1; n <= 8; n++) {
		jungfrau_model_plan(model, n, frame);
		for (uint32_t m = 0; m < 2; m++) {
			jungfrau_model_draw(model, frame, m, raw);
			crc = arrow_crc32c(crc, raw, JUNGFRAU_PIXELS * sizeof(*raw));
		}
	}
	assert_int_equal(crc, 0x5ef7bc7e);
	jungfrau_model_destroy(model);
	free(frame);
	free(raw);
}

/* Rays through pixels of all panels meet them again. */
static void
rays_meet_their_pixels(void **state)
{
	struct panel_places *places;
	double at[3], row, column;
	uint32_t pixels = 0, met = 0;

	set_geometry();
	g.panel[UNUSED].unused = false;
	g.nb_bad = 0;
	assert_int_equal(panel_places_create(&g, DISTANCE / g.pixel_metres, &places), 0);
	for (uint32_t r = 0; r < g.rows; r += 37) {
		for (uint32_t c = 0; c < g.cols; c += 41) {
			assert_true(panel_places_pixel(places, r, c, at));
			pixels++;
			/* the nearer and the tilted panel hide a part of others, or are hidden */
			if (!panel_places_hit(places, at, &row, &column) ||
				!panel_places_same(places, r, c, (uint32_t)(row + 0.5),
					(uint32_t)(column + 0.5)))
				continue;
			assert_true(fabs(row - r) < 1e-6 && fabs(column - c) < 1e-6);
			met++;
		}
	}
	assert_true(met > pixels * 9 / 10 && met < pixels);
	/* not backwards, and not outside the panels */
	assert_false(panel_places_hit(places, (double[]){10, 10, -1000}, &row, &column));
	assert_false(panel_places_hit(places, (double[]){5000, 10, 1000}, &row, &column));
	panel_places_destroy(places);
	/* a panel without area */
	g.panel[3].ss_x = g.panel[3].fs_x;
	g.panel[3].ss_y = g.panel[3].fs_y;
	g.panel[3].ss_z = g.panel[3].fs_z;
	assert_int_equal(panel_places_create(&g, 1000, &places), -EINVAL);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(spots_obey_braggs_law),
		cmocka_unit_test(spots_end_at_the_edge_of_their_panel),
		cmocka_unit_test(file_has_each_spot),
		cmocka_unit_test(frames_of_a_stack_stay),
		cmocka_unit_test(rays_meet_their_pixels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
