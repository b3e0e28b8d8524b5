/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Collects the data of the preview from kept frames: the maximum projection of a run and one recent
 * frame. Both are stored as cells of panels (panels.h), so that memory is bounded for any raster.
 *
 * The adding thread (the file writer) must not be delayed, so it neither locks nor waits:
 * - sparse frames: their pixels raise the maximum while the drawing thread has granted pixels;
 *   further frames are skipped and counted;
 * - full images: only a requested one is read, and decompressed if it is a chunk;
 * - raw frames: never read.
 *
 * The drawing thread requests a recent frame. The adding thread fills it with the next frame, and
 * then does not change it until the next request. The maximum is read while it changes.
 */
#ifndef PROJECTION_H
#define PROJECTION_H

#include <stdbool.h>

#include <gk_abi.h>

#include "frame_record.h"
#include "picture/panels.h"

enum projection_state {
	PROJECTION_SHOWN,  /**< the drawing thread owns the recent frame */
	PROJECTION_WANTED, /**< the adding thread owns it */
	PROJECTION_FILLED, /**< the drawing thread owns it and has not drawn it yet */
};

struct projection {
	struct panels panels;
	struct gk_layout layout;
	enum gk_value value;
	uint16_t *cell;	  /**< without a geometry: cell column of each pixel column */
	uint8_t *gap;	  /**< with a geometry: cells that have no pixel; else NULL */
	int16_t *photons; /**< adding thread: of a chunk */
	/** adding thread: buffer that reduces rows of a full image to one row of cells */
	float *line;
	float *maximum; /**< -INFINITY: no value */
	float *shown;
	enum projection_state state; /**< atomic */
	/* Written by the adding thread, read with atomic loads. */
	uint64_t frames; /**< frames in the maximum */
	uint64_t sparse; /**< sparse frames among them */
	/** sparse frames without a grant, and full images that were not requested or are damaged */
	uint64_t skipped;
	uint64_t raw;	/**< raw frames, which are skipped, too */
	uint64_t spent; /**< pixels used of `granted` */
	/* Of the recent frame. Written by the adding thread, read by the drawing thread, while it
	 * owns the frame. */
	uint64_t shown_frame;
	uint32_t shown_count; /**< strong pixels */
	uint64_t granted;     /**< written by the drawing thread: limit of `spent` */
};

/**
 * @param place  places of the pixels; NULL: as in the raster
 * @return 0 or -ENOMEM; call projection_free() in either case
 */
int projection_init(struct projection *p, const struct gk_geometry *geometry,
	const struct gk_layout *layout, enum gk_value value, const struct geometry *place);

void projection_free(struct projection *p);

/**
 * Discard all data and request a frame. The adding thread must not run. The drawing thread may be
 * copying, and must discard its copies.
 */
void projection_reset(struct projection *p);

/**
 * Process a kept frame. Adding thread.
 * @param output  its output slot
 */
void projection_add(struct projection *p, const struct frame_record *record, const uint8_t *output);

/**
 * Grant further pixels to the adding thread. Unused grants are limited to `most`. Drawing thread.
 */
void projection_grant(struct projection *p, uint64_t pixels, uint64_t most);

/** Request another recent frame. Drawing thread, which must own it. */
void projection_want(struct projection *p);

/** Mark the recent frame as drawn. Drawing thread, which must own it. */
void projection_take(struct projection *p);

static inline enum projection_state
projection_state(const struct projection *p)
{
	return __atomic_load_n(&p->state, __ATOMIC_ACQUIRE);
}

/** Copy the data as cells to draw; NaN: no value. Any thread. */
void projection_copy_maximum(const struct projection *p, float *cells);
void projection_copy_shown(const struct projection *p, float *cells);

#endif /* PROJECTION_H */
