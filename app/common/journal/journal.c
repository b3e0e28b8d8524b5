/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "fail_point.h"
#include "journal/journal_private.h"
#include "xfer/msg.h"

/* ---- runs ------------------------------------------------------------------------------------ */

static void
remember(struct journal *r, uint64_t incarnation)
{
	const unsigned int slot = r->nb_incarnations % JOURNAL_INCARNATIONS;
	struct ring_incarnation *to = &r->header->incarnation[slot], *i = &r->incarnation[slot];

	*i = (struct ring_incarnation){.incarnation = incarnation, .number = ++r->nb_incarnations};
	i->crc = incarnation_crc(i);
	PUT(to->incarnation, i->incarnation);
	step(r);
	PUT(to->number, i->number);
	step(r);
	PUT(to->crc, i->crc);
	step(r);
}

bool
journal_had(const struct journal *r, uint64_t incarnation)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_INCARNATIONS; i++) {
		if (r->incarnation[i].number > 0 && r->incarnation[i].incarnation == incarnation)
			return true;
	}
	/* the record of its incarnation may be damaged */
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (r->run_status[i].state == RUN_LIVE && r->run_problem[i] == NULL &&
			r->run[i].incarnation == incarnation)
			return true;
	}
	return false;
}

unsigned int
journal_lost_incarnations(const struct journal *r)
{
	return r->lost_incarnations;
}

int
journal_run_add(struct journal *r, const struct journal_run *from)
{
	struct ring_run *run;
	unsigned int i, t;

	/* the name becomes part of file names, also in a process that adopts the journal */
	if (!xfer_name_check(from->name))
		return -EINVAL;
	for (t = 0; t < XFER_TABLES; t++) {
		if (from->schema_bytes[t] > JOURNAL_SCHEMA)
			return -E2BIG;
	}
	for (i = 0; i < JOURNAL_RUNS && r->run_status[i].state != RUN_FREE; i++)
		;
	if (i == JOURNAL_RUNS)
		return -ENOSPC;
	run = &r->run[i];
	run->run = from->run;
	run->incarnation = from->incarnation;
	memcpy(run->name, from->name, sizeof(run->name));
	for (t = 0; t < XFER_TABLES; t++) {
		run->schema_bytes[t] = from->schema_bytes[t];
		run->body_max[t] = from->body_max[t];
		memcpy(run->schema[t], from->schema[t], from->schema_bytes[t]);
	}
	run->spilled = 0;
	step(r);
	remember(r, from->incarnation);
	run->crc = run_crc(run);
	step(r);
	put_run_status(r, i, (struct run_status){.state = RUN_LIVE});
	return (int)i;
}

void
journal_run_end(struct journal *r, unsigned int run, const uint64_t batches[XFER_TABLES])
{
	unsigned int t;

	for (t = 0; t < XFER_TABLES; t++)
		r->run[run].batches[t] = batches[t];
	step(r);
	put_run_status(r, run, (struct run_status){.state = RUN_LIVE, .ended = 1});
}

static void
put_spilled(struct journal *r, unsigned int run, uint64_t batches, uint64_t releasing)
{
	const uint64_t word = batches << SPILLING_BITS | releasing;

	if (r->run[run].spilled == word)
		return;
	PUT(r->run[run].spilled, word);
	step(r);
}

void
journal_run_spilled(struct journal *r, unsigned int run, uint64_t batches)
{
	put_spilled(r, run, batches, 0);
}

/* If the process died before the release, the count is one too high. */
static uint64_t
count_spilled(const struct journal *r, unsigned int run)
{
	const uint64_t word = r->run[run].spilled, releasing = word & SPILLING_MASK;

	if (releasing == 0 || releasing > r->nb_batches)
		return word >> SPILLING_BITS;
	return (word >> SPILLING_BITS) -
		(r->status[releasing - 1].state == BATCH_HELD &&
			r->known[releasing - 1].run == run);
}

int
journal_run_drop(struct journal *r, unsigned int run)
{
	if (r->references[run] > 0)
		return -EBUSY;
	put_run_status(r, run, (struct run_status){.state = RUN_FREE});
	return 0;
}

bool
journal_run_get(const struct journal *r, unsigned int index, struct journal_run *to)
{
	const struct ring_run *run;
	unsigned int t;

	if (index >= JOURNAL_RUNS || r->run_status[index].state != RUN_LIVE ||
		r->run_problem[index] != NULL)
		return false;
	run = &r->run[index];
	memset(to, 0, sizeof(*to));
	to->run = run->run;
	to->incarnation = run->incarnation;
	memcpy(to->name, run->name, sizeof(to->name));
	for (t = 0; t < XFER_TABLES; t++) {
		to->schema[t] = run->schema[t];
		to->schema_bytes[t] = run->schema_bytes[t];
		to->body_max[t] = run->body_max[t];
		to->batches[t] = r->run_status[index].ended ? run->batches[t] : 0;
	}
	to->ended = r->run_status[index].ended;
	to->spilled = count_spilled(r, index);
	to->references = r->references[index];
	to->held = r->held[index];
	return true;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Number of entries from the oldest held batch on. */
static uint32_t
nb_taken(const struct journal *r)
{
	return (r->taken_head + r->nb_batches + 1 - r->taken_tail) % (r->nb_batches + 1);
}

void
journal_grant(struct journal *r)
{
	const uint32_t entries = r->nb_batches - nb_taken(r);

	if (r->nb_damaged > 0)
		return;
	PUT(r->granted, r->tail + r->data_size);
	/* the array of a held batch also keeps the entries of all batches after it */
	PUT(r->granted_batches, r->stats.put + (r->nb_free < entries ? r->nb_free : entries));
}

uint8_t *
journal_reserve(struct journal *r, uint64_t body)
{
	const uint64_t bytes = XFER_BLOCK + body;
	uint64_t at = r->next;

	if (body > r->data_size || bytes > r->data_size)
		goto full;
	/* batches are contiguous: the remainder at the end stays unused */
	if (at % r->data_size + bytes > r->data_size)
		at = round_up(at, r->data_size);
	if (at + bytes <= GET(r->granted) && r->filled < GET(r->granted_batches)) {
		r->reserved = at;
		return data_at(r, at);
	}
	/* smaller rooms fit into an empty journal together with the remainder */
	if (bytes > r->data_size / 2) {
		r->next = at;
		PUT(r->skipped, at);
	}

full:
	COUNT(r->stats.full, 1);
	return NULL;
}

void
journal_fill(struct journal *r, struct journal_batch *batch)
{
	batch->position = r->reserved;
	r->next = r->reserved + XFER_BLOCK + batch->body_bytes;
	r->filled++;
}

static void
count_fill(struct journal *r)
{
	SET(r->stats.bytes, r->head - r->tail);
}

uint32_t
journal_commit(struct journal *r, const struct journal_batch *from)
{
	const uint32_t index = r->free_batch[--r->nb_free];
	struct known_batch *k = &r->known[index];
	struct ring_batch *b = &r->batch[index], record;

	*k = (struct known_batch){
		.position = from->position,
		.sequence = from->sequence,
		.rows = from->rows,
		.first = from->first,
		.last = from->last,
		.received = from->received,
		.body_blocks = from->body_bytes / XFER_BLOCK,
		.body_crc32c = from->body_crc32c,
		.metadata_crc32c = arrow_crc32c(0, data_at(r, from->position), XFER_BLOCK),
		.run = from->run,
		.table = from->table,
	};
	journal_record_make(k, &record);
	/* readers ignore the record until its status says that it is held */
	step(r);
	memcpy(&b->position, &record.position,
		offsetof(struct ring_batch, crc) - offsetof(struct ring_batch, position));
	step(r);
	b->crc = record.crc;
	step(r);
	put_status(r, index, (struct batch_status){.state = BATCH_HELD, .owner = JOURNAL_NOBODY});

	r->taken[r->taken_head] = (struct taken){k->position, index};
	r->taken_head = (r->taken_head + 1) % (r->nb_batches + 1);
	r->head = end_of(k);
	r->references[k->run]++;
	r->held[k->run]++;
	COUNT(r->stats.batches, 1);
	COUNT(r->stats.put, 1);
	count_fill(r);
	return index;
}

bool
journal_get(const struct journal *r, uint32_t index, struct journal_batch *to)
{
	const struct known_batch *k;

	if (index >= r->nb_batches || !is_live(r, index))
		return false;
	k = &r->known[index];
	*to = (struct journal_batch){
		.position = k->position,
		.sequence = k->sequence,
		.rows = k->rows,
		.first = k->first,
		.last = k->last,
		.received = k->received,
		.body_bytes = body_bytes(k),
		.body_crc32c = k->body_crc32c,
		.metadata_crc32c = k->metadata_crc32c,
		.run = k->run,
		.table = k->table,
		.owner = r->status[index].owner,
		.given = r->status[index].given,
		.copies_stay = k->copies_stay,
		.held = r->status[index].state == BATCH_HELD,
	};
	if (to->held) {
		to->metadata = data_at(r, k->position);
		to->body = to->metadata + XFER_BLOCK;
	}
	return true;
}

uint32_t
journal_next(const struct journal *r, uint32_t batch)
{
	for (; batch < r->nb_batches; batch++) {
		if (is_live(r, batch))
			return batch;
	}
	return UINT32_MAX;
}

uint32_t
journal_walk(const struct journal *r, uint32_t *at)
{
	const struct taken *t;
	/* an absolute index: the tail advances as batches are released */
	uint32_t i = *at == 0 ? r->taken_tail : *at - 1;

	while (i != r->taken_head) {
		t = &r->taken[i];
		i = (i + 1) % (r->nb_batches + 1);
		*at = i + 1;
		if (is_held(r, t))
			return t->batch;
	}
	return UINT32_MAX;
}

void
journal_assign(struct journal *r, uint32_t batch, unsigned int store)
{
	struct batch_status s = r->status[batch];

	if (s.owner == store)
		return;
	COUNT(r->stats.moved, s.owner < JOURNAL_STORES && (s.given & 1u << s.owner) != 0);
	s.owner = store;
	put_status(r, batch, s);
	FAIL_POINT("journal.assigned");
}

void
journal_give(struct journal *r, uint32_t batch)
{
	struct batch_status s = r->status[batch];

	if ((s.given & 1u << s.owner) != 0)
		return;
	s.given |= 1u << s.owner;
	put_status(r, batch, s);
	FAIL_POINT("journal.given");
}

void
journal_keep_copies(struct journal *r, uint32_t batch)
{
	r->known[batch].copies_stay = true;
}

void
journal_prove(struct journal *r, uint32_t batch)
{
	r->known[batch].copies_stay = false;
}

/* Free the record of a batch. */
static void
forget(struct journal *r, uint32_t batch)
{
	put_status(r, batch, (struct batch_status){.state = BATCH_FREE});
	r->references[r->known[batch].run]--;
	r->free_batch[r->nb_free++] = batch;
	journal_grant(r);
}

void
journal_move_tail(struct journal *r)
{
	while (r->taken_tail != r->taken_head && !is_held(r, &r->taken[r->taken_tail]))
		r->taken_tail = (r->taken_tail + 1) % (r->nb_batches + 1);
	r->tail = r->taken_tail != r->taken_head ? r->taken[r->taken_tail].position : r->head;
	count_fill(r);
	journal_grant(r);
}

uint64_t
journal_skipped(const struct journal *r)
{
	return GET(r->skipped);
}

void
journal_skip(struct journal *r, uint64_t position)
{
	if (r->taken_tail != r->taken_head || position <= r->head)
		return;
	r->head = position;
	journal_move_tail(r);
}

void
journal_release(struct journal *r, uint32_t batch)
{
	struct batch_status s = r->status[batch];

	if (s.state != BATCH_HELD)
		return;
	FAIL_POINT("journal.release");
	if (r->known[batch].copies_stay)
		s.given &= ~others_given(s);
	r->held[r->known[batch].run]--;
	if (others_given(s) == 0) {
		forget(r, batch);
	} else {
		s.state = BATCH_IN_DOUBT;
		put_status(r, batch, s);
		COUNT(r->stats.in_doubt, 1);
	}
	FAIL_POINT("journal.released");
	SET(r->stats.batches, r->stats.batches - 1);
	COUNT(r->stats.released, 1);
	journal_move_tail(r);
}

void
journal_release_spilled(struct journal *r, uint32_t batch)
{
	const unsigned int run = r->known[batch].run;
	const uint64_t batches = count_spilled(r, run) + 1;

	if (r->status[batch].state != BATCH_HELD)
		return;
	/* first: a process that adopts the journal must notice if the batch was imported */
	put_spilled(r, run, batches, batch + 1);
	journal_release(r, batch);
	/* afterwards: the batch number may be reused from here on */
	put_spilled(r, run, batches, 0);
}

/* Free the record of a batch if it is in doubt; it is not any more. */
static void
settle(struct journal *r, uint32_t batch)
{
	if (r->status[batch].state != BATCH_IN_DOUBT)
		return;
	forget(r, batch);
	SET(r->stats.in_doubt, r->stats.in_doubt - 1);
}

/* Clear stores from the bitmap. None of them is the owner. */
static void
clear_given(struct journal *r, uint32_t batch, uint16_t stores)
{
	struct batch_status s = r->status[batch];

	if ((s.given & stores) == 0)
		return;
	s.given &= ~stores;
	put_status(r, batch, s);
	FAIL_POINT("journal.confirmed");
	if (others_given(s) == 0)
		settle(r, batch);
}

void
journal_confirm(struct journal *r, unsigned int run, unsigned int store)
{
	uint32_t i;

	for (i = 0; i < r->nb_batches; i++) {
		/* the store was not notified of the batches that it owns, or that it may keep */
		if (is_live(r, i) && r->known[i].run == run && r->status[i].owner != store &&
			!r->known[i].copies_stay)
			clear_given(r, i, 1u << store);
	}
}

void
journal_forget_doubts(struct journal *r, unsigned int run)
{
	uint32_t i;

	for (i = 0; i < r->nb_batches; i++) {
		if (is_live(r, i) && r->known[i].run == run)
			clear_given(r, i, others_given(r->status[i]));
	}
}

/* ---- the rest -------------------------------------------------------------------------------- */

void
journal_ledger_put(struct journal *r, const void *ledger, size_t size)
{
	struct ring_ledger *l = &r->ledger[(r->ledger_number + 1) % 2];

	/* the other copy remains valid meanwhile */
	l->number = ++r->ledger_number;
	step(r);
	l->size = size;
	memcpy(l->bytes, ledger, size);
	step(r);
	PUT(l->crc, ledger_crc(l));
	step(r);
}

size_t
journal_ledger_get(const struct journal *r, void *ledger, size_t size)
{
	const struct ring_ledger *best = NULL;
	unsigned int i;

	for (i = 0; i < 2; i++) {
		if (ledger_is_sound(&r->ledger[i]) &&
			(best == NULL || r->ledger[i].number > best->number))
			best = &r->ledger[i];
	}
	if (best == NULL)
		return 0;
	memcpy(ledger, best->bytes, best->size < size ? best->size : size);
	return best->size;
}

void
journal_stats_get(const struct journal *r, struct journal_stats *to)
{
#define STAT(member) __atomic_load(&r->stats.member, &to->member, __ATOMIC_RELAXED)
	STAT(batches);
	STAT(bytes);
	STAT(room);
	STAT(in_doubt);
	STAT(put);
	STAT(released);
	STAT(moved);
	STAT(adopted);
	STAT(damaged);
	STAT(corrected);
	STAT(full);
#undef STAT
}

/* Rounded up, so that a journal of the printed size is large enough. */
static uint64_t
mebibytes(uint64_t bytes)
{
	return (bytes + (1 << 20) - 1) >> 20;
}

uint64_t
journal_need(const struct journal_need *n, char *text, size_t size)
{
	const uint64_t ms = (uint64_t)n->commit_ms + n->round_ms + n->detection_ms + n->hold_ms;
	/*
	 * two more batches: one is being written, and the end of the data may be too short for
	 * another
	 */
	const uint64_t bytes = n->rate / 1000 * ms + 2 * (n->body_max + XFER_BLOCK);

	/* in the units of the settings */
	snprintf(text, size,
		"%" PRIu64 " MiB: %" PRIu64 " MB/s x (%u ms commit + %u ms round trip + %u ms "
		"detection + %u ms hold) + 2 x %" PRIu64 " MiB",
		mebibytes(bytes), n->rate / 1000000, n->commit_ms, n->round_ms, n->detection_ms,
		n->hold_ms, mebibytes(n->body_max));
	return bytes;
}
