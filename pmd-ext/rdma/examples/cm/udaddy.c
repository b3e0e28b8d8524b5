/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm/udaddy.h"

#include <errno.h>
#include <stdio.h>

#include <rte_errno.h>

#include "address.h"
#include "cm/messages.h"

#define RESOLVE_TIMEOUT_MS 2000

static struct message_options options;

static enum options_result
udaddy_parse(int argc, char **argv, struct target *target)
{
	return message_options_parse(argc, argv, MESSAGE_UDADDY, &options, target);
}

/* Create an address handle for the sender of the message in the node's buffer. */
static struct rdma_ah *
reply_handle(struct session *s, const struct message_node *node)
{
	uint64_t deadline = session_deadline(RESOLVE_TIMEOUT_MS);
	struct sockaddr_storage sender;
	struct rdma_ah *ah;

	if (address_of_grh(node->buffer.addr, &sender) < 0) {
		printf("udaddy: no address before the message\n");
		return NULL;
	}
	do {
		ah = rdma_ah_create(s->pd, (struct sockaddr *)&sender, 0, 0);
	} while (!ah && rte_errno == EAGAIN && session_poll(s, deadline) == 0);
	return ah;
}

static int
serve(struct session *s, struct message_node *node)
{
	struct rdma_ah *ah;
	struct rdma_wc wc;
	int ret = message_receive(node, &options, &wc);

	if (ret < 0)
		return ret;
	ah = reply_handle(s, node);
	if (!ah)
		return -EHOSTUNREACH;
	ret = message_send(
		node, &options, ah, wc.flags & RDMA_WC_WITH_IMM ? wc.imm : wc.src_qpn, 0x01234567);
	while (rdma_ah_destroy(ah) == -EBUSY)
		session_linger(s, 1);
	return ret;
}

static int
transfer(struct session *s, const struct target *target, struct message_node *nodes)
{
	unsigned int i;
	int ret = 0;

	if (target->client) {
		printf("initiating data transfers\n");
		for (i = 0; i < options.connections && ret == 0; i++)
			ret = message_send(&nodes[i], &options, nodes[i].e.ah,
				nodes[i].e.remote_qpn, nodes[i].e.remote_qkey);
	}
	printf("receiving data transfers\n");
	for (i = 0; i < options.connections && ret == 0; i++)
		ret = target->client ? message_receive(&nodes[i], &options, NULL)
				     : serve(s, &nodes[i]);
	if (ret == 0)
		printf("data transfers complete\n");
	return ret;
}

static int
udaddy_run(struct session *s, const struct target *target)
{
	struct message_node *nodes = message_nodes_create(s, &options, RDMA_QP_UD, true);
	struct rdma_conn *listener = NULL;
	int ret = nodes ? 0 : -ENOMEM;

	if (!nodes)
		return ret;
	printf("udaddy: starting %s\n", target->client ? "client" : "server");
	if (!target->client) {
		listener = endpoint_listen(s, RDMA_QP_UD, target->port, options.connections);
		if (!listener)
			ret = -rte_errno;
	} else {
		printf("udaddy: connecting\n");
	}
	if (ret == 0)
		ret = message_nodes_connect(s, &options, target, nodes, "udaddy");
	if (ret == 0 && options.count)
		ret = transfer(s, target, nodes);
	message_nodes_destroy(s, &options, nodes);
	if (listener)
		rdma_conn_destroy(listener);
	printf("test complete\nreturn status %d\n", ret);
	return ret;
}

const struct mode udaddy_mode = {
	.name = "udaddy", .summary = "udaddy", .parse = udaddy_parse, .run = udaddy_run};
