/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Peers of persistent gangs for gk_cuda_bench: a kernel that only reads packets, and one that
 * counts a frame and ends, for launches after a stream's wait.
 */

#include "gk_cuda_chunk.cuh"

/*
 * Reads packets of `lines` x 16 bytes through a pointer table; each warp reads one packet at a
 * time.
 */
extern "C" __global__ void
bench_read(const uint64_t *packets, uint32_t n, uint32_t lines, uint32_t *sink)
{
	const uint32_t warps = gridDim.x * blockDim.x / 32;
	const uint32_t lane = threadIdx.x % 32;
	uint32_t sum = 0;

	/* 4 loads of a thread are in flight together */
	for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n; i += warps) {
		const uint4 *words = (const uint4 *)__ldcg(packets + i);

		for (uint32_t k = lane; k < lines; k += 128) {
			uint4 w[4];

#pragma unroll
			for (int j = 0; j < 4; j++)
				w[j] = k + 32 * j < lines ? __ldcs(words + k + 32 * j)
							  : make_uint4(0, 0, 0, 0);
#pragma unroll
			for (int j = 0; j < 4; j++)
				sum += w[j].x ^ w[j].y ^ w[j].z ^ w[j].w;
		}
	}
	if (sum == 0x12345678) /* never true: keeps the loads */
		*sink = sum;
}

/*
 * Reads packets as above, and writes `back` x 16 bytes for each to host memory: the ceiling of raw
 * frames that are read over the bus, compressed and written back over it.
 */
extern "C" __global__ void
bench_both(const uint64_t *packets, uint32_t n, uint32_t lines, uint4 *out, uint32_t back)
{
	const uint32_t warps = gridDim.x * blockDim.x / 32;
	const uint32_t lane = threadIdx.x % 32;

	for (uint32_t i = (blockIdx.x * blockDim.x + threadIdx.x) / 32; i < n; i += warps) {
		const uint4 *words = (const uint4 *)__ldcg(packets + i);
		uint4 *to = out + (uint64_t)i * back;

		for (uint32_t k = lane; k < lines; k += 128) {
			uint4 w[4];

#pragma unroll
			for (int j = 0; j < 4; j++)
				w[j] = k + 32 * j < lines ? __ldcs(words + k + 32 * j)
							  : make_uint4(0, 0, 0, 0);
#pragma unroll
			for (int j = 0; j < 4; j++)
				if (k + 32 * j < back)
					__stcs(to + k + 32 * j, w[j]);
				else if (w[j].x == 0x12345678 && w[j].y == 0x9ABCDEF0)
					__stcs(to, w[j]); /* never: keeps the load */
		}
	}
}

/* Coefficients of all chunks, as a gang packs them. */
extern "C" __global__ void
bench_pack(const struct gk_cuda_batch *b)
{
	for (uint32_t c = blockIdx.x; c < args.chunks; c += gridDim.x) {
		pack_chunk(&args.coef[c], &b->plane, c);
		__syncwarp();
		set_chunk_thresholds(&args.coef[c], &b->params);
	}
}

/* Statistics of a block's chunks, starting at `begin`. */
template <uint32_t lead>
static __device__ __forceinline__ void
count_all(const struct gk_cuda_batch *b, const uint64_t *table, uint32_t begin, uint32_t end,
	struct tally *tally)
{
	const uint32_t all = end - begin, warp = threadIdx.x / 32;
	const uint32_t chunks = all > warp ? (all - warp + GK_CUDA_WARPS - 1) / GK_CUDA_WARPS : 0;
	struct feed feed;

	if (chunks == 0)
		return;
	feed_open<lead, GK_CUDA_WARPS, false>(&feed, args.coef, table, 0, begin + warp, chunks,
		(1u << b->nb_frames) - 1, policy_evict_first());
	copy_coef(&feed, feed.chunk, use_of(&b->params, lead == LEAD_FEW));
	feed_start<lead, GK_CUDA_WARPS>(&feed);
	for (uint32_t i = 0; i < chunks; i++) {
		count_chunk<false, lead, GK_CUDA_WARPS, false>(
			b, 0, &feed, args.counts, tally, NULL);
		feed_chunk<GK_CUDA_WARPS, false>(&feed);
	}
}

/* Statistics of a batch with the gangs' arithmetic; the last block writes a count to the result. */
extern "C" __global__ void
__launch_bounds__(GK_CUDA_THREADS, GK_CUDA_BLOCKS)
	bench_count(struct gk_cuda_batch *b, const uint64_t *table, uint32_t *finished)
{
	__shared__ struct gk_cuda_batch batch;
	__shared__ struct tally tally[GK_CUDA_WARPS][GK_BATCH_MAX];
	const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const uint32_t begin = (uint32_t)((uint64_t)blockIdx.x * args.chunks / gridDim.x);
	const uint32_t end = (uint32_t)((uint64_t)(blockIdx.x + 1) * args.chunks / gridDim.x);

	for (uint32_t i = threadIdx.x; i < sizeof(batch) / 16; i += blockDim.x)
		((uint4 *)&batch)[i] = __ldcg((const uint4 *)b + i);
	if (lane < GK_BATCH_MAX)
		tally[warp][lane] = {0, 0, 0, 0, 0};
	__syncthreads();
	if (batch.nb_frames < LEAD)
		count_all<LEAD_FEW>(&batch, table, begin, end, tally[warp]);
	else
		count_all<LEAD>(&batch, table, begin, end, tally[warp]);
	__syncthreads();
	if (threadIdx.x < batch.nb_frames) {
		struct tally t = {0, 0, 0, 0, 0};

		for (uint32_t i = 0; i < GK_CUDA_WARPS; i++) {
			t.sum += tally[i][threadIdx.x].sum;
			t.bragg += tally[i][threadIdx.x].bragg;
			t.nnz += tally[i][threadIdx.x].nnz;
		}
		atomicAdd(&b->sums[threadIdx.x].sum, (unsigned long long)t.sum);
		atomicAdd(&b->sums[threadIdx.x].strong_nnz,
			(unsigned long long)t.bragg << 32 | t.nnz);
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		if (atomicAdd(finished, 1) + 1 == gridDim.x) {
			*finished = 0;
			((struct gk_result *)batch.frame[0].result)->strong_count =
				(uint32_t)(__ldcg(&b->sums[0].strong_nnz) >> 32);
			for (uint32_t f = 0; f < GK_BATCH_MAX; f++)
				b->sums[f].sum = b->sums[f].strong_nnz = 0;
			__threadfence_system();
		}
	}
}
