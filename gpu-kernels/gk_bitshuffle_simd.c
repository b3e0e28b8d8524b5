/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of compressed u16 images in vectors, built for AVX2 and for AVX-512.
 *
 * Planes: 256 values are transposed together, first their low bytes, then their high bytes. 8
 * vectors hold these bytes; those of values 64 apart are neighbours. Three rounds of unpack
 * instructions collect every eighth value in one vector. Exchanging bits between vectors then
 * transposes 8 x 8 bits of them. Vectors of 512 bits and software prefetches were slower here, with
 * data in memory (Zen 4: 5.0 to 6.6 GB/s of raw data, 8.0 without).
 */

#include <immintrin.h>

#include "gk_bitshuffle_block.h"
#include "gk_tile_set.h"
#include "gk_vector_common.h"

/* Keep arrays of vectors in registers. */
#define UNROLL _Pragma("GCC unroll 8")

/* Values that are transposed together. */
#define GROUP 256

/* The bits of `a` where the mask is 1, those of `b` elsewhere. */
VEC_FN __m256i
choose_bits(__m256i mask, __m256i a, __m256i b)
{
#ifdef __AVX512VL__
	return _mm256_ternarylogic_epi64(mask, a, b, 0xCA);
#else
	return _mm256_or_si256(_mm256_and_si256(mask, a), _mm256_andnot_si256(mask, b));
#endif
}

/* Load 8 values for each lane. Those of the second lane are 128 values later. */
VEC_FN __m256i
load_values(const uint8_t *from)
{
	return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_loadu_si128((const void *)from)),
		_mm_loadu_si128((const void *)(from + GROUP)), 1);
}

/* Exchange the bits of `a` that are `by` above those of the mask for these bits of `b`. */
VEC_FN void
exchange_bits(__m256i *a, __m256i *b, int by, char mask)
{
	const __m256i x = *a, y = *b, low = _mm256_set1_epi8(mask);
#ifdef __AVX512VL__
	*a = choose_bits(low, x, _mm256_slli_epi16(y, by));
	*b = choose_bits(low, _mm256_srli_epi16(x, by), y);
#else
	const __m256i both = _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16(x, by), y), low);

	*a = _mm256_xor_si256(x, _mm256_slli_epi16(both, by));
	*b = _mm256_xor_si256(y, both);
#endif
}

/* Rotate the number of a byte (number of the vector x 16 + number in the lane) to the left. */
VEC_FN void
rotate_bytes(__m256i to[8], const __m256i from[8])
{
	UNROLL
	for (int i = 0; i < 4; i++) {
		to[2 * i] = _mm256_unpacklo_epi8(from[i], from[i + 4]);
		to[2 * i + 1] = _mm256_unpackhi_epi8(from[i], from[i + 4]);
	}
}

/* Transpose 8 x 8 bits of 8 vectors. */
VEC_FN void
transpose_bits(__m256i v[8])
{
	UNROLL
	for (int i = 0; i < 8; i += 2)
		exchange_bits(&v[i], &v[i + 1], 1, 0x55);
	UNROLL
	for (int i = 0; i < 4; i++)
		exchange_bits(&v[i + (i & 2)], &v[i + (i & 2) + 2], 2, 0x33);
	UNROLL
	for (int i = 0; i < 4; i++)
		exchange_bits(&v[i], &v[i + 4], 4, 0x0F);
}

/* Store the planes of the low or the high bytes of a group. Those of values 64 apart alternate. */
VEC_FN void
put_planes(__m256i b[8], uint8_t *to)
{
	__m256i a[8];

	rotate_bytes(a, b);
	rotate_bytes(b, a);
	rotate_bytes(a, b);
	transpose_bits(a);
	UNROLL
	for (int k = 0; k < 8; k++)
		_mm256_storeu_si256((void *)(to + k * (GK_BITSHUFFLE_BLOCK / 8)), a[k]);
}

VEC_FN void
split_block(const uint16_t *from, uint8_t *to)
{
	/* the low bytes of 8 values, then their high bytes */
	const __m256i halves = _mm256_broadcastsi128_si256(
		_mm_setr_epi8(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15));

	for (uint32_t i = 0; i < GK_BITSHUFFLE_BLOCK; i += GROUP) {
		const uint8_t *at = (const uint8_t *)(from + i);
		__m256i low[8], high[8];

		UNROLL
		for (int k = 0; k < 8; k++) {
			const __m256i x = _mm256_shuffle_epi8(load_values(at + 16 * k), halves);
			const __m256i y =
				_mm256_shuffle_epi8(load_values(at + 16 * (k + 8)), halves);

			low[k] = _mm256_unpacklo_epi8(x, y);
			high[k] = _mm256_unpackhi_epi8(x, y);
		}
		put_planes(low, to + i / 8);
		put_planes(high, to + GK_BITSHUFFLE_BLOCK + i / 8);
	}
}

static void
split(const uint16_t *from, uint32_t v, uint8_t *to)
{
	if (v == GK_BITSHUFFLE_BLOCK)
		split_block(from, to);
	else
		gk_bitshuffle_split8(from, v, to);
}

#ifdef __AVX512BW__

/* Words of bits of the n bytes of a block. `plain` has a byte before them and 64 after. */
VEC_FN void
equal_words(const uint8_t *plain, uint32_t n, uint64_t *equal)
{
	for (uint32_t i = 0; i < (n + 63) / 64; i++)
		equal[i] = _mm512_cmpeq_epi8_mask(
			_mm512_loadu_si512(plain + 64 * i), _mm512_loadu_si512(plain + 64 * i - 1));
}

/*
 * Mark the first byte of each match, and the byte GK_BITSHUFFLE_RUN - 1 before its end.
 * @param some  bits of the words with marks
 */
VEC_FN void
find_changes(const uint64_t *equal, uint32_t words, uint64_t *change, uint64_t some[2])
{
	uint8_t any[GK_BITSHUFFLE_WORDS / 8] = {0};
	__m512i before = _mm512_setzero_si512();

	for (uint32_t i = 0; i < words; i += 8) {
		const __m512i e = _mm512_loadu_si512(equal + i),
			      next = _mm512_loadu_si512(equal + i + 1);
		__m512i all = e, d;

		for (int k = 1; k < GK_BITSHUFFLE_RUN; k++)
			/* all & (a | b) */
			all = _mm512_ternarylogic_epi64(all,
				_mm512_srl_epi64(e, _mm_cvtsi32_si128(k)),
				_mm512_sll_epi64(next, _mm_cvtsi32_si128(64 - k)), 0xE0);
		/* all ^ (all << 1 | carry) */
		d = _mm512_ternarylogic_epi64(all, _mm512_slli_epi64(all, 1),
			_mm512_srli_epi64(_mm512_alignr_epi64(all, before, 7), 63), 0x1E);
		before = all;
		_mm512_storeu_si512(change + i, d);
		any[i / 8] = _mm512_test_epi64_mask(d, d);
	}
	memcpy(some, any, sizeof(any));
}

#else

VEC_FN void
equal_words(const uint8_t *plain, uint32_t n, uint64_t *equal)
{
	for (uint32_t i = 0; i < (n + 63) / 64 * 2; i++) {
		const uint8_t *at = plain + 32 * i;
		const uint32_t half = (uint32_t)_mm256_movemask_epi8(
			_mm256_cmpeq_epi8(_mm256_loadu_si256((const void *)at),
				_mm256_loadu_si256((const void *)(at - 1))));

		memcpy((uint8_t *)equal + 4 * i, &half, sizeof(half));
	}
}

/* The marks of 4 words. @param before  bits of the words before, moved up by one word */
VEC_FN __m256i
changes_of(const uint64_t *equal, __m256i *before)
{
	const __m256i e = _mm256_loadu_si256((const void *)equal),
		      next = _mm256_loadu_si256((const void *)(equal + 1));
	__m256i all = e, up, carry;

	for (int k = 1; k < GK_BITSHUFFLE_RUN; k++)
		all = _mm256_and_si256(all,
			_mm256_or_si256(_mm256_srl_epi64(e, _mm_cvtsi32_si128(k)),
				_mm256_sll_epi64(next, _mm_cvtsi32_si128(64 - k))));
	up = _mm256_permute4x64_epi64(all, 0x93);
	carry = _mm256_srli_epi64(_mm256_blend_epi32(up, *before, 3), 63);
	*before = up;
	return _mm256_xor_si256(all, _mm256_or_si256(_mm256_add_epi64(all, all), carry));
}

VEC_FN void
find_changes(const uint64_t *equal, uint32_t words, uint64_t *change, uint64_t some[2])
{
	__m256i before = _mm256_setzero_si256();
	uint32_t i = 0;

	for (uint32_t half = 0; half < 2; half++) {
		/* in a register: additions in memory would depend on each other */
		uint64_t bits = 0;

		for (; i < words && i < 64 * (half + 1); i += 4) {
			const __m256i d = changes_of(equal + i, &before);
			const __m256i none = _mm256_cmpeq_epi64(d, _mm256_setzero_si256());

			_mm256_storeu_si256((void *)(change + i), d);
			bits |= (uint64_t)(_mm256_movemask_pd(_mm256_castsi256_pd(none)) ^ 15)
				<< i % 64;
		}
		some[half] = bits;
	}
}

#endif

/* Pairs of positions for gk_bitshuffle_sequences(). @return their number */
VEC_FN uint32_t
find_edges(const uint64_t *equal, uint32_t n, uint16_t *edge)
{
	uint64_t change[GK_BITSHUFFLE_WORDS], some[2];
	uint32_t nb = 0;

	find_changes(equal, (n + 63) / 64, change, some);
	for (uint32_t half = 0; half < 2; half++) {
		for (; some[half] != 0; some[half] &= some[half] - 1) {
			const uint32_t word = 64 * half + (uint32_t)_tzcnt_u64(some[half]);
			uint64_t bits = change[word];
			const uint32_t more = (uint32_t)__builtin_popcountll(bits);

			/* four without a branch each; those of no bit are overwritten */
			for (uint32_t i = 0; i < more; i += 4) {
				for (uint32_t k = 0; k < 4; k++, bits &= bits - 1)
					edge[nb + i + k] = (uint16_t)(64 * word + _tzcnt_u64(bits));
			}
			nb += more;
		}
	}
	return nb / 2;
}

static uint32_t
block(const uint16_t *from, uint32_t v, uint8_t *to)
{
	return gk_bitshuffle_make_block(from, v, to, split, equal_words, find_edges);
}

const struct gk_bitshuffle_ops GK_TILE_SET(gk_bitshuffle) = {split, block};
