/* SPDX-License-Identifier: BSD-3-Clause */

#include "sim/jungfrau_geometry.h"

#include <math.h>

#include "sim/jungfrau_model.h"

#define CHIP_PIXELS    LAYOUT_JUNGFRAU_CHIP
#define CHIP_GAP       LAYOUT_JUNGFRAU_CHIP_GAP
#define CHIP_PITCH     (CHIP_PIXELS + CHIP_GAP)
#define MODULE_WIDTH   (JUNGFRAU_COLUMNS + 3 * CHIP_GAP)
#define MODULE_HEIGHT  (JUNGFRAU_ROWS + CHIP_GAP)
#define MODULE_GAP_X   LAYOUT_JUNGFRAU_GAP_X
#define MODULE_GAP_Y   LAYOUT_JUNGFRAU_GAP_Y
#define MODULE_PITCH_X (MODULE_WIDTH + MODULE_GAP_X)
#define MODULE_PITCH_Y (MODULE_HEIGHT + MODULE_GAP_Y)

void
jungfrau_geometry_extent(const struct jungfrau_geometry *geometry, double *width, double *height)
{
	uint32_t columns =
		(geometry->modules + geometry->column_modules - 1) / geometry->column_modules;

	*width = (double)columns * MODULE_PITCH_X - MODULE_GAP_X;
	*height = (double)geometry->column_modules * MODULE_PITCH_Y - MODULE_GAP_Y;
}

bool
jungfrau_geometry_position(const struct jungfrau_geometry *geometry, uint32_t module, uint32_t row,
	uint32_t column, double *x, double *y)
{
	double at[3];

	if (geometry->places != NULL) {
		if (!panel_places_pixel(
			    geometry->places, module * JUNGFRAU_ROWS + row, column, at) ||
			at[2] <= 0.0)
			return false;
		*x = at[0] * geometry->distance / at[2];
		*y = at[1] * geometry->distance / at[2];
		return true;
	}
	*x = (double)(module / geometry->column_modules) * MODULE_PITCH_X + column +
		column / CHIP_PIXELS * CHIP_GAP - geometry->beam_x;
	*y = (double)(module % geometry->column_modules) * MODULE_PITCH_Y + row +
		row / CHIP_PIXELS * CHIP_GAP - geometry->beam_y;
	return true;
}

/* Along one axis: find the module and the pixel in it. */
static bool
find_along(double position, uint32_t pitch, uint32_t chips, uint32_t *module, double *pixel)
{
	uint32_t chip;

	position += 0.5;
	if (!(position >= 0.0 && position < 1e6))
		return false;
	*module = (uint32_t)position / pitch;
	position -= (double)*module * pitch;
	chip = (uint32_t)position / CHIP_PITCH;
	position -= (double)chip * CHIP_PITCH;
	*pixel = chip * CHIP_PIXELS + position - 0.5;
	return chip < chips && position < CHIP_PIXELS;
}

static bool
is_read_out(const struct jungfrau_geometry *geometry, double row)
{
	return row >= geometry->first_row - 0.5 && row < geometry->first_row + geometry->rows - 0.5;
}

/* As jungfrau_geometry_find(), on the panels of a file. */
static bool
find_on_panels(
	const struct jungfrau_geometry *geometry, double x, double y, struct jungfrau_place *place)
{
	const double ray[3] = {x, y, geometry->distance};

	if (!panel_places_hit(geometry->places, ray, &place->row, &place->column))
		return false;
	place->module = (uint32_t)(place->row + 0.5) / JUNGFRAU_ROWS;
	place->row -= (double)place->module * JUNGFRAU_ROWS;
	return is_read_out(geometry, place->row);
}

bool
jungfrau_geometry_find(
	const struct jungfrau_geometry *geometry, double x, double y, struct jungfrau_place *place)
{
	uint32_t across, down;

	if (geometry->places != NULL)
		return find_on_panels(geometry, x, y, place);
	if (!find_along(x + geometry->beam_x, MODULE_PITCH_X, 4, &across, &place->column) ||
		!find_along(y + geometry->beam_y, MODULE_PITCH_Y, 2, &down, &place->row))
		return false;
	place->module = across * geometry->column_modules + down;
	return down < geometry->column_modules && place->module < geometry->modules &&
		is_read_out(geometry, place->row);
}

double
jungfrau_geometry_cosine(const struct jungfrau_geometry *geometry, double x, double y)
{
	double z = geometry->distance;

	return z / sqrt(x * x + y * y + z * z);
}

double
jungfrau_geometry_q(double cosine, double wavelength)
{
	/* 2 sin(theta) = sqrt(2 (1 - cos(2 theta))) */
	return sqrt(2.0 * (1.0 - cosine)) / wavelength;
}
