/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The port's rte_flow rules.
 *
 * The capture is known, so rules are tried when they change and not when packets pass: each packet
 * has the number of its queue beside it. Rules are tried by priority, then by age.
 */
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

/* The first rule that matches. NULL: queue 0. */
static struct rte_flow *
rule_of(const struct replay_dev *dev, const struct replay_packet *packet)
{
	struct rte_flow *flow;

	TAILQ_FOREACH(flow, &dev->flows, entry)
		if (replay_rule_matches(flow, packet))
			return flow;
	return NULL;
}

static uint16_t
queue_by_rules(const struct replay_dev *dev, const struct replay_packet *packet)
{
	const struct rte_flow *flow = rule_of(dev, packet);

	return flow == NULL ? 0 : replay_rule_queue(flow, packet);
}

static void
move_packet(struct replay_dev *dev, uint32_t packet, uint16_t queue)
{
	uint16_t from = dev->queue_of[packet];

	if (from == queue)
		return;
	dev->queue_of[packet] = queue;
	if (from != REPLAY_NO_QUEUE)
		dev->packets_of[from]--;
	if (queue != REPLAY_NO_QUEUE)
		dev->packets_of[queue]++;
}

/* Where each queue is; last, for dropped packets, where the one is that is farthest. */
static void
places_of(const struct rte_eth_dev *dev, struct replay_mark *place)
{
	const struct replay_dev *replay = dev->data->dev_private;
	struct replay_mark *far = &place[replay->args.queues];

	memset(place, 0, (replay->args.queues + 1u) * sizeof(*place));
	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		const struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq == NULL)
			continue;
		place[q] = (struct replay_mark){rxq->loop, rxq->next};
		if (replay->packets_of[q] != 0 &&
			(rxq->loop > far->loop ||
				(rxq->loop == far->loop && rxq->next > far->next)))
			*far = place[q];
	}
}

/* How often packet `i` lies between two places; the farthest queue may have become another one. */
static uint64_t
passes(const struct replay_mark *from, const struct replay_mark *to, uint32_t i)
{
	const uint64_t before = from->loop + (i < from->next), now = to->loop + (i < to->next);

	return now > before ? now - before : 0;
}

/*
 * COUNT costs nothing while packets pass: what passed follows from the places of the queues. Adds
 * what a rule (NULL: every rule that drops) has seen since rules changed last.
 */
static void
count_hits(
	const struct rte_eth_dev *dev, const struct rte_flow *flow, uint64_t *hits, uint64_t *bytes)
{
	struct replay_mark place[RTE_MAX_QUEUES_PER_PORT + 1];
	const struct replay_dev *replay = dev->data->dev_private;

	places_of(dev, place);
	for (uint32_t i = 0; i < replay->capture->nb_packets; i++) {
		const struct replay_packet *packet = replay_capture_packet(replay->capture, i);
		const uint16_t at = RTE_MIN(replay->queue_of[i], replay->args.queues);
		uint64_t n;

		if (flow == NULL ? at != replay->args.queues
				 : !replay_rule_matches(flow, packet) ||
					rule_of(replay, packet) != flow)
			continue;
		n = passes(&replay->marks[at], &place[at], i);
		*hits += n;
		*bytes += n * packet->len;
	}
}

void
replay_flow_settle(const struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;
	uint64_t bytes = 0;
	struct rte_flow *flow;

	TAILQ_FOREACH(flow, &replay->flows, entry)
		if (flow->counts)
			count_hits(dev, flow, &flow->hits, &flow->bytes);
	count_hits(dev, NULL, &replay->flow_dropped, &bytes);
	places_of(dev, replay->marks);
}

uint64_t
replay_flow_dropped(const struct rte_eth_dev *dev)
{
	const struct replay_dev *replay = dev->data->dev_private;
	uint64_t dropped = replay->flow_dropped, bytes = 0;

	count_hits(dev, NULL, &dropped, &bytes);
	return dropped;
}

void
replay_flow_restart(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	memset(replay->marks, 0, (replay->args.queues + 1u) * sizeof(replay->marks[0]));
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

		/* on a shared CPU the lcore may be waiting for this very thread to give way */
		for (uint32_t spins = 0; __atomic_load_n(&rxq->in_burst, __ATOMIC_ACQUIRE); spins++)
			spins < 1000 ? rte_pause() : rte_delay_us_sleep(10);
	}
	return 0;
}

/* Rings count what waits by the queues that packets had: they count again. */
static void
resume_queues(struct rte_eth_dev *dev)
{
	struct replay_dev *replay = dev->data->dev_private;

	for (uint16_t q = 0; q < dev->data->nb_rx_queues; q++) {
		struct replay_rxq *rxq = dev->data->rx_queues[q];

		if (rxq != NULL)
			rxq->ring = (struct replay_ring){.loop = rxq->loop, .next = rxq->next};
	}
	__atomic_store_n(&replay->paused, false, __ATOMIC_RELEASE);
}

/* A rule has come or gone: only packets that it matches can change queue. */
static void
steer(struct replay_dev *dev, const struct rte_flow *changed)
{
	for (uint32_t i = 0; i < dev->capture->nb_packets; i++)
		if (replay_rule_matches(changed, replay_capture_packet(dev->capture, i)))
			move_packet(dev, i,
				queue_by_rules(dev, replay_capture_packet(dev->capture, i)));
}

static int
replay_flow_validate(struct rte_eth_dev *dev, const struct rte_flow_attr *attr,
	const struct rte_flow_item pattern[], const struct rte_flow_action actions[],
	struct rte_flow_error *error)
{
	struct rte_flow flow;
	int ret;

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
			"no EAL memory for the rule");
		return NULL;
	}
	if (replay_rule_parse(dev, attr, pattern, actions, flow, error) < 0 ||
		pause_queues(dev, error) < 0) {
		free_flow(flow);
		return NULL;
	}
	replay_flow_settle(dev);
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
	replay_flow_settle(dev);
	TAILQ_REMOVE(&replay->flows, flow, entry);
	steer(replay, flow);
	resume_queues(dev);
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

	ret = pause_queues(dev, error);
	if (ret < 0)
		return ret;
	replay_flow_settle(dev);
	free_flows(replay);
	for (uint32_t i = 0; i < replay->capture->nb_packets; i++)
		move_packet(replay, i, 0);
	resume_queues(dev);
	return 0;
}

/* COUNT: packets of the capture that came to their queue, or were dropped, faults left aside. */
static int
replay_flow_query(struct rte_eth_dev *dev, struct rte_flow *flow,
	const struct rte_flow_action *action, void *data, struct rte_flow_error *error)
{
	struct rte_flow_query_count *count = data;
	uint64_t hits = flow->hits, bytes = flow->bytes;

	if (action == NULL || action->type != RTE_FLOW_ACTION_TYPE_COUNT || !flow->counts)
		return rte_flow_error_set(error, ENOTSUP, RTE_FLOW_ERROR_TYPE_ACTION, action,
			"only COUNT can be asked for, of a rule that has it");
	count_hits(dev, flow, &hits, &bytes);
	count->hits_set = count->bytes_set = 1;
	count->hits = hits;
	count->bytes = bytes;
	if (count->reset) {
		/* what count_hits() finds from here on begins at nothing */
		flow->hits -= hits;
		flow->bytes -= bytes;
	}
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
replay_flow_init(struct replay_dev *dev, int socket)
{
	TAILQ_INIT(&dev->flows);
	dev->can_pause =
		syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;
	dev->queue_of = rte_zmalloc_socket("replay_queue_of",
		dev->capture->nb_packets * sizeof(dev->queue_of[0]), RTE_CACHE_LINE_SIZE, socket);
	dev->packets_of = rte_zmalloc_socket("replay_packets_of",
		dev->args.queues * sizeof(dev->packets_of[0]), RTE_CACHE_LINE_SIZE, socket);
	/* the last one is that of dropped packets */
	dev->marks = rte_zmalloc_socket(
		"replay_marks", (dev->args.queues + 1u) * sizeof(dev->marks[0]), 0, socket);
	if (dev->queue_of == NULL || dev->packets_of == NULL || dev->marks == NULL) {
		REPLAY_LOG(ERR, "%s: no EAL memory for the queues of %u packets, %zu bytes",
			dev->args.files[0], dev->capture->nb_packets,
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
	rte_free(dev->marks);
	dev->marks = NULL;
	dev->queue_of = NULL;
	dev->packets_of = NULL;
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
