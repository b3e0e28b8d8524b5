/* SPDX-License-Identifier: BSD-3-Clause */
/* State of a block of a gang, addresses of its batch, and its waits. */
#ifndef GK_CUDA_MEMBER_CUH
#define GK_CUDA_MEMBER_CUH

#include "gk_cuda_chunk.cuh"

/* Gang and block number, and the chunks of this block. */
struct member {
	uint32_t gang;
	uint32_t block;
	uint32_t first;
	uint32_t end;
	struct gk_cuda_gang *g;
};

/*
 * The complete state of a block is in shared memory, because state in registers would stay live
 * across the loops below. Spilled coefficients cost a factor of three (measured).
 */
static __shared__ struct gang_shared {
	struct gk_cuda_batch batch;
	struct tally tally[GK_CUDA_WARPS][GK_BATCH_MAX];
	uint32_t kind[GK_BATCH_MAX];
	struct member member;
	uint32_t number; /* number of the batch */
	uint32_t served; /* batches of frames so far, including this one */
	uint32_t took;	 /* batches with trailers among them */
	uint32_t go;
	uint32_t last;	   /* this block was the last one to count */
	uint32_t searched; /* bit mask of frames whose peaks were searched */
	uint32_t odd;	   /* chunks of this block with odd pixels */
} gang_state;

/* Addresses of a batch's data in device memory. @{ */
static __device__ __forceinline__ struct gk_cuda_batch *
device_batch(void)
{
	return &gang_state.member.g->batch[gang_state.number & 1];
}

static __device__ __forceinline__ uint64_t
batch_set(void)
{
	return (uint64_t)gang_state.member.gang * 2 + (gang_state.number & 1);
}

static __device__ __forceinline__ struct gk_cuda_trailers *
device_trailers(void)
{
	return &gang_state.member.g->trailers[gang_state.number & 1];
}

/* Options of the batch's search for peaks. */
static __device__ __forceinline__ const struct gk_peak_params *
device_peak_params(void)
{
	return &gang_state.member.g->peak[gang_state.number & 1];
}

static __device__ __forceinline__ uint64_t *
batch_table(void)
{
	return args.tables + batch_set() * args.geometry.tiles * GK_BATCH_MAX;
}

/* By parity of the batches of frames: each of them clears those of the next one. @{ */
static __device__ __forceinline__ uint32_t *
block_nnz_of(uint32_t served)
{
	return args.block_nnz +
		((uint64_t)gang_state.member.gang * 2 + (served & 1)) * GK_BATCH_MAX * args.blocks;
}

static __device__ __forceinline__ uint32_t *
batch_block_nnz(void)
{
	return block_nnz_of(gang_state.served);
}
/** @} */

static __device__ __forceinline__ uint32_t *
gang_counts(void)
{
	return args.counts + (uint64_t)gang_state.member.gang * args.chunks * GK_BATCH_MAX;
}

static __device__ __forceinline__ struct gk_cuda_coef *
batch_coef(void)
{
	return args.coef + (uint64_t)gang_state.batch.coef * args.chunks;
}
/** @} */

/* Results and details have the same size. */
static __device__ __forceinline__ struct gk_details *
details_of(uint32_t f)
{
	return (struct gk_details *)((uint8_t *)args.details +
		(gang_state.batch.frame[f].result - (uint64_t)args.results));
}

static __device__ __forceinline__ uint32_t
warp_of_block(void)
{
	return threadIdx.x / 32;
}

/* One thread: wait until a batch is ready, or no more batches follow. */
static __device__ bool
wait_ready(struct gk_cuda_gang *g, uint32_t batch)
{
	for (;;) {
		/*
		 * `ready` and `end` together: batches set up before the end are seen and processed.
		 */
		const uint64_t both = load_acquire((const uint64_t *)&g->ready);

		if ((uint32_t)both != batch)
			return true;
		if (both >> 32 != 0)
			return false;
		__nanosleep(20);
	}
}

/* One thread: wait until the counter shows that all blocks of the gang have arrived. */
static __device__ bool
wait_count(const uint32_t *counter, uint32_t wanted)
{
	while ((int32_t)(load_acquire(counter) - wanted) < 0) {
		if (load_acquire(&args.control->killed) != 0)
			return false;
		__nanosleep(20);
	}
	return true;
}

/* One thread: packets of the batch are not read again. */
static __device__ __forceinline__ void
release_packets(void)
{
	const struct member *m = &gang_state.member;

	store_release_sys(
		&args.channel->done[m->gang].raw, args.first[m->gang] + gang_state.number + 1);
}

/* Chunks of the block that this warp processes. */
static __device__ __forceinline__ uint32_t
chunks_of_warp(uint32_t begin, uint32_t end)
{
	const uint32_t warp = warp_of_block(), all = end - begin;

	return all > warp ? (all - warp + GK_CUDA_WARPS - 1) / GK_CUDA_WARPS : 0;
}

/* Whether the batch has fewer frames than are read ahead (LEAD_FEW). */
static __device__ __forceinline__ bool
few_frames(void)
{
	return gang_state.batch.nb_frames < LEAD;
}

/* Address of a frame's words of a chunk of this block, once counted; 0: the packet is missing. */
static __device__ __forceinline__ uint64_t
words_of(uint32_t f, uint32_t chunk)
{
	const uint32_t row = divide(chunk, args.row_chunks), tile = divide(row, args.tile_rows);
	const uint64_t packet = __ldcg(batch_table() + (uint64_t)tile * GK_BATCH_MAX + f);

	if (packet == 0)
		return 0;
	if (args.staged || (gang_state.batch.trailers >> f & 1))
		return (uint64_t)copy_of(gang_state.member.gang, f, chunk);
	return packet +
		((uint64_t)(row - tile * args.tile_rows.by) * args.geometry.cols +
			column_of(chunk)) *
		sizeof(uint16_t);
}

/* Result of a frame's search for peaks. */
struct found {
	uint32_t peaks;
	uint32_t found; /* gk_result.peaks_found */
	bool enough;	/* the peaks meet the limits of the veto, or are not searched at all */
};

/*
 * The stage of the search, in a separate kernel: with it in the same kernel, registers of other
 * stages were spilled. Without it there is no map of pixels, and setup refuses to search. @{
 */
#ifndef GK_CUDA_SEARCH
static __device__ __forceinline__ void
search_open(void)
{
}

static __device__ __forceinline__ bool
search_frames(void)
{
	return true;
}

static __device__ __forceinline__ struct found
found_of(uint32_t f)
{
	return {0, GK_NOT_SEARCHED, true};
}

static __device__ __forceinline__ uint32_t
lists_of_batch(void)
{
	return 0;
}

static __device__ __forceinline__ void
output_lists(uint32_t listed)
{
}
#endif
/** @} */

/*
 * Raw frames and images as chunks, in a separate kernel for the same reason. Without them setup
 * refuses parameters that ask for some. @{
 */
#ifndef GK_CUDA_COMPRESS
static __device__ __forceinline__ void
compress_open(void)
{
}

static __device__ __forceinline__ bool
begin_turn(void)
{
	return true;
}

static __device__ __forceinline__ void
end_turn(void)
{
}

static __device__ __forceinline__ void
compress_prepare(uint64_t set, uint32_t frames)
{
}

static __device__ __forceinline__ void
size_of_chunk(uint32_t f, uint32_t kind)
{
}

static __device__ __forceinline__ uint32_t
chunks_of(uint32_t kept)
{
	return 0;
}

template <bool counts>
static __device__ __forceinline__ bool
compress_frames(uint32_t frames)
{
	return true;
}

static __device__ __forceinline__ void
compress_close(void)
{
}
#endif
/** @} */

/* The stage of radial profiles, in a separate kernel for the same reason. @{ */
#ifdef GK_CUDA_PROFILE
static __device__ __forceinline__ bool
makes_profiles(void)
{
	return args.profiles != NULL;
}

/*
 * Whether the photons of the batch are added while they are counted: there is room for the bins,
 * and no image is written meanwhile, which needs the registers.
 */
static __device__ __forceinline__ bool
profile_joins(void)
{
	const struct member *m = &gang_state.member;

	return makes_profiles() && args.bins < PROFILE_BINS && gang_state.batch.direct == 0 &&
		m->end - m->first <= PROFILE_CHUNKS;
}

/* Sums of a frame of the batch in device memory; GK_BATCH_MAX: those of all frames. */
static __device__ __forceinline__ struct gk_cuda_profile_sum *
profile_sums(uint32_t f)
{
	return args.profile_sums + (batch_set() * (GK_BATCH_MAX + 1) + f) * args.bins;
}

static __device__ void profile_odd(
	uint32_t chunk, uint32_t pixel, uint32_t f, float quick, float x);
#else
static __device__ __forceinline__ bool
makes_profiles(void)
{
	return false;
}

static __device__ __forceinline__ bool
profile_joins(void)
{
	return false;
}

static __device__ __forceinline__ struct gk_cuda_profile_sum *
profile_sums(uint32_t f)
{
	return NULL;
}

static __device__ __forceinline__ void
profile_open(void)
{
}

static __device__ __forceinline__ void
profile_odd(uint32_t chunk, uint32_t pixel, uint32_t f, float quick, float x)
{
}

static __device__ __forceinline__ void
profile_frames(void)
{
}

static __device__ __forceinline__ void
profile_write(void)
{
}

static __device__ __forceinline__ void
profile_close(void)
{
}
#endif
/** @} */

#endif /* GK_CUDA_MEMBER_CUH */
