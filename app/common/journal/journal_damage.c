/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Damage of a journal: corrects one wrong bit; describes damaged batches, and finds their bytes.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "arrow/tables.h"
#include "counter.h"
#include "journal/journal_private.h"

static_assert(sizeof(struct ring_batch) == JOURNAL_RECORD_BYTES, "size in journal.h");

static bool
is_damaged(const struct journal *r, uint32_t batch)
{
	return batch < r->nb_batches && r->status[batch].state != BATCH_FREE &&
		r->is[batch] >= RECORD_DAMAGED;
}

uint32_t
journal_damage_next(const struct journal *r, uint32_t batch)
{
	for (; batch < r->nb_batches; batch++) {
		if (is_damaged(r, batch))
			return batch;
	}
	return UINT32_MAX;
}

bool
journal_is_damaged(const struct journal *r)
{
	return r->nb_damaged > 0;
}

int
journal_status_open(uint64_t word, uint32_t *value)
{
	unsigned int bit;

	*value = (uint32_t)word;
	if (word == status_seal(*value))
		return 0;
	for (bit = 0; bit < 64; bit++) {
		*value = (uint32_t)(word ^ UINT64_C(1) << bit);
		if ((word ^ UINT64_C(1) << bit) == status_seal(*value))
			return 1;
	}
	return -EBADMSG;
}

int
journal_bytes_open(void *bytes, size_t size, uint32_t *crc)
{
	const uint32_t found = arrow_crc32c(0, bytes, size), wrong = *crc ^ found;
	/* what a wrong bit adds to the CRC: first the last one that the CRC takes */
	uint32_t added = 0x82f63b78; /* the polynomial, reflected */
	uint8_t *const byte = bytes;
	unsigned int bit;
	size_t i;

	if (wrong == 0)
		return 0;
	if (__builtin_popcount(wrong) == 1) {
		*crc = found;
		return 1;
	}
	for (i = size; i-- > 0;) {
		for (bit = 8; bit-- > 0;) {
			if (added == wrong) {
				byte[i] ^= 1u << bit;
				return 1;
			}
			added = added >> 1 ^ (added & 1 ? 0x82f63b78 : 0);
		}
	}
	return -EBADMSG;
}

int
journal_record_open(struct ring_batch *b)
{
	return journal_bytes_open(&b->position,
		offsetof(struct ring_batch, crc) - offsetof(struct ring_batch, position), &b->crc);
}

bool
journal_record_repair(struct journal *r, uint32_t batch)
{
	struct ring_batch *b = &r->batch[batch], record = r->known[batch];

	bool repaired = journal_references_repair(r, batch);

	record.status = batch_status_seal(r->status[batch]);
	if (memcmp(b, &record, sizeof(record)) == 0)
		return repaired;
	memcpy(&b->position, &record.position,
		sizeof(record) - offsetof(struct ring_batch, position));
	PUT(b->status, record.status);
	step(r);
	return true;
}

/* Make a held batch a damaged one. Its space stays, because none is granted from here on. */
static void
spoil(struct journal *r, uint32_t batch, enum record_is what)
{
	const unsigned int run = r->known[batch].run;

	r->is[batch] = what;
	r->nb_damaged++;
	r->references[run]--;
	r->held[run]--;
	counter_sub(&r->stats.batches, 1);
	counter_add(&r->stats.damaged, 1);
	journal_move_tail(r);
}

static bool
metadata_is_sound(const struct journal *r, const struct ring_batch *k)
{
	return k->metadata_crc32c == arrow_crc32c(0, data_at(r, k->position), XFER_BLOCK);
}

bool
journal_check(struct journal *r, uint32_t batch)
{
	enum record_is is = RECORD_SOUND;

	counter_add(&r->stats.corrected, journal_record_repair(r, batch));
	if (r->status[batch].state != BATCH_HELD)
		return true;
	if (!metadata_is_sound(r, &r->known[batch]))
		is = RECORD_METADATA_DAMAGED;
	else if (!journal_pieces_are_sound(r, batch))
		is = RECORD_PIECES_DAMAGED;
	if (is == RECORD_SOUND)
		return true;
	spoil(r, batch, is);
	return false;
}

bool
journal_is_sound(const struct journal *r, uint32_t batch)
{
	return metadata_is_sound(r, &r->known[batch]) && journal_body_is_sound(r, batch);
}

static bool
overlaps(const struct journal *r, const struct ring_batch *a)
{
	const uint64_t from = a->position % r->data_size, to = from + room_bytes(a);
	const struct taken *t;
	uint64_t at;
	uint32_t i;

	for (i = r->taken_tail; i != r->taken_head; i = (i + 1) % (r->nb_batches + 1)) {
		t = &r->taken[i];
		at = t->position % r->data_size;
		if (is_held(r, t) && at < to && from < at + room_bytes(&r->known[t->batch]))
			return true;
	}
	return false;
}

bool
journal_damage_get(const struct journal *r, uint32_t batch, struct journal_damage *to)
{
	static const char *const names[] = {
		[RECORD_DAMAGED] = "record",
		[RECORD_WHOLLY_DAMAGED] = "record",
		[RECORD_STATUS_DAMAGED] = "record",
		[RECORD_RUN_DAMAGED] = "run",
		[RECORD_METADATA_DAMAGED] = "metadata",
		[RECORD_REFERENCES_DAMAGED] = "table of references",
		[RECORD_PIECES_DAMAGED] = "table of pieces",
		[RECORD_BODY_DAMAGED] = "body",
	};
	const struct ring_batch *k;

	memset(to, 0, sizeof(*to));
	if (!is_damaged(r, batch))
		return false;
	k = &r->known[batch];
	to->what = names[r->is[batch]];
	to->held = r->status[batch].state != BATCH_IN_DOUBT;
	to->stores_known =
		r->is[batch] != RECORD_STATUS_DAMAGED && r->is[batch] != RECORD_WHOLLY_DAMAGED;
	to->record = (const uint8_t *)&r->batch[batch];
	to->known = record_is_known(r->is[batch]);
	if (to->known)
		to->batch = known_members(k);
	to->batch.owner = r->status[batch].owner;
	to->batch.given = r->status[batch].given;
	to->batch.held = to->held;
	if (!to->known)
		return true;
	if (to->held && !overlaps(r, k) && journal_pieces_are_sound(r, batch))
		journal_place(r, batch, &to->batch);
	to->run_known = journal_run_get(r, k->run, &to->run);
	return true;
}

void
journal_damage_text(const struct journal *r, uint32_t batch, char *text, size_t size)
{
	struct journal_damage d;
	const struct journal_batch *b = &d.batch;
	char run[XFER_NAME_BYTES + 40];

	text[0] = '\0';
	if (!journal_damage_get(r, batch, &d))
		return;
	if (!d.known) {
		snprintf(text, size,
			"batch in record %u: its %s is damaged; its frames are unknown", batch,
			d.what);
		return;
	}
	if (d.run_known)
		snprintf(run, sizeof(run), "run %s", d.run.name);
	else
		snprintf(run, sizeof(run), "damaged run %u", b->run);
	snprintf(text, size,
		"batch in record %u: its %s is damaged; %s, %s %" PRIu64 ", frames %" PRIu64 " to "
		"%" PRIu64,
		batch, d.what, run, arrow_table_name(b->table), b->sequence, b->first, b->last);
}

/*
 * Find the n-th free range of positions: after each held batch, up to the next entry. The space of
 * an entry that is no longer held is free.
 */
static bool
find_space(const struct journal *r, uint32_t n, uint64_t *from, uint64_t *to)
{
	const uint32_t slots = r->nb_batches + 1, tail = r->taken_tail;
	const uint32_t nb = (r->taken_head + slots - tail) % slots;
	const struct taken *t = &r->taken[(tail + n) % slots];

	if (nb == 0) {
		*from = 0;
		*to = r->data_size;
		return n == 0;
	}
	if (n >= nb)
		return false;
	*from = t->position;
	if (is_held(r, t))
		*from += room_bytes(&r->known[t->batch]);
	*to = n + 1 < nb ? r->taken[(tail + n + 1) % slots].position
			 : r->taken[tail].position + r->data_size;
	return true;
}

#define AT_SLOTS (UINT32_C(1) << 20) /* more than any free range */
static_assert(2 * (JOURNAL_BATCHES + 1) < AT_SLOTS, "ranges, then slots");

/* Whether a batch that is not damaged refers to the slot. */
static bool
slot_is_sound(const struct journal *r, uint32_t slot)
{
	const uint32_t batch = r->slot_batch[slot];

	return batch != NO_BATCH && r->is[batch] == RECORD_SOUND;
}

const uint8_t *
journal_damage_space(const struct journal *r, uint32_t *at, uint64_t *size)
{
	uint64_t from, to, edge;
	uint32_t slot;

	while (*at < AT_SLOTS && find_space(r, *at / 2, &from, &to)) {
		/* where the data begins again at its start */
		edge = (from / r->data_size + 1) * r->data_size;
		if (*at % 2 == 0)
			to = to < edge ? to : edge;
		else
			from = edge;
		(*at)++;
		if (from >= to)
			continue;
		*size = to - from;
		return r->data + from % r->data_size;
	}
	for (*at = *at < AT_SLOTS ? AT_SLOTS : *at; *at - AT_SLOTS < r->nb_slots;) {
		slot = (*at)++ - AT_SLOTS;
		if (slot_is_sound(r, slot))
			continue;
		*size = r->slot_bytes;
		return r->area + slot * r->slot_bytes;
	}
	return NULL;
}

void
journal_damage_drop(struct journal *r, uint32_t batch)
{
	if (!is_damaged(r, batch))
		return;
	journal_spill_dropped(r, batch);
	put_status(r, batch, (struct batch_status){.state = BATCH_FREE});
	journal_slots_free(r, batch);
	r->is[batch] = RECORD_SOUND;
	r->free_batch[r->nb_free++] = batch;
	r->nb_damaged--;
	journal_grant(r);
}
