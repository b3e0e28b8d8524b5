/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs: creation, destruction, states, multicast membership and keepalive. Keepalive is
 * needed because a queue pair without outstanding requests has no timeout.
 */

#include <errno.h>

#include <rte_cycles.h>
#include <rte_errno.h>
#include <rte_malloc.h>

#include "engine/qp.h"
#include "engine/reference.h"
#include "net/ip.h"
#include "port/device.h"

/** Longest time that rdma_qp_destroy() waits for the port to free frames of the queue pair. */
#define DESTROY_WAIT_MS 200

static void
info_free(void *addr, void *opaque)
{
	/* Never called: the request holds one reference itself, so the count stays above zero. */
}

/**
 * Choose a queue pair number: a random free slot, and random bits above the slot bits. 0, 1 and
 * 0xffffff are reserved.
 */
static uint32_t
qpn_new(const struct roce_dev *dev)
{
	uint32_t qpn, i;

	do {
		qpn = roce_random(24);
		for (i = 0; i <= dev->qp_mask; i++) {
			if (!dev->qps[qpn & dev->qp_mask])
				break;
			qpn = (qpn & ~dev->qp_mask) | ((qpn + 1) & dev->qp_mask);
		}
	} while (qpn <= ROCE_QPN_CM || qpn == ROCE_QPN_MULTICAST ||
		roce_control_holds_qpn(dev, qpn));
	return qpn;
}

/** Choose the number of a queue pair. @return 0; -EINVAL, -EBUSY: logged */
static int
qpn_choose(const struct roce_qp *qp, uint32_t *qpn)
{
	const struct roce_dev *dev = qp->dev;
	const uint32_t wanted = qp->reference ? qp->reference->attr.qpn : 0;

	if (!wanted) {
		*qpn = qpn_new(dev);
		return 0;
	}
	if (wanted <= ROCE_QPN_CM || wanted > dev->qp_mask) {
		RDMA_LOG(ERR, "device %s: queue pair of number 0x%06x, expected 2 to 0x%06x (qps=)",
			dev->base.name, wanted, dev->qp_mask);
		return -EINVAL;
	}
	if (dev->qps[wanted] || roce_control_holds_qpn(dev, wanted)) {
		RDMA_LOG(ERR,
			"device %s: queue pair of number 0x%06x, whose entry of the table is in "
			"use; create queue pairs of fixed numbers first",
			dev->base.name, wanted);
		return -EBUSY;
	}
	*qpn = wanted;
	return 0;
}

static void
qp_free(struct roce_qp *qp)
{
	rte_free(qp->reference);
	rte_free(qp->req.ring);
	rte_free(qp->resp.ring);
	rte_free(qp->resp.answers);
	rte_free(qp->resp.jobs);
	rte_free(qp);
}

static void *
zalloc(const struct roce_dev *dev, size_t n, size_t size)
{
	return rte_zmalloc_socket("roce_qp", n * size, RTE_CACHE_LINE_SIZE, dev->numa_node);
}

/** Allocate the rings of both queues. @return false: no memory */
static bool
queues_make(struct roce_qp *qp, const struct rdma_qp_attr *attr)
{
	struct roce_requester *q = &qp->req;
	struct roce_responder *r = &qp->resp;
	const uint32_t answers = rte_align32pow2(RTE_MAX(attr->max_rd_atom, 1U));
	uint32_t i, bytes;

	q->mask = rte_align32pow2(attr->max_send_wr) - 1;
	bytes = RTE_MAX(attr->max_send_sge * sizeof(struct roce_segment), attr->max_inline);
	q->stride = RTE_ALIGN(sizeof(struct roce_wqe) + bytes, RTE_CACHE_LINE_SIZE);
	q->ring = zalloc(qp->dev, q->mask + 1, q->stride);
	r->mask = rte_align32pow2(attr->max_recv_wr) - 1;
	r->stride = sizeof(struct roce_rqe) + attr->max_recv_sge * sizeof(struct roce_segment);
	r->ring = zalloc(qp->dev, r->mask + 1, r->stride);
	r->answer_mask = answers - 1;
	r->answers = zalloc(qp->dev, answers, sizeof(r->answers[0]));
	r->job_mask = 2 * answers - 1;
	r->jobs = zalloc(qp->dev, 2 * answers, sizeof(r->jobs[0]));
	if (!q->ring || !r->ring || !r->answers || !r->jobs)
		return false;
	for (i = 0; i <= q->mask; i++) {
		roce_wqe(qp, i)->info.free_cb = info_free;
		rte_mbuf_ext_refcnt_set(&roce_wqe(qp, i)->info, 1);
	}
	return true;
}

struct rdma_qp *
roce_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr)
{
	struct roce_dev *dev = roce_dev(pd->dev);
	struct rdma_dev_info info;
	struct roce_qp *qp;
	int ret;

	if (dev->nb_qps >= dev->max_qps) {
		RDMA_LOG(ERR, "device %s: %u queue pairs, expected at most %u (qps=)",
			pd->dev->name, dev->nb_qps + 1, dev->max_qps);
		rte_errno = ENOSPC;
		return NULL;
	}
	qp = zalloc(dev, 1, sizeof(*qp));
	if (qp) {
		qp->dev = dev;
		if (!queues_make(qp, attr)) {
			qp_free(qp);
			qp = NULL;
		}
	}
	if (!qp) {
		RDMA_LOG(ERR,
			"device %s: cannot allocate a queue pair of %u send and %u receive "
			"requests",
			pd->dev->name, attr->max_send_wr, attr->max_recv_wr);
		rte_errno = ENOMEM;
		return NULL;
	}
	qp->poll_group = dev->poll_groups[attr->poll_group];
	if (attr->reference) {
		qp->reference = roce_reference_create(qp->poll_group, attr->reference);
		if (!qp->reference) {
			ret = -rte_errno;
			goto fail;
		}
	}
	ret = qpn_choose(qp, &qp->base.qpn);
	if (ret < 0)
		goto fail;
	qp->send_cq = (struct roce_cq *)attr->send_cq;
	qp->recv_cq = (struct roce_cq *)attr->recv_cq;
	qp->type = attr->type;
	qp->trust = attr->trust_icrc;
	rdma_dev_info_get(pd->dev, &info);
	roce_rate_init(&qp->rate, attr->rate_mbps, info.link_mbps, rte_get_tsc_hz());
	qp->signal_all = attr->signal_all;
	qp->mtu = attr->max_mtu;
	qp->qkey = attr->qkey;
	qp->req.retry_count = attr->retry_count;
	qp->req.rnr_retry = attr->rnr_retry;
	qp->req.rd_atom = attr->max_rd_atom;
	qp->resp.rd_atom = attr->max_rd_atom;
	qp->resp.min_rnr_timer = attr->min_rnr_timer;
	/* Needed as soon as the queue pair is published; the caller sets them again to the same
	 * values. */
	qp->base.pd = pd;
	qp->base.attr = *attr;
	qp->udp_port = roce_path_udp_port(qp->base.qpn);
	dev->nb_qps++;
	atomic_store_explicit(&dev->qps[qp->base.qpn & dev->qp_mask], qp, memory_order_release);
	return &qp->base;
fail:
	qp_free(qp);
	rte_errno = -ret;
	return NULL;
}

/**
 * Remove a queue pair from its poll group. Executed by the poll group. @return 0; -EBUSY: frames in
 * the port still point to its requests
 */
static int
qp_forget(struct roce_poll_group *pg, void *arg)
{
	struct roce_qp *qp = arg;
	unsigned int i;
	uint32_t j;

	roce_qp_fail(qp, RDMA_WC_SUCCESS, false);
	if (!roce_flush_sends(qp)) {
		roce_poll_group_reclaim(pg, NULL);
		return -EBUSY;
	}
	for (j = 0; j <= qp->req.mask; j++)
		if (rte_mbuf_ext_refcnt_read(&roce_wqe(qp, j)->info) > 1)
			return -EBUSY;
	roce_wheel_remove(&pg->wheel, &qp->req.timer);
	if (qp->active)
		TAILQ_REMOVE(&pg->active, qp, next);
	qp->active = false;
	for (i = 0; i < pg->nb_groups;)
		if (pg->groups[i].qp == qp)
			pg->groups[i] = pg->groups[--pg->nb_groups];
		else
			i++;
	if (qp->reference)
		roce_reference_forget(qp);
	roce_cq_forget(qp->send_cq, &qp->base);
	roce_cq_forget(qp->recv_cq, &qp->base);
	return 0;
}

int
roce_qp_destroy(struct rdma_qp *base)
{
	struct roce_qp *qp = (struct roce_qp *)base;
	struct roce_dev *dev = qp->dev;
	const uint64_t deadline = rte_rdtsc() + rte_get_tsc_hz() / 1000 * DESTROY_WAIT_MS;

	while (roce_poll_group_call(qp->poll_group, qp_forget, qp) < 0) {
		if (rte_rdtsc() < deadline)
			continue;
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x not destroyed: port %u still holds its "
			"frames after %u ms",
			dev->base.name, base->qpn, dev->port, DESTROY_WAIT_MS);
		return -EBUSY;
	}
	roce_control_forget_qp(dev, base);
	atomic_store_explicit(&dev->qps[base->qpn & dev->qp_mask], NULL, memory_order_release);
	dev->nb_qps--;
	/* Other poll groups may be forwarding a packet to it; they read only qp->poll_group. */
	roce_dev_quiesce(dev);
	qp_free(qp);
	return 0;
}

struct rdma_qp *
roce_qp_find(struct roce_dev *dev, uint32_t qpn)
{
	struct roce_qp *qp = roce_qp_lookup(dev, qpn);

	return qp ? &qp->base : NULL;
}

enum rdma_qp_state
roce_qp_state(const struct rdma_qp *qp)
{
	return roce_state((const struct roce_qp *)qp);
}

/* ---- states -------------------- */

struct modify {
	struct roce_qp *qp;
	const struct roce_qp_modify *to;
	uint32_t link_mbps; /**< link speed, for the transition to RDMA_QP_RTS; 0: unknown */
};

static void
set_path(struct roce_qp *qp, const struct roce_path *path)
{
	qp->path = *path;
	qp->peer_gid = path->dst;
	if (qp->dev->dcqcn)
		roce_path_ecn(&qp->path);
}

static void
to_rtr(struct roce_qp *qp, const struct roce_qp_modify *to)
{
	struct roce_responder *r = &qp->resp;

	if (to->path)
		set_path(qp, to->path);
	if (to->source) {
		qp->peer_gid = *to->source;
		qp->any_source = roce_gid_is_none(to->source);
	}
	qp->peer_qpn = to->peer_qpn;
	if (to->mtu)
		qp->mtu = RTE_MIN(to->mtu, qp->base.attr.max_mtu);
	r->expected_psn = to->peer_psn & ROCE_PSN_MASK;
	r->rd_atom = RTE_MIN(to->responder_rd_atom, qp->base.attr.max_rd_atom);
	if (to->min_rnr_timer)
		r->min_rnr_timer = to->min_rnr_timer;
}

static void
to_rts(struct roce_qp *qp, const struct roce_qp_modify *to, uint32_t link_mbps)
{
	struct roce_requester *r = &qp->req;
	const uint8_t timeout = to->ack_timeout ? to->ack_timeout : qp->base.attr.ack_timeout;

	/* Initialize again: the link may have come up since the queue pair was created. */
	roce_rate_init(&qp->rate, qp->base.attr.rate_mbps, link_mbps, rte_get_tsc_hz());
	r->window_max = RTE_MIN(ROCE_WINDOW, ROCE_WINDOW_BYTES / qp->mtu);
	r->window = r->window_max;
	r->next_psn = r->una_psn = r->max_psn = to->local_psn & ROCE_PSN_MASK;
	r->ack_request_psn = r->una_psn;
	r->read.seen_psn = r->una_psn;
	qp->life.una_psn = r->una_psn;
	qp->life.expected_psn = qp->resp.expected_psn;
	r->rd_atom = RTE_MIN(to->rd_atom, qp->base.attr.max_rd_atom);
	if (to->retry_count != UINT8_MAX)
		r->retry_count = to->retry_count & 7;
	if (to->rnr_retry != UINT8_MAX)
		r->rnr_retry = to->rnr_retry & 7;
	r->retries = r->retry_count;
	r->rnr_retries = r->rnr_retry;
	r->ack_cycles = (4096ULL << (timeout & 31)) * (rte_get_tsc_hz() / 1000000) / 1000;
}

static int
qp_modify(struct roce_poll_group *pg, void *arg)
{
	const struct modify *m = arg;
	const struct roce_qp_modify *to = m->to;
	struct roce_qp *qp = m->qp;
	const enum rdma_qp_state from = roce_state(qp);

	switch (to->state) {
	case RDMA_QP_ERROR:
		roce_qp_fail(qp, RDMA_WC_SUCCESS, false);
		return 0;
	case RDMA_QP_RTR:
	case RDMA_QP_RTS:
		if (from == to->state) {
			if (to->path)
				set_path(qp, to->path);
			return 0;
		}
		if (from >= to->state)
			return -EINVAL;
		if (from == RDMA_QP_INIT)
			to_rtr(qp, to);
		if (to->state == RDMA_QP_RTS)
			to_rts(qp, to, m->link_mbps);
		RDMA_LOG(DEBUG, "queue pair 0x%06x: from %s to %s", qp->base.qpn,
			from == RDMA_QP_INIT ? "INIT" : "RTR",
			to->state == RDMA_QP_RTS ? "RTS" : "RTR");
		atomic_store_explicit(&qp->state, to->state, memory_order_release);
		return 0;
	default:
		return -EINVAL;
	}
}

int
roce_qp_modify(struct rdma_qp *base, const struct roce_qp_modify *to)
{
	struct modify m = {.qp = (struct roce_qp *)base, .to = to};
	struct rdma_dev_info info;

	if (to->state == RDMA_QP_RTS && rdma_dev_info_get(base->pd->dev, &info) == 0)
		m.link_mbps = info.link_mbps;
	return roce_poll_group_call(m.qp->poll_group, qp_modify, &m);
}

int
roce_qp_error(struct rdma_qp *base)
{
	const struct roce_qp_modify to = {.state = RDMA_QP_ERROR};

	return roce_qp_modify(base, &to);
}

/** The accepted source of a queue pair that only receives. @return 0; -EINVAL, -EHOSTUNREACH */
static int
source_get(const struct roce_dev *dev, const struct sockaddr *addr, struct roce_gid *source)
{
	*source = (struct roce_gid){{0}};
	if (addr->sa_family == AF_UNSPEC)
		return 0;
	if (roce_gid_from_sockaddr(source, addr) < 0)
		return -EINVAL;
	return roce_dev_source(dev, source) ? 0 : -EHOSTUNREACH;
}

int
roce_qp_connect(struct rdma_qp *base, const struct rdma_qp_peer *peer)
{
	struct roce_qp *qp = (struct roce_qp *)base;
	struct roce_dev *dev = qp->dev;
	const struct rdma_qp_attr *attr = &base->attr;
	struct roce_qp_modify to = {
		.state = RDMA_QP_RTS, .retry_count = UINT8_MAX, .rnr_retry = UINT8_MAX};
	const struct sockaddr *addr;
	struct roce_gid source;
	struct roce_path path;
	int ret;

	if (attr->type == RDMA_QP_UD)
		return roce_qp_modify(base, &to);
	addr = (const struct sockaddr *)&peer->addr;
	if (attr->receive_only) {
		ret = source_get(dev, addr, &source);
		to.state = RDMA_QP_RTR;
		to.source = &source;
	} else {
		ret = roce_qp_path(qp, addr, &path);
		to.path = &path;
	}
	if (ret < 0)
		return ret;
	if (peer->mtu < 256 || peer->mtu > attr->max_mtu || !rte_is_power_of_2(peer->mtu) ||
		peer->qpn > ROCE_PSN_MASK) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x connected to number 0x%x with MTU %u, "
			"expected 24 bits and a power of two from 256 to %u",
			dev->base.name, base->qpn, peer->qpn, peer->mtu, attr->max_mtu);
		return -EINVAL;
	}
	to.peer_qpn = peer->qpn;
	to.peer_psn = peer->psn;
	to.local_psn = peer->local_psn;
	to.mtu = peer->mtu;
	to.rd_atom = peer->rd_atom;
	to.responder_rd_atom = peer->responder_rd_atom;
	return roce_qp_modify(base, &to);
}

int
roce_qp_path(struct roce_qp *qp, const struct sockaddr *addr, struct roce_path *path)
{
	struct roce_dev *dev = qp->dev;
	struct roce_path_attr attr = {
		.src_mac = dev->mac,
		.vlan_tci = dev->vlan_tci,
		.udp_src = qp->udp_port,
		.traffic_class = qp->base.attr.traffic_class,
		.hop_limit = qp->base.attr.hop_limit,
	};
	const struct roce_gid *src;
	int ret = roce_gid_from_sockaddr(&attr.dst, addr);

	if (ret < 0)
		return -EINVAL;
	src = roce_dev_source(dev, &attr.dst);
	if (!src)
		return -EHOSTUNREACH;
	attr.src = *src;
	ret = roce_control_resolve(dev, &attr.dst, &attr.dst_mac);
	if (ret < 0)
		return ret;
	roce_path_make(path, &attr);
	return 0;
}

int
roce_qp_info_get(const struct rdma_qp *base, struct rdma_qp_info *info)
{
	const struct roce_qp *qp = (const struct roce_qp *)base;

	info->state = roce_state(qp);
	info->send_queued = qp->req.head - qp->req.una;
	info->recv_queued = qp->resp.head - qp->resp.tail;
	info->mtu = qp->mtu;
	info->retransmits = qp->req.retransmits;
	info->rnr_naks = qp->req.rnr_naks;
	return 0;
}

int
rdma_roce_uc_info_get(const struct rdma_qp *base, struct rdma_roce_uc_info *info)
{
	const struct roce_qp *qp = (const struct roce_qp *)base;

	if (!base->pd->dev->ops->reference || qp->type != RDMA_QP_UC) {
		RDMA_LOG(ERR,
			"device %s: losses of queue pair 0x%06x, expected one of type UC and a "
			"device of the provider roce",
			base->pd->dev->name, base->qpn);
		return -EINVAL;
	}
	info->messages = counter_get(&qp->uc.messages);
	info->gaps = counter_get(&qp->uc.gaps);
	info->lost = counter_get(&qp->uc.lost);
	info->dropped = counter_get(&qp->uc.dropped);
	info->duplicates = counter_get(&qp->uc.duplicates);
	info->refused = counter_get(&qp->uc.refused);
	return 0;
}

/* ---- multicast -------------------- */

struct attach {
	struct roce_qp *qp;
	const struct roce_gid *gid;
};

static struct roce_group *
group_find(struct roce_poll_group *pg, const struct attach *a)
{
	unsigned int i;

	for (i = 0; i < pg->nb_groups; i++)
		if (pg->groups[i].qp == a->qp && roce_gid_equal(&pg->groups[i].gid, a->gid))
			return &pg->groups[i];
	return NULL;
}

static int
qp_attach(struct roce_poll_group *pg, void *arg)
{
	const struct attach *a = arg;

	if (group_find(pg, a))
		return -EEXIST;
	if (pg->nb_groups == ROCE_GROUPS_MAX)
		return -ENOSPC;
	pg->groups[pg->nb_groups++] = (struct roce_group){*a->gid, a->qp};
	return 0;
}

static int
qp_detach(struct roce_poll_group *pg, void *arg)
{
	struct roce_group *group = group_find(pg, arg);

	if (!group)
		return -ENOENT;
	*group = pg->groups[--pg->nb_groups];
	return 0;
}

int
roce_qp_attach(struct rdma_qp *base, const struct roce_gid *group)
{
	struct attach a = {(struct roce_qp *)base, group};

	return roce_poll_group_call(a.qp->poll_group, qp_attach, &a);
}

int
roce_qp_detach(struct rdma_qp *base, const struct roce_gid *group)
{
	struct attach a = {(struct roce_qp *)base, group};

	return roce_poll_group_call(a.qp->poll_group, qp_detach, &a);
}

/**
 * Send a keepalive probe: a SEND ONLY packet without payload that repeats the last acknowledged
 * PSN. The peer treats it as a duplicate request, whose only effect is an acknowledgement
 * (9.7.5.1.2, 9.7.7.2.1). The probe uses no new PSN, and the peer cannot distinguish it from a
 * packet that the network duplicated.
 */
static void
probe(struct roce_qp *qp)
{
	const struct roce_frame_head head = {
		.qpn = qp->peer_qpn,
		.psn = roce_psn_add(qp->req.una_psn, -1),
		.opcode = ROCE_SEND_ONLY,
		.ack = true,
	};
	struct roce_frame f;

	roce_frame_begin(&f, &qp->path, &head, 0);
	roce_frame_end(qp->poll_group, &f);
	roce_count(qp->poll_group, ROCE_TX_KEEPALIVE);
}

struct look {
	struct roce_qp *qp;
	bool ask;
};

static int
qp_alive(struct roce_poll_group *pg, void *arg)
{
	const struct look *look = arg;
	struct roce_qp *qp = look->qp;
	struct roce_life *life = &qp->life;
	const struct roce_requester *r = &qp->req;
	const bool alive = life->answered || life->una_psn != r->una_psn ||
		life->expected_psn != qp->resp.expected_psn;

	if (roce_state(qp) != RDMA_QP_RTS)
		return -ENOTCONN;
	life->answered = false;
	life->una_psn = r->una_psn;
	life->expected_psn = qp->resp.expected_psn;
	/* Outstanding requests have their own timeout, which detects a lost peer earlier. */
	if (alive || r->una != r->head || roce_poll_group_tx_room(pg) == 0 ||
		!roce_poll_group_spare(pg, ROCE_FRAME_SEGMENTS))
		return 1;
	if (look->ask)
		probe(qp);
	return 0;
}

int
roce_qp_alive(struct rdma_qp *qp, bool ask)
{
	struct look look = {(struct roce_qp *)qp, ask};

	return roce_poll_group_call(look.qp->poll_group, qp_alive, &look);
}
