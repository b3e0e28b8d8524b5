/* SPDX-License-Identifier: BSD-3-Clause */
/* End of a connection: REJ, DREQ, DREP, time-outs, time-wait, destruction by the application. */
#include <errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

/* Time-wait: twice the ACK time-out, within these limits. */
#define TIMEWAIT_MS	500
#define TIMEWAIT_MAX_MS 8000

#define KEEPALIVES 8 /* number of probes that an idle peer may leave unanswered */

void
roce_end_timewait(struct roce_conn *conn, const char *why)
{
	const struct rdma_qp *qp = conn->base.qp;
	const uint8_t ack = qp ? qp->attr.ack_timeout : 14;
	const uint64_t ms = 2 * (4096ULL << ack) / 1000000;

	roce_conn_enter(conn, ROCE_CONN_TIMEWAIT, why);
	roce_expiry_start(conn->control, &conn->timer,
		RTE_MAX(RTE_MIN(ms, (uint64_t)TIMEWAIT_MAX_MS), (uint64_t)TIMEWAIT_MS));
}

/** A connection that was established has ended: move the queue pair to error, report the event,
 * enter time-wait. */
static void
conn_down(struct roce_conn *conn, int status, const char *why)
{
	roce_control_count(conn->control, ROCE_CM_DISCONNECTED);
	roce_conn_qp_error(conn);
	roce_conn_event(conn, RDMA_EVENT_DISCONNECTED, status);
	roce_end_timewait(conn, why);
}

/* ---- initiated by this side ------------------------------------------------------------------ */

static void
dreq_send(struct roce_conn *conn)
{
	const struct roce_cm_msg dreq = {
		.attr = ROCE_CM_DREQ,
		.tid = (uint64_t)roce_random(32) << 32 | roce_random(32),
		.dreq =
			{
				.local_id = conn->local_id,
				.remote_id = conn->remote_id,
				.qpn = conn->remote_qpn,
			},
	};

	roce_cm_send(conn, &dreq);
}

void
roce_end_disconnect(struct roce_conn *conn, const char *why)
{
	roce_conn_qp_error(conn);
	roce_conn_enter(conn, ROCE_CONN_DREQ_SENT, why);
	dreq_send(conn);
	roce_cm_await(conn);
}

void
roce_end_watch(struct roce_conn *conn)
{
	conn->probes_unanswered = 0;
	if (conn->keepalive_ms && conn->type == RDMA_QP_RC)
		roce_expiry_start(conn->control, &conn->timer, conn->keepalive_ms);
}

void
roce_end_idle(struct roce_conn *conn)
{
	const bool ask = conn->probes_unanswered < KEEPALIVES;
	const int alive = roce_qp_alive(conn->base.qp, ask);

	if (alive < 0)
		return; /* the queue pair is in error: its owner has been notified */
	if (alive) {
		roce_end_watch(conn);
		return;
	}
	conn->probes_unanswered++;
	if (ask) {
		roce_expiry_start(
			conn->control, &conn->timer, RTE_MAX(conn->keepalive_ms / KEEPALIVES, 1u));
		return;
	}
	/* sent in case only data packets are lost and the peer is still running */
	dreq_send(conn);
	conn_down(conn, -ETIMEDOUT, "no message from the peer");
}

int
roce_conn_disconnect(struct rdma_conn *base)
{
	struct roce_conn *conn = roce_conn(base);

	roce_control_time(conn->control);
	if (conn->state != ROCE_CONN_ESTABLISHED && conn->state != ROCE_CONN_REP_SENT)
		return -ENOTCONN;
	roce_end_disconnect(conn, "disconnect");
	return 0;
}

/** Send a REJ with reason time-out, so that the peer stops waiting. */
static void
timeout_rej_send(struct roce_conn *conn, enum roce_cm_answered answered)
{
	struct roce_cm_msg rej = {
		.attr = ROCE_CM_REJ,
		.tid = conn->tid,
		.rej =
			{
				.local_id = conn->local_id,
				.remote_id = conn->remote_id,
				.answered = answered,
				.info_len = sizeof(uint64_t),
				.reason = ROCE_REJ_TIMEOUT,
			},
	};
	const rte_be64_t guid = rte_cpu_to_be_64(roce_cm_guid(conn->control->dev));

	/* the peer matches a time-out REJ by the sender's GUID and id (12.6.7.2) */
	memcpy(rej.rej.info, &guid, sizeof(guid));
	roce_cm_send(conn, &rej);
}

void
roce_end_timeout(struct roce_conn *conn)
{
	struct roce_control *c = conn->control;

	roce_control_count(c, ROCE_CM_TIMEOUTS);
	switch (conn->state) {
	case ROCE_CONN_REQ_SENT:
		timeout_rej_send(conn, ROCE_CM_ANSWERS_OTHER);
		/* fall through */
	case ROCE_CONN_SIDR_SENT:
		roce_active_fail(conn, -ETIMEDOUT, "time-out");
		return;
	case ROCE_CONN_REP_SENT:
		timeout_rej_send(conn, ROCE_CM_ANSWERS_OTHER);
		roce_conn_qp_error(conn);
		roce_conn_event(conn, RDMA_EVENT_UNREACHABLE, -ETIMEDOUT);
		roce_end_timewait(conn, "time-out");
		return;
	default:
		conn_down(conn, -ETIMEDOUT, "time-out");
	}
}

/** Close a listener: reject the requests that were not yet delivered to the application. */
static void
listener_close(struct roce_conn *listener)
{
	struct roce_control *c = listener->control;
	struct roce_conn *conn, *next;

	for (conn = TAILQ_FIRST(&c->conns.all); conn; conn = next) {
		next = TAILQ_NEXT(conn, next);
		if (conn->listener != listener)
			continue;
		if (roce_control_forget(c, conn))
			roce_conn_reject(&conn->base, NULL, 0);
		else
			conn->listener = NULL; /* the application has it */
	}
	roce_conn_close(listener, "destroy");
}

int
roce_conn_destroy(struct rdma_conn *base)
{
	struct roce_conn *conn = roce_conn(base);
	struct roce_control *c = conn->control;

	roce_control_time(c);
	roce_control_forget(c, conn);
	switch (conn->state) {
	case ROCE_CONN_REQ_RECEIVED:
	case ROCE_CONN_SIDR_RECEIVED:
		return roce_conn_reject(base, NULL, 0);
	case ROCE_CONN_REQ_SENT:
		timeout_rej_send(conn, ROCE_CM_ANSWERS_OTHER);
		break;
	case ROCE_CONN_REP_SENT:
	case ROCE_CONN_ESTABLISHED:
		roce_end_disconnect(conn, "destroy");
		break;
	case ROCE_CONN_MEMBER:
		roce_multicast_leave(conn);
		break;
	default:
		break;
	}
	conn->held = false;
	conn->base.qp = NULL;
	switch (conn->state) {
	case ROCE_CONN_LISTENING:
		listener_close(conn);
		return 0;
	case ROCE_CONN_DREQ_SENT:
	case ROCE_CONN_TIMEWAIT:
		return 0; /* continues without the application, then frees itself */
	case ROCE_CONN_SIDR_DONE:
		if (!conn->active)
			return 0; /* likewise: answers duplicates */
				  /* fall through */
	default:
		roce_conn_close(conn, "destroy");
		return 0;
	}
}

/* ---- initiated by the peer ------------------------------------------------------------------- */

void
roce_end_lost(struct roce_conn *conn, int status, const char *why)
{
	switch (conn->state) {
	case ROCE_CONN_REP_SENT:
	case ROCE_CONN_ESTABLISHED:
	case ROCE_CONN_DREQ_SENT:
		conn_down(conn, status, why);
		return;
	case ROCE_CONN_REQ_RECEIVED:
	case ROCE_CONN_SIDR_RECEIVED:
		/* not yet delivered to the application: drop the request without an event */
		if (roce_control_forget(conn->control, conn))
			conn->held = false;
		roce_conn_event(conn, RDMA_EVENT_REJECTED, status);
		roce_conn_close(conn, why);
		return;
	case ROCE_CONN_SIDR_DONE:
		roce_conn_close(conn, why);
		return;
	default:
		return;
	}
}

void
roce_end_removed(struct roce_conn *conn)
{
	static const char why[] = "port removed";

	switch (conn->state) {
	case ROCE_CONN_RESOLVING:
	case ROCE_CONN_REQ_SENT:
	case ROCE_CONN_SIDR_SENT:
		roce_active_fail(conn, -ENODEV, why);
		return;
	case ROCE_CONN_MEMBER:
		roce_conn_event(conn, RDMA_EVENT_MULTICAST_ERROR, -ENODEV);
		return;
	default:
		roce_end_lost(conn, -ENODEV, why);
	}
}

static void
rej_own(struct roce_conn *conn, const struct roce_cm_rej *rej, uint64_t tid)
{
	struct rdma_event *event;

	switch (conn->state) {
	case ROCE_CONN_REQ_SENT:
		if (rej->reason == ROCE_REJ_INVALID_MTU && tid != conn->tid) {
			/* refers to the REQ before the retry with a smaller MTU, and was already
			 * handled */
			roce_control_count(conn->control, ROCE_CM_DUPLICATES);
			return;
		}
		if (roce_active_retry_mtu(conn, rej))
			return;
		break;
	case ROCE_CONN_REP_SENT:
		roce_conn_qp_error(conn);
		break;
	case ROCE_CONN_REQ_RECEIVED:
	case ROCE_CONN_ESTABLISHED:
	case ROCE_CONN_DREQ_SENT:
		roce_end_lost(conn, rej->reason, "REJ");
		return;
	default:
		roce_control_count(conn->control, ROCE_CM_UNEXPECTED);
		return;
	}
	roce_control_count(conn->control, ROCE_CM_REJECTS_RX);
	event = roce_conn_event(conn, RDMA_EVENT_REJECTED, rej->reason);
	if (event)
		roce_conn_private(event, rej->private_data, sizeof(rej->private_data));
	if (conn->state == ROCE_CONN_REP_SENT)
		roce_end_timewait(conn, "REJ");
	else
		roce_conn_close(conn, "REJ");
}

/** Find, by the peer's id, a request whose reply has not reached the peer. */
static struct roce_conn *
find_unanswered(struct roce_control *c, const struct roce_cm_packet *packet, uint32_t remote_id)
{
	struct roce_conn *conn = roce_conn_find(c, ROCE_CONN_BY_PEER, &packet->src, remote_id);

	return conn && (conn->state == ROCE_CONN_REQ_RECEIVED || conn->state == ROCE_CONN_REP_SENT)
		? conn
		: NULL;
}

void
roce_end_rej(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_rej *rej = &packet->msg.rej;
	struct roce_conn *conn = roce_cm_conn(c, packet, rej->remote_id, rej->local_id);

	RDMA_LOG(DEBUG, "REJ: %u, %s", rej->reason, roce_cm_reason_name(rej->reason));
	/* the peer timed out before it knew our id: the REJ does not contain it */
	if (!conn && rej->reason == ROCE_REJ_TIMEOUT && rej->remote_id == 0)
		conn = find_unanswered(c, packet, rej->local_id);
	if (conn)
		rej_own(conn, rej, packet->msg.tid);
	else
		roce_control_count(c, ROCE_CM_UNMATCHED);
}

void
roce_end_dreq(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_dreq *dreq = &packet->msg.dreq;
	const struct roce_cm_msg drep = {
		.attr = ROCE_CM_DREP,
		.tid = packet->msg.tid,
		.drep = {.local_id = dreq->remote_id, .remote_id = dreq->local_id},
	};
	struct roce_conn *conn = roce_cm_conn(c, packet, dreq->remote_id, dreq->local_id);

	if (!conn) {
		/* connection already freed: reply, so that the peer can free it, too */
		roce_control_count(c, ROCE_CM_UNMATCHED);
		roce_cm_answer(c, packet, &drep);
		return;
	}
	if (dreq->qpn != conn->local_qpn) {
		roce_control_count(c, ROCE_CM_UNEXPECTED);
		return;
	}
	switch (conn->state) {
	case ROCE_CONN_REP_SENT:
	case ROCE_CONN_ESTABLISHED:
	case ROCE_CONN_DREQ_SENT:
		roce_cm_answer(c, packet, &drep);
		conn_down(conn, 0, "DREQ");
		return;
	case ROCE_CONN_TIMEWAIT:
		roce_control_count(c, ROCE_CM_DUPLICATES);
		roce_cm_answer(c, packet, &drep);
		return;
	default:
		roce_control_count(c, ROCE_CM_UNEXPECTED);
	}
}

void
roce_end_drep(struct roce_control *c, const struct roce_cm_packet *packet)
{
	const struct roce_cm_short *drep = &packet->msg.drep;
	struct roce_conn *conn = roce_cm_conn(c, packet, drep->remote_id, drep->local_id);

	if (!conn)
		roce_control_count(c, ROCE_CM_UNMATCHED);
	else if (conn->state == ROCE_CONN_DREQ_SENT)
		conn_down(conn, 0, "DREP");
	else
		roce_control_count(c, ROCE_CM_UNEXPECTED);
}
