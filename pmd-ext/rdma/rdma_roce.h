/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_ROCE_H
#define RDMA_ROCE_H

/**
 * @file
 * What only the `roce` provider has: packets that somebody else received. A program that polls an
 * RX queue for its own purposes - a detector's data, say - hands over what is RDMA's.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Hand over packets. The lcore that calls rdma_progress() for that poll group.
 *
 * Taken are packets to UDP port 4791 and, as address resolution and multicast need them, ARP, ICMP,
 * ICMPv6 and IGMP; taken packets are worked at and freed. All others stay the caller's.
 *
 * @param dev of the provider `roce`, on the port that they came from
 * @param m packets; those that stay are moved to the front, in order
 * @param n how many
 * @return how many stay the caller's
 */
uint16_t rdma_roce_rx(struct rdma_dev *dev, uint16_t poll_group, struct rte_mbuf **m, uint16_t n);

#ifdef __cplusplus
}
#endif

#endif
