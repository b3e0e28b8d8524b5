/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CONN_H
#define ROCE_CONN_H

/**
 * @file
 * A connection of the IB CM (chapter 12), a listener, a SIDR query or a multicast membership: its
 * state, its timer and the message that is retransmitted until the peer replies.
 */

#include "roce.h"
#include "cm/conn_table.h"
#include "engine/expiry.h"
#include "cm/mad.h"

enum roce_conn_state {
	ROCE_CONN_NEW,
	ROCE_CONN_LISTENING,
	ROCE_CONN_RESOLVING,	/**< active: waiting for address resolution */
	ROCE_CONN_REQ_SENT,	/**< active */
	ROCE_CONN_REQ_RECEIVED, /**< passive: waiting for the application to accept or reject */
	ROCE_CONN_REP_SENT,	/**< passive */
	ROCE_CONN_ESTABLISHED,
	ROCE_CONN_DREQ_SENT,
	ROCE_CONN_TIMEWAIT,
	ROCE_CONN_SIDR_SENT,	 /**< active */
	ROCE_CONN_SIDR_RECEIVED, /**< passive: waiting for the application to accept or reject */
	/** either side; the passive side answers duplicates for some time */
	ROCE_CONN_SIDR_DONE,
	ROCE_CONN_MEMBER, /**< of a multicast group */
	ROCE_CONN_CLOSED, /**< only the application's handle is left */
};

struct roce_conn {
	struct rdma_conn base; /**< base.qp: set from accept or connect until destroyed */
	TAILQ_ENTRY(roce_conn) next, next_listed;
	struct roce_control *control;
	enum roce_conn_state state;
	bool held;	/**< the application has a handle */
	bool active;	/**< this side sent the request */
	bool announced; /**< RDMA_EVENT_ESTABLISHED was reported to the application */
	bool listed;	/**< in roce_conns.resolving or listeners */

	/* listener */
	enum rdma_qp_type type; /**< also set for a request */
	uint16_t port;		/**< service port; of a connection: the peer's port in events */
	uint16_t backlog, pending;

	/* peer */
	/** of a request not yet answered; NULL: listener is destroyed */
	struct roce_conn *listener;
	struct roce_gid peer, own;
	struct rte_ether_addr mac; /**< MAC address of the next hop */
	uint32_t local_id, remote_id;
	uint64_t tid, service_id;
	uint32_t local_qpn, remote_qpn;
	/** Starting PSNs. Each is the PSN at which the *other* side starts to send (IBTA 12.7.31):
	 * the first one that the side which announces it expects to receive. */
	uint32_t local_psn, remote_psn;
	uint16_t mtu; /**< bytes */
	/** RDMA READs and atomics: the peer's initiator depth and responder resources */
	uint8_t peer_starts, peer_allows;
	/** passive: retry limits for this side, from the peer's REQ */
	uint8_t retry_count, rnr_retry;

	/* message being retransmitted */
	struct roce_expiry timer;
	uint64_t deadline; /**< TSC: give up at this time */
	uint32_t timeout_ms;
	uint32_t interval_ms;
	uint8_t retries, retries_left;
	uint8_t mad[ROCE_MAD_BYTES];

	uint32_t keepalive_ms;	   /**< 0: no keepalive */
	uint8_t probes_unanswered; /**< number of unanswered keepalive probes */

	uint16_t source_port;
	uint16_t private_len;
	uint8_t private_data[RDMA_PRIVATE_MAX]; /**< of a REQ or SIDR_REQ, until it is sent */
	struct roce_ah *ah;
};

static inline struct roce_conn *
roce_conn(struct rdma_conn *conn)
{
	return (struct roce_conn *)conn;
}

/** Service id of a port, in CPU byte order. */
static inline uint64_t
roce_service_id(enum rdma_qp_type type, uint16_t port)
{
	static const uint16_t space[] = {
		[RDMA_QP_RC] = ROCE_PORT_SPACE_TCP,
		[RDMA_QP_UC] = ROCE_PORT_SPACE_IB,
		[RDMA_QP_UD] = ROCE_PORT_SPACE_UDP,
	};

	return (uint64_t)space[type] << 16 | port;
}

/** A received CM message with its addresses. */
struct roce_cm_packet {
	struct roce_gid src, dst;
	struct rte_ether_addr mac;
	struct roce_cm_msg msg;
};

/* ---- objects (cm/conn.c) --------------------------------------------------------------------- */

/**
 * @return NULL with rte_errno ENOMEM: no memory, or the device's limit is reached (counted);
 *   ENODEV: the port was removed
 */
struct roce_conn *roce_conn_new(struct roce_control *c);

/** Change the state. `why` is for the log: the name of a message, "time-out" or a similar text. */
void roce_conn_enter(struct roce_conn *conn, enum roce_conn_state state, const char *why);

/** Remove the connection from all tables and stop its timer. It is freed when the application has
 * released its handle. */
void roce_conn_close(struct roce_conn *conn, const char *why);

/**
 * Queue an event with peer and queue pair.
 * @return NULL: event lost, or the application has no handle
 */
struct rdma_event *roce_conn_event(struct roce_conn *conn, enum rdma_event_type type, int status);

/** Path of the connection's data. Its UDP source port is derived from our queue pair's number. */
void roce_conn_path(const struct roce_conn *conn, const struct rdma_qp *qp, struct roce_path *path);

/** Move the connection's queue pair to the error state. */
void roce_conn_qp_error(struct roce_conn *conn);

/** Create an address handle of a peer for a UD queue pair. @return NULL: no memory */
struct roce_ah *roce_ah_new(struct rdma_pd *pd, const struct roce_gid *dst,
	const struct rte_ether_addr *mac, uint8_t traffic_class, uint8_t hop_limit);

/** @param ah may be NULL @return false: a posted send still uses it */
bool roce_ah_free(struct roce_control *c, struct roce_ah *ah);

/**
 * Address resolution has finished or failed for some addresses: continue the waiting connections.
 */
void roce_conns_resolved(struct roce_control *c);

/** The Ethernet address of a next hop has changed: update every path over it (net/next_hop.c). */
void roce_hop_moved(
	struct roce_control *c, const struct roce_gid *hop, const struct rte_ether_addr *mac);

/**
 * Get the Ethernet address that a queue pair or an address handle uses for a next hop.
 * @return NULL: none uses this next hop
 */
const struct rte_ether_addr *roce_hop_mac(const struct roce_control *c, const struct roce_gid *hop);

/** Free closed connections. */
void roce_conns_free_closed(struct roce_control *c);

/** Copy private data into an event. */
void roce_conn_private(struct rdma_event *event, const uint8_t *bytes, uint16_t length);

/* ---- messages (cm/cm.c) ---------------------------------------------------------------------- */

/** Send a message once, to the source of a packet. */
void roce_cm_answer(
	struct roce_control *c, const struct roce_cm_packet *to, const struct roce_cm_msg *msg);

/** Send a message and keep it for roce_cm_repeat(). */
void roce_cm_send(struct roce_conn *conn, const struct roce_cm_msg *msg);

/** Send the last message again. */
void roce_cm_repeat(struct roce_conn *conn);

/** Retransmit the last message until the state changes. */
void roce_cm_await(struct roce_conn *conn);

/** Send a REJ in reply to a packet that belongs to no connection. */
void roce_cm_reject(struct roce_control *c, const struct roce_cm_packet *packet,
	enum roce_cm_answered answered, uint16_t reason);

/** Handle a message received by QP1. */
void roce_cm_receive(struct roce_control *c, const struct roce_cm_packet *packet);

/** Handle a frame that contains a MAD. l2_len and l3_len are set, the ICRC has been checked. */
void roce_cm_frame(struct roce_control *c, const struct rte_mbuf *m);

/**
 * Find the connection that a message is addressed to. The message must contain our id and come from
 * the peer's address. Once the peer's id is known, it must match, too.
 * @param local_id our id, as in the message
 * @param remote_id the peer's id; 0: the message has none
 * @return NULL: none
 */
struct roce_conn *roce_cm_conn(struct roce_control *c, const struct roce_cm_packet *packet,
	uint32_t local_id, uint32_t remote_id);

/** EUI-64 of the port. */
uint64_t roce_cm_guid(const struct roce_dev *dev);

/** Convert bytes to an MTU code 1 to 5, and back (0: invalid code). */
uint8_t roce_cm_mtu_code(uint16_t bytes);
uint16_t roce_cm_mtu_bytes(uint8_t code);

/* ---- received messages (cm/cm_active.c, cm_passive.c, cm_disconnect.c, sidr.c) --------------- */

void roce_active_resolved(struct roce_conn *conn);
void roce_active_rep(struct roce_conn *conn, const struct roce_cm_packet *packet);
/** The handshake has failed: report it to the application. */
void roce_active_fail(struct roce_conn *conn, int status, const char *why);
/** REJ 26: send the REQ again with a smaller MTU, if possible. @return true: sent */
bool roce_active_retry_mtu(struct roce_conn *conn, const struct roce_cm_rej *rej);

void roce_passive_req(struct roce_control *c, const struct roce_cm_packet *packet);
/**
 * Create a connection for a request (REQ or SIDR_REQ), and the event that delivers it to the
 * application.
 * @return the event, to be filled in; NULL: backlog or device full, counted
 */
struct rdma_event *roce_passive_conn(struct roce_control *c, const struct roce_cm_packet *packet,
	struct roce_conn *listener, const struct roce_cma *cma);
void roce_passive_rtu(struct roce_conn *conn, const char *why);
struct roce_conn *roce_passive_listener(struct roce_control *c, uint64_t service_id);

void roce_end_rej(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_end_dreq(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_end_drep(struct roce_control *c, const struct roce_cm_packet *packet);
/** The peer does not respond or has restarted: proceed as after its DREQ. */
void roce_end_lost(struct roce_conn *conn, int status, const char *why);
/** The peer did not reply in time. */
void roce_end_timeout(struct roce_conn *conn);
/** The port was removed. */
void roce_end_removed(struct roce_conn *conn);
/** The connection is established: start the keepalive timer. */
void roce_end_watch(struct roce_conn *conn);
/** The keepalive timer has expired. */
void roce_end_idle(struct roce_conn *conn);
/** Send a DREQ and move the queue pair to the error state. */
void roce_end_disconnect(struct roce_conn *conn, const char *why);
void roce_end_timewait(struct roce_conn *conn, const char *why);

void roce_sidr_req(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_sidr_rep(struct roce_control *c, const struct roce_cm_packet *packet);
/** Remove the connection's queue pair from its group. */
void roce_multicast_leave(struct roce_conn *conn);

int roce_sidr_accept(struct roce_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);
void roce_sidr_reject(struct roce_conn *conn, enum roce_sidr_status status,
	const void *private_data, uint16_t private_len);

#endif
