/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Pictures with several panels side by side, each with a caption. A panel shows an image of the
 * raster. Large rasters are scaled down.
 *
 * A panel has one cell per dot. Its value is the maximum of the pixels that it represents, or NaN
 * if none has a value. The colour is a logarithmic function of the value, relative to the brightest
 * cells of the panel.
 */
#ifndef PANELS_H
#define PANELS_H

#include <stddef.h>
#include <stdint.h>

#include "picture/canvas.h"

#define PANELS_SIDE_MAX 1024 /**< maximum width and height of a panel in cells */

/** Dimensions of raster and panels. */
struct panels {
	uint32_t rows; /**< pixels of the raster */
	uint32_t cols;
	uint32_t by;	/**< a cell represents by x by pixels */
	uint32_t width; /**< of a panel, in cells */
	uint32_t height;
};

/** Set the dimensions for a raster of rows x cols pixels, each at least 1. */
void panels_init(struct panels *p, uint32_t rows, uint32_t cols);

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

/** Create a canvas with room for `nb` panels. @return 0; -EINVAL; -ENOMEM */
int panels_canvas(const struct panels *p, unsigned int nb, struct canvas *c);

/** Draw a panel over the previous one. @param place  index of the panel, from the left */
void panels_draw(const struct panels *p, struct canvas *c, unsigned int place, const char *caption,
	const float *cells);

#endif /* PANELS_H */
