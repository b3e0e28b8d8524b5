/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_errno.h>

#include "io/dir_lock.h"
#include "io/own_file.h"
#include "eal/process_cpus.h"
#include "log.h"
#include "plural.h"
#include "server/store.h"
#include "server/identity.h"
#include "server/known_peers.h"
#include "store_tree.h"

LOG_REGISTER("store", "store");

#define EVENTS 32
/* requests between two polls: reject a flood of them rather than drop it */
#define BACKLOG	       128
#define CM_TURNS       64 /* iterations of the engine per poll of the CM and the files */
#define RATE_MS	       1000
#define DEFAULT_MEMORY (1ull << 30)

struct store {
	struct store_shared shared;
	struct rdma_conn *listener;
	struct store_known_peers known_peers;
	int lock; /* of the directory */
	bool own_dev;
	bool removed;	   /* the device was removed or has failed */
	uint64_t rated_at; /* ms */
	uint64_t rated_bytes;
	struct rdma_dev_info info;
	struct store_view *view; /* copies for other threads */
	unsigned int turn;
	struct store_connection connection[STORE_CONNECTIONS];
	/* Bitmap of connections in use: polling must not touch one cache line per connection. */
	uint64_t used;
};

static void
on_result(void *arg, uint64_t tag, uint64_t sequence, enum xfer_result_status status)
{
	struct store *s = arg;

	store_connection_result(&s->connection[tag >> 32], (uint32_t)tag, sequence, status);
}

static void
apply(struct store *s, const struct store_config *c)
{
	struct store_shared *h = &s->shared;

	h->memory = c->memory > 0 ? c->memory : DEFAULT_MEMORY;
	h->heartbeat_ms = c->heartbeat_ms > 0 ? c->heartbeat_ms : 500;
	h->silence_ms = c->silence_ms > 0 ? c->silence_ms : 2000;
	h->runs.files = c->files;
	h->runs.files.result = on_result;
	h->runs.files.arg = s;
	h->commit_ms = c->files.slices.sync_ms > 0 ? c->files.slices.sync_ms : STREAM_SYNC_MS;
}

/* Choose the memory of bodies, and how they are written. Tests supply a disk of their own. */
static int
open_bodies(struct store *s, const struct store_config *c, char message[PATH_MAX])
{
	const struct store_bodies_config config = {
		.where = c->bodies,
		.io = c->io,
		.threads = c->io_threads,
		.directory = c->files.root,
		.rdma = s->info.gpu_memory,
	};
	int ret;

	s->shared.bodies.gpu = -1;
	s->shared.bodies.system = true;
	if (c->files.slices.io != NULL)
		return 0;
	ret = store_bodies_open(&s->shared.bodies, &config, &s->shared.runs.files.slices, message);
	if (ret == 0)
		LOG(NOTICE, "%s\n", s->shared.bodies.why);
	return ret;
}

/* Start the completion of files whose receivers do not reconnect. */
static int
open_completion(struct store *s, const struct store_config *c, char message[PATH_MAX])
{
	const uint64_t idle_ms = c->files.idle_ms;
	const struct store_completion_config config = {
		.root = c->files.root,
		.grace_ms = idle_ms > 0 && idle_ms < STORE_COMPLETION_GRACE_MS
			? idle_ms
			: STORE_COMPLETION_GRACE_MS,
		.enter = process_cpus_take,
	};
	int ret = store_completion_open(&s->shared.runs.completion, &config);

	if (ret < 0)
		snprintf(message, PATH_MAX, "incomplete files in %.3000s: %s", c->files.root,
			strerror(-ret));
	return ret;
}

/* Create the root of all runs. Errors show now, not when the first receiver connects. */
static int
make_root(const char *root, char message[PATH_MAX])
{
	int ret = own_folder_make(root, OWN_FOLDER_DATA, message);

	if (ret < 0)
		return ret;
	close(ret);
	if (access(root, W_OK | X_OK) == 0)
		return 0;
	ret = -errno;
	snprintf(message, PATH_MAX, "cannot use the directory of the files, %.3000s: %s", root,
		strerror(-ret));
	return ret;
}

/* Lock the directory and read its identity. */
static int
open_files(struct store *s, const struct store_config *c, char message[PATH_MAX])
{
	int ret;

	s->lock = -1;
	ret = make_root(c->files.root, message);
	if (ret == 0)
		ret = store_keys_open(&s->shared.keys, c->keys, message);
	if (ret < 0)
		return ret;
	s->lock = store_tree_lock(c->files.root, message);
	if (s->lock < 0)
		return s->lock;
	ret = store_identity(c->files.root, &s->shared.node, message);
	if (ret == 0)
		store_known_peers_open(
			&s->known_peers, c->files.root, &s->shared.admission, xfer_qp_clock());
	if (ret == 0)
		LOG(NOTICE, "%016" PRIx64 " in %s\n", s->shared.node, c->files.root);
	return ret;
}

static int
open_device(struct store *s, const struct store_config *c, char message[PATH_MAX])
{
	s->shared.dev = c->dev != NULL ? c->dev : rdma_dev_open(c->device);
	s->own_dev = c->dev == NULL;
	if (s->shared.dev != NULL)
		return 0;
	snprintf(message, PATH_MAX, "device %.3000s: %s", c->device, rte_strerror(rte_errno));
	return -rte_errno;
}

int
store_open(struct store **store, const struct store_config *c, char message[PATH_MAX])
{
	struct store *s = calloc(1, sizeof(*s));
	unsigned int i;
	int ret;

	if (s != NULL)
		s->view = store_view_open();
	if (s == NULL || s->view == NULL) {
		free(s);
		snprintf(message, PATH_MAX, "cannot allocate a store");
		return -ENOMEM;
	}
	for (i = 0; i < STORE_CONNECTIONS; i++)
		s->connection[i].index = i;
	apply(s, c);
	ret = open_files(s, c, message);
	if (ret == 0)
		ret = open_device(s, c, message);
	if (ret < 0) {
		dir_lock_release(s->lock);
		store_keys_close(s->shared.keys);
		store_view_close(s->view);
		free(s);
		return ret;
	}
	rdma_dev_info_get(s->shared.dev, &s->info);
	ret = open_bodies(s, c, message);
	if (ret < 0) {
		(void)store_close(s);
		return ret;
	}
	ret = store_check_open(&s->shared.check, c->check, &s->shared.bodies, message);
	if (ret == 0) {
		LOG(NOTICE, "%s\n", s->shared.check.what);
		ret = open_completion(s, c, message);
	}
	if (ret < 0) {
		(void)store_close(s);
		return ret;
	}
	s->shared.region = c->region > 0 ? c->region : s->info.max_mr_bytes;
	xfer_qp_address(&s->info.addr, s->shared.addr);
	/* this lcore must own the poll group before control functions wait for it */
	(void)rdma_progress(s->shared.dev, 0);
	s->listener = rdma_conn_listen(
		s->shared.dev, RDMA_QP_RC, c->port > 0 ? c->port : XFER_PORT, BACKLOG, NULL);
	if (s->listener == NULL) {
		ret = -rte_errno;
		snprintf(message, PATH_MAX, "cannot listen on port %u of %.3000s: %s",
			c->port > 0 ? c->port : XFER_PORT,
			c->dev != NULL ? s->info.name : c->device, rte_strerror(-ret));
		(void)store_close(s);
		return ret;
	}
	*store = s;
	return 0;
}

static struct store_connection *
free_connection(struct store *s)
{
	unsigned int i;

	for (i = 0; i < STORE_CONNECTIONS; i++) {
		if (s->connection[i].state == STORE_FREE)
			return &s->connection[i];
	}
	return NULL;
}

static void
take_request(struct store *s, const struct rdma_event *event, uint64_t now)
{
	struct store_connection *c = free_connection(s);

	s->shared.nb_free = STORE_CONNECTIONS - __builtin_popcountll(s->used);
	store_connection_request(&s->shared, c, event, now);
	if (c != NULL)
		s->used |= UINT64_C(1) << c->index;
}

static bool
poll_cm(struct store *s, uint64_t now)
{
	struct rdma_event event[EVENTS];
	struct store_connection *c;
	unsigned int i, n;
	bool request;

	static_assert(STORE_CONNECTIONS <= 64, "bits of store.used");
	n = rdma_poll_cm(s->shared.dev, event, EVENTS);
	/* handle unknown peers last */
	for (i = 0; i < n; i++) {
		request = event[i].type == RDMA_EVENT_CONNECT_REQUEST;
		if (request && store_connection_knows(&s->shared, &event[i], now))
			take_request(s, &event[i], now);
		if (request)
			continue;
		if (event[i].type == RDMA_EVENT_DEVICE_REMOVED) {
			s->removed = true;
			LOG(ERR,
				"device %s was removed or has failed; the store ends, and "
				"receivers keep what is not durable\n",
				s->info.name);
		}
		c = event[i].conn != NULL ? rdma_conn_context(event[i].conn) : NULL;
		if (c != NULL)
			store_connection_event(c, &event[i]);
	}
	for (i = 0; i < n; i++) {
		if (event[i].type == RDMA_EVENT_CONNECT_REQUEST &&
			!store_connection_knows(&s->shared, &event[i], now))
			take_request(s, &event[i], now);
	}
	return n > 0;
}

/*
 * End connections that were not authenticated in time, and log the number of suppressed warnings.
 */
static void
expire(struct store *s, uint64_t now)
{
	struct store_connection *c;
	uint64_t nb;

	while ((c = admission_expire(&s->shared.admission, now)) != NULL)
		store_connection_late(c);
	nb = refusal_limit_poll(&s->shared.warnings, now);
	if (nb > 0)
		AUDIT(NOTICE,
			"refused: %" PRIu64 " more unauthenticated peers within %u s, not logged",
			nb, REFUSAL_LIMIT_MS / 1000);
}

static void
change_keys(struct store *s)
{
	unsigned int i;

	if (!store_keys_poll(s->shared.keys))
		return;
	for (i = 0; i < STORE_CONNECTIONS; i++)
		store_connection_keys_changed(&s->connection[i]);
}

static void
count_rate(struct store *s, uint64_t now)
{
	struct store_counters *n = &s->shared.counters;

	if (now < s->rated_at + RATE_MS)
		return;
	n->bytes_per_s = (n->bytes - s->rated_bytes) * 1000 / (now - s->rated_at);
	s->rated_at = now;
	s->rated_bytes = n->bytes;
}

bool
store_poll(struct store *s)
{
	const uint64_t now = xfer_qp_clock();
	unsigned int i, pg;
	bool busy = false;
	uint64_t used;

	for (pg = 0; pg < s->info.nb_poll_groups; pg++)
		busy |= rdma_progress(s->shared.dev, pg) > 0;
	for (used = s->used; used != 0; used &= used - 1) {
		i = __builtin_ctzll(used);
		busy |= store_connection_take_checked(&s->connection[i], now);
		busy |= store_connection_poll(&s->connection[i], now);
		if (s->connection[i].state == STORE_FREE)
			s->used &= ~(UINT64_C(1) << i);
	}
	if (s->turn++ % CM_TURNS == 0 || !busy) {
		busy |= poll_cm(s, now);
		expire(s, now);
		change_keys(s);
		store_known_peers_poll(&s->known_peers, &s->shared.admission, now);
		store_runs_poll(&s->shared.runs, now);
		count_rate(s, now);
		(void)store_view_poll(s->view, &s->shared, s->connection, now);
	}
	return busy;
}

bool
store_lost_device(const struct store *s)
{
	return s->removed;
}

void
store_stop(struct store *s)
{
	unsigned int i;

	s->shared.stopping = true;
	store_completion_stop(s->shared.runs.completion);
	for (i = 0; i < STORE_CONNECTIONS; i++) {
		if (s->connection[i].state < STORE_UP)
			store_connection_refuse(&s->connection[i], XFER_REASON_STOPPING);
	}
}

bool
store_is_idle(const struct store *s)
{
	unsigned int i;

	for (i = 0; i < STORE_CONNECTIONS; i++) {
		if (s->connection[i].state != STORE_FREE)
			return false;
	}
	return true;
}

/* Number of connections that are not closed, if all of them wait for the device only; else 0. */
static unsigned int
count_waiting(const struct store *s)
{
	unsigned int i, nb = 0;

	for (i = 0; i < STORE_CONNECTIONS; i++) {
		if (s->connection[i].state == STORE_FREE)
			continue;
		if (!store_connection_waits_for_device(&s->connection[i]))
			return 0;
		nb++;
	}
	return nb;
}

/*
 * Wait until all connections are closed. First the results, since bodies are read until then.
 * @return false: the device does not release the memory of a connection
 */
static bool
close_connections(struct store *s)
{
	uint64_t until = xfer_qp_clock() + STORE_DEVICE_MS;
	unsigned int waiting;

	while (!store_is_idle(s)) {
		(void)store_poll(s);
		waiting = count_waiting(s);
		if (waiting == 0)
			until = xfer_qp_clock() + STORE_DEVICE_MS;
		if (xfer_qp_clock() < until)
			continue;
		LOG(ERR,
			"device %s: %u %s not released within %u ms; the store ends without "
			"closing the device\n",
			s->info.name, waiting,
			plural(waiting, "connection was", "connections were"), STORE_DEVICE_MS);
		return false;
	}
	return true;
}

int
store_close(struct store *s)
{
	bool released;
	unsigned int i;
	int ret;

	store_completion_stop(s->shared.runs.completion);
	for (i = 0; i < STORE_CONNECTIONS; i++)
		store_connection_refuse(&s->connection[i], XFER_REASON_STOPPING);
	released = close_connections(s);
	ret = store_runs_close(&s->shared.runs);
	store_completion_close(s->shared.runs.completion);
	if (s->listener != NULL)
		(void)rdma_conn_destroy(s->listener);
	store_check_close(&s->shared.check);
	store_known_peers_close(&s->known_peers, &s->shared.admission);
	store_keys_close(s->shared.keys);
	store_view_close(s->view);
	dir_lock_release(s->lock);
	/* the device and cuFile refer to the memory of a connection that was not released */
	if (!released)
		return ret;
	store_bodies_close(&s->shared.bodies);
	if (s->own_dev)
		(void)rdma_dev_close(s->shared.dev);
	free(s);
	return ret;
}

const struct store_shared *
store_get_shared(const struct store *s)
{
	return &s->shared;
}

struct store_view *
store_get_view(const struct store *s)
{
	return s->view;
}

const struct rdma_dev *
store_get_device(const struct store *s, const struct rdma_dev_info **info)
{
	*info = &s->info;
	return s->shared.dev;
}

const struct store_connection *
store_get_connection(const struct store *s, unsigned int i)
{
	return i < STORE_CONNECTIONS ? &s->connection[i] : NULL;
}
