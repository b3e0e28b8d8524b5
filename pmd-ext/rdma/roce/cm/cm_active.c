/* SPDX-License-Identifier: BSD-3-Clause */
/* Active side of a connection: address resolution, REQ, REP, RTU. */
#include <errno.h>

#include <rte_errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

#define TIMEOUT_MS 10000
#define RETRIES	   15
#define EPHEMERAL  32768 /* source ports, as in Linux: 32768 to 60999 */
#define EPHEMERALS 28232
#define REQ_USER   (ROCE_CM_PRIVATE_REQ - ROCE_CMA_BYTES)
#define SIDR_USER  (ROCE_CM_PRIVATE_SIDR - ROCE_CMA_BYTES)

/* Time-outs in a REQ, 4.096 us x 2^n. */
#define REMOTE_TIMEOUT 20 /* 4.3 s: the peer's response time; it sends an MRA if it needs more */
#define LOCAL_TIMEOUT  17 /* 0.54 s: the peer then retransmits its REP */

static struct rdma_conn *
refuse(int error)
{
	rte_errno = error;
	return NULL;
}

/** Check the arguments of a connection attempt. @return 0; negative errno, logged */
static int
connect_check(struct rdma_qp *qp, const struct rdma_conn_attr *attr, const struct roce_gid *dst)
{
	struct roce_dev *dev = roce_dev(qp->pd->dev);
	const bool ud = qp->attr.type == RDMA_QP_UD;
	const unsigned int room = ud ? SIDR_USER : REQ_USER;
	char text[INET6_ADDRSTRLEN];

	if (attr->private_len > room) {
		RDMA_LOG(ERR, "device %s: %u bytes of private data, at most %u", dev->base.name,
			attr->private_len, room);
		return -EINVAL;
	}
	if (attr->mtu && roce_cm_mtu_bytes(roce_cm_mtu_code(attr->mtu)) != attr->mtu) {
		RDMA_LOG(ERR,
			"device %s: connection of MTU %u, expected 256, 512, 1024, 2048 or 4096",
			dev->base.name, attr->mtu);
		return -EINVAL;
	}
	if (roce_gid_is_multicast(dst) || roce_gid_is_none(dst)) {
		RDMA_LOG(ERR, "device %s: connection to %s, expected a unicast address",
			dev->base.name, roce_gid_text(dst, text, sizeof(text)));
		return -EINVAL;
	}
	if (!roce_dev_source(dev, dst)) {
		RDMA_LOG(ERR, "device %s: connection to %s, but the device has no such address",
			dev->base.name, roce_gid_text(dst, text, sizeof(text)));
		return -EAFNOSUPPORT;
	}
	if (!ud &&
		(roce_qp_state(qp) != RDMA_QP_INIT ||
			roce_conn_find(dev->control, ROCE_CONN_BY_QPN, NULL, qp->qpn))) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x was already connected, expected a new one",
			dev->base.name, qp->qpn);
		return -EINVAL;
	}
	return 0;
}

struct rdma_conn *
roce_conn_connect(struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr)
{
	struct roce_dev *dev = roce_dev(qp->pd->dev);
	struct roce_control *c = dev->control;
	const bool ud = qp->attr.type == RDMA_QP_UD;
	struct roce_conn *conn;
	struct roce_gid peer;
	int ret = roce_gid_from_sockaddr(&peer, dst);

	if (ret < 0)
		RDMA_LOG(ERR, "device %s: connection to an address of family %d, expected IP",
			dev->base.name, dst->sa_family);
	else
		ret = connect_check(qp, attr, &peer);
	if (ret < 0)
		return refuse(-ret);
	conn = roce_conn_new(c);
	if (!conn)
		return NULL;
	roce_control_time(c);
	conn->base.dev = &dev->base;
	conn->base.qp = qp;
	conn->held = true;
	conn->active = true;
	conn->type = qp->attr.type;
	conn->peer = peer;
	conn->own = *roce_dev_source(dev, &peer);
	/* sin_port and sin6_port have the same offset */
	conn->port = rte_be_to_cpu_16(((const struct sockaddr_in *)dst)->sin_port);
	conn->service_id = roce_service_id(conn->type, conn->port);
	conn->source_port =
		attr->source_port ? attr->source_port : EPHEMERAL + roce_random(32) % EPHEMERALS;
	conn->tid = (uint64_t)roce_random(32) << 32 | roce_random(32);
	conn->local_psn = roce_random(24);
	conn->mtu = RTE_MIN(attr->mtu ? attr->mtu : qp->attr.max_mtu, qp->attr.max_mtu);
	conn->timeout_ms = attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;
	conn->retries = attr->cm_retries ? attr->cm_retries : RETRIES;
	conn->keepalive_ms = attr->keepalive_ms;
	conn->private_len = attr->private_len;
	if (attr->private_len)
		memcpy(conn->private_data, attr->private_data, attr->private_len);
	if (!ud) {
		conn->local_qpn = qp->qpn;
		if (roce_conn_index(c, ROCE_CONN_BY_QPN, NULL, qp->qpn, conn) < 0) {
			conn->held = false;
			roce_conn_close(conn, "table full");
			return refuse(ENOMEM);
		}
	}
	roce_conn_enter(conn, ROCE_CONN_RESOLVING, "connect");
	roce_expiry_start(c, &conn->timer, conn->timeout_ms);
	roce_active_resolved(conn);
	return &conn->base;
}

/** Private data of a REQ or SIDR_REQ: the RDMA CM header, then the user's data. */
static void
cma_put(const struct roce_conn *conn, uint8_t *private_data)
{
	const bool v4 = roce_gid_is_v4(&conn->peer);
	struct roce_cma cma = {.ip_version = v4 ? 4 : 6, .port = conn->source_port};

	/* an IPv4 address occupies the last four bytes and is not IPv4-mapped */
	memcpy(cma.src + (v4 ? 12 : 0), conn->own.raw + (v4 ? 12 : 0), v4 ? 4 : 16);
	memcpy(cma.dst + (v4 ? 12 : 0), conn->peer.raw + (v4 ? 12 : 0), v4 ? 4 : 16);
	roce_cma_encode(&cma, private_data);
	memcpy(private_data + ROCE_CMA_BYTES, conn->private_data, conn->private_len);
}

static void
req_send(struct roce_conn *conn)
{
	const struct rdma_qp_attr *qp = &conn->base.qp->attr;
	struct roce_cm_msg msg = {
		.attr = ROCE_CM_REQ,
		.tid = conn->tid,
		.req =
			{
				.local_id = conn->local_id,
				.service_id = conn->service_id,
				.ca_guid = roce_cm_guid(conn->control->dev),
				.qpn = conn->local_qpn,
				.responder_resources = qp->max_rd_atom,
				.initiator_depth = qp->max_rd_atom,
				.remote_timeout = REMOTE_TIMEOUT,
				.transport = qp->type == RDMA_QP_UC ? 1 : 0,
				.psn = conn->local_psn,
				.local_timeout = LOCAL_TIMEOUT,
				.retry_count = qp->retry_count,
				.pkey = ROCE_PKEY,
				.mtu = roce_cm_mtu_code(conn->mtu),
				.rnr_retry = qp->rnr_retry,
				.cm_retries = RTE_MIN(conn->retries, 15),
				.primary =
					{
						.local_lid = 0xffff,
						.remote_lid = 0xffff,
						.traffic_class = qp->traffic_class,
						.hop_limit = qp->hop_limit,
						.ack_timeout = qp->ack_timeout,
					},
			},
	};

	memcpy(msg.req.primary.local_gid, conn->own.raw, sizeof(conn->own));
	memcpy(msg.req.primary.remote_gid, conn->peer.raw, sizeof(conn->peer));
	cma_put(conn, msg.req.private_data);
	roce_cm_send(conn, &msg);
}

/** Send a SIDR_REQ for a datagram service. */
static void
sidr_send(struct roce_conn *conn)
{
	struct roce_cm_msg msg = {
		.attr = ROCE_CM_SIDR_REQ,
		.tid = conn->tid,
		.sidr_req =
			{
				.request_id = conn->local_id,
				.pkey = ROCE_PKEY,
				.service_id = conn->service_id,
			},
	};

	cma_put(conn, msg.sidr_req.private_data);
	roce_cm_send(conn, &msg);
}

void
roce_active_resolved(struct roce_conn *conn)
{
	const bool ud = conn->type == RDMA_QP_UD;
	const int ret = roce_control_resolve(conn->control->dev, &conn->peer, &conn->mac);

	if (ret == -EAGAIN)
		return;
	if (ret < 0) {
		roce_active_fail(conn, ret, "no such address");
		return;
	}
	roce_conn_enter(conn, ud ? ROCE_CONN_SIDR_SENT : ROCE_CONN_REQ_SENT, "address resolved");
	if (ud)
		sidr_send(conn);
	else
		req_send(conn);
	roce_cm_await(conn);
}

void
roce_active_fail(struct roce_conn *conn, int status, const char *why)
{
	roce_conn_event(conn, RDMA_EVENT_UNREACHABLE, status);
	roce_conn_close(conn, why);
}

bool
roce_active_retry_mtu(struct roce_conn *conn, const struct roce_cm_rej *rej)
{
	const uint8_t code = rej->info_len >= 1 ? rej->info[0] >> 4 : 0;

	/* the MTU shrinks with every retry, so that the retries end */
	if (rej->reason != ROCE_REJ_INVALID_MTU || code == 0 || code >= roce_cm_mtu_code(conn->mtu))
		return false;
	conn->mtu = roce_cm_mtu_bytes(code);
	conn->tid = (uint64_t)roce_random(32) << 32 | roce_random(32);
	roce_conn_enter(conn, ROCE_CONN_REQ_SENT, "REJ, smaller MTU expected");
	req_send(conn);
	roce_cm_await(conn);
	return true;
}

void
roce_active_rep(struct roce_conn *conn, const struct roce_cm_packet *packet)
{
	const struct roce_cm_rep *rep = &packet->msg.rep;
	struct rdma_qp *qp = conn->base.qp;
	struct roce_control *c = conn->control;
	struct roce_cm_msg rtu = {
		.attr = ROCE_CM_RTU,
		.tid = conn->tid,
		.rtu = {.local_id = conn->local_id, .remote_id = rep->local_id},
	};
	struct roce_qp_modify modify = {
		.state = RDMA_QP_RTS,
		.peer_qpn = rep->qpn,
		.peer_psn = conn->local_psn,
		.mtu = conn->mtu,
		.responder_rd_atom = qp->attr.max_rd_atom,
		.local_psn = rep->psn,
		.rd_atom = RTE_MIN(qp->attr.max_rd_atom, rep->responder_resources),
		.retry_count = UINT8_MAX,
		.rnr_retry = RTE_MIN(qp->attr.rnr_retry, rep->rnr_retry),
	};
	struct rdma_event *event;
	struct roce_path path;

	conn->remote_id = rep->local_id;
	conn->remote_qpn = rep->qpn;
	if (roce_conn_index(c, ROCE_CONN_BY_PEER_QPN, &conn->peer, rep->qpn, conn) < 0) {
		/* the REP names a queue pair that, to our knowledge, is already connected */
		roce_control_count(c, ROCE_CM_STALE);
		roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REP, ROCE_REJ_STALE_CONNECTION);
		roce_active_fail(conn, -ESTALE, "stale REP");
		return;
	}
	roce_conn_path(conn, qp, &path);
	modify.path = &path;
	if (roce_qp_modify(qp, &modify) < 0) {
		/* meanwhile the application has moved the queue pair to the error state */
		roce_cm_reject(c, packet, ROCE_CM_ANSWERS_REP, ROCE_REJ_CONSUMER);
		roce_active_fail(conn, -ENOTCONN, "queue pair in error");
		return;
	}
	/* a REQ of a restarted peer that reuses this id is detected */
	roce_conn_index(c, ROCE_CONN_BY_PEER, &conn->peer, rep->local_id, conn);
	roce_conn_enter(conn, ROCE_CONN_ESTABLISHED, "REP");
	roce_end_watch(conn);
	roce_cm_send(conn, &rtu);
	roce_control_count(c, ROCE_CM_CONNECTED);
	conn->announced = true;
	event = roce_conn_event(conn, RDMA_EVENT_ESTABLISHED, 0);
	if (!event)
		return;
	event->rd_atom = rep->initiator_depth;
	event->responder_rd_atom = rep->responder_resources;
	event->remote_qpn = rep->qpn;
	roce_conn_private(event, rep->private_data, sizeof(rep->private_data));
}
