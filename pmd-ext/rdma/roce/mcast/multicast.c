/* SPDX-License-Identifier: BSD-3-Clause */
/* Queue pairs in multicast groups. */
#include <errno.h>

#include <rte_errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

/** Create the membership of a UD queue pair in a group. @return NULL with rte_errno */
static struct roce_conn *
member_new(struct roce_control *c, struct rdma_qp *qp, const struct roce_gid *gid)
{
	const struct roce_qp_modify ready = {.state = RDMA_QP_RTS};
	const struct rte_ether_addr mac = roce_gid_multicast_mac(gid);
	struct roce_conn *conn = roce_conn_new(c);
	int ret;

	if (!conn)
		return NULL;
	conn->type = RDMA_QP_UD;
	conn->peer = *gid;
	conn->own = *roce_dev_source(c->dev, gid);
	conn->mac = mac;
	conn->ah = roce_ah_new(qp->pd, gid, &mac, qp->attr.traffic_class, qp->attr.hop_limit);
	ret = conn->ah ? roce_qp_attach(qp, gid) : -ENOMEM;
	if (ret < 0)
		goto fail;
	ret = roce_qp_state(qp) == RDMA_QP_RTS ? 0 : roce_qp_modify(qp, &ready);
	if (ret == 0)
		ret = roce_membership_join(c, gid);
	if (ret == 0)
		return conn;
	roce_qp_detach(qp, gid);
fail:
	roce_conn_close(conn, "no room");
	rte_errno = -ret;
	return NULL;
}

struct rdma_conn *
roce_multicast_join(struct rdma_qp *qp, const struct sockaddr *group)
{
	struct roce_dev *dev = roce_dev(qp->pd->dev);
	struct roce_control *c = dev->control;
	char text[INET6_ADDRSTRLEN];
	struct rdma_event *event;
	struct roce_conn *conn;
	struct roce_gid gid;

	roce_control_time(c);
	if (roce_gid_from_sockaddr(&gid, group) < 0 || !roce_gid_is_multicast(&gid) ||
		!roce_dev_source(dev, &gid)) {
		RDMA_LOG(ERR,
			"device %s: queue pair 0x%06x cannot join a multicast group of an "
			"address family that the device lacks",
			dev->base.name, qp->qpn);
		rte_errno = EINVAL;
		return NULL;
	}
	conn = member_new(c, qp, &gid);
	if (!conn) {
		RDMA_LOG(ERR, "device %s: queue pair 0x%06x cannot join %s: %s", dev->base.name,
			qp->qpn, roce_gid_text(&gid, text, sizeof(text)), rte_strerror(rte_errno));
		return NULL;
	}
	conn->base.dev = &dev->base;
	conn->base.qp = qp;
	conn->held = true;
	roce_conn_enter(conn, ROCE_CONN_MEMBER, "join");
	event = roce_conn_event(conn, RDMA_EVENT_MULTICAST_JOINED, 0);
	if (event) {
		event->ah = &conn->ah->base;
		event->remote_qpn = ROCE_QPN_MULTICAST;
		event->remote_qkey = ROCE_RDMA_UDP_QKEY;
	}
	return &conn->base;
}

void
roce_multicast_leave(struct roce_conn *conn)
{
	roce_qp_detach(conn->base.qp, &conn->peer);
	roce_membership_leave(conn->control, &conn->peer);
}
