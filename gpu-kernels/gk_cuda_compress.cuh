/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw frames and int16 images as chunks, a stage of a gang after the verdict: the warps of all
 * blocks compress the blocks of 8 KiB of the frames, each to its place in the chunk. They take
 * block 0 of each frame, then block 1 of each frame, and so on: the warp of the block before has
 * then begun earlier, and a warp seldom waits for it.
 *
 * Photons are computed while a block is loaded, from coefficients that other blocks may have
 * stored. These blocks stored them before they counted, and no block stores further ones before all
 * have compressed.
 *
 * If all frames of a batch are certain to become raw chunks (gk_cuda_batch.one_pass), a warp counts
 * a block while it has its words in shared memory, and compresses it at once. So the gang reads and
 * writes at the same time, and copies no packets. Its blocks have no barrier.
 */
#ifndef GK_CUDA_COMPRESS_CUH
#define GK_CUDA_COMPRESS_CUH

#include "gk_cuda_bitshuffle.cuh"
#include "gk_cuda_crc.cuh"
#include "gk_cuda_odd.cuh"

/* State of a block; GK_CUDA_DECLARED has room for it in all images. */
static __shared__ struct compress_shared {
	uint32_t served; /* batches that have ended with a barrier, so far */
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

/* One thread, with the verdict: clear the size and the CRC of a frame that is not a chunk. */
static __device__ __forceinline__ void
size_of_chunk(uint32_t f, uint32_t kind)
{
	struct gk_details *details = details_of(f);

	if (!is_chunk(&gang_state.batch.params, kind)) {
		details->chunk_bytes = 0;
		details->chunk_crc32c = 0;
	}
}

/*
 * Wait until the batch may read its packets: all but args.readers batches with earlier turns have
 * read theirs. Those batches are in gangs that do not wait for this one. All threads. @return
 * false: killed
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

/* Ends of the blocks of a frame's chunk (struct bitshuffle_chunk). */
static __device__ __forceinline__ uint64_t *
chunk_ends(uint32_t f)
{
	return args.chunk_ends + (batch_set() * GK_BATCH_MAX + f) * args.chunk_blocks;
}

/* The sum over the blocks of a frame's chunk (gk_cuda_crc.cuh). */
static __device__ __forceinline__ uint32_t *
chunk_crc(uint32_t f)
{
	return args.chunk_crc + batch_set() * GK_BATCH_MAX + f;
}

/*
 * All threads of the dispatcher block, before it hands over a batch: no block of the chunks is
 * known or taken. The batch that used this set has ended.
 */
static __device__ __forceinline__ void
compress_prepare(uint64_t set, uint32_t frames)
{
	uint64_t *ends = args.chunk_ends + set * GK_BATCH_MAX * args.chunk_blocks;

	for (uint32_t i = threadIdx.x; i < frames * args.chunk_blocks; i += GK_CUDA_THREADS)
		__stcg(&ends[i], 0);
	if (threadIdx.x < GK_BATCH_MAX)
		__stcg(&args.chunk_crc[set * GK_BATCH_MAX + threadIdx.x], 0);
	if (threadIdx.x == 0)
		__stcg(&args.chunk_next[set], 0);
}

/* All threads of the last block, when all have compressed: write sizes and CRCs of the chunks. */
static __device__ __noinline__ void
compress_close(void)
{
	const uint32_t chunks = chunks_of(UINT32_MAX), last = args.chunk_blocks - 1;

	for (uint32_t f = warp_of_block(); f < GK_BATCH_MAX; f += GK_CUDA_WARPS) {
		uint64_t size;
		uint32_t crc;

		if (!(chunks >> f & 1))
			continue;
		size = __ldcg(&chunk_ends(f)[last]) & ~BITSHUFFLE_END;
		crc = crc_of_chunk(args.crc, __ldcg(chunk_crc(f)), size);
		if (lane_of_warp() == 0) {
			details_of(f)->chunk_bytes = size;
			details_of(f)->chunk_crc32c = crc;
		}
	}
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
	uint32_t tile;
	uint64_t packet;

	if (args.tile_blocks.by == 0 || (copied && args.cols.by % GK_CUDA_CHUNK != 0))
		return NULL;
	tile = divide(i, args.tile_blocks);
	packet = __ldcg(table + (uint64_t)tile * GK_BATCH_MAX + f);
	if (packet == 0)
		return NULL;
	if (copied)
		return (const uint4 *)(copy_of(gang_state.member.gang, f, 0) + pixel);
	return (const uint4 *)packet +
		(uint64_t)(i - tile * args.tile_blocks.by) * (GK_BITSHUFFLE_BYTES / 16);
}

/*
 * Wait until all blocks have compressed: a block reads copies of packets, and coefficients, that
 * others have stored and replace with those of their next batch. All threads. @return false: killed
 */
static __device__ __forceinline__ bool
compress_barrier(void)
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

/* Shared memory of a block. */
struct compress_area {
	struct bitshuffle_warp warp[GK_CUDA_WARPS];
	struct crc_tables crc;
};
static_assert(sizeof(struct compress_area) <= GK_CUDA_SHARED, "in place of words");

static __device__ __forceinline__ struct compress_area *
compress_area_of_block(void)
{
	extern __shared__ uint4 shared_area[];

	return (struct compress_area *)shared_area;
}

/* 8 values of the block in the room, by their number / 8. */
static __device__ __forceinline__ uint4 *
placed_at(struct bitshuffle_warp *s, uint32_t at)
{
	return &s->room[BITSHUFFLE_PLAIN / 16 + bitshuffle_place(at / 4, at % 4)];
}

/* Statistics of a frame's block; all threads have the same. */
struct block_counts {
	int32_t sum;
	uint32_t strong_nnz; /* strong count << 16 | nnz */
	uint32_t holes;
};

/*
 * Count a chunk of the block in the room, as count_chunk() does for few frames, and its odd pixels.
 * @param at       number / 8 of the chunk's first value in the block
 * @param counter  of convert_odd()
 */
static __device__ __forceinline__ void
count_placed(struct bitshuffle_warp *s, uint32_t f, uint32_t chunk, uint32_t at, uint32_t counter,
	struct block_counts *n)
{
	const struct gk_params *params = &gang_state.batch.params;
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const uint32_t lane = lane_of_warp();
	const bool low = all_odd(params, true);
	const auto quarter = [=](uint32_t k) {
		return ((const uint2 *)placed_at(s, at + k * 16 + lane / 2))[lane % 2];
	};
	float x[GK_CUDA_LANE];
	struct lane_counts l;
	struct lane_coef c;
	uint2 w[4], known; /* holes, wild pixels */

	known = load_coef_far(&c, coef, NO_WORDS);
#pragma unroll
	for (uint32_t k = 0; k < 4; k++)
		w[k] = quarter(k);
	l = counts_of(w, &c, params, true, x);
	n->holes += known.x;
	if (__any_sync(ALL_LANES, !all_g0(w) || known.y != 0 || low)) {
		const uint32_t bits = low ? ALL_BITS : odd_bits(quarter, coef, known.y);

		convert_words(chunk, lane, f, w, true, counter);
		l.below_bragg |= bits;
		l.below_csr |= bits;
		__syncwarp();
	}
	n->strong_nnz += GK_CUDA_CHUNK * 0x10001u -
		__reduce_add_sync(
			ALL_LANES, (uint32_t)__popc(l.below_bragg) << 16 | __popc(l.below_csr));
	n->sum += (int32_t)(__reduce_add_sync(ALL_LANES, l.sum) - GK_CUDA_CHUNK * SUM_NOTHING);
}

/* Copy the words of a whole block to the room, or those of a missing packet, and count them. */
static __device__ __noinline__ void
count_block(struct bitshuffle_warp *s, uint32_t f, uint32_t block)
{
	const uint32_t chunks = GK_BITSHUFFLE_BLOCK / GK_CUDA_CHUNK, lane = lane_of_warp();
	/* the compressor has no bits yet */
	const uint32_t counter = (uint32_t)__cvta_generic_to_shared(s->bits);
	const uint4 *from = raw_block(batch_table(), f, false, block);
	struct tally *t = &gang_state.tally[warp_of_block()][f];
	struct block_counts n = {0, 0, 0};
	const uint32_t none = 0xFFFFFFFF;

	__syncwarp(); /* all have used the previous block */
	if (from == NULL) {
#pragma unroll 1
		for (uint32_t k = 0; k < BITSHUFFLE_WORDS; k += 32)
			*placed_at(s, k + lane) = make_uint4(none, none, none, none);
		if (lane == 0)
			t->invalid += GK_BITSHUFFLE_BLOCK;
		return;
	}
#pragma unroll
	for (uint32_t k = 0; k < BITSHUFFLE_WORDS; k += 32)
		copy_lines((uint32_t)__cvta_generic_to_shared(placed_at(s, k + lane)),
			(uint64_t)(from + k + lane));
	copy_commit();
	if (lane == 0)
		store_shared_u32(counter, 0);
	copy_wait<0>();
	__syncwarp();
#pragma unroll 1
	for (uint32_t i = 0; i < chunks; i++)
		count_placed(s, f, block * chunks + i, i * (GK_CUDA_CHUNK / 8), counter, &n);
	if (lane == 0) {
		n.strong_nnz += load_shared_u32(counter);
		t->sum += n.sum;
		t->bragg += n.strong_nnz >> 16;
		t->nnz += n.strong_nnz & 0xFFFF;
		t->invalid += n.holes;
	}
}

/*
 * Write the chunks of frames (bit mask). All threads of all blocks.
 * @param counts  count the frames, too
 * @return false: killed
 */
template <bool counts>
static __device__ __noinline__ bool
compress_frames(uint32_t frames)
{
	struct compress_area *area = compress_area_of_block();
	struct bitshuffle_warp *shared = &area->warp[warp_of_block()];
	const struct gang_shared *s = &gang_state;
	const uint64_t *table = batch_table();
	const uint32_t n = __popc(frames), all = n * args.chunk_blocks;
	struct crc_lane lane;
	uint64_t end = 1;

	__syncthreads();
	lane = crc_open(&area->crc, args.crc, GK_CUDA_THREADS);
	__syncthreads();
	for (uint32_t i = warp_of_block() * args.blocks + s->member.block, next = 0; i < all;
		i = __shfl_sync(ALL_LANES, next, 0)) {
		const uint32_t block = i / n, f = bit_of(frames, i - block * n);
		const bool copied = args.staged || (s->batch.trailers >> f & 1);
		const bool photons = !counts && s->kind[f] == GK_KIND_IMAGE;
		const struct bitshuffle_chunk chunk = {
			(uint8_t *)(s->batch.frame[f].out + args.layout.raw), chunk_ends(f),
			(uint64_t)args.rows * args.geometry.cols};
		const uint4 *from = counts || photons ? NULL : raw_block(table, f, copied, block);
		struct bitshuffle_words words;
		struct crc_back back;
		uint32_t size, crc, behind;

		if (counts)
			count_block(shared, f, block);
		else if (from != NULL)
			bitshuffle_load(&words, from);
		size = bitshuffle_pack(
			shared, &chunk, block, from != NULL ? &words : NULL, [=](uint32_t at) {
				return counts ? *placed_at(shared, at)
					      : values_of(table, f, copied, photons,
							block * (GK_BITSHUFFLE_BLOCK / 8) + at);
			});
		crc = crc_of(&area->crc, &lane, shared->room, bitshuffle_words_of(size), &behind);
		end = bitshuffle_find(&chunk, block, size,
			[] { return load_acquire(&args.control->killed) != 0; });
		if (end == 0)
			break;
		/* not before: other warps wait for this block from now on */
		if (lane_of_warp() == 0)
			next = GK_CUDA_WARPS * args.blocks +
				atomicAdd(&args.chunk_next[batch_set()], 1);
		/* the zeros begin at the end of the last word */
		behind += bitshuffle_words_of(size) * 16 - GK_BITSHUFFLE_HEADER - size;
		back = crc_back_from(args.crc, end + behind);
		bitshuffle_write(shared, &chunk, block, size, end);
		crc = crc_times(&lane, crc, &back);
		if (lane_of_warp() == 0)
			atomicXor(chunk_crc(f), crc);
	}
	if (!__syncthreads_and(end != 0))
		return false;
	/* one pass uses nothing that a block replaces before all have counted */
	if (counts ||
		(!args.staged && (s->batch.trailers & frames) == 0 &&
			(s->batch.params.chunks >> GK_KIND_IMAGE & 1) == 0))
		return true;
	return compress_barrier();
}

#endif /* GK_CUDA_COMPRESS_CUH */
