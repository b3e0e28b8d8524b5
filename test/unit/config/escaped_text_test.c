/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests that text of untrusted origin has no control character when it is printed. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "escaped_text.h"

static void
becomes(const char *text, const char *want)
{
	char *escaped = escaped_text(text);

	assert_non_null(escaped);
	assert_string_equal(escaped, want);
	free(escaped);
}

static void
readable_text_stays(void **state)
{
	becomes("", "");
	becomes("a \"b\\c\" 'd'~", "a \"b\\c\" 'd'~");
	becomes("M\xc3\xbcller \xe2\x82\xac \xf0\x9f\x98\x80",
		"M\xc3\xbcller \xe2\x82\xac \xf0\x9f\x98\x80");
	becomes("\xc2\xa0", "\xc2\xa0");
}

static void
controls_are_escaped(void **state)
{
	char text[2] = {0}, want[8];
	int c;

	becomes("a\n\033[2Jb", "a\\x0a\\x1b[2Jb");
	for (c = 1; c < ' '; c++) {
		text[0] = (char)c;
		snprintf(want, sizeof(want), "\\x%02x", c);
		becomes(text, want);
	}
	becomes("\x7f", "\\x7f");
	/* U+009B begins a sequence, as ESC [ does */
	becomes("\xc2\x9b"
		"2J",
		"\\xc2\\x9b2J");
	becomes("\xc2\x80\xc2\x9f", "\\xc2\\x80\\xc2\\x9f");
}

/* A terminal that does not expect UTF-8 takes such a byte as a control. */
static void
invalid_utf8(void **state)
{
	becomes("a\x9b", "a\\x9b");
	becomes("\xfcx", "\\xfcx");
	becomes("\xc3", "\\xc3");
	becomes("\xe2\x82", "\\xe2\\x82");
	becomes("\xff\xfe", "\\xff\\xfe");
	/* an ESC in more bytes than it needs */
	becomes("\xc0\x9b\xe0\x80\x9b", "\\xc0\\x9b\\xe0\\x80\\x9b");
}

static void
one_line(void **state)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	escaped_line(out, "%s: %d", "a\nb", 7);
	escaped_line(out, "good");
	fclose(out);
	assert_string_equal(text, "a\\x0ab: 7\ngood\n");
	free(text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(readable_text_stays),
		cmocka_unit_test(controls_are_escaped),
		cmocka_unit_test(invalid_utf8),
		cmocka_unit_test(one_line),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
