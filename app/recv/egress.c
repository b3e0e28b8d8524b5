/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "batch_builder.h"
#include "egress_private.h"
#include "sink/sink_link.h"

RTE_LOG_REGISTER(egress_logtype, braggline.egress, NOTICE);

#define NAP_US	50   /* until an order is carried out */
#define WAIT_US 1000 /* until it is worth while to ask again */

/* ---- a run's batches ------------------------------------------------------------------------- */

/* While an lcore polls, a nap; before it does, and when it has ended, who waits polls. */
static void
let_go_on(struct egress *e, unsigned int us)
{
	const struct timespec nap = {.tv_nsec = us * 1000};
	uint64_t until;

	if (__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE)) {
		nanosleep(&nap, NULL);
		return;
	}
	until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * us;
	do
		(void)egress_turn(e);
	while (rte_rdtsc() < until);
}

/* Ask the lcore, and wait for its answer. */
static int
ask(struct egress *e, enum order order)
{
	__atomic_store_n(&e->mail.order, order, __ATOMIC_RELEASE);
	while (__atomic_load_n(&e->mail.order, __ATOMIC_ACQUIRE) != ORDER_NONE)
		let_go_on(e, NAP_US);
	return e->mail.answer;
}

int
egress_begin(struct egress *e, const struct egress_begin *begin, char message[PATH_MAX])
{
	struct retention_run run = {.run = begin->run, .incarnation = begin->incarnation};
	uint8_t *header[ARROW_TABLES] = {NULL};
	unsigned int i;
	size_t size;
	int rc = 0;

	snprintf(run.name, sizeof(run.name), "%s", begin->name);
	for (i = 0; i < ARROW_TABLES && rc == 0; i++) {
		rc = arrow_header_build(&begin->tables->schema[i], &header[i], &size);
		run.schema[i] = header[i];
		run.schema_bytes[i] = size;
		run.body_max[i] = begin->body_max[i];
		e->body_max[i] = begin->body_max[i];
		e->stats[i] = (struct egress_stats){0};
	}
	e->modules = begin->tables->schema[ARROW_FRAMES].fields[FRAMES_MISSING].list_size;
	memset(e->tally, 0, sizeof(e->tally));
	e->clock = begin->clock;
	e->clock_arg = begin->clock_arg;
	e->mail.run = &run;
	if (rc == 0)
		rc = ask(e, ORDER_BEGIN);
	e->mail.run = NULL;
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (rc == -ENOSPC)
		snprintf(message, PATH_MAX,
			"the retention ring has batches of %u runs: stores must take those of one "
			"before another begins",
			RETENTION_RUNS);
	else if (rc < 0)
		snprintf(message, PATH_MAX, "the retention ring cannot take another run: %s",
			strerror(-rc));
	return rc;
}

/* Room in the ring, waiting for it if need be. */
static uint8_t *
wait_for_room(struct egress *e, uint64_t body)
{
	uint64_t until = sink_link_clock() + e->settings.hold_ms, progress = 0, now;

	e->mail.body = body;
	while (ask(e, ORDER_RESERVE) < 0) {
		now = sink_link_clock();
		/* as long as spilling makes room */
		if (progress != __atomic_load_n(&e->ladder.progress, __ATOMIC_RELAXED)) {
			progress = __atomic_load_n(&e->ladder.progress, __ATOMIC_RELAXED);
			until = now + e->settings.hold_ms;
		}
		if (now >= until)
			return NULL;
		let_go_on(e, WAIT_US);
	}
	return e->mail.room;
}

/* Of the ladder's last step, said once until it is left. */
static void
refuse(struct egress *e, const struct batch *b)
{
	struct egress_stats *s = &e->stats[b->table];

	ADD(s->refused, 1);
	ADD(s->refused_rows, b->rows);
	(void)ask(e, ORDER_REFUSED);
}

int
egress_put(struct egress *e, const struct batch *b)
{
	struct egress_stats *s = &e->stats[b->table];
	uint8_t *room;
	unsigned int i;

	if (b->table == ARROW_FRAMES)
		ledger_tally(e->tally, b, e->modules);
	if (b->body_length > e->body_max[b->table] || b->metadata_size != SINK_BLOCK) {
		ADD(s->oversize, 1);
		ADD(s->oversize_rows, b->rows);
		LOG(ERR, "a batch of %" PRIu64 " bytes is larger than a place of %" PRIu64 "\n",
			b->body_length, e->body_max[b->table]);
		return -E2BIG;
	}
	room = wait_for_room(e, b->body_length);
	if (room == NULL) {
		refuse(e, b);
		return -ENOSPC;
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
	/* first: no more may be durable than were put */
	ADD(s->put, 1);
	ADD(s->put_rows, b->rows);
	ADD(s->bytes, b->metadata_size + b->body_length);
	if (b->table == ARROW_FRAMES) {
		memcpy(e->mail.tally, e->tally, sizeof(e->tally));
		memset(e->tally, 0, sizeof(e->tally));
	}
	(void)ask(e, ORDER_COMMIT);
	return 0;
}

int
egress_end(struct egress *e)
{
	const uint64_t until = sink_link_clock() + e->settings.end_ms;
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++)
		e->mail.batches[i] = e->stats[i].put;
	(void)ask(e, ORDER_END);
	while (ask(e, ORDER_IS_OVER) == 0) {
		if (sink_link_clock() >= until) {
			LOG(ERR, "the run's end waits for stores: the rest stays in %s\n",
				e->settings.ring);
			(void)ask(e, ORDER_SAY_WHY_NOT);
			return -ETIMEDOUT;
		}
		let_go_on(e, WAIT_US);
	}
	return 0;
}

bool
egress_keep_ledger(struct egress *e, const struct ledger_kept *kept)
{
	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_ACQUIRE))
		return false;
	e->ledger = *kept;
	__atomic_store_n(&e->ledger_is_new, true, __ATOMIC_RELEASE);
	if (__atomic_load_n(&e->rests, __ATOMIC_ACQUIRE))
		egress_put_ledger(e);
	return true;
}

bool
egress_ledger_before(const struct egress *e, struct ledger_kept *kept, uint64_t *held)
{
	*kept = e->before;
	*held = e->before_held;
	return e->before.version == LEDGER_KEPT_VERSION && e->before.running;
}

void
egress_stats_get(const struct egress *e, enum arrow_table table, struct egress_stats *to)
{
	const struct egress_stats *from = &e->stats[table];
	unsigned int i;

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
	GET(spilled);
	GET(spilled_rows);
	for (i = 0; i < ARROW_LATENCY_BUCKETS; i++)
		GET(latency[i]);
#undef GET
}

/* ---- its life -------------------------------------------------------------------------------- */

static int
check_size(const struct egress *e)
{
	struct retention_stats stats;
	char text[256];
	uint64_t bytes;

	retention_stats_get(e->ring, &stats);
	bytes = egress_ring_need(&e->settings, text, sizeof(text));
	if (bytes <= stats.room) {
		LOG(NOTICE, "retention of %" PRIu64 " MiB; needed: %s\n", stats.room >> 20, text);
		return 0;
	}
	LOG(ERR,
		"retention of %" PRIu64 " MiB is too small; needed: %s ([egress] ring_mib, "
		"rate_mb)\n",
		stats.room >> 20, text);
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
	struct retention_stats stats;
	char message[PATH_MAX];
	int rc;

	rc = retention_open(&e->ring, &c, message);
	if (rc < 0) {
		LOG(ERR, "%s\n", message);
		return rc;
	}
	retention_stats_get(e->ring, &stats);
	if (stats.damaged > 0)
		LOG(ERR, "%s\n", message);
	else
		LOG(NOTICE, "%s\n", message);
	e->stores.ring = e->ring;
	rc = sink_stores_find(&e->stores);
	if (rc < 0) {
		LOG(ERR,
			"retention ring %s has batches that %u other stores were given, and takes "
			"no other: bring those back, or see braggline-store reconcile --ring\n",
			e->settings.ring, RETENTION_STORES);
		return rc;
	}
	static_assert(sizeof(e->before) <= RETENTION_LEDGER, "room in the ring");
	(void)retention_ledger_get(e->ring, &e->before, sizeof(e->before));
	/* they name files */
	e->before.name[sizeof(e->before.name) - 1] = '\0';
	e->before.directory[sizeof(e->before.directory) - 1] = '\0';
	e->kept.next_sequence = LEDGER_NONE;
	e->known = calloc(RETENTION_BATCHES, sizeof(*e->known));
	return e->known != NULL ? check_size(e) : -ENOMEM;
}

static int
open_device(struct egress *e)
{
	struct rdma_mr_attr attr = {.gpu = -1};
	int rc;

	e->dev = rdma_dev_open(e->settings.device);
	if (e->dev == NULL) {
		LOG(ERR, "device %s: %s\n", e->settings.device, rte_strerror(rte_errno));
		return -rte_errno;
	}
	rdma_dev_info_get(e->dev, &e->info);
	(void)rdma_progress(e->dev, 0);
	e->pd = rdma_pd_alloc(e->dev);
	retention_memory(e->ring, &attr.addr, &attr.length);
	rc = e->pd != NULL
		? sink_memory_open(&e->memory, e->pd, &attr, e->info.max_mr_bytes, SINK_BLOCK)
		: -rte_errno;
	if (rc < 0)
		LOG(ERR, "device %s cannot send out of the retention ring: %s\n",
			e->settings.device, rte_strerror(-rc));
	return rc;
}

static int
open_spill(struct egress *e)
{
	const struct spill_config c = {
		.dir = e->settings.spill,
		.limit = e->settings.spill_bytes,
		.producer = e->producer,
	};
	char message[PATH_MAX];
	int rc;

	if (c.dir == NULL)
		return 0;
	rc = spill_create(&e->spill, &c, message);
	if (rc < 0)
		LOG(ERR, "[egress] spill: %s\n", message);
	return rc;
}

int
egress_start(struct egress *e, const cpu_set_t *cpus)
{
	const int rc = e->spill != NULL ? spill_start(e->spill, cpus) : 0;

	if (rc < 0)
		LOG(ERR, "cannot start the thread that spills: %s\n", strerror(-rc));
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
	rc = egress_stores_parse(settings, &e->stores, message);
	if (rc < 0) {
		LOG(ERR, "[egress] stores: %s\n", message);
	} else {
		rc = sink_key_read(&e->key, settings->key, message);
		if (rc < 0)
			LOG(ERR, "%s\n", message);
	}
	if (rc == 0)
		rc = open_ring(e);
	if (rc == 0)
		rc = open_device(e);
	if (rc == 0)
		rc = open_spill(e);
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
egress_rest(struct egress *e)
{
	__atomic_store_n(&e->rests, true, __ATOMIC_RELEASE);
	__atomic_store_n(&e->lcore_polls, false, __ATOMIC_RELEASE);
}

const struct rdma_dev *
egress_device(const struct egress *e, const struct rdma_dev_info **info)
{
	*info = &e->info;
	return e->dev;
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
			for (k = 0; k < e->stores.nb; k++) {
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
	(void)sink_memory_close(&e->memory);
	if (e->pd != NULL)
		(void)rdma_pd_free(e->pd);
	if (e->dev != NULL)
		(void)rdma_dev_close(e->dev);
	/* it reads the ring */
	spill_destroy(e->spill);
	retention_close(e->ring);
	sink_key_forget(&e->key);
	free(e->known);
	free(e);
}
