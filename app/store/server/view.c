/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "monotonic_cond.h"
#include "server/view.h"

struct store_view {
	pthread_mutex_t lock; /* protects the members below */
	pthread_cond_t made;
	uint64_t number; /* number of the copy */
	struct store_values values;
	bool wanted; /* atomic: read without the lock */
};

struct store_view *
store_view_open(void)
{
	struct store_view *v = calloc(1, sizeof(*v));

	if (v == NULL)
		return NULL;
	pthread_mutex_init(&v->lock, NULL);
	monotonic_cond_init(&v->made);
	return v;
}

void
store_view_close(struct store_view *v)
{
	if (v == NULL)
		return;
	pthread_cond_destroy(&v->made);
	pthread_mutex_destroy(&v->lock);
	free(v);
}

static void
copy_connections(struct store_values *to, const struct store_connection *connection)
{
	const struct store_connection *c;
	unsigned int i;

	to->nb_connections = 0;
	for (i = 0; i < STORE_CONNECTIONS; i++) {
		c = &connection[i];
		if (c->state == STORE_FREE)
			continue;
		to->connection[to->nb_connections++] = (struct store_connection_view){
			.index = i,
			.state = c->state,
			.slots = c->nb_slots,
			.pending = c->pending,
			.results = c->nb_results,
			.batches = {c->batches[0], c->batches[1]},
		};
	}
}

static void
copy_runs(struct store_values *to, const struct store_runs *runs)
{
	unsigned int i;

	to->runs = (struct store_runs_counts){runs->opened, runs->ended, runs->idle, runs->refused};
	to->nb_streams = 0;
	for (i = 0; i < runs->nb * XFER_TABLES; i++) {
		if (!store_runs_view(runs, i / XFER_TABLES, i % XFER_TABLES,
			    &to->stream[to->nb_streams].view))
			continue;
		to->stream[to->nb_streams].run = i / XFER_TABLES;
		to->stream[to->nb_streams++].table = i % XFER_TABLES;
	}
	to->latency = store_runs_latency(runs);
}

static void
copy(struct store_values *to, const struct store_shared *s,
	const struct store_connection *connection, uint64_t now)
{
	to->made = now;
	to->counters = s->counters;
	to->admission =
		(struct store_admission_view){s->admission.admitted, s->admission.admitted_known,
			s->admission.full, s->admission.crowded, s->admission.evicted};
	to->warnings_suppressed = s->warnings.suppressed_ever;
	copy_connections(to, connection);
	copy_runs(to, &s->runs);
	to->nb_identities = s->audit.nb;
	memcpy(to->identity, s->audit.identity, s->audit.nb * sizeof(to->identity[0]));
}

bool
store_view_poll(struct store_view *v, const struct store_shared *s,
	const struct store_connection *connection, uint64_t now)
{
	if (!__atomic_load_n(&v->wanted, __ATOMIC_RELAXED) || pthread_mutex_trylock(&v->lock) != 0)
		return false;
	copy(&v->values, s, connection, now);
	v->number++;
	__atomic_store_n(&v->wanted, false, __ATOMIC_RELAXED);
	pthread_cond_broadcast(&v->made);
	pthread_mutex_unlock(&v->lock);
	return true;
}

const struct store_values *
store_view_get(struct store_view *v)
{
	struct timespec until;
	uint64_t number;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += STORE_VIEW_WAIT_MS * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	pthread_mutex_lock(&v->lock);
	number = v->number;
	__atomic_store_n(&v->wanted, true, __ATOMIC_RELAXED);
	while (v->number == number &&
		pthread_cond_timedwait(&v->made, &v->lock, &until) != ETIMEDOUT)
		;
	return &v->values;
}

void
store_view_put(struct store_view *v)
{
	pthread_mutex_unlock(&v->lock);
}
