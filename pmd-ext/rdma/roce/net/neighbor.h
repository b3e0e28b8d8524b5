/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_NEIGHBOR_H
#define ROCE_NEIGHBOR_H

/**
 * @file
 * Neighbors: which Ethernet address an IP address has (ARP, neighbor discovery). A cache, bounded;
 * entries are asked for, time out, are probed when used again. Watches over the own addresses, too
 * (RFC 5227, RFC 4862 5.4).
 */

#include <rte_ether.h>
#include <rte_hash.h>

#include "engine/expiry.h"
#include "net/ip.h"

struct roce_arp;
struct roce_dev;
struct roce_nd;

#define ROCE_NEIGHBORS_MAX 1024

enum roce_neighbor_state {
	ROCE_NEIGHBOR_FREE,
	ROCE_NEIGHBOR_ASKED,	 /**< no address yet */
	ROCE_NEIGHBOR_REACHABLE, /**< confirmed a short while ago */
	ROCE_NEIGHBOR_STALE,	 /**< usable; probed when used */
	ROCE_NEIGHBOR_PROBED,	 /**< usable, confirmation asked for */
	ROCE_NEIGHBOR_FAILED,	 /**< nobody answered; not asked again at once */
};

struct roce_neighbor {
	struct roce_expiry timer;
	struct roce_gid gid;
	struct rte_ether_addr mac;
	uint8_t state; /**< enum roce_neighbor_state */
	uint8_t asked; /**< times */
};

struct roce_neighbors {
	struct rte_hash *hash; /**< GID -> struct roce_neighbor */
	struct roce_neighbor *entries;
	uint32_t nb_entries; /**< not free */
	uint32_t hand;	     /**< where a victim is looked for */
	struct roce_expiry announce;
	uint8_t announced; /**< steps of probing and announcing done since the link is up */
	uint64_t conflict; /**< TSC: not reported or defended again before */
};

/** @return 0; -ENOMEM */
int roce_neighbors_open(struct roce_control *c);
void roce_neighbors_close(struct roce_control *c);

/**
 * Where packets to an address go first.
 * @return NULL: neither on the link nor is there a gateway
 */
const struct roce_gid *roce_neighbor_next_hop(
	const struct roce_dev *dev, const struct roce_gid *dst);

extern const struct rte_ether_addr roce_broadcast;

/** Send an ARP packet, a neighbor solicitation or advertisement. */
void roce_arp_send(
	struct roce_control *c, const struct roce_arp *arp, const struct rte_ether_addr *dst);
void roce_nd_send(struct roce_control *c, const struct roce_nd *nd, const struct roce_gid *src,
	const struct roce_gid *dst, const struct rte_ether_addr *mac);

/** Timer: probe for and announce the own addresses, watch the link. net/local_address.c */
void roce_own_announce(struct roce_control *c, struct roce_expiry *timer);

/** Another station says that an own address is its. net/local_address.c */
void roce_own_conflict(
	struct roce_control *c, const struct roce_gid *gid, const struct rte_ether_addr *mac);

/** An ARP packet came. */
void roce_neighbor_arp(struct roce_control *c, const uint8_t *packet, unsigned int length);

/** A neighbor solicitation or advertisement came. */
void roce_neighbor_nd(struct roce_control *c, const struct roce_ip *ip, const uint8_t *payload);

#endif
