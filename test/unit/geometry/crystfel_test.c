/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests geometry files of CrystFEL: values, inheritance, regions, mistakes, and writing. */

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
#include "geometry/layout.h"

#define HEAD                                                                                   \
	"clen = 100 mm\nphoton_energy = 12.4 keV ; comment\nadu_per_photon = 2\nres = 10000\n" \
	"dim0 = %\ndim1 = ss\ndim2 = fs\n"
#define AREA(name, fs, ss)                                                                       \
	name "/min_fs = " #fs "0\n" name "/max_fs = " #fs "7\n" name "/min_ss = " #ss "0\n" name \
	     "/max_ss = " #ss "7\n"
#define PLACE(name) name "/corner_x = -3.5\n" name "/corner_y = 2\n"
#define STEPS(name) name "/fs = +1.0x +0.0y\n" name "/ss = +0.0x -1.0y\n"
#define GOOD	    HEAD AREA("a", 0, 0) PLACE("a") STEPS("a")

static struct geometry g, again;
static char message[GEOMETRY_MESSAGE_LEN];

static void
accept(const char *text)
{
	const int ret = crystfel_read(&g, text, strlen(text), "x.geom", NULL, message);

	if (ret != 0)
		print_error("%s\n", message);
	assert_int_equal(ret, 0);
	assert_string_equal(message, "");
}

static void
refused(const char *text, const char *why)
{
	assert_int_equal(crystfel_read(&g, text, strlen(text), "x.geom", NULL, message), -EINVAL);
	if (strstr(message, why) == NULL)
		fail_msg("message is '%s', expected '%s'", message, why);
}

static void
reads_values(void **state)
{
	const struct geometry_panel *p = &g.panel[0];

	accept(GOOD "a/coffset = 0.001\na/max_adu = 500\na/mask_edge_pixels = 1\na/no_index = 1\n");
	assert_int_equal(g.nb_panels, 1);
	assert_int_equal(g.rows, 8);
	assert_int_equal(g.cols, 8);
	assert_true(g.pixel_metres == 1e-4);
	assert_true(g.distance_metres == 0.1);
	assert_true(g.energy_ev == 12400);
	assert_string_equal(p->name, "a");
	assert_int_equal(p->fs_min, 0);
	assert_int_equal(p->width, 8);
	assert_int_equal(p->height, 8);
	assert_true(p->corner_x == -3.5 && p->corner_y == 2);
	assert_true(p->fs_x == 1 && p->fs_y == 0 && p->fs_z == 0);
	assert_true(p->ss_x == 0 && p->ss_y == -1 && p->ss_z == 0);
	assert_true(p->coffset_metres == 0.001);
	/* two units a photon */
	assert_true(p->max_adu == 250);
	assert_int_equal(p->edge, 1);
	assert_true(p->unused);
}

static void
reads_units(void **state)
{
	accept("wavelength = 1.5 A\nclen = 0.25\nres = 10000\nadu_per_eV = 1e-4\n" AREA("a", 0, 0)
			PLACE("a") STEPS("a"));
	assert_true(fabs(g.energy_ev - 8265.613229) < 1e-6);
	assert_true(g.distance_metres == 0.25);
	assert_true(isinf(g.panel[0].max_adu));
	accept("wavelength = 1.5e-10 m\nclen = 0.25 m\nres = 10000\nadu_per_photon = 1\n" AREA(
		"a", 0, 0) PLACE("a") STEPS("a"));
	assert_true(fabs(g.energy_ev - 8265.613229) < 1e-6);
	accept("photon_energy = 9000\nclen = 1 m\nres = 10000\nadu_per_eV = 0.001\nmax_adu = 90\n"
	       "detector_shift_x = 1 mm\ndetector_shift_y = -0.002 m\n" AREA("a", 0, 0) PLACE("a")
			STEPS("a"));
	assert_true(g.energy_ev == 9000);
	assert_true(fabs(g.panel[0].max_adu - 10) < 1e-9);
	assert_true(g.panel[0].corner_x == -3.5 + 10);
	assert_true(g.panel[0].corner_y == 2.0 - 20);
}

/* Distance and energy that are in data files are unknown. */
static void
reads_locations(void **state)
{
	accept("wavelength = /entry/instrument/beam/incident_wavelength A\n"
	       "clen = /entry/instrument/detector/distance m\n"
	       "res = 13333.333333\nadu_per_photon = 1\n" AREA("a", 0, 0) PLACE("a") STEPS("a"));
	assert_true(g.energy_ev == 0 && g.distance_metres == 0);
	/* of CrystFEL's ZeroMQ messages */
	accept("photon_energy = photon_energy eV\nclen = clen_mm mm\n"
	       "res = 13333.333333\nadu_per_photon = 1\n" AREA("a", 0, 0) PLACE("a") STEPS("a"));
	assert_true(g.energy_ev == 0 && g.distance_metres == 0);
}

/* A value applies to panels that are first named after it, and a panel may have its own. */
static void
defaults_apply_to_later_panels(void **state)
{
	accept(HEAD "fs = x\nss = -y\ncoffset = 0.5\nmax_adu = 20\n" AREA("a", 0, 0)
			PLACE("a") "b/coffset = 0.25\n"
				   "ss = +1.0y\nmax_adu = 40\ncoffset = 0.125\n"
				   "a/corner_y = 7\n" AREA("b", 1, 0) PLACE("b") AREA("c", 2, 0)
					   PLACE("c") "c/fs = -x +0.5z\n");
	assert_int_equal(g.nb_panels, 3);
	assert_true(g.panel[0].ss_y == -1 && g.panel[1].ss_y == -1 && g.panel[2].ss_y == 1);
	assert_true(g.panel[0].fs_x == 1 && g.panel[2].fs_x == -1 && g.panel[2].fs_z == 0.5);
	assert_true(g.panel[0].coffset_metres == 0.5);
	assert_true(g.panel[1].coffset_metres == 0.25);
	assert_true(g.panel[2].coffset_metres == 0.125);
	assert_true(g.panel[0].max_adu == 10 && g.panel[1].max_adu == 10);
	assert_true(g.panel[2].max_adu == 20);
	assert_true(g.panel[0].corner_y == 7 && g.panel[1].corner_y == 2);
}

static void
reads_directions(void **state)
{
	const struct {
		const char *text;
		double x, y, z;
	} good[] = {{"x", 1, 0, 0}, {"+x", 1, 0, 0}, {"-y+2z", 0, -1, 2}, {"1.0x \t+0.0y", 1, 0, 0},
		{"-.5x - 0.25y + 1 z", -.5, -.25, 1}, {"+0.5x +0.5x", 1, 0, 0}};
	const char *const bad[] = {
		"", "1", "+", "1.0x 1.0y", "1e-3x", "q", "1..0x", "11x", "0x", "nanx"};
	char text[2048];

	for (unsigned int i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(text, sizeof(text), "%sa/ss = 0.1x +0.2y +0.3z\na/fs = %s\n",
			HEAD AREA("a", 0, 0) PLACE("a"), good[i].text);
		accept(text);
		assert_true(g.panel[0].fs_x == good[i].x && g.panel[0].fs_y == good[i].y &&
			g.panel[0].fs_z == good[i].z);
	}
	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "%sa/ss = y\na/fs = %s\n",
			HEAD AREA("a", 0, 0) PLACE("a"), bad[i]);
		refused(text, "x.geom:15: panel a: fs = ");
	}
}

static void
reads_regions(void **state)
{
	accept(GOOD "bad_beam/min_x = -2\nbad_beam/max_x = 2\nbad_beam/min_y = -1\n"
		    "bad_beam/max_y = 1.5\nbadpix/min_fs = 3\nbadpix/max_fs = 3\n"
		    "badpix/min_ss = 1\nbadpix/max_ss = 7\nbadpix/panel = a\n");
	assert_int_equal(g.nb_bad, 2);
	assert_string_equal(g.bad[0].name, "bad_beam");
	assert_false(g.bad[0].in_panel);
	assert_true(g.bad[0].min_x == -2 && g.bad[0].max_y == 1.5);
	assert_true(g.bad[1].in_panel);
	assert_int_equal(g.bad[1].panel, 0);
	assert_true(g.bad[1].min_x == 3 && g.bad[1].max_y == 7);
	/* with a single panel its name may be missing */
	accept(GOOD "badpix/min_fs = 3\nbadpix/max_fs = 3\nbadpix/min_ss = 1\nbadpix/max_ss = 7\n");
}

/* Keys that change no position. */
static void
irrelevant_keys_are_ignored(void **state)
{
	accept("data = /entry/data/data\nmask0_data = /mask\nmask0_goodbits = 0x0\n"
	       "mask0_badbits = 0xffff\nmask = /m\nmask_file = m.h5\nflag_lessthan = -5\n"
	       "flag_morethan = 1e6\nflag_equal = 0\npeak_list = /entry/peaks\n"
	       "peak_list_type = cxi\nbandwidth = 0.001\nsaturation_map = /s\n"
	       "\trigid_group_q0 = a\nrigid_group_collection_all = q0\r\n\r"
	       "group_all = a\n; only a comment\n \t \n" GOOD "a/dim0 = %\na/flag_equal = 3");
	assert_int_equal(g.nb_panels, 1);
}

static void
places_modules(void **state)
{
	const struct geometry_raster raster = {.rows = 24, .cols = 8, .module_rows = 8};
	const char *text =
		"clen = 0.1 m\nphoton_energy = 9000\nadu_per_photon = 1\nres = 10000\n"
		"dim0 = %\ndim2 = ss\ndim3 = fs\n" AREA("a", 0, 0) PLACE("a") STEPS(
			"a") "a/dim1 = 2\n" AREA("b", 0, 0) PLACE("b")
			STEPS("b") "b/dim1 = 0\nbad0/panel = a\nbad0/min_fs = 0\nbad0/max_fs = 1\n"
				   "bad0/min_ss = 2\nbad0/max_ss = 3\n";

	assert_int_equal(crystfel_read(&g, text, strlen(text), "x", &raster, message), 0);
	assert_int_equal(g.panel[0].ss_min, 16);
	assert_int_equal(g.panel[1].ss_min, 0);
	assert_int_equal(g.rows, 24);
	assert_true(g.bad[0].min_y == 18 && g.bad[0].max_y == 19);
	refused(text, "x.geom:8: panel a: dim1 = 2: an index of modules is not supported");
	/* the raster is smaller */
	assert_int_equal(crystfel_read(&g, text, strlen(text), "x",
				 &(struct geometry_raster){16, 8, 8}, message),
		-EINVAL);
	assert_non_null(strstr(message,
		"x:8: panel a: columns 0 ... 7 and rows 16 ... 23 are not "
		"in the raster of 16 rows x 8 columns"));
}

static void
mistakes_are_reported(void **state)
{
	static const struct {
		const char *text, *why;
	} bad[] = {
		{"", "x.geom:1: the file has no panel"},
		{"hello\n", "x.geom:1: expected key = value"},
		{"a/b/c = 1\n", "x.geom:1: panel a: b/c: is no key"},
		{"/min_fs = 1\n", "x.geom:1: the name of a panel has 0 bytes"},
		{"cofset = 1\n" GOOD, "x.geom:1: cofset: is no key of CrystFEL 0.12"},
		{"a123456789012345678901234567890123/min_fs = 1\n", "the name of a panel has 34"},
		{GOOD "a/min_fs = one\n", "x.geom:16: panel a: min_fs = one: expected a number"},
		{GOOD "a/min_fs = -1\n", "x.geom:16: panel a: min_fs = -1: expected a number, 0"},
		{GOOD "a/min_fs = 0.5\n", "x.geom:8: panel a: fs 0.5 ... 7"},
		{GOOD "a/min_fs = 9\n", "x.geom:8: panel a: fs 9 ... 7"},
		{GOOD "a/corner_x = nan\n", "panel a: corner_x = nan: expected a number"},
		{GOOD "a/corner_x = 1e9\n", "panel a: corner_x = 1e9: expected a number"},
		{GOOD "a/res = 0\n", "panel a: res = 0: expected a number, 1"},
		{GOOD "a/clen = 0.1\n", "panel a: clen: is the same for all panels"},
		{GOOD "a/fs = -2.0y\n", "x.geom:8: panel a: fs and ss have the same direction"},
		{GOOD "a/dim9 = 1\n", "x.geom:16: panel a: dim9: expected dim0 ... dim7"},
		{GOOD "a/dim1 = %\n", "x.geom:8: panel a: dim: expected a dimension ss"},
		{GOOD "a/dim3 = ss\n", "x.geom:8: panel a: dim1 and dim3 are both ss"},
		{GOOD "a/dim1 = fs\n", "x.geom:8: panel a: dim1 and dim2 are both fs"},
		{GOOD "a/dim4 = 1\n", "x.geom:8: panel a: dim3 is missing"},
		{GOOD "a/no_index = maybe\n", "panel a: no_index = maybe: expected true, false"},
		{GOOD "a/no_index = nan\n", "panel a: no_index = nan: expected true, false"},
		{GOOD "a/mask_edge_pixels = 0.5\n", "mask_edge_pixels = 0.5: expected a whole"},
		{GOOD "a/coffset = -0.1\n", "x.geom:8: panel a: the sample is in its plane"},
		{GOOD "p 0/fs = x\n", "x.geom:16: 'p 0': the name of a panel has a blank"},
		{GOOD "p,0/fs = x\n", "x.geom:16: 'p,0': the name of a panel has a blank"},
		{GOOD " = 1\n", "x.geom:16: expected key = value"},
		{"res = 1e9\nclen = 1\nphoton_energy = 1e4\nadu_per_photon = 1\n"
		 "detector_shift_x = 9 m\n" AREA("a", 0, 0) PLACE("a") STEPS("a"),
			"x.geom:6: panel a: with detector_shift, its corner is 9e+09, 2"},
		{GOOD "a/dim3 = 1\na/dim4 = 2\n", "dim3 and dim4 are both indices"},
		{GOOD "a/dim3 = many\n", "panel a: dim3 = many: expected %, ss, fs or an index"},
		{GOOD "res = 5\n", "x.geom:16: has no effect"},
		{GOOD "wavelength = 1 A\n", "wavelength: a second photon energy or wavelength"},
		{"wavelength = 1\n", "x.geom:1: wavelength: the unit is '', expected A or m"},
		{"wavelength = 0 A\n", "x.geom:1: wavelength: the energy is inf eV"},
		{"photon_energy = 9 MeV\n", "x.geom:1: photon_energy: the unit is 'MeV'"},
		{"photon_energy = 0\n", "x.geom:1: photon_energy: the energy is 0 eV"},
		{"photon_energy = +-1\n", "x.geom:1: photon_energy = +-1: expected a number"},
		{"photon_energy = nan\n", "x.geom:1: photon_energy = nan: expected a number"},
		{"photon_energy = /e furlong\n", "x.geom:1: photon_energy: the unit is 'furlong'"},
		{"wavelength = inf A\n", "x.geom:1: wavelength = inf: expected a number"},
		{"wavelength = /w nm\n", "x.geom:1: wavelength: the unit is 'nm'"},
		{"electron_voltage = 200 kV\n", "x.geom:1: electron_voltage: expected photons"},
		{"clen = 10 cm\n", "x.geom:1: clen: the unit is cm, expected m or mm"},
		{"clen = nan\n", "x.geom:1: clen = nan: expected a length with its unit"},
		{"clen = /z cm\n", "x.geom:1: clen: the unit is cm, expected m or mm"},
		{"clen = -1 m\n", "x.geom:1: clen is -1 m, expected 1e-06 ... 1000 m"},
		{"clen = 0,1 m\n", "x.geom:1: clen = 0,1: expected a length with its unit"},
		{"detector_shift_x = /LCLS/x m\n",
			"x.geom:1: detector_shift_x = /LCLS/x: a shift "
			"for each frame is not supported"},
		{GOOD "b/fs = x\n", "x.geom:16: panel b: min_fs is missing"},
		{GOOD AREA("b", 0, 0) PLACE("b") STEPS("b"),
			"x.geom:16: panel b: has pixels of "
			"panel a"},
		{GOOD AREA("b", 1, 0) PLACE("b") STEPS("b") "b/res = 5000\n",
			"x.geom:16: panel b: res = 5000, and 10000 for panel a"},
		{GOOD AREA("b", 1, 0) PLACE("b") STEPS("b") "b/data = /b\n",
			"x.geom:16: panel b: data = /b, and  for panel a"},
		{GOOD "bad/x = 1\n", "x.geom:16: region bad: x: expected min_x"},
		{GOOD "bad/min_x = 1\nbad/max_fs = 1\n",
			"x.geom:17: region bad: max_fs: expected "
			"either x and y, or fs and ss"},
		{GOOD "bad/min_x = 1\n", "x.geom:16: region bad: expected four limits"},
		{GOOD "bad/min_x = b\n", "x.geom:16: region bad: min_x = b: expected a number"},
		{GOOD "bad/min_x = 1\nbad/max_x = 0\nbad/min_y = 1\nbad/max_y = 2\n",
			"region bad: a minimum is above its maximum"},
		{GOOD "bad/min_fs = 1\nbad/max_fs = 8\nbad/min_ss = 1\nbad/max_ss = 2\n",
			"x.geom:16: region bad: is not in panel a, which has fs 0 ... 7"},
		{GOOD "bad/min_fs = 1\nbad/max_fs = 2\nbad/min_ss = 1\nbad/max_ss = 2\n"
		      "bad/panel = c\n",
			"x.geom:16: region bad: there is no panel c"},
		{GOOD "bad/min_fs = 0.5\n", "region bad: min_fs = 0.5: expected a whole number"},
		{GOOD "bad/min_x = 1\nbad/max_x = 2\nbad/min_y = 1\nbad/max_y = 2\n"
		      "bad/panel = a\n",
			"x.geom:16: region bad: panel = a, but a region in x and y is in all"},
		{"res\xc3\xa9 = 1\n", "x.geom:1: byte 4 is 0xc3, which is not printable ASCII"},
		{"\xef\xbb\xbfres = 1\n", "x.geom:1: byte 1 is 0xef, which is not printable"},
		{"clen = 1 m\n" AREA("a", 0, 0),
			"x.geom:5: photon_energy or wavelength is missing"},
		{"photon_energy = 1e4 \n" AREA("a", 0, 0), "x.geom:5: clen is missing"},
		{"photon_energy = /e eV\nclen = 1\nres = 1e4\nadu_per_eV = 1\nmax_adu = 5\n" AREA(
			 "a", 0, 0) PLACE("a") STEPS("a"),
			"x.geom:6: panel a: max_adu with adu_per_eV"},
	};

	for (unsigned int i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		refused(bad[i].text, bad[i].why);
	assert_int_equal(crystfel_read(&g, "a\0b", 3, "x", NULL, message), -EINVAL);
	assert_string_equal(message, "x:1: has a zero byte, expected text");
}

/* One more panel or region than there is room for. */
static void
is_bounded(void **state)
{
	char *text = malloc(64 * (GEOMETRY_PANELS_MAX + 1)), *end = text;

	assert_non_null(text);
	for (unsigned int i = 0; i <= GEOMETRY_PANELS_MAX; i++)
		end += sprintf(end, "p%u/min_fs = 1\n", i);
	refused(text, "x.geom:513: panel p512: more than 512 panels");
	end = text;
	for (unsigned int i = 0; i <= GEOMETRY_BAD_MAX; i++)
		end += sprintf(end, "bad%u/min_fs = 1\n", i);
	refused(text, "x.geom:257: region bad256: more than 256 bad regions");
	free(text);
}

static void
round_trip(void)
{
	char *text = geometry_text(&g);
	int ret;

	assert_non_null(text);
	ret = crystfel_read(&again, text, strlen(text), "again", NULL, message);
	if (ret != 0)
		print_error("%s\n%s", message, text);
	assert_int_equal(ret, 0);
	assert_memory_equal(&again, &g, sizeof(g));
	free(text);
}

static void
writes(void **state)
{
	struct layout l = *layout_find("jungfrau");

	accept(GOOD
		"a/coffset = -1e-7\na/max_adu = 0.3\na/mask_edge_pixels = 2\na/no_index = true\n"
		"a/fs = +0.9999820000540001x -0.0059999640000648y +0.001z\n"
		"bad_a/min_x = -0.1\nbad_a/max_x = 0.3\nbad_a/min_y = -1e5\nbad_a/max_y = 3\n"
		"bad_b/min_fs = 1\nbad_b/max_fs = 2\nbad_b/min_ss = 0\nbad_b/max_ss = 0\n");
	round_trip();
	accept("photon_energy = /e eV\nclen = /c m\nadu_per_photon = 1\nres = 13333.333\n" AREA(
		"a", 0, 0) PLACE("a") STEPS("a"));
	round_trip();
	/* modules of eight chips, and modules of one panel */
	l.modules = 8;
	l.column_modules = 4;
	assert_int_equal(layout_geometry(&g, &l, 1033.55, 1082.3), 0);
	g.distance_metres = 0.1;
	g.energy_ev = GEOMETRY_HC / 0.9998725;
	round_trip();
	assert_int_equal(g.nb_panels, 64);
	l.chip_gap = 0;
	assert_int_equal(layout_geometry(&g, &l, 1033.5, 1082.3), 0);
	round_trip();
	assert_int_equal(g.nb_panels, 8);
}

/* Files with and without errors, by name. */
static void
opens_files(void **state)
{
	char dir[] = "/dev/shm/braggline-geometry-XXXXXX", path[64], other[64];
	FILE *f;

	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/a.geom", dir);
	snprintf(other, sizeof(other), "%s/a.txt", dir);
	assert_int_equal(geometry_file_read(&g, other, NULL, message), -EINVAL);
	assert_non_null(strstr(message, "a.txt: the name of a geometry ends with .geom"));
	assert_int_equal(geometry_file_read(&g, path, NULL, message), -ENOENT);
	assert_non_null(strstr(message, "cannot read "));
	accept(GOOD);
	assert_int_equal(geometry_file_write(&g, path, message), 0);
	assert_int_equal(geometry_file_read(&again, path, NULL, message), 0);
	/* the file is for int16 photons, where 32767 is saturated */
	assert_true(isinf(g.panel[0].max_adu) && again.panel[0].max_adu == INT16_MAX - 1);
	for (uint32_t i = 0; i < g.nb_panels; i++)
		g.panel[i].max_adu = INT16_MAX - 1;
	assert_memory_equal(&again, &g, sizeof(g));
	assert_int_equal(geometry_file_write(&g, other, message), -EINVAL);
	f = fopen(path, "a");
	assert_non_null(f);
	for (size_t i = 0; i < GEOMETRY_FILE_MAX; i += 8)
		assert_int_equal(fwrite(";234567\n", 1, 8, f), 8);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(geometry_file_read(&again, path, NULL, message), -EFBIG);
	unlink(path);
	rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_values),
		cmocka_unit_test(reads_units),
		cmocka_unit_test(reads_locations),
		cmocka_unit_test(defaults_apply_to_later_panels),
		cmocka_unit_test(reads_directions),
		cmocka_unit_test(reads_regions),
		cmocka_unit_test(irrelevant_keys_are_ignored),
		cmocka_unit_test(places_modules),
		cmocka_unit_test(mistakes_are_reported),
		cmocka_unit_test(is_bounded),
		cmocka_unit_test(writes),
		cmocka_unit_test(opens_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
