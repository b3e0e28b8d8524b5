/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <iconv.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

#include "ascii_text.h"

#define ESCAPE	    6 /* bytes of an escape, \uXXXX */
#define REPLACEMENT 0xFFFDu

static char *
put_unit(char *out, uint32_t unit)
{
	if (unit >= 0x80)
		return out + sprintf(out, "\\u%04x", unit);
	*out = (char)unit;
	return out + 1;
}

/* Append a character as one or two UTF-16 units, as in JSON. */
static char *
put_character(char *out, uint32_t c)
{
	if (c < 0x10000)
		return put_unit(out, c);
	out = put_unit(out, 0xD800 | (c - 0x10000) >> 10);
	return put_unit(out, 0xDC00 | ((c - 0x10000) & 0x3FF));
}

char *
ascii_text(const char *text)
{
	/* UTF-8 is built into glibc's iconv(); the locale "C.UTF-8" may be missing */
	const iconv_t cd = iconv_open("WCHAR_T", "UTF-8");
	char *in = (char *)(uintptr_t)text; /* iconv() does not write to it */
	size_t left = strlen(text);
	char *ascii = malloc(ESCAPE * left + 1), *out = ascii;

	if (cd == (iconv_t)-1 || ascii == NULL) {
		free(ascii);
		ascii = NULL;
		left = 0;
	}
	while (left > 0) {
		wchar_t wide[64];
		char *to = (char *)wide;
		size_t room = sizeof(wide);
		const bool wrong =
			iconv(cd, &in, &left, &to, &room) == (size_t)-1 && errno != E2BIG;

		for (wchar_t *w = wide; (char *)w < to; w++)
			out = put_character(out, (uint32_t)*w);
		if (wrong) {
			out = put_character(out, REPLACEMENT);
			in++;
			left--;
		}
	}
	if (ascii != NULL)
		*out = '\0';
	if (cd != (iconv_t)-1)
		iconv_close(cd);
	return ascii;
}
