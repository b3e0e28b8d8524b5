/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The blocks of a gang: wait in device memory for a batch, count it, agree on the verdict, write
 * what is kept. A batch has two meetings of all blocks: when everything is counted, and at its end.
 */
#ifndef GK_CUDA_GANG_CUH
#define GK_CUDA_GANG_CUH

#include "gk_cuda_chunk.cuh"
#include "gk_cuda_order.cuh"

struct gang_shared {
	struct gk_cuda_batch batch;
	struct tally tally[GK_CUDA_WARPS][GK_BATCH_MAX];
	uint32_t kind[GK_BATCH_MAX];
	uint32_t go;
};

/* Which gang, which of its blocks, and the chunks that are this block's. */
struct member {
	uint32_t gang;
	uint32_t block;
	uint32_t first;
	uint32_t end;
	struct gk_cuda_gang *g;
};

static __device__ __forceinline__ uint32_t
warp_of_block(void)
{
	return threadIdx.x / 32;
}

/* One thread: until a batch is ready, or nothing more comes. */
static __device__ bool
wait_ready(struct gk_cuda_gang *g, uint32_t batch)
{
	for (;;) {
		/* before `ready`: what was set up before the end is seen, and done */
		const uint32_t end = load_acquire(&g->end);

		if (load_acquire(&g->ready) != batch)
			return true;
		if (end != 0 || load_acquire(&args.control->killed) != 0)
			return false;
		__nanosleep(20);
	}
}

/* One thread: until all blocks of the gang have come to the counter so often. */
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

/* Sums of a block's warps to the gang's: one addition a block, frame and counter. */
static __device__ void
add_tallies(const struct member *m, struct gang_shared *s, struct gk_cuda_batch *b,
	uint32_t *block_nnz, const struct tally *mine)
{
	const uint32_t f = threadIdx.x;
	struct tally t = {0, 0, 0, 0, 0};

	if (threadIdx.x % 32 < GK_BATCH_MAX)
		s->tally[warp_of_block()][threadIdx.x % 32] = *mine;
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
	__stcg(&block_nnz[f * args.blocks + m->block], t.nnz);
	atomicAdd(&b->sums[f].sum, (unsigned long long)t.sum);
	atomicAdd(&b->sums[f].bragg_nnz, (unsigned long long)t.bragg << 32 | t.nnz);
	atomicAdd(&b->sums[f].saturated_invalid, (unsigned long long)t.saturated << 32 | t.invalid);
}

static __device__ uint32_t
output_kind(const struct gk_cuda_frame *f, const struct gk_params *params, bool hit, uint32_t nnz)
{
	if (f->out == 0 || !(hit || (f->flags & GK_FRAME_KEEP)))
		return GK_KIND_NONE;
	if (f->flags & GK_FRAME_KIND_RAW)
		return GK_KIND_RAW;
	if (params->kind == GK_KIND_CSR && nnz > params->nnz_max)
		return GK_KIND_IMAGE;
	return params->kind;
}

/* Every block comes to the same verdict by itself; the first one writes it down. One frame. */
static __device__ uint32_t
decide(const struct member *m, const struct gk_cuda_batch *s, const struct gk_cuda_batch *b,
	uint32_t f)
{
	const struct gk_params *params = &s->params;
	const unsigned long long bragg_nnz = __ldcg(&b->sums[f].bragg_nnz);
	const unsigned long long saturated_invalid = __ldcg(&b->sums[f].saturated_invalid);
	const uint32_t bragg = (uint32_t)(bragg_nnz >> 32), nnz = (uint32_t)bragg_nnz;
	const bool hit = bragg >= params->bragg_min && bragg <= params->bragg_max;
	const uint32_t kind = output_kind(&s->frame[f], params, hit, nnz);
	const uint32_t verdict = hit ? GK_VERDICT_HIT : GK_VERDICT_REJECT;

	if (m->block == 0) {
		const uint64_t number = s->frame[f].number;
		const unsigned long long sum = __ldcg(&b->sums[f].sum);
		uint4 *line = (uint4 *)s->frame[f].result;

		/* struct gk_result, a quarter at a time */
		line[0] = make_uint4((uint32_t)number, (uint32_t)(number >> 32), (uint32_t)sum,
			(uint32_t)(sum >> 32));
		line[1] = make_uint4(verdict, kind, bragg, (uint32_t)(saturated_invalid >> 32));
		line[2] = make_uint4(
			(uint32_t)saturated_invalid, nnz, params->version, s->plane.version);
		line[3] = make_uint4(0, 0, 0, 0);
	}
	return kind;
}

/*
 * One warp, one frame of kind CSR: turn the counts of this block's chunks into their places in the
 * frame's list of pixels, and write row_ptr of the rows that begin here.
 */
static __device__ void
place_csr(const struct member *m, uint64_t out, uint32_t *counts, const uint32_t *block_nnz,
	uint32_t f)
{
	uint32_t *row_ptr = (uint32_t *)(out + args.layout.row_ptr);
	const uint32_t lane = threadIdx.x % 32;
	uint32_t base = 0;

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
			if (chunk % args.row_chunks == 0)
				row_ptr[chunk / args.row_chunks] = base + upto - n;
		}
		base += __shfl_sync(ALL_LANES, upto, 31);
	}
	if (m->block == args.blocks - 1 && lane == 0)
		row_ptr[args.rows] = base;
}

/* What GK_OP_UPDATE has found, or nothing of note; one thread of the last block. */
static __device__ void
write_update(const struct gk_cuda_batch *s, const struct gk_cuda_batch *b)
{
	uint4 *line = (uint4 *)s->update;
	const unsigned long long samples = __ldcg(&b->samples), drift = __ldcg(&b->drift);

	line[0] = make_uint4((uint32_t)samples, (uint32_t)(samples >> 32), (uint32_t)drift,
		(uint32_t)(drift >> 32));
	line[1] =
		make_uint4((uint32_t)__ldcg(&b->updated), s->plane.version, s->plane_to.version, 0);
	line[2] = line[3] = make_uint4(0, 0, 0, 0);
}

/* The second meeting; the last block to come reports the batch. */
static __device__ void
finish(const struct member *m, const struct gk_cuda_batch *s, const struct gk_cuda_batch *b,
	uint32_t batch, bool to_host)
{
	struct gk_done *line = &args.channel->done[m->gang];
	const uint32_t done = args.first[m->gang] + batch + 1;

	__syncthreads();
	if (threadIdx.x != 0)
		return;
	if (to_host)
		__threadfence_system();
	if (arrive(&m->g->finished[batch & 1]) + 1 != args.blocks)
		return;
	m->g->finished[batch & 1] = 0;
	if (s->op == GK_OP_UPDATE)
		write_update(s, b);
	/* raw first: it never falls behind */
	store_release_sys(&line->raw, done);
	store_release_sys(&line->done, done);
	store_release(&m->g->done, batch + 1);
}

/* Coefficients if need be, and the statistics of a block's chunks; frame f in thread f. */
template <bool DIRECT>
static __device__ __noinline__ struct tally
count_all(const struct gang_shared *s, uint32_t gang, uint32_t begin, uint32_t end,
	const uint64_t *table, uint32_t *counts)
{
	struct gk_cuda_coef *coef = args.coef + (uint64_t)s->batch.coef * args.chunks;
	struct tally t = {0, 0, 0, 0, 0};

	for (uint32_t c = begin + warp_of_block(); c < end; c += GK_CUDA_WARPS) {
		const struct place p = place_of(c, threadIdx.x % 32);

		count_chunk<DIRECT>(&s->batch, gang, &coef[c], table, counts, &p, &t);
	}
	return t;
}

static __device__ __noinline__ void
pack_all(const struct gang_shared *s, uint32_t begin, uint32_t end)
{
	struct gk_cuda_coef *coef = args.coef + (uint64_t)s->batch.coef * args.chunks;

	for (uint32_t c = begin + warp_of_block(); c < end; c += GK_CUDA_WARPS) {
		const struct place p = place_of(c, threadIdx.x % 32);

		/* by the threads that read it afterwards */
		pack_chunk(&coef[c], &s->batch.plane, &p);
	}
	__syncwarp();
}

static __device__ __noinline__ void
output_all(const struct gang_shared *s, uint32_t gang, uint32_t begin, uint32_t end,
	const uint64_t *table, const uint32_t *counts, uint32_t kept)
{
	const struct gk_cuda_coef *coef = args.coef + (uint64_t)s->batch.coef * args.chunks;

	/* backwards: what was counted last may still be in the cache */
	for (uint32_t c = begin + warp_of_block(); c < end; c += GK_CUDA_WARPS) {
		const struct place p = place_of(end - 1 - (c - begin), threadIdx.x % 32);

		output_chunk(&s->batch, gang, &coef[p.chunk], table, counts, &p, s->kind, kept);
	}
}

/* @return false: killed */
static __device__ bool
serve_frames(const struct member *m, struct gang_shared *s, uint32_t batch, uint32_t served)
{
	struct gk_cuda_batch *b = &m->g->batch[batch & 1];
	const uint64_t set = (uint64_t)m->gang * 2 + (batch & 1);
	const uint64_t *table = args.tables + set * args.geometry.tiles * GK_BATCH_MAX;
	uint32_t *block_nnz = args.block_nnz + set * GK_BATCH_MAX * args.blocks;
	uint32_t *counts = args.counts + (uint64_t)m->gang * args.chunks * GK_BATCH_MAX;
	const uint32_t f = threadIdx.x;
	struct tally t;
	uint32_t kept = 0;
	bool some;

	if (s->batch.pack)
		pack_all(s, m->first, m->end);
	if (s->batch.direct != 0)
		t = count_all<true>(s, m->gang, m->first, m->end, table, counts);
	else
		t = count_all<false>(s, m->gang, m->first, m->end, table, counts);
	add_tallies(m, s, b, block_nnz, &t);
	__syncthreads();
	if (f == 0) {
		arrive(&m->g->counted);
		s->go = wait_count(&m->g->counted, served * args.blocks);
	}
	__syncthreads();
	if (!s->go)
		return false;

	if (f < s->batch.nb_frames)
		s->kind[f] = decide(m, &s->batch, b, f);
	some = __syncthreads_or(f < s->batch.nb_frames && s->kind[f] != GK_KIND_NONE);
	for (uint32_t i = 0; i < s->batch.nb_frames; i++)
		kept |= s->kind[i] != GK_KIND_NONE && !(s->batch.direct >> i & 1) ? 1u << i : 0;
	if (f == 0 && m->block == 0 && (args.staged || kept == 0))
		store_release_sys(
			&args.channel->done[m->gang].raw, args.first[m->gang] + batch + 1);

	if (kept != 0) {
		for (uint32_t i = warp_of_block(); i < s->batch.nb_frames; i += GK_CUDA_WARPS)
			if ((kept >> i & 1) && s->kind[i] == GK_KIND_CSR)
				place_csr(m, s->batch.frame[i].out, counts, block_nnz, i);
		__syncthreads();
		output_all(s, m->gang, m->first, m->end, table, counts, kept);
	}
	finish(m, &s->batch, b, batch, some || m->block == 0);
	return true;
}

/* One chunk of GK_OP_UPDATE and GK_OP_CLEAR. */
static __device__ void
update_chunk(const struct gk_cuda_batch *b, const struct place *pl, int64_t *samples,
	int64_t *drift, uint32_t *updated)
{
	const struct gk_cuda_coef *from = args.coef + (uint64_t)b->coef * args.chunks + pl->chunk;
	struct gk_cuda_coef *to = args.coef + (uint64_t)b->coef_to * args.chunks + pl->chunk;
	float p[GK_CUDA_LANE], r[GK_CUDA_LANE];
	struct lane_coef c;

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		p[i] = 0.0f, r[i] = gk_nan();
	if (pl->inside && b->op == GK_OP_UPDATE)
		load_plane(p, b->plane.p[0], pl);
	if (pl->inside) {
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++) {
			unsigned long long *at = (unsigned long long *)b->cells + pl->at + i;
			const uint64_t cell = __ldcg(at);
			const float before = p[i];

			p[i] = gk_dark_update(
				before, cell, b->params.dark_min, b->params.dark_alpha);
			*samples += cell >> 32;
			*updated += (uint32_t)(cell >> 32) >= b->params.dark_min;
			*drift += gk_drift_q8(before, p[i]);
			__stcg(at, 0ull);
		}
	}
	if (b->op == GK_OP_CLEAR)
		return;
	if (pl->inside) {
		float4 *out = (float4 *)((float *)b->plane_to.p[0] + pl->at);

		__stcg(out, make_float4(p[0], p[1], p[2], p[3]));
		__stcg(out + 1, make_float4(p[4], p[5], p[6], p[7]));
	}
	if (b->share) {
		/* r as it stands in the old version, where it is not needed if p is NaN */
		load_coef(&c, from, pl->lane);
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++) {
			const bool no_r = is_unusable(c.p[i], c.r[i]) && c.p[i] == GK_CUDA_NO_R;

			r[i] = no_r ? gk_nan() : c.r[i];
		}
		store_g0(to, p, r, pl);
		for (uint32_t i = pl->lane; i < sizeof(from->g1) / 16; i += 32) {
			__stcg((float4 *)to->g1 + i, __ldcg((const float4 *)from->g1 + i));
			__stcg((float4 *)to->g2 + i, __ldcg((const float4 *)from->g2 + i));
		}
	} else {
		if (pl->inside)
			load_plane(r, b->plane_to.r[0], pl);
		store_g0(to, p, r, pl);
		pack_g12(to, &b->plane_to, pl);
	}
}

static __device__ __noinline__ void
serve_update(const struct member *m, struct gang_shared *s, uint32_t batch)
{
	struct gk_cuda_batch *b = &m->g->batch[batch & 1];
	const uint32_t lane = threadIdx.x % 32;
	int64_t samples = 0, drift = 0;
	uint32_t updated = 0;

	for (uint32_t c = m->first + warp_of_block(); c < m->end; c += GK_CUDA_WARPS) {
		const struct place p = place_of(c, lane);

		if (s->batch.pack)
			pack_chunk(args.coef + (uint64_t)s->batch.coef * args.chunks + c,
				&s->batch.plane, &p);
		__syncwarp();
		update_chunk(&s->batch, &p, &samples, &drift, &updated);
	}
#pragma unroll
	for (int d = 16; d > 0; d /= 2) {
		samples += __shfl_xor_sync(ALL_LANES, samples, d);
		drift += __shfl_xor_sync(ALL_LANES, drift, d);
	}
	updated = __reduce_add_sync(ALL_LANES, updated);
	if (lane == 0) {
		atomicAdd(&b->samples, (unsigned long long)samples);
		atomicAdd(&b->drift, (unsigned long long)drift);
		atomicAdd(&b->updated, (unsigned long long)updated);
	}
	finish(m, &s->batch, b, batch, true);
}

/* A block's life. */
static __device__ void
serve(struct gang_shared *s)
{
	const uint32_t worker = blockIdx.x - 1;
	struct member m;
	uint32_t served = 0;

	m.gang = worker / args.blocks;
	m.block = worker % args.blocks;
	m.first = (uint32_t)((uint64_t)m.block * args.chunks / args.blocks);
	m.end = (uint32_t)((uint64_t)(m.block + 1) * args.chunks / args.blocks);
	m.g = &args.control->gang[m.gang];
	for (uint32_t batch = 0;; batch++) {
		__syncthreads(); /* all have left the last batch */
		if (threadIdx.x == 0)
			s->go = wait_ready(m.g, batch);
		__syncthreads();
		if (!s->go)
			return;
		for (uint32_t i = threadIdx.x; i < sizeof(s->batch) / 16; i += GK_CUDA_THREADS)
			((uint4 *)&s->batch)[i] = __ldcg((const uint4 *)&m.g->batch[batch & 1] + i);
		__syncthreads();
		if (s->batch.op != GK_OP_FRAMES)
			serve_update(&m, s, batch);
		else if (!serve_frames(&m, s, batch, ++served))
			return;
	}
}

#endif /* GK_CUDA_GANG_CUH */
