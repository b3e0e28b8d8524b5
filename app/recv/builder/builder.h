/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The builder role opens and closes frames, feeds the gangs, and retires results in frame order.
 *
 * Every frame that leaves the frame table gets an entry in a queue in frame order. It keeps the
 * entry until its record goes to the writer. Frames may therefore be processed by any gang. The
 * batch size adapts to the load: an idle gang gets all frames that wait, and frames accumulate
 * while all gangs are busy.
 */
#ifndef BUILDER_H
#define BUILDER_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_ring.h>

#include <gk_abi.h>

#include "frame_record.h"
#include "frames/detector.h"
#include "histogram.h"

struct frame_table;

/** Number of records between builder and writer; a power of two. */
#define BUILDER_RECORDS 4096

/**
 * Batches that a gang may hold: one being processed and one queued. Further frames wait in the
 * builder.
 */
#define BUILDER_GANG_DEPTH 2

/** A stream is silent after this number of consecutive frames without a packet of it. */
#define BUILDER_SILENT_FRAMES 8

/** Statistics of one stream since the run began. Only frames with a packet of any stream count. */
struct builder_stream {
	uint64_t missing;     /**< missing packets of the stream */
	uint64_t frames;      /**< incomplete frames with a packet of it */
	uint64_t absent;      /**< consecutive frames without one, up to the last frame */
	uint64_t absent_from; /**< first of these frames */
	uint64_t silences;    /**< number of times that the stream became silent */
	uint64_t silent_from; /**< first frame of the last silence */
	uint64_t silent_to;   /**< first frame after the last silence; 0: still silent */
	uint64_t seen[2];     /**< bit mask of its packets that were present in incomplete frames */
	uint64_t waited_for;  /**< frames that closed early or were refused because of it */
};

/**
 * Counters. The builder writes them, any thread may read them. They are never reset, except
 * `complete` and `stream`.
 */
struct builder_stats {
	uint64_t verdicts[FRAME_VERDICTS]; /**< retired frames by verdict */
	uint64_t closed;		   /**< frames that left the frame table */
	uint64_t packets;		   /**< packets in closed frames */
	uint64_t incomplete_kept;	   /**< kept frames with missing packets */
	/** missing packets of frames that were neither lost nor refused as a whole */
	uint64_t missing_packets;
	/**
	 * packets of placed events that gangs did not find in memory, and packets that their sender
	 * overwrote while gangs read them; both count as missing
	 */
	uint64_t not_found;
	uint64_t overrun;
	uint64_t timeouts; /**< frames closed by timeout */
	/** frames closed without streams that were behind, because slots were short */
	uint64_t closed_early;
	uint64_t refused_behind;  /**< frames refused while slots waited for streams behind */
	uint64_t status_mismatch; /**< frames with FRAME_FLAG_STATUS */
	/** the last of them: its different status << 32 | status of its first stream */
	uint64_t status_seen;
	uint64_t status_stream;	 /**< ... and the stream that has the different status */
	uint64_t bunch_mismatch; /**< frames with FRAME_FLAG_BUNCH */
	uint64_t bunch_frame;	 /**< the last of them */
	uint64_t bunch_first;	 /**< ... the bunch id of its first stream */
	uint64_t bunch_seen;	 /**< ... the different one */
	uint64_t bunch_streams;	 /**< ... the stream with that << 32 | the first stream */
	uint64_t batches;
	uint64_t batched_frames;
	uint64_t no_output_slot; /**< polls that found no free output slot */
	uint64_t no_record;   /**< polls that found no free record: the writer held all of them */
	uint64_t first_frame; /**< first and last frame closed in this run */
	uint64_t last_frame;
	uint64_t late_frames; /**< frame numbers that occurred in packets and that have no row */
	uint64_t gang_frames[GK_GANGS_MAX];
	uint64_t gang_batches[GK_GANGS_MAX];
	uint64_t module_frames[FRAME_MODULES_MAX]; /**< frames with a packet of the module */
	/** missing packets of the module in frames with at least one packet of it */
	uint64_t module_missing[FRAME_MODULES_MAX];
	uint64_t updates;	 /**< pedestal updates from dark frames */
	uint64_t update_samples; /**< G0 samples in all updates */
	uint32_t update_pixels;	 /**< pixels that the last update changed */
	/** pedestal version that the last update made */
	uint32_t pedestal_version;
	int64_t update_drift_q8; /**< sum of the changes of the last update, in 1/256 ADU */
	uint64_t complete;	 /**< frames of the run with all packets */
	struct builder_stream stream[DETECTOR_STREAMS_MAX];
	/** Time from the frame's first packet to its verdict. */
	struct histogram latency_verdict;
	/** Time from closing the frame (usually on its last packet) to its verdict. */
	struct histogram latency_gang;
};

struct builder_config {
	struct frame_table *table;
	struct gk_channel *channel;
	const struct gk_result *results;  /**< indexed by frame slot */
	const struct gk_details *details; /**< indexed by frame slot; NULL: none are written */
	/** kinds of gk_params.chunks that gangs may get; 0: gk_config.chunks is 0 */
	uint32_t chunks;
	/**
	 * gk_config.nb_profiles: at least one for each frame slot and for each of BUILDER_RECORDS;
	 * 0: no profiles are made
	 */
	uint32_t profiles;
	uint32_t gangs;
	uint32_t batch;	  /**< maximum number of frames in a batch */
	uint32_t outputs; /**< number of output slots */
	/** their numbers, read by builder_create() only; NULL: from 0 on */
	const uint32_t *output;
	struct rte_ring *egress;   /**< SP/SC ring: records to the writer */
	struct rte_ring *returned; /**< SP/SC ring: records that the writer has returned */
	/**
	 * a NIC writes packets to memory of this GPU: order those writes before ringing a doorbell
	 */
	bool gpu_writes;
	int16_t gpu;
	int socket;
};

struct builder;
struct builder_command;

/** @return NULL with rte_errno: ENOMEM, EINVAL (logged) */
struct builder *builder_create(const struct builder_config *config);
void builder_destroy(struct builder *b);

/**
 * Run one iteration. Only the builder's lcore may call this. @return non-zero if it did any work
 */
int builder_poll(void *builder);

/**
 * Post a command; the builder executes it in its next iteration. One thread at a time may post.
 * @return 0; -EBUSY: the previous command has not been executed yet
 */
int builder_post(struct builder *b, const struct builder_command *command);

/**
 * Cancel the posted command. Only the thread that posted it may call this.
 * @return true: the command is never executed; false: it was executed or is being executed
 */
bool builder_cancel(struct builder *b);

/**
 * Return the result of the last command. Any thread.
 * @param effective  VETO: receives the first frame that it applies to; may be NULL
 * @return -EINPROGRESS: not executed yet, or cancelled; 0: done; -EBUSY: refused, because a run
 *   exists where none may exist, or none exists where one must, or too many vetoes are in use at a
 *   time
 */
int builder_result(const struct builder *b, uint64_t *effective);

/** Return true if there is no run and the writer has returned all records. Any thread. */
bool builder_is_idle(const struct builder *b);

/** Return true if the run's last frame has been retired. Any thread. */
bool builder_has_ended(const struct builder *b);

/**
 * Return the failed gang: its number + 1, or 0 if none failed. Any thread. A gang fails when it
 * cannot process a batch, or when its batch cannot be handed over because the GPU no longer orders
 * a NIC's writes.
 * @param error  receives the reason, a negative errno
 */
uint32_t builder_failed_gang(const struct builder *b, int *error);

/** Return a copy of the counters. Each counter is consistent by itself. Any thread. */
struct builder_stats builder_stats(const struct builder *b);

#endif /* BUILDER_H */
