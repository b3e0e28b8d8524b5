/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Conversion of vectors of pixels: gk_pixel.h with the vectors of gk_vector.h. Internal to the tile
 * arithmetic, which is built once per instruction set. Empty if the compiler does not support AVX2.
 */
#ifndef GK_PHOTONS_H
#define GK_PHOTONS_H

#include "gk_tile.h"
#include "gk_vector.h"

#ifdef __AVX2__

/** Pixels whose gains are checked together: a cache line of raw data; divides gk_geometry.cols */
#define RUN	 32
#define RUN_VECS (RUN / VEC_LANES)

/** gk_photons() of the pixels from x on, all in G0. */
VEC_FN vec_f32
photons_g0(const struct gk_tile *t, uint64_t x, vec_i32 words)
{
	return vec_mul(vec_sub(vec_float(words), vec_load(t->p[0] + x)), vec_load(t->r[0] + x));
}

/** gk_photons() of the pixels from x on, with any gains. */
VEC_FN vec_f32
photons_any(const struct gk_tile *t, uint64_t x, vec_i32 words)
{
	const vec_i32 gain = vec_and_i32(words, GK_RAW_GAIN_MASK);
	const vec_mask g1 = vec_eq_i32(gain, GK_RAW_G1), g2 = vec_eq_i32(gain, GK_RAW_G2);
	const vec_mask nan = vec_mask_or(vec_eq_i32(gain, GK_RAW_INVALID),
		vec_mask_or(
			vec_eq_i32(words, GK_RAW_G1_SATURATED), vec_eq_i32(words, GK_RAW_MISSING)));
	/*
	 * A masked load without active lanes still waits for memory, and a branch is often
	 * mispredicted. Therefore, if no pixel is in a gain, its loads read G0, which is in L1.
	 */
	const uint32_t from1 = vec_mask_bits(g1) != 0 ? 1 : 0,
		       from2 = vec_mask_bits(g2) != 0 ? 2 : 0;
	vec_f32 p = vec_load(t->p[0] + x), r = vec_load(t->r[0] + x), photons;

	p = vec_load_where(g1, t->p[from1] + x, p);
	r = vec_load_where(g1, t->r[from1] + x, r);
	p = vec_load_where(g2, t->p[from2] + x, p);
	r = vec_load_where(g2, t->r[from2] + x, r);
	photons = vec_mul(vec_sub(vec_float(vec_and_i32(words, GK_RAW_ADC_MASK)), p), r);
	photons = vec_select(
		vec_eq_i32(words, GK_RAW_SATURATED), vec_sub(vec_set(INFINITY), p), photons);
	return vec_select(nan, vec_set(gk_nan()), photons);
}

/** Photons of a run. */
VEC_FN void
run_photons(const struct gk_tile *t, uint64_t x, const uint16_t *raw, vec_f32 photons[RUN_VECS])
{
	if (__builtin_expect(vec_run_any(vec_run_load(raw + x), GK_RAW_GAIN_MASK), 0)) {
		for (int k = 0; k < RUN_VECS; k++)
			photons[k] = photons_any(
				t, x + k * VEC_LANES, vec_words(raw + x + k * VEC_LANES));
	} else {
		for (int k = 0; k < RUN_VECS; k++)
			photons[k] = photons_g0(
				t, x + k * VEC_LANES, vec_words(raw + x + k * VEC_LANES));
	}
}

/** gk_value_i16() of a run whose photons are NaN or within +-32767. */
VEC_FN vec_run
run_whole(const vec_f32 photons[RUN_VECS])
{
	vec_i32 whole[RUN_VECS];

	/*
	 * Round half away from zero: adding the largest float below 0.5 lifts n + 0.5 to n + 1 (to
	 * even on a tie), and no smaller value. NaN becomes INT32_MIN, and INT16_MIN when packed.
	 */
	for (int k = 0; k < RUN_VECS; k++)
		whole[k] = vec_truncate(vec_add_away(photons[k], 0x1.fffffep-2f));
	return vec_pack_run(whole);
}

/** gk_value_i16() of a run with any photons. */
VEC_FN vec_run
run_i16(const vec_f32 photons[RUN_VECS])
{
	vec_f32 clamped[RUN_VECS];

	for (int k = 0; k < RUN_VECS; k++)
		clamped[k] = vec_clamp_nan(photons[k], 32767.0f);
	return run_whole(clamped);
}

#endif /* __AVX2__ */

#endif /* GK_PHOTONS_H */
