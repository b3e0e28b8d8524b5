/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests resolution rings: which are chosen, and where they are drawn. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "geometry/layout.h"
#include "geometry/pixels.h"
#include "picture/panels.h"

#define RING 0x58B890u
#define MARK 0x40E0FFu

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

static uint32_t
dot(const struct canvas *c, int x, int y)
{
	const uint8_t *p = c->rgb + ((size_t)y * c->width + x) * 3;

	return (uint32_t)p[0] << 16 | p[1] << 8 | p[2];
}

/* Each ring's dots are at its radius. */
static void
draws_rings(void **state)
{
	struct panels p;
	struct canvas c;
	unsigned int dots = 0;
	float *cells;

	one_module();
	assert_int_equal(panels_init(&p, 512, 1024, &g), 0);
	assert_int_equal(p.by, 1);
	assert_int_equal(p.width, 1030);
	assert_int_equal(p.height, 514);
	cells = calloc(panels_cells(&p), sizeof(*cells));
	assert_non_null(cells);
	assert_int_equal(panels_canvas(&p, 1, &c), 0);
	panels_draw(&p, &c, 0, "", cells);
	/* only the lower right quarter, which has no labels */
	for (int y = 300; y < 514; y++) {
		for (int x = 560; x < 1030; x++) {
			double off = INFINITY;

			if (dot(&c, 12 + x, 24 + y) != RING)
				continue;
			dots++;
			for (unsigned int i = 0; i < p.rings.nb; i++)
				off = fmin(off,
					fabs(hypot(x + .5 - 515, y + .5 - 257) -
						p.rings.radius[i]));
			assert_true(off < 1);
		}
	}
	assert_true(dots > 50);
	canvas_free(&c);
	panels_free(&p);
	/* without a geometry there are none */
	assert_int_equal(panels_init(&p, 512, 1024, NULL), 0);
	assert_int_equal(p.rings.nb, 0);
	panels_free(&p);
	free(cells);
}

static unsigned int
marks(const struct canvas *c, int x, int y, bool *near)
{
	unsigned int nb = 0;

	for (int row = 0; row < c->height; row++) {
		for (int column = 0; column < c->width; column++) {
			if (dot(c, column, row) != MARK)
				continue;
			nb++;
			*near &= fabs(hypot(column - x, row - y) - 6) < 1;
		}
	}
	return nb;
}

/* A circle is around the place of its pixel, and nothing is drawn for pixels without a place. */
static void
marks_pixels(void **state)
{
	static const double wrong[][2] = {
		{-1, 5}, {512, 5}, {5, -0.6}, {5, 1024}, {NAN, 5}, {5, INFINITY}, {1e30, 1e30}};
	struct panels p;
	struct canvas c;
	bool near = true;
	float *cells;

	one_module();
	for (int place = 0; place < 2; place++) {
		assert_int_equal(panels_init(&p, 512, 1024, place ? &g : NULL), 0);
		cells = calloc(panels_cells(&p), sizeof(*cells));
		assert_non_null(cells);
		assert_int_equal(panels_canvas(&p, 2, &c), 0);
		panels_draw(&p, &c, 1, "", cells);
		for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
			panels_mark(&p, &c, 1, wrong[i][0], wrong[i][1]);
		assert_int_equal(marks(&c, 0, 0, &near), 0);
		panels_mark(&p, &c, 1, 300.2, 699.9);
		/* behind the first panel and its margins; two gaps of columns and one of rows are
		 * before the pixel */
		assert_true(marks(&c, 12 + p.width + 12 + 700 + (place ? 4 : 0),
				    24 + 300 + (place ? 2 : 0), &near) > 30);
		assert_true(near);
		canvas_free(&c);
		panels_free(&p);
		free(cells);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(chooses_rings),
		cmocka_unit_test(draws_rings),
		cmocka_unit_test(marks_pixels),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
