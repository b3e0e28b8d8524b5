/* SPDX-License-Identifier: BSD-3-Clause */
#include "perftest/perftest.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_errno.h>

#include "address.h"
#include "perftest/control.h"
#include "perftest/latency.h"
#include "perftest/options.h"
#include "perftest/report.h"
#include "perftest/traffic.h"

#define LAST_ACK_MS	 200  /* three ACK timeouts of perftest */
#define CONNECT_RETRY_MS 2000 /* until perftest listens for its measured queue pairs */

struct run {
	struct session *session;
	const struct target *target;
	const struct perftest_options *options;
	struct perftest_control control;
	struct perftest_traffic traffic;
	/** NULL: the measured queue pairs are RC, too */
	struct rdma_conn *listener, *measured_listener;
	uint16_t mtu;
};

static struct perftest_options options;

static int
listen_for(struct run *r)
{
	if (r->options->type != RDMA_QP_RC) {
		r->measured_listener = endpoint_listen(
			r->session, r->options->type, r->target->port, r->options->qps);
		if (!r->measured_listener)
			return -rte_errno;
	}
	r->listener = endpoint_listen(r->session, RDMA_QP_RC, r->target->port, r->options->qps + 1);
	return r->listener ? 0 : -rte_errno;
}

static int
connect_flow(struct run *r, struct endpoint *e)
{
	struct rdma_conn_attr attr = {.mtu = r->mtu};
	struct rdma_event request;
	int ret;

	if (!r->target->client) {
		ret = session_request(r->session, &request, session_deadline(0));
		return ret < 0 ? ret : endpoint_accept(e, &request);
	}
	return endpoint_connect(e, &r->target->peer, &attr);
}

static int
connect_flows(struct run *r)
{
	const struct perftest_dest blank = {0};
	uint8_t gid[16];
	unsigned int i;
	char why[128];
	int ret = perftest_control_dest(&r->control, &blank, NULL);

	r->session->wait_ms = RTE_MAX(r->session->wait_ms, CONNECT_RETRY_MS);
	for (i = 0; i < r->options->qps && ret == 0; i++) {
		ret = connect_flow(r, &r->traffic.flows[i].e);
		if (ret < 0 && ret != -EINTR)
			fprintf(stderr, "braggline-rdma: measured queue pair %u of %u: %s\n", i + 1,
				r->options->qps,
				endpoint_failure(&r->traffic.flows[i].e, ret, why, sizeof(why)));
	}
	if (ret < 0)
		return ret;
	address_gid(&r->session->info.addr, gid);
	for (i = 0; i < r->options->qps; i++) {
		struct perftest_flow *f = &r->traffic.flows[i];

		perftest_traffic_dest(&r->traffic, f);
		f->ours.out_reads = 1;
		if (r->options->verb == PERFTEST_READ || r->options->verb == PERFTEST_ATOMIC)
			f->ours.out_reads = perftest_out_reads(r->options, r->session);
		memcpy(f->ours.gid, gid, sizeof(gid));
	}
	return perftest_control_dest(&r->control, &blank, NULL);
}

/* Waits until the peer reaches the same point. */
static int
barrier(struct run *r)
{
	return perftest_control_dest(&r->control, &r->traffic.flows[0].ours, NULL);
}

static int
exchange_dests(struct run *r)
{
	unsigned int i;
	int ret = 0;

	for (i = 0; i < r->options->qps && ret == 0; i++)
		ret = perftest_control_dest(
			&r->control, &r->traffic.flows[i].ours, &r->traffic.flows[i].theirs);
	return ret;
}

/* In latency tests: whether both sides send. */
static bool
both_send(const struct perftest_options *o)
{
	return o->verb == PERFTEST_SEND || o->verb == PERFTEST_WRITE;
}

static int
introduce(struct run *r)
{
	bool two_way = r->options->latency || r->options->verb == PERFTEST_SEND;
	unsigned int i;
	int ret;

	r->mtu = r->options->mtu ? r->options->mtu : r->session->info.mtu;
	ret = perftest_control_hello(&r->control, &r->mtu);
	if (ret == 0 && r->options->type == RDMA_QP_UD && perftest_size_max(r->options) > r->mtu &&
		!r->options->all) {
		fprintf(stderr,
			"braggline-rdma: -s %" PRIu64 " with UD, expected %u, the MTU, or less\n",
			r->options->size, r->mtu);
		return -EMSGSIZE;
	}
	if (ret == 0)
		ret = perftest_traffic_create(&r->traffic, r->session, r->options, r->mtu);
	if (ret == 0)
		ret = connect_flows(r);
	if (ret == 0)
		ret = exchange_dests(r);
	/* the order of perftest: a destination that is sent twice replaces the first one */
	if (ret == 0 && two_way)
		ret = barrier(r);
	if (ret == 0)
		ret = exchange_dests(r);
	if (ret == 0 && !two_way)
		ret = barrier(r);
	if (ret < 0)
		return ret;
	perftest_print_setup(r->options, r->session, r->mtu, r->target->client);
	for (i = 0; i < r->options->qps; i++)
		perftest_print_dest("local", &r->traffic.flows[i].ours);
	for (i = 0; i < r->options->qps; i++)
		perftest_print_dest("remote", &r->traffic.flows[i].theirs);
	/* a server has no results of latencies that only the client measures */
	if (!r->options->latency || r->target->client || both_send(r->options))
		perftest_print_header(r->options);
	return 0;
}

/* Runs one message size of SEND, in which both sides take part. */
static int
send_size(struct run *r, uint64_t size)
{
	struct perftest_report report;
	int ret = 0;

	if (!r->target->client)
		ret = perftest_traffic_receives(&r->traffic);
	if (ret == 0)
		ret = barrier(r);
	if (ret == 0)
		ret = r->target->client ? perftest_traffic_run(&r->traffic, size, &report)
					: perftest_traffic_sink(&r->traffic, size, &report);
	if (ret == 0)
		perftest_print_report(r->options, &report);
	if (ret == 0 && r->options->all)
		ret = barrier(r);
	return ret;
}

static int
run_send(struct run *r)
{
	uint64_t last = perftest_size_max(r->options), size;
	int ret = 0;

	if (r->options->type == RDMA_QP_UD)
		last = RTE_MIN(last, (uint64_t)r->mtu);
	if (!r->options->all)
		return send_size(r, r->options->size);
	for (size = 2; size <= last && ret == 0; size *= 2)
		ret = send_size(r, size);
	return ret;
}

/* WRITE, READ, atomics: the client does the work and sends its report to the server afterwards. */
static int
run_one_sided(struct run *r)
{
	uint64_t last = perftest_size_max(r->options), size;
	struct perftest_report ours = {0}, theirs;
	int ret = 0;

	if (r->target->client) {
		size = r->options->all ? 2 : r->options->size;
		for (; size <= last && ret == 0; size = size ? 2 * size : last + 1) {
			ret = perftest_traffic_run(&r->traffic, size, &ours);
			if (ret == 0)
				perftest_print_report(r->options, &ours);
		}
	}
	if (ret == 0)
		ret = barrier(r);
	if (ret == 0)
		ret = perftest_control_report(&r->control, &ours, &theirs);
	if (ret == 0 && !r->target->client)
		perftest_print_report(r->options, &theirs);
	return ret;
}

static int
run_latency(struct run *r)
{
	struct perftest_latency latency = {0};
	int ret = 0;

	if (r->options->verb == PERFTEST_SEND)
		ret = perftest_traffic_receives(&r->traffic);
	if (ret == 0)
		ret = barrier(r);
	if (ret == 0 && (both_send(r->options) || r->target->client)) {
		ret = perftest_latency_run(
			&r->traffic, r->target->client, r->options->size, &latency);
		if (ret == 0)
			perftest_print_latency(r->options, &latency);
		free(latency.us);
	}
	return ret;
}

static int
run_mode(struct session *s, const struct target *target)
{
	struct run r = {.session = s, .target = target, .options = &options};
	int ret = 0;

	if (!target->client) {
		ret = listen_for(&r);
		if (ret == 0)
			perftest_print_waiting();
	}
	if (ret == 0)
		ret = perftest_control_open(&r.control, s, target);
	if (ret == 0)
		ret = introduce(&r);
	if (ret == 0 && options.latency)
		ret = run_latency(&r);
	else if (ret == 0 && options.verb == PERFTEST_SEND)
		ret = run_send(&r);
	else if (ret == 0)
		ret = run_one_sided(&r);
	if (ret == -ECONNRESET)
		fprintf(stderr, "braggline-rdma: %s\n", session_error(ret));
	/* final barrier: neither side disconnects before the other has finished; ib_write_lat has
	 * none */
	if (ret == 0 && !(options.latency && options.verb == PERFTEST_WRITE))
		ret = barrier(&r);
	if (ret == 0)
		perftest_print_line();
	/* the server sends the last message; if our acknowledgement is lost, it retransmits */
	if (ret == 0 && target->client)
		session_linger(s, LAST_ACK_MS);
	perftest_traffic_destroy(&r.traffic);
	perftest_control_close(&r.control);
	if (r.measured_listener)
		rdma_conn_destroy(r.measured_listener);
	if (r.listener)
		rdma_conn_destroy(r.listener);
	return ret;
}

#define PERFTEST_MODE(id, mode_verb, lat, mode_name, peer)                                  \
	static enum options_result parse_##id(int argc, char **argv, struct target *target) \
	{                                                                                   \
		options = (struct perftest_options){.verb = mode_verb, .latency = lat};     \
		return perftest_options_parse(argc, argv, &options, target);                \
	}                                                                                   \
	const struct mode perftest_##id = {                                                 \
		.name = mode_name, .summary = peer, .parse = parse_##id, .run = run_mode}

PERFTEST_MODE(write_bw, PERFTEST_WRITE, false, "write_bw", "ib_write_bw -R");
PERFTEST_MODE(read_bw, PERFTEST_READ, false, "read_bw", "ib_read_bw -R");
PERFTEST_MODE(send_bw, PERFTEST_SEND, false, "send_bw", "ib_send_bw -R");
PERFTEST_MODE(atomic_bw, PERFTEST_ATOMIC, false, "atomic_bw", "ib_atomic_bw -R");
PERFTEST_MODE(write_lat, PERFTEST_WRITE, true, "write_lat", "ib_write_lat -R");
PERFTEST_MODE(read_lat, PERFTEST_READ, true, "read_lat", "ib_read_lat -R");
PERFTEST_MODE(send_lat, PERFTEST_SEND, true, "send_lat", "ib_send_lat -R");
PERFTEST_MODE(atomic_lat, PERFTEST_ATOMIC, true, "atomic_lat", "ib_atomic_lat -R");
