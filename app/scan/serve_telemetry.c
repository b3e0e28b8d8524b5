/* SPDX-License-Identifier: BSD-3-Clause */

#include <pthread.h>
#include <string.h>

#include <rte_common.h>
#include <rte_telemetry.h>

#include <dpdk_compat.h>

#include "serve_telemetry.h"
#include "telemetry/rdma.h"
#include "telemetry/table.h"

static const struct scan_server *server;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* Keys of refusals, so that each is one word. */
static const char *const reason_keys[SCAN_REASONS] = {
	[SCAN_REASON_MALFORMED] = "refused_malformed",
	[SCAN_REASON_VERSION] = "refused_version",
	[SCAN_REASON_BUSY] = "refused_busy",
	[SCAN_REASON_LATE] = "refused_late",
	[SCAN_REASON_KEY] = "refused_key",
	[SCAN_REASON_RIGHTS] = "refused_rights",
	[SCAN_REASON_ORDER] = "refused_order",
	[SCAN_REASON_SILENT] = "refused_silent",
	[SCAN_REASON_IDLE] = "refused_idle",
	[SCAN_REASON_SESSIONS] = "refused_sessions",
	[SCAN_REASON_FORGED] = "refused_forged",
	[SCAN_REASON_STOPPING] = "refused_stopping",
	[SCAN_REASON_FAILED] = "refused_failed",
	[SCAN_REASON_HELD] = "refused_held",
	[SCAN_REASON_OVERDUE] = "refused_overdue",
};

static void
add(struct rte_tel_data *d, const char *name, const uint64_t *counter)
{
	rte_tel_data_add_dict_uint(d, name, __atomic_load_n(counter, __ATOMIC_RELAXED));
}

static int
answer_scan(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct scan_server_counters *n;
	unsigned int i;

	rte_tel_data_start_dict(d);
	pthread_mutex_lock(&lock);
	if (server != NULL) {
		n = scan_server_get_counters(server);
		add(d, "sessions", &n->sessions);
		add(d, "sessions_current", &n->sessions_current);
		add(d, "sessions_lost", &n->lost);
		add(d, "queries", &n->queries);
		add(d, "queries_current", &n->queries_current);
		add(d, "queries_failed", &n->work.failed);
		add(d, "queries_cancelled", &n->cancelled);
		add(d, "queries_beyond_deadline", &n->deadlines);
		add(d, "queries_deferred", &n->work.deferred);
		add(d, "batches", &n->work.batches);
		add(d, "body_bytes", &n->work.result_bytes);
		add(d, "body_bytes_deferred", &n->work.deferred_bytes);
		add(d, "body_bytes_copied", &n->work.copied_bytes);
		add(d, "body_bytes_gathered", &n->work.gathered_bytes);
		add(d, "message_bytes", &n->inline_bytes);
		add(d, "slot_bytes", &n->pushed_bytes);
		add(d, "pull_bytes", &n->pulled_bytes);
		add(d, "pull_bytes_current", &n->held_bytes);
		for (i = SCAN_REASON_NONE + 1; i < SCAN_REASONS; i++)
			add(d, reason_keys[i], &n->refused[i]);
	}
	pthread_mutex_unlock(&lock);
	return 0;
}

static int
answer_rdma(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct rdma_dev_info *info = NULL;
	const struct rdma_dev *dev;

	pthread_mutex_lock(&lock);
	dev = server != NULL ? scan_server_get_device(server, &info) : NULL;
	telemetry_rdma_reply(d, dev, info);
	pthread_mutex_unlock(&lock);
	return 0;
}

static const struct telemetry_command commands[] = {
	{"/braggline/scan", "", "Counters of the query server since its start, by cause",
		"sessions (authenticated connections), sessions_current (with those whose engine "
		"has not ended yet), sessions_lost (not closed by their clients); queries, "
		"queries_current, queries_failed (with those that were ended), queries_cancelled "
		"(by clients), queries_beyond_deadline, queries_deferred (with deferred "
		"lists); batches (record batches), body_bytes (of their bodies), "
		"body_bytes_deferred (of these, of deferred lists), body_bytes_copied (by "
		"the CPU after the engines to make the bodies), body_bytes_gathered (that the "
		"device read from mapped files), "
		"message_bytes (of messages with results), slot_bytes (of bodies that were "
		"written to slots of clients), pull_bytes (of bodies that clients read), "
		"pull_bytes_current (of these, not freed yet); refused_malformed, "
		"refused_version, refused_busy (no free session), refused_late (not authenticated "
		"in time), refused_key (wrong identity or key), refused_rights, refused_order (an "
		"unexpected message), refused_silent, refused_idle, refused_sessions (too many of "
		"the identity), refused_forged, refused_stopping, refused_failed (connections and "
		"sessions), refused_held (sessions: a part of a body was not freed in time), "
		"refused_overdue (sessions: a query was ended, and its end was not taken in time)",
		answer_scan},
	{"/braggline/rdma", "", "The RDMA device, since the start", TELEMETRY_RDMA_KEYS,
		answer_rdma},
};

static int
serve_command(const char *cmd, const char *params, struct rte_tel_data *d)
{
	return telemetry_table_serve(commands, RTE_DIM(commands), cmd, params, d);
}

void
serve_telemetry_open(const struct scan_server *s)
{
	pthread_mutex_lock(&lock);
	server = s;
	pthread_mutex_unlock(&lock);
	(void)telemetry_table_register(commands, RTE_DIM(commands), serve_command);
}

void
serve_telemetry_close(void)
{
	pthread_mutex_lock(&lock);
	server = NULL;
	pthread_mutex_unlock(&lock);
}

void
serve_telemetry_document(FILE *out)
{
	telemetry_table_print(commands, RTE_DIM(commands), out);
}
