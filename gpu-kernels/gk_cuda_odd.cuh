/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of odd pixels (gk_cuda_pixel.cuh), after those of all others. While frames are
 * counted, a bit mask records which threads have some in a chunk. Then a warp takes two chunks at a
 * time and lists these threads for all frames. Each thread of the warp reads the words of one of
 * them again and converts the odd ones. Their coefficients come from device memory: conversion by
 * the threads that find the pixels, one after the other, takes several times as long.
 */
#ifndef GK_CUDA_ODD_CUH
#define GK_CUDA_ODD_CUH

#include "gk_cuda_member.cuh"

/* Chunks that a warp takes at a time; a thread has one frame of one of them. */
#define ODD_CHUNKS (32 / GK_BATCH_MAX)
/* An entry of the list is the thread that has the frame, << ODD_FRAME, and one that has pixels. */
#define ODD_FRAME 5
static_assert(32 * 32 * sizeof(uint32_t) <= GK_CUDA_DEPTH * GK_CUDA_WORDS, "in place of words");

/* Add to a 64-bit number in shared memory: atomicAdd() of 64 bits is a loop there. */
static __device__ __forceinline__ void
add_shared_i64(uint32_t to, int64_t v)
{
	const uint32_t low = (uint32_t)v;
	const uint32_t carry = add_shared_u32(to, low) + low < low;
	const uint32_t high = (uint32_t)((uint64_t)v >> 32) + carry;

	if (high != 0)
		add_shared_u32(to + 4, high);
}

/*
 * Convert one odd pixel: replace the value that the fast path has added to the sum, and add the
 * values that it has left out. In images that are written while frames are counted, replace its
 * value.
 * @param counter  of the chunk and frame
 */
static __device__ __forceinline__ void
convert_odd(uint32_t chunk, uint32_t pixel, uint16_t word, uint32_t f, uint32_t counter)
{
	const struct gk_cuda_batch *b = &gang_state.batch;
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const float quick = quick_photons(word, __ldcg(coef->p + pixel), __ldcg(coef->r + pixel));
	const uint32_t hole = bit_at(coef->hole_bits, pixel);
	const float x = any_photons(coef, pixel, word);
	const uint32_t lost = (x != x ? 1 : 0) - hole;
	const uint32_t more = (x >= b->params.strong_threshold ? 1u << 16 : 0) +
		(x >= b->params.csr_threshold ? 1 : 0);
	struct tally *t = &gang_state.tally[warp_of_block()][f];

	if (more != 0)
		add_shared_u32(counter, more);
	add_shared_i64((uint32_t)__cvta_generic_to_shared(&t->sum),
		(int64_t)gk_sum_q8(x) - (int32_t)(quick_sum(quick) - SUM_NOTHING));
	if (lost != 0)
		atomicAdd(&t->invalid, lost);
	if (x == INFINITY)
		atomicAdd(&t->saturated, 1u);
	if (profile_joins())
		profile_odd(chunk, pixel, f, quick, x);
	if ((b->direct >> f & 1) && b->frame[f].direct == GK_KIND_IMAGE)
		store_value(image_at(b->frame[f].out),
			(uint64_t)divide(chunk, args.row_chunks) * args.geometry.cols +
				column_of(chunk) + pixel,
			args.value, x);
}

/* Bits of two words that are not in G0. */
static __device__ __forceinline__ uint32_t
odd_of_two(uint32_t words)
{
	const uint32_t signs = gain_signs(words);

	return (signs >> 15 & 1) | (signs >> 30 & 2);
}

/*
 * Convert the odd pixels of a thread's words, by quarters.
 * @param few      as when they were counted
 * @param counter  as of convert_odd()
 */
static __device__ __forceinline__ void
convert_words(uint32_t chunk, uint32_t thread, uint32_t f, const uint2 quarter[4], bool few,
	uint32_t counter)
{
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const uint32_t pixels = pixels_of(chunk);
	uint32_t odd = 0, inside = 0, w[GK_CUDA_LANE / 2];

#pragma unroll
	for (uint32_t k = 0; k < 4; k++) {
		const uint2 v = quarter[k];

		w[2 * k] = v.x, w[2 * k + 1] = v.y;
		inside |= k * 128 + thread * 4 < pixels ? 15u << (4 * k) : 0;
		odd |= (odd_of_two(v.x) | odd_of_two(v.y) << 2) << (4 * k);
	}
	if (all_odd(&gang_state.batch.params, few)) {
		odd = inside;
	} else if (__ldcg(&coef->wild) != 0) {
#pragma unroll
		for (uint32_t k = 0; k < 4; k++)
			odd |= inside &
				(__ldcg(&coef->wild_bits[k * 4 + thread / 8]) >> thread % 8 * 4 &
					15)
					<< (4 * k);
	}
#pragma unroll 1
	for (; odd != 0; odd &= odd - 1) {
		const uint32_t i = __ffs(odd) - 1;
		uint32_t two = w[0];

#pragma unroll
		for (uint32_t k = 1; k < GK_CUDA_LANE / 2; k++)
			two = i / 2 == k ? w[k] : two;
		convert_odd(chunk, i / 4 * 128 + thread * 4 + i % 4, (uint16_t)(two >> i % 2 * 16),
			f, counter);
	}
}

/*
 * Convert the odd pixels that a thread had while frames were counted.
 * @param thread  that had them
 * @param words   address of the frame's words of the chunk
 */
static __device__ __forceinline__ void
convert_thread(uint32_t chunk, uint32_t thread, uint32_t f, uint64_t words, uint32_t counter)
{
	const uint32_t pixels = pixels_of(chunk);
	uint2 quarter[4];

#pragma unroll
	for (uint32_t k = 0; k < 4; k++)
		quarter[k] = k * 128 + thread * 4 < pixels
			? __ldcg((const uint2 *)words + k * 32 + thread)
			: make_uint2(0, 0);
	convert_words(chunk, thread, f, quarter, few_frames(), counter);
}

/* List of a block of the gang. @{ */
static __device__ __forceinline__ struct gk_cuda_odd *
odd_of(uint32_t block)
{
	return args.odd + (uint64_t)gang_state.member.gang * args.blocks + block;
}

static __device__ __forceinline__ uint32_t *
odd_chunks_of(uint32_t block)
{
	return args.odd_chunks +
		((uint64_t)gang_state.member.gang * args.blocks + block) * args.block_chunks;
}
/** @} */

/* One thread, when all blocks have counted. */
static __device__ __forceinline__ void
clear_odd(void)
{
	if (gang_state.odd != 0)
		store_relaxed((uint64_t *)odd_of(gang_state.member.block), 0);
}

/*
 * List the chunks of this warp that have odd pixels.
 * @param found  bit mask of them, by number modulo 32
 */
static __device__ __forceinline__ void
list_chunks(uint32_t found)
{
	const struct member *m = &gang_state.member;
	const uint32_t chunks = chunks_of_warp(m->first, m->end), lane = lane_of_warp();
	const uint32_t mine = (found >> lane & 1) && lane < chunks ? (chunks - lane + 31) / 32 : 0;
	uint32_t at = mine > 0 ? atomicAdd(&gang_state.odd, mine) : 0;

	for (uint32_t i = lane; mine > 0 && i < chunks; i += 32)
		__stcg(&odd_chunks_of(m->block)[at++],
			m->first + warp_of_block() + i * GK_CUDA_WARPS);
}

/*
 * Find a block of the gang whose list has chunks that no warp has taken. Each warp starts its
 * search at a different block.
 * @return args.blocks: there is none
 */
static __device__ __forceinline__ uint32_t
find_odd(void)
{
	const uint32_t blocks = args.blocks;
	const uint32_t from =
		(gang_state.member.block + 1 + warp_of_block() * (blocks / GK_CUDA_WARPS)) % blocks;
	uint32_t nearest = blocks;

#pragma unroll 4
	for (uint32_t i = lane_of_warp(); i < blocks; i += 32) {
		const uint32_t block = from + i < blocks ? from + i : from + i - blocks;
		const uint64_t both = load_relaxed((const uint64_t *)odd_of(block));

		if ((uint32_t)(both >> 32) < (uint32_t)both)
			nearest = min(nearest, i);
	}
	nearest = __reduce_min_sync(ALL_LANES, nearest);
	if (nearest == blocks)
		return blocks;
	return from + nearest < blocks ? from + nearest : from + nearest - blocks;
}

/* Take chunks of a list. @return to thread 0: number of the first one, which may be too large */
static __device__ __forceinline__ uint32_t
take_odd(uint32_t block)
{
	return lane_of_warp() == 0 ? atomicAdd(&odd_of(block)->taken, ODD_CHUNKS) : 0;
}

/* Sum of the values of the threads before this one. @param all  the sum of all threads */
static __device__ __forceinline__ uint32_t
sum_before(uint32_t value, uint32_t *all)
{
	uint32_t upto = value;

#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const uint32_t left = __shfl_up_sync(ALL_LANES, upto, d);

		upto += lane_of_warp() >= d ? left : 0;
	}
	*all = __shfl_sync(ALL_LANES, upto, 31);
	return upto - value;
}

/* Count the odd pixels of chunks from number `first` of a block's list on. */
static __device__ __forceinline__ void
odd_chunks(uint32_t block, uint32_t first, uint32_t listed)
{
	const struct gk_cuda_batch *b = &gang_state.batch;
	const uint32_t lane = lane_of_warp(), area = area_of_warp();
	const uint32_t f = lane % GK_BATCH_MAX, i = first + lane / GK_BATCH_MAX;
	const uint32_t chunk = i < listed ? __ldcg(&odd_chunks_of(block)[i]) : 0;
	const bool counts = i < listed && f < b->nb_frames;
	uint32_t *count = gang_counts() + (uint64_t)chunk * GK_BATCH_MAX + f;
	const uint32_t before = counts ? __ldcg(count) : 0;
	uint32_t lanes = counts ? __ldcg(args.odd_lanes + (count - args.counts)) : 0;
	const uint64_t words = counts ? words_of(f, chunk) : 0;
	const bool has_odd = (before & GK_CUDA_HAS_ODD) != 0;
	const uint32_t more_at = area + GK_CUDA_AT_MORE;
	uint32_t all, at, more, nnz;

	lanes = has_odd ? lanes : 0;
	at = sum_before(__popc(lanes), &all);
	store_shared_u32(more_at + lane * 4, 0);
	for (; lanes != 0; lanes &= lanes - 1, at++)
		store_shared_u32(area + at * 4, lane << ODD_FRAME | (__ffs(lanes) - 1));
	__syncwarp();
#pragma unroll 1
	for (uint32_t k = 0; k < all; k += 32) {
		const bool one = k + lane < all;
		const uint32_t entry = one ? load_shared_u32(area + (k + lane) * 4) : 0;
		const uint32_t of = entry >> ODD_FRAME;
		const uint64_t its_words = __shfl_sync(ALL_LANES, words, of);
		const uint32_t its_chunk = __shfl_sync(ALL_LANES, chunk, of);

		if (one)
			convert_thread(its_chunk, entry % (1u << ODD_FRAME), of % GK_BATCH_MAX,
				its_words, more_at + of * 4);
	}
	__syncwarp();
	more = has_odd ? load_shared_u32(more_at + lane * 4) : 0;
	nnz = more & 0xFFFF;
	if (has_odd)
		__stcg(count, (before & ~GK_CUDA_HAS_ODD) + nnz);
	/* both chunks */
	static_assert(ODD_CHUNKS == 2, "one exchange");
	more = (more >> 16) + (__shfl_down_sync(ALL_LANES, more, GK_BATCH_MAX) >> 16);
	nnz += __shfl_down_sync(ALL_LANES, nnz, GK_BATCH_MAX);
	if (lane < b->nb_frames) {
		struct tally *t = &gang_state.tally[warp_of_block()][lane];

		t->bragg += more;
		if (block == gang_state.member.block) {
			t->nnz += nnz;
		} else if (nnz != 0) {
			atomicAdd(&batch_block_nnz()[lane * args.blocks + block], nnz);
			atomicAdd(&device_batch()->sums[lane].strong_nnz, (unsigned long long)nnz);
		}
	}
	__syncwarp();
}

/*
 * Count odd pixels. The warps of a block take its listed chunks in turns. Then they take those of
 * other blocks: frames have odd pixels in neighbouring rows, so that few blocks have most of them.
 * Not with profiles, whose bins are the block's. All threads.
 */
static __device__ __noinline__ void
count_odd(void)
{
	struct gang_shared *s = &gang_state;
	uint32_t block = s->member.block, listed;

	/* copies of words, statistics and the list are written */
	__syncthreads();
	listed = s->odd;
	if (threadIdx.x == 0 && listed != 0 && !makes_profiles())
		store_release(&odd_of(block)->listed, listed);
	for (;;) {
		uint32_t next = listed != 0 ? take_odd(block) : 0, i;

		while ((i = __shfl_sync(ALL_LANES, next, 0)) < listed) {
			/* the next ones are known when these are counted */
			next = take_odd(block);
			odd_chunks(block, i, listed);
		}
		if (makes_profiles())
			break;
		block = find_odd();
		if (block == args.blocks)
			break;
		/* what the block has written before it completed the list */
		listed = (uint32_t)load_acquire((const uint64_t *)odd_of(block));
	}
	__syncwarp();
}

#endif /* GK_CUDA_ODD_CUH */
