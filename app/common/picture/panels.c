/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/pixels.h"
#include "picture/panels.h"

#define RING_APART 50 /* minimum difference of radii, cells */

/* Set how many pixels are a cell. */
static void
scale(struct panels *p, uint32_t width, uint32_t height)
{
	const uint32_t side = width > height ? width : height;

	p->by = side > PANELS_SIDE_MAX ? (side + PANELS_SIDE_MAX - 1) / PANELS_SIDE_MAX : 1;
	p->width = (width + p->by - 1) / p->by;
	p->height = (height + p->by - 1) / p->by;
}

/* Put the pixels at their places. */
static int
place(struct panels *p, const struct geometry *g, const struct pixels_picture *picture)
{
	const size_t pixels = (size_t)p->rows * p->cols;
	double x, y;

	p->cell = malloc(pixels * sizeof(*p->cell));
	if (p->cell == NULL)
		return -ENOMEM;
	pixels_place(g, picture, p->cell);
	scale(p, picture->width, picture->height);
	for (size_t i = 0; i < pixels; i++) {
		const uint32_t at = p->cell[i];

		if (at != PIXELS_NOWHERE)
			p->cell[i] = at / picture->width / p->by * p->width +
				at % picture->width / p->by;
	}
	p->beam_x = (0 - picture->left) / p->by;
	p->beam_y = picture->top / p->by;
	x = fmax(fabs(picture->left), fabs(picture->left + picture->width));
	y = fmax(fabs(picture->top), fabs(picture->top - picture->height));
	rings_choose(&p->rings, g, hypot(x, y), (double)RING_APART * p->by);
	return 0;
}

int
panels_init(struct panels *p, uint32_t rows, uint32_t cols, const struct geometry *g)
{
	struct pixels_picture picture;

	static_assert(PANELS_NO_CELL == PIXELS_NOWHERE, "kept by place()");
	memset(p, 0, sizeof(*p));
	p->rows = rows;
	p->cols = cols;
	scale(p, cols, rows);
	if (g == NULL || g->rows != rows || g->cols != cols || pixels_picture(g, &picture) != 0)
		return 0;
	return place(p, g, &picture);
}

void
panels_free(struct panels *p)
{
	free(p->cell);
	p->cell = NULL;
}

void
panels_shrink(const struct panels *p, const float *plane, float *cells)
{
	uint32_t x, y;
	size_t i, at;

	for (i = 0; i < panels_cells(p); i++)
		cells[i] = NAN;
	for (y = 0, i = 0; y < p->rows; y++) {
		for (x = 0; x < p->cols; x++, i++) {
			at = p->cell != NULL ? p->cell[i]
					     : (size_t)(y / p->by) * p->width + x / p->by;
			if (at != PANELS_NO_CELL && !(cells[at] >= plane[i]) &&
				plane[i] == plane[i])
				cells[at] = plane[i];
		}
	}
}

uint32_t
panels_cell(const struct panels *p, double row, double column)
{
	/* this form of the comparison also rejects NaN */
	if (!(row > -0.5 && row < p->rows - 0.5 && column > -0.5 && column < p->cols - 0.5))
		return PANELS_NO_CELL;
	if (p->cell != NULL)
		return p->cell[(size_t)(row + 0.5) * p->cols + (size_t)(column + 0.5)];
	return (uint32_t)(row + 0.5) / p->by * p->width + (uint32_t)(column + 0.5) / p->by;
}
