/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "geometry/crystfel.h"
#include "geometry/file.h"
#include "geometry/poni.h"
#include "io/own_file.h"

enum format {
	FORMAT_UNKNOWN,
	FORMAT_CRYSTFEL,
	FORMAT_PONI,
};

static enum format
format_of(const char *path)
{
	const char *dot = strrchr(path, '.');

	if (dot != NULL && strcmp(dot, ".geom") == 0)
		return FORMAT_CRYSTFEL;
	return dot != NULL && strcmp(dot, ".poni") == 0 ? FORMAT_PONI : FORMAT_UNKNOWN;
}

bool
geometry_file_is_name(const char *path)
{
	return format_of(path) != FORMAT_UNKNOWN;
}

static int
refuse_name(const char *path, char message[GEOMETRY_MESSAGE_LEN])
{
	snprintf(message, GEOMETRY_MESSAGE_LEN,
		"%.512s: the name of a geometry ends with .geom (CrystFEL) or .poni (pyFAI); "
		"rename it, or convert a NeXus file: braggline-export --convert FILE.geom FILE.h5",
		path);
	return -EINVAL;
}

int
geometry_file_read(struct geometry *g, const char *path, const struct geometry_raster *raster,
	char message[GEOMETRY_MESSAGE_LEN])
{
	const enum format format = format_of(path);
	char *text = NULL;
	FILE *f = NULL;
	size_t size;
	int ret = 0;

	if (format == FORMAT_UNKNOWN)
		return refuse_name(path, message);
	f = own_file_read(path);
	if (f == NULL) {
		ret = -errno;
		goto fail;
	}
	text = malloc(GEOMETRY_FILE_MAX);
	if (text == NULL) {
		ret = -ENOMEM;
		goto fail;
	}
	size = fread(text, 1, GEOMETRY_FILE_MAX, f);
	if (ferror(f))
		ret = -EIO;
	else if (size == GEOMETRY_FILE_MAX)
		ret = -EFBIG;
	if (ret != 0)
		goto fail;
	ret = format == FORMAT_CRYSTFEL ? crystfel_read(g, text, size, path, raster, message)
					: poni_read(g, text, size, path, raster, message);
	goto out;
fail:
	snprintf(message, GEOMETRY_MESSAGE_LEN, "cannot read %.512s: %s", path,
		ret == -EFBIG ? "it is larger than 4 MiB" : own_file_error(ret));
out:
	free(text);
	if (f != NULL)
		fclose(f);
	return ret;
}

int
geometry_file_write(const struct geometry *g, const char *path, char message[GEOMETRY_MESSAGE_LEN])
{
	const enum format format = format_of(path);
	char *text = NULL;
	size_t size = 0;
	FILE *f;
	int ret;

	if (format == FORMAT_UNKNOWN)
		return refuse_name(path, message);
	/*
	 * first in memory: if the format cannot describe the detector, an old file stays unchanged
	 */
	f = open_memstream(&text, &size);
	if (f == NULL) {
		ret = -ENOMEM;
		goto fail;
	}
	message[0] = '\0';
	ret = format == FORMAT_CRYSTFEL ? crystfel_write(g, &crystfel_photons, f)
					: poni_write(g, f, message);
	if (fclose(f) != 0 && ret == 0)
		ret = -ENOMEM;
	if (ret != 0)
		goto fail;
	f = own_file_write(path);
	if (f == NULL) {
		ret = -errno;
		goto fail;
	}
	if (fwrite(text, 1, size, f) != size)
		ret = -EIO;
	if (fclose(f) != 0)
		ret = -errno;
	if (ret != 0)
		goto fail;
	free(text);
	return 0;
fail:
	free(text);
	if (message[0] == '\0' || ret != -EINVAL)
		snprintf(message, GEOMETRY_MESSAGE_LEN, "cannot write %.512s: %s", path,
			own_file_error(ret));
	return ret;
}

char *
geometry_text(const struct geometry *g)
{
	char *text = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	int ret;

	if (f == NULL)
		return NULL;
	ret = crystfel_write(g, NULL, f);
	if (fclose(f) != 0 || ret != 0) {
		free(text);
		return NULL;
	}
	return text;
}
