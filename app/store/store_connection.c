/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include <rte_errno.h>
#include <rte_log.h>

#include "arrow_tables.h"
#include "sink_message.h"
#include "store_connection.h"

RTE_LOG_REGISTER(store_connection_logtype, braggline.store.connection, NOTICE);

#define CONN_LOG(level, c, fmt, ...)                                                          \
	rte_log(RTE_LOG_##level, store_connection_logtype, "store: connection %u: " fmt "\n", \
		(c)->index, ##__VA_ARGS__)

#define LEAVE_MS 1000

const char *
store_connection_state_name(enum store_connection_state state)
{
	static const char *const names[STORE_CONNECTION_STATES] = {
		[STORE_FREE] = "free",
		[STORE_PROVING] = "proving",
		[STORE_HEARING] = "hearing",
		[STORE_SETTLING] = "settling",
		[STORE_TELLING] = "telling",
		[STORE_UP] = "up",
		[STORE_ENDING] = "ending",
		[STORE_LEAVING] = "leaving",
		[STORE_CLOSING] = "closing",
	};

	return names[state];
}

static void
enter(struct store_connection *c, enum store_connection_state state)
{
	CONN_LOG(DEBUG, c, "%s -> %s", store_connection_state_name(c->state),
		store_connection_state_name(state));
	c->state = state;
}

static void
leave_gate(struct store_connection *c)
{
	if (c->gate >= 0)
		sink_gate_leave(&c->shared->gate, c->gate);
	c->gate = -1;
}

/* Nothing goes over any more. What was taken stays the store's. */
static void
begin_close(struct store_connection *c)
{
	if (c->state == STORE_CLOSING || c->state == STORE_FREE)
		return;
	if (c->state == STORE_UP || c->state == STORE_ENDING)
		c->shared->counters.broken++;
	leave_gate(c);
	sink_link_break(&c->link);
	c->nb_results = 0;
	enter(c, STORE_CLOSING);
}

void
store_connection_refuse(struct store_connection *c, enum sink_reason reason)
{
	struct sink_refuse *m;

	if (c->state == STORE_FREE || c->state >= STORE_LEAVING)
		return;
	c->shared->counters.refused[reason]++;
	CONN_LOG(WARNING, c, "given up while %s: %s", store_connection_state_name(c->state),
		sink_reason_name(reason));
	m = c->link.broken || !c->established ? NULL : sink_link_room(&c->link);
	if (m == NULL) {
		begin_close(c);
		return;
	}
	if (c->state == STORE_UP || c->state == STORE_ENDING)
		c->shared->counters.broken++;
	sink_message_begin(m, SINK_REFUSE, sizeof(*m),
		c->state == STORE_PROVING ? c->handshake.sent : c->sent++);
	m->reason = reason;
	(void)sink_link_send(&c->link, sizeof(*m));
	leave_gate(c);
	c->deadline = sink_link_clock() + LEAVE_MS;
	enter(c, STORE_LEAVING);
}

/* ---- the rings ------------------------------------------------------------------------------- */

/* How many places of which size. @return false: a message of one frame does not fit */
static bool
plan_places(struct store_connection *c)
{
	const struct sink_table *t = c->handshake.proof.table;
	uint64_t bytes = c->shared->memory, nb;
	unsigned int i;

	c->nb_places = 0;
	for (i = 0; i < SINK_TABLES; i++) {
		c->body_place[i] = t[i].body_max;
		/* an eighth for frames, which are small; what they leave is for images */
		nb = (i == 0 ? bytes / 8 : bytes) / c->body_place[i];
		if (nb > STORE_PLACES / (i == 0 ? 4 : 2))
			nb = STORE_PLACES / (i == 0 ? 4 : 2);
		if (nb < 2) {
			CONN_LOG(ERR, c,
				"bodies of %" PRIu64 " bytes (%s) need more than %" PRIu64
				" bytes of memory ([store] memory_mb)",
				c->body_place[i], arrow_table_name(i), c->shared->memory);
			return false;
		}
		c->nb_table[i] = nb;
		c->nb_places += nb;
		bytes -= nb * c->body_place[i];
	}
	return true;
}

static uint8_t *
body_at(const struct store_connection *c, uint32_t entry)
{
	const uint64_t frames = c->nb_table[0] * c->body_place[0];

	return entry < c->nb_table[0]
		? c->bodies + entry * c->body_place[0]
		: c->bodies + frames + (entry - c->nb_table[0]) * c->body_place[1];
}

static struct rdma_mr *
register_ring(const struct store_connection *c, void *addr, uint64_t length)
{
	const struct rdma_mr_attr attr = {
		.addr = addr,
		.length = length,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1,
	};

	return rdma_mr_reg(c->shared->pd, &attr);
}

static enum sink_reason
open_rings(struct store_connection *c)
{
	const uint64_t entries = (uint64_t)c->nb_places * SINK_ENTRY_BYTES;
	const uint64_t bodies =
		c->nb_table[0] * c->body_place[0] + c->nb_table[1] * c->body_place[1];
	void *memory;
	uint32_t i;

	c->memory_size = 2 * entries + bodies;
	memory = mmap(NULL, c->memory_size, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		return SINK_REASON_FAILED;
	c->memory = memory;
	c->entries = memory;
	c->copies = c->memory + entries;
	c->bodies = c->copies + entries;
	c->entries_mr = register_ring(c, c->entries, entries);
	c->bodies_mr = register_ring(c, c->bodies, bodies);
	if (c->entries_mr == NULL || c->bodies_mr == NULL ||
		sink_random(&c->epoch, sizeof(c->epoch)) < 0)
		return SINK_REASON_FAILED;
	for (i = 0; i < c->nb_places; i++)
		c->place[i] = (struct store_place){false, i >= c->nb_table[0]};
	for (i = 0; i < SINK_TABLES; i++) {
		const struct arrow_identity identity = {
			c->run->producer, c->run->run, c->run->incarnation, arrow_table_name(i)};

		if (sink_stream_init(&c->stream[i], i, &c->run->reader[i].schema, &identity,
			    c->epoch, c->body_place[i]) < 0)
			return SINK_REASON_SCHEMA;
	}
	return SINK_REASON_NONE;
}

/* @return false: not all has let go of it */
static bool
close_registrations(struct store_connection *c)
{
	if (c->entries_mr != NULL && rdma_mr_dereg(c->entries_mr) < 0)
		return false;
	c->entries_mr = NULL;
	if (c->bodies_mr != NULL && rdma_mr_dereg(c->bodies_mr) < 0)
		return false;
	c->bodies_mr = NULL;
	return true;
}

/* Queue pair, registrations, places; the run last, as the next connection waits for it. */
static bool
work_closing(struct store_connection *c)
{
	unsigned int i;

	(void)sink_link_poll(&c->link);
	if (c->conn != NULL) {
		(void)rdma_conn_destroy(c->conn);
		c->conn = NULL;
	}
	if (c->link_is_open) {
		if (sink_link_close(&c->link) < 0)
			return false;
		c->link_is_open = false;
	}
	if (!close_registrations(c) || c->pending > 0)
		return false;
	if (c->memory != NULL)
		munmap(c->memory, c->memory_size);
	for (i = 0; i < SINK_TABLES; i++) {
		sink_stream_free(&c->stream[i]);
		interval_set_free(&c->moved[i]);
	}
	sink_handshake_end(&c->handshake);
	if (c->owns_run && c->run->connection == c)
		c->run->connection = NULL;
	enter(c, STORE_FREE);
	return true;
}

/* ---- what the receiver says ------------------------------------------------------------------ */

static enum sink_reason
take_moved(struct store_connection *c, const struct sink_intervals *m)
{
	uint32_t i;

	if (m->table < c->moved_table)
		return SINK_REASON_ORDER;
	c->moved_table = m->table;
	for (i = 0; i < m->nb; i++) {
		if (interval_set_add(
			    &c->moved[m->table], m->interval[i].first, m->interval[i].last) < 0)
			return SINK_REASON_FAILED;
	}
	if ((m->head.flags & SINK_MORE) == 0)
		enter(c, STORE_SETTLING);
	return SINK_REASON_NONE;
}

static enum sink_reason
take_session_message(struct store_connection *c, const struct sink_message *m)
{
	switch ((enum sink_type)m->type) {
	case SINK_MOVED:
		return c->state == STORE_HEARING ? take_moved(c, (const struct sink_intervals *)m)
						 : SINK_REASON_ORDER;
	case SINK_STATUS:
		return SINK_REASON_NONE;
	case SINK_END:
		if (c->state != STORE_UP)
			return SINK_REASON_ORDER;
		enter(c, STORE_ENDING);
		return SINK_REASON_NONE;
	case SINK_REFUSE:
		CONN_LOG(WARNING, c, "the receiver gives up: %s",
			sink_reason_name(((const struct sink_refuse *)m)->reason));
		begin_close(c);
		return SINK_REASON_NONE;
	default:
		return SINK_REASON_ORDER;
	}
}

/* The peer has the key, and its schemas are here. */
static void
proved(struct store_connection *c)
{
	leave_gate(c);
	c->sent = c->handshake.sent;
	c->received = c->handshake.received;
	enter(c, STORE_HEARING);
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct store_connection *c = arg;
	enum sink_reason reason;

	c->heard = sink_link_clock();
	if (c->state >= STORE_LEAVING)
		return;
	if (c->state == STORE_PROVING) {
		reason = sink_handshake_receive(&c->handshake, message, size);
		if (reason != SINK_REASON_NONE)
			store_connection_refuse(c, reason);
		else if (c->handshake.state == SINK_HANDSHAKE_DONE)
			/* now: the next message may be the next completion */
			proved(c);
		return;
	}
	reason = sink_message_check(message, size, SINK_ROLE_RECEIVER, c->received++);
	if (reason == SINK_REASON_NONE)
		reason = take_session_message(c, message);
	if (reason != SINK_REASON_NONE)
		store_connection_refuse(c, reason);
}

/* A batch is announced: copy, look, take. */
static void
on_written(void *arg, uint32_t index)
{
	static struct sink_entry copy __attribute__((aligned(64)));
	struct store_connection *c = arg;
	struct store_counters *n = &c->shared->counters;
	enum sink_entry_fault fault = SINK_ENTRY_PLACE;
	struct stream_batch b = {.tag = (uint64_t)c->index << 32 | index};
	uint8_t table;

	c->heard = sink_link_clock();
	if (c->state != STORE_UP)
		return;
	if (index < c->nb_places && !c->place[index].taken) {
		table = c->place[index].table;
		memcpy(&copy, &c->entries[index], sizeof(copy));
		b.metadata = c->copies + (uint64_t)index * SINK_BLOCK;
		b.body = body_at(c, index);
		fault = sink_entry_check(&c->stream[table], &copy, index, &b.sink,
			c->copies + (uint64_t)index * SINK_BLOCK);
	}
	n->fault[fault]++;
	if (fault != SINK_ENTRY_GOOD) {
		CONN_LOG(
			WARNING, c, "entry %u is refused: %s", index, sink_entry_fault_name(fault));
		store_connection_refuse(c, SINK_REASON_ENTRY);
		return;
	}
	n->bytes += b.sink.body_bytes;
	c->place[index].taken = true;
	c->pending++;
	stream_writer_append(c->run->writer[table], &b);
}

static const struct sink_link_ops link_ops = {.message = on_message, .written = on_written};

void
store_connection_result(struct store_connection *c, uint32_t entry, uint64_t sequence,
	enum sink_result_status status)
{
	struct store_counters *n = &c->shared->counters;

	c->pending--;
	c->place[entry].taken = false;
	switch (status) {
	case SINK_DURABLE:
		n->durable++;
		c->batches[c->place[entry].table]++;
		break;
	case SINK_DOUBLE:
		n->doubles++;
		break;
	default:
		n->again++;
	}
	/* of a connection that is gone nobody hears: the next one is told what is here */
	if (c->state == STORE_UP || c->state == STORE_ENDING)
		c->results[c->nb_results++] =
			(struct sink_result){sequence, entry, c->place[entry].table, status, 0};
}

/* ---- what the store says --------------------------------------------------------------------- */

static void
send_results(struct store_connection *c)
{
	struct sink_results *m;
	uint32_t nb, sent = 0;

	while (sent < c->nb_results && (m = sink_link_room(&c->link)) != NULL) {
		nb = c->nb_results - sent;
		if (nb > SINK_RESULTS_MAX)
			nb = SINK_RESULTS_MAX;
		sink_message_begin(
			m, SINK_RESULTS, sizeof(*m) + nb * sizeof(m->result[0]), c->sent++);
		m->nb = nb;
		memcpy(m->result, c->results + sent, nb * sizeof(m->result[0]));
		if (sink_link_send(&c->link, m->head.length) < 0)
			break;
		c->said = sink_link_clock();
		sent += nb;
	}
	c->nb_results -= sent;
	memmove(c->results, c->results + sent, c->nb_results * sizeof(c->results[0]));
}

static void
send_status(struct store_connection *c, enum sink_state state)
{
	struct sink_status *m = sink_link_room(&c->link);

	if (m == NULL)
		return;
	sink_message_begin(m, SINK_STATUS, sizeof(*m), c->sent++);
	m->state = state;
	(void)sink_link_send(&c->link, sizeof(*m));
	c->said = sink_link_clock();
	c->said_state = state;
}

/* Some of what is durable. @return all is told */
static bool
tell_have(struct store_connection *c)
{
	const struct interval_set *set = stream_writer_have(c->run->writer[c->have_table]);
	struct sink_intervals *m = sink_link_room(&c->link);
	size_t nb, i;

	if (m == NULL)
		return false;
	nb = set->nb - c->have_at;
	if (nb > SINK_INTERVALS_MAX)
		nb = SINK_INTERVALS_MAX;
	sink_message_begin(m, SINK_HAVE, sizeof(*m) + nb * sizeof(m->interval[0]), c->sent++);
	m->table = c->have_table;
	m->nb = nb;
	for (i = 0; i < nb; i++)
		m->interval[i] = (struct sink_interval){
			set->at[c->have_at + i].first, set->at[c->have_at + i].last};
	c->have_at += nb;
	if (c->have_at == set->nb) {
		c->have_at = 0;
		c->have_table++;
	}
	m->head.flags = c->have_table < SINK_TABLES ? SINK_MORE : 0;
	(void)sink_link_send(&c->link, m->head.length);
	return c->have_table == SINK_TABLES;
}

static bool
send_grant(struct store_connection *c)
{
	struct sink_grant *m = sink_link_room(&c->link);
	const uint64_t frames = c->nb_table[0] * c->body_place[0];

	if (m == NULL)
		return false;
	sink_message_begin(m, SINK_GRANT, sizeof(*m) + 3 * sizeof(m->region[0]), c->sent++);
	m->epoch = c->epoch;
	m->heartbeat_ms = c->shared->heartbeat_ms;
	m->silence_ms = c->shared->silence_ms;
	m->commit_ms = c->shared->commit_ms;
	m->nb = 3;
	m->region[0] = (struct sink_region){(uintptr_t)c->entries, SINK_ENTRY_BYTES,
		rdma_mr_rkey(c->entries_mr), 0, c->nb_places, SINK_REGION_METADATA, 0, 0};
	m->region[1] = (struct sink_region){(uintptr_t)c->bodies, c->body_place[0],
		rdma_mr_rkey(c->bodies_mr), 0, c->nb_table[0], SINK_REGION_BODY, 0, 0};
	m->region[2] = (struct sink_region){(uintptr_t)c->bodies + frames, c->body_place[1],
		rdma_mr_rkey(c->bodies_mr), c->nb_table[0], c->nb_table[1], SINK_REGION_BODY, 1, 0};
	return sink_link_send(&c->link, m->head.length) == 0;
}

/* ---- its life -------------------------------------------------------------------------------- */

static void
reject(struct store_shared *s, const struct rdma_event *event, enum sink_reason reason)
{
	const struct sink_reject private = {SINK_MAGIC, SINK_VERSION, reason};

	s->counters.refused[reason]++;
	(void)rdma_conn_reject(event->conn, &private, sizeof(private));
}

static enum sink_reason
accept_request(struct store_connection *c, const struct rdma_event *event, uint64_t now)
{
	const struct sink_link_config link = {
		.dev = c->shared->dev,
		.pd = c->shared->pd,
		.lane = c->shared->lane,
		.receives = STORE_PLACES,
		.ops = &link_ops,
		.arg = c,
	};
	struct rdma_conn_attr attr = {
		.private_data = &c->handshake.answer,
		.private_len = sizeof(c->handshake.answer),
		.context = c,
	};
	struct sink_endpoint self = {0};
	enum sink_reason reason;

	reason = sink_handshake_answer(&c->handshake, &c->shared->key, c->shared->node,
		event->private_data, event->private_len, now + SINK_GATE_MS);
	if (reason != SINK_REASON_NONE)
		return reason;
	if (sink_link_open(&c->link, &link) < 0)
		return SINK_REASON_FAILED;
	c->link_is_open = true;
	if (rdma_conn_accept(event->conn, c->link.qp, &attr) < 0) {
		(void)sink_link_close(&c->link);
		c->link_is_open = false;
		return SINK_REASON_FAILED;
	}
	c->conn = event->conn;
	/* now: what the peer says may come before it is known that it has heard us */
	memcpy(self.addr, c->shared->addr, sizeof(self.addr));
	self.qpn = c->link.qpn;
	return sink_handshake_open(&c->handshake, NULL, 0, &c->peer, &self);
}

void
store_connection_request(struct store_shared *s, struct store_connection *c,
	const struct rdma_event *event, uint64_t now)
{
	enum sink_reason reason;
	unsigned int index;
	uint8_t addr[16];
	int gate;

	s->counters.requests++;
	sink_link_address(&event->peer, addr);
	gate = c == NULL || s->stopping ? -EBUSY : sink_gate_enter(&s->gate, addr, now);
	if (gate < 0) {
		reject(s, event, s->stopping ? SINK_REASON_STOPPING : SINK_REASON_BUSY);
		return;
	}
	index = c->index;
	memset(c, 0, sizeof(*c));
	c->index = index;
	c->shared = s;
	c->gate = gate;
	c->heard = now;
	memcpy(c->peer.addr, addr, sizeof(addr));
	c->peer.qpn = event->remote_qpn;
	reason = accept_request(c, event, now);
	if (reason != SINK_REASON_NONE) {
		sink_gate_leave(&s->gate, gate);
		sink_handshake_end(&c->handshake);
		reject(s, event, reason);
		return;
	}
	enter(c, STORE_PROVING);
}

void
store_connection_event(struct store_connection *c, const struct rdma_event *event)
{
	if (event->conn != c->conn)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		c->established = true;
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_REJECTED:
		/* what had come before is taken */
		(void)sink_link_poll(&c->link);
		begin_close(c);
		break;
	default:
		break;
	}
}

static bool
work_proving(struct store_connection *c, uint64_t now)
{
	void *room;
	size_t size;

	/* without its proof a peer has no message of us but this */
	if (sink_handshake_late(&c->handshake, now)) {
		store_connection_refuse(c, c->handshake.reason);
		return true;
	}
	while (c->established && (room = sink_link_room(&c->link)) != NULL) {
		size = sink_handshake_send(&c->handshake, room);
		if (size == 0)
			break;
		(void)sink_link_send(&c->link, size);
	}
	return false;
}

/* The run is ours once an older connection has let go of it and all has its result. */
static bool
work_settling(struct store_connection *c)
{
	struct store_connection *older;
	enum sink_reason reason = SINK_REASON_NONE;
	unsigned int i;

	if (c->run == NULL) {
		c->run = store_run_find(&c->shared->runs, &c->handshake, &reason);
		if (c->run == NULL) {
			store_connection_refuse(c, reason);
			return true;
		}
	}
	older = c->run->connection;
	if (older != NULL && older != c) {
		if (older->state < STORE_LEAVING)
			c->shared->counters.superseded++;
		store_connection_refuse(older, SINK_REASON_SUPERSEDED);
		/* at once: who asks again has not heard of it */
		begin_close(older);
		return false;
	}
	c->run->connection = c;
	c->owns_run = true;
	if (!store_run_settled(c->run))
		return false;
	for (i = 0; i < SINK_TABLES; i++) {
		if (stream_writer_cut(c->run->writer[i], &c->moved[i]) < 0) {
			store_connection_refuse(c, SINK_REASON_FAILED);
			return true;
		}
	}
	reason = plan_places(c) ? open_rings(c) : SINK_REASON_BODY;
	if (reason != SINK_REASON_NONE) {
		store_connection_refuse(c, reason);
		return true;
	}
	enter(c, STORE_TELLING);
	return true;
}

/* Of a run that ends. It may take as long as the disk wants: others are served meanwhile. */
static bool
files_are_complete(struct store_connection *c)
{
	unsigned int i;

	for (i = 0; i < SINK_TABLES && !c->finishing; i++)
		stream_writer_begin_finish(c->run->writer[i]);
	c->finishing = true;
	return stream_writer_finished(c->run->writer[0]) &&
		stream_writer_finished(c->run->writer[1]);
}

static bool
work_up(struct store_connection *c, uint64_t now)
{
	const enum sink_state state =
		c->shared->stopping ? SINK_STATE_STOPPING : store_run_state(c->run);
	struct sink_end *m;
	int rc;

	if (now > c->heard + c->shared->silence_ms) {
		store_connection_refuse(c, SINK_REASON_SILENT);
		return true;
	}
	send_results(c);
	if (state != c->said_state || now >= c->said + c->shared->heartbeat_ms)
		send_status(c, state);
	if (c->pending > 0 || c->nb_results > 0)
		return false;
	if (c->shared->stopping)
		store_connection_refuse(c, SINK_REASON_STOPPING);
	if (c->state != STORE_ENDING || !files_are_complete(c))
		return false;
	m = sink_link_room(&c->link);
	if (m == NULL)
		return false;
	rc = store_run_end(&c->shared->runs, c->run);
	c->run = NULL;
	c->owns_run = false;
	if (rc < 0)
		CONN_LOG(ERR, c, "the run has ended with an error: %s", strerror(-rc));
	sink_message_begin(m, SINK_ENDED, sizeof(*m), c->sent++);
	memcpy(m->batches, c->batches, sizeof(m->batches));
	(void)sink_link_send(&c->link, sizeof(*m));
	c->shared->counters.ended++;
	c->deadline = now + LEAVE_MS;
	enter(c, STORE_LEAVING);
	return true;
}

bool
store_connection_poll(struct store_connection *c, uint64_t now)
{
	bool busy;

	if (c->state == STORE_FREE)
		return false;
	if (c->state == STORE_CLOSING)
		return work_closing(c);
	busy = sink_link_poll(&c->link) > 0;
	if (c->link.broken) {
		begin_close(c);
		return true;
	}
	switch (c->state) {
	case STORE_PROVING:
		return work_proving(c, now) || busy;
	case STORE_HEARING:
		if (now > c->heard + SINK_GATE_MS)
			store_connection_refuse(c, SINK_REASON_LATE);
		return busy;
	case STORE_SETTLING:
		return work_settling(c) || busy;
	case STORE_TELLING:
		if (c->have_table < SINK_TABLES)
			return tell_have(c) || busy;
		if (!send_grant(c))
			return busy;
		c->heard = now;
		c->said = now;
		c->shared->counters.stood++;
		enter(c, STORE_UP);
		return true;
	case STORE_UP:
	case STORE_ENDING:
		return work_up(c, now) || busy;
	case STORE_LEAVING:
		if (now >= c->deadline)
			begin_close(c);
		return busy;
	default:
		return busy;
	}
}
