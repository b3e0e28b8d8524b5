/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The egress, in the order of use: runs and the stores of their batches, the state for telemetry,
 * the work of the lcore, the calls of other threads, creation. The lcore writes the state for
 * telemetry, so that no other thread accesses the store clients.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>
#include <rte_seqcount.h>

#include "arrow/batch.h"
#include "counter.h"
#include "egress/adopt_spilled.h"
#include "egress/damaged_batches.h"
#include "egress/egress.h"
#include "egress/file_thread.h"
#include "egress/key_file.h"
#include "egress/kept_ledger.h"
#include "egress/overload.h"
#include "egress/room.h"
#include "egress/spill.h"
#include "egress/store_client.h"
#include "fail_point.h"
#include "ledger.h"
#include "log.h"
#include "mailbox.h"
#include "rdma/rdma.h"
#include "xfer/auth_key.h"
#include "xfer/msg.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

/* Command from the calling thread to the lcore, in its mailbox. */
struct command {
	enum {
		COMMAND_BEGIN,
		COMMAND_END,
		COMMAND_IS_OVER,
		COMMAND_GIVE_UP,
	} order;
	const struct journal_run *run;	  /* BEGIN */
	const struct egress_begin *begin; /* BEGIN */
	uint64_t batches[XFER_TABLES];	  /* END */
};

/* A filled room that the writer hands over to the lcore. */
struct filled {
	struct journal_batch batch;
	uint64_t tally[LEDGER_COLUMNS]; /* counts of its rows, and of those refused before them */
};
#define FILLED	    64 /* batches that the writer can hand over while the lcore does other work */
#define FILLED_SIZE sizeof(struct filled)
static_assert(FILLED_SIZE % sizeof(uint32_t) == 0, "element of an rte_ring");

/* Data that is counted when a batch is durable and released. */
struct batch_count {
	uint32_t rows;
	uint8_t run; /* index of the run */
	uint8_t table;
	uint64_t kept_at; /* TSC; 0: kept by another process */
	int64_t received;
};

/* A run with batches in the journal. */
struct egress_run {
	bool used;
	bool finishing;
	bool retiring;	    /* its store clients are being closed */
	unsigned int index; /* index in the journal */
	/* waits for configured stores; false: nothing more can be done for now */
	bool waits;
	bool wait_logged; /* it was logged that the run waits for other stores */
	/* masks of store numbers for which this store client has reconnected */
	uint16_t reconnected[STORE_SET];
	struct store_client *client[STORE_SET];
};

/* What the writer counts of a table: see struct egress_stats. */
struct put_counters {
	uint64_t put, put_rows, bytes;
	uint64_t refused, refused_rows;
	uint64_t oversize, oversize_rows;
};

/* What the lcore counts of a table: see struct egress_stats. */
struct outcome_counters {
	uint64_t durable, rows;
	uint64_t spilled, spilled_rows;
	uint64_t damaged, damaged_rows;
	struct histogram latency;
};

struct egress {
	struct egress_settings settings;
	uint64_t receiver_id;
	struct key_file *key;
	struct file_thread save; /* of the damaged batches in the list */
	bool saves;		 /* it has no result yet that was taken */
	struct damaged_list damaged_list;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct xfer_mr memory; /* the journal */
	struct journal *journal;
	struct store_set stores;
	unsigned int changes; /* changes of `stores` that have been processed */
	struct egress_run run[JOURNAL_RUNS];
	int current; /* index of the current run; -1: none */
	unsigned int next_store;
	struct batch_count *counted; /* indexed by batch */
	struct spill *spill;	     /* NULL: none */
	struct ledger_kept previous; /* of a process that died; version 0: none */
	/* images of that process in the journal at the time of opening */
	uint64_t previous_held;
	struct kept_ledger kept;
	struct overload overload;
	bool unassigned; /* a batch may be without an assigned store */
	int64_t (*clock)(void *arg);
	void *clock_arg;
	rte_seqcount_t view_count;
	struct egress_view view; /* changes under `view_count` only, once there are readers */
	uint64_t damaged_frames; /* for the view */
	bool damaged;		 /* atomic: egress_was_damaged() */
	bool previous_damaged;	 /* it was when the egress was created */
	struct egress_store past[STORE_SET];  /* counters of closed store clients */
	struct egress_store rated[STORE_SET]; /* values at the last computation of rates */
	uint64_t rated_at;		      /* ms */
	struct histogram latency;
	uint64_t iterations;
	uint64_t next_check;
	uint64_t remove_at;   /* ms: next attempt to save damaged batches */
	uint64_t lost_doubts; /* atomic: see egress_lost_doubts() */
	uint64_t corrected;   /* records of the journal that were wrong and corrected, logged */
	uint64_t cm_at;
	bool lcore_polls;   /* atomic */
	bool polling_ended; /* atomic: the lcore does not poll any more */
	bool ending;	    /* atomic: egress_end() waits */
	bool lost_device;   /* atomic: it was removed or has failed */
	struct mailbox mailbox;
	struct command command;
	struct outcome_counters outcome[XFER_TABLES];
	/* The writer enqueues, the lcore dequeues. Elements are struct filled. */
	struct rte_ring *filled;
	/* The members from here on belong to the writer. The lcore polls those above: they must be
	 * on other cache lines. */
	uint8_t *room __rte_cache_aligned; /* the open one; NULL: none */
	enum arrow_table room_table;
	uint64_t body_max[XFER_TABLES];
	uint32_t modules;		/* modules of a row */
	uint64_t tally[LEDGER_COLUMNS]; /* counts of rows refused since the last batch */
	struct put_counters put[XFER_TABLES];
};

static const char *
quarantine_directory(const struct egress *e)
{
	return e->settings.directory != NULL ? e->settings.directory : ".";
}

static void
note_doubts(struct egress *e, const struct damaged_batches *damaged)
{
	__atomic_fetch_add(&e->lost_doubts, damaged->doubts, __ATOMIC_RELAXED);
}

/* ---- counters ---- */

/* On the lcore: count a batch that is durable and already released. */
static void
egress_count_released(struct egress *e, uint32_t batch, bool spilled)
{
	const struct batch_count *k = &e->counted[batch];
	struct outcome_counters *s = &e->outcome[k->table];
	int64_t now;

	if (k->kept_at != 0)
		histogram_count(&e->latency, (rte_rdtsc() - k->kept_at) * 1e6 / rte_get_tsc_hz());
	/* adopted batches belong to another run */
	if (k->run != e->current || k->kept_at == 0)
		return;
	if (spilled) {
		counter_add(&s->spilled, 1);
		counter_add(&s->spilled_rows, k->rows);
		return;
	}
	counter_add(&s->durable, 1);
	counter_add(&s->rows, k->rows);
	if (e->clock == NULL || k->received == 0)
		return;
	now = e->clock(e->clock_arg);
	histogram_count(&s->latency, now > k->received ? (now - k->received) / 1000 : 0);
}

static void
add_store_stats(struct egress_store *to, const struct store_client_stats *s)
{
	to->connections += s->connections;
	to->broken += s->broken;
	to->refused += s->refused;
	to->unreachable += s->unreachable;
	to->malformed += s->malformed;
	to->late += s->late;
	to->stuck += s->stuck;
	to->sent += s->sent;
	to->bytes += s->bytes;
	to->durable += s->durable;
	to->found += s->found;
	to->duplicates += s->duplicates;
	to->returned += s->returned;
	to->wrong_crc += s->wrong_crc;
	to->corrupted += s->corrupted;
	to->sent_damaged += s->sent_damaged;
}

/* Keep the counters of a store client that is closed. */
static void
egress_view_retire(struct egress *e, unsigned int store, const struct store_client *client)
{
	struct store_client_stats stats;

	store_client_stats_get(client, &stats);
	add_store_stats(&e->past[store], &stats);
}

/* Return true if a store accepts all batches. */
static bool
egress_store_works(const struct store_client *client)
{
	return store_client_takes(client) && store_client_idle_since(client) == 0;
}

/*
 * Return true if a store has not accepted batches for so long that they should be reassigned.
 */
static bool
egress_store_is_gone(const struct egress *e, const struct store_client *client, uint64_t now)
{
	const uint64_t since = store_client_idle_since(client);

	/* the clock may have advanced in this iteration */
	return since != 0 && now >= since + e->settings.failover_ms;
}

/* Return the store client of a batch's store; NULL: the store is not configured. */
static struct store_client *
egress_client_of(const struct egress *e, const struct journal_batch *b)
{
	const int at = store_set_at(&e->stores, b->owner);

	return at >= 0 ? e->run[b->run].client[at] : NULL;
}

/* ---- runs with batches in the journal, and the stores of their batches ---- */

/*
 * Return true if a batch may be spilled. A batch that a store has, or may have while it is
 * connected, stays with that store.
 */
static bool
may_spill(void *arg, const struct journal_batch *b)
{
	const struct egress *e = arg;
	const struct store_client *client = egress_client_of(e, b);

	if (b->owner == JOURNAL_SPILL || !e->run[b->run].used || e->run[b->run].retiring)
		return false;
	return client == NULL || (b->given & 1u << b->owner) == 0 || store_client_is_down(client);
}

/* A batch was spilled. */
static void
on_spilled(void *arg, uint32_t batch)
{
	egress_count_released(arg, batch, true);
}

/* A batch that was to be spilled has no owner again. */
static void
on_returned(void *arg)
{
	struct egress *e = arg;

	e->unassigned = true;
}

static void
on_result(void *arg, uint32_t batch, enum xfer_result_status status)
{
	struct egress *e = arg;
	struct store_client *client;
	struct journal_batch b;

	if (status != XFER_RETRY) {
		egress_count_released(e, batch, false);
		return;
	}
	/*
	 * The store reports when it is in a good state again. Until then the batch waits there or
	 * is reassigned.
	 */
	if (!journal_get(e->journal, batch, &b))
		return;
	client = egress_client_of(e, &b);
	if (client != NULL)
		(void)store_client_offer(client, batch);
}

/* Open the store clients of a run in the journal. @return 0 or -errno */
static int
egress_open_clients(struct egress *e, unsigned int index)
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
		.result = on_result,
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

/* End a run: no more batches follow. */
static void
egress_finish_run(struct egress *e, struct egress_run *run)
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
		egress_view_retire(e, i, run->client[i]);
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

/*
 * Remove runs that are over. Runs that wait for stores that are no longer configured stay in the
 * journal, and the egress does not wait for them.
 */
static void
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
		if (!run->waits && !run->wait_logged)
			log_in_doubt(e, run, doubts[i]);
		run->wait_logged |= !run->waits;
	}
}

/*
 * Return true if there is nothing to wait for, adopted runs included. After an orderly end, no
 * configured store lacks data or information that it should have, and damaged batches are saved.
 */
static bool
egress_all_is_over(const struct egress *e)
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
			quarantine_directory(e));
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

/* The wait for the stores is over. @return as egress_end() */
static int
give_up_waiting(const struct egress *e)
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

/*
 * Adopt runs of a receiver that was killed: send their batches, then end them. @return 0; -errno
 */
static int
egress_adopt_runs(struct egress *e)
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
		e->counted[batch] = (struct batch_count){b.rows, b.run, b.table, 0, 0};
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
		ret = egress_open_clients(e, i);
		if (ret == 0)
			egress_finish_run(e, &e->run[i]);
	}
	/* batches of stores that are no longer configured */
	e->unassigned = true;
	COUNTER_SET(e->damaged, e->previous_damaged);
	return ret;
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
egress_choose(struct egress *e, const struct egress_run *run, uint64_t first)
{
	/* from the best: accepts everything, all but some batches, nothing at the moment */
	static bool (*const is_good[])(const struct store_client *) = {
		egress_store_works, store_client_takes, is_connected};
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
		any |= store_client_takes(from) ? egress_store_works(run->client[i])
						: store_client_takes(run->client[i]);
	return any;
}

/* Return true if a batch may be reassigned. */
static bool
may_leave(const struct egress *e, const struct journal_batch *b, uint64_t now)
{
	struct store_client *from = egress_client_of(e, b);

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
			if (e->run[i].client[k] != NULL && !egress_store_works(e->run[i].client[k]))
				return false;
		}
	}
	return true;
}

/* Reassign batches of stores that are not connected. */
static void
egress_move(struct egress *e, uint64_t now)
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
		store = egress_choose(e, &e->run[b.run], b.first);
		if (!store_client_takes(e->run[b.run].client[store])) {
			left |= egress_client_of(e, &b) == NULL;
			continue;
		}
		journal_assign(e->journal, batch, e->stores.at[store].number);
		(void)store_client_offer(e->run[b.run].client[store], batch);
	}
	e->unassigned = left;
}
/* ---- state for telemetry ---- */

#define RATE_MS 1000

static void
view_store(struct egress *e, unsigned int k, struct egress_store *to)
{
	struct store_client_stats stats;
	unsigned int i;

	*to = e->past[k];
	to->name = e->stores.at[k].name;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!e->run[i].used || e->run[i].client[k] == NULL)
			continue;
		store_client_stats_get(e->run[i].client[k], &stats);
		add_store_stats(to, &stats);
		if ((int)i == e->current || to->now.state == STORE_CLIENT_DOWN)
			to->now = stats;
	}
}

/* Update the rates of the last second. */
static void
make_rates(struct egress *e, struct egress_view *v)
{
	const uint64_t now = xfer_qp_clock(), ms = now - e->rated_at;
	struct egress_store *old, *s;
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		s = &v->store[i];
		old = &e->rated[i];
		if (ms >= RATE_MS) {
			s->bytes_per_s = (s->bytes - old->bytes) * 1000 / ms;
			s->durable_per_s = (s->durable - old->durable) * 1000 / ms;
			*old = *s;
		} else {
			s->bytes_per_s = old->bytes_per_s;
			s->durable_per_s = old->durable_per_s;
		}
	}
	if (ms >= RATE_MS)
		e->rated_at = now;
}

/* Update the state for telemetry. */
static void
egress_view_update(struct egress *e)
{
	struct egress_view *v = &e->view;
	struct spill_stats spill = {0};
	unsigned int i;

	if (e->spill != NULL)
		spill_stats_get(e->spill, &spill);
	rte_seqcount_write_begin(&e->view_count);
	v->nb_stores = e->stores.nb;
	v->runs = 0;
	for (i = 0; i < JOURNAL_RUNS; i++)
		v->runs += e->run[i].used;
	v->step = e->overload.level;
	memcpy(v->steps, e->overload.entered, sizeof(v->steps));
	v->damaged_frames = e->damaged_frames;
	v->spilled = overload_spilled(&e->overload);
	v->spill_error = -spill.error;
	v->spill_used = spill.used;
	v->latency = e->latency;
	journal_stats_get(e->journal, &v->journal);
	for (i = 0; i < e->stores.nb; i++)
		view_store(e, i, &v->store[i]);
	make_rates(e, v);
	rte_seqcount_write_end(&e->view_count);
}

void
egress_view_get(struct egress *e, struct egress_view *view)
{
	uint32_t count;

	do {
		count = rte_seqcount_read_begin(&e->view_count);
		*view = e->view;
	} while (rte_seqcount_read_retry(&e->view_count, count));
}

/* ---- work of the lcore ---- */

#define CM_ITERATIONS 64
#define MOVE_MS	      100 /* interval of the check for stores that do not return */
#define EVENTS	      8
#define REMOVE_MS     1000 /* interval of attempts to save damaged batches */

static int
do_begin(struct egress *e, const struct command *c)
{
	unsigned int i;
	int index, ret;

	index = journal_run_add(e->journal, c->run);
	if (index < 0)
		return index;
	ret = egress_open_clients(e, index);
	if (ret < 0) {
		e->run[index].retiring = true;
		return ret;
	}
	/*
	 * Up to here, batches that the run before has left in the journal are counted for it. The
	 * writer has not begun.
	 */
	e->current = index;
	memset(e->outcome, 0, sizeof(e->outcome));
	memset(e->put, 0, sizeof(e->put));
	memset(e->tally, 0, sizeof(e->tally));
	for (i = 0; i < ARROW_TABLES; i++)
		e->body_max[i] = c->begin->body_max[i];
	e->modules = c->begin->tables->schema[ARROW_FRAMES].fields[FRAMES_MISSING].list_size;
	e->room = NULL;
	e->clock = c->begin->clock;
	e->clock_arg = c->begin->clock_arg;
	kept_ledger_begin(&e->kept, c->run->incarnation);
	return 0;
}

static void
do_commit(struct egress *e, struct filled *f)
{
	struct egress_run *run = &e->run[e->current];
	unsigned int store;
	uint32_t batch;

	f->batch.run = e->current;
	if (f->batch.table == ARROW_FRAMES)
		kept_ledger_announce(&e->kept, &f->batch, f->tally);
	batch = journal_commit(e->journal, &f->batch);
	e->counted[batch] = (struct batch_count){
		f->batch.rows, e->current, f->batch.table, rte_rdtsc(), f->batch.received};
	FAIL_POINT("recv.kept");
	/* from here on, a receiver that adopts the journal counts these rows */
	if (f->batch.table == ARROW_FRAMES)
		kept_ledger_commit(&e->kept);
	store = egress_choose(e, run, f->batch.first);
	journal_assign(e->journal, batch, e->stores.at[store].number);
	(void)store_client_offer(run->client[store], batch);
}

/* Commit the batches that the writer has handed over. */
static bool
commit_filled(struct egress *e)
{
	/* first: all batches filled before that are in the ring */
	const uint64_t skipped = journal_skipped(e->journal);
	struct filled filled;
	bool any = false;

	while (rte_ring_sc_dequeue_elem(e->filled, &filled, FILLED_SIZE) == 0) {
		do_commit(e, &filled);
		any = true;
	}
	journal_skip(e->journal, skipped);
	return any;
}

/* Execute the command in the mailbox. @return its result */
static int
do_command(struct egress *e)
{
	const struct command *c = &e->command;

	switch (c->order) {
	case COMMAND_BEGIN:
		return do_begin(e, c);
	case COMMAND_END:
		journal_run_end(e->journal, e->current, c->batches);
		egress_finish_run(e, &e->run[e->current]);
		return 0;
	case COMMAND_IS_OVER:
		return egress_all_is_over(e);
	case COMMAND_GIVE_UP:
		return give_up_waiting(e);
	}
	return -EINVAL;
}

/* Log records that were corrected since the last time. */
static void
log_corrected(struct egress *e)
{
	struct journal_stats stats;

	journal_stats_get(e->journal, &stats);
	if (stats.corrected == e->corrected)
		return;
	LOG(WARNING,
		"journal %s: %" PRIu64
		" records of batches had changed and were written again; check the memory of this "
		"machine\n",
		e->settings.journal, stats.corrected - e->corrected);
	e->corrected = stats.corrected;
}

/* The thread `save`: save the damaged batches. */
static int
save_damaged(void *arg)
{
	const struct egress *e = arg;

	return damaged_batches_save(&e->damaged_list, quarantine_directory(e));
}

/* The damaged batches in the list are saved: remove them from the journal. */
static void
drop_damaged(struct egress *e)
{
	struct damaged_batches damaged;
	struct outcome_counters *s;
	unsigned int i;

	damaged_batches_drop(e->journal, &e->damaged_list, &e->kept.saved, &damaged);
	e->remove_at = 0;
	note_doubts(e, &damaged);
	COUNTER_SET(e->damaged, true);
	e->damaged_frames += damaged.frames;
	for (i = 0; i < XFER_TABLES; i++) {
		s = &e->outcome[i];
		counter_add(&s->damaged, damaged.nb[i]);
		counter_add(&s->damaged_rows, damaged.rows[i]);
	}
}

/*
 * Remove batches that were found damaged from the journal: a thread saves them, which may take
 * long, and then they are dropped. Until then, the journal grants no space.
 */
static void
remove_damaged(struct egress *e, uint64_t now)
{
	int ret;

	if (e->saves) {
		ret = file_thread_result(&e->save);
		if (ret == -EINPROGRESS)
			return;
		if (ret == 0)
			drop_damaged(e);
		damaged_batches_forget(&e->damaged_list);
		e->saves = false;
		return;
	}
	if (now < e->remove_at)
		return;
	e->remove_at = now + REMOVE_MS;
	if (damaged_batches_list(&e->damaged_list, e->journal) < 0)
		return;
	e->saves = true;
	file_thread_begin(&e->save);
}

/*
 * Run one iteration: on the lcore, or in the calling thread while no lcore polls. @return non-zero
 * if any work was done
 */
static int
egress_iterate(struct egress *e)
{
	const uint64_t now = xfer_qp_clock();
	struct rdma_event event[EVENTS];
	unsigned int i, k, n, pg;
	bool busy, command;

	/* a command follows the batches that were handed over before it */
	command = mailbox_take(&e->mailbox);
	busy = commit_filled(e);
	if (command)
		mailbox_answer(&e->mailbox, do_command(e));
	for (pg = 0; pg < e->info.nb_poll_groups; pg++)
		busy |= rdma_progress(e->dev, pg) > 0;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
			if (e->run[i].client[k] != NULL)
				busy |= store_client_poll(e->run[i].client[k]);
		}
	}
	/* an lcore that yields its CPU has few iterations */
	busy |= overload_poll(&e->overload, now);
	if (unlikely(journal_is_damaged(e->journal)))
		remove_damaged(e, now);
	if (e->iterations++ % CM_ITERATIONS != 0 && now == e->cm_at)
		return busy;
	e->cm_at = now;
	n = rdma_poll_cm(e->dev, event, EVENTS);
	for (i = 0; i < n; i++) {
		if (event[i].type == RDMA_EVENT_DEVICE_REMOVED)
			__atomic_store_n(&e->lost_device, true, __ATOMIC_RELAXED);
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			store_client_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	if (now < e->next_check)
		return busy || n > 0;
	e->next_check = now + MOVE_MS;
	egress_move(e, now);
	egress_check_runs(e);
	log_corrected(e);
	if (kept_ledger_is_new(&e->kept))
		kept_ledger_save(&e->kept);
	egress_view_update(e);
	return busy || n > 0;
}

int
egress_poll(void *arg)
{
	struct egress *e = arg;

	if (!__atomic_load_n(&e->lcore_polls, __ATOMIC_RELAXED))
		__atomic_store_n(&e->lcore_polls, true, __ATOMIC_RELEASE);
	return egress_iterate(e);
}

/* ---- calls of other threads ---- */

#define SLEEP_US 50 /* sleep while waiting for a command */
/* a run does not begin if the lcore has not taken the command for this time */
#define COMMAND_TIMEOUT_MS 5000
#define RING_TIMEOUT_MS	   5000
#define LOG_WAIT_MS	   1000 /* log a wait for stores that takes longer */
#define WAIT_US		   1000 /* before a repeated command, or another search for room */
/* Part of the journal that a room for the largest batch may take; it may not need all of it. */
#define ROOM_PART 4

/*
 * Return true if the calling thread does the work of the egress lcore: it is the main lcore, before
 * the lcores start or after they have ended. Other threads may not use the RDMA device.
 */
static bool
polls_itself(const struct egress *e)
{
	return rte_lcore_id() != LCORE_ID_ANY &&
		!__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE);
}

/* Do the work of the egress lcore once, or sleep while that lcore does it. */
static void
poll_or_sleep(struct egress *e, unsigned int us)
{
	const struct timespec pause = {.tv_nsec = us * 1000};

	if (polls_itself(e))
		(void)egress_iterate(e);
	else
		nanosleep(&pause, NULL);
}

void
egress_wait(struct egress *e)
{
	poll_or_sleep(e, WAIT_US);
}

/*
 * Send a command to the lcore, and wait for its result. Only COMMAND_BEGIN has a time limit: a run
 * whose COMMAND_END is not executed would never be over. The watchdog ends a process whose lcore
 * no longer polls.
 * @return -ETIMEDOUT: COMMAND_BEGIN was not taken in time, and is not executed later
 */
static int
run_command(struct egress *e, const struct command *command)
{
	const uint64_t until =
		command->order == COMMAND_BEGIN ? xfer_qp_clock() + COMMAND_TIMEOUT_MS : UINT64_MAX;
	int ret;

	e->command = *command;
	mailbox_post(&e->mailbox);
	while ((ret = mailbox_result(&e->mailbox)) == -EINPROGRESS) {
		/* false: the lcore is already executing the command */
		if (xfer_qp_clock() >= until && mailbox_cancel(&e->mailbox))
			return -ETIMEDOUT;
		poll_or_sleep(e, SLEEP_US);
	}
	return ret;
}

int
egress_begin(struct egress *e, const struct egress_begin *begin, char message[PATH_MAX])
{
	struct journal_run run = {.run = begin->run, .incarnation = begin->incarnation};
	uint8_t *header[ARROW_TABLES] = {NULL};
	unsigned int i;
	size_t size;
	int ret = 0;

	snprintf(run.name, sizeof(run.name), "%s", begin->name);
	for (i = 0; i < ARROW_TABLES && ret == 0; i++) {
		ret = arrow_header_build(&begin->tables->schema[i], &header[i], &size);
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
		run.body_max[i] = begin->body_max[i];
	}
	if (ret == 0)
		ret = run_command(
			e, &(struct command){.order = COMMAND_BEGIN, .run = &run, .begin = begin});
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (ret == -ENOSPC)
		snprintf(message, PATH_MAX,
			"the journal has unacknowledged batches of %u runs, its limit; a new run "
			"begins when the stores have taken those of one of them",
			JOURNAL_RUNS);
	else if (ret == -ETIMEDOUT)
		snprintf(message, PATH_MAX,
			"cannot add the run to the journal: the egress lcore has not polled for "
			"%u ms",
			COMMAND_TIMEOUT_MS);
	else if (ret < 0)
		snprintf(
			message, PATH_MAX, "cannot add the run to the journal: %s", strerror(-ret));
	return ret;
}

uint8_t *
egress_room(struct egress *e, enum arrow_table table, uint64_t size)
{
	const uint64_t most = e->body_max[table];
	struct journal_stats stats;

	journal_stats_get(e->journal, &stats);
	if (size > most || most > stats.room / ROOM_PART)
		return NULL;
	e->room_table = table;
	e->room = room_open(e->journal, most);
	return e->room != NULL ? room_rows(e->room) : NULL;
}

/* Reserve room in the journal, and wait for it if necessary. */
static uint8_t *
wait_for_room(struct egress *e, uint64_t body)
{
	uint64_t until = xfer_qp_clock() + e->settings.hold_ms, spilled = 0, now;
	uint8_t *room;

	while ((room = journal_reserve(e->journal, body)) == NULL) {
		overload_note_room(&e->overload, false);
		now = xfer_qp_clock();
		/* spilling makes progress */
		if (spilled != overload_spilled(&e->overload)) {
			spilled = overload_spilled(&e->overload);
			until = now + e->settings.hold_ms;
		}
		if (now >= until)
			return NULL;
		poll_or_sleep(e, WAIT_US);
	}
	overload_note_room(&e->overload, true);
	return room;
}

/*
 * Wait until the ring has room for another batch. It then keeps this room, because only this thread
 * enqueues. A full ring says nothing about the journal, so hold_ms does not limit this wait. The
 * limit only lets a process end whose lcore no longer polls.
 * @return false: the lcore has not taken a batch for RING_TIMEOUT_MS
 */
static bool
wait_for_ring(struct egress *e)
{
	const uint64_t until = xfer_qp_clock() + RING_TIMEOUT_MS;

	while (rte_ring_full(e->filled)) {
		if (xfer_qp_clock() >= until) {
			LOG(ERR, "the egress lcore has not polled for %u s; a batch is refused\n",
				RING_TIMEOUT_MS / 1000);
			return false;
		}
		poll_or_sleep(e, WAIT_US);
	}
	return true;
}

/* Count a refused batch. The lcore logs the overload level once per occurrence. */
static void
refuse(struct egress *e, const struct batch *b)
{
	struct put_counters *s = &e->put[b->table];

	counter_add(&s->refused, 1);
	counter_add(&s->refused_rows, b->rows);
	overload_note_refused(&e->overload);
}

/*
 * Fill the room, and hand it over to the lcore, after wait_for_ring().
 * @param open  the room is that of egress_room()
 */
static void
hand_over(struct egress *e, uint8_t *room, bool open, const struct batch *b)
{
	struct filled filled = {0};

	filled.batch = (struct journal_batch){
		.sequence = b->sequence,
		.rows = b->rows,
		.first = b->first,
		.last = b->last,
		.received = b->received,
		.body_bytes = b->body_length,
		.body_crc32c = b->crc32c,
		.table = b->table,
	};
	if (b->table == ARROW_FRAMES) {
		memcpy(filled.tally, e->tally, sizeof(e->tally));
		memset(e->tally, 0, sizeof(e->tally));
	}
	if (open)
		room_complete(e->journal, room, &filled.batch, b);
	else
		room_fill(e->journal, room, &filled.batch, b);
	FAIL_POINT("recv.filled");
	(void)rte_ring_sp_enqueue_elem(e->filled, &filled, FILLED_SIZE);
	if (polls_itself(e))
		(void)egress_iterate(e);
}

/* A batch is not put into the journal: its output slots are free. */
static int
drop(struct egress *e, const struct batch *b, int error)
{
	for (unsigned int i = 0; i < b->nb_references; i++)
		journal_slot_return(e->journal, b->slots[i]);
	return error;
}

uint8_t *
egress_area(const struct egress *e, uint64_t *slot_bytes, uint32_t *slots)
{
	return journal_area(e->journal, slot_bytes, slots);
}

uint32_t
egress_slot_take(struct egress *e)
{
	return journal_slot_take(e->journal);
}

void
egress_slot_return(struct egress *e, uint32_t slot)
{
	journal_slot_return(e->journal, slot);
}

/* Explain why no output slot of the journal is free for kept frames. */
static void
explain_slots(const struct egress *e, uint32_t n, uint32_t free, char message[PATH_MAX])
{
	const char *path = e->settings.journal;
	uint64_t slot_bytes;
	uint32_t slots;

	(void)journal_area(e->journal, &slot_bytes, &slots);
	if (slots <= n)
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s: it is an existing file "
			"with %u output slots, and [gpu] outputs = %u; to change that, remove it "
			"after this process has ended and stores have all batches, or lower "
			"[gpu] outputs",
			path, slots, n);
	else if (free < n)
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s until this process ends: "
			"batches of an earlier process have all but %u of its %u output slots, "
			"and [gpu] outputs = %u; end this process when stores have more of its "
			"batches, and start it again",
			path, free, slots, n);
	else
		snprintf(message, PATH_MAX,
			"kept frames are copied to the journal %.3000s until stores have batches "
			"of an earlier process: they have %u of its %u output slots, and [gpu] "
			"outputs = %u; more [egress] journal_slots in a new file avoid that",
			path, slots - free, slots, n);
}

int
egress_slots_begin(struct egress *e, uint32_t n, uint32_t *slot, char message[PATH_MAX])
{
	uint32_t taken = 0, next;

	message[0] = '\0';
	while ((next = egress_slot_take(e)) != JOURNAL_NO_SLOT && taken < n)
		slot[taken++] = next;
	if (next != JOURNAL_NO_SLOT) {
		egress_slot_return(e, next);
		return 0;
	}
	explain_slots(e, n, taken, message);
	if (taken == n)
		return 0;
	while (taken > 0)
		egress_slot_return(e, slot[--taken]);
	return -ENOSPC;
}

int
egress_put(struct egress *e, const struct batch *b)
{
	struct put_counters *s = &e->put[b->table];
	uint8_t *room = e->room;
	const bool open = room != NULL;

	e->room = NULL;
	if (open && (b->table != e->room_table || b->nb_references > 0))
		abort(); /* it would overwrite the batch in the room */
	if (b->table == ARROW_FRAMES)
		ledger_tally(e->tally, b, e->modules);
	if (b->body_length > e->body_max[b->table] || b->metadata_size != XFER_BLOCK) {
		counter_add(&s->oversize, 1);
		counter_add(&s->oversize_rows, b->rows);
		LOG(ERR,
			"batch of %" PRIu64 " bytes does not fit into a slot of %" PRIu64 " "
			"bytes\n",
			b->body_length, e->body_max[b->table]);
		return drop(e, b, -E2BIG);
	}
	if (!open)
		room = wait_for_room(e, room_size(b));
	/* a room that was not used needs no return */
	if (room == NULL || !wait_for_ring(e)) {
		refuse(e, b);
		return drop(e, b, -ENOSPC);
	}
	/* Count first: at no time may more batches be durable than were put. */
	counter_add(&s->put, 1);
	counter_add(&s->put_rows, b->rows);
	counter_add(&s->bytes, b->metadata_size + b->body_length);
	hand_over(e, room, open, b);
	return 0;
}

bool
egress_lost_device(const struct egress *e)
{
	return __atomic_load_n(&e->lost_device, __ATOMIC_RELAXED);
}

/* Ending signals that the process has received. */
static unsigned int nb_signals;

void
egress_signal(void)
{
	__atomic_fetch_add(&nb_signals, 1, __ATOMIC_RELAXED);
}

/* Log that the end of the run waits for stores, for how long, and how to end the wait. */
static void
log_wait(const struct egress *e, uint64_t ms, bool ending)
{
	struct egress_stats s;
	uint64_t batches = 0;
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++) {
		egress_stats_get(e, i, &s);
		batches += s.put - s.durable - s.spilled - s.damaged;
	}
	LOG(NOTICE,
		"waiting up to %" PRIu64 " s ([egress] end_ms) for stores to take %" PRIu64
		" batches%s\n",
		(ms + 999) / 1000, batches,
		ending ? "; a further SIGINT or SIGTERM ends the wait, and the next start sends "
			 "the batches from the journal"
		       : "");
}

/* Wait until the stores have all batches. @return as egress_end() */
static int
wait_for_stores(struct egress *e)
{
	const uint64_t begin = xfer_qp_clock(), until = begin + e->settings.end_ms;
	const struct command is_over = {.order = COMMAND_IS_OVER};
	struct command end = {.order = COMMAND_END};
	unsigned int logged = 0, signals, i;
	bool waits = false;

	for (i = 0; i < XFER_TABLES; i++)
		end.batches[i] = e->put[i].put;
	(void)run_command(e, &end);
	while (run_command(e, &is_over) == 0) {
		const uint64_t now = xfer_qp_clock();

		signals = __atomic_load_n(&nb_signals, __ATOMIC_RELAXED);
		/* a signal ends the wait only after a line that says so, and after another one */
		if (now >= until || egress_lost_device(e) ||
			(waits && logged > 0 && signals != logged))
			return run_command(e, &(struct command){.order = COMMAND_GIVE_UP});
		if (now - begin >= LOG_WAIT_MS && (!waits || signals != logged)) {
			log_wait(e, until - now, signals > 0);
			waits = true;
			logged = signals;
		}
		poll_or_sleep(e, WAIT_US);
	}
	return 0;
}

int
egress_end(struct egress *e)
{
	int ret;

	__atomic_store_n(&e->ending, true, __ATOMIC_RELAXED);
	ret = wait_for_stores(e);
	__atomic_store_n(&e->ending, false, __ATOMIC_RELAXED);
	return ret;
}

bool
egress_is_ending(const struct egress *e)
{
	return __atomic_load_n(&e->ending, __ATOMIC_RELAXED);
}

bool
egress_keep_ledger(struct egress *e, const struct ledger_kept *kept)
{
	if (!kept_ledger_post(&e->kept, kept))
		return false;
	if (__atomic_load_n(&e->polling_ended, __ATOMIC_ACQUIRE))
		kept_ledger_save(&e->kept);
	return true;
}

bool
egress_was_damaged(const struct egress *e)
{
	return __atomic_load_n(&e->damaged, __ATOMIC_RELAXED);
}

bool
egress_before_was_damaged(const struct egress *e)
{
	return e->previous_damaged;
}

bool
egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held)
{
	*kept = e->previous;
	*held = e->previous_held;
	return e->previous.version == LEDGER_KEPT_VERSION && e->previous.running;
}

uint64_t
egress_lost_doubts(struct egress *e)
{
	return __atomic_exchange_n(&e->lost_doubts, 0, __ATOMIC_RELAXED);
}

void
egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *to)
{
	const struct put_counters *put = &e->put[table];
	const struct outcome_counters *outcome = &e->outcome[table];

	*to = (struct egress_stats){
		.put = counter_get(&put->put),
		.put_rows = counter_get(&put->put_rows),
		.durable = counter_get(&outcome->durable),
		.rows = counter_get(&outcome->rows),
		.bytes = counter_get(&put->bytes),
		.refused = counter_get(&put->refused),
		.refused_rows = counter_get(&put->refused_rows),
		.oversize = counter_get(&put->oversize),
		.oversize_rows = counter_get(&put->oversize_rows),
		.spilled = counter_get(&outcome->spilled),
		.spilled_rows = counter_get(&outcome->spilled_rows),
		.damaged = counter_get(&outcome->damaged),
		.damaged_rows = counter_get(&outcome->damaged_rows),
	};
	counters_get(&to->latency, &outcome->latency, sizeof(to->latency));
}

/* ---- creation and destruction ---- */

/* Do not create a journal that is too small: the next start would find it, and keep its size. */
static int
check_new_size(const struct egress *e, const struct journal_config *c)
{
	struct journal_probe probe;
	char text[256], message[PATH_MAX];

	/* journal_open() reports all other faults */
	if (journal_probe(c, &probe, message) < 0 || probe.adopts ||
		probe.room >= egress_ring_need(&e->settings, text, sizeof(text)))
		return 0;
	LOG(ERR,
		"journal %s is not created: [egress] journal_mib = %" PRIu64 " is too small; "
		"required: %s (raise journal_mib or lower rate_mb_per_s)\n",
		c->path, c->bytes >> 20, text);
	return -EINVAL;
}

/* An existing file keeps its size. */
static int
check_size(const struct egress *e)
{
	const struct egress_settings *settings = &e->settings;
	struct journal_stats stats;
	uint64_t bytes, batches;
	char text[256];

	journal_stats_get(e->journal, &stats);
	batches = stats.batches + stats.in_doubt;
	bytes = egress_ring_need(settings, text, sizeof(text));
	if (bytes <= stats.room) {
		LOG(NOTICE, "journal has %" PRIu64 " MiB, required: %s\n", stats.room >> 20, text);
		if (egress_size_is_ignored(settings, stats.room))
			LOG(WARNING,
				"journal %s has %" PRIu64 " MiB: an existing file keeps its size, "
				"so [egress] journal_mib = %" PRIu64 " has no effect; to change "
				"the size, remove the file after this process has ended and stores "
				"have all batches\n",
				settings->journal, stats.room >> 20, settings->journal_bytes >> 20);
		return 0;
	}
	LOG(ERR,
		"journal %s has %" PRIu64 " MiB, which is too small; required: %s. An existing "
		"file keeps its size, so [egress] journal_mib = %" PRIu64 " has no effect; %s\n",
		settings->journal, stats.room >> 20, text, settings->journal_bytes >> 20,
		batches > 0 || e->previous.running
			? "lower rate_mb_per_s until stores have its batches, then remove it"
			: "it has no batches: remove it, or lower rate_mb_per_s");
	return -EINVAL;
}

static int
open_ring(struct egress *e, const struct egress_slots *slots)
{
	const struct journal_config c = {
		.path = e->settings.journal,
		.receiver_id = e->receiver_id,
		.bytes = e->settings.journal_bytes,
		.slot_bytes = slots->bytes,
		.slots = slots->n,
	};
	struct damaged_batches damaged;
	struct journal_stats stats;
	char message[PATH_MAX];
	int ret;

	ret = check_new_size(e, &c);
	if (ret < 0)
		return ret;
	ret = journal_open(&e->journal, &c, message);
	if (ret < 0) {
		LOG(ERR, "%s\n", message);
		return ret;
	}
	LOG(NOTICE, "%s\n", message);
	journal_stats_get(e->journal, &stats);
	if (stats.corrected > 0)
		LOG(WARNING,
			"journal %s: %" PRIu64 " records with a wrong bit or a damaged copy were "
			"corrected; check the memory of this machine\n",
			e->settings.journal, stats.corrected);
	kept_ledger_before(&e->previous, e->journal);
	if (journal_ledger_is_lost(e->journal))
		LOG(ERR,
			"journal %s: both copies of the ledger of the previous receiver are "
			"damaged. If it was killed, its frames are in no ledger; count them with "
			"braggline-scan in the directories of the stores\n",
			e->settings.journal);
	ret = damaged_batches_remove(e->journal, quarantine_directory(e), &e->previous, &damaged);
	if (ret < 0)
		return ret;
	e->previous_damaged = damaged.batches > 0 || journal_ledger_is_lost(e->journal);
	e->damaged_frames = damaged.frames;
	note_doubts(e, &damaged);
	e->corrected = stats.corrected;
	e->stores.journal = e->journal;
	ret = store_set_find(&e->stores);
	if (ret < 0) {
		LOG(ERR,
			"journal %s holds unacknowledged batches of %u stores that are not in "
			"[egress] stores, its limit; add them back, or run braggline-store "
			"reconcile --journal\n",
			e->settings.journal, JOURNAL_STORES);
		return ret;
	}
	kept_ledger_init(&e->kept, e->journal);
	e->counted = calloc(JOURNAL_BATCHES, sizeof(*e->counted));
	e->filled = rte_ring_create_elem(
		"egress_filled", FILLED_SIZE, FILLED, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (e->counted == NULL || e->filled == NULL) {
		LOG(ERR, "cannot allocate the list and the ring of batches: %s\n",
			strerror(ENOMEM));
		return -ENOMEM;
	}
	return check_size(e);
}

static int
open_spill(struct egress *e)
{
	const struct spill_config c = {
		.dir = e->settings.spill,
		.limit = e->settings.spill_bytes,
		.receiver_id = e->receiver_id,
	};
	char message[PATH_MAX];
	int ret = 0;

	if (c.dir != NULL)
		ret = spill_create(&e->spill, &c, message);
	if (ret < 0)
		LOG(ERR, "[egress] spill: %s\n", message);
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
	return ret;
}

int
egress_stores_check(
	const struct store_set *stores, const struct rdma_dev *dev, char message[PATH_MAX])
{
	char why[RDMA_ROUTE_TEXT];
	unsigned int i;
	int ret;

	for (i = 0; i < stores->nb; i++) {
		ret = rdma_dev_route_check(dev, (const struct sockaddr *)&stores->at[i].to, why);
		if (ret < 0) {
			snprintf(message, PATH_MAX, "store %s: %s", stores->at[i].name, why);
			return ret;
		}
	}
	return 0;
}

static int
open_device(struct egress *e)
{
	struct rdma_mr_attr attr = {.gpu = -1};
	char message[PATH_MAX];
	int ret;

	e->dev = rdma_dev_open(e->settings.device);
	if (e->dev == NULL) {
		LOG(ERR, "device %s: %s\n", e->settings.device, rte_strerror(rte_errno));
		return -rte_errno;
	}
	rdma_dev_info_get(e->dev, &e->info);
	if (egress_stores_check(&e->stores, e->dev, message) < 0) {
		LOG(ERR, "[egress] %s\n", message);
		return -EINVAL;
	}
	(void)rdma_progress(e->dev, 0);
	e->pd = rdma_pd_alloc(e->dev);
	/* once, and directly: the journal is a mapped file, which no pool can allocate */
	journal_memory(e->journal, &attr.addr, &attr.length);
	ret = e->pd != NULL
		? xfer_mr_open(&e->memory, e->pd, &attr, e->info.max_mr_bytes, XFER_BLOCK)
		: -rte_errno;
	if (ret < 0)
		LOG(ERR, "device %s cannot send from the memory of the journal: %s\n",
			e->settings.device, rte_strerror(-ret));
	return ret;
}

int
egress_start(struct egress *e, const cpu_set_t *cpus)
{
	int ret;

	ret = key_file_start(e->key, cpus);
	if (ret == 0)
		ret = file_thread_start(&e->save, "egress save", cpus);
	if (ret < 0) {
		LOG(ERR, "cannot start a thread for files: %s\n", strerror(-ret));
		return ret;
	}
	ret = e->spill != NULL ? spill_start(e->spill, cpus) : 0;
	if (ret < 0)
		LOG(ERR, "cannot start the spill thread: %s\n", strerror(-ret));
	return ret;
}

int
egress_create(struct egress **egress, const struct egress_settings *settings, uint64_t receiver_id,
	const struct egress_slots *slots)
{
	struct egress *e = aligned_alloc(RTE_CACHE_LINE_SIZE, sizeof(*e));
	char message[PATH_MAX];
	int ret;

	if (e == NULL)
		return -ENOMEM;
	memset(e, 0, sizeof(*e));
	e->settings = *settings;
	e->receiver_id = receiver_id;
	e->current = -1;
	e->save.work = save_damaged;
	e->save.arg = e;
	ret = egress_stores_parse(settings, &e->stores, message);
	if (ret < 0) {
		LOG(ERR, "[egress] stores: %s\n", message);
	} else {
		ret = key_file_open(&e->key, e->settings.key, message);
		if (ret < 0)
			LOG(ERR, "%s\n", message);
	}
	if (ret == 0)
		ret = open_ring(e, slots);
	if (ret == 0)
		ret = open_spill(e);
	if (ret == 0)
		ret = open_device(e);
	if (ret == 0)
		ret = egress_adopt_runs(e);
	if (ret < 0) {
		egress_destroy(e);
		return ret;
	}
	*egress = e;
	return 0;
}

void
egress_rest(struct egress *e)
{
	__atomic_store_n(&e->polling_ended, true, __ATOMIC_RELEASE);
	__atomic_store_n(&e->lcore_polls, false, __ATOMIC_RELEASE);
}

const struct rdma_dev *
egress_device(const struct egress *e, const struct rdma_dev_info **info)
{
	*info = &e->info;
	return e->dev;
}

void
egress_destroy(struct egress *e)
{
	const uint64_t until = xfer_qp_clock() + 2000;
	unsigned int i, k, left;

	if (e == NULL)
		return;
	/* commit the batches that were handed over, while the runs have store clients */
	if (e->dev != NULL)
		(void)egress_iterate(e);
	do {
		left = 0;
		for (i = 0; i < JOURNAL_RUNS; i++) {
			for (k = 0; k < e->stores.nb; k++) {
				if (e->run[i].client[k] != NULL &&
					store_client_close(e->run[i].client[k]) == 0)
					e->run[i].client[k] = NULL;
				left += e->run[i].client[k] != NULL;
			}
			e->run[i].used = false;
		}
		if (e->dev != NULL)
			(void)egress_iterate(e);
	} while (left > 0 && xfer_qp_clock() < until);
	(void)file_thread_stop(&e->save, 0);
	/* the next start would save these batches once more */
	if (e->saves)
		remove_damaged(e, xfer_qp_clock());
	/* the last one of a run; without it, the next start takes this receiver for a killed one */
	if (kept_ledger_is_new(&e->kept))
		kept_ledger_save(&e->kept);
	if (left == 0 && xfer_mr_close(&e->memory) == 0) {
		if (e->pd != NULL)
			(void)rdma_pd_free(e->pd);
		if (e->dev != NULL)
			(void)rdma_dev_close(e->dev);
	} else {
		/*
		 * A port whose peer has exited sends nothing, and keeps frames that refer to the
		 * journal. The process ends soon, so EAL's message that the port is still running
		 * is suppressed.
		 */
		rte_log_set_level_pattern("lib.ethdev", RTE_LOG_CRIT);
	}
	/* it reads the journal */
	spill_destroy(e->spill);
	journal_close(e->journal);
	key_file_close(e->key);
	rte_ring_free(e->filled);
	free(e->counted);
	free(e);
}
