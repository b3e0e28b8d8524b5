/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests store clients of a receiver and complete stores over a network that fails. */

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "arrow/crc32c.h"
#include "io/body_check.h"
#include "io/direct_io.h"
#include "io/file_lock.h"
#include "recovery/recovery.h"
#include "../io/dir_syncs.h"
#include "xfer_store_rig.h"
#include "store_tree.h"
#include "server/identity.h"

/* Begin a run, and have store 0 store the first `nb` batches of each table. */
static void
store_first(unsigned int nb)
{
	rig_open_receiver();
	rig_open_sender(0);
	for (unsigned int k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
		rig_turn();
	}
	UNTIL(rig_held() == 0);
}

/* Without faults every batch is in the files once, in order. */
static void
test_line(void **state)
{
	struct store_stream_view view;
	const unsigned int nb = rig_fewest();
	char root[PATH_MAX];
	unsigned int k;

	rig_open_store(0);
	snprintf(root, sizeof(root), "%s/store0", rig.root);
	dir_syncs_begin(root);
	store_first(nb);
	/* batches are durable only once their directory is */
	assert_true(dir_syncs() > 0);
	for (k = 0; k < XFER_TABLES; k++) {
		assert_true(store_runs_view(&store_get_shared(rig.store[0])->runs, 0, k, &view));
		assert_int_equal(view.stats.batches, nb);
		assert_int_equal(view.receiver_id, xfer_sample_identity(k).receiver_id);
		assert_true(view.connected);
	}
	rig_end_run(0);
	UNTIL(!store_runs_view(&store_get_shared(rig.store[0])->runs, 0, 0, &view));
	if (rig_stats_of(0).connections != 1)
		rig_give_up("one connection");
	assert_int_equal(rig_stats_of(0).durable, 2 * nb);
	assert_int_equal(rig_stats_of(0).sent, 2 * nb);
	assert_int_equal(
		rig_stats_of(0).malformed + rig_stats_of(0).returned + rig_stats_of(0).refused, 0);
	assert_int_equal(rig_stats_of(0).identity, store_get_shared(rig.store[0])->node);
	assert_int_equal(store_get_shared(rig.store[0])->counters.fault[XFER_DESC_GOOD], 2 * nb);
	assert_int_equal(store_get_shared(rig.store[0])->counters.ended, 1);
	assert_int_equal(journal_run_drop(rig.journal, rig.run), 0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/* Devices whose registrations and messages are smaller than journal and batches. */
static void
test_pieces(void **state)
{
	uint64_t most = 0;
	unsigned int i, k;

	for (i = 0; i < XFER_TABLES; i++) {
		for (k = 0; k < rig.sample.nb[i]; k++)
			most = RTE_MAX(most, rig.sample.batch[i][k].batch.body_bytes);
	}
	/*
	 * room for a little more than two batches: some batches cross from one registration to the
	 * next
	 */
	rig.region = 2 * most + 3 * XFER_BLOCK;
	rig.message_max = XFER_BLOCK + 64;
	test_line(state);
}

/* ---- bodies in parts ------------------------------------------------------------------------- */

#define IN_SLOTS 64 /* parts of a body in slots; the 65th is in the room */
#define IN_PARTS 10 /* batches of a table */

/* Registrations that end within some parts, and slots for all batches. */
static void
use_slots(void)
{
	uint64_t most = 0;
	unsigned int i, k;

	for (i = 0; i < XFER_TABLES; i++) {
		for (k = 0; k < rig.sample.nb[i]; k++)
			most = RTE_MAX(most, rig.sample.batch[i][k].batch.body_bytes);
	}
	rig.region = ((most / XFER_BLOCK + 1) | 1) * XFER_BLOCK;
	rig.slots = XFER_TABLES * IN_PARTS * IN_SLOTS;
	assert_true(rig_fewest() >= IN_PARTS);
}

/* @return number of parts of a batch that span registrations */
static unsigned int
count_cut(uint32_t batch)
{
	struct journal_batch b;
	unsigned int i, nb = 0;
	struct iovec part[JOURNAL_PARTS];
	uint64_t room;

	assert_true(journal_get(rig.journal, batch, &b));
	assert_int_equal(journal_parts(&b, part), IN_SLOTS + 1);
	for (i = 0; i < IN_SLOTS; i++) {
		(void)xfer_mr_at(&rig.memory, part[i].iov_base, &room);
		nb += room < part[i].iov_len;
	}
	return nb;
}

/* Send the batches of rig_hold_parts(): the store has exactly their bytes; the slots are free. */
static void
send_parts(void)
{
	struct journal_stats stats;
	const struct store_counters *n;
	unsigned int nb = 0;
	uint32_t batch, at = 0;

	while ((batch = journal_walk(rig.journal, &at)) != UINT32_MAX)
		nb += count_cut(batch);
	assert_true(nb > 0);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.batches, XFER_TABLES * IN_PARTS);
	assert_int_equal(stats.slots_held, XFER_TABLES * IN_PARTS * IN_SLOTS);
	rig_open_store(0);
	n = &store_get_shared(rig.store[0])->counters;
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->durable, XFER_TABLES * IN_PARTS);
	assert_int_equal(n->body_crc_errors, 0);
	assert_int_equal(rig_stats_of(0).sent, XFER_TABLES * IN_PARTS);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.slots_held, 0);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(IN_PARTS);
}

static void
hold_parts(void)
{
	unsigned int i, k;

	for (k = 0; k < IN_PARTS; k++) {
		for (i = 0; i < XFER_TABLES; i++)
			journal_assign(rig.journal, rig_hold_parts(i, k, IN_SLOTS), 0);
	}
}

/* Bodies begin in slots of the journal, in parts of odd sizes: they are gathered. */
static void
test_gathered(void **state)
{
	use_slots();
	rig_open_receiver();
	hold_parts();
	send_parts();
}

/* As before, by the process that adopts the journal of a killed one. */
static void
test_gathered_after_kill(void **state)
{
	pid_t pid;
	int status;

	use_slots();
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0) {
		rig_open_journal();
		hold_parts();
		raise(SIGKILL);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	rig_adopt_journal();
	send_parts();
}

/*
 * Bodies in the maximum number of pieces, and a device that gathers few of them with a WRITE: one
 * body needs most of the queue, and more WRITEs than there can be batches in flight.
 */
static void
test_most_pieces(void **state)
{
	const struct store_counters *n;
	unsigned int i, k;

	rig.max_sge = 2;
	rig_open_receiver();
	for (k = 0; k < 2; k++) {
		for (i = 0; i < XFER_TABLES; i++)
			journal_assign(rig.journal, rig_hold_pieces(i, k), 0);
	}
	rig_open_store(0);
	n = &store_get_shared(rig.store[0])->counters;
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->durable, 2 * XFER_TABLES);
	assert_int_equal(n->body_crc_errors, 0);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(2);
}

/* Messages of a store that have no right code, as inserted ones: the receiver releases nothing. */
static void
test_inserted(void **state)
{
	static const uint8_t other[XFER_MAC_BYTES] = {7};
	const unsigned int nb = rig_fewest();
	struct store_connection *c;
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	c = store_get_shared(rig.store[0])->runs.run[0].connection;
	xfer_seal_close(&c->link.send);
	assert_int_equal(xfer_seal_open(&c->link.send, other), 0);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	UNTIL(rig_stats_of(0).state != STORE_CLIENT_UP);
	assert_int_equal(rig_stats_of(0).durable, 0);
	/* the next connection has its own keys */
	rig_end_run(0);
	assert_int_equal(rig_stats_of(0).connections, 2);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/* Frames are lost, and the store's port is unplugged repeatedly. */
static void
test_broken(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k, cuts = 0;
	uint64_t until;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	rig.lose = 10;
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
		if (k % 12 == 6) {
			UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
			for (unsigned int i = sample_random(&rig.sample.sample) % 64; i > 0; i--)
				rig_turn();
			rig.station[1].out = true;
			/*
			 * no fixed time is long enough: silence counts only while this process runs
			 */
			UNTIL(rig_stats_of(0).state != STORE_CLIENT_UP);
			until = xfer_qp_clock() + sample_random(&rig.sample.sample) % 500;
			while (xfer_qp_clock() < until)
				rig_turn();
			rig.station[1].out = false;
			cuts++;
		}
		rig_turn();
	}
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	printf("%u cuts, %lu connections, %lu sent, %lu found\n", cuts, rig_stats_of(0).connections,
		rig_stats_of(0).sent, rig_stats_of(0).found);
	assert_true(rig_stats_of(0).connections > cuts);
	assert_int_equal(
		rig_stats_of(0).durable + rig_stats_of(0).found + rig_stats_of(0).duplicates,
		2 * nb);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/*
 * An end that did not run itself, waiting for a disk or a CPU, does not take its peer for silent.
 */
static void
test_own_pause_is_not_silence(void **state)
{
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	(void)rig_keep(0, 0, 0);
	/* longer than silence_ms; meanwhile messages of the peer have arrived */
	usleep((RIG_SILENCE_MS + 300) * 1000);
	UNTIL(rig_held() == 0);
	assert_int_equal(rig_stats_of(0).connections, 1);
	assert_int_equal(rig_stats_of(0).broken, 0);
	assert_int_equal(store_get_shared(rig.store[0])->counters.broken, 0);
	rig_close_receiver();
	rig_close_store(0);
}

/*
 * A batch that is offered twice, since it belonged to another store for a while, is sent once: a
 * second copy would be read from memory that may hold another batch by then.
 */
static void
test_offered_twice(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;
	uint32_t batch;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	for (k = 0; k < nb; k++) {
		batch = rig_keep(0, k, 0);
		assert_int_equal(store_client_offer(rig.sender[0], batch), 0);
		batch = rig_keep(1, k, 0);
		journal_assign(rig.journal, batch, JOURNAL_SPILL);
		journal_assign(rig.journal, batch, 0);
		assert_int_equal(store_client_offer(rig.sender[0], batch), 0);
	}
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	assert_int_equal(rig_stats_of(0).sent, 2 * nb);
	assert_int_equal(rig_stats_of(0).connections, 1);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/* A store stops and is restarted: its batches stay assigned to it. */
static void
test_store_returns(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
		rig_turn();
		if (k == nb / 2) {
			UNTIL(rig_stats_of(0).durable > 2);
			rig_close_store(0);
			UNTIL(rig_stats_of(0).state == STORE_CLIENT_DOWN);
			rig_open_store(0);
		}
	}
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	assert_int_equal(rig_stats_of(0).connections, 2);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/*
 * The batches held are the last ones of the first table: every batch held comes after all released
 * ones.
 */
static void
last_ones_are_held(void)
{
	const unsigned int nb = rig_fewest();
	struct journal_batch b;
	uint64_t least = UINT64_MAX;
	unsigned int held = 0;
	uint32_t i;

	for (i = journal_next(rig.journal, 0); i != UINT32_MAX;
		i = journal_next(rig.journal, i + 1)) {
		RTE_VERIFY(journal_get(rig.journal, i, &b));
		held += b.held;
		if (b.held && b.sequence < least)
			least = b.sequence;
	}
	if (held > 0)
		assert_int_equal(least, rig.sample.batch[0][nb - held].batch.sequence);
}

/*
 * A receiver may be killed at any moment while it receives a store's inventory. The batches that it
 * has released by then must not lie in a file after a batch that it still holds: if that one is
 * reassigned, the store cuts it off with everything after it.
 */
static void
test_found_in_order(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < nb; k++)
		(void)rig_keep(0, k, 0);
	UNTIL(rig_held() == 0);
	rig_close_sender(0);
	/*
	 * put them again, as if no result had arrived; the journal reuses the record that was freed
	 * last first
	 */
	for (k = 0; k < nb; k++)
		(void)rig_keep(0, k, 0);
	rig.step = last_ones_are_held;
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
	rig.step = NULL;
	assert_int_equal(rig_stats_of(0).found, nb);
	rig_close_receiver();
	rig_close_store(0);
}

static void
move_all(unsigned int from, unsigned int to)
{
	struct journal_batch b;
	uint32_t i;

	for (i = journal_next(rig.journal, 0); i != UINT32_MAX;
		i = journal_next(rig.journal, i + 1)) {
		assert_true(journal_get(rig.journal, i, &b));
		if (!b.held || b.owner != from)
			continue;
		assert_true(store_client_is_down(rig.sender[from]));
		journal_assign(rig.journal, i, to);
		assert_int_equal(store_client_offer(rig.sender[to], i), 0);
	}
}

/*
 * One of two stores is disconnected for a while. Its batches are reassigned to the other one, and
 * cut off when it is connected again.
 */
static void
test_moved(void **state)
{
	const unsigned int nb = rig_fewest();
	struct journal_stats stats;
	unsigned int k, i;

	for (i = 0; i < RIG_STORES; i++)
		rig_open_store(i);
	rig_open_receiver();
	for (i = 0; i < RIG_STORES; i++)
		rig_open_sender(i);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, k % 2);
		(void)rig_keep(1, k, k % 2);
		rig_turn();
		if (k == nb / 2) {
			/* results of durable batches do not arrive */
			UNTIL(rig_stats_of(0).sent > 4);
			rig.station[1].out = true;
			for (i = 0; i < 200; i++)
				rig_turn();
			UNTIL(store_client_is_down(rig.sender[0]));
		}
	}
	move_all(0, 1);
	journal_stats_get(rig.journal, &stats);
	assert_true(stats.moved > 0);
	UNTIL(rig_held() == 0);
	journal_stats_get(rig.journal, &stats);
	assert_true(stats.in_doubt > 0);
	assert_int_equal(journal_run_drop(rig.journal, rig.run), -EBUSY);
	rig.station[1].out = false;
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.in_doubt, 0);
	for (i = 0; i < RIG_STORES; i++)
		rig_end_run(i);
	rig_close_receiver();
	for (i = 0; i < RIG_STORES; i++)
		rig_close_store(i);
	rig_each_is_there_once(nb);
}

/* A client with a wrong key is refused and counted, and sends no batch. */
static void
test_wrong_key(void **state)
{
	const struct store_counters *n;

	rig_open_store(0);
	rig_open_receiver();
	rig.key.bytes[0] ^= 1;
	rig_open_sender(0);
	(void)rig_keep(0, 0, 0);
	UNTIL(rig_stats_of(0).refused >= 2);
	n = &store_get_shared(rig.store[0])->counters;
	assert_true(n->refused[XFER_REASON_KEY] >= 2);
	assert_int_equal(n->granted, 0);
	assert_int_equal(rig_held(), 1);
	rig_close_sender(0);
	rig.key.bytes[0] ^= 1;
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->granted, 1);
	rig_close_receiver();
	rig_close_store(0);
}

/*
 * A client with a valid key announces an invalid batch: it is refused and counted each time,
 * nothing is written, and a later connection is served.
 */
static void
test_garbage(void **state)
{
	const unsigned int place = rig.sample.stream[0].template.nodes;
	const struct store_counters *n;
	uint32_t batch;

	rig_open_store(0);
	rig_open_receiver();
	/* change a part of the metadata that the descriptor does not repeat */
	rig.sample.batch[0][0].metadata[place] ^= 1;
	batch = rig_keep(0, 0, 0);
	rig.sample.batch[0][0].metadata[place] ^= 1;
	rig_open_sender(0);
	n = &store_get_shared(rig.store[0])->counters;
	UNTIL(n->refused[XFER_REASON_ENTRY] >= 2);
	assert_true(n->fault[XFER_DESC_METADATA] >= 2);
	assert_int_equal(n->fault[XFER_DESC_GOOD] + n->durable + n->bytes, 0);
	rig_close_sender(0);
	journal_release(rig.journal, batch);
	(void)rig_keep(0, 0, 0);
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->durable, 1);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	memset(rig.found, 0, sizeof(rig.found));
	rig_look_below(rig.root);
	assert_int_equal(rig.found[0][0], 1);
}

/*
 * A second process opens the same stream: the older connection is closed, and no batch is there
 * twice.
 */
static void
test_superseded(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	UNTIL(rig_stats_of(0).sent > 6);
	/* for the store this is another process that has adopted the journal */
	rig_open_sender_to(1, 0);
	UNTIL(store_get_shared(rig.store[0])->counters.superseded == 1);
	rig_close_sender(0);
	rig.sender[0] = rig.sender[1];
	rig.sender[1] = NULL;
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	assert_int_equal(store_get_shared(rig.store[0])->counters.superseded, 1);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/*
 * No store receives END while a batch of the run is held, as it may still be assigned to that
 * store.
 */
static void
test_end_waits(void **state)
{
	uint64_t until;
	uint32_t batch;

	rig_open_store(0);
	rig_open_store(1);
	rig_open_receiver();
	rig_open_sender(0);
	rig_open_sender(1);
	/* without an owner, as when a receiver was killed before it chose a store */
	batch = rig_hold(0, 0);
	(void)rig_keep(1, 0, 0);
	store_client_finish(rig.sender[0]);
	store_client_finish(rig.sender[1]);
	UNTIL(rig_held() == 1);
	for (until = xfer_qp_clock() + 300; xfer_qp_clock() < until;)
		rig_turn();
	assert_int_equal(rig_stats_of(0).state, STORE_CLIENT_UP);
	assert_int_equal(rig_stats_of(1).state, STORE_CLIENT_UP);
	journal_assign(rig.journal, batch, 1);
	assert_int_equal(store_client_offer(rig.sender[1], batch), 0);
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	rig_end_run(1);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	rig_each_is_there_once(1);
}

/*
 * Two stores exchange addresses while one may have a batch that was reassigned to the other. The
 * other one must not cut the batch off: messages go to a store's identity, not to its address.
 */
static void
test_changed_places(void **state)
{
	struct journal_stats stats;
	uint32_t batch;

	rig_open_store(0);
	rig_open_store(1);
	rig_open_receiver();
	rig_open_sender(0);
	rig_open_sender(1);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP && rig_stats_of(1).state == STORE_CLIENT_UP);
	rig.station[1].out = true;
	batch = rig_keep(0, 0, 0);
	(void)rig_keep(1, 0, 1);
	UNTIL(rig_stats_of(0).sent == 1);
	UNTIL(store_client_is_down(rig.sender[0]));
	journal_assign(rig.journal, batch, 1);
	assert_int_equal(store_client_offer(rig.sender[1], batch), 0);
	UNTIL(rig_held() == 0);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.in_doubt, 1);
	rig_close_store(0);
	rig_close_store(1);
	UNTIL(store_client_is_down(rig.sender[1]));
	rig_open_store_in(0, 1);
	rig_open_store_in(1, 0);
	rig.station[1].out = false;
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP && rig_stats_of(1).state == STORE_CLIENT_UP);
	assert_int_equal(rig.stores.at[0].number, 1);
	assert_int_equal(rig.stores.at[1].number, 0);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.in_doubt, 0);
	assert_int_equal(store_get_shared(rig.store[0])->counters.batches_truncated, 0);
	rig_end_run(0);
	rig_end_run(1);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	rig_each_is_there_once(1);
}

/*
 * The same after the run has ended at the store whose address the other one has now: the client
 * connects to it once more to send REASSIGNED.
 */
static void
test_changed_places_at_the_end(void **state)
{
	struct journal_stats stats;
	uint32_t batch;

	rig_open_store(0);
	rig_open_store(1);
	rig_open_receiver();
	rig_open_sender(0);
	rig_open_sender(1);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP && rig_stats_of(1).state == STORE_CLIENT_UP);
	rig.station[1].out = true;
	batch = rig_keep(0, 0, 0);
	(void)rig_keep(1, 0, 1);
	UNTIL(rig_stats_of(0).sent == 1);
	UNTIL(store_client_is_down(rig.sender[0]));
	journal_assign(rig.journal, batch, 1);
	assert_int_equal(store_client_offer(rig.sender[1], batch), 0);
	UNTIL(rig_held() == 0);
	rig_end_run(1);
	rig_close_store(0);
	rig_close_store(1);
	rig_open_store_in(0, 1);
	rig_open_store_in(1, 0);
	rig.station[1].out = false;
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	assert_int_equal(rig_stats_of(1).state, STORE_CLIENT_ENDED);
	assert_int_equal(rig.stores.at[1].number, 0);
	/*
	 * no effect on a client that has not ended; the other client connects, sends REASSIGNED and
	 * ends again
	 */
	store_client_again(rig.sender[0]);
	assert_int_equal(rig_stats_of(0).state, STORE_CLIENT_UP);
	store_client_again(rig.sender[1]);
	assert_int_equal(rig_stats_of(1).state, STORE_CLIENT_DOWN);
	UNTIL(rig_stats_of(1).state == STORE_CLIENT_ENDED);
	assert_int_equal(rig_stats_of(1).connections, 2);
	journal_stats_get(rig.journal, &stats);
	assert_int_equal(stats.in_doubt, 0);
	assert_int_equal(store_get_shared(rig.store[0])->counters.batches_truncated, 0);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	rig_each_is_there_once(1);
}

/*
 * Messages of an older connection arrive after the receiver has opened a newer one: the older one
 * is closed.
 */
static void
test_late_words(void **state)
{
	struct store_client *older;

	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_WAITING);
	/* this connection has not sent REASSIGNED yet, and is not polled */
	older = rig.sender[0];
	rig.sender[0] = NULL;
	rig_open_sender_to(1, 0);
	UNTIL(rig_stats_of(1).state == STORE_CLIENT_UP);
	rig.sender[0] = older;
	UNTIL(rig_stats_of(0).reason == XFER_REASON_SUPERSEDED);
	assert_int_equal(rig_stats_of(1).state, STORE_CLIENT_UP);
	assert_int_equal(rig_stats_of(1).broken, 0);
	assert_int_equal(store_get_shared(rig.store[0])->counters.superseded, 0);
	rig_close_sender(0);
	rig_end_run(1);
	rig_close_receiver();
	rig_close_store(0);
}

/* A directory was copied, so that two stores have one identity: only one of them is used. */
static void
test_duplicate_identity(void **state)
{
	char command[400];

	rig_open_store(0);
	snprintf(command, sizeof(command), "mkdir %s/store1 && cp %s/store0/.identity %s/store1",
		rig.root, rig.root, rig.root);
	assert_int_equal(system(command), 0);
	rig_open_store(1);
	store_first(1);
	rig_open_sender(1);
	UNTIL(rig.stores.at[1].refused >= 2);
	UNTIL(store_get_shared(rig.store[1])->counters.abandoned >= 2);
	assert_int_equal(rig_stats_of(1).connections, 0);
	assert_int_equal(rig_stats_of(0).connections, 1);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	rig_each_is_there_once(1);
}

/*
 * A store keeps its identity over restarts. A file that does not hold 16 hexadecimal digits is
 * refused.
 */
static void
test_identity(void **state)
{
	uint64_t identity;
	char path[200];
	FILE *f;

	rig_open_store(0);
	rig_open_store(1);
	identity = store_get_shared(rig.store[0])->node;
	assert_true(identity != 0);
	assert_true(store_get_shared(rig.store[1])->node != identity);
	rig_close_store(0);
	rig_close_store(1);
	rig_open_store(0);
	assert_int_equal(store_get_shared(rig.store[0])->node, identity);
	rig_close_store(0);
	snprintf(path, sizeof(path), "%s/store0/.identity", rig.root);
	f = fopen(path, "w");
	fprintf(f, "%016lX\n", identity | UINT64_C(0xf));
	fclose(f);
	assert_int_equal(store_identity("/nonexistent", &identity, rig.message), -ENOENT);
	snprintf(path, sizeof(path), "%s/store0", rig.root);
	assert_int_equal(store_identity(path, &identity, rig.message), -EBADMSG);
	assert_non_null(strstr(rig.message, "16 hexadecimal digits"));
}

/*
 * A killed store may still hold locks on its files: the connection is refused until their contents
 * are known.
 */
static void
test_file_is_held(void **state)
{
	const struct arrow_identity id = xfer_sample_identity(0);
	char path[PATH_MAX];
	int fd;

	rig_open_store(0);
	snprintf(path, sizeof(path), "%s/store0/sample-0123456789abcdef-%016lx", rig.root, id.run);
	assert_int_equal(mkdir(path, 0755), 0);
	snprintf(path + strlen(path), sizeof(path) - strlen(path),
		"/sample_%016lx_000001_frames.arrow.part", id.incarnation);
	fd = open(path, O_CREAT | O_RDWR, 0644);
	assert_int_equal(file_lock(fd, 0), 0);
	rig_open_receiver();
	rig_open_sender(0);
	(void)rig_keep(0, 0, 0);
	(void)rig_keep(1, 0, 0);
	UNTIL(rig_stats_of(0).reason == XFER_REASON_BUSY);
	assert_int_equal(rig_held(), 2);
	close(fd);
	UNTIL(rig_held() == 0);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(1);
}

static struct {
	unsigned int turns; /* of the lcore; atomic */
	bool waited;	    /* the lcore made no turn while a file was renamed; atomic */
} slow_disk;

static void
count_turn(void)
{
	__atomic_add_fetch(&slow_disk.turns, 1, __ATOMIC_RELAXED);
}

static int
slow_rename(const char *from, const char *to)
{
	const unsigned int begin = __atomic_load_n(&slow_disk.turns, __ATOMIC_RELAXED);
	const int64_t limit = monotonic_ms() + 5000;

	while (__atomic_load_n(&slow_disk.turns, __ATOMIC_RELAXED) < begin + 2) {
		usleep(1000);
		if (monotonic_ms() < limit)
			continue;
		__atomic_store_n(&slow_disk.waited, true, __ATOMIC_RELAXED);
		break;
	}
	return direct_io.rename(from, to);
}

/* The lcore does not wait for the disk when it completes the files of an idle run. */
static void
test_idle_on_slow_disk(void **state)
{
	const unsigned int nb = rig_fewest();
	struct arrow_io_ops io = direct_io;

	io.rename = slow_rename;
	rig.io = &io;
	rig.idle_ms = 50;
	rig.also = count_turn;
	rig_open_store(0);
	store_first(nb);
	rig_close_receiver();
	UNTIL(store_get_shared(rig.store[0])->runs.idle == 1);
	assert_false(slow_disk.waited);
	rig.also = NULL;
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

static const struct rdma_dev *removed; /* reports once that it was removed */

uint16_t __real_rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);
uint16_t __wrap_rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);

uint16_t
__wrap_rdma_poll_cm(struct rdma_dev *dev, struct rdma_event *event, uint16_t n)
{
	if (removed == NULL || dev != removed)
		return __real_rdma_poll_cm(dev, event, n);
	removed = NULL;
	event[0] = (struct rdma_event){.type = RDMA_EVENT_DEVICE_REMOVED, .status = -ENODEV};
	return 1;
}

/* A store whose device was removed says so, and can be closed. Nothing durable is lost. */
static void
test_device_removed(void **state)
{
	rig_open_store(0);
	store_first(1);
	assert_false(store_lost_device(rig.store[0]));
	removed = rig.dev[1];
	UNTIL(store_lost_device(rig.store[0]));
	rig_close_store(0);
	rig_close_receiver();
	rig_each_is_there_once(1);
}

static int64_t stuck_until; /* ms: queue pairs of the store are not flushed until then */

int __real_xfer_qp_close(struct xfer_qp *l);
int __wrap_xfer_qp_close(struct xfer_qp *l);

int
__wrap_xfer_qp_close(struct xfer_qp *l)
{
	if (l->config.dev != rig.dev[1] || stuck_until == 0)
		return __real_xfer_qp_close(l);
	if (monotonic_ms() > stuck_until)
		fail_msg("store_close() waits for a device that was removed");
	return -EBUSY;
}

/*
 * A device that was removed does not flush a queue pair: the store can be closed nevertheless, and
 * leaves the memory that the device may write to.
 */
static void
test_device_does_not_flush(void **state)
{
	struct store_connection *c;
	struct store *s;

	rig_open_store(0);
	store_first(1);
	s = rig.store[0];
	c = (struct store_connection *)(uintptr_t)store_get_connection(s, 0);
	stuck_until = monotonic_ms() + RIG_SECONDS * 1000L;
	rig_close_receiver();
	UNTIL(store_connection_waits_for_device(c));
	rig.store[0] = NULL;
	assert_int_equal(store_close(s), 0);
	assert_non_null(c->memory);
	rig_each_is_there_once(1);
	/* the process would end: release the memory, for the next test */
	stuck_until = 0;
	UNTIL(store_connection_poll(c, xfer_qp_clock()));
	free(s);
}

static bool recovery_waits;	/* atomic */
static unsigned int recoveries; /* recoveries begun; atomic */

int __real_arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg);
int __wrap_arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg);

int
__wrap_arrow_recover_dir(
	const struct arrow_io_ops *io, const char *dir, arrow_recovery_report report, void *arg)
{
	__atomic_add_fetch(&recoveries, 1, __ATOMIC_RELEASE);
	while (__atomic_load_n(&recovery_waits, __ATOMIC_ACQUIRE))
		usleep(1000);
	return __real_arrow_recover_dir(io, dir, report, arg);
}

/*
 * The store's lcore keeps polling while files are recovered for longer than silence_ms. If the
 * receiver disconnects meanwhile, its next connection gets the result.
 */
static void
test_long_recovery(void **state)
{
	const struct store_connection *c;
	const unsigned int nb = rig_fewest();
	struct store_stream_view view;
	uint64_t until;
	unsigned int k;

	recovery_waits = true;
	recoveries = 0;
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	c = store_get_connection(rig.store[0], 0);
	UNTIL(__atomic_load_n(&recoveries, __ATOMIC_ACQUIRE) == 1);
	UNTIL(c->said_state == XFER_STATE_RECOVERING);
	/* longer than silence_ms */
	until = xfer_qp_clock() + RIG_SILENCE_MS + 500;
	while (xfer_qp_clock() < until)
		rig_turn();
	assert_int_equal(rig_stats_of(0).state, STORE_CLIENT_WAITING);
	assert_false(store_runs_view(&store_get_shared(rig.store[0])->runs, 0, 0, &view));
	/*
	 * a second connection of the stream, as after a crash: the thread uses the files until it
	 * ends
	 */
	rig_open_sender_to(1, 0);
	UNTIL(store_get_shared(rig.store[0])->counters.superseded == 1);
	rig_close_sender(0);
	rig.sender[0] = rig.sender[1];
	rig.sender[1] = NULL;
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_WAITING);
	until = xfer_qp_clock() + 300;
	while (xfer_qp_clock() < until)
		rig_turn();
	assert_int_equal(c->state, STORE_CLOSING);
	assert_int_equal(__atomic_load_n(&recoveries, __ATOMIC_ACQUIRE), 1);
	__atomic_store_n(&recovery_waits, false, __ATOMIC_RELEASE);
	UNTIL(rig_held() == 0);
	assert_int_equal(recoveries, 1);
	assert_int_equal(rig_stats_of(0).connections, 1);
	assert_int_equal(rig_stats_of(0).malformed, 0);
	assert_int_equal(store_get_shared(rig.store[0])->runs.opened, 1);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/*
 * A fault of the network path, which corrupts a certain body, or of the store's memory, which
 * corrupts what is at a certain address, or cannot be read.
 */
static struct {
	const uint8_t *body;	 /* in the receiver's journal; NULL: none */
	uint64_t bytes;		 /* of the body */
	unsigned int times;	 /* the fault ends after this number of bodies */
	bool unreadable;	 /* the body is not corrupted, but cannot be read */
	unsigned int cells;	 /* faults of the memory where the first bodies arrive */
	const uint8_t *where[2]; /* the addresses of those */
} fault;

void __real_store_check_begin(struct store_check *check, struct store_check_job *one);
void __wrap_store_check_begin(struct store_check *check, struct store_check_job *one);

void
__wrap_store_check_begin(struct store_check *check, struct store_check_job *one)
{
	const bool on_path = fault.body != NULL && fault.times > 0 && one->bytes == fault.bytes &&
		memcmp(one->body, fault.body, one->bytes) == 0;
	bool wrong = on_path;
	unsigned int i;

	for (i = 0; i < fault.cells && !wrong; i++) {
		if (fault.where[i] == NULL)
			fault.where[i] = one->body;
		wrong = fault.where[i] == one->body;
	}
	fault.times -= on_path;
	if (wrong && fault.unreadable) {
		one->error = -EIO;
		one->done = true;
		return;
	}
	if (wrong)
		((uint8_t *)(uintptr_t)one->body)[17] ^= 4;
	__real_store_check_begin(check, one);
}

static uint8_t *
body_of(uint32_t batch)
{
	struct journal_batch b;

	assert_true(journal_get(rig.journal, batch, &b));
	return (uint8_t *)(uintptr_t)b.body;
}

static void
corrupt(uint32_t batch, unsigned int times)
{
	struct journal_batch b;

	assert_true(journal_get(rig.journal, batch, &b));
	fault.body = b.body;
	fault.bytes = b.body_bytes;
	fault.times = times;
}

/* Open a store and a receiver without a fault. @return the store's counters */
static const struct store_counters *
open_sound(void)
{
	memset(&fault, 0, sizeof(fault));
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	return &store_get_shared(rig.store[0])->counters;
}

/* Put all batches into the journal. @return number of batch 1 of images */
static uint32_t
keep_all(unsigned int nb)
{
	uint32_t batch = UINT32_MAX, one;
	unsigned int k;

	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		one = rig_keep(1, k, 0);
		if (k == 1)
			batch = one;
	}
	return batch;
}

static void
close_all(void)
{
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
}

/* The path corrupts a body once: the batch is given back, and no damaged copy is in a file. */
static void
test_corrupted_once(void **state)
{
	const struct store_counters *n = open_sound();
	const unsigned int nb = rig_fewest();
	struct store_client_stats s;

	corrupt(keep_all(nb), 1);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->body_crc_errors, 1);
	assert_int_equal(n->returned, 1);
	assert_int_equal(n->stored_damaged, 0);
	assert_int_equal(n->durable, 2 * nb);
	s = rig_stats_of(0);
	assert_int_equal(s.returned, 1);
	assert_int_equal(s.wrong_crc, 1);
	assert_int_equal(s.corrupted, 0);
	assert_int_equal(s.sent_damaged, 0);
	close_all();
	rig_each_is_there_once(nb);
}

/*
 * A body arrives wrong each time, in the same way, or can never be read: it is never acknowledged,
 * and the receiver keeps its sound copy. It is not sent more often than once a second. The other
 * batches are stored. When the fault ends, the batch is stored, too.
 */
static void
never_right(bool unreadable)
{
	const struct store_counters *n = open_sound();
	const uint64_t begin = xfer_qp_clock();
	const unsigned int nb = rig_fewest();
	struct journal_batch b;
	uint32_t batch;

	fault.unreadable = unreadable;
	batch = keep_all(nb);
	corrupt(batch, UINT_MAX);
	UNTIL(rig_held() == 1 && rig_stats_of(0).corrupted >= 3);
	assert_true(xfer_qp_clock() >= begin + 2 * XFER_CORRUPTED_MS);
	assert_true(n->returned >= 4);
	assert_int_equal(n->returned, unreadable ? n->bodies_unreadable : n->body_crc_errors);
	assert_int_equal(unreadable ? n->body_crc_errors : n->bodies_unreadable, 0);
	assert_int_equal(n->stored_damaged, 0);
	assert_int_equal(n->durable, 2 * nb - 1);
	assert_int_equal(rig_stats_of(0).sent_damaged, 0);
	/* it takes other batches, but not this one: it may go to another store */
	assert_true(store_client_takes(rig.sender[0]));
	assert_true(store_client_idle_since(rig.sender[0]) != 0);
	assert_true(journal_get(rig.journal, batch, &b) && b.held);
	assert_int_equal(arrow_crc32c(0, b.body, b.body_bytes), b.body_crc32c);
	fault.body = NULL;
	UNTIL(rig_held() == 0);
	assert_int_equal(store_client_idle_since(rig.sender[0]), 0);
	assert_int_equal(n->durable, 2 * nb);
	close_all();
	rig_each_is_there_once(nb);
}

static void
test_corrupted_always(void **state)
{
	never_right(false);
}

static void
test_unreadable(void **state)
{
	never_right(true);
}

/* The path corrupts a body until the connection is closed: another store gets the batch. */
static void
test_corrupted_goes_elsewhere(void **state)
{
	const unsigned int nb = rig_fewest();
	uint64_t since;
	uint32_t batch;

	(void)open_sound();
	rig_open_store(1);
	rig_open_sender(1);
	batch = keep_all(nb);
	corrupt(batch, UINT_MAX);
	UNTIL(rig_held() == 1 && rig_stats_of(0).corrupted >= 1);
	UNTIL(store_client_takes(rig.sender[1]));
	since = store_client_idle_since(rig.sender[0]);
	store_client_give_up(rig.sender[0]);
	assert_true(store_client_is_down(rig.sender[0]));
	assert_int_equal(store_client_idle_since(rig.sender[0]), since);
	fault.body = NULL; /* the path to the other store is sound */
	journal_assign(rig.journal, batch, 1);
	assert_int_equal(store_client_offer(rig.sender[1], batch), 0);
	UNTIL(rig_held() == 0);
	/* the next connection begins without any */
	UNTIL(store_client_takes(rig.sender[0]));
	assert_int_equal(store_client_idle_since(rig.sender[0]), 0);
	rig_end_run(0);
	rig_end_run(1);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	rig_each_is_there_once(nb);
}

/* A cell of the store's memory is stuck: batches that arrive there get another slot. */
static void
test_stuck_cell(void **state)
{
	const struct store_counters *n = open_sound();
	const unsigned int nb = rig_fewest();

	fault.cells = 1;
	(void)keep_all(nb);
	UNTIL(rig_held() == 0);
	assert_true(n->body_crc_errors > 0);
	assert_int_equal(n->stored_damaged, 0);
	assert_int_equal(rig_stats_of(0).corrupted, 0);
	memset(&fault, 0, sizeof(fault));
	close_all();
	rig_each_is_there_once(nb);
}

/* Two faulty slots: the batch does not alternate between them, and gets a third one. */
static void
test_stuck_cells(void **state)
{
	const struct store_counters *n = open_sound();

	fault.cells = 2;
	(void)rig_keep(1, 0, 0);
	UNTIL(rig_held() == 0);
	assert_int_equal(n->body_crc_errors, 2);
	assert_int_equal(n->stored_damaged, 0);
	(void)rig_keep(0, 0, 0);
	UNTIL(rig_held() == 0);
	close_all();
	rig_each_is_there_once(1);
}

/* The batch is sent again before the failover would move it: a third slot is sound. */
static void
test_stuck_cells_failover(void **state)
{
	uint64_t since;

	rig.failover_ms = XFER_CORRUPTED_MS / 5;
	(void)open_sound();
	rig.failover_ms = 0;
	fault.cells = 2;
	(void)rig_keep(1, 0, 0);
	UNTIL((since = store_client_idle_since(rig.sender[0])) != 0);
	UNTIL(rig_held() == 0);
	/* with time to spare for a busy machine */
	assert_true(xfer_qp_clock() < since + XFER_CORRUPTED_MS);
	assert_int_equal(rig_stats_of(0).corrupted, 1);
	(void)rig_keep(0, 0, 0);
	UNTIL(rig_held() == 0);
	close_all();
	rig_each_is_there_once(1);
}

/* A batch that arrived wrong is checked before it is sent on the next connection, too. */
static void
test_suspect_on_next_connection(void **state)
{
	const struct store_counters *n = open_sound();
	const uint32_t batch = rig_keep(1, 0, 0);

	corrupt(batch, UINT_MAX);
	UNTIL(rig_stats_of(0).corrupted == 1);
	rig.station[1].out = true;
	UNTIL(store_client_is_down(rig.sender[0]));
	rig.station[1].out = false;
	UNTIL(n->body_crc_errors == 3);
	UNTIL(rig_stats_of(0).wrong_crc == 3);
	/* all but the first one */
	assert_int_equal(rig_stats_of(0).corrupted, 2);
	fault.body = NULL;
	UNTIL(rig_held() == 0);
	(void)rig_keep(0, 0, 0);
	UNTIL(rig_held() == 0);
	close_all();
	rig_each_is_there_once(1);
}

/*
 * Count the batches in all files whose bodies do not match their CRC.
 * @param crc    out, or NULL: CRC of the body of the last one
 * @param sound  out, or NULL: number of the other batches
 */
static unsigned int
count_wrong(char *dir, uint32_t *crc, unsigned int *sound)
{
	char *const roots[] = {dir, NULL};
	struct store_tree tree = {0};
	char message[PATH_MAX];
	unsigned int nb = 0, good = 0;
	const char *problem;
	size_t i, k;

	assert_int_equal(store_tree_read(&tree, roots, message), 0);
	for (i = 0; i < tree.nb; i++) {
		struct arrow_reader r;

		assert_int_equal(arrow_reader_open(&r, tree.path[i], &problem), 0);
		for (k = 0; k < r.nb_batches; k++) {
			if (arrow_reader_crc(&r, k) == 1) {
				good++;
				continue;
			}
			nb++;
			if (crc != NULL)
				*crc = arrow_crc32c(0, r.batches[k].body, r.batches[k].body_length);
		}
		arrow_reader_close(&r);
	}
	store_tree_free(&tree);
	if (sound != NULL)
		*sound = good;
	return nb;
}

/*
 * A store has two batches, and their results are lost. Then the receiver's copy of one is damaged,
 * and both are reassigned. The first store is back before or after the second one gets them: it
 * keeps its good copy of that one, and truncates the other one.
 */
static void
moved_damaged(bool back_first)
{
	const struct store_counters *n = open_sound();
	uint32_t batch;
	unsigned int sound;

	(void)rig_keep(0, 0, 0);
	batch = rig_keep(1, 0, 0);
	UNTIL(n->fault[0] == 2);
	rig.station[1].out = true;
	UNTIL(n->durable == 2 && store_client_is_down(rig.sender[0]));
	assert_int_equal(rig_held(), 2);
	body_of(batch)[0] ^= 1;
	journal_assign(rig.journal, 0, 1);
	journal_assign(rig.journal, 1, 1);
	rig.station[1].out = !back_first;
	if (back_first)
		UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	rig_open_store(1);
	rig_open_sender(1);
	UNTIL(rig_held() == 0);
	rig.station[1].out = false;
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	rig_end_run(0);
	rig_end_run(1);
	rig_close_receiver();
	rig_close_store(0);
	rig_close_store(1);
	assert_int_equal(count_wrong(rig.root, NULL, &sound), 1);
	assert_int_equal(sound, 2);
}

static void
test_moved_damaged(void **state)
{
	moved_damaged(false);
}

static void
test_moved_damaged_back_first(void **state)
{
	moved_damaged(true);
}

/*
 * The metadata of a batch was damaged in the journal: it is not sent, and the others are. (The
 * egress then takes it out of the journal.)
 * @param connected  before the batches are put, or after
 */
static void
damaged_metadata(bool connected)
{
	const struct store_counters *n = open_sound();
	const unsigned int nb = rig_fewest();
	uint32_t batch;

	if (connected)
		UNTIL(store_client_takes(rig.sender[0]));
	batch = keep_all(nb);
	body_of(batch)[-1] ^= 1;
	UNTIL(rig_held() == 0);
	assert_true(journal_is_damaged(rig.journal));
	assert_int_equal(n->durable, 2 * nb - 1);
	assert_int_equal(rig_stats_of(0).connections, 1);
	journal_damage_drop(rig.journal, batch);
	close_all();
}

static void
test_damaged_metadata(void **state)
{
	damaged_metadata(false);
}

static void
test_damaged_metadata_while_connected(void **state)
{
	damaged_metadata(true);
}

/*
 * The receiver's own copy is damaged: the receiver says so when it sends the batch again, and the
 * store stores it as it is there, even if the path corrupts it meanwhile. No other batch is
 * affected.
 */
static void
damaged_at_the_receiver(unsigned int corrupted)
{
	const struct store_counters *n = open_sound();
	const unsigned int nb = rig_fewest();
	const uint32_t batch = keep_all(nb);
	uint32_t crc, stored;

	body_of(batch)[0] ^= 1;
	corrupt(batch, corrupted);
	crc = arrow_crc32c(0, fault.body, fault.bytes);
	UNTIL(rig_held() == 0);
	/* the first time it arrives wrong in any case */
	assert_int_equal(n->body_crc_errors, corrupted > 1 ? corrupted : 1);
	assert_int_equal(n->returned, n->body_crc_errors);
	assert_int_equal(n->stored_damaged, 1);
	assert_int_equal(n->durable, 2 * nb);
	assert_int_equal(rig_stats_of(0).sent_damaged, n->body_crc_errors);
	close_all();
	assert_int_equal(count_wrong(rig.root, &stored, NULL), 1);
	assert_int_equal(stored, crc);
}

static void
test_damaged_at_the_receiver(void **state)
{
	damaged_at_the_receiver(0);
}

static void
test_damaged_and_corrupted(void **state)
{
	damaged_at_the_receiver(2);
}

/* Flip a bit of a body in a store's file, complete or not. */
static void
rot(unsigned int table, unsigned int k)
{
	const struct xfer_batch *batch = &rig.sample.batch[table][k].batch;
	char *const roots[] = {rig.root, NULL};
	struct store_tree tree = {0};
	char message[PATH_MAX];
	const char *problem;
	unsigned int nb = 0;
	size_t i, at;
	uint8_t byte;
	int fd;

	assert_int_equal(store_tree_read(&tree, roots, message), 0);
	for (i = 0; i < tree.nb; i++) {
		struct arrow_reader r;

		assert_int_equal(arrow_reader_open(&r, tree.path[i], &problem), 0);
		for (at = 0; at < r.nb_batches; at++) {
			if (strcmp(r.batches[at].table, arrow_table_name(table)) != 0 ||
				strtoull(r.batches[at].sequence, NULL, 16) != batch->sequence)
				continue;
			byte = r.batches[at].body[5] ^ 16;
			fd = open(tree.path[i], O_WRONLY);
			assert_int_equal(pwrite(fd, &byte, 1, r.batches[at].body + 5 - r.data), 1);
			assert_int_equal(fsync(fd), 0);
			close(fd);
			nb++;
		}
		arrow_reader_close(&r);
	}
	assert_int_equal(nb, 1);
	store_tree_free(&tree);
}

/* A receiver holds all batches, and does not know that the store has them. */
static void
hold_all_again(void)
{
	unsigned int k;

	rig_open_receiver();
	for (k = 0; k < rig_fewest(); k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	rig_open_sender(0);
	UNTIL(rig_held() == 0);
}

/*
 * Some durable batches are damaged on the disk: the first, one in the middle, and the last. A
 * receiver that still holds them keeps them until there is a sound copy. No other batch is lost or
 * duplicated, also after a restart of the store.
 */
static void
rot_and_return(bool restart)
{
	const unsigned int nb = rig_fewest(), middle = nb / 2;
	struct store_stream_view view[XFER_TABLES];
	uint64_t found;
	unsigned int k;

	rig_open_store(0);
	hold_all_again();
	rig_close_receiver();
	/* without this the files are still open */
	if (restart)
		rig_close_store(0);
	rot(0, 0);
	rot(0, middle);
	rot(1, middle + 1);
	rot(1, nb - 1);
	if (restart)
		rig_open_store(0);
	hold_all_again();
	found = rig_stats_of(0).found;
	for (k = 0; k < XFER_TABLES; k++) {
		assert_true(store_runs_view(&store_get_shared(rig.store[0])->runs, 0, k, &view[k]));
		assert_int_equal(view[k].stats.checked, nb);
		assert_int_equal(view[k].stats.damaged, 2);
		assert_int_equal(view[k].stats.repaired, 2);
	}
	assert_int_equal(found, 2 * nb - 4);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
	/* the files are read again: nothing is cut off, and all batches are sound */
	rig_open_store(0);
	hold_all_again();
	assert_int_equal(rig_stats_of(0).found, 2 * nb);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

static void
test_bit_rot(void **state)
{
	rot_and_return(true);
}

static void
test_bit_rot_of_open_files(void **state)
{
	rot_and_return(false);
}

/*
 * A batch that the receiver did not list in HELD is in a file from before: it counts as a duplicate
 * only once its copy was read and is sound.
 */
static void
test_bit_rot_of_unlisted(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;

	rig_open_store(0);
	hold_all_again();
	rig_close_receiver();
	rig_close_store(0);
	rot(1, 1);
	rig_open_store(0);
	rig_open_receiver();
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).state == STORE_CLIENT_UP);
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	UNTIL(rig_held() == 0);
	assert_int_equal(rig_stats_of(0).duplicates, 0);
	assert_int_equal(rig_stats_of(0).found, 2 * nb - 1);
	rig_end_run(0);
	rig_close_receiver();
	rig_close_store(0);
	rig_each_is_there_once(nb);
}

/*
 * The files of a run that has ended are not changed: a receiver keeps a batch that is damaged
 * there.
 */
static void
test_bit_rot_of_ended_run(void **state)
{
	const unsigned int nb = rig_fewest();
	unsigned int k;

	rig_open_store(0);
	hold_all_again();
	rig_end_run(0);
	rig_close_receiver();
	rot(1, 1);
	rig_open_receiver();
	for (k = 0; k < nb; k++) {
		(void)rig_keep(0, k, 0);
		(void)rig_keep(1, k, 0);
	}
	rig_open_sender(0);
	UNTIL(rig_stats_of(0).reason == XFER_REASON_ENDED);
	assert_int_equal(rig_stats_of(0).found, 2 * nb - 1);
	assert_int_equal(rig_held(), 1);
	rig_close_receiver();
	rig_close_store(0);
	assert_int_equal(count_wrong(rig.root, NULL, NULL), 1);
}

int
main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_line, rig_begin_test),
		cmocka_unit_test_setup(test_pieces, rig_begin_test),
		cmocka_unit_test_setup(test_gathered, rig_begin_test),
		cmocka_unit_test_setup(test_gathered_after_kill, rig_begin_test),
		cmocka_unit_test_setup(test_most_pieces, rig_begin_test),
		cmocka_unit_test_setup(test_inserted, rig_begin_test),
		cmocka_unit_test_setup(test_broken, rig_begin_test),
		cmocka_unit_test_setup(test_own_pause_is_not_silence, rig_begin_test),
		cmocka_unit_test_setup(test_offered_twice, rig_begin_test),
		cmocka_unit_test_setup(test_store_returns, rig_begin_test),
		cmocka_unit_test_setup(test_found_in_order, rig_begin_test),
		cmocka_unit_test_setup(test_moved, rig_begin_test),
		cmocka_unit_test_setup(test_wrong_key, rig_begin_test),
		cmocka_unit_test_setup(test_garbage, rig_begin_test),
		cmocka_unit_test_setup(test_superseded, rig_begin_test),
		cmocka_unit_test_setup(test_end_waits, rig_begin_test),
		cmocka_unit_test_setup(test_changed_places, rig_begin_test),
		cmocka_unit_test_setup(test_changed_places_at_the_end, rig_begin_test),
		cmocka_unit_test_setup(test_late_words, rig_begin_test),
		cmocka_unit_test_setup(test_duplicate_identity, rig_begin_test),
		cmocka_unit_test_setup(test_identity, rig_begin_test),
		cmocka_unit_test_setup(test_file_is_held, rig_begin_test),
		cmocka_unit_test_setup(test_idle_on_slow_disk, rig_begin_test),
		cmocka_unit_test_setup(test_device_removed, rig_begin_test),
		cmocka_unit_test_setup(test_device_does_not_flush, rig_begin_test),
		cmocka_unit_test_setup(test_long_recovery, rig_begin_test),
		cmocka_unit_test_setup(test_corrupted_once, rig_begin_test),
		cmocka_unit_test_setup(test_corrupted_always, rig_begin_test),
		cmocka_unit_test_setup(test_unreadable, rig_begin_test),
		cmocka_unit_test_setup(test_corrupted_goes_elsewhere, rig_begin_test),
		cmocka_unit_test_setup(test_stuck_cell, rig_begin_test),
		cmocka_unit_test_setup(test_stuck_cells, rig_begin_test),
		cmocka_unit_test_setup(test_stuck_cells_failover, rig_begin_test),
		cmocka_unit_test_setup(test_suspect_on_next_connection, rig_begin_test),
		cmocka_unit_test_setup(test_moved_damaged, rig_begin_test),
		cmocka_unit_test_setup(test_moved_damaged_back_first, rig_begin_test),
		cmocka_unit_test_setup(test_damaged_metadata, rig_begin_test),
		cmocka_unit_test_setup(test_damaged_metadata_while_connected, rig_begin_test),
		cmocka_unit_test_setup(test_damaged_at_the_receiver, rig_begin_test),
		cmocka_unit_test_setup(test_damaged_and_corrupted, rig_begin_test),
		cmocka_unit_test_setup(test_bit_rot, rig_begin_test),
		cmocka_unit_test_setup(test_bit_rot_of_open_files, rig_begin_test),
		cmocka_unit_test_setup(test_bit_rot_of_unlisted, rig_begin_test),
		cmocka_unit_test_setup(test_bit_rot_of_ended_run, rig_begin_test),
	};

	return rig_main(tests);
}
