/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Definition of one pixel: raw word to photons, special values, statistics, dark samples.
 *
 * This is the only definition. Host and CUDA implementations compile this header; vector versions
 * are tested against it bit for bit. Every operation is rounded once and none is fused: host code
 * is built with -ffp-contract=off, CUDA code uses the _rn intrinsics.
 *
 * Raw word (JUNGFRAU): bits 15-14 gain code, 13-0 ADC value. Gain codes: 00 = G0, 01 = G1, 11 = G2,
 * 10 = invalid. Special words, in this order (PSI's jf_conversion.cpp):
 *
 *   pixel masked              NaN
 *   0xC000                    +Inf   saturated in G2
 *   0xFFFF                    NaN    missing or no data
 *   0x4000                    NaN    saturated in G1, which cannot happen
 *   gain code 10              NaN
 *   pedestal of the active gain unusable (masked)  NaN
 *
 * The coefficients contain the masks, so that the common path does not test for them:
 *   r[g] = NaN                the pixel is unusable in gain stage g
 *   r[0..2] = NaN, p[2] = NaN the pixel is masked: even 0xC000 is NaN
 * With a finite p[2], +Inf - p[2] is +Inf; with p[2] = NaN it is NaN. The bits of the NaN do not
 * matter: gk_value_f32() and gk_value_i16() replace every NaN by one value.
 */
#ifndef GK_PIXEL_H
#define GK_PIXEL_H

#include <math.h>
#include <stdint.h>

#ifdef __CUDACC__
#define GK_FN static __host__ __device__ __forceinline__
#else
#define GK_FN static inline __attribute__((always_inline))
#endif

#define GK_RAW_GAIN_MASK    0xC000u
#define GK_RAW_ADC_MASK	    0x3FFFu
#define GK_RAW_SATURATED    0xC000u
#define GK_RAW_MISSING	    0xFFFFu
#define GK_RAW_G1_SATURATED 0x4000u
#define GK_RAW_G1	    0x4000u
#define GK_RAW_INVALID	    0x8000u
#define GK_RAW_G2	    0xC000u

/** The only NaN in output columns. */
#define GK_NAN_BITS 0x7FC00000u

#define GK_I16_INVALID INT16_MIN

/** Sums are kept in units of 1/GK_SUM_SCALE photon. */
#define GK_SUM_SCALE 256

GK_FN float
gk_nan(void)
{
#ifdef __CUDA_ARCH__
	return __uint_as_float(GK_NAN_BITS);
#else
	return __builtin_nanf("");
#endif
}

GK_FN float
gk_sub(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fsub_rn(a, b);
#else
	return a - b;
#endif
}

GK_FN float
gk_mul(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fmul_rn(a, b);
#else
	return a * b;
#endif
}

GK_FN float
gk_add(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fadd_rn(a, b);
#else
	return a + b;
#endif
}

GK_FN float
gk_div(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fdiv_rn(a, b);
#else
	return a / b;
#endif
}

/** Photons of a pixel in one gain stage: (adu - p) * r, each operation rounded once. */
GK_FN float
gk_photons_linear(uint16_t adu, float p, float r)
{
	return gk_mul(gk_sub((float)adu, p), r);
}

/**
 * Photons of one pixel.
 * @param raw  word as sent
 * @param p,r  coefficients of the pixel by gain stage
 * @return photons; NaN: masked, invalid or missing; +Inf: saturated
 */
GK_FN float
gk_photons(uint16_t raw, const float p[3], const float r[3])
{
	switch (raw & GK_RAW_GAIN_MASK) {
	case 0:
		return gk_photons_linear(raw, p[0], r[0]);
	case GK_RAW_G1:
		if (raw == GK_RAW_G1_SATURATED)
			return gk_nan();
		return gk_photons_linear(raw & GK_RAW_ADC_MASK, p[1], r[1]);
	case GK_RAW_G2:
		if (raw == GK_RAW_SATURATED)
			return gk_sub(INFINITY, p[2]);
		if (raw == GK_RAW_MISSING)
			return gk_nan();
		return gk_photons_linear(raw & GK_RAW_ADC_MASK, p[2], r[2]);
	default:
		return gk_nan();
	}
}

/**
 * Photons as in the float32 column: every NaN becomes the same one. x86 propagates the NaN of a
 * coefficient, CUDA replaces any NaN by 0x7FFFFFFF; without this, files would differ.
 */
GK_FN float
gk_value_f32(float photons)
{
	return photons == photons ? photons : gk_nan();
}

/** Photons as in the int16 column: rounded half away from zero; the extreme values are special. */
GK_FN int16_t
gk_value_i16(float photons)
{
	float p = photons == photons ? photons : 0.0f, rest;
	int32_t whole;

	/* No early return: compilers vectorise selections only. */
	p = p > 32767.0f ? 32767.0f : p;
	p = p < -32767.0f ? -32767.0f : p;
	whole = (int32_t)p;
	rest = gk_sub(p, (float)whole); /* exact: both share the exponent range */
	whole += rest >= 0.5f ? 1 : 0;
	whole -= rest <= -0.5f ? 1 : 0;
	return (int16_t)(photons == photons ? whole : GK_I16_INVALID);
}

/**
 * A pixel's share of the frame sum, in 1/256 photon rounded to nearest, ties to even. It is an
 * integer, so that the order of additions does not matter. NaN and +Inf add nothing, because they
 * have their own columns. Values beyond +-2^22 photons are clamped.
 */
GK_FN int32_t
gk_sum_q8(float photons)
{
	const float limit = 1073741824.0f; /* 2^30 */
	float q = gk_mul(photons, (float)GK_SUM_SCALE);

	q = q > limit ? limit : q;
	q = q < -limit ? -limit : q;
	q = photons < INFINITY ? q : 0.0f; /* false for NaN, too */
	/*
	 * One instruction on SSE4.1 and later and on a GPU. It is exact above 2^23, unlike adding
	 * 0.5.
	 */
	return (int32_t)rintf(q);
}

/** Cells of dark accumulators: samples << 32 | sum of ADC values (struct gk_dark). @{ */
#define GK_DARK_ONE (UINT64_C(1) << 32)

/** Value that one word adds to its pixel's cell. @param r0  gk_coef.r[0] of the pixel */
GK_FN uint64_t
gk_dark_sample(uint16_t raw, float r0)
{
	return (raw & GK_RAW_GAIN_MASK) == 0 && r0 == r0 ? GK_DARK_ONE + raw : 0;
}

/**
 * Dark update of one pixel: d = f32(s) / f32(n) - P, P' = P + alpha x d, each operation rounded
 * once. With fewer than n_min samples, or if P is NaN, P keeps its bits.
 */
GK_FN float
gk_dark_update(float p, uint64_t cell, uint32_t n_min, float alpha)
{
	const uint32_t n = (uint32_t)(cell >> 32), s = (uint32_t)cell;
	const float d = gk_sub(gk_div((float)s, (float)n), p);
	const float moved = gk_add(p, gk_mul(alpha, d));

	/* No early return, for vector code. 0 / 0 is NaN and is not used either. */
	return n >= n_min && moved == moved ? moved : p;
}
/** @} */

/** Change of a pedestal in 1/256 ADU, rounded as in gk_sum_q8(); NaN counts as 0. */
GK_FN int32_t
gk_drift_q8(float before, float after)
{
	return gk_sum_q8(gk_sub(after, before));
}

#endif /* GK_PIXEL_H */
