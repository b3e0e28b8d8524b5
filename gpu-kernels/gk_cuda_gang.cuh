/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of a gang. They wait in device memory for a batch, count it, search peaks if the
 * parameters demand it, agree on the verdict, and write the output of kept frames. Without a search
 * all blocks synchronise twice per batch: after counting and at the end.
 */
#ifndef GK_CUDA_GANG_CUH
#define GK_CUDA_GANG_CUH

#include "gk_cuda_odd.cuh"
#include "gk_cuda_output.cuh"
#include "gk_cuda_take.cuh"
#ifdef GK_CUDA_COMPRESS
#include "gk_cuda_compress.cuh"
#endif
#ifdef GK_CUDA_SEARCH
#include "gk_cuda_search.cuh"
#endif
#ifdef GK_CUDA_PROFILE
#include "gk_cuda_profile.cuh"
#endif

/* Add the sums of a block's warps to the gang's: one addition per block, frame and counter. */
static __device__ void
add_tallies(void)
{
	struct gang_shared *s = &gang_state;
	const struct member *m = &gang_state.member;
	struct gk_cuda_batch *b = device_batch();
	uint32_t *block_nnz = batch_block_nnz();
	const uint32_t f = threadIdx.x;
	struct tally t = {0, 0, 0, 0, 0};

	__syncthreads();
	if (f >= s->batch.nb_frames)
		return;
	for (int w = 0; w < GK_CUDA_WARPS; w++) {
		t.sum += s->tally[w][f].sum;
		t.bragg += s->tally[w][f].bragg;
		t.nnz += s->tally[w][f].nnz;
		t.saturated += s->tally[w][f].saturated;
		t.invalid += s->tally[w][f].invalid;
	}
	/* other blocks may have added odd pixels; in one pass there are no lists */
	if (s->batch.one_pass == 0)
		atomicAdd(&block_nnz[f * args.blocks + m->block], t.nnz);
	atomicAdd(&b->sums[f].sum, (unsigned long long)t.sum);
	atomicAdd(&b->sums[f].strong_nnz, (unsigned long long)t.bragg << 32 | t.nnz);
	atomicAdd(&b->sums[f].saturated_invalid, (unsigned long long)t.saturated << 32 | t.invalid);
}

static __device__ uint32_t
output_kind(const struct gk_cuda_frame *f, const struct gk_params *params, bool hit, uint32_t nnz)
{
	if (f->out == 0 || !(hit || (f->flags & GK_FRAME_KEEP)))
		return GK_KIND_NONE;
	if (!hit && (f->flags & GK_FRAME_KIND_RAW))
		return GK_KIND_RAW;
	if (params->kind == GK_KIND_CSR && nnz > params->nnz_max)
		return GK_KIND_IMAGE;
	return params->kind;
}

/* Compute the verdict of one frame. Every block computes it; the last one writes it. */
static __device__ uint32_t
decide(uint32_t f)
{
	const struct gk_cuda_batch *s = &gang_state.batch, *b = device_batch();
	const struct gk_params *params = &s->params;
	const unsigned long long strong_nnz = __ldcg(&b->sums[f].strong_nnz);
	const unsigned long long saturated_invalid = __ldcg(&b->sums[f].saturated_invalid);
	const uint32_t bragg = (uint32_t)(strong_nnz >> 32), nnz = (uint32_t)strong_nnz;
	const struct found found = found_of(f);
	const bool hit = bragg >= params->strong_min && bragg <= params->strong_max && found.enough;
	const uint32_t kind = output_kind(&s->frame[f], params, hit, nnz);
	const uint32_t verdict = hit ? GK_VERDICT_HIT : GK_VERDICT_REJECT;

	if (gang_state.last) {
		const uint64_t number = s->frame[f].number;
		const unsigned long long sum = __ldcg(&b->sums[f].sum);
		const unsigned long long lost =
			s->trailers >> f & 1 ? __ldcg(&device_trailers()->lost[f]) : 0;
		uint4 *line = (uint4 *)s->frame[f].result;

		/* struct gk_result, one quarter at a time */
		line[0] = make_uint4((uint32_t)number, (uint32_t)(number >> 32), (uint32_t)sum,
			(uint32_t)(sum >> 32));
		line[1] = make_uint4(verdict, kind, bragg, (uint32_t)(saturated_invalid >> 32));
		line[2] = make_uint4(
			(uint32_t)saturated_invalid, nnz, params->version, s->plane.version);
		line[3] = make_uint4(
			(uint32_t)(lost >> 32), (uint32_t)lost, found.peaks, found.found);
		size_of_chunk(f, kind);
	}
	return kind;
}

/*
 * One warp, one CSR frame: convert the counts of this block's chunks to positions in the frame's
 * list of pixels, and write row_ptr of the rows that begin in them.
 */
static __device__ void
place_csr(uint32_t f)
{
	const struct member *m = &gang_state.member;
	const uint64_t out = gang_state.batch.frame[f].out;
	const uint32_t *block_nnz = batch_block_nnz();
	uint32_t *counts = gang_counts();
	uint32_t *row_ptr = (uint32_t *)(out + args.layout.row_ptr);
	const uint32_t lane = threadIdx.x % 32;
	uint32_t base = 0;

#pragma unroll 8
	for (uint32_t i = lane; i < m->block; i += 32)
		base += __ldcg(&block_nnz[f * args.blocks + i]);
	base = __reduce_add_sync(ALL_LANES, base);
	for (uint32_t first = m->first; first < m->end; first += 32) {
		const uint32_t chunk = first + lane;
		uint32_t *count = counts + (uint64_t)chunk * GK_BATCH_MAX + f;
		const uint32_t n = chunk < m->end ? __ldcg(count) : 0;
		uint32_t upto = n;

#pragma unroll
		for (int d = 1; d < 32; d *= 2) {
			const uint32_t left = __shfl_up_sync(ALL_LANES, upto, d);

			upto += lane >= d ? left : 0;
		}
		if (chunk < m->end) {
			__stcg(count, base + upto - n);
			if (column_of(chunk) == 0)
				row_ptr[divide(chunk, args.row_chunks)] = base + upto - n;
		}
		base += __shfl_sync(ALL_LANES, upto, 31);
	}
	if (m->block == args.blocks - 1 && lane == 0)
		row_ptr[args.rows] = base;
}

/*
 * All blocks have counted: clear the block's list, and its counts of the next batch. All blocks
 * have ended the batch before, which used these counts.
 */
static __device__ __forceinline__ void
clear_counts(void)
{
	uint32_t *next = block_nnz_of(gang_state.served + 1) + gang_state.member.block;

	if (threadIdx.x < GK_BATCH_MAX)
		__stcg(&next[threadIdx.x * args.blocks], 0);
	if (threadIdx.x == 0)
		clear_odd();
}

/* Write the result of GK_OP_UPDATE, if the batch is one. One thread of the last block. */
static __device__ void
write_update(void)
{
	const struct gk_cuda_batch *s = &gang_state.batch, *b = device_batch();
	uint4 *line = (uint4 *)s->update;
	const unsigned long long samples = __ldcg(&b->samples), drift = __ldcg(&b->drift);

	line[0] = make_uint4((uint32_t)samples, (uint32_t)(samples >> 32), (uint32_t)drift,
		(uint32_t)(drift >> 32));
	line[1] =
		make_uint4((uint32_t)__ldcg(&b->updated), s->plane.version, s->plane_to.version, 0);
	line[2] = line[3] = make_uint4(0, 0, 0, 0);
}

/* One thread: return the results, outputs and packets of a batch to the host. */
static __device__ void
report(void)
{
	const struct member *m = &gang_state.member;
	struct gk_done *line = &args.channel->done[m->gang];
	const uint32_t done = args.first[m->gang] + gang_state.number + 1;

	/* both words at once: `raw` is never less than `done` */
	store_release_sys((uint64_t *)&line->raw, done, done);
}

/* Second synchronisation: the last block reports the batch, unless it is already reported. */
static __device__ void
finish(bool reported)
{
	const struct member *m = &gang_state.member;
	const uint32_t batch = gang_state.number;

	__syncthreads();
	if (threadIdx.x == 0) {
		if (!reported)
			__threadfence_system();
		gang_state.last = arrive(&m->g->finished[batch & 1]) + 1 == args.blocks;
	}
	if (gang_state.batch.op == GK_OP_FRAMES &&
		(makes_profiles() || chunks_of(UINT32_MAX) != 0)) {
		__syncthreads();
		if (gang_state.last && makes_profiles())
			profile_close();
		if (gang_state.last)
			compress_close();
		__syncthreads();
	}
	if (threadIdx.x != 0 || !gang_state.last)
		return;
	m->g->finished[batch & 1] = 0;
	if (gang_state.batch.op == GK_OP_UPDATE)
		write_update();
	if (!reported)
		report();
	store_release(&m->g->done, batch + 1);
}

/* Note that chunk i of the warp has odd pixels. */
static __device__ __forceinline__ void
found_odd(const struct feed *f, uint32_t i)
{
	const uint32_t at = f->area + GK_CUDA_AT_FOUND;

	if (lane_of_warp() == 0)
		store_shared_u32(at, load_shared_u32(at) | 1u << i % 32);
}

/* Compute the statistics of a block's chunks, except those of odd pixels. */
template <bool direct, uint32_t lead, bool profile>
static __device__ __noinline__ void
count_all(void)
{
	const struct member *m = &gang_state.member;
	const uint32_t chunks = chunks_of_warp(m->first, m->end);
	struct tally *tally = gang_state.tally[warp_of_block()];
	struct feed feed;

	if (chunks == 0)
		return;
	feed_open<lead, GK_CUDA_WARPS, !direct>(&feed, batch_coef(), batch_table(),
		gang_state.batch.trailers, m->first + warp_of_block(), chunks,
		(1u << gang_state.batch.nb_frames) - 1,
		/* with images being written, evicting first costs 0.2 us (measured) */
		direct ? policy_evict_normal() : policy_evict_first());
	if (!profile)
		copy_coef(&feed, feed.chunk, use_of(&gang_state.batch.params, lead == LEAD_FEW));
	feed_start<lead, GK_CUDA_WARPS>(&feed);
	for (uint32_t i = 0; i < chunks; i++) {
		if (count_chunk<direct, lead, GK_CUDA_WARPS, profile>(&gang_state.batch, m->gang,
			    &feed, gang_counts(), tally, profile_sums(0)))
			found_odd(&feed, i);
		feed_chunk<GK_CUDA_WARPS, !direct>(&feed);
	}
	__syncwarp();
}

template <bool direct, bool profile>
static __device__ __forceinline__ void
count_any(void)
{
	if (!few_frames())
		count_all<direct, LEAD, profile>();
	else
		count_all<direct, LEAD_FEW, profile>();
}

/* One warp: clear its sums. */
static __device__ __forceinline__ void
clear_tallies(void)
{
	if (lane_of_warp() < GK_BATCH_MAX)
		gang_state.tally[warp_of_block()][lane_of_warp()] = {0, 0, 0, 0, 0};
}

static __device__ __forceinline__ void
count_frames(void)
{
	const uint32_t at = area_of_warp() + GK_CUDA_AT_FOUND;
	uint32_t found;

	store_shared_u32(at, 0);
	__syncwarp();
	if (gang_state.batch.direct != 0)
		count_any<true, false>();
#ifdef GK_CUDA_PROFILE
	else if (profile_joins())
		count_any<false, true>();
#endif
	else
		count_any<false, false>();
	__syncwarp();
	found = load_shared_u32(at);
	if (found != 0)
		list_chunks(found);
	count_odd();
}

/* Prepare coefficients and thresholds of a block's chunks, by the threads that read them later. */
static __device__ __noinline__ void
pack_all(void)
{
	const struct member *m = &gang_state.member;
	const struct gk_cuda_batch *b = &gang_state.batch;

	for (uint32_t c = m->first + warp_of_block(); c < m->end; c += GK_CUDA_WARPS) {
		if (b->pack)
			pack_chunk(&batch_coef()[c], &b->plane, c);
		if (b->set_thresholds)
			set_chunk_thresholds(&batch_coef()[c], &b->params);
	}
	__syncwarp();
}

static __device__ __noinline__ void
dark_all(void)
{
	const struct member *m = &gang_state.member;

	__syncwarp();
	for (uint32_t c = m->first + warp_of_block(); c < m->end; c += GK_CUDA_WARPS)
		dark_chunk(&gang_state.batch, m->gang, &batch_coef()[c], batch_table(), c);
}

/* Write the outputs of a block's chunks. */
template <uint32_t lead>
static __device__ __noinline__ void
output_all(uint32_t kept)
{
	const uint32_t step = (uint32_t)-GK_CUDA_WARPS;
	const struct member *m = &gang_state.member;
	const uint32_t chunks = chunks_of_warp(m->first, m->end);
	uint32_t first;
	struct feed feed;

	if (chunks == 0)
		return;
	/* in reverse order: the chunks counted last may still be in the cache */
	feed_open<lead, step, true>(&feed, batch_coef(), batch_table(),
		args.staged ? (1u << GK_BATCH_MAX) - 1 : gang_state.batch.trailers,
		m->end - 1 - warp_of_block(), chunks, kept, policy_evict_first());
	copy_pairs(&feed, feed.chunk, feed.left);
	feed_start<lead, step>(&feed);
	first = places_of(gang_counts(), feed.chunk);
	for (uint32_t i = 0; i < chunks; i++) {
		const uint32_t next =
			feed.left > 0 ? places_of(gang_counts(), feed.chunk + step) : 0;

		output_chunk<lead, step>(&gang_state.batch, &feed, first, gang_state.kind, kept);
		feed_chunk<step, true>(&feed);
		first = next;
	}
}

/* Write the outputs of kept frames (bit mask), except those already written. */
static __device__ __forceinline__ void
output_frames(uint32_t kept)
{
	for (uint32_t i = warp_of_block(); i < gang_state.batch.nb_frames; i += GK_CUDA_WARPS)
		if ((kept >> i & 1) && gang_state.kind[i] == GK_KIND_CSR)
			place_csr(i);
	__syncthreads();
	if (__popc(kept) >= LEAD)
		output_all<LEAD>(kept);
	else
		output_all<LEAD_FEW>(kept);
}

/*
 * Copy the packets with trailers. The gang waits until all blocks have copied theirs, because a
 * packet may be in the share of two blocks.
 */
static __device__ __noinline__ void
take_frames(void)
{
	struct gang_shared *s = &gang_state;
	const struct member *m = &gang_state.member;

	take_all(&s->batch, m->gang, m->first, m->end, batch_table(), device_trailers());
	__syncthreads();
	if (threadIdx.x == 0) {
		const uint32_t all = ++s->took * args.blocks;
		const uint32_t frames = (1u << s->batch.nb_frames) - 1;

		/* then no packet of the batch is read again */
		if (arrive(&m->g->taken) + 1 == all && s->batch.trailers == frames)
			release_packets();
		s->go = wait_count(&m->g->taken, all);
	}
	__syncthreads();
	if (s->go)
		write_maps(&s->batch, m->block, batch_table(), device_trailers());
}

/* @return false: killed */
static __device__ __forceinline__ bool
serve_frames(void)
{
	struct gang_shared *s = &gang_state;
	uint32_t kept = 0, listed = 0;

	if (!begin_turn())
		return false;
	if (s->batch.trailers != 0) {
		take_frames();
		if (!s->go)
			return false;
	}
	if (s->batch.pack || s->batch.set_thresholds)
		pack_all();
	clear_tallies();
	profile_open();
	count_frames();
	if (s->batch.dark != 0)
		dark_all();
	profile_frames();
	add_tallies();
	__syncthreads();
	if (threadIdx.x == 0) {
		uint32_t *counted = &s->member.g->counted;
		const uint32_t all = s->served * args.blocks;

		if (s->batch.direct != 0 || s->batch.trailers != 0)
			__threadfence_system();
		s->last = arrive(counted) + 1 == all;
		if (s->last)
			end_turn();
		s->go = wait_count(counted, all);
	}
	__syncthreads();
	if (!s->go)
		return false;
	clear_counts();
	if (!search_frames())
		return false;

	if (threadIdx.x < s->batch.nb_frames)
		s->kind[threadIdx.x] = decide(threadIdx.x);
	__syncthreads();
	for (uint32_t i = 0; i < s->batch.nb_frames; i++) {
		if (s->kind[i] == GK_KIND_NONE)
			continue;
		kept |= ~s->batch.direct & 1u << i;
		listed |= 1u << i;
	}
	listed &= lists_of_batch();
	if (threadIdx.x == 0 && s->last) {
		if ((kept | listed) == 0 && !makes_profiles())
			report();
		else if (args.staged || (kept & ~s->batch.trailers) == 0)
			release_packets();
	}
	profile_write();
	if (listed != 0)
		output_lists(listed);
	if (kept != 0) {
		const uint32_t chunks = chunks_of(kept);

		if (kept != chunks)
			output_frames(kept & ~chunks);
		if (chunks != 0 && !compress_frames<false>(chunks))
			return false;
	}
	finish((kept | listed) == 0 && !makes_profiles());
	return true;
}

/*
 * A batch in one pass. Its blocks have no barrier: the last one to finish computes the verdicts,
 * while others are already in the next batch. They use nothing then that belongs to a single block
 * of the gang.
 * @return false: killed
 */
static __device__ __noinline__ bool
serve_one_pass(void)
{
	struct gang_shared *s = &gang_state;
	const struct member *m = &gang_state.member;
	uint32_t *finished = &m->g->finished[s->number & 1];

	clear_tallies();
	if (!compress_frames<true>((1u << s->batch.nb_frames) - 1))
		return false;
	add_tallies();
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence_system();
		s->last = arrive(finished) + 1 == args.blocks;
	}
	__syncthreads();
	if (!s->last)
		return true;
	if (threadIdx.x < s->batch.nb_frames)
		s->kind[threadIdx.x] = decide(threadIdx.x);
	__syncthreads();
	compress_close();
	__syncthreads();
	if (threadIdx.x == 0) {
		*finished = 0;
		report();
		store_release(&m->g->done, s->number + 1);
	}
	return true;
}

static __device__ __noinline__ void
serve_update(void)
{
	const struct member *m = &gang_state.member;
	struct gk_cuda_batch *b = device_batch();
	struct drift sum = {0, 0, 0};

	if (gang_state.batch.pack)
		pack_all();
	for (uint32_t c = m->first + warp_of_block(); c < m->end; c += GK_CUDA_WARPS)
		update_chunk(&gang_state.batch, c, &sum);
#pragma unroll
	for (int d = 16; d > 0; d /= 2) {
		sum.samples += __shfl_xor_sync(ALL_LANES, sum.samples, d);
		sum.drift += __shfl_xor_sync(ALL_LANES, sum.drift, d);
	}
	sum.updated = __reduce_add_sync(ALL_LANES, sum.updated);
	if (threadIdx.x % 32 == 0) {
		atomicAdd(&b->samples, (unsigned long long)sum.samples);
		atomicAdd(&b->drift, (unsigned long long)sum.drift);
		atomicAdd(&b->updated, (unsigned long long)sum.updated);
	}
	finish(false);
}

/* Lifetime of a block. */
static __device__ __forceinline__ void
serve(void)
{
	struct gang_shared *s = &gang_state;

	if (threadIdx.x == 0) {
		const uint32_t worker = blockIdx.x - 1;
		struct member *m = &s->member;

		m->gang = worker / args.blocks;
		m->block = worker % args.blocks;
		m->first = (uint32_t)((uint64_t)m->block * args.chunks / args.blocks);
		m->end = (uint32_t)((uint64_t)(m->block + 1) * args.chunks / args.blocks);
		m->g = &args.control->gang[m->gang];
		s->number = s->served = s->took = 0;
	}
	search_open();
	compress_open();
	for (;;) {
		__syncthreads();
		if (threadIdx.x == 0)
			s->go = wait_ready(s->member.g, s->number);
		__syncthreads();
		if (!s->go)
			return;
		for (uint32_t i = threadIdx.x; i < sizeof(s->batch) / 16; i += GK_CUDA_THREADS)
			((uint4 *)&s->batch)[i] = __ldcg((const uint4 *)device_batch() + i);
		if (threadIdx.x == 0)
			s->odd = 0;
		__syncthreads();
		if (s->batch.op != GK_OP_FRAMES) {
			serve_update();
		} else if (s->batch.one_pass != 0) {
			if (!serve_one_pass())
				return;
		} else {
			if (threadIdx.x == 0)
				s->served++;
			__syncthreads();
			if (!serve_frames())
				return;
		}
		__syncthreads(); /* all threads have finished the batch */
		if (threadIdx.x == 0)
			s->number++;
	}
}

#endif /* GK_CUDA_GANG_CUH */
