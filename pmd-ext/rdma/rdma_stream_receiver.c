/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A receiver of a stream. The control lcore connects; the owner lcore receives, finds gaps, READs
 * missing packets, and reports the packets that have arrived. `phase` and the state of each
 * connection pass between them.
 */
#include "rdma_stream.h"

#include <errno.h>
#include <inttypes.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "counter.h"
#include "rdma_pages.h"
#include "rdma_provider.h"
#include "rdma_stream_window.h"
#include "rdma_stream_wire.h"

#define RECV_BURST	32
#define HEADER_AT	96 /* offset in a buffer that aligns the payload to 64 bytes */
#define GRH_AT		(HEADER_AT - RDMA_GRH_BYTES)
#define RECONNECT_MS	50 /* delay after a failed connection */
#define CARD_TIMEOUT_MS 5000
#define REFUSALS_MAX	3   /* the receiver fails after this number of rejected proofs */
#define OVERDUE_US	200 /* an idle receiver repeats READs of missing packets after this time */
#define TAIL_RETRY_US	500 /* an idle receiver repeats a WRITE of its tail after this time */
#define SLOT_RETRY_US	20  /* a READ of a slot that was not written is repeated after this time */
#define REJ_CONSUMER	28  /* REJ reason "consumer reject" (IBTA 12.6.7.2) */
#define QUIET_SHIFT	6   /* the head of an idle stream is READ at least every quiet_us x 2^6 */

enum phase {
	PHASE_CONNECT, /* control: start the first connection */
	PHASE_REPLY,   /* control: wait for the REP of the first connection */
	PHASE_PROVE,   /* owner: send the proof */
	PHASE_CARD,    /* owner: wait for the card */
	PHASE_RUN,     /* the card is valid; control: keep all connections open */
	PHASE_CLOSE,   /* control: close all connections, then PHASE_CONNECT */
	PHASE_FAILED,  /* control: close all connections */
};

/* Each comment begins with the lcore that acts on a connection in this state. */
enum conn_state {
	CONN_NONE,	 /* control */
	CONN_CONNECTING, /* control: the REP is awaited */
	CONN_UP,	 /* owner: requests may be posted */
	CONN_BROKEN,	 /* owner: requests are being flushed */
	CONN_FLUSHED,	 /* control: the connection is to be destroyed */
};

struct conn {
	struct rdma_stream_receiver *r;
	unsigned int number;
	int state; /* enum conn_state */
	struct rdma_conn *conn;
	struct rdma_qp *qp;
	uint64_t retry_at; /* control lcore; TSC */
	/* owner lcore */
	unsigned int flights; /* requests in flight */
	unsigned int reads;   /* READs of slots among these */
	bool tail;	      /* a WRITE of the tail is among these */
	bool rtt_known; /* a request has completed: the queue pair has measured the round trip */
};

/* A READ of slots in flight. */
struct flight {
	struct conn *conn; /* NULL: free */
	uint64_t first;
	uint16_t nb;
	uint32_t buffer[RDMA_SGE_MAX];
};

/* Kinds of requests, in the upper half of wr_id. */
enum request {
	REQUEST_SLOTS, /* lower half: the flight */
	REQUEST_HEAD,
	REQUEST_TAIL,
	REQUEST_MESSAGE,
	REQUEST_ANSWER, /* the receive for the card */
};

struct rdma_stream_receiver {
	struct rdma_stream_receiver_attr attr;
	struct rdma_stream_proof proof;
	struct sockaddr_storage sender;
	struct rdma_qp *ud;
	struct rdma_cq *ud_cq, *rc_cq;
	struct rdma_conn *membership;
	struct rdma_mr *mr;
	uint8_t *memory; /* the buffers, head, answer and message, in this order */
	uint64_t memory_bytes;
	struct stream_head *head; /* destination of READs of the sender's head */
	struct stream_card *answer;
	uint8_t *message;
	uint32_t slot_bytes, stride, nb_buffers, lkey;
	struct conn conn[RDMA_STREAM_CONNS_MAX];
	int phase; /* enum phase */
	struct stream_transcript transcript;
	struct stream_card card;
	uint64_t deadline; /* control lcore: end of the handshake, TSC */
	uint64_t connect_at;
	unsigned int refusals;

	/* owner lcore */
	struct stream_window window;
	uint64_t end;
	bool card_pending; /* a new card takes effect when the window is empty */
	bool has_window;
	bool leaving;
	uint64_t lost_before; /* packets lost since the last one delivered */
	struct flight *flights;
	uint32_t nb_flights, used_flights;
	uint32_t next_conn; /* round-robin start index */
	uint32_t *recv_free, nb_recv_free;
	uint32_t *repair_free, nb_repair_free;
	uint64_t now, hz, arrived_at;
	uint64_t head_interval; /* TSC cycles without a packet until the head is READ */
	uint64_t overdue_at;	/* TSC of the last READ over another connection */
	bool head_flight;
	uint64_t head_seen; /* window.seen when the READ of the head was posted */
	bool leave_flight, message_flight;
	uint16_t tail_flights; /* WRITEs of the tail in flight, at most one on each connection */
	uint64_t tail_sent, seen_sent, tail_at, beat;
	uint64_t nack_at;
	struct rdma_stream_receiver_info info;
};

static struct stream_header *
header_of(const struct rdma_stream_receiver *r, uint32_t buffer)
{
	return (struct stream_header *)(r->memory + (uint64_t)buffer * r->stride + HEADER_AT);
}

static int
phase_of(const struct rdma_stream_receiver *r)
{
	return __atomic_load_n(&r->phase, __ATOMIC_ACQUIRE);
}

/* Change the phase unless the other lcore has changed it. */
static void
phase_change(struct rdma_stream_receiver *r, int from, enum phase to)
{
	(void)__atomic_compare_exchange_n(
		&r->phase, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

static int
conn_state(const struct conn *c)
{
	return __atomic_load_n(&c->state, __ATOMIC_ACQUIRE);
}

/* Change the state unless the other lcore has changed it. */
static bool
conn_state_change(struct conn *c, int from, int to)
{
	return __atomic_compare_exchange_n(
		&c->state, &from, to, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
}

/* Both lcores may call this. A receiver that has failed stays in PHASE_FAILED. */
static void
fail(struct rdma_stream_receiver *r, int error, const char *why)
{
	RDMA_LOG(ERR, "stream: receiver stops: %s", why);
	COUNTER_SET(r->info.error, error);
	__atomic_store_n(&r->phase, PHASE_FAILED, __ATOMIC_RELEASE);
}

/* ---- creation -------------------------------------------------------------------------------- */

static int
receiver_defaults(struct rdma_stream_receiver *r, const struct rdma_stream_receiver_attr *attr)
{
	struct rdma_stream_receiver_attr *a = &r->attr;
	struct rdma_dev_info info;

	*a = *attr;
	if (!a->dev || !a->pd || !a->group || !a->sender)
		return -EINVAL;
	rdma_dev_info_get(a->dev, &info);
	a->payload_max = a->payload_max ? a->payload_max : info.mtu - RDMA_STREAM_HEADER_BYTES;
	a->buffers = a->buffers ? a->buffers : 4096;
	a->repair_buffers = a->repair_buffers ? a->repair_buffers : 1024;
	a->reads = a->reads ? a->reads : 4;
	a->reads_max = a->reads_max ? a->reads_max : 4;
	a->range_max = a->range_max ? a->range_max : 8;
	a->quiet_us = a->quiet_us ? a->quiet_us : 200;
	a->nack_gather_us = a->nack_gather_us ? a->nack_gather_us : 100;
	a->nack_again_us = a->nack_again_us ? a->nack_again_us : 5000;
	if (a->payload_max + RDMA_STREAM_HEADER_BYTES > info.mtu || a->buffers < RECV_BURST ||
		a->buffers > info.max_wr || a->repair_buffers > 1U << 24 ||
		a->reads > RDMA_STREAM_CONNS_MAX || a->reads_max > 64 ||
		a->range_max > RTE_MIN(info.max_sge, RDMA_SGE_MAX) ||
		a->repair > RDMA_STREAM_NO_REPAIR)
		return -EINVAL;
	memcpy(&r->sender, a->sender,
		a->sender->sa_family == AF_INET ? sizeof(struct sockaddr_in)
						: sizeof(struct sockaddr_in6));
	if (a->proof)
		r->proof = *a->proof;
	r->slot_bytes = RTE_ALIGN_CEIL(a->payload_max + RDMA_STREAM_HEADER_BYTES, 64);
	r->stride = RTE_ALIGN_CEIL(HEADER_AT + r->slot_bytes, 64);
	r->nb_buffers = a->buffers + a->repair_buffers;
	r->hz = rte_get_tsc_hz();
	return 0;
}

static int
receiver_memory(struct rdma_stream_receiver *r)
{
	enum rdma_pages_kind kind = RDMA_PAGES_HUGETLB;
	struct rdma_mr_attr mr = {.access = RDMA_ACCESS_LOCAL_WRITE, .gpu = -1};
	struct rdma_dev_info info;
	uint8_t *rest;

	rdma_dev_info_get(r->attr.dev, &info);
	mr.length = (uint64_t)r->nb_buffers * r->stride + 64 + 2 * STREAM_MESSAGE_BYTES;
	r->memory_bytes = mr.length;
	r->memory = rdma_pages_map(&r->memory_bytes, info.numa_node, &kind);
	r->nb_flights = r->attr.reads * r->attr.reads_max;
	/* a power of two that holds more than the sender's slots */
	if (stream_window_init(&r->window, rte_align32pow2(r->attr.buffers) * 2) < 0)
		return -ENOMEM;
	r->window.lost = &r->info.lost;
	r->window.repair = r->attr.repair != RDMA_STREAM_NO_REPAIR;
	if (r->attr.repair == RDMA_STREAM_NACK)
		r->window.gather = r->hz / 1000000 * r->attr.nack_gather_us;
	r->flights = calloc(r->nb_flights, sizeof(*r->flights));
	r->recv_free = calloc(r->attr.buffers, sizeof(*r->recv_free));
	r->repair_free = calloc(r->attr.repair_buffers, sizeof(*r->repair_free));
	if (!r->memory || !r->flights || !r->recv_free || !r->repair_free ||
		rdma_pages_prefault(r->memory, r->memory_bytes, 0) < 0)
		return -ENOMEM;
	rest = r->memory + (uint64_t)r->nb_buffers * r->stride;
	r->head = (struct stream_head *)rest;
	r->answer = (struct stream_card *)(rest + 64);
	r->message = rest + 64 + STREAM_MESSAGE_BYTES;
	for (uint32_t i = 0; i < r->attr.buffers; i++)
		r->recv_free[r->nb_recv_free++] = i;
	for (uint32_t i = 0; i < r->attr.repair_buffers; i++)
		r->repair_free[r->nb_repair_free++] = r->attr.buffers + i;
	mr.addr = r->memory;
	r->mr = rdma_mr_reg(r->attr.pd, &mr);
	if (!r->mr)
		return -rte_errno;
	r->lkey = rdma_mr_lkey(r->mr);
	return 0;
}

static int
receiver_queues(struct rdma_stream_receiver *r)
{
	struct rdma_qp_attr ud = {.type = RDMA_QP_UD,
		.poll_group = r->attr.poll_group,
		.max_send_wr = 1,
		.max_recv_wr = r->attr.buffers};

	r->ud_cq = rdma_cq_create(r->attr.dev, r->attr.buffers + 1, r->attr.poll_group);
	r->rc_cq = rdma_cq_create(
		r->attr.dev, r->attr.reads * (r->attr.reads_max + 8), r->attr.poll_group);
	if (!r->ud_cq || !r->rc_cq)
		return -ENOMEM;
	ud.send_cq = ud.recv_cq = r->ud_cq;
	r->ud = rdma_qp_create(r->attr.pd, &ud);
	if (!r->ud)
		return -rte_errno;
	r->membership = rdma_multicast_join(r->ud, r->attr.group, r);
	return r->membership ? 0 : -rte_errno;
}

struct rdma_stream_receiver *
rdma_stream_receiver_create(const struct rdma_stream_receiver_attr *attr)
{
	struct rdma_stream_receiver *r =
		rte_zmalloc("rdma_stream", sizeof(*r), RTE_CACHE_LINE_SIZE);
	int ret;

	if (!r) {
		rte_errno = ENOMEM;
		return NULL;
	}
	for (unsigned int i = 0; i < RDMA_STREAM_CONNS_MAX; i++) {
		r->conn[i].r = r;
		r->conn[i].number = i;
	}
	r->end = STREAM_NONE;
	ret = receiver_defaults(r, attr);
	if (ret == 0)
		ret = receiver_memory(r);
	if (ret == 0)
		ret = receiver_queues(r);
	if (ret == 0)
		return r;
	RDMA_LOG(ERR, "stream: cannot create the receiver: %s", rte_strerror(-ret));
	(void)rdma_stream_receiver_destroy(r);
	rte_errno = -ret;
	return NULL;
}

/* ---- connections: control lcore -------------------------------------------------------------- */

static bool
conn_close(struct conn *c)
{
	if (c->conn)
		rdma_conn_destroy(c->conn);
	c->conn = NULL;
	if (c->qp && rdma_qp_destroy(c->qp) < 0)
		return false;
	c->qp = NULL;
	__atomic_store_n(&c->state, CONN_NONE, __ATOMIC_RELEASE);
	return true;
}

static void
conn_connect(struct rdma_stream_receiver *r, struct conn *c, enum stream_kind kind)
{
	const struct rdma_qp_attr qp = {.type = RDMA_QP_RC,
		.poll_group = r->attr.poll_group,
		.send_cq = r->rc_cq,
		.recv_cq = r->rc_cq,
		.context = c,
		.max_send_wr = r->attr.reads_max + 4,
		.max_recv_wr = 1,
		.max_send_sge = r->attr.range_max,
		.max_inline = 64,
		.retry_count = 0xff,
		.rnr_retry = 0xff};
	struct stream_request request = {.magic = STREAM_MAGIC,
		.kind = kind,
		.number = c->number,
		.identity = r->attr.identity,
		.member = r->card.member,
		.token = kind == STREAM_ATTACH ? r->card.token : 0};
	const struct rdma_conn_attr attr = {.private_data = &request,
		.private_len = sizeof(request),
		.context = r,
		.keepalive_ms = 1000};

	c->retry_at = rte_rdtsc() + r->hz / 1000 * RECONNECT_MS;
	if (kind == STREAM_JOIN) {
		if (stream_random(request.nonce, sizeof(request.nonce)) < 0)
			return;
		memset(&r->transcript, 0, sizeof(r->transcript));
		r->transcript.request = request;
	}
	c->flights = c->reads = 0;
	c->tail = c->rtt_known = false;
	c->qp = rdma_qp_create(r->attr.pd, &qp);
	if (!c->qp)
		return;
	__atomic_store_n(&c->state, CONN_CONNECTING, __ATOMIC_RELEASE);
	c->conn = rdma_conn_connect(c->qp, (const struct sockaddr *)&r->sender, &attr);
	if (!c->conn)
		(void)conn_close(c);
}

static void
conn_established(struct conn *c, const struct rdma_event *event)
{
	struct rdma_stream_receiver *r = c->r;
	struct rdma_qp_info info;

	if (phase_of(r) == PHASE_REPLY && c->number == 0) {
		if (event->private_len >= sizeof(r->transcript.reply))
			memcpy(&r->transcript.reply, event->private_data,
				sizeof(r->transcript.reply));
		if (r->transcript.reply.magic != STREAM_MAGIC) {
			/* another service uses this port: try again, since it may end */
			phase_change(r, PHASE_REPLY, PHASE_CLOSE);
			return;
		}
		rdma_qp_info_get(c->qp, &info);
		r->transcript.qpn[0] = info.qpn;
		r->transcript.qpn[1] = event->remote_qpn;
		__atomic_store_n(&c->state, CONN_UP, __ATOMIC_RELEASE);
		r->deadline = rte_rdtsc() + r->hz / 1000 * CARD_TIMEOUT_MS;
		phase_change(r, PHASE_REPLY, PHASE_PROVE);
		return;
	}
	__atomic_store_n(&c->state, CONN_UP, __ATOMIC_RELEASE);
}

/* A connection has ended or was not made. */
static void
conn_ended(struct conn *c, const struct rdma_event *event)
{
	struct rdma_stream_receiver *r = c->r;
	const int phase = phase_of(r);
	int32_t why;

	if (conn_state(c) == CONN_CONNECTING)
		(void)conn_state_change(c, CONN_CONNECTING, CONN_FLUSHED);
	else
		(void)conn_state_change(c, CONN_UP, CONN_BROKEN);
	if ((phase == PHASE_PROVE || phase == PHASE_CARD) && c->number == 0) {
		if (event->status == 0 && ++r->refusals == REFUSALS_MAX) {
			fail(r, -EACCES, "the sender has refused the proof");
			return;
		}
		phase_change(r, phase, PHASE_CLOSE);
	} else if (phase == PHASE_REPLY && c->number == 0) {
		phase_change(r, phase, PHASE_CLOSE);
	} else if (phase == PHASE_RUN && event->type == RDMA_EVENT_REJECTED &&
		event->status == REJ_CONSUMER && event->private_len >= sizeof(why)) {
		memcpy(&why, event->private_data, sizeof(why));
		/*
		 * busy: the old connection still exists. Otherwise the sender no longer knows the
		 * member
		 */
		if (why != -EBUSY)
			phase_change(r, phase, PHASE_CLOSE);
	}
}

bool
rdma_stream_receiver_event(struct rdma_stream_receiver *r, const struct rdma_event *event)
{
	if (event->conn && event->conn == r->membership)
		return true;
	if (event->type == RDMA_EVENT_CONNECT_REQUEST || (!event->conn && !event->qp))
		return false;
	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[i];

		if (!(event->conn && event->conn == c->conn) && !(event->qp && event->qp == c->qp))
			continue;
		if (event->type == RDMA_EVENT_ESTABLISHED)
			conn_established(c, event);
		else
			conn_ended(c, event);
		return true;
	}
	return event->qp && event->qp == r->ud;
}

static void
receiver_close_conns(struct rdma_stream_receiver *r)
{
	bool all = true;

	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[i];

		if (conn_state(c) == CONN_CONNECTING)
			(void)conn_state_change(c, CONN_CONNECTING, CONN_FLUSHED);
		(void)conn_state_change(c, CONN_UP, CONN_BROKEN);
		if (conn_state(c) == CONN_BROKEN && c->qp)
			rdma_qp_error(c->qp);
		if (conn_state(c) == CONN_FLUSHED)
			(void)conn_close(c);
		all &= conn_state(c) == CONN_NONE;
	}
	if (!all || phase_of(r) != PHASE_CLOSE)
		return;
	r->connect_at = rte_rdtsc() + r->hz / 1000 * RECONNECT_MS;
	phase_change(r, PHASE_CLOSE, PHASE_CONNECT);
}

void
rdma_stream_receiver_control(struct rdma_stream_receiver *r)
{
	const uint64_t now = rte_rdtsc();
	const int phase = phase_of(r);

	if (phase == PHASE_CONNECT && now >= r->connect_at && !r->leaving) {
		phase_change(r, PHASE_CONNECT, PHASE_REPLY);
		conn_connect(r, &r->conn[0], STREAM_JOIN);
		if (conn_state(&r->conn[0]) != CONN_CONNECTING)
			phase_change(r, PHASE_REPLY, PHASE_CLOSE);
	} else if ((phase == PHASE_PROVE || phase == PHASE_CARD) && now > r->deadline) {
		phase_change(r, phase, PHASE_CLOSE);
	} else if (phase == PHASE_CLOSE || phase == PHASE_FAILED) {
		/*
		 * with policy `wait`, the sender must not wait for a member that has rejected its
		 * card
		 */
		receiver_close_conns(r);
	}
	if (phase_of(r) != PHASE_RUN)
		return;
	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[i];

		if (conn_state(c) == CONN_BROKEN && c->qp)
			rdma_qp_error(c->qp);
		if (conn_state(c) == CONN_FLUSHED && conn_close(c))
			counter_add(&r->info.rejoins, 1);
		if (conn_state(c) == CONN_NONE && now >= c->retry_at && !r->leaving)
			conn_connect(r, c, STREAM_ATTACH);
	}
}

/* ---- the window: owner lcore ----------------------------------------------------------------- */

static void
buffer_free(struct rdma_stream_receiver *r, uint32_t buffer)
{
	if (buffer < r->attr.buffers)
		r->recv_free[r->nb_recv_free++] = buffer;
	else
		r->repair_free[r->nb_repair_free++] = buffer;
}

/*
 * Allocate a buffer for a READ. While the application holds all repair buffers, take a receive
 * buffer: otherwise the missing packet that blocks delivery might never be READ.
 */
static uint32_t
buffer_take(struct rdma_stream_receiver *r)
{
	return r->nb_repair_free ? r->repair_free[--r->nb_repair_free]
				 : r->recv_free[--r->nb_recv_free];
}

/* Put the new card into effect, once all packets of the old membership are delivered. */
static void
window_begin(struct rdma_stream_receiver *r)
{
	if (r->window.deliver != r->window.seen || r->used_flights)
		return;
	if (r->has_window && r->info.run == r->card.run && r->card.start > r->window.deliver) {
		counter_add(&r->info.lost, r->card.start - r->window.deliver);
		r->lost_before += r->card.start - r->window.deliver;
	}
	/* losses of the old run are not reported with packets of the new one */
	if (r->info.run != r->card.run)
		r->lost_before = 0;
	if (!r->has_window || r->info.run != r->card.run || r->card.start > r->window.deliver)
		r->window.deliver = r->window.next = r->window.seen = r->card.start;
	r->window.slots = r->card.slots;
	counter_set(&r->info.run, r->card.run);
	counter_set(&r->info.start, r->card.start);
	r->end = STREAM_NONE;
	r->tail_sent = r->seen_sent = r->card.start;
	r->tail_at = 0;
	r->arrived_at = 0; /* makes the head be READ at once */
	r->head_interval = r->hz / 1000000 * r->attr.quiet_us;
	r->has_window = true;
	r->card_pending = false;
	stream_window_see(&r->window, r->card.start);
}

/* ---- receiving ------------------------------------------------------------------------------- */

/* Return true if the datagram has the sender's address and queue pair number. */
static bool
from_sender(const struct rdma_stream_receiver *r, const struct rdma_wc *wc, const uint8_t *grh)
{
	if (wc->src_qpn != r->card.ud_qpn)
		return false;
	if (!(wc->flags & RDMA_WC_GRH))
		return true;
	if (r->sender.ss_family == AF_INET)
		return memcmp(grh + 32, &((const struct sockaddr_in *)&r->sender)->sin_addr, 4) ==
			0;
	return memcmp(grh + 8, &((const struct sockaddr_in6 *)&r->sender)->sin6_addr, 16) == 0;
}

/* Store a datagram in the window. @return false: rejected, the caller frees the buffer */
static bool
packet_take(struct rdma_stream_receiver *r, const struct rdma_wc *wc, uint32_t buffer)
{
	const struct stream_header *h = header_of(r, buffer);
	const uint64_t sequence = h->sequence;
	struct stream_entry *e;

	if (!r->has_window || r->card_pending)
		return false;
	if (!(wc->flags & RDMA_WC_WITH_IMM) || wc->byte_len < RDMA_GRH_BYTES + sizeof(*h) ||
		wc->byte_len != RDMA_GRH_BYTES + sizeof(*h) + h->length ||
		!from_sender(r, wc, (const uint8_t *)h - RDMA_GRH_BYTES) ||
		wc->imm != (uint32_t)sequence || sequence >= STREAM_INVALID - UINT32_MAX) {
		counter_add(&r->info.foreign, 1);
		return false;
	}
	if (h->run != r->card.run) {
		counter_add(&r->info.stale, 1);
		return false;
	}
	if (sequence < r->window.deliver) {
		counter_add(&r->info.duplicate, 1);
		return false;
	}
	if (sequence >= r->window.deliver + r->window.size) {
		/* too far ahead for the window: a READ of the head shows the cause */
		counter_add(&r->info.stale, 1);
		r->arrived_at = 0;
		return false;
	}
	if (sequence >= r->window.seen) {
		if (sequence > r->window.seen)
			stream_window_see(&r->window, sequence);
		r->window.seen = sequence + 1;
		stream_entry_fill(stream_entry(&r->window, sequence), buffer);
		counter_add(&r->info.received, 1);
		return true;
	}
	e = stream_entry(&r->window, sequence);
	if (e->state >= ENTRY_HERE) {
		counter_add(&r->info.duplicate, 1);
		return false;
	}
	stream_entry_fill(e, buffer);
	counter_add(&r->info.received, 1);
	return true;
}

static void
receives_post(struct rdma_stream_receiver *r)
{
	struct rdma_recv_wr wr[RECV_BURST];
	struct rdma_sge sge[RECV_BURST];
	uint32_t n;

	while (r->nb_recv_free >= RECV_BURST) {
		for (n = 0; n < RECV_BURST; n++) {
			const uint32_t buffer = r->recv_free[r->nb_recv_free - 1 - n];

			sge[n] = (struct rdma_sge){
				(uintptr_t)r->memory + (uint64_t)buffer * r->stride + GRH_AT,
				RDMA_GRH_BYTES + r->slot_bytes, r->lkey};
			wr[n] = (struct rdma_recv_wr){.wr_id = buffer, .sg = &sge[n], .nb_sge = 1};
		}
		n = rdma_post_recv(r->ud, wr, RECV_BURST);
		r->nb_recv_free -= n;
		if (n < RECV_BURST)
			return;
	}
}

/* Receive from the multicast group. @return number of datagrams, including rejected ones */
static uint16_t
group_poll(struct rdma_stream_receiver *r)
{
	struct rdma_wc wc[RECV_BURST];
	uint16_t n = rdma_poll_cq(r->ud_cq, wc, RTE_DIM(wc));

	for (uint16_t i = 0; i < n; i++) {
		if (wc[i].status != RDMA_WC_SUCCESS || !packet_take(r, &wc[i], wc[i].wr_id)) {
			buffer_free(r, wc[i].wr_id);
			continue;
		}
		r->arrived_at = r->now;
		r->head_interval = r->hz / 1000000 * r->attr.quiet_us;
	}
	return n;
}

/* ---- repair ---------------------------------------------------------------------------------- */

static struct conn *
conn_choose(struct rdma_stream_receiver *r, bool for_slots)
{
	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[r->next_conn++ % r->attr.reads];

		/* before the round trip is known, losses on a connection are detected late */
		if (conn_state(c) == CONN_UP &&
			(!for_slots || (c->rtt_known && c->reads < r->attr.reads_max)))
			return c;
	}
	return NULL;
}

static bool
request_post(struct conn *c, struct rdma_send_wr *wr, enum request request, uint32_t number)
{
	wr->wr_id = (uint64_t)request << 32 | number;
	wr->flags |= RDMA_SEND_SIGNALED;
	if (rdma_post_send(c->qp, wr, 1) != 1)
		return false;
	c->flights++;
	return true;
}

static bool
read_slots(struct rdma_stream_receiver *r)
{
	struct rdma_sge sge[RDMA_SGE_MAX];
	struct rdma_send_wr wr = {.sg = sge, .op = RDMA_OP_READ, .rkey = r->card.ring_rkey};
	const uint16_t most =
		RTE_MIN(r->nb_repair_free + r->nb_recv_free, (uint32_t)r->attr.range_max);
	struct flight *f = NULL;
	struct conn *c;
	uint32_t i;

	if (stream_window_is_repaired(&r->window) || r->used_flights == r->nb_flights || !most)
		return false;
	c = conn_choose(r, true);
	if (!c)
		return false;
	for (i = 0; i < r->nb_flights && !f; i++)
		if (!r->flights[i].conn)
			f = &r->flights[i];
	f->nb = stream_window_take(&r->window, most, &f->first);
	if (!f->nb)
		return false;
	for (i = 0; i < f->nb; i++) {
		f->buffer[i] = buffer_take(r);
		sge[i] = (struct rdma_sge){
			(uintptr_t)header_of(r, f->buffer[i]), r->card.slot_bytes, r->lkey};
	}
	wr.nb_sge = f->nb;
	wr.remote_addr =
		r->card.slot_addr + (f->first & (r->card.slots - 1)) * (uint64_t)r->card.slot_bytes;
	if (!request_post(c, &wr, REQUEST_SLOTS, f - r->flights)) {
		for (i = 0; i < f->nb; i++)
			buffer_free(r, f->buffer[i]);
		stream_window_again(
			&r->window, f->first, f->first + f->nb, r->hz / 1000000 * SLOT_RETRY_US);
		return false;
	}
	f->conn = c;
	c->reads++;
	r->used_flights++;
	for (i = 0; i < f->nb; i++)
		stream_entry(&r->window, f->first + i)->state = ENTRY_READING;
	counter_add(&r->info.reads, 1);
	return true;
}

/*
 * Repeat the READ of the packets that block delivery, over another connection. While no other
 * packet arrives, a response is not queued behind others: the request or the response is lost. The
 * local ACK timer of the connection expires later, because its round-trip time was measured under
 * load. The first of the two responses is used.
 */
static void
read_overdue(struct rdma_stream_receiver *r)
{
	struct stream_window *w = &r->window;
	const uint64_t timeout = r->hz / 1000000 * OVERDUE_US;
	uint64_t s = w->next;

	if (r->now - r->arrived_at < timeout || r->now - r->overdue_at < timeout)
		return;
	while (s < w->seen && s - w->next < r->attr.range_max &&
		stream_entry(w, s)->state == ENTRY_READING)
		stream_entry(w, s++)->state = ENTRY_MISSING;
	if (s == w->next)
		return;
	r->overdue_at = r->now;
	stream_window_again(w, w->next, s, 0);
}

static void
read_head(struct rdma_stream_receiver *r)
{
	const struct rdma_sge sge = {(uintptr_t)r->head, sizeof(*r->head), r->lkey};
	struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_READ,
		.remote_addr = r->card.head_addr,
		.rkey = r->card.ring_rkey};
	struct conn *c = conn_choose(r, false);

	if (!c || !request_post(c, &wr, REQUEST_HEAD, 0))
		return;
	r->head_flight = true;
	r->head_seen = r->window.seen;
	counter_add(&r->info.head_reads, 1);
}

/* Store one slot of a READ in the window. @return false: rejected, the caller frees the buffer */
static bool
slot_take(struct rdma_stream_receiver *r, uint64_t sequence, uint32_t buffer)
{
	const struct stream_header *h = header_of(r, buffer);
	struct stream_entry *e = stream_entry(&r->window, sequence);

	if (sequence < r->window.next || sequence >= r->window.seen || e->state != ENTRY_READING)
		return false;
	if (h->sequence == sequence && h->run == r->card.run && h->length <= r->card.payload_max &&
		stream_crc(h, h + 1) == h->crc) {
		stream_entry_fill(e, buffer);
		counter_add(&r->info.repaired, 1);
		return true;
	}
	e->state = ENTRY_MISSING;
	if (h->sequence == sequence) {
		counter_add(&r->info.wrong_crc, 1);
	} else if (h->sequence != STREAM_INVALID && h->sequence > sequence) {
		stream_entry_lose(&r->window, e);
		return false;
	} else {
		/*
		 * The slot is being written, or a forged packet made the window advance to it. A
		 * READ of the head distinguishes the two.
		 */
		counter_add(&r->info.not_written, 1);
		r->arrived_at = 0;
	}
	stream_window_again(&r->window, sequence, sequence + 1, r->hz / 1000000 * SLOT_RETRY_US);
	return false;
}

static void
slots_done(struct rdma_stream_receiver *r, struct flight *f, bool success)
{
	f->conn->reads--;
	f->conn = NULL;
	r->used_flights--;
	for (uint16_t i = 0; i < f->nb; i++) {
		const uint64_t s = f->first + i;

		if (success && slot_take(r, s, f->buffer[i]))
			continue;
		buffer_free(r, f->buffer[i]);
		if (!success && s >= r->window.next && s < r->window.seen &&
			stream_entry(&r->window, s)->state == ENTRY_READING) {
			stream_entry(&r->window, s)->state = ENTRY_MISSING;
			stream_window_again(&r->window, s, s + 1, r->hz / 1000000 * SLOT_RETRY_US);
		}
	}
	counter_add(&r->info.read_errors, !success);
}

/* Drop the packets from `head` on: the sender has not published them, so they were forged. */
static void
window_truncate(struct rdma_stream_receiver *r, uint64_t head)
{
	head = RTE_MAX(head, r->window.deliver);
	while (r->window.seen > head) {
		struct stream_entry *e = stream_entry(&r->window, --r->window.seen);

		if (e->state == ENTRY_HERE) {
			buffer_free(r, e->buffer);
			counter_add(&r->info.foreign, 1);
		}
		e->state = ENTRY_MISSING;
	}
	r->window.next = RTE_MIN(r->window.next, r->window.seen);
}

static void
head_done(struct rdma_stream_receiver *r)
{
	const uint64_t head = r->head->head;
	const bool again = head == r->head_seen;

	/* first process the datagrams that the sender transmitted before the response */
	while (group_poll(r) > 0)
		;
	r->arrived_at = r->now;
	if (r->head->run != r->card.run || r->card_pending)
		return;
	r->end = r->head->end;
	if (head < r->head_seen)
		window_truncate(r, head);
	if (r->card.policy == RDMA_STREAM_OVERWRITE && head > r->card.slots)
		stream_window_skip(&r->window, head - r->card.slots);
	stream_window_see(&r->window, r->head->sent);
	r->head_interval = RTE_MIN(again ? r->head_interval * 2 : r->head_interval,
		r->hz / 1000000 * r->attr.quiet_us << QUIET_SHIFT);
}

/* Request missing packets by a NACK (RDMA_STREAM_NACK, the baseline of the benchmarks). */
static void
nack_send(struct rdma_stream_receiver *r)
{
	struct stream_nack *nack = (struct stream_nack *)r->message;
	const struct rdma_sge sge = {(uintptr_t)nack, sizeof(*nack), r->lkey};
	struct rdma_send_wr wr = {.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND};
	struct conn *c = &r->conn[0];
	uint64_t first;
	uint16_t n;

	if (r->message_flight || conn_state(c) != CONN_UP || r->now < r->nack_at)
		return;
	nack->type = STREAM_NACKS;
	nack->nb = 0;
	while (nack->nb < STREAM_NACK_RANGES &&
		(n = stream_window_take(&r->window, r->attr.range_max, &first)) > 0) {
		nack->range[nack->nb].first = first;
		nack->range[nack->nb++].count = n;
		counter_add(&r->info.nacks, n);
		stream_window_again(
			&r->window, first, first + n, r->hz / 1000000 * r->attr.nack_again_us);
	}
	if (nack->nb && request_post(c, &wr, REQUEST_MESSAGE, 0))
		r->message_flight = true;
}

/* ---- messages of this member ----------------------------------------------------------------- */

/* Find a connection that has sent no request yet. */
static struct conn *
conn_find_unused(struct rdma_stream_receiver *r)
{
	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[i];

		/* until it is up, the control lcore writes the other members */
		if (conn_state(c) == CONN_UP && !c->rtt_known && c->flights == 0)
			return c;
	}
	return NULL;
}

static void
tail_send(struct rdma_stream_receiver *r)
{
	const uint64_t idle = r->now - r->tail_at;
	const struct stream_tail tail = {.tail = r->window.next,
		.beat = r->beat + 1,
		.left = r->leaving,
		.seen = r->window.seen};
	const struct rdma_sge sge = {(uintptr_t)&tail, offsetof(struct stream_tail, reserved), 0};
	struct rdma_send_wr wr = {.sg = &sge,
		.nb_sge = 1,
		.op = RDMA_OP_WRITE,
		.flags = RDMA_SEND_INLINE,
		.remote_addr = r->card.tail_addr,
		.rkey = r->card.tail_rkey};
	const bool moved = r->window.next != r->tail_sent || r->window.seen != r->seen_sent;
	/* without loss, `next` and `seen` advance together and one WRITE reports both */
	const uint64_t unsent = RTE_MAX(r->window.next - r->tail_sent,
		r->window.seen > r->seen_sent ? r->window.seen - r->seen_sent : 0);
	struct conn *c = conn_find_unused(r);

	/* a late WRITE of a smaller tail is harmless, but it must not clear `left` */
	if ((r->leaving && r->tail_flights) ||
		!(c || unsent >= r->card.slots / 16 || r->leaving ||
			(moved && idle > r->hz / 10000) ||
			(r->tail_flights && idle > r->hz / 1000000 * TAIL_RETRY_US &&
				r->now - r->arrived_at > r->hz / 1000000 * TAIL_RETRY_US) ||
			idle > r->hz / 8000 * r->card.silence_ms))
		return;
	for (unsigned int i = 0; i < r->attr.reads && (!c || c->tail); i++)
		c = conn_choose(r, false);
	if (!c || c->tail || !request_post(c, &wr, REQUEST_TAIL, 0))
		return;
	c->tail = true;
	r->tail_flights++;
	r->leave_flight = r->leaving;
	r->beat++;
	r->tail_sent = r->window.next;
	r->seen_sent = r->window.seen;
	r->tail_at = r->now;
}

static void
proof_send(struct rdma_stream_receiver *r)
{
	struct stream_proof_message *proof = (struct stream_proof_message *)r->message;
	const struct rdma_sge sge = {(uintptr_t)proof, sizeof(*proof), r->lkey};
	const struct rdma_sge answer_sge = {(uintptr_t)r->answer, STREAM_MESSAGE_BYTES, r->lkey};
	struct rdma_send_wr wr = {.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND};
	const struct rdma_recv_wr answer = {
		.wr_id = (uint64_t)REQUEST_ANSWER << 32, .sg = &answer_sge, .nb_sge = 1};

	proof->type = STREAM_PROOF;
	proof->reserved = 0;
	if (stream_mac(&r->proof, 0, &r->transcript, NULL, proof->mac) < 0) {
		fail(r, -EACCES, "no key to prove itself with");
		return;
	}
	/* The receive queue has one entry, so that a repeated post has no effect. */
	(void)rdma_post_recv(r->conn[0].qp, &answer, 1);
	if (request_post(&r->conn[0], &wr, REQUEST_MESSAGE, 0)) {
		r->message_flight = true;
		phase_change(r, PHASE_PROVE, PHASE_CARD);
	}
}

static void
card_take(struct rdma_stream_receiver *r, uint32_t length)
{
	uint8_t mac[RDMA_STREAM_MAC_BYTES];
	const struct stream_card *card = r->answer;

	if (length != sizeof(*card) || card->type != STREAM_ANSWER ||
		card->run != r->transcript.reply.run) {
		fail(r, -EPROTO, "malformed card");
		return;
	}
	if (stream_mac(&r->proof, 0, &r->transcript, card, mac) < 0 ||
		!stream_mac_equal(mac, card->mac)) {
		fail(r, -EKEYREJECTED, "the sender has not proved itself");
		return;
	}
	COUNTER_SET(r->info.slots, card->slots);
	COUNTER_SET(r->info.payload, card->payload_max);
	if (card->payload_max > r->attr.payload_max || card->slots > r->attr.buffers ||
		!rte_is_power_of_2(card->slots) ||
		card->slot_bytes !=
			RTE_ALIGN_CEIL(card->payload_max + RDMA_STREAM_HEADER_BYTES, 64)) {
		fail(r, -EMSGSIZE,
			"payload_max or buffers below the sender's payload_max or slots");
	} else {
		r->card = *card;
		r->card_pending = true;
		r->refusals = 0;
		r->beat = 0;
		counter_add(&r->info.joins, 1);
		if (r->has_window)
			stream_window_give_up(&r->window);
		phase_change(r, PHASE_CARD, PHASE_RUN);
	}
}

static void
request_done(struct rdma_stream_receiver *r, const struct rdma_wc *wc)
{
	const bool success = wc->status == RDMA_WC_SUCCESS;
	struct conn *c = wc->qp_context;

	c->rtt_known |= success && wc->wr_id >> 32 != REQUEST_ANSWER;
	if (wc->wr_id >> 32 != REQUEST_ANSWER)
		c->flights--;
	switch (wc->wr_id >> 32) {
	case REQUEST_SLOTS:
		slots_done(r, &r->flights[(uint32_t)wc->wr_id], success);
		break;
	case REQUEST_HEAD:
		r->head_flight = false;
		if (success)
			head_done(r);
		break;
	case REQUEST_TAIL:
		c->tail = false;
		r->tail_flights--;
		if (success && r->leave_flight)
			COUNTER_SET(r->info.state, RDMA_STREAM_LEFT);
		else if (!success)
			r->tail_at = 0;
		break;
	case REQUEST_MESSAGE:
		r->message_flight = false;
		break;
	case REQUEST_ANSWER:
		if (success && phase_of(r) == PHASE_CARD)
			card_take(r, wc->byte_len);
		break;
	}
	if (!success)
		(void)conn_state_change(c, CONN_UP, CONN_BROKEN);
}

static void
requests_poll(struct rdma_stream_receiver *r)
{
	struct rdma_wc wc[32];
	uint16_t n = rdma_poll_cq(r->rc_cq, wc, RTE_DIM(wc));

	for (uint16_t i = 0; i < n; i++)
		request_done(r, &wc[i]);
	for (unsigned int i = 0; i < r->attr.reads; i++) {
		struct conn *c = &r->conn[i];

		if (conn_state(c) == CONN_BROKEN && c->flights == 0)
			(void)conn_state_change(c, CONN_BROKEN, CONN_FLUSHED);
	}
}

/* ---- for the application --------------------------------------------------------------------- */

static uint16_t
window_deliver(struct rdma_stream_receiver *r, struct rdma_stream_packet *packet, uint16_t n)
{
	uint16_t got = 0;

	for (; r->window.deliver < r->window.next && got < n; r->window.deliver++) {
		const struct stream_entry *e = stream_entry(&r->window, r->window.deliver);
		const struct stream_header *h;

		if (e->state == ENTRY_LOST) {
			r->lost_before++;
			continue;
		}
		h = header_of(r, e->buffer);
		packet[got++] = (struct rdma_stream_packet){.sequence = r->window.deliver,
			.run = r->info.run,
			.data = h + 1,
			.length = h->length,
			.buffer = e->buffer,
			.lost = r->lost_before};
		r->lost_before = 0;
		COUNTER_SET(r->info.held, r->info.held + 1);
	}
	return got;
}

static void
state_update(struct rdma_stream_receiver *r)
{
	const int phase = phase_of(r);
	bool up = false;

	if (r->info.state == RDMA_STREAM_LEFT)
		return;
	for (unsigned int i = 0; i < r->attr.reads; i++)
		up |= conn_state(&r->conn[i]) == CONN_UP;
	if (phase == PHASE_FAILED)
		COUNTER_SET(r->info.state, RDMA_STREAM_FAILED);
	else if (r->has_window && r->end != STREAM_NONE && r->window.deliver >= r->end &&
		!r->card_pending)
		COUNTER_SET(r->info.state, RDMA_STREAM_ENDED);
	else
		COUNTER_SET(r->info.state,
			phase == PHASE_RUN && up && !r->card_pending ? RDMA_STREAM_JOINED
								     : RDMA_STREAM_JOINING);
	counter_set(&r->info.next, r->window.next);
}

uint16_t
rdma_stream_receive(struct rdma_stream_receiver *r, struct rdma_stream_packet *packet, uint16_t n)
{
	int phase;

	r->now = r->window.now = rte_rdtsc();
	group_poll(r);
	requests_poll(r);
	phase = phase_of(r);
	if (phase == PHASE_PROVE)
		proof_send(r);
	if (r->card_pending)
		window_begin(r);
	if (phase == PHASE_RUN && !r->card_pending) {
		if (r->window.rescan && stream_window_is_repaired(&r->window))
			stream_window_rescan(&r->window);
		if (r->attr.repair == RDMA_STREAM_READ) {
			read_overdue(r);
			while (read_slots(r))
				;
		} else if (r->attr.repair == RDMA_STREAM_NACK)
			nack_send(r);
		if (!r->head_flight && r->now - r->arrived_at > r->head_interval)
			read_head(r);
		stream_window_advance(&r->window);
		tail_send(r);
	}
	receives_post(r);
	n = window_deliver(r, packet, n);
	state_update(r);
	return n;
}

void
rdma_stream_release(
	struct rdma_stream_receiver *r, const struct rdma_stream_packet *packet, uint16_t n)
{
	for (uint16_t i = 0; i < n; i++)
		buffer_free(r, packet[i].buffer);
	COUNTER_SET(r->info.held, r->info.held - n);
}

void
rdma_stream_leave(struct rdma_stream_receiver *r)
{
	r->leaving = true;
	if (phase_of(r) != PHASE_RUN)
		COUNTER_SET(r->info.state, RDMA_STREAM_LEFT);
}

int
rdma_stream_receiver_info_get(
	const struct rdma_stream_receiver *r, struct rdma_stream_receiver_info *info)
{
	counters_get(info, &r->info, sizeof(*info));
	return 0;
}

int
rdma_stream_receiver_destroy(struct rdma_stream_receiver *r)
{
	bool closed = true;

	if (!r)
		return 0;
	for (unsigned int i = 0; i < RDMA_STREAM_CONNS_MAX; i++)
		closed &= conn_close(&r->conn[i]);
	if (r->membership)
		rdma_conn_destroy(r->membership);
	r->membership = NULL;
	if (r->ud && rdma_qp_destroy(r->ud) == 0)
		r->ud = NULL;
	if (!closed || r->ud || (r->mr && rdma_mr_dereg(r->mr) < 0))
		return -EBUSY;
	if (r->ud_cq)
		rdma_cq_destroy(r->ud_cq);
	if (r->rc_cq)
		rdma_cq_destroy(r->rc_cq);
	if (r->memory)
		rdma_pages_unmap(r->memory, r->memory_bytes);
	stream_window_free(&r->window);
	free(r->flights);
	free(r->recv_free);
	free(r->repair_free);
	rte_free(r);
	return 0;
}
