/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests that a store treats two batches with the same number and different bytes as two batches: it
 * does not remove the stored one, and does not report the other one as stored. A holder of the
 * receiver's key may have stored the first one. XFER_SEED repeats a run.
 */

#include "xfer_hostile_rig.h"

#define STORED 3 /* batches of `frames` that the first peer stores */

static struct xfer_sample other; /* other batches with the same numbers */

static void
open_rig(void)
{
	rig_open_store(0);
	peers_open(rig.dev[HOSTILE_STATION], 0x0a000002, &rig.hostile_key, &rig.sample);
	peers.incarnation = 4711;
	rig.also = peers_turn;
}

static void
close_rig(void)
{
	rig.also = NULL;
	rig_close_store(0);
	UNTIL(peers_close());
}

/* The store with the same files in a new process. */
static void
restart_store(void)
{
	rig_close_store(0);
	rig_open_store(0);
}

static void
hang_up(struct peer *p)
{
	hostile_hang_up(p);
	UNTIL(hostile_connections() == UINT_MAX);
}

/* Store the first batches, and hang up. The run has not ended. */
static void
store_some(void)
{
	struct xfer_desc *entry;
	struct peer *p = peer_call(0, NULL);
	unsigned int k;

	UNTIL(p->granted);
	for (k = 0; k < STORED; k++) {
		entry = peer_entry(p, 0, k, k);
		peer_write_body(p, k, entry->descriptor.body_bytes);
		peer_write_entry(p, k, k, entry);
		/* the body is staged at the same place */
		UNTIL(p->durable == k + 1);
	}
	hang_up(p);
}

/* Connect with some batches reassigned and some held. */
static struct peer *
list(uint64_t moved, uint64_t held)
{
	struct peer *p = peer_call(1, NULL);

	p->withholds = true;
	UNTIL(p->handshake.state == XFER_AUTH_DONE);
	peer_lists(p, XFER_REASSIGNED, 0, 0, 0, moved);
	peer_lists(p, XFER_HELD, 0, 0, 0, held);
	UNTIL(p->refused != XFER_REASON_NONE || p->granted);
	return p;
}

static void
is_refused(struct peer *p, enum xfer_reason reason, uint64_t times)
{
	UNTIL(p->refused != XFER_REASON_NONE || p->granted);
	assert_false(p->granted);
	assert_int_equal(p->refused, reason);
	hang_up(p);
	assert_int_equal(hostile_counters()->refused[reason], times);
}

/* A peer that had a grant is refused. */
static void
is_refused_up(struct peer *p, enum xfer_reason reason, uint64_t times)
{
	UNTIL(p->refused != XFER_REASON_NONE);
	assert_int_equal(p->refused, reason);
	hang_up(p);
	assert_int_equal(hostile_counters()->refused[reason], times);
}

/*
 * HELD and REASSIGNED name batches that differ from the stored ones: nothing is reported or
 * truncated.
 */
static void
test_lists(void **state)
{
	unsigned int i;
	struct peer *p;

	open_rig();
	store_some();
	for (i = 0; i < 2; i++) {
		peers.sample = &other;
		is_refused(list(0, STORED), XFER_REASON_DIFFERS, 1);
		is_refused(list(1, 0), XFER_REASON_DIFFERS, 2);
		assert_int_equal(hostile_counters()->batches_truncated, 0);
		/* the same batches, from memory and, after a restart, from the disk */
		peers.sample = &rig.sample;
		p = list(0, STORED);
		assert_true(p->granted);
		hang_up(p);
		if (i == 0)
			restart_store();
	}
	/* one that the store does not have is not compared */
	peers.sample = &rig.sample;
	p = list(0, STORED + 1);
	assert_true(p->granted);
	hang_up(p);
	p = list(STORED, 0);
	assert_true(p->granted);
	assert_int_equal(hostile_counters()->batches_truncated, STORED);
	hang_up(p);
	close_rig();
}

/* A batch that differs is no duplicate, whether the stored one is durable already or not. */
static void
test_batches(void **state)
{
	struct xfer_desc *entry;
	struct peer *p;
	unsigned int i;

	open_rig();
	store_some();
	for (i = 0; i < 2; i++) {
		peers.sample = &other;
		p = peer_call(1, NULL);
		UNTIL(p->granted);
		entry = peer_entry(p, 0, 1, 0);
		peer_write_body(p, 0, entry->descriptor.body_bytes);
		peer_write_entry(p, 0, 0, entry);
		is_refused_up(p, XFER_REASON_DIFFERS, 1);
		assert_int_equal(hostile_counters()->duplicates, 0);
		assert_int_equal(hostile_counters()->durable, i == 0 ? STORED : 0);
		restart_store();
	}
	/* in flight */
	peers.sample = &rig.sample;
	p = peer_call(1, NULL);
	UNTIL(p->granted);
	entry = peer_entry(p, 0, STORED, 0);
	peer_write_body(p, 0, entry->descriptor.body_bytes);
	peer_write_entry(p, 0, 0, entry);
	UNTIL(p->link.nb_free_sends > 0 && hostile_counters()->bytes > 0);
	peers.sample = &other;
	entry = peer_entry(p, 0, STORED, 1);
	peer_write_body(p, 1, entry->descriptor.body_bytes);
	peer_write_entry(p, 1, 1, entry);
	is_refused_up(p, XFER_REASON_DIFFERS, 1);
	assert_int_equal(hostile_counters()->duplicates, 0);
	close_rig();
}

/* A run has one name. */
static void
test_name(void **state)
{
	unsigned int i;
	struct peer *p;

	open_rig();
	store_some();
	for (i = 0; i < 2; i++) {
		peers.name = "evil";
		is_refused(list(0, 0), XFER_REASON_NAME, 1);
		peers.name = "hostile";
		p = list(0, 0);
		assert_true(p->granted);
		hang_up(p);
		if (i == 0)
			restart_store();
	}
	/* another incarnation is another run */
	peers.name = "evil";
	peers.incarnation++;
	p = list(0, 0);
	assert_true(p->granted);
	hang_up(p);
	close_rig();
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_lists, rig_begin_test),
		cmocka_unit_test_setup(test_batches, rig_begin_test),
		cmocka_unit_test_setup(test_name, rig_begin_test),
	};
	int ret;

	xfer_sample_init(&other, 4711, 100);
	ret = rig_main(tests);
	xfer_sample_free(&other);
	return ret;
}
