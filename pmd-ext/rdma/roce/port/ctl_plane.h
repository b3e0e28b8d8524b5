/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CONTROL_H
#define ROCE_CONTROL_H

/**
 * @file The control lcore's part of a device: what rdma_poll_cm() does. Frames come from the poll
 * groups, go to neighbors, echo, groups or the connection manager; timers expire; events go to the
 * application.
 */

#include "roce.h"
#include "cm/conn_table.h"
#include "net/ip.h"
#include "mcast/membership.h"
#include "net/neighbor.h"
#include "engine/timer.h"

/** Counters: name in port/ctl_plane_stat.c, same order. */
enum roce_control_stat {
	ROCE_CTL_MALFORMED,   /**< lengths, versions, checksums that can't be: dropped */
	ROCE_CTL_OTHER,	      /**< not for us, or of a kind not spoken here: dropped */
	ROCE_CTL_NOMBUF,      /**< no mbuf for a frame to be sent */
	ROCE_CTL_EVENTS_LOST, /**< no memory for an event */
	ROCE_ARP_RX,
	ROCE_ARP_TX,
	ROCE_ND_RX,
	ROCE_ND_TX,
	ROCE_NEIGHBORS_FULL,   /**< cache full: not learned */
	ROCE_NEIGHBORS_FAILED, /**< nobody answered */
	ROCE_NEIGHBORS_MOVED,  /**< another MAC address than before */
	ROCE_ADDR_CONFLICTS,   /**< another station used our address */
	ROCE_ECHO_REPLIES,
	ROCE_ECHO_LIMITED, /**< too many a second: not answered */
	ROCE_GROUP_QUERIES,
	ROCE_GROUP_REPORTS,
	ROCE_GROUP_REFUSED,    /**< lists by the port, which takes all groups instead */
	ROCE_MAD_MALFORMED,    /**< no CM message, or fields that contradict each other */
	ROCE_MAD_UNSUPPORTED,  /**< of a class or attribute not spoken here */
	ROCE_MAD_QKEY,	       /**< not the Q_Key of QP1, or not from QP1 */
	ROCE_CM_RX,	       /**< messages */
	ROCE_CM_TX,	       /**< messages, repeated ones again */
	ROCE_CM_RETRANSMITS,   /**< repeated because no answer came */
	ROCE_CM_DUPLICATES,    /**< received again, answered again */
	ROCE_CM_UNMATCHED,     /**< of no connection known here */
	ROCE_CM_UNEXPECTED,    /**< not in this state of its connection */
	ROCE_CM_NO_LISTENER,   /**< requests rejected: nobody listens */
	ROCE_CM_BACKLOG_FULL,  /**< requests dropped: listener's backlog */
	ROCE_CM_TABLE_FULL,    /**< requests dropped: device's limit */
	ROCE_CM_STALE,	       /**< requests rejected: the peer uses a number twice */
	ROCE_CM_BAD_REQUEST,   /**< requests rejected: GID, transport, private data */
	ROCE_CM_BAD_MTU,       /**< requests rejected: path MTU */
	ROCE_CM_REJECTS_RX,    /**< own requests or replies rejected by the peer */
	ROCE_CM_REJECTS_TX,    /**< by the application */
	ROCE_CM_TIMEOUTS,      /**< handshakes given up */
	ROCE_CM_CONNECTED,     /**< connections that came up */
	ROCE_CM_DISCONNECTED,  /**< and went down */
	ROCE_CM_FIRST_PACKETS, /**< established by data: RTU lost or late */
	ROCE_SIDR_ANSWERED,    /**< service requests answered with a queue pair */
	ROCE_CONTROL_STATS,
};

/** An event that waits for rdma_poll_cm(). */
struct roce_event {
	STAILQ_ENTRY(roce_event) next;
	struct rdma_event event;
};

struct roce_control {
	struct roce_dev *dev;
	uint64_t (*clock)(void); /**< TSC; tests have their own */
	uint64_t now;		 /**< of this poll or call */
	uint64_t hz;
	struct roce_wheel wheel;
	struct roce_expiry **due; /**< expired timers, while their functions are called */
	STAILQ_HEAD(, roce_event) events;
	struct roce_neighbors neighbors;
	struct roce_memberships memberships;
	struct roce_conns conns;
	TAILQ_HEAD(, roce_ah) ahs; /**< address handles */
	uint64_t echo_second;	   /**< the second in which echo_sent were sent */
	uint32_t echo_sent;
	bool removed;	      /**< the port's end has been told */
	uint64_t mtu_warning; /**< TSC: no other one before */
	uint32_t psn;	      /**< of QP1 */
	uint64_t stats[ROCE_CONTROL_STATS];
};

/** The control lcore alone writes; anybody may read meanwhile. */
static inline void
roce_control_count(struct roce_control *c, enum roce_control_stat stat)
{
	__atomic_store_n(&c->stats[stat], c->stats[stat] + 1, __ATOMIC_RELAXED);
}

/** Now; own calls of the application come between two polls. */
static inline void
roce_control_time(struct roce_control *c)
{
	c->now = c->clock();
}

/**
 * An empty frame: Ethernet header and VLAN tag.
 *
 * @param l3 out: where its packet goes
 * @param length bytes of that; appended
 * @return NULL: no mbuf, counted
 */
struct rte_mbuf *roce_control_frame(struct roce_control *c, const struct rte_ether_addr *dst,
	uint16_t ether_type, unsigned int length, uint8_t **l3);

/** Send an IP packet: header and payload. */
void roce_control_send_ip(struct roce_control *c, const struct rte_ether_addr *dst,
	const struct roce_ip *ip, const uint8_t *payload);

/** Queue an event, type and status set. @return to fill in more; NULL: lost, counted */
struct rdma_event *roce_control_event(
	struct roce_control *c, enum rdma_event_type type, struct roce_conn *conn, int status);

/** Forget the events of a connection that goes. @return true: its request was among them */
bool roce_control_forget(struct roce_control *c, const struct roce_conn *conn);

#endif
