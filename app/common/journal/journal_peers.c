/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores that a journal knows: lookup, identity and address. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "journal/journal_private.h"

bool
journal_store_get(const struct journal *r, unsigned int n, struct journal_store *to)
{
	const struct ring_store *s;

	if (n >= JOURNAL_STORES || !r->header->store[n].used)
		return false;
	s = &r->header->store[n];
	*to = (struct journal_store){.identity = s->identity, .here = s->here};
	memcpy(to->address, s->address, sizeof(to->address) - 1);
	return true;
}

int
journal_store_at(const struct journal *r, const char *address)
{
	const struct ring_store *s;
	int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		s = &r->header->store[i];
		if (s->used && s->here && strncmp(s->address, address, sizeof(s->address)) == 0)
			return i;
	}
	return -ENOENT;
}

int
journal_store_of(const struct journal *r, uint64_t identity)
{
	int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		if (r->header->store[i].used && r->header->store[i].identity == identity)
			return i;
	}
	return -ENOENT;
}

/*
 * If the process is killed in this function, the store has no address. It is found again by its
 * identity.
 */
static void
leave(const struct journal *r, struct ring_store *s)
{
	PUT(s->here, 0);
	step(r);
}

void
journal_store_move(struct journal *r, unsigned int n, const char *address)
{
	struct ring_store *s = &r->header->store[n];
	int other;

	if (address == NULL) {
		leave(r, s);
		return;
	}
	while ((other = journal_store_at(r, address)) >= 0 && (unsigned int)other != n)
		leave(r, &r->header->store[other]);
	if (s->here && other == (int)n)
		return;
	leave(r, s);
	memset(s->address, 0, sizeof(s->address));
	snprintf(s->address, sizeof(s->address), "%s", address);
	step(r);
	PUT(s->here, 1);
	step(r);
}

void
journal_store_identify(struct journal *r, unsigned int n, uint64_t identity)
{
	PUT(r->header->store[n].identity, identity);
	step(r);
}

int
journal_store_add(struct journal *r, const char *address, uint64_t identity)
{
	struct ring_store *s;
	int i;

	for (i = 0; i < JOURNAL_STORES && r->header->store[i].used; i++)
		;
	if (i == JOURNAL_STORES)
		return -ENOSPC;
	s = &r->header->store[i];
	s->here = 0;
	s->identity = identity;
	step(r);
	PUT(s->used, 1);
	step(r);
	journal_store_move(r, i, address);
	return i;
}

uint32_t
journal_store_given(const struct journal *r, unsigned int n)
{
	uint32_t i, given = 0;

	for (i = 0; i < r->nb_batches; i++)
		given += is_live(r, i) && (r->status[i].given & 1u << n) != 0;
	return given;
}

int
journal_store_drop(struct journal *r, unsigned int n)
{
	if (journal_store_given(r, n) > 0)
		return -EBUSY;
	PUT(r->header->store[n].used, 0);
	step(r);
	return 0;
}
