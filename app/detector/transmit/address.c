/* SPDX-License-Identifier: BSD-3-Clause */

#include "transmit/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <string.h>

int
transmit_address_parse(const char *text, uint16_t port, struct sockaddr_storage *addr)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)addr;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)addr;

	memset(addr, 0, sizeof(*addr));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
		v4->sin_family = AF_INET;
		v4->sin_port = htons(port);
		return 0;
	}
	if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
		v6->sin6_family = AF_INET6;
		v6->sin6_port = htons(port);
		return 0;
	}
	return -EINVAL;
}

/* Where the low 32 bits of the address are. */
static void *
low_word(struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		return &((struct sockaddr_in *)addr)->sin_addr;
	return (uint8_t *)&((struct sockaddr_in6 *)addr)->sin6_addr + 12;
}

static bool
is_group(const struct sockaddr_storage *addr)
{
	if (addr->ss_family == AF_INET)
		return IN_MULTICAST(ntohl(((const struct sockaddr_in *)addr)->sin_addr.s_addr));
	return IN6_IS_ADDR_MULTICAST(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

int
transmit_address_group(struct sockaddr_storage *addr, uint32_t n)
{
	uint32_t word, sum;

	if (!is_group(addr))
		return -EINVAL;
	memcpy(&word, low_word(addr), sizeof(word));
	sum = ntohl(word) + n;
	if (sum < n)
		return -EINVAL;
	word = htonl(sum);
	memcpy(low_word(addr), &word, sizeof(word));
	return is_group(addr) ? 0 : -EINVAL;
}
