/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * gk_vector.h with AVX2: 8 lanes, and operations that compact lanes, for lists.
 */
#ifndef GK_VECTOR_AVX2_H
#define GK_VECTOR_AVX2_H

#include "gk_vector_common.h"

#ifdef __AVX2__

#define VEC_LANES	8
#define VEC_COUNT_EARLY 0

typedef __m256 vec_f32;
typedef __m256i vec_i32;
typedef __m256 vec_mask;

VEC_FN vec_f32
vec_load(const float *p)
{
	return _mm256_loadu_ps(p);
}

VEC_FN void
vec_store(float *to, vec_f32 a)
{
	_mm256_storeu_ps(to, a);
}

VEC_FN vec_f32
vec_set(float x)
{
	return _mm256_set1_ps(x);
}

VEC_FN vec_f32
vec_sub(vec_f32 a, vec_f32 b)
{
	return _mm256_sub_ps(a, b);
}

VEC_FN vec_f32
vec_mul(vec_f32 a, vec_f32 b)
{
	return _mm256_mul_ps(a, b);
}

VEC_FN vec_f32
vec_clamp(vec_f32 a, float limit)
{
	return _mm256_max_ps(_mm256_min_ps(a, _mm256_set1_ps(limit)), _mm256_set1_ps(-limit));
}

VEC_FN vec_f32
vec_add_away(vec_f32 a, float b)
{
	const __m256 sign = _mm256_and_ps(a, _mm256_set1_ps(-0.0f));

	return _mm256_add_ps(a, _mm256_or_ps(sign, _mm256_set1_ps(b)));
}

VEC_FN vec_f32
vec_clamp_nan(vec_f32 a, float limit)
{
	return _mm256_max_ps(_mm256_set1_ps(-limit), _mm256_min_ps(_mm256_set1_ps(limit), a));
}

VEC_FN vec_f32
vec_keep(vec_mask m, vec_f32 a)
{
	return _mm256_and_ps(m, a);
}

VEC_FN vec_f32
vec_select(vec_mask m, vec_f32 a, vec_f32 b)
{
	return _mm256_blendv_ps(b, a, m);
}

VEC_FN vec_f32
vec_load_where(vec_mask m, const float *p, vec_f32 b)
{
	return _mm256_blendv_ps(b, _mm256_loadu_ps(p), m);
}

VEC_FN vec_mask
vec_ge(vec_f32 a, vec_f32 b)
{
	return _mm256_cmp_ps(a, b, _CMP_GE_OQ);
}

VEC_FN vec_mask
vec_lt(vec_f32 a, vec_f32 b)
{
	return _mm256_cmp_ps(a, b, _CMP_LT_OQ);
}

VEC_FN vec_mask
vec_unordered(vec_f32 a, vec_f32 b)
{
	return _mm256_cmp_ps(a, b, _CMP_UNORD_Q);
}

VEC_FN vec_i32
vec_bits_before(uint32_t end, vec_f32 a)
{
	return _mm256_sub_epi32(_mm256_set1_epi32((int)(end - 1)), _mm256_castps_si256(a));
}

VEC_FN vec_i32
vec_max_u32(vec_i32 a, vec_i32 b)
{
	return _mm256_max_epu32(a, b);
}

VEC_FN vec_mask
vec_less_u32(vec_i32 a, uint32_t b)
{
	/* AVX2 has no unsigned comparison, but an unsigned minimum. */
	return _mm256_castsi256_ps(
		_mm256_cmpeq_epi32(_mm256_min_epu32(a, _mm256_set1_epi32((int)(b - 1))), a));
}

VEC_FN vec_mask
vec_mask_or(vec_mask a, vec_mask b)
{
	return _mm256_or_ps(a, b);
}

VEC_FN int
vec_mask_is_all(vec_mask m)
{
	return _mm256_movemask_ps(m) == 0xFF;
}

VEC_FN uint32_t
vec_mask_bits(vec_mask m)
{
	return (uint32_t)_mm256_movemask_ps(m);
}

/* One byte per lane, within lanes of 128 bits: cheaper than four masks in four bytes. */
typedef __m256i vec_marks;

typedef __m256i vec_pair;

VEC_FN vec_pair
vec_mark_pair(vec_mask low, vec_mask high)
{
	return _mm256_packs_epi32(_mm256_castps_si256(low), _mm256_castps_si256(high));
}

VEC_FN vec_marks
vec_mark(const vec_pair pair[2])
{
	return _mm256_packs_epi16(pair[0], pair[1]);
}

VEC_FN uint32_t
vec_marks_bits(vec_marks m)
{
	const __m256i ends = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);

	return (uint32_t)_mm256_movemask_epi8(_mm256_permutevar8x32_epi32(m, ends));
}

/* The counts of 32 runs fit into one byte per lane. */
typedef __m256i vec_tally;

VEC_FN void
vec_tally_clear(vec_tally *tally)
{
	*tally = _mm256_setzero_si256();
}

VEC_FN void
vec_tally_add(vec_tally *tally, vec_marks m)
{
	*tally = _mm256_sub_epi8(*tally, m);
}

VEC_FN uint32_t
vec_tally_total(const vec_tally *tally)
{
	const __m256i four = _mm256_sad_epu8(*tally, _mm256_setzero_si256());
	const __m128i two =
		_mm_add_epi64(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));

	return (uint32_t)(_mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 2));
}

VEC_FN vec_i32
vec_words(const uint16_t *w)
{
	return _mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)w));
}

VEC_FN vec_i32
vec_set_i32(int32_t x)
{
	return _mm256_set1_epi32(x);
}

VEC_FN vec_mask
vec_eq_i32(vec_i32 a, int32_t b)
{
	return _mm256_castsi256_ps(_mm256_cmpeq_epi32(a, _mm256_set1_epi32(b)));
}

VEC_FN vec_i32
vec_and_i32(vec_i32 a, int32_t b)
{
	return _mm256_and_si256(a, _mm256_set1_epi32(b));
}

VEC_FN vec_i32
vec_add_i32(vec_i32 a, vec_i32 b)
{
	return _mm256_add_epi32(a, b);
}

VEC_FN vec_f32
vec_float(vec_i32 a)
{
	return _mm256_cvtepi32_ps(a);
}

VEC_FN vec_i32
vec_round(vec_f32 a)
{
	return _mm256_cvtps_epi32(a);
}

VEC_FN vec_i32
vec_truncate(vec_f32 a)
{
	return _mm256_cvttps_epi32(a);
}

typedef __m256i vec_i64;

VEC_FN vec_i64
vec_pairs_i32(vec_i32 a)
{
	return _mm256_add_epi64(_mm256_cvtepi32_epi64(_mm256_castsi256_si128(a)),
		_mm256_cvtepi32_epi64(_mm256_extracti128_si256(a, 1)));
}

VEC_FN vec_i64
vec_add_i64(vec_i64 a, vec_i64 b)
{
	return _mm256_add_epi64(a, b);
}

VEC_FN int64_t
vec_sum_i64(vec_i64 a)
{
	const __m128i two =
		_mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));

	return _mm_cvtsi128_si64(two) + _mm_extract_epi64(two, 1);
}

VEC_FN int64_t
vec_sum_i31(vec_i32 a)
{
	return vec_sum_i64(vec_pairs_i32(_mm256_srai_epi32(_mm256_slli_epi32(a, 1), 1)));
}

typedef struct {
	__m256i half[2];
} vec_run;

VEC_FN vec_run
vec_run_load(const uint16_t *w)
{
	return (vec_run){
		{_mm256_loadu_si256((const void *)w), _mm256_loadu_si256((const void *)(w + 16))}};
}

/*
 * Vectors are narrowed within lanes of 128 bits. One vector holds the first 16 pixels, the other
 * one the rest, so that marks end in pixel order.
 */
VEC_FN vec_run
vec_fold(const uint16_t *w)
{
	return (vec_run){{_mm256_loadu2_m128i((const void *)(w + 16), (const void *)w),
		_mm256_loadu2_m128i((const void *)(w + 24), (const void *)(w + 8))}};
}

VEC_FN vec_i32
vec_folded_words(vec_run a, int k)
{
	return k % 2 == 0 ? _mm256_and_si256(a.half[k / 2], _mm256_set1_epi32(0xFFFF))
			  : _mm256_srli_epi32(a.half[k / 2], 16);
}

VEC_FN vec_f32
vec_fold_f32(const float *p, int k)
{
	const float *half = p + k / 2 * 8;
	const __m256 low = _mm256_loadu2_m128(half + 16, half),
		     high = _mm256_loadu2_m128(half + 20, half + 4);

	return k % 2 == 0 ? _mm256_shuffle_ps(low, high, 0x88) : _mm256_shuffle_ps(low, high, 0xDD);
}

typedef __m256i vec_uppers;

VEC_FN vec_uppers
vec_upper_pair(vec_f32 even, vec_f32 odd)
{
	return _mm256_blend_epi16(
		_mm256_srli_epi32(_mm256_castps_si256(even), 16), _mm256_castps_si256(odd), 0xAA);
}

VEC_FN vec_marks
vec_mark_uppers(const vec_uppers upper[2], int16_t than)
{
	return _mm256_packs_epi16(_mm256_cmpgt_epi16(upper[0], _mm256_set1_epi16(than)),
		_mm256_cmpgt_epi16(upper[1], _mm256_set1_epi16(than)));
}

VEC_FN vec_marks
vec_mark_folded(const vec_f32 q[4], vec_f32 level)
{
	__m256i half[2];

	for (int i = 0; i < 2; i++)
		half[i] = _mm256_blend_epi16(_mm256_castps_si256(vec_ge(q[2 * i], level)),
			_mm256_castps_si256(vec_ge(q[2 * i + 1], level)), 0xAA);
	return _mm256_packs_epi16(half[0], half[1]);
}

VEC_FN uint32_t
vec_folded_marks_bits(vec_marks m)
{
	return (uint32_t)_mm256_movemask_epi8(m);
}

VEC_FN int
vec_run_any(vec_run a, uint16_t bits)
{
	return !_mm256_testz_si256(
		_mm256_or_si256(a.half[0], a.half[1]), _mm256_set1_epi16((short)bits));
}

VEC_FN void
vec_stream(float *to, vec_f32 x)
{
	_mm256_stream_ps(to, x);
}

VEC_FN vec_run
vec_pack_run(const vec_i32 x[4])
{
	vec_run run;

	/* The instruction packs within lanes of 128 bits. */
	for (int i = 0; i < 2; i++)
		run.half[i] =
			_mm256_permute4x64_epi64(_mm256_packs_epi32(x[2 * i], x[2 * i + 1]), 0xD8);
	return run;
}

VEC_FN void
vec_run_stream(void *to, vec_run a)
{
	_mm256_stream_si256(to, a.half[0]);
	_mm256_stream_si256((__m256i *)to + 1, a.half[1]);
}

VEC_FN void
vec_run_store(void *to, vec_run a)
{
	_mm256_storeu_si256(to, a.half[0]);
	_mm256_storeu_si256((__m256i *)to + 1, a.half[1]);
}

VEC_FN uint32_t
vec_words_used(const uint32_t words[32])
{
	uint32_t used = 0;

	for (int i = 0; i < 32; i += VEC_LANES) {
		const __m256i none = _mm256_cmpeq_epi32(
			_mm256_loadu_si256((const void *)(words + i)), _mm256_setzero_si256());

		used |= (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(none)) << i;
	}
	return ~used;
}

/*
 * Compaction of lanes, for AVX2 only. The table is indexed by bits and has the numbers of the set
 * bits in order, one byte each.
 */
#define VEC_RANK(bits, i) (8 * __builtin_popcount((bits) & ((1u << (i)) - 1)))
#define VEC_LANE(bits, i) ((uint64_t)((bits) >> (i)&1 ? (i) : 0) << VEC_RANK(bits, i))
#define VEC_ORDER(bits)                                                                  \
	(VEC_LANE(bits, 1) | VEC_LANE(bits, 2) | VEC_LANE(bits, 3) | VEC_LANE(bits, 4) | \
		VEC_LANE(bits, 5) | VEC_LANE(bits, 6) | VEC_LANE(bits, 7))
#define VEC_ORDER_4(b)	VEC_ORDER(b), VEC_ORDER(b + 1), VEC_ORDER(b + 2), VEC_ORDER(b + 3)
#define VEC_ORDER_16(b) VEC_ORDER_4(b), VEC_ORDER_4(b + 4), VEC_ORDER_4(b + 8), VEC_ORDER_4(b + 12)
#define VEC_ORDER_64(b) \
	VEC_ORDER_16(b), VEC_ORDER_16(b + 16), VEC_ORDER_16(b + 32), VEC_ORDER_16(b + 48)
static const uint64_t vec_order[256] = {
	VEC_ORDER_64(0u), VEC_ORDER_64(64u), VEC_ORDER_64(128u), VEC_ORDER_64(192u)};

/**
 * Return these numbers times `factor`, a power of 2, plus `first`. The lanes after them are
 * undefined.
 */
VEC_FN vec_i32
vec_numbers(uint32_t bits, const uint32_t factor, uint32_t first)
{
	const __m256i order = _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)&vec_order[bits]));

	return _mm256_add_epi32(
		_mm256_slli_epi32(order, __builtin_ctz(factor)), _mm256_set1_epi32((int)first));
}

/** Store the same numbers with 16 bits each; all lanes are written. */
VEC_FN void
vec_store_numbers_u16(uint16_t *to, uint32_t bits, const uint32_t factor, uint32_t first)
{
	const __m128i order = _mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)&vec_order[bits]));

	_mm_storeu_si128((void *)to,
		_mm_add_epi16(_mm_slli_epi16(order, __builtin_ctz(factor)),
			_mm_set1_epi16((short)first)));
}

/** Store the lanes whose bit is set, compacted; all lanes are written. */
VEC_FN void
vec_store_listed(float *to, uint32_t bits, vec_f32 x)
{
	_mm256_storeu_ps(to, _mm256_permutevar8x32_ps(x, vec_numbers(bits, 1, 0)));
}

/** Store the lanes whose bit is set, compacted; what follows them keeps its values. */
VEC_FN void
vec_replace_listed(float *to, uint32_t bits, vec_f32 x)
{
	const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
	const __m256 listed = _mm256_permutevar8x32_ps(x, vec_numbers(bits, 1, 0));
	const __m256i set = _mm256_cmpgt_epi32(_mm256_set1_epi32(__builtin_popcount(bits)), lanes);

	_mm256_storeu_ps(
		to, _mm256_blendv_ps(_mm256_loadu_ps(to), listed, _mm256_castsi256_ps(set)));
}

VEC_FN vec_i32
vec_load_i32(const uint32_t *p)
{
	return _mm256_loadu_si256((const void *)p);
}

VEC_FN void
vec_store_i32(uint32_t *to, vec_i32 a)
{
	_mm256_storeu_si256((void *)to, a);
}

/** Bit i is set if byte i is not 0. */
VEC_FN uint32_t
vec_bytes_used(vec_i32 a)
{
	return ~(uint32_t)_mm256_movemask_epi8(_mm256_cmpeq_epi8(a, _mm256_setzero_si256()));
}

VEC_FN vec_i32
vec_or_i32(vec_i32 a, vec_i32 b)
{
	return _mm256_or_si256(a, b);
}

/** Return non-zero if any lane has a bit of `bits` set. */
VEC_FN int
vec_any_i32(vec_i32 a, int32_t bits)
{
	return !_mm256_testz_si256(a, _mm256_set1_epi32(bits));
}

VEC_FN void
vec_words_pack(const uint32_t words[32], uint32_t used, uint32_t *to)
{
	for (int i = 0; i < 32; i += VEC_LANES) {
		const uint32_t some = used >> i & 0xFF;

		vec_store_i32(to,
			_mm256_permutevar8x32_epi32(
				vec_load_i32(words + i), vec_numbers(some, 1, 0)));
		to += __builtin_popcount(some);
	}
}

#endif /* __AVX2__ */

#endif /* GK_VECTOR_AVX2_H */
