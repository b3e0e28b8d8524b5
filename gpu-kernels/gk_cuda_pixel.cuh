/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arithmetic on pixels. gk_pixel.h defines every bit. The fast path here gives the same bits for G0
 * words and moderate coefficients, in five instructions per pixel. All other pixels use gk_pixel.h
 * one by one: *odd* pixels, which are words not in G0, and wild pixels.
 *
 * - A word taken as a float is the denormal w x 2^-149. A fused multiplication by 2^127 (exact) and
 *   subtraction of p x 2^-22 rounds once, as w - p does. r x 2^22 removes the scale exactly.
 * - Photons increase with the word. "At least the threshold" is therefore "at least a certain
 *   word", which is determined once per pixel by search (threshold_word()). Words below 0x4000,
 *   taken as half floats, have the same order as the integers, so a packed subtraction compares two
 *   at a time.
 * - Adding 1.5 x 2^23 to a number below 2^22 rounds it to an integer, ties to even, as rintf()
 *   does. Fusing this with the multiplication by 256 does not change the result, because that
 *   multiplication is exact.
 */
#ifndef GK_CUDA_PIXEL_CUH
#define GK_CUDA_PIXEL_CUH

#include "gk_cuda.h"
#include "gk_cuda_packed.cuh"
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
#define SUM_NOTHING 0x4B400000u		   /* bits of SUM_MAGIC */
#define NO_WORD	    0x4000u		   /* larger than all G0 words */
#define GAINS	    0xC000C000u
#define QUICK_MOST  8000 /* no photons of the fast path are more, nor less than the negative */

/* Coefficients of one pixel for the fast path. */
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

/*
 * gk_value_i16() of photons by the fast path. Numbers just below a half do not become integers when
 * the half is added, because the sum is rounded towards zero.
 */
static __device__ __forceinline__ int32_t
quick_value(float photons)
{
	return __float2int_rz(__fadd_rz(photons, copysignf(0.5f, photons)));
}

/* Pixel sum in units of 1/256, plus SUM_NOTHING. */
static __device__ __forceinline__ uint32_t
quick_sum(float photons)
{
	return __float_as_uint(__fmaf_rn(photons, (float)GK_SUM_SCALE, SUM_MAGIC));
}

/*
 * Wild pixels are those that might give 2^13 photons or more for some word (512 of them in 1/256
 * fit into 32 bits), those whose photons decrease with the word, and those whose p loses bits by
 * the scale.
 */
static __device__ __forceinline__ struct quick
quick_of(float p, float r)
{
	struct quick q;

	q.hole = p != p || r != r;
	q.wild = !q.hole &&
		(!((65536.0f + fabsf(p)) * fabsf(r) < (float)QUICK_MOST) || r < 0.0f ||
			(p != 0.0f && fabsf(p) < 1e-24f));
	q.p = q.hole || q.wild ? 0.0f : -p * P_SCALE;
	q.r = q.hole || q.wild ? 0.0f : r * R_SCALE;
	return q;
}

/*
 * The smallest G0 word that reaches the threshold, determined with the conversion used for
 * counting.
 */
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

/* Bit of gk_cuda_coef.hole_bits or wild_bits. */
static __device__ __forceinline__ bool
bit_at(const uint32_t *bits, uint32_t pixel)
{
	return __ldcg(bits + pixel / 32) >> pixel % 32 & 1;
}

/* Return true if the fast path cannot process this pixel of a chunk with this word. */
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
