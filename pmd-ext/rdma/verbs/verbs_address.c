/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Addresses and address handles. A RoCEv2 GID is an IPv6 address or an IPv4-mapped IPv6 address
 * (IBTA annex A17.4).
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>

#include "verbs_device.h"

bool
verbs_gid_of(const struct sockaddr *addr, union ibv_gid *gid)
{
	memset(gid, 0, sizeof(*gid));
	switch (addr->sa_family) {
	case AF_INET:
		gid->raw[10] = 0xff;
		gid->raw[11] = 0xff;
		memcpy(&gid->raw[12], &((const struct sockaddr_in *)addr)->sin_addr, 4);
		return true;
	case AF_INET6:
		memcpy(gid->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
		return true;
	default:
		return false;
	}
}

void
verbs_address_of(const union ibv_gid *gid, uint32_t ifindex, struct sockaddr_storage *addr)
{
	struct in6_addr in6;

	memset(addr, 0, sizeof(*addr));
	memcpy(&in6, gid->raw, sizeof(in6));
	if (IN6_IS_ADDR_V4MAPPED(&in6)) {
		struct sockaddr_in *sin = (struct sockaddr_in *)addr;

		sin->sin_family = AF_INET;
		memcpy(&sin->sin_addr, &gid->raw[12], 4);
	} else {
		struct sockaddr_in6 *sin6 = (struct sockaddr_in6 *)addr;

		sin6->sin6_family = AF_INET6;
		sin6->sin6_addr = in6;
		if (IN6_IS_ADDR_LINKLOCAL(&in6))
			sin6->sin6_scope_id = ifindex;
	}
}

socklen_t
verbs_address_size(const struct sockaddr *addr)
{
	switch (addr->sa_family) {
	case AF_INET:
		return sizeof(struct sockaddr_in);
	case AF_INET6:
		return sizeof(struct sockaddr_in6);
	default:
		return 0;
	}
}

const char *
verbs_address_text(const struct sockaddr *addr, char *text, size_t size)
{
	char ip[RDMA_ADDRESS_LEN];
	uint16_t port = 0;

	rdma_address_text(addr, ip);
	if (addr->sa_family == AF_INET)
		port = ntohs(((const struct sockaddr_in *)addr)->sin_port);
	else if (addr->sa_family == AF_INET6)
		port = ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
	if (port)
		snprintf(text, size, "%s port %u", ip, port);
	else
		snprintf(text, size, "%s", ip);
	return text;
}

struct verbs_ah *
verbs_ah_make(struct ibv_pd *pd, struct ibv_ah_attr *attr)
{
	struct verbs_ah *ah = calloc(1, sizeof(*ah));
	int error;

	if (!ah)
		return verbs_refuse(ENOMEM);
	/* The kernel resolves the MAC address in this call, and the call waits for it. */
	ah->ah = ibv_create_ah(pd, attr);
	if (!ah->ah) {
		error = errno;
		free(ah);
		return verbs_refuse(error == ENOMEM ? ENOMEM : EHOSTUNREACH);
	}
	return ah;
}

void
verbs_ah_free(struct verbs_ah *ah)
{
	ibv_destroy_ah(ah->ah);
	free(ah);
}

struct rdma_ah *
verbs_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit)
{
	struct verbs_dev *dev = VERBS_DEV(pd->dev);
	struct ibv_ah_attr attr = {
		.is_global = 1,
		.port_num = dev->port,
		.grh.sgid_index = dev->gid_index,
		.grh.hop_limit = hop_limit,
		.grh.traffic_class = traffic_class,
	};
	struct verbs_ah *ah;
	char text[64];

	verbs_address_text(dst, text, sizeof(text));
	if (!verbs_gid_of(dst, &attr.grh.dgid)) {
		RDMA_LOG(ERR, "device %s: address handle for %s, expected IPv4 or IPv6",
			pd->dev->name, text);
		return verbs_refuse(EHOSTUNREACH);
	}
	ah = verbs_ah_make(VERBS_PD(pd)->pd, &attr);
	if (!ah) {
		RDMA_LOG(ERR, "device %s: address handle for %s: %s", pd->dev->name, text,
			strerror(rte_errno));
		return NULL;
	}
	return &ah->base;
}

/* Each post copies the address handle, so outstanding sends do not refer to it. */
int
verbs_ah_destroy(struct rdma_ah *ah)
{
	verbs_ah_free(VERBS_AH(ah));
	return 0;
}
