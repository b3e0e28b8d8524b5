/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The sender of a stream. The owner lcore writes and sends slots, and reads the members' tails; the
 * control lcore makes and removes connections. `state` of a member passes it from one to the other.
 */
#include "rdma_stream.h"

#include <arpa/inet.h>
#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "counter.h"
#include "rdma_pages.h"
#include "rdma_provider.h"
#include "rdma_stream_wire.h"

#define SEND_WR	     1024 /* send queue of the UD queue pair */
#define SEND_BURST   32
#define SIGNAL_EVERY 8 /* one signalled request in this number; it also completes those before it */
#define RECEIVES     4 /* receives posted for each member */
#define RESENDS	     256 /* maximum ranges waiting to be sent again */
#define HANDSHAKE_MS 5000
/*
 * While a member misses packets, at most 1/FLIGHT_PART of the ring is in flight. Members report
 * their progress every sixteenth of the ring.
 */
#define FLIGHT_PART 4

enum member_state {
	MEMBER_FREE,	/* unused; owned by the control lcore */
	MEMBER_JOINING, /* connecting, or sending its proof */
	/* authenticated; packets are retained for it from the first one that its card names */
	MEMBER_INVITED,
	MEMBER_ACTIVE,	/* has accepted the card */
	MEMBER_REMOVED, /* the control lcore closes its connections */
};

struct member_conn {
	struct member *member;
	struct rdma_conn *conn;
	struct rdma_qp *qp;
	bool ended; /* disconnected or failed */
	/* The owner lcore has posted receives to `qp`. The control lcore clears it while there is
	 * none. */
	bool has_receives;
};

struct member {
	int state; /* enum member_state */
	uint16_t number;
	struct member_conn conn[RDMA_STREAM_CONNS_MAX];
	struct rdma_mr *tail_mr;
	struct stream_tail *line; /* entry of `tails` */
	struct stream_transcript transcript;
	struct sockaddr_storage addr;
	uint64_t token;
	uint64_t since; /* control lcore: TSC of the request to join */
	/* owner lcore */
	uint64_t tail, seen, beat;
	uint64_t beat_at;  /* sender's poll_cycles at the last change of beat */
	bool card_pending; /* authenticated, but the card is not sent yet */
	unsigned int key;  /* index of the key of its proof */
};

struct rdma_stream_sender {
	struct rdma_stream_sender_attr attr;
	struct rdma_stream_proof proof;
	struct rdma_qp *ud;
	struct rdma_cq *ud_cq, *rc_cq;
	struct rdma_ah *ah;
	struct rdma_conn *listener;
	struct rdma_mr *ring_mr, *message_mr;
	uint8_t *memory;
	uint64_t memory_bytes;
	struct stream_head *head_block;
	uint8_t *slots;
	uint32_t slot_bytes, mask, ud_qpn;
	struct stream_tail *tails; /* [members_max], written by the members */
	uint8_t *messages; /* [members_max][RECEIVES + 1]: receive buffers, and one to send */
	struct member *members;
	uint64_t run;

	/* owner lcore */
	uint64_t head;	 /* next packet to be published */
	uint64_t posted; /* packets before this one are posted */
	uint64_t sent;	 /* packets before this one are transmitted */
	uint64_t tail;	 /* lowest tail of the members */
	uint64_t seen;	 /* lowest of the members that miss packets; STREAM_NONE: no such member */
	uint64_t requests, completed; /* numbers of requests of the UD queue pair */
	bool open;		      /* the slot at head is being written */
	bool ending;
	uint64_t now, next_poll, polled_at;
	uint64_t poll_cycles; /* TSC cycles in which this lcore has polled the members */
	struct {
		uint64_t first, end;
	} resend[RESENDS];
	uint32_t resend_head, resend_tail;
	uint64_t resend_at;	 /* TSC: ranges are collected until this time */
	uint64_t resend_request; /* number of the last request that retransmits a packet */
	uint64_t resend_lowest;	 /* oldest packet that is being retransmitted */
	struct rdma_stream_sender_info info;

	uint64_t refused; /* control lcore: rejected requests and cards */
};

uint32_t
rdma_stream_slots(uint32_t rate_mbps, uint32_t payload_max, uint32_t latency_us)
{
	const uint64_t bits = (uint64_t)rate_mbps * latency_us;
	const uint64_t slots = bits / (8 * (uint64_t)(payload_max + RDMA_STREAM_HEADER_BYTES)) + 1;

	return slots > 1U << 30 ? 1U << 30 : rte_align32pow2((uint32_t)slots);
}

static struct stream_header *
slot_of(const struct rdma_stream_sender *s, uint64_t sequence)
{
	return (struct stream_header *)(s->slots + (sequence & s->mask) * s->slot_bytes);
}

static int
state_of(const struct member *m)
{
	return __atomic_load_n(&m->state, __ATOMIC_ACQUIRE);
}

/* Change the state unless the other lcore has changed it. */
static bool
member_state_change(struct member *m, int from, int to)
{
	return __atomic_compare_exchange_n(
		&m->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Return true if packets are retained for a member in this state. */
static bool
is_admitted(int state)
{
	return state == MEMBER_INVITED || state == MEMBER_ACTIVE;
}

/* Owner lcore: remove an admitted member, unless the control lcore has done so. */
static void
member_remove(struct member *m)
{
	if (!member_state_change(m, MEMBER_ACTIVE, MEMBER_REMOVED))
		(void)member_state_change(m, MEMBER_INVITED, MEMBER_REMOVED);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int
sender_defaults(struct rdma_stream_sender *s, const struct rdma_stream_sender_attr *attr)
{
	struct rdma_stream_sender_attr *a = &s->attr;
	struct rdma_dev_info info;

	*a = *attr;
	if (!a->dev || !a->pd || !a->group)
		return -EINVAL;
	rdma_dev_info_get(a->dev, &info);
	if (!a->port)
		a->port = RDMA_STREAM_PORT;
	if (!a->slots)
		a->slots = 4096;
	if (!a->payload_max)
		a->payload_max = info.mtu - RDMA_STREAM_HEADER_BYTES;
	if (!a->members_max)
		a->members_max = 8;
	if (!a->silence_ms)
		a->silence_ms = 2000;
	if (!a->gather_us)
		a->gather_us = 100;
	if (!rte_is_power_of_2(a->slots) || a->slots < 16 ||
		a->payload_max + RDMA_STREAM_HEADER_BYTES > info.mtu ||
		a->members_max > RDMA_STREAM_MEMBERS_MAX || a->policy > RDMA_STREAM_OVERWRITE)
		return -EINVAL;
	if (a->proof)
		s->proof = *a->proof;
	s->proof.keys = RTE_MAX(s->proof.keys, 1U);
	s->mask = a->slots - 1;
	s->slot_bytes = RTE_ALIGN_CEIL(a->payload_max + RDMA_STREAM_HEADER_BYTES, 64);
	return 0;
}

static int
sender_memory(struct rdma_stream_sender *s)
{
	const uint32_t message_bytes = s->attr.members_max * (RECEIVES + 1) * STREAM_MESSAGE_BYTES;
	enum rdma_pages_kind kind = RDMA_PAGES_HUGETLB;
	struct rdma_mr_attr ring = {.access = RDMA_ACCESS_REMOTE_READ, .gpu = -1};
	struct rdma_mr_attr messages = {.access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct rdma_dev_info info;

	rdma_dev_info_get(s->attr.dev, &info);
	s->memory_bytes = STREAM_HEAD_BYTES + (uint64_t)s->attr.slots * s->slot_bytes;
	s->memory = rdma_pages_map(&s->memory_bytes, info.numa_node, &kind);
	if (!s->memory || rdma_pages_prefault(s->memory, s->memory_bytes, 0) < 0)
		return -ENOMEM;
	s->head_block = (struct stream_head *)s->memory;
	s->slots = s->memory + STREAM_HEAD_BYTES;
	ring.addr = s->memory;
	ring.length = STREAM_HEAD_BYTES + (uint64_t)s->attr.slots * s->slot_bytes;
	s->ring_mr = rdma_mr_reg(s->attr.pd, &ring);
	s->tails = rte_zmalloc(
		"rdma_stream", s->attr.members_max * sizeof(*s->tails), RTE_CACHE_LINE_SIZE);
	s->messages = rte_zmalloc("rdma_stream", message_bytes, RTE_CACHE_LINE_SIZE);
	s->members = calloc(s->attr.members_max, sizeof(*s->members));
	if (!s->ring_mr || !s->tails || !s->messages || !s->members)
		return -ENOMEM;
	messages.addr = s->messages;
	messages.length = message_bytes;
	s->message_mr = rdma_mr_reg(s->attr.pd, &messages);
	return s->message_mr ? 0 : -ENOMEM;
}

static void
sender_start(struct rdma_stream_sender *s)
{
	for (uint32_t i = 0; i < s->attr.slots; i++)
		slot_of(s, i)->sequence = STREAM_INVALID;
	for (uint16_t i = 0; i < s->attr.members_max; i++) {
		s->members[i].number = i;
		s->members[i].line = &s->tails[i];
		for (unsigned int c = 0; c < RDMA_STREAM_CONNS_MAX; c++)
			s->members[i].conn[c].member = &s->members[i];
	}
	s->head = s->posted = s->sent = s->tail = s->attr.first;
	s->resend_lowest = s->seen = STREAM_NONE;
	s->head_block->run = s->run;
	s->head_block->end = STREAM_NONE;
	s->head_block->sent = s->sent;
	__atomic_store_n(&s->head_block->head, s->head, __ATOMIC_RELEASE);
}

static int
sender_queues(struct rdma_stream_sender *s)
{
	struct rdma_qp_attr ud = {.type = RDMA_QP_UD,
		.poll_group = s->attr.poll_group,
		.max_send_wr = SEND_WR,
		.max_recv_wr = 1,
		.rate_mbps = s->attr.rate_mbps};
	struct rdma_qp_info info;
	int ret;

	s->ud_cq = rdma_cq_create(s->attr.dev, SEND_WR, s->attr.poll_group);
	s->rc_cq = rdma_cq_create(
		s->attr.dev, s->attr.members_max * 4 * (RECEIVES + 4) + 64, s->attr.poll_group);
	if (!s->ud_cq || !s->rc_cq)
		return -ENOMEM;
	ud.send_cq = ud.recv_cq = s->ud_cq;
	s->ud = rdma_qp_create(s->attr.pd, &ud);
	if (!s->ud)
		return -ENOMEM;
	ret = rdma_qp_connect(s->ud, NULL);
	if (ret < 0)
		return ret;
	rdma_qp_info_get(s->ud, &info);
	s->ud_qpn = info.qpn;
	s->ah = rdma_ah_create(s->attr.pd, s->attr.group, 0, 0);
	s->listener = s->ah ? rdma_conn_listen(s->attr.dev, RDMA_QP_RC, s->attr.port, 64, s) : NULL;
	return s->listener ? 0 : -rte_errno;
}

struct rdma_stream_sender *
rdma_stream_sender_create(const struct rdma_stream_sender_attr *attr)
{
	struct rdma_stream_sender *s = rte_zmalloc("rdma_stream", sizeof(*s), RTE_CACHE_LINE_SIZE);
	int ret;

	if (!s) {
		rte_errno = ENOMEM;
		return NULL;
	}
	ret = sender_defaults(s, attr);
	if (ret == 0)
		ret = stream_random(&s->run, sizeof(s->run));
	if (ret == 0)
		ret = sender_memory(s);
	if (ret == 0) {
		sender_start(s);
		ret = sender_queues(s);
	}
	if (ret == 0)
		return s;
	RDMA_LOG(ERR, "stream: cannot create the sender: %s", rte_strerror(-ret));
	(void)rdma_stream_sender_destroy(s);
	rte_errno = -ret;
	return NULL;
}

/* ---- members: control lcore ------------------------------------------------------------------ */

/* @return false: the port still holds frames of the queue pair; call again */
static bool
conn_close(struct member_conn *c)
{
	struct rdma_qp *qp = c->qp;

	if (c->conn)
		rdma_conn_destroy(c->conn);
	c->conn = NULL;
	/* from now on the owner lcore, which executes the destruction, posts no request */
	__atomic_store_n(&c->qp, NULL, __ATOMIC_RELEASE);
	if (qp && rdma_qp_destroy(qp) < 0) {
		__atomic_store_n(&c->qp, qp, __ATOMIC_RELEASE);
		return false;
	}
	c->ended = false;
	return true;
}

/* @return false: not everything is released yet; call again */
static bool
member_close(struct member *m)
{
	bool closed = true;

	for (unsigned int i = 0; i < RDMA_STREAM_CONNS_MAX; i++)
		closed &= conn_close(&m->conn[i]);
	if (closed && m->tail_mr) {
		if (rdma_mr_dereg(m->tail_mr) < 0)
			return false;
		m->tail_mr = NULL;
	}
	if (closed)
		__atomic_store_n(&m->state, MEMBER_FREE, __ATOMIC_RELEASE);
	return closed;
}

static uint8_t *
message_at(const struct rdma_stream_sender *s, const struct member *m, unsigned int i)
{
	return s->messages + (m->number * (RECEIVES + 1) + i) * STREAM_MESSAGE_BYTES;
}

static void
message_receive(struct rdma_stream_sender *s, struct member_conn *c, unsigned int i)
{
	const struct rdma_sge sge = {(uintptr_t)message_at(s, c->member, i), STREAM_MESSAGE_BYTES,
		rdma_mr_lkey(s->message_mr)};
	const struct rdma_recv_wr wr = {.wr_id = i, .sg = &sge, .nb_sge = 1};

	struct rdma_qp *qp = __atomic_load_n(&c->qp, __ATOMIC_ACQUIRE);

	if (qp)
		(void)rdma_post_recv(qp, &wr, 1);
}

static int
conn_accept(struct rdma_stream_sender *s, struct member_conn *c, const struct rdma_event *event,
	const struct stream_reply *reply)
{
	const struct rdma_qp_attr qp = {.type = RDMA_QP_RC,
		.poll_group = s->attr.poll_group,
		.send_cq = s->rc_cq,
		.recv_cq = s->rc_cq,
		.context = c,
		.max_send_wr = 4,
		.max_recv_wr = RECEIVES,
		.retry_count = 0xff,
		.rnr_retry = 0xff};
	const struct rdma_conn_attr attr = {.private_data = reply,
		.private_len = sizeof(*reply),
		.context = s,
		.keepalive_ms = s->attr.silence_ms};
	struct rdma_qp_info info;
	int ret;

	c->has_receives = false;
	__atomic_store_n(&c->qp, rdma_qp_create(s->attr.pd, &qp), __ATOMIC_RELEASE);
	if (!c->qp)
		return -rte_errno;
	if (c == &c->member->conn[0]) {
		rdma_qp_info_get(c->qp, &info);
		c->member->transcript.qpn[0] = event->remote_qpn;
		c->member->transcript.qpn[1] = info.qpn;
	}
	c->conn = event->conn;
	ret = rdma_conn_accept(event->conn, c->qp, &attr);
	if (ret < 0)
		(void)conn_close(c);
	return ret;
}

/* Accept the connection of a new member, which then sends its proof over it. */
static int
member_join(struct rdma_stream_sender *s, const struct rdma_event *event,
	const struct stream_request *request)
{
	struct rdma_mr_attr mr = {.length = sizeof(struct stream_tail),
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1};
	struct stream_reply *reply;
	struct member *m = NULL;
	int ret;

	for (uint16_t i = 0; i < s->attr.members_max && !m; i++)
		if (state_of(&s->members[i]) == MEMBER_FREE)
			m = &s->members[i];
	if (!m)
		return -ENOSPC;
	memset(m->line, 0, sizeof(*m->line));
	memset(&m->transcript, 0, sizeof(m->transcript));
	m->transcript.request = *request;
	m->addr = event->peer;
	reply = &m->transcript.reply;
	reply->magic = STREAM_MAGIC;
	reply->payload_max = s->attr.payload_max;
	reply->run = s->run;
	ret = stream_random(reply->nonce, sizeof(reply->nonce));
	if (ret == 0)
		ret = stream_random(&m->token, sizeof(m->token));
	if (ret < 0)
		return ret;
	/* each member has a new rkey, so that a removed one can no longer write here */
	mr.addr = m->line;
	m->tail_mr = rdma_mr_reg(s->attr.pd, &mr);
	if (!m->tail_mr)
		return -rte_errno;
	m->since = rte_rdtsc();
	m->card_pending = false;
	__atomic_store_n(&m->state, MEMBER_JOINING, __ATOMIC_RELEASE);
	ret = conn_accept(s, &m->conn[0], event, reply);
	if (ret < 0)
		__atomic_store_n(&m->state, MEMBER_REMOVED, __ATOMIC_RELEASE);
	return ret;
}

/* Accept a further connection of a member, or the replacement of one that failed. */
static int
member_attach(struct rdma_stream_sender *s, const struct rdma_event *event,
	const struct stream_request *request)
{
	struct member *m;

	if (request->member >= s->attr.members_max || request->number >= RDMA_STREAM_CONNS_MAX)
		return -EINVAL;
	m = &s->members[request->member];
	if (!is_admitted(state_of(m)) || request->token != m->token)
		return -EACCES;
	if (!conn_close(&m->conn[request->number]))
		return -EBUSY;
	return conn_accept(s, &m->conn[request->number], event, &m->transcript.reply);
}

static void
sender_request(struct rdma_stream_sender *s, const struct rdma_event *event)
{
	struct stream_request request;
	int ret = -EINVAL;

	if (event->private_len >= sizeof(request)) {
		memcpy(&request, event->private_data, sizeof(request));
		if (request.magic == STREAM_MAGIC && request.kind == STREAM_JOIN)
			ret = member_join(s, event, &request);
		else if (request.magic == STREAM_MAGIC && request.kind == STREAM_ATTACH)
			ret = member_attach(s, event, &request);
	}
	if (ret == 0)
		return;
	counter_add(&s->refused, 1);
	if (rdma_conn_reject(event->conn, &ret, sizeof(ret)) < 0)
		rdma_conn_destroy(event->conn);
}

bool
rdma_stream_sender_event(struct rdma_stream_sender *s, const struct rdma_event *event)
{
	if (event->type == RDMA_EVENT_CONNECT_REQUEST) {
		if (event->listener != s->listener)
			return false;
		sender_request(s, event);
		return true;
	}
	if (!event->conn && !event->qp)
		return false;
	for (uint16_t i = 0; i < s->attr.members_max; i++)
		for (unsigned int n = 0; n < RDMA_STREAM_CONNS_MAX; n++) {
			struct member_conn *c = &s->members[i].conn[n];

			if (!(event->conn && event->conn == c->conn) &&
				!(event->qp && event->qp == c->qp))
				continue;
			if (event->type != RDMA_EVENT_ESTABLISHED)
				c->ended = true;
			return true;
		}
	return false;
}

void
rdma_stream_sender_control(struct rdma_stream_sender *s)
{
	const uint64_t now = rte_rdtsc(), limit = rte_get_tsc_hz() / 1000 * HANDSHAKE_MS;

	for (uint16_t i = 0; i < s->attr.members_max; i++) {
		struct member *m = &s->members[i];

		if (state_of(m) == MEMBER_JOINING && (m->conn[0].ended || now - m->since > limit))
			(void)member_state_change(m, MEMBER_JOINING, MEMBER_REMOVED);
		/* a member that rejects the card closes the connection */
		if (m->conn[0].ended && member_state_change(m, MEMBER_INVITED, MEMBER_REMOVED))
			counter_add(&s->refused, 1);
		if (state_of(m) == MEMBER_REMOVED) {
			(void)member_close(m);
			continue;
		}
		/* the member may replace connections that ended */
		for (unsigned int n = 0; n < RDMA_STREAM_CONNS_MAX; n++)
			if (m->conn[n].ended)
				(void)conn_close(&m->conn[n]);
	}
}

/* ---- members: owner lcore -------------------------------------------------------------------- */

/*
 * Send the card to an authenticated member, and retain packets for it from now on. The proof may
 * arrive before the CM's RTU. Nothing can be sent until then, and the next poll calls this again.
 */
static void
member_admit(struct rdma_stream_sender *s, struct member *m)
{
	struct stream_card *card = (void *)message_at(s, m, RECEIVES);
	const struct rdma_sge sge = {(uintptr_t)card, sizeof(*card), rdma_mr_lkey(s->message_mr)};
	const struct rdma_send_wr wr = {
		.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	struct rdma_qp *qp = __atomic_load_n(&m->conn[0].qp, __ATOMIC_ACQUIRE);
	struct rdma_qp_info info;

	if (!qp || rdma_qp_info_get(qp, &info) < 0 || info.state != RDMA_QP_RTS)
		return;
	m->card_pending = false;
	*card = (struct stream_card){.type = STREAM_ANSWER,
		.member = m->number,
		.policy = s->attr.policy,
		.token = m->token,
		.run = s->run,
		.start = s->head,
		.head_addr = (uintptr_t)s->head_block,
		.slot_addr = (uintptr_t)s->slots,
		.tail_addr = (uintptr_t)m->line,
		.ring_rkey = rdma_mr_rkey(s->ring_mr),
		.tail_rkey = rdma_mr_rkey(m->tail_mr),
		.slots = s->attr.slots,
		.slot_bytes = s->slot_bytes,
		.payload_max = s->attr.payload_max,
		.silence_ms = s->attr.silence_ms,
		.ud_qpn = s->ud_qpn};
	m->tail = m->seen = s->head;
	m->beat = 0;
	m->beat_at = s->poll_cycles;
	if (stream_mac(&s->proof, m->key, &m->transcript, card, card->mac) < 0 ||
		rdma_post_send(qp, &wr, 1) != 1 ||
		!member_state_change(m, MEMBER_JOINING, MEMBER_INVITED)) {
		(void)member_state_change(m, MEMBER_JOINING, MEMBER_REMOVED);
		return;
	}
	/* the lowest tail includes the new member from now on */
	counter_set(&s->tail, RTE_MIN(s->tail, m->tail));
}

static void
member_prove(struct rdma_stream_sender *s, struct member *m, const void *message)
{
	const struct stream_proof_message *proof = message;
	uint8_t mac[RDMA_STREAM_MAC_BYTES];
	bool proved = false;

	/* try all keys, so that the time does not reveal which one matches */
	for (unsigned int i = 0; i < s->proof.keys; i++) {
		if (stream_mac(&s->proof, i, &m->transcript, NULL, mac) < 0 ||
			!stream_mac_equal(mac, proof->mac))
			continue;
		m->key = i;
		proved = true;
	}
	if (!proved) {
		counter_add(&s->info.refused_proof, 1);
		(void)member_state_change(m, MEMBER_JOINING, MEMBER_REMOVED);
		return;
	}
	m->card_pending = true;
	member_admit(s, m);
}

/* Collect the ranges that a member requests. An invalid range removes the member. */
static void
member_nacks(struct rdma_stream_sender *s, struct member *m, const struct stream_nack *nack,
	uint32_t length)
{
	uint32_t nb = nack->nb;

	if (length < offsetof(struct stream_nack, range) || nb > STREAM_NACK_RANGES ||
		length < offsetof(struct stream_nack, range) + nb * sizeof(nack->range[0]))
		goto wrong;
	for (uint32_t i = 0; i < nb; i++) {
		const uint64_t first = nack->range[i].first, count = nack->range[i].count;

		if (first > s->head || count > s->head - first)
			goto wrong;
		/* the member requests a range that does not fit again */
		if (s->resend_head - s->resend_tail == RESENDS)
			continue;
		if (s->resend_head == s->resend_tail)
			s->resend_at = s->now + rte_get_tsc_hz() / 1000000 * s->attr.gather_us;
		s->resend[s->resend_head % RESENDS].first = first;
		s->resend[s->resend_head++ % RESENDS].end = first + count;
	}
	return;
wrong:
	counter_add(&s->info.removed_wrong, 1);
	member_remove(m);
}

static void
message_take(struct rdma_stream_sender *s, const struct rdma_wc *wc)
{
	struct member_conn *c = wc->qp_context;
	struct member *m = c->member;
	const uint32_t type = *(const uint32_t *)message_at(s, m, wc->wr_id);
	const int state = state_of(m);

	/* ignore completions of a queue pair that was replaced */
	if (wc->qp != c->qp || wc->wr_id >= RECEIVES)
		return;
	if (state == MEMBER_JOINING && type == STREAM_PROOF &&
		wc->byte_len == sizeof(struct stream_proof_message)) {
		member_prove(s, m, message_at(s, m, wc->wr_id));
	} else if (is_admitted(state) && type == STREAM_NACKS) {
		member_nacks(s, m, (void *)message_at(s, m, wc->wr_id), wc->byte_len);
	} else if (state == MEMBER_JOINING || is_admitted(state)) {
		counter_add(&s->info.removed_wrong, 1);
		(void)member_state_change(m, state, MEMBER_REMOVED);
	}
	if (is_admitted(state_of(m)))
		message_receive(s, c, wc->wr_id);
}

/* Read the line of an admitted member. @return false: the member was removed */
static bool
member_poll(struct rdma_stream_sender *s, struct member *m, uint64_t silence)
{
	const uint64_t beat = __atomic_load_n(&m->line->beat, __ATOMIC_ACQUIRE);
	const uint64_t tail = __atomic_load_n(&m->line->tail, __ATOMIC_ACQUIRE);
	const uint64_t seen = __atomic_load_n(&m->line->seen, __ATOMIC_ACQUIRE);
	char text[RDMA_ADDRESS_LEN];

	if (beat && tail > s->head) {
		counter_add(&s->info.removed_wrong, 1);
		member_remove(m);
		return false;
	}
	/* the first WRITE of the member accepts the card */
	if (beat && member_state_change(m, MEMBER_INVITED, MEMBER_ACTIVE))
		counter_add(&s->info.joined, 1);
	if (__atomic_load_n(&m->line->left, __ATOMIC_ACQUIRE) &&
		member_state_change(m, MEMBER_ACTIVE, MEMBER_REMOVED)) {
		counter_add(&s->info.left, 1);
		return false;
	}
	if (beat != m->beat) {
		m->beat = beat;
		m->beat_at = s->poll_cycles;
		/* a late WRITE over another connection may have an older tail */
		m->tail = RTE_MAX(m->tail, tail);
		/* a forged packet can raise `seen` of a member until it READs the head */
		m->seen = RTE_MAX(m->seen, RTE_MAX(m->tail, RTE_MIN(seen, s->head)));
	} else if (s->poll_cycles - m->beat_at > silence) {
		counter_add(&s->info.removed_silent, 1);
		RDMA_LOG(NOTICE, "stream: member %u, %s, was silent for %u ms: removed", m->number,
			rdma_address_text((const struct sockaddr *)&m->addr, text),
			s->attr.silence_ms);
		member_remove(m);
		return false;
	}
	return true;
}

/*
 * Post receives to the queue pair that the member sends its messages to, once for each queue pair
 * that replaces it. Called by the owner lcore only, because the region's reference count is not
 * atomic.
 */
static void
member_post_receives(struct rdma_stream_sender *s, struct member *m)
{
	struct member_conn *c = &m->conn[0];

	if (!__atomic_load_n(&c->qp, __ATOMIC_ACQUIRE) || c->has_receives)
		return;
	for (unsigned int i = 0; i < RECEIVES; i++)
		message_receive(s, c, i);
	c->has_receives = true;
}

/* Read the lines of all members, and determine the lowest values. */
static void
sender_poll_members(struct rdma_stream_sender *s)
{
	const uint64_t silence = rte_get_tsc_hz() / 1000 * s->attr.silence_ms;
	uint64_t lowest = s->head, seen = STREAM_NONE;
	uint16_t members = 0;

	/* time in which this lcore did not run must not count as silence of the members */
	s->poll_cycles += RTE_MIN(s->now - s->polled_at, silence / 64);
	s->polled_at = s->now;
	for (uint16_t i = 0; i < s->attr.members_max; i++) {
		struct member *m = &s->members[i];

		if (state_of(m) == MEMBER_JOINING || is_admitted(state_of(m)))
			member_post_receives(s, m);
		if (state_of(m) == MEMBER_JOINING && m->card_pending)
			member_admit(s, m);
		if (!is_admitted(state_of(m)) || !member_poll(s, m, silence))
			continue;
		members += state_of(m) == MEMBER_ACTIVE;
		lowest = RTE_MIN(lowest, m->tail);
		if (m->tail != m->seen)
			seen = RTE_MIN(seen, m->seen);
	}
	COUNTER_SET(s->info.members, members);
	counter_set(&s->tail, lowest);
	s->seen = seen;
}

/* ---- sending --------------------------------------------------------------------------------- */

static void
sender_complete(struct rdma_stream_sender *s)
{
	struct rdma_wc wc[32];
	const uint64_t before = s->sent;
	uint16_t n;

	do {
		n = rdma_poll_cq(s->ud_cq, wc, RTE_DIM(wc));
		for (uint16_t i = 0; i < n; i++) {
			if (wc[i].status != RDMA_WC_SUCCESS)
				counter_add(&s->info.send_errors, 1);
			/* upper half: number of the request; requests complete in order */
			s->completed += (uint16_t)((uint16_t)(wc[i].wr_id >> 48) - s->completed);
			s->sent = s->posted - ((s->posted - wc[i].wr_id) & ((1ULL << 48) - 1));
		}
	} while (n == RTE_DIM(wc));
	if (s->sent != before)
		__atomic_store_n(&s->head_block->sent, s->sent, __ATOMIC_RELEASE);
	if (s->resend_lowest != STREAM_NONE && (int64_t)(s->completed - s->resend_request) >= 0)
		s->resend_lowest = STREAM_NONE;
}

/* Post the published packets [from, end). @return number of packets posted */
static uint16_t
sender_post(struct rdma_stream_sender *s, uint64_t from, uint64_t end, bool again)
{
	const uint32_t lkey = rdma_mr_lkey(s->ring_mr);
	struct rdma_send_wr wr[SEND_BURST];
	struct rdma_sge sge[SEND_BURST];
	uint16_t n = (uint16_t)RTE_MIN(end - from, (uint64_t)SEND_BURST), done;

	for (uint16_t i = 0; i < n; i++) {
		const uint64_t request = s->requests + i + 1;
		const struct stream_header *slot = slot_of(s, from + i);
		/* packets before this one are transmitted when the request completes */
		const uint64_t all = again ? s->posted : from + i + 1;

		sge[i] = (struct rdma_sge){(uintptr_t)slot, sizeof(*slot) + slot->length, lkey};
		wr[i] = (struct rdma_send_wr){.wr_id = request << 48 | (all & ((1ULL << 48) - 1)),
			.sg = &sge[i],
			.nb_sge = 1,
			.op = RDMA_OP_SEND_IMM,
			.flags = again || request % SIGNAL_EVERY == 0 || from + i + 1 == end
				? RDMA_SEND_SIGNALED
				: 0,
			.imm = (uint32_t)(from + i),
			.ud = {.ah = s->ah, .remote_qpn = 0xffffff, .remote_qkey = 0x01234567}};
	}
	done = rdma_post_send(s->ud, wr, n);
	s->requests += done;
	return done;
}

/* Retransmit the collected ranges, each packet once even if several members requested it. */
static void
sender_resend(struct rdma_stream_sender *s)
{
	while (s->resend_tail != s->resend_head) {
		uint64_t first = s->resend[s->resend_tail % RESENDS].first;
		const uint64_t end = RTE_MIN(s->resend[s->resend_tail % RESENDS].end, s->posted);
		const uint64_t oldest = s->head > s->attr.slots ? s->head - s->attr.slots : 0;
		uint16_t n;

		first = RTE_MAX(first, RTE_MAX(oldest + s->open, s->attr.first));
		if (s->attr.policy == RDMA_STREAM_WAIT)
			first = RTE_MAX(first, s->tail);
		for (uint32_t i = s->resend_tail + 1; i != s->resend_head; i++) {
			const uint64_t f = s->resend[i % RESENDS].first;

			/* a later range that contains this one is sent instead */
			if (f <= first && s->resend[i % RESENDS].end >= end)
				first = end;
		}
		if (first < end) {
			n = sender_post(s, first, end, true);
			counter_add(&s->info.resent, n);
			if (n) {
				s->resend_request = s->requests;
				s->resend_lowest = RTE_MIN(s->resend_lowest, first);
			}
			if (first + n < end) {
				s->resend[s->resend_tail % RESENDS].first = first + n;
				return;
			}
		}
		s->resend_tail++;
	}
}

static unsigned int
sender_flush(struct rdma_stream_sender *s)
{
	unsigned int sum = 0;
	uint16_t n;

	while (s->posted != s->head) {
		n = sender_post(s, s->posted, s->head, false);
		s->posted += n;
		sum += n;
		if (n < SEND_BURST)
			break;
	}
	return sum;
}

unsigned int
rdma_stream_sender_poll(struct rdma_stream_sender *s)
{
	struct rdma_wc wc[16];
	unsigned int sum;
	uint16_t n;

	s->now = rte_rdtsc();
	sender_complete(s);
	n = rdma_poll_cq(s->rc_cq, wc, RTE_DIM(wc));
	for (uint16_t i = 0; i < n; i++)
		if (wc[i].status == RDMA_WC_SUCCESS && wc[i].op == RDMA_WC_RECV)
			message_take(s, &wc[i]);
	if (s->now >= s->next_poll) {
		sender_poll_members(s);
		s->next_poll = s->now + rte_get_tsc_hz() / 100000; /* 10 us */
	}
	sum = sender_flush(s);
	if (s->resend_head != s->resend_tail && s->now >= s->resend_at)
		sender_resend(s);
	return sum;
}

/*
 * Return true if the next slot is free: its packet is transmitted, and with policy `wait` received
 * by all members. During repair only 1/FLIGHT_PART of the slots is used.
 */
static bool
slot_free(const struct rdma_stream_sender *s)
{
	uint64_t limit = RTE_MIN(s->sent, s->resend_lowest);

	if (s->attr.policy == RDMA_STREAM_WAIT) {
		limit = RTE_MIN(limit, s->tail);
		/*
		 * The responses to READs queue behind the packets in flight. If these were most of
		 * the ring, no slot would become free before a response that must be repeated.
		 */
		if (s->seen != STREAM_NONE && s->head - s->seen >= s->attr.slots / FLIGHT_PART)
			return false;
	}
	return (int64_t)(s->head - limit) < (int64_t)s->attr.slots;
}

void *
rdma_stream_next(struct rdma_stream_sender *s)
{
	struct stream_header *slot = slot_of(s, s->head);

	if (!s->open) {
		if (s->ending)
			return NULL;
		if (!slot_free(s)) {
			sender_complete(s);
			sender_poll_members(s);
			if (!slot_free(s)) {
				counter_add(&s->info.full, 1);
				return NULL;
			}
		}
		/* a READ must find the slot invalid before it finds new bytes */
		__atomic_store_n(&slot->sequence, STREAM_INVALID, __ATOMIC_RELAXED);
		__atomic_thread_fence(__ATOMIC_SEQ_CST);
		s->open = true;
	}
	return slot + 1;
}

int
rdma_stream_commit(struct rdma_stream_sender *s, uint32_t length)
{
	struct stream_header *slot = slot_of(s, s->head);
	struct stream_header header = {.sequence = s->head, .run = s->run, .length = length};

	if (!s->open || length > s->attr.payload_max)
		return -EINVAL;
	header.crc = stream_crc(&header, slot + 1);
	slot->run = header.run;
	slot->length = length;
	slot->crc = header.crc;
	slot->reserved = 0;
	__atomic_store_n(&slot->sequence, s->head, __ATOMIC_RELEASE);
	counter_add(&s->head, 1);
	s->open = false;
	__atomic_store_n(&s->head_block->head, s->head, __ATOMIC_RELEASE);
	if (s->head - s->posted >= SEND_BURST)
		(void)sender_flush(s);
	return 0;
}

void
rdma_stream_end(struct rdma_stream_sender *s)
{
	s->ending = true;
	__atomic_store_n(&s->head_block->end, s->head, __ATOMIC_RELEASE);
}

bool
rdma_stream_sender_done(const struct rdma_stream_sender *s)
{
	return s->ending && s->sent == s->head &&
		(s->attr.policy == RDMA_STREAM_OVERWRITE || s->tail == s->head);
}

int
rdma_stream_sender_info_get(
	const struct rdma_stream_sender *s, struct rdma_stream_sender_info *info)
{
	counters_get(info, &s->info, sizeof(*info));
	info->run = s->run;
	info->head = counter_get(&s->head);
	info->tail = counter_get(&s->tail);
	info->refused = counter_get(&s->refused);
	return 0;
}

uint16_t
rdma_stream_sender_members(
	const struct rdma_stream_sender *s, struct rdma_stream_member_info *member, uint16_t n)
{
	uint16_t found = 0;

	for (uint16_t i = 0; i < s->attr.members_max && found < n; i++) {
		const struct member *m = &s->members[i];

		if (state_of(m) != MEMBER_ACTIVE)
			continue;
		member[found++] = (struct rdma_stream_member_info){.addr = m->addr,
			.identity = m->transcript.request.identity,
			.tail = m->tail,
			.seen = m->seen};
	}
	return found;
}

int
rdma_stream_sender_destroy(struct rdma_stream_sender *s)
{
	bool closed = true;

	if (!s)
		return 0;
	if (s->listener)
		rdma_conn_destroy(s->listener);
	s->listener = NULL;
	for (uint16_t i = 0; s->members && i < s->attr.members_max; i++)
		closed &= member_close(&s->members[i]);
	if (s->ud && rdma_qp_destroy(s->ud) == 0)
		s->ud = NULL;
	if (s->ah && rdma_ah_destroy(s->ah) == 0)
		s->ah = NULL;
	if (!closed || s->ud || s->ah || (s->ring_mr && rdma_mr_dereg(s->ring_mr) < 0))
		return -EBUSY;
	s->ring_mr = NULL;
	if (s->message_mr && rdma_mr_dereg(s->message_mr) < 0)
		return -EBUSY;
	s->message_mr = NULL;
	if (s->ud_cq)
		rdma_cq_destroy(s->ud_cq);
	if (s->rc_cq)
		rdma_cq_destroy(s->rc_cq);
	if (s->memory)
		rdma_pages_unmap(s->memory, s->memory_bytes);
	rte_free(s->tails);
	rte_free(s->messages);
	free(s->members);
	rte_free(s);
	return 0;
}
