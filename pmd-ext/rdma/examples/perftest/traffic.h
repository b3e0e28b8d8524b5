/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_TRAFFIC_H
#define PERFTEST_TRAFFIC_H

/**
 * @file
 * The measured queue pairs and what goes over them.
 */

#include "buffer.h"
#include "endpoint.h"
#include "perftest/options.h"
#include "perftest/wire.h"

/** One measured queue pair. */
struct perftest_flow {
	struct endpoint e;
	struct perftest_dest ours, theirs;
	size_t offset; /**< of its part of the buffer: first half ours, second the peer's */
	uint64_t posted, completed;
};

struct perftest_traffic {
	struct session *session;
	const struct perftest_options *options;
	struct perftest_flow *flows;
	struct buffer buffer;
	size_t half; /**< bytes */
	/** TSC of messages of all flows, in the order of time; NULL: no peak is looked for */
	uint64_t *posted_at, *completed_at;
	uint64_t nb_posted, nb_completed;
};

/** Queue pairs and memory. @return 0; negative errno, said on stderr */
int perftest_traffic_create(struct perftest_traffic *t, struct session *s,
	const struct perftest_options *o, uint16_t mtu);

void perftest_traffic_destroy(struct perftest_traffic *t);

/** What the peer is to know of a flow, once it is connected. */
void perftest_traffic_dest(const struct perftest_traffic *t, struct perftest_flow *f);

/** Post all receives, for messages up to the run's largest. */
int perftest_traffic_receives(struct perftest_traffic *t);

/** Send, write, read or do atomics, messages of one size. */
int perftest_traffic_run(struct perftest_traffic *t, uint64_t size, struct perftest_report *report);

/** Be sent to. Without a reliable connection the end may be silence. */
int perftest_traffic_sink(
	struct perftest_traffic *t, uint64_t size, struct perftest_report *report);

/** Fill in a request for `size` bytes, the i-th of the flow. */
void perftest_traffic_wr(struct perftest_traffic *t, struct perftest_flow *f, uint64_t i,
	uint64_t size, struct rdma_send_wr *wr, struct rdma_sge *sge);

/** Post a flow's next receive, of the i-th slot. */
int perftest_traffic_receive(struct perftest_traffic *t, struct perftest_flow *f, uint64_t slot);

#endif
