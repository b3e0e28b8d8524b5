/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests the verdicts of --check on [egress], and the lcore of the egress role. */

#include <fcntl.h>

#include <rte_eal.h>

#include "check_rig.h"
#include "lcores.h"

#define EGRESS "roce:port=0,ip=10.0.0.1/24"

static char journal[64];

/* A complete file of receiver 2. */
#define SPILLED "/spill/run-0000000000000002-0000000000000007/run_frames-a-00000.arrow"

/** Settings of [egress] with device, stores and key only. */
static struct settings
make_egress(void)
{
	struct settings s = make_settings();

	s.kernel = "host";
	s.gangs = 1;
	s.receiver_id = 1;
	egress = (struct egress_settings){.device = EGRESS,
		.stores = "10.0.0.100",
		.identity = "recv",
		.key = "key",
		.journal = journal,
		.journal_bytes = UINT64_C(1024) << 20,
		.batch_bytes = 16 << 20,
		.rate = 100000000,
		.failover_ms = 3000,
		.hold_ms = 1000};
	return s;
}

static const struct egress_slots no_slots;

/* Add the row of the journal. */
static void
look(const struct settings *s, const struct egress_slots *slots, bool lacks_slots)
{
	struct check_egress e = {.slots = *slots};

	check_probe_journal(&e, s);
	assert_int_equal(e.lacks_slots, lacks_slots);
	check_journal(&check, s, &e);
}

static void
test_none(void **state)
{
	const struct settings s = make_settings();
	struct check_egress e;

	check_open_egress(&e, &s, GK_MEMORY_HOST);
	check_egress(&check, &s, &e);
	assert_int_equal(check.nb_rows, 0);
	check_close_egress(&e);
}

static void
test_device(void **state)
{
	struct settings s = make_egress();
	struct check_egress e;

	check_open_egress(&e, &s, GK_MEMORY_HOST); /* the port does not exist */
	check_egress_device(&check, &s, &e);
	want(CHECK_FAIL, EGRESS ": No such device", "roce:port=PORT,ip=ADDRESS/PREFIX");
	egress.device = "infiniband:mlx5_0";
	check_open_egress(&e, &s, GK_MEMORY_HOST);
	check_egress_device(&check, &s, &e);
	want(CHECK_FAIL, "infiniband:mlx5_0: Invalid argument", "verbs:ADAPTER");
	e = (struct check_egress){0};
	check_egress_device(&check, &s, &e);
	want(CHECK_OK, "infiniband:mlx5_0", "");
}

/* Output slots in the journal: those of the gangs and further ones, or none. */
static void
test_slots(void **state)
{
	struct settings s = make_egress();
	struct check_egress e;

	egress.device = "infiniband:mlx5_0";
	egress.journal_slots = 10;
	s.outputs = 5;
	check_open_egress(&e, &s, GK_MEMORY_HOST);
	assert_int_equal(e.slots.n, 15);
	s.outputs = JOURNAL_SLOTS - 1;
	check_open_egress(&e, &s, GK_MEMORY_HOST);
	assert_int_equal(e.slots.n, JOURNAL_SLOTS);
	/* the gangs would have all of them */
	s.outputs = JOURNAL_SLOTS;
	check_open_egress(&e, &s, GK_MEMORY_HOST);
	assert_int_equal(e.slots.n, 0);
}

static void
test_stores(void **state)
{
	struct check_egress e = {.no_route = ""};
	struct settings s = make_egress();

	egress.stores = "10.0.0.100, 10.0.0.101:7777,[fd00::1]:9";
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_OK, "10.0.0.101:7777, [fd00::1]:9; not connected to by --check", "");
	egress.stores = "10.0.0.100,store7.example";
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_FAIL, "'store7.example': expected ADDRESS[:PORT]",
		"host names are not resolved");
	egress.stores = "10.0.0.100:99999";
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_FAIL, "'10.0.0.100:99999'", "[egress] stores");
	egress.stores = "10.0.0.100:4000,10.0.0.100:4000";
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_FAIL, "are the same store", "[egress] stores");
	egress.stores = ",";
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_FAIL, "is empty", "[egress] stores");
	egress.stores = "10.0.0.100";
	snprintf(e.no_route, sizeof(e.no_route), "store 10.0.0.100: no route");
	check_parse_stores(&e, &s);
	check_egress_stores(&check, &e);
	want(CHECK_FAIL, "store 10.0.0.100: no route", "gateway=");
}

static void
test_key(void **state)
{
	struct settings s = make_egress();
	char path[PATH_MAX + 32];

	snprintf(path, sizeof(path), "%s/key", root);
	egress.key = path;
	check_egress_key(&check, &s);
	want(CHECK_FAIL, "cannot open key file", "head -c 64");
	put("/key", "0123456789abcdef0123456789abcdef");
	assert_int_equal(chmod(path, 0644), 0);
	check_egress_key(&check, &s);
	want(CHECK_FAIL, "mode is 644, other users may access it", "chmod 600");
	assert_int_equal(chmod(path, 0600), 0);
	check_egress_key(&check, &s);
	want(CHECK_OK, "/key, 32 bytes", "");
	put("/key", "short");
	check_egress_key(&check, &s);
	want(CHECK_FAIL, "has 5 bytes, expected 32 to 1024", "head -c 64");
}

static void
test_journal(void **state)
{
	const struct journal_config small = {.path = journal, .receiver_id = 1, .bytes = 16 << 20};
	struct settings s = make_egress();
	char path[PATH_MAX + 32], message[PATH_MAX];
	struct journal *r = NULL;

	/* 100 MB/s x 4.205 s + 2 x 16.8 MB = 454.1 MB = 434 MiB */
	egress.journal_bytes = UINT64_C(200) << 20;
	look(&s, &no_slots, false);
	want(CHECK_FAIL, ": 200 MiB; required: 434 MiB: 100 MB/s x (200 ms commit",
		"[egress] journal_mib = 434, or a lower rate_mb_per_s");
	egress.journal_bytes = UINT64_C(434) << 20;
	egress.rate = 1000000;
	look(&s, &no_slots, false);
	want(CHECK_OK, ": 434 MiB; required: 37 MiB", "");
	assert_int_equal(access(journal, F_OK), -1);
	egress.journal_bytes = UINT64_C(1) << 55;
	look(&s, &no_slots, false);
	want(CHECK_FAIL, ": needs 32.0 PiB, its file system has", "journal_mib = 37,");
	/* room for batches, but not for the slots */
	egress.journal_bytes = UINT64_C(434) << 20;
	look(&s, &(struct egress_slots){UINT64_C(1) << 36, 16384}, false);
	want(CHECK_FAIL, ", for output slots 1.0 PiB, its file system has",
		"or fewer journal_slots");

	/* an existing journal keeps its size */
	s = make_egress();
	assert_int_equal(journal_open(&r, &small, message), 0);
	look(&s, &no_slots, false);
	want(CHECK_FAIL, "is locked by another process", "[egress] journal");
	journal_close(r);
	look(&s, &no_slots, false);
	want(CHECK_FAIL, ": 16 MiB; required: 434 MiB",
		"remove the file, and set [egress] journal_mib = 434 or more");
	egress.rate = 1000;
	egress.batch_bytes = 1 << 20;
	look(&s, &no_slots, false);
	want(CHECK_WARN, "journal_mib = 1024 has no effect", "remove the file when stores have");
	egress.journal_bytes = UINT64_C(16) << 20;
	look(&s, &no_slots, false);
	want(CHECK_OK, "existing, will be resumed: 16 MiB", "");
	/* one from before there were slots: outputs take EAL memory */
	s.outputs = 20;
	look(&s, &(struct egress_slots){8192, 30}, true);
	want(CHECK_WARN,
		"it has no output slots, expected more than 20 of 8192 bytes: kept frames are "
		"copied, and [gpu] outputs take EAL memory, until",
		"remove the file when stores have");
	s.receiver_id = 2;
	look(&s, &no_slots, false);
	want(CHECK_FAIL, "belongs to receiver 1, expected ", "[output] receiver_id");
	unlink(journal);

	snprintf(path, sizeof(path), "%s/none/journal", root);
	egress.journal = path;
	look(&s, &no_slots, false);
	want(CHECK_FAIL, "No such file or directory", "/dev/shm");
}

/* Put a batch that refers to `n` slots. */
static void
put_batch(struct journal *r, uint32_t n)
{
	const uint8_t schema[] = {1};
	const struct journal_run run = {
		.name = "run", .schema = {schema, schema}, .schema_bytes = {1, 1}};
	struct journal_reference reference[JOURNAL_REFERENCES];
	struct journal_batch b = {.rows = n, .body_bytes = n * 4096};
	const int index = journal_run_add(r, &run);

	assert_true(index >= 0);
	b.run = index;
	assert_non_null(journal_reserve(r, 4096));
	for (uint32_t i = 0; i < n; i++)
		reference[i] =
			(struct journal_reference){.slot = journal_slot_take(r), .bytes = 4096};
	journal_refer(r, &b, reference, n);
	(void)journal_commit(r, &b);
}

/* An existing journal whose output slots are in use, or are only as many as the gangs have. */
static void
test_journal_slots(void **state)
{
	const struct egress_slots want_slots = {8192, 30};
	const struct journal_config config = {.path = journal,
		.receiver_id = 1,
		.bytes = 16 << 20,
		.slot_bytes = 8192,
		.slots = 30};
	struct settings s = make_egress();
	char message[PATH_MAX];
	struct check_egress e;
	struct journal *r;

	egress.journal_bytes = 16 << 20;
	egress.rate = 1000;
	egress.batch_bytes = 1 << 20;
	s.outputs = 20;
	unlink(journal);
	assert_int_equal(journal_open(&r, &config, message), 0);
	journal_close(r);
	look(&s, &want_slots, false);
	want(CHECK_OK, "existing, will be resumed", "");
	s.outputs = 30;
	look(&s, &want_slots, false);
	want(CHECK_WARN,
		"it has 30 output slots of 8192 bytes, expected more than [gpu] outputs = 30 of "
		"8192: kept frames are copied",
		"remove the file");
	s.outputs = 31;
	look(&s, &want_slots, true);
	want(CHECK_WARN, "and [gpu] outputs take EAL memory", "remove the file");
	s.outputs = 20;
	look(&s, &(struct egress_slots){4096, 30}, true);
	want(CHECK_WARN,
		"30 output slots of 8192 bytes, expected more than [gpu] outputs = 20 of 4096",
		"remove the file");

	assert_int_equal(journal_open(&r, &config, message), 1);
	put_batch(r, 10);
	journal_close(r);
	look(&s, &want_slots, false);
	want(CHECK_WARN,
		"its batches have 10 of its 30 output slots, [gpu] outputs = 20: kept frames are "
		"copied until stores have batches",
		"when stores have more of its batches");
	s.outputs = 21;
	look(&s, &want_slots, true);
	want(CHECK_WARN,
		"10 of its 30 output slots, [gpu] outputs = 21: kept frames are copied, and [gpu] "
		"outputs take EAL memory, until the end of the process",
		"when stores have more of its batches");

	/* the file is examined once: a receiver that starts meanwhile changes nothing */
	e = (struct check_egress){.slots = want_slots};
	s.outputs = 19;
	check_probe_journal(&e, &s);
	assert_int_equal(journal_open(&r, &config, message), 1);
	check_journal(&check, &s, &e);
	want(CHECK_OK, "existing, will be resumed", "");
	journal_close(r);
	unlink(journal);
}

static void
test_spill(void **state)
{
	struct settings s = make_egress();
	char path[PATH_MAX + 32], file[PATH_MAX + 128];

	check_spill(&check, &s);
	want(CHECK_NA, "none", "");
	snprintf(path, sizeof(path), "%s/spill", root);
	egress.spill = path;
	egress.journal_bytes = 4096;
	check_spill(&check, &s);
	want(CHECK_OK, "/spill, will be created: ", "");
	assert_int_equal(access(path, F_OK), -1);
	egress.journal_bytes = UINT64_C(1) << 60;
	check_spill(&check, &s);
	want(CHECK_WARN, "free, less than the size of the journal (1024 PiB)", "[egress] spill");
	egress.spill_bytes = UINT64_C(1) << 50;
	check_spill(&check, &s);
	want(CHECK_WARN, "free, less than the limit spill_mib (1.0 PiB)", "[egress] spill");
	egress.spill_bytes = UINT64_C(500) << 10;
	egress.rate = 1000;
	check_spill(&check, &s);
	want(CHECK_OK, ", 512 s at rate_mb_per_s", "");

	/* files left in the folder count, but not those of another receiver */
	put(SPILLED, "");
	snprintf(file, sizeof(file), "%s" SPILLED, root);
	assert_int_equal(truncate(file, 300 << 10), 0);
	s.receiver_id = 1;
	check_spill(&check, &s);
	want(CHECK_OK, ", 512 s at rate_mb_per_s", "");
	s.receiver_id = 2;
	check_spill(&check, &s);
	want(CHECK_OK, ", 204 s at rate_mb_per_s", "");
	egress.spill_bytes = UINT64_C(300) << 10;
	check_spill(&check, &s);
	want(CHECK_WARN, "300 KiB not imported yet", "braggline-store import");
	assert_int_equal(chmod(path, 0777), 0);
	check_spill(&check, &s);
	want(CHECK_FAIL, "mode is 0777, other users may write", "not writable for others");
	assert_int_equal(chmod(path, 0755), 0);

	snprintf(path, sizeof(path), "%s/a/b", root);
	check_spill(&check, &s);
	want(CHECK_FAIL, "/a/b: No such file", "mkdir -p");
	/* a check creates the folder as a run does, and removes it */
	put("/file", "");
	snprintf(path, sizeof(path), "%s/file", root);
	check_spill(&check, &s);
	want(CHECK_FAIL, "/file: it is a symbolic link, or not a folder", "mkdir -p");
}

/* With [egress] the files are on the stores: the checks of local storage do not apply. */
static void
test_storage(void **state)
{
	struct settings s = make_egress();
	const struct check_maps none = {0};

	s.directory = root;
	s.run = "run";
	put("/run_frames.arrow", "");
	check_directory(&check, &s, &none);
	want(CHECK_OK, root, "");
	check_space(&check, &s);
	want(CHECK_NA, "go to stores", "");
	check_direct_io(&check, &s);
	want(CHECK_NA, "go to stores", "");
}

/* EAL has lcores 0 to 4: the main lcore, two RX lcores, a builder and a gang. */
static void
test_role(void **state)
{
	struct check_lcores l = {.live = true};
	struct settings s = make_egress();

	s.rx_lcores = 2;
	s.gang_workers = 1;
	assert_int_equal(check_place_roles(&check, &s, &l), 0);
	want(CHECK_OK, "3: builder, egress", "");
	s.nb_egress_map = 1;
	s.egress_map[0] = 1;
	assert_int_equal(check_place_roles(&check, &s, &l), 0);
	want(CHECK_OK, "1: rx 0, egress", "");
	for (uint32_t i = 0; i < l.nb; i++) {
		CPU_ZERO(&l.lcore[i].cpus);
		CPU_SET(i, &l.lcore[i].cpus);
	}
	check_sharing(&check, &l);
	want(CHECK_WARN, "rx 0, egress on lcore 1", "egress");
	s.egress_map[0] = 77;
	assert_int_equal(check_place_roles(&check, &s, &l), -EINVAL);
	want(CHECK_FAIL, "egress has no lcore; EAL has lcores 0-4", "egress and gang to auto");
	egress.device = NULL;
	assert_int_equal(check_place_roles(&check, &s, &l), 0);
	assert_null(strstr(check.rows[check.nb_rows - 1].value, "egress"));
}

int
main(void)
{
	char *eal[] = {(char[]){"check_egress_test"}, (char[]){"--no-huge"}, (char[]){"-m"},
		(char[]){"64"}, (char[]){"--no-pci"}, (char[]){"--no-shconf"},
		(char[]){"--no-telemetry"}, (char[]){"--lcores"}, (char[]){"(0-4)@0"}};
	const struct CMUnitTest tests[] = {
		TEST(test_none),
		TEST(test_device),
		TEST(test_slots),
		TEST(test_stores),
		TEST(test_key),
		TEST(test_journal),
		TEST(test_journal_slots),
		TEST(test_spill),
		TEST(test_storage),
		TEST(test_role),
	};
	int ret;

	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	snprintf(journal, sizeof(journal), "/dev/shm/braggline-check-%d", getpid());
	if (rte_eal_init(RTE_DIM(eal), eal) < 0)
		return 1;
	ret = cmocka_run_group_tests_name("check egress", tests, NULL, NULL);
	rte_eal_cleanup();
	return ret;
}
