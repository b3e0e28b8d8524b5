/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ICMP_H
#define ROCE_ICMP_H

/** @file Echo: ICMP (RFC 792) and ICMPv6 (RFC 4443). */

#include <rte_mbuf.h>

#include "net/ip.h"

/**
 * Turn an echo request into its reply, in place: addresses, type, checksum; Ethernet included.
 *
 * @param m frame in one segment, l2_len set
 * @param ip its header, decoded; l3_len of `m` is what roce_ip_decode() returned
 * @return 0; -EPROTO: malformed, wrong checksum; -ENOTSUP: no echo request
 */
int roce_icmp_echo(struct rte_mbuf *m, const struct roce_ip *ip, const struct rte_ether_addr *mac);

#endif
