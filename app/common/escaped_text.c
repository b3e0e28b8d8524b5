/* SPDX-License-Identifier: BSD-3-Clause */

#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "escaped_text.h"

#define ESCAPE 4 /* bytes of an escape, \xNN */

/*
 * Read one character.
 * @param c  out, if it is UTF-8
 * @return its number of bytes; 0: it is not UTF-8, or could be written with fewer bytes
 */
static size_t
read_character(const char *text, uint32_t *c)
{
	static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
	const uint8_t *const byte = (const uint8_t *)text;
	const size_t size = byte[0] < 0x80 ? 1
		: (byte[0] & 0xe0) == 0xc0 ? 2
		: (byte[0] & 0xf0) == 0xe0 ? 3
		: (byte[0] & 0xf8) == 0xf0 ? 4
					   : 0;
	size_t i;

	*c = size == 1 ? byte[0] : byte[0] & (0xff >> (size + 1));
	for (i = 1; i < size; i++) {
		if ((byte[i] & 0xc0) != 0x80)
			return 0;
		*c = *c << 6 | (byte[i] & 0x3f);
	}
	return size > 0 && *c >= least[size] ? size : 0;
}

/* Terminals also take U+0080 to U+009F as controls. */
static int
is_control(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0);
}

char *
escaped_text(const char *text)
{
	char *to = malloc(ESCAPE * strlen(text) + 1), *out = to;
	size_t size, i;
	uint32_t c;

	if (to == NULL)
		return NULL;
	while (*text != '\0') {
		size = read_character(text, &c);
		if (size > 0 && !is_control(c)) {
			memcpy(out, text, size);
			out += size;
			text += size;
			continue;
		}
		for (i = 0; i < (size > 0 ? size : 1); i++)
			out += sprintf(out, "\\x%02x", (uint8_t)*text++);
	}
	*out = '\0';
	return to;
}

void
escaped_line(FILE *out, const char *format, ...)
{
	char *text = NULL, *escaped;
	va_list list;

	va_start(list, format);
	if (vasprintf(&text, format, list) < 0)
		text = NULL;
	va_end(list);
	escaped = text != NULL ? escaped_text(text) : NULL;
	fprintf(out, "%s\n", escaped != NULL ? escaped : "out of memory");
	free(escaped);
	free(text);
}
