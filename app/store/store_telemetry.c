/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <stdio.h>

#include <rte_telemetry.h>

#include <dpdk_compat.h>

#include "body_memory.h"
#include "sink_message.h"
#include "store.h"
#include "store_telemetry.h"

static const struct store *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void
add(struct rte_tel_data *d, const char *name, uint64_t value)
{
	rte_tel_data_add_dict_u64(d, name, value);
}

/* Counters by cause have names of their own: a dictionary in a dictionary is more to read. */
static void
add_causes(struct rte_tel_data *d, const struct store_counters *n)
{
	char name[RTE_TEL_MAX_STRING_LEN];
	unsigned int i;

	for (i = 1; i < SINK_REASONS; i++) {
		snprintf(name, sizeof(name), "refused_%s", sink_reason_name(i));
		add(d, name, n->refused[i]);
	}
	for (i = 0; i < SINK_ENTRY_FAULTS; i++) {
		snprintf(name, sizeof(name), "entries_%s", sink_entry_fault_name(i));
		add(d, name, n->fault[i]);
	}
}

static int
answer_store(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_shared *s;

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(d);
	if (store != NULL) {
		s = store_look(store);
		add(d, "requests", s->counters.requests);
		add(d, "connections_stood", s->counters.stood);
		add(d, "connections_broken", s->counters.broken);
		add(d, "connections_ended", s->counters.ended);
		add(d, "connections_superseded", s->counters.superseded);
		rte_tel_data_add_dict_string(d, "bodies", body_memory_name(s->bodies.gpu));
		rte_tel_data_add_dict_string(d, "cufile",
			s->bodies.cufile == NULL
				? "not used"
				: cufile_mode_name(cufile_info_get(s->bodies.cufile)->mode));
		add(d, "body_bytes", s->counters.bytes);
		add(d, "batches_durable", s->counters.durable);
		add(d, "batches_double", s->counters.doubles);
		add(d, "batches_given_back", s->counters.again);
		add(d, "runs_opened", s->runs.opened);
		add(d, "runs_ended", s->runs.ended);
		add(d, "runs_idle", s->runs.idle);
		add(d, "runs_refused", s->runs.refused);
		add_causes(d, &s->counters);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
answer_connections(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_connection *c;
	struct rte_tel_data *one;
	char name[16];
	unsigned int i;

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(d);
	for (i = 0; store != NULL && (c = store_look_connection(store, i)) != NULL; i++) {
		if (c->state == STORE_FREE)
			continue;
		one = rte_tel_data_alloc();
		if (one == NULL)
			break;
		rte_tel_data_start_dict(one);
		rte_tel_data_add_dict_string(one, "state", store_connection_state_name(c->state));
		add(one, "places", c->nb_places);
		add(one, "pending", c->pending);
		add(one, "frames_durable", c->batches[0]);
		add(one, "images_durable", c->batches[1]);
		snprintf(name, sizeof(name), "%u", i);
		rte_tel_data_add_dict_container(d, name, one, 0);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

void
store_telemetry_open(const struct store *s)
{
	pthread_mutex_lock(&lock);
	store = s;
	pthread_mutex_unlock(&lock);
	(void)rte_telemetry_register_cmd("/braggline/store", answer_store,
		"Counters of the store: connections, entries, batches, by cause.");
	(void)rte_telemetry_register_cmd("/braggline/store/connections", answer_connections,
		"Connections: state, places, batches durable.");
}

void
store_telemetry_close(void)
{
	pthread_mutex_lock(&lock);
	store = NULL;
	pthread_mutex_unlock(&lock);
}
