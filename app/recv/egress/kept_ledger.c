/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include <rte_common.h>

#include "arrow/tables.h"
#include "egress/kept_ledger.h"

void
kept_ledger_init(struct kept_ledger *k, struct journal *journal)
{
	memset(k, 0, sizeof(*k));
	k->journal = journal;
	k->saved.next_sequence = LEDGER_NONE;
}

void
kept_ledger_begin(struct kept_ledger *k, uint64_t incarnation)
{
	k->saved.incarnation = incarnation;
	k->saved.retained_frame = 0;
	k->saved.next_sequence = LEDGER_NONE;
	memset(k->saved.retained, 0, sizeof(k->saved.retained));
	k->first_row = 0;
	k->has_rows = false;
}

void
kept_ledger_save(struct kept_ledger *k)
{
	const struct ledger_kept own = k->saved;
	struct ledger_kept *s = &k->saved;

	if (kept_ledger_is_new(k)) {
		*s = k->posted;
		s->incarnation = own.incarnation;
		s->retained_frame = own.retained_frame;
		memcpy(s->retained, own.retained, sizeof(s->retained));
		s->next_sequence = own.next_sequence;
		s->next_frame = own.next_frame;
		memcpy(s->next, own.next, sizeof(s->next));
		__atomic_store_n(&k->is_new, false, __ATOMIC_RELEASE);
		k->has_rows = false;
	}
	/* the posted columns may be older than the rows */
	if (k->first_row != 0 && !k->has_rows) {
		ledger_begin(s, k->first_row, s->next_frame);
		k->has_rows = true;
	}
	journal_ledger_put(k->journal, s, sizeof(*s));
}

void
kept_ledger_announce(struct kept_ledger *k, const struct journal_batch *batch,
	const uint64_t tally[LEDGER_COLUMNS])
{
	struct ledger_kept *s = &k->saved;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		s->next[i] = s->retained[i] + tally[i];
	s->next_frame = batch->last;
	s->next_sequence = batch->sequence;
	/* the refused rows before it belong to frames that were not lost either */
	if (k->first_row == 0)
		k->first_row = batch->first -
			(tally[LEDGER_FRAMES] - batch->rows) * RTE_MAX(s->stride, 1u);
	kept_ledger_save(k);
}

/* The announced rows are in the journal. */
static void
take_announced(struct ledger_kept *k)
{
	memcpy(k->retained, k->next, sizeof(k->retained));
	k->retained_frame = k->next_frame;
	k->next_sequence = LEDGER_NONE;
}

void
kept_ledger_commit(struct kept_ledger *k)
{
	take_announced(&k->saved);
	kept_ledger_save(k);
}

bool
kept_ledger_is_new(const struct kept_ledger *k)
{
	return __atomic_load_n(&k->is_new, __ATOMIC_ACQUIRE);
}

bool
kept_ledger_post(struct kept_ledger *k, const struct ledger_kept *columns)
{
	if (kept_ledger_is_new(k))
		return false;
	k->posted = *columns;
	__atomic_store_n(&k->is_new, true, __ATOMIC_RELEASE);
	return true;
}

bool
kept_ledger_has(
	const struct ledger_kept *k, const struct journal *journal, const struct journal_batch *b)
{
	struct journal_run run;

	return journal_run_get(journal, b->run, &run) && run.incarnation == k->incarnation;
}

void
kept_ledger_before(struct ledger_kept *before, const struct journal *journal)
{
	struct journal_batch b;
	uint32_t i;

	static_assert(sizeof(struct ledger_kept) <= JOURNAL_LEDGER, "room in the journal");
	(void)journal_ledger_get(journal, before, sizeof(*before));
	/* from another process */
	before->name[sizeof(before->name) - 1] = '\0';
	before->directory[sizeof(before->directory) - 1] = '\0';
	if (before->version != LEDGER_KEPT_VERSION)
		return;
	for (i = journal_next(journal, 0); i != UINT32_MAX; i = journal_next(journal, i + 1)) {
		if (journal_get(journal, i, &b) && b.table == ARROW_FRAMES &&
			b.sequence == before->next_sequence && kept_ledger_has(before, journal, &b))
			take_announced(before);
	}
}
