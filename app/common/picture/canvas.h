/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Drawing of pictures: rectangles, lines, and text in a 5 x 7 dot font. A picture is saved as PNG.
 * Dots outside the picture are ignored. One thread per canvas.
 */
#ifndef CANVAS_H
#define CANVAS_H

#include <stdint.h>

/** Colours are 0xRRGGBB. */
#define CANVAS_WHITE 0xFFFFFFu
#define CANVAS_BLACK 0x202020u

/** Width of a character with the gap to the next one, in dots at scale 1. */
#define CANVAS_CHAR_WIDTH 6

struct canvas {
	int width;
	int height;
	uint8_t *rgb;
};

/**
 * Create a canvas of one colour.
 * @param width, height  dots, 1 to 16,384
 * @return 0; -EINVAL: invalid size; -ENOMEM
 */
int canvas_init(struct canvas *c, int width, int height, uint32_t colour);

/** Free a canvas. Further calls do nothing. */
void canvas_free(struct canvas *c);

/** Draw a dot. The upper left corner is 0, 0; x goes to the right, y down. */
void canvas_dot(struct canvas *c, int x, int y, uint32_t colour);

/** Fill a rectangle whose upper left dot is x, y. Nothing is drawn if a side is 0 or less. */
void canvas_fill(struct canvas *c, int x, int y, int width, int height, uint32_t colour);

/** Draw a line of one dot width, including both ends. */
void canvas_line(struct canvas *c, int x0, int y0, int x1, int y1, uint32_t colour);

/** Draw text with its upper left corner at x, y. Each dot of the font is scale x scale dots. */
void canvas_text(struct canvas *c, int x, int y, int scale, uint32_t colour, const char *text);

/** @return width of a text in dots */
int canvas_text_width(int scale, const char *text);

/** Compression of the file. */
enum canvas_effort {
	CANVAS_SMALL, /**< optimize for size */
	CANVAS_FAST,  /**< optimize for speed */
};

/** Write a PNG file. @return 0 or -errno */
int canvas_save(const struct canvas *c, const char *path, enum canvas_effort effort);

#endif /* CANVAS_H */
