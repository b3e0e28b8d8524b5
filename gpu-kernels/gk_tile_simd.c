/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tile arithmetic with the vectors of gk_vector.h; built once per instruction set.
 *
 * Floor of the statistics: a batch of n frames reads 2n bytes a pixel of raw data and 8 bytes of
 * coefficients and writes n/8 bytes of bits; a core that reads 24 GB/s has some 5 cycles for the
 * 32 pixels of a cache line of raw data. So the common case costs, for 32 pixels of one frame, no
 * more than widening, (adu - p) * r, comparing and adding: everything that depends on coefficients
 * only is done once for several frames, in registers, and what is rare is put off:
 *
 *  - A run of 32 pixels is *tame* if each pixel is unusable in G0 (p or r is NaN) or has p and r
 *    within bounds that keep G0 photons normal numbers below 4096 (or 0). Then 256 r is exact, a
 *    scaled photon is 256 times the photon to the bit, comparing it with 256 times the threshold
 *    is the same, its rounding is gk_sum_q8(), and 32 bits hold the sum of a strip.
 *  - Most runs have no unusable pixel, and nothing is masked there. In others these get p = r = 0
 *    in the registers: they add 0; their bits are cleared after.
 *  - A run that is not tame, or of a frame that has other gains than G0 in it, is marked and done
 *    after its strip, case by case, in vectors too.
 *
 * Pixels at or above a threshold are counted as bits, by row; the bits of csr_threshold are kept,
 * and say what to read again for CSR: at 1 %, a quarter of the raw data. An image that is wanted in
 * any case is made of the photons that are counted.
 *
 * With AVX-512 the 32 pixels of a frame take some 24 instructions, with AVX2 50, and what 8 frames
 * share 12 and 20 more.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_photons.h"
#include "gk_tile_set.h"

/* Runs that share sums of 32 bits; their states are bits of one word */
#define STRIP_RUNS 32
#define STRIP	   GK_TILE_STRIP
_Static_assert(STRIP == STRIP_RUNS * RUN, "a bit a run");
/* Frames that share what is made of a run's coefficients; AVX2 has their sums in L1 */
#define TOGETHER 8

/*
 * Bounds of tame coefficients, as bits: 2^-60 <= p < 2^15 and 2^-60 <= r < 2^-4. |adu - p| < 2^15
 * is 0 or at least 2^-60, so photons are 0 or between 2^-120 and 2^11.
 */
#define TAME_LOW     (67u << 23)
#define TAME_P_RANGE ((142u << 23) - TAME_LOW)
#define TAME_R_RANGE ((123u << 23) - TAME_LOW)

/* What a strip of one frame is made of. */
struct strip {
	_Alignas(64) uint32_t bragg[STRIP_RUNS]; /* bits of the pixels >= bragg_threshold */
	uint32_t csr[STRIP_RUNS];		 /* ... >= csr_threshold */
	uint32_t slow;				 /* runs that are put off */
	const uint16_t *ahead;			 /* what is wanted a strip later */
};

/* A run that is not tame, or not all in G0. */
static void
slow_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, uint32_t run, struct strip *s,
	struct gk_tile_counts *c)
{
	const vec_f32 infinity = vec_set(INFINITY), bragg_threshold = vec_set(t->bragg_threshold),
		      csr_threshold = vec_set(t->csr_threshold);
	uint32_t bragg = 0, csr = 0, nan = 0, finite = 0;
	int64_t sum = 0;

	for (int k = 0; k < RUN_VECS; k++) {
		const uint64_t at = x + k * VEC_LANES;
		const vec_f32 photons = photons_any(t, at, vec_words(raw + at));
		const vec_mask is_finite = vec_lt(photons, infinity);
		/* gk_sum_q8() */
		const vec_f32 q =
			vec_clamp(vec_mul(photons, vec_set((float)GK_SUM_SCALE)), 1073741824.0f);

		sum += vec_sum_i32(vec_round(vec_keep(is_finite, q)));
		bragg |= vec_mask_bits(vec_ge(photons, bragg_threshold)) << k * VEC_LANES;
		csr |= vec_mask_bits(vec_ge(photons, csr_threshold)) << k * VEC_LANES;
		nan |= vec_mask_bits(vec_unordered(photons, photons)) << k * VEC_LANES;
		finite |= vec_mask_bits(is_finite) << k * VEC_LANES;
	}
	s->bragg[run] = bragg;
	s->csr[run] = csr;
	c->sum += sum;
	c->invalid += (uint32_t)__builtin_popcount(nan);
	c->saturated += (uint32_t)__builtin_popcount(~(finite | nan));
}

/*
 * Into L2, a strip's time before it is wanted: a prefetcher of the processor stops at pages and
 * packets, and follows few of the streams that a batch is.
 */
VEC_FN void
fetch(const void *line)
{
	__builtin_prefetch(line, 0, 2);
}

/*
 * Coefficients of the gains that the words of a run have, which is put off: hardly anybody else
 * asks for those of G1 and G2, so they come from memory.
 */
VEC_FN void
fetch_gains(const struct gk_tile *t, uint64_t x, vec_run words)
{
	/* the bits of G2 are those of G1 and one more */
	for (int g = 1; g < 3 && vec_run_any(words, g == 1 ? GK_RAW_G1 : GK_RAW_G2 ^ GK_RAW_G1);
		g++) {
		for (int k = 0; k < RUN; k += 16) {
			fetch(t->p[g] + x + k);
			fetch(t->r[g] + x + k);
		}
	}
}

/* What the frames of a strip share of a run, in registers. */
struct tame_run {
	vec_f32 p[RUN_VECS];
	vec_f32 r[RUN_VECS]; /* times GK_SUM_SCALE */
};

/* @return are all pixels usable, and within bounds? */
VEC_FN bool
load_run(const struct gk_tile *t, uint64_t x, struct tame_run *run)
{
	vec_mask bounded = vec_mask_all();

	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 r = vec_load(t->r[0] + x + k * VEC_LANES);

		run->p[k] = vec_load(t->p[0] + x + k * VEC_LANES);
		run->r[k] = vec_mul(r, vec_set((float)GK_SUM_SCALE));
		bounded = vec_bits_within(bounded, run->p[k], TAME_LOW, TAME_P_RANGE);
		bounded = vec_bits_within(bounded, r, TAME_LOW, TAME_R_RANGE);
	}
	return vec_mask_is_all(bounded);
}

/*
 * The same of a run with unusable pixels, whose p and r become 0.
 * @return bits of the usable pixels
 */
VEC_FN uint32_t
load_run_with_dead(const struct gk_tile *t, uint64_t x, struct tame_run *run, uint32_t *dead)
{
	uint32_t usable = 0;

	*dead = 0;
	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 p = vec_load(t->p[0] + x + k * VEC_LANES),
			      r = vec_load(t->r[0] + x + k * VEC_LANES);
		const vec_mask bounded =
			vec_bits_within(vec_bits_within(vec_mask_all(), p, TAME_LOW, TAME_P_RANGE),
				r, TAME_LOW, TAME_R_RANGE);

		*dead |= vec_mask_bits(vec_unordered(p, r)) << k * VEC_LANES;
		usable |= vec_mask_bits(bounded) << k * VEC_LANES;
		run->p[k] = vec_keep(bounded, p);
		run->r[k] = vec_mul(vec_keep(bounded, r), vec_set((float)GK_SUM_SCALE));
	}
	return usable;
}

/*
 * A tame run of one frame, all in G0.
 * @param whole  no pixel is unusable: bits of bragg are only counted
 */
VEC_FN void
count_run(const struct tame_run *run, const uint16_t *raw, const bool whole,
	vec_f32 bragg_threshold, vec_f32 csr_threshold, vec_i32 *sum, uint32_t *bragg,
	uint32_t *csr)
{
	vec_mask above_bragg[RUN_VECS], above_csr[RUN_VECS];
	vec_i32 add = vec_set_i32(0);

	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 words = vec_float(vec_words(raw + k * VEC_LANES));
		const vec_f32 q = vec_mul(vec_sub(words, run->p[k]), run->r[k]);

		add = k == 0 ? vec_round(q) : vec_add_i32(add, vec_round(q));
		above_bragg[k] = vec_ge(q, bragg_threshold);
		above_csr[k] = vec_ge(q, csr_threshold);
	}
	*sum = vec_add_i32(*sum, add);
	vec_put_bits(bragg, above_bragg, !whole);
	vec_put_bits(csr, above_csr, true);
}

/*
 * A strip of n frames, n being a constant where this is inlined.
 * @param dead  bits of the unusable pixels of each tame run
 */
VEC_FN void
strip_stats(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint32_t n,
	const uint16_t *const raw[], struct strip s[], uint32_t dead[], struct gk_tile_counts c[])
{
	const vec_f32 bragg_threshold = vec_set(t->bragg_threshold * (float)GK_SUM_SCALE),
		      csr_threshold = vec_set(t->csr_threshold * (float)GK_SUM_SCALE);
	vec_i32 sum[TOGETHER];

	for (uint32_t f = 0; f < n; f++)
		sum[f] = vec_set_i32(0);
	for (uint32_t i = 0; i < runs; i++) {
		const uint64_t x = first + i * RUN;
		vec_run gains = vec_run_load(raw[0] + x);
		struct tame_run run;
		uint32_t usable;
		bool tame;

		for (int k = 0; k < RUN; k += 16) {
			fetch(t->p[0] + x + STRIP + k);
			fetch(t->r[0] + x + STRIP + k);
		}
#pragma GCC unroll 8
		for (uint32_t f = 0; f < n; f++)
			fetch(s[f].ahead + i * RUN);
#pragma GCC unroll 8
		for (uint32_t f = 1; f < n; f++)
			gains = vec_run_or(gains, raw[f] + x);
		tame = load_run(t, x, &run);
		if (__builtin_expect(tame && !vec_run_any(gains, GK_RAW_GAIN_MASK), 1)) {
			dead[i] = 0;
#pragma GCC unroll 8
			for (uint32_t f = 0; f < n; f++)
				count_run(&run, raw[f] + x, true, bragg_threshold, csr_threshold,
					&sum[f], &s[f].bragg[i], &s[f].csr[i]);
			continue;
		}
		usable = load_run_with_dead(t, x, &run, &dead[i]);
#pragma GCC unroll 8
		for (uint32_t f = 0; f < n; f++) {
			const vec_run words = vec_run_load(raw[f] + x);

			if ((usable | dead[i]) != UINT32_MAX ||
				vec_run_any(words, GK_RAW_GAIN_MASK)) {
				s[f].slow |= UINT32_C(1) << i;
				fetch_gains(t, x, words);
				continue;
			}
			count_run(&run, raw[f] + x, false, bragg_threshold, csr_threshold, &sum[f],
				&s[f].bragg[i], &s[f].csr[i]);
			s[f].bragg[i] &= usable;
			s[f].csr[i] &= usable;
		}
	}
	for (uint32_t f = 0; f < n; f++)
		c[f].sum += vec_sum_i32(sum[f]);
}

static uint32_t
count_bits(const uint32_t *bits, uint32_t n)
{
	uint64_t count = 0, pair;
	uint32_t i = 0;

	for (; i + 2 <= n; i += 2) {
		memcpy(&pair, bits + i, sizeof(pair));
		count += (uint64_t)__builtin_popcountll(pair);
	}
	if (i < n)
		count += (uint64_t)__builtin_popcount(bits[i]);
	return (uint32_t)count;
}

/* Bits of a strip, gk_tile_ops.stats(). @return where those of the next one go */
static uint32_t *
put_bits(uint32_t *to, const uint32_t words[STRIP_RUNS], uint32_t runs)
{
	const uint32_t used = _bzhi_u32(vec_words_used(words), runs);

	*to++ = used;
	vec_words_pack(words, used, to);
	return to + __builtin_popcount(used);
}

static void
begin_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const uint16_t *ahead, struct strip *s)
{
	s->slow = 0;
	s->ahead = raw + first + runs * RUN;
	if (first + runs * RUN == (uint64_t)t->rows * t->cols && ahead != NULL)
		s->ahead = ahead;
}

/*
 * What is left of a strip of a frame: runs that were put off, and counting bits.
 * @param bits  of the strip, or NULL
 * @return where those of the next one go
 */
static uint32_t *
end_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const uint32_t dead[], uint32_t nb_dead, struct strip *s, uint32_t *bits,
	struct gk_tile_counts *c)
{
	c->invalid += nb_dead;
	for (uint32_t slow = s->slow; slow != 0; slow &= slow - 1) {
		const uint32_t run = (uint32_t)__builtin_ctz(slow);

		c->invalid -= (uint32_t)__builtin_popcount(dead[run]);
		slow_run(t, first + run * RUN, raw, run, s, c);
	}
	c->bragg += count_bits(s->bragg, runs);
	c->nnz += count_bits(s->csr, runs);
	return bits != NULL ? put_bits(bits, s->csr, runs) : NULL;
}

/* @param bits  of the strip; moved on to the next one */
static void
some_frames(const struct gk_tile *t, uint64_t first, uint32_t runs, uint32_t n,
	const uint16_t *const raw[], const uint16_t *const ahead[], uint32_t *bits[],
	struct gk_tile_counts c[])
{
	uint32_t dead[STRIP_RUNS], nb_dead;
	struct strip s[TOGETHER];

	for (uint32_t f = 0; f < n; f++)
		begin_strip(t, first, runs, raw[f], ahead[f], &s[f]);
	/* a number of its own for each: what is left of a batch costs no second pass */
	switch (n) {
	case TOGETHER:
		strip_stats(t, first, runs, TOGETHER, raw, s, dead, c);
		break;
	case 7:
		strip_stats(t, first, runs, 7, raw, s, dead, c);
		break;
	case 6:
		strip_stats(t, first, runs, 6, raw, s, dead, c);
		break;
	case 5:
		strip_stats(t, first, runs, 5, raw, s, dead, c);
		break;
	case 4:
		strip_stats(t, first, runs, 4, raw, s, dead, c);
		break;
	case 3:
		strip_stats(t, first, runs, 3, raw, s, dead, c);
		break;
	case 2:
		strip_stats(t, first, runs, 2, raw, s, dead, c);
		break;
	default:
		strip_stats(t, first, runs, 1, raw, s, dead, c);
		break;
	}
	nb_dead = count_bits(dead, runs);
	for (uint32_t f = 0; f < n; f++)
		bits[f] = end_strip(t, first, runs, raw[f], dead, nb_dead, &s[f], bits[f], &c[f]);
}

/* @param tame  are photons NaN, or within int16 by far? */
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

/* A run of an image whose statistics are put off. */
static __attribute__((noinline)) void
any_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, enum gk_value type, void *value)
{
	vec_f32 photons[RUN_VECS];

	run_photons(t, x, raw, photons);
	put_run(photons, x, false, true, type, value);
}

/* What frames share of a strip whose images are made. */
struct tame_strip {
	uint32_t dead[STRIP_RUNS]; /* bits of the unusable pixels of a tame run */
	uint32_t nb_dead;
	uint32_t tame;	/* runs that are */
	uint32_t whole; /* those of them that have no unusable pixel */
};

static void
load_strip(const struct gk_tile *t, uint64_t first, uint32_t runs, struct tame_strip *strip)
{
	strip->tame = strip->whole = 0;
	for (uint32_t i = 0; i < runs; i++) {
		const uint64_t x = first + i * RUN;
		struct tame_run run;
		uint32_t usable;

		for (int k = 0; k < RUN; k += 16) {
			fetch(t->p[0] + x + STRIP + k);
			fetch(t->r[0] + x + STRIP + k);
		}
		strip->dead[i] = 0;
		if (__builtin_expect(load_run(t, x, &run), 1)) {
			strip->tame |= UINT32_C(1) << i;
			strip->whole |= UINT32_C(1) << i;
			continue;
		}
		usable = load_run_with_dead(t, x, &run, &strip->dead[i]);
		strip->tame |= (uint32_t)((usable | strip->dead[i]) == UINT32_MAX) << i;
	}
	strip->nb_dead = count_bits(strip->dead, runs);
}

/* count_run() and the run's image. Photons are scaled for the sum only. */
VEC_FN void
image_run(const struct gk_tile *t, uint64_t x, const uint16_t *raw, const bool whole,
	vec_f32 bragg_threshold, vec_f32 csr_threshold, enum gk_value type, void *value,
	vec_i32 *sum, uint32_t *bragg, uint32_t *csr)
{
	vec_mask above_bragg[RUN_VECS], above_csr[RUN_VECS];
	vec_i32 add = vec_set_i32(0);
	vec_f32 photons[RUN_VECS];

	for (int k = 0; k < RUN_VECS; k++) {
		vec_f32 q;

		photons[k] = photons_g0(t, x + k * VEC_LANES, vec_words(raw + x + k * VEC_LANES));
		q = vec_mul(photons[k], vec_set((float)GK_SUM_SCALE));
		if (!whole)
			q = vec_keep(vec_lt(photons[k], vec_set(INFINITY)), q);
		add = k == 0 ? vec_round(q) : vec_add_i32(add, vec_round(q));
		above_bragg[k] = vec_ge(photons[k], bragg_threshold);
		above_csr[k] = vec_ge(photons[k], csr_threshold);
	}
	*sum = vec_add_i32(*sum, add);
	/* NaN is above nothing: bits of bragg are only counted */
	vec_put_bits(bragg, above_bragg, false);
	vec_put_bits(csr, above_csr, true);
	put_run(photons, x, true, !whole, type, value);
}

/* A strip of one frame, and its image. */
VEC_FN void
strip_image(const struct gk_tile *t, uint64_t first, uint32_t runs, const uint16_t *raw,
	const struct tame_strip *strip, enum gk_value type, void *value, struct strip *s,
	struct gk_tile_counts *c)
{
	const vec_f32 bragg_threshold = vec_set(t->bragg_threshold),
		      csr_threshold = vec_set(t->csr_threshold);
	vec_i32 sum = vec_set_i32(0);

	for (uint32_t i = 0; i < runs; i++) {
		const uint64_t x = first + i * RUN;
		const vec_run words = vec_run_load(raw + x);
		uint32_t *bragg = &s->bragg[i], *csr = &s->csr[i];

		fetch(s->ahead + i * RUN);
		if (__builtin_expect(
			    vec_run_any(words, GK_RAW_GAIN_MASK) || !(strip->tame >> i & 1), 0)) {
			s->slow |= UINT32_C(1) << i;
			any_run(t, x, raw, type, value);
		} else if (__builtin_expect(!(strip->whole >> i & 1), 0)) {
			image_run(t, x, raw, false, bragg_threshold, csr_threshold, type, value,
				&sum, bragg, csr);
		} else {
			image_run(t, x, raw, true, bragg_threshold, csr_threshold, type, value,
				&sum, bragg, csr);
		}
	}
	c->sum += vec_sum_i32(sum);
}

/* some_frames() of those whose images are made, one after the other: fewer streams are written. */
static void
some_images(const struct gk_tile *t, uint64_t first, uint32_t runs, uint32_t n,
	const uint16_t *const raw[], const uint16_t *const ahead[], uint32_t *bits[],
	enum gk_value type, void *const image[], struct gk_tile_counts c[])
{
	struct tame_strip strip;
	struct strip s;

	load_strip(t, first, runs, &strip);
	for (uint32_t f = 0; f < n; f++) {
		begin_strip(t, first, runs, raw[f], ahead[f], &s);
		if (type == GK_VALUE_I16)
			strip_image(
				t, first, runs, raw[f], &strip, GK_VALUE_I16, image[f], &s, &c[f]);
		else
			strip_image(
				t, first, runs, raw[f], &strip, GK_VALUE_F32, image[f], &s, &c[f]);
		bits[f] = end_strip(
			t, first, runs, raw[f], strip.dead, strip.nb_dead, &s, bits[f], &c[f]);
	}
}

/* How many of n frames, at most TOGETHER, are done in one go: images are made of all or of none. */
static uint32_t
alike(uint32_t n, void *const image[])
{
	uint32_t some = 1;

	while (some < n && some < TOGETHER && (image[some] == NULL) == (image[0] == NULL))
		some++;
	return some;
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
		uint32_t before[GK_BATCH_MAX];

		for (uint32_t f = 0; f < n; f++)
			before[f] = counts[f].nnz;
		for (uint32_t run = 0; run < row_runs; run += STRIP_RUNS) {
			const uint32_t left = row_runs - run;
			const uint32_t runs = left < STRIP_RUNS ? left : STRIP_RUNS;
			const uint64_t first = ((uint64_t)row * row_runs + run) * RUN;

			/* frames inside: the strip's coefficients stay in L1 for all of them */
			for (uint32_t f = 0, some; f < n; f += some) {
				some = alike(n - f, image + f);
				if (image[f] == NULL)
					some_frames(t, first, runs, some, raw + f, ahead + f,
						to + f, counts + f);
				else
					some_images(t, first, runs, some, raw + f, ahead + f,
						to + f, type, image + f, counts + f);
			}
		}
		for (uint32_t f = 0; f < n; f++)
			row_nnz[f][row] = (uint16_t)(counts[f].nnz - before[f]);
	}
}

/* The lines of pixels from x on whose bit is set; raw data of a run are one. */
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
 * All of it, if so asked: the processor sees a stream, and is faster with it than with the quarter
 * of the lines that csr() touches at 1 %.
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

	/* coefficients of a strip stay in L1; more frames at once would write too many streams */
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
simd_copy(const struct gk_tile *t, const uint16_t *raw, uint16_t *to)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t x = 0; x < pixels; x += RUN)
		vec_run_stream(to + x, vec_run_load(raw + x));
}

/* The release that says it is done does not order stores past the caches. */
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
	.copy = simd_copy,
	.drain = simd_drain,
	.dark = GK_TILE_SET(gk_tile_dark),
	.update = GK_TILE_SET(gk_tile_update),
};
