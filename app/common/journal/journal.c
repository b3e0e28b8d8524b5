/* SPDX-License-Identifier: BSD-3-Clause */

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "counter.h"
#include "fail_point.h"
#include "journal/journal_private.h"

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
	journal_slots_grant(r);
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
	counter_add(&r->stats.full, 1);
	return NULL;
}

void
journal_fill(struct journal *r, struct journal_batch *batch)
{
	batch->position = r->reserved;
	r->next = r->reserved + XFER_BLOCK + batch->body_bytes;
	r->filled++;
}

void
journal_scatter(struct journal *r, struct journal_batch *batch, const struct journal_piece *piece,
	uint32_t n)
{
	const size_t size = n * sizeof(*piece);

	memcpy(pieces_at(r, r->reserved, batch->body_bytes, n), piece, size);
	step(r);
	batch->position = r->reserved;
	batch->nb_pieces = n;
	batch->table_crc32c = arrow_crc32c(0, piece, size);
	r->next = r->reserved + 2 * XFER_BLOCK + batch->body_bytes + table_after(n);
	r->filled++;
}

static void
count_fill(struct journal *r)
{
	counter_set(&r->stats.bytes, r->head - r->tail);
}

uint32_t
journal_commit(struct journal *r, const struct journal_batch *from)
{
	const uint32_t index = r->free_batch[--r->nb_free];
	struct ring_batch *k = &r->known[index], *b = &r->batch[index];

	*k = (struct ring_batch){
		.position = from->position,
		.sequence = from->sequence,
		.rows = from->rows,
		.first = from->first,
		.last = from->last,
		.received = from->received,
		.body_bytes = from->body_bytes,
		.body_crc32c = from->body_crc32c,
		.metadata_crc32c = arrow_crc32c(0, data_at(r, from->position), XFER_BLOCK),
		.run = from->run,
		.table = from->table,
		.rest_bytes = from->nb_references > 0 ? from->rest_bytes : 0,
		.nb_references = from->nb_references,
		.table_crc = from->table_crc32c,
		.nb_pieces = from->nb_pieces,
	};
	k->crc = batch_crc(k);
	if (k->nb_references > 0)
		(void)journal_slots_hold(r, index, from->in_slot);
	r->copies_stay[index] = false;
	/* readers ignore the record until its status says that it is held */
	step(r);
	memcpy(&b->position, &k->position,
		offsetof(struct ring_batch, crc) - offsetof(struct ring_batch, position));
	step(r);
	b->crc = k->crc;
	step(r);
	put_status(r, index, (struct batch_status){.state = BATCH_HELD, .owner = JOURNAL_NOBODY});

	r->taken[r->taken_head] = (struct taken){k->position, index};
	r->taken_head = (r->taken_head + 1) % (r->nb_batches + 1);
	r->head = end_of(k);
	r->references[k->run]++;
	r->held[k->run]++;
	counter_add(&r->stats.batches, 1);
	counter_add(&r->stats.put, 1);
	count_fill(r);
	return index;
}

bool
journal_get(const struct journal *r, uint32_t index, struct journal_batch *to)
{
	const struct ring_batch *k;

	if (index >= r->nb_batches || !is_live(r, index))
		return false;
	k = &r->known[index];
	*to = known_members(k);
	to->owner = r->status[index].owner;
	to->given = r->status[index].given;
	to->copies_stay = r->copies_stay[index];
	to->held = r->status[index].state == BATCH_HELD;
	if (to->held)
		journal_place(r, index, to);
	return true;
}

void
journal_place(const struct journal *r, uint32_t index, struct journal_batch *to)
{
	const uint32_t first = r->first_slot[index];

	if (r->known[index].nb_references == 0)
		journal_place_parts(r, index, NULL, to);
	else if (first != JOURNAL_NO_SLOT)
		journal_place_parts(r, index, r->in_slot[first], to);
}

void
journal_place_parts(const struct journal *r, uint32_t index, const struct iovec *in_slot,
	struct journal_batch *to)
{
	const struct ring_batch *k = &r->known[index];

	to->metadata = data_at(r, k->position);
	to->body = to->metadata + room_head(k);
	to->in_slot = in_slot;
	to->piece =
		k->nb_pieces > 0 ? pieces_at(r, k->position, k->body_bytes, k->nb_pieces) : NULL;
	to->nb_parts = k->nb_pieces > 0
		? k->nb_pieces
		: k->nb_references + (k->nb_references == 0 || k->rest_bytes > 0);
}

/* Whether a piece is among the body's bytes in the room, of which `left` are in no piece yet. */
static bool
piece_fits(const struct journal_piece *p, uint64_t body_bytes, uint64_t left)
{
	return p->bytes <= left && p->at <= body_bytes - p->bytes;
}

uint32_t
journal_parts(const struct journal_batch *b, struct iovec part[JOURNAL_PARTS])
{
	uint64_t left = b->body_bytes;
	struct journal_piece p;
	uint32_t i;

	if (b->nb_parts == 0)
		return 0;
	for (i = 0; i < b->nb_references; i++)
		part[i] = b->in_slot[i];
	if (b->nb_pieces == 0 && i < b->nb_parts)
		part[i] = (struct iovec){
			b->body, b->nb_references > 0 ? b->rest_bytes : b->body_bytes};
	for (i = 0; i < b->nb_pieces; left -= p.bytes, i++) {
		p = b->piece[i];
		/* the table may be damaged at any time */
		if (!piece_fits(&p, b->body_bytes, left))
			p = (struct journal_piece){0};
		part[i] = (struct iovec){b->body + p.at, p.bytes};
	}
	return b->nb_parts;
}

uint32_t
journal_body_crc32c(const struct journal_batch *b)
{
	struct iovec part[JOURNAL_PARTS];
	const uint32_t n = journal_parts(b, part);
	uint32_t crc = 0, i;

	for (i = 0; i < n; i++)
		crc = arrow_crc32c(crc, part[i].iov_base, part[i].iov_len);
	return crc;
}

bool
journal_pieces_are_sound(const struct journal *r, uint32_t batch)
{
	const struct ring_batch *k = &r->known[batch];
	const struct journal_piece *piece = pieces_at(r, k->position, k->body_bytes, k->nb_pieces);
	uint64_t left = k->body_bytes;
	uint32_t i;

	if (k->nb_pieces == 0)
		return true;
	if (arrow_crc32c(0, piece, k->nb_pieces * sizeof(*piece)) != k->table_crc)
		return false;
	for (i = 0; i < k->nb_pieces && piece_fits(&piece[i], k->body_bytes, left); i++)
		left -= piece[i].bytes;
	return i == k->nb_pieces && left == 0;
}

bool
journal_body_is_sound(const struct journal *r, uint32_t batch)
{
	struct journal_batch b = known_members(&r->known[batch]);

	journal_place(r, batch, &b);
	return journal_body_crc32c(&b) == b.body_crc32c;
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
	counter_add(&r->stats.moved, s.owner < JOURNAL_STORES && (s.given & 1u << s.owner) != 0);
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
	r->copies_stay[batch] = true;
}

void
journal_prove(struct journal *r, uint32_t batch)
{
	r->copies_stay[batch] = false;
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
	if (r->copies_stay[batch])
		s.given &= ~others_given(s);
	r->held[r->known[batch].run]--;
	if (others_given(s) == 0) {
		forget(r, batch);
	} else {
		s.state = BATCH_IN_DOUBT;
		put_status(r, batch, s);
		counter_add(&r->stats.in_doubt, 1);
	}
	/* afterwards: in the file, the batch has them as long as it is held */
	journal_slots_free(r, batch);
	FAIL_POINT("journal.released");
	counter_sub(&r->stats.batches, 1);
	counter_add(&r->stats.released, 1);
	journal_move_tail(r);
}

void
journal_release_spilled(struct journal *r, uint32_t batch)
{
	const unsigned int run = r->known[batch].run;

	if (r->status[batch].state != BATCH_HELD)
		return;
	/* first: a process that adopts the journal must notice if the batch was imported */
	journal_spilling(r, run, batch);
	journal_release(r, batch);
	/* afterwards: the batch number may be reused from here on */
	journal_spilled(r, run);
}

/* Free the record of a batch if it is in doubt, and end the doubt. */
static void
settle(struct journal *r, uint32_t batch)
{
	if (r->status[batch].state != BATCH_IN_DOUBT)
		return;
	forget(r, batch);
	counter_sub(&r->stats.in_doubt, 1);
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
			!r->copies_stay[i])
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
	struct ring_ledger *from = &r->newest, *to = &r->ledger[(from->number + 1) % 2];

	from->number++;
	from->size = size;
	memcpy(from->bytes, ledger, size);
	memset(from->bytes + size, 0, sizeof(from->bytes) - size);
	from->crc = ledger_crc(from);
	/* the other copy remains valid meanwhile */
	to->number = from->number;
	step(r);
	memcpy(&to->size, &from->size, sizeof(*to) - offsetof(struct ring_ledger, size));
	step(r);
	PUT(to->crc, from->crc);
	step(r);
}

size_t
journal_ledger_get(const struct journal *r, void *ledger, size_t size)
{
	const struct ring_ledger *l = &r->newest;

	memcpy(ledger, l->bytes, l->size < size ? l->size : size);
	return l->size;
}

bool
journal_ledger_is_lost(const struct journal *r)
{
	return r->ledger_lost;
}

void
journal_stats_get(const struct journal *r, struct journal_stats *to)
{
	counters_get(to, &r->stats, sizeof(*to));
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
