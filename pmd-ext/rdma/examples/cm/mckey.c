/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm/mckey.h"

#include <errno.h>
#include <stdio.h>

#include "address.h"
#include "cm/messages.h"

/* Time for switches and the receiver to process the join, as in librdmacm's mckey. */
#define JOIN_DELAY_MS 3000

static struct message_options options;

static enum options_result
mckey_parse(int argc, char **argv, struct target *target)
{
	return message_options_parse(argc, argv, MESSAGE_MCKEY, &options, target);
}

static int
join_all(const struct target *target, struct message_node *nodes)
{
	char why[128], group[RDMA_ADDRESS_LEN];
	const struct sockaddr *peer = (const struct sockaddr *)&target->peer;
	unsigned int i;
	int ret = 0;

	printf("mckey: joining\n");
	for (i = 0; i < options.connections && ret == 0; i++) {
		ret = endpoint_join(&nodes[i].e, &target->peer);
		if (ret == 0)
			printf("mckey: joined dgid: ::ffff:%s mlid 0x0 sl 0\n",
				rdma_address_text(peer, group));
		else if (ret != -EINTR)
			printf("mckey: joining %s: %s\n", rdma_address_text(peer, group),
				endpoint_failure(&nodes[i].e, ret, why, sizeof(why)));
	}
	return ret;
}

static int
transfer(struct message_node *nodes)
{
	unsigned int i;
	int ret = 0;

	printf("%s data transfers\n", options.sender ? "initiating" : "receiving");
	for (i = 0; i < options.connections && ret == 0; i++)
		ret = options.sender ? message_send(&nodes[i], &options, nodes[i].e.ah,
					       nodes[i].e.remote_qpn, nodes[i].e.remote_qkey)
				     : message_receive(&nodes[i], &options, NULL);
	if (ret == 0)
		printf("data transfers complete\n");
	return ret;
}

static int
mckey_run(struct session *s, const struct target *target)
{
	struct message_node *nodes;
	int ret;

	nodes = message_nodes_create(s, &options, RDMA_QP_UD, !options.sender);
	if (!nodes)
		return -ENOMEM;
	printf("mckey: starting %s\n", options.sender ? "client" : "server");
	ret = join_all(target, nodes);
	if (ret == 0 && options.sender)
		session_linger(s, JOIN_DELAY_MS);
	if (ret == 0 && options.count)
		ret = transfer(nodes);
	message_nodes_destroy(s, &options, nodes);
	printf("test complete\nreturn status %d\n", ret);
	return ret;
}

const struct mode mckey_mode = {
	.name = "mckey", .summary = "mckey", .parse = mckey_parse, .run = mckey_run};
