/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include "fail_point.h"
#include "sink_sender_private.h"

static_assert(RETENTION_BATCHES <= SINK_MOVED_MAX, "all of them can be told");

int
sink_sender_collect(struct sink_sender *s)
{
	const struct retention *r = s->config.retention;
	const unsigned int number = sink_sender_number(s);
	struct retention_batch b;
	uint32_t i, at = 0;

	for (i = retention_next(r, 0); i != UINT32_MAX; i = retention_next(r, i + 1)) {
		if (!retention_get(r, i, &b) || b.run != s->config.run || b.owner == number ||
			(b.given & 1u << number) == 0)
			continue;
		if (interval_set_add(&s->moved[b.table], b.sequence, b.sequence) < 0)
			return -ENOMEM;
	}
	/* in their order, as they may be many */
	while ((i = retention_walk(r, &at)) != UINT32_MAX) {
		if (retention_get(r, i, &b) && sink_sender_owns(s, &b) &&
			interval_set_add(&s->mine[b.table], b.sequence, b.sequence) < 0)
			return -ENOMEM;
	}
	return 0;
}

void
sink_sender_tell(struct sink_sender *s)
{
	const bool held = s->told >= SINK_TABLES;
	const unsigned int table = s->told % SINK_TABLES;
	const struct interval_set *set = held ? &s->mine[table] : &s->moved[table];
	struct sink_intervals *m = sink_link_room(&s->link);
	size_t nb;

	if (m == NULL)
		return;
	nb = set->nb - s->told_at;
	if (nb > SINK_INTERVALS_MAX)
		nb = SINK_INTERVALS_MAX;
	sink_message_begin(m, held ? SINK_HELD : SINK_MOVED,
		sizeof(*m) + nb * sizeof(m->interval[0]), s->sent++);
	m->table = table;
	m->nb = nb;
	/* an empty set has no array */
	if (nb > 0)
		memcpy(m->interval, set->at + s->told_at, nb * sizeof(m->interval[0]));
	s->told_at += nb;
	if (s->told_at == set->nb) {
		s->told_at = 0;
		s->told++;
	}
	/* of each kind the last one says so */
	m->head.flags = s->told / SINK_TABLES == held ? SINK_MORE : 0;
	s->all_told = s->told == 2 * SINK_TABLES;
	(void)sink_link_send(&s->link, m->head.length);
	FAIL_POINT("recv.moved");
}

/* A store may say for ever that it has something: only what is held here is noted. */
enum sink_reason
sink_sender_take_have(struct sink_sender *s, const struct sink_intervals *m)
{
	const struct interval_set *mine = &s->mine[m->table];
	uint32_t i;

	/* what is there is of interest once it has been said what is not to be there, and what
	 * would be released: the store reads that before */
	if (!s->all_told || s->have_all || m->table < s->have_table)
		return SINK_REASON_ORDER;
	if (s->waiting_since == 0)
		s->waiting_since = s->heard;
	if (m->table > s->have_table)
		s->have_next = 0;
	s->have_table = m->table;
	/* ascending over messages as well */
	if (m->nb > 0 && s->have_next > 0 && m->interval[0].first <= s->have_next)
		return SINK_REASON_MALFORMED;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add_common(&s->have[m->table], mine, m->interval[i].first,
			    m->interval[i].last) < 0)
			return SINK_REASON_FAILED;
		s->have_next = m->interval[i].last + 1;
	}
	s->have_all = (m->head.flags & SINK_MORE) == 0;
	return SINK_REASON_NONE;
}

void
sink_sender_release_found(struct sink_sender *s)
{
	struct retention *r = s->config.retention;
	struct retention_batch b;
	uint32_t batch, at = 0;

	/* In the order of the store's files. Who dies half-way may find one that is still held
	 * moved elsewhere; the store then cuts its file off there, and what is behind must be
	 * held, too. */
	while ((batch = retention_walk(r, &at)) != UINT32_MAX) {
		if (!retention_get(r, batch, &b) || !sink_sender_owns(s, &b) ||
			!interval_set_has(&s->have[b.table], b.sequence))
			continue;
		s->stats.found++;
		sink_sender_release(s, batch, SINK_DURABLE);
	}
	FAIL_POINT("recv.have");
	retention_confirm(r, s->config.run, sink_sender_number(s));
}
