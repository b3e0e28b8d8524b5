/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * rte_flow: ETH / IPV4 / UDP -> QUEUE.
 *
 * The capture is known, so rules are tried when they change and not when packets pass: each packet
 * has the number of its queue beside it. Rules are tried by priority, then by age.
 */
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_flow_driver.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "replay.h"

static bool
is_zero(const void *bytes, size_t len)
{
	const uint8_t *byte = bytes;

	for (size_t i = 0; i < len; i++)
		if (byte[i] != 0)
			return false;
	return true;
}

static bool
ether_matches(const struct rte_flow *flow, const struct replay_packet *packet)
{
	const uint8_t *spec = (const void *)&flow->ether, *mask = (const void *)&flow->ether_mask;

	for (size_t i = 0; i < sizeof(flow->ether); i++)
		if (((packet->data[i] ^ spec[i]) & mask[i]) != 0)
			return false;
	return true;
}

static bool
flow_matches(const struct rte_flow *flow, const struct replay_packet *packet)
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
	/* last, because it alone reads the frame */
	return is_zero(&flow->ether_mask, sizeof(flow->ether_mask)) || ether_matches(flow, packet);
}

static uint16_t
queue_by_rules(const struct replay_dev *dev, const struct replay_packet *packet)
{
	const struct rte_flow *flow;

	TAILQ_FOREACH(flow, &dev->flows, entry)
		if (flow_matches(flow, packet))
			return flow->queue;
	return 0;
}

static void
move_packet(struct replay_dev *dev, uint32_t packet, uint16_t queue)
{
	uint16_t from = dev->queue_of[packet];

	if (from == queue)
		return;
	dev->queue_of[packet] = queue;
	dev->packets_of[from]--;
	dev->packets_of[queue]++;
}

/*
 * A packet belongs to one queue at a time: only that queue raises its reference count, which is why
 * it may do so without an atomic operation. So queues that are polled stand still while packets
 * change hands. The polling lcore writes in_burst, then reads paused; this side writes paused, then
 * reads in_burst. membarrier() makes that safe without a fence in every burst.
 */
static int
pause_queues(struct rte_eth_dev *dev, struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;

	if (!dev->data->dev_started)
		return 0;
	__atomic_store_n(&replay->paused, true, __ATOMIC_SEQ_CST);
	if (!replay->can_pause ||
		syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
		__atomic_store_n(&replay->paused, false, __ATOMIC_RELEASE);
		return rte_flow_error_set(error, EBUSY, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
			"without membarrier(2) rules change only while the port is stopped");
	}
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		while (__atomic_load_n(&rxq->in_burst, __ATOMIC_ACQUIRE))
			rte_pause();
	}
	return 0;
}

static void
resume_queues(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	__atomic_store_n(&replay->paused, false, __ATOMIC_RELEASE);
}

/* A rule has come or gone: only packets that it matches can change queue. */
static void
steer(struct replay_dev *dev, const struct rte_flow *changed)
{
	for (uint32_t i = 0; i < dev->capture->nb_packets; i++)
		if (flow_matches(changed, &dev->capture->packets[i]))
			move_packet(dev, i, queue_by_rules(dev, &dev->capture->packets[i]));
}

/* What holds for the items of every layer. An item without spec matches any packet of its layer. */
static int
check_item(const struct rte_flow_item *item, struct rte_flow_error *error)
{
	if (item->last != NULL)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_LAST, item,
			"ranges (last) are not supported");
	if (item->spec == NULL && item->mask != NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item, "a mask needs a spec");
	return 0;
}

static int
parse_eth(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_item_eth *spec = item->spec, *mask = item->mask;
	int ret;

	ret = check_item(item, error);
	if (ret < 0 || spec == NULL)
		return ret;
	if (mask == NULL)
		mask = &rte_flow_item_eth_mask;
	if (mask->has_vlan != 0)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ITEM_MASK, item,
			"ETH: has_vlan cannot be matched");
	flow->ether = spec->hdr;
	flow->ether_mask = mask->hdr;
	return 0;
}

static int
parse_ipv4(const struct rte_flow_item *item, struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_item_ipv4 *spec = item->spec, *mask = item->mask;
	struct rte_ipv4_hdr other;
	int ret;

	flow->ipv4 = true;
	ret = check_item(item, error);
	if (ret < 0 || spec == NULL)
		return ret;
	if (mask == NULL)
		mask = &rte_flow_item_ipv4_mask;
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
	const struct rte_flow_item_udp *spec = item->spec, *mask = item->mask;
	struct rte_udp_hdr other;
	int ret;

	flow->ipv4 = flow->udp = true;
	ret = check_item(item, error);
	if (ret < 0 || spec == NULL)
		return ret;
	if (mask == NULL)
		mask = &rte_flow_item_udp_mask;
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
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ITEM_NUM, NULL, "a pattern is wanted");
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
				"items are ETH, IPV4 and UDP, each once and in this order");
		}
	}
	return ret;
}

static int
parse_actions(const struct rte_eth_dev *dev, const struct rte_flow_action *action,
	struct rte_flow *flow, struct rte_flow_error *error)
{
	const struct rte_flow_action_queue *queue = NULL;

	if (action == NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_NUM, NULL, "actions are wanted");
	for (; action->type != RTE_FLOW_ACTION_TYPE_END; action++) {
		if (action->type == RTE_FLOW_ACTION_TYPE_VOID)
			continue;
		if (action->type != RTE_FLOW_ACTION_TYPE_QUEUE || queue != NULL)
			return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION,
				action, "the one action is QUEUE, once");
		queue = action->conf;
		if (queue == NULL || queue->index >= dev->data->nb_rx_queues)
			return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_CONF,
				action, "QUEUE: the index of a configured Rx queue is wanted");
	}
	if (queue == NULL)
		return rte_flow_error_set(error, EINVAL, RTE_FLOW_ERROR_TYPE_ACTION_NUM, NULL,
			"a QUEUE action is wanted");
	flow->queue = queue->index;
	return 0;
}

static int
parse_flow(const struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item *pattern, const struct rte_flow_action *actions,
	struct rte_flow *flow, struct rte_flow_error *error)
{
	int ret;

	*flow = (struct rte_flow){0};
	if (attr == NULL)
		return rte_flow_error_set(
			error, EINVAL, RTE_FLOW_ERROR_TYPE_ATTR, NULL, "attributes are wanted");
	if (attr->group != 0)
		return rte_flow_error_set(
			error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_GROUP, attr, "the one group is 0");
	if (attr->egress || attr->transfer || !attr->ingress)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ATTR_INGRESS, attr,
			"only ingress rules are supported");
	flow->priority = attr->priority;
	ret = parse_pattern(pattern, flow, error);
	if (ret == 0)
		ret = parse_actions(dev, actions, flow, error);
	return ret;
}

static int
replay_flow_validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	struct rte_flow flow;

	return parse_flow(dev, attr, pattern, actions, &flow, error);
}

static struct rte_flow *
replay_flow_create(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;
	struct rte_flow *flow, *other;

	flow = rte_zmalloc("replay_flow", sizeof(*flow), 0);
	if (flow == NULL) {
		rte_flow_error_set(error, ENOMEM, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
			"no EAL memory for the rule");
		return NULL;
	}
	if (parse_flow(dev, attr, pattern, actions, flow, error) < 0 ||
		pause_queues(dev, error) < 0) {
		rte_free(flow);
		return NULL;
	}
	TAILQ_FOREACH(other, &replay->flows, entry)
		if (other->priority > flow->priority)
			break;
	if (other != NULL)
		TAILQ_INSERT_BEFORE(other, flow, entry);
	else
		TAILQ_INSERT_TAIL(&replay->flows, flow, entry);
	steer(replay, flow);
	resume_queues(dev);
	return flow;
}

static int
replay_flow_destroy(struct rte_eth_dev *dev, struct rte_flow *flow, struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;
	struct rte_flow *known;
	int ret;

	TAILQ_FOREACH(known, &replay->flows, entry)
		if (known == flow)
			break;
	if (known == NULL)
		return rte_flow_error_set(error, ENOENT, RTE_FLOW_ERROR_TYPE_HANDLE, flow,
			"the port has no such rule");
	ret = pause_queues(dev, error);
	if (ret < 0)
		return ret;
	TAILQ_REMOVE(&replay->flows, flow, entry);
	steer(replay, flow);
	resume_queues(dev);
	rte_free(flow);
	return 0;
}

static void
free_flows(struct replay_dev *replay)
{
	struct rte_flow *flow;

	while ((flow = TAILQ_FIRST(&replay->flows)) != NULL) {
		TAILQ_REMOVE(&replay->flows, flow, entry);
		rte_free(flow);
	}
}

static int
replay_flow_flush(struct rte_eth_dev *dev, struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;
	int ret;

	ret = pause_queues(dev, error);
	if (ret < 0)
		return ret;
	free_flows(replay);
	for (uint32_t i = 0; i < replay->capture->nb_packets; i++)
		move_packet(replay, i, 0);
	resume_queues(dev);
	return 0;
}

const struct rte_flow_ops replay_flow_ops = {
	.validate = replay_flow_validate,
	.create = replay_flow_create,
	.destroy = replay_flow_destroy,
	.flush = replay_flow_flush,
};

int
replay_flow_init(struct replay_dev *dev, int socket)
{
	TAILQ_INIT(&dev->flows);
	dev->can_pause =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	dev->queue_of = rte_zmalloc_socket("replay_queue_of",
		dev->capture->nb_packets * sizeof(dev->queue_of[0]), RTE_CACHE_LINE_SIZE, socket);
	dev->packets_of = rte_zmalloc_socket("replay_packets_of",
		dev->args.queues * sizeof(dev->packets_of[0]), RTE_CACHE_LINE_SIZE, socket);
	if (dev->queue_of == NULL || dev->packets_of == NULL) {
		REPLAY_LOG(ERR, "%s: no EAL memory for the queues of %u packets, %zu bytes",
			dev->args.file, dev->capture->nb_packets,
			dev->capture->nb_packets * sizeof(dev->queue_of[0]));
		replay_flow_fini(dev);
		return -ENOMEM;
	}
	dev->packets_of[0] = dev->capture->nb_packets;
	return 0;
}

void
replay_flow_fini(struct replay_dev *dev)
{
	free_flows(dev);
	rte_free(dev->queue_of);
	rte_free(dev->packets_of);
	dev->queue_of = NULL;
	dev->packets_of = NULL;
}

int
replay_flow_queue_max(const struct replay_dev *dev)
{
	const struct rte_flow *flow;
	int max = -1;

	TAILQ_FOREACH(flow, &dev->flows, entry)
		max = RTE_MAX(max, (int)flow->queue);
	return max;
}
