/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "port/ctl_plane.h"
#include "mcast/filter.h"
#include "port/port.h"

/**
 * Insert an address in order. Duplicates are dropped: mlx5 refuses them.
 * @return new length; -ENOSPC
 */
static int
list_add(struct rte_ether_addr *list, int n, const struct rte_ether_addr *mac)
{
	int at = n, order = 1;

	while (at > 0 && (order = memcmp(&list[at - 1], mac, sizeof(*mac))) > 0)
		at--;
	if (at > 0 && order == 0)
		return n;
	if (n == ROCE_FILTER_MAX)
		return -ENOSPC;
	memmove(&list[at + 1], &list[at], (n - at) * sizeof(*mac));
	list[at] = *mac;
	return n + 1;
}

/** Collect the addresses that all devices on a port need. @return length of the list; -ENOSPC */
static int
list_make(const struct roce_port *port, struct rte_ether_addr *list)
{
	struct rte_ether_addr macs[ROCE_MEMBERSHIPS_MAX];
	const struct roce_dev *dev = NULL;
	unsigned int i, nb;
	int n = 0;

	while ((dev = roce_port_next(port, dev))) {
		nb = dev->control ? roce_memberships_macs(&dev->control->memberships, macs) : 0;
		for (i = 0; i < nb && n >= 0; i++)
			n = list_add(list, n, &macs[i]);
	}
	return n;
}

/**
 * Receive all groups.
 * @return 0; -ENOTSUP: the port supports neither mode, like net_ring, which does not filter
 */
static int
take_all(struct roce_filter *f, uint16_t port)
{
	int was = rte_eth_allmulticast_get(port);

	if (rte_eth_allmulticast_enable(port) == 0) {
		f->undo = was == 0 ? rte_eth_allmulticast_disable : f->undo;
		return 0;
	}
	was = rte_eth_promiscuous_get(port);
	if (rte_eth_promiscuous_enable(port) < 0)
		return -ENOTSUP;
	f->undo = was == 0 ? rte_eth_promiscuous_disable : f->undo;
	return 0;
}

static void
refused(struct roce_control *c, int n, int error)
{
	struct roce_port *port = c->dev->shared;
	struct roce_filter *f = &port->filter;
	const bool before = f->refused;

	f->refused = true;
	roce_control_count(c, ROCE_GROUP_REFUSED);
	if (take_all(f, port->id) < 0)
		RDMA_LOG(DEBUG, "port %u cannot filter multicast groups", port->id);
	else if (!before && error != -ENOTSUP)
		RDMA_LOG(NOTICE,
			"port %u receives all multicast groups: it refused a list of %s%d: %s",
			port->id, n < 0 ? "more than " : "", n < 0 ? ROCE_FILTER_MAX : n,
			rte_strerror(-error));
}

void
roce_filter_set(struct roce_control *c)
{
	struct rte_ether_addr list[ROCE_FILTER_MAX];
	struct roce_port *port = c->dev->shared;
	struct roce_filter *f = &port->filter;
	int n, ret;

	/* the port id may have been reused for another port */
	if (!roce_dev_has_port(c->dev))
		return;
	n = list_make(port, list);
	/* Unchanged list: another device already has these groups. mlx5 would remove and recreate
	 * all its flows. */
	if (n == f->nb_list && (n < 0 || memcmp(list, f->list, n * sizeof(list[0])) == 0))
		return;
	ret = n < 0 ? n : rte_eth_dev_set_mc_addr_list(port->id, list, n);
	f->nb_list = n;
	memcpy(f->list, list, RTE_MAX(n, 0) * sizeof(list[0]));
	if (ret < 0 && n != 0) {
		refused(c, n, ret);
		return;
	}
	f->refused = false;
	if (f->undo)
		f->undo(port->id);
	f->undo = NULL;
}
