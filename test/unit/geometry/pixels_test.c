/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests what a geometry gives for each pixel: bins, radius, resolution, angles, picture; PONI.
 * With BRAGGLINE_ORACLES and numpy, bins are compared with a restatement of peakfinder8 by others.
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
#include <unistd.h>

#include <cmocka.h>

#include "geometry/crystfel.h"
#include "geometry/file.h"
#include "geometry/gaps.h"
#include "geometry/layout.h"
#include "geometry/pixels.h"
#include "geometry/poni.h"

#define ROWS 512
#define COLS 1024

static struct geometry g, again;
static char message[GEOMETRY_MESSAGE_LEN];
static uint16_t bin[2 * ROWS * COLS], expected[ROWS * COLS];
static float value[2 * ROWS * COLS];
static uint32_t at[2 * ROWS * COLS], nb_bins;

/* One panel of 1024 x 512 pixels, as in the oracle's default. */
static void
one_panel(void)
{
	memset(&g, 0, sizeof(g));
	g.rows = ROWS;
	g.cols = COLS;
	g.pixel_metres = 75e-6;
	g.distance_metres = 0.1;
	g.energy_ev = GEOMETRY_HC / 0.9998725;
	g.nb_panels = 1;
	g.panel[0] = (struct geometry_panel){.name = "p",
		.width = COLS,
		.height = ROWS,
		.corner_x = -100.5,
		.corner_y = 20.25,
		.fs_x = 1,
		.ss_y = 1,
		.max_adu = INFINITY};
}

static void
bins_by_hand(void **state)
{
	one_panel();
	assert_int_equal(pixels_bins(&g, bin, &nb_bins), 0);
	/* x is cut to -100, y to 20: sqrt(10400) = 101.98 */
	assert_int_equal(bin[0], 102);
	/* -0.5 and 0.5 are both cut to 0 */
	assert_int_equal(bin[100], 20);
	assert_int_equal(bin[101], 20);
	assert_int_equal(bin[102], 20);
	assert_int_equal(bin[103], 20);
	assert_int_equal(bin[100 + COLS], 21);
	/* x 922, y 531: sqrt(1132045) = 1063.98 */
	assert_int_equal(bin[ROWS * COLS - 1], 1064);
	assert_int_equal(nb_bins, 1065);
}

static void
bins_masked(void **state)
{
	one_panel();
	g.panel[0].edge = 2;
	g.nb_bad = 2;
	/* x of a pixel's corner is -100.5, -99.5, ...: limits are not included */
	g.bad[0] = (struct geometry_bad){
		.name = "bad0", .min_x = -50.5, .max_x = -48.5, .min_y = 22.25, .max_y = 25};
	g.bad[1] = (struct geometry_bad){
		.name = "bad1", .in_panel = true, .min_x = 10, .max_x = 11, .min_y = 5, .max_y = 5};
	assert_int_equal(pixels_bins(&g, bin, &nb_bins), 0);
	assert_int_equal(nb_bins, 1065);
	assert_int_equal(bin[1 * COLS + 5], GEOMETRY_MASKED);
	assert_int_equal(bin[5 * COLS + 1], GEOMETRY_MASKED);
	assert_int_equal(bin[(ROWS - 2) * COLS + 5], GEOMETRY_MASKED);
	assert_int_equal(bin[5 * COLS + COLS - 2], GEOMETRY_MASKED);
	assert_int_not_equal(bin[2 * COLS + 2], GEOMETRY_MASKED);
	assert_int_not_equal(bin[(ROWS - 3) * COLS + COLS - 3], GEOMETRY_MASKED);
	assert_int_equal(bin[3 * COLS + 51], GEOMETRY_MASKED);
	assert_int_equal(bin[4 * COLS + 51], GEOMETRY_MASKED);
	assert_int_not_equal(bin[2 * COLS + 51], GEOMETRY_MASKED);
	assert_int_not_equal(bin[5 * COLS + 51], GEOMETRY_MASKED);
	assert_int_not_equal(bin[3 * COLS + 50], GEOMETRY_MASKED);
	assert_int_not_equal(bin[3 * COLS + 52], GEOMETRY_MASKED);
	assert_int_equal(bin[5 * COLS + 10], GEOMETRY_MASKED);
	assert_int_equal(bin[5 * COLS + 11], GEOMETRY_MASKED);
	assert_int_not_equal(bin[5 * COLS + 12], GEOMETRY_MASKED);
	assert_int_not_equal(bin[6 * COLS + 11], GEOMETRY_MASKED);
	/* pixels that are in no panel */
	g.panel[0].width = 8;
	assert_int_equal(pixels_bins(&g, bin, &nb_bins), 0);
	assert_int_equal(bin[5 * COLS + 8], GEOMETRY_MASKED);
	g.panel[0].unused = true;
	assert_int_equal(pixels_bins(&g, bin, &nb_bins), 0);
	for (size_t i = 0; i < ROWS * COLS; i++)
		assert_int_equal(bin[i], GEOMETRY_MASKED);
	g.panel[0].corner_x = 7e4;
	assert_int_equal(pixels_bins(&g, bin, &nb_bins), -ERANGE);
}

/* Convert the oracle's list of panels to a geometry. */
static bool
read_oracle(const char *path)
{
	char line[512], name[32];
	FILE *f = fopen(path, "r");

	if (f == NULL)
		return false;
	one_panel();
	g.nb_panels = 0;
	while (fgets(line, sizeof(line), f) != NULL) {
		struct geometry_panel p = {0};

		if (sscanf(line, "%31s %u %u %u %u %lf %lf %lf %lf %lf %lf %lf", name, &p.fs_min,
			    &p.ss_min, &p.width, &p.height, &p.corner_x, &p.corner_y, &p.fs_x,
			    &p.fs_y, &p.ss_x, &p.ss_y, &p.max_adu) < 12 ||
			name[0] == '#')
			continue;
		strcpy(p.name, name);
		g.panel[g.nb_panels++] = p;
	}
	fclose(f);
	return g.nb_panels > 0;
}

/* @return false: there is no numpy */
static bool
oracle_bins(const char *oracles, const char *path)
{
	static const char program[] =
		"import sys; sys.path.insert(0, sys.argv[1]); import numpy, pf8ref\n"
		"a = numpy.full((512, 1024), 65535, 'u2')\n"
		"for p in pf8ref.read_geom(sys.argv[2]):\n"
		"    a[p.ss0:p.ss0 + p.h, p.fs0:p.fs0 + p.w] = p.bin\n"
		"sys.stdout.buffer.write(a.tobytes())\n";
	char command[2048];
	size_t n;
	FILE *f;

	snprintf(command, sizeof(command), "/usr/bin/python3 -B -c \"%s\" '%s' '%s' 2>/dev/null",
		program, oracles, path);
	f = popen(command, "r");
	assert_non_null(f);
	n = fread(expected, sizeof(expected[0]), ROWS * COLS, f);
	return pclose(f) == 0 && n == ROWS * COLS;
}

static void
bins_as_oracle(void **state)
{
	static const char *const names[] = {"mod5_one_panel.geom", "mod5_eight_asics.geom"};
	const char *oracles = getenv("BRAGGLINE_ORACLES");
	char path[512];

	for (unsigned int i = 0; i < 2; i++) {
		snprintf(path, sizeof(path), "%s/peaks/%s", oracles != NULL ? oracles : "",
			names[i]);
		if (!read_oracle(path) || !oracle_bins(oracles, path)) {
			print_message("%s: no such file, or no numpy\n", path);
			skip();
		}
		assert_int_equal(g.nb_panels, i == 0 ? 1 : 8);
		assert_int_equal(pixels_bins(&g, bin, &nb_bins), 0);
		for (size_t k = 0; k < ROWS * COLS; k++)
			if (bin[k] != expected[k])
				fail_msg("%s: pixel %zu: bin %u, expected %u", names[i], k, bin[k],
					expected[k]);
	}
}

static void
maps(void **state)
{
	const size_t pixel = 10 * COLS + 300;
	const double x = -100.5 + 300.5, y = 20.25 + 10.5, z = 0.1 / 75e-6;

	one_panel();
	assert_int_equal(pixels_map(&g, PIXELS_RADIUS, value), 0);
	assert_true(value[pixel] == (float)hypot(x, y));
	assert_int_equal(pixels_map(&g, PIXELS_CHI, value), 0);
	assert_true(value[pixel] == (float)atan2(y, x));
	assert_int_equal(pixels_map(&g, PIXELS_TWO_THETA, value), 0);
	assert_true(fabs(value[pixel] - atan(hypot(x, y) / z)) < 1e-7);
	assert_int_equal(pixels_map(&g, PIXELS_RESOLUTION, value), 0);
	assert_true(fabs(value[pixel] - 2 * sin(atan(hypot(x, y) / z) / 2) / 0.9998725) < 1e-7);
	/* the ring of this resolution passes through the pixel's centre */
	assert_true(fabs(pixels_radius_of(&g, 1 / (double)value[pixel]) - hypot(x, y)) < 1e-3);
	/* a panel that is 10 mm further away, and turned by 30 degrees around y */
	g.panel[0].coffset_metres = 0.01;
	g.panel[0].fs_x = cos(M_PI / 6);
	g.panel[0].fs_z = sin(M_PI / 6);
	assert_int_equal(pixels_map(&g, PIXELS_TWO_THETA, value), 0);
	assert_true(fabs(value[pixel] -
			    atan2(hypot(-100.5 + 300.5 * cos(M_PI / 6), y),
				    0.11 / 75e-6 + 300.5 * 0.5)) < 1e-6);
	g.panel[0].width = 8;
	assert_int_equal(pixels_map(&g, PIXELS_RADIUS, value), 0);
	assert_true(isnan(value[8]) && !isnan(value[7]));
	g.energy_ev = 0;
	assert_int_equal(pixels_map(&g, PIXELS_TWO_THETA, value), 0);
	assert_int_equal(pixels_map(&g, PIXELS_RESOLUTION, value), -ENODATA);
	g.distance_metres = 0;
	assert_int_equal(pixels_map(&g, PIXELS_TWO_THETA, value), -ENODATA);
}

static void
shells(void **state)
{
	uint32_t first[4];

	one_panel();
	/* sin(theta) = 0.9998725 / 8, 2 theta = 0.25044, tan = 0.25582, x 1333.33 pixels */
	assert_int_equal(pixels_shells(&g, (double[]){50, 4, 2}, 3, first), 0);
	assert_int_equal(first[0], 27);
	assert_int_equal(first[1], 341);
	assert_int_equal(first[2], 738);
	assert_int_equal(pixels_shells(&g, (double[]){4, 4}, 2, first), -EINVAL);
	assert_int_equal(pixels_shells(&g, (double[]){4, 0}, 2, first), -EINVAL);
	assert_int_equal(pixels_shells(&g, (double[]){NAN}, 1, first), -EINVAL);
	assert_int_equal(pixels_shells(&g, (double[]){4, 0.7}, 2, first), -ERANGE);
	g.energy_ev = 0;
	assert_int_equal(pixels_shells(&g, (double[]){4}, 1, first), -ENODATA);
}

static struct layout
two_modules(double chip_gap)
{
	struct layout l = *layout_find("jungfrau");

	l.modules = 2;
	l.column_modules = 1;
	l.chip_gap = chip_gap;
	return l;
}

/* Two modules side by side. */
static void
layouts(void **state)
{
	struct layout l = two_modules(2);
	double width, height;

	layout_extent(&l, &width, &height);
	assert_true(width == 2 * 1030 + 8 && height == 514);
	assert_int_equal(layout_geometry(&g, &l, 100, 50.5), 0);
	assert_int_equal(g.nb_panels, 16);
	assert_int_equal(g.rows, 2 * ROWS);
	assert_int_equal(g.cols, COLS);
	assert_string_equal(g.panel[0].name, "m0c0");
	assert_true(g.panel[0].corner_x == -100 && g.panel[0].corner_y == 50.5);
	/* the last chip of module 1 */
	assert_string_equal(g.panel[15].name, "m1c7");
	assert_int_equal(g.panel[15].fs_min, 768);
	assert_int_equal(g.panel[15].ss_min, ROWS + 256);
	assert_true(g.panel[15].corner_x == 1038 + 3 * 258 - 100);
	assert_true(g.panel[15].corner_y == -(258 - 50.5));
	l.column_modules = 2;
	layout_extent(&l, &width, &height);
	assert_true(width == 1030 && height == 2 * 514 + 36);
	l.modules = 65;
	assert_int_equal(layout_geometry(&g, &l, 0, 0), -E2BIG);
	assert_null(layout_find("eiger"));
}

static void
pictures(void **state)
{
	struct layout l = two_modules(2);
	struct pixels_picture p;
	size_t used = 0;

	assert_int_equal(layout_geometry(&g, &l, 100.3, 50.7), 0);
	assert_int_equal(pixels_picture(&g, &p), 0);
	assert_int_equal(p.width, 2068);
	assert_int_equal(p.height, 514);
	assert_true(p.left == -100.3 && p.top == 50.7);
	pixels_place(&g, &p, at);
	assert_int_equal(at[0], 0);
	assert_int_equal(at[255], 255);
	assert_int_equal(at[256], 258);
	assert_int_equal(at[256 * COLS], 258 * 2068);
	assert_int_equal(at[ROWS * COLS], 1038);
	assert_int_equal(at[2 * ROWS * COLS - 1], 514 * 2068 - 1);
	/* pixels do not share a place, except where panels are turned */
	memset(value, 0, sizeof(value));
	for (size_t i = 0; i < 2 * ROWS * COLS; i++)
		used += at[i] < 514 * 2068;
	assert_int_equal(used, 2 * ROWS * COLS);
	/* a panel that is turned by 90 degrees and shifted by a third of a pixel */
	one_panel();
	g.panel[0].corner_x = 0.3;
	g.panel[0].corner_y = 0;
	g.panel[0].fs_x = 0;
	g.panel[0].fs_y = 1;
	g.panel[0].ss_x = 1;
	g.panel[0].ss_y = 0;
	assert_int_equal(pixels_picture(&g, &p), 0);
	assert_int_equal(p.width, ROWS);
	assert_int_equal(p.height, COLS);
	pixels_place(&g, &p, at);
	assert_int_equal(at[0], (COLS - 1) * ROWS);
	assert_int_equal(at[COLS - 1], 0);
	assert_int_equal(at[(ROWS - 1) * COLS], COLS * ROWS - 1);
	g.panel[0].fs_y = 10;
	g.panel[0].width = 4000;
	assert_int_equal(pixels_picture(&g, &p), -ERANGE);
}

/* Two modules of 514 x 1030 pixels that are one panel each, as in PSI's files. */
static void
gaps_are_removed(void **state)
{
	struct layout l = two_modules(2);
	const struct geometry_raster raster = gaps_raster(&l);
	struct geometry_bad *b;

	assert_int_equal(raster.rows, 2 * 514);
	assert_int_equal(raster.cols, 1030);
	assert_int_equal(raster.module_rows, 514);
	assert_int_equal(layout_geometry(&again, &l, 100.5, 50.25), 0);
	memset(&g, 0, sizeof(g));
	g.rows = raster.rows;
	g.cols = raster.cols;
	g.pixel_metres = l.pixel_metres;
	g.nb_panels = 2;
	for (uint32_t m = 0; m < 2; m++) {
		g.panel[m] = (struct geometry_panel){.ss_min = m * 514,
			.width = 1030,
			.height = 514,
			.corner_x = m * 1038.0 - 100.5,
			.corner_y = 50.25,
			.fs_x = 1,
			.ss_y = -1,
			.max_adu = INFINITY};
		snprintf(g.panel[m].name, GEOMETRY_NAME_LEN, "m%u", m);
	}
	g.nb_bad = 2;
	g.bad[0] = (struct geometry_bad){.name = "bad0", .min_x = -5, .max_x = 5};
	/* a column of a gap and the next two, in module 1 */
	g.bad[1] = (struct geometry_bad){.name = "bad1",
		.in_panel = true,
		.panel = 1,
		.min_x = 257,
		.max_x = 259,
		.min_y = 514 + 10,
		.max_y = 514 + 300};
	assert_int_equal(gaps_remove(&g, &l, message), 0);
	/* the same as computed from the layout, but for the names */
	assert_int_equal(g.nb_panels, 16);
	assert_string_equal(g.panel[15].name, "m1_c7");
	for (unsigned int i = 0; i < 16; i++)
		memcpy(again.panel[i].name, g.panel[i].name, GEOMETRY_NAME_LEN);
	assert_memory_equal(g.panel, again.panel, sizeof(g.panel));
	assert_int_equal(g.rows, 2 * ROWS);
	assert_int_equal(g.cols, COLS);
	assert_int_equal(g.nb_bad, 3);
	b = &g.bad[1];
	assert_int_equal(b->panel, 8 + 1);
	assert_true(b->min_x == 256 && b->max_x == 257);
	assert_true(b->min_y == 512 + 10 && b->max_y == 512 + 255);
	b = &g.bad[2];
	assert_int_equal(b->panel, 8 + 5);
	assert_true(b->min_y == 512 + 256 && b->max_y == 512 + 298);
	/* a panel with edges, and a tilted one */
	l.modules = 1;
	g.nb_panels = 1;
	g.nb_bad = 0;
	g.panel[0] = (struct geometry_panel){.name = "p", .width = 1030, .height = 514, .edge = 1};
	assert_int_equal(gaps_remove(&g, &l, message), -EINVAL);
	assert_non_null(strstr(message, "panel p: has pixels in gaps between chips"));
	g.nb_panels = 1;
	g.panel[0] = (struct geometry_panel){.name = "p", .width = 1030, .height = 514, .fs_z = 1};
	assert_int_equal(gaps_remove(&g, &l, message), 0);
	assert_true(fabs(g.panel[1].coffset_metres - 258 * 75e-6) < 1e-12);
}

static int
read_poni(const char *text, const struct geometry_raster *raster)
{
	return poni_read(&again, text, strlen(text), "x.poni", raster, message);
}

static void
write_poni(char **text)
{
	size_t size;
	FILE *f = open_memstream(text, &size);

	assert_non_null(f);
	assert_int_equal(poni_write(&g, f, message), 0);
	assert_int_equal(fclose(f), 0);
}

static void
poni_round_trip(void **state)
{
	struct layout l = two_modules(0);
	const struct geometry_raster raster = {.rows = ROWS, .cols = COLS};
	char *text;

	l.modules = 1;
	assert_int_equal(layout_geometry(&g, &l, 515.25, -20.5), 0);
	g.distance_metres = 0.1;
	g.energy_ev = GEOMETRY_HC / 0.9998725;
	write_poni(&text);
	assert_int_equal(read_poni(text, &raster), 0);
	assert_true(again.rows == ROWS && again.cols == COLS && again.pixel_metres == 75e-6);
	assert_true(again.distance_metres == 0.1);
	assert_true(fabs(again.energy_ev / g.energy_ev - 1) < 1e-14);
	assert_true(fabs(again.panel[0].corner_x - -515.25) < 1e-9);
	assert_true(fabs(again.panel[0].corner_y - -20.5) < 1e-9);
	assert_true(again.panel[0].fs_x == 1 && again.panel[0].fs_y == 0);
	assert_true(again.panel[0].ss_x == 0 && again.panel[0].ss_y == -1);
	assert_int_equal(read_poni(text, &(struct geometry_raster){.rows = 2 * ROWS, .cols = COLS}),
		-EINVAL);
	assert_non_null(strstr(message, "max_shape is [512, 1024], and the raster has 1024 rows"));
	free(text);
	/* a picture with gaps */
	l = two_modules(2);
	assert_int_equal(layout_geometry(&g, &l, 1, 2), 0);
	g.distance_metres = 0.1;
	g.energy_ev = 12000;
	write_poni(&text);
	assert_int_equal(read_poni(text, NULL), 0);
	assert_true(again.rows == 514 && again.cols == 2068);
	free(text);
}

static void
poni_refuses_to_write(void **state)
{
	struct geometry_panel *p = &g.panel[3];
	struct layout l = two_modules(2);
	const struct {
		double *what;
		double to;
		const char *why;
	} bad[] = {
		{&g.distance_metres, 0, "needs the distance"},
		{&g.energy_ev, 0, "needs the distance, the photon energy"},
		{&p->corner_x, 0.5, "panel m0c3: is turned, shifted by parts of a pixel"},
		{&p->coffset_metres, 1e-6, "panel m0c3: "},
		{&p->fs_y, 1e-4, "panel m0c3: "},
		{&p->ss_z, 1e-4, "panel m0c3: "},
		{&p->fs_x, -1, "panel m0c3: "},
	};
	FILE *f = fopen("/dev/null", "w");

	assert_non_null(f);
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(layout_geometry(&g, &l, 1, 2), 0);
		g.distance_metres = 0.1;
		g.energy_ev = 12000;
		assert_int_equal(poni_write(&g, f, message), 0);
		*bad[i].what = bad[i].to;
		assert_int_equal(poni_write(&g, f, message), -EINVAL);
		if (strstr(message, bad[i].why) == NULL)
			fail_msg("message is '%s', expected '%s'", message, bad[i].why);
	}
	fclose(f);
}

#define PONI                                                                               \
	"# Nota: C-Order, 1 refers to the Y axis, 2 to the X axis \nponi_version: 2\n"     \
	"Detector: Detector\nDetector_config: {\"pixel1\": 7.5e-05, \"pixel2\": 7.5e-05, " \
	"\"max_shape\": [512, 1024]}\nDistance: 0.1\nPoni1: 0.03\nPoni2: 0.06\n"

static void
poni_reads(void **state)
{
	const struct geometry_panel *p = &again.panel[0];

	/* without rotation and wavelength; the last set of values counts, as in pyFAI */
	assert_int_equal(read_poni(PONI "Wavelength: None\nDistance: 0.2\r\n", NULL), 0);
	assert_true(again.energy_ev == 0 && again.distance_metres == 0.2);
	assert_true(fabs(p->corner_x - -800) < 1e-9 && fabs(p->corner_y - 400) < 1e-9);
	/* Rot3 turns the picture around the beam */
	assert_int_equal(read_poni(PONI "Rot1: 0\nRot2: 0\nRot3: 1.5707963267948966\n", NULL), 0);
	assert_true(fabs(p->fs_x) < 1e-9 && fabs(p->fs_y - 1) < 1e-9);
	assert_true(fabs(p->ss_x - 1) < 1e-9 && fabs(p->ss_y) < 1e-9);
	/* Rot1 moves the detector along columns: the point of normal incidence stays at 0.1 m */
	assert_int_equal(read_poni(PONI "Rot1: 0.1\n", NULL), 0);
	assert_true(fabs(p->fs_x - cos(0.1)) < 1e-9 && fabs(p->fs_z - -sin(0.1)) < 1e-9);
	assert_true(fabs(p->corner_x - (0.1 * sin(0.1) - 0.06 * cos(0.1)) / 75e-6) < 1e-9);
	assert_true(fabs(p->coffset_metres - (0.1 * cos(0.1) + 0.06 * sin(0.1) - 0.1)) < 1e-12);
	assert_int_equal(read_poni("poni_version: 2.1\nDetector: Detector\nDetector_config: "
				   "{\"pixel1\": 1e-4, \"pixel2\": 1e-4, \"max_shape\": [4, 5], "
				   "\"orientation\": 3}\nDistance: 1\nPoni1: 0\nPoni2: 0\n",
				 NULL),
		0);
	assert_true(again.rows == 4 && again.cols == 5);
	/* no -0: a geometry that was written and read again has the same bytes */
	assert_int_equal(read_poni(PONI "Poni2: 0\nRot2: 0.2\n", NULL), 0);
	assert_true(p->corner_x == 0 && !signbit(p->corner_x) && !signbit(p->fs_z));
	/* blanks around keys, and any end of a line */
	assert_int_equal(read_poni(PONI " Distance : 0.3\rWavelength: 1e-10\r", NULL), 0);
	assert_true(again.distance_metres == 0.3 && fabs(again.energy_ev - 12398.4) < 0.1);
}

static void
poni_refuses(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "x.poni:1: Distance is missing"},
		{"hello\n", "x.poni:1: expected Key: value"},
		{"poni_version: 1\n", "x.poni:1: poni_version is '1', expected 2 or"},
		{"poni_version: 2.5\n", "x.poni:1: poni_version is '2.5', expected 2 or 2.1"},
		{"\xef\xbb\xbfponi_version: 2\n", "x.poni:1: byte 1 is 0xef, which is not"},
		{"PixelSize1: 1e-4\n", "x.poni:1: PixelSize1: is no key of a PONI file"},
		{PONI "Detector: Pilatus1M\n", "x.poni:8: Detector is Pilatus1M, expected"},
		{PONI "Distance: far\n", "x.poni:8: Distance: far: expected a number"},
		{PONI "Distance: nan\n", "x.poni:8: Distance is nan, expected 1e-06 ... 1000"},
		{PONI "Distance: 0\n", "x.poni:8: Distance is 0, expected 1e-06 ... 1000"},
		{PONI "Wavelength: 0\n", "x.poni:8: Wavelength is 0, expected 1.24e-13"},
		{PONI "Wavelength: 1e-15\n", "x.poni:8: Wavelength is 1e-15, expected"},
		{PONI "Distance: 1 m\n", "x.poni:8: Distance: 1 m: expected a number"},
		{PONI "Detector_config: {\"pixel1\": 1e-4}\n", "pixel1 is 0.0001 and pixel2 is"},
		{PONI "Detector_config: {\"max_shape\": 5}\n", "max_shape: expected [ROWS"},
		{PONI "Detector_config: {\"max_shape\": [5]}\n",
			"x.poni:8: max_shape: expected [R"},
		{PONI "Detector_config: {\"max_shape\": [5, 5, 5]}\n", "max_shape: expected [ROWS"},
		{PONI "Detector_config: {\"max_shape\": [5.5, 5]}\n", "max_shape: expected [ROWS"},
		{PONI "Detector_config: {\"max_shape\": [5, 1000000000]}\n", "max_shape is 1e+09"},
		{PONI "Detector_config: {\"orientation\": 1}\n", "orientation: expected 3"},
		{PONI "Detector_config: {\"orientation\": \"1\"}\n", "orientation: expected 3"},
		{PONI "Detector_config: {\"pixel1\": \"1e-4\"}\n", "pixel1: expected a number"},
		{PONI "Detector_config: {\"pixel1\": 1e-4m}\n", "x.poni:8: Detector_config: exp"},
		{PONI "Detector_config: {\"splineFile\": \"x\"}\n", "splineFile is not supported"},
		{PONI "Detector_config: {\"a\": {\"pixel1\": 1}}\n", "a is not supported"},
		{PONI "Detector_config: []\n", "x.poni:8: Detector_config: expected JSON"},
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		assert_int_equal(read_poni(bad[i].text, NULL), -EINVAL);
		if (strstr(message, bad[i].why) == NULL)
			fail_msg("message is '%s', expected '%s'", message, bad[i].why);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bins_by_hand),
		cmocka_unit_test(bins_masked),
		cmocka_unit_test(bins_as_oracle),
		cmocka_unit_test(maps),
		cmocka_unit_test(shells),
		cmocka_unit_test(layouts),
		cmocka_unit_test(pictures),
		cmocka_unit_test(gaps_are_removed),
		cmocka_unit_test(poni_round_trip),
		cmocka_unit_test(poni_refuses_to_write),
		cmocka_unit_test(poni_reads),
		cmocka_unit_test(poni_refuses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
