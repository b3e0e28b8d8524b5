/* SPDX-License-Identifier: BSD-3-Clause */
/* The area of a journal: the slots, and the references of batches to them. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "counter.h"
#include "journal/journal_private.h"

/* ---- slots ----------------------------------------------------------------------------------- */

uint8_t *
journal_area(const struct journal *r, uint64_t *slot_bytes, uint32_t *slots)
{
	*slot_bytes = r->slot_bytes;
	*slots = r->nb_slots;
	return r->area;
}

int
journal_area_create(struct journal *r)
{
	const size_t n = r->nb_slots;

	r->first_slot = malloc(r->nb_batches * sizeof(*r->first_slot));
	if (r->first_slot == NULL)
		return -ENOMEM;
	memset(r->first_slot, 0xff, r->nb_batches * sizeof(*r->first_slot));
	if (n == 0)
		return 0;
	r->in_slot = malloc(n * sizeof(*r->in_slot));
	r->slot_batch = malloc(n * sizeof(*r->slot_batch));
	r->freed = malloc(n * sizeof(*r->freed));
	r->slot_ring = malloc(n * sizeof(*r->slot_ring));
	r->own_slot = malloc(n * sizeof(*r->own_slot));
	if (r->in_slot == NULL || r->slot_batch == NULL || r->freed == NULL ||
		r->slot_ring == NULL || r->own_slot == NULL)
		return -ENOMEM;
	/* also the first touch of each page, which would stall a polling lcore */
	memset(r->in_slot, 0, n * sizeof(*r->in_slot));
	memset(r->slot_batch, 0xff, n * sizeof(*r->slot_batch));
	memset(r->freed, 0, n * sizeof(*r->freed));
	memset(r->slot_ring, 0, n * sizeof(*r->slot_ring));
	memset(r->own_slot, 0, n * sizeof(*r->own_slot));
	return 0;
}

void
journal_area_destroy(struct journal *r)
{
	free(r->first_slot);
	free(r->in_slot);
	free(r->slot_batch);
	free(r->freed);
	free(r->slot_ring);
	free(r->own_slot);
}

uint32_t
journal_slot_take(struct journal *r)
{
	/* the one that was used last, because its bytes may still be in a cache */
	if (r->nb_own_slots > 0)
		return r->own_slot[--r->nb_own_slots];
	if (r->slots_taken == GET(r->slots_granted))
		return JOURNAL_NO_SLOT;
	return r->slot_ring[r->slots_taken++ % r->nb_slots];
}

void
journal_slot_return(struct journal *r, uint32_t slot)
{
	r->own_slot[r->nb_own_slots++] = slot;
}

void
journal_slots_grant(struct journal *r)
{
	uint64_t granted = r->slots_granted;

	if (r->nb_freed == 0)
		return;
	while (r->nb_freed > 0)
		r->slot_ring[granted++ % r->nb_slots] = r->freed[--r->nb_freed];
	PUT(r->slots_granted, granted);
}

void
journal_slots_find(struct journal *r)
{
	uint32_t i;

	/* in descending order, so that low numbers are taken first */
	for (i = r->nb_slots; i-- > 0;) {
		if (r->slot_batch[i] == NO_BATCH)
			r->freed[r->nb_freed++] = i;
	}
	r->stats.slots = r->nb_slots;
}

/* ---- references ------------------------------------------------------------------------------ */

static uint32_t
slot_of(const struct journal *r, const struct iovec *part)
{
	return ((uint8_t *)part->iov_base - r->area) / r->slot_bytes;
}

static struct journal_reference
reference_to(const struct journal *r, const struct iovec *part)
{
	const uint32_t slot = slot_of(r, part);

	return (struct journal_reference){.slot = slot,
		.offset = (uint8_t *)part->iov_base - (r->area + slot * r->slot_bytes),
		.bytes = part->iov_len};
}

void
journal_refer(struct journal *r, struct journal_batch *batch,
	const struct journal_reference *reference, uint32_t n)
{
	struct journal_reference *table = references_at(r, r->reserved);
	struct iovec *part = r->in_slot[reference[0].slot];
	uint32_t i, crc = 0;

	for (i = 0; i < n; i++) {
		part[i] = (struct iovec){
			r->area + reference[i].slot * r->slot_bytes + reference[i].offset,
			reference[i].bytes};
		table[i] = reference_to(r, &part[i]);
		crc = arrow_crc32c(crc, &table[i], sizeof(table[i]));
	}
	step(r);
	batch->position = r->reserved;
	batch->nb_references = n;
	batch->table_crc32c = crc;
	batch->in_slot = part;
	r->next = r->reserved + 2 * XFER_BLOCK + round_up(batch->rest_bytes, XFER_BLOCK);
	r->filled++;
}

bool
journal_references_repair(struct journal *r, uint32_t batch)
{
	const struct ring_batch *k = &r->known[batch];
	const uint32_t first = r->first_slot[batch];
	struct journal_reference table[JOURNAL_REFERENCES], *to;
	uint32_t i;

	if (first == JOURNAL_NO_SLOT)
		return false;
	to = references_at(r, k->position);
	for (i = 0; i < k->nb_references; i++)
		table[i] = reference_to(r, &r->in_slot[first][i]);
	if (memcmp(to, table, i * sizeof(table[0])) == 0)
		return false;
	memcpy(to, table, i * sizeof(table[0]));
	step(r);
	return true;
}

/* Whether a part is in the same slot as one before it. */
static bool
is_repeated(const struct journal *r, const struct iovec *part, uint32_t i)
{
	uint32_t k;

	for (k = 0; k < i && slot_of(r, &part[k]) != slot_of(r, &part[i]); k++)
		;
	return k < i;
}

int
journal_references_open(
	const struct journal *r, uint32_t batch, struct iovec part[JOURNAL_REFERENCES])
{
	const struct ring_batch *k = &r->known[batch];
	struct journal_reference table[JOURNAL_REFERENCES];
	const struct journal_reference *f;
	uint64_t left = k->body_bytes - k->rest_bytes;
	uint32_t i, crc = k->table_crc;
	int wrong;

	memcpy(table, references_at(r, k->position), k->nb_references * sizeof(table[0]));
	wrong = journal_bytes_open(table, k->nb_references * sizeof(table[0]), &crc);
	/* the checksum itself is part of the record, and right */
	if (wrong < 0 || crc != k->table_crc)
		return -EBADMSG;
	for (i = 0; i < k->nb_references; i++) {
		f = &table[i];
		if (f->slot >= r->nb_slots || f->reserved != 0 || f->bytes == 0 ||
			f->bytes > left || f->offset > r->slot_bytes ||
			f->bytes > r->slot_bytes - f->offset)
			return -EBADMSG;
		left -= f->bytes;
		part[i] = (struct iovec){r->area + f->slot * r->slot_bytes + f->offset, f->bytes};
		if (is_repeated(r, part, i))
			return -EBADMSG;
	}
	return left == 0 ? wrong : -EBADMSG;
}

bool
journal_slots_hold(struct journal *r, uint32_t batch, const struct iovec *part)
{
	const uint32_t n = r->known[batch].nb_references, first = slot_of(r, part);
	uint32_t i, *user;

	for (i = 0; i < n; i++) {
		user = &r->slot_batch[slot_of(r, &part[i])];
		if (*user != NO_BATCH)
			break;
		*user = batch;
	}
	if (i < n) {
		while (i-- > 0)
			r->slot_batch[slot_of(r, &part[i])] = NO_BATCH;
		return false;
	}
	/* journal_refer() has written them there already */
	if (part != r->in_slot[first])
		memcpy(r->in_slot[first], part, n * sizeof(*part));
	r->first_slot[batch] = first;
	COUNTER_SET(r->stats.slots_held, r->stats.slots_held + n);
	return true;
}

void
journal_slots_free(struct journal *r, uint32_t batch)
{
	const uint32_t first = r->first_slot[batch], n = r->known[batch].nb_references;
	uint32_t i, slot;

	if (first == JOURNAL_NO_SLOT)
		return;
	for (i = 0; i < n; i++) {
		slot = slot_of(r, &r->in_slot[first][i]);
		r->slot_batch[slot] = NO_BATCH;
		r->freed[r->nb_freed++] = slot;
	}
	r->first_slot[batch] = JOURNAL_NO_SLOT;
	COUNTER_SET(r->stats.slots_held, r->stats.slots_held - n);
}
