/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arithmetic on pixels. gk_pixel.h defines every bit; the quick path here gives the same for words
 * of G0 and moderate coefficients in five instructions a pixel, and everything else is done by
 * gk_pixel.h, pixel by pixel: *odd* pixels, that is words that are not of G0, and wild pixels.
 *
 * - A word as it stands is a denormal float, w x 2^-149. A fused multiplication by 2^127 (exact)
 *   and subtraction of p x 2^-22 rounds once, as w - p does. r x 2^22 undoes the scale, exactly.
 * - Photons rise with the word, so that "at least the threshold" is "at least a certain word",
 *   which is found once for each pixel by trying (threshold_word()). Words below 0x4000, taken for
 *   halves, are ordered as the numbers that they are: a packed subtraction compares two at a time.
 * - 1.5 x 2^23 added to a number below 2^22 rounds it to an integer, ties to even, as rintf() does;
 *   that the multiplication by 256 is fused is the same, for it is exact.
 */
#ifndef GK_CUDA_PIXEL_CUH
#define GK_CUDA_PIXEL_CUH

#include "gk_cuda.h"
#include "gk_pixel.h"

#define ALL_LANES 0xFFFFFFFFu

/* Set before the launch, and not rewritten during it. */
extern "C" {
__constant__ struct gk_cuda_args args;
}

#define WORD_SCALE  1.7014118346046923e38f /* 2^127 */
#define P_SCALE	    2.384185791015625e-7f  /* 2^-22 */
#define R_SCALE	    4194304.0f		   /* 2^22 */
#define SUM_MAGIC   12582912.0f		   /* 1.5 x 2^23 */
#define SUM_NOTHING 0x4B400000u		   /* its bits */
#define NO_WORD	    0x4000u		   /* beyond all of G0 */
#define GAINS	    0xC000C000u

/* What the quick path knows of one pixel. */
struct quick {
	float p; /* -p x 2^-22 */
	float r; /* r x 2^22 */
	bool hole;
	bool wild;
};

static __device__ __forceinline__ float
quick_photons(uint32_t word, float p, float r)
{
	return gk_mul(__fmaf_rn(__uint_as_float(word), WORD_SCALE, p), r);
}

/* In 1/256, above SUM_NOTHING. */
static __device__ __forceinline__ uint32_t
quick_sum(float photons)
{
	return __float_as_uint(__fmaf_rn(photons, (float)GK_SUM_SCALE, SUM_MAGIC));
}

/*
 * Wild are pixels that might give 2^13 photons or more whatever their words are (512 of them in
 * 1/256 fit into 32 bits), that fall with the word, or whose p the scale would take bits from.
 */
static __device__ __forceinline__ struct quick
quick_of(float p, float r)
{
	struct quick q;

	q.hole = p != p || r != r;
	q.wild = !q.hole &&
		(!((65536.0f + fabsf(p)) * fabsf(r) < 8000.0f) || r < 0.0f ||
			(p != 0.0f && fabsf(p) < 1e-24f));
	q.p = q.hole || q.wild ? 0.0f : -p * P_SCALE;
	q.r = q.hole || q.wild ? 0.0f : r * R_SCALE;
	return q;
}

/* The smallest word of G0 that gives the threshold, by the very conversion that counts. */
static __device__ __forceinline__ uint32_t
threshold_word(const struct quick *q, float threshold)
{
	uint32_t below = 0;

	if (q->hole || q->wild || !(quick_photons(NO_WORD - 1, q->p, q->r) >= threshold))
		return NO_WORD;
#pragma unroll 1
	for (uint32_t step = NO_WORD / 2; step != 0; step /= 2)
		if (!(quick_photons(below + step - 1, q->p, q->r) >= threshold))
			below += step;
	return below;
}

/* Two words less two thresholds (which have their sign bits set): below is negative. */
static __device__ __forceinline__ uint32_t
compare_words(uint32_t words, uint32_t thresholds)
{
	uint32_t less;

	asm("add.f16x2 %0, %1, %2;" : "=r"(less) : "r"(words), "r"(thresholds));
	return less;
}

/* Signs of four halves, a byte each, all ones or zeros. */
static __device__ __forceinline__ uint32_t
signs_of(uint32_t low, uint32_t high)
{
	uint32_t bytes;

	asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(bytes) : "r"(low), "r"(high));
	return bytes;
}

/* acc less what bytes of -1 weigh. */
static __device__ __forceinline__ int32_t
weigh(uint32_t bytes, uint32_t weights, int32_t acc)
{
	int32_t v;

	asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(v) : "r"(bytes), "r"(weights), "r"(acc));
	return v;
}

/* A bit of gk_cuda_coef.hole_bits or wild_bits. */
static __device__ __forceinline__ bool
bit_at(const uint32_t *bits, uint32_t pixel)
{
	return __ldcg(bits + pixel / 32) >> pixel % 32 & 1;
}

/* Is this pixel of a chunk, with this word, not for the quick path? */
static __device__ __forceinline__ bool
is_odd(const struct gk_cuda_coef *coef, uint32_t wild, uint32_t pixel, uint32_t word)
{
	return (word & GK_RAW_GAIN_MASK) != 0 || (wild != 0 && bit_at(coef->wild_bits, pixel));
}

/* Photons of any word. */
static __device__ __forceinline__ float
any_photons(const struct gk_cuda_coef *coef, uint32_t pixel, uint16_t word)
{
	const uint32_t gain = word >> 14, stage = gain == 3 ? 2 : gain & 1;
	const float2 c = __ldcg((const float2 *)coef->plane[stage][pixel]);
	const float p[3] = {c.x, c.x, c.x}, r[3] = {c.y, c.y, c.y};

	return gk_photons(word, p, r);
}

/* Values of 4 neighbouring pixels of an image. */
static __device__ __forceinline__ void
store_values(void *value, uint64_t at, uint32_t type, const float x[4])
{
	if (type == GK_VALUE_I16) {
		uint32_t v[2];

#pragma unroll
		for (int i = 0; i < 2; i++)
			v[i] = (uint16_t)gk_value_i16(x[2 * i]) |
				(uint32_t)(uint16_t)gk_value_i16(x[2 * i + 1]) << 16;
		__stcs((uint2 *)((int16_t *)value + at), make_uint2(v[0], v[1]));
	} else {
		__stcs((float4 *)((float *)value + at), make_float4(x[0], x[1], x[2], x[3]));
	}
}

static __device__ __forceinline__ void
store_value(void *value, uint64_t at, uint32_t type, float x)
{
	if (type == GK_VALUE_I16)
		((int16_t *)value)[at] = gk_value_i16(x);
	else
		((float *)value)[at] = gk_value_f32(x);
}

#endif /* GK_CUDA_PIXEL_CUH */
