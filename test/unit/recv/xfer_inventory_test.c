/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests a store whose inventory has too many batches, is unordered or never ends: the receiver
 * stores only what concerns its own batches, and waits for a limited time. Also tests what is
 * recorded before a batch is sent, which results release it, and who keeps a copy of a batch that
 * is damaged in the journal.
 */

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "egress/store_client_private.h"

#define BATCHES 8 /* held, all of table 1; every second one is assigned to this store */
#define STORE	0

#define PATIENCE_MS (4 * XFER_AUTH_MS) /* time for which a client waits for its grant */

uint64_t __wrap_xfer_qp_clock(void);

static uint64_t now; /* ms */
static char path[64];
static struct journal *ring;
static struct store_client *sender;
static struct store_set stores;
static struct {
	struct xfer_intervals m;
	struct xfer_interval at[XFER_INTERVALS_MAX];
} have;

uint64_t
__wrap_xfer_qp_clock(void)
{
	return now;
}

/* The messages that the client sends; none without a buffer. */
static bool may_send;
static struct xfer_msg last; /* head of the last one */
static unsigned int messages;

void *__wrap_xfer_qp_room(struct xfer_qp *l);
int __wrap_xfer_qp_send(struct xfer_qp *l, uint32_t size);

static uint8_t message_room[XFER_MSG_MAX];

void *
__wrap_xfer_qp_room(struct xfer_qp *l)
{
	return may_send ? message_room : NULL;
}

int
__wrap_xfer_qp_send(struct xfer_qp *l, uint32_t size)
{
	memcpy(&last, message_room, sizeof(last));
	assert_int_equal(last.length, size);
	messages++;
	return 0;
}

static int
begin(void **state)
{
	static uint8_t schema[XFER_BLOCK];
	const struct journal_config config = {.path = path, .receiver_id = 7, .bytes = 1 << 20};
	const struct journal_run run = {
		.run = 1,
		.incarnation = 2,
		.name = "run",
		.schema = {schema, schema},
		.schema_bytes = {XFER_BLOCK, XFER_BLOCK},
		.body_max = {XFER_BLOCK, XFER_BLOCK},
	};
	struct journal_batch b = {.rows = 1, .table = 1, .body_bytes = XFER_BLOCK};
	char message[PATH_MAX];
	uint32_t batch;
	uint8_t *room;

	may_send = false;
	messages = 0;
	snprintf(path, sizeof(path), "/dev/shm/xfer_inventory_test_%d", getpid());
	assert_int_equal(journal_open(&ring, &config, message), 0);
	b.run = journal_run_add(ring, &run);
	for (b.sequence = 0; b.sequence < BATCHES; b.sequence++) {
		room = journal_reserve(ring, XFER_BLOCK);
		assert_non_null(room);
		memset(room, (int)b.sequence, 2 * XFER_BLOCK);
		b.body_crc32c = arrow_crc32c(0, room + XFER_BLOCK, XFER_BLOCK);
		journal_fill(ring, &b);
		batch = journal_commit(ring, &b);
		journal_assign(ring, batch, b.sequence % 2 == 0 ? STORE : STORE + 1);
	}
	sender = calloc(1, sizeof(*sender));
	assert_non_null(sender);
	sender->config.journal = ring;
	sender->config.run = b.run;
	sender->config.stores = &stores;
	stores.at[0] = (struct xfer_store){.name = "store", .number = STORE};
	sender->state = STORE_CLIENT_WAITING;
	sender->all_lists_sent = true;
	sender->last_received_at = now = 1;
	assert_int_equal(store_client_collect(sender), 0);
	assert_int_equal(interval_set_count(&sender->held[1]), BATCHES / 2);
	return 0;
}

static int
end(void **state)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_free(&sender->reassigned[i]);
		stream_contents_free(&sender->held_contents[i]);
		interval_set_free(&sender->held[i]);
		interval_set_free(&sender->inventory[i]);
	}
	free(sender);
	journal_close(ring);
	unlink(path);
	return 0;
}

/* Receive an inventory of nb intervals of one batch each: every second number from `first` on. */
static enum xfer_reason
take(unsigned int table, uint64_t first, uint32_t nb, bool more)
{
	uint32_t i;

	xfer_msg_begin(&have, XFER_INVENTORY, sizeof(have.m) + nb * sizeof(have.at[0]), 0);
	have.m.head.flags = more ? XFER_MORE : 0;
	have.m.table = table;
	have.m.nb = nb;
	for (i = 0; i < nb; i++)
		have.at[i].first = have.at[i].last = first + 2 * i;
	return store_client_take_inventory(sender, &have.m);
}

static void
test_memory_of_many_inventories(void **state)
{
	const uint32_t nb = XFER_INTERVALS_MAX;
	unsigned int i;

	for (i = 0; i < 10000; i++) {
		assert_int_equal(take(0, 2ull * nb * i, nb, true), XFER_REASON_NONE);
		assert_int_equal(sender->inventory[0].room, 0);
	}
	for (i = 0; i < 10000; i++)
		assert_int_equal(take(1, 2ull * nb * i, nb, true), XFER_REASON_NONE);
	assert_int_equal(interval_set_count(&sender->inventory[1]), BATCHES / 2);
	assert_true(sender->inventory[1].room <= 4 * BATCHES);
	/* the time limit counts from the first message */
	assert_int_equal(sender->waiting_since, 1);
}

/* Receive a message and poll the client. @return whether the client has disconnected */
static bool
say(enum xfer_type type)
{
	sender->last_received_at = now;
	if (type == XFER_INVENTORY)
		assert_int_equal(take(0, sender->inventory_next + 1, 1, true), XFER_REASON_NONE);
	(void)store_client_poll(sender);
	return sender->state == STORE_CLIENT_DOWN;
}

/* A store may recover for any time, but its inventory must end in time. */
static void
test_no_end(void **state)
{
	uint64_t end;

	for (end = now + 10 * PATIENCE_MS; now < end; now += 1000)
		assert_false(say(XFER_STATUS));
	for (end = now + PATIENCE_MS; now <= end; now += 1000)
		assert_false(say(XFER_INVENTORY));
	assert_true(say(XFER_INVENTORY));
	assert_int_equal(sender->stats.late, 1);
	/* the incomplete inventory has no effect */
	assert_int_equal(journal_next(ring, 0), 0);
	assert_int_equal(sender->stats.found, 0);
}

static void
test_silence(void **state)
{
	now += PATIENCE_MS;
	(void)store_client_poll(sender);
	assert_int_equal(sender->state, STORE_CLIENT_WAITING);
	now++;
	(void)store_client_poll(sender);
	assert_int_equal(sender->state, STORE_CLIENT_DOWN);
	assert_int_equal(sender->stats.late, 1);
}

/*
 * While the store recovers, the client sends heartbeats: a store that has died does not acknowledge
 * them, which breaks the connection.
 */
static void
test_heartbeat(void **state)
{
	unsigned int i;

	may_send = true;
	for (i = 0; i < 10 * STORE_CLIENT_HEARTBEAT_MS; i++, now++)
		assert_false(say(XFER_STATUS));
	assert_in_range(messages, 9, 10);
	assert_int_equal(last.type, XFER_STATUS);
	/* not before REASSIGNED and HELD are complete, which have a deadline */
	sender->all_lists_sent = false;
	sender->lists_sent = 2 * XFER_TABLES - 1;
	for (i = 0, messages = 0; i < 2; i++, now += STORE_CLIENT_HEARTBEAT_MS) {
		assert_false(say(XFER_STATUS));
		assert_int_equal(last.type, i == 0 ? XFER_HELD : XFER_STATUS);
	}
}

static void
test_all_at_once(void **state)
{
	have.at[0].last = 0;
	assert_int_equal(take(1, 0, 1, true), XFER_REASON_NONE);
	have.at[0] = (struct xfer_interval){2, UINT64_MAX - 1};
	assert_int_equal(store_client_take_inventory(sender, &have.m), XFER_REASON_NONE);
	assert_int_equal(interval_set_count(&sender->inventory[1]), BATCHES / 2);
	assert_false(interval_set_has(&sender->inventory[1], 3));
	/* UINT64_MAX has no successor */
	assert_int_equal(take(1, UINT64_MAX - 1, 1, true), XFER_REASON_MALFORMED);
}

static void
test_order(void **state)
{
	assert_int_equal(take(0, 100, 1, true), XFER_REASON_NONE);
	assert_int_equal(take(0, 100, 1, true), XFER_REASON_MALFORMED);
	/* adjacent intervals must be sent as one */
	assert_int_equal(take(0, 101, 1, true), XFER_REASON_MALFORMED);
	assert_int_equal(take(0, 4, 1, true), XFER_REASON_MALFORMED);
	/* numbers of another table begin at 0 */
	assert_int_equal(take(1, 0, 1, true), XFER_REASON_NONE);
	assert_int_equal(take(0, 200, 1, true), XFER_REASON_ORDER);
	assert_int_equal(take(1, 2, 1, false), XFER_REASON_NONE);
	assert_int_equal(take(1, 4, 1, true), XFER_REASON_ORDER);
	assert_int_equal(interval_set_count(&sender->inventory[1]), 2);
}

/* ---- batches in slots, and their results ----------------------------------------------------- */

static unsigned int writes, pieces;
/* What store_client_write_body() writes; NULL: not compared. */
static uint8_t *remote;
static uint64_t remote_bytes;

int __wrap_xfer_qp_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg,
	uint16_t nb_sge, uint64_t remote_addr, uint32_t rkey, const uint32_t *imm);
uint32_t __wrap_rdma_mr_lkey(const struct rdma_mr *mr);

uint32_t
__wrap_rdma_mr_lkey(const struct rdma_mr *mr)
{
	return 0;
}

/* Before any write the journal records that the store may have the batch. */
int
__wrap_xfer_qp_write(struct xfer_qp *l, uint64_t wr_id, const struct rdma_sge *sg, uint16_t nb_sge,
	uint64_t remote_addr, uint32_t rkey, const uint32_t *imm)
{
	struct journal_batch b;
	uint64_t bytes = 0;
	uint16_t i;

	writes++;
	if (remote != NULL) {
		assert_in_range(nb_sge, 1, sender->config.max_sge);
		for (i = 0; i < nb_sge; bytes += sg[i++].length) {
			assert_true(sg[i].length > 0);
			assert_true(remote_addr + bytes + sg[i].length <= remote_bytes);
			memcpy(remote + remote_addr + bytes, (const void *)(uintptr_t)sg[i].addr,
				sg[i].length);
		}
		assert_true(bytes <= sender->config.message_max);
		pieces += nb_sge;
		return 0;
	}
	assert_true(journal_get(ring, 0, &b));
	assert_int_equal(b.given, 1u << STORE);
	return 0;
}

/* Send batch 0 of the journal into slot 1. */
static void
send_one(struct journal_batch *b)
{
	static uint8_t stage[STORE_CLIENT_WINDOW * STORE_CLIENT_STAGE];
	static struct rdma_mr *mr[1];
	static struct xfer_mr memory;
	static const uint8_t key[XFER_MAC_BYTES] = {1};
	unsigned int i;

	assert_int_equal(xfer_seal_open(&sender->link.send, key), 0);
	assert_true(journal_get(ring, 0, b));
	assert_int_equal(b->given, 0);
	journal_memory(ring, (void **)&memory.addr, &memory.length);
	memory.slice = memory.length;
	memory.nb = 1;
	memory.mr = mr;
	sender->config.memory = &memory;
	sender->config.message_max = UINT64_MAX;
	sender->config.max_sge = 2;
	sender->link.extra = stage;
	sender->state = STORE_CLIENT_UP;
	sender->nb_slots = 2;
	sender->slot = calloc(2, sizeof(*sender->slot));
	sender->slot_use = calloc(2, sizeof(*sender->slot_use));
	for (i = 0; i < XFER_TABLES; i++) {
		sender->free_slot[i] = calloc(2, sizeof(uint32_t));
		sender->stream[i].body_max = XFER_BLOCK;
		sender->stream[i].seal = &sender->link.send;
	}
	sender->slot_use[0].batch = sender->slot_use[1].batch = STORE_CLIENT_NO_BATCH;
	sender->free_slot[1][0] = 1;
	sender->nb_free[1] = 1;
	sender->nb_free_stages = 1;
	assert_int_equal(store_client_offer(sender, 0), 0);
	writes = 0;
	assert_true(store_client_send_batch(sender, 1));
}

static void
forget_places(void)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		free(sender->free_slot[i]);
		free(sender->queue[i].at);
	}
	xfer_seal_close(&sender->link.send);
	free(sender->slot);
	free(sender->slot_use);
}

static void
test_given_first(void **state)
{
	struct journal_batch b;

	send_one(&b);
	/* one write for the body, one for the entry */
	assert_int_equal(writes, 1 + (b.body_bytes > 0));
	forget_places();
}

/*
 * A body in parts is written without gaps. A WRITE gathers as many pieces as it may, and a piece
 * exceeds neither a part nor the rest of a message.
 */
static void
test_body_in_parts(void **state)
{
	static const struct {
		uint64_t message_max;
		uint16_t max_sge;
		unsigned int pieces, writes;
	} limits[] = {
		/* 500 | 200, 300 | 500 | 199, 1, 300 | 500 | 500 | 500 | 500 | 95 */
		{500, 4, 12, 9},
		/* 500 | 200, 300 | 500 | 199, 1 | 500 | 500 | 500 | 500 | 395 */
		{500, 2, 11, 9},
		{UINT64_MAX, RDMA_SGE_MAX, 4, 1},
		{UINT64_MAX, 3, 4, 2},
		{1, RDMA_SGE_MAX, 4095, 4095},
	};
	const struct xfer_slot slot = {0};
	uint8_t to[XFER_BLOCK], *from;
	struct journal_batch b;
	struct iovec part[5];
	unsigned int i;

	send_one(&b);
	from = b.metadata;
	/* in the journal, in another order than in the body; one is empty */
	part[0] = (struct iovec){from + 1000, 700};
	part[1] = (struct iovec){from, 0};
	part[2] = (struct iovec){from + 1, 999};
	part[3] = (struct iovec){from + 1700, 1};
	part[4] = (struct iovec){from + 1701, 2395};
	remote = to;
	remote_bytes = sizeof(to);
	for (i = 0; i < RTE_DIM(limits); i++) {
		sender->config.message_max = limits[i].message_max;
		sender->config.max_sge = limits[i].max_sge;
		assert_int_equal(
			store_client_count_writes(sender, part, RTE_DIM(part)), limits[i].writes);
		memset(to, 0, sizeof(to));
		writes = pieces = 0;
		assert_int_equal(store_client_write_body(sender, part, RTE_DIM(part), &slot), 0);
		assert_int_equal(writes, limits[i].writes);
		assert_int_equal(pieces, limits[i].pieces);
		assert_memory_equal(to, from + 1000, 700);
		assert_memory_equal(to + 700, from + 1, 999);
		assert_memory_equal(to + 1699, from + 1700, 2396);
	}
	remote = NULL;
	forget_places();
}

/*
 * A result must match the batch in its slot: another sequence number, table or slot releases no
 * batch.
 */
static void
test_result_of_another(void **state)
{
	struct {
		struct xfer_results m;
		struct xfer_result at;
	} m;
	struct journal_batch b;
	struct xfer_result wrong[4], right;
	unsigned int i;

	send_one(&b);
	right = (struct xfer_result){b.sequence, 1, b.table, XFER_DURABLE, 0};
	for (i = 0; i < 4; i++)
		wrong[i] = right;
	wrong[0].sequence++;
	wrong[1].table = 0;
	wrong[2].entry = 0;
	wrong[3].entry = 2;
	xfer_msg_begin(&m, XFER_RESULTS, sizeof(m), 0);
	m.m.nb = 1;
	for (i = 0; i < 4; i++) {
		m.at = wrong[i];
		assert_int_equal(store_client_take_results(sender, &m.m),
			i < 3 ? XFER_REASON_ORDER : XFER_REASON_MALFORMED);
		assert_true(journal_get(ring, 0, &b) && b.held);
		assert_int_equal(sender->stats.durable, 0);
	}
	m.at = right;
	assert_int_equal(store_client_take_results(sender, &m.m), XFER_REASON_NONE);
	assert_false(journal_get(ring, 0, &b));
	/* a second time it is refused */
	assert_int_equal(store_client_take_results(sender, &m.m), XFER_REASON_ORDER);
	forget_places();
}

/* ---- batches that are damaged in the journal ------------------------------------------------- */

/* Give batch `index` to another store, then to this one, or the other way round. */
static void
give_both(uint32_t index, bool mine)
{
	unsigned int i;

	for (i = 0; i < 2; i++) {
		journal_assign(ring, index, (i + mine) % 2 == 0 ? STORE : STORE + 1);
		journal_give(ring, index);
	}
}

/* Connect again: list the batches for REASSIGNED and HELD. */
static void
collect(void)
{
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_free(&sender->reassigned[i]);
		stream_contents_free(&sender->held_contents[i]);
		interval_set_free(&sender->held[i]);
		interval_set_free(&sender->inventory[i]);
	}
	sender->inventory_complete = false;
	sender->inventory_next = sender->inventory_table = 0;
	assert_int_equal(store_client_collect(sender), 0);
}

/* A damaged batch of another store is not reassigned: this store may have a better copy. */
static void
test_damaged_moved(void **state)
{
	struct journal_batch b;
	unsigned int i;
	uint64_t crc;

	for (i = 1; i < 6; i += 2)
		give_both(i, false);
	assert_true(journal_get(ring, 3, &b));
	b.body[10] ^= 1;
	assert_true(journal_get(ring, 5, &b));
	b.metadata[10] ^= 1;
	collect();
	assert_true(stream_contents_get(&sender->reassigned[1], 1, &crc));
	assert_false(stream_contents_get(&sender->reassigned[1], 3, &crc));
	assert_false(stream_contents_get(&sender->reassigned[1], 5, &crc));
	/* its owner may still have a sound copy, too */
	assert_false(journal_is_damaged(ring));
	assert_int_equal(take(1, 100, 1, false), XFER_REASON_NONE);
	store_client_release_found(sender);
	for (i = 1; i < 6; i += 2) {
		assert_true(journal_get(ring, i, &b));
		assert_int_equal(b.given, i == 1 ? 2 : 3);
		/* no store has proved a copy: both stores keep what they have */
		journal_release(ring, i);
		assert_false(journal_get(ring, i, &b));
	}
}

/*
 * The copy here is damaged, and a store proves that it has a sound one. The other store is told
 * that the batch was reassigned.
 */
static void
test_damaged_found(void **state)
{
	struct journal_batch b;
	unsigned int i;

	for (i = 0; i < 4; i += 2) {
		give_both(i, true);
		assert_true(journal_get(ring, i, &b));
		(i == 0 ? b.body : b.metadata)[10] ^= 1;
		/* it was about to be sent */
		journal_keep_copies(ring, i);
	}
	collect();
	assert_int_equal(take(1, 0, 2, false), XFER_REASON_NONE);
	store_client_release_found(sender);
	assert_int_equal(sender->stats.found, 2);
	for (i = 0; i < 4; i += 2) {
		assert_true(journal_get(ring, i, &b));
		assert_false(b.held);
		assert_int_equal(b.given, 3);
	}
	assert_false(journal_is_damaged(ring));
}

/* A damaged batch comes to a store that may have it: the store is asked, not written to. */
static void
test_damaged_asked(void **state)
{
	struct journal_batch b;

	give_both(1, false);
	assert_true(journal_get(ring, 1, &b));
	b.metadata[10] ^= 1;
	collect();
	sender->state = STORE_CLIENT_UP;
	sender->nb_free[1] = sender->nb_free_stages = 1;
	sender->free_slot[1] = calloc(1, sizeof(uint32_t));
	journal_assign(ring, 1, STORE);
	assert_int_equal(store_client_offer(sender, 1), 0);
	writes = 0;
	assert_false(store_client_send_batch(sender, 1));
	assert_int_equal(writes, 0);
	assert_int_equal(sender->state, STORE_CLIENT_DOWN);
	/* the next connection has it in HELD */
	collect();
	assert_true(interval_set_has(&sender->held[1], 1));
	assert_int_equal(take(1, 1, 1, false), XFER_REASON_NONE);
	store_client_release_found(sender);
	assert_true(journal_get(ring, 1, &b) && !b.held && b.given == 3);
	free(sender->queue[1].at);
}

/* A batch comes in doubt at a store that is connected. The store is told before it receives END. */
static void
test_doubt_before_end(void **state)
{
	struct journal_batch b;
	uint32_t i;

	give_both(1, false);
	assert_true(journal_get(ring, 1, &b));
	b.body[10] ^= 1;
	collect();
	sender->state = STORE_CLIENT_UP;
	sender->finish = may_send = true;
	/* its owner proves to have a sound copy */
	journal_prove(ring, 1);
	for (i = 0; i < BATCHES; i++)
		journal_release(ring, i);
	assert_true(journal_get(ring, 1, &b) && !b.held);
	store_client_send_end(sender);
	assert_int_equal(last.type, XFER_REFUSE);
	assert_int_equal(sender->state, STORE_CLIENT_DOWN);
	collect();
	assert_int_equal(sender->reassigned[1].nb, 1);
	assert_int_equal(take(1, 100, 1, false), XFER_REASON_NONE);
	store_client_release_found(sender);
	sender->state = STORE_CLIENT_UP;
	store_client_send_end(sender);
	assert_int_equal(last.type, XFER_END);
	assert_int_equal(sender->state, STORE_CLIENT_ENDING);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_memory_of_many_inventories, begin, end),
		cmocka_unit_test_setup_teardown(test_no_end, begin, end),
		cmocka_unit_test_setup_teardown(test_silence, begin, end),
		cmocka_unit_test_setup_teardown(test_heartbeat, begin, end),
		cmocka_unit_test_setup_teardown(test_all_at_once, begin, end),
		cmocka_unit_test_setup_teardown(test_order, begin, end),
		cmocka_unit_test_setup_teardown(test_given_first, begin, end),
		cmocka_unit_test_setup_teardown(test_body_in_parts, begin, end),
		cmocka_unit_test_setup_teardown(test_result_of_another, begin, end),
		cmocka_unit_test_setup_teardown(test_damaged_moved, begin, end),
		cmocka_unit_test_setup_teardown(test_damaged_found, begin, end),
		cmocka_unit_test_setup_teardown(test_damaged_asked, begin, end),
		cmocka_unit_test_setup_teardown(test_doubt_before_end, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
