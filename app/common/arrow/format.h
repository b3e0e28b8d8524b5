/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Constants of the Arrow IPC format, for writer and reader. Sources: Message.fbs, Schema.fbs,
 * File.fbs of apache/arrow.
 */
#ifndef ARROW_FORMAT_H
#define ARROW_FORMAT_H

#include <stdint.h>

/** A message begins with this, and the length of the metadata that follow (int32). */
#define ARROW_CONTINUATION UINT32_C(0xFFFFFFFF)
#define ARROW_PREFIX	   8 /**< bytes of both */
#define ARROW_MAGIC_ROOM   8 /**< ARROW_MAGIC at the beginning of a file, with its padding */

#define ARROW_FB_V5 4 /**< MetadataVersion.V5 */

/** union MessageHeader */
enum arrow_fb_header {
	ARROW_FB_SCHEMA = 1,
	ARROW_FB_RECORD_BATCH = 3,
};

/** union Type */
enum arrow_fb_type {
	ARROW_FB_INT = 2,
	ARROW_FB_FLOAT = 3,
	ARROW_FB_BINARY = 4,
	ARROW_FB_TIMESTAMP = 10,
	ARROW_FB_LIST = 12,
	ARROW_FB_FIXED_LIST = 16,
};

enum arrow_fb_precision {
	ARROW_FB_SINGLE = 1,
	ARROW_FB_DOUBLE = 2,
};

enum arrow_fb_time_unit {
	ARROW_FB_NANOSECOND = 3,
};

#endif /* ARROW_FORMAT_H */
