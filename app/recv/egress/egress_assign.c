/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The store of each batch: which one gets it, and when it goes to another one or to a local file.
 */

#include <rte_common.h>

#include "egress/egress_private.h"
#include "xfer/qp.h"

/* Return true if a store accepts all batches. */
static bool
store_works(const struct store_client *client)
{
	return store_client_takes(client) && store_client_idle_since(client) == 0;
}

/* Return the store client of a batch's store; NULL: the store is not configured. */
static struct store_client *
client_of(const struct egress *e, const struct journal_batch *b)
{
	const int at = store_set_at(&e->stores, b->owner);

	return at >= 0 ? e->run[b->run].client[at] : NULL;
}

void
egress_assign_result(void *arg, uint32_t batch, enum xfer_result_status status)
{
	struct egress *e = arg;
	struct store_client *client;
	struct journal_batch b;

	if (status != XFER_RETRY) {
		egress_stats_released(e, batch, false);
		return;
	}
	/*
	 * The store reports when it is in a good state again. Until then the batch waits there or
	 * is reassigned.
	 */
	if (!journal_get(e->journal, batch, &b))
		return;
	client = client_of(e, &b);
	if (client != NULL)
		(void)store_client_offer(client, batch);
}

/*
 * Return true if a batch may be spilled. A batch that a store has, or may have while it is
 * connected, stays with that store.
 */
static bool
may_spill(void *arg, const struct journal_batch *b)
{
	const struct egress *e = arg;
	const struct store_client *client = client_of(e, b);

	if (b->owner == JOURNAL_SPILL || !e->run[b->run].used || e->run[b->run].retiring)
		return false;
	return client == NULL || (b->given & 1u << b->owner) == 0 || store_client_is_down(client);
}

/* A batch was spilled. */
static void
on_spilled(void *arg, uint32_t batch)
{
	egress_stats_released(arg, batch, true);
}

/* A batch that was to be spilled has no owner again. */
static void
on_returned(void *arg)
{
	struct egress *e = arg;

	e->unassigned = true;
}

void
egress_assign_init(struct egress *e)
{
	overload_init(&e->overload,
		&(struct overload_config){
			.journal = e->journal,
			.spill = e->spill,
			.percent = e->settings.spill_at,
			.hold_ms = e->settings.hold_ms,
			.may_spill = may_spill,
			.spilled = on_spilled,
			.returned = on_returned,
			.arg = e,
		});
}

/* Return the store that gets a batch as long as it is available. */
static unsigned int
preferred_store(const struct egress *e, uint64_t first)
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

static bool
is_connected(const struct store_client *client)
{
	return !store_client_is_down(client);
}

/* Choose a store for a batch. @param first  number of its first frame */
static unsigned int
choose_store(struct egress *e, const struct egress_run *run, uint64_t first)
{
	/* from the best: accepts everything, all but some batches, nothing at the moment */
	static bool (*const is_good[])(const struct store_client *) = {
		store_works, store_client_takes, is_connected};
	const bool sticks = e->settings.policy != EGRESS_ROUND_ROBIN;
	const unsigned int from = preferred_store(e, first);
	unsigned int i, k, store;

	e->next_store++;
	if (sticks && !egress_store_is_gone(e, run->client[from], xfer_qp_clock()))
		return from;
	for (k = 0; k < RTE_DIM(is_good); k++) {
		for (i = 0; i < e->stores.nb; i++) {
			store = (from + i) % e->stores.nb;
			if (is_good[k](run->client[store]))
				return store;
		}
	}
	return from;
}

void
egress_assign(struct egress *e, uint32_t batch, uint64_t first)
{
	struct egress_run *run = &e->run[e->current];
	const unsigned int store = choose_store(e, run, first);

	journal_assign(e->journal, batch, e->stores.at[store].number);
	(void)store_client_offer(run->client[store], batch);
}

/*
 * Return true if a batch that `from` may have can go elsewhere: another store accepts it, or it
 * can be spilled.
 */
static bool
has_alternative(
	const struct egress *e, const struct egress_run *run, const struct store_client *from)
{
	bool any = overload_spills(&e->overload);
	unsigned int i;

	/*
	 * a batch that its store accepts at all is only reassigned to a store that accepts
	 * everything
	 */
	for (i = 0; i < e->stores.nb; i++)
		any |= store_client_takes(from) ? store_works(run->client[i])
						: store_client_takes(run->client[i]);
	return any;
}

/* Return true if a batch may be reassigned. */
static bool
may_leave(const struct egress *e, const struct journal_batch *b, uint64_t now)
{
	struct store_client *from = client_of(e, b);

	/* unassigned, or of a store that is no longer configured */
	if (from == NULL)
		return true;
	if (b->given & 1u << b->owner) {
		/*
		 * A connected store whose disk is full, or that receives batches corrupted, keeps
		 * the batch until the connection is closed.
		 */
		if (egress_store_is_gone(e, from, now) && !store_client_is_down(from) &&
			has_alternative(e, &e->run[b->run], from))
			store_client_give_up(from);
		return store_client_is_down(from) && egress_store_is_gone(e, from, now);
	}
	return e->settings.policy == EGRESS_ROUND_ROBIN ? !store_client_takes(from)
							: egress_store_is_gone(e, from, now);
}

static bool
all_stores_work(const struct egress *e)
{
	unsigned int i, k;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
			if (e->run[i].client[k] != NULL && !store_works(e->run[i].client[k]))
				return false;
		}
	}
	return true;
}

void
egress_assign_again(struct egress *e, uint64_t now)
{
	struct journal_batch b;
	unsigned int store;
	uint32_t batch, at = 0;
	bool left = false;

	/* batches of a store that was replaced by another one */
	e->unassigned |= e->changes != e->stores.changes;
	e->changes = e->stores.changes;
	if (!e->unassigned && all_stores_work(e))
		return;
	while ((batch = journal_walk(e->journal, &at)) != UINT32_MAX) {
		if (!journal_get(e->journal, batch, &b) || !e->run[b.run].used ||
			e->run[b.run].retiring || b.owner == JOURNAL_SPILL ||
			!may_leave(e, &b, now))
			continue;
		store = choose_store(e, &e->run[b.run], b.first);
		if (!store_client_takes(e->run[b.run].client[store])) {
			left |= client_of(e, &b) == NULL;
			continue;
		}
		journal_assign(e->journal, batch, e->stores.at[store].number);
		(void)store_client_offer(e->run[b.run].client[store], batch);
	}
	e->unassigned = left;
}
