/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef ROCE_FIELD_H
#define ROCE_FIELD_H

/**
 * @file
 * Fields of a message, big endian and at any bit offset, as a table. One table both decodes and
 * encodes, so that the two cannot differ.
 */

#include <stddef.h>
#include <stdint.h>

/** A field: its position on the wire and in the structure. */
struct roce_field {
	uint16_t bit;  /**< offset from the start of the message, most significant bit first */
	uint16_t bits; /**< 1 to 64; for byte arrays any multiple of 8 */
	uint16_t at;   /**< offset of the structure's member */
	/** size of an unsigned integer member in bytes: 1, 2, 4, 8; 0: byte array, copied */
	uint8_t size;
};

/** Integer `member` of `type`: `width` bits at bit `first` of byte `byte`. */
#define ROCE_FIELD(type, member, byte, first, width)                                      \
	{                                                                                 \
		.bit = (byte)*8 + (first), .bits = (width), .at = offsetof(type, member), \
		.size = sizeof(((type *)0)->member),                                      \
	}

/** Array of bytes `member` of `type` from byte `byte` on. */
#define ROCE_FIELD_BYTES(type, member, byte)                              \
	{                                                                 \
		.bit = (byte)*8, .bits = sizeof(((type *)0)->member) * 8, \
		.at = offsetof(type, member),                             \
	}

/** Decode `n` fields of `wire` into the structure at `host`. */
void roce_fields_get(const struct roce_field *field, unsigned int n, const void *wire, void *host);

/** Encode `n` fields. Values are truncated to their width; bits of `wire` in no field stay
 * unchanged. */
void roce_fields_put(const struct roce_field *field, unsigned int n, const void *host, void *wire);

#endif
