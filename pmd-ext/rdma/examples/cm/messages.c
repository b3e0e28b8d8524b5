/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm/messages.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <rte_common.h>

#include "address.h"

#define AT(member) offsetof(struct message_options, member)

static const struct option_row common_rows[] = {
	{'c', NULL, "N", OPTION_U32, AT(connections), 1, 1024, "connections (1)"},
	{'C', NULL, "N", OPTION_U32, AT(count), 0, 16384, "messages each way (10)"},
	{'S', NULL, "BYTES", OPTION_U32, AT(size), 0, 1 << 23, "size of a message (100)"},
	{'b', NULL, "ADDRESS", OPTION_IGNORED, 0, 0, 0, NULL},
};

static const struct option_row connect_rows[] = {
	{'s', NULL, "ADDRESS", OPTION_TEXT, AT(server), 0, 0, "be the client of this server"},
	{'p', NULL, "PORT", OPTION_U16, AT(port), 1, UINT16_MAX, "service (the original's)"},
};

static const struct option_row group_rows[] = {
	{'m', NULL, "ADDRESS", OPTION_TEXT, AT(server), 0, 0, "the multicast group"},
	{'s', NULL, NULL, OPTION_FLAG, AT(sender), 0, 0, "send (receive)"},
};

enum options_result
message_options_parse(int argc, char **argv, enum message_mode mode, struct message_options *o,
	struct target *target)
{
	struct option_row rows[RTE_DIM(common_rows) + 2];
	const struct option_row *own = mode == MESSAGE_MCKEY ? group_rows : connect_rows;
	enum options_result result;
	unsigned int i;

	for (i = 0; i < RTE_DIM(common_rows); i++)
		rows[i] = common_rows[i];
	rows[i] = own[0];
	rows[i + 1] = own[1];
	*o = (struct message_options){.connections = 1,
		.count = 10,
		.size = 100,
		.port = mode == MESSAGE_CMATOSE ? 7471 : 7174};
	result = target_parse(argc, argv, rows, RTE_DIM(rows), o, target,
		mode == MESSAGE_MCKEY ? "--device DEVICE -m ADDRESS [OPTION]..."
				      : "--device DEVICE [OPTION]...",
		NULL, 0);
	if (result != OPTIONS_OK)
		return result;
	if (!o->size)
		o->count = 0;
	if (mode == MESSAGE_MCKEY && !o->server) {
		fprintf(stderr, "braggline-rdma mckey: -m is required\n");
		return OPTIONS_WRONG;
	}
	if (o->server && address_parse(o->server, o->port, &target->peer) < 0) {
		fprintf(stderr, "braggline-rdma %s: found '%s', expected an IP address\n", argv[0],
			o->server);
		return OPTIONS_WRONG;
	}
	target->client = o->server != NULL;
	target->port = o->port;
	return OPTIONS_OK;
}

static size_t
room(const struct message_options *o, enum rdma_qp_type type)
{
	return o->size + (type == RDMA_QP_UD ? RDMA_GRH_BYTES : 0);
}

static int
post_receives(struct message_node *node, const struct message_options *o, enum rdma_qp_type type)
{
	/* all messages are identical and overwrite each other */
	struct rdma_sge sge = buffer_sge(&node->buffer, 0, (uint32_t)room(o, type));
	unsigned int i;
	int ret = 0;

	for (i = 0; i < o->count && ret == 0; i++)
		ret = endpoint_recv(&node->e, i, &sge);
	return ret;
}

struct message_node *
message_nodes_create(
	struct session *s, const struct message_options *o, enum rdma_qp_type type, bool receive)
{
	struct rdma_qp_attr attr = {
		.type = type,
		.max_send_wr = RTE_MAX(o->count, 1u),
		.max_recv_wr = RTE_MAX(o->count, 1u),
		.max_rd_atom = 1,
		.retry_count = 5,
		.rnr_retry = UINT8_MAX,
		.signal_all = true,
	};
	struct message_node *nodes;
	unsigned int i;
	int ret = 0;

	if (type == RDMA_QP_UD && o->size > s->info.mtu) {
		fprintf(stderr, "braggline-rdma: -S %u, expected at most the MTU, %u\n", o->size,
			s->info.mtu);
		return NULL;
	}
	nodes = calloc(o->connections, sizeof(*nodes));
	for (i = 0; nodes && i < o->connections && ret == 0; i++) {
		ret = endpoint_create(s, &nodes[i].e, &attr);
		if (ret == 0)
			ret = buffer_create(s, &nodes[i].buffer, RTE_MAX(room(o, type), 1u),
				RDMA_ACCESS_LOCAL_WRITE);
		if (ret == 0 && receive)
			ret = post_receives(&nodes[i], o, type);
	}
	if (ret < 0) {
		message_nodes_destroy(s, o, nodes);
		return NULL;
	}
	return nodes;
}

void
message_nodes_destroy(
	struct session *s, const struct message_options *o, struct message_node *nodes)
{
	unsigned int i;

	for (i = 0; i < o->connections; i++)
		endpoint_destroy(&nodes[i].e);
	for (i = 0; i < o->connections; i++)
		buffer_destroy(s, &nodes[i].buffer);
	free(nodes);
}

int
message_nodes_connect(struct session *s, const struct message_options *o,
	const struct target *target, struct message_node *nodes, const char *name)
{
	struct rdma_event request;
	unsigned int i;
	char why[128];
	int ret = 0;

	for (i = 0; i < o->connections && ret == 0; i++) {
		if (target->client) {
			ret = endpoint_connect(&nodes[i].e, &target->peer, NULL);
		} else {
			ret = session_request(s, &request, session_deadline(0));
			if (ret == 0)
				ret = endpoint_accept(&nodes[i].e, &request);
		}
		if (ret < 0 && ret != -EINTR)
			printf("%s: connection %u: %s\n", name, i,
				endpoint_failure(&nodes[i].e, ret, why, sizeof(why)));
	}
	return ret;
}

int
message_send(struct message_node *node, const struct message_options *o, struct rdma_ah *ah,
	uint32_t qpn, uint32_t qkey)
{
	struct rdma_sge sge = buffer_sge(&node->buffer, 0, o->size);
	struct rdma_send_wr wr = {.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND};
	unsigned int i;
	struct rdma_wc wc;
	int ret = 0;

	if (ah) {
		/* librdmacm's programs take the queue pair to reply to from the immediate data */
		wr.op = RDMA_OP_SEND_IMM;
		wr.imm = node->e.qpn;
		wr.ud.ah = ah;
		wr.ud.remote_qpn = qpn;
		wr.ud.remote_qkey = qkey;
	}
	for (i = 0; i < o->count && ret == 0; i++)
		ret = endpoint_send(&node->e, &wr);
	for (i = 0; i < o->count && ret == 0; i++)
		ret = endpoint_wait(&node->e, node->e.send_cq, &wc, session_deadline(0));
	return ret;
}

int
message_receive(struct message_node *node, const struct message_options *o, struct rdma_wc *last)
{
	struct rdma_wc wc;
	unsigned int i;
	int ret = 0;

	for (i = 0; i < o->count && ret == 0; i++)
		ret = endpoint_wait(
			&node->e, node->e.recv_cq, last ? last : &wc, session_deadline(0));
	return ret;
}
