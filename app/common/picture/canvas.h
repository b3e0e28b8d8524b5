/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A picture to draw into: rectangles, lines, text in a 5 x 7 dot font; saved as PNG.
 * Everything that lies outside is left out.
 */
#ifndef CANVAS_H
#define CANVAS_H

#include <stdint.h>

/** Colours are 0xRRGGBB. */
#define CANVAS_WHITE 0xFFFFFFu
#define CANVAS_BLACK 0x202020u

/** Width of a character with the gap to its neighbour, at scale 1. */
#define CANVAS_CHAR_WIDTH 6

struct canvas {
	int width;
	int height;
	uint8_t *rgb;
};

/**
 * All of one colour. One thread per canvas, here and below.
 * @param width, height  dots, 1 to 16,384
 * @return 0; -EINVAL: another size; -ENOMEM
 */
int canvas_init(struct canvas *c, int width, int height, uint32_t colour);

/** Once more does nothing. */
void canvas_free(struct canvas *c);

/** x to the right, y down, in dots from the upper left corner: 0, 0. */
void canvas_dot(struct canvas *c, int x, int y, uint32_t colour);

/** A rectangle whose upper left dot is x, y; nothing if a side is 0 or less. */
void canvas_fill(struct canvas *c, int x, int y, int width, int height, uint32_t colour);

/** One dot wide, both ends included. */
void canvas_line(struct canvas *c, int x0, int y0, int x1, int y1, uint32_t colour);

/** Upper left corner at x, y; every dot is scale x scale. */
void canvas_text(struct canvas *c, int x, int y, int scale, uint32_t colour, const char *text);

/** @return width of a text in dots */
int canvas_text_width(int scale, const char *text);

/** How to compress. */
enum canvas_effort {
	CANVAS_SMALL, /**< the file is to be small */
	CANVAS_FAST,  /**< it is to be there soon */
};

/** Write a PNG file. @return 0 or -errno */
int canvas_save(const struct canvas *c, const char *path, enum canvas_effort effort);

#endif /* CANVAS_H */
