/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/crypto.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_log.h>

#include "eal/poll_pause.h"
#include "remote/proof.h"
#include "remote/server.h"
#include "xfer/admission.h"
#include "xfer/keyring.h"
#include "xfer/qp.h"
#include "xfer/refusal_log.h"

RTE_LOG_REGISTER(scan_server_logtype, braggline.scan.server, NOTICE);

#define LOG(level, ...) rte_log(RTE_LOG_##level, scan_server_logtype, "scan: " __VA_ARGS__)

#define EVENTS	     32
#define BACKLOG	     64
#define CM_TURNS     64
#define LEAVE_MS     500   /* time for the last message to arrive */
#define CANCEL_MS    20	   /* interval of interrupts of a query that is being ended */
#define OVERDUE_MS   10000 /* a query that is being ended, or its error, is still there */
#define DEADLINE_MS  600000
#define IDLE_MS	     600000
#define HOLD_MS	     600000
#define SESSIONS     16
#define OUTPUTS_TURN 8	/* of a session in one poll, before those of the others */
#define FILES_MAX    32 /* registered mappings of files: EAL knows few external memories */
#define PLACED	     (UINT64_C(1) << 32) /* wr_id: of the last bytes of a part, without immediate */

/* Add to a counter, which telemetry reads. There is one writer. */
#define COUNT(counter, n) __atomic_store_n(&(counter), (counter) + (n), __ATOMIC_RELAXED)

enum state {
	FREE,
	PROVING, /* not authenticated */
	UP,
	LEAVING, /* the last message was sent */
	CLOSING, /* objects are being freed */
};

/* A part of a body that the client reads. */
struct held {
	uint64_t since;	 /* ms */
	uint32_t length; /* 0: none */
};

struct session {
	struct scan_server *server;
	enum state state;
	struct rdma_conn *conn;
	/* one for each session: rkeys can be guessed, and are valid in the whole domain */
	struct rdma_pd *pd;
	bool established;
	struct xfer_qp link;
	bool link_is_open;
	struct scan_proof proof;
	struct xfer_endpoint end[2]; /* client, server */
	struct xfer_identity identity;
	struct scan_answer answer; /* to be sent when the connection is established */
	bool answer_due;
	enum scan_reason unsent; /* of a SCAN_REFUSE that could not be sent yet */
	int place;		 /* of the admission; -1: none */
	uint64_t sent, received; /* numbers of the next messages */
	uint64_t heard, said;	 /* ms */
	uint64_t until;		 /* ms; LEAVING */
	struct scan_worker *worker;
	struct scan_grant grant; /* slot_bytes is 0: none yet */
	uint8_t *stage;
	uint64_t stage_bytes; /* of a part */
	struct rdma_mr *stage_mr;
	uint32_t ahead; /* outputs whose parts were posted before they are sent */
	bool placed[SCAN_STAGES];
	struct held held[SCAN_STAGES];
	char *sql; /* parts of a statement so far */
	uint32_t sql_length;
	uint32_t cursor; /* of the last statement */
	bool querying;	 /* as seen last */
	uint64_t begun;	 /* of the query, ms */
	uint64_t ended;	 /* of the last query, ms */
	uint64_t cancel_at;
	uint64_t over_at; /* ms when the query was ended; 0: not */
};

struct scan_server {
	struct scan_server_config config;
	struct xfer_keyring keys;
	struct admission admission;
	struct refusal_limit refusal_limit;
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_conn *listener;
	struct scan_server_counters counters;
	uint16_t sge;
	unsigned int nb_files; /* registered */
	unsigned int turn;
	bool stopping;
	bool removed; /* the device was removed or has failed */
	uint8_t addr[16];
	struct poll_pause pause;
	unsigned int nb_used; /* all sessions after these are FREE */
	struct session session[SCAN_SESSIONS];
};

static void
leave_admission(struct session *c)
{
	if (c->place >= 0)
		admission_leave(&c->server->admission, c->place);
	c->place = -1;
}

static void
begin_close(struct session *c)
{
	if (c->state == FREE || c->state == CLOSING)
		return;
	leave_admission(c);
	xfer_qp_break(&c->link);
	if (c->worker != NULL)
		scan_worker_stop(c->worker);
	c->state = CLOSING;
}

/* @return false: the message cannot be sent */
static bool
send_refuse(struct session *c, enum scan_reason reason)
{
	struct scan_refuse *m = c->link.broken ? NULL : xfer_qp_room(&c->link);

	if (m == NULL)
		return false;
	scan_msg_begin(m, SCAN_REFUSE, sizeof(*m), c->sent++);
	m->reason = reason;
	return xfer_qp_send(&c->link, sizeof(*m)) == 0;
}

/*
 * Send the reason why the session ends, and give it time to arrive. If all send buffers are in use,
 * this is tried again later.
 */
static void
send_unsent(struct session *c)
{
	if (c->unsent == SCAN_REASON_NONE || !send_refuse(c, c->unsent))
		return;
	c->unsent = SCAN_REASON_NONE;
	c->until = xfer_qp_clock() + LEAVE_MS;
}

/*
 * Count a refusal of a client that is not authenticated, and log it.
 * @param claims  identity that the client names; "": not in the keyring
 */
static void
count_stranger(
	struct scan_server *s, const uint8_t addr[16], const char *claims, enum scan_reason reason)
{
	char address[REFUSAL_ADDRESS_LEN];

	COUNT(s->counters.refused[reason], 1);
	if (refusal_limit_take(&s->refusal_limit, addr, xfer_qp_clock()))
		LOG(NOTICE, "refused address=%s claims=%s: %s\n", refusal_address(addr, address),
			claims[0] != '\0' ? claims : "(unknown)", scan_reason_name(reason));
}

/* Count the refusal of a session, and log it. */
static void
count_refusal(struct session *c, enum scan_reason reason)
{
	/* the key is found before the rights and the number of sessions are checked */
	const bool authenticated =
		c->state == UP || (c->proof.key != NULL && reason != SCAN_REASON_KEY);
	char address[REFUSAL_ADDRESS_LEN];

	if (!authenticated) {
		count_stranger(c->server, c->end[0].addr, c->identity.name, reason);
		return;
	}
	COUNT(c->server->counters.refused[reason], 1);
	LOG(NOTICE, "refused address=%s identity=%s: %s\n",
		refusal_address(c->end[0].addr, address), c->identity.name,
		scan_reason_name(reason));
}

static void
refuse(struct session *c, enum scan_reason reason)
{
	if (c->state != PROVING && c->state != UP)
		return;
	count_refusal(c, reason);
	if (c->worker != NULL)
		scan_worker_stop(c->worker);
	leave_admission(c);
	c->unsent = reason;
	c->until = xfer_qp_clock() + LEAVE_MS;
	/* AUTH may arrive before the event that the connection is established */
	if (c->established || reason == SCAN_REASON_LATE)
		send_unsent(c);
	if (c->link.broken)
		begin_close(c);
	else
		c->state = LEAVING;
}

static void
register_file(void *arg, struct scan_mapping *file)
{
	const struct rdma_mr_attr attr = {
		.addr = (void *)(uintptr_t)file->data, .length = file->size, .gpu = -1};
	struct session *c = arg;

	if (c->state != UP || c->server->nb_files == FILES_MAX ||
		file->size > c->server->info.max_mr_bytes)
		return;
	file->mr = rdma_mr_reg(c->pd, &attr);
	c->server->nb_files += file->mr != NULL;
}

static bool
unregister_file(void *arg, struct scan_mapping *file)
{
	struct session *c = arg;

	if (rdma_mr_dereg(file->mr) < 0)
		return false;
	file->mr = NULL;
	c->server->nb_files--;
	return true;
}

/* Free the objects of a session. @return false: some are still in use */
static bool
work_closing(struct session *c)
{
	struct scan_server *s = c->server;

	(void)xfer_qp_poll(&c->link);
	if (c->conn != NULL)
		(void)rdma_conn_destroy(c->conn);
	c->conn = NULL;
	/* the thread writes to the stage, and unmaps files */
	if (c->worker != NULL)
		scan_worker_files(c->worker, register_file, unregister_file, c);
	if (c->worker != NULL && !scan_worker_destroy(c->worker))
		return false;
	c->worker = NULL;
	if (c->link_is_open && xfer_qp_close(&c->link) < 0)
		return false;
	c->link_is_open = false;
	if (c->stage_mr != NULL && rdma_mr_dereg(c->stage_mr) < 0)
		return false;
	c->stage_mr = NULL;
	if (c->stage != NULL)
		munmap(c->stage, SCAN_STAGES * c->stage_bytes);
	c->stage = NULL;
	if (c->pd != NULL && rdma_pd_free(c->pd) < 0)
		return false;
	c->pd = NULL;
	free(c->sql);
	xfer_identity_forget(&c->identity);
	*c = (struct session){.server = s, .place = -1};
	while (s->nb_used > 0 && s->session[s->nb_used - 1].state == FREE)
		s->nb_used--;
	return true;
}

/* ---- messages of the client ------------------------------------------------------------------ */

/*
 * Counts sessions that have ended, too, until their engine ends: a query may not notice the
 * interrupt.
 */
static unsigned int
sessions_of(const struct scan_server *s, const char *name)
{
	unsigned int i, nb = 0;

	for (i = 0; i < s->nb_used; i++)
		nb += s->session[i].worker != NULL &&
			(name == NULL || strcmp(s->session[i].identity.name, name) == 0);
	return nb;
}

static void
send_answer(struct session *c)
{
	void *m = xfer_qp_room(&c->link);

	c->answer_due = false;
	if (m == NULL) {
		begin_close(c);
		return;
	}
	memcpy(m, &c->answer, sizeof(c->answer));
	c->sent++;
	(void)xfer_qp_send(&c->link, sizeof(c->answer));
	c->said = xfer_qp_clock();
}

static enum scan_reason
open_session(struct session *c)
{
	struct scan_server *s = c->server;
	struct scan_worker_config worker = s->config.worker;
	uint8_t keys[2][XFER_MAC_BYTES];
	int ret;

	if (sessions_of(s, NULL) >= s->config.sessions)
		return SCAN_REASON_BUSY;
	if (sessions_of(s, c->identity.name) >= c->identity.connections)
		return SCAN_REASON_SESSIONS;
	ret = scan_proof_session(&c->proof, keys);
	if (ret == 0)
		ret = xfer_qp_seal_keys(&c->link, keys[1], keys[0]);
	OPENSSL_cleanse(keys, sizeof(keys));
	if (ret < 0)
		return SCAN_REASON_FAILED;
	worker.identity = &c->identity;
	worker.work = &s->counters.work;
	worker.pause = &s->pause;
	worker.deadline_ms = s->config.deadline_ms;
	/* an adapter would pin all pages of a file: parts are copied to registered memory */
	worker.gather = strcmp(s->info.provider, "roce") == 0;
	c->worker = scan_worker_create(&worker);
	if (c->worker == NULL)
		return SCAN_REASON_FAILED;
	admission_proved(&s->admission, c->place, xfer_qp_clock());
	c->place = -1;
	xfer_identity_forget(&c->identity);
	COUNT(s->counters.sessions, 1);
	c->ended = xfer_qp_clock();
	c->state = UP;
	c->answer_due = true;
	if (c->established)
		send_answer(c);
	LOG(INFO, "session of %s opened\n", c->identity.name);
	return SCAN_REASON_NONE;
}

static enum scan_reason
take_auth(struct session *c, const void *message, uint32_t size)
{
	enum scan_reason reason = scan_msg_check(message, size, SCAN_CLIENT, c->received++);
	const struct scan_msg *m = message;

	if (reason != SCAN_REASON_NONE)
		return reason;
	if (m->type != SCAN_AUTH)
		return SCAN_REASON_ORDER;
	reason = scan_proof_check(
		&c->proof, message, &c->identity, &c->end[0], &c->end[1], &c->answer);
	return reason == SCAN_REASON_NONE ? open_session(c) : reason;
}

/* Register memory for the parts of bodies, once the client has said how it gets them. */
static enum scan_reason
take_grant(struct session *c, const struct scan_grant *m)
{
	const bool pull = (m->head.flags & SCAN_PULL) != 0;
	struct rdma_mr_attr attr = {.access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct scan_worker_memory memory;
	void *p;

	if (c->grant.slot_bytes > 0 || c->cursor > 0 || c->sql != NULL)
		return SCAN_REASON_ORDER;
	c->stage_bytes = m->slot_bytes < SCAN_STAGE ? m->slot_bytes : SCAN_STAGE;
	attr.length = SCAN_STAGES * c->stage_bytes;
	p = mmap(NULL, attr.length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p == MAP_FAILED)
		return SCAN_REASON_FAILED;
	c->stage = p;
	attr.addr = p;
	attr.access |= pull ? RDMA_ACCESS_REMOTE_READ : 0;
	c->stage_mr = rdma_mr_reg(c->pd, &attr);
	if (c->stage_mr == NULL)
		return SCAN_REASON_FAILED;
	c->grant = *m;
	memory = (struct scan_worker_memory){
		m->nb, c->stage_bytes, c->stage, pull ? rdma_mr_rkey(c->stage_mr) : 0};
	scan_worker_grant(c->worker, &memory);
	return SCAN_REASON_NONE;
}

/* Take back the parts that the client has read. */
static enum scan_reason
take_free(struct session *c, const struct scan_free *m)
{
	uint64_t offset, stage;
	uint32_t i;

	for (i = 0; i < m->nb; i++) {
		offset = m->addr[i] - (uintptr_t)c->stage;
		stage = c->stage_bytes > 0 ? offset / c->stage_bytes : SCAN_STAGES;
		if (stage >= SCAN_STAGES || offset % c->stage_bytes != 0 ||
			c->held[stage].length == 0)
			return SCAN_REASON_ORDER;
		c->held[stage].length = 0;
		scan_worker_written(c->worker, (uint32_t)stage);
	}
	return SCAN_REASON_NONE;
}

static enum scan_reason
take_query(struct session *c, const struct scan_query *m)
{
	const uint32_t part = m->head.length - sizeof(*m);
	char *sql;

	if (m->cursor != c->cursor + 1 || m->offset != c->sql_length)
		return SCAN_REASON_ORDER;
	sql = realloc(c->sql, c->sql_length + part + 1);
	if (sql == NULL)
		return SCAN_REASON_FAILED;
	memcpy(sql + c->sql_length, m->bytes, part);
	c->sql = sql;
	c->sql_length += part;
	sql[c->sql_length] = '\0';
	if ((m->head.flags & SCAN_MORE) != 0)
		return SCAN_REASON_NONE;
	c->sql = NULL;
	c->sql_length = 0;
	c->cursor = m->cursor;
	if (!scan_worker_query(c->worker, m->cursor, (enum scan_form)m->form, sql))
		return SCAN_REASON_ORDER;
	COUNT(c->server->counters.queries, 1);
	c->querying = true;
	c->begun = xfer_qp_clock();
	c->over_at = 0;
	return SCAN_REASON_NONE;
}

static enum scan_reason
take_cancel(struct session *c, const struct scan_cancel *m)
{
	if (scan_worker_cancel(c->worker, m->cursor, SCAN_END_CANCELLED))
		COUNT(c->server->counters.cancelled, 1);
	return SCAN_REASON_NONE;
}

static enum scan_reason
take_message(struct session *c, const void *message, uint32_t size)
{
	const struct scan_msg *m = message;
	const enum scan_reason reason = scan_msg_check(message, size, SCAN_CLIENT, c->received++);

	if (reason != SCAN_REASON_NONE)
		return reason;
	switch ((enum scan_type)m->type) {
	case SCAN_GRANT:
		return take_grant(c, message);
	case SCAN_QUERY:
		return take_query(c, message);
	case SCAN_CREDIT:
		return scan_worker_credit(c->worker, message) ? SCAN_REASON_NONE
							      : SCAN_REASON_ORDER;
	case SCAN_CANCEL:
		return take_cancel(c, message);
	case SCAN_FREE:
		return take_free(c, message);
	case SCAN_ALIVE:
		return SCAN_REASON_NONE;
	case SCAN_REFUSE:
		LOG(INFO, "session of %s closed by the client\n", c->identity.name);
		begin_close(c);
		return SCAN_REASON_NONE;
	default:
		return SCAN_REASON_ORDER;
	}
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct session *c = arg;
	enum scan_reason reason = SCAN_REASON_NONE;

	c->heard = xfer_qp_clock();
	if (c->state == PROVING)
		reason = take_auth(c, message, size);
	else if (c->state == UP)
		reason = take_message(c, message, size);
	if (reason != SCAN_REASON_NONE)
		refuse(c, reason);
}

static void
on_forged(void *arg)
{
	refuse(arg, SCAN_REASON_FORGED);
}

static void
on_done(void *arg, uint64_t stage)
{
	struct session *c = arg;

	if ((stage & PLACED) != 0)
		c->placed[stage & ~PLACED] = true;
	else if (c->worker != NULL)
		scan_worker_written(c->worker, (uint32_t)stage);
}

static const struct xfer_qp_ops link_ops = {
	.message = on_message, .forged = on_forged, .done = on_done};

/* ---- connections ----------------------------------------------------------------------------- */

static void
reject(struct scan_server *s, const struct rdma_event *event, const struct admission_peer *peer,
	enum scan_reason reason)
{
	const struct scan_reject r = {SCAN_MAGIC, SCAN_VERSION, reason};

	count_stranger(s, peer->addr, xfer_keyring_find(&s->keys, peer->identity)->name, reason);
	(void)rdma_conn_reject(event->conn, &r, sizeof(r));
}

static enum scan_reason
open_connection(
	struct session *c, const struct rdma_event *event, const struct admission_peer *peer)
{
	struct scan_server *s = c->server;
	struct xfer_qp_config link = {
		.dev = s->dev,
		/* those of a part, and its immediate */
		.writes = SCAN_STAGES * (SCAN_PIECES / s->sge + 2),
		.sge = s->sge,
		.ops = &link_ops,
		.arg = c,
	};
	struct rdma_conn_attr attr = {
		.private_data = &c->proof.answer,
		.private_len = sizeof(c->proof.answer),
		.context = c,
		.keepalive_ms = SCAN_SILENCE_MS / 2,
	};
	enum scan_reason reason;

	reason = scan_proof_hear(&c->proof, event->private_data, event->private_len);
	if (reason != SCAN_REASON_NONE)
		return reason;
	c->identity = *xfer_keyring_find(&s->keys, c->proof.call.identity);
	link.pd = c->pd = rdma_pd_alloc(s->dev);
	if (c->pd == NULL)
		return SCAN_REASON_FAILED;
	if (xfer_qp_open(&c->link, &link) < 0)
		return SCAN_REASON_FAILED;
	c->link_is_open = true;
	c->end[0].qpn = event->remote_qpn;
	memcpy(c->end[0].addr, peer->addr, sizeof(c->end[0].addr));
	c->end[1].qpn = c->link.qpn;
	memcpy(c->end[1].addr, s->addr, sizeof(c->end[1].addr));
	if (rdma_conn_accept(event->conn, c->link.qp, &attr) < 0)
		return SCAN_REASON_FAILED;
	return SCAN_REASON_NONE;
}

static void
take_request(struct scan_server *s, const struct rdma_event *event, uint64_t now)
{
	struct admission_peer peer = {.identity = 0};
	struct scan_private call = {0};
	enum scan_reason reason;
	struct session *c = NULL;
	unsigned int i, nb_free = 0;
	void *evicted;
	int place;

	if (event->private_len >= sizeof(call))
		memcpy(&call, event->private_data, sizeof(call));
	peer.identity = call.identity;
	xfer_qp_address(&event->peer, peer.addr);
	/* take the first free one: each poll visits all sessions up to the last one in use */
	for (i = SCAN_SESSIONS; i-- > 0;) {
		if (s->session[i].state != FREE)
			continue;
		c = &s->session[i];
		nb_free++;
	}
	place = c != NULL && !s->stopping && admission_may_take(&s->admission, &peer, nb_free, now)
		? admission_enter(&s->admission, &peer, c, now, &evicted)
		: -EBUSY;
	if (place < 0) {
		reject(s, event, &peer, s->stopping ? SCAN_REASON_STOPPING : SCAN_REASON_BUSY);
		return;
	}
	if (evicted != NULL) {
		((struct session *)evicted)->place = -1;
		refuse(evicted, SCAN_REASON_LATE);
	}
	if (c - s->session >= s->nb_used)
		s->nb_used = c - s->session + 1;
	c->place = place;
	c->heard = now;
	c->said = now;
	reason = open_connection(c, event, &peer);
	if (reason == SCAN_REASON_NONE) {
		c->conn = event->conn;
		c->state = PROVING;
		return;
	}
	reject(s, event, &peer, reason);
	leave_admission(c);
	c->state = CLOSING;
}

static void
established(struct session *c)
{
	c->established = true;
	if (c->answer_due && c->state == UP)
		send_answer(c);
}

static void
take_event(struct scan_server *s, const struct rdma_event *event, uint64_t now)
{
	struct session *c;

	if (event->type == RDMA_EVENT_CONNECT_REQUEST) {
		take_request(s, event, now);
		return;
	}
	if (event->type == RDMA_EVENT_DEVICE_REMOVED) {
		s->removed = true;
		LOG(ERR, "device %s was removed or has failed; the server ends\n", s->info.name);
	}
	c = event->conn != NULL ? rdma_conn_context(event->conn) : NULL;
	if (c == NULL || c->conn != event->conn)
		return;
	if (event->type == RDMA_EVENT_ESTABLISHED) {
		established(c);
	} else if (event->type == RDMA_EVENT_DISCONNECTED || event->type == RDMA_EVENT_QP_ERROR ||
		event->type == RDMA_EVENT_REJECTED || event->type == RDMA_EVENT_UNREACHABLE) {
		/* process messages that arrived before */
		(void)xfer_qp_poll(&c->link);
		COUNT(s->counters.lost, c->state == UP);
		begin_close(c);
	}
}

/* ---- work ------------------------------------------------------------------------------------ */

/* Post the bytes of a part with pieces of files. @return 0; -errno */
static int
place_part(struct session *c, const struct scan_output *out)
{
	uint64_t to = c->grant.addr + (uint64_t)out->slot * c->grant.slot_bytes, bytes;
	struct rdma_sge sg[RDMA_SGE_MAX];
	const struct scan_piece *piece;
	uint32_t i = 0;
	uint16_t n;
	int ret;

	c->placed[out->stage] = false;
	do {
		for (n = 0, bytes = 0; n < c->server->sge && i < out->nb_pieces; n++, i++) {
			piece = &out->piece[i];
			sg[n] = (struct rdma_sge){(uintptr_t)piece->bytes, piece->length,
				rdma_mr_lkey(piece->file == SCAN_FILES
						? c->stage_mr
						: scan_worker_file(c->worker, piece->file)->mr)};
			bytes += piece->length;
		}
		ret = i < out->nb_pieces
			? xfer_qp_write(&c->link, 0, sg, n, to, c->grant.rkey, NULL)
			: xfer_qp_place(&c->link, PLACED | out->stage, sg, n, to, c->grant.rkey);
		to += bytes;
	} while (ret == 0 && i < out->nb_pieces);
	return ret;
}

/* Post the bytes of parts that wait behind others. */
static void
place_ahead(struct session *c)
{
	struct scan_output out;

	while (scan_worker_peek(c->worker, c->ahead, &out)) {
		/* the queue has room for the WRITEs of all stages */
		if (out.nb_pieces > 0 && place_part(c, &out) < 0) {
			xfer_qp_break(&c->link);
			return;
		}
		c->ahead++;
	}
}

/* Log the times between the steps of a query. */
static void
log_times(const struct session *c, const struct scan_times *t)
{
	const double us = 1e6 / (double)rte_get_tsc_hz();
	const uint64_t executed = t->executed != 0 ? t->executed : t->ended;

	if (!rte_log_can_log(scan_server_logtype, RTE_LOG_DEBUG))
		return;
	LOG(DEBUG,
		"query %u of %s: engine begins after %.0f us, statement %.0f us, rows %.0f us, "
		"end is sent after %.0f us\n",
		c->cursor, c->identity.name, us * (double)(t->begun - t->received),
		us * (double)(executed - t->begun), us * (double)(t->ended - executed),
		us * (double)(rte_rdtsc() - t->ended));
}

/* Send an output. @return 0; -EAGAIN: not now; -EPIPE: broken */
static int
send_output(struct session *c, const struct scan_output *out)
{
	const struct rdma_sge sg = {(uintptr_t)c->stage + out->stage * c->stage_bytes, out->length,
		c->stage_mr != NULL ? rdma_mr_lkey(c->stage_mr) : 0};
	struct scan_server_counters *n = &c->server->counters;
	void *room = xfer_qp_room(&c->link);
	int ret;

	if (room == NULL)
		return -EAGAIN;
	memcpy(room, out->message, out->message->head.length);
	((struct scan_msg *)room)->number = c->sent++;
	ret = xfer_qp_send(&c->link, out->message->head.length);
	COUNT(n->inline_bytes, out->message->head.length);
	if (ret == 0 && out->length > 0 && out->slot == SCAN_SLOTS_MAX) {
		c->held[out->stage] = (struct held){xfer_qp_clock(), out->length};
		COUNT(n->pulled_bytes, out->length);
	} else if (ret == 0 && out->length > 0) {
		/* with an immediate; the bytes of a part with pieces are there already */
		ret = xfer_qp_write(&c->link, out->stage, &sg, out->nb_pieces == 0,
			c->grant.addr + (uint64_t)out->slot * c->grant.slot_bytes, c->grant.rkey,
			&out->sequence);
		COUNT(n->pushed_bytes, ret == 0 ? out->length : 0);
		if (ret < 0)
			xfer_qp_break(&c->link);
	}
	return ret;
}

/* Send what the engine has made. */
static bool
send_outputs(struct session *c)
{
	struct scan_output out;
	unsigned int i;

	place_ahead(c);
	for (i = 0; i < OUTPUTS_TURN && !c->link.broken && scan_worker_peek(c->worker, 0, &out);
		i++, c->ahead--) {
		/* placed by the next poll */
		if (c->ahead == 0)
			break;
		if (out.nb_pieces > 0 && !c->placed[out.stage])
			break;
		if (scan_worker_must_drop(c->worker) ||
			(out.nb_pieces > 0 && !scan_worker_is_readable(c->worker, &out))) {
			scan_worker_drop(c->worker);
			continue;
		}
		if (send_output(c, &out) < 0)
			break;
		c->said = xfer_qp_clock();
		if (out.last)
			log_times(c, &out.times);
		scan_worker_taken(c->worker);
	}
	return i > 0;
}

/* Whether the client has not freed a part in time. */
static bool
holds_too_long(const struct session *c, uint64_t now)
{
	unsigned int i;

	for (i = 0; i < SCAN_STAGES; i++) {
		if (c->held[i].length > 0 && now > c->held[i].since + c->server->config.hold_ms)
			return true;
	}
	return false;
}

/* Apply the time limits of a session. */
static void
watch(struct session *c, uint64_t now)
{
	const struct scan_server_config *config = &c->server->config;
	struct scan_worker_state state;

	if (now > c->heard + SCAN_SILENCE_MS) {
		refuse(c, SCAN_REASON_SILENT);
		return;
	}
	if (holds_too_long(c, now)) {
		refuse(c, SCAN_REASON_HELD);
		return;
	}
	if (!c->querying) {
		if (now > c->ended + config->idle_ms)
			refuse(c, SCAN_REASON_IDLE);
		return;
	}
	scan_worker_state_get(c->worker, &state);
	if (!state.running) {
		c->querying = false;
		c->ended = now;
		return;
	}
	if (state.end == SCAN_END_NOT && now > c->begun + config->deadline_ms) {
		/* the query may have ended just now */
		if (scan_worker_cancel(c->worker, c->cursor, SCAN_END_DEADLINE))
			COUNT(c->server->counters.deadlines, 1);
		c->cancel_at = now + CANCEL_MS;
		c->over_at = now;
	} else if (state.end != SCAN_END_NOT && now >= c->cancel_at) {
		/* a statement that is about to start misses an interrupt */
		(void)scan_worker_cancel(c->worker, c->cursor, state.end);
		c->cancel_at = now + CANCEL_MS;
		c->over_at = c->over_at == 0 ? now : c->over_at;
		if (now > c->over_at + OVERDUE_MS)
			refuse(c, SCAN_REASON_OVERDUE);
	}
}

static void
send_alive(struct session *c, uint64_t now)
{
	struct scan_msg *m = xfer_qp_room(&c->link);

	c->said = now;
	if (m == NULL)
		return;
	scan_msg_begin(m, SCAN_ALIVE, sizeof(*m), c->sent++);
	(void)xfer_qp_send(&c->link, sizeof(*m));
}

static bool
work(struct session *c, uint64_t now)
{
	bool busy;

	if (c->state == CLOSING)
		return work_closing(c);
	if (c->worker != NULL)
		scan_worker_files(c->worker, register_file, unregister_file, c);
	c->heard += xfer_qp_absence(&c->link, now);
	busy = xfer_qp_poll(&c->link) > 0;
	if (c->link.broken && c->state != CLOSING) {
		COUNT(c->server->counters.lost, c->state == UP);
		begin_close(c);
		return true;
	}
	if (c->state == UP && !c->answer_due) {
		busy |= send_outputs(c);
		if (now >= c->said + SCAN_ALIVE_MS)
			send_alive(c, now);
	}
	if (c->state == UP)
		watch(c, now);
	if (c->state == LEAVING && c->established)
		send_unsent(c);
	if (c->state == LEAVING && now >= c->until)
		begin_close(c);
	return busy;
}

/* Update the gauges. */
static void
count_current(struct scan_server *s)
{
	uint64_t queries = 0, held = 0;
	unsigned int i, k;

	for (i = 0; i < s->nb_used; i++) {
		queries += s->session[i].state == UP && s->session[i].querying;
		for (k = 0; k < SCAN_STAGES; k++)
			held += s->session[i].held[k].length;
	}
	__atomic_store_n(&s->counters.held_bytes, held, __ATOMIC_RELAXED);
	__atomic_store_n(&s->counters.queries_current, queries, __ATOMIC_RELAXED);
	__atomic_store_n(&s->counters.sessions_current, sessions_of(s, NULL), __ATOMIC_RELAXED);
}

bool
scan_server_poll(struct scan_server *s)
{
	const uint64_t now = xfer_qp_clock();
	struct rdma_event event[EVENTS];
	uint64_t not_logged;
	struct session *c;
	unsigned int i, n;
	bool busy = false;

	for (i = 0; i < s->info.nb_poll_groups; i++)
		busy |= rdma_progress(s->dev, i) > 0;
	for (i = 0; i < s->nb_used; i++) {
		if (s->session[i].state != FREE)
			busy |= work(&s->session[i], now);
	}
	if (s->turn++ % CM_TURNS == 0 || !busy) {
		count_current(s);
		n = rdma_poll_cm(s->dev, event, EVENTS);
		for (i = 0; i < n; i++)
			take_event(s, &event[i], now);
		busy |= n > 0;
		while ((c = admission_expire(&s->admission, now)) != NULL) {
			c->place = -1;
			refuse(c, SCAN_REASON_LATE);
		}
		not_logged = refusal_limit_poll(&s->refusal_limit, now);
		if (not_logged > 0)
			LOG(NOTICE,
				"refused: %" PRIu64 " more clients that are not authenticated "
				"within %u s, not logged\n",
				not_logged, REFUSAL_LIMIT_MS / 1000);
	}
	return busy;
}

/* What the next turn may find. */
static enum poll_expect
expected(const struct scan_server *s)
{
	enum poll_expect found = POLL_NOTHING;
	unsigned int i;

	for (i = 0; i < s->nb_used; i++) {
		if (s->session[i].worker == NULL)
			continue;
		switch (scan_worker_activity(s->session[i].worker)) {
		case SCAN_WAITS:
			/* its packets come first, also if the engine works for others */
			return POLL_PACKETS;
		case SCAN_COMPETES:
			found = POLL_SHARED;
			break;
		case SCAN_WORKS:
			found = found == POLL_NOTHING ? POLL_THREAD : found;
			break;
		case SCAN_IDLE:
			break;
		}
	}
	return found;
}

void
scan_server_pause(struct scan_server *s, bool busy)
{
	poll_pause(&s->pause, busy, busy ? POLL_NOTHING : expected(s));
}

bool
scan_server_lost_device(const struct scan_server *s)
{
	return s->removed;
}

void
scan_server_stop(struct scan_server *s)
{
	unsigned int i;

	s->stopping = true;
	for (i = 0; i < s->nb_used; i++)
		refuse(&s->session[i], SCAN_REASON_STOPPING);
}

bool
scan_server_is_idle(const struct scan_server *s)
{
	unsigned int i;

	for (i = 0; i < s->nb_used; i++) {
		if (s->session[i].state != FREE)
			return false;
	}
	return true;
}

const struct scan_server_counters *
scan_server_get_counters(const struct scan_server *s)
{
	return &s->counters;
}

const struct rdma_dev *
scan_server_get_device(const struct scan_server *s, const struct rdma_dev_info **info)
{
	*info = &s->info;
	return s->dev;
}

void
scan_server_close(struct scan_server *s)
{
	unsigned int i;

	for (i = 0; i < s->nb_used; i++)
		begin_close(&s->session[i]);
	while (!scan_server_is_idle(s))
		(void)scan_server_poll(s);
	if (s->listener != NULL)
		(void)rdma_conn_destroy(s->listener);
	if (s->dev != NULL)
		(void)rdma_dev_close(s->dev);
	xfer_keyring_free(&s->keys);
	poll_pause_destroy(&s->pause);
	free(s);
}

int
scan_server_open(struct scan_server **server, const struct scan_server_config *config,
	char message[PATH_MAX])
{
	struct scan_server *s = calloc(1, sizeof(*s));
	unsigned int i;
	int ret;

	snprintf(message, PATH_MAX, "not enough memory");
	if (s == NULL)
		return -ENOMEM;
	s->config = *config;
	s->config.port = config->port > 0 ? config->port : SCAN_PORT;
	s->config.sessions = config->sessions > 0 ? config->sessions : SESSIONS;
	s->config.deadline_ms = config->deadline_ms > 0 ? config->deadline_ms : DEADLINE_MS;
	s->config.idle_ms = config->idle_ms > 0 ? config->idle_ms : IDLE_MS;
	s->config.hold_ms = config->hold_ms > 0 ? config->hold_ms : HOLD_MS;
	for (i = 0; i < SCAN_SESSIONS; i++)
		s->session[i] = (struct session){.server = s, .place = -1};
	poll_pause_init(&s->pause);
	ret = xfer_keyring_read(&s->keys, config->keys, message);
	if (ret < 0) {
		poll_pause_destroy(&s->pause);
		free(s);
		return ret;
	}
	s->dev = rdma_dev_open(config->device);
	if (s->dev == NULL) {
		ret = -rte_errno;
		snprintf(message, PATH_MAX, "device %.3000s: %s", config->device,
			rte_strerror(-ret));
		goto fail;
	}
	rdma_dev_info_get(s->dev, &s->info);
	s->sge = s->info.max_sge < RDMA_SGE_MAX ? s->info.max_sge : RDMA_SGE_MAX;
	xfer_qp_address(&s->info.addr, s->addr);
	/* this lcore must own the poll group before control functions wait for it */
	for (i = 0; i < s->info.nb_poll_groups; i++)
		(void)rdma_progress(s->dev, i);
	s->listener = rdma_conn_listen(s->dev, RDMA_QP_RC, s->config.port, BACKLOG, NULL);
	if (s->listener == NULL) {
		ret = -rte_errno;
		snprintf(message, PATH_MAX, "cannot listen on port %u of %.3000s: %s",
			s->config.port, config->device, rte_strerror(-ret));
		goto fail;
	}
	*server = s;
	return 0;
fail:
	scan_server_close(s);
	return ret;
}
