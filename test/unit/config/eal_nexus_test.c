/* SPDX-License-Identifier: BSD-3-Clause */
/* The process that writes NeXus files: its arguments, which getopt_long(3) reads as meant. */

#include <getopt.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "eal/nexus.h"

static char dir[] = "/tmp/eal_nexus_test.XXXXXX";

/* A program that writes its arguments, one in each line. */
static void
make_program(char path[PATH_MAX])
{
	FILE *f;

	snprintf(path, PATH_MAX, "%s/program", dir);
	f = fopen(path, "w");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\nprintf '%%s\\n' \"$@\" > '%s/arguments'\n", dir);
	assert_int_equal(fclose(f), 0);
	assert_int_equal(chmod(path, 0755), 0);
}

/* Starts the program. @return directory that its options leave */
static void
start(const char *directory, char found[PATH_MAX])
{
	static const struct option options[] = {{"follow", no_argument, NULL, 'f'},
		{"background", no_argument, NULL, 'b'}, {"version", no_argument, NULL, 'v'}, {0}};
	char line[8][PATH_MAX], *argv[9] = {line[0]}, path[PATH_MAX];
	struct nexus n = {.pid = 0};
	int argc = 1, opt, seen = 0, status;
	FILE *f;

	make_program(n.program);
	assert_int_equal(nexus_start(&n, directory), 0);
	assert_int_equal(waitpid(n.pid, &status, 0), n.pid);
	assert_int_equal(status, 0);
	snprintf(path, sizeof(path), "%s/arguments", dir);
	f = fopen(path, "r");
	assert_non_null(f);
	for (; argc < 8 && fgets(line[argc], PATH_MAX, f) != NULL; argc++) {
		line[argc][strcspn(line[argc], "\n")] = '\0';
		argv[argc] = line[argc];
	}
	fclose(f);
	optind = 0;
	while ((opt = getopt_long(argc, argv, "", options, NULL)) != -1) {
		assert_true(opt == 'f' || opt == 'b');
		seen += opt;
	}
	assert_int_equal(seen, 'f' + 'b');
	assert_int_equal(optind, argc - 1);
	snprintf(found, PATH_MAX, "%s", argv[optind]);
}

static void
test_a_directory_is_no_option(void **state)
{
	static const char *const names[] = {"/data/runs", "--version", "-n x", "--", "--follow"};
	char found[PATH_MAX];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		start(names[i], found);
		assert_string_equal(found, names[i]);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_a_directory_is_no_option)};
	char path[PATH_MAX];
	int ret;

	if (mkdtemp(dir) == NULL)
		return 1;
	ret = cmocka_run_group_tests(tests, NULL, NULL);
	snprintf(path, sizeof(path), "%s/program", dir);
	unlink(path);
	snprintf(path, sizeof(path), "%s/arguments", dir);
	unlink(path);
	rmdir(dir);
	return ret;
}
