/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A figure with images of a detector (panels.h): each has a title, axes in pixels, a colour scale
 * with its unit, resolution rings and marks of peaks. A legend explains colours and lines. Images
 * that are wider than high are placed one below the other, others side by side.
 *
 * A cell is a square of whole dots of one colour; nothing is interpolated. The size and the places
 * of the images depend on the panels only. One thread per figure.
 */
#ifndef FIGURE_H
#define FIGURE_H

#include "picture/drawing.h"
#include "picture/panels.h"

struct figure;

/**
 * Create a figure.
 * @param p      must outlive the figure
 * @param nb     number of images, at least 1
 * @param peaks  the legend has the marks of figure_mark()
 * @return 0; -EINVAL: too large; -ENOMEM
 */
int figure_create(struct figure **f, enum drawing_kind kind, const struct panels *p,
	unsigned int nb, bool peaks);

/** NULL is allowed. */
void figure_free(struct figure *f);

/** Place of the first dot of an image, and dots of a side of a cell. */
struct figure_place {
	int x, y, zoom;
};

struct figure_place figure_place(const struct figure *f, unsigned int image);

/**
 * Draw an image over the previous one.
 * @param image  index, from the left or from the top
 * @param unit   of the values
 * @param cells  float[height][width] of the panels
 */
void figure_draw(struct figure *f, unsigned int image, const char *title, const char *unit,
	const float *cells);

/**
 * Draw a circle around a pixel of the raster; nothing if it is in no panel of the geometry.
 * @param image  as in figure_draw(), which is called before
 */
void figure_mark(struct figure *f, unsigned int image, double row, double column);

/** Write the file. @return as drawing_save() */
int figure_save(struct figure *f, const char *path, enum drawing_effort effort);

#endif /* FIGURE_H */
