/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arithmetic on the 8 pixels that one thread sees of a chunk. gk_pixel.h defines every bit; what is
 * here is the same for words of G0 and moderate values, at half the price, and hands over to
 * gk_pixel.h for all others.
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

/* G0 coefficients of a thread's pixels. */
struct lane_coef {
	float p[GK_CUDA_LANE];
	float r[GK_CUDA_LANE];
};

/* Quick counts: bragg << 16 | nnz, and the sum in 1/256. */
struct lane_counts {
	uint32_t count;
	int32_t sum;
};

static __device__ __forceinline__ void
load_coef(struct lane_coef *c, const struct gk_cuda_coef *coef, uint32_t lane)
{
#pragma unroll
	for (int k = 0; k < 2; k++) {
		const float4 p = __ldcg((const float4 *)coef->g0[k][lane]);
		const float4 r = __ldcg((const float4 *)coef->g0[k + 2][lane]);

		c->p[4 * k] = p.x, c->p[4 * k + 1] = p.y, c->p[4 * k + 2] = p.z;
		c->p[4 * k + 3] = p.w;
		c->r[4 * k] = r.x, c->r[4 * k + 1] = r.y, c->r[4 * k + 2] = r.z;
		c->r[4 * k + 3] = r.w;
	}
}

static __device__ __forceinline__ uint32_t
word_pair(uint4 w, int pair)
{
	return pair == 0 ? w.x : pair == 1 ? w.y : pair == 2 ? w.z : w.w;
}

static __device__ __forceinline__ uint16_t
word_at(uint4 w, int i)
{
	return (uint16_t)(word_pair(w, i >> 1) >> (i & 1) * 16);
}

/* A word of G0 as float: 0x4B000000 is 2^23, and the word its lowest bits. Exact. */
static __device__ __forceinline__ float
adu_at(uint4 w, int i)
{
	const uint32_t bits =
		__byte_perm(word_pair(w, i >> 1), 0x4B000000, i & 1 ? 0x7632 : 0x7610);

	return __fsub_rn(__uint_as_float(bits), 8388608.0f);
}

static __device__ __forceinline__ float
photons_g0(uint4 w, const struct lane_coef *c, int i)
{
	return gk_mul(gk_sub(adu_at(w, i), c->p[i]), c->r[i]);
}

static __device__ __forceinline__ bool
all_g0(uint4 w)
{
	return ((w.x | w.y | w.z | w.w) & 0xC000C000u) == 0;
}

static __device__ __forceinline__ bool
is_unusable(float p, float r)
{
	return __float_as_uint(r) == 0 && fabsf(p) == GK_CUDA_NO_R;
}

/* Photons of any word. `pixel` is its number in the chunk. */
static __device__ __forceinline__ float
photons_any(uint16_t word, float p0, float r0, const struct gk_cuda_coef *coef, uint32_t pixel)
{
	float p[3] = {p0, 0.0f, 0.0f}, r[3] = {r0, 0.0f, 0.0f};
	const uint32_t gain = word & GK_RAW_GAIN_MASK;

	if (is_unusable(p0, r0))
		r[0] = gk_nan();
	if (gain == GK_RAW_G1) {
		const float2 c = __ldcg((const float2 *)coef->g1[pixel]);

		p[1] = c.x, r[1] = c.y;
	} else if (gain == GK_RAW_G2) {
		const float2 c = __ldcg((const float2 *)coef->g2[pixel]);

		p[2] = c.x, r[2] = c.y;
	}
	return gk_photons(word, p, r);
}

/* Photons of all pixels of a thread, as gk_photons() gives them. */
static __device__ __forceinline__ void
photons_of(float x[GK_CUDA_LANE], uint4 w, const struct lane_coef *c,
	const struct gk_cuda_coef *coef, uint32_t lane)
{
	if (all_g0(w)) {
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++) {
			x[i] = photons_g0(w, c, i);
			x[i] = is_unusable(c->p[i], c->r[i]) ? gk_nan() : x[i];
		}
		return;
	}
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		x[i] = photons_any(word_at(w, i), c->p[i], c->r[i], coef, lane * GK_CUDA_LANE + i);
}

/*
 * Counts of 8 pixels of G0 that are below 2^14 photons whatever their words are, with both
 * thresholds above 0. 10 instructions a pixel:
 *  - a difference of floats has the sign of the comparison, and no underflow: signs are counted,
 *    one instruction each;
 *  - 1.5 x 2^23 added to a number below 2^22 rounds it to an integer, ties to even, as rintf()
 *    does; that the multiplication by 256 is fused is the same, for it is exact.
 */
static __device__ __forceinline__ struct lane_counts
lane_counts_of(uint4 w, const struct lane_coef *c, float bragg, float csr, float x[GK_CUDA_LANE])
{
	const float magic = 12582912.0f;
	uint32_t sum = 0, below_bragg = 0, below_csr = 0;
	struct lane_counts n;

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		x[i] = photons_g0(w, c, i);
		sum += __float_as_uint(__fmaf_rn(x[i], (float)GK_SUM_SCALE, magic));
		below_bragg += __float_as_uint(__fsub_rn(x[i], bragg)) >> 31;
		below_csr += __float_as_uint(__fsub_rn(x[i], csr)) >> 31;
	}
	n.count = (GK_CUDA_LANE << 16 | GK_CUDA_LANE) - (below_bragg << 16 | below_csr);
	n.sum = (int32_t)(sum - GK_CUDA_LANE * 0x4B400000u);
	return n;
}

/* May a word of G0 give 2^14 photons or more, or no number? With 2 % of room for rounding. */
static __device__ __forceinline__ bool
is_wild(float p, float r)
{
	return !is_unusable(p, r) && !((16383.0f + fabsf(p)) * fabsf(r) < 16000.0f);
}

/* Values of 8 neighbouring pixels of an image. */
static __device__ __forceinline__ void
store_values(void *value, uint64_t at, uint32_t type, const float x[GK_CUDA_LANE])
{
	if (type == GK_VALUE_I16) {
		uint32_t v[4];

#pragma unroll
		for (int i = 0; i < 4; i++)
			v[i] = (uint16_t)gk_value_i16(x[2 * i]) |
				(uint32_t)(uint16_t)gk_value_i16(x[2 * i + 1]) << 16;
		__stcs((uint4 *)((int16_t *)value + at), make_uint4(v[0], v[1], v[2], v[3]));
		return;
	}
#pragma unroll
	for (int k = 0; k < 2; k++)
		__stcs((float4 *)((float *)value + at) + k,
			make_float4(gk_value_f32(x[4 * k]), gk_value_f32(x[4 * k + 1]),
				gk_value_f32(x[4 * k + 2]), gk_value_f32(x[4 * k + 3])));
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
