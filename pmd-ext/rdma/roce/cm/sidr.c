/* SPDX-License-Identifier: BSD-3-Clause */
/* Service ID resolution: queue pair number and Q_Key of a datagram service (12.11). */
#include <errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

#define LINGER_MS 5000 /* how long duplicates of a request are answered */

/* ---- passive side ---------------------------------------------------------------------------- */

static void
rep_send(struct roce_control *c, const struct roce_cm_packet *packet, uint8_t status)
{
	const struct roce_cm_msg rep = {
		.attr = ROCE_CM_SIDR_REP,
		.tid = packet->msg.tid,
		.sidr_rep =
			{
				.request_id = packet->msg.sidr_req.request_id,
				.status = status,
				.service_id = packet->msg.sidr_req.service_id,
			},
	};

	roce_cm_answer(c, packet, &rep);
}

/** Check whether this query was received before. @return true: handled */
static bool
req_known(struct roce_control *c, const struct roce_cm_packet *packet)
{
	struct roce_conn *conn = roce_conn_find(
		c, ROCE_CONN_BY_PEER_SERVICE, &packet->src, packet->msg.sidr_req.request_id);

	if (!conn)
		return false;
	if (conn->tid != packet->msg.tid) {
		/* the peer has restarted and has lost the state of its earlier query */
		roce_end_lost(conn, -ESTALE, "SIDR_REQ of a new query");
		return false;
	}
	roce_control_count(c, ROCE_CM_DUPLICATES);
	if (conn->state == ROCE_CONN_SIDR_DONE)
		roce_cm_repeat(conn);
	return true;
}

void
roce_sidr_req(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_sidr_req *req = &packet->msg.sidr_req;
	struct roce_conn *listener;
	struct rdma_event *event;
	struct roce_cma cma;

	if (req_known(c, packet))
		return;
	listener = roce_passive_listener(c, req->service_id);
	if (!listener || listener->type != RDMA_QP_UD) {
		roce_control_count(c, ROCE_CM_NO_LISTENER);
		rep_send(c, packet, ROCE_SIDR_UNSUPPORTED);
		return;
	}
	if (roce_cma_decode(req->private_data, &cma) < 0) {
		roce_control_count(c, ROCE_CM_BAD_REQUEST);
		rep_send(c, packet, ROCE_SIDR_REJECTED);
		return;
	}
	event = roce_passive_conn(c, packet, listener, &cma);
	if (!event)
		return;
	roce_conn(event->conn)->service_id = req->service_id;
	roce_conn_private(
		event, req->private_data + ROCE_CMA_BYTES, ROCE_CM_PRIVATE_SIDR - ROCE_CMA_BYTES);
}

/** Send the application's reply. */
static void
answer(struct roce_conn *conn, uint8_t status, const struct rdma_qp *qp, const void *private_data,
	uint16_t private_len)
{
	struct roce_cm_msg rep = {
		.attr = ROCE_CM_SIDR_REP,
		.tid = conn->tid,
		.sidr_rep =
			{
				.request_id = conn->remote_id,
				.status = status,
				.qpn = qp ? qp->qpn : 0,
				.service_id = conn->service_id,
				.qkey = qp ? qp->attr.qkey : 0,
			},
	};

	if (private_len)
		memcpy(rep.sidr_rep.private_data, private_data, private_len);
	roce_cm_send(conn, &rep);
}

/** Move a datagram queue pair to RTS; it needs no peer for that. */
static int
qp_ready(struct rdma_qp *qp)
{
	const struct roce_qp_modify modify = {.state = RDMA_QP_RTS};

	return roce_qp_state(qp) == RDMA_QP_RTS ? 0 : roce_qp_modify(qp, &modify);
}

int
roce_sidr_accept(struct roce_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr)
{
	const struct roce_sidr_rep *rep = NULL;

	if (conn->state != ROCE_CONN_SIDR_RECEIVED)
		return -ENOTCONN;
	if (attr->private_len > sizeof(rep->private_data)) {
		RDMA_LOG(ERR, "device %s: %u bytes of private data, at most %zu", qp->pd->dev->name,
			attr->private_len, sizeof(rep->private_data));
		return -EINVAL;
	}
	if (qp->attr.type != RDMA_QP_UD || qp_ready(qp) < 0) {
		RDMA_LOG(ERR,
			"device %s: cannot accept with queue pair 0x%06x, expected a UD "
			"queue pair that is not in error",
			qp->pd->dev->name, qp->qpn);
		return -EINVAL;
	}
	conn->base.qp = qp;
	roce_conn_enter(conn, ROCE_CONN_SIDR_DONE, "accept");
	answer(conn, ROCE_SIDR_SUCCESS, qp, attr->private_data, attr->private_len);
	roce_control_count(conn->control, ROCE_SIDR_ANSWERED);
	roce_expiry_start(conn->control, &conn->timer, LINGER_MS);
	roce_conn_event(conn, RDMA_EVENT_ESTABLISHED, 0);
	return 0;
}

void
roce_sidr_reject(struct roce_conn *conn, enum roce_sidr_status status, const void *private_data,
	uint16_t private_len)
{
	roce_control_count(conn->control, ROCE_CM_REJECTS_TX);
	answer(conn, status, NULL, private_data, private_len);
}

/* ---- active side ----------------------------------------------------------------------------- */

static void
fail(struct roce_conn *conn, int status, const struct roce_sidr_rep *rep)
{
	struct rdma_event *event = roce_conn_event(conn, RDMA_EVENT_REJECTED, status);

	roce_control_count(conn->control, ROCE_CM_REJECTS_RX);
	if (event)
		roce_conn_private(event, rep->private_data, sizeof(rep->private_data));
	roce_conn_close(conn, "SIDR_REP");
}

void
roce_sidr_rep(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_sidr_rep *rep = &packet->msg.sidr_rep;
	struct roce_conn *conn = roce_conn_find(c, ROCE_CONN_BY_ID, NULL, rep->request_id);
	struct rdma_event *event;

	if (!conn || !roce_gid_equal(&conn->peer, &packet->src)) {
		roce_control_count(c, ROCE_CM_UNMATCHED);
		return;
	}
	if (conn->state != ROCE_CONN_SIDR_SENT) {
		roce_control_count(c, ROCE_CM_UNEXPECTED);
		return;
	}
	if (rep->status != ROCE_SIDR_SUCCESS) {
		fail(conn, rep->status, rep);
		return;
	}
	conn->ah = roce_ah_new(conn->base.qp->pd, &conn->peer, &conn->mac,
		conn->base.qp->attr.traffic_class, conn->base.qp->attr.hop_limit);
	if (!conn->ah || qp_ready(conn->base.qp) < 0) {
		roce_active_fail(conn, conn->ah ? -ENOTCONN : -ENOMEM, "SIDR_REP");
		return;
	}
	conn->remote_qpn = rep->qpn;
	roce_conn_enter(conn, ROCE_CONN_SIDR_DONE, "SIDR_REP");
	event = roce_conn_event(conn, RDMA_EVENT_ESTABLISHED, 0);
	if (!event)
		return;
	event->ah = &conn->ah->base;
	event->remote_qpn = rep->qpn;
	event->remote_qkey = rep->qkey;
	roce_conn_private(event, rep->private_data, sizeof(rep->private_data));
}
