/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Runs with batches in the journal: their store clients, the assignment of batches to stores, and
 * the runs of earlier processes.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_common.h>

#include "egress/egress_private.h"
#include "xfer/msg.h"
#include "xfer/qp.h"

static void
on_result(void *arg, uint32_t batch, enum xfer_result_status status)
{
	struct egress *e = arg;
	struct store_client *sender;
	struct journal_batch b;

	if (status != XFER_RETRY) {
		egress_known(e, batch, false);
		return;
	}
	/*
	 * The store reports when it is in a good state again. Until then the batch waits there or
	 * is reassigned.
	 */
	if (!journal_get(e->ring, batch, &b))
		return;
	sender = egress_sender_of(e, &b);
	if (sender != NULL)
		(void)store_client_offer(sender, batch);
}

int
egress_open_senders(struct egress *e, unsigned int index)
{
	struct egress_run *run = &e->run[index];
	struct store_client_config c = {
		.dev = e->dev,
		.pd = e->pd,
		.stores = &e->stores,
		.journal = e->ring,
		.memory = &e->memory,
		.message_max = e->info.max_msg_bytes,
		.run = index,
		.receiver_id = e->receiver_id,
		.identity = e->settings.identity,
		.key = &e->key,
		.key_path = e->settings.key,
		.role = XFER_ROLE_RECEIVER,
		.commit_ms = EGRESS_COMMIT_MS,
		.result = on_result,
		.arg = e,
	};
	unsigned int i;
	int rc = 0;

	memset(run, 0, sizeof(*run));
	run->used = true;
	run->waits = true;
	run->index = index;
	for (i = 0; i < e->stores.nb && rc == 0; i++) {
		c.at = i;
		rc = store_client_open(&run->sender[i], &c);
	}
	return rc;
}

void
egress_finish_run(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	run->finishing = true;
	for (i = 0; i < e->stores.nb; i++)
		store_client_finish(run->sender[i]);
}

/* Count the store clients that have no work left. */
static unsigned int
count_ended(const struct egress *e, const struct egress_run *run)
{
	struct store_client_stats stats;
	unsigned int i, ended = 0;

	for (i = 0; i < e->stores.nb; i++) {
		store_client_stats_get(run->sender[i], &stats);
		/* a store that was never connected needs no END */
		ended += stats.state == STORE_CLIENT_ENDED || stats.connections == 0;
	}
	return ended;
}

static bool
run_is_over(const struct egress *e, const struct egress_run *run)
{
	struct journal_run r;

	if (run->retiring)
		return true;
	if (!journal_run_get(e->ring, run->index, &r) || r.references > 0)
		return false;
	return run->finishing && count_ended(e, run) == e->stores.nb;
}

/* Remove a run whose batches are all durable and whose stores are informed. */
static void
retire_run(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	for (i = 0; i < e->stores.nb && !run->retiring; i++)
		egress_view_retire(e, i, run->sender[i]);
	run->retiring = true;
	for (i = 0; i < e->stores.nb; i++) {
		if (run->sender[i] != NULL && store_client_close(run->sender[i]) == 0)
			run->sender[i] = NULL;
	}
	for (i = 0; i < e->stores.nb; i++) {
		if (run->sender[i] != NULL)
			return;
	}
	if (e->spill != NULL && !spill_close_run(e->spill, run->index))
		return;
	if (journal_run_drop(e->ring, run->index) == 0)
		run->used = false;
}

/*
 * Find, for each run, the stores that may have batches that were not confirmed as durable there.
 * Bit masks of store numbers.
 */
static void
find_doubts(const struct egress *e, uint16_t doubts[JOURNAL_RUNS])
{
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t i;

	memset(doubts, 0, JOURNAL_RUNS * sizeof(doubts[0]));
	journal_stats_get(e->ring, &stats);
	if (stats.in_doubt == 0)
		return;
	for (i = journal_next(e->ring, 0); i != UINT32_MAX; i = journal_next(e->ring, i + 1)) {
		if (!journal_get(e->ring, i, &b) || b.held)
			continue;
		if (b.owner < JOURNAL_STORES)
			b.given &= ~(1u << b.owner);
		doubts[b.run] |= b.given;
	}
}

/*
 * Of these stores, select those that are not at their last address, so that no connection to them
 * is made.
 */
static uint16_t
not_configured(const struct egress *e, uint16_t numbers)
{
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		if (!e->stores.at[i].wrong)
			numbers &= ~(1u << e->stores.at[i].number);
	}
	return numbers;
}

/*
 * Return true if a store without a known address may still be at one of the configured addresses.
 */
static bool
may_be_somewhere(const struct egress *e, const struct egress_run *run)
{
	const uint64_t now = xfer_qp_clock();
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		if (!store_set_answered(&e->stores.at[i]) && store_client_is_down(run->sender[i]) &&
			!egress_store_is_gone(e, run->sender[i], now))
			return true;
	}
	return false;
}

/*
 * END was sent to the store that was at this address. The store that is there now must be informed
 * of reassigned batches.
 */
static void
connect_again(struct egress *e, struct egress_run *run, uint16_t doubts)
{
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		const uint16_t bit = 1u << e->stores.at[i].number;

		/* only once: a store at two addresses would otherwise alternate between them */
		if ((doubts & bit) == 0 || (run->again[i] & bit) != 0)
			continue;
		if (store_client_again(run->sender[i]))
			run->again[i] |= bit;
	}
}

static void
say_doubts(const struct egress *e, const struct egress_run *run, uint16_t numbers)
{
	struct journal_store store;
	struct journal_run r;
	unsigned int i;

	(void)journal_run_get(e->ring, run->index, &r);
	for (i = 0; i < JOURNAL_STORES; i++) {
		if ((numbers & 1u << i) == 0 || !journal_store_get(e->ring, i, &store))
			continue;
		LOG(WARNING,
			"run %s, incarnation %016" PRIx64 ": some of its batches may also be in "
			"store %016" PRIx64 ", last seen at %s, which is not in [egress] stores; "
			"add it until it has reconnected once, or run braggline-store reconcile "
			"--journal %s\n",
			r.name, r.incarnation, store.identity, store.address, e->settings.ring);
	}
}

/* Return true if configured stores still have work for a run. */
static bool
run_waits(const struct egress *e, const struct egress_run *run, uint16_t doubts)
{
	struct journal_run r;

	if (run->retiring || !run->finishing || !journal_run_get(e->ring, run->index, &r))
		return true;
	return r.held > 0 || doubts != not_configured(e, doubts) ||
		count_ended(e, run) < e->stores.nb || may_be_somewhere(e, run);
}

void
egress_check_runs(struct egress *e)
{
	uint16_t doubts[JOURNAL_RUNS];
	struct egress_run *run;
	unsigned int i;

	find_doubts(e, doubts);
	for (i = 0; i < JOURNAL_RUNS; i++) {
		run = &e->run[i];
		if (!run->used)
			continue;
		if (run_is_over(e, run)) {
			retire_run(e, run);
			continue;
		}
		if (!run->retiring)
			connect_again(e, run, doubts[i]);
		run->waits = run_waits(e, run, doubts[i]);
		if (!run->waits && !run->told)
			say_doubts(e, run, doubts[i]);
		run->told |= !run->waits;
	}
}

bool
egress_all_is_over(const struct egress *e)
{
	unsigned int i;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (e->run[i].used && e->run[i].waits)
			return false;
	}
	return true;
}

void
egress_say_what_is_left(const struct egress *e)
{
	uint16_t doubts[JOURNAL_RUNS];
	struct store_client_stats stats;
	struct journal_run run;
	unsigned int i, k;

	find_doubts(e, doubts);
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!e->run[i].used || !journal_run_get(e->ring, i, &run))
			continue;
		LOG(ERR,
			"not taken by stores: run %s, incarnation %016" PRIx64 ": %u batches "
			"unacknowledged or in doubt\n",
			run.name, run.incarnation, run.references);
		for (k = 0; k < e->stores.nb && !e->run[i].retiring; k++) {
			store_client_stats_get(e->run[i].sender[k], &stats);
			LOG(ERR,
				"    store %s: %s, %" PRIu64 " of %" PRIu64 " batches durable, "
				"last refusal: %s\n",
				e->stores.at[k].name, store_client_state_name(stats.state),
				stats.durable, stats.sent, xfer_reason_name(stats.reason));
		}
		say_doubts(e, &e->run[i], not_configured(e, doubts[i]));
	}
}

/*
 * For a run without held batches, the stores only miss END, without which they complete its files
 * after a timeout. Remove such runs, so that a receiver that restarts repeatedly does not fill the
 * journal.
 */
static void
forget_empty_runs(struct egress *e)
{
	struct journal_run run;
	unsigned int i, nb = 0;

	for (i = 0; i < JOURNAL_RUNS; i++)
		nb += journal_run_get(e->ring, i, &run);
	for (i = 0; i < JOURNAL_RUNS && nb > JOURNAL_RUNS / 2; i++) {
		if (journal_run_get(e->ring, i, &run) && run.references == 0 &&
			journal_run_drop(e->ring, i) == 0)
			nb--;
	}
}

/* Return true if a batch belongs to the run in which a process died. */
static bool
is_of_dead(const struct egress *e, const struct journal_batch *b)
{
	struct journal_run run;

	return journal_run_get(e->ring, b->run, &run) && run.incarnation == e->before.incarnation;
}

/* The process may have been killed after it had put a batch of rows and before it recorded this. */
static void
settle_rows(struct egress *e)
{
	struct ledger_kept *k = &e->before;
	struct journal_batch b;
	uint32_t i;

	if (k->version != LEDGER_KEPT_VERSION)
		return;
	for (i = journal_next(e->ring, 0); i != UINT32_MAX; i = journal_next(e->ring, i + 1)) {
		if (!journal_get(e->ring, i, &b) || b.table != ARROW_FRAMES ||
			b.sequence != k->next_sequence || !is_of_dead(e, &b))
			continue;
		memcpy(k->retained, k->next, sizeof(k->retained));
		k->retained_frame = k->next_frame;
		k->next_sequence = LEDGER_NONE;
	}
}

int
egress_adopt_runs(struct egress *e)
{
	struct journal_batch b;
	struct journal_run run;
	unsigned int i;
	uint32_t batch;
	int rc = 0;

	forget_empty_runs(e);
	settle_rows(e);
	/* a removed run must have no open files */
	rc = egress_adopt_spilled(e);
	for (batch = journal_next(e->ring, 0); batch != UINT32_MAX;
		batch = journal_next(e->ring, batch + 1)) {
		if (!journal_get(e->ring, batch, &b))
			continue;
		e->known[batch] = (struct known){b.rows, b.run, b.table, 0, 0};
		/* images whose rows were not put belong to lost frames */
		if (b.table == ARROW_IMAGES && b.held && b.last <= e->before.retained_frame &&
			is_of_dead(e, &b))
			e->before_held += b.rows;
	}
	for (i = 0; i < JOURNAL_RUNS && rc == 0; i++) {
		if (!journal_run_get(e->ring, i, &run))
			continue;
		LOG(NOTICE, "run %s, incarnation %016" PRIx64 ": resending %u batches\n", run.name,
			run.incarnation, run.references);
		rc = egress_open_senders(e, i);
		if (rc == 0)
			egress_finish_run(e, &e->run[i]);
	}
	/* batches of stores that are no longer configured */
	e->unassigned = true;
	return rc;
}

bool
egress_store_is_gone(const struct egress *e, const struct store_client *sender, uint64_t now)
{
	const uint64_t since = store_client_idle_since(sender);

	/* the clock may have advanced in this iteration */
	return since != 0 && now >= since + e->settings.failover_ms;
}

/* Return the store that gets a batch as long as it is available. */
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
	if (sticks && !egress_store_is_gone(e, run->sender[from], xfer_qp_clock()))
		return from;
	for (i = 0; i < e->stores.nb; i++) {
		store = (from + i) % e->stores.nb;
		if (store_client_takes(run->sender[store]))
			return store;
	}
	/* prefer a store that is connecting to one that is unreachable */
	for (i = 0; i < e->stores.nb; i++) {
		store = (from + i) % e->stores.nb;
		if (!store_client_is_down(run->sender[store]))
			return store;
	}
	return from;
}

struct store_client *
egress_sender_of(const struct egress *e, const struct journal_batch *b)
{
	const int at = store_set_at(&e->stores, b->owner);

	return at >= 0 ? e->run[b->run].sender[at] : NULL;
}

/*
 * Return true if a batch that a store may have can go elsewhere: another store accepts it, or it
 * can be spilled.
 */
static bool
has_elsewhere(const struct egress *e, const struct egress_run *run)
{
	bool any = e->spill != NULL && e->overload.step != EGRESS_HOLD;
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++)
		any |= store_client_takes(run->sender[i]);
	return any;
}

/* Return true if a batch may be reassigned. */
static bool
may_leave(const struct egress *e, const struct journal_batch *b, uint64_t now)
{
	struct store_client *from = egress_sender_of(e, b);

	/* unassigned, or of a store that is no longer configured */
	if (from == NULL)
		return true;
	if (b->given & 1u << b->owner) {
		/*
		 * A connected store that accepts nothing because its disk is full keeps the batch
		 * until the connection is closed.
		 */
		if (egress_store_is_gone(e, from, now) && !store_client_is_down(from) &&
			has_elsewhere(e, &e->run[b->run]))
			store_client_give_up(from);
		return store_client_is_down(from) && egress_store_is_gone(e, from, now);
	}
	return e->settings.policy == EGRESS_ROUND_ROBIN ? !store_client_takes(from)
							: egress_store_is_gone(e, from, now);
}

static bool
all_take(const struct egress *e)
{
	unsigned int i, k;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
			if (e->run[i].sender[k] != NULL && !store_client_takes(e->run[i].sender[k]))
				return false;
		}
	}
	return true;
}

void
egress_move(struct egress *e, uint64_t now)
{
	struct journal_batch b;
	unsigned int store;
	uint32_t batch, at = 0;
	bool left = false;

	/* batches of a store that was replaced by another one */
	e->unassigned |= e->changes != e->stores.changes;
	e->changes = e->stores.changes;
	if (!e->unassigned && all_take(e))
		return;
	while ((batch = journal_walk(e->ring, &at)) != UINT32_MAX) {
		if (!journal_get(e->ring, batch, &b) || !e->run[b.run].used ||
			e->run[b.run].retiring || b.owner == JOURNAL_SPILL ||
			!may_leave(e, &b, now))
			continue;
		store = egress_choose(e, &e->run[b.run], b.first);
		if (!store_client_takes(e->run[b.run].sender[store])) {
			left |= egress_sender_of(e, &b) == NULL;
			continue;
		}
		journal_assign(e->ring, batch, e->stores.at[store].number);
		(void)store_client_offer(e->run[b.run].sender[store], batch);
	}
	e->unassigned = left;
}
