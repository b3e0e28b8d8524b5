/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_ENDPOINT_H
#define RDMA_TOOL_ENDPOINT_H

/**
 * @file
 * A queue pair with completion queues of its own and its connection.
 */

#include "session.h"

struct endpoint {
	struct session *session;
	struct rdma_cq *send_cq, *recv_cq;
	struct rdma_qp *qp;
	struct rdma_conn *conn;
	enum rdma_qp_type type;
	uint32_t qpn;
	bool up;	    /**< established, or looked up, or joined */
	bool down;	    /**< disconnected, by whomever */
	bool failed;	    /**< rejected, unreachable, not joined */
	int status;	    /**< of the failure: enum rdma_event_type's status */
	bool rejected;	    /**< the failure is a refusal by the peer */
	struct rdma_ah *ah; /**< UD: of the service or group; belongs to the connection */
	uint32_t remote_qpn, remote_qkey;
};

/**
 * Create the queue pair and its queues.
 * @param attr completion queues are filled in; max_send_wr and max_recv_wr must be given
 * @return 0; negative errno, said on stderr
 */
int endpoint_create(struct session *s, struct endpoint *e, const struct rdma_qp_attr *attr);

/**
 * Connect, or look the service up, and wait; again while nobody listens, for session.wait_ms.
 * @return 0; -ECONNREFUSED, -EHOSTUNREACH, as session_poll(); not said on stderr
 */
int endpoint_connect(
	struct endpoint *e, const struct sockaddr_storage *peer, const struct rdma_conn_attr *attr);

/**
 * Listen, and say so on stderr: whoever starts a client waits for it.
 * @return the listener, for rdma_conn_destroy(); NULL with rte_errno, said on stderr
 */
struct rdma_conn *endpoint_listen(
	struct session *s, enum rdma_qp_type type, uint16_t port, uint32_t backlog);

/** Accept a request and wait until it is established. @return as endpoint_connect() */
int endpoint_accept(struct endpoint *e, const struct rdma_event *request);

/** Join a multicast group and wait. @return as endpoint_connect() */
int endpoint_join(struct endpoint *e, const struct sockaddr_storage *group);

/** Why a connection was not made, in words; `error` is what the functions above returned. */
const char *endpoint_failure(const struct endpoint *e, int error, char *text, size_t size);

/** What session_poll() found out about it. */
void endpoint_event(struct endpoint *e, const struct rdma_event *event);

/**
 * The next completion.
 * @return 0; -ECONNRESET: the peer went; -EIO: failed, said on stderr; as session_poll()
 */
int endpoint_wait(struct endpoint *e, struct rdma_cq *cq, struct rdma_wc *wc, uint64_t deadline);

/** Judge a completion. @return 0, -ECONNRESET, -EIO */
int endpoint_check(const struct endpoint *e, const struct rdma_wc *wc);

/** Post one. @return 0; negative errno, said on stderr */
int endpoint_send(struct endpoint *e, const struct rdma_send_wr *wr);
int endpoint_recv(struct endpoint *e, uint64_t wr_id, const struct rdma_sge *sge);

/** Disconnect and wait, a short time, until both ends know. */
void endpoint_disconnect(struct endpoint *e);

/** Disconnects first; nothing happens to one that was never created. */
void endpoint_destroy(struct endpoint *e);

#endif
