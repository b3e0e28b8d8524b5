/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peaks of the frames of a batch, by all blocks of a gang, which meet after each step:
 *
 * 1. count: photons by bin and value, marks of pixels above the threshold
 * 2. clip: limits of each bin, one warp a bin
 * 3. compare: marks that are above the limit of their bin are hits
 * 4. list: pixels that may be seeds of blobs, in a queue of all blocks
 * 5. find: one warp a blob; it is filled and measured in a window of the frame
 * 6. order: places in the list, from the number of seeds before each seed
 *
 * A frame with a blob that is larger than the window, or with more peaks than records, is searched
 * again by labels (gk_cuda_labels.cuh).
 */
#ifndef GK_CUDA_PEAKS_CUH
#define GK_CUDA_PEAKS_CUH

#include "gk_cuda.h"
#include "gk_cuda_order.cuh"
#include "gk_cuda_peaks.h"

/* Called after each step; a benchmark defines it. */
#ifndef PEAK_STEP
#define PEAK_STEP(number)
#endif

#define PEAK_LANES   0xFFFFFFFFu
#define PEAK_GROUP   8	 /* pixels that a thread loads at once */
#define PEAK_LOADS   4	 /* concurrent loads of photons and of bins, per thread */
#define PEAK_STRIDE  129 /* entries of a bin in shared memory: odd, so that bins use all banks */
#define PEAK_WINDOW  192 /* bins in shared memory; those of other bins are counted in `values` */
#define PEAK_REST    1024
#define PEAK_LIST    1024
#define PEAK_ROWS    32 /* of a window: one row a lane */
#define PEAK_COLS    64
#define PEAK_ABOVE   4	/* rows of a window above the seed */
#define PEAK_SEED_AT 31 /* columns before the seed */
#define PEAK_DISC    6	/* pixels of a disc that a thread loads at once */

/* Constant memory of the search. */
extern "C" {
__constant__ struct gk_cuda_peaks peak_args;
}

/* The gang and the batch, in shared memory. */
static __shared__ struct peak_shared {
	struct gk_peak_params params;
	uint32_t block, blocks;
	uint32_t slot; /* of the first frame */
	uint32_t gang;
	uint32_t nb_frames;
	uint32_t *met; /* blocks that have met, summed over all meetings */
	const uint32_t *killed;
	uint32_t target; /* value of `met` after the next meeting */
	uint32_t go;
	uint32_t first, end; /* tiles of the block */
	uint32_t base;	     /* first bin in shared memory */
	uint32_t bins;	     /* bins in shared memory */
	uint32_t n;	     /* entries of a list */
	uint32_t next;
} peak_state;

struct peak_count_area {
	uint32_t values[PEAK_WINDOW * PEAK_STRIDE];
	uint32_t rest[PEAK_REST]; /* bin << 16 | photons */
};

/* A warp's window: pixels of a blob in fill order. */
struct peak_window {
	uint32_t blob[PEAK_ROWS * PEAK_COLS];
};

struct peak_find_area {
	struct peak_window window[GK_CUDA_WARPS];
	uint32_t list[PEAK_LIST]; /* pixels */
	uint8_t frame[PEAK_LIST];
};

GK_STATIC_ASSERT(sizeof(struct peak_count_area) <= GK_CUDA_SHARED, "in dynamic shared memory");
GK_STATIC_ASSERT(sizeof(struct peak_find_area) <= GK_CUDA_SHARED, "likewise");

static __device__ __forceinline__ void *
peak_area(void)
{
	extern __shared__ uint4 shared_area[];

	return shared_area;
}

static __device__ __forceinline__ uint32_t
peak_lane(void)
{
	return threadIdx.x % 32;
}

static __device__ __forceinline__ uint32_t
peak_warp(void)
{
	return threadIdx.x / 32;
}

/* Number of the thread in the gang, and threads of the gang. @{ */
static __device__ __forceinline__ uint32_t
peak_thread(void)
{
	return peak_state.block * GK_CUDA_THREADS + threadIdx.x;
}

static __device__ __forceinline__ uint32_t
peak_threads(void)
{
	return peak_state.blocks * GK_CUDA_THREADS;
}
/** @} */

/* Parts of a slot. @{ */
static __device__ __forceinline__ const int16_t *
slot_photons(uint32_t slot)
{
	return peak_args.photons + (uint64_t)slot * peak_args.s.pixels;
}

static __device__ __forceinline__ uint32_t *
slot_hits(uint32_t slot)
{
	return peak_args.hits + (uint64_t)slot * peak_args.s.hit_words + 2;
}

static __device__ __forceinline__ float *
slot_upper(uint32_t slot)
{
	return peak_args.upper + (uint64_t)slot * (GK_PEAK_BIN_MASK + 1);
}

static __device__ __forceinline__ float *
slot_offset(uint32_t slot)
{
	return peak_args.offset + (uint64_t)slot * (GK_PEAK_BIN_MASK + 1);
}

static __device__ __forceinline__ int16_t *
slot_rest(uint32_t slot)
{
	return peak_args.rest + (uint64_t)slot * peak_args.s.pixels;
}

static __device__ __forceinline__ uint32_t *
slot_keys(uint32_t slot)
{
	return peak_args.keys + (uint64_t)slot * 2 * peak_args.s.key_words;
}

static __device__ __forceinline__ struct gk_peak *
slot_list(uint32_t slot)
{
	return peak_args.list + (uint64_t)slot * GK_PEAKS_MAX;
}
/** @} */

/* Wait for the other blocks of the gang. @return false: killed */
static __device__ __noinline__ bool
peak_meet(void)
{
	struct peak_shared *s = &peak_state;

	__syncthreads();
	if (threadIdx.x == 0) {
		s->target += s->blocks;
		s->go = 1;
		arrive_only(s->met);
		while ((int32_t)(load_acquire(s->met) - s->target) < 0) {
			if (load_acquire(s->killed) != 0) {
				s->go = 0;
				break;
			}
		}
	}
	__syncthreads();
	return s->go != 0;
}

/* --- 1. count --- */

/* Add a pixel to the list of its bin. */
static __device__ __forceinline__ void
peak_list_rest(uint32_t slot, uint32_t bin, int16_t photons)
{
	const uint32_t k =
		atomicAdd(&peak_args.listed[(uint64_t)slot * peak_args.s.nb_bins + bin], 1u);

	slot_rest(slot)[peak_args.start[bin] + k] = photons;
}

static __device__ __forceinline__ void
peak_count_pixel(struct peak_count_area *a, uint32_t slot, uint32_t bin, int32_t photons)
{
	const uint32_t small = (uint32_t)(photons - GK_CUDA_PEAK_MIN);
	const uint32_t row = bin - peak_state.base;
	uint32_t entry = small;

	if (photons == 0)
		return;
	if (small >= GK_CUDA_PEAK_INVALID) {
		if (photons != INT16_MIN) {
			const uint32_t k = atomicAdd(&peak_state.n, 1u);

			if (k < PEAK_REST)
				a->rest[k] = bin << 16 | (uint16_t)photons;
			else
				peak_list_rest(slot, bin, (int16_t)photons);
			return;
		}
		entry = GK_CUDA_PEAK_INVALID;
	}
	if (row < PEAK_WINDOW)
		atomicAdd(&a->values[row * PEAK_STRIDE + entry], 1u);
	else
		atomicAdd(&peak_args.values[((uint64_t)slot * peak_args.s.nb_bins + bin) *
					  GK_CUDA_PEAK_VALUES +
				  entry],
			1u);
}

/*
 * A warp: count photons of 8 neighbouring pixels a lane; 4 neighbouring lanes have 32 pixels of a
 * row. Additions to the table have no branches.
 * @return bit mask of the pixels that are not counted yet; they are few
 */
static __device__ __forceinline__ uint32_t
peak_count_group(struct peak_count_area *a, uint32_t slot, uint32_t at, const uint4 &photons,
	const uint4 &bins, int32_t above)
{
	const uint32_t x[4] = {photons.x, photons.y, photons.z, photons.w};
	const uint32_t b[4] = {bins.x, bins.y, bins.z, bins.w};
	const uint32_t base = peak_state.base;
	uint32_t marks = 0, rest = 0;

#pragma unroll
	for (uint32_t i = 0; i < PEAK_GROUP; i++) {
		const int32_t value = (int16_t)(x[i / 2] >> i % 2 * 16);
		const uint32_t bin = b[i / 2] >> i % 2 * 16 & 0xFFFF;
		const bool used = (bin & GK_PEAK_MASKED) == 0, invalid = value == INT16_MIN;
		const uint32_t small = (uint32_t)(value - GK_CUDA_PEAK_MIN);
		const uint32_t entry = invalid ? GK_CUDA_PEAK_INVALID : small;
		/* rows of masked pixels are beyond the window, too */
		const bool in_table = bin - base < PEAK_WINDOW && value != 0 &&
			(small < GK_CUDA_PEAK_INVALID || invalid);

		if (in_table)
			atomicAdd(&a->values[(bin - base) * PEAK_STRIDE + entry], 1u);
		marks |= (uint32_t)(used && value > above) << i;
		rest |= (uint32_t)(used && !in_table && value != 0) << i;
	}
	/* 32 pixels of a row at once: stores of bytes are slow */
	marks |= __shfl_down_sync(PEAK_LANES, marks, 1) << 8;
	marks |= __shfl_down_sync(PEAK_LANES, marks, 2) << 16;
	if (at != UINT32_MAX && peak_lane() % 4 == 0)
		slot_hits(slot)[at / 32] = marks;
	return rest;
}

/* @return index of the pixels; UINT32_MAX: outside the frame */
static __device__ __forceinline__ uint32_t
peak_group_at(uint32_t group, uint32_t groups)
{
	const uint32_t per_tile = GK_CUDA_PEAK_ROWS * GK_CUDA_PEAK_COLS / PEAK_GROUP;
	const uint32_t per_row = GK_CUDA_PEAK_COLS / PEAK_GROUP;
	const struct gk_cuda_peak_tile *tile;
	uint32_t row, column;

	if (group >= groups)
		return UINT32_MAX;
	tile = &peak_args.tile[peak_state.first + group / per_tile];
	row = group % per_tile / per_row;
	column = group % per_row * PEAK_GROUP;
	if (row >= tile->rows || column >= tile->cols)
		return UINT32_MAX;
	return tile->at + row * peak_args.s.cols + column;
}

static __device__ __forceinline__ int32_t
peak_above(float threshold)
{
	if (threshold >= (float)INT16_MAX)
		return INT16_MAX;
	if (threshold <= (float)INT16_MIN)
		return INT16_MIN;
	return (int32_t)floorf(threshold);
}

/* Add the block's table to that of the frame, and clear it. */
static __device__ __forceinline__ void
peak_flush(struct peak_count_area *a, uint32_t slot)
{
	const struct peak_shared *s = &peak_state;
	const uint32_t n = min(s->n, (uint32_t)PEAK_REST);

	/* first, because a thread waits for the place of a photon in its list */
	for (uint32_t i = threadIdx.x; i < n; i += GK_CUDA_THREADS)
		peak_list_rest(slot, a->rest[i] >> 16, (int16_t)(uint16_t)a->rest[i]);
	for (uint32_t row = peak_warp(); row < s->bins; row += GK_CUDA_WARPS) {
		uint32_t *to = peak_args.values +
			((uint64_t)slot * peak_args.s.nb_bins + s->base + row) *
				GK_CUDA_PEAK_VALUES;
		uint32_t *from = a->values + row * PEAK_STRIDE;

#pragma unroll
		for (uint32_t i = peak_lane(); i < GK_CUDA_PEAK_VALUES; i += 32) {
			const uint32_t count = from[i];

			if (count != 0) {
				from[i] = 0;
				atomicAdd(&to[i], count);
			}
		}
	}
}

static __device__ __forceinline__ void
peak_clear_keys(uint32_t slot)
{
	const uint32_t quads = peak_args.s.key_words / 4 * (peak_state.params.saturated ? 1 : 2);
	uint4 *keys = (uint4 *)slot_keys(slot);

	for (uint32_t i = peak_thread(); i < quads; i += peak_threads())
		__stcg(&keys[i], make_uint4(0, 0, 0, 0));
}

static __device__ __forceinline__ void
peak_clear_slot(uint32_t slot)
{
	peak_clear_keys(slot);
	if (peak_state.block == 0 && threadIdx.x < sizeof(struct gk_cuda_peak_counters) / 4)
		__stcg((uint32_t *)&peak_args.counters[slot] + threadIdx.x, 0u);
}

static __device__ __noinline__ void
peak_count(void)
{
	struct peak_shared *s = &peak_state;
	struct peak_count_area *a = (struct peak_count_area *)peak_area();
	const uint32_t groups =
		(s->end - s->first) * GK_CUDA_PEAK_ROWS * GK_CUDA_PEAK_COLS / PEAK_GROUP;
	const int32_t above = peak_above(s->params.threshold);

	for (uint32_t i = threadIdx.x; i < s->bins * PEAK_STRIDE; i += GK_CUDA_THREADS)
		a->values[i] = 0;
	for (uint32_t f = 0; f < s->nb_frames; f++) {
		const uint32_t slot = s->slot + f;

		if (threadIdx.x == 0)
			s->n = 0;
		__syncthreads();
		for (uint32_t g = threadIdx.x; g - peak_lane() < groups;
			g += PEAK_LOADS * GK_CUDA_THREADS) {
			uint4 photons[PEAK_LOADS], bins[PEAK_LOADS];
			uint32_t at[PEAK_LOADS], rest = 0;

#pragma unroll
			for (uint32_t k = 0; k < PEAK_LOADS; k++) {
				at[k] = peak_group_at(g + k * GK_CUDA_THREADS, groups);
				/* groups outside the frame are masked */
				photons[k] = make_uint4(0, 0, 0, 0);
				bins[k] = make_uint4(~0u, ~0u, ~0u, ~0u);
				if (at[k] == UINT32_MAX)
					continue;
				photons[k] = __ldcg((const uint4 *)(slot_photons(slot) + at[k]));
				bins[k] = __ldcg((const uint4 *)(peak_args.bin + at[k]));
			}
#pragma unroll
			for (uint32_t k = 0; k < PEAK_LOADS; k++)
				rest |= peak_count_group(a, slot, at[k], photons[k], bins[k], above)
					<< k * PEAK_GROUP;
#pragma unroll 1
			for (; rest != 0; rest &= rest - 1) {
				const uint32_t i = (uint32_t)__ffs((int)rest) - 1;
				const uint32_t pixel = i % PEAK_GROUP +
					peak_group_at(g + i / PEAK_GROUP * GK_CUDA_THREADS, groups);

				peak_count_pixel(a, slot, __ldcg(peak_args.bin + pixel),
					__ldcg(slot_photons(slot) + pixel));
			}
		}
		__syncthreads();
		peak_flush(a, slot);
		peak_clear_slot(slot);
		__syncthreads();
	}
}

/* --- 2. clip --- */

/* Sum over a warp. */
static __device__ __forceinline__ int64_t
peak_sum(int64_t v)
{
	const uint32_t low = __reduce_add_sync(PEAK_LANES, (uint32_t)v & 0xFFFFFF);
	const int32_t high = (int32_t)__reduce_add_sync(PEAK_LANES, (uint32_t)(v >> 24));

	return ((int64_t)high << 24) + low;
}

static __device__ __forceinline__ void
peak_add(struct gk_peak_sums *sums, const struct gk_peak_range *r, int32_t value, uint32_t count)
{
	const int64_t n = value >= r->first && value <= r->last ? count : 0;

	sums->n += n;
	sums->sum += n * value;
	sums->squares += n * (value * value);
}

static __device__ __forceinline__ void
peak_clip_bin(uint32_t slot, uint32_t bin)
{
	const uint64_t place = (uint64_t)slot * peak_args.s.nb_bins + bin;
	const uint32_t lane = peak_lane(), per_lane = GK_CUDA_PEAK_VALUES / 32;
	uint4 *row = (uint4 *)(peak_args.values + place * GK_CUDA_PEAK_VALUES) + lane;
	const uint4 counts = __ldcg(row);
	const uint32_t nb_rest = __ldcg(&peak_args.listed[place]);
	const int16_t *rest = slot_rest(slot) + peak_args.start[bin];
	const int32_t mine = lane < nb_rest ? __ldcg(rest + lane) : 0;
	uint32_t c[per_lane] = {counts.x, counts.y, counts.z, counts.w};
	const uint32_t any = c[0] | c[1] | c[2] | c[3];
	struct gk_peak_limits l = gk_peak_first_limits();
	struct gk_peak_range last = {1, 0};
	uint32_t zeros;

	if (any != 0)
		__stcg(row, make_uint4(0, 0, 0, 0));
	zeros = peak_args.used[bin] - nb_rest -
		__reduce_add_sync(PEAK_LANES, c[0] + c[1] + c[2] + c[3]);
	/* all lanes have read it */
	if (nb_rest != 0 && lane == 0)
		__stcg(&peak_args.listed[place], 0u);
	if (lane == GK_CUDA_PEAK_INVALID / per_lane)
		c[GK_CUDA_PEAK_INVALID % per_lane] = 0;
	if (lane == -GK_CUDA_PEAK_MIN / per_lane)
		c[-GK_CUDA_PEAK_MIN % per_lane] = zeros;
#pragma unroll 1
	for (uint32_t i = 0; i < GK_PEAK_ROUNDS; i++) {
		const struct gk_peak_range r = gk_peak_between(&l);
		struct gk_peak_sums sums = {0, 0, 0};

		/* the same pixels give the same limits in all other rounds */
		if (i > 0 && r.first == last.first && r.last == last.last)
			break;
#pragma unroll
		for (uint32_t k = 0; k < per_lane; k++)
			peak_add(
				&sums, &r, (int32_t)(lane * per_lane + k) + GK_CUDA_PEAK_MIN, c[k]);
		peak_add(&sums, &r, mine, lane < nb_rest);
		for (uint32_t k = lane + 32; k < nb_rest; k += 32)
			peak_add(&sums, &r, __ldcg(rest + k), 1);
		sums.n = __reduce_add_sync(PEAK_LANES, (uint32_t)sums.n);
		sums.sum = peak_sum(sums.sum);
		sums.squares = peak_sum(sums.squares);
		l = gk_peak_clip(sums.n, (float)sums.sum, (float)sums.squares, &peak_state.params);
		last = r;
	}
	if (lane == 0) {
		slot_offset(slot)[bin] = l.offset;
		slot_upper(slot)[bin] = l.upper;
	}
}

static __device__ __noinline__ void
peak_clip_all(void)
{
	const uint32_t bins = peak_args.s.nb_bins, all = bins * peak_state.nb_frames;
	const uint32_t warps = peak_state.blocks * GK_CUDA_WARPS;

	for (uint32_t i = peak_state.block + peak_warp() * peak_state.blocks; i < all; i += warps)
		peak_clip_bin(peak_state.slot + i / bins, i % bins);
}

/* --- 3. compare --- */

/* @return the marks of 8 pixels that are hits */
static __device__ __forceinline__ uint32_t
peak_compare_group(uint32_t slot, uint32_t at, uint32_t marks)
{
	const uint4 photons = __ldcg((const uint4 *)(slot_photons(slot) + at));
	const uint4 bins = __ldcg((const uint4 *)(peak_args.bin + at));
	const uint32_t x[4] = {photons.x, photons.y, photons.z, photons.w};
	const uint32_t b[4] = {bins.x, bins.y, bins.z, bins.w};
	const float *upper = slot_upper(slot);
	float limit[PEAK_GROUP];
	uint32_t hits = 0;

#pragma unroll
	for (uint32_t i = 0; i < PEAK_GROUP; i++)
		if (marks >> i & 1)
			limit[i] = __ldcg(upper + (b[i / 2] >> i % 2 * 16 & GK_PEAK_BIN_MASK));
#pragma unroll
	for (uint32_t i = 0; i < PEAK_GROUP; i++)
		if (marks >> i & 1)
			hits |= (uint32_t)((float)(int16_t)(x[i / 2] >> i % 2 * 16) > limit[i])
				<< i;
	return hits;
}

static __device__ __noinline__ void
peak_compare_all(void)
{
	const uint32_t pairs = (peak_args.s.words + 1) / 2;

	for (uint32_t f = 0; f < peak_state.nb_frames; f++) {
		const uint32_t slot = peak_state.slot + f;
		uint64_t *words = (uint64_t *)slot_hits(slot);

		for (uint32_t i = peak_thread(); i < pairs; i += peak_threads()) {
			const uint64_t marks = __ldcg((const unsigned long long *)words + i);
			uint64_t left = marks, hits = 0;

			while (left != 0) {
				const uint32_t byte = ((uint32_t)__ffsll((long long)left) - 1) / 8;
				const uint32_t some = (uint32_t)(left >> byte * 8) & 0xFF;

				left &= ~(UINT64_C(0xFF) << byte * 8);
				hits |= (uint64_t)peak_compare_group(slot, i * 64 + byte * 8, some)
					<< byte * 8;
			}
			if (hits != marks)
				__stcg((unsigned long long *)words + i, (unsigned long long)hits);
		}
	}
}

/* --- 4. list --- */

static __device__ __forceinline__ struct gk_peak_frame
peak_frame(uint32_t slot)
{
	const struct gk_peak_frame f = {slot_photons(slot), NULL, peak_args.bin, peak_args.s.cols,
		slot_offset(slot), slot_upper(slot)};

	return f;
}

/* A warp: sums of a disc, and the greatest photons. */
static __device__ __forceinline__ struct gk_peak_sums
peak_disc(const struct gk_peak_frame *f, const struct gk_peak_disc *d, int32_t *highest)
{
	const uint32_t width = (uint32_t)(d->right - d->left);
	const uint32_t all = width * (uint32_t)(d->end - d->first);
	struct gk_peak_sums s;
	uint32_t n = 0;
	int32_t sum = 0, max = 0;
	int64_t squares = 0;

#pragma unroll 1
	for (uint32_t first = peak_lane(); first - peak_lane() < all; first += PEAK_DISC * 32) {
		int32_t photons[PEAK_DISC];
		uint32_t bin[PEAK_DISC];
		float upper[PEAK_DISC];

#pragma unroll
		for (uint32_t k = 0; k < PEAK_DISC; k++) {
			const uint32_t i = first + k * 32;
			const int32_t y = d->first + (int32_t)(i / width);
			const int32_t x = d->left + (int32_t)(i % width);
			const uint64_t at =
				d->origin + (uint64_t)(d->ss + y) * f->cols + (uint32_t)(d->fs + x);

			photons[k] = INT16_MIN;
			bin[k] = GK_PEAK_MASKED;
			if (i < all && x * x + y * y <= d->radius * d->radius) {
				photons[k] = f->photons[at];
				bin[k] = f->bin[at];
			}
		}
#pragma unroll
		for (uint32_t k = 0; k < PEAK_DISC; k++)
			upper[k] = f->upper[bin[k] & GK_PEAK_BIN_MASK];
#pragma unroll
		for (uint32_t k = 0; k < PEAK_DISC; k++) {
			if (bin[k] & GK_PEAK_MASKED || photons[k] == INT16_MIN ||
				!((float)photons[k] < upper[k]))
				continue;
			n++;
			sum += photons[k];
			squares += photons[k] * photons[k];
			max = photons[k] > max ? photons[k] : max;
		}
	}
	s.n = __reduce_add_sync(PEAK_LANES, n);
	s.sum = __reduce_add_sync(PEAK_LANES, sum);
	*highest = __reduce_max_sync(PEAK_LANES, max);
	/* beyond 2^24 the number does not matter */
	squares = squares < 1 << 25 ? squares : 1 << 25;
	s.squares = __reduce_add_sync(PEAK_LANES, (uint32_t)squares);
	return s;
}

/*
 * A warp: gk_peak_disc_rounded(). Each lane loads a pixel of a row, and all lanes add those of the
 * background in raster order.
 */
static __device__ __forceinline__ struct gk_peak_background
peak_disc_rounded(const struct gk_peak_frame *f, const struct gk_peak_disc *d)
{
	struct gk_peak_background b = {0, 0.0f, 0.0f, 0.0f};

#pragma unroll 1
	for (int32_t y = d->first; y < d->end; y++) {
#pragma unroll 1
		for (int32_t left = d->left; left < d->right; left += 32) {
			const int32_t x = left + (int32_t)peak_lane();
			const uint64_t at =
				d->origin + (uint64_t)(d->ss + y) * f->cols + (uint32_t)(d->fs + x);
			float photons = 0.0f;
			bool used = x < d->right && x * x + y * y <= d->radius * d->radius;
			uint32_t bits;

			if (used) {
				photons = gk_peak_photons(f, at);
				used = photons < f->upper[f->bin[at] & GK_PEAK_BIN_MASK];
			}
#pragma unroll 1
			for (bits = __ballot_sync(PEAK_LANES, used); bits != 0; bits &= bits - 1)
				gk_peak_background_add(&b,
					__shfl_sync(PEAK_LANES, photons,
						(uint32_t)__ffs((int)bits) - 1));
		}
	}
	return b;
}

/* A pixel of a blob; `at`: index in the frame. */
static __device__ __forceinline__ uint32_t
peak_blob_pixel(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t i, uint64_t *at)
{
	const uint32_t position = blob[i];

	*at = gk_peak_at(f, panel, gk_peak_fs(position), gk_peak_ss(position));
	return position;
}

/* A warp: gk_peak_first_centre(). All lanes load, then all add in fill order. */
static __device__ __forceinline__ int
peak_first_centre(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, int32_t *fs, int32_t *ss)
{
	struct gk_peak_centre c = {0.0f, 0.0f, 0.0f};

	for (uint32_t first = 0; first < n; first += 32) {
		const uint32_t some = min(n - first, 32u);
		uint32_t position = 0;
		float weight = 0.0f;
		uint64_t at;

		if (peak_lane() < some) {
			position = peak_blob_pixel(f, panel, blob, first + peak_lane(), &at);
			weight = gk_peak_weight(f, at);
		}
		for (uint32_t i = 0; i < some; i++)
			gk_peak_centre_add(&c, __shfl_sync(PEAK_LANES, position, i),
				__shfl_sync(PEAK_LANES, weight, i));
	}
	return gk_peak_centre_pixel(&c, panel, fs, ss);
}

/* A warp: sums above a background, likewise. */
static __device__ __forceinline__ struct gk_peak_above
peak_above_sums(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, float mean)
{
	struct gk_peak_above s = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};

	for (uint32_t first = 0; first < n; first += 32) {
		const uint32_t some = min(n - first, 32u);
		uint32_t position = 0;
		float photons = 0.0f;
		uint64_t at;

		if (peak_lane() < some) {
			position = peak_blob_pixel(f, panel, blob, first + peak_lane(), &at);
			photons = gk_peak_photons(f, at);
		}
		for (uint32_t i = 0; i < some; i++)
			gk_peak_above_add(&s, __shfl_sync(PEAK_LANES, position, i),
				__shfl_sync(PEAK_LANES, photons, i), mean);
	}
	return s;
}

/*
 * A warp: measure a blob.
 * @param blob    n positions in fill order
 * @param record  set if the result is not GK_PEAK_DROPPED
 */
static __device__ __forceinline__ uint32_t
peak_measure(uint32_t slot, uint32_t number, const uint32_t *blob, uint32_t n,
	struct gk_cuda_peak_record *record)
{
	const struct gk_peak_frame f = peak_frame(slot);
	const struct gk_peak_panel panel = peak_args.panel[number];
	const struct gk_peak_params *params = &peak_state.params;
	struct gk_peak_background background;
	struct gk_peak_above above;
	struct gk_peak_ring ring;
	struct gk_peak_sums sums;
	struct gk_peak_disc disc;
	int32_t fs = 0, ss = 0, highest;

	/* the same in all lanes */
	if (!peak_first_centre(&f, &panel, blob, n, &fs, &ss))
		return GK_PEAK_DROPPED;
	disc = gk_peak_disc(&f, &panel, fs, ss, params->bg_radius);
	sums = peak_disc(&f, &disc, &highest);
	background = gk_peak_is_exact(&sums) ? gk_peak_background_from(&sums, highest)
					     : peak_disc_rounded(&f, &disc);
	ring = gk_peak_ring_from(&f, &disc, &background);
	above = peak_above_sums(&f, &panel, blob, n, ring.mean);
	record->verdict =
		gk_peak_measure_sums(&f, &panel, params, blob, n, &ring, &above, &record->peak);
	record->peak.panel = number;
	record->key = peak_args.first_key[number] + gk_peak_ss(blob[0]) * panel.width +
		gk_peak_fs(blob[0]);
	return record->verdict;
}

/* One thread: mark the key of a peak. */
static __device__ __forceinline__ void
peak_mark(uint32_t slot, uint32_t key, uint32_t verdict)
{
	uint32_t *keys = slot_keys(slot);

	for (uint32_t i = 0; i < 2; i++) {
		if (i == 1 && (peak_state.params.saturated || verdict != GK_PEAK_FOUND))
			break;
		atomicOr(&keys[key / 32], 1u << key % 32);
		atomicAdd(&keys[peak_args.s.at_hundreds + key / 1024], 1u);
		atomicAdd(&keys[peak_args.s.at_thousands + key / 32768], 1u);
		keys += peak_args.s.key_words;
	}
}

/* A window of a panel around a seed, a row a lane. */
struct peak_view {
	uint32_t x, y;	       /* of its first pixel, in the panel */
	uint32_t seed_x, lane; /* of the seed, in the window */
	uint64_t hits;	       /* of the lane's row */
};

static __device__ __forceinline__ uint64_t
peak_view_row(uint32_t slot, const struct gk_peak_panel *panel, uint32_t x, uint32_t y)
{
	const uint32_t *words = slot_hits(slot);
	const uint32_t width = panel->width - x;
	uint64_t at, hits;
	uint32_t low, middle, high;

	if (y >= panel->height)
		return 0;
	at = (uint64_t)(panel->ss + y) * peak_args.s.cols + panel->fs + x;
	low = __ldcg(words + at / 32);
	middle = __ldcg(words + at / 32 + 1);
	high = __ldcg(words + at / 32 + 2);
	hits = (uint64_t)__funnelshift_r(middle, high, (uint32_t)at % 32) << 32 |
		__funnelshift_r(low, middle, (uint32_t)at % 32);
	return width < 64 ? hits & ((UINT64_C(1) << width) - 1) : hits;
}

/* Pixels of the lane's row that can be seeds. */
static __device__ __forceinline__ uint64_t
peak_view_inner(const struct peak_view *v, const struct gk_peak_panel *panel)
{
	const uint32_t y = v->y + peak_lane(), last = panel->width - 1 - v->x;
	uint64_t inner = ~UINT64_C(0);

	if (y == 0 || y + 1 >= panel->height)
		return 0;
	inner &= v->x == 0 ? ~UINT64_C(1) : inner;
	return last < 64 ? inner & ~(UINT64_C(1) << last) : inner;
}

/*
 * A warp: put the pixels that are connected with the seed in fill order, as gk_peak_fill() does.
 * Each lane has a row of the pixels that are left, and each of 9 lanes puts one of the 3 x 3 around
 * a pixel. It ends when they are more than `most`.
 * @param rest  receives the pixels of the lane's row that are not in the blob
 * @return number of pixels
 */
static __device__ __forceinline__ uint32_t
peak_fill_order(struct peak_window *w, const struct peak_view *v, uint32_t most, uint64_t *rest)
{
	const uint32_t lane = peak_lane();
	uint64_t left = v->hits;
	uint32_t n = 1;

	if (lane == v->lane)
		left &= ~(UINT64_C(1) << v->seed_x);
	if (lane == 0)
		w->blob[0] = gk_peak_position(v->seed_x, v->lane);
	__syncwarp();
	for (uint32_t i = 0; i < n && n <= most; i++) {
		const uint32_t x = gk_peak_fs(w->blob[i]), y = gk_peak_ss(w->blob[i]);
		const uint32_t row = lane + 1 - y; /* 0 to 2: of the 3 x 3 */
		uint32_t three = 0, nine;

		if (row < 3) {
			three = (uint32_t)(x > 0 ? left >> (x - 1) : left << 1) & 7;
			left &= x > 0 ? ~((uint64_t)three << (x - 1)) : ~((uint64_t)three >> 1);
		}
		nine = __reduce_add_sync(PEAK_LANES, row < 3 ? three << 3 * row : 0);
		if (lane < 9 && (nine >> lane & 1))
			w->blob[n + __popc(nine & ((1u << lane) - 1))] =
				gk_peak_position(x + lane % 3 - 1, y + lane / 3 - 1);
		n += __popc(nine);
		__syncwarp();
	}
	*rest = left;
	return n;
}

/*
 * A warp: find the blob of a seed in a window.
 * @return number of pixels; 0: no peak, or the blob has another seed; UINT32_MAX: too large
 */
static __device__ __forceinline__ uint32_t
peak_fill(struct peak_window *w, uint32_t slot, const struct gk_peak_panel *panel, uint32_t fs,
	uint32_t ss)
{
	const struct gk_peak_params *params = &peak_state.params;
	const uint32_t lane = peak_lane();
	struct peak_view v;
	uint64_t blob, inner;
	uint32_t n, first;
	bool beyond;

	v.x = fs > PEAK_SEED_AT ? fs - PEAK_SEED_AT : 0;
	v.y = ss > PEAK_ABOVE ? ss - PEAK_ABOVE : 0;
	v.seed_x = fs - v.x;
	v.lane = ss - v.y;
	v.hits = peak_view_row(slot, panel, v.x, v.y + lane);
	n = peak_fill_order(w, &v, params->max_pixels, &blob);
	if (n > params->max_pixels)
		return 0;
	blob ^= v.hits;
	inner = blob & peak_view_inner(&v, panel);
	first = __ffs((int)__ballot_sync(PEAK_LANES, inner != 0)) - 1;
	if (first != v.lane ||
		__shfl_sync(PEAK_LANES, (uint32_t)__ffsll((long long)inner) - 1, first) != v.seed_x)
		return 0;
	beyond = (lane == 0 && v.y > 0) || (lane == 31 && v.y + PEAK_ROWS < panel->height);
	beyond = beyond && blob != 0;
	beyond |= v.x > 0 && (blob & 1) != 0;
	beyond |= v.x + PEAK_COLS < panel->width && blob >> 63 != 0;
	if (__any_sync(PEAK_LANES, beyond))
		return UINT32_MAX;
	if (n < params->min_pixels)
		return 0;
	/* positions in the panel; both parts of each sum stay below 2^16 */
	for (uint32_t i = lane; i < n; i += 32)
		w->blob[i] += gk_peak_position(v.x, v.y);
	__syncwarp();
	return n;
}

/* A warp: the blob of a pixel that may be its seed. */
static __device__ __forceinline__ void
peak_find_blob(struct peak_window *w, uint32_t slot, uint32_t at)
{
	const uint32_t number = peak_args.panel_of[at];
	const struct gk_peak_panel panel = peak_args.panel[number];
	const uint32_t row = at / peak_args.s.cols, column = at - row * peak_args.s.cols;
	struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	const uint32_t n = peak_fill(w, slot, &panel, column - panel.fs, row - panel.ss);
	struct gk_cuda_peak_record record;

	if (n == UINT32_MAX && peak_lane() == 0)
		__stcg(&c->heavy, 1u);
	if (n == UINT32_MAX || n == 0)
		return;
	if (peak_measure(slot, number, w->blob, n, &record) != GK_PEAK_DROPPED &&
		peak_lane() == 0) {
		const uint32_t k = atomicAdd(&c->records, 1u);

		if (k < GK_CUDA_PEAK_RECORDS) {
			peak_args.record[(uint64_t)slot * GK_CUDA_PEAK_RECORDS + k] = record;
			peak_mark(slot, record.key, record.verdict);
		}
	}
	__syncwarp();
}

/* Pixels of a word that may be seeds: inner ones, without an inner one before them. */
static __device__ __forceinline__ uint32_t
peak_seeds(uint32_t slot, uint32_t word, uint32_t hits)
{
	const uint32_t *at = slot_hits(slot) + word;
	const uint32_t row_words = peak_args.s.cols / 32;
	uint32_t before, above, inner;

	if (hits == 0)
		return 0;
	inner = hits & peak_args.inner[word];
	/* the first row of a frame has no inner pixels */
	if (inner == 0 || word < row_words)
		return 0;
	before = __ldcg(at - 1);
	above = __ldcg(at - row_words);
	above |= above << 1 | above >> 1 | __ldcg(at - (int)row_words - 1) >> 31 |
		__ldcg(at - row_words + 1) << 31;
	return inner & (~(above | hits << 1 | before >> 31) | peak_args.rim[word]);
}

/* Blobs of the pixels in the block's list. */
static __device__ __forceinline__ void
peak_find_listed(struct peak_find_area *a)
{
	struct peak_shared *s = &peak_state;
	const uint32_t n = min(s->n, (uint32_t)PEAK_LIST);

	for (;;) {
		uint32_t i = 0;

		if (peak_lane() == 0)
			i = atomicAdd(&s->next, 1u);
		i = __shfl_sync(PEAK_LANES, i, 0);
		if (i >= n)
			return;
		peak_find_blob(&a->window[peak_warp()], s->slot + a->frame[i], a->list[i]);
	}
}

/* The queue of the gang, in memory of the search by labels. */
static __device__ __forceinline__ uint2 *
peak_queue(void)
{
	return (uint2 *)(peak_args.seed + (uint64_t)peak_state.gang * peak_args.s.seeds_max);
}

/* Move the block's list to the queue, or find its blobs if there is no room. */
static __device__ __forceinline__ void
peak_queue_listed(struct peak_find_area *a)
{
	struct peak_shared *s = &peak_state;
	struct gk_cuda_peak_counters *c = &peak_args.counters[s->slot];
	const uint32_t n = min(s->n, (uint32_t)PEAK_LIST);
	uint32_t at;

	if (threadIdx.x == 0 && n != 0)
		s->next = atomicAdd(&c->queued, n);
	__syncthreads();
	at = s->next;
	if (n == 0)
		return;
	if (at + n <= peak_args.s.seeds_max) {
		for (uint32_t i = threadIdx.x; i < n; i += GK_CUDA_THREADS)
			__stcg(peak_queue() + at + i, make_uint2(a->list[i], a->frame[i]));
		return;
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		s->next = 0;
		/* all blocks that come later have no room either */
		atomicMax(&c->queue_cut, UINT32_MAX - at);
	}
	__syncthreads();
	peak_find_listed(a);
}

/* Hits of a thread's word, in turns over all frames. */
static __device__ __forceinline__ uint32_t
peak_turn_hits(uint32_t turn, uint32_t turns)
{
	const uint32_t f = turn / turns, word = turn % turns * peak_threads() + peak_thread();

	if (f >= peak_state.nb_frames || word >= peak_args.s.words)
		return 0;
	return __ldcg(slot_hits(peak_state.slot + f) + word);
}

/* List pixels that may be seeds. A block whose list is full finds their blobs. */
static __device__ __noinline__ void
peak_list_all(void)
{
	struct peak_find_area *a = (struct peak_find_area *)peak_area();
	struct peak_shared *s = &peak_state;
	/* all threads of the gang take the same number of turns */
	const uint32_t turns = (peak_args.s.words + peak_threads() - 1) / peak_threads();
	const uint32_t all = turns * s->nb_frames;
	uint32_t turn = 0, bits = 0, f = 0, word = 0, ahead = peak_turn_hits(0, turns);
	bool more;

	do {
		if (threadIdx.x == 0)
			s->n = s->next = 0;
		__syncthreads();
		for (;;) {
			for (; bits != 0; bits &= bits - 1) {
				const uint32_t k = atomicAdd(&s->n, 1u);

				if (k >= PEAK_LIST)
					break;
				a->list[k] = word * 32 + (uint32_t)__ffs((int)bits) - 1;
				a->frame[k] = (uint8_t)f;
			}
			if (bits != 0 || turn == all)
				break;
			f = turn / turns;
			word = turn % turns * peak_threads() + peak_thread();
			bits = ahead;
			ahead = peak_turn_hits(++turn, turns);
			bits = peak_seeds(s->slot + f, word, bits);
		}
		more = __syncthreads_or(bits != 0 || turn != all);
		if (more)
			peak_find_listed(a);
		else
			peak_queue_listed(a);
		__syncthreads();
	} while (more);
}

/* --- 5. find --- */

/* Find the blobs of the queue, after all blocks have listed. */
static __device__ __noinline__ void
peak_find_all(void)
{
	struct peak_find_area *a = (struct peak_find_area *)peak_area();
	const struct peak_shared *s = &peak_state;
	const struct gk_cuda_peak_counters *c = &peak_args.counters[s->slot];
	const uint32_t n = min(__ldcg(&c->queued), UINT32_MAX - __ldcg(&c->queue_cut));
	const uint32_t warps = s->blocks * GK_CUDA_WARPS;

	for (uint32_t i = s->block + peak_warp() * s->blocks; i < n; i += warps) {
		const uint2 seed = __ldcg(peak_queue() + i);

		peak_find_blob(&a->window[peak_warp()], s->slot + seed.y, seed.x);
	}
}

/* --- 6. order --- */

/* A warp: number of keys below a key. */
static __device__ __forceinline__ uint32_t
peak_rank(const uint32_t *keys, uint32_t key)
{
	const uint32_t lane = peak_lane(), word = key / 32 % 32;
	const uint32_t bits = __ldcg(keys + key / 1024 * 32 + lane);
	const uint32_t hundreds = __ldcg(keys + peak_args.s.at_hundreds + key / 32768 * 32 + lane);
	uint32_t n = 0;

	for (uint32_t i = lane; i < key / 32768; i += 32)
		n += __ldcg(keys + peak_args.s.at_thousands + i);
	n += lane < key / 1024 % 32 ? hundreds : 0;
	n += lane < word ? __popc(bits) : 0;
	n += lane == word ? __popc(bits & ((1u << key % 32) - 1)) : 0;
	return __reduce_add_sync(PEAK_LANES, n);
}

/* A warp: write a peak to its place in the list. */
static __device__ __forceinline__ void
peak_place(uint32_t slot, const struct gk_cuda_peak_record *r)
{
	const struct gk_peak_params *params = &peak_state.params;
	const uint32_t *keys = slot_keys(slot);
	const uint32_t key = __ldcg(&r->key), verdict = __ldcg(&r->verdict);
	const uint32_t lane = peak_lane();
	struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	uint32_t place = peak_rank(keys, key), bin;

	if (place >= GK_PEAKS_MAX || verdict != GK_PEAK_FOUND)
		return;
	if (!params->saturated)
		place = peak_rank(keys + peak_args.s.key_words, key);
	if (lane < sizeof(struct gk_peak) / 4)
		((uint32_t *)&slot_list(slot)[place])[lane] =
			__ldcg((const uint32_t *)&r->peak + lane);
	if (lane == 0)
		atomicAdd(&c->count, 1u);
	bin = __ldcg(&r->peak.bin);
	if (lane < params->shells && bin >= params->shell[lane] && bin < params->shell[lane + 1])
		atomicAdd(&c->shell[lane], 1u);
}

/* Whether a frame must be searched by labels. */
static __device__ __forceinline__ bool
peak_is_heavy(uint32_t slot)
{
	const struct gk_cuda_peak_counters *c = &peak_args.counters[slot];

	return __ldcg(&c->heavy) != 0 || __ldcg(&c->records) > GK_CUDA_PEAK_RECORDS;
}

/* Peaks found, as gk_peaks.found. */
static __device__ __forceinline__ uint32_t
peak_found(uint32_t slot)
{
	const struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	const uint32_t n = peak_is_heavy(slot) ? __ldcg(&c->by_labels) : __ldcg(&c->records);

	return min(n, GK_PEAKS_MAX + 1u);
}

static __device__ __forceinline__ void
peak_order_frame(uint32_t slot, const struct gk_cuda_peak_record *record, uint32_t n)
{
	const uint32_t warps = peak_state.blocks * GK_CUDA_WARPS;
	/* frames begin at different warps */
	const uint32_t warp = peak_state.block + peak_warp() * peak_state.blocks;

	for (uint32_t i = (warp + slot * (warps / 4 + 1)) % warps; i < n; i += warps)
		peak_place(slot, &record[i]);
}

#include "gk_cuda_labels.cuh"

/*
 * Find the peaks of a batch. All blocks of the gang call it, and all have arrived somewhere since
 * the last one left it. The lists and counters are complete when all have met again.
 * @return false: killed
 */
static __device__ __forceinline__ bool
peak_search(void)
{
	struct peak_shared *s = &peak_state;

	peak_count();
	if (!peak_meet())
		return false;
	PEAK_STEP(1);
	peak_clip_all();
	if (!peak_meet())
		return false;
	PEAK_STEP(2);
	peak_compare_all();
	if (!peak_meet())
		return false;
	PEAK_STEP(3);
	peak_list_all();
	if (!peak_meet())
		return false;
	PEAK_STEP(4);
	peak_find_all();
	if (!peak_meet())
		return false;
	PEAK_STEP(5);
	for (uint32_t f = 0; f < s->nb_frames; f++)
		if (!peak_is_heavy(s->slot + f))
			peak_order_frame(s->slot + f,
				peak_args.record + (uint64_t)(s->slot + f) * GK_CUDA_PEAK_RECORDS,
				__ldcg(&peak_args.counters[s->slot + f].records));
	for (uint32_t f = 0; f < s->nb_frames; f++)
		if (peak_is_heavy(s->slot + f) && !peak_search_labels(s->slot + f))
			return false;
	return true;
}

/* All threads of a block: its share of tiles and bins. The rest of the state is set. */
static __device__ __forceinline__ void
peak_share(void)
{
	struct peak_shared *s = &peak_state;
	const uint64_t tiles = peak_args.s.nb_tiles;

	__syncthreads();
	if (threadIdx.x == 0) {
		s->first = (uint32_t)(s->block * tiles / s->blocks);
		s->end = (uint32_t)((s->block + 1) * tiles / s->blocks);
		s->base = s->first < s->end ? peak_args.tile[s->first].bin : 0;
		s->bins = 0;
	}
	__syncthreads();
	for (uint32_t i = s->first + threadIdx.x; i < s->end; i += GK_CUDA_THREADS)
		atomicMax(&s->bins, min(peak_args.tile[i].end - s->base, (uint32_t)PEAK_WINDOW));
	__syncthreads();
}

#endif /* GK_CUDA_PEAKS_CUH */
