/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Connections through librdmacm. Its identifiers are not associated with the queue pairs: this
 * provider moves queue pairs to RTS itself, with its own timeouts (verbs_queue_pair.c). CM events
 * are processed in verbs_event.c.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_cycles.h>
#include <rte_errno.h>

#include "verbs_device.h"

#define TIMEOUT_MS 10000

/* Maximum private data: the field of the message, less the RDMA CM's own header (rdma.h). */
#define PRIVATE_REQ	 56
#define PRIVATE_REP	 196
#define PRIVATE_REJ	 148
#define PRIVATE_SIDR_REQ 180
#define PRIVATE_SIDR_REP 136

static uint64_t
deadline(const struct rdma_conn_attr *attr)
{
	const uint64_t ms = attr && attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS;

	return rte_get_tsc_cycles() + rte_get_tsc_hz() / 1000 * ms;
}

static void
set_port(struct sockaddr_storage *addr, uint16_t port)
{
	if (addr->ss_family == AF_INET)
		((struct sockaddr_in *)addr)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
}

/** Create an identifier bound to our address and a port (0: any). @return 0; negative errno */
static int
make_id(struct verbs_conn *conn, uint16_t port)
{
	struct verbs_dev *dev = conn->dev;
	struct sockaddr_storage own = dev->addr;
	int ret;

	set_port(&own, port);
	if (conn->type == RDMA_QP_UC) {
		/*
		 * Only this call accepts a queue pair type, and the kernel supports UC only in
		 * this port space: all connections of RDMA_PS_TCP are RC. The call creates a
		 * synchronous identifier and binds it.
		 */
		struct rdma_addrinfo info = {
			.ai_flags = RAI_PASSIVE,
			.ai_family = own.ss_family,
			.ai_qp_type = IBV_QPT_UC,
			.ai_port_space = RDMA_PS_IB,
			.ai_src_len = verbs_address_size((struct sockaddr *)&own),
			.ai_src_addr = (struct sockaddr *)&own,
		};

		if (rdma_create_ep(&conn->id, &info, NULL, NULL) != 0)
			return -errno;
		conn->id->context = conn;
		if (rdma_migrate_id(conn->id, dev->channel) == 0)
			return 0;
	} else {
		if (rdma_create_id(dev->channel, &conn->id, conn,
			    conn->type == RDMA_QP_UD ? RDMA_PS_UDP : RDMA_PS_TCP) != 0)
			return -errno;
		if (rdma_bind_addr(conn->id, (struct sockaddr *)&own) == 0)
			return 0;
	}
	ret = -errno;
	rdma_destroy_id(conn->id);
	conn->id = NULL;
	return ret;
}

static struct verbs_conn *
make_conn(struct verbs_dev *dev, enum rdma_qp_type type, struct verbs_qp *qp)
{
	struct verbs_conn *conn = calloc(1, sizeof(*conn));

	if (!conn)
		return NULL;
	conn->dev = dev;
	conn->type = type;
	conn->qp = qp;
	return conn;
}

static int
check_private(const struct verbs_conn *conn, const char *message, uint16_t length, uint16_t most)
{
	if (length <= most)
		return 0;
	RDMA_LOG(ERR, "device %s: %s with %u bytes of private data, at most %u",
		conn->dev->base.name, message, length, most);
	return -EINVAL;
}

/** Check the MTU. The path MTU is that of the port: the kernel's CM offers no other. */
static int
check_mtu(const struct verbs_qp *qp, const struct rdma_conn_attr *attr)
{
	const uint16_t port = verbs_mtu_bytes(qp->dev->port_attr.active_mtu);
	const uint16_t wanted = attr->mtu ? attr->mtu : qp->attr.max_mtu;

	if (qp->attr.type == RDMA_QP_UD || wanted == port)
		return 0;
	RDMA_LOG(ERR,
		"device %s: connection with an MTU of %u: the kernel's connection manager offers "
		"the port's MTU, %u",
		qp->dev->base.name, wanted, port);
	return -EINVAL;
}

struct rdma_conn *
verbs_conn_connect(
	struct rdma_qp *base, const struct sockaddr *dst, const struct rdma_conn_attr *attr)
{
	struct verbs_qp *qp = VERBS_QP(base);
	struct verbs_dev *dev = qp->dev;
	const bool ud = qp->attr.type == RDMA_QP_UD;
	struct sockaddr_storage own = dev->addr, to = {0};
	struct verbs_conn *conn;
	char text[64];
	int ret;

	verbs_address_text(dst, text, sizeof(text));
	if (dst->sa_family != own.ss_family) {
		RDMA_LOG(ERR,
			"device %s: connection to %s, expected an address of the device's family",
			dev->base.name, text);
		return verbs_refuse(EAFNOSUPPORT);
	}
	if (!ud && qp->state != RDMA_QP_INIT) {
		RDMA_LOG(ERR, "device %s: connection of queue pair 0x%06x in state %d, expected %d",
			dev->base.name, base->qpn, qp->state, RDMA_QP_INIT);
		return verbs_refuse(EINVAL);
	}
	conn = make_conn(dev, qp->attr.type, qp);
	if (!conn)
		return verbs_refuse(ENOMEM);
	ret = check_private(conn, ud ? "SIDR_REQ" : "REQ", attr->private_len,
		ud ? PRIVATE_SIDR_REQ : PRIVATE_REQ);
	if (ret == 0)
		ret = check_mtu(qp, attr);
	if (ret < 0)
		goto free_conn;
	if (attr->private_len) {
		conn->private_len = attr->private_len;
		memcpy(conn->private_data, attr->private_data, attr->private_len);
	}
	conn->deadline = deadline(attr);
	ret = make_id(conn, attr->source_port);
	if (ret == 0) {
		uint8_t tos = qp->attr.traffic_class;

		if (tos)
			rdma_set_option(
				conn->id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, sizeof(tos));
		memcpy(&to, dst, verbs_address_size(dst));
		/* conn->deadline limits the total time of all steps. */
		if (rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&to,
			    attr->timeout_ms ? attr->timeout_ms : TIMEOUT_MS) != 0) {
			ret = -errno;
			rdma_destroy_id(conn->id);
		}
	}
	if (ret < 0) {
		RDMA_LOG(ERR, "device %s: connection to %s: %s", dev->base.name, text,
			strerror(-ret));
		goto free_conn;
	}
	conn->state = VERBS_RESOLVING_ADDRESS;
	LIST_INSERT_HEAD(&dev->conns, conn, next);
	return &conn->base;

free_conn:
	free(conn);
	return verbs_refuse(-ret);
}

struct rdma_conn *
verbs_conn_listen(struct rdma_dev *base, enum rdma_qp_type type, uint16_t port, uint16_t backlog)
{
	struct verbs_dev *dev = VERBS_DEV(base);
	struct verbs_conn *conn = make_conn(dev, type, NULL);
	int ret;

	if (!conn)
		return verbs_refuse(ENOMEM);
	ret = make_id(conn, port);
	if (ret == 0 && rdma_listen(conn->id, backlog) != 0) {
		ret = -errno;
		rdma_destroy_id(conn->id);
	}
	if (ret < 0) {
		RDMA_LOG(ERR, "device %s: listener on port %u: %s", base->name, port,
			strerror(-ret));
		free(conn);
		return verbs_refuse(-ret);
	}
	conn->state = VERBS_LISTENING;
	LIST_INSERT_HEAD(&dev->conns, conn, next);
	return &conn->base;
}

int
verbs_conn_accept(
	struct rdma_conn *base, struct rdma_qp *qp_base, const struct rdma_conn_attr *attr)
{
	struct verbs_conn *conn = VERBS_CONN(base);
	struct verbs_qp *qp = VERBS_QP(qp_base);
	const bool ud = conn->type == RDMA_QP_UD;
	struct rdma_conn_param param = {
		.private_data = attr->private_data,
		.private_data_len = attr->private_len,
		.responder_resources = RTE_MIN(conn->rd_atom, qp->attr.max_rd_atom),
		.initiator_depth = RTE_MIN(conn->responder_rd_atom, qp->attr.max_rd_atom),
		.rnr_retry_count = qp->attr.rnr_retry,
		.qp_num = qp_base->qpn,
	};
	int ret;

	if (conn->state != VERBS_REQUESTED)
		return -ENOTCONN;
	ret = check_private(conn, ud ? "SIDR_REP" : "REP", attr->private_len,
		ud ? PRIVATE_SIDR_REP : PRIVATE_REP);
	if (ret < 0)
		return ret;
	if (qp->attr.type != conn->type || (!ud && qp->state != RDMA_QP_INIT)) {
		RDMA_LOG(ERR,
			"device %s: request accepted with queue pair 0x%06x of type %d in state "
			"%d, expected type %d in state %d",
			conn->dev->base.name, qp_base->qpn, qp->attr.type, qp->state, conn->type,
			RDMA_QP_INIT);
		return -EINVAL;
	}
	if (ud && qp->attr.qkey != RDMA_UDP_QKEY) {
		RDMA_LOG(ERR,
			"device %s: request accepted with a Q_Key of 0x%08x: the kernel's "
			"connection manager can only send 0x%08x",
			conn->dev->base.name, qp->attr.qkey, RDMA_UDP_QKEY);
		return -EINVAL;
	}
	/* The queue pair must be ready before the peer receives the reply. */
	ret = verbs_qp_ready(qp, conn->id, param.initiator_depth, param.responder_resources);
	if (ret < 0)
		return ret;
	if (rdma_accept(conn->id, &param) != 0) {
		ret = -errno;
		RDMA_LOG(ERR, "device %s: accept: %s", conn->dev->base.name, strerror(-ret));
		if (!ud)
			verbs_qp_error(qp_base);
		/* EINVAL: the CM has already dropped the peer's request. */
		return ret == -EINVAL ? -ENOTCONN : ret;
	}
	conn->qp = qp;
	conn->deadline = deadline(attr);
	conn->state = ud ? VERBS_OVER : VERBS_ACCEPTED;
	conn->established_pending = ud;
	return 0;
}

static void
free_conn(struct verbs_conn *conn)
{
	LIST_REMOVE(conn, next);
	rdma_destroy_id(conn->id);
	free(conn);
}

int
verbs_conn_reject(struct rdma_conn *base, const void *private_data, uint16_t private_len)
{
	struct verbs_conn *conn = VERBS_CONN(base);
	int ret = check_private(conn, conn->type == RDMA_QP_UD ? "SIDR_REP" : "REJ", private_len,
		conn->type == RDMA_QP_UD ? PRIVATE_SIDR_REP : PRIVATE_REJ);

	if (ret < 0)
		return ret;
	if (conn->state == VERBS_REQUESTED && rdma_reject(conn->id, private_data, private_len) != 0)
		RDMA_LOG(ERR, "device %s: reject: %s", conn->dev->base.name, strerror(errno));
	free_conn(conn);
	return 0;
}

int
verbs_conn_disconnect(struct rdma_conn *base)
{
	struct verbs_conn *conn = VERBS_CONN(base);

	if (conn->type == RDMA_QP_UD ||
		(conn->state != VERBS_ESTABLISHED && conn->state != VERBS_ACCEPTED))
		return -ENOTCONN;
	verbs_qp_error(&conn->qp->base);
	conn->state = VERBS_ESTABLISHED;
	conn->disconnecting = true;
	if (rdma_disconnect(conn->id) != 0)
		return -errno;
	return 0;
}

int
verbs_conn_destroy(struct rdma_conn *base)
{
	struct verbs_conn *conn = VERBS_CONN(base);

	if (conn->state == VERBS_ESTABLISHED || conn->state == VERBS_ACCEPTED)
		verbs_conn_disconnect(base);
	if (conn->attached)
		ibv_detach_mcast(conn->qp->qp, &conn->mgid, 0);
	if (conn->state == VERBS_JOINING || conn->state == VERBS_JOINED)
		rdma_leave_multicast(conn->id, (struct sockaddr *)&conn->group);
	if (conn->ah)
		verbs_ah_free(conn->ah);
	free_conn(conn);
	return 0;
}

static bool
is_multicast(const struct sockaddr *addr)
{
	if (addr->sa_family == AF_INET)
		return IN_MULTICAST(ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr));
	return addr->sa_family == AF_INET6 &&
		IN6_IS_ADDR_MULTICAST(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

struct rdma_conn *
verbs_multicast_join(struct rdma_qp *base, const struct sockaddr *group)
{
	struct verbs_qp *qp = VERBS_QP(base);
	struct verbs_conn *conn;
	char text[64];
	int ret;

	verbs_address_text(group, text, sizeof(text));
	if (!is_multicast(group)) {
		RDMA_LOG(ERR, "device %s: %s is not a multicast address", qp->dev->base.name, text);
		return verbs_refuse(EINVAL);
	}
	conn = make_conn(qp->dev, RDMA_QP_UD, qp);
	if (!conn)
		return verbs_refuse(ENOMEM);
	memcpy(&conn->group, group, verbs_address_size(group));
	conn->deadline = deadline(NULL);
	ret = verbs_qp_ready(qp, NULL, 0, 0);
	if (ret == 0)
		ret = make_id(conn, 0);
	if (ret == 0 && rdma_join_multicast(conn->id, (struct sockaddr *)&conn->group, conn) != 0) {
		ret = -errno;
		rdma_destroy_id(conn->id);
	}
	if (ret < 0) {
		RDMA_LOG(ERR, "device %s: multicast group %s: %s", qp->dev->base.name, text,
			strerror(-ret));
		free(conn);
		return verbs_refuse(-ret);
	}
	conn->state = VERBS_JOINING;
	LIST_INSERT_HEAD(&qp->dev->conns, conn, next);
	return &conn->base;
}
