/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The search for peaks as a stage of a gang, between statistics and verdict. The blocks write the
 * photons of the frames that are searched, each those of its chunks, and search them together
 * (gk_cuda_peaks.cuh). Lists of peaks stay in device memory until the verdict: those of kept frames
 * are copied to their output slots.
 */
#ifndef GK_CUDA_SEARCH_CUH
#define GK_CUDA_SEARCH_CUH

#include "gk_cuda_member.cuh"
#include "gk_cuda_output.cuh"
#include "gk_cuda_peaks.cuh"

GK_STATIC_ASSERT(sizeof(struct gang_shared) + sizeof(struct peak_shared) <= GK_CUDA_DECLARED,
	"create() asks for it");

/* Before the first batch. All threads of a block; its thread 0 has set gang_state.member. */
static __device__ __noinline__ void
search_open(void)
{
	const struct member *m = &gang_state.member;
	struct peak_shared *p = &peak_state;

	if (threadIdx.x == 0) {
		p->block = m->block;
		p->blocks = args.blocks;
		p->gang = m->gang;
		p->slot = m->gang * GK_CUDA_PEAK_FRAMES;
		p->arrived = &m->g->arrived;
		p->killed = &args.control->killed;
		p->target = 0;
	}
	if (args.searches)
		peak_share();
}

static __device__ __forceinline__ bool
is_strong(uint32_t strong)
{
	const struct gk_params *params = &gang_state.batch.params;

	return strong >= params->strong_min && strong <= params->strong_max;
}

/* Select the frames to search. All threads of a block, with the same result in every block. */
static __device__ __forceinline__ void
search_begin(void)
{
	struct gang_shared *s = &gang_state;
	struct peak_shared *p = &peak_state;
	const uint32_t f = threadIdx.x;

	if (f < 32) {
		bool wanted = f < s->batch.nb_frames;
		uint32_t searched;

		if (wanted && s->batch.params.search == GK_SEARCH_STRONG)
			wanted = is_strong(
				(uint32_t)(__ldcg(&device_batch()->sums[f].strong_nnz) >> 32));
		searched = __ballot_sync(ALL_LANES, wanted);
		if (f < sizeof(p->params) / 4)
			((uint32_t *)&p->params)[f] =
				__ldcg((const uint32_t *)device_peak_params() + f);
		if (f == 0) {
			s->searched = searched;
			p->nb_frames = __popc(searched);
		}
	}
	__syncthreads();
}

/* Write the photons of a block's chunks. */
template <uint32_t lead>
static __device__ __noinline__ void
photons_all(void)
{
	const struct member *m = &gang_state.member;
	const uint32_t chunks = chunks_of_warp(m->first, m->end);
	struct feed feed;

	if (chunks == 0)
		return;
	feed_open<lead, GK_CUDA_WARPS, true>(&feed, batch_coef(), batch_table(),
		args.staged ? (1u << GK_BATCH_MAX) - 1 : gang_state.batch.trailers,
		m->first + warp_of_block(), chunks, gang_state.searched, policy_evict_normal());
	copy_pairs(&feed, feed.chunk, feed.left);
	feed_start<lead, GK_CUDA_WARPS>(&feed);
	for (uint32_t i = 0; i < chunks; i++) {
		photons_chunk<lead, GK_CUDA_WARPS>(
			&feed, peak_args.photons + (uint64_t)peak_state.slot * peak_args.s.pixels);
		feed_chunk<GK_CUDA_WARPS, true>(&feed);
	}
	__syncwarp();
}

/* All blocks, after all have counted. @return false: killed */
static __device__ __noinline__ bool
search_frames(void)
{
	struct gang_shared *s = &gang_state;

	if (s->batch.params.search == GK_SEARCH_NONE)
		return true;
	search_begin();
	if (s->searched == 0)
		return true;
	/* a gang searches copies of packets in host memory */
	if (threadIdx.x == 0 && s->last && args.staged)
		release_packets();
	if (__popc(s->searched) >= LEAD)
		photons_all<LEAD>();
	else
		photons_all<LEAD_FEW>();
	return peak_barrier() && peak_search() && peak_barrier();
}

/* One thread, after the search. The last block writes the peaks by shell. */
static __device__ __noinline__ struct found
found_of(uint32_t f)
{
	const struct gang_shared *s = &gang_state;
	const struct gk_params *params = &s->batch.params;
	struct found r = {0, GK_NOT_SEARCHED, params->search == GK_SEARCH_NONE};
	const struct gk_cuda_peak_counters *c;
	uint32_t slot;

	if (r.enough || !(s->searched >> f & 1))
		return r;
	slot = peak_state.slot + __popc(s->searched & ((1u << f) - 1));
	c = &peak_args.counters[slot];
	r.peaks = __ldcg(&c->count);
	r.found = peak_found(slot);
	/* after the barrier no counter changes until the blocks count again */
	r.enough = gk_peaks_are_hit(params, r.peaks, c->shell);
	if (s->last && args.details != NULL) {
		uint4 *to = (uint4 *)details_of(f)->shell_peaks;

		for (uint32_t i = 0; i < GK_PEAK_SHELLS_MAX / 4; i++)
			to[i] = make_uint4(__ldcg(&c->shell[4 * i]), __ldcg(&c->shell[4 * i + 1]),
				__ldcg(&c->shell[4 * i + 2]), __ldcg(&c->shell[4 * i + 3]));
	}
	return r;
}

/* Frames of the batch that have lists of peaks, as a bit mask. */
static __device__ __forceinline__ uint32_t
lists_of_batch(void)
{
	const struct gang_shared *s = &gang_state;

	return s->batch.params.search != GK_SEARCH_NONE && args.layout.peaks_cap > 0 ? s->searched
										     : 0;
}

/* Copy the lists of kept frames (bit mask) to their output slots, each by one block. */
static __device__ __noinline__ void
output_lists(uint32_t listed)
{
	const struct gang_shared *s = &gang_state;

	for (uint32_t i = s->member.block; i < peak_state.nb_frames; i += args.blocks) {
		const uint32_t f = bit_of(s->searched, i), slot = peak_state.slot + i;
		const uint32_t n =
			min(__ldcg(&peak_args.counters[slot].count), args.layout.peaks_cap);
		const uint4 *from = (const uint4 *)slot_list(slot);
		uint4 *to = (uint4 *)(s->batch.frame[f].out + args.layout.peaks);

		if (!(listed >> f & 1))
			continue;
		for (uint32_t k = threadIdx.x; k < n * (sizeof(struct gk_peak) / sizeof(*to));
			k += GK_CUDA_THREADS)
			__stcs(to + k, __ldcg(from + k));
	}
}

#endif /* GK_CUDA_SEARCH_CUH */
