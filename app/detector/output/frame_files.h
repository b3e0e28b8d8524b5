/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files of raw frames: u16 [modules][512][1024], little-endian, one frame after the other.
 */
#ifndef FRAME_FILES_H
#define FRAME_FILES_H

#include <stdint.h>
#include <stdio.h>

struct frame_files {
	char *const *paths;
	int nb_paths;
	int next; /**< index of the next path to open */
	FILE *stream;
	uint64_t frame_bytes;
};

/**
 * Check that all files exist and contain complete frames.
 * @param frames  total number of frames in all files
 * @return 0 or -errno, reported
 */
int frame_files_open(struct frame_files *files, char *const *paths, int nb_paths, uint32_t modules,
	uint64_t *frames);

/** Read the next frame. @return 0 or -errno, reported */
int frame_files_read(struct frame_files *files, uint16_t *raw);

void frame_files_close(struct frame_files *files);

#endif /* FRAME_FILES_H */
