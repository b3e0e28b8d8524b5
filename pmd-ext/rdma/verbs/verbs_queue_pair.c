/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Queue pairs of the verbs provider. They are created with libibverbs and not with librdmacm, which
 * would set its own timeouts: 2.1 s for the local ACK timeout, 655 ms for the RNR timer.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "verbs_device.h"

static enum ibv_qp_type
type_of(enum rdma_qp_type type)
{
	return type == RDMA_QP_RC ? IBV_QPT_RC : type == RDMA_QP_UC ? IBV_QPT_UC : IBV_QPT_UD;
}

enum ibv_mtu
verbs_mtu_code(uint16_t bytes)
{
	enum ibv_mtu code = IBV_MTU_256;

	while (code < IBV_MTU_4096 && verbs_mtu_bytes(code) < bytes)
		code++;
	return code;
}

static int
queue_make(struct verbs_queue *queue, uint32_t depth)
{
	queue->depth = depth;
	queue->mask = rte_align32pow2(depth) - 1;
	queue->slot = calloc((size_t)queue->mask + 1, sizeof(*queue->slot));
	return queue->slot ? 0 : -ENOMEM;
}

/** Add a queue pair to the table of numbers. Other lcores may read the table meanwhile. */
static int
number_set(struct verbs_dev *dev, struct verbs_qp *qp)
{
	const uint32_t qpn = qp->qp->qp_num;
	struct verbs_qp ***leaf = &dev->qpn[(qpn >> VERBS_QPN_BITS) % VERBS_QPN_LEAF];

	if (!*leaf) {
		struct verbs_qp **made = calloc(VERBS_QPN_LEAF, sizeof(*made));

		if (!made)
			return -ENOMEM;
		__atomic_store_n(leaf, made, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&(*leaf)[qpn % VERBS_QPN_LEAF], qp, __ATOMIC_RELEASE);
	return 0;
}

static void
number_clear(struct verbs_dev *dev, uint32_t qpn)
{
	struct verbs_qp **leaf = dev->qpn[(qpn >> VERBS_QPN_BITS) % VERBS_QPN_LEAF];

	if (leaf)
		__atomic_store_n(&leaf[qpn % VERBS_QPN_LEAF], NULL, __ATOMIC_RELEASE);
}

static int
to_init(struct verbs_qp *qp)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = qp->dev->port,
		.qkey = qp->attr.qkey,
		/* Allow everything here: the regions restrict the peer's access. */
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};
	int mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;

	if (qp->attr.type == RDMA_QP_RC)
		attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
	mask |= qp->attr.type == RDMA_QP_UD ? IBV_QP_QKEY : IBV_QP_ACCESS_FLAGS;
	return -ibv_modify_qp(qp->qp, &attr, mask);
}

/** True if the adapter supports the rate limit of a queue pair. */
static bool
rate_possible(const struct verbs_dev *dev, const struct rdma_qp_attr *attr)
{
	return (dev->rate_types & 1u << type_of(attr->type)) &&
		(uint64_t)attr->rate_mbps * 1000 <= dev->rate_max_kbps;
}

struct rdma_qp *
verbs_qp_create(struct rdma_pd *pd, const struct rdma_qp_attr *attr)
{
	struct verbs_dev *dev = VERBS_DEV(pd->dev);
	struct ibv_qp_init_attr init = {
		.send_cq = VERBS_CQ(attr->send_cq)->cq,
		.recv_cq = VERBS_CQ(attr->recv_cq)->cq,
		.cap.max_send_wr = attr->max_send_wr,
		.cap.max_recv_wr = attr->max_recv_wr,
		.cap.max_send_sge = attr->max_send_sge,
		.cap.max_recv_sge = attr->max_recv_sge,
		.cap.max_inline_data = attr->max_inline,
		.qp_type = type_of(attr->type),
		.sq_sig_all = attr->signal_all,
	};
	struct verbs_qp *qp;
	int ret;

	if (attr->rate_mbps && !rate_possible(dev, attr)) {
		RDMA_LOG(ERR,
			"device %s: queue pair with a rate limit of %u Mb/s, the adapter "
			"supports at most %u for its type",
			pd->dev->name, attr->rate_mbps,
			dev->rate_types & 1u << init.qp_type ? dev->rate_max_kbps / 1000 : 0);
		return verbs_refuse(EINVAL);
	}
	qp = calloc(1, sizeof(*qp));
	if (!qp)
		return verbs_refuse(ENOMEM);
	qp->dev = dev;
	qp->attr = *attr;
	qp->mtu = attr->max_mtu;
	qp->max_message = attr->type == RDMA_QP_UD
		? RTE_MIN(attr->max_mtu, dev->port_attr.max_msg_sz)
		: dev->port_attr.max_msg_sz;
	if (queue_make(&qp->send, attr->max_send_wr) < 0 ||
		queue_make(&qp->recv, attr->max_recv_wr) < 0) {
		ret = -ENOMEM;
		goto free_qp;
	}
	qp->qp = ibv_create_qp(VERBS_PD(pd)->pd, &init);
	if (!qp->qp) {
		ret = -errno;
		RDMA_LOG(ERR,
			"device %s: queue pair of %u sends of %u entries, %u receives of %u, %u "
			"bytes inline: %s",
			pd->dev->name, attr->max_send_wr, attr->max_send_sge, attr->max_recv_wr,
			attr->max_recv_sge, attr->max_inline, strerror(-ret));
		goto free_qp;
	}
	ret = to_init(qp);
	if (ret < 0) {
		RDMA_LOG(ERR, "device %s: queue pair to INIT: %s", pd->dev->name, strerror(-ret));
		goto destroy_qp;
	}
	ret = number_set(dev, qp);
	if (ret < 0)
		goto destroy_qp;
	qp->base.qpn = qp->qp->qp_num;
	qp->state = RDMA_QP_INIT;
	LIST_INSERT_HEAD(&dev->qps, qp, next);
	return &qp->base;

destroy_qp:
	ibv_destroy_qp(qp->qp);
free_qp:
	free(qp->send.slot);
	free(qp->recv.slot);
	free(qp);
	return verbs_refuse(-ret);
}

int
verbs_qp_destroy(struct rdma_qp *base)
{
	struct verbs_qp *qp = VERBS_QP(base);
	int error;

	/* From here on, its remaining completions are stale. */
	number_clear(qp->dev, base->qpn);
	error = ibv_destroy_qp(qp->qp);
	if (error) {
		number_set(qp->dev, qp);
		RDMA_LOG(ERR, "device %s: cannot destroy queue pair 0x%06x: %s",
			base->pd->dev->name, base->qpn, strerror(error));
		return -error;
	}
	LIST_REMOVE(qp, next);
	free(qp->send.slot);
	free(qp->recv.slot);
	free(qp);
	return 0;
}

/**
 * Move a queue pair to RTR and RTS. `rtr` and `rts` contain the path, numbers and PSNs; timeouts
 * and retry counts are those of the queue pair's attributes.
 */
static int
to_rts(struct verbs_qp *qp, struct ibv_qp_attr *rtr, int rtr_mask, struct ibv_qp_attr *rts,
	int rts_mask)
{
	const bool rc = qp->attr.type == RDMA_QP_RC;
	int error;

	if (rc) {
		rtr->min_rnr_timer = qp->attr.min_rnr_timer;
		rtr_mask |= IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC;
		rts->timeout = qp->attr.ack_timeout;
		rts->retry_cnt = qp->attr.retry_count;
		rts->rnr_retry = qp->attr.rnr_retry;
		rts_mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			IBV_QP_MAX_QP_RD_ATOMIC;
	}
	if (qp->attr.type != RDMA_QP_UD) {
		rtr->ah_attr.grh.traffic_class = qp->attr.traffic_class;
		rtr->ah_attr.grh.hop_limit = qp->attr.hop_limit;
	}
	error = ibv_modify_qp(qp->qp, rtr, rtr_mask);
	if (error) {
		RDMA_LOG(ERR, "device %s: queue pair 0x%06x to RTR: %s", qp->dev->base.name,
			qp->base.qpn, strerror(error));
		return error == ETIMEDOUT || error == ENETUNREACH ? -EHOSTUNREACH : -error;
	}
	if (qp->attr.type != RDMA_QP_UD)
		qp->mtu = verbs_mtu_bytes(rtr->path_mtu);
	error = ibv_modify_qp(qp->qp, rts, rts_mask);
	if (error) {
		RDMA_LOG(ERR, "device %s: queue pair 0x%06x to RTS: %s", qp->dev->base.name,
			qp->base.qpn, strerror(error));
		return -error;
	}
	if (qp->attr.rate_mbps) {
		struct ibv_qp_rate_limit_attr rate = {.rate_limit = qp->attr.rate_mbps * 1000};

		error = ibv_modify_qp_rate_limit(qp->qp, &rate);
		if (error) {
			RDMA_LOG(ERR, "device %s: cannot limit queue pair 0x%06x to %u Mb/s: %s",
				qp->dev->base.name, qp->base.qpn, qp->attr.rate_mbps,
				strerror(error));
			return -error;
		}
	}
	__atomic_store_n(&qp->state, RDMA_QP_RTS, __ATOMIC_RELEASE);
	return 0;
}

/** Move a UD queue pair to RTS, unless it is there already. It needs no peer. */
static int
ud_ready(struct verbs_qp *qp)
{
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};

	if (qp->state == RDMA_QP_RTS)
		return 0;
	return to_rts(qp, &rtr, IBV_QP_STATE, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int
verbs_qp_ready(
	struct verbs_qp *qp, struct rdma_cm_id *id, uint8_t rd_atom, uint8_t responder_rd_atom)
{
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};
	int rtr_mask, rts_mask;

	if (qp->attr.type == RDMA_QP_UD)
		return ud_ready(qp);
	if (rdma_init_qp_attr(id, &rtr, &rtr_mask) != 0 ||
		rdma_init_qp_attr(id, &rts, &rts_mask) != 0)
		return -errno;
	if (verbs_mtu_bytes(rtr.path_mtu) > qp->attr.max_mtu) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x: the CM agreed on an MTU of %u, at most %u "
			"expected",
			qp->dev->base.name, qp->base.qpn, verbs_mtu_bytes(rtr.path_mtu),
			qp->attr.max_mtu);
		return -EINVAL;
	}
	rtr.max_dest_rd_atomic = responder_rd_atom;
	rts.max_rd_atomic = rd_atom;
	return to_rts(qp, &rtr, rtr_mask, &rts, rts_mask);
}

int
verbs_qp_connect(struct rdma_qp *base, const struct rdma_qp_peer *peer)
{
	struct verbs_qp *qp = VERBS_QP(base);
	struct verbs_dev *dev = qp->dev;
	struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR};
	struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS};

	if (qp->attr.type == RDMA_QP_UD)
		return ud_ready(qp);
	if (qp->state != RDMA_QP_INIT || peer->mtu > qp->attr.max_mtu || peer->mtu < 256 ||
		(peer->mtu & (peer->mtu - 1)) || peer->rd_atom > qp->attr.max_rd_atom ||
		peer->responder_rd_atom > qp->attr.max_rd_atom ||
		!verbs_gid_of((const struct sockaddr *)&peer->addr, &rtr.ah_attr.grh.dgid)) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x in state %d connected with MTU %u, %u and %u "
			"reads or atomics, address family %d; expected state %d, a power of two "
			"from 256 to %u, at most %u, IPv4 or IPv6",
			dev->base.name, base->qpn, qp->state, peer->mtu, peer->rd_atom,
			peer->responder_rd_atom, peer->addr.ss_family, RDMA_QP_INIT,
			qp->attr.max_mtu, qp->attr.max_rd_atom);
		return -EINVAL;
	}
	rtr.path_mtu = verbs_mtu_code(peer->mtu);
	rtr.dest_qp_num = peer->qpn;
	rtr.rq_psn = peer->psn & 0xffffff;
	rtr.max_dest_rd_atomic = peer->responder_rd_atom;
	rtr.ah_attr.is_global = 1;
	rtr.ah_attr.port_num = dev->port;
	rtr.ah_attr.grh.sgid_index = dev->gid_index;
	rts.sq_psn = peer->local_psn & 0xffffff;
	rts.max_rd_atomic = peer->rd_atom;
	/* The kernel resolves the MAC address in this call, and the call waits for it. */
	return to_rts(qp, &rtr,
		IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN, &rts,
		IBV_QP_STATE | IBV_QP_SQ_PSN);
}

int
verbs_qp_error(struct rdma_qp *base)
{
	struct verbs_qp *qp = VERBS_QP(base);
	struct ibv_qp_attr attr = {.qp_state = IBV_QPS_ERR};
	int error = ibv_modify_qp(qp->qp, &attr, IBV_QP_STATE);

	if (error) {
		RDMA_LOG(ERR, "device %s: queue pair 0x%06x to ERROR: %s", qp->dev->base.name,
			base->qpn, strerror(error));
		return -error;
	}
	__atomic_store_n(&qp->state, RDMA_QP_ERROR, __ATOMIC_RELEASE);
	return 0;
}

static uint32_t
queued(const struct verbs_queue *queue)
{
	/* Read in this order: requests posted meanwhile increase the result, which is never
	 * negative. */
	uint32_t freed = __atomic_load_n(&queue->freed, __ATOMIC_ACQUIRE);

	return __atomic_load_n(&queue->posted, __ATOMIC_ACQUIRE) - freed;
}

/* Adapters do not count retransmissions per queue pair; rdma_xstats_get() has device counters. */
int
verbs_qp_info_get(const struct rdma_qp *base, struct rdma_qp_info *info)
{
	const struct verbs_qp *qp = VERBS_QP(base);

	info->state = __atomic_load_n(&qp->state, __ATOMIC_ACQUIRE);
	info->send_queued = queued(&qp->send);
	info->recv_queued = queued(&qp->recv);
	info->mtu = qp->mtu;
	return 0;
}

static bool
queue_uses(const struct verbs_queue *queue, uint32_t lkey)
{
	uint32_t at = __atomic_load_n(&queue->freed, __ATOMIC_ACQUIRE);
	const uint32_t end = __atomic_load_n(&queue->posted, __ATOMIC_ACQUIRE);
	unsigned int i;

	for (; at != end; at++) {
		const struct verbs_slot *slot = &queue->slot[at & queue->mask];

		for (i = 0; i < slot->nb_sge; i++)
			if (slot->lkey[i] == lkey)
				return true;
	}
	return false;
}

/** True if an outstanding request refers to this key. */
bool
verbs_mr_in_use(struct verbs_dev *dev, uint32_t lkey)
{
	const struct verbs_qp *qp;

	LIST_FOREACH(qp, &dev->qps, next)
	if (queue_uses(&qp->send, lkey) || queue_uses(&qp->recv, lkey))
		return true;
	return false;
}
