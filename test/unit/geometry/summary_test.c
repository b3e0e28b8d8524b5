/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the summary of a geometry: its line, and the facts that reveal mistakes. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "geometry/layout.h"
#include "geometry/summary.h"

static struct geometry g;
static struct geometry_summary s;

static const char *
line(void)
{
	static char text[256];

	geometry_summary(&g, &s);
	return geometry_summary_text(&g, &s, text, sizeof(text));
}

/* Two modules of chips, one above the other. */
static int
two_modules(void **state)
{
	struct layout l = *layout_find("jungfrau");

	l.modules = l.column_modules = 2;
	assert_int_equal(layout_geometry(&g, &l, 300, 300), 0);
	g.distance_metres = 0.08;
	g.energy_ev = 12400;
	return 0;
}

static void
line_of_a_detector(void **state)
{
	double r;

	assert_string_equal(
		line(), "16 panels, picture 1030 x 1064, beam on m0c5, corner at 1.31 A");
	assert_false(s.overlap);
	assert_int_equal(s.missing, 0);
	r = hypot(1030 - 300, 1064 - 300) * 75e-6;
	assert_true(fabs(s.two_theta - atan2(r, 0.08)) < 1e-12);
	g.energy_ev = 0;
	assert_string_equal(
		line(), "16 panels, picture 1030 x 1064, beam on m0c5, resolution not known");
	g.distance_metres = 0;
	(void)line();
	assert_true(isnan(s.two_theta) && isnan(s.resolution));
}

static void
beam(void **state)
{
	for (uint32_t i = 0; i < g.nb_panels; i++)
		g.panel[i].corner_y += 225; /* the gap between modules is at 514 ... 550 */
	assert_string_equal(
		line(), "16 panels, picture 1030 x 1064, beam between panels, corner at 1.45 A");
	for (uint32_t i = 0; i < g.nb_panels; i++)
		g.panel[i].corner_x += 301;
	(void)line();
	assert_false(s.beam_in_picture || s.beam_on_panel);
	assert_non_null(strstr(line(), "beam outside,"));
}

static void
overlap(void **state)
{
	struct geometry_panel *p = &g.panel[3];

	p->corner_x = g.panel[2].corner_x + 254; /* as much as refined geometries may have */
	(void)line();
	assert_false(s.overlap);
	p->corner_x = g.panel[2].corner_x + 250;
	(void)line();
	assert_true(s.overlap && s.overlapping[0] == 2 && s.overlapping[1] == 3);
	p->coffset_metres = 0.01; /* behind it */
	(void)line();
	assert_false(s.overlap);
	/* turned by 45 degrees, its bounding box overlaps with that of panel 2, and it does not */
	p->coffset_metres = 0;
	p->fs_x = p->fs_y = p->ss_x = sqrt(0.5);
	p->ss_y = -sqrt(0.5);
	p->corner_x = g.panel[2].corner_x + 240;
	p->corner_y = g.panel[2].corner_y + 30;
	(void)line();
	assert_false(s.overlap && s.overlapping[0] == 2);
}

static void
missing(void **state)
{
	g.nb_panels--;
	(void)line();
	assert_int_equal(s.missing, 256 * 256);
	/* too large for a picture */
	g.panel[0].corner_x = -1e5;
	assert_non_null(strstr(line(), "15 panels, picture too large, beam on m0c5"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(line_of_a_detector, two_modules),
		cmocka_unit_test_setup(beam, two_modules),
		cmocka_unit_test_setup(overlap, two_modules),
		cmocka_unit_test_setup(missing, two_modules),
	};

	return cmocka_run_group_tests_name("geometry_summary", tests, NULL, NULL);
}
