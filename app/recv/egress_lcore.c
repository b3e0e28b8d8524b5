/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "egress_private.h"
#include "fail_point.h"
#include "sink/sink_link.h"
#include "sink/sink_message.h"

#define CM_TURNS 64
#define MOVE_MS	 100 /* how often it is looked whether a store is gone for good */
#define EVENTS	 8

static void
count_latency(uint64_t histogram[ARROW_LATENCY_BUCKETS], uint64_t us)
{
	const unsigned int bucket = us == 0 ? 0 : 64 - __builtin_clzll(us);

	ADD(histogram[RTE_MIN(bucket, ARROW_LATENCY_BUCKETS - 1u)], 1);
}

void
egress_known(struct egress *e, uint32_t batch, bool spilled)
{
	const struct known *k = &e->known[batch];
	struct egress_stats *s = &e->stats[k->table];
	int64_t now;

	if (k->kept_at != 0)
		count_latency(e->latency, (rte_rdtsc() - k->kept_at) * 1e6 / rte_get_tsc_hz());
	/* those that were adopted are another run's */
	if (k->run != e->current || k->kept_at == 0)
		return;
	if (spilled) {
		ADD(s->spilled, 1);
		ADD(s->spilled_rows, k->rows);
		return;
	}
	ADD(s->durable, 1);
	ADD(s->rows, k->rows);
	if (e->clock == NULL || k->received == 0)
		return;
	now = e->clock(e->clock_arg);
	count_latency(s->latency, now > k->received ? (now - k->received) / 1000 : 0);
}

static void
on_result(void *arg, uint32_t batch, enum sink_result_status status)
{
	struct egress *e = arg;
	struct sink_sender *sender;
	struct retention_batch b;

	if (status != SINK_AGAIN) {
		egress_known(e, batch, false);
		return;
	}
	/* the store says when it is good again; until then it waits there, or is moved */
	if (!retention_get(e->ring, batch, &b))
		return;
	sender = egress_sender_of(e, &b);
	if (sender != NULL)
		(void)sink_sender_offer(sender, batch);
}

static int
open_senders(struct egress *e, unsigned int index)
{
	struct egress_run *run = &e->run[index];
	struct sink_sender_config c = {
		.dev = e->dev,
		.pd = e->pd,
		.retention = e->ring,
		.memory = &e->memory,
		.message_max = e->info.max_msg_bytes,
		.run = index,
		.producer = e->producer,
		.key = &e->key,
		.role = SINK_ROLE_RECEIVER,
		.result = on_result,
		.arg = e,
	};
	unsigned int i;
	int rc = 0;

	memset(run, 0, sizeof(*run));
	run->used = true;
	run->index = index;
	for (i = 0; i < e->nb_stores && rc == 0; i++) {
		c.address = e->address[i];
		c.name = e->name[i];
		c.store = e->number[i];
		rc = sink_sender_open(&run->sender[i], &c);
	}
	return rc;
}

static void
finish_run(struct egress_run *run, unsigned int nb_stores)
{
	unsigned int i;

	run->finishing = true;
	for (i = 0; i < nb_stores; i++)
		sink_sender_finish(run->sender[i]);
}

static bool
run_is_over(const struct egress *e, const struct egress_run *run)
{
	struct sink_sender_stats stats;
	struct retention_run r;
	unsigned int i, ended = 0;

	if (run->retiring)
		return true;
	if (!retention_run_get(e->ring, run->index, &r) || r.references > 0)
		return false;
	for (i = 0; i < e->nb_stores; i++) {
		sink_sender_stats_get(run->sender[i], &stats);
		/* one that was never reached has nothing to be ended */
		ended += stats.state == SINK_SENDER_ENDED || stats.connections == 0;
	}
	return run->finishing && ended == e->nb_stores;
}

/* All of it is durable, and the stores know: forget it. */
static void
retire_run(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	for (i = 0; i < e->nb_stores && !run->retiring; i++)
		egress_view_retire(e, i, run->sender[i]);
	run->retiring = true;
	for (i = 0; i < e->nb_stores; i++) {
		if (run->sender[i] != NULL && sink_sender_close(run->sender[i]) == 0)
			run->sender[i] = NULL;
	}
	for (i = 0; i < e->nb_stores; i++) {
		if (run->sender[i] != NULL)
			return;
	}
	if (e->spill != NULL && !spill_close_run(e->spill, run->index))
		return;
	if (retention_run_drop(e->ring, run->index) == 0)
		run->used = false;
}

/* Runs that were adopted as well: who ends in order leaves nothing behind. */
static bool
all_is_over(const struct egress *e)
{
	unsigned int i;

	for (i = 0; i < RETENTION_RUNS; i++) {
		if (e->run[i].used)
			return false;
	}
	return true;
}

/* What the end of a run waited for in vain. */
static void
say_what_is_left(const struct egress *e)
{
	struct sink_sender_stats stats;
	struct retention_run run;
	unsigned int i, k;

	for (i = 0; i < RETENTION_RUNS; i++) {
		if (!e->run[i].used || !retention_run_get(e->ring, i, &run))
			continue;
		LOG(ERR,
			"left of run %s, incarnation %016" PRIx64
			": %u batches, held or in doubt\n",
			run.name, run.incarnation, run.references);
		for (k = 0; k < e->nb_stores && !e->run[i].retiring; k++) {
			sink_sender_stats_get(e->run[i].sender[k], &stats);
			LOG(ERR,
				"    store %s: %s, %" PRIu64 " of %" PRIu64 " batches durable, "
				"last refusal: %s\n",
				e->name[k], sink_sender_state_name(stats.state), stats.durable,
				stats.sent, sink_reason_name(stats.reason));
		}
	}
}

/*
 * Of a run of which nothing is left the stores need only be told its end, without which they
 * complete its files after a time. A receiver that starts again and again must not fill the ring
 * with those.
 */
static void
forget_empty_runs(struct egress *e)
{
	struct retention_run run;
	unsigned int i, nb = 0;

	for (i = 0; i < RETENTION_RUNS; i++)
		nb += retention_run_get(e->ring, i, &run);
	for (i = 0; i < RETENTION_RUNS && nb > RETENTION_RUNS / 2; i++) {
		if (retention_run_get(e->ring, i, &run) && run.references == 0 &&
			retention_run_drop(e->ring, i) == 0)
			nb--;
	}
}

int
egress_adopt_runs(struct egress *e)
{
	struct retention_batch b;
	struct retention_run run;
	unsigned int i;
	uint32_t batch;
	int rc = 0;

	forget_empty_runs(e);
	/* a run that is forgotten must have no files open */
	rc = egress_adopt_spilled(e);
	for (batch = retention_next(e->ring, 0); batch != UINT32_MAX;
		batch = retention_next(e->ring, batch + 1)) {
		if (!retention_get(e->ring, batch, &b))
			continue;
		e->known[batch] = (struct known){b.rows, b.run, b.table, 0, 0};
		/* the last one may have come after the last ledger */
		if (b.table == ARROW_FRAMES && retention_run_get(e->ring, b.run, &run) &&
			run.incarnation == e->before.incarnation)
			e->before.retained_frame = RTE_MAX(e->before.retained_frame, b.last);
	}
	for (i = 0; i < RETENTION_RUNS && rc == 0; i++) {
		if (!retention_run_get(e->ring, i, &run))
			continue;
		LOG(NOTICE, "run %s of incarnation %016" PRIx64 ": %u batches are sent again\n",
			run.name, run.incarnation, run.references);
		rc = open_senders(e, i);
		if (rc == 0)
			finish_run(&e->run[i], e->nb_stores);
	}
	/* of stores that are not configured any more */
	e->unassigned = true;
	return rc;
}

/* Of the ring: a new one, or that of the last batch of `frames`. */
static void
put_ledger(struct egress *e)
{
	const uint64_t incarnation = e->kept.incarnation, retained = e->kept.retained_frame;

	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_ACQUIRE)) {
		e->kept = e->ledger;
		e->kept.incarnation = incarnation;
		e->kept.retained_frame = retained;
		__atomic_store_n(&e->ledger_is_new, false, __ATOMIC_RELEASE);
	}
	retention_ledger_put(e->ring, &e->kept, sizeof(e->kept));
}

static int
do_begin(struct egress *e, const struct mailbox *m)
{
	int index, rc;

	index = retention_run_add(e->ring, m->run);
	if (index < 0)
		return index;
	rc = open_senders(e, index);
	if (rc < 0)
		return rc;
	e->current = index;
	e->kept.incarnation = m->run->incarnation;
	e->kept.retained_frame = 0;
	return 0;
}

static int
do_commit(struct egress *e, struct mailbox *m)
{
	struct egress_run *run = &e->run[e->current];
	unsigned int store;
	uint32_t batch;

	m->batch.run = e->current;
	batch = retention_commit(e->ring, &m->batch);
	e->known[batch] = (struct known){
		m->batch.rows, e->current, m->batch.table, rte_rdtsc(), m->batch.received};
	FAIL_POINT("recv.kept");
	/* what was seen up to here is accounted for, whoever adopts the ring */
	if (m->batch.table == ARROW_FRAMES) {
		e->kept.retained_frame = m->batch.last;
		put_ledger(e);
	}
	store = egress_choose(e, run, m->batch.first);
	retention_assign(e->ring, batch, e->number[store]);
	return sink_sender_offer(run->sender[store], batch);
}

static void
take_order(struct egress *e)
{
	struct mailbox *m = &e->mail;
	const int order = __atomic_load_n(&m->order, __ATOMIC_ACQUIRE);

	switch ((enum order)order) {
	case ORDER_NONE:
		return;
	case ORDER_BEGIN:
		m->answer = do_begin(e, m);
		break;
	case ORDER_RESERVE:
		m->room = retention_reserve(e->ring, m->body);
		m->answer = m->room != NULL ? 0 : -ENOSPC;
		e->ladder.full = m->room == NULL;
		break;
	case ORDER_COMMIT:
		m->answer = do_commit(e, m);
		break;
	case ORDER_REFUSED:
		egress_refused(e);
		m->answer = 0;
		break;
	case ORDER_END:
		retention_run_end(e->ring, e->current, m->batches);
		finish_run(&e->run[e->current], e->nb_stores);
		m->answer = 0;
		break;
	case ORDER_IS_OVER:
		m->answer = all_is_over(e);
		break;
	case ORDER_SAY_WHY_NOT:
		say_what_is_left(e);
		m->answer = 0;
		break;
	}
	__atomic_store_n(&m->order, ORDER_NONE, __ATOMIC_RELEASE);
}

int
egress_turn(struct egress *e)
{
	const uint64_t now = sink_link_clock();
	struct rdma_event event[EVENTS];
	bool busy = false;
	unsigned int i, k, n, lane;

	take_order(e);
	for (lane = 0; lane < e->info.nb_lanes; lane++)
		busy |= rdma_progress(e->dev, lane) > 0;
	for (i = 0; i < RETENTION_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->nb_stores; k++) {
			if (e->run[i].sender[k] != NULL)
				busy |= sink_sender_poll(e->run[i].sender[k]);
		}
	}
	/* an lcore that gives its CPU away makes few turns */
	busy |= egress_spill_turn(e, now);
	if (e->turn++ % CM_TURNS != 0 && now == e->cm_at)
		return busy;
	e->cm_at = now;
	n = rdma_poll_cm(e->dev, event, EVENTS);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			sink_sender_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	if (now < e->look_at)
		return busy || n > 0;
	e->look_at = now + MOVE_MS;
	egress_move(e, now);
	for (i = 0; i < RETENTION_RUNS; i++) {
		if (e->run[i].used && run_is_over(e, &e->run[i]))
			retire_run(e, &e->run[i]);
	}
	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_RELAXED))
		put_ledger(e);
	egress_view_update(e);
	return busy || n > 0;
}

int
egress_poll(void *arg)
{
	struct egress *e = arg;

	if (!__atomic_load_n(&e->lcore_polls, __ATOMIC_RELAXED))
		__atomic_store_n(&e->lcore_polls, true, __ATOMIC_RELEASE);
	return egress_turn(e);
}
