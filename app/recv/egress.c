/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_errno.h>
#include <rte_log.h>

#include "batch_builder.h"
#include "egress.h"
#include "rdma/rdma.h"
#include "sink/sink_key.h"
#include "sink/sink_link.h"
#include "sink/sink_sender.h"

RTE_LOG_REGISTER(egress_logtype, braggline.egress, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, egress_logtype, "egress: " __VA_ARGS__)

#define CM_TURNS  64
#define MOVE_MS	  100 /* how often it is looked whether a store is gone for good */
#define NAP_US	  50
#define ROUND_MS  5
#define COMMIT_MS 200 /* what a store may take until it syncs: twice its default */
#define EVENTS	  8

/* What others want of the lcore. */
enum order {
	ORDER_NONE,
	ORDER_BEGIN,
	ORDER_RESERVE,
	ORDER_COMMIT,
	ORDER_END,
	ORDER_IS_OVER,
};

/* One thing at a time: `order` is stored last by who asks, and back to ORDER_NONE by the lcore. */
struct mailbox {
	int order; /* atomic */
	int answer;
	const struct retention_run *run;
	struct retention_batch batch;
	uint64_t body;
	uint8_t *room;
	uint64_t batches[SINK_TABLES];
};

/* What is counted when a batch is durable and forgotten. */
struct known {
	uint32_t rows;
	uint8_t run; /* index */
	uint8_t table;
};

/* A run whose batches are held. */
struct egress_run {
	bool used;
	bool finishing;
	unsigned int index; /* in the ring */
	struct sink_sender *sender[EGRESS_STORES];
};

struct egress {
	struct egress_settings settings;
	uint64_t producer;
	struct sink_key key;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_mr *mr;
	struct retention *ring;
	unsigned int nb_stores;
	struct sockaddr_storage address[EGRESS_STORES];
	char name[EGRESS_STORES][64];
	int number[EGRESS_STORES]; /* in the ring */
	struct egress_run run[RETENTION_RUNS];
	int current; /* index of the run at hand; -1: none */
	unsigned int next_store;
	struct known *known; /* by batch */
	uint64_t turn;
	uint64_t look_at;
	uint64_t cm_at;
	bool lcore_polls; /* atomic */
	uint64_t body_max[SINK_TABLES];
	struct mailbox mail;
	struct egress_stats stats[SINK_TABLES];
};

#define SET(counter, value) __atomic_store_n(&(counter), (value), __ATOMIC_RELAXED)
#define ADD(counter, n)	    SET(counter, (counter) + (n))

void
egress_settings_read(struct egress_settings *s, struct config *c)
{
	static const char *const policies[] = {"round_robin", "primary", NULL};

	s->device = config_text(c, "egress", "device", NULL);
	s->stores = config_text(c, "egress", "stores", NULL);
	s->key = config_text(c, "egress", "key", NULL);
	s->ring = config_text(c, "egress", "ring", "/dev/shm/braggline-retention");
	s->ring_bytes = config_uint(c, "egress", "ring_mb", 1024, 1, UINT32_MAX) << 20;
	s->batch_bytes = config_uint(c, "egress", "batch_mb", 16, 1, 512) << 20;
	s->rate = config_uint(c, "egress", "rate_mb", 100, 1, 1000000) * 1000000;
	s->policy = config_choice(c, "egress", "policy", EGRESS_ROUND_ROBIN, policies);
	s->failover_ms = config_uint(c, "egress", "failover_ms", 3000, 1, UINT32_MAX);
	s->hold_ms = config_uint(c, "egress", "hold_ms", 1000, 0, UINT32_MAX);
	s->end_ms = config_uint(c, "egress", "end_ms", 60000, 0, UINT32_MAX);
	if (s->device == NULL)
		return;
	if (s->stores == NULL)
		config_complain(c, "egress", "stores", "is needed: ADDRESS[:PORT],...");
	if (s->key == NULL)
		config_complain(c, "egress", "key", "is needed: a file that the stores have, too");
}

/* ---- the lcore's side ------------------------------------------------------------------------ */

/* A store for a batch: one that is there, if any is. */
static unsigned int
choose_store(struct egress *e, const struct egress_run *run)
{
	unsigned int i, store;

	for (i = 0; i < e->nb_stores; i++) {
		store = e->settings.policy == EGRESS_PRIMARY ? i
							     : (e->next_store + i) % e->nb_stores;
		if (!sink_sender_is_down(run->sender[store])) {
			e->next_store = store + 1;
			return store;
		}
	}
	return e->settings.policy == EGRESS_PRIMARY ? 0 : e->next_store++ % e->nb_stores;
}

static void
on_result(void *arg, uint32_t batch, enum sink_result_status status)
{
	struct egress *e = arg;
	const struct known *k = &e->known[batch];
	struct egress_stats *s = &e->stats[k->table];
	struct retention_batch b;
	unsigned int i;

	if (status != SINK_AGAIN) {
		/* those that were adopted are another run's */
		ADD(s->durable, k->run == e->current);
		ADD(s->rows, k->run == e->current ? k->rows : 0);
		return;
	}
	/* the store says when it is good again; until then it waits there, or is moved */
	if (!retention_get(e->ring, batch, &b))
		return;
	for (i = 0; i < e->nb_stores; i++) {
		if (e->number[i] == b.owner)
			(void)sink_sender_offer(e->run[b.run].sender[i], batch);
	}
}

static int
open_senders(struct egress *e, unsigned int index)
{
	struct egress_run *run = &e->run[index];
	struct sink_sender_config c = {
		.dev = e->dev,
		.pd = e->pd,
		.retention = e->ring,
		.mr = e->mr,
		.run = index,
		.producer = e->producer,
		.key = &e->key,
		.role = SINK_ROLE_RECEIVER,
		.result = on_result,
		.arg = e,
	};
	unsigned int i;
	int rc = 0;

	memset(run, 0, sizeof(*run));
	run->used = true;
	run->index = index;
	for (i = 0; i < e->nb_stores && rc == 0; i++) {
		c.address = e->address[i];
		c.name = e->name[i];
		c.store = e->number[i];
		rc = sink_sender_open(&run->sender[i], &c);
	}
	return rc;
}

static void
finish_run(struct egress_run *run, unsigned int nb_stores)
{
	unsigned int i;

	run->finishing = true;
	for (i = 0; i < nb_stores; i++)
		sink_sender_finish(run->sender[i]);
}

static bool
run_is_over(const struct egress *e, const struct egress_run *run)
{
	struct sink_sender_stats stats;
	struct retention_run r;
	unsigned int i, ended = 0;

	if (!retention_run_get(e->ring, run->index, &r) || r.references > 0)
		return false;
	for (i = 0; i < e->nb_stores; i++) {
		sink_sender_stats_get(run->sender[i], &stats);
		/* one that was never reached has nothing to be ended */
		ended += stats.state == SINK_SENDER_ENDED || stats.connections == 0;
	}
	return run->finishing && ended == e->nb_stores;
}

/* All of it is durable, and the stores know: forget it. */
static void
retire_run(struct egress *e, struct egress_run *run)
{
	unsigned int i;

	for (i = 0; i < e->nb_stores; i++) {
		if (run->sender[i] != NULL && sink_sender_close(run->sender[i]) == 0)
			run->sender[i] = NULL;
	}
	for (i = 0; i < e->nb_stores; i++) {
		if (run->sender[i] != NULL)
			return;
	}
	if (retention_run_drop(e->ring, run->index) == 0)
		run->used = false;
}

static struct sink_sender *
sender_of(const struct egress *e, const struct retention_batch *b)
{
	unsigned int i;

	for (i = 0; i < e->nb_stores; i++) {
		if (e->number[i] == b->owner)
			return e->run[b->run].sender[i];
	}
	return NULL;
}

/* Batches of stores that are gone go to others. */
static void
move_batches(struct egress *e, uint64_t now)
{
	struct retention_batch b;
	struct sink_sender *from;
	unsigned int store;
	uint32_t i;

	for (i = retention_next(e->ring, 0); i != UINT32_MAX; i = retention_next(e->ring, i + 1)) {
		if (!retention_get(e->ring, i, &b) || !b.held || !e->run[b.run].used)
			continue;
		from = sender_of(e, &b);
		/* one that is not configured any more is gone, too */
		if (from != NULL &&
			(!sink_sender_is_down(from) ||
				now - sink_sender_down_since(from) < e->settings.failover_ms))
			continue;
		store = choose_store(e, &e->run[b.run]);
		if (sink_sender_is_down(e->run[b.run].sender[store]))
			continue;
		retention_move(e->ring, i, e->number[store]);
		(void)sink_sender_offer(e->run[b.run].sender[store], i);
	}
}

/* Runs that were adopted as well: who ends in order leaves nothing behind. */
static bool
all_is_over(const struct egress *e)
{
	unsigned int i;

	for (i = 0; i < RETENTION_RUNS; i++) {
		if (e->run[i].used)
			return false;
	}
	return true;
}

static int
do_begin(struct egress *e, const struct mailbox *m)
{
	int index, rc;

	index = retention_run_add(e->ring, m->run);
	if (index < 0)
		return index;
	rc = open_senders(e, index);
	if (rc < 0)
		return rc;
	e->current = index;
	return 0;
}

static int
do_commit(struct egress *e, struct mailbox *m)
{
	struct egress_run *run = &e->run[e->current];
	unsigned int store;
	uint32_t batch;

	m->batch.run = e->current;
	batch = retention_commit(e->ring, &m->batch);
	e->known[batch] = (struct known){m->batch.rows, e->current, m->batch.table};
	store = choose_store(e, run);
	retention_assign(e->ring, batch, e->number[store]);
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
		break;
	case ORDER_COMMIT:
		m->answer = do_commit(e, m);
		break;
	case ORDER_END:
		retention_run_end(e->ring, e->current, m->batches);
		finish_run(&e->run[e->current], e->nb_stores);
		m->answer = 0;
		break;
	case ORDER_IS_OVER:
		m->answer = all_is_over(e);
		break;
	}
	__atomic_store_n(&m->order, ORDER_NONE, __ATOMIC_RELEASE);
}

static int
turn(struct egress *e)
{
	const uint64_t now = sink_link_clock();
	struct rdma_event event[EVENTS];
	bool busy = false;
	unsigned int i, k, n, lane;

	take_order(e);
	for (lane = 0; lane < e->info.nb_lanes; lane++)
		busy |= rdma_progress(e->dev, lane) > 0;
	for (i = 0; i < RETENTION_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->nb_stores; k++) {
			if (e->run[i].sender[k] != NULL)
				busy |= sink_sender_poll(e->run[i].sender[k]);
		}
	}
	/* an lcore that gives its CPU away makes few turns */
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
	move_batches(e, now);
	for (i = 0; i < RETENTION_RUNS; i++) {
		if (e->run[i].used && run_is_over(e, &e->run[i]))
			retire_run(e, &e->run[i]);
	}
	return busy || n > 0;
}

int
egress_poll(void *arg)
{
	struct egress *e = arg;

	if (!__atomic_load_n(&e->lcore_polls, __ATOMIC_RELAXED))
		__atomic_store_n(&e->lcore_polls, true, __ATOMIC_RELEASE);
	return turn(e);
}

/* ---- the others' side ------------------------------------------------------------------------ */

/* Ask the lcore, and wait for its answer. Before lcores poll, who asks polls. */
static int
ask(struct egress *e, enum order order)
{
	const struct timespec nap = {.tv_nsec = NAP_US * 1000};

	__atomic_store_n(&e->mail.order, order, __ATOMIC_RELEASE);
	while (__atomic_load_n(&e->mail.order, __ATOMIC_ACQUIRE) != ORDER_NONE) {
		if (__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE))
			nanosleep(&nap, NULL);
		else
			(void)turn(e);
	}
	return e->mail.answer;
}

int
egress_begin(struct egress *e, const char *name, uint64_t number, uint64_t incarnation,
	const struct arrow_tables *tables, const uint64_t body_max[ARROW_TABLES],
	char message[PATH_MAX])
{
	struct retention_run run = {.run = number, .incarnation = incarnation};
	uint8_t *header[ARROW_TABLES] = {NULL};
	unsigned int i;
	size_t size;
	int rc = 0;

	snprintf(run.name, sizeof(run.name), "%s", name);
	for (i = 0; i < ARROW_TABLES && rc == 0; i++) {
		rc = arrow_header_build(&tables->schema[i], &header[i], &size);
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
		run.body_max[i] = body_max[i];
		e->body_max[i] = body_max[i];
		e->stats[i] = (struct egress_stats){0};
	}
	e->mail.run = &run;
	if (rc == 0)
		rc = ask(e, ORDER_BEGIN);
	e->mail.run = NULL;
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (rc < 0)
		snprintf(message, PATH_MAX, "the retention ring cannot take another run: %s",
			strerror(-rc));
	return rc;
}

/* Room in the ring, waiting for it if need be. */
static uint8_t *
wait_for_room(struct egress *e, uint64_t body)
{
	const uint64_t until = sink_link_clock() + e->settings.hold_ms;
	const struct timespec nap = {.tv_nsec = 20 * NAP_US * 1000};

	e->mail.body = body;
	while (ask(e, ORDER_RESERVE) < 0) {
		if (sink_link_clock() >= until)
			return NULL;
		nanosleep(&nap, NULL);
	}
	return e->mail.room;
}

void
egress_put(struct egress *e, const struct batch *b)
{
	struct egress_stats *s = &e->stats[b->table];
	uint8_t *room;
	unsigned int i;

	if (b->body_length > e->body_max[b->table] || b->metadata_size != SINK_BLOCK) {
		ADD(s->oversize, 1);
		ADD(s->oversize_rows, b->rows);
		LOG(ERR, "a batch of %" PRIu64 " bytes is larger than a place of %" PRIu64 "\n",
			b->body_length, e->body_max[b->table]);
		return;
	}
	room = wait_for_room(e, b->body_length);
	if (room == NULL) {
		ADD(s->refused, 1);
		ADD(s->refused_rows, b->rows);
		return;
	}
	memcpy(room, b->metadata, b->metadata_size);
	room += SINK_BLOCK;
	for (i = 0; i < b->nb_body; room += b->body[i++].iov_len)
		memcpy(room, b->body[i].iov_base, b->body[i].iov_len);
	e->mail.batch = (struct retention_batch){
		.sequence = b->sequence,
		.rows = b->rows,
		.first = b->first,
		.last = b->last,
		.received = b->received,
		.body_crc32c = b->crc32c,
		.table = b->table,
	};
	(void)ask(e, ORDER_COMMIT);
	ADD(s->put, 1);
	ADD(s->put_rows, b->rows);
	ADD(s->bytes, b->metadata_size + b->body_length);
}

int
egress_end(struct egress *e)
{
	const uint64_t until = sink_link_clock() + e->settings.end_ms;
	const struct timespec nap = {.tv_nsec = 20 * NAP_US * 1000};
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++)
		e->mail.batches[i] = e->stats[i].put;
	(void)ask(e, ORDER_END);
	while (ask(e, ORDER_IS_OVER) == 0) {
		if (sink_link_clock() >= until) {
			LOG(ERR, "the run's end waits for stores: the rest stays in %s\n",
				e->settings.ring);
			return -ETIMEDOUT;
		}
		nanosleep(&nap, NULL);
	}
	return 0;
}

void
egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *to)
{
	const struct egress_stats *from = &e->stats[table];

#define GET(member) __atomic_load(&from->member, &to->member, __ATOMIC_RELAXED)
	GET(put);
	GET(put_rows);
	GET(durable);
	GET(rows);
	GET(bytes);
	GET(refused);
	GET(refused_rows);
	GET(oversize);
	GET(oversize_rows);
#undef GET
}

/* ---- its life -------------------------------------------------------------------------------- */

/* ADDRESS[:PORT], IPv4, or IPv6 in brackets. */
static int
parse_store(const char *text, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
	struct sockaddr_in *four = (struct sockaddr_in *)to;
	char address[64], *port, *end;
	unsigned long number = SINK_PORT;

	memset(to, 0, sizeof(*to));
	if (snprintf(address, sizeof(address), "%s", text) >= (int)sizeof(address))
		return -EINVAL;
	port = address[0] == '[' ? strstr(address, "]:") : strchr(address, ':');
	if (port != NULL) {
		end = strchr(port, ':') + 1;
		number = strtoul(end, &end, 10);
		if (*end != '\0' || number == 0 || number > UINT16_MAX)
			return -EINVAL;
		*port = '\0';
	}
	if (address[0] == '[') {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(number);
		if (port == NULL && address[strlen(address) - 1] == ']')
			address[strlen(address) - 1] = '\0';
		return inet_pton(AF_INET6, address + 1, &six->sin6_addr) == 1 ? 0 : -EINVAL;
	}
	four->sin_family = AF_INET;
	four->sin_port = htons(number);
	return inet_pton(AF_INET, address, &four->sin_addr) == 1 ? 0 : -EINVAL;
}

static int
parse_stores(struct egress *e)
{
	char list[1024], *save = NULL, *text;

	snprintf(list, sizeof(list), "%s", e->settings.stores);
	for (text = strtok_r(list, ", ", &save); text != NULL; text = strtok_r(NULL, ", ", &save)) {
		if (e->nb_stores == EGRESS_STORES ||
			parse_store(text, &e->address[e->nb_stores]) < 0) {
			LOG(ERR, "[egress] stores: '%s': wanted ADDRESS[:PORT], at most %u\n", text,
				EGRESS_STORES);
			return -EINVAL;
		}
		snprintf(e->name[e->nb_stores++], sizeof(e->name[0]), "%s", text);
	}
	return e->nb_stores > 0 ? 0 : -EINVAL;
}

static int
check_size(const struct egress *e)
{
	const struct retention_need need = {
		.rate = e->settings.rate,
		.commit_ms = COMMIT_MS,
		.round_ms = ROUND_MS,
		.detection_ms = e->settings.failover_ms,
		.hold_ms = e->settings.hold_ms,
		.body_max = e->settings.batch_bytes,
	};
	struct retention_stats stats;
	char text[256];
	uint64_t bytes;

	retention_stats_get(e->ring, &stats);
	bytes = retention_need(&need, text, sizeof(text));
	if (bytes <= stats.room) {
		LOG(NOTICE, "retention of %.1f GB; needed: %s\n", stats.room / 1e9, text);
		return 0;
	}
	LOG(ERR, "retention of %.1f GB is too small; needed: %s ([egress] ring_mb, rate_mb)\n",
		stats.room / 1e9, text);
	return -EINVAL;
}

static int
open_ring(struct egress *e)
{
	const struct retention_config c = {
		.path = e->settings.ring,
		.producer = e->producer,
		.bytes = e->settings.ring_bytes,
	};
	char message[PATH_MAX];
	unsigned int i;
	int rc;

	rc = retention_open(&e->ring, &c, message);
	LOG(NOTICE, "%s\n", message);
	if (rc < 0)
		return rc;
	for (i = 0; i < e->nb_stores; i++) {
		e->number[i] = retention_store(e->ring, e->name[i]);
		if (e->number[i] < 0) {
			LOG(ERR, "the retention ring has had %u stores and takes no other\n",
				RETENTION_STORES);
			return e->number[i];
		}
	}
	e->known = calloc(RETENTION_BATCHES, sizeof(*e->known));
	return e->known != NULL ? check_size(e) : -ENOMEM;
}

static int
open_device(struct egress *e)
{
	struct rdma_mr_attr attr = {.gpu = -1};

	e->dev = rdma_dev_open(e->settings.device);
	if (e->dev == NULL) {
		LOG(ERR, "device %s: %s\n", e->settings.device, rte_strerror(rte_errno));
		return -rte_errno;
	}
	rdma_dev_info_get(e->dev, &e->info);
	(void)rdma_progress(e->dev, 0);
	e->pd = rdma_pd_alloc(e->dev);
	retention_memory(e->ring, &attr.addr, &attr.length);
	e->mr = e->pd != NULL ? rdma_mr_reg(e->pd, &attr) : NULL;
	if (e->mr == NULL) {
		LOG(ERR, "device %s cannot send out of the retention ring: %s\n",
			e->settings.device, rte_strerror(rte_errno));
		return -rte_errno;
	}
	return 0;
}

/* Runs of a receiver that was killed: theirs is sent, and then they are over. */
static int
adopt_runs(struct egress *e)
{
	struct retention_batch b;
	struct retention_run run;
	unsigned int i;
	uint32_t batch;
	int rc = 0;

	for (batch = retention_next(e->ring, 0); batch != UINT32_MAX;
		batch = retention_next(e->ring, batch + 1)) {
		if (retention_get(e->ring, batch, &b))
			e->known[batch] = (struct known){b.rows, b.run, b.table};
	}
	for (i = 0; i < RETENTION_RUNS && rc == 0; i++) {
		if (!retention_run_get(e->ring, i, &run))
			continue;
		LOG(NOTICE, "run %s of incarnation %016" PRIx64 ": %u batches are sent again\n",
			run.name, run.incarnation, run.references);
		rc = open_senders(e, i);
		if (rc == 0)
			finish_run(&e->run[i], e->nb_stores);
	}
	return rc;
}

int
egress_create(struct egress **egress, const struct egress_settings *settings, uint64_t producer)
{
	struct egress *e = calloc(1, sizeof(*e));
	char message[PATH_MAX];
	int rc;

	if (e == NULL)
		return -ENOMEM;
	e->settings = *settings;
	e->producer = producer;
	e->current = -1;
	rc = parse_stores(e);
	if (rc == 0) {
		rc = sink_key_read(&e->key, settings->key, message);
		if (rc < 0)
			LOG(ERR, "%s\n", message);
	}
	if (rc == 0)
		rc = open_ring(e);
	if (rc == 0)
		rc = open_device(e);
	if (rc == 0)
		rc = adopt_runs(e);
	if (rc < 0) {
		egress_destroy(e);
		return rc;
	}
	*egress = e;
	return 0;
}

void
egress_destroy(struct egress *e)
{
	const uint64_t until = sink_link_clock() + 2000;
	unsigned int i, k, left;

	if (e == NULL)
		return;
	do {
		left = 0;
		for (i = 0; i < RETENTION_RUNS; i++) {
			for (k = 0; k < e->nb_stores; k++) {
				if (e->run[i].sender[k] != NULL &&
					sink_sender_close(e->run[i].sender[k]) == 0)
					e->run[i].sender[k] = NULL;
				left += e->run[i].sender[k] != NULL;
			}
			e->run[i].used = false;
		}
		if (e->dev != NULL)
			(void)turn(e);
	} while (left > 0 && sink_link_clock() < until);
	if (e->mr != NULL)
		(void)rdma_mr_dereg(e->mr);
	if (e->pd != NULL)
		(void)rdma_pd_free(e->pd);
	if (e->dev != NULL)
		(void)rdma_dev_close(e->dev);
	retention_close(e->ring);
	sink_key_forget(&e->key);
	free(e->known);
	free(e);
}
