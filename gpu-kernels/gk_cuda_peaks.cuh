/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peaks of the frames of a batch, by all blocks of a gang, with a barrier after each step:
 *
 * 1. count: photons by bin and value, marks of pixels above the threshold
 * 2. compare: limits of each bin, one warp a bin; marks that are above the limit of their bin are
 *    hits; hits that may be seeds of blobs are put into a queue of all blocks
 * 3. find: one warp a blob; it is filled and measured in a window of the frame
 * 4. order: places in the list, from the number of seeds before each seed
 *
 * A barrier takes about as long as the work of such a step on one frame. In step 2 blocks wait for
 * single limits instead, and each compares the row before its first one again.
 *
 * A frame with a blob that is larger than the window, or with more hits than the queue has room
 * for, is searched again by labels (gk_cuda_labels.cuh).
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
/* Lists in shared memory; a test with small frames defines less. @{ */
#ifndef PEAK_REST
#define PEAK_REST  1024 /* photons that are not in the table of values */
#define PEAK_LIST  1024 /* pixels that may be seeds */
#define PEAK_QUADS 1024 /* groups of 4 words of marks; more than a row of 65,504 pixels has */
#endif
/** @} */

#define PEAK_LANES  0xFFFFFFFFu
#define PEAK_GROUP  8	/* pixels that a thread loads at once */
#define PEAK_STRIDE 129 /* entries of a bin in shared memory: odd, so that bins use all banks */
/* largest value in a table of values */
#define PEAK_MOST     (GK_CUDA_PEAK_MIN + GK_CUDA_PEAK_INVALID - 1)
#define PEAK_WINDOW   192 /* bins in shared memory; those of other bins are counted in `values` */
#define PEAK_ROWS     32  /* rows of a window, one per lane */
#define PEAK_COLS     64
#define PEAK_ABOVE    4	 /* rows of a window above the seed */
#define PEAK_SEED_AT  31 /* columns of a window before the seed */
#define PEAK_DISC     6	 /* pixels of a disc that a thread loads at once */
#define PEAK_TOGETHER 2	 /* groups of marks that a thread compares at once */
#define PEAK_UNROLL   8	 /* pixels of a blob that are added without a branch */
#define PEAK_POLLS    64 /* polls of a word between two polls of `killed` */
/* Bits of a limit that is not known yet: a NaN that no operation gives. */
#define PEAK_UNKNOWN 0xFFFFFFFFu

/* Constant memory of the search. */
extern "C" {
__constant__ struct gk_cuda_peaks peak_args;
}

/* The gang and the batch, in shared memory. */
static __shared__ struct peak_shared {
	struct gk_peak_params params;
	uint32_t block, blocks;
	uint32_t slot; /* slot of the first frame */
	uint32_t gang;
	uint32_t nb_frames;
	uint32_t *arrived; /* blocks that have arrived, summed over all barriers */
	const uint32_t *killed;
	uint32_t target; /* value of `arrived` at which the next barrier opens */
	uint32_t go;
	uint32_t first, end; /* tiles of the block */
	uint32_t base;	     /* first bin in shared memory */
	uint32_t bins;	     /* bins in shared memory */
	uint32_t n;	     /* entries of a list */
	uint32_t groups;     /* groups of 8 pixels with marks */
	uint32_t place;	     /* place of the list in the queue */
} peak_state;

struct peak_count_area {
	uint32_t values[PEAK_WINDOW * PEAK_STRIDE];
	uint32_t rest[PEAK_REST]; /* bin << 16 | photons */
};

/* A warp's window: pixels of a blob in fill order. */
struct peak_window {
	uint32_t blob[PEAK_ROWS * PEAK_COLS];
};

struct peak_compare_area {
	uint4 hits[PEAK_QUADS];			  /* marks, of which hits are left */
	uint4 inner[PEAK_QUADS], rim[PEAK_QUADS]; /* where there are marks */
	uint16_t group[PEAK_QUADS * 16];	  /* bytes of `hits` that have marks */
	uint32_t list[PEAK_LIST];		  /* pixels */
	uint8_t frame[PEAK_LIST];
};

struct peak_find_area {
	struct peak_window window[GK_CUDA_WARPS];
};

GK_STATIC_ASSERT(sizeof(struct peak_count_area) <= GK_CUDA_SHARED, "in dynamic shared memory");
GK_STATIC_ASSERT(sizeof(struct peak_compare_area) <= GK_CUDA_SHARED, "likewise");
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
	return peak_args.hits + (uint64_t)slot * peak_args.s.hit_words + 4;
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

/* Barrier of all blocks of the gang. @return false: killed */
static __device__ __noinline__ bool
peak_barrier(void)
{
	struct peak_shared *s = &peak_state;

	__syncthreads();
	if (threadIdx.x == 0) {
		uint32_t polls = 0;

		s->target += s->blocks;
		s->go = 1;
		arrive_only(s->arrived);
		while ((int32_t)(load_acquire(s->arrived) - s->target) < 0) {
			if (++polls % PEAK_POLLS == 0 && load_acquire(s->killed) != 0) {
				s->go = 0;
				break;
			}
		}
	}
	__syncthreads();
	return s->go != 0;
}

/* --- 1. count --- */

/*
 * Count a pixel that has no place in the block's table.
 * @return its place in the frame's lists, where the caller writes it; UINT32_MAX: none
 */
static __device__ __forceinline__ uint32_t
peak_count_far(uint32_t slot, uint32_t bin, int16_t photons)
{
	const uint64_t place = (uint64_t)slot * peak_args.s.nb_bins + bin;
	const uint32_t small = (uint32_t)(photons - GK_CUDA_PEAK_MIN);
	const bool invalid = photons == INT16_MIN;

	if (small >= GK_CUDA_PEAK_INVALID && !invalid)
		return peak_args.start[bin] + atomicAdd(&peak_args.listed[place], 1u);
	atomicAdd(&peak_args.values[place * GK_CUDA_PEAK_VALUES +
			  (invalid ? GK_CUDA_PEAK_INVALID : small)],
		1u);
	return UINT32_MAX;
}

static __device__ __forceinline__ void
peak_write_rest(uint32_t slot, uint32_t place, int16_t photons)
{
	if (place != UINT32_MAX)
		slot_rest(slot)[place] = photons;
}

/*
 * A warp: count photons of 8 neighbouring pixels a lane; 4 neighbouring lanes have 32 pixels of a
 * row. Additions to the table have no branches. Pixels that have no place in it are listed.
 * @return bit mask of the pixels for which the list has no room
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
	if (rest != 0) {
		uint32_t k = atomicAdd(&peak_state.n, (uint32_t)__popc(rest));

		/* from registers: to load a pixel again would take as long as hundreds of these */
#pragma unroll
		for (uint32_t i = 0; i < PEAK_GROUP; i++) {
			if ((rest >> i & 1) && k < PEAK_REST) {
				a->rest[k++] = (b[i / 2] >> i % 2 * 16) << 16 |
					(x[i / 2] >> i % 2 * 16 & 0xFFFF);
				rest &= ~(1u << i);
			}
		}
	}
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
	uint32_t entry = 0, place = UINT32_MAX;

	/* the place comes while the table is added */
	if (threadIdx.x < n) {
		entry = a->rest[threadIdx.x];
		place = peak_count_far(slot, entry >> 16, (int16_t)(uint16_t)entry);
	}
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
	peak_write_rest(slot, place, (int16_t)(uint16_t)entry);
#pragma unroll 1
	for (uint32_t i = threadIdx.x + GK_CUDA_THREADS; i < n; i += GK_CUDA_THREADS) {
		entry = a->rest[i];
		place = peak_count_far(slot, entry >> 16, (int16_t)(uint16_t)entry);
		peak_write_rest(slot, place, (int16_t)(uint16_t)entry);
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
	uint32_t *upper = (uint32_t *)slot_upper(slot);

	peak_clear_keys(slot);
	for (uint32_t i = peak_thread(); i < peak_args.s.nb_bins; i += peak_threads())
		store_relaxed(upper + i, PEAK_UNKNOWN);
	if (peak_state.block == 0 && threadIdx.x < sizeof(struct gk_cuda_peak_counters) / 4)
		__stcg((uint32_t *)&peak_args.counters[slot] + threadIdx.x, 0u);
}

/* 8 neighbouring pixels. */
struct peak_group {
	uint4 photons, bins;
	uint32_t at; /* index of the first one; UINT32_MAX: outside the frame, all are masked */
};

static __device__ __forceinline__ struct peak_group
peak_group_load(uint32_t slot, uint32_t group, uint32_t groups)
{
	struct peak_group g = {make_uint4(0, 0, 0, 0), make_uint4(~0u, ~0u, ~0u, ~0u),
		peak_group_at(group, groups)};

	if (g.at != UINT32_MAX) {
		g.photons = __ldcg((const uint4 *)(slot_photons(slot) + g.at));
		g.bins = __ldcg((const uint4 *)(peak_args.bin + g.at));
	}
	return g;
}

static __device__ __noinline__ void
peak_count(void)
{
	struct peak_shared *s = &peak_state;
	struct peak_count_area *a = (struct peak_count_area *)peak_area();
	const uint32_t groups =
		(s->end - s->first) * GK_CUDA_PEAK_ROWS * GK_CUDA_PEAK_COLS / PEAK_GROUP;
	const int32_t above = peak_above(s->params.threshold);
	/* one group, not more: with more at once the additions do not overlap with loads */
	struct peak_group ahead = peak_group_load(s->slot, threadIdx.x, groups);

	for (uint32_t f = 0; f < s->nb_frames; f++)
		peak_clear_slot(s->slot + f);
	for (uint32_t i = threadIdx.x; i < s->bins * PEAK_STRIDE; i += GK_CUDA_THREADS)
		a->values[i] = 0;
#pragma unroll 1
	for (uint32_t f = 0; f < s->nb_frames; f++) {
		const uint32_t slot = s->slot + f;

		if (threadIdx.x == 0)
			s->n = 0;
		__syncthreads();
#pragma unroll 1
		for (uint32_t g = threadIdx.x; g - peak_lane() < groups; g += GK_CUDA_THREADS) {
			const struct peak_group now = ahead;
			uint32_t rest;

			if (g + GK_CUDA_THREADS - peak_lane() < groups)
				ahead = peak_group_load(slot, g + GK_CUDA_THREADS, groups);
			else if (f + 1 < s->nb_frames)
				ahead = peak_group_load(slot + 1, threadIdx.x, groups);
			rest = peak_count_group(a, slot, now.at, now.photons, now.bins, above);
#pragma unroll 1
			for (; rest != 0; rest &= rest - 1) {
				const uint32_t pixel = now.at + (uint32_t)__ffs((int)rest) - 1;
				const int16_t photons = __ldcg(slot_photons(slot) + pixel);

				peak_write_rest(slot,
					peak_count_far(
						slot, __ldcg(peak_args.bin + pixel), photons),
					photons);
			}
		}
		__syncthreads();
		peak_flush(a, slot);
		__syncthreads();
	}
}

/* --- 2. compare --- */

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
	const uint32_t used = peak_args.used[bin];
	/* sums of values fit into 32 bits */
	const bool few = used <= INT32_MAX / (PEAK_MOST * PEAK_MOST);
	uint32_t zeros;

	if (any != 0)
		__stcg(row, make_uint4(0, 0, 0, 0));
	zeros = used - nb_rest - __reduce_add_sync(PEAK_LANES, c[0] + c[1] + c[2] + c[3]);
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

		/* same pixels, so all further rounds would give the same limits */
		if (i > 0 && r.first == last.first && r.last == last.last)
			break;
		last = r;
		if (few && r.first >= GK_CUDA_PEAK_MIN && r.last <= PEAK_MOST) {
			uint32_t n = 0;
			int32_t sum = 0, squares = 0;

#pragma unroll
			for (uint32_t k = 0; k < per_lane; k++) {
				const int32_t value =
					(int32_t)(lane * per_lane + k) + GK_CUDA_PEAK_MIN;
				const int32_t count =
					value >= r.first && value <= r.last ? (int32_t)c[k] : 0;

				n += (uint32_t)count;
				sum += count * value;
				squares += count * (value * value);
			}
			n = __reduce_add_sync(PEAK_LANES, n);
			sum = __reduce_add_sync(PEAK_LANES, sum);
			squares = __reduce_add_sync(PEAK_LANES, squares);
			l = gk_peak_clip(n, (float)sum, (float)squares, &peak_state.params);
			continue;
		}
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
	}
	if (lane == 0) {
		slot_offset(slot)[bin] = l.offset;
		store_relaxed((uint32_t *)slot_upper(slot) + bin, __float_as_uint(l.upper));
	}
}

static __device__ __forceinline__ void
peak_clip_all(void)
{
	const uint32_t bins = peak_args.s.nb_bins, all = bins * peak_state.nb_frames;
	const uint32_t warps = peak_state.blocks * GK_CUDA_WARPS;

	for (uint32_t i = peak_state.block + peak_warp() * peak_state.blocks; i < all; i += warps)
		peak_clip_bin(peak_state.slot + i / bins, i % bins);
}

/*
 * One thread that waits for a limit. Limits stay unknown if the kernel is killed: comparisons with
 * them are false.
 */
static __device__ __forceinline__ bool
peak_keep_waiting(uint32_t *polls)
{
	return ++*polls % PEAK_POLLS != 0 || load_acquire(peak_state.killed) == 0;
}

/* One thread: the marks of 8 neighbouring pixels that are hits. */
static __device__ __forceinline__ uint32_t
peak_group_hits(uint32_t slot, const uint4 &photons, const uint4 &bins, uint32_t marks)
{
	const uint32_t x[4] = {photons.x, photons.y, photons.z, photons.w};
	const uint32_t b[4] = {bins.x, bins.y, bins.z, bins.w};
	const uint32_t *upper = (const uint32_t *)slot_upper(slot);
	uint32_t limit[PEAK_GROUP] = {}, hits = 0, polls = 0;
	bool known;

	do {
		known = true;
#pragma unroll
		for (uint32_t i = 0; i < PEAK_GROUP; i++)
			if (marks >> i & 1)
				limit[i] = load_relaxed(
					upper + (b[i / 2] >> i % 2 * 16 & GK_PEAK_BIN_MASK));
#pragma unroll
		for (uint32_t i = 0; i < PEAK_GROUP; i++)
			if (marks >> i & 1)
				known = known && limit[i] != PEAK_UNKNOWN;
	} while (!known && peak_keep_waiting(&polls));
#pragma unroll
	for (uint32_t i = 0; i < PEAK_GROUP; i++)
		if (marks >> i & 1)
			hits |= (uint32_t)((float)(int16_t)(x[i / 2] >> i % 2 * 16) >
					__uint_as_float(limit[i]))
				<< i;
	return hits;
}

/* Compare the listed groups. @param at  index of the part's first pixel */
static __device__ __forceinline__ void
peak_compare_groups(struct peak_compare_area *a, uint32_t slot, uint32_t at)
{
	const int16_t *photons = slot_photons(slot) + at;
	const uint16_t *bins = peak_args.bin + at;
	const uint32_t n = peak_state.groups;
	uint8_t *hits = (uint8_t *)a->hits;

#pragma unroll 1
	for (uint32_t i = threadIdx.x; i < n; i += PEAK_TOGETHER * GK_CUDA_THREADS) {
		uint4 x[PEAK_TOGETHER] = {}, b[PEAK_TOGETHER] = {};
		uint32_t group[PEAK_TOGETHER];

#pragma unroll
		for (uint32_t k = 0; k < PEAK_TOGETHER; k++) {
			if (i + k * GK_CUDA_THREADS >= n)
				continue;
			group[k] = a->group[i + k * GK_CUDA_THREADS];
			x[k] = __ldcg((const uint4 *)(photons + group[k] * PEAK_GROUP));
			b[k] = __ldcg((const uint4 *)(bins + group[k] * PEAK_GROUP));
		}
#pragma unroll
		for (uint32_t k = 0; k < PEAK_TOGETHER; k++)
			if (i + k * GK_CUDA_THREADS < n)
				hits[group[k]] =
					(uint8_t)peak_group_hits(slot, x[k], b[k], hits[group[k]]);
	}
}

/* A part of a frame: groups of 4 words. */
struct peak_part {
	uint32_t f;
	uint32_t start;	     /* first group that is in shared memory */
	uint32_t first, end; /* groups of the block itself */
};

/* The next part of the block's share. The first one follows {UINT32_MAX, 0, UINT32_MAX,
 * UINT32_MAX}. */
static __device__ __forceinline__ struct peak_part
peak_next_part(const struct peak_part *p)
{
	const uint64_t quads = (peak_args.s.words + 3) / 4;
	const uint32_t begin = (uint32_t)(peak_state.block * quads / peak_state.blocks);
	const uint32_t end = (uint32_t)((peak_state.block + 1) * quads / peak_state.blocks);
	const uint32_t before = peak_args.s.cols / 32 + 1;
	struct peak_part next = {p->f, 0, p->end, end};

	if (next.first >= end) {
		next.f++;
		next.first = begin;
	}
	/* no share */
	if (begin == end)
		next.f = peak_state.nb_frames;
	if (next.first * 4 > before)
		next.start = (next.first * 4 - before) / 4;
	next.end = min(end, next.start + PEAK_QUADS);
	return next;
}

static __device__ __forceinline__ uint4
peak_part_marks(const struct peak_part *p, uint32_t i)
{
	if (p->f >= peak_state.nb_frames || i >= p->end - p->start)
		return make_uint4(0, 0, 0, 0);
	return __ldcg((const uint4 *)slot_hits(peak_state.slot + p->f) + p->start + i);
}

/* One thread: list the groups of 4 words that have marks. */
static __device__ __forceinline__ void
peak_list_groups(struct peak_compare_area *a, uint32_t i, const uint4 &marks)
{
	const uint32_t word[4] = {marks.x, marks.y, marks.z, marks.w};
	uint32_t bytes = 0, k;

#pragma unroll
	for (uint32_t b = 0; b < 16; b++)
		bytes |= (uint32_t)((word[b / 4] >> b % 4 * 8 & 0xFF) != 0) << b;
	k = atomicAdd(&peak_state.groups, (uint32_t)__popc(bytes));
#pragma unroll 1
	for (; bytes != 0; bytes &= bytes - 1)
		a->group[k++] = (uint16_t)(i * 16 + (uint32_t)__ffs((int)bytes) - 1);
}

/*
 * Pixels of a word of a part that may be seeds: inner ones, without an inner one before them.
 * @param word  of the frame
 * @param i     the same in the part
 */
static __device__ __forceinline__ uint32_t
peak_seeds(const struct peak_compare_area *a, uint32_t word, uint32_t i)
{
	const uint32_t *hits = (const uint32_t *)a->hits + i, row_words = peak_args.s.cols / 32;
	const uint32_t *above = hits - row_words;
	uint32_t inner = hits[0], before;

	/* the first row of a frame has no inner pixels */
	if (inner == 0 || word < row_words)
		return 0;
	inner &= ((const uint32_t *)a->inner)[i];
	if (inner == 0)
		return 0;
	before = hits[0] << 1 | above[0] | above[0] << 1 | above[0] >> 1 | above[1] << 31;
	/* otherwise they may be before the part */
	if ((inner & 1) != 0)
		before |= hits[-1] >> 31 | above[-1] >> 31;
	return inner & (~before | ((const uint32_t *)a->rim)[i]);
}

/* The queue of the gang, in memory of the search by labels. */
static __device__ __forceinline__ uint2 *
peak_queue(void)
{
	return (uint2 *)(peak_args.seed + (uint64_t)peak_state.gang * peak_args.s.seeds_max);
}

/* The second word of an entry: frame, bin and panel of the pixel. */
#define PEAK_ENTRY_BIN	 4
#define PEAK_ENTRY_PANEL 18
GK_STATIC_ASSERT(GK_CUDA_PEAK_FRAMES <= 1 << PEAK_ENTRY_BIN &&
		GK_PEAK_BINS_MAX <= 1 << (PEAK_ENTRY_PANEL - PEAK_ENTRY_BIN) &&
		GK_PEAK_PANELS_MAX <= 1 << (32 - PEAK_ENTRY_PANEL),
	"all have room");

static __device__ __forceinline__ uint32_t
peak_bin_and_panel(uint32_t at)
{
	return (uint32_t)peak_args.bin[at] << PEAK_ENTRY_BIN |
		(uint32_t)peak_args.panel_of[at] << PEAK_ENTRY_PANEL;
}

/* Put a pixel into the queue. A frame is searched by labels if there is no room. */
static __device__ __forceinline__ void
peak_enqueue(uint32_t place, uint32_t at, uint32_t f, uint32_t bin_and_panel)
{
	if (place < peak_args.s.seeds_max)
		__stcg(peak_queue() + place, make_uint2(at, bin_and_panel | f));
	else
		__stcg(&peak_args.counters[peak_state.slot + f].heavy, 1u);
}

/* List pixels of a word, in the queue if the block's list is full. */
static __device__ __forceinline__ void
peak_list(struct peak_compare_area *a, uint32_t word, uint32_t f, uint32_t seeds)
{
	struct peak_shared *s = &peak_state;

	for (; seeds != 0; seeds &= seeds - 1) {
		const uint32_t at = word * 32 + (uint32_t)__ffs((int)seeds) - 1;
		const uint32_t k = atomicAdd(&s->n, 1u);

		if (k < PEAK_LIST) {
			a->list[k] = at;
			a->frame[k] = (uint8_t)f;
		} else {
			peak_enqueue(atomicAdd(&peak_args.counters[s->slot].queued, 1u), at, f,
				peak_bin_and_panel(at));
		}
	}
}

/* Move the block's list to the queue. */
static __device__ __forceinline__ void
peak_queue_listed(struct peak_compare_area *a)
{
	struct peak_shared *s = &peak_state;
	uint32_t n, at = 0, more = 0;

	__syncthreads();
	n = min(s->n, (uint32_t)PEAK_LIST);
	if (n == 0)
		return;
	if (threadIdx.x == 0)
		s->place = atomicAdd(&peak_args.counters[s->slot].queued, n);
	/* meanwhile */
	if (threadIdx.x < n) {
		at = a->list[threadIdx.x];
		more = peak_bin_and_panel(at);
	}
	__syncthreads();
	for (uint32_t i = threadIdx.x; i < n; i += GK_CUDA_THREADS) {
		peak_enqueue(s->place + i, at, a->frame[i], more);
		if (i + GK_CUDA_THREADS < n) {
			at = a->list[i + GK_CUDA_THREADS];
			more = peak_bin_and_panel(at);
		}
	}
}

static __device__ __noinline__ void
peak_compare_all(void)
{
	struct peak_compare_area *a = (struct peak_compare_area *)peak_area();
	struct peak_shared *s = &peak_state;
	struct peak_part next = {UINT32_MAX, 0, UINT32_MAX, UINT32_MAX};
	uint4 ahead;

	if (threadIdx.x == 0)
		s->n = s->groups = 0;
	next = peak_next_part(&next);
	ahead = peak_part_marks(&next, threadIdx.x);
	/* all limits of the block, before it waits for those of others */
	peak_clip_all();
	__syncthreads();
#pragma unroll 1
	while (next.f < s->nb_frames) {
		const struct peak_part p = next;
		const uint32_t slot = s->slot + p.f, all = p.end - p.start;
		uint32_t marked = 0; /* bit mask of the thread's turns */

#pragma unroll 1
		for (uint32_t i = threadIdx.x, turn = 1; i < all; i += GK_CUDA_THREADS, turn *= 2) {
			const uint4 marks = turn == 1 ? ahead : peak_part_marks(&p, i);

			a->hits[i] = marks;
			if ((marks.x | marks.y | marks.z | marks.w) == 0)
				continue;
			a->inner[i] = __ldcg((const uint4 *)peak_args.inner + p.start + i);
			a->rim[i] = __ldcg((const uint4 *)peak_args.rim + p.start + i);
			marked |= turn;
			peak_list_groups(a, i, marks);
		}
		next = peak_next_part(&p);
		ahead = peak_part_marks(&next, threadIdx.x);
		__syncthreads();
		peak_compare_groups(a, slot, p.start * 128);
		__syncthreads();
		if (threadIdx.x == 0)
			s->groups = 0;
#pragma unroll 1
		for (uint32_t i = threadIdx.x; marked != 0; i += GK_CUDA_THREADS, marked /= 2) {
			if (!(marked & 1) || p.start + i < p.first)
				continue;
			__stcg((uint4 *)slot_hits(slot) + p.start + i, a->hits[i]);
#pragma unroll 1
			for (uint32_t k = 0; k < 4; k++) {
				const uint32_t word = (p.start + i) * 4 + k;

				peak_list(a, word, p.f, peak_seeds(a, word, i * 4 + k));
			}
		}
		__syncthreads();
	}
	peak_queue_listed(a);
}

/* --- 3. find --- */

static __device__ __forceinline__ struct gk_peak_frame
peak_frame(uint32_t slot)
{
	const struct gk_peak_frame f = {slot_photons(slot), NULL, peak_args.bin, peak_args.s.cols,
		slot_offset(slot), slot_upper(slot)};

	return f;
}

/* A warp: sums of a disc, and the largest photons. */
static __device__ __forceinline__ struct gk_peak_sums
peak_disc(const struct gk_peak_frame *f, const struct gk_peak_disc *d, int32_t *highest)
{
	/* a row takes a power of two of lanes, because a division takes long */
	const uint32_t shift = 32 - (uint32_t)__clz(max(d->right - d->left - 1, 0));
	const uint32_t all = (uint32_t)(d->end - d->first) << shift;
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
			const int32_t y = d->first + (int32_t)(i >> shift);
			const int32_t x = d->left + (int32_t)(i & ((1u << shift) - 1));
			const uint64_t at =
				d->origin + (uint64_t)(d->ss + y) * f->cols + (uint32_t)(d->fs + x);

			photons[k] = INT16_MIN;
			bin[k] = GK_PEAK_MASKED;
			if (i < all && x < d->right && x * x + y * y <= d->radius * d->radius) {
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

/* Photons of a pixel of a blob, which is a hit. @param bin  receives its bin */
static __device__ __forceinline__ float
peak_blob_photons(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	uint32_t position, uint32_t *bin)
{
	const uint64_t at = gk_peak_at(f, panel, gk_peak_fs(position), gk_peak_ss(position));

	*bin = f->bin[at];
	return (float)f->photons[at];
}

/*
 * A warp: add the value of each of the first `some` lanes, in their order. The others have 0, which
 * changes no sum that began with 0.
 */
template <uint32_t sums>
static __device__ __forceinline__ void
peak_add_lanes(float total[sums], const float value[sums], uint32_t some)
{
#pragma unroll 1
	for (uint32_t i = 0; i < some; i += PEAK_UNROLL) {
#pragma unroll
		for (uint32_t k = 0; k < PEAK_UNROLL; k++)
#pragma unroll
			for (uint32_t j = 0; j < sums; j++)
				total[j] = __fadd_rn(
					total[j], __shfl_sync(PEAK_LANES, value[j], i + k));
	}
}

/*
 * A warp: gk_peak_first_centre().
 * @param photons  receives those of the lane's pixel among the first 32
 */
static __device__ __forceinline__ int
peak_first_centre(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, int32_t *fs, int32_t *ss, float *photons)
{
	float total[3] = {0.0f, 0.0f, 0.0f};
	struct gk_peak_centre c;

#pragma unroll 1
	for (uint32_t first = 0; first < n; first += 32) {
		const uint32_t some = min(n - first, 32u);
		float value[3] = {0.0f, 0.0f, 0.0f};

		if (peak_lane() < some) {
			const uint32_t position = blob[first + peak_lane()];
			struct gk_peak_centre one = {0.0f, 0.0f, 0.0f};
			uint32_t bin;
			const float x = peak_blob_photons(f, panel, position, &bin);

			gk_peak_centre_add(&one, position, fabsf(gk_sub(x, f->offset[bin])));
			value[0] = one.total;
			value[1] = one.fs;
			value[2] = one.ss;
			if (first == 0)
				*photons = x;
		}
		peak_add_lanes<3>(total, value, some);
	}
	c = {total[0], total[1], total[2]};
	return gk_peak_centre_pixel(&c, panel, fs, ss);
}

/* A warp: sums above a background, likewise. */
static __device__ __forceinline__ struct gk_peak_above
peak_above_sums(const struct gk_peak_frame *f, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, float mean, float photons)
{
	float total[4] = {0.0f, 0.0f, 0.0f, 0.0f}, most = 0.0f;

#pragma unroll 1
	for (uint32_t first = 0; first < n; first += 32) {
		const uint32_t some = min(n - first, 32u);
		struct gk_peak_above one = {0.0f, 0.0f, 0.0f, 0.0f, 0.0f};
		float value[4];

		if (peak_lane() < some) {
			const uint32_t position = blob[first + peak_lane()];
			uint32_t bin;

			if (first != 0)
				photons = peak_blob_photons(f, panel, position, &bin);
			gk_peak_above_add(&one, position, photons, mean);
		}
		value[0] = one.intensity;
		value[1] = one.raw;
		value[2] = one.fs;
		value[3] = one.ss;
		peak_add_lanes<4>(total, value, some);
		most = one.max > most ? one.max : most;
	}
	/* floats that are not negative have the order of their bits as integers */
	most = __uint_as_float(__reduce_max_sync(PEAK_LANES, __float_as_uint(most)));
	return {total[0], total[1], most, total[2], total[3]};
}

/*
 * A warp: measure a blob.
 * @param blob    n positions in fill order
 * @param record  set if the result is not GK_PEAK_DROPPED
 */
static __device__ __forceinline__ uint32_t
peak_measure(uint32_t slot, uint32_t number, const struct gk_peak_panel *panel,
	const uint32_t *blob, uint32_t n, uint32_t bin, struct gk_cuda_peak_record *record)
{
	const struct gk_peak_frame f = peak_frame(slot);
	const struct gk_peak_params *params = &peak_state.params;
	struct gk_peak_background background;
	struct gk_peak_above above;
	struct gk_peak_ring ring;
	struct gk_peak_sums sums;
	struct gk_peak_disc disc;
	int32_t fs = 0, ss = 0, highest;
	float photons = 0.0f; /* photons of the lane's pixel */

	/* the result is the same in all lanes */
	if (!peak_first_centre(&f, panel, blob, n, &fs, &ss, &photons))
		return GK_PEAK_DROPPED;
	disc = gk_peak_disc(&f, panel, fs, ss, params->bg_radius);
	sums = peak_disc(&f, &disc, &highest);
	background = gk_peak_is_exact(&sums) ? gk_peak_background_from(&sums, highest)
					     : peak_disc_rounded(&f, &disc);
	ring = gk_peak_ring_from(&f, &disc, &background);
	above = peak_above_sums(&f, panel, blob, n, ring.mean, photons);
	record->verdict =
		(uint16_t)gk_peak_measure_sums(panel, params, bin, n, &ring, &above, &record->peak);
	record->peak.panel = number;
	record->key = peak_args.first_key[number] + gk_peak_ss(blob[0]) * panel->width +
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

/*
 * 64 pixels of the lane's row of a window. They are read before the panel is known, whose borders
 * may be within them.
 * @param row,column  of the seed, in the frame
 */
static __device__ __forceinline__ uint64_t
peak_view_load(uint32_t slot, uint32_t row, uint32_t column)
{
	const int32_t y = (int32_t)(row + peak_lane()) - PEAK_ABOVE;
	const uint32_t *words = slot_hits(slot);
	uint32_t low, middle, high;
	int32_t at;

	if ((uint32_t)y >= peak_args.s.rows)
		return 0;
	/* -31 in the first row */
	at = y * (int32_t)peak_args.s.cols + (int32_t)column - PEAK_SEED_AT;
	words += at >> 5;
	low = __ldcg(words);
	middle = __ldcg(words + 1);
	high = __ldcg(words + 2);
	return (uint64_t)__funnelshift_r(middle, high, (uint32_t)at % 32) << 32 |
		__funnelshift_r(low, middle, (uint32_t)at % 32);
}

/* A window of a panel around a seed. Each lane has a row. */
struct peak_view {
	uint64_t hits;	/* hits of the lane's row */
	uint64_t inner; /* pixels of this row that can be seeds */
};

/* Clear the bits of pixels outside the panel. @param fs,ss  position of the seed */
static __device__ __forceinline__ struct peak_view
peak_view_in(const struct gk_peak_panel *panel, uint32_t fs, uint32_t ss, uint64_t hits)
{
	const int32_t y = (int32_t)(ss + peak_lane()) - PEAK_ABOVE;
	/* place of the panel's first column, and number of columns from the window's first one */
	const int32_t first = PEAK_SEED_AT - (int32_t)fs, columns = (int32_t)panel->width + first;
	struct peak_view v = {hits, 0};

	if ((uint32_t)y >= panel->height)
		v.hits = 0;
	if (first > 0)
		v.hits &= ~UINT64_C(0) << first;
	if (columns < PEAK_COLS)
		v.hits &= (UINT64_C(1) << columns) - 1;
	/* no blob has neighbours outside the window */
	v.hits &= (~UINT64_C(0) >> 1) - 1;
	if (y == 0 || (uint32_t)y + 1 >= panel->height)
		return v;
	v.inner = ~UINT64_C(0);
	if (first >= 0)
		v.inner &= ~(UINT64_C(1) << first);
	if (columns <= PEAK_COLS)
		v.inner &= ~(UINT64_C(1) << (columns - 1));
	return v;
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
	/* of the pixel that the lane puts; the difference of two positions is one number */
	const uint32_t mine = lane < 9 ? 1u << lane : 0;
	const uint32_t step = gk_peak_position(lane % 3, lane / 3) - gk_peak_position(1, 1);
	uint32_t n = 1, position = gk_peak_position(PEAK_SEED_AT, PEAK_ABOVE);
	uint64_t left = v->hits;

	if (lane == PEAK_ABOVE)
		left &= ~(UINT64_C(1) << PEAK_SEED_AT);
	if (lane == 0)
		w->blob[0] = position;
	__syncwarp();
#pragma unroll 1
	for (uint32_t i = 0; i < n && n <= most; i++) {
		const uint32_t next = w->blob[i + 1]; /* if it is there already */
		const uint32_t x = gk_peak_fs(position), y = gk_peak_ss(position);
		const uint32_t row = lane + 1 - y; /* 0 to 2: of the 3 x 3 */
		const uint32_t three = row < 3 ? (uint32_t)(left >> (x - 1)) & 7 : 0;
		const uint32_t nine = __reduce_add_sync(PEAK_LANES, three << 3 * (row & 3));
		const bool empty = i + 1 == n;

		left &= ~((uint64_t)three << (x - 1));
		if (mine & nine)
			w->blob[n + __popc(nine & (mine - 1))] = position + step;
		n += __popc(nine);
		__syncwarp();
		position = empty ? w->blob[i + 1] : next;
	}
	*rest = left;
	return n;
}

/*
 * A warp: find the blob of a seed in a window.
 * @return number of pixels; 0: no peak, or the blob has another seed; UINT32_MAX: too large
 */
static __device__ __forceinline__ uint32_t
peak_fill(struct peak_window *w, const struct gk_peak_panel *panel, uint32_t fs, uint32_t ss,
	uint64_t hits)
{
	const struct gk_peak_params *params = &peak_state.params;
	const struct peak_view v = peak_view_in(panel, fs, ss, hits);
	const uint32_t lane = peak_lane();
	uint64_t blob, inner;
	uint32_t n, first;
	bool beyond;

	n = peak_fill_order(w, &v, params->max_pixels, &blob);
	if (n > params->max_pixels)
		return 0;
	blob ^= v.hits;
	inner = blob & v.inner;
	first = __ffs((int)__ballot_sync(PEAK_LANES, inner != 0)) - 1;
	if (first != PEAK_ABOVE ||
		__shfl_sync(PEAK_LANES, (uint32_t)__ffsll((long long)inner) - 1, PEAK_ABOVE) !=
			PEAK_SEED_AT)
		return 0;
	beyond = (lane == 0 && ss > PEAK_ABOVE) ||
		(lane == 31 && ss + PEAK_ROWS - PEAK_ABOVE < panel->height);
	beyond = beyond && blob != 0;
	beyond |= fs + 1 > PEAK_SEED_AT && (blob & 2) != 0;
	beyond |= fs + PEAK_COLS - PEAK_SEED_AT < panel->width + 1 && blob >> 62 != 0;
	if (__any_sync(PEAK_LANES, beyond))
		return UINT32_MAX;
	if (n < params->min_pixels)
		return 0;
	/* positions in the panel: as one number, as a part of the difference may be negative */
	for (uint32_t i = lane; i < n; i += 32)
		w->blob[i] += gk_peak_position(fs, ss) - gk_peak_position(PEAK_SEED_AT, PEAK_ABOVE);
	__syncwarp();
	return n;
}

/* The records of the gang. */
static __device__ __forceinline__ struct gk_cuda_peak_record *
peak_records(void)
{
	return peak_args.record + (uint64_t)peak_state.gang * peak_args.s.seeds_max;
}

/* One lane: write a record that is not dropped. */
static __device__ __forceinline__ void
peak_write(uint32_t f, struct gk_cuda_peak_record *record, struct gk_cuda_peak_record *to)
{
	record->frame = (uint16_t)f;
	*to = *record;
	peak_mark(peak_state.slot + f, record->key, record->verdict);
}

/* A warp: the blob of an entry of the queue. */
static __device__ __forceinline__ void
peak_find_blob(struct peak_window *w, const uint2 &entry, struct gk_cuda_peak_record *to)
{
	const uint32_t f = entry.y % (1 << PEAK_ENTRY_BIN), number = entry.y >> PEAK_ENTRY_PANEL;
	const uint32_t bin = (entry.y >> PEAK_ENTRY_BIN) % GK_PEAK_BINS_MAX;
	const uint32_t slot = peak_state.slot + f, lane = peak_lane();
	const uint32_t row = entry.x / peak_args.s.cols, column = entry.x - row * peak_args.s.cols;
	const uint64_t hits = peak_view_load(slot, row, column);
	const struct gk_peak_panel panel = peak_args.panel[number];
	struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	const uint32_t n = peak_fill(w, &panel, column - panel.fs, row - panel.ss, hits);
	struct gk_cuda_peak_record record;

	if (n == UINT32_MAX && lane == 0)
		__stcg(&c->heavy, 1u);
	if (n == UINT32_MAX || n == 0 ||
		peak_measure(slot, number, &panel, w->blob, n, bin, &record) == GK_PEAK_DROPPED) {
		if (lane == 0)
			to->verdict = GK_PEAK_DROPPED;
	} else if (lane == 0) {
		atomicAdd(&c->records, 1u);
		peak_write(f, &record, to);
	}
	__syncwarp();
}

/* Find the blobs of the queue. @return its number of entries */
static __device__ __noinline__ uint32_t
peak_find_all(void)
{
	struct peak_find_area *a = (struct peak_find_area *)peak_area();
	const struct peak_shared *s = &peak_state;
	const uint32_t warps = s->blocks * GK_CUDA_WARPS, most = peak_args.s.seeds_max;
	uint32_t i = s->block + peak_warp() * s->blocks;
	/* while the number is read */
	uint2 ahead = i < most ? __ldcg(peak_queue() + i) : make_uint2(0, 0);
	const uint32_t n = min(__ldcg(&peak_args.counters[s->slot].queued), most);

	for (; i < n; i += warps) {
		const uint2 entry = ahead;

		if (i + warps < n)
			ahead = __ldcg(peak_queue() + i + warps);
		peak_find_blob(&a->window[peak_warp()], entry, peak_records() + i);
	}
	return n;
}

/* --- 4. order --- */

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

/* Whether a frame must be searched by labels. */
static __device__ __forceinline__ bool
peak_is_heavy(uint32_t slot)
{
	return __ldcg(&peak_args.counters[slot].heavy) != 0;
}

/* Peaks found, as gk_peaks.found. */
static __device__ __forceinline__ uint32_t
peak_found(uint32_t slot)
{
	const struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	const uint32_t n = peak_is_heavy(slot) ? __ldcg(&c->by_labels) : __ldcg(&c->records);

	return min(n, GK_PEAKS_MAX + 1u);
}

/*
 * A warp: write the peak of a record to its place in the list.
 * @param by_labels  the record is of a frame that is searched by labels; others of these are left
 *                   out
 */
static __device__ __forceinline__ void
peak_place(const struct gk_cuda_peak_record *r, bool by_labels)
{
	const uint32_t words = sizeof(*r) / 4, lane = peak_lane();
	const struct gk_peak_params *params = &peak_state.params;
	const uint32_t mine = lane < words ? __ldcg((const uint32_t *)r + lane) : 0;
	const uint32_t key =
		__shfl_sync(PEAK_LANES, mine, offsetof(struct gk_cuda_peak_record, key) / 4);
	/* and the frame */
	const uint32_t both =
		__shfl_sync(PEAK_LANES, mine, offsetof(struct gk_cuda_peak_record, verdict) / 4);
	const uint32_t bin =
		__shfl_sync(PEAK_LANES, mine, offsetof(struct gk_cuda_peak_record, peak.bin) / 4);
	const uint32_t slot = peak_state.slot + (both >> 16);
	const uint32_t *keys = slot_keys(slot);
	struct gk_cuda_peak_counters *c = &peak_args.counters[slot];
	uint32_t place;
	bool other;

	if ((both & 0xFFFF) != GK_PEAK_FOUND)
		return;
	other = peak_is_heavy(slot) != by_labels;
	place = peak_rank(keys, key);
	if (other || place >= GK_PEAKS_MAX)
		return;
	if (!params->saturated)
		place = peak_rank(keys + peak_args.s.key_words, key);
	if (lane < sizeof(struct gk_peak) / 4)
		((uint32_t *)&slot_list(slot)[place])[lane] = mine;
	if (lane == 0)
		atomicAdd(&c->count, 1u);
	if (lane < params->shells && bin >= params->shell[lane] && bin < params->shell[lane + 1])
		atomicAdd(&c->shell[lane], 1u);
}

/* Put the peaks of the first `n` records into their lists. */
static __device__ __forceinline__ void
peak_order(uint32_t n, bool by_labels)
{
	const uint32_t warps = peak_state.blocks * GK_CUDA_WARPS;

	for (uint32_t i = peak_state.block + peak_warp() * peak_state.blocks; i < n; i += warps)
		peak_place(peak_records() + i, by_labels);
}

#include "gk_cuda_labels.cuh"

/*
 * Find the peaks of a batch. All blocks of the gang call it, with at least one barrier of the gang
 * between two calls. The lists and counters are complete after the next barrier.
 * @return false: killed
 */
static __device__ __forceinline__ bool
peak_search(void)
{
	const struct peak_shared *s = &peak_state;
	uint32_t n;

	peak_count();
	if (!peak_barrier())
		return false;
	PEAK_STEP(1);
	peak_compare_all();
	if (!peak_barrier())
		return false;
	PEAK_STEP(2);
	n = peak_find_all();
	if (!peak_barrier())
		return false;
	PEAK_STEP(3);
	peak_order(n, false);
	for (uint32_t f = 0; f < s->nb_frames; f++)
		if (peak_is_heavy(s->slot + f) && !peak_search_labels(f))
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
