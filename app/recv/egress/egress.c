/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The egress: its creation, the calls of other threads, the commands on its lcore, and the state
 * for telemetry. The lcore writes that state, so that no other thread accesses the store clients.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>
#include <rte_ring.h>
#include <rte_ring_elem.h>

#include "arrow/batch.h"
#include "egress/egress_private.h"
#include "fail_point.h"
#include "histogram.h"
#include "xfer/qp.h"

RTE_LOG_REGISTER(egress_logtype, braggline.egress, NOTICE);

#define SLEEP_US    50	 /* sleep while waiting for a command */
#define WAIT_US	    1000 /* delay before a repeated command, or before room is looked for again */
#define FILLED	    64	 /* batches that the writer can hand over while the lcore does other work */
#define FILLED_SIZE sizeof(struct filled)
/* Part of the journal that a room for the largest batch may take; it may not need all of it. */
#define ROOM_PART 4

/* ---- batches of a run ---- */

/* Sleep while an lcore polls; otherwise the waiting thread polls. */
static void
let_go_on(struct egress *e, unsigned int us)
{
	const struct timespec pause = {.tv_nsec = us * 1000};
	uint64_t until;

	if (__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE)) {
		nanosleep(&pause, NULL);
		return;
	}
	until = rte_rdtsc() + rte_get_tsc_hz() / 1000000 * us;
	do
		(void)egress_iterate(e);
	while (rte_rdtsc() < until);
}

/* Post a command to the lcore, and wait for its result. */
static int
ask(struct egress *e, enum order order)
{
	__atomic_store_n(&e->mail.order, order, __ATOMIC_RELEASE);
	while (__atomic_load_n(&e->mail.order, __ATOMIC_ACQUIRE) != COMMAND_NONE)
		let_go_on(e, SLEEP_US);
	return e->mail.answer;
}

int
egress_begin(struct egress *e, const struct egress_begin *begin, char message[PATH_MAX])
{
	struct journal_run run = {.run = begin->run, .incarnation = begin->incarnation};
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
	e->room = NULL;
	e->clock = begin->clock;
	e->clock_arg = begin->clock_arg;
	e->mail.run = &run;
	if (rc == 0)
		rc = ask(e, COMMAND_BEGIN);
	e->mail.run = NULL;
	for (i = 0; i < ARROW_TABLES; i++)
		free(header[i]);
	if (rc == -ENOSPC)
		snprintf(message, PATH_MAX,
			"the journal has unacknowledged batches of %u runs, its limit; a new run "
			"begins when the stores have taken those of one of them",
			JOURNAL_RUNS);
	else if (rc < 0)
		snprintf(message, PATH_MAX, "cannot add the run to the journal: %s", strerror(-rc));
	return rc;
}

uint8_t *
egress_room(struct egress *e, enum arrow_table table, uint64_t size)
{
	const uint64_t most = e->body_max[table];
	struct journal_stats stats;

	journal_stats_get(e->ring, &stats);
	if (size > most || most > stats.room / ROOM_PART)
		return NULL;
	e->room_table = table;
	e->room = journal_reserve(e->ring, most);
	return e->room != NULL ? e->room + XFER_BLOCK : NULL;
}

/* Reserve room in the journal, and wait for it if necessary. */
static uint8_t *
wait_for_room(struct egress *e, uint64_t body)
{
	uint64_t until = xfer_qp_clock() + e->settings.hold_ms, progress = 0, now;
	uint8_t *room;

	while ((room = journal_reserve(e->ring, body)) == NULL) {
		SET(e->overload.full, true);
		now = xfer_qp_clock();
		/* spilling makes progress */
		if (progress != __atomic_load_n(&e->overload.progress, __ATOMIC_RELAXED)) {
			progress = __atomic_load_n(&e->overload.progress, __ATOMIC_RELAXED);
			until = now + e->settings.hold_ms;
		}
		if (now >= until)
			return NULL;
		let_go_on(e, WAIT_US);
	}
	SET(e->overload.full, false);
	return room;
}

/* Count a refused batch. The lcore logs the overload level once per occurrence. */
static void
refuse(struct egress *e, const struct batch *b)
{
	struct egress_stats *s = &e->stats[b->table];

	ADD(s->refused, 1);
	ADD(s->refused_rows, b->rows);
	ADD(e->overload.refused, 1);
}

/* Write what is not in the room yet. */
static void
fill_room(uint8_t *room, const struct batch *b)
{
	uint8_t *to = room + XFER_BLOCK;
	unsigned int i;

	memcpy(room, b->metadata, b->metadata_size);
	for (i = 0; i < b->nb_body; to += b->body[i++].iov_len) {
		if (b->body[i].iov_base != to)
			memcpy(to, b->body[i].iov_base, b->body[i].iov_len);
	}
}

/* Hand the room over to the lcore. */
static void
hand_over(struct egress *e, const struct batch *b)
{
	struct filled filled = {0};

	filled.batch = (struct journal_batch){
		.sequence = b->sequence,
		.rows = b->rows,
		.first = b->first,
		.last = b->last,
		.received = b->received,
		.body_bytes = b->body_length,
		.body_crc32c = b->crc32c,
		.table = b->table,
	};
	if (b->table == ARROW_FRAMES) {
		memcpy(filled.tally, e->tally, sizeof(e->tally));
		memset(e->tally, 0, sizeof(e->tally));
	}
	journal_fill(e->ring, &filled.batch);
	FAIL_POINT("recv.filled");
	while (rte_ring_sp_enqueue_elem(e->filled, &filled, FILLED_SIZE) < 0)
		let_go_on(e, WAIT_US);
	if (!__atomic_load_n(&e->lcore_polls, __ATOMIC_ACQUIRE))
		(void)egress_iterate(e);
}

int
egress_put(struct egress *e, const struct batch *b)
{
	struct egress_stats *s = &e->stats[b->table];
	uint8_t *room = e->room;

	e->room = NULL;
	if (room != NULL && b->table != e->room_table)
		abort(); /* it would overwrite the batch in the room */
	if (b->table == ARROW_FRAMES)
		ledger_tally(e->tally, b, e->modules);
	if (b->body_length > e->body_max[b->table] || b->metadata_size != XFER_BLOCK) {
		ADD(s->oversize, 1);
		ADD(s->oversize_rows, b->rows);
		LOG(ERR,
			"batch of %" PRIu64 " bytes does not fit into a slot of %" PRIu64 " "
			"bytes\n",
			b->body_length, e->body_max[b->table]);
		return -E2BIG;
	}
	if (room == NULL)
		room = wait_for_room(e, b->body_length);
	if (room == NULL) {
		refuse(e, b);
		return -ENOSPC;
	}
	fill_room(room, b);
	/* Count first: at no time may more batches be durable than were put. */
	ADD(s->put, 1);
	ADD(s->put_rows, b->rows);
	ADD(s->bytes, b->metadata_size + b->body_length);
	hand_over(e, b);
	return 0;
}

int
egress_end(struct egress *e)
{
	const uint64_t until = xfer_qp_clock() + e->settings.end_ms;
	unsigned int i;

	for (i = 0; i < XFER_TABLES; i++)
		e->mail.batches[i] = e->stats[i].put;
	(void)ask(e, COMMAND_END);
	while (ask(e, COMMAND_IS_OVER) == 0) {
		if (xfer_qp_clock() >= until) {
			LOG(ERR,
				"run ends before the stores have taken all batches; the rest "
				"stays in %s\n",
				e->settings.ring);
			(void)ask(e, COMMAND_LOG_WAITING);
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

/* ---- creation and destruction ---- */

static int
check_size(const struct egress *e)
{
	struct journal_stats stats;
	char text[256];
	uint64_t bytes;

	journal_stats_get(e->ring, &stats);
	bytes = egress_ring_need(&e->settings, text, sizeof(text));
	if (bytes <= stats.room) {
		LOG(NOTICE, "journal has %" PRIu64 " MiB, required: %s\n", stats.room >> 20, text);
		return 0;
	}
	LOG(ERR,
		"journal has %" PRIu64 " MiB, which is too small; required: %s (raise [egress] "
		"journal_mib or lower rate_mb)\n",
		stats.room >> 20, text);
	return -EINVAL;
}

static int
open_ring(struct egress *e)
{
	const struct journal_config c = {
		.path = e->settings.ring,
		.receiver_id = e->receiver_id,
		.bytes = e->settings.ring_bytes,
	};
	struct journal_stats stats;
	char message[PATH_MAX];
	int rc;

	rc = journal_open(&e->ring, &c, message);
	if (rc < 0) {
		LOG(ERR, "%s\n", message);
		return rc;
	}
	journal_stats_get(e->ring, &stats);
	if (stats.damaged > 0)
		LOG(ERR, "%s\n", message);
	else
		LOG(NOTICE, "%s\n", message);
	e->stores.ring = e->ring;
	rc = store_set_find(&e->stores);
	if (rc < 0) {
		LOG(ERR,
			"journal %s holds unacknowledged batches of %u stores that are not in "
			"[egress] stores, its limit; add them back, or run braggline-store "
			"reconcile --journal\n",
			e->settings.ring, JOURNAL_STORES);
		return rc;
	}
	static_assert(sizeof(e->before) <= JOURNAL_LEDGER, "room in the ring");
	(void)journal_ledger_get(e->ring, &e->before, sizeof(e->before));
	/* the strings are used as file names */
	e->before.name[sizeof(e->before.name) - 1] = '\0';
	e->before.directory[sizeof(e->before.directory) - 1] = '\0';
	e->kept.next_sequence = LEDGER_NONE;
	e->known = calloc(JOURNAL_BATCHES, sizeof(*e->known));
	e->filled = rte_ring_create_elem(
		"egress_filled", FILLED_SIZE, FILLED, SOCKET_ID_ANY, RING_F_SP_ENQ | RING_F_SC_DEQ);
	if (e->known == NULL || e->filled == NULL) {
		LOG(ERR, "cannot allocate the list and the ring of batches: %s\n",
			strerror(ENOMEM));
		return -ENOMEM;
	}
	return check_size(e);
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
	journal_memory(e->ring, &attr.addr, &attr.length);
	rc = e->pd != NULL
		? xfer_mr_open(&e->memory, e->pd, &attr, e->info.max_mr_bytes, XFER_BLOCK)
		: -rte_errno;
	if (rc < 0)
		LOG(ERR, "device %s cannot send from the memory of the journal: %s\n",
			e->settings.device, rte_strerror(-rc));
	return rc;
}

static int
open_spill(struct egress *e)
{
	const struct spill_config c = {
		.dir = e->settings.spill,
		.limit = e->settings.spill_bytes,
		.receiver_id = e->receiver_id,
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
		LOG(ERR, "cannot start the spill thread: %s\n", strerror(-rc));
	return rc;
}

int
egress_create(struct egress **egress, const struct egress_settings *settings, uint64_t receiver_id)
{
	struct egress *e = calloc(1, sizeof(*e));
	char message[PATH_MAX];
	int rc;

	if (e == NULL)
		return -ENOMEM;
	e->settings = *settings;
	e->receiver_id = receiver_id;
	e->current = -1;
	rc = egress_stores_parse(settings, &e->stores, message);
	if (rc < 0) {
		LOG(ERR, "[egress] stores: %s\n", message);
	} else {
		rc = xfer_key_read(&e->key, settings->key, message);
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
	const uint64_t until = xfer_qp_clock() + 2000;
	unsigned int i, k, left;

	if (e == NULL)
		return;
	/* commit what was handed over, while the runs have store clients */
	if (e->dev != NULL)
		(void)egress_iterate(e);
	do {
		left = 0;
		for (i = 0; i < JOURNAL_RUNS; i++) {
			for (k = 0; k < e->stores.nb; k++) {
				if (e->run[i].sender[k] != NULL &&
					store_client_close(e->run[i].sender[k]) == 0)
					e->run[i].sender[k] = NULL;
				left += e->run[i].sender[k] != NULL;
			}
			e->run[i].used = false;
		}
		if (e->dev != NULL)
			(void)egress_iterate(e);
	} while (left > 0 && xfer_qp_clock() < until);
	(void)xfer_mr_close(&e->memory);
	if (e->pd != NULL)
		(void)rdma_pd_free(e->pd);
	if (e->dev != NULL)
		(void)rdma_dev_close(e->dev);
	/* it reads the journal */
	spill_destroy(e->spill);
	journal_close(e->ring);
	xfer_key_forget(&e->key);
	rte_ring_free(e->filled);
	free(e->known);
	free(e);
}

#define CM_TURNS 64
#define MOVE_MS	 100 /* interval of the check for stores that are gone for good */
#define EVENTS	 8

static void
count_latency(uint64_t histogram[ARROW_LATENCY_BUCKETS], uint64_t us)
{
	ADD(histogram[latency_bucket(us, ARROW_LATENCY_BUCKETS)], 1);
}

void
egress_known(struct egress *e, uint32_t batch, bool spilled)
{
	const struct known *k = &e->known[batch];
	struct egress_stats *s = &e->stats[k->table];
	int64_t now;

	if (k->kept_at != 0)
		count_latency(e->latency, (rte_rdtsc() - k->kept_at) * 1e6 / rte_get_tsc_hz());
	/* adopted batches belong to another run */
	if (k->run != e->current || k->kept_at == 0)
		return;
	if (spilled) {
		ADD(s->spilled, 1);
		ADD(s->spilled_rows, k->rows);
		return;
	}
	ADD(s->durable, 1);
	ADD(s->rows, k->rows);
	if (e->clock == NULL || k->received == 0)
		return;
	now = e->clock(e->clock_arg);
	count_latency(s->latency, now > k->received ? (now - k->received) / 1000 : 0);
}

void
egress_put_ledger(struct egress *e)
{
	const struct ledger_kept own = e->kept;
	struct ledger_kept *k = &e->kept;

	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_ACQUIRE)) {
		*k = e->ledger;
		k->incarnation = own.incarnation;
		k->retained_frame = own.retained_frame;
		memcpy(k->retained, own.retained, sizeof(k->retained));
		k->next_sequence = own.next_sequence;
		k->next_frame = own.next_frame;
		memcpy(k->next, own.next, sizeof(k->next));
		__atomic_store_n(&e->ledger_is_new, false, __ATOMIC_RELEASE);
		e->knows_rows = false;
	}
	/* Another thread writes the ledger ten times a second, so it may be older than the rows. */
	if (e->first_row != 0 && !e->knows_rows) {
		ledger_begin(k, e->first_row, k->next_frame);
		e->knows_rows = true;
	}
	journal_ledger_put(e->ring, k, sizeof(*k));
}

/*
 * A batch of rows is about to be put. A receiver that adopts the journal counts the rows if the
 * batch is in it.
 */
static void
announce_rows(struct egress *e, const struct filled *m)
{
	struct ledger_kept *k = &e->kept;

	for (uint32_t i = 0; i < LEDGER_COLUMNS; i++)
		k->next[i] = k->retained[i] + m->tally[i];
	k->next_frame = m->batch.last;
	k->next_sequence = m->batch.sequence;
	/* the refused rows before it belong to frames that were not lost either */
	if (e->first_row == 0)
		e->first_row = m->batch.first -
			(m->tally[LEDGER_FRAMES] - m->batch.rows) * RTE_MAX(k->stride, 1u);
	egress_put_ledger(e);
}

/* The rows are in the journal. Record this before the batch can be anywhere else. */
static void
note_rows(struct egress *e)
{
	struct ledger_kept *k = &e->kept;

	memcpy(k->retained, k->next, sizeof(k->retained));
	k->retained_frame = k->next_frame;
	k->next_sequence = LEDGER_NONE;
	egress_put_ledger(e);
}

static int
do_begin(struct egress *e, const struct mailbox *m)
{
	int index, rc;

	index = journal_run_add(e->ring, m->run);
	if (index < 0)
		return index;
	rc = egress_open_senders(e, index);
	if (rc < 0)
		return rc;
	e->current = index;
	e->kept.incarnation = m->run->incarnation;
	e->kept.retained_frame = 0;
	e->first_row = 0;
	e->knows_rows = false;
	memset(e->kept.retained, 0, sizeof(e->kept.retained));
	e->kept.next_sequence = LEDGER_NONE;
	return 0;
}

static void
do_commit(struct egress *e, struct filled *f)
{
	struct egress_run *run = &e->run[e->current];
	unsigned int store;
	uint32_t batch;

	f->batch.run = e->current;
	if (f->batch.table == ARROW_FRAMES)
		announce_rows(e, f);
	batch = journal_commit(e->ring, &f->batch);
	e->known[batch] = (struct known){
		f->batch.rows, e->current, f->batch.table, rte_rdtsc(), f->batch.received};
	FAIL_POINT("recv.kept");
	/* from here on, a receiver that adopts the journal counts these rows */
	if (f->batch.table == ARROW_FRAMES)
		note_rows(e);
	store = egress_choose(e, run, f->batch.first);
	journal_assign(e->ring, batch, e->stores.at[store].number);
	(void)store_client_offer(run->sender[store], batch);
}

/* Commit the batches that the writer has handed over. */
static bool
take_filled(struct egress *e)
{
	/* first: all batches filled before that are in the ring */
	const uint64_t skipped = journal_skipped(e->ring);
	struct filled filled;
	bool any = false;

	while (rte_ring_sc_dequeue_elem(e->filled, &filled, FILLED_SIZE) == 0) {
		do_commit(e, &filled);
		any = true;
	}
	journal_skip(e->ring, skipped);
	return any;
}

static void
do_command(struct egress *e, enum order order)
{
	struct mailbox *m = &e->mail;

	switch (order) {
	case COMMAND_NONE:
		return;
	case COMMAND_BEGIN:
		m->answer = do_begin(e, m);
		break;
	case COMMAND_END:
		journal_run_end(e->ring, e->current, m->batches);
		egress_finish_run(e, &e->run[e->current]);
		m->answer = 0;
		break;
	case COMMAND_IS_OVER:
		m->answer = egress_all_is_over(e);
		break;
	case COMMAND_LOG_WAITING:
		egress_say_what_is_left(e);
		m->answer = 0;
		break;
	}
	__atomic_store_n(&m->order, COMMAND_NONE, __ATOMIC_RELEASE);
}

int
egress_iterate(struct egress *e)
{
	const uint64_t now = xfer_qp_clock();
	struct rdma_event event[EVENTS];
	unsigned int i, k, n, pg;
	enum order order;
	bool busy;

	/* a command follows the batches that were handed over before it */
	order = __atomic_load_n(&e->mail.order, __ATOMIC_ACQUIRE);
	busy = take_filled(e);
	do_command(e, order);
	for (pg = 0; pg < e->info.nb_poll_groups; pg++)
		busy |= rdma_progress(e->dev, pg) > 0;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		for (k = 0; e->run[i].used && k < e->stores.nb; k++) {
			if (e->run[i].sender[k] != NULL)
				busy |= store_client_poll(e->run[i].sender[k]);
		}
	}
	/* an lcore that yields its CPU has few iterations */
	busy |= egress_spill_turn(e, now);
	if (e->turn++ % CM_TURNS != 0 && now == e->cm_at)
		return busy;
	e->cm_at = now;
	n = rdma_poll_cm(e->dev, event, EVENTS);
	for (i = 0; i < n; i++) {
		if (event[i].conn != NULL && rdma_conn_context(event[i].conn) != NULL)
			store_client_event(rdma_conn_context(event[i].conn), &event[i]);
	}
	if (now < e->next_check)
		return busy || n > 0;
	e->next_check = now + MOVE_MS;
	egress_move(e, now);
	egress_check_runs(e);
	if (__atomic_load_n(&e->ledger_is_new, __ATOMIC_RELAXED))
		egress_put_ledger(e);
	egress_view_update(e);
	return busy || n > 0;
}

int
egress_poll(void *arg)
{
	struct egress *e = arg;

	if (!__atomic_load_n(&e->lcore_polls, __ATOMIC_RELAXED))
		__atomic_store_n(&e->lcore_polls, true, __ATOMIC_RELEASE);
	return egress_iterate(e);
}

#define RATE_MS 1000

static void
add(struct egress_store *to, const struct store_client_stats *s)
{
	to->connections += s->connections;
	to->broken += s->broken;
	to->refused += s->refused;
	to->unreachable += s->unreachable;
	to->malformed += s->malformed;
	to->late += s->late;
	to->stuck += s->stuck;
	to->sent += s->sent;
	to->bytes += s->bytes;
	to->durable += s->durable;
	to->found += s->found;
	to->duplicates += s->duplicates;
	to->returned += s->returned;
}

void
egress_view_retire(struct egress *e, unsigned int store, const struct store_client *sender)
{
	struct store_client_stats stats;

	store_client_stats_get(sender, &stats);
	add(&e->past[store], &stats);
}

static void
view_store(struct egress *e, unsigned int k, struct egress_store *to)
{
	struct store_client_stats stats;
	unsigned int i;

	*to = e->past[k];
	to->name = e->stores.at[k].name;
	for (i = 0; i < JOURNAL_RUNS; i++) {
		if (!e->run[i].used || e->run[i].sender[k] == NULL)
			continue;
		store_client_stats_get(e->run[i].sender[k], &stats);
		add(to, &stats);
		if ((int)i == e->current || to->now.state == STORE_CLIENT_DOWN)
			to->now = stats;
	}
}

/* Update the rates of the last second. */
static void
make_rates(struct egress *e, struct egress_view *v)
{
	const uint64_t now = xfer_qp_clock(), ms = now - e->rated_at;
	struct egress_store *old, *s;
	unsigned int i;

	for (i = 0; i < e->stores.nb; i++) {
		s = &v->store[i];
		old = &e->rated[i];
		if (ms >= RATE_MS) {
			s->bytes_per_s = (s->bytes - old->bytes) * 1000 / ms;
			s->durable_per_s = (s->durable - old->durable) * 1000 / ms;
			*old = *s;
		} else {
			s->bytes_per_s = old->bytes_per_s;
			s->durable_per_s = old->durable_per_s;
		}
	}
	if (ms >= RATE_MS)
		e->rated_at = now;
}

void
egress_view_update(struct egress *e)
{
	struct egress_view *v = &e->view;
	struct spill_stats spill = {0};
	unsigned int i;

	if (e->spill != NULL)
		spill_stats_get(e->spill, &spill);
	rte_seqcount_write_begin(&e->view_count);
	v->nb_stores = e->stores.nb;
	v->runs = 0;
	for (i = 0; i < JOURNAL_RUNS; i++)
		v->runs += e->run[i].used;
	v->step = e->overload.step;
	v->spilled = e->overload.progress;
	v->spill_error = -spill.error;
	v->spill_used = spill.used;
	memcpy(v->latency, e->latency, sizeof(v->latency));
	journal_stats_get(e->ring, &v->journal);
	for (i = 0; i < e->stores.nb; i++)
		view_store(e, i, &v->store[i]);
	make_rates(e, v);
	rte_seqcount_write_end(&e->view_count);
}

void
egress_view_get(struct egress *e, struct egress_view *view)
{
	uint32_t count;

	do {
		count = rte_seqcount_read_begin(&e->view_count);
		*view = e->view;
	} while (rte_seqcount_read_retry(&e->view_count, count));
}
