/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file State of the builder role, shared by builder.c (frames), builder_run.c (runs and
 * thresholds) and pedestal_tracking.c (pedestal intervals and dark frames). All of it belongs to
 * the builder's lcore, except where a comment says otherwise.
 */
#ifndef BUILDER_PRIVATE_H
#define BUILDER_PRIVATE_H

#include "counter.h"
#include "builder/builder.h"
#include "rx/utc_clock.h"

enum place_state {
	PLACE_READY,	/**< the record can go to egress */
	PLACE_CLOSED,	/**< the frame waits for a gang */
	PLACE_WITH_GANG /**< a gang has the frame's batch */
};

/** A frame's entry in the queue. */
struct place {
	struct frame_record *record;
	uint64_t first_tsc; /**< time of the first packet */
	uint64_t close_tsc;
	uint32_t slot;
	uint32_t batch;
	uint8_t gang;
	uint8_t state;	   /**< enum place_state */
	uint8_t batch_end; /**< this is the last frame of its batch */
	uint8_t veto;
};

/**
 * State of the command mailbox. The posting thread sets POSTED, and sets NONE to cancel. The
 * builder moves POSTED to TAKEN and then to DONE. A cancelled command is therefore never executed.
 */
enum builder_command_state {
	BUILDER_COMMAND_NONE,
	BUILDER_COMMAND_POSTED, /**< the builder has not seen the command */
	BUILDER_COMMAND_TAKEN,	/**< the builder is executing the command */
	BUILDER_COMMAND_DONE	/**< `result` and `effective` are valid */
};

/** Work of a gang that does not process frames. */
struct builder_task {
	uint32_t gang;
	uint32_t batch;
};

struct builder {
	struct builder_config config;
	struct gk_ring rings[GK_GANGS_MAX];
	uint32_t next_gang;
	/** errno: why writes of a NIC are no longer ordered; gangs then get no batches */
	int unordered;

	/* Queue in frame order. The indices run freely: retire <= dispatch <= close. */
	struct place *places;
	uint32_t retire, dispatch, close;

	struct frame_record *records;
	struct frame_record **free_records;
	uint32_t nb_free_records;
	uint32_t *free_outputs;
	uint32_t nb_free_outputs;
	double ns_per_cycle;
	struct utc_clock utc;			     /* converts receive times */
	uint32_t module_expected[FRAME_MODULES_MAX]; /**< expected packets of a module in a frame */

	/*
	 * Vetoes, by index into gk_channel.params. `veto` applies to the next frame given to a
	 * gang.
	 */
	struct builder_veto vetoes[GK_PARAMS_MAX];
	uint64_t veto_from[GK_PARAMS_MAX];
	uint32_t veto;	      /**< in force */
	uint32_t veto_newest; /**< last one accepted, perhaps not in force yet */
	/** veto of the last retired frame: older ones are no longer in use */
	uint32_t veto_retired;

	bool running; /**< a run exists */
	bool ending;  /**< the run is ending: the frame table closes open frames */
	bool aborting;
	bool any_absent;      /**< the last frame lacked all packets of some stream */
	uint32_t packets_min; /**< incomplete frames with fewer packets are dropped */
	uint64_t run_closed;  /**< stats.closed when the run began */
	uint64_t run_late;    /**< stats.late_frames when the run began */
	bool ended;	      /**< other threads read it */
	bool idle;	      /**< other threads read it */

	/* Pedestal intervals and dark frames: see pedestal_tracking.c. */
	struct builder_dark dark;
	uint64_t interval;	 /**< interval of the frames that gangs currently get */
	uint64_t interval_first; /**< first interval of the run, or since the detector restarted */
	uint64_t interval_ready; /**< latest interval whose coefficients are ready */
	bool interval_known;	 /**< a frame of the run has been examined */
	uint32_t coef;		 /**< index into gk_channel.coef of the version in force */
	struct builder_task tasks[GK_DARK_MAX]; /**< UPDATE and CLEAR tasks that gangs have */
	uint32_t nb_tasks;
	bool clearing;		/**< gangs have CLEAR tasks: frames wait */
	uint64_t task_interval; /**< pedestal interval that the pending UPDATE prepares */

	/** the posting thread writes it before `order` becomes POSTED */
	struct builder_command command;
	uint32_t order; /**< enum builder_command_state; atomic */
	int result;
	uint64_t effective;
	uint32_t failed_gang; /**< number of the gang + 1; other threads read it */
	int failed_error;     /**< written before `failed_gang` */
	struct builder_stats stats __rte_cache_aligned;
};

static inline struct place *
place_at(struct builder *b, uint32_t index)
{
	return &b->places[index & (BUILDER_RECORDS - 1)];
}

/** Return the gang with the fewest pending batches, or NULL if none may have another one. */
static inline struct gk_ring *
builder_idlest_gang(struct builder *b)
{
	struct gk_ring *best = NULL;

	for (uint32_t i = 0; i < b->config.gangs; i++) {
		struct gk_ring *r = &b->rings[(b->next_gang + i) % b->config.gangs];

		if (gk_ring_pending(r) < BUILDER_GANG_DEPTH &&
			(best == NULL || gk_ring_pending(r) < gk_ring_pending(best)))
			best = r;
	}
	return best;
}

/** Execute a posted command. */
void builder_carry_out(struct builder *b);

/** Called when no work is left: check whether the run is over or has reached its last frame. */
void builder_check_run(struct builder *b);

/**
 * Put every veto into force that applies from this frame on, and store the version in the record.
 * Also done for frames that no gang gets. The result must not depend on the progress of the gangs,
 * so this is done in frame order.
 */
void builder_set_versions(struct builder *b, struct frame_record *r);

/** Return true if this frame needs a different veto from the one in force. */
bool builder_veto_differs(const struct builder *b, uint64_t frame);

/**
 * Reset at the start of a run: no pedestal interval yet, coefficients of the calibration in force.
 */
void builder_interval_begin(struct builder *b, const struct builder_dark *dark);

/**
 * Return true if the frame can go to a gang, that is, if the coefficients of its pedestal interval
 * are ready. Its pedestal interval is then the one in force.
 */
bool builder_interval_enter(struct builder *b, uint64_t frame);

/** Collect completed tasks and hand out those that are due. @return their number */
uint32_t builder_interval_poll(struct builder *b);

/**
 * Return true if dark frames of this run update the pedestals. Otherwise they are marked at most.
 */
static inline bool
builder_is_tracking(const struct builder *b)
{
	return b->dark.select != BUILDER_DARK_NONE && b->dark.interval_frames != 0;
}

/** Return the number of a frame's pedestal interval. */
static inline uint64_t
builder_interval_of(const struct builder *b, uint64_t frame)
{
	return builder_is_tracking(b) ? frame / b->dark.interval_frames : 0;
}

/** Return true if the run's rule selects this frame as dark. */
bool builder_is_dark(const struct builder *b, const struct frame_record *r);

#endif /* BUILDER_PRIVATE_H */
