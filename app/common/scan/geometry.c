/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"
#include "geometry/crystfel.h"
#include "scan/geometry.h"

static void
complain(const char *message)
{
	escaped_line(stderr, "%s: %s", program_invocation_short_name, message);
}

struct geometry_raster
scan_raster(const struct scan_run *run)
{
	return (struct geometry_raster){
		.rows = run->rows, .cols = run->cols, .module_rows = run->rows / run->modules};
}

struct geometry *
scan_geometry(const struct scan_run *run)
{
	const struct geometry_raster raster = scan_raster(run);
	const char *text = arrow_reader_meta(scan_run_reader(run), ARROW_META_GEOMETRY);
	char name[NAME_MAX + 32], message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (text == NULL)
		return NULL;
	g = malloc(sizeof(*g));
	if (g == NULL) {
		complain("cannot allocate a geometry");
		return NULL;
	}
	snprintf(name, sizeof(name), "run %s, " ARROW_META_GEOMETRY, run->name);
	if (crystfel_read(g, text, strlen(text), name, &raster, message) == 0)
		return g;
	complain(message);
	free(g);
	return NULL;
}
