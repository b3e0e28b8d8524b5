/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The frames of a run, and the limits of a frame table. No other header of the table is needed to
 * configure a run.
 */
#ifndef FRAME_RUN_H
#define FRAME_RUN_H

#include <stdbool.h>
#include <stdint.h>

#define FRAME_RX_MAX	16   /**< RX roles */
#define FRAME_SLOTS_MAX 4096 /**< frames that are open or being processed */

/** Frame numbers are 48 bits in a tag (4,460 years at 2 kHz); larger ones are outliers. */
#define FRAME_NUMBER_MAX ((UINT64_C(1) << 48) - 2)

/** Which frames a run takes. */
struct frame_run {
	bool first_known;     /**< true: the run begins at first_frame; false: it is found */
	uint64_t first_frame; /**< detector's number; unused unless first_known */
	uint64_t nb_frames;   /**< frames of the run from its first one, 0 = no end */
	/**
	 * Detectors may distribute frames over several receivers, round-robin. This receiver takes
	 * the frames whose number is offset + a multiple of stride; 0 or 1 = all frames.
	 */
	uint64_t stride;
	uint64_t offset; /**< < stride */
};

#endif /* FRAME_RUN_H */
