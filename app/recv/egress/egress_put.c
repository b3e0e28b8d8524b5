/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The way of a batch from the writer to the journal: output slots and rooms, the ring of filled
 * rooms, and their commit by the lcore.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "egress/egress_private.h"
#include "egress/room.h"
#include "fail_point.h"
#include "log.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

/* A filled room that the writer hands over to the lcore. */
struct filled {
	struct journal_batch batch;
	uint64_t tally[LEDGER_COLUMNS]; /* counts of its rows, and of those refused before them */
};
#define FILLED	    64 /* batches that the writer can hand over while the lcore does other work */
#define FILLED_SIZE sizeof(struct filled)
static_assert(FILLED_SIZE % sizeof(uint32_t) == 0, "element of an rte_ring");

#define RING_TIMEOUT_MS 5000
#define WAIT_US		1000 /* before another search for room */
/* Part of the journal that a room for the largest batch may take; it may not need all of it. */
#define ROOM_PART 4

int
egress_put_create(struct egress *e)
{
	e->filled = rte_ring_create_elem(
		"egress_filled", FILLED_SIZE, FILLED, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	return e->filled != NULL ? 0 : -ENOMEM;
}

void
egress_put_begin(struct egress *e, const struct egress_begin *begin)
{
	unsigned int i;

	memset(e->put, 0, sizeof(e->put));
	memset(e->tally, 0, sizeof(e->tally));
	for (i = 0; i < ARROW_TABLES; i++)
		e->body_max[i] = begin->body_max[i];
	e->modules = begin->tables->schema[ARROW_FRAMES].fields[FRAMES_MISSING].list_size;
	e->room = NULL;
}

uint8_t *
egress_area(const struct egress *e, uint64_t *slot_bytes, uint32_t *slots)
{
	return journal_area(e->journal, slot_bytes, slots);
}

uint32_t
egress_slot_take(struct egress *e)
{
	return journal_slot_take(e->journal);
}

void
egress_slot_return(struct egress *e, uint32_t slot)
{
	journal_slot_return(e->journal, slot);
}

/* Explain why no output slot of the journal is free for kept frames. */
static void
explain_slots(const struct egress *e, uint32_t n, uint32_t free, char message[PATH_MAX])
{
	const char *path = e->settings.journal;
	uint64_t slot_bytes;
	uint32_t slots;

	(void)journal_area(e->journal, &slot_bytes, &slots);
	if (slots <= n)
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s: it is an existing file "
			"with %u output slots, and [gpu] outputs = %u; to change that, remove it "
			"after this process has ended and stores have all batches, or lower "
			"[gpu] outputs",
			path, slots, n);
	else if (free < n)
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s until this process ends: "
			"batches of an earlier process have all but %u of its %u output slots, "
			"and [gpu] outputs = %u; end this process when stores have more of its "
			"batches, and start it again",
			path, free, slots, n);
	else
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s until stores have batches "
			"of an earlier process: they have %u of its %u output slots, and [gpu] "
			"outputs = %u; more [egress] journal_slots in a new file avoid that",
			path, slots - free, slots, n);
}

int
egress_slots_begin(struct egress *e, uint32_t n, uint32_t *slot, char message[PATH_MAX])
{
	uint32_t taken = 0, next;

	message[0] = '\0';
	while ((next = egress_slot_take(e)) != JOURNAL_NO_SLOT && taken < n)
		slot[taken++] = next;
	if (next != JOURNAL_NO_SLOT) {
		egress_slot_return(e, next);
		return 0;
	}
	explain_slots(e, n, taken, message);
	if (taken == n)
		return 0;
	while (taken > 0)
		egress_slot_return(e, slot[--taken]);
	return -ENOSPC;
}

uint8_t *
egress_room(struct egress *e, enum arrow_table table, uint64_t size)
{
	const uint64_t most = e->body_max[table];
	struct journal_stats stats;

	journal_stats_get(e->journal, &stats);
	if (size > most || most > stats.room / ROOM_PART)
		return NULL;
	e->room_table = table;
	e->room = room_open(e->journal, most);
	return e->room != NULL ? room_rows(e->room) : NULL;
}

/* Reserve room in the journal, and wait for it if necessary. */
static uint8_t *
wait_for_room(struct egress *e, uint64_t body)
{
	uint64_t until = xfer_qp_clock() + e->settings.hold_ms, spilled = 0, now;
	uint8_t *room;

	while ((room = journal_reserve(e->journal, body)) == NULL) {
		overload_note_room(&e->overload, false);
		now = xfer_qp_clock();
		/* spilling makes progress */
		if (spilled != overload_spilled(&e->overload)) {
			spilled = overload_spilled(&e->overload);
			until = now + e->settings.hold_ms;
		}
		if (now >= until)
			return NULL;
		egress_poll_or_sleep(e, WAIT_US);
	}
	overload_note_room(&e->overload, true);
	return room;
}

/*
 * Wait until the ring has room for another batch. It then keeps this room, because only this thread
 * enqueues. A full ring says nothing about the journal, so hold_ms does not limit this wait. The
 * limit only lets a process end whose lcore no longer polls.
 * @return false: the lcore has not taken a batch for RING_TIMEOUT_MS
 */
static bool
wait_for_ring(struct egress *e)
{
	const uint64_t until = xfer_qp_clock() + RING_TIMEOUT_MS;

	while (rte_ring_full(e->filled)) {
		if (xfer_qp_clock() >= until) {
			LOG(ERR, "the egress lcore has not polled for %u s; a batch is refused\n",
				RING_TIMEOUT_MS / 1000);
			return false;
		}
		egress_poll_or_sleep(e, WAIT_US);
	}
	return true;
}

/* Count a refused batch. The lcore logs the overload level once per occurrence. */
static void
refuse(struct egress *e, const struct batch *b)
{
	struct egress_put_stats *s = &e->put[b->table];

	counter_add(&s->refused, 1);
	counter_add(&s->refused_rows, b->rows);
	overload_note_refused(&e->overload);
}

/*
 * Fill the room, and hand it over to the lcore, after wait_for_ring().
 * @param open  the room is that of egress_room()
 */
static void
hand_over(struct egress *e, uint8_t *room, bool open, const struct batch *b)
{
	struct filled filled = {0};

	filled.batch = (struct journal_batch){
		.sequence = b->sequence,
		.rows = b->rows,
		.first = b->first,
		.last = b->last,
		.received = b->received,
		.body_bytes = b->body_length,
		.body_crc32c = b->crc32c,
		.table = b->table,
	};
	if (b->table == ARROW_FRAMES) {
		memcpy(filled.tally, e->tally, sizeof(e->tally));
		memset(e->tally, 0, sizeof(e->tally));
	}
	if (open)
		room_complete(e->journal, room, &filled.batch, b);
	else
		room_fill(e->journal, room, &filled.batch, b);
	FAIL_POINT("recv.filled");
	(void)rte_ring_sp_enqueue_elem(e->filled, &filled, FILLED_SIZE);
	if (egress_polls_itself(e))
		(void)egress_iterate(e);
}

/* A batch is not put into the journal: its output slots are free. */
static int
drop(struct egress *e, const struct batch *b, int error)
{
	for (unsigned int i = 0; i < b->nb_references; i++)
		journal_slot_return(e->journal, b->slots[i]);
	return error;
}

int
egress_put(struct egress *e, const struct batch *b)
{
	struct egress_put_stats *s = &e->put[b->table];
	uint8_t *room = e->room;
	const bool open = room != NULL;

	e->room = NULL;
	if (open && (b->table != e->room_table || b->nb_references > 0))
		abort(); /* it would overwrite the batch in the room */
	if (b->table == ARROW_FRAMES)
		ledger_tally(e->tally, b, e->modules);
	if (b->body_length > e->body_max[b->table] || b->metadata_size != XFER_BLOCK) {
		counter_add(&s->oversize, 1);
		counter_add(&s->oversize_rows, b->rows);
		LOG(ERR,
			"batch of %" PRIu64 " bytes does not fit into a slot of %" PRIu64 " "
			"bytes\n",
			b->body_length, e->body_max[b->table]);
		return drop(e, b, -E2BIG);
	}
	if (!open)
		room = wait_for_room(e, room_size(b));
	/* a room that was not used needs no return */
	if (room == NULL || !wait_for_ring(e)) {
		refuse(e, b);
		return drop(e, b, -ENOSPC);
	}
	/* Count first: at no time may more batches be durable than were put. */
	counter_add(&s->batches, 1);
	counter_add(&s->rows, b->rows);
	counter_add(&s->bytes, b->metadata_size + b->body_length);
	hand_over(e, room, open, b);
	return 0;
}

static void
commit(struct egress *e, struct filled *f)
{
	uint32_t batch;

	f->batch.run = e->current;
	if (f->batch.table == ARROW_FRAMES)
		kept_ledger_announce(&e->kept, &f->batch, f->tally);
	batch = journal_commit(e->journal, &f->batch);
	e->counted[batch] = (struct egress_batch){
		f->batch.rows, e->current, f->batch.table, rte_rdtsc(), f->batch.received};
	FAIL_POINT("recv.kept");
	/* from here on, a receiver that adopts the journal counts these rows */
	if (f->batch.table == ARROW_FRAMES)
		kept_ledger_commit(&e->kept);
	egress_assign(e, batch, f->batch.first);
}

bool
egress_put_commit(struct egress *e)
{
	/* first: all batches filled before that are in the ring */
	const uint64_t skipped = journal_skipped(e->journal);
	struct filled filled;
	bool any = false;

	while (rte_ring_sc_dequeue_elem(e->filled, &filled, FILLED_SIZE) == 0) {
		commit(e, &filled);
		any = true;
	}
	journal_skip(e->journal, skipped);
	return any;
}
