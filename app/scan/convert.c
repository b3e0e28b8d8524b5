/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "escaped_text.h"
#include "geometry/crystfel.h"
#include "geometry/file.h"

static int
complain(int error, const char *message)
{
	escaped_line(stderr, "braggline-scan: %s", message);
	return error;
}

struct geometry *
convert_read_run(const struct scan_run *run)
{
	const struct geometry_raster raster = {
		.rows = run->rows, .cols = run->cols, .module_rows = run->rows / run->modules};
	const char *text = arrow_reader_meta(scan_run_reader(run), ARROW_META_GEOMETRY);
	char name[NAME_MAX + 32], message[GEOMETRY_MESSAGE_LEN];
	struct geometry *g;

	if (text == NULL)
		return NULL;
	g = malloc(sizeof(*g));
	if (g == NULL) {
		complain(-ENOMEM, "cannot allocate a geometry");
		return NULL;
	}
	snprintf(name, sizeof(name), "run %s, " ARROW_META_GEOMETRY, run->name);
	if (crystfel_read(g, text, strlen(text), name, &raster, message) == 0)
		return g;
	complain(-EBADMSG, message);
	free(g);
	return NULL;
}

int
convert_run(const struct scan_run *run, const char *path)
{
	struct geometry *g = convert_read_run(run);
	char message[GEOMETRY_MESSAGE_LEN];
	int ret;

	if (g == NULL) {
		escaped_line(stderr,
			"braggline-scan: run %s has no geometry; %s not written; set [geometry] of "
			"the receiver",
			run->name, path);
		return -EINVAL;
	}
	ret = geometry_file_write(g, path, message);
	if (ret != 0)
		complain(ret, message);
	free(g);
	return ret;
}

int
convert_file(const char *from, const char *path)
{
	struct geometry *g = malloc(sizeof(*g));
	char message[GEOMETRY_MESSAGE_LEN];
	int ret;

	if (g == NULL)
		return complain(-ENOMEM, "cannot allocate a geometry");
	ret = geometry_file_read(g, from, NULL, message);
	if (ret == 0)
		ret = geometry_file_write(g, path, message);
	if (ret != 0)
		complain(ret, message);
	free(g);
	return ret;
}
