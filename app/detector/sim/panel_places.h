/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Positions of pixels in space, for a detector whose panels are described by a file: panels may be
 * rotated, tilted and at different distances.
 *
 * Coordinates are those of the model: x and z as in geometry/geometry.h, y downwards, in pixels.
 * The only operations are addition, subtraction, multiplication and division, so that places are
 * the same on every machine.
 */
#ifndef PANEL_PLACES_H
#define PANEL_PLACES_H

#include <stdbool.h>
#include <stdint.h>

#include "geometry/geometry.h"

struct panel_places;

/**
 * @param g         with a distance; is copied
 * @param distance  of panels without an offset, pixels
 * @return 0; -EINVAL: a panel has no area; -ERANGE: radii of 65,535 pixels or more; -ENOMEM
 */
int panel_places_create(const struct geometry *g, double distance, struct panel_places **result);

/** NULL is allowed. */
void panel_places_destroy(struct panel_places *places);

/** Place of the centre of a pixel of the raster. @return false: the pixel is in no panel */
bool panel_places_pixel(
	const struct panel_places *places, uint32_t row, uint32_t column, double at[3]);

/**
 * Where a ray from the sample meets the first panel in the order of the file.
 * @param row, column  out: in the raster; pixel centres are at whole numbers
 * @return false: on no panel, or on a pixel that is not used
 */
bool panel_places_hit(
	const struct panel_places *places, const double ray[3], double *row, double *column);

/** Whether two pixels are in the same panel. */
bool panel_places_same(const struct panel_places *places, uint32_t row, uint32_t column,
	uint32_t other_row, uint32_t other_column);

/** @return name of the panel of a pixel; "-": the pixel is in no panel */
const char *panel_places_name(const struct panel_places *places, uint32_t row, uint32_t column);

#endif /* PANEL_PLACES_H */
