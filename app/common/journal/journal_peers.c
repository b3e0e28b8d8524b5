/* SPDX-License-Identifier: BSD-3-Clause */
/* The stores that a journal knows: lookup, identity and address, and their records in the file. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "journal/journal_private.h"

/* ---- records --------------------------------------------------------------------------------- */

/* Whether an address may be printed. */
static bool
is_printable(const char address[JOURNAL_ADDRESS])
{
	size_t i;

	for (i = 0; address[i] != '\0'; i++) {
		if (address[i] < ' ' || address[i] > '~' || i == JOURNAL_ADDRESS - 1)
			return false;
	}
	return true;
}

/* @return what is wrong with it; NULL: nothing */
static const char *
read_status(uint64_t word, uint32_t *status, unsigned int *corrected)
{
	const int wrong = journal_status_open(word, status);

	*corrected += wrong == 1;
	if (wrong >= 0 && (*status & ~STORE_ALL) == 0 &&
		(*status == 0 || (*status & STORE_USED) != 0))
		return NULL;
	/* it may be a store that batches were sent to */
	*status = STORE_USED;
	return "its state is out of range";
}

static const char *
read_identity(struct ring_store *s, struct store *to, unsigned int *corrected)
{
	int wrong;

	if ((to->status & STORE_KNOWN) == 0)
		return NULL;
	wrong = journal_bytes_open(&s->identity, sizeof(s->identity), &s->identity_crc);
	if (wrong < 0)
		return "wrong checksum of its identity";
	*corrected += wrong;
	to->identity = s->identity;
	return NULL;
}

static const char *
read_address(struct ring_store *s, struct store *to, unsigned int *corrected)
{
	const int wrong = journal_bytes_open(s->address, sizeof(s->address), &s->address_crc);

	if (wrong >= 0 && is_printable(s->address))
		memcpy(to->address, s->address, sizeof(to->address));
	/* a process that was killed may have written a part of another one */
	if ((to->status & STORE_HERE) == 0)
		return NULL;
	*corrected += wrong == 1;
	return wrong < 0		   ? "wrong checksum of its address"
		: is_printable(s->address) ? NULL
					   : "invalid address";
}

unsigned int
journal_store_read(const struct ring_store *from, struct store *to)
{
	struct ring_store s = *from;
	unsigned int corrected = 0;
	const char *problem[3];

	memset(to, 0, sizeof(*to));
	problem[0] = read_status(s.status, &to->status, &corrected);
	if (to->status == 0)
		return corrected;
	problem[1] = read_identity(&s, to, &corrected);
	problem[2] = read_address(&s, to, &corrected);
	to->problem = problem[0] != NULL ? problem[0]
		: problem[1] != NULL	 ? problem[1]
					 : problem[2];
	return corrected;
}

static void
put_store_status(struct journal *r, unsigned int n, uint32_t status)
{
	r->store[n].status = status;
	PUT(r->header->store[n].status, status_seal(status));
	step(r);
}

/* Write members that are not valid yet. */
static void
put_identity(struct journal *r, unsigned int n, uint64_t identity)
{
	struct ring_store *to = &r->header->store[n];

	r->store[n].identity = identity;
	to->identity = identity;
	step(r);
	to->identity_crc = identity_crc(to);
	step(r);
}

static void
put_address(struct journal *r, unsigned int n, const char *address)
{
	struct ring_store *to = &r->header->store[n];
	struct store *s = &r->store[n];

	memset(s->address, 0, sizeof(s->address));
	snprintf(s->address, sizeof(s->address), "%s", address);
	memcpy(to->address, s->address, sizeof(to->address));
	step(r);
	to->address_crc = address_crc(to);
	step(r);
}

/* Writing the same members again changes the wrong bit only. */
static void
repair_store(struct journal *r, unsigned int n)
{
	struct ring_store *to = &r->header->store[n];
	const struct store *s = &r->store[n];

	if (to->status != status_seal(s->status))
		put_store_status(r, n, s->status);
	if ((s->status & STORE_KNOWN) != 0 &&
		(to->identity != s->identity || to->identity_crc != identity_crc(to))) {
		PUT(to->identity, s->identity);
		PUT(to->identity_crc, identity_crc(to));
		step(r);
	}
	if ((s->status & STORE_HERE) != 0 &&
		(memcmp(to->address, s->address, sizeof(to->address)) != 0 ||
			to->address_crc != address_crc(to))) {
		memcpy(to->address, s->address, sizeof(to->address));
		PUT(to->address_crc, address_crc(to));
		step(r);
	}
}

void
journal_stores_repair(struct journal *r)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		if (r->store[i].problem == NULL)
			repair_store(r, i);
	}
}

/* ---- stores ---------------------------------------------------------------------------------- */

bool
journal_store_get(const struct journal *r, unsigned int n, struct journal_store *to)
{
	const struct store *s;

	if (n >= JOURNAL_STORES || r->store[n].status == 0)
		return false;
	s = &r->store[n];
	*to = (struct journal_store){
		.identity = (s->status & STORE_KNOWN) != 0 && s->problem == NULL ? s->identity : 0,
		.here = (s->status & STORE_HERE) != 0 && s->problem == NULL,
		.problem = s->problem};
	snprintf(to->address, sizeof(to->address), "%s",
		s->address[0] != '\0' ? s->address : "an unknown address");
	return true;
}

int
journal_store_at(const struct journal *r, const char *address)
{
	const struct store *s;
	int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		s = &r->store[i];
		if ((s->status & STORE_HERE) != 0 && s->problem == NULL &&
			strncmp(s->address, address, sizeof(s->address)) == 0)
			return i;
	}
	return -ENOENT;
}

int
journal_store_of(const struct journal *r, uint64_t identity)
{
	int i;

	for (i = 0; i < JOURNAL_STORES; i++) {
		if ((r->store[i].status & STORE_KNOWN) != 0 && r->store[i].problem == NULL &&
			r->store[i].identity == identity)
			return i;
	}
	return -ENOENT;
}

/*
 * If the process is killed in this function, the store has no address. It is found again by its
 * identity.
 */
static void
leave(struct journal *r, unsigned int n)
{
	put_store_status(r, n, r->store[n].status & ~STORE_HERE);
}

void
journal_store_move(struct journal *r, unsigned int n, const char *address)
{
	int other;

	if (address == NULL) {
		leave(r, n);
		return;
	}
	while ((other = journal_store_at(r, address)) >= 0 && (unsigned int)other != n)
		leave(r, other);
	if (other == (int)n)
		return;
	leave(r, n);
	put_address(r, n, address);
	put_store_status(r, n, r->store[n].status | STORE_HERE);
}

void
journal_store_identify(struct journal *r, unsigned int n, uint64_t identity)
{
	put_store_status(r, n, r->store[n].status & ~STORE_KNOWN);
	put_identity(r, n, identity);
	put_store_status(r, n, r->store[n].status | STORE_KNOWN);
}

int
journal_store_add(struct journal *r, const char *address, uint64_t identity)
{
	int i;

	for (i = 0; i < JOURNAL_STORES && r->store[i].status != 0; i++)
		;
	if (i == JOURNAL_STORES)
		return -ENOSPC;
	put_address(r, i, "");
	put_identity(r, i, identity);
	put_store_status(r, i, STORE_USED | (identity != 0 ? STORE_KNOWN : 0));
	journal_store_move(r, i, address);
	return i;
}

uint32_t
journal_store_given(const struct journal *r, unsigned int n)
{
	uint32_t i, given = 0;

	/* the record of a damaged batch also says that the store may have it */
	for (i = 0; i < r->nb_batches; i++)
		given += r->status[i].state != BATCH_FREE && (r->status[i].given & 1u << n) != 0;
	return given;
}

int
journal_store_drop(struct journal *r, unsigned int n)
{
	if (journal_store_given(r, n) > 0)
		return -EBUSY;
	put_store_status(r, n, 0);
	return 0;
}
