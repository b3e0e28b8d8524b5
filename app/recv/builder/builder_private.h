/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Inside the builder role: state that builder.c (frames), builder_run.c (runs and thresholds)
 * and builder/pedestal_tracking.c (pedestal intervals and dark frames) share. All of it belongs to
 * the builder's lcore, but for what is marked.
 */
#ifndef BUILDER_PRIVATE_H
#define BUILDER_PRIVATE_H

#include "counter.h"
#include "builder/builder.h"
#include "rx/utc_clock.h"

enum place_state {
	PLACE_READY,	/**< its record can go to egress */
	PLACE_CLOSED,	/**< waits for a gang */
	PLACE_WITH_GANG /**< its batch is out */
};

/** A frame's place in the queue. */
struct place {
	struct frame_record *record;
	uint64_t first_tsc; /**< first packet */
	uint64_t close_tsc;
	uint32_t slot;
	uint32_t batch;
	uint8_t gang;
	uint8_t state;	   /**< enum place_state */
	uint8_t batch_end; /**< last frame of its batch */
	uint8_t veto;
};

/** Of the order at hand. Who gives it moves it to POSTED and, giving up, from there to NONE; the
 * builder from POSTED to TAKEN and on: so an order that was given up is never carried out. */
enum builder_order_state {
	BUILDER_ORDER_NONE,
	BUILDER_ORDER_POSTED, /**< the builder has not seen it */
	BUILDER_ORDER_TAKEN,  /**< it carries it out */
	BUILDER_ORDER_DONE    /**< `result` and `effective` are there */
};

/** Work of a gang that is not about frames. */
struct builder_task {
	uint32_t gang;
	uint32_t batch;
};

struct builder {
	struct builder_config config;
	struct gk_ring rings[GK_GANGS_MAX];
	uint32_t next_gang;
	int unordered; /**< why a NIC's writes are not ordered any more: gangs get nothing */

	/* queue in frame order; indices run free: retire <= dispatch <= close */
	struct place *places;
	uint32_t retire, dispatch, close;

	struct frame_record *records;
	struct frame_record **free_records;
	uint32_t nb_free_records;
	uint32_t *free_outputs;
	uint32_t nb_free_outputs;
	double ns_per_cycle;
	struct utc_clock utc;			     /* of receive times */
	uint32_t module_expected[FRAME_MODULES_MAX]; /**< packets of a frame */

	/* the veto that the next frame is given to gangs with, by place in gk_channel.params */
	struct builder_veto vetoes[GK_PARAMS_MAX];
	uint64_t veto_from[GK_PARAMS_MAX];
	uint32_t veto;	       /**< in force */
	uint32_t veto_newest;  /**< last one taken, perhaps not in force yet */
	uint32_t veto_retired; /**< of the last frame retired: older ones are no longer used */

	bool running; /**< there is a run */
	bool ending;  /**< ... and the frame table closes what is open */
	bool aborting;
	bool any_absent;      /**< the last frame had no packet of some stream */
	uint32_t packets_min; /**< frames with less are dropped */
	uint64_t run_closed;  /**< stats.closed when the run began */
	uint64_t run_late;    /**< stats.late_frames likewise */
	bool ended;	      /**< read by others */
	bool idle;	      /**< read by others */

	/* pedestal intervals and dark frames: builder/pedestal_tracking.c */
	struct builder_dark dark;
	uint64_t interval;	 /**< that frames are given to gangs of */
	uint64_t interval_first; /**< first one of the run, or since the detector restarted */
	uint64_t interval_ready; /**< latest one whose coefficients are there */
	bool interval_known;	 /**< a frame of the run has been looked at */
	uint32_t coef;		 /**< index into gk_channel.coef of the version in force */
	struct builder_task tasks[GK_DARK_MAX]; /**< UPDATE and CLEAR that are out */
	uint32_t nb_tasks;
	bool clearing;		/**< the tasks that are out are CLEAR: frames wait */
	uint64_t task_interval; /**< pedestal interval that the UPDATE that is out makes ready */

	struct builder_command command; /**< written by others before `order` is ORDER_POSTED */
	uint32_t order;			/**< enum builder_order_state; atomic */
	int result;
	uint64_t effective;
	uint32_t failed_gang; /**< + 1; read by others */
	int failed_error;     /**< written before it */
	struct builder_stats stats __rte_cache_aligned;
};

static inline struct place *
place_at(struct builder *b, uint32_t index)
{
	return &b->places[index & (BUILDER_RECORDS - 1)];
}

/** The gang with the fewest batches out, if it may have one more. */
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

/** Carry out an order that was given. */
void builder_carry_out(struct builder *b);

/** Nothing is left to do: is the run over, or has it come to its last frame? */
void builder_look_at_run(struct builder *b);

/**
 * Take up every veto that applies from this frame on, and name what is in force for it: of a frame
 * that no gang gets, too. That must not depend on how far gangs are, so it is done in frame order.
 */
void builder_set_versions(struct builder *b, struct frame_record *r);

/** Does another veto apply to this frame than the one in force? */
bool builder_veto_differs(const struct builder *b, uint64_t frame);

/** A run begins: no pedestal interval yet, the calibration's coefficients in force. */
void builder_interval_begin(struct builder *b, const struct builder_dark *dark);

/**
 * May a frame be given to a gang, its pedestal interval's coefficients being there? If so its
 * pedestal interval is the one in force.
 */
bool builder_interval_enter(struct builder *b, uint64_t frame);

/** Collect tasks that are done, hand out those that are due. @return how many */
uint32_t builder_interval_poll(struct builder *b);

/** Do dark frames of this run move the pedestals? Else they are marked at most. */
static inline bool
builder_is_tracking(const struct builder *b)
{
	return b->dark.select != BUILDER_DARK_NONE && b->dark.interval_frames != 0;
}

/** Number of a frame's pedestal interval. */
static inline uint64_t
builder_interval_of(const struct builder *b, uint64_t frame)
{
	return builder_is_tracking(b) ? frame / b->dark.interval_frames : 0;
}

/** Is it a dark frame by the rule of the run? */
bool builder_is_dark(const struct builder *b, const struct frame_record *r);

#endif /* BUILDER_PRIVATE_H */
