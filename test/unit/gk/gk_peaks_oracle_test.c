/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peaks of real and of hard frames, compared with lists that CrystFEL's library made, digit by
 * digit, and with lists that an independent program makes during the test (shared/oracles). Skipped
 * without these files.
 */

#include <sys/stat.h>
#include <unistd.h>

#include "gk_peak_rig.h"

#define PYTHON	   "/usr/bin/python3"
#define FRAMES_MAX 12

/* Frames and their settings. */
struct oracle {
	const char *list; /* of shared/oracles/peaks; NULL: made by pf8ref.py */
	const char *geom; /* below shared/oracles/peaks; "cases": the frames of cases.py */
	struct gk_peak_params params;
	uint32_t min_res, max_res;
	uint32_t frames;
	bool is_f32; /* frames are not rounded */
};

static const struct oracle lists[] = {
	{"mod5_round_one_thr10_snr5.csv", "mod5_one_panel.geom", {10, 5, 2, 200, 3, 1},
		.frames = 6},
	{"mod5_round_eight_thr10_snr5.csv", "mod5_eight_asics.geom", {10, 5, 2, 200, 3, 1},
		.frames = 6},
	{"mod5_float_one_thr10_snr5.csv", "mod5_one_panel.geom", {10, 5, 2, 200, 3, 1}, .frames = 6,
		.is_f32 = true},
	{"mod5_float_eight_thr6_snr4_pix1-30_bg4_res80-450.csv", "mod5_eight_asics.geom",
		{6, 4, 1, 30, 4, 1}, 80, 450, 6, true},
	{"cases_thr10_snr5.csv", "cases", {10, 5, 2, 200, 3, 1}, .frames = 12},
	{"cases_thr0_snr2_pix1-400_nosat.csv", "cases", {0, 2, 1, 400, 3, 0}, .frames = 12},
	{"cases_thr10_snr0_pix1_bg1.csv", "cases", {10, 0, 1, 200, 1, 1}, .frames = 12},
	{"cases_thr20_snr4_pix2-100_bg5_res30-200.csv", "cases", {20, 4, 2, 100, 5, 1}, 30, 200,
		12},
};

/* Settings for which no lists exist. */
static const struct oracle held_back[] = {
	{NULL, "mod5_one_panel.geom", {4, 3.5f, 1, 80, 2, 1}, 0, 0, 1},
	{NULL, "mod5_eight_asics.geom", {25, 7, 3, 500, 7, 0}, 100, 380, 1},
	{NULL, "mod5_eight_asics.geom", {-5, 1.25f, 1, 50, 0, 1}, 0, 90, 1},
	{NULL, "cases", {6, 3, 2, 150, 4, 1}, 0, 0, 12},
};

static char oracles[512], data[512], work[] = "/tmp/gk_peaks_oracle_XXXXXX";
static bool have_oracles, have_python;

static void
read_file(const char *path, void *to, size_t size)
{
	FILE *f = fopen(path, "rb");

	if (f == NULL || fread(to, 1, size, f) != size)
		fail_msg("%s: not readable, or shorter than %zu bytes", path, size);
	fclose(f);
}

static void
read_geom(struct peak_rig *r, const char *path, const struct oracle *o)
{
	FILE *f = fopen(path, "r");
	char line[512];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f) != NULL) {
		struct peak_rig_panel p = {.max_adu = INFINITY};

		if (line[0] != '#' &&
			sscanf(line, "%*s %u %u %u %u %lf %lf %lf %lf %lf %lf %f", &p.fs, &p.ss,
				&p.width, &p.height, &p.corner_x, &p.corner_y, &p.fs_x, &p.fs_y,
				&p.ss_x, &p.ss_y, &p.max_adu) >= 10)
			peak_rig_panel(r, &p, o->min_res, o->max_res);
	}
	fclose(f);
}

/* Paths of the files of an oracle. */
struct paths {
	char geom[640], mask[640], frames[FRAMES_MAX][640];
	uint32_t rows, cols;
	bool is_f32;
};

static void
find_paths(const struct oracle *o, struct paths *p)
{
	const bool cases = strcmp(o->geom, "cases") == 0;

	p->is_f32 = !cases;
	p->rows = cases ? 256 : 512;
	p->cols = cases ? 512 : 1024;
	if (cases) {
		snprintf(p->geom, sizeof(p->geom), "%s/cases.geom", work);
		snprintf(p->mask, sizeof(p->mask), "%s/cases.mask", work);
		snprintf(p->frames[0], sizeof(p->frames[0]), "%s/cases.i4", work);
		return;
	}
	snprintf(p->geom, sizeof(p->geom), "%s/peaks/%s", oracles, o->geom);
	snprintf(p->mask, sizeof(p->mask), "%s/peaks/mod5.mask", oracles);
	for (uint32_t i = 0; i < o->frames; i++)
		snprintf(
			p->frames[i], sizeof(p->frames[i]), "%s/jungfrau/mod5_conv%u.bin", data, i);
}

static void
open_rig(struct peak_rig *r, const struct oracle *o, const struct paths *p)
{
	uint8_t *mask;

	peak_rig_open(r, p->rows, p->cols);
	read_geom(r, p->geom, o);
	mask = malloc(r->pixels);
	assert_non_null(mask);
	read_file(p->mask, mask, r->pixels);
	for (uint64_t i = 0; i < r->pixels; i++)
		r->bin[i] |= mask[i] != 0 ? GK_PEAK_MASKED : 0;
	free(mask);
	peak_rig_ready(r);
}

static void
read_frame(struct peak_rig *r, const struct paths *p, uint32_t frame)
{
	if (p->is_f32) {
		read_file(p->frames[frame], r->image, r->pixels * sizeof(*r->image));
		for (uint64_t i = 0; i < r->pixels; i++)
			r->photons[i] = (int16_t)rintf(r->image[i]);
	} else {
		int32_t *all = malloc((frame + 1) * r->pixels * sizeof(*all));

		assert_non_null(all);
		read_file(p->frames[0], all, (frame + 1) * r->pixels * sizeof(*all));
		for (uint64_t i = 0; i < r->pixels; i++)
			r->photons[i] = (int16_t)all[frame * r->pixels + i];
		free(all);
	}
}

/* The list that pf8ref.py makes. */
static FILE *
run_reference(const struct oracle *o, const struct paths *p)
{
	char command[16384];
	size_t n;

	n = (size_t)snprintf(command, sizeof(command),
		PYTHON " '%s/pf8ref.py' --width %u --height %u --geom '%s' --mask '%s' "
		       "--threshold %.9g "
		       "--min-snr %.9g --min-pix %u --max-pix %u --bg-radius %u --min-res %u "
		       "--max-res %u%s %s",
		oracles, p->cols, p->rows, p->geom, p->mask, o->params.threshold, o->params.min_snr,
		o->params.min_pixels, o->params.max_pixels, o->params.bg_radius, o->min_res,
		o->max_res, o->params.saturated ? "" : " --no-saturated",
		p->is_f32 ? "--round" : "--dtype '<i4'");
	for (uint32_t i = 0; i < (p->is_f32 ? o->frames : 1); i++)
		n += (size_t)snprintf(command + n, sizeof(command) - n, " '%s'", p->frames[i]);
	return popen(command, "r");
}

/* Compare the frames with a list. @return peaks */
static uint32_t
compare(struct peak_rig *r, const struct oracle *o, const struct paths *p, FILE *list)
{
	char line[512], here[512];
	uint32_t total = 0;

	assert_non_null(fgets(line, sizeof(line), list));
	for (uint32_t frame = 0; frame < o->frames; frame++) {
		const struct gk_peaks *peaks;

		read_frame(r, p, frame);
		peaks = o->is_f32
			? peak_rig_check_f32(r, &o->params, o->list)
			: peak_rig_check(r, &o->params, o->list != NULL ? o->list : o->geom);
		for (uint32_t i = 0; i < peaks->count; i++) {
			const struct gk_peak *k = &peaks->peak[i];
			const int n = snprintf(here, sizeof(here), "%u,%u,%.9g,%.9g,%.9g", frame,
				k->panel, (double)k->fs + 0.5, (double)k->ss + 0.5,
				(double)k->intensity);

			if (o->list == NULL)
				snprintf(here + n, sizeof(here) - (size_t)n, ",%u", k->pixels);
			if (fgets(line, sizeof(line), list) == NULL)
				fail_msg("%s: ends before %s", o->geom, here);
			/* the reference has more columns */
			if (strncmp(line, here, strlen(here)) != 0 ||
				(line[strlen(here)] != '\n' && line[strlen(here)] != ','))
				fail_msg("%s: %s, expected %s", o->geom, here, line);
			total++;
		}
	}
	assert_null(fgets(line, sizeof(line), list));
	return total;
}

static void
need(const struct oracle *o)
{
	if (!have_oracles || (!have_python && (o->list == NULL || strcmp(o->geom, "cases") == 0))) {
		print_message("skipped: no %s\n",
			have_oracles ? "numpy for " PYTHON : "shared/oracles (BRAGGLINE_DATA)");
		skip();
	}
}

static void
crystfel_lists(void **state)
{
	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++) {
		const struct oracle *o = &lists[i];
		struct paths paths;
		struct peak_rig r;
		char path[640];
		FILE *list;

		need(o);
		find_paths(o, &paths);
		open_rig(&r, o, &paths);
		snprintf(path, sizeof(path), "%s/peaks/%s", oracles, o->list);
		list = fopen(path, "r");
		assert_non_null(list);
		print_message("%s: %u peaks are the same\n", o->list, compare(&r, o, &paths, list));
		fclose(list);
		peak_rig_close(&r);
	}
}

static void
held_back_lists(void **state)
{
	for (size_t i = 0; i < sizeof(held_back) / sizeof(held_back[0]); i++) {
		const struct oracle *o = &held_back[i];
		struct paths paths;
		struct peak_rig r;
		FILE *list;

		need(o);
		find_paths(o, &paths);
		open_rig(&r, o, &paths);
		list = run_reference(o, &paths);
		assert_non_null(list);
		print_message("%s, threshold %g: %u peaks are the same\n", o->geom,
			o->params.threshold, compare(&r, o, &paths, list));
		assert_int_equal(pclose(list), 0);
		peak_rig_close(&r);
	}
}

static int
set_up(void **state)
{
	const char *env = getenv("BRAGGLINE_DATA");
	char command[1200];
	struct stat st;

	if (env == NULL || mkdtemp(work) == NULL)
		return 0;
	snprintf(data, sizeof(data), "%s", env);
	snprintf(oracles, sizeof(oracles), "%s/../oracles", env);
	snprintf(command, sizeof(command), "%s/peaks/cases.py", oracles);
	have_oracles = stat(command, &st) == 0;
	snprintf(command, sizeof(command),
		PYTHON " -c 'import numpy' 2>/dev/null && " PYTHON " '%s/peaks/cases.py' %s",
		oracles, work);
	have_python = have_oracles && system(command) == 0;
	return 0;
}

static int
tear_down(void **state)
{
	char path[640];

	for (size_t i = 0; i < 3; i++) {
		static const char *const names[] = {"cases.i4", "cases.mask", "cases.geom"};

		snprintf(path, sizeof(path), "%s/%s", work, names[i]);
		unlink(path);
	}
	rmdir(work);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(crystfel_lists),
		cmocka_unit_test(held_back_lists),
	};

	return cmocka_run_group_tests(tests, set_up, tear_down);
}
