/* SPDX-License-Identifier: BSD-3-Clause */
#include "cm/rping.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_common.h>
#include <rte_errno.h>

#include "address.h"
#include "buffer.h"
#include "endpoint.h"

/*
 * One ping: the client SENDs the address of its text; the server READs it and SENDs "go ahead". The
 * client SENDs the address of its receive buffer; the server WRITEs the text there and SENDs "go
 * ahead". "Go ahead" messages have the same 16 bytes, whose content is ignored.
 */

#define RPING_PORT  7174
#define RPING_DEPTH 16
#define RECEIVES    4

struct rping_info {
	uint64_t addr;
	uint32_t rkey;
	uint32_t size;
};

static_assert(sizeof(struct rping_info) == 16, "wire format");

static struct rping_options {
	bool server, client, verbose, validate, persistent;
	const char *address;
	uint16_t port;
	uint32_t size;
	uint64_t count;
} options;

#define AT(member) offsetof(struct rping_options, member)

/* A connection and its memory: text to send, received text, messages. */
struct rping {
	struct session *session;
	struct endpoint e;
	struct buffer start, sink, messages;
};

static enum options_result
rping_parse(int argc, char **argv, struct target *target)
{
	const struct option_row rows[] = {
		{'s', NULL, NULL, OPTION_FLAG, AT(server), 0, 0, "be the server"},
		{'c', NULL, NULL, OPTION_FLAG, AT(client), 0, 0, "be the client"},
		{'a', NULL, "ADDRESS", OPTION_TEXT, AT(address), 0, 0,
			"address of the server (server: that of the device)"},
		{'p', NULL, "PORT", OPTION_U16, AT(port), 1, UINT16_MAX, "service (7174)"},
		{'S', NULL, "BYTES", OPTION_U32, AT(size), 16, 1 << 26, "size of a ping (64)"},
		{'C', NULL, "N", OPTION_U64, AT(count), 1, UINT64_MAX,
			"disconnect after N pings (until interrupted)"},
		{'v', NULL, NULL, OPTION_FLAG, AT(verbose), 0, 0, "print ping data"},
		{'V', NULL, NULL, OPTION_FLAG, AT(validate), 0, 0, "compare ping data"},
		{'P', NULL, NULL, OPTION_FLAG, AT(persistent), 0, 0,
			"serve one client after the other, until interrupted"},
		{'d', NULL, NULL, OPTION_IGNORED_FLAG, 0, 0, 0, NULL},
		{'q', NULL, NULL, OPTION_IGNORED_FLAG, 0, 0, 0, NULL},
	};
	enum options_result result;

	options = (struct rping_options){.port = RPING_PORT, .size = 64};
	result = target_parse(argc, argv, rows, RTE_DIM(rows), &options, target,
		"--device DEVICE -s [OPTION]...\n"
		"       braggline-rdma [EAL options] -- rping --device DEVICE -c -a ADDRESS "
		"[OPTION]...",
		NULL, 0);
	if (result != OPTIONS_OK)
		return result;
	if (options.server == options.client) {
		fprintf(stderr, "braggline-rdma rping: found %s, expected either -s or -c\n",
			options.server ? "-s and -c" : "neither -s nor -c");
		return OPTIONS_WRONG;
	}
	if (options.client &&
		(!options.address ||
			address_parse(options.address, options.port, &target->peer) < 0)) {
		fprintf(stderr, "braggline-rdma rping: -a: found '%s', expected an IP address\n",
			options.address ? options.address : "");
		return OPTIONS_WRONG;
	}
	target->client = options.client;
	target->port = options.port;
	return OPTIONS_OK;
}

static int
post_receive(struct rping *r, uint64_t slot)
{
	struct rdma_sge sge = buffer_sge(
		&r->messages, slot * sizeof(struct rping_info), sizeof(struct rping_info));

	return endpoint_recv(&r->e, slot, &sge);
}

static void
rping_destroy(struct rping *r)
{
	endpoint_destroy(&r->e);
	buffer_destroy(r->session, &r->messages);
	buffer_destroy(r->session, &r->sink);
	buffer_destroy(r->session, &r->start);
}

static int
rping_create(struct rping *r, struct session *s)
{
	struct rdma_qp_attr attr = {
		.type = RDMA_QP_RC,
		.max_send_wr = RPING_DEPTH,
		.max_recv_wr = RECEIVES,
		.max_rd_atom = 1,
		.retry_count = UINT8_MAX,
		.rnr_retry = UINT8_MAX,
		.signal_all = true,
	};
	uint32_t access =
		RDMA_ACCESS_LOCAL_WRITE | RDMA_ACCESS_REMOTE_WRITE | RDMA_ACCESS_REMOTE_READ;
	unsigned int i;
	int ret;

	memset(r, 0, sizeof(*r));
	r->session = s;
	ret = endpoint_create(s, &r->e, &attr);
	if (ret == 0)
		ret = buffer_create(s, &r->messages, (RECEIVES + 1) * sizeof(struct rping_info),
			RDMA_ACCESS_LOCAL_WRITE);
	if (ret == 0)
		ret = buffer_create(s, &r->sink, options.size, access);
	if (ret == 0)
		ret = buffer_create(s, &r->start, options.size, access);
	for (i = 0; i < RECEIVES && ret == 0; i++)
		ret = post_receive(r, i);
	if (ret < 0)
		rping_destroy(r);
	return ret;
}

/* Posts one request and waits for its completion. */
static int
post_and_wait(struct rping *r, struct rdma_send_wr *wr)
{
	struct rdma_wc wc;
	int ret = endpoint_send(&r->e, wr);

	return ret < 0 ? ret : endpoint_wait(&r->e, r->e.send_cq, &wc, session_deadline(0));
}

/* Sends the address of a buffer; `b` NULL: "go ahead". */
static int
send_address(struct rping *r, const struct buffer *b)
{
	size_t at = RECEIVES * sizeof(struct rping_info);
	struct rping_info info = {0};
	struct rdma_sge sge = buffer_sge(&r->messages, at, sizeof(info));
	struct rdma_send_wr wr = {.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND};

	if (b) {
		info.addr = rte_cpu_to_be_64((uintptr_t)b->addr);
		info.rkey = rte_cpu_to_be_32(rdma_mr_rkey(b->mr));
		info.size = rte_cpu_to_be_32((uint32_t)b->size);
	}
	memcpy(r->messages.addr + at, &info, sizeof(info));
	return post_and_wait(r, &wr);
}

/* Receives a message. @param info NULL: any message means "go ahead" */
static int
receive_message(struct rping *r, struct rping_info *info)
{
	struct rping_info got;
	struct rdma_wc wc;
	int ret = endpoint_wait(&r->e, r->e.recv_cq, &wc, session_deadline(0));

	if (ret < 0)
		return ret;
	if (wc.byte_len != sizeof(got)) {
		fprintf(stderr, "braggline-rdma rping: message of %u bytes, expected %zu\n",
			wc.byte_len, sizeof(got));
		return -EPROTO;
	}
	memcpy(&got, r->messages.addr + wc.wr_id * sizeof(got), sizeof(got));
	if (info) {
		info->addr = rte_be_to_cpu_64(got.addr);
		info->rkey = rte_be_to_cpu_32(got.rkey);
		info->size = rte_be_to_cpu_32(got.size);
	}
	return post_receive(r, wc.wr_id);
}

/* Writes a number, then letters that start at a different one each time, then a NUL. */
static void
write_ping(struct buffer *b, uint64_t ping)
{
	char text[32];
	size_t i = (size_t)snprintf(text, sizeof(text), "rdma-ping-%" PRIu64 ": ", ping);
	size_t n = RTE_MIN(i, b->size);

	memcpy(b->addr, text, n);
	for (i = n; i < b->size; i++)
		b->addr[i] = (uint8_t)('A' + (i - n + ping) % ('z' - 'A' + 1));
	b->addr[b->size - 1] = '\0';
}

static int
client_ping(struct rping *r, uint64_t ping)
{
	int ret;

	write_ping(&r->start, ping);
	memset(r->sink.addr, 0, r->sink.size);
	ret = send_address(r, &r->start);
	if (ret == 0)
		ret = receive_message(r, NULL);
	if (ret == 0)
		ret = send_address(r, &r->sink);
	if (ret == 0)
		ret = receive_message(r, NULL);
	if (ret < 0)
		return ret;
	if (options.validate && memcmp(r->start.addr, r->sink.addr, r->sink.size) != 0) {
		fprintf(stderr, "data mismatch!\n");
		return -EBADMSG;
	}
	if (options.verbose)
		printf("ping data: %s\n", r->sink.addr);
	return 0;
}

static int
client(struct session *s, const struct target *target)
{
	struct rping r;
	uint64_t ping;
	char why[128];
	int ret = rping_create(&r, s);

	if (ret < 0)
		return ret;
	ret = endpoint_connect(&r.e, &target->peer, NULL);
	if (ret < 0 && ret != -EINTR)
		fprintf(stderr, "braggline-rdma rping: cannot connect: %s\n",
			endpoint_failure(&r.e, ret, why, sizeof(why)));
	for (ping = 0; ret == 0 && (!options.count || ping < options.count); ping++) {
		ret = client_ping(&r, ping);
		if (ret == -ECONNRESET)
			fprintf(stderr, "client DISCONNECT EVENT...\n");
	}
	rping_destroy(&r);
	return ret == -EINTR && !options.count ? 0 : ret;
}

/* READs from or WRITEs to the address that the client sent. */
static int
serve_one(struct rping *r, enum rdma_op op)
{
	struct rping_info info;
	struct rdma_send_wr wr;
	struct rdma_sge sge;
	int ret = receive_message(r, &info);

	if (ret < 0)
		return ret;
	if (info.size > r->sink.size) {
		fprintf(stderr,
			"braggline-rdma rping: the client has messages of %u bytes, "
			"expected %u, the value of -S\n",
			info.size, options.size);
		return -EMSGSIZE;
	}
	sge = buffer_sge(&r->sink, 0, info.size);
	wr = (struct rdma_send_wr){.sg = &sge,
		.nb_sge = 1,
		.op = (uint8_t)op,
		.remote_addr = info.addr,
		.rkey = info.rkey};
	ret = post_and_wait(r, &wr);
	if (ret == 0 && op == RDMA_OP_READ && options.verbose)
		printf("server ping data: %.*s\n", (int)info.size, r->sink.addr);
	return ret < 0 ? ret : send_address(r, NULL);
}

static int
serve(struct rping *r)
{
	uint64_t ping;
	int ret = 0;

	for (ping = 0; ret == 0 && (!options.count || ping < options.count); ping++) {
		ret = serve_one(r, RDMA_OP_READ);
		if (ret == 0)
			ret = serve_one(r, RDMA_OP_WRITE);
	}
	if (ret != -ECONNRESET)
		return ret;
	fprintf(stderr, "server DISCONNECT EVENT...\n");
	/* the client decides when the test is over */
	return options.count && ping <= options.count ? ret : 0;
}

static int
server(struct session *s, const struct target *target)
{
	struct rdma_conn *listener = endpoint_listen(s, RDMA_QP_RC, target->port, 8);
	struct rdma_event request;
	struct rping r;
	char why[128];
	int ret;

	if (!listener)
		return -rte_errno;
	do {
		ret = session_request(s, &request, session_deadline(0));
		if (ret < 0)
			break;
		ret = rping_create(&r, s);
		if (ret < 0) {
			rdma_conn_reject(request.conn, NULL, 0);
			break;
		}
		ret = endpoint_accept(&r.e, &request);
		if (ret == 0)
			ret = serve(&r);
		else
			fprintf(stderr, "braggline-rdma rping: accept: %s\n",
				endpoint_failure(&r.e, ret, why, sizeof(why)));
		rping_destroy(&r);
	} while (options.persistent && ret != -EINTR && ret != -ENODEV);
	rdma_conn_destroy(listener);
	return ret == -EINTR && options.persistent ? 0 : ret;
}

static int
rping_run(struct session *s, const struct target *target)
{
	return target->client ? client(s, target) : server(s, target);
}

const struct mode rping_mode = {
	.name = "rping", .summary = "rping", .parse = rping_parse, .run = rping_run};
