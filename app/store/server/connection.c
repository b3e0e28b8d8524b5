/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include <rte_log.h>

#include "arrow/tables.h"
#include "counter.h"
#include "io/body_memory.h"
#include "fail_point.h"
#include "xfer/msg.h"
#include "server/connection_rings.h"

RTE_LOG_REGISTER(store_connection_logtype, braggline.store.connection, NOTICE);

#define LEAVE_MS	  1000
#define LEAVE_UNPROVED_MS 100 /* short, so that a flood of them does not use all connections */

const char *
store_connection_state_name(enum store_connection_state state)
{
	static const char *const names[STORE_CONNECTION_STATES] = {
		[STORE_FREE] = "free",
		[STORE_PROVING] = "authenticating",
		[STORE_RX_INVENTORY] = "receiving inventory",
		[STORE_RECOVERING] = "recovering",
		[STORE_TX_RESULTS] = "sending results",
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
leave_admission(struct store_connection *c)
{
	if (c->admission >= 0)
		admission_leave(&c->shared->admission, c->admission);
	c->admission = -1;
}

/* Write an audit message about a connection: identity, address, run. */
#define AUDIT_CONN(level, c, what, fmt, ...)                                                     \
	do {                                                                                     \
		char address_[REFUSAL_ADDRESS_LEN];                                              \
		AUDIT(level,                                                                     \
			what " identity=%s key=%016" PRIx64 " address=%s receiver_id=%" PRIu64   \
			     " run=%s:%016" PRIx64 " incarnation=%016" PRIx64 fmt,               \
			(c)->identity.name, (c)->fingerprint,                                    \
			refusal_address((c)->peer.addr, address_), (c)->handshake.receiver.node, \
			(c)->handshake.request.name, (c)->handshake.request.run,                 \
			(c)->handshake.request.incarnation, ##__VA_ARGS__);                      \
	} while (0)

/*
 * Log a refusal. For unauthenticated peers the number of messages is limited, since anyone can
 * cause them.
 */
static void
audit_refusal(struct store_connection *c, enum xfer_reason reason)
{
	char address[REFUSAL_ADDRESS_LEN];

	if (c->fingerprint != 0) {
		if (c->counts != NULL)
			c->counts->refused++;
		AUDIT_CONN(NOTICE, c, "refused", " reason=%s state=%s", xfer_reason_name(reason),
			store_connection_state_name(c->state));
	} else if (refusal_limit_take(&c->shared->warnings, c->peer.addr, xfer_qp_clock())) {
		AUDIT(NOTICE, "refused address=%s claims=%s reason=%s state=%s",
			refusal_address(c->peer.addr, address),
			c->identity.name[0] != '\0' ? c->identity.name : "(unknown)",
			xfer_reason_name(reason), store_connection_state_name(c->state));
	}
}

static bool
is_up(const struct store_connection *c)
{
	return c->state == STORE_UP || c->state == STORE_ENDING;
}

/* End the transfer; the reason was counted. Batches that were received are still stored. */
static void
cut_off(struct store_connection *c)
{
	leave_admission(c);
	xfer_qp_break(&c->link);
	c->nb_results = 0;
	enter(c, STORE_CLOSING);
}

/* Start closing: the peer has disconnected, or the last message was sent. */
static void
begin_close(struct store_connection *c)
{
	if (c->state == STORE_CLOSING || c->state == STORE_FREE)
		return;
	c->shared->counters.broken += is_up(c);
	c->shared->counters.abandoned += c->state < STORE_UP;
	cut_off(c);
}

/* @return false: the message cannot be sent */
static bool
send_refuse(struct store_connection *c, enum xfer_reason reason, uint32_t sequence)
{
	struct xfer_refuse *m = c->link.broken ? NULL : xfer_qp_room(&c->link);

	if (m == NULL)
		return false;
	xfer_msg_begin(m, XFER_REFUSE, sizeof(*m), sequence);
	m->reason = reason;
	return xfer_qp_send(&c->link, sizeof(*m)) == 0;
}

void
store_connection_refuse(struct store_connection *c, enum xfer_reason reason)
{
	bool sent;

	if (c->state == STORE_FREE || c->state >= STORE_LEAVING)
		return;
	c->shared->counters.refused[reason]++;
	audit_refusal(c, reason);
	c->shared->counters.broken += is_up(c);
	/* AUTH may arrive before the event that the connection is established: send it then */
	if (!c->established && !c->link.broken && reason != XFER_REASON_LATE) {
		c->unsent = reason;
		sent = true;
	} else {
		sent = send_refuse(
			c, reason, c->state == STORE_PROVING ? c->handshake.sent : c->sent++);
	}
	if (!sent) {
		cut_off(c);
		return;
	}
	leave_admission(c);
	c->deadline = xfer_qp_clock() + (c->state == STORE_PROVING ? LEAVE_UNPROVED_MS : LEAVE_MS);
	enter(c, STORE_LEAVING);
}

void
store_connection_late(struct store_connection *c)
{
	c->admission = -1;
	store_connection_refuse(c, XFER_REASON_LATE);
}

void
store_connection_keys_changed(struct store_connection *c)
{
	const struct xfer_identity *identity;
	enum xfer_reason reason = XFER_REASON_NONE;

	if (c->state == STORE_FREE || c->state >= STORE_LEAVING)
		return;
	if (c->fingerprint == 0) {
		/* its keys may have been removed during the handshake: the peer must retry */
		store_connection_refuse(c, XFER_REASON_BUSY);
		return;
	}
	identity = xfer_keyring_check(
		store_keys_get(c->shared->keys), c->identity.name, c->fingerprint);
	if (identity == NULL) {
		reason = XFER_REASON_KEY;
	} else if (!xfer_identity_may(identity,
			   c->handshake.receiver.role == XFER_ROLE_IMPORT ? XFER_RIGHT_IMPORT
									  : XFER_RIGHT_WRITE,
			   c->handshake.receiver.node, c->handshake.request.name)) {
		reason = XFER_REASON_RIGHTS;
	} else {
		c->identity.rights = identity->rights;
		c->identity.open_runs = identity->open_runs;
	}
	if (reason == XFER_REASON_NONE)
		return;
	c->shared->counters.keys_removed++;
	store_connection_refuse(c, reason);
}

static void
begin_recovering(struct store_connection *c)
{
	c->settle.runs = &c->shared->runs;
	c->settle.run = c->run;
	c->settle.moved = c->moved;
	c->settle.held = c->held;
	c->settle.moved_contents = c->moved_contents;
	c->settle.held_contents = c->held_contents;
	c->settle.damaged = c->damaged;
	c->settle.bodies = &c->shared->bodies;
	c->settle.bytes = c->bodies_size;
	store_recover_begin(&c->settle);
}

/* Count the batches that were removed because the peer reassigned them. */
static void
account_cuts(struct store_connection *c)
{
	struct store_counters *n = &c->shared->counters;
	const struct interval_set *set;
	unsigned int i;
	size_t k;

	n->cuts += c->settle.cuts;
	n->batches_truncated += c->settle.batches_truncated;
	n->reassigned_refused += c->settle.reason == XFER_REASON_ENDED;
	if (c->counts != NULL)
		c->counts->batches_truncated += c->settle.batches_truncated;
	for (i = 0; i < XFER_TABLES; i++) {
		set = &c->settle.cut[i];
		for (k = 0; k < set->nb; k++)
			AUDIT_CONN(NOTICE, c, "truncated",
				" table=%s batches=%" PRIu64 "-%" PRIu64 " directory=%s",
				arrow_table_name(i), set->at[k].first, set->at[k].last,
				c->settle.dir);
		interval_set_free(&c->settle.cut[i]);
		set = &c->damaged[i];
		for (k = 0; k < set->nb; k++)
			AUDIT_CONN(WARNING, c, "damaged",
				" table=%s batches=%" PRIu64 "-%" PRIu64 " directory=%s",
				arrow_table_name(i), set->at[k].first, set->at[k].last,
				c->settle.dir);
	}
}

/* @return false: still running */
static bool
end_recovering(struct store_connection *c)
{
	if (!store_recover_end(&c->settle))
		return false;
	account_cuts(c);
	/* a run that could not be opened was removed */
	if (!c->run->used)
		c->run = NULL;
	return true;
}

void
store_connection_repaired(struct store_connection *c, unsigned int table, uint64_t sequence)
{
	if (!interval_set_has(&c->damaged[table], sequence))
		return;
	(void)interval_set_remove(&c->damaged[table], sequence, sequence);
	AUDIT_CONN(NOTICE, c, "repaired", " table=%s batch=%" PRIu64 " directory=%s",
		arrow_table_name(table), sequence, c->settle.dir);
}

bool
store_connection_waits_for_device(const struct store_connection *c)
{
	return c->state == STORE_CLOSING && !c->settle.begun && !c->ended.begun && c->pending == 0;
}

/*
 * Release the queue pair, registrations and slots. Release the run last, since the next connection
 * waits for it.
 */
static bool
work_closing(struct store_connection *c)
{
	unsigned int i;

	(void)xfer_qp_poll(&c->link);
	/* the thread may change files that the next connection's inventory lists */
	if (c->settle.begun) {
		if (!end_recovering(c))
			return false;
		c->bodies = c->settle.memory;
	}
	if (c->ended.begun) {
		if (!store_ended_end(&c->ended))
			return false;
		c->run->ended |= c->ended.error == 0;
	}
	if (c->conn != NULL) {
		(void)rdma_conn_destroy(c->conn);
		c->conn = NULL;
	}
	if (c->link_is_open) {
		if (xfer_qp_close(&c->link) < 0)
			return false;
		c->link_is_open = false;
	}
	if (!store_connection_close_rings(c) || (c->pd != NULL && rdma_pd_free(c->pd) < 0))
		return false;
	c->pd = NULL;
	for (i = 0; i < XFER_TABLES; i++) {
		xfer_stream_free(&c->stream[i]);
		interval_set_free(&c->moved[i]);
		interval_set_free(&c->held[i]);
		stream_contents_free(&c->moved_contents[i]);
		stream_contents_free(&c->held_contents[i]);
		interval_set_free(&c->damaged[i]);
	}
	xfer_auth_end(&c->handshake);
	xfer_identity_forget(&c->identity);
	if (c->run != NULL)
		COUNTER_SET(c->run->connection, NULL);
	if (c->counts != NULL)
		c->counts->connections--;
	enter(c, STORE_FREE);
	return true;
}

/* ---- messages of the receiver ---------------------------------------------------------------- */

/* Collect batches that are listed in several messages, table after table. */
static enum xfer_reason
take_list(struct interval_set sets[XFER_TABLES], struct stream_contents contents[XFER_TABLES],
	unsigned int *table, const struct xfer_list *m)
{
	struct stream_contents *c = &contents[m->table];
	const struct xfer_listed *b;
	uint32_t i;

	if (m->table < *table)
		return XFER_REASON_ORDER;
	/* ascending across messages too, so each batch is appended, which is cheap */
	if (m->nb > 0 && c->nb > 0 && m->listed[0].sequence <= c->at[c->nb - 1].sequence)
		return XFER_REASON_MALFORMED;
	/* not more than a receiver can hold */
	if (c->nb + m->nb > XFER_REASSIGNED_MAX)
		return XFER_REASON_MALFORMED;
	*table = m->table;
	for (i = 0; i < m->nb; i++) {
		b = &m->listed[i];
		if (interval_set_add(&sets[m->table], b->sequence, b->sequence) < 0 ||
			stream_contents_append(c, b->sequence,
				stream_content_make(b->body_crc32c, b->metadata_crc32c)) < 0)
			return XFER_REASON_FAILED;
	}
	return XFER_REASON_NONE;
}

static enum xfer_reason
take_moved(struct store_connection *c, const struct xfer_list *m)
{
	enum xfer_reason reason;

	if (m->nb > 0 && (c->identity.rights & XFER_RIGHT_RECONCILE) == 0) {
		c->shared->counters.reassigned_refused++;
		return XFER_REASON_RIGHTS;
	}
	if (c->moved_all)
		return XFER_REASON_ORDER;
	reason = take_list(c->moved, c->moved_contents, &c->moved_table, m);
	c->moved_all = (m->head.flags & XFER_MORE) == 0;
	return reason;
}

/* Collect the batches that the peer would release. Their bodies will be read. */
static enum xfer_reason
take_held(struct store_connection *c, const struct xfer_list *m)
{
	enum xfer_reason reason;

	if (!c->moved_all)
		return XFER_REASON_ORDER;
	reason = take_list(c->held, c->held_contents, &c->held_table, m);
	if (reason == XFER_REASON_NONE && (m->head.flags & XFER_MORE) == 0)
		enter(c, STORE_RECOVERING);
	return reason;
}

/* Handle a REFUSE. A reason sent by the peer is not counted as one of the store. */
static void
given_up(struct store_connection *c, enum xfer_reason reason)
{
	if (c->fingerprint != 0)
		CONN_LOG(WARNING, c, "closed by the receiver: %s", xfer_reason_name(reason));
	begin_close(c);
}

static enum xfer_reason
take_session_message(struct store_connection *c, const struct xfer_msg *m)
{
	switch ((enum xfer_type)m->type) {
	case XFER_REASSIGNED:
		return c->state == STORE_RX_INVENTORY ? take_moved(c, (const struct xfer_list *)m)
						      : XFER_REASON_ORDER;
	case XFER_HELD:
		return c->state == STORE_RX_INVENTORY ? take_held(c, (const struct xfer_list *)m)
						      : XFER_REASON_ORDER;
	case XFER_STATUS:
		return XFER_REASON_NONE;
	case XFER_END:
		if (c->state != STORE_UP)
			return XFER_REASON_ORDER;
		enter(c, STORE_ENDING);
		return XFER_REASON_NONE;
	case XFER_REFUSE:
		given_up(c, ((const struct xfer_refuse *)m)->reason);
		return XFER_REASON_NONE;
	default:
		return XFER_REASON_ORDER;
	}
}

/* The peer is authenticated. */
static void
identified(struct store_connection *c)
{
	const unsigned int key = c->handshake.key == &c->identity.key[1];

	c->fingerprint = c->identity.fingerprint[key];
	c->counts = store_audit_of(&c->shared->audit, c->identity.name);
	if (c->counts == NULL)
		return;
	c->counts->fingerprint = c->fingerprint;
	c->counts->authentications++;
	c->counts->connections++;
}

static bool
is_its_run(const struct store_connection *c, const struct store_run *r)
{
	return r->used && r->receiver_id == c->handshake.receiver.node &&
		r->run == c->handshake.request.run &&
		r->incarnation == c->handshake.request.incarnation;
}

/*
 * Limit the connections of an identity. A receiver that reconnects before the store has noticed its
 * failure needs one more: the older connection of the same stream is then ended.
 */
static bool
may_connect(const struct store_connection *c)
{
	const struct store_runs *runs = &c->shared->runs;
	uint32_t most = c->identity.connections;
	unsigned int i;

	for (i = 0; i < runs->nb; i++) {
		if (is_its_run(c, &runs->run[i]) && runs->run[i].connection != NULL)
			most++;
	}
	return c->counts == NULL || c->counts->connections <= most;
}

/*
 * Whether the run is open already, with or without a connection, or the identity may open another
 * one.
 */
static bool
may_have_run(const struct store_connection *c)
{
	const struct store_runs *runs = &c->shared->runs;
	uint32_t nb = 0;
	unsigned int i;

	for (i = 0; i < runs->nb; i++) {
		if (is_its_run(c, &runs->run[i]))
			return true;
		nb += runs->run[i].used &&
			xfer_identity_has_receiver_id(&c->identity, runs->run[i].receiver_id);
	}
	return nb < c->identity.open_runs;
}

/* The schemas are complete. */
static void
proved(struct store_connection *c)
{
	int ret;

	if (c->admission >= 0)
		admission_proved(&c->shared->admission, c->admission, xfer_qp_clock());
	c->admission = -1;
	xfer_identity_forget(&c->identity);
	if (!may_connect(c)) {
		store_connection_refuse(c, XFER_REASON_CONNECTIONS);
		return;
	}
	/* only now, so that unauthenticated peers cannot make the store allocate this memory */
	ret = xfer_qp_extend(&c->link);
	if (ret < 0) {
		CONN_LOG(ERR, c, "cannot allocate memory for messages: %s", strerror(-ret));
		store_connection_refuse(c, XFER_REASON_FAILED);
		return;
	}
	c->sent = c->handshake.sent;
	c->received = c->handshake.received;
	/* a deadline for all REASSIGNED and HELD, so that a slow sender does not stay forever */
	c->said = xfer_qp_clock();
	c->deadline = c->said + ADMISSION_MS;
	enter(c, STORE_RX_INVENTORY);
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct store_connection *c = arg;
	enum xfer_reason reason;

	c->heard = c->link.listened;
	if (c->state >= STORE_LEAVING)
		return;
	if (c->state == STORE_PROVING) {
		reason = xfer_auth_receive(&c->handshake, message, size);
		if (c->handshake.key != NULL && c->fingerprint == 0)
			identified(c);
		/* the peer has the key: its next message has a code */
		if (reason == XFER_REASON_NONE && !c->link.sealed &&
			xfer_qp_seal(&c->link, &c->handshake) < 0)
			reason = XFER_REASON_FAILED;
		if (c->handshake.told)
			given_up(c, reason);
		else if (reason != XFER_REASON_NONE)
			store_connection_refuse(c, reason);
		else if (c->handshake.state == XFER_AUTH_DONE)
			/* at once: the next completion may be the next message */
			proved(c);
		return;
	}
	reason = xfer_msg_check(message, size, XFER_ROLE_RECEIVER, c->received++);
	if (reason == XFER_REASON_NONE)
		reason = take_session_message(c, message);
	if (reason != XFER_REASON_NONE)
		store_connection_refuse(c, reason);
}

static void
on_forged(void *arg)
{
	struct store_connection *c = arg;

	if (c->state < STORE_LEAVING)
		store_connection_refuse(c, XFER_REASON_MAC);
}

static const struct xfer_qp_ops link_ops = {
	.message = on_message,
	.forged = on_forged,
	.written = store_connection_written,
};

/* ---- messages of the store ------------------------------------------------------------------- */

static void
send_results(struct store_connection *c)
{
	struct xfer_results *m;
	uint32_t nb, sent = 0, i;

	while (sent < c->nb_results && (m = xfer_qp_room(&c->link)) != NULL) {
		nb = c->nb_results - sent;
		if (nb > XFER_RESULTS_MAX)
			nb = XFER_RESULTS_MAX;
		xfer_msg_begin(m, XFER_RESULTS, sizeof(*m) + nb * sizeof(m->result[0]), c->sent++);
		m->nb = nb;
		memcpy(m->result, c->results + sent, nb * sizeof(m->result[0]));
		if (xfer_qp_send(&c->link, m->head.length) < 0)
			break;
		c->said = xfer_qp_clock();
		/* their slots belong to the receiver again */
		for (i = sent; i < sent + nb; i++)
			c->slot[c->results[i].entry].taken = false;
		sent += nb;
		FAIL_POINT("store.results");
	}
	c->nb_results -= sent;
	memmove(c->results, c->results + sent, c->nb_results * sizeof(c->results[0]));
}

static void
send_status(struct store_connection *c, enum xfer_state state)
{
	struct xfer_status *m = xfer_qp_room(&c->link);

	if (m == NULL)
		return;
	xfer_msg_begin(m, XFER_STATUS, sizeof(*m), c->sent++);
	m->state = state;
	(void)xfer_qp_send(&c->link, sizeof(*m));
	c->said = xfer_qp_clock();
	c->said_state = state;
}

/*
 * Send a part of the durable batches that the peer holds; it will release them. @return true: all
 * are sent
 */
static bool
send_inventory(struct store_connection *c)
{
	const struct interval_set *set = &c->held[c->have_table];
	struct xfer_intervals *m = xfer_qp_room(&c->link);
	size_t nb, i;

	if (m == NULL)
		return false;
	nb = set->nb - c->have_at;
	if (nb > XFER_INTERVALS_MAX)
		nb = XFER_INTERVALS_MAX;
	xfer_msg_begin(m, XFER_INVENTORY, sizeof(*m) + nb * sizeof(m->interval[0]), c->sent++);
	m->table = c->have_table;
	m->nb = nb;
	for (i = 0; i < nb; i++)
		m->interval[i] = (struct xfer_interval){
			set->at[c->have_at + i].first, set->at[c->have_at + i].last};
	c->have_at += nb;
	if (c->have_at == set->nb) {
		c->have_at = 0;
		c->have_table++;
	}
	m->head.flags = c->have_table < XFER_TABLES ? XFER_MORE : 0;
	(void)xfer_qp_send(&c->link, m->head.length);
	FAIL_POINT("store.inventory");
	return c->have_table == XFER_TABLES;
}

/* ---- states of a connection ------------------------------------------------------------------ */

static void
reject(struct store_shared *s, const struct rdma_event *event, enum xfer_reason reason)
{
	const struct xfer_reject private = {XFER_MAGIC, XFER_VERSION, reason};

	s->counters.refused[reason]++;
	(void)rdma_conn_reject(event->conn, &private, sizeof(private));
}

static enum xfer_reason
accept_request(struct store_connection *c, const struct rdma_event *event, uint64_t now)
{
	struct xfer_qp_config link = {
		.dev = c->shared->dev,
		.poll_group = c->shared->poll_group,
		.receives = STORE_SLOTS,
		.ops = &link_ops,
		.arg = c,
	};
	struct rdma_conn_attr attr = {
		.private_data = &c->handshake.answer,
		.private_len = sizeof(c->handshake.answer),
		.context = c,
	};
	struct xfer_endpoint self = {0};
	enum xfer_reason reason;

	/* a copy, since the keyring may change before AUTH is received */
	c->identity = *xfer_keyring_find(store_keys_get(c->shared->keys),
		xfer_auth_identity(event->private_data, event->private_len));
	reason = xfer_auth_answer(&c->handshake, &c->identity, c->shared->node, event->private_data,
		event->private_len, now + ADMISSION_MS);
	if (reason != XFER_REASON_NONE)
		return reason;
	c->pd = rdma_pd_alloc(c->shared->dev);
	link.pd = c->pd;
	if (c->pd == NULL || xfer_qp_open(&c->link, &link) < 0)
		return XFER_REASON_FAILED;
	c->link_is_open = true;
	if (rdma_conn_accept(event->conn, c->link.qp, &attr) < 0)
		return XFER_REASON_FAILED;
	c->conn = event->conn;
	/* at once: AUTH may arrive before the event that the connection is established */
	memcpy(self.addr, c->shared->addr, sizeof(self.addr));
	self.qpn = c->link.qpn;
	return xfer_auth_open(&c->handshake, NULL, 0, &c->peer, &self);
}

static void
peer_of_request(const struct rdma_event *event, struct admission_peer *peer)
{
	xfer_qp_address(&event->peer, peer->addr);
	peer->identity = xfer_auth_identity(event->private_data, event->private_len);
}

bool
store_connection_knows(const struct store_shared *s, const struct rdma_event *event, uint64_t now)
{
	struct admission_peer peer;

	peer_of_request(event, &peer);
	return admission_knows(&s->admission, &peer, now);
}

static void
evict(struct store_connection *c)
{
	c->admission = -1;
	c->shared->counters.refused[XFER_REASON_LATE]++;
	cut_off(c);
}

void
store_connection_request(struct store_shared *s, struct store_connection *c,
	const struct rdma_event *event, uint64_t now)
{
	struct admission_peer peer;
	enum xfer_reason reason;
	void *evicted = NULL;
	unsigned int index;
	int slot = -EBUSY;

	s->counters.requests++;
	peer_of_request(event, &peer);
	if (c != NULL && !s->stopping && admission_may_take(&s->admission, &peer, s->nb_free, now))
		slot = admission_enter(&s->admission, &peer, c, now, &evicted);
	if (slot < 0) {
		reject(s, event, s->stopping ? XFER_REASON_STOPPING : XFER_REASON_BUSY);
		return;
	}
	/* without a REJ: another peer gets its slot */
	if (evicted != NULL)
		evict(evicted);
	index = c->index;
	memset(c, 0, sizeof(*c));
	c->index = index;
	c->shared = s;
	c->order = s->counters.requests;
	c->admission = slot;
	c->heard = now;
	memcpy(c->peer.addr, peer.addr, sizeof(peer.addr));
	c->peer.qpn = event->remote_qpn;
	enter(c, STORE_PROVING);
	reason = accept_request(c, event, now);
	if (reason != XFER_REASON_NONE) {
		reject(s, event, reason);
		cut_off(c);
	}
}

void
store_connection_event(struct store_connection *c, const struct rdma_event *event)
{
	if (event->conn != c->conn)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		c->established = true;
		if (c->state == STORE_LEAVING && c->unsent != XFER_REASON_NONE)
			(void)send_refuse(c, c->unsent, c->handshake.sent);
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_REJECTED:
		/* process messages that arrived before */
		(void)xfer_qp_poll(&c->link);
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

	/* an unauthenticated peer gets no other message than this */
	if (xfer_auth_late(&c->handshake, now)) {
		store_connection_refuse(c, c->handshake.reason);
		return true;
	}
	while (c->established && (room = xfer_qp_room(&c->link)) != NULL) {
		size = xfer_auth_send(&c->handshake, room);
		if (size == 0)
			break;
		(void)xfer_qp_send(&c->link, size);
	}
	return false;
}

/* Take over the run once an older connection has released it. @return false: not yet, or never */
static bool
own_run(struct store_connection *c)
{
	enum xfer_reason reason = XFER_REASON_RUNS;
	struct store_run *run = NULL;
	struct store_connection *older;

	if (may_have_run(c))
		run = store_run_find(&c->shared->runs, &c->handshake, &reason);
	if (run == NULL) {
		store_connection_refuse(c, reason);
		return false;
	}
	older = run->connection;
	/* its messages were delayed: the receiver has a newer connection */
	if (older != NULL && older->order > c->order) {
		store_connection_refuse(c, XFER_REASON_SUPERSEDED);
		return false;
	}
	if (older != NULL) {
		if (older->state < STORE_LEAVING)
			c->shared->counters.superseded++;
		store_connection_refuse(older, XFER_REASON_SUPERSEDED);
		/* at once, without a message: the receiver has reconnected and does not read it */
		begin_close(older);
		return false;
	}
	c->run = run;
	COUNTER_SET(run->connection, c);
	return true;
}

/* The recovery is done, with or without memory for bodies. */
static void
settled(struct store_connection *c)
{
	enum xfer_reason reason = c->settle.reason;

	c->bodies = c->settle.memory;
	if (c->settle.memory_error < 0)
		CONN_LOG(ERR, c, "cannot allocate %s for %" PRIu64 " bytes of bodies: %s",
			body_memory_name(c->shared->bodies.gpu), c->bodies_size,
			strerror(-c->settle.memory_error));
	if (reason == XFER_REASON_NONE)
		reason = store_connection_open_rings(c);
	if (reason != XFER_REASON_NONE)
		store_connection_refuse(c, reason);
	else
		enter(c, STORE_TX_RESULTS);
}

/* Whether all received batches have results, and no file to be truncated is being written. */
static bool
may_recover(struct store_connection *c)
{
	bool may = true;
	unsigned int i;

	for (i = 0; i < XFER_TABLES && c->run->open; i++)
		may &= stream_writer_begin_cut(c->run->writer[i], &c->moved[i]) &&
			stream_writer_begin_check(c->run->writer[i], &c->held[i]);
	return may;
}

static bool
work_recovering(struct store_connection *c, uint64_t now)
{
	if (c->run == NULL && !own_run(c)) {
		if (c->state != STORE_RECOVERING)
			return true;
		/* an older connection is ended first, and may have to wait for its thread */
	} else if (c->settle.begun) {
		if (end_recovering(c)) {
			settled(c);
			return true;
		}
	} else if (may_recover(c)) {
		if (!store_connection_plan_rings(c)) {
			store_connection_refuse(c, XFER_REASON_BODY);
			return true;
		}
		begin_recovering(c);
	}
	/* heartbeats, since this may take longer than the receiver's timeout */
	if (now >= c->said + c->shared->heartbeat_ms)
		send_status(c, XFER_STATE_RECOVERING);
	return false;
}

/*
 * Close the run to all peers. The receiver is notified once that is durable.
 * @return false: not yet, or it failed
 */
static bool
run_is_closed(struct store_connection *c)
{
	if (!c->ended.begun) {
		store_ended_begin(&c->ended, c->run->dir, c->run->incarnation);
		return false;
	}
	if (!store_ended_end(&c->ended))
		return false;
	c->run->ended |= c->ended.error == 0;
	if (c->ended.error == 0)
		return true;
	CONN_LOG(ERR, c, "cannot mark %s as ended: %s", c->run->dir, strerror(-c->ended.error));
	store_connection_refuse(c, XFER_REASON_FAILED);
	return false;
}

static bool
work_up(struct store_connection *c, uint64_t now)
{
	const enum xfer_state state =
		c->shared->stopping ? XFER_STATE_STOPPING : store_run_state(c->run);
	struct xfer_end *m;
	int ret;

	if (now > c->heard + c->shared->silence_ms) {
		store_connection_refuse(c, XFER_REASON_SILENT);
		return true;
	}
	send_results(c);
	if (state != c->said_state || now >= c->said + c->shared->heartbeat_ms)
		send_status(c, state);
	/* results of the batches before were sent; the log names the batch */
	if (stream_writer_differs(c->run->writer[0]) || stream_writer_differs(c->run->writer[1])) {
		store_connection_refuse(c, XFER_REASON_DIFFERS);
		return true;
	}
	/*
	 * a batch was sent that the store has and that was not in HELD; the next connection will
	 * include it
	 */
	if (stream_writer_in_doubt(c->run->writer[0]) ||
		stream_writer_in_doubt(c->run->writer[1])) {
		store_connection_refuse(c, XFER_REASON_BUSY);
		return true;
	}
	if (c->pending > 0 || c->nb_results > 0)
		return false;
	if (c->shared->stopping)
		store_connection_refuse(c, XFER_REASON_STOPPING);
	if (c->state != STORE_ENDING || !store_run_finish(c->run))
		return false;
	m = xfer_qp_room(&c->link);
	if (m == NULL || !run_is_closed(c))
		return false;
	AUDIT_CONN(NOTICE, c, "ended", " directory=%s", c->run->dir);
	if (c->counts != NULL)
		c->counts->ended++;
	ret = store_run_end(&c->shared->runs, c->run);
	c->run = NULL;
	if (ret < 0)
		CONN_LOG(ERR, c, "the run ended with an error: %s", strerror(-ret));
	xfer_msg_begin(m, XFER_ENDED, sizeof(*m), c->sent++);
	memcpy(m->batches, c->batches, sizeof(m->batches));
	(void)xfer_qp_send(&c->link, sizeof(*m));
	FAIL_POINT("store.ended");
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
	c->heard += xfer_qp_absence(&c->link, now);
	busy = xfer_qp_poll(&c->link) > 0;
	if (c->link.broken) {
		CONN_LOG(INFO, c, "connection lost while %s: %s",
			store_connection_state_name(c->state), rdma_wc_status_name(c->link.why));
		begin_close(c);
		return true;
	}
	switch (c->state) {
	case STORE_PROVING:
		return work_proving(c, now) || busy;
	case STORE_RX_INVENTORY:
		if (now >= c->deadline)
			store_connection_refuse(c, XFER_REASON_LATE);
		return busy;
	case STORE_RECOVERING:
		return work_recovering(c, now) || busy;
	case STORE_TX_RESULTS:
		if (c->have_table < XFER_TABLES)
			return send_inventory(c) || busy;
		/* first the state, since the grant is used at once */
		if (store_run_state(c->run) != c->said_state)
			send_status(c, store_run_state(c->run));
		if (!store_connection_grant(c))
			return busy;
		c->heard = now;
		c->said = now;
		c->shared->counters.granted++;
		if (c->counts != NULL)
			c->counts->granted++;
		AUDIT_CONN(NOTICE, c, "connected", " role=%s",
			c->handshake.receiver.role == XFER_ROLE_IMPORT ? "import" : "receiver");
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
