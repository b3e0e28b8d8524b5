/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests which batches go from a store that has failed to another one. What the store clients report
 * of their stores is set by the test.
 */

#include <errno.h>

#include "egress_rig.h"
#include "egress/store_client.h"
#include "xfer/qp.h"

#define STORES	2
#define BATCHES 4
#define LONG_MS 400 /* longer than failover_ms, and than the interval of the checks */

/* What a store client reports. */
static struct store {
	struct store_client *client;
	struct journal *journal;
	bool down;
	bool takes;	       /* it is connected, and its disk is not full */
	uint64_t idle_since;   /* ms: it does not accept everything; 0: it does */
	unsigned int given;    /* batches */
	unsigned int given_up; /* connections */
} store[STORES];

static struct store *
store_of(const struct store_client *client)
{
	return client == store[0].client ? &store[0] : &store[1];
}

int __real_store_client_open(struct store_client **client, const struct store_client_config *c);
int __wrap_store_client_open(struct store_client **client, const struct store_client_config *c);
int __wrap_store_client_offer(struct store_client *client, uint32_t batch);
bool __wrap_store_client_is_down(const struct store_client *client);
bool __wrap_store_client_takes(const struct store_client *client);
uint64_t __wrap_store_client_idle_since(const struct store_client *client);
void __wrap_store_client_give_up(struct store_client *client);

int
__wrap_store_client_open(struct store_client **client, const struct store_client_config *c)
{
	const int ret = __real_store_client_open(client, c);

	store[c->at].client = *client;
	store[c->at].journal = c->journal;
	return ret;
}

int
__wrap_store_client_offer(struct store_client *client, uint32_t batch)
{
	struct store *t = store_of(client);

	if (t->takes) {
		journal_give(t->journal, batch);
		t->given++;
	}
	return 0;
}

bool
__wrap_store_client_is_down(const struct store_client *client)
{
	return store_of(client)->down;
}

bool
__wrap_store_client_takes(const struct store_client *client)
{
	return store_of(client)->takes;
}

uint64_t
__wrap_store_client_idle_since(const struct store_client *client)
{
	return store_of(client)->idle_since;
}

void
__wrap_store_client_give_up(struct store_client *client)
{
	struct store *t = store_of(client);

	t->given_up++;
	t->down = true;
	t->takes = false;
}

static unsigned int next; /* number of the next batch */

/* Open an egress with two stores that accept everything. The first one gets all batches. */
static struct egress *
begin_test(void)
{
	struct egress *e;

	alarm(PATIENCE);
	unlink(journal);
	next = 0;
	memset(store, 0, sizeof(store));
	store[0].takes = store[1].takes = true;
	e = open_egress("10.0.0.2,10.0.0.3", EGRESS_PRIMARY);
	begin_run(e);
	return e;
}

static void
put_some(struct egress *e)
{
	unsigned int k;

	for (k = 0; k < BATCHES; k++)
		put(e, next++);
}

static void
poll_long(struct egress *e)
{
	const uint64_t until = xfer_qp_clock() + LONG_MS;

	while (xfer_qp_clock() < until)
		(void)egress_poll(e);
}

/*
 * The disk of the first store is full, and the second one lacks one batch that the path to it
 * corrupts: it gets the batches of the first one, and all new ones.
 */
static void
test_to_one_with_a_corrupted_batch(void **state)
{
	struct egress *e = begin_test();

	store[1].idle_since = 1;
	put_some(e);
	poll_long(e);
	assert_int_equal(store[0].given, BATCHES);
	store[0].takes = false;
	store[0].idle_since = 1;
	poll_long(e);
	assert_int_equal(store[0].given_up, 1);
	assert_int_equal(store[1].given, BATCHES);
	/* the first one is connected again, and its disk is still full */
	store[0].down = false;
	put_some(e);
	poll_long(e);
	assert_int_equal(store[1].given, 2 * BATCHES);
	assert_int_equal(store[0].given, BATCHES);
	egress_destroy(e);
	alarm(0);
}

/*
 * A batch is damaged in the journal before it is sent: it is saved in a file and counted, and its
 * space is used again.
 */
static void
test_damaged_in_the_journal(void **state)
{
	struct egress *e = begin_test();
	struct egress_stats n;
	struct journal_batch b;
	char path[128];
	uint32_t first;
	unsigned int i;

	snprintf(path, sizeof(path), "%s/journal-%016x.quarantine", directory, 7);
	unlink(path);
	put_some(e);
	poll_long(e);
	first = journal_next(store[0].journal, 0);
	assert_true(journal_get(store[0].journal, first, &b));
	b.metadata[7] ^= 3;
	assert_false(journal_check(store[0].journal, first));
	assert_false(egress_was_damaged(e));
	poll_long(e);
	assert_false(journal_is_damaged(store[0].journal));
	assert_true(egress_was_damaged(e));
	assert_false(egress_before_was_damaged(e));
	assert_int_equal(unlink(path), 0);
	egress_stats_get(e, ARROW_IMAGES, &n);
	assert_int_equal(n.outcome.damaged, 1);
	assert_int_equal(n.outcome.damaged_rows, b.rows);
	for (i = journal_next(store[0].journal, 0); i != UINT32_MAX;
		i = journal_next(store[0].journal, i + 1))
		journal_release(store[0].journal, i);
	put_some(e);
	egress_destroy(e);
	alarm(0);
}

/* A run does not end before its damaged batches are saved. The next process saves them. */
static void
test_damage_that_is_not_saved(void **state)
{
	struct egress *e = begin_test();
	struct journal_batch b;
	struct journal_run run;
	struct egress_view view;
	uint64_t rows = 0;
	char path[128];
	FILE *f;
	uint32_t i;

	snprintf(path, sizeof(path), "%s/journal-%016x.quarantine", directory, 7);
	rmdir(directory);
	f = fopen(directory, "w");
	assert_true(f != NULL && fclose(f) == 0);
	put_some(e);
	poll_long(e);
	for (i = journal_next(store[0].journal, 0); i != UINT32_MAX;
		i = journal_next(store[0].journal, i + 1)) {
		assert_true(journal_get(store[0].journal, i, &b));
		rows += b.rows;
		b.metadata[7] ^= 3;
		assert_false(journal_check(store[0].journal, i));
	}
	/* this thread polls from here on */
	egress_rest(e);
	assert_int_equal(egress_end(e), -ETIMEDOUT);
	poll_long(e);
	assert_true(journal_run_get(store[0].journal, 0, &run));
	assert_int_equal(run.references, 0);
	egress_destroy(e);
	assert_int_equal(unlink(directory), 0);
	e = open_egress("10.0.0.2,10.0.0.3", EGRESS_PRIMARY);
	assert_true(egress_was_damaged(e) && egress_before_was_damaged(e));
	(void)egress_poll(e);
	egress_view_get(e, &view);
	assert_int_equal(view.damaged_frames, rows);
	assert_int_equal(unlink(path), 0);
	egress_destroy(e);
	alarm(0);
}

/* Corrupted batches do not go back and forth between two stores that both refuse some. */
static void
test_both_with_a_corrupted_batch(void **state)
{
	struct egress *e = begin_test();

	put_some(e);
	poll_long(e);
	store[0].idle_since = store[1].idle_since = 1;
	poll_long(e);
	assert_int_equal(store[0].given_up, 0);
	assert_int_equal(store[1].given, 0);
	/* the path to the second one is repaired */
	store[1].idle_since = 0;
	poll_long(e);
	assert_int_equal(store[0].given_up, 1);
	assert_int_equal(store[1].given, BATCHES);
	egress_destroy(e);
	alarm(0);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_to_one_with_a_corrupted_batch),
		cmocka_unit_test(test_both_with_a_corrupted_batch),
		cmocka_unit_test(test_damaged_in_the_journal),
		cmocka_unit_test(test_damage_that_is_not_saved),
	};

	return rig_main(tests);
}
