/* SPDX-License-Identifier: BSD-3-Clause */
#include <errno.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include <ethdev_driver.h>

#include "net/nd.h"
#include "port/port.h"
#include "port/flow_rules.h"

/** Items of one rule, with their storage. */
struct pattern {
	struct rte_flow_item item[5]; /* Ethernet, VLAN, L3, UDP, end */
	unsigned int nb;
	struct rte_flow_item_eth eth, eth_mask;
	struct rte_flow_item_vlan vlan, vlan_mask;
};

static void
pattern_add(struct pattern *p, enum rte_flow_item_type type, const void *spec, const void *mask)
{
	p->item[p->nb++] = (struct rte_flow_item){.type = type, .spec = spec, .mask = mask};
}

/** Match Ethernet, and the tag of the device's VLAN. */
static void
pattern_begin(struct pattern *p, const struct roce_dev *dev, uint16_t ether_type)
{
	*p = (struct pattern){0};
	if (dev->vlan_tci) {
		p->vlan.hdr.vlan_tci = rte_cpu_to_be_16(dev->vlan_tci & ROCE_VLAN_ID);
		p->vlan_mask.hdr.vlan_tci = RTE_BE16(ROCE_VLAN_ID);
		p->vlan.hdr.eth_proto = rte_cpu_to_be_16(ether_type);
		p->vlan_mask.hdr.eth_proto = RTE_BE16(0xffff);
		pattern_add(p, RTE_FLOW_ITEM_TYPE_ETH, NULL, NULL);
		pattern_add(p, RTE_FLOW_ITEM_TYPE_VLAN, &p->vlan, &p->vlan_mask);
	} else {
		p->eth.hdr.ether_type = rte_cpu_to_be_16(ether_type);
		p->eth_mask.hdr.ether_type = RTE_BE16(0xffff);
		pattern_add(p, RTE_FLOW_ITEM_TYPE_ETH, &p->eth, &p->eth_mask);
	}
}

/** Create a rule. @return 0; the port's error */
static int
rule_create(struct roce_dev *dev, const struct pattern *p, const struct rte_flow_action *what)
{
	const struct rte_flow_action actions[] = {*what, {.type = RTE_FLOW_ACTION_TYPE_END}};
	const struct rte_flow_attr attr = {.ingress = 1};
	struct rte_flow_error error = {0};
	struct rte_flow *rule;
	int ret;

	ret = rte_flow_validate(dev->port, &attr, p->item, actions, &error);
	if (ret < 0)
		return ret;
	rule = rte_flow_create(dev->port, &attr, p->item, actions, &error);
	if (!rule)
		return -rte_errno;
	dev->rules[dev->nb_rules++] = rule;
	return 0;
}

/** Steer to the device's first queue. */
static int
steer_to_first_queue(struct roce_dev *dev, struct pattern *p)
{
	const struct rte_flow_action_queue queue = {.index = dev->queue};
	const struct rte_flow_action to = {.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &queue};

	pattern_add(p, RTE_FLOW_ITEM_TYPE_END, NULL, NULL);
	return rule_create(dev, p, &to);
}

/**
 * Steer RoCEv2 to all polled queues. If one rule cannot use them all, steer to poll group 0, which
 * forwards.
 */
static int
steer_roce(struct roce_dev *dev, struct pattern *p, uint64_t rss_type)
{
	const struct rte_flow_item_udp udp = {.hdr.dst_port = RTE_BE16(ROCE_UDP_PORT)},
				       mask = {.hdr.dst_port = RTE_BE16(0xffff)};
	uint16_t queues[ROCE_POLL_GROUPS_MAX], i;
	const struct rte_flow_action_rss rss = {
		.types = rss_type, .queue_num = dev->nb_poll_groups, .queue = queues};
	const struct rte_flow_action to = {.type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &rss};

	pattern_add(p, RTE_FLOW_ITEM_TYPE_UDP, &udp, &mask);
	for (i = 0; i < dev->nb_poll_groups; i++)
		queues[i] = dev->queue + i;
	if (dev->nb_poll_groups > 1 && !dev->handover && rule_create(dev, p, &to) == 0)
		return 0;
	return steer_to_first_queue(dev, p);
}

static int
steer_v4(struct roce_dev *dev)
{
	struct rte_flow_item_ipv4 ip = {.hdr.dst_addr = roce_gid_to_v4(&dev->ip4)},
				  mask = {.hdr.dst_addr = RTE_BE32(UINT32_MAX)};
	const struct rte_flow_item_arp_eth_ipv4 arp = {.tpa = ip.hdr.dst_addr},
						arp_mask = {.tpa = RTE_BE32(UINT32_MAX)};
	struct pattern p;
	int ret;

	pattern_begin(&p, dev, RTE_ETHER_TYPE_IPV4);
	pattern_add(&p, RTE_FLOW_ITEM_TYPE_IPV4, &ip, &mask);
	ret = steer_roce(dev, &p, RTE_ETH_RSS_NONFRAG_IPV4_UDP);
	if (ret < 0)
		return ret;
	ip.hdr.next_proto_id = IPPROTO_ICMP;
	mask.hdr.next_proto_id = UINT8_MAX;
	pattern_begin(&p, dev, RTE_ETHER_TYPE_IPV4);
	pattern_add(&p, RTE_FLOW_ITEM_TYPE_IPV4, &ip, &mask);
	steer_to_first_queue(dev, &p);
	/* requests and replies both contain the target address */
	pattern_begin(&p, dev, RTE_ETHER_TYPE_ARP);
	pattern_add(&p, RTE_FLOW_ITEM_TYPE_ARP_ETH_IPV4, &arp, &arp_mask);
	steer_to_first_queue(dev, &p);
	return 0;
}

static int
steer_v6(struct roce_dev *dev)
{
	const struct roce_gid to[] = {dev->ip6, roce_nd_group(&dev->ip6)};
	struct rte_flow_item_ipv6 ip = {0}, mask = {0};
	struct pattern p;
	unsigned int i;
	int ret;

	memcpy(&ip.hdr.dst_addr, &dev->ip6, sizeof(dev->ip6));
	memset(&mask.hdr.dst_addr, 0xff, sizeof(dev->ip6));
	pattern_begin(&p, dev, RTE_ETHER_TYPE_IPV6);
	pattern_add(&p, RTE_FLOW_ITEM_TYPE_IPV6, &ip, &mask);
	ret = steer_roce(dev, &p, RTE_ETH_RSS_NONFRAG_IPV6_UDP);
	if (ret < 0)
		return ret;
	ip.hdr.proto = IPPROTO_ICMPV6;
	mask.hdr.proto = UINT8_MAX;
	for (i = 0; i < RTE_DIM(to); i++) {
		memcpy(&ip.hdr.dst_addr, &to[i], sizeof(to[i]));
		pattern_begin(&p, dev, RTE_ETHER_TYPE_IPV6);
		pattern_add(&p, RTE_FLOW_ITEM_TYPE_IPV6, &ip, &mask);
		steer_to_first_queue(dev, &p);
	}
	return 0;
}

void
roce_flow_rules_open(struct roce_dev *dev)
{
	int ret = 0;

	if (dev->no_steer || dev->no_poll ||
		rte_eth_devices[dev->port].data->nb_rx_queues <= dev->nb_poll_groups)
		return;
	if (dev->has_ip4)
		ret = steer_v4(dev);
	if (ret == 0 && dev->has_ip6)
		ret = steer_v6(dev);
	/* without the rules, other devices or other lcores that poll the port must forward the
	 * frames */
	if (ret < 0)
		RDMA_LOG(NOTICE,
			"port %u: no flow rule steers RoCEv2 to queue %u: %s; relying on other "
			"devices of the port to forward it. Packets on queues that no device "
			"polls are lost",
			dev->port, dev->queue, rte_strerror(-ret));
}

void
roce_flow_rules_close(struct roce_dev *dev)
{
	struct rte_flow_error error = {0};
	int ret;

	while (dev->nb_rules > 0) {
		ret = 0;
		dev->nb_rules--;
		/* the port id may have been reused for another port */
		if (roce_dev_has_port(dev))
			ret = rte_flow_destroy(dev->port, dev->rules[dev->nb_rules], &error);
		if (ret < 0)
			RDMA_LOG(WARNING, "port %u: cannot remove a flow rule of queue %u: %s",
				dev->port, dev->queue, rte_strerror(-ret));
	}
}
