/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store is at which address: stores that move, change places, answer twice, are replaced; and
 * whose runs a ring that was left has. */

#include <errno.h>
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

#define A UINT64_C(0xa1)
#define B UINT64_C(0xb2)
#define C UINT64_C(0xc3)

static char path[64];
static struct journal *ring;
static struct store_set stores;
static int run;
static unsigned int steps;

/* Whenever a process may be killed: nobody is known twice, and who was given batches is known. */
static void
look(void *arg)
{
	struct journal_store a, b;
	unsigned int i, k;

	steps++;
	for (i = 0; ring != NULL && i < JOURNAL_STORES; i++) {
		if (!journal_store_get(ring, i, &a))
			continue;
		assert_true(a.identity != 0 || journal_store_given(ring, i) == 0);
		for (k = 0; k < i; k++) {
			if (!journal_store_get(ring, k, &b))
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

	assert_int_equal(journal_open(&ring, &config, message), wanted);
}

/* A receiver starts with these addresses. */
static void
configure(const char *const *address, unsigned int nb)
{
	unsigned int i;

	stores = (struct store_set){.ring = ring, .nb = nb};
	for (i = 0; i < nb; i++) {
		snprintf(stores.at[i].name, JOURNAL_ADDRESS, "%s", address[i]);
		snprintf(stores.at[i].address, JOURNAL_ADDRESS, "%s", address[i]);
	}
}

static void
start(const char *const *address, unsigned int nb)
{
	journal_close(ring);
	ring = NULL;
	open_ring(1);
	configure(address, nb);
	assert_int_equal(store_set_find(&stores), 0);
}

/* The same with a list of addresses. */
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
	run = journal_run_add(ring, &r);
	return run < 0;
}

static int
end(void **state)
{
	journal_close(ring);
	ring = NULL;
	return unlink(path);
}

/* A batch that this store was given. */
static uint32_t
give(unsigned int number)
{
	struct journal_batch b = {.rows = 1, .run = run};
	uint8_t *at = journal_reserve(ring, XFER_BLOCK);
	uint32_t batch;

	assert_non_null(at);
	b.body_crc32c = arrow_crc32c(0, at + XFER_BLOCK, XFER_BLOCK);
	batch = journal_commit(ring, &b);
	journal_assign(ring, batch, number);
	journal_give(ring, batch);
	return batch;
}

/* It connects, and the connection ends. */
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

	assert_true(journal_store_get(ring, stores.at[at].number, &s));
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
	/* also before anybody has answered */
	START("two", "one");
	assert_int_equal(stores.at[0].number, 1);
	assert_int_equal(stores.at[1].number, 0);
}

/* Addresses are given to each other's stores. */
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
	/* it stays known */
	START("one", "two");
	number_is(0, B);
	number_is(1, A);
}

/* One has a new address, the old one is not used any more. */
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
	/* what was nobody's is free again: as many moves as one likes */
	for (unsigned int i = 0; i < 2 * JOURNAL_STORES; i++) {
		char name[16];

		snprintf(name, sizeof(name), "four%u", i);
		START(name, "two");
		meet(0, A);
		number_is(0, A);
		assert_int_equal(stores.at[0].number, 0);
	}
}

/* A second way to the same store: not used while there is the first. */
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
	/* the first one goes: the other is its way now */
	store_set_leave(&stores, 0);
	assert_int_equal(store_set_prove(&stores, 1, A), 0);
	number_is(1, A);
	assert_int_equal(store_set_prove(&stores, 0, A), -EEXIST);
	number_is(0, 0);
}

/* An address behind which now this, now that one answers. */
static void
test_two_behind_one(void **state)
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

/* Another one at the same address: what the first may have stays its own. */
static void
test_replaced(void **state)
{
	uint32_t batch;

	START("one");
	meet(0, A);
	meet(0, B);
	/* it had nothing */
	assert_int_equal(stores.at[0].number, 0);
	batch = give(0);
	meet(0, C);
	assert_int_equal(stores.at[0].number, 1);
	assert_int_equal(stores.changes, 1);
	number_is(0, C);
	(void)give(1);
	/* it comes back: its own again, and the other one has what it was given */
	meet(0, B);
	assert_int_equal(stores.at[0].number, 0);
	assert_int_equal(journal_store_given(ring, 1), 1);
	START("one");
	number_is(0, B);
	/* nothing is left of it: whose place it was forgets it */
	journal_release(ring, batch);
	START("two");
	assert_int_equal(journal_store_of(ring, B), -ENOENT);
	assert_int_equal(journal_store_of(ring, C), 1);
}

/* Too many that were given batches. */
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
	/* one more at the address of the last */
	assert_int_equal(store_set_prove(&stores, 0, A + i), -ENOSPC);
	number_is(0, A + i - 1);
	snprintf(stores.at[0].address, sizeof(stores.at[0].address), "another");
	assert_int_equal(store_set_find(&stores), -ENOSPC);
	assert_true(steps > 100);
}

/* A ring speaks for the runs that it has, and not for another receiver's of the same receiver. */
static void
test_orphaned_journal(void **state)
{
	struct arrow_identity id = {
		.receiver_id = 7, .run = 1, .incarnation = 2, .table = "frames"};
	struct orphaned_journals left = {0};
	char message[PATH_MAX];

	journal_close(ring);
	ring = NULL;
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

/* A ring that is given to reconcile forgets all of it, and says whose directories are missing. */
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
	journal_assign(ring, doubt, 0);
	journal_give(ring, doubt);
	journal_release(ring, doubt);
	held = give(0);
	journal_assign(ring, held, 2);
	journal_close(ring);
	ring = NULL;

	assert_int_equal(orphaned_journals_add(&left, path, message), 0);
	orphaned_journals_say_others(
		&left, there, 2, on_say, (void *)(uintptr_t) "00000000000000c3");
	assert_int_equal(said, 1);
	orphaned_journals_forget(&left);
	assert_false(journal_get(left.ring[0], doubt, &b));
	assert_true(journal_get(left.ring[0], held, &b));
	assert_int_equal(b.given, 0);
	assert_true(b.held);
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
		cmocka_unit_test_setup_teardown(test_two_behind_one, begin, end),
		cmocka_unit_test_setup_teardown(test_replaced, begin, end),
		cmocka_unit_test_setup_teardown(test_full, begin, end),
		cmocka_unit_test_setup_teardown(test_orphaned_journal, begin, end),
		cmocka_unit_test_setup_teardown(test_forgets, begin, end),
	};

	if (access("/dev/shm", W_OK) < 0) {
		printf("skipped: no /dev/shm to write to\n");
		return 77;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
