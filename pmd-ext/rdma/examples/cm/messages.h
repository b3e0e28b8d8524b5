/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef MESSAGES_H
#define MESSAGES_H

/**
 * @file
 * Common parts of cmatose, udaddy and mckey: all three exchange C messages of S bytes over c
 * connections.
 */

#include "buffer.h"
#include "endpoint.h"
#include "options.h"
#include "target.h"

struct message_options {
	const char *server; /**< -s: address to connect to; mckey: the group, -m */
	uint32_t connections, count, size;
	uint16_t port;
	bool sender; /**< mckey -s */
};

enum message_mode {
	MESSAGE_CMATOSE,
	MESSAGE_UDADDY,
	MESSAGE_MCKEY,
};

/** Parse the options. */
enum options_result message_options_parse(int argc, char **argv, enum message_mode mode,
	struct message_options *o, struct target *target);

/** A connection and its one message buffer. */
struct message_node {
	struct endpoint e;
	struct buffer buffer;
	bool ready; /**< connected or joined */
};

/** Create nodes with queue pairs of a type, and post receives. @return NULL; printed to stderr */
struct message_node *message_nodes_create(
	struct session *s, const struct message_options *o, enum rdma_qp_type type, bool receive);

void message_nodes_destroy(
	struct session *s, const struct message_options *o, struct message_node *nodes);

/**
 * Connect all nodes to a server, or wait until all clients have connected.
 * @param name name of the mode: failures are printed to stdout, as in librdmacm's programs
 */
int message_nodes_connect(struct session *s, const struct message_options *o,
	const struct target *target, struct message_node *nodes, const char *name);

/** SEND all messages of a node and wait for the completions. @param ah NULL: RC */
int message_send(struct message_node *node, const struct message_options *o, struct rdma_ah *ah,
	uint32_t qpn, uint32_t qkey);

/**
 * Wait for all messages of a node.
 * @param last completion of the last message; may be NULL
 */
int message_receive(
	struct message_node *node, const struct message_options *o, struct rdma_wc *last);

#endif
