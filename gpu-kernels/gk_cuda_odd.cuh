/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Statistics of odd pixels (gk_cuda_pixel.cuh), after those of all others. Warps read the words of
 * frames and chunks with odd pixels again and list the pixels in shared memory, then each thread
 * converts one of the list. Their coefficients come from device memory: conversion by the threads
 * that find the pixels, one after the other, takes several times as long. While frames are counted,
 * a list costs registers.
 */
#ifndef GK_CUDA_ODD_CUH
#define GK_CUDA_ODD_CUH

#include "gk_cuda_member.cuh"

/* An entry of the list is the word | pixel << ODD_PIXEL | frame << ODD_FRAME. */
#define ODD_PIXEL 16
#define ODD_FRAME 25
/* With more entries, there may be no room for another pixel of each thread. */
#define ODD_FEW (GK_CUDA_ODD - 32)
/* Frames whose words are read ahead */
#define ODD_AHEAD 2

/* 16 words of a thread: 8 neighbouring pixels of each half of a chunk. */
struct odd_words {
	uint32_t w[8];
};

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
 */
static __device__ __forceinline__ void
convert_odd(uint32_t chunk, uint32_t area, uint32_t entry)
{
	const uint16_t word = (uint16_t)entry;
	const uint32_t pixel = entry >> ODD_PIXEL & (GK_CUDA_CHUNK - 1), f = entry >> ODD_FRAME;
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
		add_shared_u32(area + GK_CUDA_AT_MORE + f * 4, more);
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

/* Convert up to 32 of the pixels of the list. @return how many are left */
static __device__ __forceinline__ uint32_t
convert_listed(uint32_t chunk, uint32_t area, uint32_t listed)
{
	const uint32_t left = listed > 32 ? listed - 32 : 0, mine = left + lane_of_warp();

	__syncwarp();
	if (mine < listed)
		convert_odd(chunk, area, load_shared_u32(area + GK_CUDA_AT_ODD + mine * 4));
	__syncwarp();
	return left;
}

/* @param words  address of the frame's words of the chunk */
static __device__ __forceinline__ struct odd_words
read_odd(uint64_t words, uint32_t inside)
{
	const uint4 *from = (const uint4 *)words + lane_of_warp();
	const uint4 none = make_uint4(0, 0, 0, 0);
	const uint4 x = inside & 1 ? __ldcg(from) : none, y = inside & 2 ? __ldcg(from + 32) : none;

	return {{x.x, x.y, x.z, x.w, y.x, y.y, y.z, y.w}};
}

/* Bit mask of a thread's words that are not in G0. */
static __device__ __forceinline__ uint32_t
odd_mask(const struct odd_words *o)
{
	uint32_t halves[2];

#pragma unroll
	for (int h = 0; h < 2; h++) {
		const uint32_t *w = o->w + 4 * h;
		int32_t minus = weigh(signs_of(gain_signs(w[0]), gain_signs(w[1])), 0x08040201, 0);

		minus = weigh(signs_of(gain_signs(w[2]), gain_signs(w[3])), 0x80402010, minus);
		halves[h] = (uint32_t)-minus;
	}
	return halves[0] | halves[1] << 8;
}

/*
 * List odd pixels of a frame.
 * @param odd     bit mask of this thread's
 * @param listed  entries of the list
 * @return        entries of the list now
 */
static __device__ __forceinline__ uint32_t
list_odd(uint32_t chunk, uint32_t area, uint32_t f, const struct odd_words *o, uint32_t odd,
	uint32_t listed)
{
	const uint32_t lane = lane_of_warp();
	uint32_t some;

#pragma unroll 1
	while ((some = __ballot_sync(ALL_LANES, odd != 0)) != 0) {
		if (listed > ODD_FEW)
			listed = convert_listed(chunk, area, listed);
		if (odd != 0) {
			const uint32_t i = __ffs(odd) - 1, pixel = i / 8 * HALF + lane * 8 + i % 8;
			const uint32_t at = listed + __popc(some & ((1u << lane) - 1));
			uint32_t two = o->w[0];

#pragma unroll
			for (uint32_t k = 1; k < 8; k++)
				two = i / 2 == k ? o->w[k] : two;
			store_shared_u32(area + GK_CUDA_AT_ODD + at * 4,
				(two >> i % 2 * 16 & 0xFFFF) | pixel << ODD_PIXEL | f << ODD_FRAME);
			odd &= odd - 1;
		}
		listed += __popc(some);
	}
	return listed;
}

/* Count the odd pixels of a chunk. */
static __device__ __forceinline__ void
odd_chunk(uint32_t chunk, uint32_t area)
{
	const struct gk_cuda_batch *b = &gang_state.batch;
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const uint32_t lane = lane_of_warp(), inside = inside_of(chunk);
	const uint32_t mine = (inside & 1 ? 0xFFu : 0) | (inside & 2 ? 0xFF00u : 0);
	const uint8_t *wild = (const uint8_t *)coef->wild_bits + lane;
	const bool counts = lane < b->nb_frames;
	uint32_t *count = gang_counts() + (uint64_t)chunk * GK_BATCH_MAX + lane;
	const uint64_t words = counts ? words_of(lane, chunk) : 0;
	const uint32_t before = counts ? __ldcg(count) : 0;
	uint32_t always = __ldcg(wild) | (uint32_t)__ldcg(wild + HALF / 8) << 8;
	uint32_t frames = __ballot_sync(ALL_LANES, (before & GK_CUDA_HAS_ODD) != 0);
	uint32_t ahead = frames, listed = 0;
	struct odd_words o[ODD_AHEAD + 1] = {};

	always = (all_odd(&b->params, few_frames()) ? 0xFFFFu : always) & mine;
	if (counts)
		store_shared_u32(area + GK_CUDA_AT_MORE + lane * 4, 0);
#pragma unroll 1
	for (int skip = ODD_AHEAD; frames != 0; skip--) {
		const uint32_t f = __ffs(frames) - 1;

#pragma unroll
		for (int i = 0; i < ODD_AHEAD; i++)
			o[i] = o[i + 1];
		if (ahead != 0)
			o[ODD_AHEAD] =
				read_odd(__shfl_sync(ALL_LANES, words, __ffs(ahead) - 1), inside);
		ahead &= ahead - 1;
		if (skip > 0)
			continue;
		frames &= frames - 1;
		listed = list_odd(chunk, area, f, &o[0], (odd_mask(&o[0]) | always) & mine, listed);
	}
	while (listed != 0)
		listed = convert_listed(chunk, area, listed);
	if (counts && (before & GK_CUDA_HAS_ODD) != 0) {
		const uint32_t more = load_shared_u32(area + GK_CUDA_AT_MORE + lane * 4);
		struct tally *t = &gang_state.tally[warp_of_block()][lane];

		__stcg(count, (before & ~GK_CUDA_HAS_ODD) + (more & 0xFFFF));
		t->bragg += more >> 16;
		t->nnz += more & 0xFFFF;
	}
}

/*
 * Count the odd pixels of this warp's chunks.
 * @param found  bit mask of its chunks that have some, by number modulo 32
 */
static __device__ __noinline__ void
count_odd(uint32_t found)
{
	const struct member *m = &gang_state.member;
	const uint32_t chunks = chunks_of_warp(m->first, m->end);

	/* copies of words, and statistics, that other threads of this warp have written */
	__syncwarp();
#pragma unroll 1
	for (uint32_t i = 0; i < chunks; i++)
		if (found >> i % 32 & 1)
			odd_chunk(m->first + warp_of_block() + i * GK_CUDA_WARPS, area_of_warp());
	__syncwarp();
}

#endif /* GK_CUDA_ODD_CUH */
