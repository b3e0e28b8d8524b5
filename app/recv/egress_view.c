/* SPDX-License-Identifier: BSD-3-Clause */
/* What telemetry shows of the egress: its lcore writes it down, so that nobody else looks at
 * senders that come and go. */

#include <string.h>

#include "egress_private.h"
#include "sink/sink_link.h"

#define RATE_MS 1000

static void
add(struct egress_store *to, const struct sink_sender_stats *s)
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
	to->doubles += s->doubles;
	to->again += s->again;
}

void
egress_view_retire(struct egress *e, unsigned int store, const struct sink_sender *sender)
{
	struct sink_sender_stats stats;

	sink_sender_stats_get(sender, &stats);
	add(&e->past[store], &stats);
}

static void
view_store(struct egress *e, unsigned int k, struct egress_store *to)
{
	struct sink_sender_stats stats;
	unsigned int i;

	*to = e->past[k];
	to->name = e->stores.at[k].name;
	for (i = 0; i < RETENTION_RUNS; i++) {
		if (!e->run[i].used || e->run[i].sender[k] == NULL)
			continue;
		sink_sender_stats_get(e->run[i].sender[k], &stats);
		add(to, &stats);
		if ((int)i == e->current || to->now.state == SINK_SENDER_DOWN)
			to->now = stats;
	}
}

/* Of the last second. */
static void
make_rates(struct egress *e, struct egress_view *v)
{
	const uint64_t now = sink_link_clock(), ms = now - e->rated_at;
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
	for (i = 0; i < RETENTION_RUNS; i++)
		v->runs += e->run[i].used;
	v->step = e->ladder.step;
	v->spilled = e->ladder.progress;
	v->spill_error = -spill.error;
	v->spill_used = spill.used;
	memcpy(v->latency, e->latency, sizeof(v->latency));
	retention_stats_get(e->ring, &v->retention);
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
