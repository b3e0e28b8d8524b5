/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ARP_H
#define ROCE_ARP_H

/** @file ARP of Ethernet and IPv4, decoded and encoded (RFC 826, RFC 5227). */

#include <stdint.h>

#include <rte_byteorder.h>
#include <rte_ether.h>

#define ROCE_ARP_BYTES 28

enum roce_arp_op {
	ROCE_ARP_REQUEST = 1,
	ROCE_ARP_REPLY = 2,
};

struct roce_arp {
	uint16_t op; /**< enum roce_arp_op */
	struct rte_ether_addr sender_mac, target_mac;
	rte_be32_t sender_ip, target_ip; /**< the sender of a probe is 0.0.0.0 */
};

/** @return 0; -EPROTO: too short, not Ethernet and IPv4, neither request nor reply */
int roce_arp_decode(const uint8_t *wire, unsigned int length, struct roce_arp *arp);

void roce_arp_encode(const struct roce_arp *arp, uint8_t wire[ROCE_ARP_BYTES]);

#endif
