/* SPDX-License-Identifier: BSD-3-Clause */

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include <cairo-svg.h>
#include <png.h>

#include "escaped_text.h"
#include "io/own_file.h"
#include "picture/drawing.h"

#define FAMILY	   "DejaVu Sans"
#define SVG_FAMILY FAMILY ", Verdana, sans-serif"
#define HALO	   3.0 /* dots */

/* Bytes that are written to memory. */
struct memory {
	FILE *file;
	char *data;
	size_t size;
};

struct drawing {
	enum drawing_kind kind;
	cairo_surface_t *surface;
	cairo_t *cr;
	struct memory svg;  /* what cairo wrote */
	struct memory text; /* elements of SVG */
};

int
drawing_kind_of(const char *path, enum drawing_kind *kind)
{
	const char *end = strrchr(path, '.');

	if (end == NULL || (strcasecmp(end, ".png") != 0 && strcasecmp(end, ".svg") != 0))
		return -EINVAL;
	*kind = strcasecmp(end, ".svg") == 0 ? DRAWING_SVG : DRAWING_PNG;
	return 0;
}

/* A function of cairo_write_func_t. */
static cairo_status_t
write_bytes(void *file, const unsigned char *data, unsigned int size)
{
	return fwrite(data, 1, size, file) == size ? CAIRO_STATUS_SUCCESS
						   : CAIRO_STATUS_WRITE_ERROR;
}

static int
error_of(cairo_status_t status)
{
	return status == CAIRO_STATUS_SUCCESS	   ? 0
		: status == CAIRO_STATUS_NO_MEMORY ? -ENOMEM
						   : -EIO;
}

static void
set_font(cairo_t *cr)
{
	cairo_font_options_t *o = cairo_font_options_create();

	/* the pixels must not depend on the font options of the user's desktop */
	cairo_font_options_set_antialias(o, CAIRO_ANTIALIAS_GRAY);
	cairo_font_options_set_hint_style(o, CAIRO_HINT_STYLE_SLIGHT);
	cairo_font_options_set_hint_metrics(o, CAIRO_HINT_METRICS_ON);
	cairo_set_font_options(cr, o);
	cairo_font_options_destroy(o);
	cairo_select_font_face(cr, FAMILY, CAIRO_FONT_SLANT_NORMAL, CAIRO_FONT_WEIGHT_NORMAL);
}

int
drawing_create(
	struct drawing **out, enum drawing_kind kind, int width, int height, uint32_t background)
{
	struct drawing *d;
	int ret = -ENOMEM;

	*out = NULL;
	if (width <= 0 || height <= 0 || width > DRAWING_SIDE_MAX || height > DRAWING_SIDE_MAX)
		return -EINVAL;
	d = calloc(1, sizeof(*d));
	if (d == NULL)
		return -ENOMEM;
	d->kind = kind;
	if (kind == DRAWING_SVG) {
		d->svg.file = open_memstream(&d->svg.data, &d->svg.size);
		d->text.file = open_memstream(&d->text.data, &d->text.size);
		if (d->svg.file == NULL || d->text.file == NULL)
			goto fail;
		d->surface = cairo_svg_surface_create_for_stream(
			write_bytes, d->svg.file, width, height);
		cairo_svg_surface_set_document_unit(d->surface, CAIRO_SVG_UNIT_PX);
	} else {
		d->surface = cairo_image_surface_create(CAIRO_FORMAT_RGB24, width, height);
	}
	/* on error, cairo returns objects whose functions have no effect */
	d->cr = cairo_create(d->surface);
	ret = error_of(cairo_status(d->cr));
	if (ret != 0)
		goto fail;
	set_font(d->cr);
	drawing_fill(d->cr, 0, 0, width, height, background);
	*out = d;
	return 0;

fail:
	drawing_free(d);
	return ret;
}

static void
free_memory(struct memory *m)
{
	if (m->file != NULL)
		fclose(m->file);
	free(m->data);
}

void
drawing_free(struct drawing *d)
{
	if (d == NULL)
		return;
	if (d->cr != NULL)
		cairo_destroy(d->cr);
	if (d->surface != NULL)
		cairo_surface_destroy(d->surface);
	free_memory(&d->svg);
	free_memory(&d->text);
	free(d);
}

cairo_t *
drawing_cairo(struct drawing *d)
{
	return d->cr;
}

void
drawing_colour(cairo_t *cr, uint32_t colour)
{
	cairo_set_source_rgb(cr, (colour >> 16 & 255) / 255.0, (colour >> 8 & 255) / 255.0,
		(colour & 255) / 255.0);
}

void
drawing_fill(cairo_t *cr, double x, double y, double width, double height, uint32_t colour)
{
	drawing_colour(cr, colour);
	cairo_rectangle(cr, x, y, width, height);
	cairo_fill(cr);
}

void
drawing_line(cairo_t *cr, double from_x, double from_y, double to_x, double to_y, uint32_t colour)
{
	drawing_colour(cr, colour);
	cairo_set_line_width(cr, 1);
	cairo_move_to(cr, from_x, from_y);
	cairo_line_to(cr, to_x, to_y);
	cairo_stroke(cr);
}

static void
write_escaped(FILE *f, const char *text)
{
	for (; *text != '\0'; text++) {
		switch (*text) {
		case '<':
			fputs("&lt;", f);
			break;
		case '>':
			fputs("&gt;", f);
			break;
		case '&':
			fputs("&amp;", f);
			break;
		default:
			fputc(*text, f);
		}
	}
}

/* Cairo writes glyphs as outlines, which cannot be searched as text. */
static void
write_text(FILE *f, double x, double y, const struct drawing_font *font, const char *text)
{
	static const char *const anchor[] = {
		[DRAWING_LEFT] = "start", [DRAWING_CENTRE] = "middle", [DRAWING_RIGHT] = "end"};

	fprintf(f, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%.2f\" text-anchor=\"%s\"", x, y,
		font->size, anchor[font->align]);
	fprintf(f, " fill=\"#%06x\"", (unsigned int)font->colour);
	if (font->halo != DRAWING_NO_HALO)
		fprintf(f, " stroke=\"#%06x\" stroke-width=\"%g\" paint-order=\"stroke\"",
			(unsigned int)font->halo, HALO);
	if (font->upwards)
		fprintf(f, " transform=\"rotate(-90 %.2f %.2f)\"", x, y);
	fputc('>', f);
	write_escaped(f, text);
	fputs("</text>\n", f);
}

static void
show_text(cairo_t *cr, double x, double y, const struct drawing_font *font, const char *text)
{
	cairo_text_extents_t e;
	double before;

	cairo_save(cr);
	cairo_set_font_size(cr, font->size);
	cairo_text_extents(cr, text, &e);
	before = font->align == DRAWING_LEFT   ? 0
		: font->align == DRAWING_RIGHT ? e.x_advance
					       : e.x_advance / 2;
	cairo_translate(cr, x, y);
	if (font->upwards)
		cairo_rotate(cr, -M_PI / 2);
	/* whole dots, for sharp characters */
	cairo_move_to(cr, -rint(before), 0);
	if (font->halo != DRAWING_NO_HALO) {
		cairo_text_path(cr, text);
		drawing_colour(cr, font->halo);
		cairo_set_line_width(cr, HALO);
		cairo_set_line_join(cr, CAIRO_LINE_JOIN_ROUND);
		cairo_stroke(cr);
		cairo_move_to(cr, -rint(before), 0);
	}
	drawing_colour(cr, font->colour);
	cairo_show_text(cr, text);
	cairo_restore(cr);
}

void
drawing_text(
	struct drawing *d, double x, double y, const struct drawing_font *font, const char *text)
{
	/* invalid UTF-8 would be an error of cairo, control characters are not allowed in XML */
	char *escaped = escaped_text(text);

	if (escaped == NULL)
		return;
	if (d->kind == DRAWING_SVG)
		write_text(d->text.file, x, y, font, escaped);
	else
		show_text(d->cr, x, y, font, escaped);
	free(escaped);
}

/* Write the output of cairo, with the text in front of it. @return 0 or -errno */
static int
write_svg(struct drawing *d, FILE *f)
{
	static const char end[] = "</svg>\n";
	const size_t end_size = sizeof(end) - 1;
	size_t size;

	cairo_surface_finish(d->surface);
	if (fflush(d->svg.file) != 0 || fflush(d->text.file) != 0)
		return -ENOMEM;
	size = d->svg.size;
	if (size < end_size || memcmp(d->svg.data + size - end_size, end, end_size) != 0)
		return -EIO;
	errno = 0;
	fwrite(d->svg.data, 1, size - end_size, f);
	/* cairo 1.16 does not write its filter */
	fputs("<style>image { image-rendering: pixelated }</style>\n", f);
	fputs("<g font-family=\"" SVG_FAMILY "\" stroke-linejoin=\"round\">\n", f);
	fwrite(d->text.data, 1, d->text.size, f);
	fprintf(f, "</g>\n%s", end);
	return ferror(f) ? (errno != 0 ? -errno : -EIO) : 0;
}

static void
png_failed(png_structp png, png_const_charp message)
{
	longjmp(png_jmpbuf(png), 1);
}

static void
png_warned(png_structp png, png_const_charp message)
{
}

/*
 * Cairo's function writes filtered rows, which are a third larger: filters suit photographs, not
 * single pixels on a uniform background.
 */
static int
write_png(struct drawing *d, FILE *f, enum drawing_effort effort)
{
	const unsigned char *data = cairo_image_surface_get_data(d->surface);
	const int stride = cairo_image_surface_get_stride(d->surface);
	const int height = cairo_image_surface_get_height(d->surface);
	png_structp png =
		png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, png_failed, png_warned);
	png_infop info = png != NULL ? png_create_info_struct(png) : NULL;
	int ret;

	errno = 0;
	if (info == NULL) {
		png_destroy_write_struct(&png, NULL);
		return -ENOMEM;
	}
	if (setjmp(png_jmpbuf(png)) != 0) {
		ret = errno != 0 ? -errno : -EIO;
		png_destroy_write_struct(&png, &info);
		return ret;
	}
	png_init_io(png, f);
	png_set_IHDR(png, info, cairo_image_surface_get_width(d->surface), height, 8,
		PNG_COLOR_TYPE_RGB, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_BASE,
		PNG_FILTER_TYPE_BASE);
	png_set_filter(png, PNG_FILTER_TYPE_BASE, PNG_FILTER_NONE);
	if (effort == DRAWING_FAST)
		png_set_compression_level(png, 1);
	png_write_info(png, info);
	/* a pixel of CAIRO_FORMAT_RGB24 is 0xXXRRGGBB */
	static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "order of the bytes of a pixel");
	png_set_bgr(png);
	png_set_filler(png, 0, PNG_FILLER_AFTER);
	for (int y = 0; y < height; y++)
		png_write_row(png, data + (size_t)y * stride);
	png_write_end(png, info);
	png_destroy_write_struct(&png, &info);
	return 0;
}

int
drawing_save(struct drawing *d, const char *path, enum drawing_effort effort)
{
	FILE *f;
	int ret;

	cairo_surface_flush(d->surface);
	ret = error_of(cairo_status(d->cr));
	if (ret != 0)
		return ret;
	f = own_file_write(path);
	if (f == NULL)
		return -errno;
	ret = d->kind == DRAWING_SVG ? write_svg(d, f) : write_png(d, f, effort);
	if (fclose(f) != 0 && ret == 0)
		ret = -errno;
	return ret;
}
