/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files of a dark run: maps, and for each pedestal map a small INI file, its *sidecar*, which
 * describes the map. A sidecar has the name of the map with the extension `.ini`:
 *
 *   [pedestal]
 *   detector = jungfrau         format (detector_ops.name)
 *   modules = 8                 number of modules of the detector
 *   module = 3                  module of the map, from 0
 *   module_id = 1234            as in packets; absent if unknown
 *   stage = 0                   gain stage
 *   run = dark_0042
 *   date = 2025-03-01T12:00:00Z
 *   time = 1740830400           the same, seconds since 1970
 *   frames = 1000               number of frames used
 *   masked_frames = 0           pixels read out, masked because there were too few frames
 *   masked_gain = 12            pixels masked because of too many samples of another gain
 *   masked_rms = 3              pixels masked because of too much noise
 *   digest = crc32c:89abcdef    of the map's bytes
 *
 * A file appears complete or not at all (durable_file.h). Any thread that may wait for a disk.
 */
#ifndef PEDESTAL_FILE_H
#define PEDESTAL_FILE_H

#include <stddef.h>
#include <stdint.h>

#define PEDESTAL_NO_MODULE_ID UINT32_MAX
/** Maximum size of a text, with its zero. */
#define PEDESTAL_TEXT_MAX 128

struct pedestal_sidecar {
	char detector[PEDESTAL_TEXT_MAX];
	char run[PEDESTAL_TEXT_MAX];
	uint32_t modules;
	uint32_t module;
	uint32_t module_id; /**< or PEDESTAL_NO_MODULE_ID */
	uint32_t stage;
	int64_t time;	 /**< seconds since 1970 (UTC) */
	uint64_t frames; /**< used for this module and stage */
	uint64_t masked_frames;
	uint64_t masked_gain;
	uint64_t masked_rms;
	uint32_t digest; /**< CRC-32C of the map */
};

/**
 * Write a file, which appears complete or not at all. An older file of this name is replaced.
 * @return 0 or -errno (logged with the path)
 */
int pedestal_file_write(const char *path, const void *data, size_t bytes);

/** Build the path of a map's sidecar. @return 0 or -ENAMETOOLONG */
int pedestal_sidecar_path(char *path, size_t size, const char *map);

/** Write the sidecar of a map. @return 0 or -errno (logged) */
int pedestal_sidecar_write(const char *map, const struct pedestal_sidecar *s);

/**
 * Read the sidecar of a map.
 * @return 0; -ENOENT: there is none (not logged); -EINVAL: invalid content; -errno (logged)
 */
int pedestal_sidecar_read(const char *map, struct pedestal_sidecar *s);

#endif /* PEDESTAL_FILE_H */
