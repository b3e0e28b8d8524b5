/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ICMP_H
#define ROCE_ICMP_H

/**
 * @file Echo: ICMP (RFC 792) and ICMPv6 (RFC 4443).
 */

#include <rte_mbuf.h>

#include "net/ip.h"

/**
 * Turn an echo request into its reply, in place: Ethernet and IP addresses, type, checksum.
 *
 * @param m frame in one segment, l2_len set
 * @param ip its header, decoded; l3_len of `m` is the return value of roce_ip_decode()
 * @return 0; -EPROTO: malformed, wrong checksum, sent from a group's or no Ethernet address;
 *   -ENOTSUP: not an echo request
 */
int roce_icmp_echo(struct rte_mbuf *m, const struct roce_ip *ip, const struct rte_ether_addr *mac);

#endif
