/* SPDX-License-Identifier: BSD-3-Clause */
/* UD address handles. The control lcore owns them; poll groups write only the reference counts of
 * posted sends. */
#include <errno.h>
#include <stdlib.h>

#include <rte_errno.h>

#include "cm/conn.h"
#include "port/ctl_plane.h"

struct roce_ah *
roce_ah_new(struct rdma_pd *pd, const struct roce_gid *dst, const struct rte_ether_addr *mac,
	uint8_t traffic_class, uint8_t hop_limit)
{
	struct roce_dev *dev = roce_dev(pd->dev);
	const struct roce_path_attr attr = {
		.src_mac = dev->mac,
		.dst_mac = *mac,
		.src = *roce_dev_source(dev, dst),
		.dst = *dst,
		.vlan_tci = dev->vlan_tci,
		.traffic_class = traffic_class,
		.hop_limit = hop_limit,
	};
	struct roce_ah *ah = calloc(1, sizeof(*ah));

	if (!ah)
		return NULL;
	ah->base.pd = pd;
	roce_path_make(&ah->paths[0], &attr);
	TAILQ_INSERT_TAIL(&dev->control->ahs, ah, next);
	return ah;
}

bool
roce_ah_free(struct roce_control *c, struct roce_ah *ah)
{
	uint16_t i;

	if (!ah)
		return true;
	for (i = 0; i < c->dev->nb_poll_groups; i++)
		if (__atomic_load_n(&ah->refs[i], __ATOMIC_ACQUIRE) != 0)
			return false;
	TAILQ_REMOVE(&c->ahs, ah, next);
	free(ah);
	return true;
}

struct rdma_ah *
roce_ah_create(
	struct rdma_pd *pd, const struct sockaddr *dst, uint8_t traffic_class, uint8_t hop_limit)
{
	struct roce_dev *dev = roce_dev(pd->dev);
	struct rte_ether_addr mac;
	char text[INET6_ADDRSTRLEN];
	struct roce_gid gid;
	struct roce_ah *ah;
	int ret = roce_gid_from_sockaddr(&gid, dst);

	if (ret == 0)
		ret = roce_control_resolve(dev, &gid, &mac);
	if (ret < 0) {
		if (ret == -EHOSTUNREACH)
			RDMA_LOG(ERR, "device %s: no route to %s", dev->base.name,
				roce_gid_text(&gid, text, sizeof(text)));
		rte_errno = ret == -EAGAIN ? EAGAIN : EHOSTUNREACH;
		return NULL;
	}
	ah = roce_ah_new(pd, &gid, &mac, traffic_class, hop_limit);
	if (!ah) {
		rte_errno = ENOMEM;
		return NULL;
	}
	return &ah->base;
}

int
roce_ah_destroy(struct rdma_ah *base)
{
	struct roce_control *c = roce_dev(base->pd->dev)->control;

	return roce_ah_free(c, (struct roce_ah *)base) ? 0 : -EBUSY;
}
