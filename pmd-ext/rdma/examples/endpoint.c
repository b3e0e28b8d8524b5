/* SPDX-License-Identifier: BSD-3-Clause */
#include "endpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>

#define RECONNECT_MS	      100   /* between two attempts to connect */
#define ACCEPT_TIMEOUT_MS     10000 /* for the peer's RTU */
#define DISCONNECT_TIMEOUT_MS 1000  /* for the peer's DREP */
#define DESTROY_TIMEOUT_MS    1000  /* until the poll group has released the queue pair */
/* A server must not wait forever for a client that has exited. */
#define KEEPALIVE_MS 5000

int
endpoint_create(struct session *s, struct endpoint *e, const struct rdma_qp_attr *attr)
{
	struct rdma_qp_attr a = *attr;
	struct rdma_qp_info info;

	memset(e, 0, sizeof(*e));
	e->session = s;
	e->type = attr->type;
	e->send_cq = rdma_cq_create(s->dev, attr->max_send_wr, attr->poll_group);
	e->recv_cq = rdma_cq_create(s->dev, attr->max_recv_wr, attr->poll_group);
	if (!e->send_cq || !e->recv_cq)
		goto fail;
	a.send_cq = e->send_cq;
	a.recv_cq = e->recv_cq;
	a.context = e;
	e->qp = rdma_qp_create(s->pd, &a);
	if (!e->qp)
		goto fail;
	rdma_qp_info_get(e->qp, &info);
	e->qpn = info.qpn;
	return 0;
fail:
	fprintf(stderr,
		"braggline-rdma: cannot create a queue pair with %u sends and %u receives: %s\n",
		attr->max_send_wr, attr->max_recv_wr, rte_strerror(rte_errno));
	endpoint_destroy(e);
	return -ENOMEM;
}

void
endpoint_event(struct endpoint *e, const struct rdma_event *event)
{
	switch (event->type) {
	case RDMA_EVENT_ESTABLISHED:
	case RDMA_EVENT_MULTICAST_JOINED:
		e->up = true;
		e->ah = event->ah;
		e->remote_qpn = event->remote_qpn;
		e->remote_qkey = event->remote_qkey;
		return;
	case RDMA_EVENT_REJECTED:
		e->rejected = true;
		/* fallthrough */
	case RDMA_EVENT_UNREACHABLE:
	case RDMA_EVENT_MULTICAST_ERROR:
		e->failed = true;
		e->status = event->status;
		return;
	case RDMA_EVENT_DISCONNECTED:
	case RDMA_EVENT_QP_ERROR:
		e->down = true;
		return;
	default:
		return;
	}
}

static int
wait_up(struct endpoint *e, uint64_t deadline)
{
	int ret = 0;

	while (!e->up && !e->failed && !e->down && ret == 0)
		ret = session_poll(e->session, deadline);
	if (e->up)
		return 0;
	if (e->rejected)
		return -ECONNREFUSED;
	if (e->failed)
		return -EHOSTUNREACH;
	return e->down ? -ECONNRESET : ret;
}

static int
connect_once(
	struct endpoint *e, const struct sockaddr_storage *peer, const struct rdma_conn_attr *attr)
{
	int ret;

	e->up = e->down = e->failed = e->rejected = false;
	e->conn = rdma_conn_connect(e->qp, (const struct sockaddr *)peer, attr);
	if (!e->conn)
		return -rte_errno;
	/* the connection has its own time-outs and always ends with an event */
	ret = wait_up(e, session_deadline(0));
	if (ret < 0) {
		rdma_conn_destroy(e->conn);
		e->conn = NULL;
	}
	return ret;
}

int
endpoint_connect(
	struct endpoint *e, const struct sockaddr_storage *peer, const struct rdma_conn_attr *attr)
{
	struct rdma_conn_attr a = attr ? *attr : (struct rdma_conn_attr){0};
	uint32_t waited = 0;
	int ret;

	a.context = e;
	a.keepalive_ms = KEEPALIVE_MS;
	for (;;) {
		ret = connect_once(e, peer, &a);
		if (ret != -ECONNREFUSED || waited >= e->session->wait_ms || session_stop)
			return ret;
		session_linger(e->session, RECONNECT_MS);
		waited += RECONNECT_MS;
	}
}

struct rdma_conn *
endpoint_listen(struct session *s, enum rdma_qp_type type, uint16_t port, uint32_t backlog)
{
	struct rdma_conn *listener = rdma_conn_listen(s->dev, type, port, (uint16_t)backlog, NULL);

	if (listener)
		fprintf(stderr, "braggline-rdma: listening on port %u\n", port);
	else
		fprintf(stderr, "braggline-rdma: cannot listen on port %u: %s\n", port,
			rte_strerror(rte_errno));
	return listener;
}

int
endpoint_accept(struct endpoint *e, const struct rdma_event *request)
{
	struct rdma_conn_attr attr = {.context = e, .keepalive_ms = KEEPALIVE_MS};
	int ret = rdma_conn_accept(request->conn, e->qp, &attr);

	if (ret < 0) {
		rdma_conn_destroy(request->conn);
		return ret;
	}
	e->conn = request->conn;
	return wait_up(e, session_deadline(ACCEPT_TIMEOUT_MS));
}

int
endpoint_join(struct endpoint *e, const struct sockaddr_storage *group)
{
	e->conn = rdma_multicast_join(e->qp, (const struct sockaddr *)group, e);
	if (!e->conn)
		return -rte_errno;
	return wait_up(e, session_deadline(ACCEPT_TIMEOUT_MS));
}

const char *
endpoint_failure(const struct endpoint *e, int error, char *text, size_t size)
{
	if (error == -ECONNREFUSED)
		snprintf(text, size, "rejected by the peer, reason %d%s", e->status,
			e->status == 8 ? " (no listener)" : "");
	else if (error == -EHOSTUNREACH)
		snprintf(text, size, "unreachable: %s",
			e->status < 0 ? rte_strerror(-e->status) : "no answer");
	else
		snprintf(text, size, "%s", session_error(error));
	return text;
}

int
endpoint_check(const struct endpoint *e, const struct rdma_wc *wc)
{
	if (wc->status == RDMA_WC_SUCCESS)
		return 0;
	if (wc->status == RDMA_WC_WR_FLUSH_ERR && e->down)
		return -ECONNRESET;
	fprintf(stderr, "braggline-rdma: queue pair 0x%06x, request %" PRIu64 ": %s\n", e->qpn,
		wc->wr_id, rdma_wc_status_name(wc->status));
	return -EIO;
}

int
endpoint_wait(struct endpoint *e, struct rdma_cq *cq, struct rdma_wc *wc, uint64_t deadline)
{
	int ret;

	while (!rdma_poll_cq(cq, wc, 1)) {
		/* first return the completions that precede the disconnect */
		if (e->down)
			return -ECONNRESET;
		ret = session_poll(e->session, deadline);
		if (ret < 0)
			return ret;
	}
	if (wc->status == RDMA_WC_WR_FLUSH_ERR && !e->down)
		/* wait for the event that reports the cause */
		session_linger(e->session, 5);
	return endpoint_check(e, wc);
}

int
endpoint_send(struct endpoint *e, const struct rdma_send_wr *wr)
{
	if (rdma_post_send(e->qp, wr, 1) == 1)
		return 0;
	if (e->down)
		return -ECONNRESET;
	fprintf(stderr, "braggline-rdma: queue pair 0x%06x refuses a send: %s\n", e->qpn,
		rte_strerror(rte_errno));
	return -rte_errno;
}

int
endpoint_recv(struct endpoint *e, uint64_t wr_id, const struct rdma_sge *sge)
{
	struct rdma_recv_wr wr = {.wr_id = wr_id, .sg = sge, .nb_sge = 1};

	if (rdma_post_recv(e->qp, &wr, 1) == 1)
		return 0;
	fprintf(stderr, "braggline-rdma: queue pair 0x%06x refuses a receive: %s\n", e->qpn,
		rte_strerror(rte_errno));
	return -rte_errno;
}

void
endpoint_disconnect(struct endpoint *e)
{
	unsigned int ms;

	if (!e->conn || !e->up || e->type == RDMA_QP_UD)
		return;
	if (!e->down)
		rdma_conn_disconnect(e->conn);
	/* not session_poll(): disconnect also after a signal */
	for (ms = 0; ms < DISCONNECT_TIMEOUT_MS && !e->down; ms++)
		session_linger(e->session, 1);
}

void
endpoint_destroy(struct endpoint *e)
{
	unsigned int ms;

	if (!e->session)
		return;
	endpoint_disconnect(e);
	if (e->conn)
		rdma_conn_destroy(e->conn);
	if (e->qp)
		for (ms = 0; ms < DESTROY_TIMEOUT_MS && rdma_qp_destroy(e->qp) == -EBUSY; ms++)
			session_linger(e->session, 1);
	if (e->send_cq)
		rdma_cq_destroy(e->send_cq);
	if (e->recv_cq)
		rdma_cq_destroy(e->recv_cq);
	memset(e, 0, sizeof(*e));
}
