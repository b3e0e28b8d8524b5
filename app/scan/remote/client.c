/* SPDX-License-Identifier: BSD-3-Clause */

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <openssl/crypto.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "eal/poll_pause.h"
#include "remote/client.h"
#include "remote/proof.h"
#include "sql/ipc_reader.h"
#include "xfer/qp.h"

#define SLOTS	    16
#define SLOT_BYTES  (1u << 20)
#define TIMEOUT_MS  10000
#define RECEIVES    32 /* besides one for each slot, and those of every queue pair */
#define CM_TURNS    64
#define EVENTS	    8
#define LEAVE_MS    200
#define ARRIVED_MAX SCAN_WINDOW /* messages that the server may send without a credit */
/* Parts that were announced and not taken yet: those in slots, and those that are not read yet. */
#define PULLS 512

static_assert(PULLS >= SCAN_SLOTS_MAX + SCAN_PARTS, "a part is in a slot, or not read yet");

/* State of the connection; written by the service thread. */
enum state {
	OPENING, /* device and memory */
	CONNECTING,
	PROVING,
	UP,
	DOWN, /* `error` says why */
};

struct arrived {
	uint8_t message[SCAN_MSG_MAX] __attribute__((aligned(8)));
};

/* A part of a body in the memory of the server. */
struct pull {
	uint64_t addr;
	uint32_t rkey;
	uint32_t length;
	uint32_t slot; /* that it is read to */
};

/* Part of a message of Arrow that is being put together. */
struct assembly {
	uint8_t *bytes;
	uint64_t room, size, total;
};

/* A schema that this end keeps for later results. */
struct kept_schema {
	uint32_t size; /* 0: none */
	uint8_t bytes[SCAN_RECORD_PART] __attribute__((aligned(8)));
	struct ipc_reader *reader; /* it has read the schema; NULL: none has */
};

struct scan_client {
	struct scan_client_config config;
	char *device;
	char *identity;
	struct xfer_key key;
	struct sockaddr_storage server;
	pthread_t thread;
	struct poll_pause pause; /* of the service thread */

	/* Of the service thread. */
	struct rdma_dev *dev;
	struct rdma_dev_info info;
	struct rdma_pd *pd;
	struct rdma_conn *conn;
	bool conn_lost;
	struct xfer_qp link;
	bool link_is_open;
	struct scan_proof proof;
	struct rdma_mr *slots_mr;
	uint8_t *slots;
	uint64_t sent, received; /* numbers of the next messages */
	uint64_t heard, said;	 /* ms */
	uint64_t over_until;	 /* ms; end of the time to send why this end ends; 0: none */
	bool yield;		 /* a caller with the same CPU has something to do */

	sem_t ready; /* ends the wait of a caller, once for each time that `waiting` was set */
	struct poll_spin spin; /* of the callers */

	/* Protected by the lock. */
	pthread_mutex_t lock;
	enum state state;
	bool closing;
	bool waiting; /* a caller, for a change */
	int cpu;      /* of this caller, when it began to wait */
	int error;    /* why the connection is down: negative errno */
	bool idle;    /* it is down because there was no query for long */
	enum scan_reason
		over; /* why this end must end the connection, SCAN_REASON_NONE: it need not */
	uint64_t drain_until; /* ms; end of the wait for the end of a result; 0: none */
	struct scan_client_error text;
	struct arrived *arrived; /* ring of ARRIVED_MAX elements */
	uint32_t head, tail;
	uint32_t *written;   /* ring of SCAN_SLOTS_MAX elements: immediates of WRITEs */
	uint32_t nb_written; /* parts that are in slots */
	struct pull *pull;   /* ring of PULLS elements */
	uint32_t nb_pulls, nb_reads, nb_freed; /* announced; posted; SCAN_FREE was sent */
	uint32_t free_slot[SCAN_SLOTS_MAX];    /* of a client that reads */
	uint32_t nb_free_slots;
	char *sql; /* to be sent */
	uint32_t sql_length, sql_offset;
	uint32_t cursor;
	enum scan_form form;
	bool cancel;   /* to be sent */
	bool querying; /* the last query has not ended */
	uint32_t credit_messages;
	uint32_t credit_slot[SCAN_SLOTS_MAX];
	uint32_t nb_credit_slots;
	uint32_t nb_slots_held;		/* by arrays */
	bool slot_used[SCAN_SLOTS_MAX]; /* announced, and not returned yet */

	/* Of the thread that reads the stream. */
	bool streaming;
	bool ended;    /* there is no more for the reader */
	bool answered; /* SCAN_END or SCAN_ERROR came */
	uint64_t left_out;
	bool has_schema;
	uint32_t nb_parts; /* parts of bodies that were taken */
	uint32_t sequence; /* of the next message */
	struct scan_data *reading;
	size_t reading_at;
	struct assembly columns, metadata, body;
	uint64_t body_total; /* expected bytes of the body */
	bool has_body;
	bool body_is_slot;
	uint32_t body_slot;
	struct kept_schema *kept; /* by number; 0: of the present result alone, without bytes */
	uint32_t schema;	  /* number of the present one */
	int stream_error;
	char sqlstate[SCAN_SQLSTATE + 1];
	char stream_text[SCAN_ERROR_TEXT + 1];
	struct scan_client_counters counters;
};

/* A slot that an array refers to. */
struct held_slot {
	struct scan_client *client;
	uint32_t slot;
};

static bool
is_ready(void *arg)
{
	struct scan_client *c = arg;

	return sem_trywait(&c->ready) == 0;
}

/*
 * Wait for the service thread, with the lock. It must send the waiting messages, and need no longer
 * yield the CPU to the caller. The lock is free when it is woken: it would have to wait for it.
 */
static void
wait_changed(struct scan_client *c)
{
	const int cpu = sched_getcpu();
	int other;

	c->waiting = true;
	c->cpu = cpu;
	pthread_mutex_unlock(&c->lock);
	/* to poll might take the CPU from the service thread, unless that one polls on another */
	other = poll_cpu(&c->pause);
	poll_wake(&c->pause);
	if (other < 0 || other == cpu || !poll_spin(&c->spin, POLL_PAUSE_SPIN_US, is_ready, c))
		while (sem_wait(&c->ready) < 0)
			; /* a signal */
	/* the service thread may have given up a CPU that this thread has left meanwhile */
	if (sched_getcpu() != cpu)
		poll_wake(&c->pause);
	pthread_mutex_lock(&c->lock);
}

/* ---- service thread -------------------------------------------------------------------------- */

/*
 * Release the lock, and wake the caller that waits. It may run at once in place of this thread, so
 * it must not have to wait for the lock, and poll_yield() must notice what it does.
 */
static void
unlock_and_wake(struct scan_client *c)
{
	const bool waiting = c->waiting;

	c->waiting = false;
	c->yield |= waiting && c->cpu == sched_getcpu();
	pthread_mutex_unlock(&c->lock);
	if (!waiting)
		return;
	poll_forget(&c->pause);
	(void)sem_post(&c->ready);
}

/* Note that the connection has ended. The first reason counts. */
static void
go_down(struct scan_client *c, int error, const char *sqlstate, const char *what, const char *why)
{
	pthread_mutex_lock(&c->lock);
	if (c->state != DOWN) {
		c->error = error;
		memcpy(c->text.sqlstate, sqlstate, SCAN_SQLSTATE);
		snprintf(c->text.text, sizeof(c->text.text), "%s%s%s", what,
			why[0] != '\0' ? ": " : "", why);
		c->state = DOWN;
	}
	unlock_and_wake(c);
}

static void
set_state(struct scan_client *c, enum state state)
{
	pthread_mutex_lock(&c->lock);
	if (c->state != DOWN)
		c->state = state;
	unlock_and_wake(c);
}

/* Only the service thread changes the state. */
static enum state
state_of(const struct scan_client *c)
{
	return c->state;
}

static void
refused(struct scan_client *c, enum scan_reason reason)
{
	const char *name = scan_reason_name(reason);
	char text[512];

	pthread_mutex_lock(&c->lock);
	c->idle = reason == SCAN_REASON_IDLE;
	pthread_mutex_unlock(&c->lock);
	switch (reason) {
	case SCAN_REASON_KEY:
	case SCAN_REASON_RIGHTS:
		snprintf(text, sizeof(text),
			"%s: the keyring of the server (--keys) must have [receiver %s] with %s",
			name, c->identity,
			reason == SCAN_REASON_KEY ? "this key" : "rights = read");
		go_down(c, -EACCES, "28000", "the server refuses the connection", text);
		break;
	case SCAN_REASON_VERSION:
		go_down(c, -EPROTONOSUPPORT, "08001", "the server refuses the connection",
			"it has another version of the protocol; use programs of the same version");
		break;
	case SCAN_REASON_BUSY:
	case SCAN_REASON_SESSIONS:
		go_down(c, -EAGAIN, "53300", "the server refuses the connection", name);
		break;
	default:
		go_down(c, -EPIPE, "08006", "the server has ended the connection", name);
	}
}

/* The server breaks the protocol. */
static void
broken(struct scan_client *c, enum scan_reason reason)
{
	go_down(c, -EBADMSG, "08P01", "the server does not follow the protocol",
		scan_reason_name(reason));
}

static void
grant_slots(struct scan_client *c)
{
	struct scan_grant *m = xfer_qp_room(&c->link);

	if (m == NULL)
		return;
	scan_msg_begin(m, SCAN_GRANT, sizeof(*m), c->sent++);
	m->slot_bytes = c->config.slot_bytes;
	if (c->config.pull) {
		m->head.flags = SCAN_PULL;
	} else {
		m->addr = (uintptr_t)c->slots;
		m->nb = c->config.slots;
		m->rkey = rdma_mr_rkey(c->slots_mr);
	}
	(void)xfer_qp_send(&c->link, sizeof(*m));
}

/* Note the parts that a message announces. With the lock. @return false: too many, or too long */
static bool
note_pulls(struct scan_client *c, const struct scan_data *m)
{
	size_t at = sizeof(*m);
	struct scan_pulled p;
	const uint8_t *bytes;
	struct scan_record r;

	while ((bytes = scan_record_next(m, &at, &r)) != NULL) {
		if (r.kind != SCAN_PULLED)
			continue;
		if (c->nb_pulls - c->nb_freed >= SCAN_PARTS || r.length > c->config.slot_bytes)
			return false;
		memcpy(&p, bytes, sizeof(p));
		c->pull[c->nb_pulls++ % PULLS] =
			(struct pull){.addr = p.addr, .rkey = p.rkey, .length = r.length};
	}
	return true;
}

static void
take_data(struct scan_client *c, const struct scan_data *m)
{
	bool room;

	pthread_mutex_lock(&c->lock);
	room = c->tail - c->head < ARRIVED_MAX && (!c->config.pull || note_pulls(c, m));
	if (room) {
		memcpy(c->arrived[c->tail++ % ARRIVED_MAX].message, m, m->head.length);
		unlock_and_wake(c);
	} else {
		pthread_mutex_unlock(&c->lock);
		broken(c, SCAN_REASON_ORDER);
	}
}

static void
take_answer(struct scan_client *c, const void *message)
{
	const enum scan_reason reason = scan_proof_accept(&c->proof, message);

	if (reason != SCAN_REASON_NONE) {
		go_down(c, -EACCES, "28000", "the server does not have the key", "");
		return;
	}
	if (xfer_qp_extend(&c->link) < 0) {
		go_down(c, -ENOMEM, "HY001", "cannot allocate memory for messages", "");
		return;
	}
	grant_slots(c);
	set_state(c, UP);
}

static void
on_message(void *arg, const void *message, uint32_t size)
{
	struct scan_client *c = arg;
	const struct scan_msg *m = message;
	enum scan_reason reason;

	c->heard = xfer_qp_clock();
	if (state_of(c) == DOWN)
		return;
	reason = scan_msg_check(message, size, SCAN_SERVER, c->received++);
	if (reason != SCAN_REASON_NONE)
		broken(c, reason);
	else if (m->type == SCAN_REFUSE)
		refused(c, ((const struct scan_refuse *)message)->reason);
	else if (m->type == SCAN_ANSWER && state_of(c) == PROVING)
		take_answer(c, message);
	else if (m->type == SCAN_DATA && state_of(c) == UP)
		take_data(c, message);
	else if (m->type != SCAN_ALIVE || state_of(c) != UP)
		broken(c, SCAN_REASON_ORDER);
}

static void
on_forged(void *arg)
{
	broken(arg, SCAN_REASON_FORGED);
}

/* All bytes of a part of a body are in its slot. */
static void
on_written(void *arg, uint32_t imm)
{
	struct scan_client *c = arg;

	if (c->config.pull) {
		broken(c, SCAN_REASON_ORDER);
		return;
	}
	pthread_mutex_lock(&c->lock);
	c->written[c->nb_written++ % SCAN_SLOTS_MAX] = imm;
	unlock_and_wake(c);
}

/* A part of a body was read to its slot. */
static void
on_read(void *arg, uint64_t number)
{
	struct scan_client *c = arg;

	pthread_mutex_lock(&c->lock);
	c->nb_written = (uint32_t)number + 1;
	unlock_and_wake(c);
}

static const struct xfer_qp_ops link_ops = {
	.message = on_message, .forged = on_forged, .written = on_written, .done = on_read};

/* Open the device, and register the slots. */
static int
open_device(struct scan_client *c)
{
	const bool pull = c->config.pull;
	struct rdma_mr_attr attr = {
		.access = RDMA_ACCESS_LOCAL_WRITE | (pull ? 0 : RDMA_ACCESS_REMOTE_WRITE),
		.gpu = -1,
		.length = (uint64_t)c->config.slots * c->config.slot_bytes};
	struct xfer_qp_config link = {.receives = RECEIVES + (pull ? 0 : c->config.slots),
		.writes = pull ? SCAN_PARTS : 0,
		.ops = &link_ops,
		.arg = c};
	void *p;
	unsigned int i;

	c->dev = rdma_dev_open(c->device);
	if (c->dev == NULL) {
		go_down(c, -ENODEV, "08001", c->device, rte_strerror(rte_errno));
		return -ENODEV;
	}
	rdma_dev_info_get(c->dev, &c->info);
	/* this lcore must own the poll groups before control functions wait for it */
	for (i = 0; i < c->info.nb_poll_groups; i++)
		(void)rdma_progress(c->dev, i);
	c->pd = rdma_pd_alloc(c->dev);
	p = mmap(NULL, attr.length, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (p != MAP_FAILED) {
		c->slots = p;
		attr.addr = p;
		c->slots_mr = c->pd != NULL ? rdma_mr_reg(c->pd, &attr) : NULL;
	}
	link.dev = c->dev;
	link.pd = c->pd;
	c->link_is_open = c->slots_mr != NULL && xfer_qp_open(&c->link, &link) == 0;
	if (c->link_is_open)
		return 0;
	go_down(c, -ENOMEM, "HY001", "cannot register memory for slots", "");
	return -ENOMEM;
}

static int
begin_connection(struct scan_client *c)
{
	struct rdma_conn_attr attr = {
		.private_data = &c->proof.call,
		.private_len = sizeof(c->proof.call),
		.context = c,
		.timeout_ms = c->config.timeout_ms,
		.keepalive_ms = SCAN_SILENCE_MS / 2,
	};
	char why[RDMA_ROUTE_TEXT];
	int ret;

	if (scan_proof_call(&c->proof, c->identity, &c->key) != SCAN_REASON_NONE) {
		go_down(c, -EINVAL, "28000", "the identity is no name of a user", c->identity);
		return -EINVAL;
	}
	ret = rdma_dev_route_check(c->dev, (const struct sockaddr *)&c->server, why);
	if (ret < 0) {
		go_down(c, ret, "08001", "cannot connect", why);
		return ret;
	}
	c->conn = rdma_conn_connect(c->link.qp, (const struct sockaddr *)&c->server, &attr);
	if (c->conn == NULL) {
		go_down(c, -rte_errno, "08001", "cannot connect", rte_strerror(rte_errno));
		return -rte_errno;
	}
	set_state(c, CONNECTING);
	return 0;
}

static void
established(struct scan_client *c, const struct rdma_event *event)
{
	struct xfer_endpoint client = {.qpn = c->link.qpn}, server = {.qpn = event->remote_qpn};
	uint8_t keys[2][XFER_MAC_BYTES];
	enum scan_reason reason;
	void *m;
	int ret;

	xfer_qp_address(&c->info.addr, client.addr);
	xfer_qp_address(&c->server, server.addr);
	reason = scan_proof_claim(
		&c->proof, event->private_data, event->private_len, &client, &server);
	if (reason != SCAN_REASON_NONE) {
		broken(c, reason);
		return;
	}
	ret = scan_proof_session(&c->proof, keys);
	if (ret == 0)
		ret = xfer_qp_seal_keys(&c->link, keys[0], keys[1]);
	OPENSSL_cleanse(keys, sizeof(keys));
	m = xfer_qp_room(&c->link);
	if (ret < 0 || m == NULL) {
		go_down(c, -ENOMEM, "HY001", "not enough memory", "");
		return;
	}
	set_state(c, PROVING);
	memcpy(m, &c->proof.request, sizeof(c->proof.request));
	c->sent++;
	c->said = c->heard = xfer_qp_clock();
	(void)xfer_qp_send(&c->link, sizeof(c->proof.request));
}

static void
rejected(struct scan_client *c, const struct rdma_event *event)
{
	struct scan_reject reject = {0};

	if (event->private_len >= sizeof(reject))
		memcpy(&reject, event->private_data, sizeof(reject));
	if (reject.magic == SCAN_MAGIC && reject.reason > SCAN_REASON_NONE)
		refused(c, reject.reason);
	else
		go_down(c, -ECONNREFUSED, "08001", "no server listens at this address and port",
			c->config.server);
}

static void
take_event(struct scan_client *c, const struct rdma_event *event)
{
	if (event->conn != c->conn || c->conn == NULL)
		return;
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
		if (state_of(c) == CONNECTING)
			established(c, event);
		break;
	case RDMA_EVENT_REJECTED:
		rejected(c, event);
		break;
	case RDMA_EVENT_UNREACHABLE:
		go_down(c, -ETIMEDOUT, "08001", "no answer from the server", c->config.server);
		break;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		/* process messages that arrived before */
		(void)xfer_qp_poll(&c->link);
		c->conn_lost = true;
		/* a server that does not know the identity may close without a message */
		go_down(c, -EPIPE, "08006", "the connection to the server is lost", "");
		break;
	default:
		break;
	}
}

/* Read parts of bodies to free slots, in their order. With the lock. */
static void
post_reads(struct scan_client *c)
{
	struct rdma_sge sg;
	struct pull *p;

	while (c->nb_reads != c->nb_pulls && c->nb_free_slots > 0) {
		p = &c->pull[c->nb_reads % PULLS];
		p->slot = c->free_slot[c->nb_free_slots - 1];
		sg = (struct rdma_sge){
			(uintptr_t)c->slots + (uint64_t)p->slot * c->config.slot_bytes, p->length,
			rdma_mr_lkey(c->slots_mr)};
		if (xfer_qp_read(&c->link, c->nb_reads, &sg, p->addr, p->rkey) < 0)
			return;
		c->nb_free_slots--;
		c->nb_reads++;
	}
}

/* Free the parts that were read. With the lock. */
static void
send_free(struct scan_client *c)
{
	struct scan_free *m;

	if (!c->config.pull || c->nb_freed == c->nb_written || (m = xfer_qp_room(&c->link)) == NULL)
		return;
	scan_msg_begin(m, SCAN_FREE,
		sizeof(*m) + (c->nb_written - c->nb_freed) * sizeof(m->addr[0]), c->sent++);
	while (c->nb_freed != c->nb_written)
		m->addr[m->nb++] = c->pull[c->nb_freed++ % PULLS].addr;
	(void)xfer_qp_send(&c->link, m->head.length);
}

/* Send a part of the statement. With the lock. */
static void
send_query(struct scan_client *c)
{
	struct scan_query *m;
	uint32_t part;

	while (c->sql != NULL && (m = xfer_qp_room(&c->link)) != NULL) {
		part = c->sql_length - c->sql_offset;
		if (part > SCAN_QUERY_PART)
			part = SCAN_QUERY_PART;
		scan_msg_begin(m, SCAN_QUERY, sizeof(*m) + part, c->sent++);
		m->cursor = c->cursor;
		m->form = c->form;
		m->total = c->sql_length;
		m->offset = c->sql_offset;
		memcpy(m->bytes, c->sql + c->sql_offset, part);
		c->sql_offset += part;
		if (c->sql_offset == c->sql_length) {
			free(c->sql);
			c->sql = NULL;
		} else {
			m->head.flags = SCAN_MORE;
		}
		if (xfer_qp_send(&c->link, m->head.length) < 0)
			return;
	}
}

/* Send the messages that the callers have requested. @return false: nothing */
static bool
send_requests(struct scan_client *c, uint64_t now)
{
	struct scan_credit *credit;
	struct scan_cancel *cancel;
	struct scan_msg *alive;
	const uint64_t before = c->sent;

	pthread_mutex_lock(&c->lock);
	/* first, because the engine can begin before the server has the credit */
	send_query(c);
	if ((c->credit_messages > 0 || c->nb_credit_slots > 0) &&
		(credit = xfer_qp_room(&c->link)) != NULL) {
		scan_msg_begin(credit, SCAN_CREDIT,
			sizeof(*credit) + c->nb_credit_slots * sizeof(credit->slot[0]), c->sent++);
		credit->messages = c->credit_messages;
		credit->nb = c->nb_credit_slots;
		memcpy(credit->slot, c->credit_slot, c->nb_credit_slots * sizeof(credit->slot[0]));
		c->credit_messages = 0;
		c->nb_credit_slots = 0;
		(void)xfer_qp_send(&c->link, credit->head.length);
	}
	send_free(c);
	post_reads(c);
	if (c->cancel && c->sql == NULL && (cancel = xfer_qp_room(&c->link)) != NULL) {
		scan_msg_begin(cancel, SCAN_CANCEL, sizeof(*cancel), c->sent++);
		cancel->cursor = c->cursor;
		c->cancel = false;
		(void)xfer_qp_send(&c->link, sizeof(*cancel));
	}
	pthread_mutex_unlock(&c->lock);
	if (c->sent == before && now >= c->said + SCAN_ALIVE_MS &&
		(alive = xfer_qp_room(&c->link)) != NULL) {
		scan_msg_begin(alive, SCAN_ALIVE, sizeof(*alive), c->sent++);
		(void)xfer_qp_send(&c->link, sizeof(*alive));
	}
	if (c->sent == before)
		return false;
	c->said = now;
	return true;
}

/* @return false: all messages are in flight: retry; or the connection is lost */
static bool
send_refuse(struct scan_client *c, enum scan_reason reason)
{
	struct scan_refuse *m = c->link.broken ? NULL : xfer_qp_room(&c->link);

	if (m == NULL)
		return false;
	scan_msg_begin(m, SCAN_REFUSE, sizeof(*m), c->sent++);
	m->reason = reason;
	return xfer_qp_send(&c->link, sizeof(*m)) == 0;
}

/*
 * End the connection to a server that sent something that is no result, or does not end a result.
 * The reason is sent to the server. If all send buffers are in use, this is tried again for a time:
 * a server that takes no messages does not keep the connection.
 */
static void
end_over(struct scan_client *c)
{
	enum scan_reason over;

	pthread_mutex_lock(&c->lock);
	if (c->over == SCAN_REASON_NONE && c->drain_until > 0 && xfer_qp_clock() > c->drain_until)
		c->over = SCAN_REASON_OVERDUE;
	over = c->over;
	pthread_mutex_unlock(&c->lock);
	if (over == SCAN_REASON_NONE)
		return;
	if (c->over_until == 0)
		c->over_until = xfer_qp_clock() + LEAVE_MS;
	if (send_refuse(c, over) || xfer_qp_clock() >= c->over_until)
		broken(c, over);
}

static bool
serve(struct scan_client *c, unsigned int turn)
{
	const uint64_t now = xfer_qp_clock();
	struct rdma_event event[EVENTS];
	bool busy = false;
	unsigned int i, n;

	for (i = 0; i < c->info.nb_poll_groups; i++)
		busy |= rdma_progress(c->dev, i) > 0;
	c->heard += xfer_qp_absence(&c->link, now);
	busy |= xfer_qp_poll(&c->link) > 0;
	if (c->link.broken)
		go_down(c, -EPIPE, "08006", "the connection to the server is lost",
			rdma_wc_status_name(c->link.why));
	if (state_of(c) == UP) {
		busy |= send_requests(c, now);
		end_over(c);
	}
	if ((state_of(c) == UP || state_of(c) == PROVING) && now > c->heard + SCAN_SILENCE_MS)
		go_down(c, -ETIMEDOUT, "08006", "the server does not answer", "");
	if (turn % CM_TURNS == 0 || !busy) {
		n = rdma_poll_cm(c->dev, event, EVENTS);
		for (i = 0; i < n; i++)
			take_event(c, &event[i]);
		busy |= n > 0;
	}
	return busy;
}

/* Tell the server that this end closes, unless it knows. */
static void
leave(struct scan_client *c)
{
	const uint64_t until = xfer_qp_clock() + LEAVE_MS;
	unsigned int turn = 0;

	pthread_mutex_lock(&c->lock);
	if (c->over == SCAN_REASON_NONE)
		c->over = SCAN_REASON_STOPPING;
	pthread_mutex_unlock(&c->lock);
	while ((state_of(c) == UP || c->link.nb_free_sends < XFER_QP_SENDS) && !c->link.broken &&
		!c->conn_lost && xfer_qp_clock() < until)
		(void)serve(c, turn++);
}

static void
close_device(struct scan_client *c)
{
	const uint64_t until = xfer_qp_clock() + TIMEOUT_MS;
	unsigned int i;

	if (c->conn != NULL)
		(void)rdma_conn_destroy(c->conn);
	c->conn = NULL;
	while (c->link_is_open && xfer_qp_close(&c->link) < 0 && xfer_qp_clock() < until) {
		for (i = 0; i < c->info.nb_poll_groups; i++)
			(void)rdma_progress(c->dev, i);
		(void)xfer_qp_poll(&c->link);
	}
	if (c->slots_mr != NULL)
		(void)rdma_mr_dereg(c->slots_mr);
	if (c->pd != NULL)
		(void)rdma_pd_free(c->pd);
	if (c->dev != NULL)
		(void)rdma_dev_close(c->dev);
	if (c->slots != NULL)
		munmap(c->slots, (uint64_t)c->config.slots * c->config.slot_bytes);
}

static bool
must_close(struct scan_client *c)
{
	bool closing;

	pthread_mutex_lock(&c->lock);
	closing = c->closing;
	pthread_mutex_unlock(&c->lock);
	return closing;
}

/* Only before the connection is up: the flag may not exist after scan_client_open(). */
static void
end_connecting(struct scan_client *c)
{
	const bool *give_up = c->config.give_up;

	if (give_up != NULL && state_of(c) != UP && state_of(c) != DOWN &&
		__atomic_load_n(give_up, __ATOMIC_RELAXED))
		go_down(c, -ECANCELED, "57014", "the connection was given up", "");
}

/* What the next turn may find. Callers that begin to wait, or want something, wake the thread. */
static enum poll_expect
expected(struct scan_client *c)
{
	bool waiting;

	pthread_mutex_lock(&c->lock);
	waiting = c->waiting;
	pthread_mutex_unlock(&c->lock);
	return waiting ? POLL_PACKETS : POLL_LATER;
}

static void *
service_main(void *arg)
{
	struct scan_client *c = arg;
	unsigned int turn = 0;
	bool busy;

	if (rte_thread_register() < 0) {
		go_down(c, -rte_errno, "HY000", "DPDK has no lcore for the service thread",
			rte_strerror(rte_errno));
		return NULL;
	}
	if (open_device(c) == 0 && begin_connection(c) == 0) {
		while (!must_close(c)) {
			busy = serve(c, turn++);
			end_connecting(c);
			if (c->yield)
				poll_yield(&c->pause);
			else
				poll_pause(&c->pause, busy, busy ? POLL_NOTHING : expected(c));
			c->yield = false;
		}
		if (state_of(c) == UP || c->over != SCAN_REASON_NONE)
			leave(c);
	}
	close_device(c);
	rte_thread_unregister();
	return NULL;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* End the stream. The first reason counts. */
static int
stream_fail(struct scan_client *c, int error, const char *sqlstate, const char *text)
{
	c->ended = true;
	if (c->stream_error != 0)
		return error;
	c->stream_error = error;
	snprintf(c->sqlstate, sizeof(c->sqlstate), "%s", sqlstate);
	snprintf(c->stream_text, sizeof(c->stream_text), "%s", text);
	return error;
}

/* The connection is down. */
static int
stream_down(struct scan_client *c)
{
	char text[SCAN_ERROR_TEXT], sqlstate[SCAN_SQLSTATE + 1];

	pthread_mutex_lock(&c->lock);
	memcpy(text, c->text.text, sizeof(text));
	memcpy(sqlstate, c->text.sqlstate, sizeof(sqlstate));
	pthread_mutex_unlock(&c->lock);
	return stream_fail(c, EPIPE, sqlstate, text);
}

/* The server sent something that is no result. What follows cannot be told from it. */
static int
stream_bad(struct scan_client *c, const char *what)
{
	pthread_mutex_lock(&c->lock);
	c->over = SCAN_REASON_ORDER;
	pthread_mutex_unlock(&c->lock);
	return stream_fail(c, EBADMSG, "08P01", what);
}

/* A slot can be written again: by the server, or by a READ. With the lock. */
static void
give_slot(struct scan_client *c, uint32_t slot)
{
	if (c->config.pull) {
		c->free_slot[c->nb_free_slots++] = slot;
		return;
	}
	c->slot_used[slot] = false;
	c->credit_slot[c->nb_credit_slots++] = slot;
}

static void
release_slot(void *arg)
{
	struct held_slot *h = arg;
	struct scan_client *c = h->client;

	pthread_mutex_lock(&c->lock);
	c->nb_slots_held--;
	give_slot(c, h->slot);
	pthread_mutex_unlock(&c->lock);
	poll_wake(&c->pause);
	free(h);
}

static void
return_slot(struct scan_client *c, uint32_t slot)
{
	pthread_mutex_lock(&c->lock);
	give_slot(c, slot);
	pthread_mutex_unlock(&c->lock);
	poll_wake(&c->pause);
}

/* Get the next message of the present query. @return 0; errno */
static int
next_message(struct scan_client *c)
{
	bool down;

	pthread_mutex_lock(&c->lock);
	if (c->reading->nb > 0) {
		c->credit_messages++;
		c->reading->nb = 0;
	}
	while (c->head == c->tail && c->state != DOWN)
		wait_changed(c);
	down = c->head == c->tail;
	if (!down) {
		const struct scan_data *m =
			(const struct scan_data *)c->arrived[c->head++ % ARRIVED_MAX].message;

		memcpy(c->reading, m, m->head.length);
	}
	pthread_mutex_unlock(&c->lock);
	c->reading_at = sizeof(*c->reading);
	if (down)
		return stream_down(c);
	return c->reading->cursor == c->cursor ? 0 : stream_bad(c, "a result of another query");
}

/* Wait until a part of a body is in a slot, with the lock. @return false: the connection is down */
static bool
wait_arrived(struct scan_client *c, uint32_t part)
{
	while ((int32_t)(c->nb_written - part) <= 0 && c->state != DOWN)
		wait_changed(c);
	return (int32_t)(c->nb_written - part) > 0;
}

/* Wait until a part of a body is written to its slot. @return 0; errno */
static int
wait_written(struct scan_client *c, const struct scan_record *r)
{
	const uint32_t part = c->nb_parts++;
	bool used, arrived;
	uint32_t imm;

	if (r->slot >= c->config.slots || r->length > c->config.slot_bytes)
		return stream_bad(c, "a part of a body is outside of the slots");
	pthread_mutex_lock(&c->lock);
	used = c->slot_used[r->slot];
	arrived = !used && wait_arrived(c, part);
	imm = c->written[part % SCAN_SLOTS_MAX];
	if (arrived)
		c->slot_used[r->slot] = true;
	pthread_mutex_unlock(&c->lock);
	if (used)
		return stream_bad(c, "a slot was used that is not free");
	if (!arrived)
		return stream_down(c);
	return imm == r->sequence ? 0 : stream_bad(c, "a body of another message was written");
}

/* Wait until a part of a body was read to a slot. @return 0; errno */
static int
wait_read(struct scan_client *c, uint32_t *slot)
{
	const uint32_t part = c->nb_parts++;
	bool arrived;

	pthread_mutex_lock(&c->lock);
	arrived = wait_arrived(c, part);
	*slot = c->pull[part % PULLS].slot;
	pthread_mutex_unlock(&c->lock);
	return arrived ? 0 : stream_down(c);
}

/* Wait until a part of a body is in a slot. @return 0; errno */
static int
wait_part(struct scan_client *c, const struct scan_record *r, uint32_t *slot)
{
	if ((r->kind == SCAN_PULLED) != c->config.pull)
		return stream_bad(c, "a body came in another way than granted");
	*slot = r->slot;
	return c->config.pull ? wait_read(c, slot) : wait_written(c, r);
}

/* Append a part; the first one has offset 0. @return 0; errno */
static int
assemble(struct scan_client *c, struct assembly *a, const struct scan_record *r,
	const uint8_t *bytes)
{
	void *more;
	uint64_t room;

	if (r->offset == 0) {
		a->size = 0;
		a->total = r->total;
	}
	if (r->offset != a->size || r->total != a->total)
		return stream_bad(c, "parts of a message are not in order");
	/* memory grows with the bytes that have arrived, not with the announced size */
	if (a->size + r->length > a->room) {
		room = a->size + r->length > 2 * a->room ? a->size + r->length : 2 * a->room;
		room = (room + SCAN_ALIGN - 1) / SCAN_ALIGN * SCAN_ALIGN;
		more = aligned_alloc(SCAN_ALIGN, room);
		if (more == NULL)
			return stream_fail(c, ENOMEM, "HY001", "not enough memory");
		if (a->size > 0)
			memcpy(more, a->bytes, a->size);
		free(a->bytes);
		a->bytes = more;
		a->room = room;
	}
	memcpy(a->bytes + a->size, bytes, r->length);
	a->size += r->length;
	return 0;
}

static bool
is_whole(const struct assembly *a)
{
	return a->total > 0 && a->size == a->total;
}

static void
forget_body(struct scan_client *c)
{
	if (c->body_is_slot)
		return_slot(c, c->body_slot);
	c->body_is_slot = false;
	c->has_body = false;
	c->body.size = c->body.total = 0;
}

/* Take a part of a body out of its slot, or leave it there if it is the whole. */
static int
take_part(struct scan_client *c, const struct scan_record *r)
{
	uint32_t slot;
	bool few;
	int ret;

	ret = wait_part(c, r, &slot);
	if (ret != 0)
		return ret;
	*(c->config.pull ? &c->counters.pulled_bytes : &c->counters.pushed_bytes) += r->length;
	pthread_mutex_lock(&c->lock);
	few = c->nb_slots_held + 2 >= c->config.slots;
	pthread_mutex_unlock(&c->lock);
	if (r->offset == 0 && r->length == r->total && !few) {
		c->body_is_slot = true;
		c->body_slot = slot;
		c->body.size = c->body.total = r->total;
		return 0;
	}
	ret = assemble(c, &c->body, r, c->slots + (uint64_t)slot * c->config.slot_bytes);
	c->counters.copied_bytes += r->length;
	return_slot(c, slot);
	return ret;
}

static void
take_error(struct scan_client *c, const uint8_t *bytes, uint32_t length)
{
	char text[SCAN_ERROR_TEXT + 1], sqlstate[SCAN_SQLSTATE + 1] = "";
	struct scan_error e;

	memcpy(&e, bytes, sizeof(e));
	memcpy(sqlstate, e.sqlstate, SCAN_SQLSTATE);
	memcpy(text, bytes + sizeof(e), length - sizeof(e));
	text[length - sizeof(e)] = '\0';
	(void)stream_fail(c, (int)e.error, sqlstate, text);
}

/* Keep a schema. This cannot fail: the server relies on it, also if the result is dropped. */
static void
keep_schema(struct scan_client *c, const struct scan_record *r, const uint8_t *bytes)
{
	struct kept_schema *kept = &c->kept[r->slot];

	ipc_reader_destroy(kept->reader);
	kept->reader = NULL;
	kept->size = r->length;
	memcpy(kept->bytes, bytes, r->length);
}

static int
take_metadata(struct scan_client *c, const struct scan_record *r, const uint8_t *bytes)
{
	if (r->slot != 0) {
		if (c->has_schema)
			return stream_bad(c, "a second schema");
		keep_schema(c, r, bytes);
		c->schema = r->slot;
	}
	return assemble(c, &c->metadata, r, bytes);
}

/* Read the present schema. @return 0; -errno */
static int
read_schema(struct scan_client *c, const uint8_t *metadata, uint64_t size)
{
	struct ipc_reader *reader = ipc_reader_create();
	int ret = reader != NULL ? ipc_reader_schema(reader, metadata, size) : -ENOMEM;

	if (ret < 0) {
		ipc_reader_destroy(reader);
		return ret;
	}
	c->kept[c->schema].reader = reader;
	c->has_schema = true;
	return 0;
}

/* End the stream if a step of the Arrow reader failed. @param ret  0; -errno @return 0; errno */
static int
arrow_result(struct scan_client *c, int ret)
{
	if (ret == 0)
		return 0;
	if (ret == -ENOMEM)
		return stream_fail(c, ENOMEM, "HY001", "not enough memory");
	if (ret == -ENOTSUP)
		return stream_fail(c, ENOTSUP, "0A000",
			"the result has a type that this client does not support");
	return stream_bad(c, "the result is not valid Arrow data");
}

/* Use a schema that is kept. @return 0; errno */
static int
recall_schema(struct scan_client *c, uint32_t number)
{
	struct kept_schema *kept = &c->kept[number];

	if (c->has_schema || c->metadata.size > 0 || kept->size == 0)
		return stream_bad(c, "a schema is missing");
	c->schema = number;
	c->sequence++;
	if (kept->reader == NULL)
		return arrow_result(c, read_schema(c, kept->bytes, kept->size));
	c->has_schema = true;
	return 0;
}

/* Take a record. @return 0; errno */
static int
take_record(struct scan_client *c, const struct scan_record *r, const uint8_t *bytes)
{
	if (r->kind != SCAN_COLUMNS && r->kind != SCAN_ERROR && r->sequence != c->sequence)
		return stream_bad(c, "a message is missing");
	switch ((enum scan_kind)r->kind) {
	case SCAN_COLUMNS:
		return assemble(c, &c->columns, r, bytes);
	case SCAN_METADATA:
		return take_metadata(c, r, bytes);
	case SCAN_BODY:
		c->counters.inline_bytes += r->length;
		return assemble(c, &c->body, r, bytes);
	case SCAN_PUSHED:
	case SCAN_PULLED:
		return take_part(c, r);
	case SCAN_END:
		c->left_out = r->total;
		c->ended = c->answered = true;
		return 0;
	case SCAN_ERROR:
		c->answered = true;
		take_error(c, bytes, r->length);
		return c->stream_error;
	case SCAN_SCHEMA:
		return recall_schema(c, r->slot);
	case SCAN_KINDS:
		break;
	}
	return stream_bad(c, "an unknown record");
}

static void
release_heap(void *arg)
{
	free(arg);
}

/* Give the body to the Arrow reader. */
static int
take_body(struct scan_client *c, struct ipc_body *body)
{
	struct held_slot *h;

	*body = (struct ipc_body){.bytes = c->body.bytes, .size = c->body.total};
	if (c->body_is_slot) {
		h = malloc(sizeof(*h));
		if (h == NULL)
			return -ENOMEM;
		*h = (struct held_slot){c, c->body_slot};
		body->bytes = c->slots + (uint64_t)c->body_slot * c->config.slot_bytes;
		body->release = release_slot;
		body->arg = h;
		pthread_mutex_lock(&c->lock);
		c->nb_slots_held++;
		pthread_mutex_unlock(&c->lock);
	} else if (body->size > 0) {
		body->release = release_heap;
		body->arg = c->body.bytes;
		c->body.bytes = NULL;
		c->body.room = 0;
	}
	c->body_is_slot = false;
	c->body.size = c->body.total = 0;
	return 0;
}

/*
 * Take a message of Arrow that is complete.
 * @param out  out: release is NULL: no record batch
 */
static int
take_arrow(struct scan_client *c, struct ArrowArray *out)
{
	const uint8_t *metadata = c->metadata.bytes;
	const uint64_t size = c->metadata.total;
	struct ipc_body body;
	int ret;

	if (!c->has_schema) {
		ret = read_schema(c, metadata, size);
	} else {
		ret = take_body(c, &body);
		if (ret == 0)
			ret = ipc_reader_batch(
				c->kept[c->schema].reader, metadata, size, &body, out);
		c->counters.batches += ret == 0 && out->release != NULL;
	}
	c->metadata.size = c->metadata.total = 0;
	c->sequence++;
	return arrow_result(c, ret);
}

/* Whether the message of Arrow under construction is complete. @return 1; 0; -errno */
static int
is_complete(struct scan_client *c)
{
	uint64_t body;
	int ret;

	if (!is_whole(&c->metadata))
		return c->body.size > 0 ? -EBADMSG : 0;
	ret = ipc_reader_head(c->metadata.bytes, c->metadata.total, &body);
	if (ret < 0)
		return ret;
	if ((ret == IPC_SCHEMA) == c->has_schema)
		return -EBADMSG;
	if (c->body.total != body && c->body.total > 0)
		return -EBADMSG;
	return body == 0 || is_whole(&c->body);
}

/*
 * Read until a record batch, the schema, or the end.
 * @param out  NULL: until the schema
 * @return 0, at the end `ended` is set; errno
 */
static int
advance(struct scan_client *c, struct ArrowArray *out)
{
	struct scan_record r;
	struct ArrowArray array;
	const uint8_t *bytes;
	int ret;

	while (!c->ended) {
		bytes = c->reading->nb > 0 ? scan_record_next(c->reading, &c->reading_at, &r)
					   : NULL;
		if (bytes == NULL) {
			ret = next_message(c);
			if (ret != 0)
				return ret;
			continue;
		}
		ret = take_record(c, &r, bytes);
		if (ret != 0 || c->ended)
			break;
		ret = is_complete(c);
		if (ret < 0)
			return arrow_result(c, ret);
		array.release = NULL;
		ret = ret > 0 ? take_arrow(c, &array) : 0;
		if (ret != 0)
			return ret;
		if (out == NULL && c->has_schema)
			return 0;
		if (array.release != NULL) {
			*out = array;
			return 0;
		}
	}
	if (c->stream_error == 0 && !c->has_schema)
		return stream_bad(c, "a result without a schema");
	return c->stream_error;
}

static int
get_schema(struct ArrowArrayStream *stream, struct ArrowSchema *out)
{
	struct scan_client *c = stream->private_data;
	int ret = 0;

	if (!c->has_schema)
		ret = c->stream_error != 0 ? c->stream_error : advance(c, NULL);
	if (ret == 0)
		ret = -ipc_reader_copy_schema(c->kept[c->schema].reader, out);
	return ret;
}

static int
get_next(struct ArrowArrayStream *stream, struct ArrowArray *out)
{
	struct scan_client *c = stream->private_data;
	int ret;

	*out = (struct ArrowArray){0};
	if (!c->has_schema && c->stream_error == 0) {
		ret = advance(c, NULL);
		if (ret != 0)
			return ret;
	}
	return c->stream_error != 0 || c->ended ? c->stream_error : advance(c, out);
}

static const char *
get_last_error(struct ArrowArrayStream *stream)
{
	const struct scan_client *c = stream->private_data;

	return c->stream_text[0] != '\0' ? c->stream_text : NULL;
}

/* Read the rest of a result that is not needed, or cannot be used. */
static void
drain(struct scan_client *c)
{
	struct scan_record r;
	const uint8_t *bytes;
	uint32_t slot;

	while (!c->answered) {
		bytes = c->reading->nb > 0 ? scan_record_next(c->reading, &c->reading_at, &r)
					   : NULL;
		if (bytes == NULL) {
			if (next_message(c) != 0)
				return;
			continue;
		}
		c->answered = r.kind == SCAN_END || r.kind == SCAN_ERROR;
		if (r.kind == SCAN_METADATA && r.slot != 0)
			keep_schema(c, &r, bytes);
		if (r.kind != SCAN_PUSHED && r.kind != SCAN_PULLED)
			continue;
		if (wait_part(c, &r, &slot) != 0)
			return;
		return_slot(c, slot);
	}
}

static void
release(struct ArrowArrayStream *stream)
{
	struct scan_client *c = stream->private_data;

	if (!c->answered && c->over == SCAN_REASON_NONE) {
		scan_client_cancel(c);
		pthread_mutex_lock(&c->lock);
		/* the server itself ends such a query after 10 s */
		c->drain_until = xfer_qp_clock() + c->config.timeout_ms * UINT64_C(3) / 2;
		pthread_mutex_unlock(&c->lock);
		drain(c);
	}
	forget_body(c);
	/* return the credit of the last message, too */
	pthread_mutex_lock(&c->lock);
	c->drain_until = 0;
	if (c->reading->nb > 0)
		c->credit_messages++;
	c->reading->nb = 0;
	c->querying = false;
	c->cancel = false;
	pthread_mutex_unlock(&c->lock);
	ipc_reader_destroy(c->kept[0].reader);
	c->kept[0].reader = NULL;
	/* its dictionaries may hold slots */
	if (c->kept[c->schema].reader != NULL)
		ipc_reader_restart(c->kept[c->schema].reader);
	free(c->columns.bytes);
	free(c->metadata.bytes);
	free(c->body.bytes);
	c->columns = c->metadata = c->body = (struct assembly){0};
	c->streaming = false;
	stream->release = NULL;
}

/* ---- interface ------------------------------------------------------------------------------- */

/* Read an address, with a port or without. */
static int
read_address(const char *text, struct sockaddr_storage *to)
{
	struct sockaddr_in6 *six = (struct sockaddr_in6 *)to;
	struct sockaddr_in *four = (struct sockaddr_in *)to;
	const char *port = NULL, *end = text + strlen(text);
	char address[INET6_ADDRSTRLEN];
	char *behind;
	unsigned long number = SCAN_PORT;

	memset(to, 0, sizeof(*to));
	if (text[0] == '[') {
		text++;
		end = strchr(text, ']');
		if (end == NULL || (end[1] != ':' && end[1] != '\0'))
			return -EINVAL;
		port = end[1] == ':' ? end + 2 : NULL;
	} else if (strchr(text, ':') != NULL && strchr(text, ':') == strrchr(text, ':')) {
		end = strchr(text, ':');
		port = end + 1;
	}
	if ((size_t)(end - text) >= sizeof(address))
		return -EINVAL;
	memcpy(address, text, end - text);
	address[end - text] = '\0';
	if (port != NULL) {
		number = strtoul(port, &behind, 10);
		if (*port < '0' || *port > '9' || *behind != '\0' || number == 0 ||
			number > UINT16_MAX)
			return -EINVAL;
	}
	if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
		four->sin_family = AF_INET;
		four->sin_port = htons(number);
		return 0;
	}
	if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
		six->sin6_family = AF_INET6;
		six->sin6_port = htons(number);
		return 0;
	}
	return -EINVAL;
}

static void
client_free(struct scan_client *c)
{
	uint32_t i;

	for (i = 0; c->kept != NULL && i <= SCAN_SCHEMAS; i++)
		ipc_reader_destroy(c->kept[i].reader);
	free(c->kept);
	xfer_key_forget(&c->key);
	free(c->device);
	free(c->identity);
	free(c->sql);
	free(c->arrived);
	free(c->written);
	free(c->pull);
	free(c->reading);
	pthread_mutex_destroy(&c->lock);
	(void)sem_destroy(&c->ready);
	poll_pause_destroy(&c->pause);
	free(c);
}

static int
open_error(struct scan_client_error *error, int ret, const char *what, const char *object)
{
	snprintf(error->sqlstate, sizeof(error->sqlstate), "08001");
	snprintf(error->text, sizeof(error->text), "%.900s%s%.900s", object,
		object[0] != '\0' ? ": " : "", what);
	return ret;
}

static int
prepare(struct scan_client *c, const struct scan_client_config *config,
	struct scan_client_error *error)
{
	char message[PATH_MAX];
	uint32_t i;
	int ret;

	c->config = *config;
	c->config.slots = config->slots > 0 ? config->slots : SLOTS;
	c->config.slot_bytes = config->slot_bytes > 0 ? config->slot_bytes : SLOT_BYTES;
	c->config.timeout_ms = config->timeout_ms > 0 ? config->timeout_ms : TIMEOUT_MS;
	if (c->config.slots > SCAN_SLOTS_MAX || c->config.slot_bytes < SCAN_SLOT_MIN ||
		c->config.slot_bytes > SCAN_SLOT_MAX || c->config.slot_bytes % SCAN_ALIGN != 0)
		return open_error(
			error, -EINVAL, "expected at most 256 slots of 4 KiB to 1 GiB", "slots");
	if (read_address(config->server, &c->server) < 0)
		return open_error(error, -EINVAL,
			"expected an IP address, IPv4:PORT or [IPv6]:PORT", config->server);
	ret = xfer_key_read(&c->key, config->key, message);
	if (ret < 0)
		return open_error(error, -EINVAL, message, "");
	c->device = strdup(config->device);
	c->identity = strdup(config->identity);
	c->arrived = calloc(ARRIVED_MAX, sizeof(*c->arrived));
	c->written = calloc(SCAN_SLOTS_MAX, sizeof(*c->written));
	c->pull = calloc(PULLS, sizeof(*c->pull));
	c->reading = calloc(1, SCAN_MSG_MAX);
	c->kept = calloc(SCAN_SCHEMAS + 1, sizeof(*c->kept));
	if (c->device == NULL || c->identity == NULL || c->arrived == NULL || c->written == NULL ||
		c->pull == NULL || c->reading == NULL || c->kept == NULL)
		return open_error(error, -ENOMEM, "not enough memory", "");
	for (i = 0; i < c->config.slots; i++)
		c->free_slot[c->nb_free_slots++] = i;
	return 0;
}

int
scan_client_open(struct scan_client **client, const struct scan_client_config *config,
	struct scan_client_error *error)
{
	struct scan_client *c = calloc(1, sizeof(*c));
	sigset_t all, old;
	int ret;

	memset(error, 0, sizeof(*error));
	if (c == NULL)
		return open_error(error, -ENOMEM, "not enough memory", "");
	pthread_mutex_init(&c->lock, NULL);
	(void)sem_init(&c->ready, 0, 0);
	poll_pause_init(&c->pause);
	ret = prepare(c, config, error);
	if (ret == 0) {
		/* signals are for the caller's threads */
		sigfillset(&all);
		pthread_sigmask(SIG_SETMASK, &all, &old);
		ret = -pthread_create(&c->thread, NULL, service_main, c);
		pthread_sigmask(SIG_SETMASK, &old, NULL);
	}
	if (ret < 0) {
		client_free(c);
		return ret;
	}
	pthread_mutex_lock(&c->lock);
	while (c->state != UP && c->state != DOWN)
		wait_changed(c);
	if (c->state == DOWN) {
		*error = c->text;
		ret = c->error;
	}
	pthread_mutex_unlock(&c->lock);
	if (ret < 0)
		scan_client_close(c);
	else
		*client = c;
	return ret;
}

void
scan_client_close(struct scan_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->closing = true;
	pthread_mutex_unlock(&c->lock);
	poll_wake(&c->pause);
	pthread_join(c->thread, NULL);
	client_free(c);
}

int
scan_client_query(struct scan_client *c, const char *sql, enum scan_form form,
	struct ArrowArrayStream *stream)
{
	const size_t length = strlen(sql);
	char *copy;
	bool down;

	if (length == 0 || length > SCAN_SQL_MAX)
		return -EINVAL;
	if (c->streaming)
		return -EBUSY;
	copy = strdup(sql);
	if (copy == NULL)
		return -ENOMEM;
	c->ended = c->answered = c->has_schema = false;
	c->sequence = c->schema = 0;
	c->stream_error = 0;
	c->stream_text[0] = c->sqlstate[0] = '\0';
	pthread_mutex_lock(&c->lock);
	down = c->state == DOWN || c->over != SCAN_REASON_NONE;
	if (!down) {
		/* of a query before, if its result was not read to the end */
		free(c->sql);
		c->sql = copy;
		c->cursor++;
		c->form = form;
		c->sql_length = length;
		c->sql_offset = 0;
		c->cancel = false;
		c->querying = true;
	}
	/*
	 * The service thread is not woken before the caller waits: it would take the CPU of a
	 * caller that has something to do, and then poll for the answer. If the caller does not
	 * wait, it finds the query after its pause, of POLL_PAUSE_LATER_US at most.
	 */
	pthread_mutex_unlock(&c->lock);
	if (down) {
		free(copy);
		return -EPIPE;
	}
	c->streaming = true;
	*stream = (struct ArrowArrayStream){get_schema, get_next, get_last_error, release, c};
	return 0;
}

const uint32_t *
scan_client_columns(const struct scan_client *c, uint64_t *nb)
{
	*nb = is_whole(&c->columns) ? c->columns.total / sizeof(uint32_t) : 0;
	return (const uint32_t *)c->columns.bytes;
}

void
scan_client_cancel(struct scan_client *c)
{
	pthread_mutex_lock(&c->lock);
	c->cancel |= c->querying;
	pthread_mutex_unlock(&c->lock);
	poll_wake(&c->pause);
}

const char *
scan_client_sqlstate(const struct scan_client *c)
{
	return c->sqlstate;
}

bool
scan_client_was_idle(struct scan_client *c)
{
	bool idle;

	pthread_mutex_lock(&c->lock);
	idle = c->idle;
	pthread_mutex_unlock(&c->lock);
	return idle && !c->has_schema && !c->answered;
}

uint64_t
scan_client_left_out(const struct scan_client *c)
{
	return c->left_out;
}

void
scan_client_counters(const struct scan_client *c, struct scan_client_counters *counters)
{
	*counters = c->counters;
}
