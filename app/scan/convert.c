/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "convert.h"
#include "escaped_text.h"
#include "geometry/file.h"
#include "scan/geometry.h"

static int
complain(int error, const char *message)
{
	escaped_line(stderr, "braggline-scan: %s", message);
	return error;
}

int
convert_run(const struct scan_run *run, const char *path)
{
	struct geometry *g = scan_geometry(run);
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
