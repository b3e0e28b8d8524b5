/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Log messages of multicast streams: states, failures and their remedies, refused fragments, a
 * sender that does not answer, a group whose packets do not reach this host.
 *
 * Only the control lcore calls these functions.
 */
#ifndef RX_MULTICAST_LOG_H
#define RX_MULTICAST_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include <rdma_stream.h>

#include "frames/detector.h"

struct rx_messages;

/** What was logged about a stream. */
struct multicast_stream_log {
	enum rdma_stream_state state;
	uint64_t run, refused, refused_at;
	/* when a packet of the group came last, or the stream was joined */
	struct {
		uint64_t at; /**< TSC */
		uint64_t joins, came;
		uint64_t repaired; /**< then, or at the last warning */
		bool heard;	   /**< one has arrived since the join */
		uint64_t seen;	   /**< repaired at the last look */
		uint64_t warn_at;  /**< TSC; not before */
	} group;
};

struct multicast_log {
	uint64_t joining_since; /**< TSC; 0: no stream is joining */
	bool joining_logged;
	uint32_t joining, first; /**< streams of this round, and the first of them */
	struct multicast_stream_log stream[DETECTOR_STREAMS_MAX];
};

/** Names of enum rdma_stream_state. */
extern const char *const multicast_state_names[];

/** Begin a round over all streams. */
void multicast_log_begin(struct multicast_log *log);

/** Log changes of a stream's state. @param refused  fragments, by enum rx_fragment_cause */
void multicast_log_stream(struct multicast_log *log, const struct rx_messages *m, uint32_t stream,
	const struct rdma_stream_receiver_info *info, const uint64_t *refused, uint64_t now);

/** Log, once until all streams have joined, that the sender does not admit this member. */
void multicast_log_end(struct multicast_log *log, const struct rx_messages *m, uint64_t now);

#endif
