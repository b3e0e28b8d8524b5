/* SPDX-License-Identifier: BSD-3-Clause */
/* A geometry as modules of NXmx: the frame is the same, the unit is metres. */

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "modules.h"

#define PIXEL 75e-6

static struct geometry g;

/* Two panels of 4 x 4 pixels side by side in the array; the second one is tilted and scaled. */
static int
setup(void **state)
{
	memset(&g, 0, sizeof(g));
	g.rows = 4;
	g.cols = 8;
	g.pixel_metres = PIXEL;
	g.distance_metres = 0.1;
	g.nb_panels = 2;
	g.panel[0] = (struct geometry_panel){.name = "a",
		.width = 4,
		.height = 4,
		.corner_x = -10,
		.corner_y = 20,
		.fs_x = 1,
		.ss_y = -1,
		.max_adu = INFINITY};
	g.panel[1] = (struct geometry_panel){.name = "b",
		.fs_min = 4,
		.width = 4,
		.height = 4,
		.corner_x = 30,
		.corner_y = 40,
		.coffset_metres = 0.002,
		.fs_x = 1.2,
		.fs_z = 1.6,
		.ss_y = -1,
		.max_adu = INFINITY};
	return 0;
}

static void
want_vector(const double *v, double x, double y, double z)
{
	assert_true(fabs(v[0] - x) < 1e-12 && fabs(v[1] - y) < 1e-12 && fabs(v[2] - z) < 1e-12);
}

static void
test_axes_are_those_of_the_panel_without_a_change_of_sign(void **state)
{
	struct module_axes a;

	modules_axes(&g, 0, &a);
	want_vector(a.corner, -10 * PIXEL, 20 * PIXEL, 0);
	want_vector(a.fast, 1, 0, 0);
	want_vector(a.slow, 0, -1, 0);
	assert_true(fabs(a.fast_size - PIXEL) < 1e-18 && fabs(a.slow_size - PIXEL) < 1e-18);
	modules_axes(&g, 1, &a);
	want_vector(a.corner, 30 * PIXEL, 40 * PIXEL, 0.002);
	want_vector(a.fast, 0.6, 0, 0.8);
	assert_true(fabs(a.fast_size - 2 * PIXEL) < 1e-18);
}

static void
test_beam_is_in_the_closest_panel(void **state)
{
	double x, y;

	array_beam(&g, &x, &y);
	assert_true(fabs(x - 10) < 1e-12 && fabs(y - 20) < 1e-12);
	/* the second panel has the beam: 1 step from its corner, 2 rows down */
	g.panel[1].corner_x = -1.2;
	g.panel[1].corner_y = 2;
	array_beam(&g, &x, &y);
	assert_true(fabs(x - 5) < 1e-12 && fabs(y - 2) < 1e-12);
	/* panels along the beam have no such place */
	g.panel[0].fs_x = 0;
	g.panel[1].fs_x = 0;
	array_beam(&g, &x, &y);
	assert_true(x == 0 && y == 0);
}

static void
test_mask_has_gaps_and_pixels_that_are_not_used(void **state)
{
	uint32_t mask[32];

	g.panel[0].width = 3;
	g.panel[1].edge = 1;
	assert_int_equal(array_mask(&g, mask), 0);
	for (unsigned int y = 0; y < 4; y++) {
		assert_int_equal(mask[8 * y], 0);
		assert_int_equal(mask[8 * y + 3], ARRAY_GAP);
		assert_int_equal(mask[8 * y + 4], ARRAY_USER);
		assert_int_equal(mask[8 * y + 5], y == 0 || y == 3 ? ARRAY_USER : 0);
	}
	g.panel[0].corner_x = 1e5;
	assert_int_equal(array_mask(&g, mask), -ERANGE);
}

static void
test_mask_of_narrow_modules_has_another_name(void **state)
{
	assert_string_equal(modules_mask_name(&g), "pixel_mask_1");
	g.nb_panels = 1;
	g.panel[0].width = 8;
	assert_string_equal(modules_mask_name(&g), "pixel_mask");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			test_axes_are_those_of_the_panel_without_a_change_of_sign, setup),
		cmocka_unit_test_setup(test_beam_is_in_the_closest_panel, setup),
		cmocka_unit_test_setup(test_mask_has_gaps_and_pixels_that_are_not_used, setup),
		cmocka_unit_test_setup(test_mask_of_narrow_modules_has_another_name, setup),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
