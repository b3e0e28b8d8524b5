/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * How the builder treats a run's frames: which frames it keeps, and which frames are dark.
 */
#ifndef BUILDER_VETO_H
#define BUILDER_VETO_H

#include <stdbool.h>
#include <stdint.h>

#include <gk_abi.h>

/**
 * Selection of the frames to keep. It changes at a frame number; `params.version` identifies it in
 * the table `frames`.
 */
struct builder_veto {
	struct gk_params params;
	struct gk_peak_params peak; /**< options of the search for peaks */
	bool dry_run;		    /**< keep every frame and only record the verdict */
	/** store prescaled frames as raw words, not as hits of that frame number */
	bool prescale_raw;
	uint64_t prescale; /**< keep frames whose number is a multiple of this; 0: none */
};

/** How dark frames are identified. They are taken without beam and show the pedestals. */
enum builder_dark_select {
	BUILDER_DARK_NONE,
	BUILDER_DARK_STATUS, /**< status word & mask == value (external input, event code) */
	BUILDER_DARK_BUNCH,  /**< bunch id modulo every == phase */
	BUILDER_DARK_FRAME,  /**< frame number modulo every == phase */
	BUILDER_DARK_RUN,    /**< every frame: a dark run, in which the veto finds no hits */
};

/** Selection of dark frames and length of a pedestal interval. */
struct builder_dark {
	enum builder_dark_select select;
	uint32_t mask;
	uint32_t value;
	uint64_t every;
	uint64_t phase;
	/** Frame numbers in a pedestal interval; 0: dark frames are only marked. */
	uint64_t interval_frames;
};

#endif /* BUILDER_VETO_H */
