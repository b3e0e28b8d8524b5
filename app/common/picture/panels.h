/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Images of the raster side by side, each with a caption; larger rasters are scaled down.
 *
 * A panel has a cell for every dot: the brightest of the pixels that it stands for. NaN is a cell
 * without a value. Photons are coloured by the logarithm, up to the panel's own brightest ones.
 */
#ifndef PANELS_H
#define PANELS_H

#include <stddef.h>
#include <stdint.h>

#include "picture/canvas.h"

#define PANELS_SIDE_MAX 1024 /**< cells */

/** Shapes. */
struct panels {
	uint32_t rows; /**< pixels of the raster */
	uint32_t cols;
	uint32_t by;	/**< so many rows and columns are one cell's */
	uint32_t width; /**< cells of a panel */
	uint32_t height;
};

/** Shapes for a raster of rows x cols pixels, each at least 1. */
void panels_init(struct panels *p, uint32_t rows, uint32_t cols);

/** @return cells of a panel */
static inline size_t
panels_cells(const struct panels *p)
{
	return (size_t)p->width * p->height;
}

/** @param plane  float[rows][cols]; @param cells  out, float[height][width] */
void panels_shrink(const struct panels *p, const float *plane, float *cells);

/** Make a canvas with room for `nb` panels. @return 0, -EINVAL, -ENOMEM */
int panels_canvas(const struct panels *p, unsigned int nb, struct canvas *c);

/** Draw panel `place`, counted from the left, over what was there. */
void panels_draw(const struct panels *p, struct canvas *c, unsigned int place, const char *caption,
	const float *cells);

#endif /* PANELS_H */
