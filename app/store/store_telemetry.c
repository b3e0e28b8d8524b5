/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_telemetry.h>

#include <dpdk_compat.h>

#include "arrow_tables.h"
#include "body_memory.h"
#include "sink_message.h"
#include "store.h"
#include "store_telemetry.h"

static const struct store *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void
add(struct rte_tel_data *d, const char *name, uint64_t value)
{
	rte_tel_data_add_dict_uint(d, name, value);
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

/* The worst that is wrong with a run's files now. */
static const char *
alarm_name(const struct store_shared *s)
{
	struct store_stream_view v;
	const char *name = "none";
	unsigned int i;

	for (i = 0; i < STORE_RUNS * SINK_TABLES; i++) {
		if (!store_runs_view(&s->runs, i / SINK_TABLES, i % SINK_TABLES, &v))
			continue;
		if (v.stats.error == -ENOSPC)
			name = "disk full";
		else if (v.stats.error == -EDQUOT && strcmp(name, "none") == 0)
			name = "quota";
		else if (v.stats.error < 0 && v.stats.error != -EDQUOT)
			return "I/O error";
		else if (v.stats.stalled != 0 && strcmp(name, "none") == 0)
			name = "disk stands still";
	}
	return name;
}

static int
answer_store(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_shared *s;
	char identity[17];

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(d);
	if (store != NULL) {
		s = store_look(store);
		snprintf(identity, sizeof(identity), "%016" PRIx64, s->node);
		rte_tel_data_add_dict_string(d, "identity", identity);
		add(d, "requests", s->counters.requests);
		add(d, "connections_stood", s->counters.stood);
		add(d, "connections_broken", s->counters.broken);
		add(d, "connections_ended", s->counters.ended);
		add(d, "connections_abandoned", s->counters.abandoned);
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
		add(d, "body_bytes_per_s", s->counters.bytes_per_s);
		add(d, "reconciliations", s->counters.cuts);
		add(d, "batches_cut", s->counters.batches_cut);
		rte_tel_data_add_dict_string(d, "alarm", alarm_name(s));
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
		add(one, "credits", c->nb_places - c->pending);
		add(one, "pending", c->pending);
		add(one, "results_waiting", c->nb_results);
		add(one, "frames_durable", c->batches[0]);
		add(one, "images_durable", c->batches[1]);
		snprintf(name, sizeof(name), "%u", i);
		rte_tel_data_add_dict_container(d, name, one, 0);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct rte_tel_data *
stream_dict(const struct store_stream_view *v)
{
	struct rte_tel_data *d = rte_tel_data_alloc();
	char hex[20];

	if (d == NULL)
		return NULL;
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_string(d, "run", v->run);
	snprintf(hex, sizeof(hex), "%016" PRIx64, v->producer);
	rte_tel_data_add_dict_string(d, "producer", hex);
	snprintf(hex, sizeof(hex), "%016" PRIx64, v->incarnation);
	rte_tel_data_add_dict_string(d, "incarnation", hex);
	add(d, "connected", v->connected);
	add(d, "batches", v->stats.batches);
	add(d, "rows", v->stats.rows);
	add(d, "bytes", v->stats.bytes);
	add(d, "doubles", v->stats.doubles);
	add(d, "given_back", v->stats.again);
	add(d, "pending", v->stats.pending);
	add(d, "cut", v->stats.cut);
	add(d, "files", v->stats.files);
	add(d, "files_complete", v->stats.complete);
	add(d, "syncs", v->stats.syncs);
	add(d, "outages", v->stats.outages);
	add(d, "stalls", v->stats.stalls);
	add(d, "resumes", v->stats.resumes);
	add(d, "error", -v->stats.error);
	add(d, "quota", v->quota);
	add(d, "quota_used", v->quota_used);
	rte_tel_data_add_dict_string(
		d, "io", v->stats.files > 0 ? arrow_io_mode_name(v->stats.mode) : "none yet");
	return d;
}

static void
add_array(struct rte_tel_data *d, const char *name, const uint64_t *value)
{
	struct rte_tel_data *array = rte_tel_data_alloc();
	unsigned int i;

	if (array == NULL)
		return;
	rte_tel_data_start_array(array, RTE_TEL_UINT_VAL);
	for (i = 0; i < ARROW_LATENCY_BUCKETS; i++)
		rte_tel_data_add_array_uint(array, value[i]);
	rte_tel_data_add_dict_container(d, name, array, 0);
}

static int
answer_streams(const char *cmd, const char *params, struct rte_tel_data *d)
{
	uint64_t below[ARROW_LATENCY_BUCKETS], latency[ARROW_LATENCY_BUCKETS];
	const struct store_runs *runs;
	struct store_stream_view v;
	struct rte_tel_data *one;
	char name[32];
	unsigned int i;

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(d);
	if (store == NULL)
		goto out;
	runs = &store_look(store)->runs;
	for (i = 0; i < STORE_RUNS * SINK_TABLES; i++) {
		if (!store_runs_view(runs, i / SINK_TABLES, i % SINK_TABLES, &v))
			continue;
		one = stream_dict(&v);
		snprintf(name, sizeof(name), "%u_%s", i / SINK_TABLES,
			arrow_table_name(i % SINK_TABLES));
		if (one != NULL)
			rte_tel_data_add_dict_container(d, name, one, 0);
	}
	for (i = 0; i < ARROW_LATENCY_BUCKETS; i++)
		below[i] = UINT64_C(1) << i;
	store_runs_latency(runs, latency);
	add_array(d, "below_us", below);
	add_array(d, "received_to_durable", latency);
out:
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
		"Connections: state, places, credits, batches durable.");
	(void)rte_telemetry_register_cmd("/braggline/store/streams", answer_streams,
		"Streams: batches, bytes, files, I/O mode, quota, errors; last packet to durable.");
}

void
store_telemetry_close(void)
{
	pthread_mutex_lock(&lock);
	store = NULL;
	pthread_mutex_unlock(&lock);
}
