/* SPDX-License-Identifier: BSD-3-Clause */
/* Passive side of a connection: listener, REQ, REP, RTU. */
#include <errno.h>

#include <rte_errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

#define TIMEOUT_MS    10000
#define RETRIES	      15
#define ACK_DELAY     15 /* 134 ms, as in Linux: maximum delay of our acknowledges */
#define MTU_WARNING_S 10
#define MRA_TIMEOUT   20 /* 4.3 s before the peer retransmits the REQ */

/* ---- listeners ------------------------------------------------------------------------------ */

struct roce_conn *
roce_passive_listener(struct roce_control *c, uint64_t service_id)
{
	struct roce_conn *listener;

	TAILQ_FOREACH(listener, &c->conns.listeners, next_listed)
		if (listener->service_id == service_id)
			return listener;
	return NULL;
}

struct rdma_conn *
roce_conn_listen(struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port, uint16_t backlog)
{
	struct roce_control *c = roce_dev(dev)->control;
	struct roce_conn *conn;

	if (roce_passive_listener(c, roce_service_id(type, port))) {
		RDMA_LOG(ERR, "device %s: port %u has a listener of that type", dev->name, port);
		rte_errno = EADDRINUSE;
		return NULL;
	}
	conn = roce_conn_new(c);
	if (!conn)
		return NULL;
	conn->held = true;
	conn->type = type;
	conn->port = port;
	conn->service_id = roce_service_id(type, port);
	conn->backlog = RTE_MAX(backlog, 1);
	roce_conn_enter(conn, ROCE_CONN_LISTENING, "listen");
	return &conn->base;
}

/* ---- REQ ------------------------------------------------------------------------------------ */

static void
mra_send(struct roce_conn *conn, const struct roce_cm_packet *packet)
{
	const struct roce_cm_msg mra = {
		.attr = ROCE_CM_MRA,
		.tid = conn->tid,
		.mra =
			{
				.local_id = conn->local_id,
				.remote_id = conn->remote_id,
				.answered = ROCE_CM_ANSWERS_REQ,
				.timeout = MRA_TIMEOUT,
			},
	};

	roce_cm_answer(conn->control, packet, &mra);
}

/** A duplicate REQ: repeat the reply. */
static void
req_again(struct roce_conn *conn, const struct roce_cm_packet *packet)
{
	struct roce_control *c = conn->control;

	roce_control_count(c, ROCE_CM_DUPLICATES);
	switch (conn->state) {
	case ROCE_CONN_REQ_RECEIVED:
		mra_send(conn, packet);
		return;
	case ROCE_CONN_REP_SENT:
		roce_cm_repeat(conn);
		return;
	case ROCE_CONN_TIMEWAIT:
		roce_control_count(c, ROCE_CM_STALE);
		roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REQ, ROCE_REJ_STALE_CONNECTION);
		return;
	default:
		/* established: a late duplicate */
		return;
	}
}

/**
 * Check whether the REQ belongs to a connection that exists, or that is in time-wait.
 * @return true: handled
 */
static bool
req_known(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_req *req = &packet->msg.req;
	struct roce_conn *conn = roce_conn_find(c, ROCE_CONN_BY_PEER, &packet->src, req->local_id);

	if (conn && !conn->active && conn->tid == packet->msg.tid && conn->remote_qpn == req->qpn &&
		conn->remote_psn == req->psn) {
		req_again(conn, packet);
		return true;
	}
	if (!conn)
		conn = roce_conn_find(c, ROCE_CONN_BY_PEER_QPN, &packet->src, req->qpn);
	if (!conn)
		return false;
	/* The peer has restarted and uses a number that is still in use here (12.9.8.3.1). */
	roce_control_count(c, ROCE_CM_STALE);
	roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REQ, ROCE_REJ_STALE_CONNECTION);
	roce_end_lost(conn, -ESTALE, "REQ of a new connection");
	return true;
}

/** Usually the MTU of our own port is too small: log it at most every MTU_WARNING_S seconds. */
static void
mtu_warn(struct roce_control *c, const struct roce_cm_packet *packet, uint16_t mtu)
{
	char text[INET6_ADDRSTRLEN];

	if (c->now < c->mtu_warning)
		return;
	c->mtu_warning = c->now + c->hz * MTU_WARNING_S;
	RDMA_LOG(WARNING, "device %s: request of %s with a path MTU of %u, the device supports %u",
		c->dev->base.name, roce_gid_text(&packet->src, text, sizeof(text)), mtu,
		c->dev->mtu);
}

/** @return 0, or the reason for the rejection */
static uint16_t
req_check(struct roce_control *c, const struct roce_cm_packet *packet,
	const struct roce_conn *listener, struct roce_cma *cma)
{
	const struct roce_cm_req *req = &packet->msg.req;
	const uint16_t mtu = roce_cm_mtu_bytes(req->mtu);

	if (!listener || listener->type == RDMA_QP_UD) {
		roce_control_count(c, ROCE_CM_NO_LISTENER);
		return ROCE_REJ_INVALID_SERVICE_ID;
	}
	if (mtu == 0 || mtu > c->dev->mtu) {
		roce_control_count(c, ROCE_CM_BAD_MTU);
		mtu_warn(c, packet, mtu);
		return ROCE_REJ_INVALID_MTU;
	}
	if (req->transport != (listener->type == RDMA_QP_UC ? 1 : 0)) {
		roce_control_count(c, ROCE_CM_BAD_REQUEST);
		return ROCE_REJ_INVALID_TRANSPORT;
	}
	if (memcmp(req->primary.local_gid, packet->src.raw, sizeof(packet->src)) != 0 ||
		memcmp(req->primary.remote_gid, packet->dst.raw, sizeof(packet->dst)) != 0) {
		roce_control_count(c, ROCE_CM_BAD_REQUEST);
		return ROCE_REJ_INVALID_GID;
	}
	if (roce_cma_decode(req->private_data, cma) < 0 || req->srq > 1 ||
		(req->pkey & ROCE_PKEY_BASE) != ROCE_PKEY_BASE) {
		roce_control_count(c, ROCE_CM_BAD_REQUEST);
		return ROCE_REJ_UNSUPPORTED;
	}
	return 0;
}

/** Index a request so that duplicates find it. @return 0; -EEXIST, -ENOSPC */
static int
request_index(struct roce_conn *conn)
{
	struct roce_control *c = conn->control;
	int ret;

	if (conn->type == RDMA_QP_UD)
		return roce_conn_index(
			c, ROCE_CONN_BY_PEER_SERVICE, &conn->peer, conn->remote_id, conn);
	ret = roce_conn_index(c, ROCE_CONN_BY_PEER, &conn->peer, conn->remote_id, conn);
	if (ret == 0)
		ret = roce_conn_index(
			c, ROCE_CONN_BY_PEER_QPN, &conn->peer, conn->remote_qpn, conn);
	return ret;
}

struct rdma_event *
roce_passive_conn(struct roce_control *c, const struct roce_cm_packet *packet,
	struct roce_conn *listener, const struct roce_cma *cma)
{
	const struct roce_cm_msg *msg = &packet->msg;
	const bool ud = listener->type == RDMA_QP_UD;
	struct rdma_event *event;
	struct roce_conn *conn;

	if (listener->pending >= listener->backlog) {
		/* the peer retransmits it */
		roce_control_count(c, ROCE_CM_BACKLOG_FULL);
		return NULL;
	}
	conn = roce_conn_new(c);
	if (!conn)
		return NULL;
	conn->held = true;
	conn->type = listener->type;
	conn->listener = listener;
	conn->port = cma->port;
	conn->peer = packet->src;
	conn->own = packet->dst;
	conn->mac = packet->mac;
	conn->tid = msg->tid;
	conn->remote_id = ud ? msg->sidr_req.request_id : msg->req.local_id;
	conn->remote_qpn = ud ? 0 : msg->req.qpn;
	roce_conn_enter(conn, ud ? ROCE_CONN_SIDR_RECEIVED : ROCE_CONN_REQ_RECEIVED,
		roce_cm_attr_name(msg->attr));
	event = roce_conn_event(conn, RDMA_EVENT_CONNECT_REQUEST, 0);
	if (!event || request_index(conn) < 0) {
		roce_control_forget(c, conn);
		conn->held = false;
		roce_conn_close(conn, "no room");
		return NULL;
	}
	event->listener = &listener->base;
	return event;
}

void
roce_passive_req(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_req *req = &packet->msg.req;
	struct roce_conn *conn, *listener;
	struct rdma_event *event;
	struct roce_cma cma;
	uint16_t reason;

	if (req_known(c, packet))
		return;
	listener = roce_passive_listener(c, req->service_id);
	reason = req_check(c, packet, listener, &cma);
	if (reason) {
		roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REQ, reason);
		return;
	}
	event = roce_passive_conn(c, packet, listener, &cma);
	if (!event)
		return;
	conn = roce_conn(event->conn);
	conn->remote_psn = req->psn;
	conn->mtu = roce_cm_mtu_bytes(req->mtu);
	conn->peer_starts = req->initiator_depth;
	conn->peer_allows = req->responder_resources;
	conn->retry_count = req->retry_count;
	conn->rnr_retry = req->rnr_retry;
	event->rd_atom = conn->peer_starts;
	event->responder_rd_atom = conn->peer_allows;
	event->remote_qpn = conn->remote_qpn;
	roce_conn_private(
		event, req->private_data + ROCE_CMA_BYTES, ROCE_CM_PRIVATE_REQ - ROCE_CMA_BYTES);
}

/* ---- replies of the application -------------------------------------------------------------- */

/** Send a REJ in reply to a connection's REQ. */
static void
req_reject(struct roce_conn *conn, uint16_t reason, uint16_t mtu, const void *private_data,
	uint16_t private_len)
{
	struct roce_cm_msg rej = {
		.attr = ROCE_CM_REJ,
		.tid = conn->tid,
		.rej =
			{
				.local_id = conn->local_id,
				.remote_id = conn->remote_id,
				.answered = ROCE_CM_ANSWERS_REQ,
				.reason = reason,
			},
	};

	if (mtu) {
		rej.rej.info_len = 1;
		rej.rej.info[0] = roce_cm_mtu_code(mtu) << 4;
	}
	if (private_len)
		memcpy(rej.rej.private_data, private_data, private_len);
	roce_control_count(conn->control, ROCE_CM_REJECTS_TX);
	roce_cm_send(conn, &rej);
}

static void
rep_send(struct roce_conn *conn, const struct rdma_qp *qp, const struct rdma_conn_attr *attr)
{
	struct roce_cm_msg rep = {
		.attr = ROCE_CM_REP,
		.tid = conn->tid,
		.rep =
			{
				.local_id = conn->local_id,
				.remote_id = conn->remote_id,
				.qpn = qp->qpn,
				.psn = conn->local_psn,
				.responder_resources =
					RTE_MIN(qp->attr.max_rd_atom, conn->peer_starts),
				.initiator_depth = RTE_MIN(qp->attr.max_rd_atom, conn->peer_allows),
				.ack_delay = ACK_DELAY,
				.rnr_retry = qp->attr.rnr_retry,
				.ca_guid = roce_cm_guid(conn->control->dev),
			},
	};

	if (attr->private_len)
		memcpy(rep.rep.private_data, attr->private_data, attr->private_len);
	roce_cm_send(conn, &rep);
}

static int
accept_check(const struct roce_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr)
{
	const char *name = qp->pd->dev->name;

	if (conn->state != ROCE_CONN_REQ_RECEIVED)
		return -ENOTCONN;
	if (attr->private_len > RDMA_PRIVATE_MAX) {
		RDMA_LOG(ERR, "device %s: %u bytes of private data, at most %u", name,
			attr->private_len, RDMA_PRIVATE_MAX);
		return -EINVAL;
	}
	if (qp->attr.type != conn->type || roce_qp_state(qp) != RDMA_QP_INIT ||
		roce_conn_find(conn->control, ROCE_CONN_BY_QPN, NULL, qp->qpn)) {
		RDMA_LOG(ERR,
			"device %s: cannot accept with queue pair 0x%06x, expected a new one of "
			"the listener's type",
			name, qp->qpn);
		return -EINVAL;
	}
	return 0;
}

int
roce_conn_accept(struct rdma_conn *base, struct rdma_qp *qp, const struct rdma_conn_attr *attr)
{
	struct roce_conn *conn = roce_conn(base);
	struct roce_control *c = conn->control;
	const uint16_t mtu = RTE_MIN(attr->mtu ? attr->mtu : qp->attr.max_mtu, qp->attr.max_mtu);
	struct roce_qp_modify modify = {
		.state = RDMA_QP_RTR,
		.peer_qpn = conn->remote_qpn,
		.mtu = conn->mtu,
		.responder_rd_atom = qp->attr.max_rd_atom,
	};
	struct roce_path path;
	int ret;

	roce_control_time(c);
	if (conn->type == RDMA_QP_UD)
		return roce_sidr_accept(conn, qp, attr);
	ret = accept_check(conn, qp, attr);
	if (ret < 0)
		return ret;
	if (conn->mtu > mtu) {
		RDMA_LOG(ERR, "device %s: request with MTU %u, queue pair 0x%06x supports %u",
			qp->pd->dev->name, conn->mtu, qp->qpn, mtu);
		roce_control_count(c, ROCE_CM_BAD_MTU);
		req_reject(conn, ROCE_REJ_INVALID_MTU, mtu, NULL, 0);
		roce_conn_close(conn, "MTU too large");
		return -EINVAL;
	}
	roce_conn_path(conn, qp, &path);
	modify.path = &path;
	conn->local_psn = roce_random(24);
	modify.peer_psn = conn->local_psn;
	ret = roce_conn_index(c, ROCE_CONN_BY_QPN, NULL, qp->qpn, conn);
	if (ret == 0)
		ret = roce_qp_modify(qp, &modify);
	if (ret < 0) {
		roce_conn_unindex(c, ROCE_CONN_BY_QPN, NULL, qp->qpn, conn);
		return -EINVAL;
	}
	conn->base.qp = qp;
	conn->local_qpn = qp->qpn;
	conn->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;
	conn->retries = attr->cm_retries ? attr->cm_retries : RETRIES;
	conn->keepalive_ms = attr->keepalive_ms;
	roce_conn_enter(conn, ROCE_CONN_REP_SENT, "accept");
	rep_send(conn, qp, attr);
	roce_cm_await(conn);
	return 0;
}

int
roce_conn_reject(struct rdma_conn *base, const void *private_data, uint16_t private_len)
{
	struct roce_conn *conn = roce_conn(base);
	struct roce_cm_msg *msg = NULL;
	const uint16_t room = conn->type == RDMA_QP_UD ? sizeof(msg->sidr_rep.private_data)
						       : sizeof(msg->rej.private_data);

	if (private_len > room) {
		RDMA_LOG(ERR, "device %s: %u bytes of private data, at most %u", base->dev->name,
			private_len, room);
		return -EINVAL;
	}
	roce_control_time(conn->control);
	if (conn->state == ROCE_CONN_SIDR_RECEIVED)
		roce_sidr_reject(conn, ROCE_SIDR_REJECTED, private_data, private_len);
	else if (conn->state == ROCE_CONN_REQ_RECEIVED)
		req_reject(conn, ROCE_REJ_CONSUMER, 0, private_data, private_len);
	roce_control_forget(conn->control, conn);
	conn->held = false;
	roce_conn_close(conn, "reject");
	return 0;
}

void
roce_passive_rtu(struct roce_conn *conn, const char *why)
{
	struct rdma_qp *qp = conn->base.qp;
	const struct roce_qp_modify modify = {
		.state = RDMA_QP_RTS,
		.local_psn = conn->remote_psn,
		.rd_atom = RTE_MIN(qp->attr.max_rd_atom, conn->peer_allows),
		.retry_count = RTE_MIN(qp->attr.retry_count, conn->retry_count),
		.rnr_retry = RTE_MIN(qp->attr.rnr_retry, conn->rnr_retry),
	};

	roce_conn_enter(conn, ROCE_CONN_ESTABLISHED, why);
	roce_control_count(conn->control, ROCE_CM_CONNECTED);
	/* Fails only if the queue pair moved to the error state meanwhile; its completions report
	 * that. */
	roce_qp_modify(qp, &modify);
	roce_end_watch(conn);
	conn->announced = true;
	roce_conn_event(conn, RDMA_EVENT_ESTABLISHED, 0);
}
