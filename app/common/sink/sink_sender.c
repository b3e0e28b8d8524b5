/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_log.h>

#include "interval_set.h"
#include "sink_entry.h"
#include "sink_handshake.h"
#include "sink_link.h"
#include "sink_message.h"
#include "sink_sender.h"

RTE_LOG_REGISTER(sink_sender_logtype, braggline.sink, NOTICE);

#define SENDER_LOG(level, s, fmt, ...)                                             \
	rte_log(RTE_LOG_##level, sink_sender_logtype, "sink: store %s: " fmt "\n", \
		(s)->config.name, ##__VA_ARGS__)

#define WINDOW	   256 /* batches on their way, at most */
#define NO_BATCH   UINT32_MAX
#define CONNECT_MS 3000
#define NO_NUMBER  UINT64_MAX

/* Batches in a row. */
struct queue {
	uint32_t *at;
	uint32_t head;
	uint32_t nb;
	uint32_t room; /* a power of two */
};

/* A place of the store's that is in use. */
struct used {
	uint32_t batch; /* NO_BATCH: free */
	uint32_t stage;
};

struct sink_sender {
	struct sink_sender_config config;
	struct retention_run run;
	enum sink_sender_state state;
	struct sink_handshake handshake;
	struct sink_link link;
	struct rdma_conn *conn;
	bool link_is_open;
	bool closing; /* the link is to be closed */
	bool finish;
	bool end_sent;
	uint64_t retry_at; /* ms */
	uint64_t back_off;
	uint64_t down_since;
	uint64_t deadline;
	/* of this connection */
	uint64_t sent; /* messages */
	uint64_t received;
	uint64_t heard; /* ms */
	uint64_t said;
	uint64_t heartbeat;
	uint64_t silence;
	struct interval_set moved[SINK_TABLES];
	unsigned int moved_table; /* that is told now */
	size_t moved_at;
	bool moved_told;
	struct interval_set have[SINK_TABLES];
	unsigned int have_table;
	bool have_all;
	struct sink_place *place;
	struct used *used;
	uint32_t nb_places;
	uint32_t *free_place[SINK_TABLES];
	uint32_t nb_free[SINK_TABLES];
	uint32_t free_stage[WINDOW];
	uint32_t nb_free_stages;
	uint32_t writes; /* on their way */
	struct sink_stream stream[SINK_TABLES];
	struct queue queue[SINK_TABLES];
	struct sink_sender_stats stats;
};

const char *
sink_sender_state_name(enum sink_sender_state state)
{
	static const char *const names[SINK_SENDER_STATES] = {
		[SINK_SENDER_DOWN] = "down",
		[SINK_SENDER_CONNECTING] = "connecting",
		[SINK_SENDER_PROVING] = "proving",
		[SINK_SENDER_WAITING] = "waiting",
		[SINK_SENDER_UP] = "up",
		[SINK_SENDER_ENDING] = "ending",
		[SINK_SENDER_ENDED] = "ended",
	};

	return names[state];
}

static void
enter(struct sink_sender *s, enum sink_sender_state state)
{
	if (s->state != state)
		SENDER_LOG(DEBUG, s, "%s -> %s", sink_sender_state_name(s->state),
			sink_sender_state_name(state));
	s->state = state;
}

/* ---- queues ---------------------------------------------------------------------------------- */

static int
queue_put(struct queue *q, uint32_t batch)
{
	uint32_t room, *at, i;

	if (q->nb == q->room) {
		room = q->room > 0 ? 2 * q->room : 64;
		at = malloc(room * sizeof(*at));
		if (at == NULL)
			return -ENOMEM;
		for (i = 0; i < q->nb; i++)
			at[i] = q->at[(q->head + i) & (q->room - 1)];
		free(q->at);
		*q = (struct queue){at, 0, q->nb, room};
	}
	q->at[(q->head + q->nb++) & (q->room - 1)] = batch;
	return 0;
}

static uint32_t
queue_take(struct queue *q)
{
	const uint32_t batch = q->at[q->head];

	q->head = (q->head + 1) & (q->room - 1);
	q->nb--;
	return batch;
}

static bool
is_ours(const struct sink_sender *s, const struct retention_batch *b)
{
	return b->held && b->run == s->config.run && b->owner == s->config.store;
}

int
sink_sender_offer(struct sink_sender *s, uint32_t batch)
{
	struct retention_batch b;

	/* without a connection it is found in the ring when one stands */
	if (s->state != SINK_SENDER_UP || !retention_get(s->config.retention, batch, &b))
		return 0;
	return queue_put(&s->queue[b.table], batch);
}

/* All that the ring says is this store's, oldest first. */
static int
fill_queues(struct sink_sender *s)
{
	struct retention_batch b;
	uint32_t n, i, *list;
	int rc = 0;

	n = retention_list(s->config.retention, NULL, 0);
	list = malloc((n + 1) * sizeof(*list));
	if (list == NULL)
		return -ENOMEM;
	(void)retention_list(s->config.retention, list, n);
	for (i = 0; i < SINK_TABLES; i++)
		s->queue[i].nb = 0;
	for (i = 0; i < n && rc == 0; i++) {
		if (retention_get(s->config.retention, list[i], &b) && is_ours(s, &b))
			rc = queue_put(&s->queue[b.table], list[i]);
	}
	free(list);
	return rc;
}

/* ---- connections ----------------------------------------------------------------------------- */

static void
forget_connection(struct sink_sender *s)
{
	unsigned int i;

	for (i = 0; i < SINK_TABLES; i++) {
		interval_set_free(&s->moved[i]);
		interval_set_free(&s->have[i]);
		free(s->free_place[i]);
		s->free_place[i] = NULL;
		s->nb_free[i] = 0;
		s->queue[i].nb = 0;
	}
	free(s->place);
	free(s->used);
	s->place = NULL;
	s->used = NULL;
	s->nb_places = 0;
	s->writes = 0;
	sink_handshake_end(&s->handshake);
}

/* The queue pair drains, then its memory goes. @return whether all is gone */
static bool
close_link(struct sink_sender *s)
{
	if (s->conn != NULL) {
		(void)rdma_conn_destroy(s->conn);
		s->conn = NULL;
	}
	if (s->link_is_open) {
		if (sink_link_close(&s->link) < 0)
			return false;
		s->link_is_open = false;
	}
	s->closing = false;
	return true;
}

/* No connection, or none any more: try again later. */
static void
go_down(struct sink_sender *s)
{
	const uint64_t now = sink_link_clock();

	if (s->state == SINK_SENDER_UP || s->state == SINK_SENDER_ENDING)
		s->stats.broken++;
	s->back_off = s->back_off == 0 ? SINK_BACK_OFF_MS : 2 * s->back_off;
	if (s->back_off > SINK_BACK_OFF_MAX_MS)
		s->back_off = SINK_BACK_OFF_MAX_MS;
	s->retry_at = now + s->back_off;
	if (s->down_since == 0)
		s->down_since = now;
	if (s->link_is_open)
		sink_link_break(&s->link);
	s->closing = true;
	forget_connection(s);
	/* the link is closed by the next poll: this may be one of its own calls */
	enter(s, SINK_SENDER_DOWN);
}

/* Say why, as far as that can still be said, and go. */
static void
refuse(struct sink_sender *s, enum sink_reason reason)
{
	struct sink_refuse *m = s->link.broken ? NULL : sink_link_room(&s->link);

	SENDER_LOG(WARNING, s, "given up: %s", sink_reason_name(reason));
	s->stats.malformed += reason == SINK_REASON_MALFORMED || reason == SINK_REASON_ORDER;
	if (m != NULL && s->state > SINK_SENDER_CONNECTING) {
		sink_message_begin(m, SINK_REFUSE, sizeof(*m),
			s->state == SINK_SENDER_PROVING ? s->handshake.sent : s->sent);
		m->reason = reason;
		(void)sink_link_send(&s->link, sizeof(*m));
	}
	go_down(s);
}

static void on_message(void *arg, const void *message, uint32_t size);

static void
on_done(void *arg, uint64_t wr_id)
{
	struct sink_sender *s = arg;

	if (s->writes > 0)
		s->writes--;
}

static const struct sink_link_ops link_ops = {.message = on_message, .done = on_done};

static void
begin_connection(struct sink_sender *s)
{
	const struct sink_link_config link = {
		.dev = s->config.dev,
		.pd = s->config.pd,
		.lane = s->config.lane,
		.writes = 2 * WINDOW,
		.extra = WINDOW * SINK_ENTRY_BYTES,
		.ops = &link_ops,
		.arg = s,
	};
	struct sink_offer offer = {
		.role = s->config.role,
		.producer = s->config.producer,
		.run = s->run.run,
		.incarnation = s->run.incarnation,
		.name = s->run.name,
	};
	struct rdma_conn_attr attr = {
		.private_data = &s->handshake.receiver,
		.private_len = sizeof(s->handshake.receiver),
		.context = s,
		.timeout_ms = CONNECT_MS,
	};
	unsigned int i;
	int rc;

	for (i = 0; i < SINK_TABLES; i++) {
		offer.table[i].schema = s->run.schema[i];
		offer.table[i].schema_bytes = s->run.schema_bytes[i];
		offer.table[i].body_max = s->run.body_max[i];
	}
	s->deadline = sink_link_clock() + SINK_HANDSHAKE_MS;
	rc = sink_link_open(&s->link, &link);
	if (rc < 0) {
		SENDER_LOG(ERR, s, "no queue pair: %s", rte_strerror(-rc));
		go_down(s);
		return;
	}
	s->link_is_open = true;
	if (sink_handshake_call(&s->handshake, s->config.key, &offer, s->deadline) !=
		SINK_REASON_NONE) {
		SENDER_LOG(ERR, s, "no handshake: %s", sink_reason_name(s->handshake.reason));
		go_down(s);
		return;
	}
	s->conn = rdma_conn_connect(s->link.qp, (const struct sockaddr *)&s->config.address, &attr);
	if (s->conn == NULL) {
		SENDER_LOG(ERR, s, "cannot connect: %s", rte_strerror(rte_errno));
		go_down(s);
		return;
	}
	enter(s, SINK_SENDER_CONNECTING);
}

static void
established(struct sink_sender *s, const struct rdma_event *event)
{
	struct sink_endpoint receiver = {.qpn = s->link.qpn}, store = {.qpn = event->remote_qpn};
	struct rdma_dev_info info;

	if (s->state != SINK_SENDER_CONNECTING)
		return;
	rdma_dev_info_get(s->config.dev, &info);
	sink_link_address(&info.addr, receiver.addr);
	sink_link_address(&s->config.address, store.addr);
	enter(s, SINK_SENDER_PROVING);
	/* the CM fills up with zeros */
	if (sink_handshake_open(&s->handshake, event->private_data, event->private_len, &receiver,
		    &store) != SINK_REASON_NONE)
		refuse(s, s->handshake.reason);
}

static void
rejected(struct sink_sender *s, const struct rdma_event *event)
{
	struct sink_reject reject = {0};

	s->stats.refused++;
	if (event->private_len >= sizeof(reject))
		memcpy(&reject, event->private_data, sizeof(reject));
	if (reject.magic == SINK_MAGIC && reject.reason < SINK_REASONS) {
		s->stats.reason = reject.reason;
		SENDER_LOG(
			WARNING, s, "refuses the connection: %s", sink_reason_name(reject.reason));
	} else {
		SENDER_LOG(INFO, s, "nobody listens there (%d)", event->status);
	}
	go_down(s);
}

void
sink_sender_event(struct sink_sender *s, const struct rdma_event *event)
{
	if (event->conn != s->conn)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		established(s, event);
		break;
	case RDMA_EVENT_REJECTED:
		rejected(s, event);
		break;
	case RDMA_EVENT_UNREACHABLE:
		s->stats.unreachable++;
		SENDER_LOG(INFO, s, "nobody answers");
		go_down(s);
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* what had come before is still taken */
		(void)sink_link_poll(&s->link);
		if (s->state == SINK_SENDER_ENDED) {
			s->closing = true;
		} else if (s->conn != NULL) {
			/* an end that does not like our proof says nothing */
			s->stats.refused += s->state == SINK_SENDER_PROVING;
			SENDER_LOG(WARNING, s, "connection gone while %s",
				sink_sender_state_name(s->state));
			go_down(s);
		}
		break;
	default:
		break;
	}
}

/* ---- what the store says --------------------------------------------------------------------- */

/* What may be there and went elsewhere. */
static int
collect_moved(struct sink_sender *s)
{
	const struct retention *r = s->config.retention;
	struct retention_batch b;
	uint32_t i;

	for (i = retention_next(r, 0); i != UINT32_MAX; i = retention_next(r, i + 1)) {
		if (!retention_get(r, i, &b) || b.run != s->config.run ||
			(b.moved & 1u << s->config.store) == 0)
			continue;
		if (interval_set_add(&s->moved[b.table], b.sequence, b.sequence) < 0)
			return -ENOMEM;
	}
	return 0;
}

/* Tell some of it. */
static void
tell_moved(struct sink_sender *s)
{
	const struct interval_set *set = &s->moved[s->moved_table];
	struct sink_intervals *m = sink_link_room(&s->link);
	size_t nb;
	bool more;

	if (m == NULL)
		return;
	nb = set->nb - s->moved_at;
	if (nb > SINK_INTERVALS_MAX)
		nb = SINK_INTERVALS_MAX;
	sink_message_begin(m, SINK_MOVED, sizeof(*m) + nb * sizeof(m->interval[0]), s->sent++);
	m->table = s->moved_table;
	m->nb = nb;
	/* an empty set has no array */
	if (nb > 0)
		memcpy(m->interval, set->at + s->moved_at, nb * sizeof(m->interval[0]));
	s->moved_at += nb;
	if (s->moved_at == set->nb) {
		s->moved_at = 0;
		s->moved_table++;
	}
	more = s->moved_table < SINK_TABLES;
	m->head.flags = more ? SINK_MORE : 0;
	s->moved_told = !more;
	(void)sink_link_send(&s->link, m->head.length);
}

static enum sink_reason
take_have(struct sink_sender *s, const struct sink_intervals *m)
{
	uint32_t i;

	if (s->have_all || m->table < s->have_table)
		return SINK_REASON_ORDER;
	s->have_table = m->table;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add(
			    &s->have[m->table], m->interval[i].first, m->interval[i].last) < 0)
			return SINK_REASON_FAILED;
	}
	s->have_all = (m->head.flags & SINK_MORE) == 0;
	return SINK_REASON_NONE;
}

/* A batch is durable. */
static void
release(struct sink_sender *s, uint32_t batch, enum sink_result_status status)
{
	retention_release(s->config.retention, batch);
	if (s->config.result != NULL)
		s->config.result(s->config.arg, batch, status);
}

/* What the store has need not be held. */
static void
release_found(struct sink_sender *s)
{
	struct retention *r = s->config.retention;
	struct retention_batch b;
	uint32_t i;

	for (i = retention_next(r, 0); i != UINT32_MAX; i = retention_next(r, i + 1)) {
		if (!retention_get(r, i, &b) || !is_ours(s, &b) ||
			!interval_set_has(&s->have[b.table], b.sequence))
			continue;
		s->stats.found++;
		release(s, i, SINK_DURABLE);
	}
	retention_confirm(r, s->config.run, s->config.store);
}

static enum sink_reason
take_places(struct sink_sender *s, const struct sink_grant *m)
{
	enum sink_reason reason;
	uint32_t i;

	s->place = calloc(SINK_ENTRIES_MAX, sizeof(*s->place));
	if (s->place == NULL)
		return SINK_REASON_FAILED;
	reason = sink_grant_places(m, s->run.body_max, s->place, &s->nb_places);
	if (reason != SINK_REASON_NONE)
		return reason;
	s->used = malloc(s->nb_places * sizeof(*s->used));
	for (i = 0; i < SINK_TABLES; i++)
		s->free_place[i] = malloc(s->nb_places * sizeof(uint32_t));
	if (s->used == NULL || s->free_place[0] == NULL || s->free_place[1] == NULL)
		return SINK_REASON_FAILED;
	/* low numbers first */
	for (i = s->nb_places; i-- > 0;) {
		s->used[i].batch = NO_BATCH;
		s->free_place[s->place[i].table][s->nb_free[s->place[i].table]++] = i;
	}
	for (s->nb_free_stages = 0; s->nb_free_stages < WINDOW; s->nb_free_stages++)
		s->free_stage[s->nb_free_stages] = s->nb_free_stages;
	return SINK_REASON_NONE;
}

static enum sink_reason
take_grant(struct sink_sender *s, const struct sink_grant *m)
{
	enum sink_reason reason;
	unsigned int i;

	if (!s->have_all)
		return SINK_REASON_ORDER;
	release_found(s);
	reason = take_places(s, m);
	if (reason != SINK_REASON_NONE)
		return reason;
	for (i = 0; i < SINK_TABLES; i++) {
		s->stream[i].identity = (struct arrow_identity){
			s->config.producer, s->run.run, s->run.incarnation, NULL};
		s->stream[i].epoch = m->epoch;
		s->stream[i].body_max = s->run.body_max[i];
		s->stream[i].table = i;
	}
	s->heartbeat = m->heartbeat_ms;
	s->silence = m->silence_ms;
	s->end_sent = false;
	s->back_off = 0;
	s->down_since = 0;
	s->stats.connections++;
	s->stats.node = s->handshake.answer.node;
	s->stats.store_state = SINK_STATE_GOOD;
	enter(s, SINK_SENDER_UP);
	SENDER_LOG(INFO, s, "connected, %u places, %" PRIu64 " batches found there", s->nb_places,
		s->stats.found);
	return fill_queues(s) < 0 ? SINK_REASON_FAILED : SINK_REASON_NONE;
}

static enum sink_reason
take_results(struct sink_sender *s, const struct sink_results *m)
{
	const struct sink_result *result;
	struct retention_batch b;
	struct used *used;
	uint32_t i, batch;

	for (i = 0; i < m->nb; i++) {
		result = &m->result[i];
		if (result->entry >= s->nb_places)
			return SINK_REASON_MALFORMED;
		used = &s->used[result->entry];
		batch = used->batch;
		if (batch == NO_BATCH || !retention_get(s->config.retention, batch, &b) ||
			b.sequence != result->sequence || b.table != result->table)
			return SINK_REASON_ORDER;
		used->batch = NO_BATCH;
		s->free_stage[s->nb_free_stages++] = used->stage;
		s->free_place[b.table][s->nb_free[b.table]++] = result->entry;
		if (result->status == SINK_AGAIN) {
			s->stats.again++;
			if (s->config.result != NULL)
				s->config.result(s->config.arg, batch, SINK_AGAIN);
			continue;
		}
		s->stats.durable += result->status == SINK_DURABLE;
		s->stats.doubles += result->status == SINK_DOUBLE;
		release(s, batch, result->status);
	}
	return SINK_REASON_NONE;
}

static enum sink_reason
take_session_message(struct sink_sender *s, const struct sink_message *m)
{
	const struct sink_status *status = (const struct sink_status *)m;
	const bool waiting = s->state == SINK_SENDER_WAITING;
	const bool up = s->state == SINK_SENDER_UP || s->state == SINK_SENDER_ENDING;

	switch ((enum sink_type)m->type) {
	case SINK_HAVE:
		return waiting ? take_have(s, (const struct sink_intervals *)m) : SINK_REASON_ORDER;
	case SINK_GRANT:
		return waiting ? take_grant(s, (const struct sink_grant *)m) : SINK_REASON_ORDER;
	case SINK_RESULTS:
		return up ? take_results(s, (const struct sink_results *)m) : SINK_REASON_ORDER;
	case SINK_STATUS:
		if (status->state != s->stats.store_state)
			SENDER_LOG(WARNING, s, "is %s", sink_state_name(status->state));
		s->stats.store_state = status->state;
		return SINK_REASON_NONE;
	case SINK_ENDED:
		if (s->state != SINK_SENDER_ENDING)
			return SINK_REASON_ORDER;
		enter(s, SINK_SENDER_ENDED);
		(void)rdma_conn_disconnect(s->conn);
		s->closing = true;
		return SINK_REASON_NONE;
	case SINK_REFUSE:
		s->stats.reason = ((const struct sink_refuse *)m)->reason;
		return s->stats.reason;
	default:
		return SINK_REASON_ORDER;
	}
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct sink_sender *s = arg;
	enum sink_reason reason;

	s->heard = sink_link_clock();
	/* of a connection that was given up: what follows is of no interest */
	if (s->state == SINK_SENDER_DOWN || s->state == SINK_SENDER_ENDED)
		return;
	if (s->state <= SINK_SENDER_PROVING) {
		if (sink_handshake_receive(&s->handshake, message, size) != SINK_REASON_NONE) {
			s->stats.refused++;
			s->stats.reason = s->handshake.reason;
			refuse(s, s->handshake.reason);
		}
		return;
	}
	reason = sink_message_check(message, size, SINK_ROLE_STORE, s->received++);
	if (reason == SINK_REASON_NONE)
		reason = take_session_message(s, message);
	if (reason != SINK_REASON_NONE)
		refuse(s, reason);
}

/* ---- sending --------------------------------------------------------------------------------- */

/* The next batch of a table into a place of the store's. @return whether one went */
static bool
send_batch(struct sink_sender *s, unsigned int table)
{
	const struct sink_place *place;
	struct retention_batch b;
	struct sink_batch batch;
	struct sink_entry *entry;
	struct rdma_sge sg;
	uint32_t index, number, stage;

	if (s->queue[table].nb == 0 || s->nb_free[table] == 0 || s->nb_free_stages == 0 ||
		s->writes + 2 > 2 * WINDOW)
		return false;
	index = queue_take(&s->queue[table]);
	if (!retention_get(s->config.retention, index, &b) || !is_ours(s, &b))
		return true;
	number = s->free_place[table][s->nb_free[table] - 1];
	stage = s->free_stage[s->nb_free_stages - 1];
	place = &s->place[number];
	entry = (struct sink_entry *)(s->link.extra + stage * SINK_ENTRY_BYTES);
	batch = (struct sink_batch){b.sequence, b.rows, b.first, b.last, b.received, b.body_bytes,
		b.body_crc32c, number};
	if (sink_entry_make(&s->stream[table], &batch, b.metadata, entry) < 0) {
		SENDER_LOG(ERR, s, "batch %" PRIu64 " of %" PRIu64 " bytes is larger than a place",
			b.sequence, b.body_bytes);
		return true;
	}
	sg = (struct rdma_sge){
		(uintptr_t)b.body, (uint32_t)b.body_bytes, rdma_mr_lkey(s->config.mr)};
	if (sink_link_write(&s->link, index, &sg, place->body, place->body_rkey, NULL) < 0)
		return false;
	sg = (struct rdma_sge){(uintptr_t)entry, SINK_ENTRY_BYTES, rdma_mr_lkey(s->link.mr)};
	if (sink_link_write(&s->link, index, &sg, place->metadata, place->metadata_rkey, &number) <
		0)
		return false;
	s->writes += 2;
	s->nb_free[table]--;
	s->nb_free_stages--;
	s->used[number] = (struct used){index, stage};
	s->stats.sent++;
	s->stats.bytes += b.body_bytes + SINK_ENTRY_BYTES;
	return true;
}

static uint32_t
places_in_use(const struct sink_sender *s)
{
	return s->nb_places - s->nb_free[0] - s->nb_free[1];
}

uint32_t
sink_sender_open_batches(const struct sink_sender *s)
{
	struct retention_batch b;
	uint32_t i, n = 0;

	if (s->state == SINK_SENDER_UP)
		return s->queue[0].nb + s->queue[1].nb + places_in_use(s);
	for (i = retention_next(s->config.retention, 0); i != UINT32_MAX;
		i = retention_next(s->config.retention, i + 1))
		n += retention_get(s->config.retention, i, &b) && is_ours(s, &b);
	return n;
}

static void
send_status(struct sink_sender *s)
{
	struct sink_status *m = sink_link_room(&s->link);

	if (m == NULL)
		return;
	sink_message_begin(m, SINK_STATUS, sizeof(*m), s->sent++);
	(void)sink_link_send(&s->link, sizeof(*m));
	s->said = sink_link_clock();
}

static void
send_end(struct sink_sender *s)
{
	struct sink_end *m = sink_link_room(&s->link);
	struct retention_run run;
	unsigned int i;

	if (m == NULL || !retention_run_get(s->config.retention, s->config.run, &run))
		return;
	sink_message_begin(m, SINK_END, sizeof(*m), s->sent++);
	for (i = 0; i < SINK_TABLES; i++)
		m->batches[i] = run.batches[i];
	(void)sink_link_send(&s->link, sizeof(*m));
	enter(s, SINK_SENDER_ENDING);
}

static bool
work_up(struct sink_sender *s, uint64_t now)
{
	bool busy = false;

	if (now > s->heard + s->silence) {
		SENDER_LOG(WARNING, s, "silent for %" PRIu64 " ms", now - s->heard);
		refuse(s, SINK_REASON_SILENT);
		return true;
	}
	if (now >= s->said + s->heartbeat)
		send_status(s);
	if (s->state != SINK_SENDER_UP || s->stats.store_state != SINK_STATE_GOOD)
		return false;
	/* frames first: they are few and small */
	while (send_batch(s, 0) || send_batch(s, 1))
		busy = true;
	if (s->finish && s->queue[0].nb == 0 && s->queue[1].nb == 0 && places_in_use(s) == 0)
		send_end(s);
	return busy;
}

static bool
work_proving(struct sink_sender *s, uint64_t now)
{
	void *room;
	size_t size;

	if (sink_handshake_late(&s->handshake, now)) {
		refuse(s, SINK_REASON_LATE);
		return true;
	}
	while ((room = sink_link_room(&s->link)) != NULL) {
		size = sink_handshake_send(&s->handshake, room);
		if (size == 0)
			break;
		(void)sink_link_send(&s->link, size);
	}
	if (s->handshake.state != SINK_HANDSHAKE_DONE)
		return false;
	s->sent = s->handshake.sent;
	s->received = s->handshake.received;
	s->moved_table = 0;
	s->moved_at = 0;
	s->moved_told = false;
	s->have_all = false;
	s->have_table = 0;
	if (collect_moved(s) < 0) {
		refuse(s, SINK_REASON_FAILED);
		return true;
	}
	/* from here on nothing may be moved away from this store: MOVED is being said */
	enter(s, SINK_SENDER_WAITING);
	return true;
}

bool
sink_sender_poll(struct sink_sender *s)
{
	const uint64_t now = sink_link_clock();
	bool busy = false;

	if (s->closing && !close_link(s))
		return true;
	if (s->link_is_open) {
		busy = sink_link_poll(&s->link) > 0;
		if (s->link_is_open && s->link.broken && s->state != SINK_SENDER_ENDED) {
			SENDER_LOG(
				INFO, s, "connection broken: %s", rdma_wc_status_name(s->link.why));
			go_down(s);
			return true;
		}
	}
	switch (s->state) {
	case SINK_SENDER_DOWN:
		if (!s->closing && now >= s->retry_at)
			begin_connection(s);
		break;
	case SINK_SENDER_PROVING:
		return work_proving(s, now) || busy;
	case SINK_SENDER_WAITING:
		while (!s->moved_told && sink_link_room(&s->link) != NULL)
			tell_moved(s);
		/* the store settles first: that takes as long as a sync, or an outage, does */
		if (now > s->heard + 4 * SINK_HANDSHAKE_MS)
			refuse(s, SINK_REASON_LATE);
		break;
	case SINK_SENDER_UP:
	case SINK_SENDER_ENDING:
		return work_up(s, now) || busy;
	default:
		break;
	}
	return busy;
}

/* ---- the rest -------------------------------------------------------------------------------- */

int
sink_sender_open(struct sink_sender **sender, const struct sink_sender_config *config)
{
	struct sink_sender *s = calloc(1, sizeof(*s));

	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->down_since = sink_link_clock();
	if (!retention_run_get(config->retention, config->run, &s->run)) {
		free(s);
		return -EINVAL;
	}
	*sender = s;
	return 0;
}

void
sink_sender_finish(struct sink_sender *s)
{
	s->finish = true;
}

bool
sink_sender_is_down(const struct sink_sender *s)
{
	return s->state <= SINK_SENDER_PROVING;
}

uint64_t
sink_sender_down_since(const struct sink_sender *s)
{
	return s->down_since;
}

void
sink_sender_stats_get(const struct sink_sender *s, struct sink_sender_stats *stats)
{
	*stats = s->stats;
	stats->state = s->state;
	stats->places = s->nb_places;
	stats->credits = s->nb_free[0] + s->nb_free[1];
	stats->waiting = s->queue[0].nb + s->queue[1].nb;
}

int
sink_sender_close(struct sink_sender *s)
{
	unsigned int i;

	if (s->link_is_open && !s->closing) {
		sink_link_break(&s->link);
		s->closing = true;
	}
	if (s->link_is_open && !close_link(s))
		return -EBUSY;
	forget_connection(s);
	for (i = 0; i < SINK_TABLES; i++)
		free(s->queue[i].at);
	free(s);
	return 0;
}
