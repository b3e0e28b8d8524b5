/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_ICRC_H
#define ROCE_ICRC_H

/**
 * @file
 * The invariant CRC (A17.3.3): the CRC-32 of Ethernet over 8 bytes of ones, which replace the local
 * route header, and the packet from the IP header on. Fields that routers may change count as ones.
 */

#include <stdint.h>

#include <rte_mbuf.h>

/** Bytes of ones before the packet. */
#define ROCE_ICRC_ONES 8

/** Maximum bytes of headers, from IP to the last extended header. */
#define ROCE_ICRC_HEADERS_MAX (40 + 8 + 12 + 28)

/**
 * Compute the CRC over the ones and the headers.
 *
 * @param l3 IP header
 * @param l3_len 20 (IPv4) or 40 (IPv6)
 * @param length bytes from l3 on, at most ROCE_ICRC_HEADERS_MAX
 */
uint32_t roce_icrc_headers(const uint8_t *l3, unsigned int l3_len, unsigned int length);

/** Continue the CRC over bytes. */
uint32_t roce_icrc_bytes(uint32_t crc, const void *bytes, size_t length);

/** Continue the CRC over bytes of an mbuf chain, which must contain them. */
uint32_t roce_icrc_mbuf(uint32_t crc, const struct rte_mbuf *m, uint32_t offset, uint32_t length);

#endif
