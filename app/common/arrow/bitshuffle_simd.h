/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Bit planes of u16 values, the first half of bitshuffle.h, implemented for several instruction
 * sets. Any thread may call any implementation.
 */
#ifndef BITSHUFFLE_PLANES_H
#define BITSHUFFLE_PLANES_H

#include <stddef.h>
#include <stdint.h>

struct bitshuffle_planes {
	const char *name;

	/** Whether this CPU supports it. */
	int (*have)(void);

	/**
	 * Store bit k of value i as bit i % 8 of byte k x n / 8 + i / 8.
	 * @param n   a multiple of 8
	 * @param to  2 n bytes
	 */
	void (*split)(const uint16_t *from, size_t n, uint8_t *to);
};

/**
 * Find an implementation by name.
 * @param name  "plain", "sse2", "avx2", "avx512", "gfni"; NULL: the fastest that the CPU supports
 * @return NULL: unknown name, or not supported by the CPU
 */
const struct bitshuffle_planes *bitshuffle_planes_find(const char *name);

/** Implementations that are built in, slowest first. @return NULL: index out of range */
const struct bitshuffle_planes *bitshuffle_planes_get(size_t index);

/* Transpose 8 x 8 bits: byte i of the result holds bit i of every byte (Hacker's Delight 7-3). */
static inline uint64_t
bitshuffle_transpose8(uint64_t x)
{
	uint64_t t;

	t = (x ^ x >> 7) & 0x00AA00AA00AA00AAull;
	x ^= t ^ t << 7;
	t = (x ^ x >> 14) & 0x0000CCCC0000CCCCull;
	x ^= t ^ t << 14;
	t = (x ^ x >> 28) & 0x00000000F0F0F0F0ull;
	x ^= t ^ t << 28;
	return x;
}

#endif /* BITSHUFFLE_PLANES_H */
