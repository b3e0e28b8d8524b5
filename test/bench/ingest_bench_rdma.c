/* SPDX-License-Identifier: BSD-3-Clause */
/* RDMA through either provider. */

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>

#include <rte_common.h>
#include <rte_cycles.h>
#include <rte_errno.h>

#include "bench_alone.h"
#include "ingest_bench.h"

#define BURST	  16
#define SIGNALLED 4 /* messages posted at a time, and the last one signalled; 1 with a low depth */
#define RECEIVES  (4 * INGEST_DEPTH_MAX)
#define PATIENCE  10 /* s, limit for set-up */
#define SILENCE	  20 /* ms without a packet: the rest is lost */
#define STATS_MAX 192

/* Control functions belong to one lcore at a time, and each end calls them. */
static pthread_mutex_t control = PTHREAD_MUTEX_INITIALIZER;

/* ---- device ---- */

static void
region(struct ingest_device *d, struct ingest_ring *ring)
{
	const struct rdma_mr_attr attr = {.addr = ring->memory,
		.length = ring->length,
		.access = RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE,
		.gpu = -1};

	if (ring->memory == NULL)
		return;
	ring->mr = rdma_mr_reg(d->pd, &attr);
	if (ring->mr == NULL)
		ingest_fail(
			"region of %" PRIu64 " bytes: %s", ring->length, rte_strerror(rte_errno));
}

void
ingest_rdma_open(struct ingest_host *h, const char *name)
{
	struct ingest_device *d = &h->rdma;

	d->dev = rdma_dev_open(name);
	if (d->dev == NULL)
		ingest_fail("device %s: %s", name, rte_strerror(rte_errno));
	rdma_dev_info_get(d->dev, &d->info);
	d->pd = rdma_pd_alloc(d->dev);
	d->send_cq = rdma_cq_create(d->dev, 2 * INGEST_DEPTH_MAX, 0);
	d->recv_cq = rdma_cq_create(d->dev, 2 * RECEIVES, 0);
	if (d->pd == NULL || d->send_cq == NULL || d->recv_cq == NULL)
		ingest_fail("device %s: %s", name, rte_strerror(rte_errno));
	region(d, &h->source);
	for (unsigned int i = 0; i < INGEST_PAGES; i++)
		region(d, &h->ring[i]);
}

/* The peer must not need this end any more. */
void
ingest_rdma_close(struct ingest_host *h)
{
	struct ingest_ring *ring[] = {&h->source, &h->ring[INGEST_SMALL], &h->ring[INGEST_HUGE]};
	struct ingest_device *d = &h->rdma;

	rdma_cq_destroy(d->send_cq);
	rdma_cq_destroy(d->recv_cq);
	for (unsigned int i = 0; i < RTE_DIM(ring); i++)
		while (ring[i]->mr != NULL && rdma_mr_dereg(ring[i]->mr) == -EBUSY)
			rdma_progress(d->dev, 0);
	rdma_pd_free(d->pd);
	rdma_dev_close(d->dev);
}

/* A counter of the device. @return false: it has none of this name */
static bool
counter(const struct ingest_device *d, const char *name, uint64_t *value)
{
	struct rdma_xstat x[STATS_MAX];
	int n = rdma_xstats_get(d->dev, x, STATS_MAX);

	for (int i = 0; i < n && i < STATS_MAX; i++)
		if (strcmp(x[i].name, name) == 0) {
			*value = x[i].value;
			return true;
		}
	return false;
}

/* Work while waiting: the port, and address resolution. */
static void
idle(void *arg)
{
	struct ingest_device *d = arg;
	struct rdma_event event[4];

	rdma_progress(d->dev, 0);
	if (pthread_mutex_trylock(&control) != 0)
		return;
	rdma_poll_cm(d->dev, event, RTE_DIM(event));
	pthread_mutex_unlock(&control);
}

/* ---- queue pairs ---- */

static enum rdma_qp_type
type_of(const struct ingest_trial *t)
{
	return t->method == INGEST_RC_WRITE ? RDMA_QP_RC : RDMA_QP_UC;
}

static bool
needs_receives(const struct ingest_trial *t)
{
	return t->method == INGEST_UC_SEND || t->method == INGEST_UC_WRITE_IMM;
}

static void
create(struct ingest_device *d, const struct ingest_trial *t)
{
	const struct rdma_qp_attr attr = {.type = type_of(t),
		.send_cq = d->send_cq,
		.recv_cq = d->recv_cq,
		.max_send_wr = INGEST_DEPTH_MAX,
		.max_recv_wr = RECEIVES,
		.retry_count = 7,
		.rnr_retry = 7};

	pthread_mutex_lock(&control);
	d->qp = rdma_qp_create(d->pd, &attr);
	pthread_mutex_unlock(&control);
	if (d->qp == NULL)
		ingest_fail("queue pair: %s", rte_strerror(rte_errno));
}

static void
destroy(struct ingest_device *d)
{
	struct rdma_wc wc[32];
	int ret;

	rdma_qp_error(d->qp);
	for (;;) {
		pthread_mutex_lock(&control);
		ret = rdma_qp_destroy(d->qp);
		pthread_mutex_unlock(&control);
		if (ret != -EBUSY)
			break;
		idle(d);
	}
	while (rdma_poll_cq(d->send_cq, wc, RTE_DIM(wc)) ||
		rdma_poll_cq(d->recv_cq, wc, RTE_DIM(wc)))
		;
}

/* Tell the other end about this one, and connect to it. */
static struct ingest_end
introduce(struct ingest_host *h, const struct ingest_trial *t)
{
	const uint64_t end = rte_get_tsc_cycles() + PATIENCE * rte_get_tsc_hz();
	struct ingest_device *d = &h->rdma;
	struct ingest_ring *ring = &h->ring[t->pages];
	struct ingest_end own = {.addr = d->info.addr,
		.base = (uintptr_t)ring->memory,
		.rkey = ring->mr != NULL ? rdma_mr_rkey(ring->mr) : 0,
		.psn = (uint32_t)rte_rdtsc() & 0xffffff,
		.mtu = d->info.mtu};
	struct rdma_qp_peer peer = {0};
	struct rdma_qp_info info;
	struct ingest_end other;
	int ret;

	rdma_qp_info_get(d->qp, &info);
	own.qpn = info.qpn;
	ingest_put(h->channel, &own, sizeof(own));
	if (!ingest_get(h->channel, &other, sizeof(other), idle, d))
		ingest_fail("the other end has gone");
	peer = (struct rdma_qp_peer){.addr = other.addr,
		.qpn = other.qpn,
		.psn = other.psn,
		.local_psn = own.psn,
		.mtu = RTE_MIN(own.mtu, other.mtu)};
	for (;;) {
		pthread_mutex_lock(&control);
		ret = rdma_qp_connect(d->qp, &peer);
		pthread_mutex_unlock(&control);
		if (ret != -EAGAIN)
			break;
		if (rte_get_tsc_cycles() > end)
			ingest_fail("the other end's address is not resolved");
		idle(d);
	}
	if (ret < 0)
		ingest_fail("queue pair: %s", rte_strerror(-ret));
	return other;
}

/* ---- sender ---- */

struct stream {
	struct ingest_host *h;
	const struct ingest_trial *t;
	struct ingest_end to;
	uint64_t posted, completed;
	uint32_t next;	/* address */
	uint32_t place; /* in the source */
	uint32_t group; /* messages that are posted at a time */
};

static void
post(struct stream *s, unsigned int n)
{
	static const uint8_t op[] = {[INGEST_UC_SEND] = RDMA_OP_SEND,
		[INGEST_UC_WRITE] = RDMA_OP_WRITE,
		[INGEST_UC_WRITE_IMM] = RDMA_OP_WRITE_IMM,
		[INGEST_RC_WRITE] = RDMA_OP_WRITE};
	const uint32_t stride = ingest_stride(s->t->payload);
	const uint32_t places = (uint32_t)(s->h->source.length / stride);
	const uint32_t lkey = rdma_mr_lkey(s->h->source.mr);
	struct rdma_send_wr wr[BURST];
	struct rdma_sge sge[BURST];

	for (unsigned int i = 0; i < n; i++) {
		sge[i] = (struct rdma_sge){
			(uintptr_t)s->h->source.memory + (uint64_t)s->place * stride, s->t->payload,
			lkey};
		wr[i] = (struct rdma_send_wr){.wr_id = s->posted + i + 1,
			.sg = &sge[i],
			.nb_sge = 1,
			.op = op[s->t->method],
			.imm = (uint32_t)(s->posted + i),
			.flags = (s->posted + i + 1) % s->group == 0 ? RDMA_SEND_SIGNALED : 0,
			.remote_addr = s->to.base + (uint64_t)s->next * stride,
			.rkey = s->to.rkey};
		s->next = s->next + 1 < s->t->addresses ? s->next + 1 : 0;
		s->place = s->place + 1 < places ? s->place + 1 : 0;
	}
	if (rdma_post_send(s->h->rdma.qp, wr, (uint16_t)n) != n)
		ingest_fail("post: %s", rte_strerror(rte_errno));
	s->posted += n;
}

static void
take(struct stream *s)
{
	struct rdma_wc wc[BURST];
	unsigned int n;

	rdma_progress(s->h->rdma.dev, 0);
	n = rdma_poll_cq(s->h->rdma.send_cq, wc, RTE_DIM(wc));
	for (unsigned int i = 0; i < n; i++) {
		if (wc[i].status != RDMA_WC_SUCCESS)
			ingest_fail("message %" PRIu64 ": %s", wc[i].wr_id,
				rdma_wc_status_name(wc[i].status));
		s->completed = wc[i].wr_id;
	}
}

void
ingest_rdma_send(struct ingest_host *h, const struct ingest_trial *t)
{
	const uint64_t length = (uint64_t)(t->seconds * (double)rte_get_tsc_hz());
	struct stream s = {.h = h, .t = t, .group = t->depth < 2 * SIGNALLED ? 1 : SIGNALLED};
	struct ingest_sent sent;
	uint64_t begin;
	char ready;

	create(&h->rdma, t);
	s.to = introduce(h, t);
	if (!ingest_get(h->channel, &ready, sizeof(ready), idle, &h->rdma))
		ingest_fail("the receiver has gone");
	bench_alone_begin();
	begin = rte_rdtsc();
	while (rte_rdtsc() - begin < length) {
		if (s.posted - s.completed + s.group <= t->depth && s.posted < ingest_due(t, begin))
			post(&s, s.group);
		take(&s);
	}
	while (s.completed < s.posted)
		take(&s);
	sent.seconds = (double)(rte_rdtsc() - begin) / (double)rte_get_tsc_hz();
	sent.messages = s.posted;
	bench_alone_end();
	ingest_put(h->channel, &sent, sizeof(sent));
	destroy(&h->rdma);
}

/* ---- receiver ---- */

struct inbound {
	struct ingest_device *d;
	const struct ingest_trial *t;
	uint64_t base;
	uint32_t stride, lkey, next;
	uint64_t completions;
	uint64_t first, last, busy; /* TSC */
};

static void
post_receives(struct inbound *s, unsigned int n)
{
	struct rdma_recv_wr wr[RECEIVES];
	struct rdma_sge sge[RECEIVES];

	for (unsigned int i = 0; i < n; i++) {
		sge[i] = (struct rdma_sge){
			s->base + (uint64_t)s->next * s->stride, s->t->payload, s->lkey};
		wr[i] = (struct rdma_recv_wr){.sg = &sge[i], .nb_sge = 1};
		s->next = s->next + 1 < s->t->addresses ? s->next + 1 : 0;
	}
	if (rdma_post_recv(s->d->qp, wr, (uint16_t)n) != n)
		ingest_fail("no room for receives");
}

static void
inbound_turn(struct inbound *s, bool receives)
{
	const uint64_t before = rte_rdtsc();
	struct rdma_wc wc[RECEIVES];
	unsigned int n = rdma_progress(s->d->dev, 0), done = 0;

	if (receives) {
		done = rdma_poll_cq(s->d->recv_cq, wc, RTE_DIM(wc));
		if (done > 0)
			post_receives(s, done);
		s->completions += done;
	}
	if (n + done == 0)
		return;
	s->last = rte_rdtsc();
	s->busy += s->last - before;
	if (s->first == 0)
		s->first = before;
}

/* Messages of a trial that have been received, as far as this device can tell. */
static uint64_t
received(const struct inbound *s, bool receives, uint64_t bytes_before, uint64_t holes_before,
	uint64_t sent)
{
	uint64_t now = 0;

	if (counter(s->d, "rx_message_bytes", &now))
		return (now - bytes_before) / s->t->payload;
	if (receives)
		return s->completions;
	/* an adapter counts gaps, not messages */
	if (counter(s->d, "out_of_sequence", &now))
		return now == holes_before ? sent : sent - 1;
	return sent;
}

void
ingest_rdma_receive(struct ingest_host *h, const struct ingest_trial *t, struct ingest_outcome *out)
{
	const bool receives = needs_receives(t);
	const struct ingest_ring *ring = &h->ring[t->pages];
	struct inbound s = {.d = &h->rdma,
		.t = t,
		.base = (uintptr_t)ring->memory,
		.stride = ingest_stride(t->payload),
		.lkey = rdma_mr_lkey(ring->mr)};
	uint64_t bytes = 0, holes = 0, end = 0;
	struct ingest_sent sent = {0};
	const char ready = 1;

	create(s.d, t);
	introduce(h, t);
	if (receives)
		post_receives(&s, RECEIVES);
	counter(s.d, "rx_message_bytes", &bytes);
	counter(s.d, "out_of_sequence", &holes);
	ingest_put(h->channel, &ready, sizeof(ready));
	for (uint64_t turns = 0; end == 0; turns++) {
		inbound_turn(&s, receives);
		if (s.first == 0 && turns % 64 == 0)
			idle(s.d);
		if (turns % 4096 == 0 && ingest_is_ready(h->channel))
			end = rte_rdtsc();
	}
	ingest_get(h->channel, &sent, sizeof(sent), NULL, NULL);
	out->sent = sent.messages;
	do {
		inbound_turn(&s, receives);
		out->received = received(&s, receives, bytes, holes, sent.messages);
	} while (out->received < out->sent &&
		rte_rdtsc() - RTE_MAX(s.last, end) < rte_get_tsc_hz() / 1000 * SILENCE);
	destroy(s.d);
	if (out->received == 0)
		return;
	/* WRITEs that an adapter places are seen by the sender alone */
	out->rate = s.last == s.first
		? (double)out->received / sent.seconds
		: (double)out->received * (double)rte_get_tsc_hz() / (double)(s.last - s.first);
	out->cycles = (double)s.busy / (double)out->received;
	out->busy = s.last == s.first ? 0 : (double)s.busy / (double)(s.last - s.first);
}
