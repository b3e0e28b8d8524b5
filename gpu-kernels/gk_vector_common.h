/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * gk_vector.h: definitions common to all instruction sets.
 */
#ifndef GK_VECTOR_COMMON_H
#define GK_VECTOR_COMMON_H

#include <stdint.h>

#include "gk_pixel.h"

#ifdef __AVX2__
#include <immintrin.h>
#endif

/** Always inlined, because a function call must save all live vector registers. */
#define VEC_FN static inline __attribute__((always_inline))

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
