/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/latency.h"

#include <errno.h>
#include <stdlib.h>

#include <rte_atomic.h>
#include <rte_cycles.h>

static int
send_one(struct perftest_traffic *t, uint64_t i, uint64_t size)
{
	struct perftest_flow *f = &t->flows[0];
	struct rdma_send_wr wr;
	struct rdma_sge sge;

	/* always the same address: the peer polls one byte */
	perftest_traffic_wr(t, f, 0, size, &wr, &sge);
	wr.wr_id = i + 1;
	wr.flags |= RDMA_SEND_SIGNALED;
	if (t->options->verb == PERFTEST_WRITE && size)
		t->buffer.addr[f->offset + size - 1] = (uint8_t)(i + 1);
	return endpoint_send(&f->e, &wr);
}

static int
wait_sent(struct perftest_traffic *t, uint64_t end)
{
	struct rdma_wc wc;

	return endpoint_wait(&t->flows[0].e, t->flows[0].e.send_cq, &wc, end);
}

/* Waits for the peer's i-th message. */
static int
wait_received(struct perftest_traffic *t, uint64_t i, uint64_t size, uint64_t end)
{
	struct perftest_flow *f = &t->flows[0];
	struct rdma_wc wc;
	int ret = 0;

	if (t->options->verb == PERFTEST_SEND) {
		ret = endpoint_wait(&f->e, f->e.recv_cq, &wc, end);
		return ret < 0 ? ret : perftest_traffic_receive(t, f, wc.wr_id);
	}
	if (size) {
		const volatile uint8_t *last = &t->buffer.addr[f->offset + t->half + size - 1];

		while (*last != (uint8_t)(i + 1) && ret == 0)
			ret = f->e.down ? -ECONNRESET : session_poll(t->session, end);
	}
	return ret;
}

/* Sends one message and, for SEND and WRITE, waits for one back. */
static int
exchange(struct perftest_traffic *t, bool client, uint64_t i, uint64_t size, uint64_t end)
{
	enum perftest_verb verb = t->options->verb;
	/* as in perftest: the client starts with SEND, but the server with WRITE */
	bool first = client == (verb == PERFTEST_SEND);
	int ret;

	if (verb == PERFTEST_READ || verb == PERFTEST_ATOMIC) {
		ret = send_one(t, i, size);
		return ret < 0 ? ret : wait_sent(t, end);
	}
	if (!first) {
		ret = wait_received(t, i, size, end);
		if (ret < 0)
			return ret;
	}
	ret = send_one(t, i, size);
	if (ret == 0)
		ret = wait_sent(t, end);
	if (ret == 0 && first)
		ret = wait_received(t, i, size, end);
	return ret;
}

int
perftest_latency_run(
	struct perftest_traffic *t, bool client, uint64_t size, struct perftest_latency *latency)
{
	const struct perftest_options *o = t->options;
	bool half = o->verb == PERFTEST_SEND || o->verb == PERFTEST_WRITE;
	uint64_t limit = o->duration ? UINT64_MAX : o->iterations, room = 0, i, before;
	uint64_t end = session_deadline(o->duration * 1000);
	double tick = 1e6 / (double)rte_get_tsc_hz() / (half ? 2 : 1);
	int ret = 0;

	*latency = (struct perftest_latency){.size = size};
	before = rte_get_tsc_cycles();
	for (i = 0; i < limit && ret == 0; i++) {
		uint64_t now;

		if (i == room) {
			double *more;

			room = room ? 2 * room : o->iterations;
			more = realloc(latency->us, room * sizeof(*more));
			if (!more)
				return -ENOMEM;
			latency->us = more;
			before = rte_get_tsc_cycles();
		}
		ret = exchange(t, client, i, size, end);
		if (ret < 0)
			break;
		now = rte_get_tsc_cycles();
		/* the first exchange includes the wait until the peer is ready */
		if (i)
			latency->us[latency->samples++] = (double)(now - before) * tick;
		before = now;
	}
	latency->iterations = i;
	return ret == -ETIMEDOUT && o->duration ? 0 : ret;
}
