/* SPDX-License-Identifier: BSD-3-Clause */

#include <math.h>
#include <string.h>

#include "picture/panels.h"

#define PANEL_MIN  400
#define MARGIN	   12
#define CAPTION	   24
#define NO_VALUE   0x303848u /* masked, invalid or missing */
#define BACKGROUND 0x181818u
#define TEXT	   0xE0E0E0u

/*
 * Positive floats have the order of their bit patterns. Radix selection over the lower 31 bits, in
 * three digits.
 */
#define DIGITS	   3
#define DIGIT_BITS 11
#define DIGIT_SIZE (1u << DIGIT_BITS)

void
panels_init(struct panels *p, uint32_t rows, uint32_t cols)
{
	const uint32_t side = rows > cols ? rows : cols;

	p->rows = rows;
	p->cols = cols;
	p->by = side > PANELS_SIDE_MAX ? (side + PANELS_SIDE_MAX - 1) / PANELS_SIDE_MAX : 1;
	p->width = (cols + p->by - 1) / p->by;
	p->height = (rows + p->by - 1) / p->by;
}

void
panels_shrink(const struct panels *p, const float *plane, float *cells)
{
	float *cell, v;
	uint32_t x, y;
	size_t i;

	for (i = 0; i < panels_cells(p); i++)
		cells[i] = NAN;
	for (y = 0; y < p->rows; y++) {
		for (x = 0; x < p->cols; x++) {
			v = plane[(size_t)y * p->cols + x];
			cell = &cells[(size_t)(y / p->by) * p->width + x / p->by];
			if (!(*cell >= v) && v == v)
				*cell = v;
		}
	}
}

/* Horizontal distance between panels, in dots. */
static int
panel_step(const struct panels *p)
{
	return (p->width > PANEL_MIN ? p->width : PANEL_MIN) + MARGIN;
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

void
panels_draw(const struct panels *p, struct canvas *c, unsigned int place, const char *caption,
	const float *cells)
{
	const float bright = brightest(cells, panels_cells(p));
	const int left = MARGIN + place * panel_step(p);
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
}
