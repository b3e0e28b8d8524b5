/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef RAW_OUTPUT_H
#define RAW_OUTPUT_H

/** @file The words of a raw frame in its output slot, which gangs may have compressed. */

#include <stdint.h>

#include "arrow/bitshuffle.h"
#include "frame_record.h"
#include "gk.h"

/** @return the words, valid until the next call */
static inline const uint16_t *
raw_output(const struct gk_config *c, const uint8_t *outputs, const struct frame_record *r)
{
	const uint8_t *at = outputs + r->out * c->layout.stride + c->layout.raw;
	const uint64_t n = gk_pixels(&c->geometry);
	static uint16_t words[1 << 21];

	if (r->chunk_bytes == 0)
		return (const uint16_t *)at;
	assert_true(n <= sizeof(words) / sizeof(words[0]));
	assert_int_equal(bitshuffle_decompress(at, r->chunk_bytes, words, n), 0);
	return words;
}

#endif /* RAW_OUTPUT_H */
