/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The egress: its creation, the work of its lcore, and its end. egress_private.h has its other
 * parts.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_ring.h>

#include "egress/egress_private.h"
#include "log.h"
#include "xfer/qp.h"

LOG_REGISTER("egress", "egress");

#define CM_ITERATIONS 64
#define CHECK_MS      100 /* interval of the checks of runs and stores */
#define EVENTS	      8
#define WAIT_US	      1000 /* of egress_wait() */

/* ---- work of the lcore ---- */

int
egress_iterate(struct egress *e)
{
	const uint64_t now = xfer_qp_clock();
	struct rdma_event event[EVENTS];
	unsigned int i, k, n, pg;
	bool busy, command;

	/* a command follows the batches that were handed over before it */
	command = mailbox_take(&e->mailbox);
	busy = egress_put_commit(e);
	if (command)
		mailbox_answer(&e->mailbox, egress_control_execute(e));
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
		egress_damage_poll(e, now);
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
	e->next_check = now + CHECK_MS;
	egress_assign_again(e, now);
	egress_runs_check(e);
	egress_damage_log_corrected(e);
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

bool
egress_polls_itself(const struct egress *e)
{
	return rte_lcore_id() != LCORE_ID_ANY &&
		!__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE);
}

void
egress_poll_or_sleep(struct egress *e, unsigned int us)
{
	const struct timespec pause = {.tv_nsec = us * 1000};

	if (egress_polls_itself(e))
		(void)egress_iterate(e);
	else
		nanosleep(&pause, NULL);
}

void
egress_wait(struct egress *e)
{
	egress_poll_or_sleep(e, WAIT_US);
}

void
egress_rest(struct egress *e)
{
	__atomic_store_n(&e->polling_ended, true, __ATOMIC_RELEASE);
	__atomic_store_n(&e->lcore_polls, false, __ATOMIC_RELEASE);
}

bool
egress_lost_device(const struct egress *e)
{
	return __atomic_load_n(&e->lost_device, __ATOMIC_RELAXED);
}

/* ---- creation and end ---- */

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
open_journal(struct egress *e, const struct egress_slots *slots)
{
	const struct journal_config c = {
		.path = e->settings.journal,
		.receiver_id = e->receiver_id,
		.bytes = e->settings.journal_bytes,
		.slot_bytes = slots->bytes,
		.slots = slots->n,
	};
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
	kept_ledger_before(&e->previous, e->journal);
	ret = egress_damage_open(e);
	if (ret < 0)
		return ret;
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
	if (e->counted == NULL || egress_put_create(e) < 0) {
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
	egress_assign_init(e);
	return ret;
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
	ret = egress_stores_parse(settings, &e->stores, message);
	if (ret < 0) {
		LOG(ERR, "[egress] stores: %s\n", message);
	} else {
		ret = key_file_open(&e->key, e->settings.key, message);
		if (ret < 0)
			LOG(ERR, "%s\n", message);
	}
	if (ret == 0)
		ret = open_journal(e, slots);
	if (ret == 0)
		ret = open_spill(e);
	if (ret == 0)
		ret = open_device(e);
	if (ret == 0)
		ret = egress_runs_adopt(e);
	if (ret < 0) {
		egress_destroy(e);
		return ret;
	}
	*egress = e;
	return 0;
}

int
egress_start(struct egress *e, const cpu_set_t *cpus)
{
	int ret;

	ret = key_file_start(e->key, cpus);
	if (ret == 0)
		ret = egress_damage_start(e, cpus);
	if (ret < 0) {
		LOG(ERR, "cannot start a thread for files: %s\n", strerror(-ret));
		return ret;
	}
	ret = e->spill != NULL ? spill_start(e->spill, cpus) : 0;
	if (ret < 0)
		LOG(ERR, "cannot start the spill thread: %s\n", strerror(-ret));
	return ret;
}

const struct rdma_dev *
egress_device(const struct egress *e, const struct rdma_dev_info **info)
{
	*info = &e->info;
	return e->dev;
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
egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held)
{
	*kept = e->previous;
	*held = e->previous_held;
	return e->previous.version == LEDGER_KEPT_VERSION && e->previous.running;
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
	egress_damage_close(e);
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
