/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Source of frames: the model, files, or a recorded run.
 */
#ifndef FRAME_SOURCE_H
#define FRAME_SOURCE_H

#include "detector_options.h"
#include "output/frame_files.h"
#include "output/run_frames.h"

/** Truth of a drawn frame; zeros for a frame from a file. */
struct frame_truth {
	bool hit, dark;
	uint32_t peaks, strays;
	struct jungfrau_pixel_counts pixel_counts;
};

struct frame_source {
	const struct detector_options *options;
	struct geometry *geometry;    /**< of --geometry; NULL: none */
	struct jungfrau_model *model; /**< NULL: frames are read from files */
	/** number of frames in the files, or as requested by the options */
	uint64_t frames;
	struct frame_files files;
	struct run_frames *run; /**< frames of a recorded run; NULL: none */
	struct jungfrau_frame frame;
	/* of the frame of a run that was read last */
	struct jungfrau_frame_header header;
	const uint8_t *missing; /**< missing packets, see run_frames_read() */
};

/** @return 0 or -errno, reported */
int frame_source_open(struct frame_source *source, const struct detector_options *options);

/**
 * Draw the frame of a pulse, or read the next one.
 * @param raw   [modules][pixels]
 * @param truth NULL: not needed, which saves counting the pixels
 * @return 0 or -errno, reported
 */
int frame_source_make(
	struct frame_source *source, uint64_t pulse, uint16_t *raw, struct frame_truth *truth);

/** Does nothing if it is not open. */
void frame_source_close(struct frame_source *source);

#endif /* FRAME_SOURCE_H */
