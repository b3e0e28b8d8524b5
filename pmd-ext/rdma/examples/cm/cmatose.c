/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm/cmatose.h"

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>

#include "cm/messages.h"

static struct message_options options;

static enum options_result
cmatose_parse(int argc, char **argv, struct target *target)
{
	return message_options_parse(argc, argv, MESSAGE_CMATOSE, &options, target);
}

static int
send_all(struct message_node *nodes)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < options.connections && ret == 0; i++)
		ret = message_send(&nodes[i], &options, NULL, 0, 0);
	return ret;
}

static int
receive_all(struct message_node *nodes)
{
	unsigned int i;
	int ret = 0;

	printf("receiving data transfers\n");
	for (i = 0; i < options.connections && ret == 0; i++)
		ret = message_receive(&nodes[i], &options, NULL);
	return ret;
}

/* The server sends first and disconnects. */
static int
transfer(const struct target *target, struct message_node *nodes)
{
	int ret;

	if (target->client) {
		ret = receive_all(nodes);
		if (ret == 0) {
			printf("sending replies\n");
			ret = send_all(nodes);
		}
	} else {
		printf("initiating data transfers\n");
		ret = send_all(nodes);
		if (ret == 0)
			ret = receive_all(nodes);
	}
	if (ret == 0)
		printf("data transfers complete\n");
	return ret;
}

/* The client waits until the server has received everything and disconnects. */
static int
wait_end(struct session *s, struct message_node *nodes)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < options.connections && ret == 0; i++)
		while (!nodes[i].e.down && ret == 0)
			ret = session_poll(s, session_deadline(0));
	return ret;
}

static int
cmatose_run(struct session *s, const struct target *target)
{
	struct message_node *nodes = message_nodes_create(s, &options, RDMA_QP_RC, true);
	struct rdma_conn *listener = NULL;
	int ret = nodes ? 0 : -ENOMEM;

	if (!nodes)
		return ret;
	printf("cmatose: starting %s\n", target->client ? "client" : "server");
	if (!target->client) {
		listener = endpoint_listen(s, RDMA_QP_RC, target->port, options.connections);
		if (!listener)
			ret = -rte_errno;
	} else {
		printf("cmatose: connecting\n");
	}
	if (ret == 0)
		ret = message_nodes_connect(s, &options, target, nodes, "cmatose");
	if (ret == 0 && options.count)
		ret = transfer(target, nodes);
	if (ret == 0 && target->client)
		ret = wait_end(s, nodes);
	if (!target->client)
		printf("cmatose: disconnecting\n");
	message_nodes_destroy(s, &options, nodes);
	if (!target->client)
		printf("disconnected\n");
	if (listener)
		rdma_conn_destroy(listener);
	printf("test complete\nreturn status %d\n", ret);
	return ret;
}

const struct mode cmatose_mode = {
	.name = "cmatose", .summary = "ucmatose", .parse = cmatose_parse, .run = cmatose_run};
