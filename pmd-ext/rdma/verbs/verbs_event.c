/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Events of the connection manager and the adapter. The states of a connection are:
 *
 *   RESOLVING_ADDRESS -> RESOLVING_ROUTE -> CONNECTING -> ESTABLISHED -> OVER
 *   REQUESTED -> ACCEPTED -> ESTABLISHED -> OVER
 *   JOINING -> JOINED
 *
 * verbs_poll_cm() returns at most one event per call. The application may destroy the objects that
 * an event names. With more events in one call, a second one could name the same objects.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "verbs_device.h"

/*
 * Maximum CM or adapter events processed in one call, so that a flood does not block the control
 * lcore.
 */
#define STEPS_MAX 16

static const char *
state_name(enum verbs_conn_state state)
{
	static const char *const name[] = {
		[VERBS_RESOLVING_ADDRESS] = "resolving address",
		[VERBS_RESOLVING_ROUTE] = "resolving route",
		[VERBS_CONNECTING] = "connecting",
		[VERBS_LISTENING] = "listening",
		[VERBS_REQUESTED] = "requested",
		[VERBS_ACCEPTED] = "accepted",
		[VERBS_ESTABLISHED] = "established",
		[VERBS_JOINING] = "joining",
		[VERBS_JOINED] = "joined",
		[VERBS_OVER] = "over",
	};

	return name[state];
}

static void
to_state(struct verbs_conn *conn, enum verbs_conn_state state)
{
	RDMA_LOG(DEBUG, "device %s: connection %p: %s -> %s", conn->dev->base.name, (void *)conn,
		state_name(conn->state), state_name(state));
	conn->state = state;
}

static void
fill(struct rdma_event *event, struct verbs_conn *conn, enum rdma_event_type type, int status)
{
	event->type = type;
	event->status = status;
	event->conn = &conn->base;
	event->qp = conn->qp ? &conn->qp->base : NULL;
	event->remote_qpn = conn->remote_qpn;
	if (conn->id->route.addr.dst_addr.sa_family)
		memcpy(&event->peer, &conn->id->route.addr.dst_storage, sizeof(event->peer));
}

/** Report that a connection failed. Later CM events of it are ignored. */
static bool
fail(struct rdma_event *event, struct verbs_conn *conn, int status)
{
	const bool joining = conn->state == VERBS_JOINING || conn->state == VERBS_JOINED;

	to_state(conn, VERBS_OVER);
	fill(event, conn, joining ? RDMA_EVENT_MULTICAST_ERROR : RDMA_EVENT_UNREACHABLE, status);
	if (!joining)
		conn->dev->stats.cm_unreachable++;
	return true;
}

/** Process a REP: make our queue pair ready, then send the RTU to the peer. */
static bool
process_rep(struct rdma_event *event, struct verbs_conn *conn, const struct rdma_conn_param *param)
{
	struct verbs_qp *qp = conn->qp;
	int ret =
		verbs_qp_ready(qp, conn->id, RTE_MIN(param->initiator_depth, qp->attr.max_rd_atom),
			RTE_MIN(param->responder_resources, qp->attr.max_rd_atom));

	if (ret == 0 && rdma_establish(conn->id) != 0)
		ret = -errno;
	if (ret < 0) {
		RDMA_LOG(ERR, "device %s: connection answered but not established: %s",
			conn->dev->base.name, strerror(-ret));
		rdma_reject(conn->id, NULL, 0);
		return fail(event, conn, ret);
	}
	conn->remote_qpn = param->qp_num;
	to_state(conn, VERBS_ESTABLISHED);
	conn->dev->stats.cm_established++;
	fill(event, conn, RDMA_EVENT_ESTABLISHED, 0);
	return true;
}

/** UD: store the address handle of the service or of the multicast group. */
static bool
take_address(struct rdma_event *event, struct verbs_conn *conn, const struct rdma_ud_param *param,
	enum rdma_event_type type)
{
	struct ibv_ah_attr attr = param->ah_attr;
	int ret = verbs_qp_ready(conn->qp, NULL, 0, 0);

	attr.port_num = conn->dev->port;
	if (ret == 0) {
		conn->ah = verbs_ah_make(conn->qp->qp->pd, &attr);
		ret = conn->ah ? 0 : -rte_errno;
	}
	if (ret == 0 && type == RDMA_EVENT_MULTICAST_JOINED) {
		conn->mgid = attr.grh.dgid;
		ret = -ibv_attach_mcast(conn->qp->qp, &conn->mgid, 0);
		conn->attached = ret == 0;
	}
	if (ret < 0)
		return fail(event, conn, ret);
	to_state(conn, type == RDMA_EVENT_MULTICAST_JOINED ? VERBS_JOINED : VERBS_OVER);
	fill(event, conn, type, 0);
	event->ah = &conn->ah->base;
	event->remote_qpn = param->qp_num;
	event->remote_qkey = param->qkey;
	if (type == RDMA_EVENT_ESTABLISHED)
		conn->dev->stats.cm_established++;
	return true;
}

/** Create a connection for a peer's request. */
static bool
take_request(struct rdma_event *event, struct verbs_conn *listener, struct rdma_cm_id *id,
	const struct rdma_conn_param *param)
{
	struct verbs_conn *conn = calloc(1, sizeof(*conn));
	struct verbs_dev *dev = listener->dev;

	if (!conn) {
		rdma_reject(id, NULL, 0);
		rdma_destroy_id(id);
		return false;
	}
	conn->dev = dev;
	conn->id = id;
	conn->type = listener->type;
	conn->state = VERBS_REQUESTED;
	id->context = conn;
	LIST_INSERT_HEAD(&dev->conns, conn, next);
	dev->stats.cm_requests++;
	conn->remote_qpn = conn->type != RDMA_QP_UD ? param->qp_num : 0;
	fill(event, conn, RDMA_EVENT_CONNECT_REQUEST, 0);
	event->listener = &listener->base;
	if (conn->type != RDMA_QP_UD) {
		/* The names are those of our view: initiator_depth is what the peer allows us to
		 * start. */
		conn->rd_atom = param->responder_resources;
		conn->responder_rd_atom = param->initiator_depth;
		event->rd_atom = conn->rd_atom;
		event->responder_rd_atom = conn->responder_rd_atom;
	}
	return true;
}

static bool
resolve_route(struct rdma_event *event, struct verbs_conn *conn)
{
	const char *device = ibv_get_device_name(conn->dev->context->device);

	if (!conn->id->verbs || conn->id->port_num != conn->dev->port ||
		strcmp(ibv_get_device_name(conn->id->verbs->device), device) != 0) {
		RDMA_LOG(ERR, "device %s: the route to the peer uses another device",
			conn->dev->base.name);
		return fail(event, conn, -EHOSTUNREACH);
	}
	if (rdma_resolve_route(conn->id, 2000) != 0)
		return fail(event, conn, -errno);
	to_state(conn, VERBS_RESOLVING_ROUTE);
	return false;
}

static bool
connect_now(struct rdma_event *event, struct verbs_conn *conn)
{
	const struct rdma_qp_attr *attr = &conn->qp->attr;
	struct rdma_conn_param param = {
		.private_data = conn->private_data,
		.private_data_len = conn->private_len,
		.responder_resources = attr->max_rd_atom,
		.initiator_depth = attr->max_rd_atom,
		.retry_count = attr->retry_count,
		.rnr_retry_count = attr->rnr_retry,
		.qp_num = conn->qp->base.qpn,
	};

	if (rdma_connect(conn->id, &param) != 0)
		return fail(event, conn, -errno);
	to_state(conn, VERBS_CONNECTING);
	return false;
}

/** Process a disconnect by the peer or the CM. */
static bool
process_disconnect(struct rdma_event *event, struct verbs_conn *conn)
{
	if (conn->state == VERBS_REQUESTED || conn->state == VERBS_OVER)
		return false; /* rdma_conn_accept() will fail, or already reported */
	if (conn->qp->state != RDMA_QP_ERROR)
		verbs_qp_error(&conn->qp->base);
	/* Send the DREP; without it the peer sends the DREQ 15 times more. Not needed if we have
	 * sent the DREQ. */
	if (!conn->disconnecting)
		rdma_disconnect(conn->id);
	to_state(conn, VERBS_OVER);
	conn->dev->stats.cm_disconnected++;
	fill(event, conn, RDMA_EVENT_DISCONNECTED, 0);
	return true;
}

/** Process a CM event of a connection. @return true: *event is set */
static bool
process_cm_event(struct rdma_event *event, struct verbs_conn *conn, enum rdma_cm_event_type type,
	int status, const struct rdma_conn_param *param, const struct rdma_ud_param *ud)
{
	/* Ignore CM events of a connection that has already ended. */
	if (conn->state == VERBS_OVER && type != RDMA_CM_EVENT_TIMEWAIT_EXIT)
		return false;
	switch (type) {
	case RDMA_CM_EVENT_ADDR_RESOLVED:
		return resolve_route(event, conn);
	case RDMA_CM_EVENT_ROUTE_RESOLVED:
		return connect_now(event, conn);
	case RDMA_CM_EVENT_CONNECT_RESPONSE:
		return process_rep(event, conn, param);
	case RDMA_CM_EVENT_ESTABLISHED:
		if (conn->type == RDMA_QP_UD)
			return take_address(event, conn, ud, RDMA_EVENT_ESTABLISHED);
		to_state(conn, VERBS_ESTABLISHED);
		conn->dev->stats.cm_established++;
		fill(event, conn, RDMA_EVENT_ESTABLISHED, 0);
		return true;
	case RDMA_CM_EVENT_REJECTED:
		to_state(conn, VERBS_OVER);
		conn->dev->stats.cm_rejected++;
		fill(event, conn, RDMA_EVENT_REJECTED, status);
		return true;
	case RDMA_CM_EVENT_UNREACHABLE:
	case RDMA_CM_EVENT_CONNECT_ERROR:
		/* UD: a SIDR status above zero is a reply of the peer. */
		if (conn->type == RDMA_QP_UD && status > 0) {
			to_state(conn, VERBS_OVER);
			conn->dev->stats.cm_rejected++;
			fill(event, conn, RDMA_EVENT_REJECTED, status);
			return true;
		}
		return fail(event, conn, status < 0 ? status : -ETIMEDOUT);
	case RDMA_CM_EVENT_ADDR_ERROR:
	case RDMA_CM_EVENT_ROUTE_ERROR:
		return fail(event, conn, -EHOSTUNREACH);
	case RDMA_CM_EVENT_DISCONNECTED:
		return process_disconnect(event, conn);
	case RDMA_CM_EVENT_TIMEWAIT_EXIT:
		fill(event, conn, RDMA_EVENT_TIMEWAIT_EXIT, 0);
		return true;
	case RDMA_CM_EVENT_MULTICAST_JOIN:
		return take_address(event, conn, ud, RDMA_EVENT_MULTICAST_JOINED);
	case RDMA_CM_EVENT_MULTICAST_ERROR:
		return fail(event, conn, status < 0 ? status : -EHOSTUNREACH);
	default:
		RDMA_LOG(DEBUG, "device %s: %s, ignored", conn->dev->base.name,
			rdma_event_str(type));
		return false;
	}
}

static void
copy_private(struct rdma_event *event, const void *data, uint16_t length)
{
	event->private_len = data ? RTE_MIN(length, RDMA_PRIVATE_MAX) : 0;
	if (event->private_len)
		memcpy(event->private_data, data, event->private_len);
}

static bool
is_ud(enum rdma_cm_event_type type, const struct rdma_cm_id *id)
{
	return id->ps == RDMA_PS_UDP || type == RDMA_CM_EVENT_MULTICAST_JOIN;
}

/** Process one CM event. @return 1: *event is set; 0: not set; -EAGAIN: no CM event */
static int
poll_cm_event(struct verbs_dev *dev, struct rdma_event *event)
{
	struct rdma_cm_event *report, copy;

	if (rdma_get_cm_event(dev->channel, &report) != 0)
		return -EAGAIN;
	copy = *report;
	/* In a multicast join, the field is not private data but our context pointer. */
	if (copy.event != RDMA_CM_EVENT_MULTICAST_JOIN) {
		if (is_ud(copy.event, copy.id))
			copy_private(
				event, copy.param.ud.private_data, copy.param.ud.private_data_len);
		else
			copy_private(event, copy.param.conn.private_data,
				copy.param.conn.private_data_len);
	}
	/* Acknowledge at once, because rdma_destroy_id() waits for it. */
	rdma_ack_cm_event(report);
	if (copy.event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		if (dev->removed)
			return 0;
		dev->removed = true;
		event->type = RDMA_EVENT_DEVICE_REMOVED;
		return 1;
	}
	if (copy.event == RDMA_CM_EVENT_CONNECT_REQUEST)
		return take_request(event, copy.listen_id->context, copy.id, &copy.param.conn);
	return process_cm_event(
		event, copy.id->context, copy.event, copy.status, &copy.param.conn, &copy.param.ud);
}

static void
report_broken_qp(struct rdma_event *event, struct verbs_qp *qp)
{
	struct verbs_conn *conn;

	qp->error_reported = true;
	LIST_FOREACH(conn, &qp->dev->conns, next)
	{
		if (conn->qp == qp && conn->state != VERBS_OVER) {
			fill(event, conn, RDMA_EVENT_QP_ERROR, 0);
			return;
		}
	}
	event->type = RDMA_EVENT_QP_ERROR;
	event->qp = &qp->base;
}

/** Process one event of the adapter. @return 1: *event is set; 0: not set; -EAGAIN: no event */
static int
poll_async_event(struct verbs_dev *dev, struct rdma_event *event)
{
	struct ibv_async_event report;
	struct verbs_conn *conn;
	struct verbs_qp *qp;
	int told = 0;

	if (ibv_get_async_event(dev->context, &report) != 0)
		return -EAGAIN;
	dev->stats.async_events++;
	switch (report.event_type) {
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
		qp = verbs_qp_find(dev, report.element.qp->qp_num);
		if (qp) {
			__atomic_store_n(&qp->state, RDMA_QP_ERROR, __ATOMIC_RELEASE);
			if (!qp->error_reported) {
				report_broken_qp(event, qp);
				told = 1;
			}
		}
		break;
	case IBV_EVENT_COMM_EST:
		/* Data arrived before the RTU: it also establishes the connection. */
		LIST_FOREACH(conn, &dev->conns, next)
		if (conn->state == VERBS_ACCEPTED && conn->qp->qp == report.element.qp)
			rdma_notify(conn->id, IBV_EVENT_COMM_EST);
		break;
	case IBV_EVENT_CQ_ERR:
		dev->stats.cq_overrun++;
		RDMA_LOG(ERR, "device %s: completion queue overrun", dev->base.name);
		break;
	case IBV_EVENT_DEVICE_FATAL:
		if (!dev->removed) {
			dev->removed = true;
			event->type = RDMA_EVENT_DEVICE_REMOVED;
			told = 1;
		}
		break;
	default:
		RDMA_LOG(DEBUG, "device %s: %s", dev->base.name,
			ibv_event_type_str(report.event_type));
	}
	ibv_ack_async_event(&report);
	return told;
}

/**
 * Report what neither the CM nor the adapter reports: queue pairs that failed with a completion,
 * accepted UD requests, and timeouts.
 */
static bool
poll_own(struct verbs_dev *dev, struct rdma_event *event)
{
	struct verbs_conn *conn;
	struct verbs_qp *qp;
	uint64_t now;

	if (__atomic_exchange_n(&dev->qp_broken, false, __ATOMIC_ACQ_REL)) {
		LIST_FOREACH(qp, &dev->qps, next)
		if (__atomic_load_n(&qp->broken, __ATOMIC_ACQUIRE) && !qp->error_reported) {
			/* Other queue pairs may have failed, too. */
			__atomic_store_n(&dev->qp_broken, true, __ATOMIC_RELEASE);
			report_broken_qp(event, qp);
			return true;
		}
	}
	now = rte_get_tsc_cycles();
	LIST_FOREACH(conn, &dev->conns, next)
	{
		if (conn->established_pending) {
			conn->established_pending = false;
			dev->stats.cm_established++;
			fill(event, conn, RDMA_EVENT_ESTABLISHED, 0);
			return true;
		}
		switch (conn->state) {
		case VERBS_RESOLVING_ADDRESS:
		case VERBS_RESOLVING_ROUTE:
		case VERBS_CONNECTING:
		case VERBS_ACCEPTED:
		case VERBS_JOINING:
			if ((int64_t)(now - conn->deadline) < 0)
				break;
			if (conn->state == VERBS_ACCEPTED)
				verbs_qp_error(&conn->qp->base);
			dev->stats.cm_timed_out++;
			return fail(event, conn, -ETIMEDOUT);
		default:
			break;
		}
	}
	return false;
}

uint16_t
verbs_poll_cm(struct rdma_dev *base, struct rdma_event *event, uint16_t n)
{
	struct verbs_dev *dev = VERBS_DEV(base);
	unsigned int i;
	int got = 0;

	if (n == 0)
		return 0;
	for (i = 0; i < STEPS_MAX && got == 0; i++) {
		memset(event, 0, sizeof(*event));
		got = poll_cm_event(dev, event);
	}
	if (got <= 0) {
		memset(event, 0, sizeof(*event));
		for (i = 0, got = 0; i < STEPS_MAX && got == 0; i++)
			got = poll_async_event(dev, event);
	}
	return got > 0 || poll_own(dev, event);
}
