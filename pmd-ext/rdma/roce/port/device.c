/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>
#include <sys/random.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "engine/cq.h"
#include "port/device.h"
#include "engine/engine.h"
#include "port/port.h"
#include "engine/qp.h"
#include "port/port_sharing.h"
#include "port/flow_rules.h"

uint32_t
roce_random(unsigned int bits)
{
	uint32_t value;

	while (getrandom(&value, sizeof(value), 0) != sizeof(value))
		;
	return value >> (32 - bits);
}

/** The tables have at least twice the required number of entries, so that a search at random
 * positions finds a free one quickly. */
static int
tables_make(struct roce_dev *dev)
{
	dev->qp_mask = rte_align32pow2(dev->max_qps) - 1;
	dev->mr_mask = rte_align32pow2(dev->max_mrs) - 1;
	dev->qps = rte_zmalloc_socket("roce_qps", (dev->qp_mask + 1) * sizeof(dev->qps[0]),
		RTE_CACHE_LINE_SIZE, dev->numa_node);
	dev->mrs = rte_zmalloc_socket("roce_mrs", (dev->mr_mask + 1) * sizeof(dev->mrs[0]),
		RTE_CACHE_LINE_SIZE, dev->numa_node);
	return dev->qps && dev->mrs ? 0 : -ENOMEM;
}

static void
dev_free(struct roce_dev *dev)
{
	uint16_t i;

	roce_flow_rules_close(dev);
	roce_sibling_leave(dev);
	roce_control_close(dev);
	for (i = 0; i < dev->nb_poll_groups; i++)
		if (dev->poll_groups[i])
			roce_poll_group_finish(dev->poll_groups[i]);
	/* stopping the port releases the frames of the poll groups */
	roce_port_stop(dev);
	for (i = 0; i < dev->nb_poll_groups; i++)
		if (dev->poll_groups[i])
			roce_poll_group_close(dev->poll_groups[i]);
	roce_sibling_close(dev);
	roce_port_close(dev);
	rte_free(dev->qps);
	rte_free(dev->mrs);
	rte_free(dev);
}

struct rdma_dev *
roce_dev_open(const char *args)
{
	struct roce_dev *dev = rte_zmalloc("roce_dev", sizeof(*dev), RTE_CACHE_LINE_SIZE);
	static uint32_t opened;
	uint16_t i;
	int ret;

	if (!dev) {
		rte_errno = ENOMEM;
		return NULL;
	}
	/* Port and queue ids do not identify a device: a port may be removed while its device is
	 * open, and its id reused for another port. */
	dev->number = opened++;
	ret = roce_args_parse(dev, args);
	if (ret == 0)
		ret = roce_port_open(dev);
	if (ret < 0) {
		rte_free(dev);
		rte_errno = -ret;
		return NULL;
	}
	ret = tables_make(dev);
	for (i = 0; ret == 0 && i < dev->nb_poll_groups; i++)
		ret = roce_poll_group_open(dev, i);
	if (ret == 0)
		ret = roce_sibling_open(dev);
	if (ret == 0)
		ret = roce_control_open(dev);
	if (ret < 0) {
		RDMA_LOG(ERR,
			"roce:%s: cannot allocate %u poll groups, %u queue pairs and %u regions",
			args, dev->nb_poll_groups, dev->max_qps, dev->max_mrs);
		dev_free(dev);
		rte_errno = -ret;
		return NULL;
	}
	roce_sibling_join(dev);
	roce_flow_rules_open(dev);
	return &dev->base;
}

int
roce_dev_close(struct rdma_dev *base)
{
	dev_free(roce_dev(base));
	return 0;
}

int
roce_dev_info_get(const struct rdma_dev *base, struct rdma_dev_info *info)
{
	const struct roce_dev *dev = (const struct roce_dev *)base;
	struct rte_eth_link link;

	roce_gid_to_sockaddr(dev->has_ip4 ? &dev->ip4 : &dev->ip6, 0, &info->addr);
	if (roce_dev_has_port(dev) && rte_eth_link_get_nowait(dev->port, &link) == 0 &&
		link.link_status && link.link_speed != RTE_ETH_SPEED_NUM_UNKNOWN)
		info->link_mbps = link.link_speed;
	info->max_qp = dev->max_qps;
	info->max_wr = ROCE_WR_MAX;
	info->max_cqe = ROCE_CQE_MAX;
	info->max_mr = dev->max_mrs;
	info->max_mr_bytes = UINT64_MAX;
	info->max_msg_bytes = ROCE_MESSAGE_MAX;
	info->max_sge = dev->max_sge;
	info->max_inline = ROCE_COPY_MAX;
	info->max_rd_atom = ROCE_RD_ATOM_MAX;
	info->mtu = dev->mtu;
	info->nb_poll_groups = dev->nb_poll_groups;
	info->numa_node = dev->numa_node;
	return 0;
}

struct rdma_pd *
roce_pd_alloc(struct rdma_dev *dev)
{
	struct rdma_pd *pd = rte_zmalloc("roce_pd", sizeof(*pd), 0);

	if (!pd)
		rte_errno = ENOMEM;
	return pd;
}

int
roce_pd_free(struct rdma_pd *pd)
{
	rte_free(pd);
	return 0;
}
