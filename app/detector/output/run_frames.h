/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file Raw frames of a run that was written to Arrow files, with what its packets said: to be sent
 * again to a receiver that judges them again. Packets that were missing stay missing; frames
 * without a raw image are none of it.
 */
#ifndef RUN_FRAMES_H
#define RUN_FRAMES_H

#include <stddef.h>
#include <stdint.h>

#include "wire/jungfrau_packets.h"

struct run_frames;

/**
 * Find all raw frames of files, or of all `.arrow` files of directories, in the order of their
 * numbers.
 * @param modules  of the detector; what the files say must agree
 * @param frames   out: how many there are
 * @return 0 or -errno, reported: -EINVAL: another detector, a frame that is there twice, no frame;
 *   -EBADMSG: a damaged file
 */
int run_frames_open(struct run_frames **run, char *const *paths, int nb_paths, uint32_t modules,
	uint64_t *frames);

/**
 * Read the next frame.
 * @param raw      [modules][pixels]
 * @param header   out
 * @param missing  out: bit per packet, module by module, those of a module by rows; 1 = missing.
 *   Until the next call
 * @return 0 or -errno, reported
 */
int run_frames_read(struct run_frames *run, uint16_t *raw, struct jungfrau_frame_header *header,
	const uint8_t **missing);

/** NULL is allowed. */
void run_frames_close(struct run_frames *run);

#endif /* RUN_FRAMES_H */
