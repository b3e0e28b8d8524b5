/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_NEIGHBOR_H
#define ROCE_NEIGHBOR_H

/**
 * @file
 * Neighbor cache: the Ethernet address of an IP address, by ARP and neighbor discovery. The cache
 * is
 * bounded. Its entries are resolved, time out, and are probed when they are used again. It also
 * detects conflicts over the device's own addresses (RFC 5227, RFC 4862 5.4).
 */

#include <rte_ether.h>
#include <rte_hash.h>

#include "engine/expiry.h"
#include "net/ip.h"
#include "rdma.h"

struct roce_arp;
struct roce_dev;
struct roce_nd;

#define ROCE_NEIGHBORS_MAX 1024

enum roce_neighbor_state {
	ROCE_NEIGHBOR_FREE,
	ROCE_NEIGHBOR_INCOMPLETE, /**< request sent, no address yet */
	ROCE_NEIGHBOR_REACHABLE,  /**< confirmed recently */
	ROCE_NEIGHBOR_STALE,	  /**< usable; probed when used */
	ROCE_NEIGHBOR_PROBE,	  /**< usable; confirmation requested */
	ROCE_NEIGHBOR_DISPUTED,	  /**< usable; claimed by another station: all are asked */
	ROCE_NEIGHBOR_FAILED,	  /**< no reply; not requested again for a while */
};

struct roce_neighbor {
	struct roce_expiry timer;
	struct roce_gid gid;
	struct rte_ether_addr mac;
	uint8_t state;	  /**< enum roce_neighbor_state */
	uint8_t solicits; /**< requests sent in this state */
	uint64_t locked;  /**< TSC: no question about a disputed address before this time */
	struct rte_ether_addr claimant; /**< DISPUTED: another station that answered; 0: none */
};

struct roce_neighbors {
	struct rte_hash *hash; /**< GID -> struct roce_neighbor */
	struct roce_neighbor *entries;
	uint32_t nb_entries;	/**< entries that are not free */
	uint32_t next_replaced; /**< index where the search for a replaceable entry continues */
	struct roce_expiry announce;
	uint8_t announced; /**< completed steps of probing and announcing since the link came up */
	uint64_t conflict; /**< TSC: no report or defence before this time */
};

/** @return 0; -ENOMEM */
int roce_neighbors_open(struct roce_control *c);
void roce_neighbors_close(struct roce_control *c);

/**
 * Next hop of packets to an address.
 * @return NULL: the address is not on the link and there is no gateway
 */
const struct roce_gid *roce_neighbor_next_hop(
	const struct roce_dev *dev, const struct roce_gid *dst);

/** rdma_dev_route_check() */
int roce_dev_route_check(
	const struct rdma_dev *base, const struct sockaddr *dst, char why[RDMA_ROUTE_TEXT]);

extern const struct rte_ether_addr roce_broadcast;

/** Send an ARP packet. */
void roce_arp_send(
	struct roce_control *c, const struct roce_arp *arp, const struct rte_ether_addr *dst);
void roce_nd_send(struct roce_control *c, const struct roce_nd *nd, const struct roce_gid *src,
	const struct roce_gid *dst, const struct rte_ether_addr *mac);

/**
 * Timer function: probe for and announce the own addresses, monitor the link. net/local_address.c
 */
void roce_own_announce(struct roce_control *c, struct roce_expiry *timer);

/** Another station claims an own address. net/local_address.c */
void roce_own_conflict(
	struct roce_control *c, const struct roce_gid *gid, const struct rte_ether_addr *mac);

/** Handle a received ARP packet. */
void roce_neighbor_arp(struct roce_control *c, const uint8_t *packet, unsigned int length);

/** Handle a received neighbor solicitation or advertisement. */
void roce_neighbor_nd(struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload);

#endif
