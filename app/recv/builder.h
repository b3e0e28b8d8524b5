/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The builder role: opens and closes frames, feeds the gangs, retires results in frame order.
 *
 * Every frame that leaves the frame table takes a place in a queue in frame order and keeps it
 * until its record goes to egress, whatever gang worked on it. Batches grow by themselves: a gang
 * that is idle gets what is there, one that is busy leaves frames to gather.
 */
#ifndef BUILDER_H
#define BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#include <gk_ring.h>

#include "frame_record.h"
#include "frame_table.h"

/** Records between builder and egress; a power of two. */
#define BUILDER_RECORDS 4096

/** Batches that a gang may have before frames wait for it: one in work, one behind. */
#define BUILDER_GANG_DEPTH 2

/** Counters; written by the builder, read by anybody. */
struct builder_stats {
	uint64_t verdicts[FRAME_VERDICTS]; /**< frames retired, by their one fate */
	uint64_t closed;		   /**< frames that left the frame table */
	uint64_t packets;		   /**< found in frames that were closed */
	uint64_t incomplete_kept;	   /**< kept frames with missing packets */
	uint64_t missing_packets; /**< of frames that were not lost or refused altogether */
	uint64_t timeouts;	  /**< frames closed by time */
	uint64_t batches;
	uint64_t batched_frames;
	uint64_t waits_outputs; /**< rounds in which no output slot was free */
	uint64_t waits_records; /**< rounds in which egress had all records */
	uint64_t first_frame;	/**< first and last frame closed */
	uint64_t last_frame;
};

struct builder_config {
	struct frame_table *table;
	struct gk_channel *channel;
	const struct gk_result *results; /**< by frame slot */
	uint32_t gangs;
	uint32_t batch;	  /**< frames of a batch, at most */
	uint32_t outputs; /**< output slots */
	bool drop_incomplete;
	bool dry_run;
	uint64_t audit_every; /**< a rejected frame whose number divides by it is kept; 0 = none */
	bool audit_raw;
	struct rte_ring *egress;   /**< SP/SC: records to egress */
	struct rte_ring *returned; /**< SP/SC: records that egress is done with */
	int64_t clock_ns;	   /**< UTC in ns at TSC clock_tsc */
	uint64_t clock_tsc;
	int socket;
};

struct builder;

/** @return NULL with rte_errno: ENOMEM, EINVAL (logged) */
struct builder *builder_create(const struct builder_config *config);
void builder_destroy(struct builder *b);

/** One round; its own lcore only. @return non-zero if anything was done */
int builder_poll(void *builder);

/** Ask the builder to close all that is open and finish; RX roles have stopped. Any thread. */
void builder_stop(struct builder *b);

/** After builder_stop(): have all records gone to egress and come back? Any thread. */
bool builder_finished(const struct builder *b);

/** Has the run's last frame been retired? Any thread. */
bool builder_ended(const struct builder *b);

/** A gang gave up: number of it + 1, and why (negative errno); 0 = none. Any thread. */
uint32_t builder_failed_gang(const struct builder *b, int *error);

const struct builder_stats *builder_stats(const struct builder *b);

#endif /* BUILDER_H */
