/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * rte_flow rules of a port: packets of a stream go to the queue of the RX role that owns it. UDP
 * streams differ in their destination port. RoCE packets all have the same destination port. They
 * differ in the source address, which is the detector's, and in the source port, which is that of
 * the queue pair.
 */
#ifndef PORT_STEERING_H
#define PORT_STEERING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_flow.h>

struct port;
struct settings;
struct source_filter;

/** Flow rule of one stream. It contains pointers to itself: do not copy it. */
struct port_rule {
	struct rte_flow_attr attr;
	struct rte_flow_item_udp udp;
	struct rte_flow_item_udp mask;
	struct rte_flow_item_ipv4 ip;
	struct rte_flow_item_ipv4 ip_mask;
	struct rte_flow_action_queue queue;
	struct rte_flow_item pattern[4];
	struct rte_flow_action actions[2];
};

/**
 * Initialise a rule that steers Ethernet / IPv4 / UDP packets to `udp_port` to RX queue `queue`.
 * @param filter  addresses that a packet must have; NULL: any
 */
void port_rule_init(
	struct port_rule *r, uint16_t udp_port, uint16_t queue, const struct source_filter *filter);

/**
 * Initialise a rule that steers the RoCE packets of a source to RX queue `queue`.
 * @return false: the filter has no source, so the rule would match the packets of all streams
 */
bool port_rule_init_roce(struct port_rule *r, uint16_t queue, const struct source_filter *filter);

/**
 * Create the rules of a port that is started, and has a queue for each RX role. If a RoCE port
 * cannot distinguish its streams, RSS over addresses and UDP ports is tried, unless `[port N]
 * steering` is `flow`. RX roles then hand packets to each other, but fewer than without RSS.
 * @param owner  RX role of each stream
 * @return 0; -ENOTSUP: there are no rules, with the reason
 */
int port_steer(
	struct port *p, const struct settings *s, const uint8_t *owner, char *why, size_t size);

/** Remove all rules. */
void port_unsteer(struct port *p);

#endif
