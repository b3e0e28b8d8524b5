/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Copies of packets that their sender may overwrite at any time (GK_FRAME_TRAILER), in device
 * memory. gk_host_take.c has the protocol. A warp copies a packet, or the part of it that is in the
 * block's chunks. Each part is checked before and after, so the parts that pass belong to one
 * frame. A part that does not clears the packet's address in the pointer table.
 *
 * The loads are relaxed at system scope. The fence orders those of a thread before its last load of
 * a number, and each thread loads the numbers itself.
 */
#ifndef GK_CUDA_TAKE_CUH
#define GK_CUDA_TAKE_CUH

#include "gk_cuda_feed.cuh"

/* Chunks that a warp copies at once: two loads of 16 bytes each per thread. */
#define TAKE_CHUNKS 2

struct part {
	uint64_t packet;
	uint32_t tile;
	uint32_t frame;
	uint32_t first; /* chunks */
	uint32_t end;
};

static __device__ __forceinline__ void
copy_part(const struct part *p, uint32_t gang)
{
	const uint32_t lane = lane_of_warp();

#pragma unroll 1
	for (uint32_t c = p->first; c < p->end; c += TAKE_CHUNKS) {
		uint4 words[TAKE_CHUNKS][2];
		uint32_t inside[TAKE_CHUNKS];

#pragma unroll
		for (uint32_t k = 0; k < TAKE_CHUNKS; k++) {
			const uint32_t chunk = c + k, row = divide(chunk, args.row_chunks);
			const uint64_t word =
				(uint64_t)(row - p->tile * args.tile_rows.by) * args.geometry.cols +
				column_of(chunk);
			const uint4 *from =
				(const uint4 *)(p->packet + word * sizeof(uint16_t)) + lane;

			inside[k] = chunk < p->end ? inside_of(chunk) : 0;
			if (inside[k] & 1)
				words[k][0] = load_sys(from);
			if (inside[k] & 2)
				words[k][1] = load_sys(from + 32);
		}
#pragma unroll
		for (uint32_t k = 0; k < TAKE_CHUNKS; k++) {
			uint4 *to = (uint4 *)copy_of(gang, p->frame, c + k) + lane;

			if (inside[k] & 1)
				__stcg(to, words[k][0]);
			if (inside[k] & 2)
				__stcg(to + 32, words[k][1]);
		}
	}
}

/* @return what to add to gk_cuda_trailers.lost; 0: the copy belongs to this frame */
static __device__ __forceinline__ unsigned long long
take_part(const struct part *p, uint32_t gang, uint64_t number, bool leader)
{
	const uint64_t *trailer = (const uint64_t *)(p->packet +
		(uint64_t)args.tile_rows.by * args.geometry.cols * sizeof(uint16_t));
	const uint64_t *last = leader ? (const uint64_t *)p->packet - 1 : trailer;

	if (!__all_sync(ALL_LANES, load_acquire_sys(trailer) == number))
		return 1ull << 32;
	copy_part(p, gang);
	__threadfence_system();
	return __all_sync(ALL_LANES, load_sys(last) == number) ? 0 : 1;
}

/* Copy the block's chunks of all frames with trailers. */
static __device__ __forceinline__ void
take_all(const struct gk_cuda_batch *b, uint32_t gang, uint32_t first, uint32_t end,
	uint64_t *table, struct gk_cuda_trailers *trailers)
{
	const uint32_t tile_chunks = args.tile_rows.by * args.row_chunks.by;
	const uint32_t n = __popc(b->trailers), first_tile = first / tile_chunks;
	const uint32_t tiles = first < end ? (end + tile_chunks - 1) / tile_chunks - first_tile : 0;

	for (uint32_t i = threadIdx.x / 32; i < tiles * n; i += GK_CUDA_WARPS) {
		unsigned long long *entry;
		unsigned long long lost;
		struct part p;

		p.tile = first_tile + i / n;
		p.frame = bit_of(b->trailers, i % n);
		p.first = max(first, p.tile * tile_chunks);
		p.end = min(end, (p.tile + 1) * tile_chunks);
		entry = (unsigned long long *)table + (uint64_t)p.tile * GK_BATCH_MAX + p.frame;
		/* another block may clear it meanwhile: one thread decides for the warp */
		p.packet = __shfl_sync(ALL_LANES, __ldcg(entry), 0);
		if (p.packet == 0)
			continue;
		lost = take_part(&p, gang, __ldcg(&trailers->number[p.frame]),
			(b->frame[p.frame].flags & GK_FRAME_LEADER) != 0);
		/* a packet counts once */
		if (lost != 0 && lane_of_warp() == 0 && atomicExch(entry, 0ull) != 0)
			atomicAdd(&trailers->lost[p.frame], lost);
		__syncwarp();
	}
}

/* Write the maps of missing packets, after all blocks have copied. Each warp writes some words. */
static __device__ __forceinline__ void
write_maps(const struct gk_cuda_batch *b, uint32_t block, const uint64_t *table,
	const struct gk_cuda_trailers *trailers)
{
	const uint32_t all = args.map_words * __popc(b->trailers);

	for (uint32_t i = block * GK_CUDA_WARPS + threadIdx.x / 32; i < all;
		i += args.blocks * GK_CUDA_WARPS) {
		const uint32_t f = bit_of(b->trailers, i / args.map_words);
		const uint32_t word = i % args.map_words, tile = word * 32 + lane_of_warp();
		const bool missing = tile < args.geometry.tiles &&
			__ldcg(table + (uint64_t)tile * GK_BATCH_MAX + f) == 0;
		const uint32_t bits = __ballot_sync(ALL_LANES, missing);

		if (lane_of_warp() == 0)
			((uint32_t *)__ldcg(&trailers->map[f]))[word] = bits;
	}
}

#endif /* GK_CUDA_TAKE_CUH */
