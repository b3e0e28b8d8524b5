/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The pass of a radial profile in vectors, built for AVX2 and for AVX-512. Pixels of 0 photons are
 * left out before the additions, which are scalar.
 */

#include "gk_radial_pass.h"
#include "gk_tile_set.h"
#include "gk_vector.h"

/* Pixels of a run. */
#define RUN 32

/*
 * INT16_MAX + 1 is INT16_MIN, and INT16_MIN + 1 the next value: pixels are not valid if they, plus
 * 1, are at most this.
 */
#define INVALID_LAST (INT16_MIN + 1)

#ifdef __AVX512BW__

/*
 * Append an entry for each valid pixel that is not 0.
 * @param to   room for a run and a vector
 * @param bad  out: bits of the pixels that are not valid
 * @return the number of entries
 */
VEC_FN uint32_t
run_entries(const int16_t *photons, const uint16_t *bin, uint32_t *to, uint32_t *bad)
{
	const __m512i x = _mm512_loadu_si512(photons), b = _mm512_loadu_si512(bin);
	const __mmask32 good = _mm512_cmpgt_epi16_mask(
		_mm512_add_epi16(x, _mm512_set1_epi16(1)), _mm512_set1_epi16(INVALID_LAST));
	const uint32_t some = _mm512_mask_test_epi16_mask(good, x, x);
	/* pixels 0 to 3, 8 to 11 ... in one vector, the others in the other one */
	const uint32_t low = _pext_u32(some, 0x0F0F0F0F), high = _pext_u32(some, 0xF0F0F0F0);
	const uint32_t n = (uint32_t)__builtin_popcount(low);

	*bad = ~good;
	_mm512_storeu_si512(
		to, _mm512_maskz_compress_epi32((__mmask16)low, _mm512_unpacklo_epi16(x, b)));
	_mm512_storeu_si512(
		to + n, _mm512_maskz_compress_epi32((__mmask16)high, _mm512_unpackhi_epi16(x, b)));
	return (uint32_t)__builtin_popcount(some);
}

#else

VEC_FN uint32_t
put_entries(uint32_t *to, __m256i entry, __m256i mask)
{
	const uint32_t some = (uint32_t)_mm256_movemask_ps(_mm256_castsi256_ps(mask));

	vec_store_i32(to, _mm256_permutevar8x32_epi32(entry, vec_numbers(some, 1, 0)));
	return (uint32_t)__builtin_popcount(some);
}

VEC_FN uint32_t
run_entries(const int16_t *photons, const uint16_t *bin, uint32_t *to, uint32_t *bad)
{
	__m256i good[2];
	uint32_t n = 0;

	for (int i = 0; i < 2; i++) {
		const __m256i x = _mm256_loadu_si256((const void *)(photons + 16 * i));
		const __m256i b = _mm256_loadu_si256((const void *)(bin + 16 * i));
		__m256i some;

		good[i] = _mm256_cmpgt_epi16(
			_mm256_add_epi16(x, _mm256_set1_epi16(1)), _mm256_set1_epi16(INVALID_LAST));
		some = _mm256_andnot_si256(_mm256_cmpeq_epi16(x, _mm256_setzero_si256()), good[i]);
		n += put_entries(
			to + n, _mm256_unpacklo_epi16(x, b), _mm256_unpacklo_epi16(some, some));
		n += put_entries(
			to + n, _mm256_unpackhi_epi16(x, b), _mm256_unpackhi_epi16(some, some));
	}
	*bad = ~(uint32_t)_mm256_movemask_epi8(
		_mm256_permute4x64_epi64(_mm256_packs_epi16(good[0], good[1]), 0xD8));
	return n;
}

#endif

static void
add(struct gk_radial_sums *s, const int16_t *photons, const uint16_t *bin, const uint32_t *weight,
	uint32_t n)
{
	uint32_t entry[GK_RADIAL_STRIP + RUN], nb = 0, bad;

	for (uint32_t at = 0; at < n; at += RUN) {
		nb += run_entries(photons + at, bin + at, entry + nb, &bad);
		for (; bad != 0; bad &= bad - 1) {
			const uint32_t i = at + (uint32_t)__builtin_ctz(bad);

			gk_radial_add_invalid(s, bin[i], weight, i);
		}
	}
	gk_radial_add_entries(s->part, entry, nb);
}

const struct gk_radial_ops GK_TILE_SET(gk_radial) = {add};
