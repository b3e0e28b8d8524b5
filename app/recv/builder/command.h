/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Commands to the builder, see builder_post().
 */
#ifndef BUILDER_COMMAND_H
#define BUILDER_COMMAND_H

#include <stdint.h>

#include "builder/veto.h"
#include "frames/frame_run.h"

enum builder_command_type {
	BUILDER_BEGIN, /**< begin a run */
	BUILDER_END,   /**< end the run: close open frames, process and retire them */
	BUILDER_ABORT, /**< end the run, but discard frames that no gang has started */
	BUILDER_VETO,  /**< use another veto from a frame number on */
};

struct builder_command {
	enum builder_command_type order;
	struct frame_run run;	  /**< BEGIN */
	uint32_t packets_min;	  /**< BEGIN: incomplete frames with fewer packets are dropped */
	struct builder_dark dark; /**< BEGIN */
	struct builder_veto veto; /**< BEGIN, VETO */
	/** VETO: first frame that it applies to, unless that frame has already passed */
	uint64_t from_frame;
};

#endif /* BUILDER_COMMAND_H */
