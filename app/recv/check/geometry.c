/* SPDX-License-Identifier: BSD-3-Clause */
/* --check: a geometry that can be read, and is probably wrong. */

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>

#include <rte_common.h>

#include "check/check.h"
#include "check/geometry.h"
#include "geometry/summary.h"
#include "settings.h"

/*
 * Limits of the resolution and angle at the corner of the detector. Between them are crystals and
 * small angles; a length in mm instead of m, or keV instead of eV, is a factor of 1000.
 */
#define RESOLUTION_MIN 0.5 /* A */
#define RESOLUTION_MAX 100 /* A */
#define ANGLE_MAX      80  /* degrees */

#define ENERGY_TOLERANCE 0.01

/* What is probably wrong, and what to do: both joined with "; ". */
struct doubts {
	char value[320], fix[320];
};

static void
add(char *text, size_t size, const char *format, va_list arguments)
{
	const size_t used = strlen(text);
	const int n = used == 0 ? 0 : snprintf(text + used, size - used, "; ");

	vsnprintf(text + used + n, size - used - n, format, arguments);
}

static void __rte_format_printf(2, 3) doubt(struct doubts *d, const char *value, ...)
{
	va_list arguments;

	va_start(arguments, value);
	add(d->value, sizeof(d->value), value, arguments);
	va_end(arguments);
}

static void __rte_format_printf(2, 3) fix(struct doubts *d, const char *text, ...)
{
	va_list arguments;

	va_start(arguments, text);
	add(d->fix, sizeof(d->fix), text, arguments);
	va_end(arguments);
}

/* Return the first module with pixels that are in no panel. */
static uint32_t
incomplete_module(const struct geometry *g, uint32_t rows)
{
	for (uint32_t m = 0; m < g->rows / rows; m++) {
		uint64_t pixels = 0;

		for (uint32_t i = 0; i < g->nb_panels; i++) {
			const struct geometry_panel *p = &g->panel[i];
			const uint32_t from = RTE_MAX(p->ss_min, m * rows);
			const uint32_t to = RTE_MIN(p->ss_min + p->height, (m + 1) * rows);

			pixels += to > from ? (uint64_t)p->width * (to - from) : 0;
		}
		if (pixels < (uint64_t)rows * g->cols)
			return m;
	}
	return 0;
}

void
check_geometry(struct check *c, const struct settings *s)
{
	const struct geometry_settings *set = &s->geometry;
	const bool has_file = set->file != NULL;
	char line[256], message[GEOMETRY_MESSAGE_LEN];
	struct doubts d = {.value = ""};
	struct geometry_summary found;
	struct geometry *g;
	double degrees;

	if (geometry_settings_make(set, &s->detector, &g, message) != 0) {
		check_add(c, CHECK_FAIL, "geometry", "%s", message);
		check_fix(c, "correct [geometry]");
		return;
	}
	if (g == NULL) {
		check_add(c, CHECK_NA, "geometry", "none: pictures have no gaps and no rings");
		return;
	}
	geometry_summary(g, &found);
	if (found.missing > 0) {
		doubt(&d, "%" PRIu64 " pixels, the first of module %u, are in no panel",
			found.missing, incomplete_module(g, s->detector.ops->rows));
		fix(&d,
			"add panels to the file, or expect no rings, peaks and radial "
			"profiles there");
	}
	if (found.overlap) {
		doubt(&d, "panels %s and %s overlap", g->panel[found.overlapping[0]].name,
			g->panel[found.overlapping[1]].name);
		fix(&d, has_file ? "correct the corners of panels" : "correct gap_x and gap_y");
	}
	if (!found.beam_in_picture)
		fix(&d,
			has_file ? "corners of panels are relative to the beam, in pixels"
				 : "beam_x and beam_y are pixels of the picture, from the outer "
				   "edge of module 0");
	degrees = found.two_theta * 180 / M_PI;
	if (degrees > ANGLE_MAX || found.resolution < RESOLUTION_MIN ||
		found.resolution > RESOLUTION_MAX) {
		doubt(&d, "%.5g mm from the sample, %.5g keV: the corner is at %.1f degrees",
			g->distance_metres * 1000, g->energy_ev / 1000, degrees);
		fix(&d,
			has_file ? "check units: clen in m, photon_energy in eV"
				 : "check units: distance_mm in mm, energy_kev in keV");
	}
	if (fabs(g->energy_ev / 1000 / set->calibration_kev - 1) > ENERGY_TOLERANCE) {
		doubt(&d, "photon energy %.5g keV, [calibration] energy_kev = %.5g",
			g->energy_ev / 1000, set->calibration_kev);
		fix(&d,
			"set [calibration] energy_kev to the energy of the beam, or [geometry] "
			"energy_kev");
	}
	geometry_summary_text(g, &found, line, sizeof(line));
	check_add(c, d.fix[0] != '\0' ? CHECK_WARN : CHECK_OK, "geometry", "%s%s%s", line,
		d.value[0] != '\0' ? "; " : "", d.value);
	if (d.fix[0] != '\0')
		check_fix(c, "%s", d.fix);
	free(g);
}
