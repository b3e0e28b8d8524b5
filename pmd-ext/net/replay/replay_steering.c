/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Builds the packet list of each queue. The capture is known, so rules are matched when they
 * change, not for each packet received. Rules are matched by priority, then by age.
 */
#include <stdlib.h>

#include <rte_malloc.h>

#include "replay.h"

static struct replay_steering *
steering_alloc(uint32_t nb_packets, uint32_t nb_lists, bool rules, int socket)
{
	struct replay_steering *steering;

	steering = rte_zmalloc_socket("replay_steering", sizeof(*steering), 0, socket);
	if (steering == NULL)
		return NULL;
	steering->list = rte_malloc_socket(
		"replay_list", nb_packets * sizeof(steering->list[0]), RTE_CACHE_LINE_SIZE, socket);
	steering->first_of = rte_zmalloc_socket(
		"replay_first_of", (nb_lists + 1u) * sizeof(steering->first_of[0]), 0, socket);
	if (rules)
		steering->rule_of = rte_malloc_socket(
			"replay_rule_of", nb_packets * sizeof(steering->rule_of[0]), 0, socket);
	if (steering->list == NULL || steering->first_of == NULL ||
		(rules && steering->rule_of == NULL)) {
		replay_steering_free(steering);
		return NULL;
	}
	return steering;
}

void
replay_steering_free(struct replay_steering *steering)
{
	if (steering == NULL)
		return;
	rte_free(steering->list);
	rte_free(steering->first_of);
	rte_free(steering->rule_of);
	rte_free(steering);
}

/* Sorts packets into lists by list number. */
static void
fill_lists(struct replay_steering *steering, const uint16_t *list_of, uint32_t nb_packets,
	uint32_t nb_lists)
{
	uint32_t *first_of = steering->first_of;

	for (uint32_t i = 0; i < nb_packets; i++)
		first_of[list_of[i] + 1]++;
	for (uint32_t q = 0; q < nb_lists; q++)
		first_of[q + 1] += first_of[q];
	/* first_of[q] advances to the end of its list, where the next one begins */
	for (uint32_t i = 0; i < nb_packets; i++)
		steering->list[first_of[list_of[i]]++] = i;
	for (uint32_t q = nb_lists; q > 0; q--)
		first_of[q] = first_of[q - 1];
	first_of[0] = 0;
}

static struct rte_flow *
first_rule(const struct replay_dev *dev, const struct replay_packet *packet,
	const struct rte_flow *gone)
{
	struct rte_flow *flow;

	TAILQ_FOREACH(flow, &dev->flows, entry)
		if (flow != gone && replay_rule_matches(flow, packet))
			return flow;
	return NULL;
}

/* Gets the current list of each packet. */
static void
lists_of(const struct replay_steering *steering, uint16_t *list_of, uint32_t nb_lists)
{
	for (uint32_t q = 0; q < nb_lists; q++)
		for (uint32_t k = steering->first_of[q]; k < steering->first_of[q + 1]; k++)
			list_of[steering->list[k]] = (uint16_t)q;
}

/*
 * Builds the table after the rule `changed` was added (it is in the list), or before the rule
 * `gone` is removed (it still is): only packets that it matches can change. Without either, builds
 * the table without rules.
 */
struct replay_steering *
replay_steering_create(
	const struct replay_dev *dev, const struct rte_flow *changed, const struct rte_flow *gone)
{
	const struct replay_capture *capture = dev->capture;
	const struct replay_steering *old = changed == NULL ? NULL : dev->steering;
	const uint32_t dropped = dev->args.queues, nb_lists = dropped + 1;
	struct replay_steering *steering;
	uint16_t *list_of;

	steering = steering_alloc(capture->nb_packets, nb_lists, changed != NULL, dev->socket);
	list_of = calloc(capture->nb_packets, sizeof(list_of[0]));
	if (steering == NULL || list_of == NULL) {
		replay_steering_free(steering);
		free(list_of);
		return NULL;
	}
	if (old != NULL)
		lists_of(old, list_of, nb_lists);
	for (uint32_t i = 0; old != NULL && i < capture->nb_packets; i++) {
		const struct replay_packet *packet = replay_capture_packet(capture, i);
		struct rte_flow *rule = old->rule_of == NULL ? NULL : old->rule_of[i];

		if (replay_rule_matches(changed, packet)) {
			rule = first_rule(dev, packet, gone);
			list_of[i] = rule == NULL ? 0 : replay_rule_queue(rule, packet);
			list_of[i] = RTE_MIN(list_of[i], dropped); /* REPLAY_NO_QUEUE */
		}
		steering->rule_of[i] = rule;
	}
	fill_lists(steering, list_of, capture->nb_packets, nb_lists);
	free(list_of);
	return steering;
}
