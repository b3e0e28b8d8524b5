/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "arrow/tables.h"
#include "io/body_memory.h"
#include "xfer/msg.h"
#include "server/store.h"
#include "server/telemetry.h"
#include "telemetry/dict.h"
#include "telemetry/rdma.h"
#include "telemetry/table.h"

static const struct store *store;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Counters by cause are flat, since nested dictionaries are harder to read. */
static void
add_causes(struct rte_tel_data *d, const struct store_counters *n)
{
	char name[RTE_TEL_MAX_STRING_LEN];
	unsigned int i;

	for (i = 1; i < XFER_REASONS; i++) {
		snprintf(name, sizeof(name), "refused_%s", xfer_reason_name(i));
		rte_tel_data_add_dict_uint(d, name, n->refused[i]);
	}
	for (i = 0; i < XFER_DESC_FAULTS; i++) {
		snprintf(name, sizeof(name), "descriptors_%s", xfer_desc_fault_name(i));
		rte_tel_data_add_dict_uint(d, name, n->fault[i]);
	}
}

/* @return the worst current state of a run's files */
static const char *
alarm_name(const struct store_values *v)
{
	const struct stream_stats *stats;
	const char *name = "none";
	unsigned int i;

	for (i = 0; i < v->nb_streams; i++) {
		stats = &v->stream[i].view.stats;
		if (stats->error == -ENOSPC)
			name = "disk full";
		else if (stats->error == -EDQUOT && strcmp(name, "none") == 0)
			name = "quota";
		else if (stats->error < 0 && stats->error != -EDQUOT)
			return "I/O error";
		else if (stats->stalled != 0 && strcmp(name, "none") == 0)
			name = "disk stalled";
	}
	return name;
}

static void
add_counters(struct rte_tel_data *d, const struct store_values *v)
{
	const struct store_counters *n = &v->counters;

	rte_tel_data_add_dict_uint(d, "requests", n->requests);
	rte_tel_data_add_dict_uint(d, "connections_established", n->granted);
	rte_tel_data_add_dict_uint(d, "connections_broken", n->broken);
	rte_tel_data_add_dict_uint(d, "connections_ended", n->ended);
	rte_tel_data_add_dict_uint(d, "connections_abandoned", n->abandoned);
	rte_tel_data_add_dict_uint(d, "connections_superseded", n->superseded);
	rte_tel_data_add_dict_uint(d, "body_bytes", n->bytes);
	rte_tel_data_add_dict_uint(d, "batches_durable", n->durable);
	rte_tel_data_add_dict_uint(d, "batches_duplicate", n->duplicates);
	rte_tel_data_add_dict_uint(d, "batches_returned", n->returned);
	rte_tel_data_add_dict_uint(d, "body_crc_errors", n->body_crc_errors);
	rte_tel_data_add_dict_uint(d, "bodies_unreadable", n->bodies_unreadable);
	rte_tel_data_add_dict_uint(d, "batches_stored_damaged", n->stored_damaged);
	rte_tel_data_add_dict_uint(d, "body_bytes_per_s", n->bytes_per_s);
	rte_tel_data_add_dict_uint(d, "reassigned_refused", n->reassigned_refused);
	rte_tel_data_add_dict_uint(d, "keys_removed", n->keys_removed);
	rte_tel_data_add_dict_uint(d, "unauthenticated_admitted", v->admission.admitted);
	rte_tel_data_add_dict_uint(
		d, "unauthenticated_admitted_known", v->admission.admitted_known);
	rte_tel_data_add_dict_uint(d, "unauthenticated_full", v->admission.full);
	rte_tel_data_add_dict_uint(d, "unauthenticated_crowded", v->admission.crowded);
	rte_tel_data_add_dict_uint(d, "unauthenticated_evicted", v->admission.evicted);
	rte_tel_data_add_dict_uint(d, "warnings_suppressed", v->warnings_suppressed);
	rte_tel_data_add_dict_uint(d, "reconciliations", n->cuts);
	rte_tel_data_add_dict_uint(d, "batches_truncated", n->batches_truncated);
	rte_tel_data_add_dict_string(d, "alarm", alarm_name(v));
	rte_tel_data_add_dict_uint(d, "runs_opened", v->runs.opened);
	rte_tel_data_add_dict_uint(d, "runs_ended", v->runs.ended);
	rte_tel_data_add_dict_uint(d, "runs_idle", v->runs.idle);
	rte_tel_data_add_dict_uint(d, "runs_refused", v->runs.refused);
	add_causes(d, n);
	rte_tel_data_add_dict_uint(d, "age_ms", xfer_qp_clock() - v->made);
}

/* Add values that are set at open, and those of the completion thread, which have a lock. */
static void
add_constants(struct rte_tel_data *d, const struct store_shared *s)
{
	struct store_completion_stats left;

	telemetry_dict_hex(d, "identity", s->node);
	rte_tel_data_add_dict_string(d, "bodies", body_memory_name(s->bodies.gpu));
	rte_tel_data_add_dict_string(d, "cufile",
		s->bodies.cufile == NULL
			? "not used"
			: cufile_mode_name(cufile_info_get(s->bodies.cufile)->mode));
	store_completion_stats_get(s->runs.completion, &left);
	rte_tel_data_add_dict_uint(d, "completing_files", left.files);
	rte_tel_data_add_dict_uint(d, "completing_bytes", left.bytes);
	rte_tel_data_add_dict_uint(d, "files_completed", left.completed);
	rte_tel_data_add_dict_uint(d, "files_not_completed", left.failed);
}

/* Get a copy for one reply, to be returned. The lock is held, so other commands wait meanwhile. */
static const struct store_values *
get_values(void)
{
	return store != NULL ? store_view_get(store_get_view(store)) : NULL;
}

static void
put_values(const struct store_values *v)
{
	if (v != NULL)
		store_view_put(store_get_view(store));
}

static int
answer_store(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_values *v;

	pthread_mutex_lock(&lock);
	v = get_values();
	rte_tel_data_start_dict(d);
	if (v != NULL) {
		add_constants(d, store_get_shared(store));
		add_counters(d, v);
	}
	put_values(v);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
answer_connections(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_connection_view *c;
	const struct store_values *v;
	struct rte_tel_data *one;
	char name[16];
	unsigned int i;

	pthread_mutex_lock(&lock);
	v = get_values();
	rte_tel_data_start_dict(d);
	for (i = 0; v != NULL && i < v->nb_connections; i++) {
		c = &v->connection[i];
		one = telemetry_dict_new();
		if (one == NULL)
			break;
		rte_tel_data_add_dict_string(one, "state", store_connection_state_name(c->state));
		rte_tel_data_add_dict_uint(one, "slots", c->slots);
		rte_tel_data_add_dict_uint(one, "credits", c->slots - c->pending);
		rte_tel_data_add_dict_uint(one, "pending", c->pending);
		rte_tel_data_add_dict_uint(one, "results_waiting", c->results);
		rte_tel_data_add_dict_uint(one, "frames_durable", c->batches[0]);
		rte_tel_data_add_dict_uint(one, "images_durable", c->batches[1]);
		snprintf(name, sizeof(name), "%u", c->index);
		telemetry_dict_nest(d, name, one);
	}
	put_values(v);
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct rte_tel_data *
stream_dict(const struct store_stream_view *v)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	telemetry_dict_text(d, "run", v->run);
	telemetry_dict_hex(d, "receiver_id", v->receiver_id);
	telemetry_dict_hex(d, "incarnation", v->incarnation);
	rte_tel_data_add_dict_uint(d, "connected", v->connected);
	rte_tel_data_add_dict_uint(d, "batches", v->stats.batches);
	rte_tel_data_add_dict_uint(d, "rows", v->stats.rows);
	rte_tel_data_add_dict_uint(d, "bytes", v->stats.bytes);
	rte_tel_data_add_dict_uint(d, "duplicates", v->stats.duplicates);
	rte_tel_data_add_dict_uint(d, "returned", v->stats.returned);
	rte_tel_data_add_dict_uint(d, "differing", v->stats.differing);
	rte_tel_data_add_dict_uint(d, "pending", v->stats.pending);
	rte_tel_data_add_dict_uint(d, "truncated", v->stats.cut);
	rte_tel_data_add_dict_uint(d, "checked", v->stats.checked);
	rte_tel_data_add_dict_uint(d, "damaged", v->stats.damaged);
	rte_tel_data_add_dict_uint(d, "repaired", v->stats.repaired);
	rte_tel_data_add_dict_uint(d, "files", v->stats.files);
	rte_tel_data_add_dict_uint(d, "files_complete", v->stats.complete);
	rte_tel_data_add_dict_uint(d, "syncs", v->stats.syncs);
	rte_tel_data_add_dict_uint(d, "outages", v->stats.outages);
	rte_tel_data_add_dict_uint(d, "stalls", v->stats.stalls);
	rte_tel_data_add_dict_uint(d, "resumes", v->stats.resumes);
	rte_tel_data_add_dict_uint(d, "error", -v->stats.error);
	rte_tel_data_add_dict_uint(d, "quota", v->quota);
	rte_tel_data_add_dict_uint(d, "quota_used", v->quota_used);
	rte_tel_data_add_dict_string(
		d, "io", v->stats.files > 0 ? arrow_io_mode_name(v->stats.mode) : "none yet");
	return d;
}

static int
answer_streams(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_values *v;
	char name[32];
	unsigned int i;

	pthread_mutex_lock(&lock);
	v = get_values();
	rte_tel_data_start_dict(d);
	for (i = 0; v != NULL && i < v->nb_streams; i++) {
		snprintf(name, sizeof(name), "%u_%s", v->stream[i].run,
			arrow_table_name(v->stream[i].table));
		telemetry_dict_nest(d, name, stream_dict(&v->stream[i].view));
	}
	if (v != NULL) {
		telemetry_dict_below_us(d);
		telemetry_dict_histogram(d, "received_to_durable", &v->latency);
	}
	put_values(v);
	pthread_mutex_unlock(&lock);
	return 0;
}

static struct rte_tel_data *
identity_dict(const struct store_audit_counts *n)
{
	struct rte_tel_data *d = telemetry_dict_new();

	if (d == NULL)
		return NULL;
	rte_tel_data_add_dict_string(d, "name", n->name);
	telemetry_dict_hex(d, "key", n->fingerprint);
	rte_tel_data_add_dict_uint(d, "authentications", n->authentications);
	rte_tel_data_add_dict_uint(d, "connections", n->connections);
	rte_tel_data_add_dict_uint(d, "connections_established", n->granted);
	rte_tel_data_add_dict_uint(d, "refused", n->refused);
	rte_tel_data_add_dict_uint(d, "batches_durable", n->durable);
	rte_tel_data_add_dict_uint(d, "body_bytes", n->bytes);
	rte_tel_data_add_dict_uint(d, "batches_truncated", n->batches_truncated);
	rte_tel_data_add_dict_uint(d, "runs_ended", n->ended);
	return d;
}

static int
answer_identities(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct store_values *v;
	struct rte_tel_data *one;
	char name[16];
	unsigned int i;

	pthread_mutex_lock(&lock);
	v = get_values();
	rte_tel_data_start_dict(d);
	for (i = 0; v != NULL && i < v->nb_identities; i++) {
		one = identity_dict(&v->identity[i]);
		if (one == NULL)
			break;
		snprintf(name, sizeof(name), "%u", i);
		telemetry_dict_nest(d, name, one);
	}
	put_values(v);
	pthread_mutex_unlock(&lock);
	return 0;
}

/* This thread reads the files; the lcore only switches to the result. */
static int
answer_reload(const char *cmd, const char *params, struct rte_tel_data *d)
{
	char message[PATH_MAX] = "";
	int ret = -ENODEV;

	pthread_mutex_lock(&lock);
	rte_tel_data_start_dict(d);
	if (store != NULL)
		ret = store_keys_reload(store_get_shared(store)->keys, message);
	rte_tel_data_add_dict_uint(d, "read", ret == 0);
	telemetry_dict_text(d, "message", ret == 0 ? "in force at once" : message);
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
answer_rdma(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct rdma_dev_info *info = NULL;
	const struct rdma_dev *dev;

	pthread_mutex_lock(&lock);
	dev = store != NULL ? store_get_device(store, &info) : NULL;
	telemetry_rdma_reply(d, dev, info);
	pthread_mutex_unlock(&lock);
	return 0;
}

static const struct telemetry_command commands[] = {
	{"/braggline/store", "", "Counters of the store since its start, by cause",
		"identity; requests, connections_established, connections_broken, "
		"connections_ended, connections_abandoned (before they were established), "
		"connections_superseded; bodies (memory of host or GPU), cufile (its mode); "
		"body_bytes, batches_durable, batches_duplicate, batches_returned, "
		"body_crc_errors (bodies that arrived with a wrong CRC), bodies_unreadable (in the "
		"memory of the store, to be checked), batches_stored_damaged (damaged in the "
		"receiver's memory, as the receiver says), body_bytes_per_s; "
		"reassigned_refused (REASSIGNED without the right, or of a run that has ended), "
		"keys_removed (connections closed because the new keyring lacks their key); "
		"unauthenticated_admitted, unauthenticated_admitted_known, unauthenticated_full, "
		"unauthenticated_crowded, unauthenticated_evicted (requests), warnings_suppressed; "
		"reconciliations, batches_truncated (by reconciliations); alarm (none, disk full, "
		"quota, I/O error, disk stalled); "
		"runs_opened, runs_ended, runs_idle, runs_refused; completing_files and "
		"completing_bytes (remaining incomplete files of an earlier process), "
		"files_completed, files_not_completed (of these); refused_REASON (connections), "
		"descriptors_FAULT (announced batches; descriptors_good); age_ms (of the counters: "
		"the serving lcore copies them on request)",
		answer_store},
	{"/braggline/store/connections", "", "Current connections",
		"by number: state, slots, credits (free slots), pending (slots without a "
		"result), results_waiting, frames_durable, images_durable (batches)",
		answer_connections},
	{"/braggline/store/identities", "", "Counters of each identity of the keyring",
		"by number: name, key (fingerprint, of the last authentication), authentications, "
		"connections (current), connections_established, refused (after authentication), "
		"batches_durable, body_bytes, batches_truncated (because it reassigned them), "
		"runs_ended",
		answer_identities},
	{"/braggline/store/keys/reload", "", "Reload the keyring",
		"read (1: the file is valid and used), message (file and line of a mistake: the "
		"previous keyring stays in use; continued in message_2 ...)",
		answer_reload},
	{"/braggline/store/streams", "", "Tables of the runs whose files are open",
		"by number of the run and table: run, receiver_id, incarnation, connected, "
		"batches, rows, bytes, duplicates, returned, differing (of these, from the stored "
		"batch), pending, truncated, checked (read again before a receiver released them), "
		"damaged and repaired (of these), files, files_complete, syncs, outages, stalls, "
		"resumes, error (errno), quota and quota_used (of the receiver), io (mode); of all "
		"runs since the start: below_us [...], received_to_durable [...], "
		"received_to_durable_sum_us",
		answer_streams},
	{"/braggline/rdma", "", "The RDMA device, since the start", TELEMETRY_RDMA_KEYS,
		answer_rdma},
};

static int
serve_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return telemetry_table_serve(commands, RTE_DIM(commands), cmd, params, d);
}

void
store_telemetry_open(const struct store *s)
{
	pthread_mutex_lock(&lock);
	store = s;
	pthread_mutex_unlock(&lock);
	(void)telemetry_table_register(commands, RTE_DIM(commands), serve_command);
}

void
store_telemetry_close(void)
{
	pthread_mutex_lock(&lock);
	store = NULL;
	pthread_mutex_unlock(&lock);
}

void
store_telemetry_document(FILE *out)
{
	telemetry_table_print(commands, RTE_DIM(commands), out);
}
