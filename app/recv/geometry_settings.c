/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "config/config.h"
#include "geometry/file.h"
#include "geometry/gaps.h"
#include "geometry/layout.h"
#include "geometry_settings.h"

#define LENGTH_MAX 1e6 /* mm, and pixels */

/* Without a file: the modules and chips at their places in the picture. */
static int
make_layout(const struct geometry_settings *s, const struct detector *detector, struct geometry *g,
	char message[GEOMETRY_MESSAGE_LEN])
{
	const struct layout *found = layout_find(detector->ops->name);
	struct layout l;

	if (found == NULL) {
		snprintf(message, GEOMETRY_MESSAGE_LEN,
			"the layout of a %s is not known; set [geometry] file",
			detector->ops->name);
		return -EINVAL;
	}
	l = *found;
	l.modules = detector->modules;
	l.column_modules = s->column_modules;
	l.chip_gap = s->chip_gap;
	l.gap_x = s->gap_x;
	l.gap_y = s->gap_y;
	if (layout_geometry(g, &l, s->beam_x, s->beam_y) == 0)
		return 0;
	snprintf(message, GEOMETRY_MESSAGE_LEN, "%u modules have more than %d panels",
		detector->modules, GEOMETRY_PANELS_MAX);
	return -EINVAL;
}

/* Read the file: of the raster, or of one that has pixels in the gaps of modules. */
static int
read_file(const struct geometry_settings *s, const struct detector *detector, struct geometry *g,
	char message[GEOMETRY_MESSAGE_LEN])
{
	const struct geometry_raster raster = {.rows = detector->modules * detector->ops->rows,
		.cols = detector->ops->cols,
		.module_rows = detector->ops->rows};
	const struct layout *found = layout_find(detector->ops->name);
	char why[GEOMETRY_MESSAGE_LEN];
	struct geometry_raster with_gaps;
	struct layout l;
	int ret = geometry_file_read(g, s->file, &raster, message);

	if (ret != -EINVAL || found == NULL)
		return ret;
	l = *found;
	l.modules = detector->modules;
	with_gaps = gaps_raster(&l);
	/* a file with another mistake has it in both rasters: keep the first message */
	if (geometry_file_read(g, s->file, &with_gaps, why) != 0)
		return ret;
	ret = gaps_remove(g, &l, why);
	if (ret == 0)
		message[0] = '\0';
	else
		snprintf(message, GEOMETRY_MESSAGE_LEN, "%.256s: %.640s", s->file, why);
	return ret;
}

int
geometry_settings_make(const struct geometry_settings *s, const struct detector *detector,
	struct geometry **g, char message[GEOMETRY_MESSAGE_LEN])
{
	int ret;

	message[0] = '\0';
	*g = NULL;
	if (!s->known)
		return 0;
	*g = malloc(sizeof(**g));
	if (*g == NULL) {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "cannot allocate the geometry");
		return -ENOMEM;
	}
	ret = s->file != NULL ? read_file(s, detector, *g, message)
			      : make_layout(s, detector, *g, message);
	if (ret != 0) {
		free(*g);
		*g = NULL;
		return ret;
	}
	if (s->distance_mm > 0)
		(*g)->distance_metres = s->distance_mm / 1000;
	if (s->energy_kev > 0)
		(*g)->energy_ev = s->energy_kev * 1000;
	else if ((*g)->energy_ev <= 0)
		(*g)->energy_ev = s->calibration_kev * 1000;
	return 0;
}

/* Make the geometry once, so that `--check` and the start of a run find mistakes in a file. */
static void
check(const struct geometry_settings *s, struct config *c, const struct detector *detector)
{
	char message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (geometry_settings_make(s, detector, &g, message) != 0)
		config_complain(c, "geometry", s->file != NULL ? "file" : "beam_x", message);
	else if (g != NULL && g->distance_metres <= 0)
		config_complain(c, "geometry", "distance_mm",
			"must be a number of mm: clen of [geometry] file is in data files");
	free(g);
}

void
geometry_settings_read(struct geometry_settings *s, struct config *c,
	const struct detector *detector, uint32_t column, double calibration_kev)
{
	const struct layout *found = layout_find(detector->ops->name);
	const struct layout l = found != NULL ? *found : (struct layout){.chip_gap = 0};
	const unsigned int before = config_nb_mistakes(c);
	bool has_x, has_y;

	memset(s, 0, sizeof(*s));
	s->file = config_text(c, "geometry", "file", NULL);
	has_x = config_real_or(
		c, "geometry", "beam_x", "none", &s->beam_x, -LENGTH_MAX, LENGTH_MAX);
	has_y = config_real_or(
		c, "geometry", "beam_y", "none", &s->beam_y, -LENGTH_MAX, LENGTH_MAX);
	s->distance_mm = config_real_word(c, "geometry", "distance_mm", "none", LENGTH_MAX);
	s->energy_kev = config_real_word(c, "geometry", "energy_kev", "auto", 1e4);
	s->calibration_kev = calibration_kev;
	s->column_modules =
		config_uint_word(c, "geometry", "column_modules", "auto", 0, 1, detector->modules);
	if (s->column_modules == 0)
		s->column_modules =
			column != 0 ? RTE_MIN(column, detector->modules) : detector->modules;
	s->chip_gap = config_real(c, "geometry", "chip_gap", l.chip_gap, 0, 100);
	s->gap_x = config_real(c, "geometry", "gap_x", l.gap_x, 0, 10000);
	s->gap_y = config_real(c, "geometry", "gap_y", l.gap_y, 0, 10000);
	s->wrong = config_nb_mistakes(c) != before;
	s->known = s->file != NULL || (has_x && has_y && s->distance_mm > 0);
	if (s->file != NULL && (has_x || has_y))
		config_complain(c, "geometry", has_x ? "beam_x" : "beam_y",
			"must be none with [geometry] file: the corners of panels are relative to "
			"the beam");
	else if (!s->known && !s->wrong && (has_x || has_y || s->distance_mm > 0))
		config_complain(c, "geometry",
			!has_x		 ? "beam_x"
				: !has_y ? "beam_y"
					 : "distance_mm",
			"must be a number; set beam_x, beam_y and distance_mm, or none of them");
	else
		check(s, c, detector);
	s->wrong = config_nb_mistakes(c) != before;
}
