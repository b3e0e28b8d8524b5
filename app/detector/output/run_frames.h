/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Raw frames of a run that was written to Arrow files, with the header values of their packets.
 * They can be sent again to a receiver, which applies its veto again. Packets that were missing
 * stay missing. Frames without a raw image are not included.
 */
#ifndef RUN_FRAMES_H
#define RUN_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "wire/jungfrau_packets.h"

struct run_frames;

/**
 * Find all raw frames in files, or in all `.arrow` files of directories, ordered by number.
 * @param modules  modules of the detector; must match the metadata of the files
 * @param frames   out: number of frames
 * @return 0 or -errno, reported: -EINVAL: another detector, a duplicate frame, no frame; -EBADMSG:
 *   a damaged file
 */
int run_frames_open(struct run_frames **run, char *const *paths, int nb_paths, uint32_t modules,
	uint64_t *frames);

/**
 * Read the next frame.
 * @param raw      [modules][pixels]
 * @param header   out
 * @param missing  out: one bit per packet, module by module, within a module by row; 1 = missing.
 *   Valid until the next call
 * @return 0 or -errno, reported
 */
int run_frames_read(struct run_frames *run, uint16_t *raw, struct jungfrau_frame_header *header,
	const uint8_t **missing);

/** NULL is allowed. */
void run_frames_close(struct run_frames *run);

#endif /* RUN_FRAMES_H */
