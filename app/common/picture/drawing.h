/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A picture that is drawn with cairo and saved as PNG or SVG. The same calls give the same bytes in
 * every process of a machine. One thread per drawing; not for a polling lcore.
 *
 * Text is drawn by the font DejaVu Sans, or by the font that fontconfig finds in its place. Without
 * any font, cairo draws ASCII characters itself, as lines. In SVG, text stays text and is drawn in
 * front of everything else.
 */
#ifndef DRAWING_H
#define DRAWING_H

#include <stdbool.h>
#include <stdint.h>

#include <cairo.h>

#define DRAWING_SIDE_MAX 16384

/** Names of the files, for messages. */
#define DRAWING_NAMES ".png or .svg"

enum drawing_kind {
	DRAWING_PNG,
	DRAWING_SVG, /**< saved once, and not changed afterwards */
};

enum drawing_align {
	DRAWING_LEFT, /**< the text begins at the point */
	DRAWING_CENTRE,
	DRAWING_RIGHT, /**< the text ends at the point */
};

/** Compression of a PNG. */
enum drawing_effort {
	DRAWING_SMALL, /**< optimize for size */
	DRAWING_FAST,  /**< optimize for speed */
};

/** How a text is drawn. */
struct drawing_font {
	double size; /**< in dots */
	enum drawing_align align;
	uint32_t colour; /**< 0xRRGGBB */
	uint32_t halo;	 /**< colour of an outline; DRAWING_NO_HALO: none */
	bool upwards;	 /**< turned by 90 degrees, from bottom to top */
};

#define DRAWING_NO_HALO UINT32_MAX

struct drawing;

/** Kind of a file, by the end of its name. @return 0; -EINVAL: not one of DRAWING_NAMES */
int drawing_kind_of(const char *path, enum drawing_kind *kind);

/**
 * Create a drawing of one colour.
 * @param width, height  dots, 1 to DRAWING_SIDE_MAX
 * @return 0; -EINVAL: invalid size; -ENOMEM
 */
int drawing_create(
	struct drawing **d, enum drawing_kind kind, int width, int height, uint32_t background);

/** NULL is allowed. */
void drawing_free(struct drawing *d);

/** Cairo's context, for all but text. A dot is a unit of its initial coordinates. */
cairo_t *drawing_cairo(struct drawing *d);

/** Set the colour of what cairo draws next: 0xRRGGBB. */
void drawing_colour(cairo_t *cr, uint32_t colour);

/** Fill a rectangle. */
void drawing_fill(cairo_t *cr, double x, double y, double width, double height, uint32_t colour);

/** Draw a line between two points, centred on them, with a width of 1 dot. */
void drawing_line(
	cairo_t *cr, double from_x, double from_y, double to_x, double to_y, uint32_t colour);

/**
 * Draw text whose base line is at a point. Control characters and invalid UTF-8 are escaped.
 * @param x, y  finite, in the initial coordinates
 */
void drawing_text(
	struct drawing *d, double x, double y, const struct drawing_font *font, const char *text);

/**
 * Write the file. An existing regular file is replaced.
 * @return 0; -ENOMEM; -EIO: cairo failed; -errno; own_file_error() has the text
 */
int drawing_save(struct drawing *d, const char *path, enum drawing_effort effort);

#endif /* DRAWING_H */
