/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What the preview shows, picked up from kept frames as they pass: the maximum projection of a run
 * and one recent frame, both as cells of panels (panels.h), so that memory is bounded whatever the
 * raster.
 *
 * The adding thread (the file writer) must not be held up, so it neither locks nor waits:
 *  - sparse frames: their pixels raise the maximum, as long as the drawing thread has granted
 *    pixels; frames beyond that are skipped, counted;
 *  - full images: only one that is wanted is looked at;
 *  - raw frames: never.
 * The recent frame goes to and fro: the drawing thread wants one, the adding thread fills it with
 * the next frame that comes, and leaves it alone until another one is wanted. The maximum is read
 * while it grows.
 */
#ifndef PROJECTION_H
#define PROJECTION_H

#include <stdbool.h>

#include <gk_abi.h>

#include "frame_record.h"
#include "picture/panels.h"

enum projection_state {
	PROJECTION_SHOWN,  /**< the drawing thread has the recent frame */
	PROJECTION_WANTED, /**< the adding thread has it */
	PROJECTION_FILLED, /**< the drawing thread has it, and has not drawn it yet */
};

struct projection {
	struct panels panels;
	struct gk_layout layout;
	enum gk_value value;
	uint16_t *cell; /**< of a pixel's column */
	float *line;	/**< adding thread: rows of a full image that become one of cells */
	float *maximum; /**< -INFINITY: nothing */
	float *shown;
	enum projection_state state; /**< atomic */
	/* by the adding thread, read with atomic loads */
	uint64_t frames;  /**< in the maximum */
	uint64_t sparse;  /**< of them */
	uint64_t skipped; /**< for want of a grant, or full images that were not wanted */
	uint64_t raw;	  /**< skipped, too */
	uint64_t spent;	  /**< pixels */
	uint64_t shown_frame;
	uint32_t shown_count; /**< strong pixel count */
	uint64_t granted;     /**< by the drawing thread: `spent` may get so far */
};

/** @return 0 or -ENOMEM; projection_free() in either case */
int projection_init(struct projection *p, const struct gk_geometry *geometry,
	const struct gk_layout *layout, enum gk_value value);

void projection_free(struct projection *p);

/** Forget everything; a frame is wanted. Nobody adds. */
void projection_reset(struct projection *p);

/**
 * Look at a kept frame. Adding thread.
 * @param output  its output slot
 */
void projection_add(struct projection *p, const struct frame_record *record, const uint8_t *output);

/** Let so many pixels more be looked at, `most` in advance. Drawing thread. */
void projection_grant(struct projection *p, uint64_t pixels, uint64_t most);

/** Ask for another frame to show. Drawing thread, which has it. */
void projection_want(struct projection *p);

/** The frame to show is drawn. Drawing thread, which has it. */
void projection_take(struct projection *p);

static inline enum projection_state
projection_state(const struct projection *p)
{
	return __atomic_load_n(&p->state, __ATOMIC_ACQUIRE);
}

/** Copy what is there as cells to draw: NaN = no value. Any thread. */
void projection_copy_maximum(const struct projection *p, float *cells);
void projection_copy_shown(const struct projection *p, float *cells);

#endif /* PROJECTION_H */
