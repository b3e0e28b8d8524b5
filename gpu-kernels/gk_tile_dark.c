/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Dark samples in vectors or in plain C, and pedestal updates of a tile in C that compilers
 * vectorise. Built once for each instruction set.
 */

#include <stdbool.h>

#ifdef __AVX2__
#include <immintrin.h>
#endif

#include "gk_pixel.h"
#include "gk_tile_set.h"

/* Pixels whose dark samples are summed together; divides gk_geometry.cols */
#ifdef __AVX2__
#define DARK_STRIP 16
#else
#define DARK_STRIP 32
#endif

/* Pixels whose cells are prefetched ahead */
#define DARK_AHEAD 512

#ifdef __AVX2__

/* Sums of 14-bit values of so many frames fit into 16 bits. */
#define SUM_FRAMES 4

/* All bits of a cell if its pixel is usable in G0. */
static inline __m256i
usable(const float *r0)
{
	const __m128 r = _mm_loadu_ps(r0);

	return _mm256_cvtepi32_epi64(_mm_castps_si128(_mm_cmpord_ps(r, r)));
}

/* Add 4 pixels to their cells. @param samples  << 32 */
static inline void
add_cells(__m128i sum, __m256i samples, const float *r0, uint64_t *cells)
{
	const __m256i add = _mm256_or_si256(_mm256_cvtepu32_epi64(sum), samples);

	_mm256_storeu_si256((__m256i *)cells,
		_mm256_add_epi64(_mm256_loadu_si256((const __m256i *)cells),
			_mm256_and_si256(usable(r0), add)));
}

/*
 * Add 16 pixels to their cells.
 * @param low,high  sums of pixels 0 to 3 and 8 to 11, and of the others
 * @param samples   of the pixels in order, 16 bits each
 */
static inline __attribute__((always_inline)) void
add_pixels(__m256i low, __m256i high, __m256i samples, const float *r0, uint64_t *cells)
{
	const __m128i sums[4] = {_mm256_castsi256_si128(low), _mm256_castsi256_si128(high),
		_mm256_extracti128_si256(low, 1), _mm256_extracti128_si256(high, 1)};
	_Alignas(32) uint16_t number[DARK_STRIP];

	_mm256_store_si256((__m256i *)number, samples);
	for (int i = 0; i < 4; i++)
		add_cells(sums[i],
			_mm256_slli_epi64(
				_mm256_cvtepu16_epi64(_mm_loadl_epi64((void *)&number[4 * i])), 32),
			r0 + 4 * i, cells + 4 * i);
}

/* Sum the samples of 16 pixels of which some have another gain than G0. */
static __attribute__((noinline)) void
add_any(const uint16_t *const raw[], uint64_t first, uint32_t n, const float *r0, uint64_t *cells)
{
	const __m256i zero = _mm256_setzero_si256(),
		      gains = _mm256_set1_epi16((int16_t)GK_RAW_GAIN_MASK);
	__m256i samples = zero, low = zero, high = zero;

	for (uint32_t f = 0; f < n; f++) {
		const __m256i w = _mm256_loadu_si256((const void *)(raw[f] + first));
		const __m256i is_g0 = _mm256_cmpeq_epi16(_mm256_and_si256(w, gains), zero);
		const __m256i sample = _mm256_and_si256(w, is_g0);

		samples = _mm256_sub_epi16(samples, is_g0);
		low = _mm256_add_epi32(low, _mm256_unpacklo_epi16(sample, zero));
		high = _mm256_add_epi32(high, _mm256_unpackhi_epi16(sample, zero));
	}
	add_pixels(low, high, samples, r0, cells);
}

/*
 * Sum the samples of 16 pixels: the halves of gk_dark_sample(), in lanes of their own widths. Then
 * convert them to cells, and add these to `cells`. Most words of dark frames are in G0. They are
 * added without a test, and one test of all frames follows.
 */
static inline __attribute__((always_inline)) void
add_samples(
	const uint16_t *const raw[], uint64_t first, uint32_t n, const float *r0, uint64_t *cells)
{
	const __m256i zero = _mm256_setzero_si256();
	__m256i low = zero, high = zero, any = zero;

	for (uint32_t f = 0; f < n;) {
		const uint32_t end = n - f > SUM_FRAMES ? f + SUM_FRAMES : n;
		__m256i part = zero;

		for (; f < end; f++) {
			const __m256i w = _mm256_loadu_si256((const void *)(raw[f] + first));

			any = _mm256_or_si256(any, w);
			part = _mm256_add_epi16(part, w);
		}
		low = _mm256_add_epi32(low, _mm256_unpacklo_epi16(part, zero));
		high = _mm256_add_epi32(high, _mm256_unpackhi_epi16(part, zero));
	}
	if (__builtin_expect(
		    _mm256_testz_si256(any, _mm256_set1_epi16((int16_t)GK_RAW_GAIN_MASK)), 1))
		add_pixels(low, high, _mm256_set1_epi16((int16_t)n), r0, cells);
	else
		add_any(raw, first, n, r0, cells);
}

#else

/* Sum the samples of a strip in two 32-bit sums, then convert them and add them to cells. */
static inline void
add_samples(
	const uint16_t *const raw[], uint64_t first, uint32_t n, const float *r0, uint64_t *cells)
{
	uint32_t sum[DARK_STRIP] = {0};
	uint16_t samples[DARK_STRIP] = {0};

	for (uint32_t f = 0; f < n; f++) {
		const uint16_t *raw_strip = raw[f] + first;

		/* the halves of gk_dark_sample(), in lanes of their own widths */
		for (int i = 0; i < DARK_STRIP; i++) {
			const uint16_t w = raw_strip[i];
			const bool is_g0 = (w & GK_RAW_GAIN_MASK) == 0;

			samples[i] += is_g0;
			sum[i] += is_g0 ? w : 0;
		}
	}
	for (int i = 0; i < DARK_STRIP; i++) {
		const uint64_t cell = (uint64_t)samples[i] << 32 | sum[i];

		cells[i] += r0[i] == r0[i] ? cell : 0;
	}
}

#endif

/* Add to cells to which other gangs may add at the same time. */
static inline void
add_shared(
	const uint16_t *const raw[], uint64_t first, uint32_t n, const float *r0, uint64_t *cells)
{
	uint64_t add[DARK_STRIP] = {0};

	add_samples(raw, first, n, r0, add);
	for (int i = 0; i < DARK_STRIP; i++)
		if (add[i] != 0)
			__atomic_fetch_add(&cells[i], add[i], __ATOMIC_RELAXED);
}

/*
 * The samples of a batch are summed first. It then needs one addition per pixel to memory that
 * other gangs may share.
 */
void
GK_TILE_SET(gk_tile_dark)(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	uint64_t *cells, int shared)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t first = 0; first < pixels; first += DARK_STRIP) {
		/* the cells of the next tile follow */
		for (int i = 0; i < DARK_STRIP; i += 8)
			__builtin_prefetch(cells + first + DARK_AHEAD + i, 1, 2);
		if (shared)
			add_shared(raw, first, n, t->r[0] + first, cells + first);
		else
			add_samples(raw, first, n, t->r[0] + first, cells + first);
	}
}

void
GK_TILE_SET(gk_tile_update)(const struct gk_tile *t, uint64_t *cells, uint32_t n_min, float alpha,
	float *p_out, struct gk_update *u)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;
	uint64_t samples = 0;
	uint32_t updated = 0;
	int64_t drift = 0;

	for (uint64_t x = 0; x < pixels; x++) {
		const float before = t->p[0][x],
			    after = gk_dark_update(before, cells[x], n_min, alpha);

		samples += cells[x] >> 32;
		updated += (uint32_t)(cells[x] >> 32) >= n_min;
		drift += gk_drift_q8(before, after);
		p_out[x] = after;
		cells[x] = 0;
	}
	u->samples = samples;
	u->updated = updated;
	u->drift = drift;
}
