/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "geometry/pixels.h"
#include "picture/panels.h"

#define PANEL_MIN  400
#define MARGIN	   12
#define CAPTION	   24
#define NO_VALUE   0x303848u /* masked, invalid or missing */
#define BACKGROUND 0x181818u
#define TEXT	   0xE0E0E0u
#define RING	   0x58B890u
#define RING_APART 50 /* least difference of radii, cells */
#define RING_STEP  4  /* dots from one dot of a ring to the next */
#define MARK	   0x40E0FFu
#define MARK_CELLS 6 /* radius of the circle around a peak: it leaves 7 x 7 pixels visible */

/*
 * Positive floats have the order of their bit patterns. Radix selection over the lower 31 bits, in
 * three digits.
 */
#define DIGITS	   3
#define DIGIT_BITS 11
#define DIGIT_SIZE (1u << DIGIT_BITS)

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

/* Horizontal distance between panels, in dots. */
static int
panel_step(const struct panels *p)
{
	return (p->width > PANEL_MIN ? p->width : PANEL_MIN) + MARGIN;
}

static int
panel_left(const struct panels *p, unsigned int place)
{
	return MARGIN + place * panel_step(p);
}

int
panels_canvas(const struct panels *p, unsigned int nb, struct canvas *c)
{
	return canvas_init(
		c, MARGIN + nb * panel_step(p), CAPTION + p->height + MARGIN, BACKGROUND);
}

static uint32_t
bits_of(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}

/* @return the n-th largest finite positive value; n starts at 0 and is below their number */
static float
largest(const float *cells, size_t nb_cells, size_t n)
{
	uint32_t count[DIGIT_SIZE], known = 0, mask = 0, digit, bits;
	unsigned int shift;
	float v;
	size_t i;

	for (shift = (DIGITS - 1) * DIGIT_BITS;; shift -= DIGIT_BITS) {
		memset(count, 0, sizeof(count));
		for (i = 0; i < nb_cells; i++) {
			bits = bits_of(cells[i]);
			if (cells[i] > 0 && cells[i] < INFINITY && (bits & mask) == known)
				count[bits >> shift & (DIGIT_SIZE - 1)]++;
		}
		for (digit = DIGIT_SIZE - 1; digit > 0 && n >= count[digit]; digit--)
			n -= count[digit];
		known |= digit << shift;
		mask |= (DIGIT_SIZE - 1) << shift;
		if (shift == 0)
			break;
	}
	memcpy(&v, &known, sizeof(v));
	return v;
}

/*
 * Upper limit of the colour scale of a panel. The largest 0.1 % of the positive values are ignored,
 * so that a hot pixel does not make all other pixels dark.
 */
static float
brightest(const float *cells, size_t nb_cells)
{
	size_t i, nb = 0;
	float top;

	for (i = 0; i < nb_cells; i++)
		nb += cells[i] > 0 && cells[i] < INFINITY;
	if (nb == 0)
		return 1.0f;
	top = largest(cells, nb_cells, nb / 1000);
	return top > 1.0f ? top : 1.0f;
}

/* Colour map from dark to light with uniform steps in lightness. @param t  0 to 1 */
static uint32_t
colour_of(float t)
{
	static const uint8_t map[][3] = {{0, 0, 8}, {30, 12, 68}, {84, 15, 109}, {136, 34, 106},
		{187, 55, 84}, {227, 89, 51}, {249, 140, 10}, {249, 201, 50}, {252, 255, 200}};
	const int last = sizeof(map) / sizeof(map[0]) - 1;
	uint32_t colour = 0;
	float x = (t < 0 ? 0 : t > 1 ? 1 : t) * last;
	int i = x >= last ? last - 1 : (int)x, k;

	for (k = 0; k < 3; k++)
		colour = colour << 8 |
			(uint32_t)lrintf(map[i][k] + (map[i + 1][k] - map[i][k]) * (x - i));
	return colour;
}

/* Write the resolution beside a ring, where there is room. */
static void
label_ring(const struct panels *p, struct canvas *c, int left, unsigned int ring)
{
	const double radius = p->rings.radius[ring] / p->by;
	char text[32];
	int width;

	snprintf(text, sizeof(text), "%g A", p->rings.d[ring]);
	width = canvas_text_width(1, text);
	for (int i = 0; i < 16; i++) {
		const double angle = (2 * i + 1) * M_PI / 16;
		const double x = p->beam_x + radius * cos(angle) + 2;
		const double y = p->beam_y - radius * sin(angle) - 8;

		if (x < 0 || y < 0 || x + width > p->width || y + 8 > p->height)
			continue;
		canvas_text(c, left + (int)x, CAPTION + (int)y, 1, RING, text);
		return;
	}
}

/* Draw the part of a circle that is in a panel. @param step  from one dot to the next */
static void
draw_circle(const struct panels *p, struct canvas *c, int left, double x, double y, double radius,
	double step, uint32_t colour)
{
	const int dots = (int)(2 * M_PI * radius / step);

	for (int k = 0; k < dots; k++) {
		const double dot_x = x + radius * cos(2 * M_PI * k / dots);
		const double dot_y = y - radius * sin(2 * M_PI * k / dots);

		if (dot_x >= 0 && dot_y >= 0 && dot_x < p->width && dot_y < p->height)
			canvas_dot(c, left + (int)dot_x, CAPTION + (int)dot_y, colour);
	}
}

static void
draw_rings(const struct panels *p, struct canvas *c, int left)
{
	for (unsigned int i = 0; i < p->rings.nb; i++) {
		draw_circle(p, c, left, p->beam_x, p->beam_y, p->rings.radius[i] / p->by, RING_STEP,
			RING);
		label_ring(p, c, left, i);
	}
}

void
panels_draw(const struct panels *p, struct canvas *c, unsigned int place, const char *caption,
	const float *cells)
{
	const float bright = brightest(cells, panels_cells(p));
	const int left = panel_left(p, place);
	uint32_t x, y;
	float v;

	canvas_fill(c, left, 0, panel_step(p), CAPTION, BACKGROUND);
	canvas_text(c, left, 6, 2, TEXT, caption);
	for (y = 0; y < p->height; y++) {
		for (x = 0; x < p->width; x++) {
			v = cells[(size_t)y * p->width + x];
			canvas_dot(c, left + x, CAPTION + y,
				v != v		? NO_VALUE
					: v > 0 ? colour_of(powf(log1pf(v) / log1pf(bright), 0.7f))
						: colour_of(0));
		}
	}
	draw_rings(p, c, left);
}

void
panels_mark(const struct panels *p, struct canvas *c, unsigned int place, double row, double column)
{
	size_t at;

	/* this form of the comparison also rejects NaN */
	if (!(row > -0.5 && row < p->rows - 0.5 && column > -0.5 && column < p->cols - 0.5))
		return;
	at = p->cell != NULL
		? p->cell[(size_t)(row + 0.5) * p->cols + (size_t)(column + 0.5)]
		: (size_t)(row + 0.5) / p->by * p->width + (size_t)(column + 0.5) / p->by;
	if (at != PANELS_NO_CELL)
		draw_circle(p, c, panel_left(p, place), at % p->width + 0.5, at / p->width + 0.5,
			MARK_CELLS, 1, MARK);
}
