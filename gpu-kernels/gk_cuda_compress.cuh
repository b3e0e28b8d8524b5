/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw frames as chunks, a stage of a gang after the verdict: every block compresses its share of
 * the blocks of 8 KiB of each frame into device memory. When all have done so the sizes are known,
 * and every block copies its share to the output slots.
 */
#ifndef GK_CUDA_COMPRESS_CUH
#define GK_CUDA_COMPRESS_CUH

#include "gk_cuda_bitshuffle.cuh"
#include "gk_cuda_member.cuh"

GK_STATIC_ASSERT(sizeof(struct bitshuffle_shared) <= GK_CUDA_SHARED, "in place of words");

/* State of a block; GK_CUDA_DECLARED has room for it in all images. */
static __shared__ struct compress_shared {
	uint32_t served; /* batches with chunks so far */
} compress_state;

/* Before the first batch. All threads of a block. */
static __device__ __forceinline__ void
compress_open(void)
{
	if (threadIdx.x == 0)
		compress_state.served = 0;
}

/* Is the output of this kind a chunk? */
static __device__ __forceinline__ bool
is_chunk(const struct gk_params *params, uint32_t kind)
{
	return kind == GK_KIND_RAW && (params->chunks >> GK_KIND_RAW & 1) != 0;
}

/* Those of the frames that are written as chunks (bit masks). */
static __device__ __forceinline__ uint32_t
chunks_of(uint32_t kept)
{
	const struct gang_shared *s = &gang_state;
	uint32_t chunks = 0;

	for (uint32_t i = 0; i < s->batch.nb_frames; i++)
		if (is_chunk(&s->batch.params, s->kind[i]))
			chunks |= 1u << i;
	return kept & chunks;
}

/* One thread, with the verdict: clear the size of a frame that is not a chunk. */
static __device__ __forceinline__ void
size_of_chunk(uint32_t f, uint32_t kind)
{
	if (!is_chunk(&gang_state.batch.params, kind))
		details_of(f)->chunk_bytes = 0;
}

static __device__ __forceinline__ struct bitshuffle_places
places_of_frame(uint32_t f)
{
	const uint64_t frame = (uint64_t)gang_state.member.gang * GK_BATCH_MAX + f;
	const uint64_t n = (uint64_t)args.rows * args.geometry.cols;
	const uint64_t first = frame * gk_bitshuffle_blocks(n);

	return {(uint4 *)(args.places + first * GK_CUDA_PLACE), args.place_size + first, n};
}

/* 8 neighbouring pixels of a frame, by their number in the frame. */
static __device__ __forceinline__ uint4
raw_words(const uint64_t *table, uint32_t f, bool copied, uint32_t at)
{
	const uint32_t pixel = at * 8, row = divide(pixel, args.cols),
		       tile = divide(row, args.tile_rows);
	const uint32_t col = pixel - row * args.cols.by;
	const uint64_t packet = __ldcg(table + (uint64_t)tile * GK_BATCH_MAX + f);
	const uint32_t none = 0xFFFFFFFFu;
	const uint16_t *from;

	if (packet == 0)
		return make_uint4(none, none, none, none);
	from = copied ? copy_of(gang_state.member.gang, f,
				row * args.row_chunks.by + col / GK_CUDA_CHUNK) +
			col % GK_CUDA_CHUNK
		      : (const uint16_t *)packet +
			(uint64_t)(row - tile * args.tile_rows.by) * args.cols.by + col;
	return __ldcg((const uint4 *)from);
}

/* Write the chunks of frames (bit mask). All threads of all blocks. @return false: killed */
static __device__ __noinline__ bool
compress_frames(uint32_t frames)
{
	extern __shared__ uint4 shared_area[];
	struct bitshuffle_shared *shared = (struct bitshuffle_shared *)shared_area;
	struct gang_shared *s = &gang_state;
	const struct member *m = &gang_state.member;
	const uint64_t *table = batch_table();

	__syncthreads();
	for (uint32_t left = frames; left != 0; left &= left - 1) {
		const uint32_t f = __ffs(left) - 1;
		const bool copied = args.staged || (s->batch.trailers >> f & 1);
		const struct bitshuffle_places p = places_of_frame(f);

		bitshuffle_frame(shared, &p, m->block, args.blocks,
			[=](uint64_t i) { return raw_words(table, f, copied, (uint32_t)i); });
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		const uint32_t all = ++compress_state.served * args.blocks;

		arrive(&m->g->compressed);
		s->go = wait_count(&m->g->compressed, all);
	}
	__syncthreads();
	if (!s->go)
		return false;
	for (uint32_t left = frames; left != 0; left &= left - 1) {
		const uint32_t f = __ffs(left) - 1;
		const struct bitshuffle_places p = places_of_frame(f);
		const uint64_t size = bitshuffle_pack(shared, &p, m->block, args.blocks,
			(uint8_t *)(s->batch.frame[f].out + args.layout.raw));

		if (m->block == args.blocks - 1 && threadIdx.x == 0)
			details_of(f)->chunk_bytes = size;
	}
	return true;
}

#endif /* GK_CUDA_COMPRESS_CUH */
