/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_H
#define ROCE_H

/**
 * @file Inside of the `roce` provider: the device, its poll groups, and what passes between a poll
 * group's lcore and the control lcore. Not for applications.
 *
 * A poll group is one engine: an RX and a TX queue, its queue pairs, its timers. Everything that a
 * poll group works on is written by its lcore alone. The control lcore
 *
 * - receives from each poll group what is no data of queue pairs: ARP, ICMP, IGMP, neighbour
 * discovery,
 *   MADs (`to_control`), and notes of what happened (`notes`);
 * - hands frames to a poll group for transmission (`to_lane`);
 * - has a poll group run a function on its own lcore and waits for it: roce_poll_group_call(). That
 * is how a
 *   queue pair changes state, how a region or queue pair is retired.
 *
 * Poll groups of other devices on the port give poll group 0 what came to their queues (`given`).
 *
 * The tables of queue pairs and regions are written by the control lcore with release stores and
 * read by poll groups; what is taken out of them is freed after every poll group has run a call
 * since.
 */

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include <rte_common.h>
#include <rte_ether.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>

#include "../rdma_provider.h"
#include "engine/path.h"
#include "engine/wire.h"

#define ROCE_POLL_GROUPS_MAX 16
#define ROCE_RULES_MAX	     6 /* three an address family */

struct rte_flow;
struct roce_dev;
struct roce_poll_group;
struct roce_port;
struct roce_qp;

/** Counters of a poll group: name in port/stat.c, same order. */
enum roce_stat {
	ROCE_RX_PACKETS,
	ROCE_RX_BYTES, /**< of messages: what was placed */
	ROCE_TX_PACKETS,
	ROCE_TX_BYTES,	       /**< of messages, retransmitted ones again */
	ROCE_RX_CONTROL,       /**< handed to the control lcore */
	ROCE_RX_CONTROL_FULL,  /**< its ring was full: dropped */
	ROCE_RX_HANDOVER,      /**< handed to another poll group */
	ROCE_RX_HANDOVER_FULL, /**< its ring was full: dropped */
	ROCE_RX_GIVEN,	       /**< handed to another device on the port */
	ROCE_RX_GIVEN_FULL,    /**< its ring was full: dropped */
	ROCE_RX_TAKEN,	       /**< received by another device on the port */
	ROCE_RX_OTHER,	       /**< of another address, or a protocol not spoken here: dropped */
	ROCE_RX_VLAN,	       /**< of another VLAN: dropped */
	ROCE_RX_MALFORMED,     /**< lengths, versions, pads that can't be */
	ROCE_RX_ICRC,	       /**< ICRC wrong */
	ROCE_RX_OPCODE,	       /**< unknown or not of this transport; CNPs that are none */
	ROCE_RX_QPN,	       /**< no such queue pair */
	ROCE_RX_STATE,	       /**< queue pair not ready to receive */
	ROCE_RX_ADDRESS,       /**< not from the peer's address */
	ROCE_RX_PKEY,
	ROCE_RX_QKEY,
	ROCE_RX_ACCESS,	   /**< rkey, bounds, rights or protection domain: refused */
	ROCE_RX_INVALID,   /**< requests out of order inside a message, too long, repeated amiss */
	ROCE_RX_DUPLICATE, /**< requests seen before */
	ROCE_RX_GAP,	   /**< requests ahead of their turn: dropped */
	ROCE_RX_STALE,	   /**< responses to nothing outstanding */
	ROCE_RX_RNR,	   /**< no receive posted: RNR NAK sent (RC), dropped (UC, UD) */
	ROCE_RX_UC_DROP,   /**< rest of a UC message after a loss */
	ROCE_RX_TOO_LONG,  /**< UD: longer than the receive buffer */
	ROCE_RX_NAK_SEQUENCE, /**< NAKs received */
	ROCE_RX_NAK_RNR,
	ROCE_RX_NAK_FATAL,
	ROCE_TX_NAK_SEQUENCE, /**< NAKs sent */
	ROCE_TX_NAK_RNR,
	ROCE_TX_NAK_FATAL,
	ROCE_TX_ACK,
	ROCE_TX_RETRANSMIT, /**< packets sent again */
	ROCE_TX_TIMEOUT,    /**< local acknowledge time-outs */
	ROCE_TX_PROBE,	    /**< packets sent again early, as no answer came for a round trip */
	ROCE_TX_KEEPALIVE,  /**< idle peers asked for a sign of life */
	ROCE_RX_NOMBUF,	    /**< no mbuf for a copy: dropped for whom it was */
	ROCE_TX_NOMBUF,	    /**< no mbuf: tried again later */
	ROCE_TX_CNP,
	ROCE_RX_CNP,
	ROCE_RX_CE,	      /**< packets with a congestion mark */
	ROCE_TX_CONTROL,      /**< frames of the control lcore sent */
	ROCE_TX_CONTROL_FULL, /**< written by the control lcore: poll group's ring was full */
	ROCE_CQ_OVERRUN,
	ROCE_QP_ERRORS,	 /**< queue pairs that went to error by a fault */
	ROCE_NOTES_LOST, /**< of them and of first packets, as nobody polled: not told */
	ROCE_STATS,
};

/**
 * What a poll group tells the control lcore. By number: the queue pair may be gone when it is read.
 */
enum roce_note_type {
	ROCE_NOTE_FIRST_PACKET, /**< a good request came in RDMA_QP_RTR: the peer is established */
	ROCE_NOTE_QP_ERROR,	/**< a fault put the queue pair into RDMA_QP_ERROR */
};

#define ROCE_NOTES_QP 2 /* a queue pair has each of them to tell once */

struct roce_note {
	uint32_t type;
	uint32_t qpn;
};

/** A call that a poll group is to run. */
struct roce_call {
	int (*fn)(struct roce_poll_group *pg, void *arg);
	void *arg;
	int ret;
	_Atomic uint32_t done;
};

/** How much there is of a device's port. */
enum roce_port_state {
	ROCE_PORT_THERE,
	ROCE_PORT_GOING, /**< it said so: nothing is received from or sent to it any more */
	ROCE_PORT_GONE,	 /**< its number may be another port's */
};

/** Device. Control lcore's, constant for poll groups after rdma_dev_open(). */
struct roce_dev {
	struct rdma_dev base;
	TAILQ_ENTRY(roce_dev) next; /**< of open ones: port/port.c */
	_Atomic uint8_t port_state; /**< enum roce_port_state; written by any thread */
	struct roce_port *shared;   /**< with other devices on the port */
	uint32_t number; /**< of those that were opened: the names of what EAL keeps for it */
	uint16_t port;
	uint16_t queue; /**< first RX and TX queue */
	uint16_t nb_poll_groups;
	uint16_t mtu;	   /**< largest path MTU */
	uint16_t max_sge;  /**< of a list: what the port takes in a frame */
	uint16_t vlan_tci; /**< CPU byte order; 0: no tag */
	bool no_poll;	   /**< packets are handed over by rdma_roce_rx() only */
	bool handover;	   /**< only poll group 0 polls the port */
	bool no_steer;	   /**< the port isn't asked for what is the device's */
	bool dcqcn;	   /**< react to congestion marks */
	bool copy;	   /**< port can't send from registered memory: payload is copied */
	struct rte_ether_addr mac;
	int16_t numa_node;

	bool has_ip4, has_ip6;
	struct roce_gid ip4, ip6; /**< own addresses; ip6 may be link-local */
	uint8_t prefix4, prefix6; /**< bits */
	bool has_gateway4, has_gateway6;
	struct roce_gid gateway4, gateway6;

	struct rte_flow *rules[ROCE_RULES_MAX]; /**< that the port has for us */
	unsigned int nb_rules;

	struct rte_mempool *pool; /**< frames of the control lcore */
	struct rte_ring *given;	  /**< frames from other devices on the port, for poll group 0 */
	struct roce_poll_group *poll_groups[ROCE_POLL_GROUPS_MAX];

	/**
	 * Queue pairs: slot = number & qp_mask. Written by control (release), read by poll groups.
	 */
	struct roce_qp *_Atomic *qps;
	uint32_t qp_mask;
	/** Regions: slot = key & mr_mask. The same. */
	struct roce_mr *_Atomic *mrs;
	uint32_t mr_mask;
	uint32_t max_qps, max_mrs, nb_qps, nb_mrs;

	uint16_t frames_pg, notes_pg; /**< whose are taken first, next time: control's */
	uint64_t control_full;	      /**< frames that a poll group's ring did not take */
	struct roce_control *control; /**< address resolution, CM, multicast: the control lcore's */
};

/** May the port be used? Any lcore. */
static inline bool
roce_dev_has_port(const struct roce_dev *dev)
{
	return atomic_load_explicit(&dev->port_state, memory_order_relaxed) == ROCE_PORT_THERE;
}

static inline struct roce_dev *
roce_dev(struct rdma_dev *dev)
{
	return RTE_PTR_SUB(dev, offsetof(struct roce_dev, base));
}

/*
 * ---- poll groups (engine/engine.c)
 * ---------------------------------------------------------------------
 */

/**
 * Run a function on a poll group's lcore and wait for it: through the poll group's call ring; at
 * once where the poll group is the calling lcore's own, or nobody's yet or any more. *Control.*
 *
 * @param fn writes what is the poll group's; must not wait
 * @return what fn returns
 */
int roce_poll_group_call(
	struct roce_poll_group *pg, int (*fn)(struct roce_poll_group *pg, void *arg), void *arg);

/**
 * Run roce_poll_group_call() with a function that does nothing on every poll group: a grace period.
 */
void roce_dev_quiesce(struct roce_dev *dev);

/**
 * Send a frame of the control lcore: complete with Ethernet header and ICRC, from dev->pool.
 * *Control.* Takes the mbuf, also on failure.
 * @return 0; -ENOBUFS: poll group's ring full, counted
 */
int roce_control_tx(struct roce_dev *dev, uint16_t pg, struct rte_mbuf *m);

/**
 * Take frames that are no data of queue pairs, from all poll groups. *Control.* Each is one
 * contiguous segment; of IP packets l2_len and l3_len are set (VLAN tag inside l2_len). MADs come
 * with ICRC checked; all else is as hostile as the wire. The caller frees them.
 */
uint16_t roce_control_rx(struct roce_dev *dev, struct rte_mbuf **m, uint16_t n);

/** Take a poll group's notes. *Control.* */
uint16_t roce_control_notes(struct roce_dev *dev, struct roce_note *note, uint16_t n);

/**
 * An UD SEND_ONLY frame from the control lcore, ICRC done: CM MADs. *Control.*
 *
 * @param payload bytes, a multiple of 4
 * @return NULL: no mbuf
 */
struct rte_mbuf *roce_control_ud(struct roce_dev *dev, const struct roce_path *path, uint32_t qpn,
	uint32_t src_qpn, uint32_t qkey, uint32_t psn, const void *payload, uint16_t length);

/*
 * ---- queue pairs (engine/qp.c) -----------------------------------------------------------------
 */

/** What roce_qp_modify() sets. */
struct roce_qp_modify {
	enum rdma_qp_state state; /**< RDMA_QP_RTR, RDMA_QP_RTS, RDMA_QP_ERROR */
	/* going to RDMA_QP_RTR, from RDMA_QP_INIT: */
	const struct roce_path *path; /**< also in RTR, RTS: peer's MAC changed; NULL: as it is */
	uint32_t peer_qpn;
	uint32_t peer_psn; /**< expected first */
	uint16_t mtu;
	uint8_t responder_rd_atom;
	uint8_t min_rnr_timer; /**< 0: as created */
	/* going to RDMA_QP_RTS, from RDMA_QP_RTR: */
	uint32_t local_psn;
	uint8_t rd_atom;
	uint8_t ack_timeout; /**< 0: as created */
	uint8_t retry_count; /**< 0xff: as created */
	uint8_t rnr_retry;   /**< 0xff: as created */
};

/**
 * Bring a queue pair to a state, on its poll group. *Control.* From RDMA_QP_INIT straight to
 * RDMA_QP_RTS is fine. The same state again changes the path alone. UD: path NULL.
 * @return 0; -EINVAL: no such transition
 */
int roce_qp_modify(struct rdma_qp *qp, const struct roce_qp_modify *modify);

/**
 * Has the peer of an RC queue pair given a sign of life since this was called last? *Control.*
 *
 * @param ask it for one when it has not
 * @return 1, also when there is work under way; 0: none; -ENOTCONN: not in RDMA_QP_RTS
 */
int roce_qp_alive(struct rdma_qp *qp, bool ask);

/** State of about now; any lcore. */
enum rdma_qp_state roce_qp_state(const struct rdma_qp *qp);

/** @return the queue pair of a number, NULL: none. *Control.* */
struct rdma_qp *roce_qp_find(struct roce_dev *dev, uint32_t qpn);

/** Receive what is sent to a group. *Control.* @return 0; -ENOSPC, -EEXIST */
int roce_qp_attach(struct rdma_qp *qp, const struct roce_gid *group);
int roce_qp_detach(struct rdma_qp *qp, const struct roce_gid *group);

/** A random number with so many bits, from the kernel's generator. Control. */
uint32_t roce_random(unsigned int bits);

/** Address handle of a UD queue pair: posted sends refer to it. */
struct roce_ah {
	struct rdma_ah base;
	TAILQ_ENTRY(roce_ah) next; /**< of the control part's */
	/** The way, and one to be made when it changes; UDP source port is set by the sender. */
	struct roce_path paths[2];
	_Atomic uint8_t current; /**< of these; written by control */
	/** unfinished sends; each entry is written by its poll group only */
	uint32_t refs[ROCE_POLL_GROUPS_MAX];
};

static inline const struct roce_path *
roce_ah_path(const struct roce_ah *ah)
{
	return &ah->paths[atomic_load_explicit(&ah->current, memory_order_acquire)];
}

/*
 * ---- control part (port/ctl_plane.c and beside it) --------------------------------------------
 */

/** Make dev->control. @return 0; -ENOMEM */
int roce_control_open(struct roce_dev *dev);
void roce_control_close(struct roce_dev *dev);

/**
 * Find the way to an address: neighbour, or gateway. *Control.* Starts resolution when unknown.
 * @param mac out: next hop
 * @return 0; -EAGAIN: being resolved; -EHOSTUNREACH: nobody answers, or no route
 */
int roce_control_resolve(
	struct roce_dev *dev, const struct roce_gid *dst, struct rte_ether_addr *mac);

/** Counters of the control part: as rdma_xstats_get(). Any thread. */
int roce_control_xstats_get(const struct roce_dev *dev, struct rdma_xstat *x, unsigned int n);

/** Is a number in time-wait, so that no new queue pair may get it? *Control.* */
bool roce_control_holds_qpn(const struct roce_dev *dev, uint32_t qpn);

/** Forget the events of a queue pair that goes. *Control.* */
void roce_control_forget_qp(struct roce_dev *dev, const struct rdma_qp *qp);

/** The own address for that destination. @return NULL: none of its family */
static inline const struct roce_gid *
roce_dev_source(const struct roce_dev *dev, const struct roce_gid *dst)
{
	if (roce_gid_is_v4(dst))
		return dev->has_ip4 ? &dev->ip4 : NULL;
	return dev->has_ip6 ? &dev->ip6 : NULL;
}

uint16_t roce_control_poll(struct rdma_dev *dev, struct rdma_event *event, uint16_t n);
struct rdma_conn *roce_conn_connect(
	struct rdma_qp *qp, const struct sockaddr *dst, const struct rdma_conn_attr *attr);
struct rdma_conn *roce_conn_listen(
	struct rdma_dev *dev, enum rdma_qp_type type, uint16_t port, uint16_t backlog);
int roce_conn_accept(struct rdma_conn *conn, struct rdma_qp *qp, const struct rdma_conn_attr *attr);
int roce_conn_reject(struct rdma_conn *conn, const void *private_data, uint16_t private_len);
int roce_conn_disconnect(struct rdma_conn *conn);
int roce_conn_destroy(struct rdma_conn *conn);
struct rdma_ah *roce_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit);
int roce_ah_destroy(struct rdma_ah *ah);
struct rdma_conn *roce_multicast_join(struct rdma_qp *qp, const struct sockaddr *group);

#endif
