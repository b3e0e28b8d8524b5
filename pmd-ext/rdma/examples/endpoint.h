/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_ENDPOINT_H
#define RDMA_TOOL_ENDPOINT_H

/**
 * @file
 * A queue pair with its own completion queues and its connection.
 */

#include "session.h"

struct endpoint {
	struct session *session;
	struct rdma_cq *send_cq, *recv_cq;
	struct rdma_qp *qp;
	struct rdma_conn *conn;
	enum rdma_qp_type type;
	uint32_t qpn;
	bool up;	    /**< established, resolved or joined */
	bool down;	    /**< disconnected, by either side */
	bool failed;	    /**< rejected, unreachable or not joined */
	int status;	    /**< status of the event that reported the failure */
	bool rejected;	    /**< the peer rejected the connection */
	struct rdma_ah *ah; /**< UD: of the service or group; owned by the connection */
	uint32_t remote_qpn, remote_qkey;
};

/**
 * Create the queue pair and its queues.
 * @param attr the completion queues are filled in; max_send_wr and max_recv_wr must be set
 * @return 0; negative errno, printed to stderr
 */
int endpoint_create(struct session *s, struct endpoint *e, const struct rdma_qp_attr *attr);

/**
 * Connect, or resolve the service, and wait. Retries for session.wait_ms while there is no
 * listener.
 * @return 0; -ECONNREFUSED, -EHOSTUNREACH, errors of session_poll(); nothing is printed
 */
int endpoint_connect(
	struct endpoint *e, const struct sockaddr_storage *peer, const struct rdma_conn_attr *attr);

/**
 * Listen, and print a message to stderr. Scripts wait for this message before they start a client.
 * @return the listener, for rdma_conn_destroy(); NULL with rte_errno, printed to stderr
 */
struct rdma_conn *endpoint_listen(
	struct session *s, enum rdma_qp_type type, uint16_t port, uint32_t backlog);

/** Accept a request and wait until the connection is established. @return as endpoint_connect() */
int endpoint_accept(struct endpoint *e, const struct rdma_event *request);

/** Join a multicast group and wait. @return as endpoint_connect() */
int endpoint_join(struct endpoint *e, const struct sockaddr_storage *group);

/** Text of a connection failure; `error` is the return value of the functions above. */
const char *endpoint_failure(const struct endpoint *e, int error, char *text, size_t size);

/** Handle an event that session_poll() received. */
void endpoint_event(struct endpoint *e, const struct rdma_event *event);

/**
 * Wait for the next completion.
 * @return 0; -ECONNRESET: disconnected; -EIO: failed, printed to stderr; errors of session_poll()
 */
int endpoint_wait(struct endpoint *e, struct rdma_cq *cq, struct rdma_wc *wc, uint64_t deadline);

/** Check a completion. @return 0, -ECONNRESET, -EIO */
int endpoint_check(const struct endpoint *e, const struct rdma_wc *wc);

/** Post one request. @return 0; negative errno, printed to stderr */
int endpoint_send(struct endpoint *e, const struct rdma_send_wr *wr);
int endpoint_recv(struct endpoint *e, uint64_t wr_id, const struct rdma_sge *sge);

/** Disconnect and wait for a short time until both sides are disconnected. */
void endpoint_disconnect(struct endpoint *e);

/** Disconnect and destroy. Does nothing if the endpoint was never created. */
void endpoint_destroy(struct endpoint *e);

#endif
