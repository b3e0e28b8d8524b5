/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include "fail_point.h"
#include "egress/store_client_private.h"

static_assert(JOURNAL_BATCHES <= XFER_REASSIGNED_MAX, "all of them can be told");

int
store_client_collect(struct store_client *s)
{
	const struct journal *r = s->config.journal;
	const unsigned int number = store_client_number(s);
	struct journal_batch b;
	uint32_t i, at = 0;

	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		if (!journal_get(r, i, &b) || b.run != s->config.run || b.owner == number ||
			(b.given & 1u << number) == 0)
			continue;
		if (interval_set_add(&s->moved[b.table], b.sequence, b.sequence) < 0)
			return -ENOMEM;
	}
	/* in journal order, as there may be many */
	while ((i = journal_walk(r, &at)) != UINT32_MAX) {
		if (journal_get(r, i, &b) && store_client_owns(s, &b) &&
			interval_set_add(&s->mine[b.table], b.sequence, b.sequence) < 0)
			return -ENOMEM;
	}
	return 0;
}

void
store_client_tell(struct store_client *s)
{
	const bool held = s->told >= XFER_TABLES;
	const unsigned int table = s->told % XFER_TABLES;
	const struct interval_set *set = held ? &s->mine[table] : &s->moved[table];
	struct xfer_intervals *m = xfer_qp_room(&s->link);
	size_t nb;

	if (m == NULL)
		return;
	nb = set->nb - s->logged_at;
	if (nb > XFER_INTERVALS_MAX)
		nb = XFER_INTERVALS_MAX;
	xfer_msg_begin(m, held ? XFER_HELD : XFER_REASSIGNED,
		sizeof(*m) + nb * sizeof(m->interval[0]), s->sent++);
	m->table = table;
	m->nb = nb;
	/* an empty set has no array */
	if (nb > 0)
		memcpy(m->interval, set->at + s->logged_at, nb * sizeof(m->interval[0]));
	s->logged_at += nb;
	if (s->logged_at == set->nb) {
		s->logged_at = 0;
		s->told++;
	}
	/* the last message of each kind has no XFER_MORE */
	m->head.flags = s->told / XFER_TABLES == held ? XFER_MORE : 0;
	s->all_sent = s->told == 2 * XFER_TABLES;
	(void)xfer_qp_send(&s->link, m->head.length);
	FAIL_POINT("recv.moved");
}

/* Only batches held here are recorded, because a store could report others without end. */
enum xfer_reason
store_client_take_inventory(struct store_client *s, const struct xfer_intervals *m)
{
	const struct interval_set *mine = &s->mine[m->table];
	uint32_t i;

	/*
	 * INVENTORY is valid only after REASSIGNED and HELD were sent completely; the store reads
	 * them first.
	 */
	if (!s->all_sent || s->have_all || m->table < s->have_table)
		return XFER_REASON_ORDER;
	if (s->waiting_since == 0)
		s->waiting_since = s->heard;
	if (m->table > s->have_table)
		s->have_next = 0;
	s->have_table = m->table;
	/* ascending across messages, too */
	if (m->nb > 0 && s->have_next > 0 && m->interval[0].first <= s->have_next)
		return XFER_REASON_MALFORMED;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add_common(&s->have[m->table], mine, m->interval[i].first,
			    m->interval[i].last) < 0)
			return XFER_REASON_FAILED;
		s->have_next = m->interval[i].last + 1;
	}
	s->have_all = (m->head.flags & XFER_MORE) == 0;
	return XFER_REASON_NONE;
}

void
store_client_release_found(struct store_client *s)
{
	struct journal *r = s->config.journal;
	struct journal_batch b;
	uint32_t batch, at = 0;

	/*
	 * Release in the order of the store's files. If the process dies in between, a batch that
	 * is still held may be reassigned later. The store then truncates its file at that batch,
	 * so all later ones must still be held.
	 */
	while ((batch = journal_walk(r, &at)) != UINT32_MAX) {
		if (!journal_get(r, batch, &b) || !store_client_owns(s, &b) ||
			!interval_set_has(&s->have[b.table], b.sequence))
			continue;
		s->stats.found++;
		store_client_release(s, batch, XFER_DURABLE);
	}
	FAIL_POINT("recv.have");
	journal_confirm(r, s->config.run, store_client_number(s));
}
