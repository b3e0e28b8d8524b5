/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Outputs of one chunk of the kept frames, by one warp, from words that are read again. For lists
 * of pixels a thread has 16 neighbouring pixels, so that pixel order is thread order.
 */
#ifndef GK_CUDA_OUTPUT_CUH
#define GK_CUDA_OUTPUT_CUH

#include "gk_cuda_chunk.cuh"

/* Shared memory of a chunk's coefficients; `left` distinguishes neighbouring chunks. @{ */
static __device__ __forceinline__ uint32_t
pair_at(const struct feed *f, uint32_t left)
{
	return f->area + GK_CUDA_AT_KEPT + left % 2 * offsetof(struct gk_cuda_coef, bragg);
}

static __device__ __forceinline__ uint32_t
thresholds_at(const struct feed *f)
{
	return f->area + GK_CUDA_AT_KEPT + 2 * offsetof(struct gk_cuda_coef, bragg);
}

static __device__ __forceinline__ uint32_t
first_at(const struct feed *f, uint32_t left)
{
	return f->area + GK_CUDA_AT_FIRST + left % 2 * 16;
}
/** @} */

/* Copy coefficients to their location for outputs. */
static __device__ __forceinline__ void
copy_pairs(const struct feed *f, uint32_t chunk, uint32_t left)
{
	const struct gk_cuda_coef *from = f->coef + chunk;

	feed_copy(pair_at(f, left), from, offsetof(struct gk_cuda_coef, bragg));
	feed_copy(thresholds_at(f), from->csr, sizeof(from->csr));
	if (lane_of_warp() == 0)
		copy_async(first_at(f, left), (uint64_t)&from->holes);
}

/* Pixels of a list of one thread. */
struct entry {
	const struct gk_cuda_coef *coef;
	uint32_t pairs; /* coefficient pairs of the chunk in shared memory */
	uint32_t words;
	uint32_t wild;
	uint32_t pixels;
	uint32_t col; /* column of the chunk's first pixel */
	bool odd;     /* some of this thread's pixels of this frame are odd or may be */
};

/* Load the thresholds of 16 neighbouring pixels. */
static __device__ __forceinline__ void
load_thresholds(uint32_t threshold_words[8], const struct feed *f)
{
	const uint4 a = load_shared4(thresholds_at(f) + lane_of_warp() * 32);
	const uint4 b = load_shared4(thresholds_at(f) + lane_of_warp() * 32 + 16);

	threshold_words[0] = a.x, threshold_words[1] = a.y, threshold_words[2] = a.z,
	threshold_words[3] = a.w;
	threshold_words[4] = b.x, threshold_words[5] = b.y, threshold_words[6] = b.z,
	threshold_words[7] = b.w;
}

/* Bit mask of a thread's pixels in the list; the first pixel is bit 0. */
static __device__ __forceinline__ uint32_t
hits_of(struct entry *e, const uint32_t threshold_words[8], float threshold)
{
	const uint4 a = load_shared4(e->words + lane_of_warp() * 32);
	const uint4 b = load_shared4(e->words + lane_of_warp() * 32 + 16);
	int32_t low, high;
	uint32_t hits;

	low = weigh(signs_of(compare_words(a.x, threshold_words[0]),
			    compare_words(a.y, threshold_words[1])),
		0x08040201, 0);
	low = weigh(signs_of(compare_words(a.z, threshold_words[2]),
			    compare_words(a.w, threshold_words[3])),
		0x80402010, low);
	high = weigh(signs_of(compare_words(b.x, threshold_words[4]),
			     compare_words(b.y, threshold_words[5])),
		0x08040201, 0);
	high = weigh(signs_of(compare_words(b.z, threshold_words[6]),
			     compare_words(b.w, threshold_words[7])),
		0x80402010, high);
	/* minus the number of pixels below; 0xFFFF minus these */
	hits = 0xFFFF + (uint32_t)(low + high * 256);
	e->odd = ((a.x | a.y | a.z | a.w | b.x | b.y | b.z | b.w) & GAINS) != 0 || e->wild != 0;
	if (!e->odd)
		return hits;
#pragma unroll 1
	for (uint32_t i = 0; i < GK_CUDA_LANE; i++) {
		const uint32_t pixel = lane_of_warp() * GK_CUDA_LANE + i;
		const uint16_t word = load_shared_u16(e->words + pixel * 2);

		if (!is_odd(e->coef, e->wild, pixel, word))
			continue;
		hits &= ~(1u << i);
		if (pixel < e->pixels && any_photons(e->coef, pixel, word) >= threshold)
			hits |= 1u << i;
	}
	return hits;
}

static __device__ __forceinline__ float
photons_at(const struct entry *e, uint32_t pixel)
{
	return quick_photons(load_shared_u16(e->words + pixel * 2),
		load_shared_f32(e->pairs + pixel * 4),
		load_shared_f32(e->pairs + offsetof(struct gk_cuda_coef, r) + pixel * 4));
}

/*
 * Write a thread's pixels of a list, from entry `at` on. A test in the fast path would cost a
 * microsecond.
 */
template <bool odd>
static __device__ __forceinline__ void
store_entries(uint64_t out, uint32_t at, const struct entry *e, uint32_t hits)
{
#pragma unroll 1
	for (; hits != 0; at++, hits &= hits - 1) {
		const uint32_t pixel = lane_of_warp() * GK_CUDA_LANE + __ffs(hits) - 1;

		((uint16_t *)(out + args.layout.col))[at] = (uint16_t)(e->col + pixel);
		store_value((void *)(out + args.layout.value), at, args.value,
			odd ? any_photons(e->coef, pixel, load_shared_u16(e->words + pixel * 2))
			    : photons_at(e, pixel));
	}
}

/* Write columns and values of a chunk's pixels, from entry `first` of the frame's list on. */
static __device__ __forceinline__ void
store_csr(uint64_t out, uint32_t first, const struct entry *e, uint32_t hits)
{
	const uint32_t lane = lane_of_warp();
	const uint32_t some = __ballot_sync(ALL_LANES, hits != 0);
	uint32_t at;

	if (some == 0)
		return;
	if (__any_sync(ALL_LANES, (hits & (hits - 1)) != 0)) {
		const uint32_t n = __popc(hits);

		at = n;
#pragma unroll
		for (int d = 1; d < 32; d *= 2) {
			const uint32_t left = __shfl_up_sync(ALL_LANES, at, d);

			at += lane >= d ? left : 0;
		}
		at -= n;
	} else {
		at = __popc(some & ((1u << lane) - 1));
	}
	if (e->odd)
		store_entries<true>(out, first + at, e, hits);
	else
		store_entries<false>(out, first + at, e, hits);
}

/* Write a chunk of an image, with coefficients in shared memory. */
static __device__ __forceinline__ void
output_image(void *value, uint32_t type, const struct spot *s, const struct entry *e)
{
	float x[GK_CUDA_LANE], p[GK_CUDA_LANE], r[GK_CUDA_LANE];
	uint2 w[4];

	load_words(w, e->words);
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		p[i] = load_shared_f32(e->pairs + pixel_of(i) * 4);
		r[i] = load_shared_f32(
			e->pairs + offsetof(struct gk_cuda_coef, r) + pixel_of(i) * 4);
	}
	photons_of(x, w, p, r);
	store_image(value, type, s, x);
	if (!all_g0(w) || e->wild != 0)
		store_odd(value, type, s, e->coef, e->wild, e->words);
}

/*
 * Write the outputs of a chunk of the frames in `kept` (bit mask).
 * @param first  positions of this chunk's pixels in the lists; thread f has that of frame f
 * @param kind   of each frame
 */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
output_chunk(const struct gk_cuda_batch *b, struct feed *feed, uint32_t first, const uint32_t *kind,
	uint32_t kept)
{
	const uint32_t chunk = feed->chunk;
	uint32_t threshold_words[8];
	struct spot spot;
	struct entry e;
	uint2 known; /* holes, wild pixels */

	feed_wait<lead>(feed);
	known = load_shared2(first_at(feed, feed->left));
	load_thresholds(threshold_words, feed);
	spot = spot_of(feed->coef, chunk, known.x);
	__syncwarp();
	if (feed->left > 0)
		copy_pairs(feed, chunk + STEP, feed->left - 1);
	e.wild = known.y;
	e.coef = feed->coef + chunk;
	e.pairs = pair_at(feed, feed->left);
	e.col = column_of(chunk);
	e.pixels = pixels_of(chunk);
#pragma unroll 1
	for (uint32_t i = 0; kept != 0; i++, kept &= kept - 1) {
		const uint32_t f = __ffs(kept) - 1;
		const uint32_t at = __shfl_sync(ALL_LANES, first, f);
		const uint64_t out = b->frame[f].out;
		const bool present = feed->present >> i & 1;

		e.words = feed_wait<lead>(feed);
		feed_next<lead, STEP>(feed);
		if (kind[f] == GK_KIND_CSR) {
			if (present) {
				const uint32_t hits =
					hits_of(&e, threshold_words, b->params.csr_threshold);

				store_csr(out, at, &e, hits);
			}
		} else if (!present) {
			store_missing(out, kind[f], &spot);
		} else if (kind[f] == GK_KIND_RAW) {
			store_raw(raw_at(out, &spot), e.pixels, e.words, true);
		} else {
			output_image(image_at(out), args.value, &spot, &e);
		}
	}
}

/*
 * Write the photons of a chunk of the feed's frames for the search for peaks.
 * @param to  of the first frame; the others follow, each with all pixels
 */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
photons_chunk(struct feed *feed, int16_t *to)
{
	const uint64_t pixels = (uint64_t)args.rows * args.geometry.cols;
	const uint32_t chunk = feed->chunk;
	struct spot spot;
	struct entry e;
	uint2 known; /* holes, wild pixels */

	feed_wait<lead>(feed);
	known = load_shared2(first_at(feed, feed->left));
	spot = spot_of(feed->coef, chunk, known.x);
	__syncwarp();
	if (feed->left > 0)
		copy_pairs(feed, chunk + STEP, feed->left - 1);
	e.wild = known.y;
	e.coef = feed->coef + chunk;
	e.pairs = pair_at(feed, feed->left);
#pragma unroll 1
	for (uint32_t i = 0; i < feed->n; i++) {
		e.words = feed_wait<lead>(feed);
		feed_next<lead, STEP>(feed);
		if (feed->present >> i & 1)
			output_image(to + i * pixels, GK_VALUE_I16, &spot, &e);
		else
			store_missing_image(to + i * pixels, GK_VALUE_I16, &spot);
	}
}

/* Positions of a chunk's pixels in the lists of frames; thread f has that of frame f. */
static __device__ __forceinline__ uint32_t
places_of(const uint32_t *counts, uint32_t chunk)
{
	const uint32_t lane = lane_of_warp();

	return lane < GK_BATCH_MAX ? __ldcg(counts + (uint64_t)chunk * GK_BATCH_MAX + lane) : 0;
}

#endif /* GK_CUDA_OUTPUT_CUH */
