/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef PERFTEST_TRAFFIC_H
#define PERFTEST_TRAFFIC_H

/**
 * @file
 * The measured queue pairs and their traffic.
 */

#include "buffer.h"
#include "endpoint.h"
#include "perftest/options.h"
#include "perftest/wire.h"

/** One measured queue pair. */
struct perftest_flow {
	struct endpoint e;
	struct perftest_dest ours, theirs;
	/** of its part of the buffer: the first half is ours, the second the peer's */
	size_t offset;
	uint64_t posted, completed;
};

struct perftest_traffic {
	struct session *session;
	const struct perftest_options *options;
	struct perftest_flow *flows;
	struct buffer buffer;
	size_t half; /**< size of a half in bytes */
	/**
	 * TSC of the messages of all flows, in chronological order; NULL: the peak is not computed
	 */
	uint64_t *posted_at, *completed_at;
	uint64_t nb_posted, nb_completed;
};

/** Create queue pairs and memory. @return 0; negative errno, printed to stderr */
int perftest_traffic_create(struct perftest_traffic *t, struct session *s,
	const struct perftest_options *o, uint16_t mtu);

void perftest_traffic_destroy(struct perftest_traffic *t);

/** Set the destination of a connected flow, which the peer needs. */
void perftest_traffic_dest(const struct perftest_traffic *t, struct perftest_flow *f);

/** Post all receives, for messages up to the largest of the run. */
int perftest_traffic_receives(struct perftest_traffic *t);

/** Run SENDs, WRITEs, READs or atomics with messages of one size. */
int perftest_traffic_run(struct perftest_traffic *t, uint64_t size, struct perftest_report *report);

/** Receive messages of one size. Without a reliable connection, silence may end the test. */
int perftest_traffic_sink(
	struct perftest_traffic *t, uint64_t size, struct perftest_report *report);

/** Fill in the flow's i-th request, of `size` bytes. */
void perftest_traffic_wr(struct perftest_traffic *t, struct perftest_flow *f, uint64_t i,
	uint64_t size, struct rdma_send_wr *wr, struct rdma_sge *sge);

/** Post a flow's next receive, for slot `slot`. */
int perftest_traffic_receive(struct perftest_traffic *t, struct perftest_flow *f, uint64_t slot);

#endif
