/* SPDX-License-Identifier: BSD-3-Clause */
/* Command line of braggline-export. */

#include <errno.h>
#include <getopt.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "options.h"

static struct options o;
static char message[OPTIONS_MESSAGE_LEN];

static int
parse(const char *option, const char *value)
{
	/* the options point to the arguments */
	static char program[] = "braggline-export", run[] = "run", text[2][64];
	char *argv[] = {program, text[0], text[1], run, NULL};

	snprintf(text[0], sizeof(text[0]), "%s", option);
	snprintf(text[1], sizeof(text[1]), "%s", value);
	optind = 0; /* glibc: start again */
	return options_parse(&o, 4, argv, message);
}

static void
test_frames_are_a_number_or_a_range(void **state)
{
	static const char *const wrong[] = {"", "x", "-3", "3x", "3-x", "4-3", "3--4", "+3", " 3",
		"3-4-5", "18446744073709551616", "1-18446744073709551616"};

	assert_int_equal(parse("--frames", "7"), 0);
	assert_true(o.filter.first == 7 && o.filter.last == 7);
	assert_int_equal(parse("--frames", "7-"), 0);
	assert_true(o.filter.first == 7 && o.filter.last == UINT64_MAX);
	assert_int_equal(parse("--frames", "7-18446744073709551615"), 0);
	assert_true(o.filter.first == 7 && o.filter.last == UINT64_MAX);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		assert_int_equal(parse("--frames", wrong[i]), -EINVAL);
		assert_non_null(strstr(message, "--frames"));
	}
}

static void
test_verdicts_are_names_of_kept_frames(void **state)
{
	static const char *const wrong[] = {
		"", ",", "hit,", ",hit", "hits", "hi", "lost", "hit prescale"};

	assert_int_equal(parse("--verdict", "hit"), 0);
	assert_int_equal(o.filter.verdicts, 1u << FRAME_HIT);
	assert_int_equal(parse("--verdict", "dry_run,prescale"), 0);
	assert_int_equal(o.filter.verdicts, 1u << FRAME_DRY_RUN | 1u << FRAME_PRESCALED);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse("--verdict", wrong[i]), -EINVAL);
}

static void
test_other_values_are_checked(void **state)
{
	static const char *const wrong[] = {"0", "1000001", "-1", "1e3", ""};

	assert_int_equal(parse("--images-per-file", "1000000"), 0);
	assert_int_equal(o.per_file, 1000000);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		assert_int_equal(parse("--images-per-file", wrong[i]), -EINVAL);
	assert_int_equal(parse("--format", "sparse"), 0);
	assert_int_equal(o.format, OPTIONS_SPARSE);
	assert_int_equal(parse("--format", "nxmx"), 0);
	assert_int_equal(o.format, OPTIONS_NXMX);
	assert_int_equal(parse("--format", "cxi"), 0);
	assert_int_equal(o.format, OPTIONS_CXI);
	assert_int_equal(parse("--format", "tiff"), -EINVAL);
	assert_int_equal(parse("--threads", "3"), 0);
	assert_int_equal(o.threads, 3);
	assert_int_equal(parse("--threads", "0"), -EINVAL);
	assert_int_equal(parse("--threads", "65"), -EINVAL);
	assert_int_equal(parse("--calibration", "maps.bin"), 0);
	assert_string_equal(o.calibration, "maps.bin");
	assert_int_equal(parse("--output", ""), -EINVAL);
}

static void
test_all_kept_frames_of_a_run_are_the_default(void **state)
{
	assert_int_equal(parse("--output", "here"), 0);
	assert_true(o.filter.first == 0 && o.filter.last == UINT64_MAX);
	assert_int_equal(
		o.filter.verdicts, 1u << FRAME_HIT | 1u << FRAME_PRESCALED | 1u << FRAME_DRY_RUN);
	assert_int_equal(o.per_file, OPTIONS_PER_FILE);
	assert_int_equal(o.nb_runs, 1);
	assert_string_equal(o.output, "here");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_frames_are_a_number_or_a_range),
		cmocka_unit_test(test_verdicts_are_names_of_kept_frames),
		cmocka_unit_test(test_other_values_are_checked),
		cmocka_unit_test(test_all_kept_frames_of_a_run_are_the_default),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
