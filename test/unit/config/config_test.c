/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests configuration files: how the getters parse values, and how mistakes are reported. */

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

#include "config/config.h"
#include "config/ini_file.h"

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

/* An optional text may be `none`. A text with a default takes `none` literally. */
static void
a_text_may_be_none(void **state)
{
	struct config *c = open_config("[a]\nnone = none\nname = x\nmust = none\n");
	char out[256];

	assert_null(config_text(c, "a", "absent", NULL));
	assert_null(config_text(c, "a", "none", NULL));
	assert_string_equal(config_text(c, "a", "name", NULL), "x");
	assert_string_equal(config_text(c, "a", "must", "y"), "none");
	assert_int_equal(config_check(c), 0);
	dump(c, out, sizeof(out));
	assert_non_null(strstr(out, "absent = none\n"));
	config_close(c);
}

/* The message has all names. */
static void
another_name_is_refused(void **state)
{
	static const char *const names[] = {"small", "medium", "large", NULL};
	struct config *c = open_config("[a]\nsize = huge\nflag = 1\n");

	assert_int_equal(config_choice(c, "a", "size", 1, names), 1);
	assert_non_null(
		strstr(config_mistake(c), "[a] size = huge: must be small, medium or large"));
	assert_true(config_bool(c, "a", "flag", true));
	assert_non_null(strstr(config_mistake(c), "[a] flag = 1: must be no or yes"));
	config_close(c);
}

/* An empty text is refused: as the name of a directory it would be the current one. */
static void
an_empty_text_is_refused(void **state)
{
	struct config *c = open_config("[a]\nempty =\n");

	assert_string_equal(config_text(c, "a", "empty", "y"), "y");
	assert_non_null(strstr(config_mistake(c), ":2: [a] empty = (empty): give a value"));
	assert_int_equal(config_check(c), -EINVAL);
	config_close(c);
}

/* Assignments that are refused are reported in bytes that a log and a telemetry reply can hold. */
static void
assignments_are_text(void **state)
{
	struct config *c = config_open(&(struct config_source){0});
	char text[INI_VALUE_LEN + 100];

	snprintf(text, sizeof(text), "a.k=%0*d", INI_VALUE_LEN, 1);
	assert_int_equal(config_set(c, "--set", text), -EINVAL);
	assert_non_null(strstr(config_mistake(c), "...': a value has at most 2047 bytes"));
	assert_int_equal(config_set(c, "--set", "a.k=M\xfcller"), -EINVAL);
	assert_string_equal(config_mistake(c), "--set: '...': is not a single line of UTF-8 text");
	assert_int_equal(config_set(c, "--set", "a.k=a\nb"), -EINVAL);
	assert_int_equal(config_set(c, "--set", "a.k=a\033b"), -EINVAL);
	assert_int_equal(config_set(c, "--set", "a.k=M\xc3\xbcller"), 0);
	assert_string_equal(config_text(c, "a", "k", NULL), "M\xc3\xbcller");
	/* blanks around the parts do not count, as in a file */
	assert_int_equal(config_set(c, "--set", " a . k =\tx y "), 0);
	assert_string_equal(config_text(c, "a", "k", NULL), "x y");
	assert_int_equal(config_check(c), 0);
	config_close(c);
}

/* All mistakes in a file are reported, line by line. */
static void
wrong_lines_hide_no_other_mistakes(void **state)
{
	struct config *c = open_config("[a]\nword\nk = x\n= 1\nother = 1\n");

	assert_non_null(strstr(config_mistake(c), ":2: expected [section]"));
	assert_non_null(strstr(config_mistake(c), ":4: a key must have"));
	assert_int_equal(config_uint(c, "a", "k", 0, 0, 9), 0);
	assert_non_null(strstr(config_mistake(c), ":3: [a] k = x: must be"));
	assert_int_equal(config_check(c), -EINVAL);
	assert_non_null(strstr(config_mistake(c), ":5: [a] other = 1: unknown key"));
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
	double real = 0.5;

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
	/* a real number, which may be negative */
	assert_false(config_real_or(c, "a", "word", "none", &real, -1, 64));
	assert_false(config_real_or(c, "a", "big", "none", &real, -1, 64));
	assert_non_null(
		strstr(config_mistake(c), "[a] big = 65: must be 'none' or a number, -1 ... 64"));
	assert_true(real == 0.5);
	assert_true(config_real_or(c, "a", "number", "none", &real, -1, 64));
	assert_true(real == 16);
	assert_int_equal(config_check(c), -EINVAL);
	config_close(c);
}

/* Frame and run numbers are written with leading zeros, which do not make them octal. */
static void
leading_zeros_have_no_meaning(void **state)
{
	struct config *c = open_config("[a]\nframes = 0100\nfirst = 00001000\nnine = 09\n"
				       "hex = 0x100\nzero = 0\nlist = 08-0x0a, 010\n"
				       "empty = 0x\ntwice = 0x0x1\nplus = +1\nsigned = 1,-2\n");
	static const uint32_t want[] = {8, 9, 10, 10};
	uint32_t list[8];

	assert_int_equal(config_uint(c, "a", "frames", 0, 0, 9999), 100);
	assert_int_equal(config_uint(c, "a", "first", 0, 0, 9999), 1000);
	assert_int_equal(config_uint(c, "a", "nine", 0, 0, 9999), 9);
	assert_int_equal(config_uint(c, "a", "hex", 0, 0, 9999), 256);
	assert_int_equal(config_uint(c, "a", "zero", 1, 0, 9999), 0);
	assert_int_equal(config_list(c, "a", "list", "auto", list, 8, 99), 4);
	assert_memory_equal(list, want, sizeof(want));
	assert_string_equal(config_mistake(c), "");
	assert_int_equal(config_uint(c, "a", "empty", 3, 0, 9999), 3);
	assert_non_null(strstr(config_mistake(c), "[a] empty = 0x: must be a whole number"));
	assert_int_equal(config_uint(c, "a", "twice", 3, 0, 9999), 3);
	assert_int_equal(config_uint(c, "a", "plus", 3, 0, 9999), 3);
	assert_int_equal(config_list(c, "a", "signed", "auto", list, 8, UINT32_MAX), 0);
	assert_non_null(strstr(config_mistake(c), "[a] signed = 1,-2: must be 'auto'"));
	config_close(c);
}

/* A number must have no text after it, and must be inside its limits. */
static void
numbers_are_whole(void **state)
{
	struct config *c = open_config("[a]\nrest = 10x\nminus = -18446744073709551615\n"
				       "nan = nan\nhigh = 2.5\nlow = -0.5\ntail = 1.5 V\n"
				       "many = 0-8\nmore = 1,2,3,4,5,6,7,8,9\nall = 0-7\n");
	uint32_t list[8];

	assert_int_equal(config_uint(c, "a", "rest", 3, 0, 99), 3);
	assert_non_null(strstr(config_mistake(c), "[a] rest = 10x: must be a whole number"));
	assert_int_equal(config_uint(c, "a", "minus", 3, 0, 99), 3);
	assert_non_null(strstr(config_mistake(c), "[a] minus = "));
	assert_true(config_real(c, "a", "nan", 1, 0, 2) == 1);
	assert_non_null(strstr(config_mistake(c), "[a] nan = nan: must be a number, 0 ... 2"));
	assert_true(config_real(c, "a", "high", 1, 0, 2) == 1);
	assert_non_null(strstr(config_mistake(c), "[a] high = "));
	assert_true(config_real(c, "a", "low", 1, 0, 2) == 1);
	assert_non_null(strstr(config_mistake(c), "[a] low = "));
	assert_true(config_real(c, "a", "tail", 1, 0, 2) == 1);
	assert_non_null(strstr(config_mistake(c), "[a] tail = "));
	assert_int_equal(config_list(c, "a", "many", "none", list, 8, 9), 0);
	assert_non_null(strstr(config_mistake(c), "[a] many = "));
	assert_int_equal(config_list(c, "a", "more", "none", list, 8, 9), 0);
	assert_non_null(strstr(config_mistake(c), "[a] more = "));
	assert_int_equal(config_list(c, "a", "all", "none", list, 8, 9), 8);
	/* an empty list is a mistake: it means neither all nor none */
	assert_int_equal(config_set(c, "--set", "a.empty="), 0);
	assert_int_equal(config_list(c, "a", "empty", "none", list, 8, 9), 0);
	assert_non_null(
		strstr(config_mistake(c), "[a] empty = (empty): must be 'none' or at most 8"));
	assert_int_equal(config_set(c, "--set", "a.comma=1,"), 0);
	assert_int_equal(config_list(c, "a", "comma", "none", list, 8, 9), 0);
	assert_non_null(strstr(config_mistake(c), "[a] comma = 1,: must be"));
	config_close(c);
}

/* The dump of a configuration is a valid configuration with the same dump. */
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

/*
 * A copy has the same values, changes independently, and needs neither the file nor the original.
 */
static void
a_copy_is_its_own(void **state)
{
	struct config_source source = {.set = {"a.set=7"}, .nb_sets = 1};
	struct config *c = open_text("[a]\nkey = 1\nbad = x\n", &source), *copy;
	char want[160];

	assert_int_equal(config_uint(c, "a", "bad", 3, 0, 9), 3);
	copy = config_copy(c);
	assert_non_null(copy);
	assert_int_equal(config_set(copy, "telemetry", "a.key=2"), 0);
	assert_int_equal(config_set(copy, "telemetry", "b.key=3"), 0);
	assert_int_equal(config_uint(c, "a", "key", 0, 0, 9), 1);
	assert_false(config_has_section(c, "b"));
	config_close(c);
	config_close(open_text("[c]\n", &source));
	assert_string_equal(config_mistake(copy), "");
	assert_int_equal(config_uint(copy, "a", "set", 0, 0, 9), 7);
	assert_int_equal(config_uint(copy, "a", "key", 0, 0, 9), 2);
	assert_int_equal(config_uint(copy, "b", "key", 0, 0, 9), 3);
	assert_int_equal(config_check(copy), -EINVAL);
	snprintf(want, sizeof(want), "%s:3: [a] bad = x: unknown key; this section has set key",
		path);
	assert_string_equal(config_mistake(copy), want);
	config_close(copy);
}

/* A mistake is reported with its origin: file and line, command line, telemetry, or none. */
static void
mistakes_have_a_place(void **state)
{
	char assignment[INI_VALUE_LEN + 16];
	struct config_source source = {.set = {"a.set=x"}, .nb_sets = 1};
	struct config *c = open_text(
		"; first\n[a]\nset = 1\n\n  line = y ; note\n[b]\n[a]\nmore = z", &source);
	char want[160];

	assert_int_equal(config_uint(c, "a", "line", 3, 0, 9), 3);
	snprintf(want, sizeof(want), "%s:5: [a] line = y: must be a whole number, 0 ... 9", path);
	assert_string_equal(config_mistake(c), want);
	assert_int_equal(config_uint(c, "a", "set", 3, 0, 9), 3);
	assert_string_equal(
		config_mistake(c), "--set: [a] set = x: must be a whole number, 0 ... 9");
	assert_int_equal(config_set(c, "telemetry", "a.line=w"), 0);
	assert_int_equal(config_uint(c, "a", "line", 3, 0, 9), 3);
	assert_string_equal(
		config_mistake(c), "telemetry: [a] line = w: must be a whole number, 0 ... 9");
	config_complain(c, "a", "key", "is needed");
	snprintf(want, sizeof(want), "%s: [a] key = (unset): is needed", path);
	assert_string_equal(config_mistake(c), want);
	/* a default is named */
	assert_int_equal(config_uint(c, "b", "key", 3, 0, 9), 3);
	config_complain(c, "b", "key", "is too small");
	snprintf(want, sizeof(want), "%s: [b] key = 3 (default): is too small", path);
	assert_string_equal(config_mistake(c), want);
	assert_int_equal(config_check(c), -EINVAL);
	snprintf(want, sizeof(want), "%s:8: [a] more = z: unknown key; this section has line set",
		path);
	assert_string_equal(config_mistake(c), want);
	config_close(c);

	c = config_open(&(struct config_source){0});
	config_complain(c, "a", "key", "is needed");
	assert_string_equal(config_mistake(c), "[a] key = (unset): is needed");
	assert_int_equal(config_set(c, "--set", "a=b"), -EINVAL);
	assert_string_equal(config_mistake(c), "--set: 'a=b': expected section.key=value");
	/* an assignment that is too long is a mistake, too; the message names the limit */
	snprintf(assignment, sizeof(assignment), "%0*d.key=1", INI_NAME_LEN, 0);
	assert_int_equal(config_set(c, "--set", assignment), -EINVAL);
	assert_non_null(strstr(config_mistake(c), "name has at most 63 bytes"));
	snprintf(assignment, sizeof(assignment), "a.%0*d=1", INI_NAME_LEN, 0);
	assert_int_equal(config_set(c, "--set", assignment), -EINVAL);
	assert_non_null(strstr(config_mistake(c), "name has at most 63 bytes"));
	snprintf(assignment, sizeof(assignment), "a.key=%0*d", INI_VALUE_LEN, 0);
	assert_int_equal(config_set(c, "--set", assignment), -EINVAL);
	assert_non_null(strstr(config_mistake(c), "a value has at most 2047 bytes"));
	config_close(c);
}

/* A duplicate key is a mistake: only the first of the two would be in force. */
static void
a_key_is_there_once(void **state)
{
	struct config *c = open_config("[a]\nkey = 1\n[b]\nkey = 2\n[a]\nkey = 3\n");
	char want[160];

	snprintf(want, sizeof(want), "%s:6: [a] key = 3: already set in line 2", path);
	assert_string_equal(config_mistake(c), want);
	assert_int_equal(config_uint(c, "a", "key", 0, 0, 9), 1);
	assert_int_equal(config_uint(c, "b", "key", 0, 0, 9), 2);
	assert_int_equal(config_check(c), -EINVAL);
	config_close(c);
}

static int
count(void *arg, unsigned int line, const char *section, const char *key, const char *value)
{
	(*(unsigned int *)arg)++;
	return line == 9 ? -ENOMEM : 0;
}

/* Invalid lines of an INI file are reported with their line number. */
static void
invalid_lines(void **state)
{
	static const struct {
		const char *text, *want;
		unsigned int taken;
	} cases[] = {
		{"", "", 0},
		{"[a]\r\nk = v\r\n", "", 2},
		{"[a]\nk = v", "", 2},
		{"\n[a\n", ":2: expected [section] alone", 1},
		{"[a] b\n", ":1: expected [section] alone", 1},
		{"[a]\n[ ]\n", ":2: a section name must have", 1},
		{"[a]\n[ ]\nk = v\n[b]\nk = v\n", ":2: a section name must have", 3},
		{"[ ] a\nk = v\n", ":1: expected [section] alone", 0},
		{"k = v\n", ":1: key before the first [section]", 0},
		{"[a]\nword\n", ":2: expected [section], key = value", 1},
		{"[a]\n = v\n", ":2: a key must have 1 to 63", 1},
		{"\xef\xbb\xbf[a]\nk = v\n", "", 2},
		{"[a]\n\xef\xbb\xbfk = v\n", "", 2},
		{"[a]\nk = \xfc\n", ":2: is not UTF-8 text; save the file as UTF-8", 1},
		{"[a]\nk = \033\n", ":2: contains a control character; remove it", 1},
		{"[a]\nk = M\xc3\xbcller\n", "", 2},
		{"[a\nk = v\n[b]\n", ":1: expected [section] alone", 3},
		{"[a]\n\n\n\n\n\n\n\n[b]\n", ":9: Cannot allocate memory", 2},
	};
	char message[256], text[INI_VALUE_LEN + 64];
	unsigned int i, taken;
	FILE *f;

	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		message[0] = '\0';
		taken = 0;
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(cases[i].text, f);
		fclose(f);
		assert_int_equal(ini_file_read(path, count, &taken, message, sizeof(message)) == 0,
			cases[i].want[0] == '\0');
		assert_non_null(strstr(message, cases[i].want));
		assert_int_equal(taken, cases[i].taken);
	}
	assert_int_equal(ini_file_read("/dev", count, &taken, message, sizeof(message)), -EISDIR);
	assert_string_equal(message, "cannot read /dev: Is a directory");
	/* the longest value, and one byte more */
	for (i = INI_VALUE_LEN - 1; i <= INI_VALUE_LEN; i++) {
		snprintf(text, sizeof(text), "[a]\nk = %0*d\n", (int)i, 1);
		f = fopen(path, "w");
		assert_non_null(f);
		fputs(text, f);
		fclose(f);
		assert_int_equal(ini_file_read(path, count, &taken, message, sizeof(message)),
			i < INI_VALUE_LEN ? 0 : -EINVAL);
	}
	assert_non_null(strstr(message, ":2: a value has at most 2047 bytes"));
	f = fopen(path, "w");
	assert_non_null(f);
	assert_int_equal(fwrite("[a]\nk\0 = v\n", 1, 11, f), 11);
	fclose(f);
	assert_int_equal(ini_file_read(path, count, &taken, message, sizeof(message)), -EINVAL);
	assert_non_null(strstr(message, ":2: contains a zero byte"));
}

/* A semicolon begins a comment. In a value it is escaped with a backslash. */
static void
comments_end_lines(void **state)
{
	struct config *c = open_config("[a] ; x\nk = a\\;b\\c ;d\\;e\n;z = 1\n");

	assert_string_equal(config_text(c, "a", "k", NULL), "a;b\\c");
	assert_int_equal(config_check(c), 0);
	assert_false(config_has_section(c, "b"));
	config_close(c);
	c = open_config("[b]\n");
	assert_true(config_has_section(c, "b"));
	assert_int_equal(config_check(c), 0);
	config_close(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_text_may_be_none),
		cmocka_unit_test(another_name_is_refused),
		cmocka_unit_test(an_empty_text_is_refused),
		cmocka_unit_test(assignments_are_text),
		cmocka_unit_test(wrong_lines_hide_no_other_mistakes),
		cmocka_unit_test(a_list_may_be_a_word),
		cmocka_unit_test(a_number_may_be_a_word),
		cmocka_unit_test(leading_zeros_have_no_meaning),
		cmocka_unit_test(numbers_are_whole),
		cmocka_unit_test(a_dump_is_a_configuration),
		cmocka_unit_test(a_copy_is_its_own),
		cmocka_unit_test(mistakes_have_a_place),
		cmocka_unit_test(a_key_is_there_once),
		cmocka_unit_test(invalid_lines),
		cmocka_unit_test(comments_end_lines),
	};
	int failed;

	if (mkstemp(path) < 0)
		return 1;
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	unlink(path);
	return failed;
}
