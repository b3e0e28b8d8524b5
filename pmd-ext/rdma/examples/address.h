/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_ADDRESS_H
#define RDMA_TOOL_ADDRESS_H

/**
 * @file
 * IP addresses on the command line and in messages.
 */

#include <stdint.h>
#include <sys/socket.h>

/**
 * Parse an IPv4 or IPv6 address. Names are not resolved, since packets do not pass through the
 * kernel.
 * @return 0; -EINVAL
 */
int address_parse(const char *text, uint16_t port, struct sockaddr_storage *address);

/** Replace the port. */
void address_set_port(struct sockaddr_storage *address, uint16_t port);

/** Convert to a GID: IPv4 is mapped, ::ffff:a.b.c.d (annex A17 RoCEv2). */
void address_gid(const struct sockaddr_storage *address, uint8_t gid[16]);

/**
 * Get the sender of a datagram: the source address in the 40 bytes before a UD message. These are a
 * GRH, or for IPv4 zeros followed by the IPv4 header in the last 20.
 * @return 0; -EINVAL: neither
 */
int address_of_grh(const uint8_t grh[40], struct sockaddr_storage *address);

#endif
