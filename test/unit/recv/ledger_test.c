/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the file of a ledger: its contents, and that no existing file is overwritten. */
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

#include "arrow/batch.h"
#include "frame_record.h"
#include "ledger.h"

static char folder[] = "/tmp/ledger_XXXXXX";
static const struct ledger_receiver alive = {.incarnation = 0xabc};

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
		.from_frame = 5, .veto = {.params = {.version = 2, .strong_min = 20}}};
	const struct ledger l = sample(100);
	char path[PATH_MAX];

	assert_int_equal(ledger_write(&l, &alive, &veto, 1, folder, "all", path), 0);
	assert_named(path, "all_ledger.ini");
	assert_entry(path, "frames", "frames", "100");
	assert_entry(path, "frames", "unwritten_rows", "3");
	assert_entry(path, "frames", "balanced", "1");
	assert_entry(path, "packets", "foreign", "2");
	assert_entry(path, "ports", "ring_full", "4");
	assert_entry(path, "ports", "errors", "5");
	assert_entry(path, "veto 2", "from_frame", "5");
	assert_entry(path, "veto 2", "strong_min", "20");
	assert_entry(path, "receiver", "incarnation", "0000000000000abc");
	assert_entry(path, "run", "receivers", "1");
	assert_entry(path, "run", "frames", "100");
}

/* A setting that is in force already is not recommended. */
static void
test_hints(void **state)
{
	const struct ledger l = sample(100);

	for (int refuses = 0; refuses < 2; refuses++) {
		char *text = NULL;
		size_t size;
		FILE *out = open_memstream(&text, &size);

		assert_non_null(out);
		ledger_print(&l, false, refuses, out);
		assert_int_equal(fclose(out), 0);
		assert_non_null(strstr(text, "use more descriptors or RX lcores"));
		assert_int_equal(strstr(text, "backpressure = refuse") == NULL, refuses);
		free(text);
	}
}

/* Count rows as the builder makes them. */
static void
add_rows(uint64_t columns[LEDGER_COLUMNS], const uint8_t *verdict, const uint32_t *flags,
	uint64_t rows)
{
	static uint16_t missing[64];
	struct iovec body[FRAMES_COLUMNS] = {0};
	const struct batch b = {.table = ARROW_FRAMES, .body = body, .rows = rows};

	for (unsigned int i = 0; i < 64; i++)
		missing[i] = 1;
	/* iovec's pointer is not const */
	body[FRAMES_VERDICT].iov_base = (void *)(uintptr_t)verdict;
	body[FRAMES_FLAGS].iov_base = (void *)(uintptr_t)flags;
	body[FRAMES_MISSING].iov_base = missing;
	ledger_tally(columns, &b, 2);
}

/* The ledger of a receiver that was killed, with and without a successor in the same run. */
static void
test_of_dead(void **state)
{
	static const uint8_t verdict[] = {FRAME_HIT, FRAME_VETOED, FRAME_LOST, FRAME_PRESCALED,
		FRAME_HIT, FRAME_REFUSED, FRAME_INCOMPLETE, FRAME_ABORTED, FRAME_DRY_RUN,
		FRAME_VETOED};
	static const uint32_t flags[] = {FRAME_FLAG_INCOMPLETE, 0, 0, 0, FRAME_FLAG_NO_IMAGE, 0,
		FRAME_FLAG_INCOMPLETE | FRAME_FLAG_TIMEOUT, 0, 0, 0};
	struct ledger_kept dead = {.version = LEDGER_KEPT_VERSION,
		.running = 1,
		.stride = 1,
		.incarnation = 0xdead,
		.first_frame = 101,
		.last_frame = 114,
		.retained_frame = 110};
	struct ledger_receiver receiver = {.incarnation = 0xdead, .died = true};
	struct ledger_receiver next = {.incarnation = 0xbeef, .receivers = 1};
	char path[PATH_MAX], again[PATH_MAX];
	struct ledger l = sample(20);

	add_rows(dead.retained, verdict, flags, 10);
	ledger_of_dead(&l, &dead, 2, true);
	assert_true(ledger_balanced(&l));
	assert_int_equal(l.frames, 10);
	assert_int_equal(l.hits, 2);
	assert_int_equal(l.prescaled, 1);
	assert_int_equal(l.dry_run, 1);
	assert_int_equal(l.unwritten, 1);
	assert_int_equal(l.held, 2);
	assert_int_equal(l.stored, 1);
	assert_int_equal(l.vetoed, 2);
	assert_int_equal(l.lost, 1);
	assert_int_equal(l.refused, 1);
	assert_int_equal(l.incomplete, 1);
	assert_int_equal(l.aborted, 1);
	assert_int_equal(l.incomplete_kept, 1);
	assert_int_equal(l.missing_packets, 8 * 2);
	assert_int_equal(l.timeouts, 1);
	assert_int_equal(ledger_write(&l, &receiver, NULL, 0, folder, "dead", path), 0);
	assert_named(path, "dead_ledger.ini");
	assert_entry(path, "receiver", "died", "1");
	assert_entry(path, "frames", "balanced", "1");
	/* written once, even if it is attempted again */
	assert_int_equal(ledger_write(&l, &receiver, NULL, 0, folder, "dead", again), 0);
	assert_string_equal(path, again);

	/*
	 * the successor: 4 frames lost at the restart, 6 while the receiver was down, 20 of its own
	 */
	ledger_keep(&l, &dead);
	memcpy(next.earlier, dead.columns, sizeof(next.earlier));
	ledger_held_is_stored(next.earlier);
	l = sample(20);
	l.records = 20;
	ledger_resume(&l, &dead, 121);
	assert_true(l.frames_balance);
	l.placed_balance = true;
	assert_int_equal(ledger_write(&l, &next, NULL, 0, folder, "dead", path), 0);
	assert_named(path, "dead_ledger.2.ini");
	assert_entry(path, "frames", "frames", "30");
	assert_entry(path, "run", "receivers", "2");
	assert_entry(path, "run", "frames", "40");
	assert_entry(path, "run", "stored", "21");
	assert_entry(path, "run", "held", "0");
	assert_entry(path, "run", "lost_at_restart", "4");
	assert_entry(path, "run", "lost_while_down", "6");
	assert_entry(path, "run", "balanced", "1");

	/* without a successor in its run: the lost frames are in its own ledger */
	memset(dead.columns, 0, sizeof(dead.columns));
	ledger_of_dead(&l, &dead, 9, false);
	assert_true(ledger_balanced(&l));
	assert_int_equal(l.lost_at_restart, 4);
	assert_int_equal(l.frames, 14);
	assert_int_equal(l.held, 3);
}

/* A receiver has stored its first rows and is killed before its counters were stored. */
static void
test_first_rows(void **state)
{
	const struct ledger_kept before = {.version = LEDGER_KEPT_VERSION,
		.stride = 2,
		.first_frame = 101,
		.last_frame = 115,
		.retained_frame = 111};
	struct ledger_kept kept = {.version = LEDGER_KEPT_VERSION, .running = 1, .stride = 2};
	static const uint8_t verdict[] = {FRAME_VETOED, FRAME_VETOED, FRAME_VETOED};
	static const uint32_t flags[3];
	struct ledger l;

	ledger_pass_on(&kept, &before);
	ledger_begin(&kept, 121, 125);
	add_rows(kept.retained, verdict, flags, 3);
	kept.retained_frame = 125;
	ledger_of_dead(&l, &kept, 0, true);
	assert_true(ledger_balanced(&l));
	assert_int_equal(l.lost_at_restart, 2);
	assert_int_equal(l.lost_while_down, 2);
	assert_int_equal(l.frames, 2 + 2 + 3);
	/* the columns count the frames */
	ledger_begin(&kept, 121, 200);
	assert_int_equal(kept.last_frame, 125);

	/* the announced rows are missing: the successor counts them as lost */
	memset(kept.retained, 0, sizeof(kept.retained));
	kept.retained_frame = 0;
	l = (struct ledger){.placed_balance = true};
	ledger_resume(&l, &kept, 131);
	assert_int_equal(l.lost_at_restart, 3);
	assert_int_equal(l.lost_while_down, 2);

	/* the first receiver of the run */
	kept = (struct ledger_kept){.version = LEDGER_KEPT_VERSION, .stride = 1};
	ledger_begin(&kept, 5, 9);
	ledger_of_dead(&l, &kept, 0, true);
	assert_int_equal(l.frames, 0);
	assert_int_equal(kept.first_frame, 5);
}

/*
 * A receiver that continues a run, and one that was killed while writing, do not overwrite a
 * ledger.
 */
static void
test_none_is_overwritten(void **state)
{
	const struct ledger first = sample(10), second = sample(20), third = sample(30);
	char one[PATH_MAX], two[PATH_MAX], four[PATH_MAX], part[PATH_MAX];
	FILE *f;

	assert_int_equal(ledger_write(&first, &alive, NULL, 0, folder, "run", one), 0);
	assert_int_equal(ledger_write(&second, &alive, NULL, 0, folder, "run", two), 0);
	snprintf(part, sizeof(part), "%s/run_ledger.3.ini.part", folder);
	f = fopen(part, "w");
	assert_non_null(f);
	fclose(f);
	assert_int_equal(ledger_write(&third, &alive, NULL, 0, folder, "run", four), 0);
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
	assert_int_equal(ledger_write(&l, &alive, NULL, 0, no, "run", path), -ENOENT);
	assert_non_null(strstr(path, "no/run_ledger.ini"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sections),
		cmocka_unit_test(test_hints),
		cmocka_unit_test(test_of_dead),
		cmocka_unit_test(test_first_rows),
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
