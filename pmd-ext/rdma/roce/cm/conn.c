/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <stdlib.h>

#include <rte_errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

static const char *const state_names[] = {
	[ROCE_CONN_NEW] = "new",
	[ROCE_CONN_LISTENING] = "listening",
	[ROCE_CONN_RESOLVING] = "resolving",
	[ROCE_CONN_REQ_SENT] = "REQ sent",
	[ROCE_CONN_REQ_RECEIVED] = "REQ received",
	[ROCE_CONN_REP_SENT] = "REP sent",
	[ROCE_CONN_ESTABLISHED] = "established",
	[ROCE_CONN_DREQ_SENT] = "DREQ sent",
	[ROCE_CONN_TIMEWAIT] = "time-wait",
	[ROCE_CONN_SIDR_SENT] = "SIDR_REQ sent",
	[ROCE_CONN_SIDR_RECEIVED] = "SIDR_REQ received",
	[ROCE_CONN_SIDR_DONE] = "SIDR done",
	[ROCE_CONN_MEMBER] = "member",
	[ROCE_CONN_CLOSED] = "closed",
};

static void conn_expired(struct roce_control *c, struct roce_expiry *timer);

struct roce_conn *
roce_conn_new(struct roce_control *c)
{
	struct roce_conn *conn;

	rte_errno = ENODEV;
	if (c->removed)
		return NULL;
	rte_errno = ENOMEM;
	if (c->conns.nb_conns >= c->conns.max) {
		roce_control_count(c, ROCE_CM_TABLE_FULL);
		return NULL;
	}
	conn = calloc(1, sizeof(*conn));
	if (!conn)
		return NULL;
	conn->control = c;
	conn->timer.expired = conn_expired;
	do {
		conn->local_id = roce_random(32);
	} while (conn->local_id == 0 || roce_conn_find(c, ROCE_CONN_BY_ID, NULL, conn->local_id));
	if (roce_conn_index(c, ROCE_CONN_BY_ID, NULL, conn->local_id, conn) < 0) {
		free(conn);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&c->conns.all, conn, next);
	c->conns.nb_conns++;
	return conn;
}

static bool
is_pending(enum roce_conn_state state)
{
	return state == ROCE_CONN_REQ_RECEIVED || state == ROCE_CONN_SIDR_RECEIVED;
}

/** The list of struct roce_conns for a state. @return NULL: none */
static struct roce_conn_list *
state_list(struct roce_control *c, enum roce_conn_state state)
{
	switch (state) {
	case ROCE_CONN_LISTENING:
		return &c->conns.listeners;
	case ROCE_CONN_RESOLVING:
		return &c->conns.resolving;
	default:
		return NULL;
	}
}

void
roce_conn_enter(struct roce_conn *conn, enum roce_conn_state state, const char *why)
{
	struct roce_control *c = conn->control;
	struct roce_conn_list *from = state_list(c, conn->state), *to = state_list(c, state);

	RDMA_LOG(DEBUG, "connection 0x%08x: %s -> %s: %s", conn->local_id, state_names[conn->state],
		state_names[state], why);
	roce_expiry_stop(c, &conn->timer);
	if (from)
		TAILQ_REMOVE(from, conn, next_listed);
	if (to)
		TAILQ_INSERT_TAIL(to, conn, next_listed);
	if (conn->listener && !is_pending(state)) {
		conn->listener->pending--;
		conn->listener = NULL;
	} else if (conn->listener && !is_pending(conn->state)) {
		conn->listener->pending++;
	}
	conn->state = state;
}

void
roce_conn_close(struct roce_conn *conn, const char *why)
{
	struct roce_control *c = conn->control;

	if (conn->state != ROCE_CONN_CLOSED) {
		roce_conn_enter(conn, ROCE_CONN_CLOSED, why);
		roce_conn_unindex(c, ROCE_CONN_BY_ID, NULL, conn->local_id, conn);
		roce_conn_unindex(c, ROCE_CONN_BY_QPN, NULL, conn->local_qpn, conn);
		roce_conn_unindex(c, ROCE_CONN_BY_PEER, &conn->peer, conn->remote_id, conn);
		roce_conn_unindex(c, ROCE_CONN_BY_PEER_SERVICE, &conn->peer, conn->remote_id, conn);
		roce_conn_unindex(c, ROCE_CONN_BY_PEER_QPN, &conn->peer, conn->remote_qpn, conn);
	}
	if (!conn->held) {
		TAILQ_REMOVE(&c->conns.all, conn, next);
		TAILQ_INSERT_TAIL(&c->conns.dead, conn, next);
	}
}

void
roce_conns_free_closed(struct roce_control *c)
{
	struct roce_conn *conn, *next;

	for (conn = TAILQ_FIRST(&c->conns.dead); conn; conn = next) {
		next = TAILQ_NEXT(conn, next);
		/* posted sends still refer to its address handle */
		if (!roce_ah_free(c, conn->ah))
			continue;
		TAILQ_REMOVE(&c->conns.dead, conn, next);
		free(conn);
		c->conns.nb_conns--;
	}
}

struct rdma_event *
roce_conn_event(struct roce_conn *conn, enum rdma_event_type type, int status)
{
	struct rdma_event *event;

	if (!conn->held)
		return NULL;
	event = roce_control_event(conn->control, type, conn, status);
	if (!event)
		return NULL;
	event->qp = conn->base.qp;
	roce_gid_to_sockaddr(&conn->peer, conn->port, &event->peer);
	return event;
}

void
roce_conn_private(struct rdma_event *event, const uint8_t *bytes, uint16_t length)
{
	event->private_len = length;
	memcpy(event->private_data, bytes, length);
}

void
roce_conn_path(const struct roce_conn *conn, const struct rdma_qp *qp, struct roce_path *path)
{
	const struct roce_dev *dev = conn->control->dev;
	const struct roce_path_attr attr = {
		.src_mac = dev->mac,
		.dst_mac = conn->mac,
		.src = conn->own,
		.dst = conn->peer,
		.vlan_tci = dev->vlan_tci,
		.udp_src = roce_path_udp_port(qp->qpn),
		.traffic_class = qp->attr.traffic_class,
		.hop_limit = qp->attr.hop_limit,
	};

	roce_path_make(path, &attr);
}

void
roce_conn_qp_error(struct roce_conn *conn)
{
	const struct roce_qp_modify modify = {.state = RDMA_QP_ERROR};

	if (conn->base.qp)
		roce_qp_modify(conn->base.qp, &modify);
}

/* ---- time-outs ------------------------------------------------------------------------------- */

#define INTERVAL_MAX_MS 2000

static void
conn_expired(struct roce_control *c, struct roce_expiry *timer)
{
	struct roce_conn *conn = RTE_PTR_SUB(timer, offsetof(struct roce_conn, timer));

	switch (conn->state) {
	case ROCE_CONN_RESOLVING:
		roce_active_fail(conn, -ETIMEDOUT, "time-out");
		return;
	case ROCE_CONN_REQ_SENT:
	case ROCE_CONN_REP_SENT:
	case ROCE_CONN_DREQ_SENT:
	case ROCE_CONN_SIDR_SENT:
		if (conn->retries_left == 0 || c->now >= conn->deadline) {
			roce_end_timeout(conn);
			return;
		}
		conn->retries_left--;
		roce_control_count(c, ROCE_CM_RETRANSMITS);
		roce_cm_repeat(conn);
		conn->interval_ms = RTE_MIN(2 * conn->interval_ms, (uint32_t)INTERVAL_MAX_MS);
		roce_expiry_start(c, timer,
			RTE_MIN(conn->interval_ms, (conn->deadline - c->now) * 1000 / c->hz + 1));
		return;
	case ROCE_CONN_ESTABLISHED:
		roce_end_idle(conn);
		return;
	case ROCE_CONN_TIMEWAIT:
		roce_conn_event(conn, RDMA_EVENT_TIMEWAIT_EXIT, 0);
		/* fall through */
	default:
		roce_conn_close(conn, "time-out");
	}
}

void
roce_conns_resolved(struct roce_control *c)
{
	struct roce_conn *conn, *next;

	for (conn = TAILQ_FIRST(&c->conns.resolving); conn; conn = next) {
		next = TAILQ_NEXT(conn, next_listed);
		roce_active_resolved(conn);
	}
}
