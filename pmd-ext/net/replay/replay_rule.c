/* SPDX-License-Identifier: BSD-3-Clause */
/* Parses and matches one rule: ETH / IPV4 / UDP -> QUEUE, RSS or DROP, and COUNT. */
#include <errno.h>
#include <string.h>

#include <rte_flow_driver.h>
#include <rte_malloc.h>
#include <rte_thash.h>

#include "replay.h"

/* Key of Microsoft's RSS specification, the default of most drivers. */
static const uint8_t default_key[REPLAY_RSS_KEY] = {0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2,
	0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30,
	0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac,
	0x01, 0xfa};

#define RSS_TYPES (RTE_ETH_RSS_IP | RTE_ETH_RSS_UDP)

/* The RSS types for IPv4 addresses. */
#define RSS_IPV4 (RTE_ETH_RSS_IPV4 | RTE_ETH_RSS_FRAG_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_OTHER)

static bool
is_zero(const void *bytes, size_t len)
{
	const uint8_t *byte = bytes;

	for (size_t i = 0; i < len; i++)
		if (byte[i] != 0)
			return false;
	return true;
}

/* Return true if two values are equal in the bits of the mask. */
static bool
is_same(const void *one, const void *two, const void *mask, size_t len)
{
	const uint8_t *a = one, *b = two, *bits = mask;

	for (size_t i = 0; i < len; i++)
		if (((a[i] ^ b[i]) & bits[i]) != 0)
			return false;
	return true;
}

bool
replay_rule_matches(const struct rte_flow *flow, const struct replay_packet *packet)
{
	if ((packet->ptype & RTE_PTYPE_L2_MASK) != RTE_PTYPE_L2_ETHER)
		return false; /* shorter than an Ethernet header */
	if (flow->ipv4 && !RTE_ETH_IS_IPV4_HDR(packet->ptype))
		return false;
	if (flow->udp && (packet->ptype & RTE_PTYPE_L4_MASK) != RTE_PTYPE_L4_UDP)
		return false;
	if (((packet->src_addr ^ flow->src_addr) & flow->src_addr_mask) != 0 ||
		((packet->dst_addr ^ flow->dst_addr) & flow->dst_addr_mask) != 0 ||
		((packet->src_port ^ flow->src_port) & flow->src_port_mask) != 0 ||
		((packet->dst_port ^ flow->dst_port) & flow->dst_port_mask) != 0)
		return false;
	/* checked last, because only this check reads the frame */
	return is_zero(&flow->ether_mask, sizeof(flow->ether_mask)) ||
		is_same(packet->data, &flow->ether, &flow->ether_mask, sizeof(flow->ether));
}

/* A packet without an IPv4 header, or of none of the RSS types, has hash 0 and goes to the first
 * queue. */
static uint32_t
rss_hash(const struct rte_flow *flow, const struct replay_packet *packet)
{
	const bool udp = (packet->ptype & RTE_PTYPE_L4_MASK) == RTE_PTYPE_L4_UDP;
	const bool ports = udp && (flow->rss_types & RTE_ETH_RSS_NONFRAG_IPV4_UDP) != 0;
	struct rte_ipv4_tuple tuple = {
		.src_addr = rte_be_to_cpu_32(packet->src_addr),
		.dst_addr = rte_be_to_cpu_32(packet->dst_addr),
		.sport = rte_be_to_cpu_16(packet->src_port),
		.dport = rte_be_to_cpu_16(packet->dst_port),
	};

	if (!RTE_ETH_IS_IPV4_HDR(packet->ptype))
		return 0;
	if (!ports && (flow->rss_types & RSS_IPV4) == 0)
		return 0;
	return rte_softrss((uint32_t *)&tuple, ports ? RTE_THASH_V4_L4_LEN : RTE_THASH_V4_L3_LEN,
		flow->rss_key);
}

uint16_t
replay_rule_queue(const struct rte_flow *flow, const struct replay_packet *packet)
{
	if (flow->nb_queues == 0)
		return REPLAY_NO_QUEUE;
	if (flow->nb_queues == 1)
		return flow->queues[0];
	return flow->queues[rss_hash(flow, packet) % flow->nb_queues];
}

/*
 * Checks common to the items of all layers, with `len` bytes. An item without spec matches any
 * packet of its layer. A `last` of 0, or equal to spec in the bits of the mask, is not a range.
 */
static int
check_item(const struct rte_flow_item *item, const void *mask, size_t len,
	struct rte_flow_error *error)
{
	if (item->spec == NULL && (item->mask != NULL || item->last != NULL))
		return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_SPEC, item,
			"a mask or a range (last) requires a spec");
	if (item->last != NULL && !is_zero(item->last, len) &&
		!is_same(item->last, item->spec, mask, len))
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_LAST, item,
			"ranges (last) are not supported");
	return 0;
}

static int
parse_eth(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_item_eth *mask =
		item->mask == NULL ? &rte_flow_item_eth_mask : item->mask;
	const struct rte_flow_item_eth *spec = item->spec;
	int ret;

	ret = check_item(item, mask, sizeof(*mask), error);
	if (ret < 0 || spec == NULL)
		return ret;
	if (mask->has_vlan != 0)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item,
			"ETH: matching of has_vlan is not supported");
	flow->ether = spec->hdr;
	flow->ether_mask = mask->hdr;
	return 0;
}

static int
parse_ipv4(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_item_ipv4 *mask =
		item->mask == NULL ? &rte_flow_item_ipv4_mask : item->mask;
	const struct rte_flow_item_ipv4 *spec = item->spec;
	struct rte_ipv4_hdr other;
	int ret;

	flow->ipv4 = true;
	ret = check_item(item, mask, sizeof(*mask), error);
	if (ret < 0 || spec == NULL)
		return ret;
	other = mask->hdr;
	other.src_addr = other.dst_addr = 0;
	if (!is_zero(&other, sizeof(other)))
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item,
			"IPV4: only source and destination address can be matched");
	flow->src_addr = spec->hdr.src_addr;
	flow->src_addr_mask = mask->hdr.src_addr;
	flow->dst_addr = spec->hdr.dst_addr;
	flow->dst_addr_mask = mask->hdr.dst_addr;
	return 0;
}

static int
parse_udp(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_item_udp *mask =
		item->mask == NULL ? &rte_flow_item_udp_mask : item->mask;
	const struct rte_flow_item_udp *spec = item->spec;
	struct rte_udp_hdr other;
	int ret;

	flow->ipv4 = flow->udp = true;
	ret = check_item(item, mask, sizeof(*mask), error);
	if (ret < 0 || spec == NULL)
		return ret;
	other = mask->hdr;
	other.src_port = other.dst_port = 0;
	if (!is_zero(&other, sizeof(other)))
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item,
			"UDP: only source and destination port can be matched");
	flow->src_port = spec->hdr.src_port;
	flow->src_port_mask = mask->hdr.src_port;
	flow->dst_port = spec->hdr.dst_port;
	flow->dst_port_mask = mask->hdr.dst_port;
	return 0;
}

static int
parse_pattern(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	enum {
		NOTHING,
		ETH,
		IPV4,
		UDP
	} layer = NOTHING;
	int ret = 0;

	if (item == NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_NUM, NULL, "expected a pattern");
	for (; ret == 0 && item->type != RTE_FLOW_ITEM_TYPE_END; item++) {
		if (item->type == RTE_FLOW_ITEM_TYPE_VOID)
			continue;
		if (item->type == RTE_FLOW_ITEM_TYPE_ETH && layer < ETH) {
			layer = ETH;
			ret = parse_eth(item, flow, error);
		} else if (item->type == RTE_FLOW_ITEM_TYPE_IPV4 && layer < IPV4) {
			layer = IPV4;
			ret = parse_ipv4(item, flow, error);
		} else if (item->type == RTE_FLOW_ITEM_TYPE_UDP && layer < UDP) {
			layer = UDP;
			ret = parse_udp(item, flow, error);
		} else {
			ret = rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM, item,
				"expected items ETH, IPV4 and UDP, each at most once and in this "
				"order");
		}
	}
	return ret;
}

static int
take_queues(const struct rte_eth_dev *dev, const struct rte_flow_action *action,
	const uint16_t *queues, uint32_t n, struct rte_flow *flow, struct rte_flow_error *error)
{
	for (uint32_t i = 0; i < n; i++)
		if (queues[i] >= dev->data->nb_rx_queues)
			return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF,
				action, "QUEUE, RSS: expected indexes of configured Rx queues");
	flow->queues = rte_malloc("replay_queues", n * sizeof(queues[0]), 0);
	if (flow->queues == NULL)
		return rte_flow_error_set(error, ENOMEM, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
			"cannot allocate the rule's queues in EAL memory");
	memcpy(flow->queues, queues, n * sizeof(queues[0]));
	flow->nb_queues = (uint16_t)n;
	return 0;
}

static int
parse_rss(const struct rte_eth_dev *dev, const struct rte_flow_action *action,
	struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_action_rss *rss = action->conf;

	if (rss == NULL || rss->queue_num == 0 || rss->queue_num > RTE_MAX_QUEUES_PER_PORT ||
		rss->queue == NULL)
		return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected at least one queue");
	if (rss->func != RTE_ETH_HASH_FUNCTION_DEFAULT &&
		rss->func != RTE_ETH_HASH_FUNCTION_TOEPLITZ)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected the hash function Toeplitz");
	if (rss->level > 1)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected level 0 or 1 (outermost headers)");
	if (rss->key_len != 0 && (rss->key_len != REPLAY_RSS_KEY || rss->key == NULL))
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected a key of 40 bytes");
	if ((rss->types & ~(uint64_t)RSS_TYPES) != 0)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected types of IP and UDP only");
	if (rss->types != 0 && (rss->types & (RSS_IPV4 | RTE_ETH_RSS_NONFRAG_IPV4_UDP)) == 0)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
			"RSS: expected a type of IPv4, no other is hashed");
	memcpy(flow->rss_key, rss->key_len == 0 ? default_key : rss->key, REPLAY_RSS_KEY);
	flow->rss_types = rss->types == 0 ? RSS_TYPES : rss->types;
	return take_queues(dev, action, rss->queue, rss->queue_num, flow, error);
}

static int
parse_actions(const struct rte_eth_dev *dev, const struct rte_flow_action *action,
	struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_action_queue *queue;
	bool outcome = false;
	int ret = 0;

	if (action == NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_NUM, NULL, "expected actions");
	for (; ret == 0 && action->type != RTE_FLOW_ACTION_TYPE_END; action++) {
		const bool another = action->type == RTE_FLOW_ACTION_TYPE_QUEUE ||
			action->type == RTE_FLOW_ACTION_TYPE_RSS ||
			action->type == RTE_FLOW_ACTION_TYPE_DROP;

		if (another && outcome)
			return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION, action,
				"expected only one of QUEUE, RSS and DROP");
		outcome |= another;
		switch (action->type) {
		case RTE_FLOW_ACTION_TYPE_VOID:
		case RTE_FLOW_ACTION_TYPE_DROP:
			break;
		case RTE_FLOW_ACTION_TYPE_QUEUE:
			queue = action->conf;
			if (queue == NULL)
				return rte_flow_error_set(error, EINVAL,
					RTE_FLOW_ERROR_TYPE_ACTION_CONF, action,
					"QUEUE: expected an index");
			ret = take_queues(dev, action, &queue->index, 1, flow, error);
			break;
		case RTE_FLOW_ACTION_TYPE_RSS:
			ret = parse_rss(dev, action, flow, error);
			break;
		case RTE_FLOW_ACTION_TYPE_COUNT:
			flow->counts = true;
			break;
		default:
			return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION,
				action, "expected actions QUEUE, RSS, DROP and COUNT only");
		}
	}
	if (ret == 0 && !outcome)
		ret = rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_NUM, NULL,
			"expected QUEUE, RSS or DROP");
	return ret;
}

int
replay_rule_parse(const struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
	struct rte_flow *flow, struct rte_flow_error *error)
{
	int ret;

	*flow = (struct rte_flow){0};
	if (attr == NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ATTR, NULL, "expected attributes");
	if (attr->group != 0)
		return rte_flow_error_set(
			error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_GROUP, attr, "expected group 0");
	if (attr->egress || attr->transfer || !attr->ingress)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_INGRESS, attr,
			"only ingress rules are supported");
	flow->priority = attr->priority;
	ret = parse_pattern(pattern, flow, error);
	if (ret == 0)
		ret = parse_actions(dev, actions, flow, error);
	if (ret < 0) {
		rte_free(flow->queues);
		flow->queues = NULL;
	}
	return ret;
}
