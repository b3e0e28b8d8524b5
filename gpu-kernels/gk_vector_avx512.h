/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * gk_vector.h with AVX-512: 16 lanes.
 */
#ifndef GK_VECTOR_AVX512_H
#define GK_VECTOR_AVX512_H

#include "gk_vector_common.h"

#ifdef __AVX512BW__

#define VEC_LANES 16

/** Whether bits of pixels are counted when they are stored, or all at the end of a strip. */
#define VEC_COUNT_EARLY 1

typedef __m512 vec_f32;
typedef __m512i vec_i32;
typedef __mmask16 vec_mask;

VEC_FN vec_f32
vec_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

VEC_FN void
vec_store(float *to, vec_f32 a)
{
	_mm512_storeu_ps(to, a);
}

VEC_FN vec_f32
vec_set(float x)
{
	return _mm512_set1_ps(x);
}

VEC_FN vec_f32
vec_sub(vec_f32 a, vec_f32 b)
{
	return _mm512_sub_ps(a, b);
}

VEC_FN vec_f32
vec_mul(vec_f32 a, vec_f32 b)
{
	return _mm512_mul_ps(a, b);
}

/** Clamp a to [-limit, limit]; NaN becomes limit. */
VEC_FN vec_f32
vec_clamp(vec_f32 a, float limit)
{
	return _mm512_max_ps(_mm512_min_ps(a, _mm512_set1_ps(limit)), _mm512_set1_ps(-limit));
}

/** Return a + x, where x has the sign of a and the magnitude of b. */
VEC_FN vec_f32
vec_add_away(vec_f32 a, float b)
{
	/* (a and sign) or b */
	return _mm512_add_ps(a,
		_mm512_castsi512_ps(_mm512_ternarylogic_epi32(_mm512_castps_si512(a),
			_mm512_set1_epi32(INT32_MIN), _mm512_castps_si512(_mm512_set1_ps(b)),
			0xEA)));
}

/** Clamp a to [-limit, limit]; NaN stays NaN. */
VEC_FN vec_f32
vec_clamp_nan(vec_f32 a, float limit)
{
	return _mm512_max_ps(_mm512_set1_ps(-limit), _mm512_min_ps(_mm512_set1_ps(limit), a));
}

/** mask ? a : 0 */
VEC_FN vec_f32
vec_keep(vec_mask m, vec_f32 a)
{
	return _mm512_maskz_mov_ps(m, a);
}

/** mask ? a : b */
VEC_FN vec_f32
vec_select(vec_mask m, vec_f32 a, vec_f32 b)
{
	return _mm512_mask_mov_ps(b, m, a);
}

/** mask ? p[] : b */
VEC_FN vec_f32
vec_load_where(vec_mask m, const float *p, vec_f32 b)
{
	return _mm512_mask_loadu_ps(b, m, p);
}

VEC_FN vec_mask
vec_ge(vec_f32 a, vec_f32 b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}

VEC_FN vec_mask
vec_lt(vec_f32 a, vec_f32 b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ);
}

VEC_FN vec_mask
vec_unordered(vec_f32 a, vec_f32 b)
{
	return _mm512_cmp_ps_mask(a, b, _CMP_UNORD_Q);
}

/** Return end - 1 - bits of a, as unsigned integers. */
VEC_FN vec_i32
vec_bits_before(uint32_t end, vec_f32 a)
{
	return _mm512_sub_epi32(_mm512_set1_epi32((int)(end - 1)), _mm512_castps_si512(a));
}

/** Operations on unsigned integers. @{ */
VEC_FN vec_i32
vec_max_u32(vec_i32 a, vec_i32 b)
{
	return _mm512_max_epu32(a, b);
}

VEC_FN vec_mask
vec_less_u32(vec_i32 a, uint32_t b)
{
	return _mm512_cmplt_epu32_mask(a, _mm512_set1_epi32((int)b));
}
/** @} */

VEC_FN vec_mask
vec_mask_or(vec_mask a, vec_mask b)
{
	return a | b;
}

VEC_FN int
vec_mask_is_all(vec_mask m)
{
	return m == 0xFFFF;
}

/** Return a bit mask with lane i as bit i. */
VEC_FN uint32_t
vec_mask_bits(vec_mask m)
{
	return m;
}

/** Marks of the pixels of a run, for two vectors of neighbours. @{ */
typedef __mmask32 vec_pair;
typedef __mmask32 vec_marks;

VEC_FN vec_pair
vec_mark_pair(vec_mask low, vec_mask high)
{
	return _mm512_kunpackw(high, low);
}

VEC_FN vec_marks
vec_mark(const vec_pair pair[1])
{
	return pair[0];
}
/** @} */

/** Return a bit mask with pixel i as bit i. */
VEC_FN uint32_t
vec_marks_bits(vec_marks m)
{
	return m;
}

/** Counter of marks, for at most 32 times 32 lanes. */
typedef uint32_t vec_tally;

VEC_FN void
vec_tally_clear(vec_tally *tally)
{
	*tally = 0;
}

VEC_FN void
vec_tally_add(vec_tally *tally, vec_marks m)
{
	/* The scalar units count, because the vector units are the bottleneck. */
	*tally += (uint32_t)__builtin_popcount(m);
}

VEC_FN uint32_t
vec_tally_total(const vec_tally *tally)
{
	return *tally;
}

/** Load the next words, one per lane. */
VEC_FN vec_i32
vec_words(const uint16_t *w)
{
	return _mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)w));
}

VEC_FN vec_i32
vec_set_i32(int32_t x)
{
	return _mm512_set1_epi32(x);
}

VEC_FN vec_mask
vec_eq_i32(vec_i32 a, int32_t b)
{
	return _mm512_cmpeq_epi32_mask(a, _mm512_set1_epi32(b));
}

VEC_FN vec_i32
vec_and_i32(vec_i32 a, int32_t b)
{
	return _mm512_and_si512(a, _mm512_set1_epi32(b));
}

VEC_FN vec_i32
vec_add_i32(vec_i32 a, vec_i32 b)
{
	return _mm512_add_epi32(a, b);
}

VEC_FN vec_f32
vec_float(vec_i32 a)
{
	return _mm512_cvtepi32_ps(a);
}

/** Round to nearest, ties to even. */
VEC_FN vec_i32
vec_round(vec_f32 a)
{
	return _mm512_cvtps_epi32(a);
}

VEC_FN vec_i32
vec_truncate(vec_f32 a)
{
	return _mm512_cvttps_epi32(a);
}

/** Sums of pairs of lanes, of 64 bits. */
typedef __m512i vec_i64;

VEC_FN vec_i64
vec_pairs_i32(vec_i32 a)
{
	return _mm512_add_epi64(_mm512_cvtepi32_epi64(_mm512_castsi512_si256(a)),
		_mm512_cvtepi32_epi64(_mm512_extracti64x4_epi64(a, 1)));
}

VEC_FN vec_i64
vec_add_i64(vec_i64 a, vec_i64 b)
{
	return _mm512_add_epi64(a, b);
}

VEC_FN int64_t
vec_sum_i64(vec_i64 a)
{
	return _mm512_reduce_add_epi64(a);
}

/** Return the sum of the lanes modulo 2^31. Each lane is less than 2^30. */
VEC_FN int64_t
vec_sum_i31(vec_i32 a)
{
	return vec_sum_i64(vec_pairs_i32(_mm512_srai_epi32(_mm512_slli_epi32(a, 1), 1)));
}

/** 32 words. @{ */
typedef __m512i vec_run;

VEC_FN vec_run
vec_run_load(const uint16_t *w)
{
	return _mm512_loadu_si512(w);
}

/**
 * A run in the order in which widening and marking are cheapest: vectors of even and of odd pixels,
 * without moves between lanes. Operands that are combined with it must have the same order. @{
 */
VEC_FN vec_run
vec_fold(const uint16_t *w)
{
	return vec_run_load(w);
}

/** Return vector k of the run's words. */
VEC_FN vec_i32
vec_folded_words(vec_run a, int k)
{
	return k % 2 == 0 ? _mm512_and_si512(a, _mm512_set1_epi32(0xFFFF))
			  : _mm512_srli_epi32(a, 16);
}

/** Return vector k of 32 floats. */
VEC_FN vec_f32
vec_fold_f32(const float *p, int k)
{
	const __m512i even =
		_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);

	return _mm512_permutex2var_ps(_mm512_loadu_ps(p),
		k % 2 == 0 ? even : _mm512_add_epi32(even, _mm512_set1_epi32(1)),
		_mm512_loadu_ps(p + 16));
}

/** Upper halves of floats: words in pixel order. */
typedef __m512i vec_uppers;

VEC_FN vec_uppers
vec_upper_pair(vec_f32 even, vec_f32 odd)
{
	return _mm512_mask_blend_epi16(0xAAAAAAAA, _mm512_srli_epi32(_mm512_castps_si512(even), 16),
		_mm512_castps_si512(odd));
}

/** Compare as signed integers: which are greater. */
VEC_FN vec_marks
vec_mark_uppers(const vec_uppers upper[1], int16_t than)
{
	return _mm512_cmpgt_epi16_mask(upper[0], _mm512_set1_epi16(than));
}

/** Mark the pixels of a run at or above `level`. A NaN with the sign bit set is not marked. */
VEC_FN vec_marks
vec_mark_folded(const vec_f32 q[2], vec_f32 level)
{
	/* The marks remain as signs, because masks of even and odd lanes are expensive to merge. */
	const vec_uppers left = vec_upper_pair(vec_sub(q[0], level), vec_sub(q[1], level));

	return vec_mark_uppers(&left, -1);
}

/** vec_marks_bits() for these marks. */
VEC_FN uint32_t
vec_folded_marks_bits(vec_marks m)
{
	return vec_marks_bits(m);
}
/** @} */

/** Return non-zero if any word has a bit of `bits` set. */
VEC_FN int
vec_run_any(vec_run a, uint16_t bits)
{
	return _mm512_test_epi16_mask(a, _mm512_set1_epi16((short)bits)) != 0;
}
/** @} */

/** Store without caching; `to` is aligned to the vector size. */
VEC_FN void
vec_stream(float *to, vec_f32 x)
{
	_mm512_stream_ps(to, x);
}

/** Narrow a run to 16 bits, with saturation. */
VEC_FN vec_run
vec_pack_run(const vec_i32 x[2])
{
	const __m512i order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);

	/* The instruction packs within lanes of 128 bits. */
	return _mm512_permutexvar_epi64(order, _mm512_packs_epi32(x[0], x[1]));
}

/** Store without caching; `to` is 64-byte aligned. */
VEC_FN void
vec_run_stream(void *to, vec_run a)
{
	_mm512_stream_si512(to, a);
}

VEC_FN void
vec_run_store(void *to, vec_run a)
{
	_mm512_storeu_si512(to, a);
}

/** Bit i is set if word i of 32 is not 0. */
VEC_FN uint32_t
vec_words_used(const uint32_t words[32])
{
	const __m512i low = _mm512_loadu_si512(words), high = _mm512_loadu_si512(words + 16);

	return _mm512_test_epi32_mask(low, low) |
		(uint32_t)_mm512_test_epi32_mask(high, high) << 16;
}

/** Store the selected words of 32, compacted. Up to 32 words may be written. */
VEC_FN void
vec_words_pack(const uint32_t words[32], uint32_t used, uint32_t *to)
{
	for (int i = 0; i < 32; i += 16) {
		const __mmask16 m = (__mmask16)(used >> i);
		const uint32_t n = (uint32_t)__builtin_popcount(m);

		_mm512_mask_storeu_epi32(to, (__mmask16)((1u << n) - 1),
			_mm512_maskz_compress_epi32(m, _mm512_loadu_si512(words + i)));
		to += n;
	}
}

#endif /* __AVX512BW__ */

#endif /* GK_VECTOR_AVX512_H */
