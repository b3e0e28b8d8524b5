/* SPDX-License-Identifier: BSD-3-Clause */
/* Reads pictures back, for tests. */
#ifndef PICTURE_FILE_H
#define PICTURE_FILE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <png.h>

/* Pixels of a PNG, 0xRRGGBB. */
struct picture_file {
	uint32_t width, height;
	uint32_t *dot;
};

static inline void
picture_file_read(const char *path, struct picture_file *p)
{
	png_image image = {.version = PNG_IMAGE_VERSION};
	uint8_t *rgb;

	assert_true(png_image_begin_read_from_file(&image, path));
	image.format = PNG_FORMAT_RGB;
	rgb = malloc(PNG_IMAGE_SIZE(image));
	p->dot = malloc(sizeof(*p->dot) * image.width * image.height);
	assert_non_null(rgb);
	assert_non_null(p->dot);
	assert_true(png_image_finish_read(&image, NULL, rgb, 0, NULL));
	p->width = image.width;
	p->height = image.height;
	for (size_t i = 0; i < (size_t)p->width * p->height; i++)
		p->dot[i] = (uint32_t)rgb[3 * i] << 16 | rgb[3 * i + 1] << 8 | rgb[3 * i + 2];
	free(rgb);
}

/* Dots of a colour, in all the picture. */
static inline unsigned int
picture_file_count(const struct picture_file *p, uint32_t colour)
{
	unsigned int nb = 0;

	for (size_t i = 0; i < (size_t)p->width * p->height; i++)
		nb += p->dot[i] == colour;
	return nb;
}

/* Content of a file as text, which the caller frees. */
static inline char *
picture_file_text(const char *path, size_t *size)
{
	FILE *f = fopen(path, "rb");
	char *text;

	assert_non_null(f);
	assert_int_equal(fseek(f, 0, SEEK_END), 0);
	*size = ftell(f);
	rewind(f);
	text = malloc(*size + 1);
	assert_non_null(text);
	assert_int_equal(fread(text, 1, *size, f), *size);
	text[*size] = '\0';
	fclose(f);
	return text;
}

static inline void
picture_file_assert_same(const char *a, const char *b)
{
	size_t size[2];
	char *text[] = {picture_file_text(a, &size[0]), picture_file_text(b, &size[1])};

	assert_int_equal(size[0], size[1]);
	assert_memory_equal(text[0], text[1], size[0]);
	free(text[0]);
	free(text[1]);
}

/*
 * Check that elements of an SVG are nested, that its attributes are quoted, that characters are
 * escaped, and that it has no number such as nan. An XML parser reads some in test/interop.
 */
static inline void
picture_file_check_svg(const char *text)
{
	const char *names[64];
	unsigned int depth = 0;

	assert_int_equal(strncmp(text, "<?xml ", 6), 0);
	text = strstr(text, "?>") + 2;
	while (*text != '\0') {
		const char *end = text + strcspn(text, "<>&");
		size_t name;

		if (*end == '&') {
			assert_true(strncmp(end, "&lt;", 4) == 0 || strncmp(end, "&gt;", 4) == 0 ||
				strncmp(end, "&amp;", 5) == 0);
			text = end + 1;
			continue;
		}
		assert_true(*end != '>');
		if (*end == '\0')
			break;
		text = end + 1;
		end = strchr(text, '>');
		assert_non_null(end);
		name = strcspn(text + (*text == '/'), " />\n");
		for (const char *c = text; c < end; c++) {
			assert_true(*c != '<');
			/* numbers follow these characters */
			if (strchr("\" ,(", *c) != NULL && strncmp(text, "image", 5) != 0)
				assert_true(strncasecmp(c + 1 + (c[1] == '-'), "nan", 3) != 0 &&
					strncasecmp(c + 1 + (c[1] == '-'), "inf", 3) != 0);
		}
		if (*text == '/') {
			assert_true(depth > 0);
			depth--;
			assert_memory_equal(text + 1, names[depth], name);
		} else if (end[-1] != '/') {
			assert_true(depth < 64);
			names[depth++] = text;
		}
		text = end + 1;
	}
	assert_int_equal(depth, 0);
}

#endif /* PICTURE_FILE_H */
