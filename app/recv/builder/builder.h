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
#include "frames/frame_table.h"

/** Records between builder and egress; a power of two. */
#define BUILDER_RECORDS 4096

/** Batches that a gang may have before frames wait for it: one in work, one behind. */
#define BUILDER_GANG_DEPTH 2

/** Buckets of a latency histogram: bucket i counts times below 2^i us, the last all others. */
#define BUILDER_LATENCY_BUCKETS 24

/** A stream is silent when so many frames in a row have no packet of it. */
#define BUILDER_SILENT_FRAMES 8

/** What a stream has sent since the run began, of frames that any stream has sent a packet of. */
struct builder_stream {
	uint64_t missing;     /**< its packets that are missing */
	uint64_t frames;      /**< incomplete frames with a packet of it */
	uint64_t absent;      /**< frames without one, in a row up to the last frame, */
	uint64_t absent_from; /**< ... and the first of these */
	uint64_t silences;    /**< times that it became silent */
	uint64_t silent_from; /**< first frame of the last silence, */
	uint64_t silent_to;   /**< ... and the first one after it; 0: it is silent */
	uint64_t seen[2];     /**< bits of its packets that have come in incomplete frames */
};

/** Counters; written by the builder, read by anybody. Never reset, but for `complete`, `stream`. */
struct builder_stats {
	uint64_t verdicts[FRAME_VERDICTS]; /**< frames retired, by their one fate */
	uint64_t closed;		   /**< frames that left the frame table */
	uint64_t packets;		   /**< found in frames that were closed */
	uint64_t incomplete_kept;	   /**< kept frames with missing packets */
	uint64_t missing_packets; /**< of frames that were not lost or refused altogether */
	uint64_t timeouts;	  /**< frames closed by time */
	uint64_t odd_status;	  /**< frames with FRAME_FLAG_STATUS */
	uint64_t batches;
	uint64_t batched_frames;
	uint64_t waits_outputs; /**< rounds in which no output slot was free */
	uint64_t waits_records; /**< rounds in which egress had all records */
	uint64_t first_frame;	/**< first and last frame closed in this run */
	uint64_t last_frame;
	uint64_t late_frames; /**< numbers that packets named, and without a row */
	uint64_t gang_frames[GK_GANGS_MAX];
	uint64_t gang_batches[GK_GANGS_MAX];
	uint64_t module_frames[FRAME_MODULES_MAX];  /**< frames with a packet of the module */
	uint64_t module_missing[FRAME_MODULES_MAX]; /**< its packets missing in frames with any */
	uint64_t updates;			    /**< of the pedestals, by dark frames */
	uint64_t update_samples;		    /**< G0 samples of all of them */
	uint32_t update_pixels;			    /**< that the last one moved */
	uint32_t pedestal_version;		    /**< that the last one made */
	int64_t update_drift_q8; /**< sum of what the last one moved, 1/256 ADU */
	uint64_t complete;	 /**< frames of the run with all their packets */
	struct builder_stream stream[DETECTOR_STREAMS_MAX];
	/** From the frame's first packet to its verdict. */
	uint64_t latency_verdict[BUILDER_LATENCY_BUCKETS];
	/** From closing the frame, which is when its last packet is in, to its verdict. */
	uint64_t latency_gang[BUILDER_LATENCY_BUCKETS];
};

struct builder_config {
	struct frame_table *table;
	struct gk_channel *channel;
	const struct gk_result *results; /**< by frame slot */
	uint32_t gangs;
	uint32_t batch;		   /**< frames of a batch, at most */
	uint32_t outputs;	   /**< output slots */
	struct rte_ring *egress;   /**< SP/SC: records to egress */
	struct rte_ring *returned; /**< SP/SC: records that egress is done with */
	bool gpu_writes; /**< a NIC writes packets to memory of this GPU: order that before bells */
	int16_t gpu;
	int socket;
};

/** What is kept. Changes at a frame number; `params.version` names it in `frames`. */
struct builder_veto {
	struct gk_params params;
	bool dry_run;	      /**< keep everything, only mark */
	bool audit_raw;	      /**< audited frames as raw words, not hits of that number */
	uint64_t audit_every; /**< a frame whose number divides by it is kept; 0 = none */
};

/** Which frames are dark: no beam, so that they show the pedestals. */
enum builder_dark_select {
	BUILDER_DARK_NONE,
	BUILDER_DARK_STATUS, /**< status word & mask == value (external input, event code) */
	BUILDER_DARK_BUNCH,  /**< bunch id modulo every == phase */
	BUILDER_DARK_FRAME,  /**< frame number modulo every == phase */
};

/** Dark frames, and how long what they show is gathered. */
struct builder_dark {
	enum builder_dark_select select;
	uint32_t mask;
	uint32_t value;
	uint64_t every;
	uint64_t phase;
	/** Frame numbers of a pedestal interval; 0: dark frames are marked only. */
	uint64_t interval_frames;
};

enum builder_order {
	BUILDER_BEGIN, /**< a run */
	BUILDER_END,   /**< the run: close what is open, process it, retire it */
	BUILDER_ABORT, /**< the same, but throw away what no gang has begun with */
	BUILDER_VETO,  /**< take another veto from a frame on */
};

struct builder_command {
	enum builder_order order;
	struct frame_run run;	  /**< BEGIN */
	uint32_t packets_min;	  /**< BEGIN: incomplete frames with less packets are dropped */
	struct builder_dark dark; /**< BEGIN */
	struct builder_veto veto; /**< BEGIN, VETO */
	uint64_t from_frame;	  /**< VETO: first frame it applies to, if not passed already */
};

struct builder;

/** @return NULL with rte_errno: ENOMEM, EINVAL (logged) */
struct builder *builder_create(const struct builder_config *config);
void builder_destroy(struct builder *b);

/** One round; its own lcore only. @return non-zero if anything was done */
int builder_poll(void *builder);

/**
 * Give an order; it is carried out in the builder's next round.
 * One thread at a time. @return 0; -EBUSY: the order before is not carried out yet
 */
int builder_post(struct builder *b, const struct builder_command *command);

/** Give an order up. Who gave it. @return true: it is never carried out; false: it has been, or is
 * being carried out just now */
bool builder_cancel(struct builder *b);

/**
 * What became of the last order. Any thread.
 * @param effective  VETO: receives the frame it applies from; may be NULL
 * @return -EINPROGRESS: not carried out yet, or cancelled; 0: done; -EBUSY: refused: a run where
 *   there must be none or the other way round, or too many vetoes in force at the same time
 */
int builder_result(const struct builder *b, uint64_t *effective);

/** No run, and all records back from egress. Any thread. */
bool builder_is_idle(const struct builder *b);

/** Has the run's last frame been retired? Any thread. */
bool builder_has_ended(const struct builder *b);

/**
 * A gang gave up, or its batch cannot be handed over as the GPU does not order what a NIC has
 * written: number of it + 1, and why (negative errno); 0 = none. Any thread.
 */
uint32_t builder_failed_gang(const struct builder *b, int *error);

/** A copy; each counter is consistent by itself. Any thread. */
struct builder_stats builder_stats(const struct builder *b);

#endif /* BUILDER_H */
