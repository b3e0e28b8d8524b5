/* SPDX-License-Identifier: BSD-3-Clause */
/* The port's rte_flow rules: creation and destruction while queues are polled, and counters. */
#include <errno.h>
#include <linux/membarrier.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_flow_driver.h>
#include <rte_malloc.h>
#include <rte_pause.h>

#include "replay.h"

/* Positions of the queues, followed by the position of dropped packets: that of the queue that is
 * furthest ahead. */
static void
places_of(const struct rte_eth_dev *dev, uint64_t *place)
{
	const struct replay_dev *replay = dev->data->dev_private;
	uint64_t *far = &place[replay->args.queues];

	memset(place, 0, replay->args.queues * sizeof(*place));
	*far = replay->marks[replay->args.queues];
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL)
			continue;
		place[q] = __atomic_load_n(&rxq->place, __ATOMIC_RELAXED);
		if (rxq->nb_mine != 0)
			*far = RTE_MAX(*far, place[q]);
	}
}

/* Packets of a list between the mark and a position. */
static uint64_t
passed_since(const struct replay_dev *dev, uint32_t list, uint64_t place)
{
	const struct replay_steering *steering = dev->steering;
	const uint32_t first = steering->first_of[list], n = steering->first_of[list + 1] - first;

	if (place <= dev->marks[list])
		return 0;
	return replay_passed(steering->list + first, n, place, dev->capture->nb_packets) -
		replay_passed(
			steering->list + first, n, dev->marks[list], dev->capture->nb_packets);
}

/* Adds the packets of a list up to a position to the counts of their rules. */
static void
count_list(struct replay_dev *dev, uint32_t list, uint64_t place)
{
	const struct replay_steering *steering = dev->steering;
	const uint32_t nb_packets = dev->capture->nb_packets;
	const uint64_t mark = dev->marks[list];

	for (uint32_t k = steering->first_of[list]; k < steering->first_of[list + 1]; k++) {
		const uint32_t i = steering->list[k];
		struct rte_flow *flow = steering->rule_of[i];
		uint64_t n;

		if (flow == NULL || !flow->counts)
			continue;
		n = place / nb_packets + (i < place % nb_packets) - mark / nb_packets -
			(i < mark % nb_packets);
		flow->hits += n;
		flow->bytes += n * replay_capture_packet(dev->capture, i)->len;
	}
}

/*
 * COUNT has no cost per packet: the counts are computed from the positions of the queues. Updates
 * the rules' counts up to these positions, which become the next marks. The lock is held.
 */
static void
settle(struct replay_dev *dev, const uint64_t *place)
{
	const uint32_t dropped = dev->args.queues;

	dev->flow_dropped += passed_since(dev, dropped, place[dropped]);
	for (uint32_t q = 0; q <= dropped; q++) {
		/* a queue that was set up again starts at its first packet */
		if (dev->steering->rule_of != NULL && place[q] > dev->marks[q])
			count_list(dev, q, place[q]);
		dev->marks[q] = place[q];
	}
}

void
replay_flow_settle(const struct rte_eth_dev *dev)
{
	uint64_t place[RTE_MAX_QUEUES_PER_PORT + 1];
	struct replay_dev *replay = dev->data->dev_private;

	pthread_mutex_lock(&replay->lock);
	places_of(dev, place);
	settle(replay, place);
	pthread_mutex_unlock(&replay->lock);
}

uint64_t
replay_flow_dropped(const struct rte_eth_dev *dev)
{
	uint64_t place[RTE_MAX_QUEUES_PER_PORT + 1], dropped;
	struct replay_dev *replay = dev->data->dev_private;

	pthread_mutex_lock(&replay->lock);
	places_of(dev, place);
	dropped = replay->flow_dropped +
		passed_since(replay, replay->args.queues, place[replay->args.queues]);
	pthread_mutex_unlock(&replay->lock);
	return dropped;
}

void
replay_flow_restart(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	pthread_mutex_lock(&replay->lock);
	memset(replay->marks, 0, (replay->args.queues + 1u) * sizeof(replay->marks[0]));
	pthread_mutex_unlock(&replay->lock);
}

static void
give(struct replay_rxq *rxq, const struct replay_steering *steering)
{
	const uint32_t first = steering->first_of[rxq->id];

	rxq->mine = steering->list + first;
	rxq->nb_mine = steering->first_of[rxq->id + 1] - first;
}

void
replay_flow_give(struct replay_rxq *rxq)
{
	give(rxq, rxq->dev->steering);
}

static int
cannot_pause(struct rte_flow_error *error)
{
	return rte_flow_error_set(error, EBUSY, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
		"rules can change only while the port is stopped, because membarrier(2) is not "
		"available");
}

/*
 * Pauses the polled queues while packets change their queue. A packet belongs to one queue at a
 * time. Only that queue increments its reference count, which is why it needs no atomic operation.
 * The polling lcore writes in_burst, then reads paused. This thread writes paused, then reads
 * in_burst. membarrier() orders both without a fence in every burst.
 */
static int
pause_queues(struct rte_eth_dev *dev, struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;

	if (!dev->data->dev_started)
		return 0;
	if (!replay->can_pause)
		return cannot_pause(error);
	__atomic_store_n(&replay->paused, true, __ATOMIC_SEQ_CST);
	if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0) {
		__atomic_store_n(&replay->paused, false, __ATOMIC_RELEASE);
		return cannot_pause(error);
	}
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		/* on a shared CPU the lcore may be waiting for this thread to yield */
		for (uint32_t spins = 0; __atomic_load_n(&rxq->in_burst, __ATOMIC_ACQUIRE); spins++)
			spins < 1000 ? rte_pause() : rte_delay_us_sleep(10);
	}
	return 0;
}

/*
 * Replaces the steering table after a rule was added or removed. Long operations run before or
 * after the pause: the queues are paused only while each finds its position in its new list.
 */
static int
steer(struct rte_eth_dev *dev, struct replay_steering *steering, struct rte_flow_error *error)
{
	uint64_t place[RTE_MAX_QUEUES_PER_PORT + 1];
	struct replay_dev *replay = dev->data->dev_private;
	struct replay_steering *old = replay->steering;
	int ret;

	if (steering == NULL)
		return rte_flow_error_set(error, ENOMEM, RTE_FLOW_ERROR_TYPE_UNSPECIFIED, NULL,
			"cannot allocate the queues of all packets");
	ret = pause_queues(dev, error);
	if (ret < 0) {
		replay_steering_free(steering);
		return ret;
	}
	pthread_mutex_lock(&replay->lock);
	places_of(dev, place);
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL)
			continue;
		give(rxq, steering);
		replay_rx_seek(rxq);
	}
	__atomic_store_n(&replay->paused, false, __ATOMIC_RELEASE);
	settle(replay, place); /* packets passed so far count for the old rules */
	replay->steering = steering;
	pthread_mutex_unlock(&replay->lock);
	replay_steering_free(old);
	return 0;
}

static int
replay_flow_validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	const struct replay_dev *replay = dev->data->dev_private;
	struct rte_flow flow;
	int ret;

	if (dev->data->dev_started && !replay->can_pause)
		return cannot_pause(error);
	ret = replay_rule_parse(dev, attr, pattern, actions, &flow, error);
	if (ret == 0)
		rte_free(flow.queues);
	return ret;
}

static void
free_flow(struct rte_flow *flow)
{
	rte_free(flow->queues);
	rte_free(flow);
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
			"cannot allocate the rule in EAL memory");
		return NULL;
	}
	if (replay_rule_parse(dev, attr, pattern, actions, flow, error) < 0) {
		free_flow(flow);
		return NULL;
	}
	TAILQ_FOREACH(other, &replay->flows, entry)
		if (other->priority > flow->priority)
			break;
	if (other != NULL)
		TAILQ_INSERT_BEFORE(other, flow, entry);
	else
		TAILQ_INSERT_TAIL(&replay->flows, flow, entry);
	if (steer(dev, replay_steering_create(replay, flow, NULL), error) < 0) {
		TAILQ_REMOVE(&replay->flows, flow, entry);
		free_flow(flow);
		return NULL;
	}
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
			"no such rule on this port");
	ret = steer(dev, replay_steering_create(replay, flow, flow), error);
	if (ret < 0)
		return ret;
	TAILQ_REMOVE(&replay->flows, flow, entry);
	free_flow(flow);
	return 0;
}

static void
free_flows(struct replay_dev *replay)
{
	struct rte_flow *flow;

	while ((flow = TAILQ_FIRST(&replay->flows)) != NULL) {
		TAILQ_REMOVE(&replay->flows, flow, entry);
		free_flow(flow);
	}
}

static int
replay_flow_flush(struct rte_eth_dev *dev, struct rte_flow_error *error)
{
	struct replay_dev *replay = dev->data->dev_private;
	int ret;

	ret = steer(dev, replay_steering_create(replay, NULL, NULL), error);
	if (ret < 0)
		return ret;
	free_flows(replay);
	return 0;
}

/* COUNT: packets of the capture that reached their queue or were dropped; faults are ignored. */
static int
replay_flow_query(struct rte_eth_dev *dev, struct rte_flow *flow,
	const struct rte_flow_action *action, void *data, struct rte_flow_error *error)
{
	struct rte_flow_query_count *count = data;

	if (action == NULL || action->type != RTE_FLOW_ACTION_TYPE_COUNT || !flow->counts)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION, action,
			"only COUNT can be queried, of a rule that has it");
	replay_flow_settle(dev);
	count->hits_set = count->bytes_set = 1;
	count->hits = flow->hits;
	count->bytes = flow->bytes;
	if (count->reset)
		flow->hits = flow->bytes = 0;
	return 0;
}

const struct rte_flow_ops replay_flow_ops = {
	.validate = replay_flow_validate,
	.create = replay_flow_create,
	.destroy = replay_flow_destroy,
	.flush = replay_flow_flush,
	.query = replay_flow_query,
};

int
replay_flow_init(struct replay_dev *dev)
{
	const size_t lists = dev->args.queues + 1u; /* the last list is that of dropped packets */

	TAILQ_INIT(&dev->flows);
	pthread_mutex_init(&dev->lock, NULL);
	dev->can_pause =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	dev->marks =
		rte_zmalloc_socket("replay_marks", lists * sizeof(dev->marks[0]), 0, dev->socket);
	dev->steering = replay_steering_create(dev, NULL, NULL);
	if (dev->steering == NULL || dev->marks == NULL) {
		REPLAY_LOG(ERR,
			"%s: cannot allocate the queues of %u packets, %zu bytes of EAL memory",
			dev->args.name, dev->capture->nb_packets,
			dev->capture->nb_packets * sizeof(dev->steering->list[0]));
		replay_flow_fini(dev);
		return -ENOMEM;
	}
	return 0;
}

void
replay_flow_fini(struct replay_dev *dev)
{
	free_flows(dev);
	replay_steering_free(dev->steering);
	rte_free(dev->marks);
	pthread_mutex_destroy(&dev->lock);
	dev->marks = NULL;
	dev->steering = NULL;
}

int
replay_flow_queue_max(const struct replay_dev *dev)
{
	const struct rte_flow *flow;
	int max = -1;

	TAILQ_FOREACH(flow, &dev->flows, entry)
		for (uint16_t i = 0; i < flow->nb_queues; i++)
			max = RTE_MAX(max, (int)flow->queues[i]);
	return max;
}
