/* SPDX-License-Identifier: BSD-3-Clause */
/* Configuration files: what getters make of texts, and what is said of mistakes. */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "config.h"

static char path[] = "/dev/shm/braggline-config-test-XXXXXX";

static struct config *
open_text(const char *text, struct config_source *source)
{
	FILE *f = fopen(path, "w");

	assert_non_null(f);
	assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
	assert_int_equal(fclose(f), 0);
	source->file = path;
	return config_open(source);
}

static struct config *
open_config(const char *text)
{
	struct config_source source = {0};
	struct config *c = open_text(text, &source);

	assert_non_null(c);
	return c;
}

static void
dump(const struct config *c, char *out, size_t size)
{
	FILE *f = fmemopen(out, size, "w");

	assert_non_null(f);
	config_dump(c, f);
	assert_int_equal(fclose(f), 0);
}

/* A text that there may not be is `none`, or empty; any other has its default, and no such word. */
static void
a_text_may_be_none(void **state)
{
	struct config *c =
		open_config("[a]\nnone = none\nempty =\nname = x\nmust = none\nmust2 =\n");
	char out[256];

	assert_null(config_text(c, "a", "absent", NULL));
	assert_null(config_text(c, "a", "none", NULL));
	assert_null(config_text(c, "a", "empty", NULL));
	assert_string_equal(config_text(c, "a", "name", NULL), "x");
	assert_string_equal(config_text(c, "a", "must", "y"), "none");
	assert_string_equal(config_text(c, "a", "must2", "y"), "y");
	assert_int_equal(config_check(c), 0);
	dump(c, out, sizeof(out));
	assert_non_null(strstr(out, "absent = none\n"));
	config_close(c);
}

static void
a_list_may_be_a_word(void **state)
{
	struct config *c = open_config("[a]\nword = none\nlist = 1,4-6\nother = auto\n");
	uint32_t list[8];

	assert_int_equal(config_list(c, "a", "absent", "none", list, 8, 9), 0);
	assert_int_equal(config_list(c, "a", "word", "none", list, 8, 9), 0);
	assert_int_equal(config_list(c, "a", "list", "none", list, 8, 9), 4);
	assert_int_equal(list[0], 1);
	assert_int_equal(list[3], 6);
	assert_string_equal(config_mistake(c), "");
	assert_int_equal(config_list(c, "a", "other", "none", list, 8, 9), 0);
	assert_non_null(strstr(config_mistake(c), "[a] other = auto: must be 'none' or at most 8"));
	config_close(c);
}

static void
a_number_may_be_a_word(void **state)
{
	struct config *c = open_config("[a]\nword = none\nnumber = 0x10\nother = auto\nbig = 65\n");
	uint64_t value = 7;

	assert_false(config_uint_or(c, "a", "absent", "none", &value, 1, 64));
	assert_false(config_uint_or(c, "a", "word", "none", &value, 1, 64));
	assert_int_equal(value, 7);
	assert_true(config_uint_or(c, "a", "number", "none", &value, 1, 64));
	assert_int_equal(value, 16);
	assert_false(config_uint_or(c, "a", "other", "none", &value, 1, 64));
	assert_non_null(strstr(
		config_mistake(c), "[a] other = auto: must be 'none' or a whole number, 1 ... 64"));
	assert_false(config_uint_or(c, "a", "big", "none", &value, 1, 64));
	assert_non_null(strstr(config_mistake(c), "[a] big = 65"));
	assert_int_equal(value, 16);
	assert_int_equal(config_check(c), -EINVAL);
	config_close(c);
}

/* What is shown, read again, is shown again. */
static void
a_dump_is_a_configuration(void **state)
{
	static const char *const names[] = {"small", "large", NULL};
	char first[512] = "", second[512];
	struct config *c;
	uint32_t list[8];
	uint64_t value;

	for (int again = 0; again < 2; again++) {
		c = open_config(first);
		assert_null(config_text(c, "a", "text", NULL));
		assert_string_equal(config_text(c, "a", "name", "run"), "run");
		assert_int_equal(config_uint(c, "a", "number", 3, 0, 9), 3);
		assert_false(config_uint_or(c, "b", "limit", "none", &value, 0, 9));
		assert_true(config_real(c, "b", "real", 0.5, 0, 1) == 0.5);
		assert_true(config_bool(c, "b", "flag", true));
		assert_int_equal(config_choice(c, "b", "size", 1, names), 1);
		assert_int_equal(config_list(c, "b", "list", "auto", list, 8, 9), 0);
		assert_int_equal(config_check(c), 0);
		dump(c, again ? second : first, sizeof(first));
		config_close(c);
	}
	assert_string_equal(first, second);
	assert_non_null(strstr(first, "[b]\nlimit = none\n"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_may_be_none),
		cmocka_unit_test(a_list_may_be_a_word),
		cmocka_unit_test(a_number_may_be_a_word),
		cmocka_unit_test(a_dump_is_a_configuration),
	};
	int failed;

	if (mkstemp(path) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
