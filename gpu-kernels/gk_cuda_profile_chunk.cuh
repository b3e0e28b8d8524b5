/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Photons of a chunk, added to radial profiles while the chunk is counted: no word is read twice.
 * The bins of a frame are in the part of shared memory to which coefficients are copied otherwise,
 * two frames in the area of each warp.
 *
 * The fast path adds its result for each word. For pixels that it cannot convert, this result is
 * subtracted later (profile_odd() in gk_cuda_profile.cuh). The sums are those of integers modulo
 * 2^32. Photons that the fast path cannot give are not in them, so that a block may add
 * PROFILE_CHUNKS. Pixels that are not valid in G0 are 0 on the fast path; they are counted once for
 * all frames.
 */
#ifndef GK_CUDA_PROFILE_CHUNK_CUH
#define GK_CUDA_PROFILE_CHUNK_CUH

#include "gk_cuda_chunk.cuh"
#include "gk_radial.h"

/* Chunks whose photons fit into 32 bits: of any int16 image, of the fast path. @{ */
#define PROFILE_PART   (GK_RADIAL_PART / GK_CUDA_CHUNK)
#define PROFILE_CHUNKS 512
/** @} */
/* Bins of a frame, with that of pixels in no bin */
#define PROFILE_BINS 1024

#define PROFILE_AT_MAP (GK_CUDA_AT_KEPT + 2 * PROFILE_BINS * 4) /* bins of a chunk's pixels */

GK_STATIC_ASSERT((uint64_t)PROFILE_CHUNKS *GK_CUDA_CHUNK *QUICK_MOST <= INT32_MAX,
	"sums of the fast path fit");
GK_STATIC_ASSERT(
	PROFILE_AT_MAP + GK_CUDA_CHUNK * 2 <= GK_CUDA_AT_FIRST && GK_BATCH_MAX <= 2 * GK_CUDA_WARPS,
	"the bins of all frames have room");

/* Pixels of a thread; their bins are in shared memory, because registers are few. */
struct profile_lane {
	uint32_t map;
	/* bit mask: the next pixel of the thread is not a neighbour of the same bin */
	uint32_t ends;
};

/* Address of a frame's bins in shared memory. */
static __device__ __forceinline__ uint32_t
profile_at(uint32_t f)
{
	extern __shared__ uint4 shared_area[];

	return (uint32_t)__cvta_generic_to_shared(shared_area) + f / 2 * GK_CUDA_AREA +
		GK_CUDA_AT_KEPT + f % 2 * (PROFILE_BINS * 4);
}

static __device__ __forceinline__ const uint16_t *
profile_bins(uint32_t chunk)
{
	return args.bin + (uint64_t)chunk * GK_CUDA_CHUNK;
}

static __device__ __forceinline__ void
profile_load(struct profile_lane *l, uint32_t chunk)
{
	l->map = area_of_warp() + PROFILE_AT_MAP + lane_of_warp() * 8;
	l->ends = 0x8888;
#pragma unroll
	for (int k = 0; k < 4; k++) {
		const uint2 b = __ldcg((const uint2 *)(profile_bins(chunk) + pixel_of(4 * k)));
		const uint32_t first = b.x ^ b.x >> 16, second = b.x >> 16 ^ b.y,
			       third = b.y ^ b.y >> 16;

		store_shared_u64(l->map + k * 256, (uint64_t)b.y << 32 | b.x);
		l->ends |= (uint32_t)((first & 0xFFFF) != 0) << 4 * k;
		l->ends |= (uint32_t)((second & 0xFFFF) != 0) << (4 * k + 1);
		l->ends |= (uint32_t)((third & 0xFFFF) != 0) << (4 * k + 2);
	}
}

/* Fetch the data of a chunk into the L2 cache. */
static __device__ __forceinline__ void
profile_prefetch(const struct gk_cuda_coef *coef, uint32_t chunk)
{
	const uint32_t lane = lane_of_warp();
	const uint8_t *from = (const uint8_t *)(coef + chunk) + lane * 128;

	prefetch_line(from);
	if (lane < 17)
		prefetch_line(from + 32 * 128);
	else if (lane < 25)
		prefetch_line((const uint8_t *)profile_bins(chunk) + (lane - 17) * 128);
}

/*
 * Add the photons of a frame. Neighbours of the same bin are added first: additions to one address
 * wait for each other.
 */
static __device__ __forceinline__ void
profile_add(const struct profile_lane *l, uint32_t f, const float x[GK_CUDA_LANE])
{
	const uint32_t to = profile_at(f);
	uint32_t sum = 0;

#pragma unroll
	for (int k = 0; k < 4; k++) {
		const uint2 bins = load_shared2(l->map + k * 256);

#pragma unroll
		for (int j = 0; j < 4; j++) {
			const uint32_t two = j < 2 ? bins.x : bins.y;
			/* bins are below 2^14: of the lower one, nothing is left */
			const uint32_t at = j % 2 ? two >> 14 : (two & 0xFFFF) << 2;

			sum += (uint32_t)quick_value(x[4 * k + j]);
			move_shared_if(j == 3 ? 1 : l->ends & 1u << (4 * k + j), to + at, sum);
		}
	}
}

/*
 * Count pixels that are not valid.
 * @param sums     of the batch's frames, and of all frames together
 * @param holes    pixels of the chunk that are not valid in G0; not 0: there are some
 * @param missing  bit mask of the frames without this chunk
 */
static __device__ __forceinline__ void
profile_lost(struct gk_cuda_profile_sum *sums, const struct gk_cuda_coef *coef, uint32_t chunk,
	uint32_t holes, uint32_t missing)
{
	uint32_t bits;

	if (holes == 0 && missing == 0)
		return;
	bits = bits_of_lane(coef->hole_bits);
#pragma unroll 1
	for (uint32_t i = 0; i < GK_CUDA_LANE; i++) {
		const uint32_t bin = __ldcg(profile_bins(chunk) + pixel_of(i));

		if (bin >= args.bins)
			continue;
		if (bits >> i & 1) {
			atomicAdd(&sums[(uint64_t)GK_BATCH_MAX * args.bins + bin].lost, 1u);
			continue;
		}
		for (uint32_t left = missing; left != 0; left &= left - 1)
			atomicAdd(&sums[(uint64_t)(__ffs(left) - 1) * args.bins + bin].lost, 1u);
	}
}

#endif /* GK_CUDA_PROFILE_CHUNK_CUH */
