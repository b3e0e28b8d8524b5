/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The runs that have batches in the journal: that of this receiver, and those of receivers that
 * were killed. A run ends when its batches are durable and its stores have been informed.
 */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "egress/adopt_spilled.h"
#include "egress/egress_private.h"
#include "log.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

/* Open the store clients of a run in the journal. @return 0 or -errno */
static int
open_clients(struct egress *e, unsigned int index)
{
	struct egress_run *run = &e->run[index];
	struct store_client_config c = {
		.dev = e->dev,
		.pd = e->pd,
		.stores = &e->stores,
		.journal = e->journal,
		.memory = &e->memory,
		.message_max = e->info.max_msg_bytes,
		.max_sge = e->info.max_sge,
		.run = index,
		.receiver_id = e->receiver_id,
		.identity = e->settings.identity,
		.key = &e->key->key,
		.key_file = e->key,
		.role = XFER_ROLE_RECEIVER,
		.commit_ms = EGRESS_COMMIT_MS,
		.failover_ms = e->settings.failover_ms,
		.result = egress_assign_result,
		.arg = e,
	};
	unsigned int i;
	int ret = 0;

	memset(run, 0, sizeof(*run));
	run->used = true;
	run->waits = true;
	run->index = index;
	for (i = 0; i < e->stores.nb && ret == 0; i++) {
		c.at = i;
		ret = store_client_open(&run->client[i], &c);
	}
	return ret;
}

int
egress_runs_begin(struct egress *e, const struct journal_run *run)
{
	const int index = journal_run_add(e->journal, run);
	int ret;

	if (index < 0)
		return index;
	ret = open_clients(e, index);
	if (ret < 0) {
		e->run[index].retiring = true;
		return ret;
	}
	e->current = index;
	return 0;
}

void
egress_runs_finish(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	run->finishing = true;
	for (i = 0; i < e->stores.nb; i++)
		store_client_finish(run->client[i]);
}

/* Return true if a store needs no END: it has it, or was never connected. */
static bool
has_ended(const struct store_client_stats *stats)
{
	return stats->state == STORE_CLIENT_ENDED || stats->connections == 0;
}

/* Count the store clients that have no work left. */
static unsigned int
count_ended(const struct egress *e, const struct egress_run *run)
{
	struct store_client_stats stats;
	unsigned int i, ended = 0;

	for (i = 0; i < e->stores.nb; i++) {
		store_client_stats_get(run->client[i], &stats);
		ended += has_ended(&stats);
	}
	return ended;
}

static bool
run_is_over(const struct egress *e, const struct egress_run *run)
{
	struct journal_run r;

	if (run->retiring)
		return true;
	/* a damaged batch may be of this run, and its ledger is not complete until it is saved */
	if (!journal_run_get(e->journal, run->index, &r) || r.references > 0 ||
		journal_is_damaged(e->journal))
		return false;
	return run->finishing && count_ended(e, run) == e->stores.nb;
}

/* Remove a run whose batches are all durable and whose stores are informed. */
static void
retire_run(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	for (i = 0; i < e->stores.nb && !run->retiring; i++)
		egress_stats_closed(e, i, run->client[i]);
	run->retiring = true;
	for (i = 0; i < e->stores.nb; i++) {
		if (run->client[i] != NULL && store_client_close(run->client[i]) == 0)
			run->client[i] = NULL;
	}
	for (i = 0; i < e->stores.nb; i++) {
		if (run->client[i] != NULL)
			return;
	}
	if (e->spill != NULL && !spill_close_run(e->spill, run->index))
		return;
	if (journal_run_drop(e->journal, run->index) == 0)
		run->used = false;
}

/*
 * Find, for each run, the stores that may have batches that were not confirmed as durable there.
 * The results are bit masks of store numbers.
 */
static void
find_doubts(const struct egress *e, uint16_t doubts[JOURNAL_RUNS])
{
	struct journal_stats stats;
	struct journal_batch b;
	uint32_t i;

	memset(doubts, 0, JOURNAL_RUNS * sizeof(doubts[0]));
	journal_stats_get(e->journal, &stats);
	if (stats.in_doubt == 0)
		return;
	for (i = journal_next(e->journal, 0); i != UINT32_MAX;
		i = journal_next(e->journal, i + 1)) {
		if (!journal_get(e->journal, i, &b) || b.held)
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
may_be_at_an_address(const struct egress *e, const struct egress_run *run)
{
	const uint64_t now = xfer_qp_clock();
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		if (!store_set_answered(&e->stores.at[i]) && store_client_is_down(run->client[i]) &&
			!egress_store_is_gone(e, run->client[i], now))
			return true;
	}
	return false;
}

/*
 * END was sent to the store that was at this address before. The store that is at this address now
 * must be informed of reassigned batches.
 */
static void
connect_again(struct egress *e, struct egress_run *run, uint16_t doubts)
{
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		const uint16_t bit = 1u << e->stores.at[i].number;

		/* only once: a store at two addresses would otherwise alternate between them */
		if ((doubts & bit) == 0 || (run->reconnected[i] & bit) != 0)
			continue;
		if (store_client_again(run->client[i]))
			run->reconnected[i] |= bit;
	}
}

static void
log_in_doubt(const struct egress *e, const struct egress_run *run, uint16_t numbers)
{
	struct journal_store store;
	struct journal_run r;
	unsigned int i;

	(void)journal_run_get(e->journal, run->index, &r);
	for (i = 0; i < JOURNAL_STORES; i++) {
		if ((numbers & 1u << i) == 0 || !journal_store_get(e->journal, i, &store))
			continue;
		LOG(WARNING,
			"run %s, incarnation %016" PRIx64 ": some of its batches may also be in "
			"store %016" PRIx64 ", last seen at %s, which is not in [egress] stores; "
			"add it until it has reconnected once, or run braggline-store reconcile "
			"--journal %s\n",
			r.name, r.incarnation, store.identity, store.address, e->settings.journal);
	}
}

/* Return true if configured stores still have work for a run. */
static bool
run_waits(const struct egress *e, const struct egress_run *run, uint16_t doubts)
{
	struct journal_run r;

	if (run->retiring || !run->finishing || !journal_run_get(e->journal, run->index, &r))
		return true;
	return r.held > 0 || doubts != not_configured(e, doubts) ||
		count_ended(e, run) < e->stores.nb || may_be_at_an_address(e, run);
}

void
egress_runs_check(struct egress *e)
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
		if (!run->waits && !run->wait_logged)
			log_in_doubt(e, run, doubts[i]);
		run->wait_logged |= !run->waits;
	}
}

bool
egress_runs_are_over(const struct egress *e)
{
	unsigned int i;

	if (journal_is_damaged(e->journal))
		return false;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (e->run[i].used && e->run[i].waits)
			return false;
	}
	return true;
}

/*
 * Log the stores that have all batches, but have not confirmed the end of a run. No data is missing
 * there: END only makes them complete the files earlier.
 */
static void
log_unconfirmed(const struct egress *e)
{
	struct store_client_stats stats;
	struct journal_run run;
	unsigned int i, k;

	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!e->run[i].used || e->run[i].retiring || !journal_run_get(e->journal, i, &run))
			continue;
		for (k = 0; k < e->stores.nb; k++) {
			store_client_stats_get(e->run[i].client[k], &stats);
			if (has_ended(&stats))
				continue;
			LOG(WARNING,
				"run %s: all batches are durable, but store %s (%s) has not "
				"confirmed the end of the run; its files stay *.part until the "
				"next receiver with this journal reports the end, or until [files] "
				"idle_s of the store has passed\n",
				run.name, e->stores.at[k].name,
				store_client_state_name(stats.state));
		}
	}
}

/* Log the stores and batches that the end of a run has waited for without success. */
static void
log_remaining(const struct egress *e)
{
	uint16_t doubts[JOURNAL_RUNS];
	struct store_client_stats stats;
	struct journal_run run;
	unsigned int i, k;

	LOG(ERR, "run ends before the stores have taken all batches; the rest stays in %s\n",
		e->settings.journal);
	if (journal_is_damaged(e->journal))
		LOG(ERR,
			"damaged batches of the journal could not be saved in %s; make room "
			"there, and the next start saves and counts them\n",
			egress_quarantine(e));
	find_doubts(e, doubts);
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!e->run[i].used || !journal_run_get(e->journal, i, &run))
			continue;
		LOG(ERR,
			"not taken by stores: run %s, incarnation %016" PRIx64 ": %u batches "
			"unacknowledged or in doubt\n",
			run.name, run.incarnation, run.references);
		for (k = 0; k < e->stores.nb && !e->run[i].retiring; k++) {
			store_client_stats_get(e->run[i].client[k], &stats);
			LOG(ERR,
				"    store %s: %s, %" PRIu64 " of %" PRIu64 " batches durable, "
				"last failure: %s\n",
				e->stores.at[k].name, store_client_state_name(stats.state),
				stats.durable, stats.sent,
				stats.failure != NULL ? stats.failure : "none");
		}
		log_in_doubt(e, &e->run[i], not_configured(e, doubts[i]));
	}
}

int
egress_runs_give_up(const struct egress *e)
{
	struct journal_stats stats;

	journal_stats_get(e->journal, &stats);
	if (stats.batches + stats.in_doubt == 0 && !journal_is_damaged(e->journal)) {
		log_unconfirmed(e);
		return 0;
	}
	log_remaining(e);
	return -ETIMEDOUT;
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
		nb += journal_run_get(e->journal, i, &run);
	for (i = 0; i < JOURNAL_RUNS && nb > JOURNAL_RUNS / 2; i++) {
		if (journal_run_get(e->journal, i, &run) && run.references == 0 &&
			journal_run_drop(e->journal, i) == 0)
			nb--;
	}
}

int
egress_runs_adopt(struct egress *e)
{
	struct journal_batch b;
	struct journal_run run;
	unsigned int i;
	uint32_t batch;
	int ret = 0;

	forget_empty_runs(e);
	for (i = 0; i < JOURNAL_RUNS; i++)
		e->previous_damaged |= journal_run_get(e->journal, i, &run) && run.spilled_lost;
	/* a removed run must have no open files */
	ret = adopt_spilled(e->journal, e->spill, &e->view.adopted_spilled);
	for (batch = journal_next(e->journal, 0); batch != UINT32_MAX;
		batch = journal_next(e->journal, batch + 1)) {
		if (!journal_get(e->journal, batch, &b))
			continue;
		e->counted[batch] = (struct egress_batch){b.rows, b.run, b.table, 0, 0};
		/* images whose rows were not put belong to lost frames */
		if (b.table == ARROW_IMAGES && b.held && b.last <= e->previous.retained_frame &&
			kept_ledger_has(&e->previous, e->journal, &b))
			e->previous_held += b.rows;
	}
	for (i = 0; i < JOURNAL_RUNS && ret == 0; i++) {
		if (!journal_run_get(e->journal, i, &run))
			continue;
		LOG(NOTICE, "run %s, incarnation %016" PRIx64 ": resending %u batches\n", run.name,
			run.incarnation, run.references);
		ret = open_clients(e, i);
		if (ret == 0)
			egress_runs_finish(e, &e->run[i]);
	}
	/* batches of stores that are no longer configured */
	e->unassigned = true;
	COUNTER_SET(e->damaged, e->previous_damaged);
	return ret;
}
