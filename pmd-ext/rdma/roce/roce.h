/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_H
#define ROCE_H

/**
 * @file Internal interface of the `roce` provider: the device, its poll groups, and the
 * communication between the lcore of a poll group and the control lcore. Not for applications.
 *
 * A poll group is one protocol engine. It has an RX queue, a TX queue, queue pairs and timers. Only
 * the lcore of the poll group writes its data. The control lcore
 *
 * - receives from each poll group the frames that carry no data of queue pairs: ARP, ICMP, IGMP,
 *   neighbour discovery and MADs (`to_control`), and asynchronous events (`notes`);
 * - forwards frames to a poll group for transmission (`to_pg`);
 * - makes a poll group execute a function on its own lcore and waits for the result:
 *   roce_poll_group_call(). This changes the state of a queue pair, and retires regions and queue
 *   pairs.
 *
 * Poll groups of other devices on the port forward the frames addressed to this device to its poll
 * group 0 (`given`).
 *
 * The control lcore writes the tables of queue pairs and regions with release stores; poll groups
 * read them. An object that is removed from a table is freed after a grace period: every poll group
 * has executed a call after the removal.
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
#define ROCE_RULES_MAX	     6 /* three for each address family */

struct rte_flow;
struct roce_dev;
struct roce_poll_group;
struct roce_port;
struct roce_qp;

/** Counters of a poll group. Their names are in port/stat.c, in the same order. */
enum roce_stat {
	ROCE_RX_PACKETS,
	ROCE_RX_BYTES, /**< payload written to memory */
	ROCE_TX_PACKETS,
	ROCE_TX_BYTES,	       /**< payload sent, including retransmissions */
	ROCE_RX_CONTROL,       /**< forwarded to the control lcore */
	ROCE_RX_CONTROL_FULL,  /**< dropped: ring to the control lcore full */
	ROCE_RX_HANDOVER,      /**< forwarded to another poll group */
	ROCE_RX_HANDOVER_FULL, /**< dropped: ring to the other poll group full */
	ROCE_RX_GIVEN,	       /**< forwarded to another device on the port */
	ROCE_RX_GIVEN_FULL,    /**< dropped: ring to the other device full */
	ROCE_RX_TAKEN,	       /**< received by another device on the port and forwarded to us */
	ROCE_RX_OTHER,	       /**< dropped: other destination address or unsupported protocol */
	ROCE_RX_VLAN,	       /**< dropped: other VLAN */
	ROCE_RX_MALFORMED,     /**< invalid length, version or pad count */
	ROCE_RX_ICRC,	       /**< wrong ICRC */
	ROCE_RX_OPCODE,	       /**< opcode unknown or of another transport; invalid CNP */
	ROCE_RX_QPN,	       /**< no such queue pair */
	ROCE_RX_STATE,	       /**< queue pair not in a state to receive */
	ROCE_RX_ADDRESS,       /**< source is not the peer's address */
	ROCE_RX_PKEY,
	ROCE_RX_QKEY,
	ROCE_RX_ACCESS,	   /**< refused: wrong rkey, bounds, access rights or protection domain */
	ROCE_RX_INVALID,   /**< requests out of sequence in a message, too long or badly repeated */
	ROCE_RX_DUPLICATE, /**< duplicate requests */
	ROCE_RX_GAP,	   /**< requests with a PSN beyond the expected one: dropped */
	ROCE_RX_STALE,	   /**< responses that match no outstanding request */
	ROCE_RX_RNR,	   /**< no receive posted: RNR NAK sent (RC), dropped (UC, UD) */
	ROCE_RX_UC_DROP,   /**< rest of a UC message after a loss; by reference: all its packets */
	/** by reference: packets of messages that are not complete; it goes down, too */
	ROCE_RX_UC_BEGUN,
	ROCE_RX_MESSAGES_FULL,	 /**< messages by reference dropped: ring full, rdma_roce_rx() */
	ROCE_RX_MESSAGES_PAUSED, /**< polls without reception: messages by reference not taken */
	ROCE_RX_TOO_LONG,	 /**< UD: longer than the path MTU or the receive buffer */
	ROCE_RX_NAK_SEQUENCE,	 /**< NAKs received */
	ROCE_RX_NAK_RNR,
	ROCE_RX_NAK_FATAL,
	ROCE_TX_NAK_SEQUENCE, /**< NAKs sent */
	ROCE_TX_NAK_RNR,
	ROCE_TX_NAK_FATAL,
	ROCE_TX_ACK,
	ROCE_TX_RETRANSMIT, /**< packets retransmitted */
	ROCE_TX_TIMEOUT,    /**< local ACK timeouts */
	ROCE_TX_PROBE,	    /**< early retransmissions: no response within a round-trip time */
	ROCE_TX_KEEPALIVE,  /**< keepalive probes sent to idle peers */
	ROCE_RX_NOMBUF,	    /**< no mbuf for a copy of a packet: that copy is dropped */
	ROCE_TX_NOMBUF,	    /**< no mbuf to send: retried later */
	ROCE_TX_STALLED,    /**< dropped: the port accepted no packet for ROCE_TX_STALL_MS */
	ROCE_TX_CNP,
	ROCE_RX_CNP,
	ROCE_RX_CE,	      /**< packets marked with congestion experienced (CE) */
	ROCE_TX_CONTROL,      /**< frames of the control lcore sent */
	ROCE_TX_CONTROL_FULL, /**< ring to the poll group full; the control lcore counts this */
	ROCE_CQ_OVERRUN,
	ROCE_QP_ERRORS,	 /**< queue pairs moved to the error state by a fault */
	ROCE_NOTES_LOST, /**< events lost because the control lcore did not read them */
	ROCE_STATS,
};

/**
 * Events from a poll group to the control lcore. They name a queue pair by its number, because it
 * may be destroyed before the control lcore reads the event.
 */
enum roce_note_type {
	/** A valid request was received in RDMA_QP_RTR: the connection is established */
	ROCE_NOTE_FIRST_PACKET,
	ROCE_NOTE_QP_ERROR, /**< a fault moved the queue pair to RDMA_QP_ERROR */
};

#define ROCE_NOTES_QP 2 /* events per queue pair: each type once */

struct roce_note {
	uint32_t type;
	uint32_t qpn;
};

/** A function to be executed on the lcore of a poll group. */
struct roce_call {
	int (*fn)(struct roce_poll_group *pg, void *arg);
	void *arg;
	int ret;
	_Atomic uint32_t done;
};

/** State of a device's port. */
enum roce_port_state {
	ROCE_PORT_THERE, /**< present */
	ROCE_PORT_GOING, /**< it raised a removal event: no more receive and transmit calls */
	ROCE_PORT_GONE,	 /**< removed: its port number may belong to another port */
};

/**
 * A device. The control lcore writes it. For poll groups it is constant after rdma_dev_open(),
 * except for atomic members.
 */
struct roce_dev {
	struct rdma_dev base;
	TAILQ_ENTRY(roce_dev) next; /**< list of open devices: port/port.c */
	_Atomic uint8_t port_state; /**< enum roce_port_state; written by any thread */
	struct roce_port *shared;   /**< shared with other devices on the port */
	uint32_t number; /**< counts opened devices; part of the names of rings and pools */
	uint16_t port;
	uint16_t queue; /**< first RX and TX queue */
	uint16_t nb_poll_groups;
	uint16_t mtu; /**< largest path MTU */
	/** maximum entries of a list, limited by the segments of a port's frame */
	uint16_t max_sge;
	uint16_t vlan_tci; /**< CPU byte order; 0: no tag */
	bool no_poll;	   /**< packets arrive through rdma_roce_rx() only */
	bool handover;	   /**< only poll group 0 polls the port */
	bool no_steer;	   /**< do not request rte_flow rules */
	bool dcqcn;	   /**< DCQCN congestion control */
	bool copy;	   /**< the port cannot send from registered memory: copy the payload */
	bool copy_sends;   /**< the port keeps the last frames: copy the payload of SENDs (RC) */
	struct rte_ether_addr mac;
	int16_t numa_node;

	bool has_ip4, has_ip6;
	struct roce_gid ip4, ip6; /**< own addresses; ip6 may be link-local */
	uint8_t prefix4, prefix6; /**< bits */
	bool has_gateway4, has_gateway6;
	struct roce_gid gateway4, gateway6;

	struct rte_flow *rules[ROCE_RULES_MAX]; /**< rules installed on the port */
	unsigned int nb_rules;

	struct rte_mempool *pool; /**< frames of the control lcore */
	struct rte_ring *given;	  /**< frames from other devices on the port, for poll group 0 */
	struct roce_poll_group *poll_groups[ROCE_POLL_GROUPS_MAX];

	/**
	 * Queue pairs: slot = number & qp_mask. Written by the control lcore (release), read by
	 * poll groups.
	 */
	struct roce_qp *_Atomic *qps;
	uint32_t qp_mask;
	/** Regions: slot = key & mr_mask. Same rules as qps. */
	struct roce_mr *_Atomic *mrs;
	uint32_t mr_mask;
	uint32_t max_qps, max_mrs, nb_qps, nb_mrs;

	/** Poll group that is read first in the next call (round-robin); the control lcore's */
	uint16_t frames_pg, notes_pg;
	uint64_t control_full;	      /**< frames dropped because a poll group's ring was full */
	struct roce_control *control; /**< address resolution, CM, multicast: the control lcore's */
};

/** True if the port may be used. Any lcore. */
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

/* ---- poll groups (engine/engine.c) ----------------------------------------------------------- */

/**
 * Execute a function on the lcore of a poll group and wait for the result. *Control.* The call goes
 * through the poll group's call ring. The calling lcore executes it directly if it owns the poll
 * group, or if no running lcore owns it.
 *
 * @param fn may write the poll group's data; must not wait
 * @return the return value of fn
 */
int roce_poll_group_call(
	struct roce_poll_group *pg, int (*fn)(struct roce_poll_group *pg, void *arg), void *arg);

/**
 * Wait for a grace period: execute an empty function on every poll group with
 * roce_poll_group_call(). *Control.*
 */
void roce_dev_quiesce(struct roce_dev *dev);

/**
 * Send a frame of the control lcore, with Ethernet header and ICRC, from dev->pool. *Control.* The
 * function consumes the mbuf, also on failure.
 * @return 0; -ENOBUFS: ring to the poll group full, counted
 */
int roce_control_tx(struct roce_dev *dev, uint16_t pg, struct rte_mbuf *m);

/**
 * Receive frames that carry no data of queue pairs, from all poll groups. *Control.* Each frame is
 * one contiguous segment. IP packets have l2_len and l3_len set (l2_len includes a VLAN tag). The
 * ICRC of MADs is checked; all other contents are untrusted. The caller frees the frames.
 */
uint16_t roce_control_rx(struct roce_dev *dev, struct rte_mbuf **m, uint16_t n);

/** Read events of all poll groups. *Control.* */
uint16_t roce_control_notes(struct roce_dev *dev, struct roce_note *note, uint16_t n);

/**
 * Build a UD SEND_ONLY frame with ICRC, for CM MADs. *Control.*
 *
 * @param length bytes of payload, a multiple of 4
 * @return NULL: no mbuf
 */
struct rte_mbuf *roce_control_ud(struct roce_dev *dev, const struct roce_path *path, uint32_t qpn,
	uint32_t src_qpn, uint32_t qkey, uint32_t psn, const void *payload, uint16_t length);

/* ---- queue pairs (engine/qp.c) --------------------------------------------------------------- */

/** Attributes for roce_qp_modify(). */
struct roce_qp_modify {
	enum rdma_qp_state state; /**< RDMA_QP_RTR, RDMA_QP_RTS, RDMA_QP_ERROR */
	/* from RDMA_QP_INIT to RDMA_QP_RTR: */
	/** Also in RTR and RTS, when the peer's MAC address has changed; NULL: no change */
	const struct roce_path *path;
	/** Instead of a path, of a queue pair that only receives: accepted source; 0: any */
	const struct roce_gid *source;
	uint32_t peer_qpn;
	uint32_t peer_psn; /**< first expected PSN */
	uint16_t mtu;
	uint8_t responder_rd_atom;
	uint8_t min_rnr_timer; /**< 0: as created */
	/* from RDMA_QP_RTR to RDMA_QP_RTS: */
	uint32_t local_psn;
	uint8_t rd_atom;
	uint8_t ack_timeout; /**< 0: as created */
	uint8_t retry_count; /**< 0xff: as created */
	uint8_t rnr_retry;   /**< 0xff: as created */
};

/**
 * Change the state of a queue pair, on its poll group. *Control.* The transition from RDMA_QP_INIT
 * to RDMA_QP_RTS is allowed. If the queue pair is already in the given state, only the path is
 * changed. UD: path is NULL.
 * @return 0; -EINVAL: no such transition
 */
int roce_qp_modify(struct rdma_qp *qp, const struct roce_qp_modify *modify);

/**
 * Check whether the peer of an RC queue pair has responded since the last call. *Control.*
 *
 * @param ask send a keepalive probe if it has not
 * @return 1: it has, or requests are outstanding, or a probe cannot be sent now; 0: it has not;
 *   -ENOTCONN: not in RDMA_QP_RTS
 */
int roce_qp_alive(struct rdma_qp *qp, bool ask);

/** Current state. Any lcore. */
enum rdma_qp_state roce_qp_state(const struct rdma_qp *qp);

/** Find a queue pair by number. *Control.* @return NULL: none */
struct rdma_qp *roce_qp_find(struct roce_dev *dev, uint32_t qpn);

/** Receive the packets of a multicast group. *Control.* @return 0; -ENOSPC, -EEXIST */
int roce_qp_attach(struct rdma_qp *qp, const struct roce_gid *group);
int roce_qp_detach(struct rdma_qp *qp, const struct roce_gid *group);

/** A random number of `bits` bits, from the kernel's generator. *Control.* */
uint32_t roce_random(unsigned int bits);

/** Address handle for UD. Posted sends refer to it. */
struct roce_ah {
	struct rdma_ah base;
	TAILQ_ENTRY(roce_ah) next; /**< list of the control lcore */
	/** The current path and a spare one: a changed path is built in the spare one and then
	 *  becomes current. The sender sets the UDP source port. */
	struct roce_path paths[2];
	_Atomic uint8_t current; /**< index in paths; written by the control lcore */
	/** Outstanding sends; each entry is written by its poll group only */
	uint32_t refs[ROCE_POLL_GROUPS_MAX];
};

static inline const struct roce_path *
roce_ah_path(const struct roce_ah *ah)
{
	return &ah->paths[atomic_load_explicit(&ah->current, memory_order_acquire)];
}

/* ---- control plane (port/ctl_plane.c and other files) ---------------------------------------- */

/** Create dev->control. @return 0; -ENOMEM */
int roce_control_open(struct roce_dev *dev);
void roce_control_close(struct roce_dev *dev);

/**
 * Find the next hop to an address: the neighbour or the gateway. *Control.* Starts address
 * resolution if its MAC address is unknown.
 * @param mac out: MAC address of the next hop
 * @return 0; -EAGAIN: being resolved; -EHOSTUNREACH: no answer, or no route
 */
int roce_control_resolve(
	struct roce_dev *dev, const struct roce_gid *dst, struct rte_ether_addr *mac);

/** Counters of the control plane, as rdma_xstats_get(). Any thread. */
int roce_control_xstats_get(const struct roce_dev *dev, struct rdma_xstat *x, unsigned int n);

/** True if a queue pair number is in time-wait: a new queue pair must not use it. *Control.* */
bool roce_control_holds_qpn(const struct roce_dev *dev, uint32_t qpn);

/** Discard the events of a queue pair that is being destroyed. *Control.* */
void roce_control_forget_qp(struct roce_dev *dev, const struct rdma_qp *qp);

/** The own address of the same family as `dst`. @return NULL: none */
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
