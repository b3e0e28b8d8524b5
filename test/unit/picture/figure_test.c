/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests figures of images: ticks, colours, rings, and the pixels of files that are read back. */

#include <errno.h>
#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "geometry/layout.h"
#include "geometry/pixels.h"
#include "picture/colours.h"
#include "picture/figure.h"
#include "picture_file.h"

#define RING 0x7CF0B8u
#define MARK 0x40E0FFu
#define TEXT 0x202020u

static char dir[64];

static struct geometry g;

/* One module, the beam in its middle, 86 mm away: the corners are at 2.2 angstrom. */
static void
one_module(void)
{
	struct layout l = *layout_find("jungfrau");

	l.modules = l.column_modules = 1;
	assert_int_equal(layout_geometry(&g, &l, 515, 257), 0);
	g.distance_metres = 0.0863346;
	g.energy_ev = 12400;
}

static void
chooses_rings(void **state)
{
	struct rings r;

	one_module();
	rings_choose(&r, &g, hypot(515, 257), 50);
	assert_true(r.nb >= 3 && r.nb <= RINGS_MAX);
	assert_true(r.d[0] == 2.5);
	for (unsigned int i = 0; i < r.nb; i++) {
		assert_true(r.radius[i] == pixels_radius_of(&g, r.d[i]));
		assert_true(r.radius[i] >= 50 && r.radius[i] < hypot(515, 257));
		if (i > 0)
			assert_true(r.radius[i] <= r.radius[i - 1] - 50 && r.d[i] > r.d[i - 1]);
	}
	g.energy_ev = 0;
	rings_choose(&r, &g, hypot(515, 257), 50);
	assert_int_equal(r.nb, 0);
}

/* Ticks are rising multiples of a round step, within the range, whatever its size. */
static void
chooses_ticks(void **state)
{
	static const double range[][2] = {{0, 100}, {0, 1}, {3, 3}, {-5, 17}, {0.001, 0.002},
		{1e19, 1.8e19}, {1.8e19, 1.8e19}, {9007199254740993.0, 9007199254740995.0},
		{0, 1e300}, {0, DBL_MIN}, {7, 2}};
	struct ticks t;

	for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++) {
		for (unsigned int most = 1; most <= TICKS_MAX; most += 5) {
			ticks_choose(&t, range[i][0], range[i][1], most, i % 2);
			assert_true(t.nb <= most);
			for (unsigned int k = 0; k < t.nb; k++) {
				assert_true(t.value[k] >= range[i][0]);
				assert_true(k == 0 || t.value[k] > t.value[k - 1]);
				assert_true(k == 0 || t.value[k] <= range[i][1]);
			}
		}
	}
	ticks_choose(&t, 0, 100, 5, 0);
	assert_int_equal(t.nb, 5);
	assert_true(t.value[1] == 20 || t.value[1] == 50 || t.value[4] == 80);
	ticks_choose(&t, 0, 3, 10, 1);
	assert_int_equal(t.nb, 4);
}

static void
writes_ticks(void **state)
{
	static const struct {
		double value;
		const char *text;
	} cases[] = {{0, "0"}, {-5, "-5"}, {0.25, "0.25"}, {1000000, "1000000"}, {1e15, "1e15"},
		{1.5e38, "1.5e38"}, {1e300, "1e300"}, {2e-7, "2e-07"}};
	char text[TICKS_TEXT_LEN];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		ticks_text(text, cases[i].value);
		assert_string_equal(text, cases[i].text);
	}
}

/* The scale rises in lightness up to a limit that hot pixels do not change. */
static void
colours_values(void **state)
{
	static const float tops[] = {1, 2, 9.5f, 1000, 65535, 1e12f, FLT_MAX};
	float cells[4000];
	struct ticks t;
	int before = -1;

	for (int i = 0; i <= 1000; i++) {
		const uint32_t c = colours_at(i / 1000.0);
		const int light = 2 * (c >> 16 & 255) + 5 * (c >> 8 & 255) + (c & 255);

		assert_true(light >= before - 60);
		assert_true(
			c != COLOURS_NO_VALUE && c != COLOURS_SATURATED && c != COLOURS_NO_SENSOR);
		before = light;
	}
	assert_int_equal(colours_of(NAN, 5), COLOURS_NO_VALUE);
	assert_int_equal(colours_of(INFINITY, 5), COLOURS_SATURATED);
	assert_int_equal(colours_of(-INFINITY, 5), colours_at(0));
	assert_int_equal(colours_of(-3, 5), colours_at(0));
	assert_int_equal(colours_of(0, 5), colours_at(0));
	assert_int_equal(colours_of(5, 5), colours_at(1));
	assert_int_equal(colours_of(FLT_MAX, 5), colours_at(1));
	for (size_t i = 0; i < sizeof(cells) / sizeof(cells[0]); i++)
		cells[i] = i % 2 ? 30 : NAN;
	assert_true(colours_top(cells, 4000) == 30);
	cells[77] = 1e30f;
	cells[99] = 2e30f;
	cells[101] = INFINITY;
	assert_true(colours_top(cells, 4000) == 1e30f || colours_top(cells, 4000) == 30);
	assert_true(colours_top(cells, 70) == 30);
	cells[0] = -1;
	assert_true(colours_top(cells, 1) == 1);
	for (size_t i = 0; i < sizeof(tops) / sizeof(tops[0]); i++) {
		colours_ticks(&t, tops[i], 0.06);
		assert_true(t.nb >= 2 && t.nb <= TICKS_MAX && t.value[0] == 0);
		for (unsigned int k = 1; k < t.nb; k++)
			assert_true(t.value[k] <= tops[i] &&
				colours_place(t.value[k], tops[i]) -
						colours_place(t.value[k - 1], tops[i]) >=
					0.06);
	}
}

static const char *
path_of(const char *name)
{
	static char path[2][128];
	static int which;

	which = !which;
	snprintf(path[which], sizeof(path[0]), "%s/%s", dir, name);
	return path[which];
}

/* Draw images and read the file back. */
static struct figure_place
draw(const struct panels *p, const float *cells, unsigned int nb, struct picture_file *file)
{
	struct figure_place at;
	struct figure *f;

	assert_int_equal(figure_create(&f, DRAWING_PNG, p, nb, false), 0);
	for (unsigned int i = 0; i < nb; i++)
		figure_draw(f, i, "title", "photons", cells);
	at = figure_place(f, nb - 1);
	assert_int_equal(
		figure_save(f, path_of("x.png"), nb % 2 ? DRAWING_SMALL : DRAWING_FAST), 0);
	figure_free(f);
	picture_file_read(path_of("x.png"), file);
	return at;
}

/* Dot of an image. */
static uint32_t
dot(const struct picture_file *file, struct figure_place at, int x, int y)
{
	return file->dot[(size_t)(at.y + y) * file->width + at.x + x];
}

/* Every cell is a square of the colour of its value. */
static void
keeps_pixels(void **state)
{
	static const struct {
		uint32_t rows, cols;
		int zoom;
	} sizes[] = {{1, 1, 16}, {8, 16, 16}, {50, 20, 16}, {200, 100, 4}, {256, 512, 1},
		{401, 300, 1}, {1100, 900, 1}, {2204, 100, 1}};

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		unsigned int wrong = 0;
		struct picture_file file;
		struct figure_place at;
		struct panels p;
		float *cells, top;

		assert_int_equal(panels_init(&p, sizes[i].rows, sizes[i].cols, NULL), 0);
		cells = malloc(panels_cells(&p) * sizeof(*cells));
		assert_non_null(cells);
		for (size_t k = 0; k < panels_cells(&p); k++)
			cells[k] = k % 7 == 3 ? NAN
				: k % 11 == 5 ? INFINITY
				: k % 13 == 6 ? -FLT_MAX
					      : (float)(k * 2654435761u % 3000) / 10;
		at = draw(&p, cells, 2, &file);
		top = colours_top(cells, panels_cells(&p));
		assert_int_equal(at.zoom, sizes[i].zoom);
		assert_true(at.x + p.width * at.zoom < file.width);
		assert_true(at.y + p.height * at.zoom < file.height);
		for (uint32_t y = 0; y < p.height * at.zoom; y++) {
			for (uint32_t x = 0; x < p.width * at.zoom; x++) {
				const float v = cells[y / at.zoom * p.width + x / at.zoom];

				wrong += dot(&file, at, x, y) != colours_of(v, top);
			}
		}
		assert_int_equal(wrong, 0);
		/* the frame is around the image */
		assert_int_equal(file.dot[(size_t)at.y * file.width + at.x - 1], TEXT);
		assert_int_equal(
			file.dot[(size_t)at.y * file.width + at.x + p.width * at.zoom], TEXT);
		assert_int_equal(file.dot[(size_t)(at.y - 1) * file.width + at.x], TEXT);
		free(file.dot);
		free(cells);
		panels_free(&p);
	}
}

/* A cell of a large raster is the maximum of its pixels. */
static void
shrinks_pixels(void **state)
{
	float *plane = calloc(2200 * 1000, sizeof(*plane)), *cells;
	struct picture_file file;
	struct figure_place at;
	struct panels p;

	assert_non_null(plane);
	assert_int_equal(panels_init(&p, 2200, 1000, NULL), 0);
	assert_int_equal(p.by, 2);
	cells = malloc(panels_cells(&p) * sizeof(*cells));
	assert_non_null(cells);
	plane[1000 * 10 + 20] = NAN; /* beside values */
	plane[1000 * 10 + 21] = 5;
	for (int i = 0; i < 4; i++)
		plane[1000 * (30 + i / 2) + 40 + i % 2] = NAN;
	plane[1000 * 2199 + 999] = INFINITY;
	plane[1000 * 2198 + 999] = 3;
	panels_shrink(&p, plane, cells);
	at = draw(&p, cells, 1, &file);
	assert_int_equal(dot(&file, at, 10, 5), colours_at(1));
	assert_int_equal(dot(&file, at, 11, 5), colours_at(0));
	assert_int_equal(dot(&file, at, 20, 15), COLOURS_NO_VALUE);
	assert_int_equal(dot(&file, at, 499, 1099), COLOURS_SATURATED);
	assert_int_equal(dot(&file, at, 499, 1098), colours_at(0));
	free(file.dot);
	free(cells);
	free(plane);
	panels_free(&p);
}

/* An image without any value has a scale and a legend. */
static void
draws_no_values(void **state)
{
	struct picture_file file;
	struct panels p;
	float cells[128];

	for (int i = 0; i < 128; i++)
		cells[i] = NAN;
	assert_int_equal(panels_init(&p, 8, 16, NULL), 0);
	draw(&p, cells, 1, &file);
	/* the image, and its square in the legend */
	assert_true(picture_file_count(&file, COLOURS_NO_VALUE) > 128 * 16 * 16);
	assert_int_equal(picture_file_count(&file, COLOURS_NO_SENSOR), 0);
	free(file.dot);
}

/* Each ring's dots are at its radius; gaps between panels have no sensor. */
static void
draws_rings(void **state)
{
	struct picture_file file;
	struct figure_place at;
	struct panels p;
	unsigned int dots = 0;
	float *cells;

	one_module();
	assert_int_equal(panels_init(&p, 512, 1024, &g), 0);
	assert_int_equal(p.by, 1);
	assert_int_equal(p.width, 1030);
	assert_int_equal(p.height, 514);
	cells = calloc(panels_cells(&p), sizeof(*cells));
	assert_non_null(cells);
	at = draw(&p, cells, 1, &file);
	/* only the lower right quarter, which has no labels and not the mark of the beam */
	for (int y = 300; y < 514; y++) {
		for (int x = 560; x < 1030; x++) {
			const uint32_t c = dot(&file, at, x, y);
			double off = INFINITY;

			if (c != RING) {
				assert_int_equal(c,
					x == 772 || x == 773 ? COLOURS_NO_SENSOR : colours_at(0));
				continue;
			}
			dots++;
			for (unsigned int i = 0; i < p.rings.nb; i++)
				off = fmin(off,
					fabs(hypot(x + .5 - 515, y + .5 - 257) -
						p.rings.radius[i]));
			assert_true(off < 1.2);
		}
	}
	assert_true(dots > 500);
	/* the beam */
	assert_true(dot(&file, at, 514, 250) == RING || dot(&file, at, 515, 250) == RING);
	free(file.dot);
	/* without a geometry there are none */
	panels_free(&p);
	assert_int_equal(panels_init(&p, 512, 1024, NULL), 0);
	assert_int_equal(p.rings.nb, 0);
	draw(&p, cells, 1, &file);
	assert_int_equal(picture_file_count(&file, RING), 0);
	assert_int_equal(picture_file_count(&file, COLOURS_NO_SENSOR), 0);
	free(file.dot);
	panels_free(&p);
	free(cells);
}

/* A circle is around the place of its pixel, and nothing is drawn for pixels without a place. */
static void
marks_pixels(void **state)
{
	static const double wrong[][2] = {
		{-1, 5}, {512, 5}, {5, -0.6}, {5, 1024}, {NAN, 5}, {5, INFINITY}, {1e30, 1e30}};
	float *cells = calloc(1030 * 514, sizeof(*cells));

	assert_non_null(cells);
	one_module();
	for (int place = 0; place < 2; place++) {
		unsigned int before = 0, dots = 0;
		struct picture_file file;
		struct figure_place at;
		struct figure *f;
		struct panels p;

		assert_int_equal(panels_init(&p, 512, 1024, place ? &g : NULL), 0);
		assert_int_equal(figure_create(&f, DRAWING_PNG, &p, 2, true), 0);
		figure_draw(f, 1, "", "", cells);
		for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
			figure_mark(f, 1, wrong[i][0], wrong[i][1]);
		assert_int_equal(figure_save(f, path_of("x.png"), DRAWING_SMALL), 0);
		picture_file_read(path_of("x.png"), &file);
		before = picture_file_count(&file, MARK);
		assert_true(before > 0); /* the legend */
		free(file.dot);
		figure_mark(f, 1, 300.2, 699.9);
		assert_int_equal(figure_save(f, path_of("x.png"), DRAWING_SMALL), 0);
		picture_file_read(path_of("x.png"), &file);
		at = figure_place(f, 1);
		/* two gaps of columns and one of rows are before the pixel */
		for (int y = 0; y < (int)p.height; y++) {
			for (int x = 0; x < (int)p.width; x++) {
				if (dot(&file, at, x, y) != MARK)
					continue;
				dots++;
				assert_true(fabs(hypot(x - 700 - (place ? 4 : 0),
							 y - 300 - (place ? 2 : 0)) -
						    7) < 1.5);
			}
		}
		assert_true(dots > 30);
		assert_int_equal(picture_file_count(&file, MARK), before + dots);
		free(file.dot);
		figure_free(f);
		panels_free(&p);
	}
	free(cells);
}

/* Text of SVG is text. Any bytes are allowed in a title. */
static void
writes_svg(void **state)
{
	static const char title[] = "a<b>&\"c\" \x1b[2J \xff \u00c5";
	static const char *const labels[] = {">a&lt;b&gt;&amp;\"c\" \\x1b[2J \\xff \u00c5</text>",
		">photons</text>", ">x (pixels)</text>", ">y (pixels)</text>",
		">masked, invalid or missing</text>", ">no sensor</text>", ">peak found</text>",
		">5 \u00c5</text>", "image-rendering: pixelated"};
	float *cells = calloc(1030 * 514, sizeof(*cells));
	struct figure *f;
	struct panels p;
	size_t size;
	char *text;

	assert_non_null(cells);
	cells[5] = NAN;
	cells[6] = INFINITY;
	cells[7] = FLT_MAX;
	one_module();
	assert_int_equal(panels_init(&p, 512, 1024, &g), 0);
	assert_int_equal(figure_create(&f, DRAWING_SVG, &p, 2, true), 0);
	figure_draw(f, 0, title, "photons", cells);
	figure_draw(f, 1, title, "photons", cells);
	figure_mark(f, 1, 5, 5);
	assert_int_equal(figure_save(f, path_of("x.svg"), DRAWING_SMALL), 0);
	figure_free(f);
	text = picture_file_text(path_of("x.svg"), &size);
	picture_file_check_svg(text);
	for (size_t i = 0; i < sizeof(labels) / sizeof(labels[0]); i++)
		assert_non_null(strstr(text, labels[i]));
	free(text);
	/* the same title in PNG */
	assert_int_equal(figure_create(&f, DRAWING_PNG, &p, 1, true), 0);
	figure_draw(f, 0, title, "photons", cells);
	assert_int_equal(figure_save(f, path_of("x.png"), DRAWING_SMALL), 0);
	figure_free(f);
	panels_free(&p);
	free(cells);
}

/* The same calls give the same file, and a figure that is drawn over gives that of a new one. */
static void
repeats_files(void **state)
{
	float cells[2][128] = {{[5] = 7, [9] = NAN}, {[5] = 1000, [6] = INFINITY, [100] = 3}};
	struct figure *f;
	struct panels p;

	assert_int_equal(panels_init(&p, 8, 16, NULL), 0);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(figure_create(&f, DRAWING_PNG, &p, 2, false), 0);
		if (i == 1) {
			figure_draw(f, 0, "a longer title than before", "other", cells[1]);
			figure_draw(f, 1, "a longer title than before", "other", cells[1]);
			assert_int_equal(figure_save(f, path_of("x.png"), DRAWING_SMALL), 0);
		}
		figure_draw(f, 0, "title", "photons", cells[0]);
		figure_draw(f, 1, "title", "photons", cells[0]);
		assert_int_equal(figure_save(f, path_of(i ? "b.png" : "a.png"), DRAWING_SMALL), 0);
		figure_free(f);
	}
	picture_file_assert_same(path_of("a.png"), path_of("b.png"));
}

static void
knows_names(void **state)
{
	enum drawing_kind kind;

	assert_int_equal(drawing_kind_of("a/b.png", &kind), 0);
	assert_int_equal(kind, DRAWING_PNG);
	assert_int_equal(drawing_kind_of("x.png.SVG", &kind), 0);
	assert_int_equal(kind, DRAWING_SVG);
	assert_int_equal(drawing_kind_of("x.jpg", &kind), -EINVAL);
	assert_int_equal(drawing_kind_of("png", &kind), -EINVAL);
	assert_int_equal(drawing_kind_of("", &kind), -EINVAL);
}

static void
reports_errors(void **state)
{
	struct rlimit limit, before;
	struct drawing *d;

	assert_int_equal(drawing_create(&d, DRAWING_PNG, 0, 5, 0), -EINVAL);
	assert_null(d);
	assert_int_equal(drawing_create(&d, DRAWING_SVG, 5, DRAWING_SIDE_MAX + 1, 0), -EINVAL);
	for (int kind = DRAWING_PNG; kind <= DRAWING_SVG; kind++) {
		assert_int_equal(drawing_create(&d, kind, 400, 400, 0x123456), 0);
		assert_int_equal(drawing_save(d, path_of("none/x"), DRAWING_SMALL), -ENOENT);
		assert_int_equal(drawing_save(d, dir, DRAWING_SMALL), -EISDIR);
		assert_int_equal(symlink("target", path_of("link")), 0);
		assert_int_equal(drawing_save(d, path_of("link"), DRAWING_SMALL), -ELOOP);
		assert_int_equal(unlink(path_of("link")), 0);
		/* the disk is full */
		signal(SIGXFSZ, SIG_IGN);
		assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
		limit = before;
		limit.rlim_cur = 100;
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
		assert_int_equal(drawing_save(d, path_of("full"), DRAWING_SMALL), -EFBIG);
		assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
		drawing_free(d);
	}
	drawing_free(NULL);
}

static int
setup(void **state)
{
	strcpy(dir, "/tmp/figure_XXXXXX");
	assert_non_null(mkdtemp(dir));
	return 0;
}

static int
teardown(void **state)
{
	char command[96];

	snprintf(command, sizeof(command), "rm -r %s", dir);
	return system(command);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chooses_rings),
		cmocka_unit_test(chooses_ticks),
		cmocka_unit_test(writes_ticks),
		cmocka_unit_test(colours_values),
		cmocka_unit_test(keeps_pixels),
		cmocka_unit_test(shrinks_pixels),
		cmocka_unit_test(draws_no_values),
		cmocka_unit_test(draws_rings),
		cmocka_unit_test(marks_pixels),
		cmocka_unit_test(writes_svg),
		cmocka_unit_test(repeats_files),
		cmocka_unit_test(knows_names),
		cmocka_unit_test(reports_errors),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
