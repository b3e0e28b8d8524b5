/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

/* perftest posts one receive; there are never two messages in flight. */
#define RECEIVES 4

/* The slot of the send follows those of the receives. */
static uint8_t *
slot(struct perftest_control *c, unsigned int i)
{
	return c->buffer.addr + i * PERFTEST_MESSAGE_BYTES;
}

static int
post_receive(struct perftest_control *c, unsigned int i)
{
	struct rdma_sge sge =
		buffer_sge(&c->buffer, i * PERFTEST_MESSAGE_BYTES, PERFTEST_MESSAGE_BYTES);

	return endpoint_recv(&c->e, i, &sge);
}

static int
send_message(struct perftest_control *c, size_t length)
{
	struct rdma_sge sge =
		buffer_sge(&c->buffer, RECEIVES * PERFTEST_MESSAGE_BYTES, (uint32_t)length);
	struct rdma_send_wr wr = {
		.sg = &sge, .nb_sge = 1, .op = RDMA_OP_SEND, .flags = RDMA_SEND_SIGNALED};
	struct rdma_wc wc;
	int ret = endpoint_send(&c->e, &wr);

	return ret < 0 ? ret : endpoint_wait(&c->e, c->e.send_cq, &wc, session_deadline(0));
}

/* Copies the message, because its receive is posted again at once. */
static int
receive_message(struct perftest_control *c, uint8_t *m, size_t length)
{
	struct rdma_wc wc;
	int ret = endpoint_wait(&c->e, c->e.recv_cq, &wc, session_deadline(0));

	if (ret < 0)
		return ret;
	if (wc.byte_len != length) {
		fprintf(stderr,
			"braggline-rdma: the peer's message has %u bytes, expected %zu: its "
			"perftest is not version " PERFTEST_VERSION "\n",
			wc.byte_len, length);
		return -EPROTO;
	}
	memcpy(m, slot(c, (unsigned int)wc.wr_id), length);
	return post_receive(c, (unsigned int)wc.wr_id);
}

/* Sends the message in the send's slot and receives the reply into `m`. */
static int
exchange(struct perftest_control *c, size_t length, uint8_t *m)
{
	int ret;

	if (c->client) {
		ret = send_message(c, length);
		return ret < 0 ? ret : receive_message(c, m, length);
	}
	ret = receive_message(c, m, length);
	return ret < 0 ? ret : send_message(c, length);
}

static int
complain(int ret, const char *what)
{
	/* other errors were printed where they occurred */
	if (ret == -ECONNRESET || ret == -ENODEV || ret == -ETIMEDOUT)
		fprintf(stderr, "braggline-rdma: exchange of %s failed: %s\n", what,
			session_error(ret));
	return ret;
}

static int
open_link(struct perftest_control *c, struct session *s, const struct target *target)
{
	struct rdma_event request;
	char why[128];
	int ret;

	if (target->client) {
		ret = endpoint_connect(&c->e, &target->peer, NULL);
	} else {
		ret = session_request(s, &request, session_deadline(0));
		if (ret == 0)
			ret = endpoint_accept(&c->e, &request);
	}
	if (ret < 0 && ret != -EINTR)
		fprintf(stderr, "braggline-rdma: cannot connect: %s\n",
			endpoint_failure(&c->e, ret, why, sizeof(why)));
	return ret;
}

int
perftest_control_open(struct perftest_control *c, struct session *s, const struct target *target)
{
	struct rdma_qp_attr attr = {
		.type = RDMA_QP_RC,
		.max_send_wr = 2,
		.max_recv_wr = RECEIVES,
		.retry_count = UINT8_MAX,
		.rnr_retry = UINT8_MAX,
	};
	unsigned int i;
	int ret;

	memset(c, 0, sizeof(*c));
	c->client = target->client;
	ret = endpoint_create(s, &c->e, &attr);
	if (ret < 0)
		return ret;
	ret = buffer_create(
		s, &c->buffer, (RECEIVES + 1) * PERFTEST_MESSAGE_BYTES, RDMA_ACCESS_LOCAL_WRITE);
	for (i = 0; i < RECEIVES && ret == 0; i++)
		ret = post_receive(c, i);
	if (ret == 0)
		ret = open_link(c, s, target);
	if (ret < 0)
		perftest_control_close(c);
	return ret;
}

void
perftest_control_close(struct perftest_control *c)
{
	struct session *s = c->e.session;

	if (!s)
		return;
	endpoint_destroy(&c->e);
	buffer_destroy(s, &c->buffer);
}

int
perftest_control_hello(struct perftest_control *c, uint16_t *mtu)
{
	uint8_t *out = slot(c, RECEIVES), in[PERFTEST_MESSAGE_BYTES];
	uint16_t theirs;
	int ret;

	ret = exchange(c, perftest_put_version(out), in);
	if (ret < 0)
		return complain(ret, "versions");
	if (perftest_get_version(in, c->peer_version) < 0) {
		fprintf(stderr,
			"braggline-rdma: the peer sent no version, expected text as "
			"'" PERFTEST_VERSION "'; check that it is perftest\n");
		return -EPROTO;
	}
	ret = exchange(c, perftest_put_word(out, PERFTEST_CYCLE_BUFFER), in);
	/* our buffer is never smaller than the peer's in practice; each side uses its own size */
	if (ret == 0)
		ret = exchange(c, perftest_put_word(out, PERFTEST_CACHE_LINE), in);
	if (ret < 0)
		return complain(ret, "buffer sizes");
	ret = exchange(c, perftest_put_mtu(out, *mtu), in);
	if (ret < 0)
		return complain(ret, "MTUs");
	theirs = perftest_get_mtu(in);
	if (!theirs) {
		fprintf(stderr,
			"braggline-rdma: the peer's MTU is 0x%02x%02x, expected a digit from 1 "
			"to 5\n",
			in[0], in[1]);
		return -EPROTO;
	}
	*mtu = RTE_MIN(*mtu, theirs);
	return 0;
}

int
perftest_control_dest(
	struct perftest_control *c, const struct perftest_dest *ours, struct perftest_dest *theirs)
{
	uint8_t in[PERFTEST_MESSAGE_BYTES];
	int ret = exchange(c, perftest_put_dest(slot(c, RECEIVES), ours), in);

	if (ret == 0 && theirs)
		perftest_get_dest(in, theirs);
	return complain(ret, "destinations");
}

int
perftest_control_report(struct perftest_control *c, const struct perftest_report *ours,
	struct perftest_report *theirs)
{
	uint8_t in[PERFTEST_MESSAGE_BYTES];
	unsigned int field;
	int ret = 0;

	memset(theirs, 0, sizeof(*theirs));
	for (field = 0; field < PERFTEST_REPORT_FIELDS && ret == 0; field++) {
		ret = exchange(c, perftest_put_report(slot(c, RECEIVES), ours, field), in);
		if (ret == 0)
			perftest_get_report(in, theirs, field);
	}
	return complain(ret, "reports");
}
