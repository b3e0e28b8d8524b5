/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <stdio.h>

#include <rte_byteorder.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_flow.h>

#include "port/port.h"
#include "port/steering.h"
#include "settings.h"
#include "source_settings.h"

#define ROCE_UDP_PORT 4791

void
port_rule_init(
	struct port_rule *r, uint16_t udp_port, uint16_t queue, const struct source_filter *filter)
{
	*r = (struct port_rule){
		.attr.ingress = 1,
		.udp.hdr.dst_port = rte_cpu_to_be_16(udp_port),
		.mask.hdr.dst_port = RTE_BE16(UINT16_MAX),
		.queue.index = queue,
		.pattern = {{.type = RTE_FLOW_ITEM_TYPE_ETH}, {.type = RTE_FLOW_ITEM_TYPE_IPV4},
			{.type = RTE_FLOW_ITEM_TYPE_UDP, .spec = &r->udp, .mask = &r->mask},
			{.type = RTE_FLOW_ITEM_TYPE_END}},
		.actions = {{.type = RTE_FLOW_ACTION_TYPE_QUEUE, .conf = &r->queue},
			{.type = RTE_FLOW_ACTION_TYPE_END}},
	};
	if (filter == NULL)
		return;
	source_filter_ipv4(filter, &r->ip.hdr, &r->ip_mask.hdr);
	if (r->ip_mask.hdr.src_addr == 0 && r->ip_mask.hdr.dst_addr == 0)
		return;
	r->pattern[1].spec = &r->ip;
	r->pattern[1].mask = &r->ip_mask;
}

bool
port_rule_init_roce(struct port_rule *r, uint16_t queue, const struct source_filter *filter)
{
	port_rule_init(r, ROCE_UDP_PORT, queue, filter);
	r->udp.hdr.src_port = filter->port;
	r->mask.hdr.src_port = filter->port_mask;
	return r->ip_mask.hdr.src_addr != 0 || r->mask.hdr.src_port != 0;
}

/** Add a rule. @return 0; -ENOTSUP, with the reason */
static int
add_rule(struct port *p, const struct rte_flow_attr *attr, const struct rte_flow_item *pattern,
	const struct rte_flow_action *actions, const char **why)
{
	struct rte_flow_error error = {0};
	struct rte_flow *rule = rte_flow_create(p->id, attr, pattern, actions, &error);

	if (rule == NULL) {
		*why = error.message != NULL ? error.message : rte_strerror(rte_errno);
		return -ENOTSUP;
	}
	p->rules[p->nb_rules++] = rule;
	return 0;
}

/** Queue of the RX role that owns a stream. */
static uint16_t
queue_of(const struct port *p, uint8_t owner)
{
	uint16_t q = 0;

	while (q + 1 < p->nb_queues && p->queue_rx[q] != owner)
		q++;
	return q;
}

/** Create one rule per stream. @return 0; -ENOTSUP, with the reason */
static int
steer_udp(struct port *p, const struct settings *s, const uint8_t *owner, char *why, size_t size)
{
	for (uint32_t i = 0; i < p->settings->nb_streams; i++) {
		const uint32_t stream = p->settings->streams[i];
		const uint16_t queue = queue_of(p, owner[stream]);
		struct port_rule rule;
		const char *what;
		int ret;

		/*
		 * The port supports no address match, or not these masks. RX roles check addresses
		 * anyway.
		 */
		port_rule_init(&rule, s->udp_port + stream, queue, &s->sources.filter[stream]);
		ret = add_rule(p, &rule.attr, rule.pattern, rule.actions, &what);
		if (ret != 0 && rule.pattern[1].spec != NULL) {
			port_rule_init(&rule, s->udp_port + stream, queue, NULL);
			ret = add_rule(p, &rule.attr, rule.pattern, rule.actions, &what);
		}
		if (ret != 0) {
			snprintf(why, size, "cannot create a flow rule for UDP port %u: %s",
				s->udp_port + stream, what);
			return ret;
		}
	}
	return 0;
}

/** Create one rule per stream, which matches its source. @return 0; -ENOTSUP, with the reason */
static int
steer_sources(
	struct port *p, const struct settings *s, const uint8_t *owner, char *why, size_t size)
{
	for (uint32_t i = 0; i < p->settings->nb_streams; i++) {
		const uint32_t stream = p->settings->streams[i];
		struct port_rule rule;
		const char *what;

		if (!port_rule_init_roce(
			    &rule, queue_of(p, owner[stream]), &s->sources.filter[stream])) {
			snprintf(why, size,
				"no flow rule can tell RoCE streams apart by destination port: set "
				"[detector] source");
			return -ENOTSUP;
		}
		if (add_rule(p, &rule.attr, rule.pattern, rule.actions, &what) != 0) {
			snprintf(why, size,
				"cannot create a flow rule for the source of RoCE stream %u: %s",
				stream, what);
			return -ENOTSUP;
		}
	}
	return 0;
}

/** Distribute RoCE packets to all queues by addresses and UDP ports. */
static int
spread(struct port *p)
{
	uint16_t queues[FRAME_RX_MAX];
	struct rte_flow_action_rss rss = {
		.types = RTE_ETH_RSS_NONFRAG_IPV4_UDP, .queue_num = p->nb_queues, .queue = queues};
	const struct rte_flow_action actions[] = {{.type = RTE_FLOW_ACTION_TYPE_RSS, .conf = &rss},
		{.type = RTE_FLOW_ACTION_TYPE_END}};
	struct port_rule rule;
	const char *what;

	for (uint16_t q = 0; q < p->nb_queues; q++)
		queues[q] = q;
	port_rule_init(&rule, ROCE_UDP_PORT, 0, NULL);
	return add_rule(p, &rule.attr, rule.pattern, actions, &what);
}

int
port_steer(struct port *p, const struct settings *s, const uint8_t *owner, char *why, size_t size)
{
	int ret;

	if (!p->rdma) {
		ret = steer_udp(p, s, owner, why, size);
	} else if (p->nb_queues == 1) {
		return 0; /* the queue also receives ARP and connection requests */
	} else {
		ret = steer_sources(p, s, owner, why, size);
		if (ret != 0 && p->settings->steering != RX_STEERING_FLOW) {
			port_unsteer(p);
			ret = spread(p);
		}
	}
	if (ret != 0)
		port_unsteer(p);
	return ret;
}

void
port_unsteer(struct port *p)
{
	struct rte_flow_error error;

	while (p->nb_rules > 0)
		rte_flow_destroy(p->id, p->rules[--p->nb_rules], &error);
}
