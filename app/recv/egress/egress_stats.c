/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The statistics of the egress: what becomes of batches, and the state for telemetry. The lcore
 * writes this state, so that no other thread accesses the store clients.
 */

#include <string.h>

#include <rte_cycles.h>
#include <rte_seqcount.h>

#include "egress/egress_private.h"
#include "xfer/qp.h"

#define RATE_MS 1000

void
egress_stats_released(struct egress *e, uint32_t batch, bool spilled)
{
	const struct egress_batch *k = &e->counted[batch];
	struct egress_outcome_stats *s = &e->outcome[k->table];
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
	counter_add(&s->durable_rows, k->rows);
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

void
egress_stats_closed(struct egress *e, unsigned int store, const struct store_client *client)
{
	struct store_client_stats stats;

	store_client_stats_get(client, &stats);
	add_store_stats(&e->past[store], &stats);
}

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

void
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

void
egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *to)
{
	/* first: every batch that has an outcome by now was counted by the writer before */
	counters_get(&to->outcome, &e->outcome[table], sizeof(to->outcome));
	counters_get(&to->put, &e->put[table], sizeof(to->put));
}
