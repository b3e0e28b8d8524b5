/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw frames and int16 images as chunks, a stage of a gang after the verdict: the warps of all
 * blocks compress the blocks of 8 KiB of the frames, in order, each to its place in the chunk.
 *
 * Photons are computed while a block is loaded, from coefficients that other blocks may have
 * stored. These blocks stored them before they counted, and no block stores further ones before all
 * have compressed.
 */
#ifndef GK_CUDA_COMPRESS_CUH
#define GK_CUDA_COMPRESS_CUH

#include "gk_cuda_bitshuffle.cuh"
#include "gk_cuda_member.cuh"
#include "gk_cuda_pixel.cuh"

/* State of a block; GK_CUDA_DECLARED has room for it in all images. */
static __shared__ struct compress_shared {
	uint32_t served; /* batches after which blocks met, so far */
} compress_state;

/* Before the first batch. All threads of a block. */
static __device__ __forceinline__ void
compress_open(void)
{
	if (threadIdx.x == 0)
		compress_state.served = 0;
}

/* Return true if the output of this kind is a chunk. */
static __device__ __forceinline__ bool
is_chunk(const struct gk_params *params, uint32_t kind)
{
	return kind <= GK_KIND_RAW && (params->chunks >> kind & 1) != 0;
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

/*
 * One thread, with the verdict: clear the size of a frame that is not a chunk, and the CRC, which
 * these gangs do not compute.
 */
static __device__ __forceinline__ void
size_of_chunk(uint32_t f, uint32_t kind)
{
	struct gk_details *details = details_of(f);

	if (!is_chunk(&gang_state.batch.params, kind))
		details->chunk_bytes = 0;
	details->chunk_crc32c = 0;
}

/*
 * Wait until the batch may read its packets: all but args.readers batches with earlier turns have
 * read theirs. These are of gangs that do not wait for this one. All threads. @return false: killed
 */
static __device__ __forceinline__ bool
begin_turn(void)
{
	struct gang_shared *s = &gang_state;

	if (s->batch.turn == 0)
		return true;
	if (threadIdx.x == 0)
		s->go = wait_count(&args.control->turns, s->batch.turn - args.readers);
	__syncthreads();
	return s->go;
}

/* One thread, when all blocks of the gang have read their packets. */
static __device__ __forceinline__ void
end_turn(void)
{
	if (gang_state.batch.turn != 0)
		arrive(&args.control->turns);
}

static __device__ __forceinline__ uint32_t
blocks_of_chunk(void)
{
	return (uint32_t)gk_bitshuffle_blocks((uint64_t)args.rows * args.geometry.cols);
}

/* Ends of the blocks of a frame's chunk (struct bitshuffle_chunk). */
static __device__ __forceinline__ uint64_t *
chunk_ends(uint32_t f)
{
	return args.chunk_ends + (batch_set() * GK_BATCH_MAX + f) * blocks_of_chunk();
}

/*
 * All threads, before the blocks of the gang meet: no block is known. The batch that used this set
 * has ended, as have all before the one before this one.
 */
static __device__ __forceinline__ void
compress_prepare(void)
{
	const uint32_t all = gang_state.batch.nb_frames * blocks_of_chunk();

	if (gang_state.batch.params.chunks == 0)
		return;
	for (uint32_t i = gang_state.member.block * GK_CUDA_THREADS + threadIdx.x; i < all;
		i += args.blocks * GK_CUDA_THREADS)
		__stcg(&chunk_ends(0)[i], 0);
}

/* Photons of two words of a chunk, as of GK_VALUE_I16. @param odd  bits of two pixels */
static __device__ __forceinline__ uint32_t
photons_of_two(const struct gk_cuda_coef *coef, uint32_t pixel, uint32_t words, float2 p, float2 r,
	uint32_t odd)
{
	const uint32_t low = words & 0xFFFF, high = words >> 16;
	int16_t x = gk_value_i16(quick_photons(low, p.x, r.x));
	int16_t y = gk_value_i16(quick_photons(high, p.y, r.y));

	if ((odd & 1) != 0 || (low & GK_RAW_GAIN_MASK) != 0)
		x = gk_value_i16(any_photons(coef, pixel, (uint16_t)low));
	if ((odd & 2) != 0 || (high & GK_RAW_GAIN_MASK) != 0)
		y = gk_value_i16(any_photons(coef, pixel + 1, (uint16_t)high));
	return (uint32_t)(uint16_t)x | (uint32_t)(uint16_t)y << 16;
}

/* Photons of 8 neighbouring words. @param chunk,pixel  of the first one */
static __device__ __forceinline__ uint4
photons_of_words(uint4 w, uint32_t chunk, uint32_t pixel)
{
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const float4 p0 = __ldcg((const float4 *)(coef->p + pixel));
	const float4 p1 = __ldcg((const float4 *)(coef->p + pixel + 4));
	const float4 r0 = __ldcg((const float4 *)(coef->r + pixel));
	const float4 r1 = __ldcg((const float4 *)(coef->r + pixel + 4));
	const uint32_t odd =
		(__ldcg(coef->hole_bits + pixel / 32) | __ldcg(coef->wild_bits + pixel / 32)) >>
		pixel % 32;

	return make_uint4(photons_of_two(coef, pixel, w.x, {p0.x, p0.y}, {r0.x, r0.y}, odd),
		photons_of_two(coef, pixel + 2, w.y, {p0.z, p0.w}, {r0.z, r0.w}, odd >> 2),
		photons_of_two(coef, pixel + 4, w.z, {p1.x, p1.y}, {r1.x, r1.y}, odd >> 4),
		photons_of_two(coef, pixel + 6, w.w, {p1.z, p1.w}, {r1.z, r1.w}, odd >> 6));
}

/* 8 neighbouring values of a frame, by their number in the frame. @param photons  an image */
static __device__ __forceinline__ uint4
values_of(const uint64_t *table, uint32_t f, bool copied, bool photons, uint32_t at)
{
	const uint32_t pixel = at * 8, row = divide(pixel, args.cols),
		       tile = divide(row, args.tile_rows);
	const uint32_t col = pixel - row * args.cols.by;
	const uint32_t chunk = row * args.row_chunks.by + col / GK_CUDA_CHUNK;
	const uint64_t packet = __ldcg(table + (uint64_t)tile * GK_BATCH_MAX + f);
	const uint32_t none = photons ? (uint16_t)GK_I16_INVALID * 0x10001u : 0xFFFFFFFFu;
	const uint16_t *from;
	uint4 words;

	if (packet == 0)
		return make_uint4(none, none, none, none);
	from = copied ? copy_of(gang_state.member.gang, f, chunk) + col % GK_CUDA_CHUNK
		      : (const uint16_t *)packet +
			(uint64_t)(row - tile * args.tile_rows.by) * args.cols.by + col;
	words = __ldcg((const uint4 *)from);
	return photons ? photons_of_words(words, chunk, col % GK_CUDA_CHUNK) : words;
}

/*
 * Words of block i of a frame, if they are in one piece: packets are whole blocks, and copies of
 * rows have no gaps. NULL: they are not, or the packet is missing.
 */
static __device__ __forceinline__ const uint4 *
raw_block(const uint64_t *table, uint32_t f, bool copied, uint32_t i)
{
	const uint64_t pixel = (uint64_t)i * GK_BITSHUFFLE_BLOCK;
	const uint32_t packet_pixels = args.tile_rows.by * args.cols.by;
	uint32_t tile;
	uint64_t packet;

	if (packet_pixels % GK_BITSHUFFLE_BLOCK != 0 ||
		(copied && args.cols.by % GK_CUDA_CHUNK != 0))
		return NULL;
	tile = i / (packet_pixels / GK_BITSHUFFLE_BLOCK);
	packet = __ldcg(table + (uint64_t)tile * GK_BATCH_MAX + f);
	if (packet == 0)
		return NULL;
	if (copied)
		return (const uint4 *)(copy_of(gang_state.member.gang, f, 0) + pixel);
	return (const uint4 *)((const uint16_t *)packet + pixel - (uint64_t)tile * packet_pixels);
}

/*
 * Wait until all blocks have compressed: a block reads copies of packets, and coefficients, that
 * others have stored and replace with those of their next batch. All threads. @return false: killed
 */
static __device__ __forceinline__ bool
compress_meet(void)
{
	struct gang_shared *s = &gang_state;
	uint32_t *compressed = &s->member.g->compressed;

	if (threadIdx.x == 0) {
		const uint32_t all = ++compress_state.served * args.blocks;

		arrive(compressed);
		s->go = wait_count(compressed, all);
	}
	__syncthreads();
	return s->go;
}

/* Write the chunks of frames (bit mask). All threads of all blocks. @return false: killed */
static __device__ __noinline__ bool
compress_frames(uint32_t frames)
{
	extern __shared__ uint4 shared_area[];
	struct bitshuffle_warp *shared =
		(struct bitshuffle_warp *)(shared_area + warp_of_block() * (GK_CUDA_AREA / 16));
	const struct gang_shared *s = &gang_state;
	const uint64_t *table = batch_table();
	const uint32_t blocks = blocks_of_chunk(), all = __popc(frames) * blocks;
	uint64_t end = 1;

	__syncthreads();
	for (uint32_t i = warp_of_block() * args.blocks + s->member.block; i < all && end != 0;
		i += GK_CUDA_WARPS * args.blocks) {
		const uint32_t f = bit_of(frames, i / blocks), block = i % blocks;
		const bool copied = args.staged || (s->batch.trailers >> f & 1);
		const bool photons = s->kind[f] == GK_KIND_IMAGE;
		const struct bitshuffle_chunk chunk = {
			(uint8_t *)(s->batch.frame[f].out + args.layout.raw), chunk_ends(f),
			(uint64_t)args.rows * args.geometry.cols};

		end = bitshuffle_block(
			shared, &chunk, block, photons ? NULL : raw_block(table, f, copied, block),
			[=](uint32_t at) {
				return values_of(table, f, copied, photons,
					block * (GK_BITSHUFFLE_BLOCK / 8) + at);
			},
			[] { return load_acquire(&args.control->killed) != 0; });
		if (block + 1 == blocks && end != 0 && lane_of_warp() == 0)
			details_of(f)->chunk_bytes = end;
	}
	if (!__syncthreads_and(end != 0))
		return false;
	if (!args.staged && (s->batch.trailers & frames) == 0 &&
		(s->batch.params.chunks >> GK_KIND_IMAGE & 1) == 0)
		return true;
	return compress_meet();
}

#endif /* GK_CUDA_COMPRESS_CUH */
