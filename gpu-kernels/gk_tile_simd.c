/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile arithmetic with the vectors of gk_vector.h; built once per instruction set.
 *
 * Lower bound of the statistics: per pixel, a batch of n frames reads 2n bytes of raw data and 8
 * bytes of coefficients, and writes n/8 bytes of bits. A core that reads 24 GB/s has about 5 cycles
 * for the 32 pixels of a cache line of raw data. For 32 pixels of one frame the common case
 * therefore only widens, computes (adu - p) * r, compares and adds. The work is done strip by
 * strip. Values that depend only on coefficients are computed once for all frames and kept in L1.
 * Then each frame is processed, so that its values stay in registers. Rare cases are deferred:
 *
 * - A run of 32 pixels is *tame* if each pixel is unusable in G0 (p or r is NaN), or has p and r
 *   within bounds that keep G0 photons normal numbers below 2048 (or 0). Then 256 r is exact, and a
 *   scaled photon is exactly 256 times the photon. Comparing it with 256 times the threshold gives
 *   the same result, rounding it gives gk_sum_q8(), and 31 bits hold the sum of a strip.
 * - NaN is not at or above any threshold. Rounding it gives INT32_MIN, which adds nothing to the
 *   lower 31 bits. Unusable pixels therefore need no extra instruction.
 * - Typical thresholds, such as 2 or 12.5, also have few binary digits. They are compared with the
 *   upper halves of photons, of which a vector holds twice as many.
 * - A run that is not tame is set to NaN for the strip. Such a run, and a run of a frame that has
 *   gains other than G0, is marked and processed after its strip, case by case, also in vectors.
 *
 * Pixels at or above strong_threshold are counted. The bits of csr_threshold are kept, and select
 * the pixels to read again for CSR: at 1 %, a quarter of the raw data. If an image is needed in any
 * case, it is made of the photons computed for counting.
 *
 * Instructions for 32 pixels of a frame (gk_bench has cycles):
 *
 *   case                              AVX-512   AVX2
 *   both thresholds short                  29     55
 *   one threshold not short                36     58
 *   additional share of strip and batch    ~6    ~12
 *   vector arithmetic among them           17     41
 *
 * Vector arithmetic is the bottleneck on a core without other load.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_photons.h"
#include "gk_tile_set.h"

/* Runs whose sums are added in 31 bits; their states are bits of one word */
#define STRIP_RUNS 32
#define STRIP	   GK_TILE_STRIP
_Static_assert(STRIP == STRIP_RUNS * RUN, "a bit a run");

/*
 * Bounds of tame coefficients, as bits: 2^-41 <= p < 2^15 and 2^-60 <= r < 2^-4. |adu - p| < 2^15
 * is 0 or at least 2^-41, so photons are 0 or between 2^-101 and 2^11. Both ranges have the same
 * length: the largest distance to either end shows whether all coefficients are within them.
 */
#define TAME_RANGE (56u << 23)
#define TAME_P_END (142u << 23)
#define TAME_R_END (123u << 23)

/*
 * A scaled threshold. If it has at most eight significant bits (such as 2, 10 or 0.75) it is
 * *short*: the upper halves of photons are compared, twice as many per vector. The bits of positive
 * floats are ordered as integers; negative ones have the sign bit set.
 */
struct level {
	float value;
	bool is_short;
	int16_t below; /* if is_short: the greatest upper half below the threshold */
};

static struct level
level_of(float threshold)
{
	struct level l = {.value = threshold * (float)GK_SUM_SCALE};
	uint32_t bits;

	memcpy(&bits, &l.value, sizeof(bits));
	l.is_short = l.value > 0 && (bits & 0xFFFF) == 0;
	l.below = (int16_t)((bits >> 16) - 1);
	return l;
}

/* Data of a strip that all frames share. */
struct shared {
	/*
	 * G0 coefficients in the order of vec_fold(), for frames that are counted without their
	 * image.
	 */
	_Alignas(64) float p[STRIP];
	float r[STRIP]; /* r times GK_SUM_SCALE; no_photons() where a run is not tame */
	struct level bragg, csr;
	uint8_t dead[STRIP_RUNS]; /* unusable pixels per run */
	uint32_t nb_dead;
	uint32_t tame;	/* bit mask of tame runs */
	uint32_t whole; /* bit mask of tame runs without unusable pixels */
};

/*
 * Deferred runs of a strip of all frames, as frame << 16 | run. In one list, because a loop over
 * few runs of each frame is mispredicted at its end.
 */
struct deferred {
	uint32_t n;
	uint32_t item[GK_BATCH_MAX * STRIP_RUNS + 1]; /* one more may be written */
};

/* Data of a strip of one frame. */
struct strip {
	_Alignas(64) uint32_t csr[STRIP_RUNS]; /* bits of the pixels >= csr_threshold */
	struct deferred *deferred;
	uint32_t frame; /* << 16 */
	/* bit mask of the runs that are not tame, which are in the list */
	uint32_t wild;
	/* Prefetch addresses, one line per run: */
	const uint16_t *ahead; /* the frame's next strip */
	const uint16_t *next;  /* this strip of the next frame */
	const float *coef;     /* part of the next strip's coefficients */
};

/* Defer a run that has gains other than G0. */
VEC_FN void
defer(struct strip *s, uint32_t run)
{
	struct deferred *d = s->deferred;

	d->item[d->n] = s->frame | run;
	d->n += ~s->wild >> run & 1;
}

/* Set the bits of a run >= csr_threshold. @return their number, if they are counted here */
VEC_FN uint32_t
put_csr(struct strip *s, uint32_t run, uint32_t bits)
{
	s->csr[run] = bits;
	return VEC_COUNT_EARLY ? (uint32_t)__builtin_popcount(bits) : 0;
}

/* Process a run that is not tame, or not all in G0. */
VEC_FN void
slow_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, uint32_t run, struct strip *s,
	struct gk_tile_counts *c)
{
	const vec_f32 infinity = vec_set(INFINITY), strong_threshold = vec_set(t->strong_threshold),
		      csr_threshold = vec_set(t->csr_threshold);
	uint32_t bragg = 0, csr = 0, nan = 0, finite = 0;
	vec_i64 sum = vec_set_i32(0);

	/* GCC does not unroll four vectors by itself */
#pragma GCC unroll 4
	for (int k = 0; k < RUN_VECS; k++) {
		const uint64_t at = x + k * VEC_LANES;
		const vec_f32 photons = photons_any(t, at, vec_words(raw + at));
		const vec_mask is_finite = vec_lt(photons, infinity);
		/* gk_sum_q8() */
		const vec_f32 q =
			vec_clamp(vec_mul(photons, vec_set((float)GK_SUM_SCALE)), 1073741824.0f);

		sum = vec_add_i64(sum, vec_pairs_i32(vec_round(vec_keep(is_finite, q))));
		bragg |= vec_mask_bits(vec_ge(photons, strong_threshold)) << k * VEC_LANES;
		csr |= vec_mask_bits(vec_ge(photons, csr_threshold)) << k * VEC_LANES;
		nan |= vec_mask_bits(vec_unordered(photons, photons)) << k * VEC_LANES;
		finite |= vec_mask_bits(is_finite) << k * VEC_LANES;
	}
	c->nnz += put_csr(s, run, csr);
	c->sum += vec_sum_i64(sum);
	c->bragg += (uint32_t)__builtin_popcount(bragg);
	c->invalid += (uint32_t)__builtin_popcount(nan);
	c->saturated += (uint32_t)__builtin_popcount(~(finite | nan));
}

/* Process the deferred runs of a strip. @param dead  unusable pixels per run, counted already */
static __attribute__((noinline)) void
slow_runs(const struct gk_tile *t, uint64_t first, const uint16_t *const raw[],
	const struct deferred *d, const uint8_t dead[STRIP_RUNS], struct strip s[],
	struct gk_tile_counts c[])
{
	for (uint32_t i = 0; i < d->n; i++) {
		const uint32_t f = d->item[i] >> 16, run = d->item[i] & 0xFFFF;

		c[f].invalid -= dead[run];
		slow_run(t, first + run * RUN, raw[f], run, &s[f], &c[f]);
	}
}

/*
 * Prefetch into L2, ahead by the time that a strip of all frames takes. The hardware prefetcher
 * stops at the ends of pages and packets, and follows only a few of the streams of a batch.
 */
VEC_FN void
fetch(const void *line)
{
	__builtin_prefetch(line, 0, 2);
}

/* Prefetch from L2 into L1, ahead by the time that a strip of one frame takes. */
VEC_FN void
fetch_near(const void *line)
{
	__builtin_prefetch(line, 0, 3);
}

/*
 * Prefetch the coefficients of the gains in a deferred run. Those of G1 and G2 are rarely used
 * elsewhere, so they come from memory. A line without such pixels is not fetched: that of G0, which
 * is in L1, takes its place, because branches would be mispredicted.
 */
VEC_FN void
fetch_gains(const struct gk_tile *t, uint64_t x, const uint16_t *raw)
{
	for (int k = 0; k < RUN; k += 16) {
		const uint64_t at = x + k;
		/* the bits of G2 are those of G1 and one more */
		const uint32_t g1 = vec_line_any(raw + at, GK_RAW_G1),
			       g2 = 2 * vec_line_any(raw + at, GK_RAW_G2 ^ GK_RAW_G1);

		fetch(t->p[g1] + at);
		fetch(t->r[g1] + at);
		fetch(t->p[g2] + at);
		fetch(t->r[g2] + at);
	}
}

/*
 * Less than TAME_RANGE in lanes where p and r, and earlier values in `beyond`, are within bounds.
 */
VEC_FN vec_i32
beyond_bounds(vec_f32 p, vec_f32 r, vec_i32 beyond)
{
	return vec_max_u32(vec_bits_before(TAME_R_END, r),
		vec_max_u32(vec_bits_before(TAME_P_END, p), beyond));
}

/*
 * A NaN that no comparison marks, not even one of upper halves. It has the sign bit set and keeps
 * it, because an operation with a single NaN operand returns that NaN.
 */
VEC_FN vec_f32
no_photons(void)
{
	return vec_set(-gk_nan());
}

/* Whether each pixel is unusable (`nan`), or has tame coefficients. */
VEC_FN bool
is_tame(vec_f32 p, vec_f32 r, vec_mask nan)
{
	const vec_i32 beyond = beyond_bounds(p, r, vec_set_i32(0));

	return vec_mask_is_all(vec_mask_or(nan, vec_less_u32(beyond, TAME_RANGE)));
}

/* Prefetch coefficients of the pixels from x on, a strip ahead. */
VEC_FN void
fetch_coef(const struct gk_tile *t, uint64_t x)
{
	for (int k = 0; k < RUN; k += 16) {
		fetch(t->p[0] + x + STRIP + k);
		fetch(t->r[0] + x + STRIP + k);
	}
}

/* Load a run that has unusable pixels or coefficients out of bounds. */
static __attribute__((noinline)) void
load_odd_run(const struct gk_tile *t, uint64_t x, uint32_t run, struct shared *to)
{
	float *p_to = to->p + run * RUN, *r_to = to->r + run * RUN;
	bool tame = true;

	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 p = vec_fold_f32(t->p[0] + x, k), r = vec_fold_f32(t->r[0] + x, k);
		const vec_mask nan = vec_unordered(p, r);

		to->dead[run] += (uint8_t)__builtin_popcount(vec_mask_bits(nan));
		tame &= is_tame(p, r, nan);
		vec_store(p_to + k * VEC_LANES, vec_select(nan, vec_set(0.0f), p));
		vec_store(r_to + k * VEC_LANES,
			vec_select(nan, no_photons(), vec_mul(r, vec_set((float)GK_SUM_SCALE))));
	}
	to->nb_dead += to->dead[run];
	to->tame |= (uint32_t)tame << run;
	for (int k = 0; k < RUN_VECS && !tame; k++)
		vec_store(r_to + k * VEC_LANES, no_photons());
}

/* @param fold  false: coefficients stay in order. Constant where this is inlined. */
VEC_FN void
load_runs(
	const struct gk_tile *t, uint64_t first, uint32_t runs, const bool fold, struct shared *to)
{
	const float *p0 = t->p[0] + first, *r0 = t->r[0] + first;

	for (uint32_t i = 0, x = 0; i < runs; i++, x += RUN) {
		vec_i32 beyond = vec_set_i32(0);

		fetch_coef(t, first + x);
		for (int k = 0; k < RUN_VECS; k++) {
			const uint32_t at = x + k * VEC_LANES;
			const vec_f32 p = fold ? vec_fold_f32(p0 + x, k) : vec_load(p0 + at),
				      r = fold ? vec_fold_f32(r0 + x, k) : vec_load(r0 + at);

			beyond = beyond_bounds(p, r, beyond);
			if (fold) {
				vec_store(to->p + at, p);
				vec_store(to->r + at, vec_mul(r, vec_set((float)GK_SUM_SCALE)));
			}
		}
		if (__builtin_expect(vec_mask_is_all(vec_less_u32(beyond, TAME_RANGE)), 1))
			to->whole |= UINT32_C(1) << i;
		else
			load_odd_run(t, first + x, i, to);
	}
}

/* @param fold  true for frames whose images are not made */
static void
load_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, bool fold, struct shared *to)
{
	to->bragg = level_of(t->strong_threshold);
	to->csr = level_of(t->csr_threshold);
	memset(to->dead, 0, sizeof(to->dead));
	to->nb_dead = to->whole = to->tame = 0;
	if (fold)
		load_runs(t, first, runs, true, to);
	else
		load_runs(t, first, runs, false, to);
	to->tame |= to->whole;
}

/* @param tame  whether photons are NaN or far within int16 */
VEC_FN void
put_run(const vec_f32 photons[RUN_VECS], uint64_t x, const bool tame, const bool nan,
	enum gk_value type, void *value)
{
	if (type == GK_VALUE_I16) {
		vec_run_stream((int16_t *)value + x, tame ? run_whole(photons) : run_i16(photons));
		return;
	}
	for (int k = 0; k < RUN_VECS; k++)
		vec_stream((float *)value + x + k * VEC_LANES,
			nan ? vec_select(vec_unordered(photons[k], photons[k]), vec_set(gk_nan()),
				      photons[k])
			    : photons[k]);
}

/* Convert a run of an image whose statistics are deferred. */
static __attribute__((noinline)) void
any_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, enum gk_value type, void *value)
{
	vec_f32 photons[RUN_VECS];

	run_photons(t, x, raw, photons);
	put_run(photons, x, false, true, type, value);
}

/*
 * Process a strip of one frame.
 * @param is_short  whether both thresholds are short; constant where this is inlined
 */
VEC_FN void
count_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct shared *shared, const bool is_short, struct strip *s, struct gk_tile_counts *c)
{
	const vec_f32 strong_value = vec_set(shared->bragg.value),
		      csr_value = vec_set(shared->csr.value);
	const int16_t strong_below = shared->bragg.below, csr_below = shared->csr.below;
	vec_i32 sum = vec_set_i32(0);
	uint32_t nnz = 0;
	vec_tally bragg;

	raw += first;
	vec_tally_clear(&bragg);
	for (uint32_t i = 0, x = 0; i < runs; i++, x += RUN) {
		const vec_run words = vec_fold(raw + x);
		vec_uppers upper[RUN_VECS / 2];
		vec_i32 add = vec_set_i32(0);
		vec_f32 q[RUN_VECS];

		fetch(s->ahead + x);
		fetch_near(s->next + x);
		fetch_near(s->coef + x / 2);
		if (__builtin_expect(vec_run_any(words, GK_RAW_GAIN_MASK), 0)) {
			defer(s, i);
			fetch_gains(t, first + x, raw - first);
			continue;
		}
		for (int k = 0; k < RUN_VECS; k++) {
			const uint32_t at = x + k * VEC_LANES;

			q[k] = vec_mul(vec_sub(vec_float(vec_folded_words(words, k)),
					       vec_load(shared->p + at)),
				vec_load(shared->r + at));
			add = k == 0 ? vec_round(q[k]) : vec_add_i32(add, vec_round(q[k]));
		}
		sum = vec_add_i32(sum, add);
		if (is_short) {
			for (int k = 0; k < RUN_VECS / 2; k++)
				upper[k] = vec_upper_pair(q[2 * k], q[2 * k + 1]);
			vec_tally_add(&bragg, vec_mark_uppers(upper, strong_below));
			nnz += put_csr(
				s, i, vec_folded_marks_bits(vec_mark_uppers(upper, csr_below)));
		} else {
			vec_tally_add(&bragg, vec_mark_folded(q, strong_value));
			nnz += put_csr(s, i, vec_folded_marks_bits(vec_mark_folded(q, csr_value)));
		}
	}
	c->sum += vec_sum_i31(sum);
	c->bragg += vec_tally_total(&bragg);
	c->nnz += nnz;
}

/*
 * Photons of a run in G0, and its pixels at or above the thresholds.
 * @return sums of the scaled photons, as of gk_sum_q8() if the run is tame
 */
VEC_FN vec_i32
g0_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, vec_f32 strong_threshold,
	vec_f32 csr_threshold, vec_f32 photons[RUN_VECS], vec_pair above_bragg[RUN_VECS / 2],
	vec_pair above_csr[RUN_VECS / 2])
{
	vec_i32 add = vec_set_i32(0);

	for (int k = 0; k < RUN_VECS; k++) {
		const uint64_t at = x + k * VEC_LANES;
		vec_f32 q;

		photons[k] = photons_g0(t, at, vec_words(raw + at));
		q = vec_mul(photons[k], vec_set((float)GK_SUM_SCALE));
		add = k == 0 ? vec_round(q) : vec_add_i32(add, vec_round(q));
		if (k % 2 == 0)
			continue;
		above_bragg[k / 2] = vec_mark_pair(vec_ge(photons[k - 1], strong_threshold),
			vec_ge(photons[k], strong_threshold));
		above_csr[k / 2] = vec_mark_pair(
			vec_ge(photons[k - 1], csr_threshold), vec_ge(photons[k], csr_threshold));
	}
	return add;
}

/*
 * Process a strip of one frame, and its image. Photons are scaled for the sum only. @param type
 * constant, too
 */
VEC_FN void
image_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct shared *shared, enum gk_value type, void *value, struct strip *s,
	struct gk_tile_counts *c)
{
	const vec_f32 strong_threshold = vec_set(t->strong_threshold),
		      csr_threshold = vec_set(t->csr_threshold);
	const uint32_t tame = shared->tame, whole = shared->whole;
	vec_i32 sum = vec_set_i32(0);
	uint32_t nnz = 0;
	vec_tally bragg;

	vec_tally_clear(&bragg);
	for (uint32_t i = 0; i < runs; i++) {
		vec_pair above_bragg[RUN_VECS / 2], above_csr[RUN_VECS / 2];
		const uint64_t x = first + i * RUN;
		vec_f32 photons[RUN_VECS];
		vec_i32 add;

		fetch(s->ahead + i * RUN);
		if (__builtin_expect(vec_run_any(vec_run_load(raw + x), GK_RAW_GAIN_MASK) ||
				    !(tame >> i & 1),
			    0)) {
			defer(s, i);
			any_run(t, x, raw, type, value);
			continue;
		}
		add = g0_run(t, x, raw, strong_threshold, csr_threshold, photons, above_bragg,
			above_csr);
		sum = vec_add_i32(sum, add);
		vec_tally_add(&bragg, vec_mark(above_bragg));
		nnz += put_csr(s, i, vec_marks_bits(vec_mark(above_csr)));
		if (__builtin_expect(whole >> i & 1, 1))
			put_run(photons, x, true, false, type, value);
		else
			put_run(photons, x, true, true, type, value);
	}
	c->sum += vec_sum_i31(sum);
	c->bragg += vec_tally_total(&bragg);
	c->nnz += nnz;
}

/* Whether a run is tame. @param dead  out: unusable pixels */
static __attribute__((noinline)) bool
odd_run(const struct gk_tile *t, uint64_t x, uint32_t *dead)
{
	bool tame = true;

	*dead = 0;
	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 p = vec_load(t->p[0] + x + k * VEC_LANES),
			      r = vec_load(t->r[0] + x + k * VEC_LANES);
		const vec_mask nan = vec_unordered(p, r);

		*dead += (uint32_t)__builtin_popcount(vec_mask_bits(nan));
		tame &= is_tame(p, r, nan);
	}
	return tame;
}

/*
 * Process a strip of the only frame of a batch, and its image, if any. Coefficients are checked
 * where they are used, as no other frame shares them: one pass, in which reads of memory and
 * arithmetic overlap.
 * @param image  constant, and type, too
 */
VEC_FN void
lone_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const bool image, enum gk_value type, void *value, struct strip *s,
	struct gk_tile_counts *c)
{
	const vec_f32 strong_threshold = vec_set(t->strong_threshold),
		      csr_threshold = vec_set(t->csr_threshold);
	vec_i32 sum = vec_set_i32(0);
	uint32_t nnz = 0;
	vec_tally bragg;

	vec_tally_clear(&bragg);
	for (uint32_t i = 0; i < runs; i++) {
		vec_pair above_bragg[RUN_VECS / 2], above_csr[RUN_VECS / 2];
		const uint64_t x = first + i * RUN;
		const vec_run words = vec_run_load(raw + x);
		vec_i32 add, beyond = vec_set_i32(0);
		vec_f32 photons[RUN_VECS];
		uint32_t dead = 0;

		fetch(s->ahead + i * RUN);
		fetch_coef(t, x);
		for (int k = 0; k < RUN_VECS; k++)
			beyond = beyond_bounds(vec_load(t->p[0] + x + k * VEC_LANES),
				vec_load(t->r[0] + x + k * VEC_LANES), beyond);
		add = g0_run(t, x, raw, strong_threshold, csr_threshold, photons, above_bragg,
			above_csr);
		if (__builtin_expect(vec_run_any(words, GK_RAW_GAIN_MASK) ||
				    (!vec_mask_is_all(vec_less_u32(beyond, TAME_RANGE)) &&
					    !odd_run(t, x, &dead)),
			    0)) {
			defer(s, i);
			fetch_gains(t, x, raw);
			if (image)
				any_run(t, x, raw, type, value);
			continue;
		}
		c->invalid += dead;
		sum = vec_add_i32(sum, add);
		vec_tally_add(&bragg, vec_mark(above_bragg));
		nnz += put_csr(s, i, vec_marks_bits(vec_mark(above_csr)));
		if (!image)
			continue;
		if (__builtin_expect(dead == 0, 1))
			put_run(photons, x, true, false, type, value);
		else
			put_run(photons, x, true, true, type, value);
	}
	c->sum += vec_sum_i31(sum);
	c->bragg += vec_tally_total(&bragg);
	c->nnz += nnz;
}

/* Each variant is a separate function, so that it has all registers for itself. @{ */
static __attribute__((noinline)) void
strip_count(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct shared *shared, struct strip *s, struct gk_tile_counts *c)
{
	if (shared->bragg.is_short && shared->csr.is_short)
		count_strip(t, first, runs, raw, shared, true, s, c);
	else
		count_strip(t, first, runs, raw, shared, false, s, c);
}

static __attribute__((noinline)) void
strip_f32(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct shared *shared, void *value, struct strip *s, struct gk_tile_counts *c)
{
	image_strip(t, first, runs, raw, shared, GK_VALUE_F32, value, s, c);
}

static __attribute__((noinline)) void
strip_i16(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct shared *shared, void *value, struct strip *s, struct gk_tile_counts *c)
{
	image_strip(t, first, runs, raw, shared, GK_VALUE_I16, value, s, c);
}

static __attribute__((noinline)) void
lone_count(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	struct strip *s, struct gk_tile_counts *c)
{
	lone_strip(t, first, runs, raw, false, GK_VALUE_F32, NULL, s, c);
}

static __attribute__((noinline)) void
lone_f32(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw, void *value,
	struct strip *s, struct gk_tile_counts *c)
{
	lone_strip(t, first, runs, raw, true, GK_VALUE_F32, value, s, c);
}

static __attribute__((noinline)) void
lone_i16(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw, void *value,
	struct strip *s, struct gk_tile_counts *c)
{
	lone_strip(t, first, runs, raw, true, GK_VALUE_I16, value, s, c);
}
/* @} */

/* Write the bits of a strip, see gk_tile_ops.stats(). @return position of the next strip's bits */
static uint32_t *
put_bits(uint32_t *to, const uint32_t words[STRIP_RUNS], uint32_t runs)
{
	const uint32_t used = _bzhi_u32(vec_words_used(words), runs);

	*to++ = used;
	vec_words_pack(words, used, to);
	return to + __builtin_popcount(used);
}

/*
 * Complete a strip of a frame.
 * @param nb_dead  unusable pixels
 * @param bits     of the strip, or NULL
 * @return position of the next strip's bits
 */
static uint32_t *
end_strip(const struct strip *s, uint32_t runs, uint32_t nb_dead, uint32_t *bits,
	struct gk_tile_counts *c)
{
	c->invalid += nb_dead;
	if (!VEC_COUNT_EARLY)
		c->nnz += vec_count_bits(s->csr, runs);
	return bits != NULL ? put_bits(bits, s->csr, runs) : NULL;
}

/*
 * Prepare frame f of n. @param ahead  the next strip of each frame, if it does not follow this one
 */
static void
begin_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, uint32_t f, uint32_t n,
	const uint16_t *const raw[], const uint16_t *ahead, const struct shared *shared,
	struct deferred *deferred, struct strip *s)
{
	const uint64_t next = first + runs * RUN;

	s->deferred = deferred;
	s->frame = f << 16;
	s->wild = _bzhi_u32(~shared->tame, runs);
	for (uint32_t wild = s->wild; wild != 0; wild &= wild - 1)
		deferred->item[deferred->n++] = s->frame | (uint32_t)__builtin_ctz(wild);
	s->ahead = ahead != NULL ? ahead : raw[f] + next;
	s->next = f + 1 < n ? raw[f + 1] + first : raw[0] + next;
	/* the first four frames prefetch all lines of p and r */
	if (f < 4)
		s->coef = (f < 2 ? t->p[0] : t->r[0]) + next + f % 2 * (STRIP / 2);
	else
		s->coef = (const float *)s->next;
}

/* Process a strip of the only frame of a batch. @return as of end_strip() */
static uint32_t *
strip_of_frame(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const uint16_t *ahead, uint32_t *bits, enum gk_value type, void *image,
	struct gk_tile_counts *c)
{
	/* unusable pixels are counted by run */
	static const uint8_t dead[STRIP_RUNS];
	struct deferred deferred;
	struct strip s;

	deferred.n = 0;
	s.deferred = &deferred;
	s.frame = s.wild = 0;
	s.ahead = ahead != NULL ? ahead : raw + first + runs * RUN;
	if (image == NULL)
		lone_count(t, first, runs, raw, &s, c);
	else if (type == GK_VALUE_I16)
		lone_i16(t, first, runs, raw, image, &s, c);
	else
		lone_f32(t, first, runs, raw, image, &s, c);
	slow_runs(t, first, &raw, &deferred, dead, &s, c);
	return end_strip(&s, runs, 0, bits, c);
}

/* Process a strip of n frames. @param bits  of the strip; advanced to the next one */
static void
strip_of_frames(const struct gk_tile *t, uint64_t first, uint32_t runs, uint32_t n,
	const uint16_t *const raw[], const uint16_t *const ahead[], uint32_t *bits[],
	enum gk_value type, void *const image[], struct gk_tile_counts c[])
{
	const bool last = first + runs * RUN == (uint64_t)t->rows * t->cols;
	struct strip s[GK_BATCH_MAX];
	struct deferred deferred;
	struct shared shared;
	bool fold = false;

	if (n == 1) {
		bits[0] = strip_of_frame(t, first, runs, raw[0], last ? ahead[0] : NULL, bits[0],
			type, image[0], &c[0]);
		return;
	}
	for (uint32_t f = 0; f < n; f++)
		fold |= image[f] == NULL;
	load_strip(t, first, runs, fold, &shared);
	deferred.n = 0;
	for (uint32_t f = 0; f < n; f++) {
		begin_strip(t, first, runs, f, n, raw, last ? ahead[f] : NULL, &shared, &deferred,
			&s[f]);
		if (image[f] == NULL)
			strip_count(t, first, runs, raw[f], &shared, &s[f], &c[f]);
		else if (type == GK_VALUE_I16)
			strip_i16(t, first, runs, raw[f], &shared, image[f], &s[f], &c[f]);
		else
			strip_f32(t, first, runs, raw[f], &shared, image[f], &s[f], &c[f]);
	}
	/* after all of them: prefetches for deferred runs have completed by then */
	slow_runs(t, first, raw, &deferred, shared.dead, s, c);
	for (uint32_t f = 0; f < n; f++)
		bits[f] = end_strip(&s[f], runs, shared.nb_dead, bits[f], &c[f]);
}

static void
simd_stats(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	const uint16_t *const ahead[], struct gk_tile_counts counts[], uint16_t *const row_nnz[],
	uint32_t *const bits[], enum gk_value type, void *const image[])
{
	const uint32_t row_runs = t->cols / RUN;
	uint32_t *to[GK_BATCH_MAX];

	memcpy(to, bits, n * sizeof(to[0]));
	memset(counts, 0, n * sizeof(counts[0]));
	for (uint32_t row = 0; row < t->rows; row++) {
		/* in place, because vector loads of counters that were just stored are slow */
		for (uint32_t f = 0; f < n; f++)
			row_nnz[f][row] = (uint16_t)-counts[f].nnz;
		for (uint32_t run = 0; run < row_runs; run += STRIP_RUNS) {
			const uint32_t left = row_runs - run;
			const uint32_t runs = left < STRIP_RUNS ? left : STRIP_RUNS;
			const uint64_t first = ((uint64_t)row * row_runs + run) * RUN;

			strip_of_frames(t, first, runs, n, raw, ahead, to, type, image, counts);
		}
		for (uint32_t f = 0; f < n; f++)
			row_nnz[f][row] = (uint16_t)(row_nnz[f][row] + counts[f].nnz);
	}
}

/* Prefetch the lines of pixels from x on whose bit is set; the raw data of a run are one line. */
VEC_FN void
fetch_run(const struct gk_tile *t, const uint16_t *raw, int photons, uint64_t x, uint32_t bits)
{
	fetch(raw + x);
	for (int k = 0; photons && k < RUN; k += 16) {
		if ((bits >> k & 0xFFFF) == 0)
			continue;
		fetch(t->p[0] + x + k);
		fetch(t->r[0] + x + k);
	}
}

static void
fetch_listed(const struct gk_tile *t, const uint16_t *raw, int photons, const uint32_t *bits)
{
	for (uint32_t row = 0; row < t->rows; row++) {
		for (uint32_t col = 0; col < t->cols; col += STRIP) {
			const uint64_t first = (uint64_t)row * t->cols + col;

			for (uint32_t used = *bits++; used != 0; used &= used - 1)
				fetch_run(t, raw, photons, first + _tzcnt_u32(used) * RUN, *bits++);
		}
	}
}

/*
 * Prefetch the whole tile if `bits` is NULL. The processor detects a stream, which is faster than
 * the quarter of the lines that csr() touches at 1 %.
 */
static void
simd_fetch(const struct gk_tile *t, const uint16_t *raw, int photons, const uint32_t *bits)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	if (bits != NULL) {
		fetch_listed(t, raw, photons, bits);
		return;
	}
	for (uint64_t x = 0; x < pixels; x += RUN) {
		fetch(raw + x);
		for (int k = 0; photons && k < RUN; k += 16) {
			fetch(t->p[0] + x + k);
			fetch(t->r[0] + x + k);
		}
	}
}

VEC_FN void
put_strip(const struct gk_tile *t, uint64_t first, uint64_t end, const uint16_t *raw,
	enum gk_value type, void *value)
{
	for (uint64_t x = first; x < end; x += RUN) {
		vec_f32 photons[RUN_VECS];

		run_photons(t, x, raw, photons);
		put_run(photons, x, false, true, type, value);
	}
}

static void
simd_image(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[], enum gk_value type,
	void *const value[])
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	/*
	 * The coefficients of a strip stay in L1. More frames at once would write too many streams.
	 */
	for (uint64_t first = 0; first < pixels; first += STRIP) {
		const uint64_t end = pixels - first < STRIP ? pixels : first + STRIP;

		for (uint32_t f = 0; f < n; f++) {
			if (type == GK_VALUE_I16)
				put_strip(t, first, end, raw[f], GK_VALUE_I16, value[f]);
			else
				put_strip(t, first, end, raw[f], GK_VALUE_F32, value[f]);
		}
	}
}

static void
simd_photons(const struct gk_tile *t, const uint16_t *raw, int16_t *to)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t x = 0; x < pixels; x += RUN) {
		vec_f32 photons[RUN_VECS];

		run_photons(t, x, raw, photons);
		vec_run_store(to + x, run_i16(photons));
	}
}

static void
simd_copy(const struct gk_tile *t, const uint16_t *raw, uint16_t *to)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t x = 0; x < pixels; x += RUN)
		vec_run_stream(to + x, vec_run_load(raw + x));
}

static void
simd_take(const struct gk_tile *t, const uint16_t *raw, uint16_t *to)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t x = 0; x < pixels; x += RUN) {
		vec_run_store(to + x, vec_run_load(raw + x));
		/* otherwise the compiler may call memcpy(), whose string instruction orders less */
		__asm__ volatile("" : : : "memory");
	}
}

/* A release store does not order stores that bypass the caches. */
static void
simd_drain(void)
{
	_mm_sfence();
}

#define NAME_OF(set)   #set
#define STRING_OF(set) NAME_OF(set)

const struct gk_tile_ops GK_TILE_SET(gk_tile) = {
	.name = STRING_OF(GK_TILE_ISA),
	.stats = simd_stats,
	.fetch = simd_fetch,
	.csr = gk_tile_csr_avx2,
	.image = simd_image,
	.photons = simd_photons,
	.copy = simd_copy,
	.take = simd_take,
	.drain = simd_drain,
	.dark = GK_TILE_SET(gk_tile_dark),
	.update = GK_TILE_SET(gk_tile_update),
};
