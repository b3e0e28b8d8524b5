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
	int rc = 0;

	for (i = 0; i < options.connections && rc == 0; i++)
		rc = message_send(&nodes[i], &options, NULL, 0, 0);
	return rc;
}

static int
receive_all(struct message_node *nodes)
{
	unsigned int i;
	int rc = 0;

	printf("receiving data transfers\n");
	for (i = 0; i < options.connections && rc == 0; i++)
		rc = message_receive(&nodes[i], &options, NULL);
	return rc;
}

/* The server sends first and disconnects. */
static int
transfer(const struct target *target, struct message_node *nodes)
{
	int rc;

	if (target->client) {
		rc = receive_all(nodes);
		if (rc == 0) {
			printf("sending replies\n");
			rc = send_all(nodes);
		}
	} else {
		printf("initiating data transfers\n");
		rc = send_all(nodes);
		if (rc == 0)
			rc = receive_all(nodes);
	}
	if (rc == 0)
		printf("data transfers complete\n");
	return rc;
}

/* The client waits until the server has received everything and disconnects. */
static int
wait_end(struct session *s, struct message_node *nodes)
{
	unsigned int i;
	int rc = 0;

	for (i = 0; i < options.connections && rc == 0; i++)
		while (!nodes[i].e.down && rc == 0)
			rc = session_poll(s, session_deadline(0));
	return rc;
}

static int
cmatose_run(struct session *s, const struct target *target)
{
	struct message_node *nodes = message_nodes_create(s, &options, RDMA_QP_RC, true);
	struct rdma_conn *listener = NULL;
	int rc = nodes ? 0 : -ENOMEM;

	if (!nodes)
		return rc;
	printf("cmatose: starting %s\n", target->client ? "client" : "server");
	if (!target->client) {
		listener = endpoint_listen(s, RDMA_QP_RC, target->port, options.connections);
		if (!listener)
			rc = -rte_errno;
	} else {
		printf("cmatose: connecting\n");
	}
	if (rc == 0)
		rc = message_nodes_connect(s, &options, target, nodes, "cmatose");
	if (rc == 0 && options.count)
		rc = transfer(target, nodes);
	if (rc == 0 && target->client)
		rc = wait_end(s, nodes);
	if (!target->client)
		printf("cmatose: disconnecting\n");
	message_nodes_destroy(s, &options, nodes);
	if (!target->client)
		printf("disconnected\n");
	if (listener)
		rdma_conn_destroy(listener);
	printf("test complete\nreturn status %d\n", rc);
	return rc;
}

const struct mode cmatose_mode = {
	.name = "cmatose", .summary = "ucmatose", .parse = cmatose_parse, .run = cmatose_run};
