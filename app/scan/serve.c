/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_log.h>

#include "eal/end.h"
#include "eal/start.h"
#include "escaped_text.h"
#include "query.h"
#include "scan/list.h"
#include "serve.h"
#include "serve_telemetry.h"
#include "service_manager.h"
#include "sql/session.h"
#include "xfer/qp.h"

RTE_LOG_REGISTER(serve_logtype, braggline.scan.serve, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, serve_logtype, "scan: " __VA_ARGS__)

#define STOP_MS 5000

static volatile sig_atomic_t signalled;

static void
on_signal(int number)
{
	signalled = number;
}

void
serve_prepare(void)
{
	const struct sigaction action = {.sa_handler = on_signal};

	eal_signals(&action);
}

/* Open an engine once: a mistake in --memory is an error of the start, not of each client. */
static int
try_engine(const struct scan_worker_config *config, char message[PATH_MAX])
{
	const struct sql_limits limits = {.threads = config->threads, .memory = config->memory};
	struct scan_list none = {0};
	struct sql_session session;
	struct sql_catalog catalog;
	int ret = sql_catalog_create(&catalog, &none, NULL, NULL);

	snprintf(message, PATH_MAX, "not enough memory");
	if (ret < 0)
		return ret;
	ret = sql_session_open(&session, config->api, &catalog, &limits);
	if (ret < 0)
		snprintf(message, PATH_MAX, "%.4000s", session.error);
	sql_session_close(&session);
	sql_catalog_destroy(&catalog);
	return ret;
}

/* Print what is wrong with paths of runs. They are read again for each session. */
static void
try_paths(const struct scan_worker_config *config)
{
	struct scan_list list = {0};
	unsigned int i;

	for (i = 0; i < config->nb_paths; i++)
		(void)scan_list_add(&list, config->path[i]);
	scan_list_free(&list);
}

static void
poll_until_signal(struct scan_server *s)
{
	uint64_t alive_at = 0;

	while (signalled == 0 && !scan_server_lost_device(s)) {
		service_manager_beat(&alive_at, xfer_qp_clock());
		scan_server_pause(s, scan_server_poll(s));
	}
	service_manager_stopping();
	if (signalled != 0)
		LOG(NOTICE, "stopping on signal: %s\n", strsignal(signalled));
}

int
serve(struct scan_server_config *config)
{
	const struct scan_server_counters *n;
	char message[PATH_MAX];
	struct scan_server *s;
	struct duckdb_api api;
	uint64_t until;
	int ret, status;

	if (duckdb_api_load(&api, message, sizeof(message)) < 0) {
		escaped_line(stderr, "%s: %s", program_invocation_short_name, message);
		return 1;
	}
	config->worker.api = &api;
	try_paths(&config->worker);
	ret = try_engine(&config->worker, message);
	if (ret < 0) {
		escaped_line(stderr, "%s: %s", program_invocation_short_name, message);
		return ret == -EINVAL ? QUERY_USAGE : 1;
	}
	if (scan_server_open(&s, config, message) < 0) {
		escaped_line(stderr, "%s: %s", program_invocation_short_name, message);
		return 1;
	}
	serve_telemetry_open(s);
	snprintf(message, sizeof(message), "listening on port %u of %.4000s",
		config->port > 0 ? config->port : SCAN_PORT, config->device);
	LOG(NOTICE, "%s\n", message);
	service_manager_status(message);
	service_manager_ready();
	poll_until_signal(s);
	/* without its device the service manager starts it again */
	status = scan_server_lost_device(s) ? 1 : 0;
	scan_server_stop(s);
	until = xfer_qp_clock() + STOP_MS;
	while (!scan_server_is_idle(s) && xfer_qp_clock() < until)
		(void)scan_server_poll(s);
	n = scan_server_get_counters(s);
	LOG(NOTICE,
		"sessions: %" PRIu64 ", lost: %" PRIu64 ", queries: %" PRIu64
		", cancelled: %" PRIu64 ", beyond the deadline: %" PRIu64
		", bytes in messages: %" PRIu64 ", in slots: %" PRIu64 ", read by clients: %" PRIu64
		"\n",
		n->sessions, n->lost, n->queries, n->cancelled, n->deadlines, n->inline_bytes,
		n->pushed_bytes, n->pulled_bytes);
	LOG(NOTICE,
		"queries with deferred lists: %" PRIu64 ", bytes of bodies: %" PRIu64
		", of these deferred lists: %" PRIu64 ", copied after the engines: %" PRIu64
		", read from mapped files by the device: %" PRIu64 "\n",
		n->work.deferred, n->work.result_bytes, n->work.deferred_bytes,
		n->work.copied_bytes, n->work.gathered_bytes);
	if (!scan_server_is_idle(s)) {
		/* engines that do not notice an interrupt, peers that are gone: free nothing */
		LOG(WARNING, "sessions are still open after the time limit: the process exits\n");
		_exit(status);
	}
	serve_telemetry_close();
	eal_block_interrupts();
	scan_server_close(s);
	return status;
}
