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
 *  - Unusable pixels get p = r = 0 in the registers: they add 0; their bits are cleared after.
 *  - A run that is not tame, or of a frame that has other gains than G0 in it, is marked and done
 *    after its strip, case by case, in vectors too.
 *
 * Pixels at or above a threshold are counted as bits, by row; the bits of csr_threshold are kept,
 * and say what to read again for CSR: at 1 %, a quarter of the raw data.
 */

#include <stdbool.h>
#include <string.h>

#include "gk_tile_set.h"
#include "gk_vector.h"

/* Pixels whose gains are looked at together: a cache line of raw data; divides gk_geometry.cols */
#define RUN	 32
#define RUN_VECS (RUN / VEC_LANES)
/* Runs that share sums of 32 bits; their states are bits of one word */
#define STRIP_RUNS 32
#define STRIP	   (STRIP_RUNS * RUN)
/* Frames whose sums are in registers together */
#if VEC_LANES == 16
#define TOGETHER 8
#else
#define TOGETHER 4
#endif
/* Pixels of a tile that are packed before they are copied to where they belong */
#define PACKED 1024
/* Runs of a tile that are listed before they are worked on */
#define LISTED 512

/*
 * Bounds of tame coefficients, as bits: 2^-60 <= p < 2^15 and 2^-60 <= r < 2^-4. |adu - p| < 2^15
 * is 0 or at least 2^-60, so photons are 0 or between 2^-120 and 2^11.
 */
#define TAME_LOW     (67u << 23)
#define TAME_P_RANGE ((142u << 23) - TAME_LOW)
#define TAME_R_RANGE ((123u << 23) - TAME_LOW)

VEC_FN vec_f32
photons_g0(const struct gk_tile *t, uint64_t x, vec_i32 words)
{
	return vec_mul(vec_sub(vec_float(words), vec_load(t->p[0] + x)), vec_load(t->r[0] + x));
}

/* gk_photons() of the pixels from x on */
VEC_FN vec_f32
photons_any(const struct gk_tile *t, uint64_t x, vec_i32 words)
{
	const vec_i32 gain = vec_and_i32(words, GK_RAW_GAIN_MASK);
	const vec_mask g1 = vec_eq_i32(gain, GK_RAW_G1), g2 = vec_eq_i32(gain, GK_RAW_G2);
	const vec_mask nan = vec_mask_or(vec_eq_i32(gain, GK_RAW_INVALID),
		vec_mask_or(
			vec_eq_i32(words, GK_RAW_G1_SATURATED), vec_eq_i32(words, GK_RAW_MISSING)));
	vec_f32 p = vec_load(t->p[0] + x), r = vec_load(t->r[0] + x), photons;

	p = vec_load_where(g1, t->p[1] + x, p);
	p = vec_load_where(g2, t->p[2] + x, p);
	r = vec_load_where(g1, t->r[1] + x, r);
	r = vec_load_where(g2, t->r[2] + x, r);
	photons = vec_mul(vec_sub(vec_float(vec_and_i32(words, GK_RAW_ADC_MASK)), p), r);
	photons = vec_select(
		vec_eq_i32(words, GK_RAW_SATURATED), vec_sub(vec_set(INFINITY), p), photons);
	return vec_select(nan, vec_set(gk_nan()), photons);
}

/* Photons of a run. */
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

/* What a strip of one frame is made of. */
struct strip {
	_Alignas(64) uint32_t bragg[STRIP_RUNS]; /* bits of the pixels >= bragg_threshold */
	uint32_t *csr;				 /* ... >= csr_threshold */
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

/* What the frames of a strip share of a run, in registers. */
struct tame_run {
	vec_f32 p[RUN_VECS]; /* 0 where the pixel is unusable */
	vec_f32 r[RUN_VECS]; /* times GK_SUM_SCALE */
	uint32_t usable;     /* bits */
	uint32_t dead;
};

VEC_FN struct tame_run
load_run(const struct gk_tile *t, uint64_t x)
{
	struct tame_run run = {.usable = 0};

	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 p = vec_load(t->p[0] + x + k * VEC_LANES),
			      r = vec_load(t->r[0] + x + k * VEC_LANES);
		const vec_mask bounded = vec_mask_and(vec_bits_within(p, TAME_LOW, TAME_P_RANGE),
			vec_bits_within(r, TAME_LOW, TAME_R_RANGE));

		run.dead |= vec_mask_bits(vec_unordered(p, r)) << k * VEC_LANES;
		run.usable |= vec_mask_bits(bounded) << k * VEC_LANES;
		run.p[k] = vec_keep(bounded, p);
		run.r[k] = vec_mul(vec_keep(bounded, r), vec_set((float)GK_SUM_SCALE));
	}
	return run;
}

/* A tame run of one frame, all in G0. */
VEC_FN void
count_run(const struct tame_run *run, const uint16_t *raw, vec_f32 bragg_threshold,
	vec_f32 csr_threshold, vec_i32 *sum, uint32_t *bragg_bits, uint32_t *csr_bits)
{
	uint32_t bragg = 0, csr = 0;

	for (int k = 0; k < RUN_VECS; k++) {
		const vec_f32 words = vec_float(vec_words(raw + k * VEC_LANES));
		const vec_f32 q = vec_mul(vec_sub(words, run->p[k]), run->r[k]);

		*sum = vec_add_i32(*sum, vec_round(q));
		bragg |= vec_mask_bits(vec_ge(q, bragg_threshold)) << k * VEC_LANES;
		csr |= vec_mask_bits(vec_ge(q, csr_threshold)) << k * VEC_LANES;
	}
	*bragg_bits = bragg & run->usable;
	*csr_bits = csr & run->usable;
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
		const struct tame_run run = load_run(t, x);
		vec_run gains = vec_run_load(raw[0] + x);

		dead[i] = run.dead;
		for (int k = 0; k < RUN; k += 16) {
			fetch(t->p[0] + x + STRIP + k);
			fetch(t->r[0] + x + STRIP + k);
		}
#pragma GCC unroll 8
		for (uint32_t f = 0; f < n; f++)
			fetch(s[f].ahead + i * RUN);
		if (__builtin_expect((run.usable | run.dead) != UINT32_MAX, 0)) {
			for (uint32_t f = 0; f < n; f++)
				s[f].slow |= UINT32_C(1) << i;
			continue;
		}
#pragma GCC unroll 8
		for (uint32_t f = 1; f < n; f++)
			gains = vec_run_or(gains, raw[f] + x);
		if (__builtin_expect(!vec_run_any(gains, GK_RAW_GAIN_MASK), 1)) {
#pragma GCC unroll 8
			for (uint32_t f = 0; f < n; f++)
				count_run(&run, raw[f] + x, bragg_threshold, csr_threshold, &sum[f],
					&s[f].bragg[i], &s[f].csr[i]);
			continue;
		}
#pragma GCC unroll 8
		for (uint32_t f = 0; f < n; f++) {
			if (vec_run_any(vec_run_load(raw[f] + x), GK_RAW_GAIN_MASK))
				s[f].slow |= UINT32_C(1) << i;
			else
				count_run(&run, raw[f] + x, bragg_threshold, csr_threshold, &sum[f],
					&s[f].bragg[i], &s[f].csr[i]);
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

static void
some_frames(const struct gk_tile *t, uint64_t first, uint32_t runs, uint32_t n,
	const uint16_t *const raw[], const uint16_t *const ahead[], uint32_t *const bits[],
	struct gk_tile_counts c[])
{
	uint32_t own_bits[TOGETHER][STRIP_RUNS], dead[STRIP_RUNS], nb_dead;
	struct strip s[TOGETHER];

	for (uint32_t f = 0; f < n; f++) {
		s[f].csr = bits[f] != NULL ? bits[f] + first / RUN : own_bits[f];
		s[f].slow = 0;
		s[f].ahead = raw[f] + first + runs * RUN;
		if (first + runs * RUN == (uint64_t)t->rows * t->cols && ahead[f] != NULL)
			s[f].ahead = ahead[f];
	}
	/* TOGETHER or its halves */
#if TOGETHER == 8
	if (n == 8)
		strip_stats(t, first, runs, 8, raw, s, dead, c);
	else
#endif
		if (n == 4)
		strip_stats(t, first, runs, 4, raw, s, dead, c);
	else if (n == 2)
		strip_stats(t, first, runs, 2, raw, s, dead, c);
	else
		strip_stats(t, first, runs, 1, raw, s, dead, c);
	nb_dead = count_bits(dead, runs);
	for (uint32_t f = 0; f < n; f++) {
		c[f].invalid += nb_dead;
		for (uint32_t slow = s[f].slow; slow != 0; slow &= slow - 1) {
			const uint32_t run = (uint32_t)__builtin_ctz(slow);

			c[f].invalid -= (uint32_t)__builtin_popcount(dead[run]);
			slow_run(t, first + run * RUN, raw[f], run, &s[f], &c[f]);
		}
		c[f].bragg += count_bits(s[f].bragg, runs);
		c[f].nnz += count_bits(s[f].csr, runs);
	}
}

static void
simd_stats(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	const uint16_t *const ahead[], struct gk_tile_counts counts[], uint16_t *const row_nnz[],
	uint32_t *const bits[])
{
	const uint32_t row_runs = t->cols / RUN;

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
				for (some = TOGETHER; some > n - f;)
					some /= 2;
				some_frames(t, first, runs, some, raw + f, ahead + f, bits + f,
					counts + f);
			}
		}
		for (uint32_t f = 0; f < n; f++)
			row_nnz[f][row] = (uint16_t)(counts[f].nnz - before[f]);
	}
}

/* gk_value_i16() of a run */
VEC_FN vec_run
run_i16(const vec_f32 photons[RUN_VECS])
{
	vec_i32 whole[RUN_VECS];

	/*
	 * Half away from zero: the largest float below 0.5 lifts n + 0.5 to n + 1 (to even where
	 * it is a tie), and nothing that is less. NaN becomes INT32_MIN, and packed INT16_MIN.
	 */
	for (int k = 0; k < RUN_VECS; k++)
		whole[k] = vec_truncate(
			vec_add_away(vec_clamp_nan(photons[k], 32767.0f), 0x1.fffffep-2f));
	return vec_pack_run(whole);
}

/* Packed pixels on their way out. */
struct packed {
	uint32_t n;
	_Alignas(64) float photons[PACKED + RUN];
	uint16_t col[PACKED + RUN];
};

/* @return how many */
static uint32_t
put_packed(struct packed *packed, enum gk_value type, uint16_t *col, void *value, uint64_t at)
{
	int16_t whole[PACKED + RUN];
	const uint32_t n = packed->n;

	memcpy(col + at, packed->col, n * sizeof(*col));
	if (type == GK_VALUE_I16) {
		for (uint32_t i = 0; i < n; i += RUN) {
			vec_f32 photons[RUN_VECS];

			for (int k = 0; k < RUN_VECS; k++)
				photons[k] = vec_load(packed->photons + i + k * VEC_LANES);
			vec_run_store(whole + i, run_i16(photons));
		}
		memcpy((int16_t *)value + at, whole, n * sizeof(*whole));
	} else {
		/* no NaN is at or above a threshold: they need not be made alike */
		memcpy((float *)value + at, packed->photons, n * sizeof(float));
	}
	packed->n = 0;
	return n;
}

VEC_FN void
pack_run(const struct gk_tile *t, uint64_t x, uint32_t col, const uint16_t *raw, uint32_t bits,
	struct packed *packed)
{
	vec_f32 photons[RUN_VECS];

	run_photons(t, x, raw, photons);
	for (int k = 0; k < RUN_VECS; k++) {
		const uint32_t some = bits >> k * VEC_LANES & ((1u << VEC_LANES) - 1);

		vec_store_packed(packed->photons + packed->n, some, photons[k]);
		vec_store_packed_lanes(packed->col + packed->n, some, col + k * VEC_LANES);
		packed->n += (uint32_t)__builtin_popcount(some);
	}
}

/* Runs with something in them, from `first` on: so that what follows need not guess. */
static uint32_t
list_runs(const uint32_t *bits, uint32_t first, uint32_t end, uint16_t list[])
{
	uint32_t n = 0;

	for (uint32_t run = first; run < end; run += VEC_LANES) {
		uint32_t some = vec_nonzero_bits(bits + run);

		if (end - run < VEC_LANES)
			some &= (1u << (end - run)) - 1;
		vec_store_packed_lanes(list + n, some, run - first);
		n += (uint32_t)__builtin_popcount(some);
	}
	return n;
}

/*
 * All of it: the processor sees a stream, and is faster with it than with the quarter of the lines
 * that csr() touches at 1 %.
 */
static void
simd_fetch(const struct gk_tile *t, const uint16_t *raw, int photons)
{
	const uint64_t pixels = (uint64_t)t->rows * t->cols;

	for (uint64_t x = 0; x < pixels; x += RUN) {
		fetch(raw + x);
		for (int k = 0; photons && k < RUN; k += 16) {
			fetch(t->p[0] + x + k);
			fetch(t->r[0] + x + k);
		}
	}
}

static void
simd_csr(const struct gk_tile *t, const uint16_t *raw, const uint32_t *bits, enum gk_value type,
	uint16_t *col, void *value)
{
	const uint32_t row_runs = t->cols / RUN, runs = t->rows * row_runs;
	/* instead of a division a run: exact, since what is divided and row_runs are below 2^12 */
	const uint64_t inverse = UINT32_MAX / row_runs + UINT64_C(1);
	uint16_t list[LISTED + VEC_LANES];
	struct packed packed;
	uint64_t at = 0;

	packed.n = 0;
	for (uint32_t first = 0; first < runs; first += LISTED) {
		const uint32_t end = runs - first < LISTED ? runs : first + LISTED;
		const uint32_t n = list_runs(bits, first, end, list), in_row = first % row_runs;

		for (uint32_t i = 0; i < n; i++) {
			const uint32_t run = first + list[i];
			const uint64_t x = (uint64_t)run * RUN;
			const uint32_t column = in_row + list[i];
			const uint32_t row = (uint32_t)(column * inverse >> 32);

			if (packed.n > PACKED - RUN)
				at += put_packed(&packed, type, col, value, at);
			pack_run(t, x, (column - row * row_runs) * RUN, raw, bits[run], &packed);
		}
	}
	put_packed(&packed, type, col, value, at);
}

VEC_FN void
put_run(const vec_f32 photons[RUN_VECS], uint64_t x, enum gk_value type, void *value)
{
	const vec_f32 nan = vec_set(gk_nan());

	if (type == GK_VALUE_I16) {
		vec_run_stream((int16_t *)value + x, run_i16(photons));
		return;
	}
	for (int k = 0; k < RUN_VECS; k++)
		vec_stream((float *)value + x + k * VEC_LANES,
			vec_select(vec_unordered(photons[k], photons[k]), nan, photons[k]));
}

VEC_FN void
put_strip(const struct gk_tile *t, uint64_t first, uint64_t end, const uint16_t *raw,
	enum gk_value type, void *value)
{
	for (uint64_t x = first; x < end; x += RUN) {
		vec_f32 photons[RUN_VECS];

		run_photons(t, x, raw, photons);
		put_run(photons, x, type, value);
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
	.csr = simd_csr,
	.image = simd_image,
	.copy = simd_copy,
	.drain = simd_drain,
	.dark = GK_TILE_SET(gk_tile_dark),
	.update = GK_TILE_SET(gk_tile_update),
};
