/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * IP addresses of the command line and of cards.
 */
#ifndef TRANSMIT_ADDRESS_H
#define TRANSMIT_ADDRESS_H

#include <stdint.h>
#include <sys/socket.h>

/** Parse an IPv4 or IPv6 address. @return 0 or -EINVAL */
int transmit_address_parse(const char *text, uint16_t port, struct sockaddr_storage *addr);

/**
 * Add to a multicast address.
 * @return 0; -EINVAL: the address or the sum is not a multicast address
 */
int transmit_address_group(struct sockaddr_storage *addr, uint32_t n);

#endif /* TRANSMIT_ADDRESS_H */
