/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The cells of panels, which are images of the raster in a picture. figure.h draws them.
 *
 * Large rasters are scaled down: a cell represents `by` x `by` pixels. Its value is the maximum of
 * these pixels, or NaN if none has a value. With a geometry, pixels are at their places in the
 * laboratory, and there are resolution rings.
 */
#ifndef PANELS_H
#define PANELS_H

#include <stddef.h>
#include <stdint.h>

#include "geometry/geometry.h"
#include "picture/rings.h"

/** maximum width and height of a panel in cells: JUNGFRAU 4M with its gaps is scaled by 2 */
#define PANELS_SIDE_MAX 1100
#define PANELS_NO_CELL	UINT32_MAX /**< cell of a pixel that is in no panel of the geometry */

/** Dimensions of raster and panels. */
struct panels {
	uint32_t rows; /**< pixels of the raster */
	uint32_t cols;
	uint32_t by;	/**< a cell represents by x by pixels */
	uint32_t width; /**< of a panel, in cells */
	uint32_t height;
	uint32_t *cell; /**< of each pixel of the raster; NULL: as the raster, without gaps */
	double beam_x, beam_y; /**< in cells */
	struct rings rings;
};

/**
 * Set the dimensions for a raster.
 * @param rows, cols  each at least 1
 * @param g           places of the pixels, of the same raster; NULL: as in the raster. Also if its
 *                    picture is too large
 * @return 0; -ENOMEM. Call panels_free() in either case
 */
int panels_init(struct panels *p, uint32_t rows, uint32_t cols, const struct geometry *g);

void panels_free(struct panels *p);

/** @return number of cells of a panel */
static inline size_t
panels_cells(const struct panels *p)
{
	return (size_t)p->width * p->height;
}

/**
 * Scale an image of the raster down to the cells of a panel.
 * @param plane  float[rows][cols]
 * @param cells  out: float[height][width]
 */
void panels_shrink(const struct panels *p, const float *plane, float *cells);

/**
 * Find the cell of a place in the raster.
 * @param row, column  0 is the centre of the first pixel; any values
 * @return index; PANELS_NO_CELL: outside the raster, or in no panel of the geometry
 */
uint32_t panels_cell(const struct panels *p, double row, double column);

#endif /* PANELS_H */
