/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores that a retention ring knows. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "retention_private.h"

bool
retention_store_get(const struct retention *r, unsigned int n, struct retention_store *to)
{
	const struct ring_store *s;

	if (n >= RETENTION_STORES || !r->header->store[n].used)
		return false;
	s = &r->header->store[n];
	*to = (struct retention_store){.identity = s->identity, .here = s->here};
	memcpy(to->address, s->address, sizeof(to->address) - 1);
	return true;
}

int
retention_store_at(const struct retention *r, const char *address)
{
	const struct ring_store *s;
	int i;

	for (i = 0; i < RETENTION_STORES; i++) {
		s = &r->header->store[i];
		if (s->used && s->here && strncmp(s->address, address, sizeof(s->address)) == 0)
			return i;
	}
	return -ENOENT;
}

int
retention_store_of(const struct retention *r, uint64_t identity)
{
	int i;

	for (i = 0; i < RETENTION_STORES; i++) {
		if (r->header->store[i].used && r->header->store[i].identity == identity)
			return i;
	}
	return -ENOENT;
}

/* A process that is killed in here leaves a store that is nowhere, which is found again by who it
 * is. */
static void
leave(const struct retention *r, struct ring_store *s)
{
	PUT(s->here, 0);
	step(r);
}

void
retention_store_move(struct retention *r, unsigned int n, const char *address)
{
	struct ring_store *s = &r->header->store[n];
	int other;

	if (address == NULL) {
		leave(r, s);
		return;
	}
	while ((other = retention_store_at(r, address)) >= 0 && (unsigned int)other != n)
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
retention_store_identify(struct retention *r, unsigned int n, uint64_t identity)
{
	PUT(r->header->store[n].identity, identity);
	step(r);
}

int
retention_store_add(struct retention *r, const char *address, uint64_t identity)
{
	struct ring_store *s;
	int i;

	for (i = 0; i < RETENTION_STORES && r->header->store[i].used; i++)
		;
	if (i == RETENTION_STORES)
		return -ENOSPC;
	s = &r->header->store[i];
	s->here = 0;
	s->identity = identity;
	step(r);
	PUT(s->used, 1);
	step(r);
	retention_store_move(r, i, address);
	return i;
}

uint32_t
retention_store_given(const struct retention *r, unsigned int n)
{
	uint32_t i, given = 0;

	for (i = 0; i < r->nb_batches; i++)
		given += r->batch[i].state != BATCH_FREE && (r->batch[i].given & 1u << n) != 0;
	return given;
}

int
retention_store_drop(struct retention *r, unsigned int n)
{
	if (retention_store_given(r, n) > 0)
		return -EBUSY;
	PUT(r->header->store[n].used, 0);
	step(r);
	return 0;
}
