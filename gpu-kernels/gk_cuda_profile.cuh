/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Radial profiles as a stage of a gang. A block adds the photons of its chunks to bins in shared
 * memory, and then these bins to sums of the gang in device memory. When all blocks have counted,
 * each writes a part of the profiles. All sums are sums of integers, so that their order does not
 * matter.
 *
 * Photons are added while they are counted (gk_cuda_profile_chunk.cuh), or after that if the bins
 * have no room meanwhile, or if images are written. Then a warp loads coefficients and bins of a
 * chunk once for all frames. A thread has the same pixels as in gk_cuda_chunk.cuh, and joins
 * neighbours of the same bin before it adds them: additions to one address wait for each other.
 */
#ifndef GK_CUDA_PROFILE_CUH
#define GK_CUDA_PROFILE_CUH

#include "gk_cuda_member.cuh"

/* Bins of a frame in shared memory. */
struct profile_bins_far {
	uint32_t *sum; /* of photons, modulo 2^32; [args.bins + 1], the last one is not used */
	uint32_t *lost;
};

/* Pixels and coefficients of a thread. */
struct profile_lane_far {
	float p[GK_CUDA_LANE];
	float r[GK_CUDA_LANE];
	uint2 bin[4];
	uint32_t holes, wild; /* bit masks; pixel i is bit i */
};

static __device__ __forceinline__ struct profile_bins_far
profile_bins_of(uint32_t i)
{
	extern __shared__ uint4 shared_area[];
	uint32_t *first = (uint32_t *)shared_area + (uint64_t)i * 2 * (args.bins + 1);

	return {first, first + args.bins + 1};
}

static __device__ __forceinline__ void
profile_load_far(struct profile_lane_far *l, const struct gk_cuda_coef *coef, uint32_t chunk)
{
	const uint2 known = __ldcg((const uint2 *)&coef->holes); /* holes, wild pixels */

	load_p_r_far(l->p, l->r, coef);
#pragma unroll
	for (int k = 0; k < 4; k++)
		l->bin[k] = __ldcg((const uint2 *)(args.bin + (uint64_t)chunk * GK_CUDA_CHUNK +
			pixel_of(4 * k)));
	l->holes = known.x != 0 ? bits_of_lane(coef->hole_bits) : 0;
	l->wild = known.y != 0 ? bits_of_lane(coef->wild_bits) : 0;
}

/* Load a thread's words; pixels beyond the row are in no bin. */
static __device__ __forceinline__ void
profile_read(uint2 w[4], uint64_t words, uint32_t pixels)
{
#pragma unroll
	for (int k = 0; k < 4; k++) {
		w[k] = make_uint2(0, 0);
		if (words != 0 && pixel_of(4 * k) < pixels)
			w[k] = __ldcg((const uint2 *)(words + pixel_of(4 * k) * sizeof(uint16_t)));
	}
}

/* Word or bin of pixel j of four. */
static __device__ __forceinline__ uint32_t
half_of(uint2 four, uint32_t j)
{
	return (j < 2 ? four.x : four.y) >> j % 2 * 16 & 0xFFFF;
}

/* Add pixels that the fast path cannot convert, and pixels that are not valid. */
static __device__ __forceinline__ void
profile_rest(const struct profile_bins_far *b, const struct gk_cuda_coef *coef, uint32_t chunk,
	uint64_t words, uint32_t rest, uint32_t holes)
{
#pragma unroll 1
	for (; rest != 0; rest &= rest - 1) {
		const uint32_t i = __ffs(rest) - 1, pixel = pixel_of(i);
		const uint32_t bin = __ldcg(args.bin + (uint64_t)chunk * GK_CUDA_CHUNK + pixel);
		int16_t v = GK_I16_INVALID;

		if (words != 0 && !(holes >> i & 1))
			v = gk_value_i16(
				any_photons(coef, pixel, __ldcg((const uint16_t *)words + pixel)));
		if (gk_radial_is_valid(v))
			atomicAdd(&b->sum[bin], (uint32_t)(int32_t)v);
		else
			atomicAdd(&b->lost[bin], 1u);
	}
}

/* Add a thread's pixels of one frame. */
static __device__ __forceinline__ void
profile_add_far(const struct profile_bins_far *b, const struct profile_lane_far *l,
	const struct gk_cuda_coef *coef, uint32_t chunk, uint64_t words, const uint2 w[4])
{
	/* pixels for profile_rest(), and those of them that are known to be not valid */
	uint32_t rest = l->wild | l->holes, holes = l->holes;

	if (words == 0) {
		profile_rest(b, coef, chunk, 0, (1u << GK_CUDA_LANE) - 1, 0);
		return;
	}
	if (!all_g0(w)) {
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++) {
			if ((half_of(w[i / 4], i % 4) & GK_RAW_GAIN_MASK) == 0)
				continue;
			rest |= 1u << i;
			holes &= ~(1u << i); /* a hole is NaN in G0 only */
		}
	}
#pragma unroll
	for (int k = 0; k < 4; k++) {
		uint32_t bin = half_of(l->bin[k], 0);
		int32_t sum = 0;

#pragma unroll
		for (int j = 0; j < 4; j++) {
			const int i = 4 * k + j;
			const uint32_t next = half_of(l->bin[k], j);
			const float x = quick_photons(half_of(w[k], j), l->p[i], l->r[i]);
			const int32_t v = rest >> i & 1 ? 0 : quick_value(x);

			if (next != bin && sum != 0)
				atomicAdd(&b->sum[bin], (uint32_t)sum);
			sum = next != bin ? v : sum + v;
			bin = next;
		}
		if (sum != 0)
			atomicAdd(&b->sum[bin], (uint32_t)sum);
	}
	if (rest != 0)
		profile_rest(b, coef, chunk, words, rest, holes);
}

/* Add a chunk of `n` frames from `first` on. One warp. */
static __device__ __forceinline__ void
profile_chunk(uint32_t chunk, uint32_t first, uint32_t n)
{
	const struct gk_cuda_coef *coef = batch_coef() + chunk;
	const uint32_t pixels = pixels_of(chunk);
	uint64_t words = words_of(first, chunk);
	struct profile_lane_far l;
	uint2 w[4];

	profile_read(w, words, pixels);
	profile_load_far(&l, coef, chunk);
#pragma unroll 1
	for (uint32_t i = 0; i < n; i++) {
		const struct profile_bins_far b = profile_bins_of(i);
		const uint64_t next = i + 1 < n ? words_of(first + i + 1, chunk) : 0;
		uint2 ahead[4];

		/* while this frame is added */
		profile_read(ahead, next, pixels);
		profile_add_far(&b, &l, coef, chunk, words, w);
		words = next;
#pragma unroll
		for (int k = 0; k < 4; k++)
			w[k] = ahead[k];
	}
}

/* Add the block's bins of `n` frames to those of the gang, and clear them. */
static __device__ __forceinline__ void
profile_flush(uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		const struct profile_bins_far b = profile_bins_of(i);
		struct gk_cuda_profile_sum *to = profile_sums(first + i);

		for (uint32_t bin = threadIdx.x; bin <= args.bins; bin += GK_CUDA_THREADS) {
			const int32_t sum = (int32_t)b.sum[bin];
			const uint32_t lost = b.lost[bin];

			b.sum[bin] = b.lost[bin] = 0;
			if (sum != 0 && bin < args.bins)
				atomicAdd(&to[bin].sum, (unsigned long long)(int64_t)sum);
			if (lost != 0 && bin < args.bins)
				atomicAdd(&to[bin].lost, lost);
		}
	}
}

/* All threads of a block, before its chunks are counted. */
static __device__ __forceinline__ void
profile_open(void)
{
	if (!profile_joins())
		return;
	__syncthreads(); /* shared memory */
	for (uint32_t f = 0; f < gang_state.batch.nb_frames; f++)
		for (uint32_t i = threadIdx.x * 4; i < PROFILE_BINS; i += GK_CUDA_THREADS * 4)
			store_shared4(profile_at(f) + i * 4, make_uint4(0, 0, 0, 0));
	__syncthreads();
}

/*
 * Add an odd pixel of a frame that was counted, and subtract the value that the fast path has
 * added. Photons that the fast path cannot give are added to the sums of the gang, because those of
 * a block have no room for them.
 * @param quick,x  its photons by the fast path, and in truth
 */
static __device__ __noinline__ void
profile_odd(uint32_t chunk, uint32_t pixel, uint32_t f, float quick, float x)
{
	const uint32_t bin = __ldcg(profile_bins(chunk) + pixel);
	const uint32_t hole = bit_at((batch_coef() + chunk)->hole_bits, pixel);
	const int16_t v = gk_value_i16(x);
	const bool valid = gk_radial_is_valid(v);
	const bool near = valid && v >= -QUICK_MOST && v <= QUICK_MOST;
	const uint32_t more = (uint32_t)((near ? v : 0) - quick_value(quick));
	const uint32_t lost = (valid ? 0 : 1) - hole;

	if (bin >= args.bins)
		return;
	if (more != 0)
		add_shared_u32(profile_at(f) + bin * 4, more);
	if (valid && !near)
		atomicAdd(&profile_sums(f)[bin].sum, (unsigned long long)(int64_t)v);
	if (lost != 0)
		atomicAdd(&profile_sums(f)[bin].lost, lost);
}

/* All threads of a block: add its counts to the sums of the gang. */
static __device__ __forceinline__ void
profile_join(void)
{
	const uint32_t n = gang_state.batch.nb_frames;

	__syncthreads();
	for (uint32_t i = 0; i < n; i++) {
		/* blocks begin with different frames: additions to one address wait */
		const uint32_t f = (i + gang_state.member.block) % n, from = profile_at(f);
		struct gk_cuda_profile_sum *to = profile_sums(f);

#pragma unroll
		for (uint32_t k = 0; k < PROFILE_BINS / GK_CUDA_THREADS; k++) {
			const uint32_t bin = k * GK_CUDA_THREADS + threadIdx.x;
			const int32_t sum = (int32_t)load_shared_u32(from + bin * 4);

			if (sum != 0 && bin < args.bins)
				atomicAdd(&to[bin].sum, (unsigned long long)(int64_t)sum);
		}
	}
	__syncthreads();
}

/* All threads of a block, after its chunks are counted. */
static __device__ __noinline__ void
profile_frames(void)
{
	const struct member *m = &gang_state.member;
	const uint32_t frames = gang_state.batch.nb_frames, words = 2 * (args.bins + 1);
	const uint32_t group = min((uint32_t)(GK_CUDA_SHARED / sizeof(uint32_t)) / words, frames);

	if (args.profiles == NULL)
		return;
	if (profile_joins()) {
		profile_join();
		return;
	}
	__syncthreads(); /* copies of words, and shared memory */
	for (uint32_t i = threadIdx.x; i < group * words; i += GK_CUDA_THREADS)
		profile_bins_of(0).sum[i] = 0;
	for (uint32_t first = 0; first < frames; first += group) {
		const uint32_t n = min(group, frames - first);

		for (uint32_t part = m->first; part < m->end; part += PROFILE_PART) {
			const uint32_t end = min(part + PROFILE_PART, m->end);

			__syncthreads();
			for (uint32_t c = part + warp_of_block(); c < end; c += GK_CUDA_WARPS)
				profile_chunk(c, first, n);
			__syncthreads();
			profile_flush(first, n);
		}
	}
	__syncthreads();
}

/* All threads of a gang, after all blocks have counted: write the profiles, and clear the sums. */
static __device__ __noinline__ void
profile_write(void)
{
	const struct member *m = &gang_state.member;
	const uint32_t all = gang_state.batch.nb_frames * args.bins;
	const uint32_t lost = GK_BATCH_MAX * args.bins;

	for (uint32_t i = m->block * GK_CUDA_THREADS + threadIdx.x; i < all;
		i += args.blocks * GK_CUDA_THREADS) {
		const uint32_t f = i / args.bins, bin = i - f * args.bins;
		uint8_t *area = (uint8_t *)__ldcg(
			(const unsigned long long *)&m->g->profile[gang_state.number & 1][f]);
		uint4 *sums = (uint4 *)profile_sums(0);
		const uint4 s = __ldcg(sums + i);

		((int64_t *)area)[bin] = (int64_t)((uint64_t)s.y << 32 | s.x);
		((uint32_t *)(area + args.profile_count_at))[bin] =
			__ldcg(args.bin_pixels + bin) - s.z - __ldcg(&sums[lost + bin].z);
		__stcg(sums + i, make_uint4(0, 0, 0, 0));
	}
}

/* All threads of the last block of a batch, after all have written. */
static __device__ __forceinline__ void
profile_close(void)
{
	uint4 *lost = (uint4 *)profile_sums(GK_BATCH_MAX);

	for (uint32_t bin = threadIdx.x; bin < args.bins; bin += GK_CUDA_THREADS)
		__stcg(lost + bin, make_uint4(0, 0, 0, 0));
}

#endif /* GK_CUDA_PROFILE_CUH */
