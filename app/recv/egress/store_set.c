/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "egress/store_set.h"
#include "log.h"

LOG_REGISTER("xfer", "xfer");

/*
 * Remove stores from the journal that are at no address and have no batch that is held or in doubt.
 */
static void
forget_others(struct store_set *s)
{
	struct journal_store store;
	unsigned int i, k;
	bool used;

	for (i = 0; i < JOURNAL_STORES; i++) {
		if (!journal_store_get(s->journal, i, &store))
			continue;
		used = store_set_at(s, i) >= 0;
		for (k = 0; k < s->nb; k++)
			used |= store.here && strcmp(store.address, s->at[k].address) == 0;
		if (!used)
			(void)journal_store_drop(s->journal, i);
	}
}

int
store_set_find(struct store_set *s)
{
	unsigned int i;
	int n;

	/* the connections determine the store numbers */
	for (i = 0; i < s->nb; i++)
		s->at[i].number = -1;
	forget_others(s);
	for (i = 0; i < s->nb; i++) {
		n = journal_store_at(s->journal, s->at[i].address);
		if (n < 0)
			n = journal_store_add(s->journal, s->at[i].address, 0);
		if (n < 0)
			return n;
		s->at[i].number = n;
	}
	return 0;
}

int
store_set_at(const struct store_set *s, unsigned int number)
{
	unsigned int i;

	for (i = 0; i < s->nb; i++) {
		if (s->at[i].number == (int)number)
			return (int)i;
	}
	return -ENOENT;
}

__attribute__((format(printf, 2, 3))) static void
complain(struct xfer_store *a, const char *format, ...)
{
	char text[512];
	va_list list;

	a->refused++;
	if (a->wrong)
		return;
	a->wrong = true;
	va_start(list, format);
	vsnprintf(text, sizeof(text), format, list);
	va_end(list);
	LOG(ERR, "store %s: %s\n", a->name, text);
}

/* Log that the previous store is at another address, or at none. */
static void
log_replaced_store(const struct store_set *s, const struct xfer_store *a, unsigned int number,
	uint64_t identity)
{
	struct journal_store old;
	uint32_t given;

	if (!journal_store_get(s->journal, number, &old) || old.identity == 0)
		return;
	given = journal_store_given(s->journal, number);
	LOG(WARNING,
		"store %s is now %016" PRIx64 "; before it was %016" PRIx64 ", to which %u "
		"unacknowledged or in-doubt batches were sent\n",
		a->name, identity, old.identity, given);
}

/* For an unknown store: take the number of its address, if no known store has it. */
static int
take_new(struct store_set *s, struct xfer_store *a, uint64_t identity)
{
	struct journal_store old;
	int n;

	(void)journal_store_get(s->journal, a->number, &old);
	log_replaced_store(s, a, a->number, identity);
	if (old.identity == 0 || journal_store_given(s->journal, a->number) == 0) {
		journal_store_identify(s->journal, a->number, identity);
		return 0;
	}
	forget_others(s);
	n = journal_store_add(s->journal, a->address, identity);
	if (n < 0) {
		complain(a,
			"identity is %016" PRIx64 ", but the journal holds batches of %u other "
			"stores, its limit; add those to [egress] stores, or run braggline-store "
			"reconcile --journal",
			identity, JOURNAL_STORES);
		return n;
	}
	a->number = n;
	s->changes++;
	return 0;
}

/* For a store known by another number: it has moved to this address. */
static int
take_moved(struct store_set *s, struct xfer_store *a, uint64_t identity, unsigned int number)
{
	const int at = store_set_at(s, number);
	const int old = a->number;

	if (at >= 0 && s->at[at].proved > 0) {
		complain(a,
			"same store as %s (%016" PRIx64 "); not used, remove one of the "
			"addresses from [egress] stores",
			s->at[at].name, identity);
		return -EEXIST;
	}
	log_replaced_store(s, a, old, identity);
	/* the previous store may be at the other address; its own connection will tell */
	journal_store_move(s->journal, old, NULL);
	journal_store_move(s->journal, number, a->address);
	if (at >= 0) {
		s->at[at].number = old;
		s->at[at].identity = 0;
		journal_store_move(s->journal, old, s->at[at].address);
	}
	a->number = (int)number;
	s->changes++;
	return 0;
}

int
store_set_prove(struct store_set *s, unsigned int at, uint64_t identity)
{
	struct xfer_store *a = &s->at[at];
	struct journal_store store;
	int n, ret = 0;

	if (a->proved > 0 && a->identity != identity) {
		complain(a,
			"identity is %016" PRIx64 ", but established connections to this address "
			"have %016" PRIx64 "; not used, each address must belong to one store",
			identity, a->identity);
		return -EBUSY;
	}
	(void)journal_store_get(s->journal, a->number, &store);
	if (store.identity != identity) {
		n = journal_store_of(s->journal, identity);
		ret = n < 0 ? take_new(s, a, identity) : take_moved(s, a, identity, n);
	}
	if (ret < 0)
		return ret;
	a->identity = identity;
	a->proved++;
	a->wrong = false;
	return 0;
}

void
store_set_leave(struct store_set *s, unsigned int at)
{
	s->at[at].proved--;
}
