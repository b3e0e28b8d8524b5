/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the conversion of text for DPDK's JSON: the output is ASCII, and no character is lost. */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "ascii_text.h"

static void
becomes(const char *text, const char *want)
{
	char *ascii = ascii_text(text);

	assert_non_null(ascii);
	assert_string_equal(ascii, want);
	free(ascii);
}

static void
characters_that_are_not_ascii(void **state)
{
	becomes("", "");
	becomes("a\"b\\c\td", "a\"b\\c\td");
	becomes("M\xc3\xbcller", "M\\u00fcller");
	becomes("\xe2\x82\xac", "\\u20ac");
	becomes("\xf0\x9f\x98\x80x", "\\ud83d\\ude00x");
}

/* A path may hold any byte: bytes that are not UTF-8 become U+FFFD. */
static void
invalid_utf8(void **state)
{
	becomes("a\xfc", "a\\ufffd");
	becomes("\xfc"
		"b",
		"\\ufffdb");
	becomes("\xf0\x9f", "\\ufffd\\ufffd");
	/* a surrogate, and an overlong encoding of '/' */
	becomes("\xed\xa0\x80", "\\ufffd\\ufffd\\ufffd");
	becomes("\xc0\xaf", "\\ufffd\\ufffd");
}

/* A text longer than the part that is converted at a time. */
static void
a_long_text(void **state)
{
	char text[401] = "", want[1201] = "";

	for (int i = 0; i < 200; i++) {
		strcat(text, "\xc3\xbc");
		strcat(want, "\\u00fc");
	}
	becomes(text, want);
	text[399] = '\0';
	strcpy(want + 6 * 199, "\\ufffd");
	becomes(text, want);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(characters_that_are_not_ascii),
		cmocka_unit_test(invalid_utf8),
		cmocka_unit_test(a_long_text),
	};

	return cmocka_run_group_tests_name("ascii_text", tests, NULL, NULL);
}
