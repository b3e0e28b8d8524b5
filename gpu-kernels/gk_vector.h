/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Vectors of pixels: what gk_tile_simd.c needs of an instruction set, under one set of names.
 *
 * AVX-512 (F, BW, DQ, VL) has 16 lanes and masks in registers of their own, AVX2 has 8 and masks
 * in vectors. Nothing is fused, nothing approximate: lane i of every operation has the bits that
 * the same operation of gk_pixel.h has. What the names mean is said with those of AVX-512. Empty
 * where a compiler may use neither.
 */
#ifndef GK_VECTOR_H
#define GK_VECTOR_H

#include <stdint.h>
#include <string.h>

#include "gk_pixel.h"

#ifdef __AVX2__
#include <immintrin.h>

/** No call where vectors are live: all of their registers are the caller's to save. */
#define VEC_FN static inline __attribute__((always_inline))

/** Bits that are set in n words. */
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

#ifdef __AVX512BW__
#include "gk_vector_avx512.h"
#else
#include "gk_vector_avx2.h"
#endif

#endif /* __AVX2__ */

#endif /* GK_VECTOR_H */
