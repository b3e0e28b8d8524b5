/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <jansson.h>

#include "geometry/lines.h"
#include "geometry/number.h"
#include "geometry/pixels.h"
#include "geometry/poni.h"

#define GRID_TOLERANCE 1e-6 /* maximum deviation from a grid, in pixels across a panel */

enum poni_value {
	PONI_DISTANCE,
	PONI_1,
	PONI_2,
	PONI_ROT_1,
	PONI_ROT_2,
	PONI_ROT_3,
	PONI_WAVELENGTH,
	PONI_PIXEL_1,
	PONI_PIXEL_2,
	PONI_ROWS,
	PONI_COLS,
	PONI_VALUES
};

static const struct {
	const char *key;
	double min, max;
} values[PONI_VALUES] = {
	[PONI_DISTANCE] = {"Distance", GEOMETRY_DISTANCE_MIN, GEOMETRY_DISTANCE_MAX},
	[PONI_1] = {"Poni1", -10, 10},
	[PONI_2] = {"Poni2", -10, 10},
	[PONI_ROT_1] = {"Rot1", -10, 10},
	[PONI_ROT_2] = {"Rot2", -10, 10},
	[PONI_ROT_3] = {"Rot3", -10, 10},
	/* within the limits of a photon energy */
	[PONI_WAVELENGTH] = {"Wavelength", 1.24e-13, 1.23e-6},
	[PONI_PIXEL_1] = {"pixel1", GEOMETRY_PIXEL_MIN, GEOMETRY_PIXEL_MAX},
	[PONI_PIXEL_2] = {"pixel2", GEOMETRY_PIXEL_MIN, GEOMETRY_PIXEL_MAX},
	[PONI_ROWS] = {"max_shape", 1, GEOMETRY_SIDE_MAX},
	[PONI_COLS] = {"max_shape", 1, GEOMETRY_SIDE_MAX},
};

struct reader {
	const char *name;
	unsigned int line;
	char *message;
	double value[PONI_VALUES];
	bool given[PONI_VALUES];
};

static int __attribute__((format(printf, 2, 3))) refuse(struct reader *r, const char *format, ...)
{
	char why[GEOMETRY_MESSAGE_LEN];
	va_list args;

	va_start(args, format);
	vsnprintf(why, sizeof(why), format, args);
	va_end(args);
	snprintf(r->message, GEOMETRY_MESSAGE_LEN, "%.256s:%u: %.600s", r->name, r->line, why);
	return -EINVAL;
}

static int
keep_value(struct reader *r, enum poni_value value, double number)
{
	if (!(number >= values[value].min && number <= values[value].max))
		return refuse(r, "%s is %g, expected %g ... %g", values[value].key, number,
			values[value].min, values[value].max);
	r->value[value] = number;
	r->given[value] = true;
	return 0;
}

static int
keep_item(struct reader *r, enum poni_value value, const json_t *item)
{
	if (!json_is_number(item))
		return refuse(r, "%s: expected a number, %g ... %g", values[value].key,
			values[value].min, values[value].max);
	return keep_value(r, value, json_number_value(item));
}

/* Read an item of the detector's configuration. */
static int
read_item(struct reader *r, const char *key, const json_t *item)
{
	const json_t *rows = json_array_get(item, 0), *cols = json_array_get(item, 1);

	if (json_is_null(item))
		return 0;
	for (unsigned int i = PONI_PIXEL_1; i <= PONI_PIXEL_2; i++)
		if (strcmp(key, values[i].key) == 0)
			return keep_item(r, i, item);
	if (strcmp(key, "orientation") == 0) {
		const json_int_t way = json_integer_value(item);

		/* 0: not given, which is 3 */
		if (json_is_integer(item) && (way == 0 || way == 3))
			return 0;
		return refuse(r,
			"orientation: expected 3, rows and columns as stored; read the image in "
			"this way");
	}
	if (strcmp(key, "max_shape") != 0)
		return refuse(r,
			"Detector_config: %.64s is not supported, expected pixel1, pixel2, "
			"max_shape and orientation",
			key);
	if (json_array_size(item) != 2 || !json_is_integer(rows) || !json_is_integer(cols))
		return refuse(r, "max_shape: expected [ROWS, COLUMNS]");
	return keep_item(r, PONI_ROWS, rows) < 0 ? -EINVAL : keep_item(r, PONI_COLS, cols);
}

/* Read {"pixel1": 7.5e-05, "pixel2": 7.5e-05, "max_shape": [512, 1024], "orientation": 3}. */
static int
read_config(struct reader *r, const char *text)
{
	json_error_t error;
	json_t *config = json_loads(text, JSON_REJECT_DUPLICATES, &error), *item;
	const char *key;
	int ret = 0;

	if (!json_is_object(config))
		ret = refuse(r,
			"Detector_config: expected JSON, {\"pixel1\": METRES, \"pixel2\": METRES, "
			"\"max_shape\": [ROWS, COLUMNS]}: %.160s",
			config == NULL ? error.text : "found no {}");
	json_object_foreach(config, key, item)
	{
		if (ret == 0)
			ret = read_item(r, key, item);
	}
	json_decref(config);
	return ret;
}

static int
read_line(struct reader *r, char *line)
{
	const unsigned char *other = lines_find_other(line);
	const char *start = line;
	double number;
	char *text, *end;

	/* a later set of values of a file replaces the earlier ones, as in pyFAI */
	line = lines_strip(line);
	if (line[0] == '#' || line[0] == '\0')
		return 0;
	if (other != NULL)
		return refuse(r, "byte %zu is 0x%02x, which is not printable ASCII; remove it",
			(size_t)((const char *)other - start) + 1, *other);
	text = strchr(line, ':');
	if (text == NULL)
		return refuse(r, "expected Key: value, or a comment that starts with #");
	*text++ = '\0';
	line = lines_strip(line);
	text = lines_strip(text);
	if (strcasecmp(line, "poni_version") == 0) {
		number = strtod(text, &end);
		if (end != text && *end == '\0' && (number == 2 || number == 2.1))
			return 0;
		return refuse(r,
			"poni_version is '%.32s', expected 2 or 2.1; save it again with pyFAI",
			text);
	}
	if (strcasecmp(line, "Detector") == 0)
		return strcmp(text, "Detector") == 0
			? 0
			: refuse(r,
				  "Detector is %.64s, expected Detector, with pixel1, pixel2 and "
				  "max_shape in Detector_config",
				  text);
	if (strcasecmp(line, "Detector_config") == 0)
		return read_config(r, text);
	for (unsigned int i = 0; i <= PONI_WAVELENGTH; i++) {
		if (strcasecmp(line, values[i].key) != 0)
			continue;
		if (i == PONI_WAVELENGTH && strcmp(text, "None") == 0)
			return 0;
		number = strtod(text, &end);
		return end != text && *end == '\0'
			? keep_value(r, i, number)
			: refuse(r, "%s: %.64s: expected a number, %g ... %g", line, text,
				  values[i].min, values[i].max);
	}
	return refuse(r,
		"%.64s: is no key of a PONI file of version 2; remove it, or save the file again "
		"with pyFAI",
		line);
}

/* Position of a point of the detector, y1 along rows and x2 along columns, metres (pyFAI, geometry
 * of the detector; t1 along rows, t2 along columns, t3 along the beam). */
static void
rotate(const double *v, double y1, double x2, double length, double t[3])
{
	const double s1 = sin(v[PONI_ROT_1]), c1 = cos(v[PONI_ROT_1]);
	const double s2 = sin(v[PONI_ROT_2]), c2 = cos(v[PONI_ROT_2]);
	const double s3 = sin(v[PONI_ROT_3]), c3 = cos(v[PONI_ROT_3]);

	t[0] = y1 * c2 * c3 + x2 * (c3 * s1 * s2 - c1 * s3) - length * (c1 * c3 * s2 + s1 * s3);
	t[1] = y1 * c2 * s3 + x2 * (c1 * c3 + s1 * s2 * s3) - length * (c1 * s2 * s3 - c3 * s1);
	t[2] = y1 * s2 - x2 * c2 * s1 + length * c1 * c2;
	/* 0 instead of -0: geometries are compared by their bytes */
	for (int i = 0; i < 3; i++)
		t[i] += 0;
}

static int
settle(struct reader *r, struct geometry *g, const struct geometry_raster *raster)
{
	const double *v = r->value;
	struct geometry_panel *p = &g->panel[0];
	double t[3], pixel;

	for (unsigned int i = 0; i < PONI_VALUES; i++)
		if (!r->given[i] && i != PONI_WAVELENGTH && (i < PONI_ROT_1 || i > PONI_ROT_3))
			return refuse(r, "%s is missing", values[i].key);
	pixel = v[PONI_PIXEL_1];
	if (v[PONI_PIXEL_2] != pixel)
		return refuse(r, "pixel1 is %g and pixel2 is %g, expected squares", pixel,
			v[PONI_PIXEL_2]);
	g->rows = (uint32_t)v[PONI_ROWS];
	g->cols = (uint32_t)v[PONI_COLS];
	if (raster != NULL && (g->rows != raster->rows || g->cols != raster->cols))
		return refuse(r,
			"max_shape is [%u, %u], and the raster has %u rows and %u columns; a PONI "
			"file describes no gaps: use a .geom file",
			g->rows, g->cols, raster->rows, raster->cols);
	g->pixel_metres = pixel;
	g->distance_metres = v[PONI_DISTANCE];
	if (r->given[PONI_WAVELENGTH])
		g->energy_ev = GEOMETRY_HC / (v[PONI_WAVELENGTH] * 1e10);
	g->nb_panels = 1;
	strcpy(p->name, "poni");
	p->width = g->cols;
	p->height = g->rows;
	p->max_adu = INFINITY;
	/* rows go down: y is opposite to t1 */
	rotate(v, 0, pixel, 0, t);
	p->fs_x = t[1] / pixel;
	p->fs_y = 0 - t[0] / pixel;
	p->fs_z = t[2] / pixel;
	rotate(v, pixel, 0, 0, t);
	p->ss_x = t[1] / pixel;
	p->ss_y = 0 - t[0] / pixel;
	p->ss_z = t[2] / pixel;
	rotate(v, -v[PONI_1], -v[PONI_2], v[PONI_DISTANCE], t);
	p->corner_x = t[1] / pixel;
	p->corner_y = 0 - t[0] / pixel;
	p->coffset_metres = t[2] - v[PONI_DISTANCE];
	if (fabs(p->corner_x) > GEOMETRY_LENGTH_MAX || fabs(p->corner_y) > GEOMETRY_LENGTH_MAX)
		return refuse(r, "Poni1 and Poni2 are %g m and %g m, expected at most %g pixels",
			v[PONI_1], v[PONI_2], GEOMETRY_LENGTH_MAX);
	return 0;
}

int
poni_read(struct geometry *g, const char *text, size_t size, const char *name,
	const struct geometry_raster *raster, char message[GEOMETRY_MESSAGE_LEN])
{
	struct reader r = {.name = name, .message = message};
	char *copy = strndup(text, size), *rest = copy, *line;
	int ret = 0;

	message[0] = '\0';
	memset(g, 0, sizeof(*g));
	if (copy == NULL) {
		snprintf(message, GEOMETRY_MESSAGE_LEN, "%.256s: out of memory", name);
		return -ENOMEM;
	}
	if (strlen(copy) != size) {
		r.line = 1;
		ret = refuse(&r, "has a zero byte, expected text");
	}
	while (ret == 0 && (line = lines_next(&rest)) != NULL) {
		r.line++;
		ret = read_line(&r, line);
	}
	if (r.line == 0)
		r.line = 1;
	if (ret == 0)
		ret = settle(&r, g, raster);
	free(copy);
	return ret;
}

/* Return true if a panel is on the grid of the first panel, and in its plane. */
static bool
is_on_grid(const struct geometry *g, const struct geometry_panel *p)
{
	const double side = p->width > p->height ? p->width : p->height;
	const double x = p->corner_x - g->panel[0].corner_x;
	const double y = p->corner_y - g->panel[0].corner_y;
	const double off[] = {p->fs_x - 1, p->fs_y, p->fs_z, p->ss_x, p->ss_y + 1, p->ss_z};

	for (unsigned int i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		if (fabs(off[i]) * side > GRID_TOLERANCE)
			return false;
	return fabs(x - rint(x)) <= GRID_TOLERANCE && fabs(y - rint(y)) <= GRID_TOLERANCE &&
		fabs(p->coffset_metres - g->panel[0].coffset_metres) <=
		GRID_TOLERANCE * g->pixel_metres;
}

int
poni_write(const struct geometry *g, FILE *f, char message[GEOMETRY_MESSAGE_LEN])
{
	struct pixels_picture picture;
	char text[4][NUMBER_LEN];
	const char *pixel;

	message[0] = '\0';
	if (g->distance_metres <= 0 || g->energy_ev <= 0 || pixels_picture(g, &picture) != 0) {
		snprintf(message, GEOMETRY_MESSAGE_LEN,
			"a PONI file needs the distance, the photon energy and at most %u x %u "
			"pixels; set them in the source",
			PIXELS_SIDE_MAX, PIXELS_SIDE_MAX);
		return -EINVAL;
	}
	for (uint32_t i = 0; i < g->nb_panels; i++) {
		if (is_on_grid(g, &g->panel[i]))
			continue;
		snprintf(message, GEOMETRY_MESSAGE_LEN,
			"panel %s: is turned, shifted by parts of a pixel, or not in the plane of "
			"panel %s; a PONI file describes one flat grid: use a .geom file",
			g->panel[i].name, g->panel[0].name);
		return -EINVAL;
	}
	pixel = number_text(g->pixel_metres, text[0]);
	fprintf(f,
		"# PONI file of a picture of %u x %u pixels, written by braggline\n"
		"# rows go down and columns to the right; gaps are pixels\n"
		"poni_version: 2\n"
		"Detector: Detector\n"
		"Detector_config: {\"pixel1\": %s, \"pixel2\": %s, \"max_shape\": [%u, %u]}\n",
		picture.height, picture.width, pixel, pixel, picture.height, picture.width);
	fprintf(f,
		"Distance: %s\n"
		"Poni1: %s\n"
		"Poni2: %s\n"
		"Rot1: 0.0\n"
		"Rot2: 0.0\n"
		"Rot3: 0.0\n"
		"Wavelength: %s\n",
		number_text(g->distance_metres + g->panel[0].coffset_metres, text[0]),
		number_text(picture.top * g->pixel_metres, text[1]),
		number_text(0 - picture.left * g->pixel_metres, text[2]),
		number_text(geometry_wavelength(g) * 1e-10, text[3]));
	return ferror(f) ? -EIO : 0;
}
