/* SPDX-License-Identifier: BSD-3-Clause */
/* The file of a ledger: what is in it, and that none is overwritten. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <unistd.h>

#include <rte_cfgfile.h>

#include <cmocka.h>

#include "ledger.h"

static char folder[] = "/tmp/ledger_XXXXXX";

static struct ledger
sample(uint64_t frames)
{
	struct ledger l = {
		.frames = frames,
		.stored = frames - 2,
		.unwritten_rows = 3,
		.vetoed = 2,
		.hits = frames - 2,
		.timeouts = 1,
		.frame_packets = 7,
		.frames_balance = true,
		.packets_balance = true,
		.placed_balance = true,
	};

	l.packets[RX_PACKETS] = 9;
	l.packets[RX_PLACED] = 7;
	l.packets[RX_FOREIGN] = 2;
	l.ports[PORT_RING_FULL] = 4;
	l.ports[PORT_ERRORS] = 5;
	return l;
}

static void
assert_entry(const char *path, const char *section, const char *key, const char *wanted)
{
	struct rte_cfgfile *ini = rte_cfgfile_load(path, 0);
	const char *found;

	assert_non_null(ini);
	found = rte_cfgfile_get_entry(ini, section, key);
	assert_non_null(found);
	assert_string_equal(found, wanted);
	rte_cfgfile_close(ini);
}

static void
assert_named(const char *path, const char *name)
{
	char wanted[PATH_MAX];

	snprintf(wanted, sizeof(wanted), "%s/%s", folder, name);
	assert_string_equal(path, wanted);
	assert_int_equal(access(path, R_OK), 0);
}

static void
test_sections(void **state)
{
	const struct ledger_veto veto = {
		.from_frame = 5, .veto = {.params = {.version = 2, .bragg_min = 20}}};
	const struct ledger l = sample(100);
	char path[PATH_MAX];

	assert_int_equal(ledger_write(&l, &veto, 1, folder, "all", path), 0);
	assert_named(path, "all_ledger.ini");
	assert_entry(path, "frames", "frames", "100");
	assert_entry(path, "frames", "unwritten_rows", "3");
	assert_entry(path, "frames", "balanced", "1");
	assert_entry(path, "packets", "foreign", "2");
	assert_entry(path, "ports", "ring_full", "4");
	assert_entry(path, "ports", "errors", "5");
	assert_entry(path, "veto 2", "from_frame", "5");
	assert_entry(path, "veto 2", "bragg_min", "20");
}

/* A receiver that goes on with a run, and one that died while it wrote. */
static void
test_none_is_overwritten(void **state)
{
	const struct ledger first = sample(10), second = sample(20), third = sample(30);
	char one[PATH_MAX], two[PATH_MAX], four[PATH_MAX], part[PATH_MAX];
	FILE *f;

	assert_int_equal(ledger_write(&first, NULL, 0, folder, "run", one), 0);
	assert_int_equal(ledger_write(&second, NULL, 0, folder, "run", two), 0);
	snprintf(part, sizeof(part), "%s/run_ledger.3.ini.part", folder);
	f = fopen(part, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(ledger_write(&third, NULL, 0, folder, "run", four), 0);
	assert_named(one, "run_ledger.ini");
	assert_named(two, "run_ledger.2.ini");
	assert_named(four, "run_ledger.4.ini");
	assert_entry(one, "frames", "frames", "10");
	assert_entry(two, "frames", "frames", "20");
	assert_entry(four, "frames", "frames", "30");
}

static void
test_fails(void **state)
{
	const struct ledger l = sample(10);
	char path[PATH_MAX], no[64];

	snprintf(no, sizeof(no), "%s/no", folder);
	assert_int_equal(ledger_write(&l, NULL, 0, no, "run", path), -ENOENT);
	assert_non_null(strstr(path, "no/run_ledger.ini"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sections),
		cmocka_unit_test(test_none_is_overwritten),
		cmocka_unit_test(test_fails),
	};
	char command[64];
	int failed;

	if (mkdtemp(folder) == NULL)
		return EXIT_FAILURE;
	failed = cmocka_run_group_tests_name("ledger", tests, NULL, NULL);
	snprintf(command, sizeof(command), "rm -r %s", folder);
	return system(command) == 0 ? failed : EXIT_FAILURE;
}
