/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * gk_vector.h: definitions common to all instruction sets.
 */
#ifndef GK_VECTOR_COMMON_H
#define GK_VECTOR_COMMON_H

#include <stdint.h>
#include <string.h>

#include "gk_pixel.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/** Always inlined, because a function call must save all live vector registers. */
#define VEC_FN static inline __attribute__((always_inline))

/** Return the number of set bits in n words. */
static inline uint32_t
vec_count_bits(const uint32_t *bits, uint32_t n)
{
	uint64_t count = 0, pair;
	uint32_t i = 0;

	for (; i + 2 <= n; i += 2) {
		memcpy(&pair, bits + i, sizeof(pair));
		count += (uint64_t)__builtin_popcountll(pair);
	}
	if (i < n)
		count += (uint64_t)__builtin_popcount(bits[i]);
	return (uint32_t)count;
}

#ifdef __AVX2__

/** Return 1 if any of 16 words, whose coefficients are a cache line, has a bit of `bits` set. */
VEC_FN uint32_t
vec_line_any(const uint16_t *w, uint16_t bits)
{
	return !_mm256_testz_si256(
		_mm256_loadu_si256((const void *)w), _mm256_set1_epi16((short)bits));
}

#endif /* __AVX2__ */

#endif /* GK_VECTOR_COMMON_H */
