/* SPDX-License-Identifier: BSD-3-Clause */
/* Which store has which batch: for a new one, and when a store is gone. */

#include "egress_private.h"
#include "sink/sink_link.h"

bool
egress_store_is_gone(const struct egress *e, const struct sink_sender *sender, uint64_t now)
{
	const uint64_t since = sink_sender_idle_since(sender);

	/* the clock may have gone on in this turn */
	return since != 0 && now >= since + e->settings.failover_ms;
}

/* The store that a batch goes to as long as it is there. */
static unsigned int
home(const struct egress *e, uint64_t first)
{
	switch ((enum egress_policy)e->settings.policy) {
	case EGRESS_BY_FRAME:
		return first / e->settings.interval % e->stores.nb;
	case EGRESS_PRIMARY:
		return 0;
	case EGRESS_ROUND_ROBIN:
		break;
	}
	return e->next_store % e->stores.nb;
}

unsigned int
egress_choose(struct egress *e, const struct egress_run *run, uint64_t first)
{
	const bool sticks = e->settings.policy != EGRESS_ROUND_ROBIN;
	const unsigned int from = home(e, first);
	unsigned int i, store;

	e->next_store++;
	if (sticks && !egress_store_is_gone(e, run->sender[from], sink_link_clock()))
		return from;
	for (i = 0; i < e->stores.nb; i++) {
		store = (from + i) % e->stores.nb;
		if (sink_sender_takes(run->sender[store]))
			return store;
	}
	/* one that is just connecting, rather than one that is not there */
	for (i = 0; i < e->stores.nb; i++) {
		store = (from + i) % e->stores.nb;
		if (!sink_sender_is_down(run->sender[store]))
			return store;
	}
	return from;
}

struct sink_sender *
egress_sender_of(const struct egress *e, const struct retention_batch *b)
{
	const int at = sink_stores_at(&e->stores, b->owner);

	return at >= 0 ? e->run[b->run].sender[at] : NULL;
}

/* Whether what a store was given, and may have, would be better off elsewhere: another store takes
 * it, or it can be spilled. */
static bool
has_elsewhere(const struct egress *e, const struct egress_run *run)
{
	bool any = e->spill != NULL && e->ladder.step != EGRESS_HOLD;
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++)
		any |= sink_sender_takes(run->sender[i]);
	return any;
}

/* Whether a batch may go elsewhere. */
static bool
may_leave(const struct egress *e, const struct retention_batch *b, uint64_t now)
{
	struct sink_sender *from = egress_sender_of(e, b);

	/* nobody's, or of a store that is not configured any more */
	if (from == NULL)
		return true;
	if (b->given & 1u << b->owner) {
		/* one that is there and takes nothing, as its disk is full, has it as long as it is
		 * connected */
		if (egress_store_is_gone(e, from, now) && !sink_sender_is_down(from) &&
			has_elsewhere(e, &e->run[b->run]))
			sink_sender_give_up(from);
		return sink_sender_is_down(from) && egress_store_is_gone(e, from, now);
	}
	return e->settings.policy == EGRESS_ROUND_ROBIN ? !sink_sender_takes(from)
							: egress_store_is_gone(e, from, now);
}

static bool
all_take(const struct egress *e)
{
	unsigned int i, k;

	for (i = 0; i < RETENTION_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
			if (e->run[i].sender[k] != NULL && !sink_sender_takes(e->run[i].sender[k]))
				return false;
		}
	}
	return true;
}

void
egress_move(struct egress *e, uint64_t now)
{
	struct retention_batch b;
	unsigned int store;
	uint32_t batch, at = 0;
	bool left = false;

	/* what was of a store that another one has taken the place of */
	e->unassigned |= e->changes != e->stores.changes;
	e->changes = e->stores.changes;
	if (!e->unassigned && all_take(e))
		return;
	while ((batch = retention_walk(e->ring, &at)) != UINT32_MAX) {
		if (!retention_get(e->ring, batch, &b) || !e->run[b.run].used ||
			e->run[b.run].retiring || b.owner == RETENTION_SPILL ||
			!may_leave(e, &b, now))
			continue;
		store = egress_choose(e, &e->run[b.run], b.first);
		if (!sink_sender_takes(e->run[b.run].sender[store])) {
			left |= egress_sender_of(e, &b) == NULL;
			continue;
		}
		retention_assign(e->ring, batch, e->stores.at[store].number);
		(void)sink_sender_offer(e->run[b.run].sender[store], batch);
	}
	e->unassigned = left;
}
