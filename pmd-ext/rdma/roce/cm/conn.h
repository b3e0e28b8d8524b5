/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CONN_H
#define ROCE_CONN_H

/**
 * @file
 * A connection of the IB CM (chapter 12), a listener, a SIDR query or a multicast membership: its
 * state, its timer, the message that is repeated until an answer comes.
 */

#include "roce.h"
#include "cm/conn_table.h"
#include "engine/expiry.h"
#include "cm/mad.h"

enum roce_conn_state {
	ROCE_CONN_NEW,
	ROCE_CONN_LISTENING,
	ROCE_CONN_RESOLVING,	/**< active: who has the address? */
	ROCE_CONN_REQ_SENT,	/**< active */
	ROCE_CONN_REQ_RECEIVED, /**< passive: the application's turn */
	ROCE_CONN_REP_SENT,	/**< passive */
	ROCE_CONN_ESTABLISHED,
	ROCE_CONN_DREQ_SENT,
	ROCE_CONN_TIMEWAIT,
	ROCE_CONN_SIDR_SENT,	 /**< active */
	ROCE_CONN_SIDR_RECEIVED, /**< passive: the application's turn */
	ROCE_CONN_SIDR_DONE,	 /**< either side; passive: answers duplicates for a while */
	ROCE_CONN_MEMBER,	 /**< of a multicast group */
	ROCE_CONN_CLOSED,	 /**< nothing but the application's handle */
};

struct roce_conn {
	struct rdma_conn base; /**< base.qp: from accept or connect until destroyed */
	TAILQ_ENTRY(roce_conn) next, next_listed;
	struct roce_control *control;
	enum roce_conn_state state;
	bool held;	/**< the application has a handle */
	bool active;	/**< we asked */
	bool announced; /**< the application has been told that it is established */
	bool listed;	/**< in roce_conns.resolving or listeners */

	/* listener */
	enum rdma_qp_type type; /**< also of a request */
	uint16_t port;		/**< service; of a connection: that of the peer in events */
	uint16_t backlog, pending;

	/* the peer */
	struct roce_conn *listener; /**< of a request not yet answered; NULL: it is gone */
	struct roce_gid peer, own;
	struct rte_ether_addr mac; /**< next hop */
	uint32_t local_id, remote_id;
	uint64_t tid, service_id;
	uint32_t local_qpn, remote_qpn;
	/** Starting PSNs, ours and the peer's: each that at which the *other* end begins to send
	 *  (IBTA 12.7.31), that is, which whoever names it expects to receive. */
	uint32_t local_psn, remote_psn;
	uint16_t mtu;			  /**< bytes */
	uint8_t peer_starts, peer_allows; /**< READs and atomics, as the peer said */
	uint8_t retry_count, rnr_retry;	  /**< passive: how often we are to try, as it said */

	/* the message that is repeated */
	struct roce_expiry timer;
	uint64_t deadline; /**< TSC: given up then */
	uint32_t timeout_ms;
	uint32_t interval_ms;
	uint8_t retries, retries_left;
	uint8_t mad[ROCE_MAD_BYTES];

	uint32_t keepalive_ms; /**< 0: none */
	uint8_t silent;	       /**< times that the peer was asked for a sign of life */

	uint16_t source_port;
	uint16_t private_len;
	uint8_t private_data[RDMA_PRIVATE_MAX]; /**< of REQ, SIDR_REQ until it is sent */
	struct roce_ah *ah;
};

static inline struct roce_conn *
roce_conn(struct rdma_conn *conn)
{
	return (struct roce_conn *)conn;
}

/** Service id of a port, CPU byte order. */
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

/** A CM message that came, and from whom. */
struct roce_cm_packet {
	struct roce_gid src, dst;
	struct rte_ether_addr mac;
	struct roce_cm_msg msg;
};

/* ---- objects (cm/conn.c) ------------------------------------------------------------------- */

/**
 * @return NULL with rte_errno ENOMEM: no memory, or the device's limit is reached (counted);
 *   ENODEV: the port is gone
 */
struct roce_conn *roce_conn_new(struct roce_control *c);

/** Go to a state; why is a message's name, "time-out" or the like, for the log. */
void roce_conn_enter(struct roce_conn *conn, enum roce_conn_state state, const char *why);

/** Out of all tables, timer stopped; freed once the application lets go. */
void roce_conn_close(struct roce_conn *conn, const char *why);

/** Queue an event with peer, queue pair. @return NULL: lost, or nobody has a handle */
struct rdma_event *roce_conn_event(struct roce_conn *conn, enum rdma_event_type type, int status);

/** Way of the connection's data; its UDP source port is that of our queue pair. */
void roce_conn_path(const struct roce_conn *conn, const struct rdma_qp *qp, struct roce_path *path);

/** Its queue pair goes to error. */
void roce_conn_qp_error(struct roce_conn *conn);

/** Address handle of a peer for a UD queue pair. @return NULL: no memory */
struct roce_ah *roce_ah_new(struct rdma_pd *pd, const struct roce_gid *dst,
	const struct rte_ether_addr *mac, uint8_t traffic_class, uint8_t hop_limit);

/** @param ah may be NULL @return false: a posted send is still to use it */
bool roce_ah_free(struct roce_control *c, struct roce_ah *ah);

/** Addresses have been resolved, or not: go on with those that wait. */
void roce_conns_resolved(struct roce_control *c);

/** A next hop has another Ethernet address: so has all that goes there (net/next_hop.c). */
void roce_hop_moved(
	struct roce_control *c, const struct roce_gid *hop, const struct rte_ether_addr *mac);

/** Does a queue pair or an address handle go there? */
bool roce_hop_used(const struct roce_control *c, const struct roce_gid *hop);

/** Free what has died. */
void roce_conns_free_closed(struct roce_control *c);

/** Copy private data into an event. */
void roce_conn_private(struct rdma_event *event, const uint8_t *bytes, uint16_t length);

/* ---- messages (cm/cm.c) -------------------------------------------------------------------- */

/** Send once, to where a packet came from. */
void roce_cm_answer(
	struct roce_control *c, const struct roce_cm_packet *to, const struct roce_cm_msg *msg);

/** Send; it can be sent again by roce_cm_repeat(). */
void roce_cm_send(struct roce_conn *conn, const struct roce_cm_msg *msg);

/** Send the last one again. */
void roce_cm_repeat(struct roce_conn *conn);

/** Repeat the last one until the state changes. */
void roce_cm_await(struct roce_conn *conn);

/** A REJ to a packet of no connection. */
void roce_cm_reject(struct roce_control *c, const struct roce_cm_packet *packet,
	enum roce_cm_answered answered, uint16_t reason);

/** A MAD came to QP1. */
void roce_cm_receive(struct roce_control *c, const struct roce_cm_packet *packet);

/** A frame with a MAD: l2_len, l3_len are set, ICRC has been checked. */
void roce_cm_frame(struct roce_control *c, const struct rte_mbuf *m);

/**
 * The connection that a message is for: it has our id and comes from the peer's address, and once
 * the peer's id is known it has that, too.
 * @param local_id of ours, as the message names it
 * @param remote_id the peer's own; 0: it names none
 * @return NULL: none
 */
struct roce_conn *roce_cm_conn(struct roce_control *c, const struct roce_cm_packet *packet,
	uint32_t local_id, uint32_t remote_id);

/** EUI-64 of the port. */
uint64_t roce_cm_guid(const struct roce_dev *dev);

/** MTU code 1 to 5, and back (0: none). */
uint8_t roce_cm_mtu_code(uint16_t bytes);
uint16_t roce_cm_mtu_bytes(uint8_t code);

/* ---- what comes in (cm/cm_active.c, _passive.c, _end.c, cm/sidr.c) ---------------------- */

void roce_active_resolved(struct roce_conn *conn);
void roce_active_rep(struct roce_conn *conn, const struct roce_cm_packet *packet);
/** The handshake has failed: tell the application. */
void roce_active_fail(struct roce_conn *conn, int status, const char *why);
/** REJ 26: ask again with a smaller MTU? @return true: done */
bool roce_active_retry_mtu(struct roce_conn *conn, const struct roce_cm_rej *rej);

void roce_passive_req(struct roce_control *c, const struct roce_cm_packet *packet);
/**
 * A connection for a request, a REQ or a SIDR_REQ, and the event that hands it to the application.
 * @return to be filled in; NULL: backlog or device full, counted
 */
struct rdma_event *roce_passive_conn(struct roce_control *c, const struct roce_cm_packet *packet,
	struct roce_conn *listener, const struct roce_cma *cma);
void roce_passive_rtu(struct roce_conn *conn, const char *why);
struct roce_conn *roce_passive_listener(struct roce_control *c, uint64_t service_id);

void roce_end_rej(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_end_dreq(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_end_drep(struct roce_control *c, const struct roce_cm_packet *packet);
/** The peer is gone, or has begun again: as after its DREQ. */
void roce_end_lost(struct roce_conn *conn, int status, const char *why);
/** The peer did not answer for too long. */
void roce_end_timeout(struct roce_conn *conn);
/** The port is gone. */
void roce_end_removed(struct roce_conn *conn);
/** It is up: look for signs of life of the peer, now and then. */
void roce_end_watch(struct roce_conn *conn);
/** Time to look again. */
void roce_end_idle(struct roce_conn *conn);
/** DREQ, and error for the queue pair. */
void roce_end_disconnect(struct roce_conn *conn, const char *why);
void roce_end_timewait(struct roce_conn *conn, const char *why);

void roce_sidr_req(struct roce_control *c, const struct roce_cm_packet *packet);
void roce_sidr_rep(struct roce_control *c, const struct roce_cm_packet *packet);
/** Its queue pair leaves the group. */
void roce_multicast_leave(struct roce_conn *conn);

int roce_sidr_accept(struct roce_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);
void roce_sidr_reject(struct roce_conn *conn, enum roce_sidr_status status,
	const void *private_data, uint16_t private_len);

#endif
