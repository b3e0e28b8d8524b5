/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests which store has which address: stores that move, exchange addresses, have two addresses or
 * are replaced. Also tests which runs and stores an orphaned journal has.
 */

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "arrow/crc32c.h"
#include "tools/orphaned_journals.h"
#include "egress/store_set.h"
#include "journal/journal_private.h"

#define A UINT64_C(0xa1)
#define B UINT64_C(0xb2)
#define C UINT64_C(0xc3)

static char path[64];
static struct journal *journal;
static struct store_set stores;
static int run;
static unsigned int steps;

/*
 * After each store to the journal: no identity is there twice, and every store with batches has an
 * identity.
 */
static void
look(void *arg)
{
	struct journal_store a, b;
	unsigned int i, k;

	steps++;
	for (i = 0; journal != NULL && i < JOURNAL_STORES; i++) {
		if (!journal_store_get(journal, i, &a))
			continue;
		assert_true(a.identity != 0 || journal_store_given(journal, i) == 0);
		for (k = 0; k < i; k++) {
			if (!journal_store_get(journal, k, &b))
				continue;
			assert_true(a.identity == 0 || a.identity != b.identity);
			assert_false(a.here && b.here && strcmp(a.address, b.address) == 0);
		}
	}
}

static void
open_ring(int wanted)
{
	const struct journal_config config = {
		.path = path, .receiver_id = 7, .bytes = 1 << 20, .step = look};
	char message[PATH_MAX];

	assert_int_equal(journal_open(&journal, &config, message), wanted);
}

/* Set up a receiver with these addresses. */
static void
configure(const char *const *address, unsigned int nb)
{
	unsigned int i;

	stores = (struct store_set){.journal = journal, .nb = nb};
	for (i = 0; i < nb; i++) {
		snprintf(stores.at[i].name, JOURNAL_ADDRESS, "%s", address[i]);
		snprintf(stores.at[i].address, JOURNAL_ADDRESS, "%s", address[i]);
	}
}

static void
start(const char *const *address, unsigned int nb)
{
	journal_close(journal);
	journal = NULL;
	open_ring(1);
	configure(address, nb);
	assert_int_equal(store_set_find(&stores), 0);
}

/* Restart the receiver with a list of addresses. */
#define START(...)                                \
	start((const char *const[]){__VA_ARGS__}, \
		sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *))

static int
begin(void **state)
{
	static uint8_t schema[XFER_BLOCK];
	const struct journal_run r = {
		.run = 1,
		.incarnation = 2,
		.name = "run",
		.schema = {schema, schema},
		.schema_bytes = {XFER_BLOCK, XFER_BLOCK},
	};

	snprintf(path, sizeof(path), "/dev/shm/store_set_test_%d", getpid());
	unlink(path);
	open_ring(0);
	run = journal_run_add(journal, &r);
	return run < 0;
}

static int
end(void **state)
{
	journal_close(journal);
	journal = NULL;
	return unlink(path);
}

/* Put a batch that was given to this store. */
static uint32_t
give(unsigned int number)
{
	struct journal_batch b = {.rows = 1, .run = run, .body_bytes = XFER_BLOCK};
	uint8_t *at = journal_reserve(journal, XFER_BLOCK);
	uint32_t batch;

	assert_non_null(at);
	b.body_crc32c = arrow_crc32c(0, at + XFER_BLOCK, XFER_BLOCK);
	journal_fill(journal, &b);
	batch = journal_commit(journal, &b);
	journal_assign(journal, batch, number);
	journal_give(journal, batch);
	return batch;
}

/* Connect and disconnect a store. */
static void
meet(unsigned int at, uint64_t identity)
{
	assert_int_equal(store_set_prove(&stores, at, identity), 0);
	store_set_leave(&stores, at);
}

static void
number_is(unsigned int at, uint64_t identity)
{
	struct journal_store s;

	assert_true(journal_store_get(journal, stores.at[at].number, &s));
	assert_int_equal(s.identity, identity);
	assert_int_equal(store_set_at(&stores, stores.at[at].number), at);
}

static void
test_first(void **state)
{
	START("one", "two");
	assert_int_equal(stores.at[0].number, 0);
	assert_int_equal(stores.at[1].number, 1);
	assert_int_equal(store_set_at(&stores, 2), -ENOENT);
	meet(0, A);
	meet(1, B);
	(void)give(0);
	(void)give(1);
	assert_int_equal(stores.changes, 0);
	/* also before a store is connected */
	START("two", "one");
	assert_int_equal(stores.at[0].number, 1);
	assert_int_equal(stores.at[1].number, 0);
}

/* Two stores exchange their addresses. */
static void
test_change_places(void **state)
{
	START("one", "two");
	meet(0, A);
	meet(1, B);
	(void)give(0);
	(void)give(1);
	START("one", "two");
	meet(0, B);
	assert_int_equal(stores.changes, 1);
	assert_int_equal(stores.at[0].number, 1);
	assert_int_equal(stores.at[1].number, 0);
	meet(1, A);
	assert_int_equal(stores.changes, 1);
	number_is(0, B);
	number_is(1, A);
	/* also after a restart */
	START("one", "two");
	number_is(0, B);
	number_is(1, A);
}

/* A store gets a new address, and its old address is no longer used. */
static void
test_moves(void **state)
{
	START("one", "two");
	meet(0, A);
	meet(1, B);
	(void)give(0);
	START("three", "two");
	assert_int_equal(stores.at[0].number, 2);
	meet(0, A);
	assert_int_equal(stores.at[0].number, 0);
	assert_int_equal(stores.at[0].identity, A);
	START("three", "two");
	assert_int_equal(stores.at[0].number, 0);
	number_is(0, A);
	/* numbers of unknown stores are reused: a store may move any number of times */
	for (unsigned int i = 0; i < 2 * JOURNAL_STORES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "four%u", i);
		START(name, "two");
		meet(0, A);
		number_is(0, A);
		assert_int_equal(stores.at[0].number, 0);
	}
}

/* A second address of the same store is not used while the first is connected. */
static void
test_twice(void **state)
{
	START("one", "two");
	assert_int_equal(store_set_prove(&stores, 0, A), 0);
	(void)give(0);
	assert_int_equal(store_set_prove(&stores, 1, A), -EEXIST);
	assert_int_equal(store_set_prove(&stores, 1, A), -EEXIST);
	assert_int_equal(stores.at[1].refused, 2);
	assert_int_equal(stores.at[1].number, 1);
	assert_int_equal(stores.changes, 0);
	/* after the first is disconnected, the second address is used */
	store_set_leave(&stores, 0);
	assert_int_equal(store_set_prove(&stores, 1, A), 0);
	number_is(1, A);
	assert_int_equal(store_set_prove(&stores, 0, A), -EEXIST);
	number_is(0, 0);
}

/* Two stores answer at one address alternately. */
static void
test_two_stores_at_one_address(void **state)
{
	START("one");
	assert_int_equal(store_set_prove(&stores, 0, A), 0);
	assert_int_equal(store_set_prove(&stores, 0, A), 0);
	assert_int_equal(store_set_prove(&stores, 0, B), -EBUSY);
	store_set_leave(&stores, 0);
	assert_int_equal(store_set_prove(&stores, 0, B), -EBUSY);
	store_set_leave(&stores, 0);
	assert_int_equal(store_set_prove(&stores, 0, B), 0);
	number_is(0, B);
}

/* Another store answers at an address: the batches of the first store stay with its identity. */
static void
test_replaced(void **state)
{
	uint32_t batch;

	START("one");
	meet(0, A);
	meet(0, B);
	/* the first store had no batches */
	assert_int_equal(stores.at[0].number, 0);
	batch = give(0);
	meet(0, C);
	assert_int_equal(stores.at[0].number, 1);
	assert_int_equal(stores.changes, 1);
	number_is(0, C);
	(void)give(1);
	/* the first store is back, with its number; the other one keeps its batch */
	meet(0, B);
	assert_int_equal(stores.at[0].number, 0);
	assert_int_equal(journal_store_given(journal, 1), 1);
	START("one");
	number_is(0, B);
	/* a store without batches is forgotten once its address is not listed */
	journal_release(journal, batch);
	START("two");
	assert_int_equal(journal_store_of(journal, B), -ENOENT);
	assert_int_equal(journal_store_of(journal, C), 1);
}

/* All numbers belong to stores that were given batches. */
static void
test_full(void **state)
{
	char name[16];
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		snprintf(name, sizeof(name), "store%u", i);
		START(name);
		meet(0, A + i);
		(void)give(stores.at[0].number);
	}
	/* one more store at the address of the last one */
	assert_int_equal(store_set_prove(&stores, 0, A + i), -ENOSPC);
	number_is(0, A + i - 1);
	snprintf(stores.at[0].address, sizeof(stores.at[0].address), "another");
	assert_int_equal(store_set_find(&stores), -ENOSPC);
	assert_true(steps > 100);
}

/* An orphaned journal has its own runs only, not other runs of the receiver. */
static void
test_orphaned_journal(void **state)
{
	struct arrow_identity id = {
		.receiver_id = 7, .run = 1, .incarnation = 2, .table = "frames"};
	struct orphaned_journals left = {0};
	char message[PATH_MAX];

	journal_close(journal);
	journal = NULL;
	assert_int_equal(orphaned_journals_add(&left, path, message), 0);
	assert_true(orphaned_journals_has(&left, &id));
	id.incarnation++;
	assert_false(orphaned_journals_has(&left, &id));
	id.incarnation--;
	id.receiver_id++;
	assert_false(orphaned_journals_has(&left, &id));
	left.without = true;
	assert_true(orphaned_journals_has(&left, &id));
	orphaned_journals_close(&left);
}

static unsigned int said;

static void
on_say(void *arg, bool error, const char *text)
{
	said++;
	assert_false(error);
	assert_non_null(strstr(text, arg));
}

static bool
none_is_kept(void *arg, const struct arrow_identity *identity)
{
	return false;
}

/*
 * A journal passed to reconcile forgets its doubts, and the stores whose directories are missing
 * are reported.
 */
static void
test_forgets(void **state)
{
	const uint64_t there[] = {A, B};
	struct orphaned_journals left = {0};
	struct journal_batch b;
	char message[PATH_MAX];
	uint32_t doubt, held;

	START("one", "two", "three");
	meet(0, A);
	meet(1, B);
	meet(2, C);
	doubt = give(2);
	journal_assign(journal, doubt, 0);
	journal_give(journal, doubt);
	journal_release(journal, doubt);
	held = give(0);
	journal_assign(journal, held, 2);
	journal_close(journal);
	journal = NULL;

	assert_int_equal(orphaned_journals_add(&left, path, message), 0);
	orphaned_journals_report_others(
		&left, there, 2, on_say, (void *)(uintptr_t) "00000000000000c3");
	assert_int_equal(said, 1);
	orphaned_journals_forget(&left, none_is_kept, NULL);
	assert_false(journal_get(left.journal[0], doubt, &b));
	assert_true(journal_get(left.journal[0], held, &b));
	assert_int_equal(b.given, 0);
	assert_true(b.held);
	orphaned_journals_close(&left);
}

static unsigned int errors;

static void
on_damage(void *arg, bool error, const char *text)
{
	if (error)
		errors++;
	else
		said++;
	if (strstr(text, arg) == NULL)
		fail_msg("%s, expected %s", text, (char *)arg);
}

/* A damaged store is an error, and every directory is needed: it may be any of them. */
static void
test_damaged_store(void **state)
{
	const uint64_t there[] = {A, B};
	const struct journal_config config = {.path = path, .receiver_id = 7, .bytes = 1 << 20};
	struct orphaned_journals left = {0};
	struct journal *refused;
	struct ring_header h;
	char message[PATH_MAX];
	uint64_t batches = 99;
	uint32_t doubt;
	int fd;

	START("one", "two");
	meet(0, A);
	meet(1, B);
	doubt = give(1);
	journal_assign(journal, doubt, 0);
	journal_give(journal, doubt);
	journal_release(journal, doubt);
	journal_close(journal);
	journal = NULL;

	fd = open(path, O_RDWR);
	assert_int_equal(pread(fd, &h, sizeof(h), 0), sizeof(h));
	h.store[1].identity ^= 3;
	assert_int_equal(pwrite(fd, &h, sizeof(h), 0), sizeof(h));
	close(fd);
	assert_int_equal(journal_open(&refused, &config, message), -EBADMSG);
	assert_int_equal(orphaned_journals_add(&left, path, message), 0);
	said = errors = 0;
	assert_true(orphaned_journals_report_damage(&left, &batches, on_damage,
		(void *)(uintptr_t) "store 1 is damaged: wrong checksum of its identity"));
	assert_int_equal(errors, 1);
	assert_int_equal(batches, 0);
	orphaned_journals_report_others(&left, there, 2, on_damage,
		(void *)(uintptr_t) "store 1, which is damaged, last seen at two, was sent 1 "
				    "batches");
	assert_int_equal(said, 1);
	orphaned_journals_close(&left);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_first, begin, end),
		cmocka_unit_test_setup_teardown(test_change_places, begin, end),
		cmocka_unit_test_setup_teardown(test_moves, begin, end),
		cmocka_unit_test_setup_teardown(test_twice, begin, end),
		cmocka_unit_test_setup_teardown(test_two_stores_at_one_address, begin, end),
		cmocka_unit_test_setup_teardown(test_replaced, begin, end),
		cmocka_unit_test_setup_teardown(test_full, begin, end),
		cmocka_unit_test_setup_teardown(test_orphaned_journal, begin, end),
		cmocka_unit_test_setup_teardown(test_forgets, begin, end),
		cmocka_unit_test_setup_teardown(test_damaged_store, begin, end),
	};

	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
