/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RDMA_TOOL_RECORD_H
#define RDMA_TOOL_RECORD_H

/**
 * @file
 * Contents of the packets of a stream of files: a header, and then a name or data. A file is a
 * RECORD_BEGIN with its name, RECORD_DATA in order, and a RECORD_END. RECORD_DONE follows the last
 * file. A stream that ends without it is not complete.
 */

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RECORD_MAGIC	0x53464C42u /**< "BLFS", little-endian */
#define RECORD_VERSION	1
#define RECORD_NAME_MAX (NAME_MAX - 6) /**< the name of an incomplete file is longer */

enum record_type {
	RECORD_BEGIN = 1,
	RECORD_DATA,
	RECORD_END,
	RECORD_DONE,
};

/** Header; all fields are little-endian. */
struct record {
	uint32_t magic;	  /**< RECORD_MAGIC */
	uint16_t version; /**< RECORD_VERSION */
	uint16_t type;	  /**< enum record_type */
	uint32_t file;	  /**< number of the file, from 0; DONE: number of files */
	uint32_t crc;	  /**< END: CRC-32C of the file; else 0 */
	uint64_t offset;  /**< DATA: in the file; BEGIN, END: bytes of the file; DONE: 0 */
};

/** Encode a header. The values of `r` are those of the host; magic and version are set. */
void record_encode(const struct record *r, uint8_t out[sizeof(*r)]);

/**
 * Decode the header of a packet, and check its length and the name. The caller checks the order.
 * @return 0; -EINVAL: no such record
 */
int record_decode(const uint8_t *packet, size_t length, struct record *r);

/**
 * Check a file's name: up to RECORD_NAME_MAX bytes, no path separator, no control character, not
 * hidden.
 */
bool record_name_check(const char *name, size_t length);

#endif
