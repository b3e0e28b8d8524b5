/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_CTL_PLANE_H
#define ROCE_CTL_PLANE_H

/**
 * @file
 * The control lcore's part of a device: it implements rdma_poll_cm(). Poll groups forward frames,
 * which go to the neighbor cache, echo, multicast groups or the connection manager. Timers expire.
 * Events go to the application.
 */

#include "counter.h"
#include "roce.h"
#include "cm/conn_table.h"
#include "net/ip.h"
#include "mcast/membership.h"
#include "net/neighbor.h"
#include "engine/timer.h"

/** Counters. Their names are in port/ctl_plane_stat.c, in the same order. */
enum roce_control_stat {
	ROCE_CTL_MALFORMED,   /**< invalid length, version or checksum: dropped */
	ROCE_CTL_OTHER,	      /**< not for this device, or an unsupported protocol: dropped */
	ROCE_CTL_NOMBUF,      /**< no mbuf for a frame to transmit */
	ROCE_CTL_EVENTS_LOST, /**< no memory for an event */
	ROCE_ARP_RX,
	ROCE_ARP_TX,
	ROCE_ND_RX,
	ROCE_ND_TX,
	ROCE_NEIGHBORS_FULL,	 /**< cache full: not learned */
	ROCE_NEIGHBORS_FAILED,	 /**< no reply */
	ROCE_NEIGHBORS_MOVED,	 /**< MAC address has changed */
	ROCE_NEIGHBORS_DISPUTED, /**< claims of another MAC address than the one in use */
	ROCE_ADDR_CONFLICTS,	 /**< another station used an own address */
	ROCE_ECHO_REPLIES,
	ROCE_ECHO_LIMITED, /**< above the limit per second: no reply */
	ROCE_GROUP_QUERIES,
	ROCE_GROUP_REPORTS,
	ROCE_GROUP_REFUSED,    /**< lists refused by the port, which receives all groups instead */
	ROCE_MAD_MALFORMED,    /**< not a CM message, or inconsistent fields */
	ROCE_MAD_UNSUPPORTED,  /**< unsupported class or attribute */
	ROCE_MAD_QKEY,	       /**< Q_Key is not that of QP1, or source is not QP1 */
	ROCE_CM_RX,	       /**< received messages */
	ROCE_CM_TX,	       /**< sent messages, including retransmissions */
	ROCE_CM_RETRANSMITS,   /**< retransmitted without a reply */
	ROCE_CM_DUPLICATES,    /**< received and answered again */
	ROCE_CM_UNMATCHED,     /**< of an unknown connection */
	ROCE_CM_UNEXPECTED,    /**< unexpected in this state of the connection */
	ROCE_CM_NO_LISTENER,   /**< requests rejected: no listener */
	ROCE_CM_BACKLOG_FULL,  /**< requests dropped: backlog of the listener is full */
	ROCE_CM_TABLE_FULL,    /**< requests dropped: limit of the device */
	ROCE_CM_STALE,	       /**< requests rejected: the peer reuses a number */
	ROCE_CM_BAD_REQUEST,   /**< requests rejected: GID, transport, private data */
	ROCE_CM_BAD_MTU,       /**< requests rejected: path MTU */
	ROCE_CM_REJECTS_RX,    /**< own requests or replies rejected by the peer */
	ROCE_CM_REJECTS_TX,    /**< rejected by the application */
	ROCE_CM_TIMEOUTS,      /**< handshakes that timed out */
	ROCE_CM_CONNECTED,     /**< connections established */
	ROCE_CM_DISCONNECTED,  /**< connections that ended */
	ROCE_CM_FIRST_PACKETS, /**< established by a data packet: RTU lost or late */
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
	uint64_t (*clock)(void); /**< TSC; replaced in tests */
	uint64_t now;		 /**< time of this poll or call */
	uint64_t hz;
	struct roce_wheel wheel;
	struct roce_expiry **due; /**< expired timers, while their functions are called */
	STAILQ_HEAD(, roce_event) events;
	struct roce_neighbors neighbors;
	struct roce_memberships memberships;
	struct roce_conns conns;
	TAILQ_HEAD(, roce_ah) ahs; /**< address handles */
	uint64_t echo_second;	   /**< the second in which echo_sent replies were sent */
	uint32_t echo_sent;
	bool removed;	      /**< the removal of the port was reported */
	uint64_t mtu_warning; /**< TSC: no further warning before this time */
	uint32_t psn;	      /**< next PSN of QP1 */
	uint64_t stats[ROCE_CONTROL_STATS];
};

/** Only the control lcore writes; any thread may read concurrently. */
static inline void
roce_control_count(struct roce_control *c, enum roce_control_stat stat)
{
	counter_add(&c->stats[stat], 1);
}

/** Update the time. Calls of the application occur between two polls. */
static inline void
roce_control_time(struct roce_control *c)
{
	c->now = c->clock();
}

/**
 * Create a frame with Ethernet header and VLAN tag.
 *
 * @param l3 out: address of the packet
 * @param length bytes of the packet; appended
 * @return NULL: no mbuf, counted
 */
struct rte_mbuf *roce_control_frame(struct roce_control *c, const struct rte_ether_addr *dst,
	uint16_t ether_type, unsigned int length, uint8_t **l3);

/** Send an IP packet: header and payload. */
void roce_control_send_ip(struct roce_control *c, const struct rte_ether_addr *dst,
	const struct roce_ip *ip, const uint8_t *payload);

/** Queue an event with type and status. @return the event, to be completed; NULL: lost, counted */
struct rdma_event *roce_control_event(
	struct roce_control *c, enum rdma_event_type type, struct roce_conn *conn, int status);

/** Drop the events of a connection that is closed. @return true: its request was among them */
bool roce_control_forget(struct roce_control *c, const struct roce_conn *conn);

#endif
