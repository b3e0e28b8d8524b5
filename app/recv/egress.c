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
#include "egress_private.h"
#include "sink/sink_link.h"

RTE_LOG_REGISTER(egress_logtype, braggline.egress, NOTICE);

#define NAP_US	  50
#define ROUND_MS  5
#define COMMIT_MS 200 /* what a store may take until it syncs: twice its default */

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

/* ---- a run's batches ------------------------------------------------------------------------- */

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
			(void)egress_turn(e);
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
		rc = egress_adopt_runs(e);
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
			(void)egress_turn(e);
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
