/* SPDX-License-Identifier: BSD-3-Clause */
#include "address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <string.h>

int
address_parse(const char *text, uint16_t port, struct sockaddr_storage *address)
{
	struct sockaddr_in *v4 = (struct sockaddr_in *)address;
	struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)address;

	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &v4->sin_addr) == 1)
		address->ss_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1)
		address->ss_family = AF_INET6;
	else
		return -EINVAL;
	address_set_port(address, port);
	return 0;
}

void
address_set_port(struct sockaddr_storage *address, uint16_t port)
{
	if (address->ss_family == AF_INET)
		((struct sockaddr_in *)address)->sin_port = htons(port);
	else
		((struct sockaddr_in6 *)address)->sin6_port = htons(port);
}

void
address_gid(const struct sockaddr_storage *address, uint8_t gid[16])
{
	memset(gid, 0, 16);
	if (address->ss_family == AF_INET6) {
		memcpy(gid, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
		return;
	}
	gid[10] = 0xff;
	gid[11] = 0xff;
	memcpy(&gid[12], &((const struct sockaddr_in *)address)->sin_addr, 4);
}

int
address_of_grh(const uint8_t grh[40], struct sockaddr_storage *address)
{
	memset(address, 0, sizeof(*address));
	/* with IPv4 the first 20 bytes are undefined, so check the last 20 first */
	if (grh[20] == 0x45 && grh[29] == IPPROTO_UDP) {
		address->ss_family = AF_INET;
		memcpy(&((struct sockaddr_in *)address)->sin_addr, &grh[32], 4);
		return 0;
	}
	if (grh[0] >> 4 == 6) {
		address->ss_family = AF_INET6;
		memcpy(&((struct sockaddr_in6 *)address)->sin6_addr, &grh[8], 16);
		return 0;
	}
	return -EINVAL;
}
