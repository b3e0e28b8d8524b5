/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What receiver and store tell each other before the store grants slots: which batches were
 * reassigned or are held here (REASSIGNED, HELD), and which of these the store has (INVENTORY).
 */

#include <errno.h>

#include "egress/store_client_private.h"
#include "fail_point.h"

static_assert(JOURNAL_BATCHES <= XFER_REASSIGNED_MAX, "REASSIGNED and HELD can name all");

static uint64_t
content_of(const struct journal_batch *b)
{
	return stream_content_make(b->body_crc32c, b->metadata_crc32c);
}

int
store_client_collect(struct store_client *s)
{
	struct journal *r = s->config.journal;
	const unsigned int number = store_client_number(s);
	struct journal_batch b;
	uint32_t i, at = 0;

	for (i = journal_next(r, 0); i != UINT32_MAX; i = journal_next(r, i + 1)) {
		if (!journal_get(r, i, &b) || b.run != s->config.run || b.owner == number ||
			(b.given & 1u << number) == 0)
			continue;
		/* it is damaged here: the copy of this store may be the only sound one */
		if (b.held && !journal_is_sound(r, i)) {
			journal_keep_copies(r, i);
			continue;
		}
		(void)journal_check(r, i);
		if (stream_contents_append(&s->reassigned[b.table], b.sequence, content_of(&b)) < 0)
			return -ENOMEM;
	}
	/*
	 * In journal order, because there may be many. Batches that are damaged here are included:
	 * the store may have sound copies.
	 */
	while ((i = journal_walk(r, &at)) != UINT32_MAX) {
		if (!journal_get(r, i, &b) || !store_client_owns(s, &b))
			continue;
		if (interval_set_add(&s->held[b.table], b.sequence, b.sequence) < 0 ||
			stream_contents_append(
				&s->held_contents[b.table], b.sequence, content_of(&b)) < 0)
			return -ENOMEM;
	}
	for (i = 0; i < XFER_TABLES; i++) {
		stream_contents_sort(&s->reassigned[i]);
		stream_contents_sort(&s->held_contents[i]);
	}
	return 0;
}

void
store_client_send_list(struct store_client *s)
{
	const bool held = s->lists_sent >= XFER_TABLES;
	const unsigned int table = s->lists_sent % XFER_TABLES;
	const struct stream_contents *set = held ? &s->held_contents[table] : &s->reassigned[table];
	struct xfer_list *m = xfer_qp_room(&s->link);
	size_t nb, i;

	if (m == NULL)
		return;
	nb = set->nb - s->list_at;
	if (nb > XFER_LIST_MAX)
		nb = XFER_LIST_MAX;
	xfer_msg_begin(m, held ? XFER_HELD : XFER_REASSIGNED,
		sizeof(*m) + nb * sizeof(m->listed[0]), s->messages_sent++);
	m->table = table;
	m->nb = nb;
	for (i = 0; i < nb; i++) {
		const struct stream_content *c = &set->at[s->list_at + i];

		m->listed[i] = (struct xfer_listed){
			c->sequence, (uint32_t)(c->crc >> 32), (uint32_t)c->crc};
	}
	s->list_at += nb;
	if (s->list_at == set->nb) {
		s->list_at = 0;
		s->lists_sent++;
	}
	/* the last message of each kind has no XFER_MORE */
	m->head.flags = s->lists_sent / XFER_TABLES == held ? XFER_MORE : 0;
	s->all_lists_sent = s->lists_sent == 2 * XFER_TABLES;
	(void)xfer_qp_send(&s->link, m->head.length);
	FAIL_POINT("recv.reassigned");
}

enum xfer_reason
store_client_take_inventory(struct store_client *s, const struct xfer_intervals *m)
{
	const struct interval_set *held = &s->held[m->table];
	uint32_t i;

	/*
	 * INVENTORY is valid only after REASSIGNED and HELD were sent completely; the store reads
	 * them first.
	 */
	if (!s->all_lists_sent || s->inventory_complete || m->table < s->inventory_table)
		return XFER_REASON_ORDER;
	if (s->waiting_since == 0)
		s->waiting_since = s->last_received_at;
	if (m->table > s->inventory_table)
		s->inventory_next = 0;
	s->inventory_table = m->table;
	/* ascending across messages, too */
	if (m->nb > 0 && s->inventory_next > 0 && m->interval[0].first <= s->inventory_next)
		return XFER_REASON_MALFORMED;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add_common(&s->inventory[m->table], held, m->interval[i].first,
			    m->interval[i].last) < 0)
			return XFER_REASON_FAILED;
		s->inventory_next = m->interval[i].last + 1;
	}
	s->inventory_complete = (m->head.flags & XFER_MORE) == 0;
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
			!interval_set_has(&s->inventory[b.table], b.sequence))
			continue;
		s->stats.found++;
		/* the store has read its copy; another store may remove its own copy */
		journal_prove(r, batch);
		store_client_release(s, batch, XFER_DURABLE);
	}
	FAIL_POINT("recv.inventory");
	journal_confirm(r, s->config.run, store_client_number(s));
}
