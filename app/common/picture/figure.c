/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "picture/colours.h"
#include "picture/figure.h"
#include "picture/ticks.h"

#define BACKGROUND 0xFFFFFFu
#define TEXT	   0x202020u
#define RING	   0x7CF0B8u
#define MARK	   0x40E0FFu
#define HALO	   0x101010u

#define SIDE_DOTS	800 /* small images are enlarged to at most this size */
#define ZOOM_MAX	16
#define WIDE_RATIO	1.3 /* from this ratio of width to height on, images are below each other */
#define COLUMN_MIN	34  /* minimum width of image and margins, in font sizes, for a title */
#define MARK_DOTS	7   /* radius of a mark; 5 x 5 cells stay visible */
#define CHARACTER_WIDTH 0.62 /* mean, in font sizes: the layout does not depend on the font */
#define LEGEND_MAX	5
/* Cairo's coordinates have 24 bits before the point. A ring of this radius is a straight line. */
#define RADIUS_MAX 1e6

/* Entry of the legend. */
enum entry {
	ENTRY_NO_VALUE,
	ENTRY_SATURATED,
	ENTRY_NO_SENSOR,
	ENTRY_RING,
	ENTRY_PEAK,
	ENTRIES
};

static const char *const entry_text[ENTRIES] = {
	[ENTRY_NO_VALUE] = "masked, invalid or missing",
	[ENTRY_SATURATED] = "saturated",
	[ENTRY_NO_SENSOR] = "no sensor",
	[ENTRY_RING] = "resolution, beam",
	[ENTRY_PEAK] = "peak found",
};

struct figure {
	struct drawing *drawing;
	cairo_surface_t *image; /* a dot per cell */
	const struct panels *panels;
	uint8_t *sensor; /* [cells], the cell has pixels; NULL: all have */
	unsigned int nb;
	bool peaks;
	int width, height; /* size of the figure, dots */
	int zoom;
	int font;
	bool below;	  /* images are one below the other */
	int column, line; /* size of an image with its margins, dots */
	int left, top;	  /* margins of an image */
	int legend_y;	  /* upper edge */
	int legend_lines;
};

static double
entry_width(const struct figure *f, enum entry e)
{
	return (2.4 + strlen(entry_text[e]) * CHARACTER_WIDTH) * f->font;
}

static bool
has_entry(const struct figure *f, enum entry e)
{
	switch (e) {
	case ENTRY_NO_SENSOR:
		return f->sensor != NULL;
	case ENTRY_RING:
		return f->panels->rings.nb > 0;
	case ENTRY_PEAK:
		return f->peaks;
	default:
		return true;
	}
}

/* Set sizes and margins. */
static void
arrange(struct figure *f)
{
	const struct panels *p = f->panels;
	const uint32_t side = p->width > p->height ? p->width : p->height;
	int image_width, image_height;
	double x;

	f->zoom = p->by > 1 || side > SIDE_DOTS / 2 ? 1
		: side * ZOOM_MAX <= SIDE_DOTS	    ? ZOOM_MAX
						    : SIDE_DOTS / (int)side;
	image_width = p->width * f->zoom;
	image_height = p->height * f->zoom;
	f->font = side * f->zoom / 55;
	f->font = f->font < 13 ? 13 : f->font > 19 ? 19 : f->font;
	f->left = 5 * f->font;
	f->top = 5 * f->font / 2;
	f->column = f->left + image_width + 15 * f->font / 2;
	if (f->column < COLUMN_MIN * f->font)
		f->column = COLUMN_MIN * f->font;
	f->line = f->top + image_height + 4 * f->font;
	f->below = image_width > WIDE_RATIO * image_height;
	f->width = f->column * (f->below ? 1 : f->nb);
	f->legend_y = f->line * (f->below ? f->nb : 1);
	f->legend_lines = 1;
	x = f->left;
	for (enum entry e = 0; e < ENTRIES; e++) {
		if (!has_entry(f, e))
			continue;
		if (x > f->left && x + entry_width(f, e) > f->width) {
			f->legend_lines++;
			x = f->left;
		}
		x += entry_width(f, e);
	}
	f->height = f->legend_y + (2 * f->legend_lines + 1) * f->font;
}

struct figure_place
figure_place(const struct figure *f, unsigned int image)
{
	return (struct figure_place){
		.x = f->left + (f->below ? 0 : image * f->column),
		.y = f->top + (f->below ? image * f->line : 0),
		.zoom = f->zoom,
	};
}

static struct drawing_font
font_of(const struct figure *f, enum drawing_align align)
{
	return (struct drawing_font){
		.size = f->font,
		.align = align,
		.colour = TEXT,
		.halo = DRAWING_NO_HALO,
	};
}

/*
 * Stroke a line over an image. Without antialiasing every dot is that of the image or of the line,
 * and the file has half the size.
 */
static void
stroke_over(cairo_t *cr, uint32_t colour, double width)
{
	drawing_colour(cr, colour);
	cairo_set_line_width(cr, width);
	cairo_set_antialias(cr, CAIRO_ANTIALIAS_NONE);
	cairo_stroke(cr);
	cairo_set_antialias(cr, CAIRO_ANTIALIAS_DEFAULT);
}

static void
circle(cairo_t *cr, double x, double y, double radius)
{
	cairo_new_sub_path(cr);
	cairo_arc(cr, x, y, radius, 0, 2 * M_PI);
}

static void
stroke_mark(cairo_t *cr, double x, double y)
{
	circle(cr, x, y, MARK_DOTS);
	stroke_over(cr, MARK, 1.5);
}

static void
stroke_ring(cairo_t *cr)
{
	static const double dashes[] = {5, 4};

	cairo_set_dash(cr, dashes, 2, 0);
	stroke_over(cr, RING, 1);
	cairo_set_dash(cr, NULL, 0, 0);
}

static void
draw_sample(struct figure *f, enum entry e, double x, double y)
{
	static const uint32_t colour[ENTRIES] = {
		[ENTRY_NO_VALUE] = COLOURS_NO_VALUE,
		[ENTRY_SATURATED] = COLOURS_SATURATED,
		[ENTRY_NO_SENSOR] = COLOURS_NO_SENSOR,
	};
	cairo_t *cr = drawing_cairo(f->drawing);
	const double side = f->font;

	drawing_fill(cr, x, y, side, side, colour[e]);
	if (e == ENTRY_RING) {
		cairo_move_to(cr, x, y + rint(side / 2) + 0.5);
		cairo_line_to(cr, x + side, y + rint(side / 2) + 0.5);
		stroke_ring(cr);
	} else if (e == ENTRY_PEAK) {
		stroke_mark(cr, x + side / 2, y + side / 2);
	}
}

static void
draw_legend(struct figure *f)
{
	const struct drawing_font font = font_of(f, DRAWING_LEFT);
	double x = f->left, y = f->legend_y;

	for (enum entry e = 0; e < ENTRIES; e++) {
		if (!has_entry(f, e))
			continue;
		if (x > f->left && x + entry_width(f, e) > f->width) {
			x = f->left;
			y += 2 * f->font;
		}
		draw_sample(f, e, rint(x), y);
		drawing_text(f->drawing, rint(x) + 1.4 * f->font, y + 0.85 * f->font, &font,
			entry_text[e]);
		x += entry_width(f, e);
	}
}

/* Find the cells that have pixels, if others have none. */
static int
find_sensor(struct figure *f)
{
	const struct panels *p = f->panels;

	if (p->cell == NULL)
		return 0;
	f->sensor = calloc(panels_cells(p), 1);
	if (f->sensor == NULL)
		return -ENOMEM;
	for (size_t i = 0; i < (size_t)p->rows * p->cols; i++) {
		if (p->cell[i] != PANELS_NO_CELL)
			f->sensor[p->cell[i]] = 1;
	}
	return 0;
}

int
figure_create(struct figure **out, enum drawing_kind kind, const struct panels *p, unsigned int nb,
	bool peaks)
{
	struct figure *f = calloc(1, sizeof(*f));
	int ret = -ENOMEM;

	*out = NULL;
	if (f == NULL)
		return -ENOMEM;
	f->panels = p;
	f->nb = nb;
	f->peaks = peaks;
	ret = find_sensor(f);
	if (ret < 0)
		goto fail;
	arrange(f);
	ret = drawing_create(&f->drawing, kind, f->width, f->height, BACKGROUND);
	if (ret < 0)
		goto fail;
	f->image = cairo_image_surface_create(CAIRO_FORMAT_RGB24, p->width, p->height);
	if (cairo_surface_status(f->image) != CAIRO_STATUS_SUCCESS) {
		ret = -ENOMEM;
		goto fail;
	}
	draw_legend(f);
	*out = f;
	return 0;

fail:
	figure_free(f);
	return ret;
}

void
figure_free(struct figure *f)
{
	if (f == NULL)
		return;
	if (f->image != NULL)
		cairo_surface_destroy(f->image);
	drawing_free(f->drawing);
	free(f->sensor);
	free(f);
}

static void
draw_cells(struct figure *f, struct figure_place at, float top, const float *cells)
{
	const struct panels *p = f->panels;
	cairo_t *cr = drawing_cairo(f->drawing);
	const int stride = cairo_image_surface_get_stride(f->image);
	uint8_t *const data = cairo_image_surface_get_data(f->image);
	size_t i = 0;

	cairo_surface_flush(f->image);
	for (uint32_t y = 0; y < p->height; y++) {
		for (uint32_t x = 0; x < p->width; x++, i++) {
			const uint32_t colour = f->sensor != NULL && !f->sensor[i]
				? COLOURS_NO_SENSOR
				: colours_of(cells[i], top);

			memcpy(data + (size_t)y * stride + 4 * (size_t)x, &colour, sizeof(colour));
		}
	}
	cairo_surface_mark_dirty(f->image);
	cairo_save(cr);
	cairo_rectangle(cr, at.x, at.y, (double)p->width * at.zoom, (double)p->height * at.zoom);
	cairo_clip(cr);
	cairo_translate(cr, at.x, at.y);
	cairo_scale(cr, at.zoom, at.zoom);
	cairo_set_source_surface(cr, f->image, 0, 0);
	cairo_pattern_set_filter(cairo_get_source(cr), CAIRO_FILTER_NEAREST);
	cairo_paint(cr);
	cairo_restore(cr);
}

/* Write the resolution on a ring, where there is room: at 45 degrees, else nearby. */
static void
label_ring(struct figure *f, struct figure_place at, unsigned int ring)
{
	static const int sixteenths[] = {4, 5, 3, 6, 2, 7, 1, 8, 0, -4, 12, -12, -2, 14, -6, 16};
	const struct panels *p = f->panels;
	const double scale = (double)at.zoom / p->by;
	const double radius = p->rings.radius[ring] * scale;
	const double width = p->width * at.zoom, height = p->height * at.zoom;
	struct drawing_font font = font_of(f, DRAWING_CENTRE);
	double across;
	char text[32];

	font.size = rint(0.85 * f->font);
	font.colour = RING;
	font.halo = HALO;
	snprintf(text, sizeof(text), "%g \u00C5", p->rings.d[ring]);
	across = strlen(text) * CHARACTER_WIDTH * font.size / 2;
	for (unsigned int i = 0; i < sizeof(sixteenths) / sizeof(sixteenths[0]); i++) {
		const double angle = sixteenths[i] * M_PI / 16;
		const double x = p->beam_x * at.zoom + radius * cos(angle);
		const double y = p->beam_y * at.zoom - radius * sin(angle) + 0.35 * font.size;

		if (x - across < 0 || x + across > width || y - font.size < 0 || y + 3 > height)
			continue;
		drawing_text(f->drawing, at.x + x, at.y + y, &font, text);
		return;
	}
}

static void
draw_rings(struct figure *f, struct figure_place at)
{
	const struct panels *p = f->panels;
	cairo_t *cr = drawing_cairo(f->drawing);
	const double x = at.x + p->beam_x * at.zoom, y = at.y + p->beam_y * at.zoom;
	const double arm = 0.6 * f->font;

	if (p->rings.nb == 0 || !(hypot(x, y) < RADIUS_MAX))
		return;
	cairo_save(cr);
	cairo_rectangle(cr, at.x, at.y, (double)p->width * at.zoom, (double)p->height * at.zoom);
	cairo_clip(cr);
	for (unsigned int i = 0; i < p->rings.nb; i++) {
		const double radius = p->rings.radius[i] * at.zoom / p->by;

		if (!(radius < RADIUS_MAX))
			continue;
		circle(cr, x, y, radius);
		stroke_ring(cr);
	}
	cairo_move_to(cr, x - arm, y);
	cairo_line_to(cr, x + arm, y);
	cairo_move_to(cr, x, y - arm);
	cairo_line_to(cr, x, y + arm);
	stroke_over(cr, RING, 1);
	cairo_restore(cr);
	for (unsigned int i = 0; i < p->rings.nb; i++) {
		if (p->rings.radius[i] * at.zoom / p->by < RADIUS_MAX)
			label_ring(f, at, i);
	}
}

/* Draw the frame, and ticks at the centres of pixels. */
static void
draw_axes(struct figure *f, struct figure_place at)
{
	const struct panels *p = f->panels;
	cairo_t *cr = drawing_cairo(f->drawing);
	const double dots = (double)at.zoom / p->by; /* dots per pixel */
	const int width = p->width * at.zoom, height = p->height * at.zoom;
	struct drawing_font font = font_of(f, DRAWING_CENTRE);
	char text[TICKS_TEXT_LEN];
	struct ticks t;

	drawing_colour(cr, TEXT);
	cairo_set_line_width(cr, 1);
	cairo_rectangle(cr, at.x - 0.5, at.y - 0.5, width + 1, height + 1);
	cairo_stroke(cr);

	ticks_choose(&t, 0, width / dots - 1, 1 + width / (5 * f->font), 1);
	for (unsigned int i = 0; i < t.nb; i++) {
		const double x = at.x + floor((t.value[i] + 0.5) * dots) + 0.5;

		drawing_line(cr, x, at.y + height, x, at.y + height + 6, TEXT);
		ticks_text(text, t.value[i]);
		drawing_text(f->drawing, x, at.y + height + 6 + f->font, &font, text);
	}
	drawing_text(f->drawing, at.x + width / 2, at.y + height + 2.5 * f->font, &font,
		p->cell != NULL ? "x (pixels)" : "column (pixels)");

	font.align = DRAWING_RIGHT;
	ticks_choose(&t, 0, height / dots - 1, 1 + height / (3 * f->font), 1);
	for (unsigned int i = 0; i < t.nb; i++) {
		const double y = at.y + floor((t.value[i] + 0.5) * dots) + 0.5;

		drawing_line(cr, at.x, y, at.x - 6, y, TEXT);
		ticks_text(text, t.value[i]);
		drawing_text(f->drawing, at.x - 9, rint(y + 0.35 * f->font), &font, text);
	}
	font.align = DRAWING_CENTRE;
	font.upwards = true;
	drawing_text(f->drawing, at.x - 3.7 * f->font, at.y + height / 2, &font,
		p->cell != NULL ? "y (pixels)" : "row (pixels)");
}

static void
draw_scale(struct figure *f, struct figure_place at, float top, const char *unit)
{
	const struct panels *p = f->panels;
	cairo_t *cr = drawing_cairo(f->drawing);
	const int height = p->height * at.zoom > 6 * f->font ? p->height * at.zoom : 6 * f->font;
	const int x = at.x + p->width * at.zoom + f->font, width = f->font;
	struct drawing_font font = font_of(f, DRAWING_LEFT);
	char text[TICKS_TEXT_LEN];
	struct ticks t;

	for (int y = 0; y < height; y++)
		drawing_fill(
			cr, x, at.y + height - 1 - y, width, 1, colours_at((y + 0.5) / height));
	drawing_colour(cr, TEXT);
	cairo_rectangle(cr, x - 0.5, at.y - 0.5, width + 1, height + 1);
	cairo_stroke(cr);
	colours_ticks(&t, top, 1.2 * f->font / height);
	for (unsigned int i = 0; i < t.nb; i++) {
		const double y = at.y + rint(height * (1 - colours_place(t.value[i], top))) - 0.5;

		drawing_line(cr, x + width, y, x + width + 6, y, TEXT);
		ticks_text(text, t.value[i]);
		drawing_text(f->drawing, x + width + 9, rint(y + 0.35 * f->font), &font, text);
	}
	font.align = DRAWING_CENTRE;
	font.upwards = true;
	drawing_text(f->drawing, x + width + 4.7 * f->font, at.y + height / 2, &font, unit);
}

void
figure_draw(struct figure *f, unsigned int image, const char *title, const char *unit,
	const float *cells)
{
	const struct figure_place at = figure_place(f, image);
	const float top = colours_top(cells, panels_cells(f->panels));
	const struct drawing_font font = font_of(f, DRAWING_LEFT);

	drawing_fill(drawing_cairo(f->drawing), at.x - f->left, at.y - f->top, f->column, f->line,
		BACKGROUND);
	drawing_text(f->drawing, at.x, at.y - 0.8 * f->font, &font, title);
	draw_cells(f, at, top, cells);
	draw_axes(f, at);
	draw_scale(f, at, top, unit);
	draw_rings(f, at);
}

void
figure_mark(struct figure *f, unsigned int image, double row, double column)
{
	const struct panels *p = f->panels;
	const struct figure_place at = figure_place(f, image);
	const uint32_t cell = panels_cell(p, row, column);
	cairo_t *cr = drawing_cairo(f->drawing);

	if (cell == PANELS_NO_CELL)
		return;
	cairo_save(cr);
	cairo_rectangle(cr, at.x, at.y, (double)p->width * at.zoom, (double)p->height * at.zoom);
	cairo_clip(cr);
	stroke_mark(cr, at.x + (cell % p->width + 0.5) * at.zoom,
		at.y + (cell / p->width + 0.5) * at.zoom);
	cairo_restore(cr);
}

int
figure_save(struct figure *f, const char *path, enum drawing_effort effort)
{
	return drawing_save(f->drawing, path, effort);
}
