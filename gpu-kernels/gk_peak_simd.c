/* SPDX-License-Identifier: BSD-3-Clause */
/* Passes over all pixels of a frame in vectors, built for AVX2 and for AVX-512. */

#include "gk_peak_finder.h"
#include "gk_tile_set.h"
#include "gk_vector.h"

/* Pixels of a word of bits. */
#define RUN 32

/* Pixels of a run. */
struct run_bits {
	uint32_t above; /* can be hits */
	uint32_t rest;	/* neither masked nor in the table */
};

#ifdef __AVX512BW__

/*
 * Append the indices of the pixels of a run that are in the table.
 * @param to  room for a run
 * @return the number of indices
 */
VEC_FN uint32_t
run_indices(const int16_t *photons, const uint16_t *bin, int16_t above, uint32_t *to,
	struct run_bits *bits)
{
	const __m512i x = _mm512_loadu_si512(photons), b = _mm512_loadu_si512(bin);
	const __m512i factors = _mm512_set1_epi32(1 << 16 | GK_PEAK_VALUES);
	const __mmask32 good = _knot_mask32(_mm512_movepi16_mask(b));
	const __m512i place = _mm512_sub_epi16(x, _mm512_set1_epi16(GK_PEAK_VALUE_MIN));
	const __mmask32 value =
		_mm512_mask_cmplt_epu16_mask(good, place, _mm512_set1_epi16(GK_PEAK_VALUES));
	const __mmask32 counted = _mm512_mask_test_epi16_mask(value, x, x);
	/* pixels 0 to 3, 8 to 11 ... in one vector, the others in the other one */
	const __m512i low = _mm512_madd_epi16(_mm512_unpacklo_epi16(b, place), factors);
	const __m512i high = _mm512_madd_epi16(_mm512_unpackhi_epi16(b, place), factors);
	const uint32_t some_low = _pext_u32(counted, 0x0F0F0F0F);
	const uint32_t some_high = _pext_u32(counted, 0xF0F0F0F0);
	const uint32_t n = (uint32_t)__builtin_popcount(some_low);

	bits->above = _mm512_mask_cmpgt_epi16_mask(good, x, _mm512_set1_epi16(above));
	bits->rest = good & ~value;
	_mm512_storeu_si512(to, _mm512_maskz_compress_epi32((__mmask16)some_low, low));
	_mm512_storeu_si512(to + n, _mm512_maskz_compress_epi32((__mmask16)some_high, high));
	return (uint32_t)__builtin_popcount(counted);
}

/* @return those of `bits` that are above `upper` of their bins */
VEC_FN uint32_t
run_hits(const struct gk_peak_frame *f, uint64_t at, uint32_t bits)
{
	uint32_t hits = 0;

	for (int i = 0; i < RUN; i += 16) {
		const __m512i x = _mm512_cvtepi16_epi32(
			_mm256_loadu_si256((const void *)(f->photons + at + i)));
		const __m512i b =
			_mm512_cvtepu16_epi32(_mm256_loadu_si256((const void *)(f->bin + at + i)));
		const __mmask16 some = (__mmask16)(bits >> i);
		const __m512 upper = _mm512_mask_i32gather_ps(
			_mm512_setzero_ps(), some, b, f->upper, sizeof(float));

		hits |= (uint32_t)_mm512_mask_cmp_ps_mask(
				some, _mm512_cvtepi32_ps(x), upper, _CMP_GT_OQ)
			<< i;
	}
	return hits;
}

#else

/* The bits of two vectors of masks of 16 bits. */
VEC_FN uint32_t
mask_bits(__m256i low, __m256i high)
{
	return (uint32_t)_mm256_movemask_epi8(
		_mm256_permute4x64_epi64(_mm256_packs_epi16(low, high), 0xD8));
}

VEC_FN uint32_t
put_indices(uint32_t *to, __m256i index, __m256i mask)
{
	const uint32_t some = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(mask));

	vec_store_i32(to, _mm256_permutevar8x32_epi32(index, vec_numbers(some, 1, 0)));
	return (uint32_t)__builtin_popcount(some);
}

VEC_FN uint32_t
run_indices(const int16_t *photons, const uint16_t *bin, int16_t above, uint32_t *to,
	struct run_bits *bits)
{
	const __m256i factors = _mm256_set1_epi32(1 << 16 | GK_PEAK_VALUES);
	const __m256i zero = _mm256_setzero_si256();
	__m256i bright[2], rest[2];
	uint32_t n = 0;

	for (int i = 0; i < 2; i++) {
		const __m256i x = _mm256_loadu_si256((const void *)(photons + 16 * i));
		const __m256i b = _mm256_loadu_si256((const void *)(bin + 16 * i));
		const __m256i masked = _mm256_srai_epi16(b, 15);
		const __m256i place = _mm256_sub_epi16(x, _mm256_set1_epi16(GK_PEAK_VALUE_MIN));
		/* AVX2 has no unsigned comparison, but an unsigned minimum. */
		const __m256i value = _mm256_cmpeq_epi16(
			_mm256_min_epu16(place, _mm256_set1_epi16(GK_PEAK_VALUES - 1)), place);
		const __m256i counted = _mm256_andnot_si256(
			_mm256_or_si256(masked, _mm256_cmpeq_epi16(x, zero)), value);

		bright[i] = _mm256_andnot_si256(
			masked, _mm256_cmpgt_epi16(x, _mm256_set1_epi16(above)));
		rest[i] = _mm256_or_si256(masked, value);
		n += put_indices(to + n,
			_mm256_madd_epi16(_mm256_unpacklo_epi16(b, place), factors),
			_mm256_unpacklo_epi16(counted, counted));
		n += put_indices(to + n,
			_mm256_madd_epi16(_mm256_unpackhi_epi16(b, place), factors),
			_mm256_unpackhi_epi16(counted, counted));
	}
	bits->above = mask_bits(bright[0], bright[1]);
	bits->rest = ~mask_bits(rest[0], rest[1]);
	return n;
}

VEC_FN uint32_t
run_hits(const struct gk_peak_frame *f, uint64_t at, uint32_t bits)
{
	const __m256i one = _mm256_setr_epi32(1, 2, 4, 8, 16, 32, 64, 128);
	uint32_t hits = 0;

	for (int i = 0; i < RUN; i += 8) {
		const __m256i x =
			_mm256_cvtepi16_epi32(_mm_loadu_si128((const void *)(f->photons + at + i)));
		const __m256i b =
			_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(f->bin + at + i)));
		const __m256i some = _mm256_cmpeq_epi32(
			_mm256_and_si256(_mm256_set1_epi32((int)(bits >> i)), one), one);
		const __m256 upper = _mm256_mask_i32gather_ps(
			_mm256_setzero_ps(), f->upper, b, _mm256_castsi256_ps(some), sizeof(float));
		const __m256 above = _mm256_cmp_ps(_mm256_cvtepi32_ps(x), upper, _CMP_GT_OQ);

		hits |= (uint32_t)_mm256_movemask_ps(
				_mm256_and_ps(above, _mm256_castsi256_ps(some)))
			<< i;
	}
	return hits;
}

#endif

static uint32_t
count(struct gk_peak_counts *c, const int16_t *photons, const uint16_t *bin, uint32_t n,
	uint32_t *word)
{
	uint32_t index[GK_PEAK_STRIP + RUN], nb = 0, used = 0;

	for (uint32_t at = 0; at < n; at += RUN) {
		struct run_bits bits;

		nb += run_indices(photons + at, bin + at, c->above, index + nb, &bits);
		word[at / RUN] = bits.above;
		used |= (uint32_t)(bits.above != 0) << at / RUN;
		for (; bits.rest != 0; bits.rest &= bits.rest - 1) {
			const uint32_t i = at + (uint32_t)__builtin_ctz(bits.rest);

			gk_peak_count_rest(c, photons[i], bin[i]);
		}
	}
	gk_peak_count_values(c->values, index, nb);
	return used;
}

static uint32_t
compare(const struct gk_peak_frame *f, uint64_t first, uint32_t some, uint32_t *word)
{
	uint32_t used = 0;

	for (; some != 0; some &= some - 1) {
		const uint32_t k = (uint32_t)__builtin_ctz(some);

		word[k] = run_hits(f, first + k * RUN, word[k]);
		used |= (uint32_t)(word[k] != 0) << k;
	}
	return used;
}

const struct gk_peak_ops GK_TILE_SET(gk_peak) = {count, compare};
