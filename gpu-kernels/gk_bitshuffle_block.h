/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * One block of gk_bitshuffle.h on the host, of which there is one version for each instruction set.
 * Internal to gk_bitshuffle*.c and their tests.
 */
#ifndef GK_BITSHUFFLE_BLOCK_H
#define GK_BITSHUFFLE_BLOCK_H

#include <string.h>

#include "gk_bitshuffle.h"

/** Words of a bit for each byte of a block. */
#define GK_BITSHUFFLE_WORDS (GK_BITSHUFFLE_BYTES / 64)
/** Words that vectors read after the last one. */
#define GK_BITSHUFFLE_WORDS_MORE 8

struct gk_bitshuffle_ops {
	/**
	 * Store bit k of value i as bit i % 8 of byte k x v / 8 + i / 8.
	 * @param v   values, a multiple of 8, at most GK_BITSHUFFLE_BLOCK
	 * @param to  2 v bytes
	 */
	void (*split)(const uint16_t *from, uint32_t v, uint8_t *to);

	/**
	 * Compress a block to an LZ4 block.
	 * @param v   values, a multiple of 8, at most GK_BITSHUFFLE_BLOCK
	 * @param to  gk_lz4_bound(2 v) + GK_BITSHUFFLE_MORE bytes
	 * @return its size in bytes
	 */
	uint32_t (*block)(const uint16_t *from, uint32_t v, uint8_t *to);
};

extern const struct gk_bitshuffle_ops gk_bitshuffle_plain;
extern const struct gk_bitshuffle_ops gk_bitshuffle_avx2;
extern const struct gk_bitshuffle_ops gk_bitshuffle_avx512;

/** @return NULL: not supported by this CPU or by this build (gk_isa.c) */
const struct gk_bitshuffle_ops *gk_bitshuffle_choose(enum gk_isa isa);

/** Split values, 8 at a time: one byte for each plane. */
static inline void
gk_bitshuffle_split8(const uint16_t *from, uint32_t v, uint8_t *to)
{
	const uint32_t stride = v / 8;

	for (uint32_t i = 0; i < stride; i++) {
		uint64_t low = 0, high = 0;

		for (uint32_t k = 0; k < 8; k++) {
			low |= (uint64_t)(from[8 * i + k] & 0xFF) << (8 * k);
			high |= (uint64_t)(from[8 * i + k] >> 8) << (8 * k);
		}
		low = gk_transpose8(low);
		high = gk_transpose8(high);
		for (uint32_t k = 0; k < 8; k++) {
			to[k * stride + i] = (uint8_t)(low >> (8 * k));
			to[(k + 8) * stride + i] = (uint8_t)(high >> (8 * k));
		}
	}
}

/**
 * Apply the rules for the beginning and the end of a block to its bits. @param n bytes, a multiple
 * of 16
 */
static inline void
gk_bitshuffle_limits(uint64_t *equal, uint32_t n)
{
	uint64_t *last = equal + (n - 16) / 64;
	const uint32_t shift = (n - 16) % 64;

	equal[0] &= ~UINT64_C(1);
	/* nothing after the block's last 16 bits counts */
	*last = (*last & ((UINT64_C(1) << shift) - 1)) |
		(uint64_t)gk_bitshuffle_end((uint32_t)(*last >> shift) & 0xFFFF) << shift;
	for (uint32_t i = 1; i <= GK_BITSHUFFLE_WORDS_MORE; i++)
		last[i] = 0;
}

/** Write the rest of a number, which is empty below 15. */
static inline uint8_t *
gk_lz4_put_rest(uint8_t *to, uint32_t number)
{
	if (__builtin_expect(number < 15 + 255, 1)) {
		/* without a branch, which would often be mispredicted */
		*to = (uint8_t)(number - 15);
		return to + (number >= 15);
	}
	number -= 15;
	/* at most 33 bytes, within GK_BITSHUFFLE_MORE */
	memset(to, 255, 40);
	to += number / 255;
	*to = (uint8_t)(number % 255);
	return to + 1;
}

/** Copy n bytes, and up to 64 more. */
static inline void
gk_copy_literals(uint8_t *to, const uint8_t *from, uint32_t n)
{
	memcpy(to, from, 64);
	for (uint32_t i = 64; i < n; i += 64)
		memcpy(to + i, from + i, 64);
}

/**
 * Write the sequences of a block.
 * @param plain  its n bytes, and 64 that are read and ignored
 * @param edge   pairs of positions: the beginning of a match, and its end - (GK_BITSHUFFLE_RUN - 1)
 * @param nb     pairs
 * @return size in bytes; up to GK_BITSHUFFLE_MORE bytes after it are overwritten
 */
static inline __attribute__((always_inline)) uint32_t
gk_bitshuffle_sequences(
	const uint8_t *plain, uint32_t n, const uint16_t *edge, uint32_t nb, uint8_t *to)
{
	uint8_t *at = to;
	uint32_t from = 0, literals;

	for (uint32_t i = 0; i < nb; i++) {
		const uint32_t begin = edge[2 * i];
		const uint32_t length = edge[2 * i + 1] - begin + (GK_BITSHUFFLE_RUN - 1);
		const uint32_t more = length - 4;
		const uint16_t offset = 1;
		uint8_t *token = at++;

		literals = begin - from;
		*token = (uint8_t)((literals < 15 ? literals : 15) << 4 | (more < 15 ? more : 15));
		at = gk_lz4_put_rest(at, literals);
		gk_copy_literals(at, plain + from, literals);
		at += literals;
		memcpy(at, &offset, sizeof(offset));
		at += sizeof(offset);
		at = gk_lz4_put_rest(at, more);
		from = begin + length;
	}
	literals = n - from;
	*at++ = (uint8_t)((literals < 15 ? literals : 15) << 4);
	at = gk_lz4_put_rest(at, literals);
	gk_copy_literals(at, plain + from, literals);
	return (uint32_t)(at + literals - to);
}

/**
 * gk_bitshuffle_ops.block, of the functions of an instruction set, which are inlined.
 * @param equal_words  words of bits of the n bytes of a block, each set if the byte equals the one
 *                     before. `plain` has a byte before it and 64 after
 * @param find_edges   pairs of positions for gk_bitshuffle_sequences(). @return their number
 */
static inline __attribute__((always_inline)) uint32_t
gk_bitshuffle_make_block(const uint16_t *from, uint32_t v, uint8_t *to,
	void (*split)(const uint16_t *from, uint32_t v, uint8_t *to),
	void (*equal_words)(const uint8_t *plain, uint32_t n, uint64_t *equal),
	uint32_t (*find_edges)(const uint64_t *equal, uint32_t n, uint16_t *edge))
{
	uint8_t memory[64 + GK_BITSHUFFLE_BYTES + 64] __attribute__((aligned(64)));
	uint8_t *plain = memory + 64;
	uint64_t equal[GK_BITSHUFFLE_WORDS + GK_BITSHUFFLE_WORDS_MORE];
	uint16_t edge[GK_BITSHUFFLE_BYTES / GK_BITSHUFFLE_RUN * 2];
	const uint32_t n = v * 2;

	plain[-1] = 0;
	memset(plain + n, 0, 64);
	split(from, v, plain);
	equal_words(plain, n, equal);
	gk_bitshuffle_limits(equal, n);
	return gk_bitshuffle_sequences(plain, n, edge, find_edges(equal, n, edge), to);
}

#endif /* GK_BITSHUFFLE_BLOCK_H */
