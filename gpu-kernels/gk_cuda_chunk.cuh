/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of one chunk of all frames of a batch, by one warp. Thread f holds the statistics of
 * frame f. A thread processes four neighbouring pixels of each quarter of the chunk, so that image
 * values are stored in full sectors: its pixel 4 k + j is pixel 128 k + 4 thread + j of the chunk.
 */
#ifndef GK_CUDA_CHUNK_CUH
#define GK_CUDA_CHUNK_CUH

#include "gk_cuda_coef.cuh"

/* Statistics of frame f, in thread f. */
struct tally {
	int64_t sum;
	uint32_t bragg;
	uint32_t nnz;
	uint32_t saturated;
	uint32_t invalid;
};

/* Coefficients of a thread's pixels. */
struct lane_coef {
	float p[GK_CUDA_LANE];
	float r[GK_CUDA_LANE];
	uint32_t bragg[GK_CUDA_LANE / 2];
	uint32_t csr[GK_CUDA_LANE / 2];
};

/*
 * Pixels below thresholds, with pixel 4 k + j in bit 8 j + k, and the sum above a multiple of
 * SUM_NOTHING.
 */
struct lane_counts {
	uint32_t below_bragg;
	uint32_t below_csr;
	uint32_t sum;
};

#define ALL_BITS 0x0F0F0F0Fu

static __device__ __forceinline__ uint32_t
pixel_of(uint32_t i)
{
	return i / 4 * 128 + lane_of_warp() * 4 + i % 4;
}

static __device__ __forceinline__ uint32_t
bit_of_pixel(uint32_t i)
{
	return 1u << (i % 4 * 8 + i / 4);
}

/* Coefficients that counting reads. */
enum coef_use {
	NO_WORDS, /* few frames: loading threshold words costs more than it saves */
	ONE_WORD, /* both thresholds are equal */
	TWO_WORDS,
};

static __device__ __forceinline__ enum coef_use
use_of(const struct gk_params *params, bool few)
{
	if (few)
		return NO_WORDS;
	return params->strong_threshold == params->csr_threshold ? ONE_WORD : TWO_WORDS;
}

/* Copy the coefficients of a chunk to shared memory for counting. */
static __device__ __forceinline__ void
copy_coef(const struct feed *f, uint32_t chunk, enum coef_use use)
{
	const struct gk_cuda_coef *from = f->coef + chunk;
	const uint32_t to = f->area + GK_CUDA_AT_KEPT;

	feed_copy(to, from, offsetof(struct gk_cuda_coef, bragg));
	if (use != NO_WORDS)
		feed_copy(to + offsetof(struct gk_cuda_coef, bragg), from->bragg,
			sizeof(from->bragg));
	if (use == TWO_WORDS)
		feed_copy(to + offsetof(struct gk_cuda_coef, csr), from->csr, sizeof(from->csr));
	if (lane_of_warp() == 0)
		copy_async(f->area + GK_CUDA_AT_FIRST, (uint64_t)&from->holes);
}

/* @return holes and wild pixels of the chunk */
static __device__ __forceinline__ uint2
load_coef(struct lane_coef *c, const struct feed *f, enum coef_use use)
{
	const uint32_t at = f->area + GK_CUDA_AT_KEPT, lane = lane_of_warp();
	const uint32_t second = use == TWO_WORDS ? offsetof(struct gk_cuda_coef, csr)
						 : offsetof(struct gk_cuda_coef, bragg);

#pragma unroll
	for (int k = 0; k < 4; k++) {
		const uint4 p = load_shared4(at + k * 512 + lane * 16);
		const uint4 r =
			load_shared4(at + offsetof(struct gk_cuda_coef, r) + k * 512 + lane * 16);

		c->p[4 * k] = __uint_as_float(p.x), c->p[4 * k + 1] = __uint_as_float(p.y);
		c->p[4 * k + 2] = __uint_as_float(p.z), c->p[4 * k + 3] = __uint_as_float(p.w);
		c->r[4 * k] = __uint_as_float(r.x), c->r[4 * k + 1] = __uint_as_float(r.y);
		c->r[4 * k + 2] = __uint_as_float(r.z), c->r[4 * k + 3] = __uint_as_float(r.w);
	}
#pragma unroll
	for (int k = 0; k < 4 && use != NO_WORDS; k++) {
		const uint2 bragg = load_shared2(
			at + offsetof(struct gk_cuda_coef, bragg) + k * 256 + lane * 8);
		const uint2 csr = load_shared2(at + second + k * 256 + lane * 8);

		c->bragg[2 * k] = bragg.x, c->bragg[2 * k + 1] = bragg.y;
		c->csr[2 * k] = csr.x, c->csr[2 * k + 1] = csr.y;
	}
	return load_shared2(f->area + GK_CUDA_AT_FIRST);
}

/* Load p and r of a thread's pixels from device memory. */
static __device__ __forceinline__ void
load_p_r_far(float p[GK_CUDA_LANE], float r[GK_CUDA_LANE], const struct gk_cuda_coef *from)
{
#pragma unroll
	for (int k = 0; k < 4; k++) {
		const uint32_t at = pixel_of(4 * k);
		const float4 p4 = __ldcg((const float4 *)(from->p + at));
		const float4 r4 = __ldcg((const float4 *)(from->r + at));

		p[4 * k] = p4.x, p[4 * k + 1] = p4.y;
		p[4 * k + 2] = p4.z, p[4 * k + 3] = p4.w;
		r[4 * k] = r4.x, r[4 * k + 1] = r4.y;
		r[4 * k + 2] = r4.z, r[4 * k + 3] = r4.w;
	}
}

/* As load_coef(), from device memory. */
static __device__ __forceinline__ uint2
load_coef_far(struct lane_coef *c, const struct gk_cuda_coef *from, enum coef_use use)
{
	load_p_r_far(c->p, c->r, from);
#pragma unroll
	for (int k = 0; k < 4 && use != NO_WORDS; k++) {
		const uint32_t at = pixel_of(4 * k);
		const uint2 bragg = __ldcg((const uint2 *)(from->bragg + at));
		const uint2 csr =
			use == TWO_WORDS ? __ldcg((const uint2 *)(from->csr + at)) : bragg;

		c->bragg[2 * k] = bragg.x, c->bragg[2 * k + 1] = bragg.y;
		c->csr[2 * k] = csr.x, c->csr[2 * k + 1] = csr.y;
	}
	return __ldcg((const uint2 *)&from->holes);
}

/* Words of a thread: those of a quarter, and of all. @{ */
static __device__ __forceinline__ uint2
load_quarter(uint32_t words, uint32_t k)
{
	return load_shared2(words + k * 256 + lane_of_warp() * 8);
}

static __device__ __forceinline__ void
load_words(uint2 w[4], uint32_t words)
{
#pragma unroll
	for (int k = 0; k < 4; k++)
		w[k] = load_quarter(words, k);
}
/** @} */

static __device__ __forceinline__ bool
all_g0(const uint2 w[4])
{
	return ((w[0].x | w[0].y | w[1].x | w[1].y | w[2].x | w[2].y | w[3].x | w[3].y) & GAINS) ==
		0;
}

/* Photons of a thread's pixels by the fast path. */
static __device__ __forceinline__ void
photons_of(float x[GK_CUDA_LANE], const uint2 w[4], const float p[], const float r[])
{
#pragma unroll
	for (int k = 0; k < 4; k++) {
		x[4 * k] = quick_photons(w[k].x & 0xFFFF, p[4 * k], r[4 * k]);
		x[4 * k + 1] = quick_photons(w[k].x >> 16, p[4 * k + 1], r[4 * k + 1]);
		x[4 * k + 2] = quick_photons(w[k].y & 0xFFFF, p[4 * k + 2], r[4 * k + 2]);
		x[4 * k + 3] = quick_photons(w[k].y >> 16, p[4 * k + 3], r[4 * k + 3]);
	}
}

/*
 * Counts of a thread's pixels by the fast path. Odd pixels are included, as if they were not odd.
 * @param few  without threshold words: for few frames loading them costs more than it saves
 */
static __device__ __forceinline__ struct lane_counts
counts_of(const uint2 w[4], const struct lane_coef *c, const struct gk_params *params, bool few,
	float x[GK_CUDA_LANE])
{
	struct lane_counts n = {0, 0, 0};

	photons_of(x, w, c->p, c->r);
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		n.sum += quick_sum(x[i]);
		if (few) {
			n.below_bragg |= x[i] >= params->strong_threshold ? 0 : bit_of_pixel(i);
			n.below_csr |= x[i] >= params->csr_threshold ? 0 : bit_of_pixel(i);
		}
	}
#pragma unroll
	for (int k = 0; k < 4 && !few; k++) {
		const uint32_t bit = 0x01010101u << k;

		n.below_bragg |= bit &
			signs_of(compare_words(w[k].x, c->bragg[2 * k]),
				compare_words(w[k].y, c->bragg[2 * k + 1]));
		n.below_csr |= bit &
			signs_of(compare_words(w[k].x, c->csr[2 * k]),
				compare_words(w[k].y, c->csr[2 * k + 1]));
	}
	return n;
}

/* The 0 of holes is below a threshold word, but not below 0: all pixels are treated as odd. */
static __device__ __forceinline__ bool
all_odd(const struct gk_params *params, bool few)
{
	return few && !(params->strong_threshold > 0.0f && params->csr_threshold > 0.0f);
}

/* Four pixels of a bit mask as bits of struct lane_counts. */
static __device__ __forceinline__ uint32_t
spread_bits(uint32_t four)
{
	return four * 0x00204081u & 0x01010101u;
}

/* A sign bit for each of two words that are not in G0. */
static __device__ __forceinline__ uint32_t
gain_signs(uint32_t words)
{
	return words | words << 1;
}

/*
 * A thread's odd pixels, as bits of struct lane_counts.
 * @param words  function object: the words of a quarter. They are loaded again: keeping them costs
 *               registers
 */
template <typename load>
static __device__ __forceinline__ uint32_t
odd_bits(load words, const struct gk_cuda_coef *coef, uint32_t wild)
{
	uint32_t bits = 0;

#pragma unroll 1
	for (uint32_t k = 0; k < 4; k++) {
		const uint2 w = words(k);
		const uint32_t first = pixel_of(4 * k);

		bits |= 0x01010101u << k & signs_of(gain_signs(w.x), gain_signs(w.y));
		if (wild == 0)
			continue;
		bits |= spread_bits(__ldcg(coef->wild_bits + first / 32) >> first % 32 & 15) << k;
	}
	return bits;
}

/* Bits of a chunk's mask for a thread's pixels. */
static __device__ __forceinline__ uint32_t
bits_of_lane(const uint32_t *mask)
{
	uint32_t bits = 0;

#pragma unroll
	for (uint32_t i = 0; i < GK_CUDA_LANE; i += 4)
		bits |= (__ldcg(&mask[pixel_of(i) / 32]) >> pixel_of(i) % 32 & 15) << i;
	return bits;
}

/* Position of a thread's pixels of a chunk in an image. */
struct spot {
	uint64_t at;	 /* raster number of its first pixel */
	uint32_t pixels; /* pixels of the chunk */
	uint32_t holes;
};

static __device__ __forceinline__ struct spot
spot_of(const struct gk_cuda_coef *coef, uint32_t chunk, uint32_t holes)
{
	const uint32_t row = divide(chunk, args.row_chunks);
	struct spot s;

	s.at = (uint64_t)row * args.geometry.cols + column_of(chunk) + lane_of_warp() * 4;
	s.pixels = pixels_of(chunk);
	s.holes = holes != 0 ? bits_of_lane(coef[chunk].hole_bits) : 0;
	return s;
}

/*
 * Write a chunk of a full image: values by the fast path, then the odd pixels over them, by the
 * same threads.
 */
static __device__ __forceinline__ void
store_image(void *value, uint32_t type, const struct spot *s, float x[GK_CUDA_LANE])
{
	if (s->holes != 0) {
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++)
			x[i] = s->holes >> i & 1 ? gk_nan() : x[i];
	}
#pragma unroll
	for (int k = 0; k < 4; k++)
		if (k * 128 + lane_of_warp() * 4 < s->pixels)
			store_values(value, s->at + k * 128, type, x + 4 * k);
}

static __device__ __forceinline__ void
store_odd(void *value, uint32_t type, const struct spot *s, const struct gk_cuda_coef *coef,
	uint32_t wild, uint32_t words)
{
#pragma unroll 1
	for (uint32_t i = 0; i < GK_CUDA_LANE; i++) {
		const uint32_t pixel = pixel_of(i);
		const uint16_t word = load_shared_u16(words + pixel * 2);

		if (pixel < s->pixels && is_odd(coef, wild, pixel, word))
			store_value(value, s->at + i / 4 * 128 + i % 4, type,
				any_photons(coef, pixel, word));
	}
}

/* Copy raw words unchanged, or the value for a missing packet: 8 per thread and half. */
static __device__ __forceinline__ void
store_raw(uint16_t *to, uint32_t pixels, uint32_t words, bool present)
{
	const uint32_t none = 0xFFFFFFFFu;

#pragma unroll
	for (uint32_t first = 0; first < GK_CUDA_CHUNK; first += 256) {
		const uint32_t at = first + lane_of_warp() * 8;

		if (at < pixels)
			__stcs((uint4 *)(to + at),
				present ? load_shared4(words + at * 2)
					: make_uint4(none, none, none, none));
	}
}

static __device__ __forceinline__ uint16_t *
raw_at(uint64_t out, const struct spot *s)
{
	return (uint16_t *)(out + args.layout.raw) + (s->at - lane_of_warp() * 4);
}

/* Values of a full image in an output slot. */
static __device__ __forceinline__ void *
image_at(uint64_t out)
{
	return (void *)(out + args.layout.value);
}

static __device__ __forceinline__ void
store_missing_image(void *value, uint32_t type, const struct spot *s)
{
	struct spot all = *s;
	float x[GK_CUDA_LANE];

	all.holes = (1u << GK_CUDA_LANE) - 1;
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		x[i] = 0.0f;
	store_image(value, type, &all, x);
}

static __device__ __forceinline__ void
store_missing(uint64_t out, uint32_t kind, const struct spot *s)
{
	if (kind == GK_KIND_RAW)
		store_raw(raw_at(out, s), s->pixels, 0, false);
	else
		store_missing_image(image_at(out), args.value, s);
}

#ifdef GK_CUDA_PROFILE
#include "gk_cuda_profile_chunk.cuh"
#else
struct profile_lane {
};

static __device__ __forceinline__ void
profile_load(struct profile_lane *l, uint32_t chunk)
{
}

static __device__ __forceinline__ void
profile_prefetch(const struct gk_cuda_coef *coef, uint32_t chunk)
{
}

static __device__ __forceinline__ void
profile_add(const struct profile_lane *l, uint32_t f, const float x[GK_CUDA_LANE])
{
}

static __device__ __forceinline__ void
profile_lost(struct gk_cuda_profile_sum *sums, const struct gk_cuda_coef *coef, uint32_t chunk,
	uint32_t holes, uint32_t missing)
{
}
#endif

/*
 * Whether photons of an image are stored before the statistics and converted again for these, so
 * that fewer registers are spilled. In the kernel without a search, f32 images of 4M frames take
 * 10.0 us instead of 12.0 us. In the others it makes counts without images slower: 11.2 us instead
 * of 10.0 us (measured).
 */
#ifdef GK_CUDA_SEARCH
#define CONVERT_TWICE false
#else
#define CONVERT_TWICE true
#endif

/*
 * Statistics of a chunk of all frames of a batch.
 * @param direct   whether output of some frames is written, too, because their kind is certain
 * @param profile  whether photons are added to radial profiles, which are where coefficients are
 *                 otherwise copied to
 * @param tally    the warp's, in shared memory
 * @param sums     of the profiles of the batch
 * @return whether odd pixels are left to be counted; here they are below all thresholds
 */
template <bool direct, uint32_t lead, uint32_t STEP, bool profile>
static __device__ __forceinline__ bool
count_chunk(const struct gk_cuda_batch *b, uint32_t gang, struct feed *feed, uint32_t *counts,
	struct tally *tally, struct gk_cuda_profile_sum *sums)
{
	const uint32_t n = feed->n, lane = lane_of_warp(), chunk = feed->chunk;
	const bool few = lead == LEAD_FEW;
	const enum coef_use use = use_of(&b->params, few);
	const bool low = all_odd(&b->params, few);
	uint32_t count = 0, sum = 0, odd = 0;
	struct profile_lane bins;
	struct spot spot;
	struct lane_coef c;
	uint2 known; /* holes, wild pixels */

	/*
	 * Load before the loop: values loaded conditionally are live everywhere, and are spilled.
	 */
	if (profile) {
		known = load_coef_far(&c, feed->coef + chunk, use);
		profile_load(&bins, chunk);
		if (feed->left > 0)
			profile_prefetch(feed->coef, chunk + STEP);
	} else {
		feed_wait<lead>(feed);
		known = load_coef(&c, feed, use);
		__syncwarp();
		if (feed->left > 0)
			copy_coef(feed, chunk + STEP, use);
	}
	if (direct)
		spot = spot_of(feed->coef, chunk, known.x);
#pragma unroll 1
	for (uint32_t f = 0; f < n; f++) {
		const uint32_t words = feed_wait<lead>(feed);
		float x[GK_CUDA_LANE];
		struct lane_counts l;
		uint2 w[4];

		load_words(w, words);
		feed_next<lead, STEP>(feed);
		/*
		 * Copies of packets with trailers are written again, with the same words: a test
		 * costs registers.
		 */
		if (args.staged && (feed->present >> f & 1))
			store_raw(copy_of(gang, f, chunk), GK_CUDA_CHUNK, words, true);
		if (direct && CONVERT_TWICE)
			photons_of(x, w, c.p, c.r);
		else
			l = counts_of(w, &c, &b->params, few, x);
		if (direct && (b->direct >> f & 1)) {
			const uint64_t out = b->frame[f].out;
			const uint32_t kind = b->frame[f].direct;

			if (!(feed->present >> f & 1))
				store_missing(out, kind, &spot);
			else if (kind == GK_KIND_RAW)
				store_raw(raw_at(out, &spot), spot.pixels, words, true);
			else
				store_image(image_at(out), args.value, &spot, x);
		}
		if (direct && CONVERT_TWICE) {
			load_words(w, words);
			l = counts_of(w, &c, &b->params, few, x);
		}
		if (profile && (feed->present >> f & 1))
			profile_add(&bins, f, x);
		if (__any_sync(ALL_LANES, !all_g0(w) || known.y != 0 || low)) {
			const auto quarter = [=](uint32_t k) { return load_quarter(words, k); };
			const uint32_t bits =
				low ? ALL_BITS : odd_bits(quarter, feed->coef + chunk, known.y);
			const uint32_t lanes = __ballot_sync(ALL_LANES, bits != 0);

			l.below_bragg |= bits;
			l.below_csr |= bits;
			odd |= 1u << f;
			if (lane == 0)
				__stcg(args.odd_lanes + (counts - args.counts) +
						(uint64_t)chunk * GK_BATCH_MAX + f,
					lanes);
		}
		l.below_csr = __reduce_add_sync(
			ALL_LANES, (uint32_t)__popc(l.below_bragg) << 16 | __popc(l.below_csr));
		l.sum = __reduce_add_sync(ALL_LANES, l.sum);
		if (lane == f) {
			count = GK_CUDA_CHUNK * 0x10001u - l.below_csr;
			sum = l.sum - GK_CUDA_CHUNK * SUM_NOTHING;
		}
	}
	odd &= feed->present;
	if (profile)
		profile_lost(
			sums, feed->coef + chunk, chunk, known.x, ~feed->present & ((1u << n) - 1));
	if (!(feed->present >> lane & 1))
		count = sum = 0;
	if (lane < GK_BATCH_MAX)
		__stcg(counts + (uint64_t)chunk * GK_BATCH_MAX + lane,
			(count & 0xFFFF) | (odd >> lane & 1 ? GK_CUDA_HAS_ODD : 0));
	if (lane < n) {
		tally[lane].sum += (int32_t)sum;
		tally[lane].bragg += count >> 16;
		tally[lane].nnz += count & 0xFFFF;
		tally[lane].invalid += feed->present >> lane & 1 ? known.x : pixels_of(chunk);
	}
	return odd != 0;
}

#endif /* GK_CUDA_CHUNK_CUH */
