/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_ROCE_H
#define RDMA_ROCE_H

/**
 * @file
 * Functions that only the `roce` provider has: reception of packets from a queue that the
 * application polls. An application that polls an RX queue for its own purposes, such as detector
 * data, forwards the RDMA packets to the device.
 */

#include <stdint.h>

#include <rte_mbuf.h>

#include "rdma.h"

#ifdef __cplusplus
extern "C" {
#endif

/**
 * Forward received packets to a poll group. Only the lcore that calls rdma_progress() for the poll
 * group may call this function.
 *
 * The poll group takes packets to UDP port 4791 and those that address resolution and multicast
 * need: ARP, ICMP, ICMPv6 and IGMP. It processes and frees them. The caller keeps all others.
 *
 * @param dev of the provider `roce`, on the port that received the packets
 * @param poll_group 0 to rdma_dev_info.nb_poll_groups - 1
 * @param m packets; the ones not taken are moved to the front, in order
 * @param n number of packets
 * @return number of packets not taken, which the caller still owns
 */
uint16_t rdma_roce_rx(struct rdma_dev *dev, uint16_t poll_group, struct rte_mbuf **m, uint16_t n);

#ifdef __cplusplus
}
#endif

#endif
