/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>

#include "egress_private.h"
#include "fail_point.h"
#include "latency.h"
#include "sink/sink_link.h"

#define CM_TURNS 64
#define MOVE_MS	 100 /* how often it is looked whether a store is gone for good */
#define EVENTS	 8

static void
count_latency(uint64_t histogram[ARROW_LATENCY_BUCKETS], uint64_t us)
{
	ADD(histogram[latency_bucket(us, ARROW_LATENCY_BUCKETS)], 1);
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

void
egress_put_ledger(struct egress *e)
{
	const struct ledger_kept own = e->kept;
	struct ledger_kept *k = &e->kept;

	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_ACQUIRE)) {
		*k = e->ledger;
		k->incarnation = own.incarnation;
		k->retained_frame = own.retained_frame;
		memcpy(k->retained, own.retained, sizeof(k->retained));
		k->next_sequence = own.next_sequence;
		k->next_frame = own.next_frame;
		memcpy(k->next, own.next, sizeof(k->next));
		__atomic_store_n(&e->ledger_is_new, false, __ATOMIC_RELEASE);
		e->knows_rows = false;
	}
	/* written by another thread ten times a second: it may know less than the rows do */
	if (e->first_row != 0 && !e->knows_rows) {
		ledger_begin(k, e->first_row, k->next_frame);
		e->knows_rows = true;
	}
	retention_ledger_put(e->ring, k, sizeof(*k));
}

/* Rows are about to be put: who adopts the ring counts them if their batch is there. */
static void
announce_rows(struct egress *e, const struct mailbox *m)
{
	struct ledger_kept *k = &e->kept;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		k->next[i] = k->retained[i] + m->tally[i];
	k->next_frame = m->batch.last;
	k->next_sequence = m->batch.sequence;
	/* the rows before it that were refused are of frames that were not lost, either */
	if (e->first_row == 0)
		e->first_row = m->batch.first -
			(m->tally[LEDGER_FRAMES] - m->batch.rows) * RTE_MAX(k->stride, 1u);
	egress_put_ledger(e);
}

/* They are there; before the batch can be anywhere else. */
static void
note_rows(struct egress *e)
{
	struct ledger_kept *k = &e->kept;

	memcpy(k->retained, k->next, sizeof(k->retained));
	k->retained_frame = k->next_frame;
	k->next_sequence = LEDGER_NONE;
	egress_put_ledger(e);
}

static int
do_begin(struct egress *e, const struct mailbox *m)
{
	int index, rc;

	index = retention_run_add(e->ring, m->run);
	if (index < 0)
		return index;
	rc = egress_open_senders(e, index);
	if (rc < 0)
		return rc;
	e->current = index;
	e->kept.incarnation = m->run->incarnation;
	e->kept.retained_frame = 0;
	e->first_row = 0;
	e->knows_rows = false;
	memset(e->kept.retained, 0, sizeof(e->kept.retained));
	e->kept.next_sequence = LEDGER_NONE;
	return 0;
}

static int
do_commit(struct egress *e, struct mailbox *m)
{
	struct egress_run *run = &e->run[e->current];
	unsigned int store;
	uint32_t batch;

	m->batch.run = e->current;
	if (m->batch.table == ARROW_FRAMES)
		announce_rows(e, m);
	batch = retention_commit(e->ring, &m->batch);
	e->known[batch] = (struct known){
		m->batch.rows, e->current, m->batch.table, rte_rdtsc(), m->batch.received};
	FAIL_POINT("recv.kept");
	/* what was seen up to here is accounted for, whoever adopts the ring */
	if (m->batch.table == ARROW_FRAMES)
		note_rows(e);
	store = egress_choose(e, run, m->batch.first);
	retention_assign(e->ring, batch, e->stores.at[store].number);
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
		egress_finish_run(e, &e->run[e->current]);
		m->answer = 0;
		break;
	case ORDER_IS_OVER:
		m->answer = egress_all_is_over(e);
		break;
	case ORDER_SAY_WHY_NOT:
		egress_say_what_is_left(e);
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
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
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
	egress_look_at_runs(e);
	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_RELAXED))
		egress_put_ledger(e);
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
