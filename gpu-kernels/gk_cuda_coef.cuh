/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Coefficients of one chunk: reading from their planes, preparation for the fast path, and updates
 * by dark frames. All 32 threads of a warp call these functions together. A chunk is processed in
 * two halves, in which each thread has 8 neighbouring pixels.
 */
#ifndef GK_CUDA_COEF_CUH
#define GK_CUDA_COEF_CUH

#include "gk_cuda_feed.cuh"

#define HALF   (GK_CUDA_CHUNK / 2)
#define EIGHTH 8 /* pixels of a thread in a half */

/* Position of 8 pixels of this thread. */
struct place {
	uint32_t chunk;
	uint32_t pixel; /* first pixel, within the chunk */
	bool inside;	/* false: they are beyond the end of the row */
	uint64_t at;	/* raster number */
};

static __device__ __forceinline__ struct place
place_of(uint32_t chunk, uint32_t half)
{
	const uint32_t row = divide(chunk, args.row_chunks);
	struct place p;

	p.chunk = chunk;
	p.pixel = half * HALF + lane_of_warp() * EIGHTH;
	p.inside = p.pixel < pixels_of(chunk);
	p.at = (uint64_t)row * args.geometry.cols + column_of(chunk) + p.pixel;
	return p;
}

static __device__ __forceinline__ void
load_plane(float v[EIGHTH], uint64_t plane, const struct place *p)
{
	const float4 *from = (const float4 *)((const float *)plane + p->at);

#pragma unroll
	for (int k = 0; k < 2; k++) {
		const float4 f = __ldcg(from + k);

		v[4 * k] = f.x, v[4 * k + 1] = f.y, v[4 * k + 2] = f.z, v[4 * k + 3] = f.w;
	}
}

/* Coefficients as stored, for gk_photons(). */
static __device__ __forceinline__ void
store_plane(struct gk_cuda_coef *to, int stage, const float p[], const float r[],
	const struct place *pl)
{
#pragma unroll
	for (int i = 0; i < EIGHTH; i += 2)
		__stcg((float4 *)to->plane[stage][pl->pixel + i],
			make_float4(p[i], r[i], p[i + 1], r[i + 1]));
}

/*
 * G0 coefficients of 8 pixels, with their form for the fast path. All threads call this; pixels of
 * threads outside the row are holes that are not counted.
 * @param holes,wild  increased by the numbers found
 */
static __device__ __forceinline__ void
store_g0(struct gk_cuda_coef *to, const float p[], const float r[], const struct place *pl,
	uint32_t *holes, uint32_t *wild)
{
	uint32_t hole_bits = 0, wild_bits = 0;
	struct quick q[EIGHTH];

#pragma unroll
	for (int i = 0; i < EIGHTH; i++) {
		q[i] = quick_of(p[i], r[i]);
		hole_bits |= (uint32_t)q[i].hole << i;
		wild_bits |= (uint32_t)q[i].wild << i;
	}
#pragma unroll
	for (int i = 0; i < EIGHTH; i += 4) {
		__stcg((float4 *)&to->p[pl->pixel + i],
			make_float4(q[i].p, q[i + 1].p, q[i + 2].p, q[i + 3].p));
		__stcg((float4 *)&to->r[pl->pixel + i],
			make_float4(q[i].r, q[i + 1].r, q[i + 2].r, q[i + 3].r));
	}
	__stcg((uint8_t *)to->hole_bits + pl->pixel / 8, (uint8_t)hole_bits);
	__stcg((uint8_t *)to->wild_bits + pl->pixel / 8, (uint8_t)wild_bits);
	store_plane(to, 0, p, r, pl);
	*holes += pl->inside ? __popc(hole_bits) : 0;
	*wild += __popc(wild_bits);
}

static __device__ __forceinline__ void
store_counts(struct gk_cuda_coef *to, uint32_t holes, uint32_t wild)
{
	holes = __reduce_add_sync(ALL_LANES, holes);
	wild = __reduce_add_sync(ALL_LANES, wild);
	if (lane_of_warp() == 0)
		__stcg((uint4 *)&to->holes, make_uint4(holes, wild, 0, 0));
}

static __device__ __forceinline__ void
pack_g12(struct gk_cuda_coef *to, const struct gk_coef *plane, const struct place *pl)
{
	float p[EIGHTH], r[EIGHTH];

	if (!pl->inside)
		return;
	for (int stage = 1; stage < 3; stage++) {
		load_plane(p, plane->p[stage], pl);
		load_plane(r, plane->r[stage], pl);
		store_plane(to, stage, p, r, pl);
	}
}

/* Read a version from its planes. If these are in host memory, they cross the bus only here. */
static __device__ __forceinline__ void
pack_chunk(struct gk_cuda_coef *to, const struct gk_coef *plane, uint32_t chunk)
{
	uint32_t holes = 0, wild = 0;

	for (uint32_t half = 0; half < 2; half++) {
		const struct place pl = place_of(chunk, half);
		float p[EIGHTH], r[EIGHTH];

#pragma unroll
		for (int i = 0; i < EIGHTH; i++)
			p[i] = 0.0f, r[i] = gk_nan();
		if (pl.inside) {
			load_plane(p, plane->p[0], &pl);
			load_plane(r, plane->r[0], &pl);
		}
		store_g0(to, p, r, &pl, &holes, &wild);
		pack_g12(to, plane, &pl);
	}
	store_counts(to, holes, wild);
}

/* Determine the thresholds of a chunk whose coefficients were stored by the same threads. */
static __device__ __forceinline__ void
set_chunk_thresholds(struct gk_cuda_coef *to, const struct gk_params *params)
{
	for (uint32_t half = 0; half < 2; half++) {
		const uint32_t pixel = half * HALF + lane_of_warp() * EIGHTH;
		uint32_t bragg[4] = {0}, csr[4] = {0};

#pragma unroll
		for (uint32_t i = 0; i < EIGHTH; i++) {
			const float2 c = __ldcg((const float2 *)to->plane[0][pixel + i]);
			const struct quick q = quick_of(c.x, c.y);

			bragg[i / 2] |= (0x8000u | threshold_word(&q, params->strong_threshold))
				<< i % 2 * 16;
			csr[i / 2] |= (0x8000u | threshold_word(&q, params->csr_threshold))
				<< i % 2 * 16;
		}
		__stcg((uint4 *)&to->bragg[pixel],
			make_uint4(bragg[0], bragg[1], bragg[2], bragg[3]));
		__stcg((uint4 *)&to->csr[pixel], make_uint4(csr[0], csr[1], csr[2], csr[3]));
	}
}

/* Add the dark frames of a batch (bit mask) to the cells of a chunk. */
static __device__ __forceinline__ void
dark_chunk(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const uint64_t *table, uint32_t chunk)
{
	const uint32_t row = divide(chunk, args.row_chunks), tile = divide(row, args.tile_rows);
	const uint64_t *packets = table + (uint64_t)tile * GK_BATCH_MAX;

	for (uint32_t half = 0; half < 2; half++) {
		const struct place pl = place_of(chunk, half);
		const uint64_t word =
			pl.at - (uint64_t)tile * args.tile_rows.by * args.geometry.cols;
		uint32_t sum[EIGHTH] = {0};

		if (!pl.inside)
			continue;
		for (uint32_t dark = b->dark; dark != 0; dark &= dark - 1) {
			const uint32_t f = __ffs(dark) - 1;
			const uint64_t packet = __ldcg(packets + f);
			const uint16_t *from = args.staged || (b->trailers >> f & 1)
				? copy_of(gang, f, chunk) + pl.pixel
				: (const uint16_t *)packet + word;
			uint4 w;

			if (packet == 0)
				continue;
			w = __ldcg((const uint4 *)from);
			/*
			 * 16 samples of 14 bits fit into 20 bits; their number is stored above
			 * them.
			 */
#pragma unroll
			for (int i = 0; i < EIGHTH; i++) {
				const uint32_t pair = i < 2 ? w.x : i < 4 ? w.y : i < 6 ? w.z : w.w;
				const uint32_t sample = pair >> i % 2 * 16 & 0xFFFF;

				sum[i] += (sample & GK_RAW_GAIN_MASK) == 0 ? 1u << 20 | sample : 0;
			}
		}
#pragma unroll
		for (int i = 0; i < EIGHTH; i++) {
			unsigned long long *cell = (unsigned long long *)b->cells + pl.at + i;
			const float r = __ldcg(&coef->plane[0][pl.pixel + i][1]);
			const uint64_t add =
				r != r ? 0 : (uint64_t)(sum[i] >> 20) << 32 | (sum[i] & 0xFFFFF);

			/* only this thread's, unless other gangs add to the same set */
			if (args.gangs == 1)
				__stcg(cell, __ldcg(cell) + add);
			else if (add != 0)
				atomicAdd(cell, (unsigned long long)add);
		}
	}
}

/* Result of GK_OP_UPDATE of one thread. */
struct drift {
	int64_t samples;
	int64_t drift;
	uint32_t updated;
};

/* Process one half of a chunk of GK_OP_UPDATE and GK_OP_CLEAR; p becomes P'. */
static __device__ __forceinline__ void
update_cells(const struct gk_cuda_batch *b, const struct place *pl, float p[], struct drift *d)
{
	if (!pl->inside)
		return;
#pragma unroll
	for (int i = 0; i < EIGHTH; i++) {
		unsigned long long *at = (unsigned long long *)b->cells + pl->at + i;
		const uint64_t cell = __ldcg(at);
		const float before = p[i];

		p[i] = gk_dark_update(before, cell, b->params.dark_min, b->params.dark_alpha);
		d->samples += cell >> 32;
		d->updated += (uint32_t)(cell >> 32) >= b->params.dark_min;
		d->drift += gk_drift_q8(before, p[i]);
		__stcg(at, 0ull);
	}
}

/* Process one chunk of GK_OP_UPDATE and GK_OP_CLEAR. */
static __device__ __forceinline__ void
update_chunk(const struct gk_cuda_batch *b, uint32_t chunk, struct drift *d)
{
	const struct gk_cuda_coef *from = args.coef + (uint64_t)b->coef * args.chunks + chunk;
	struct gk_cuda_coef *to = args.coef + (uint64_t)b->coef_to * args.chunks + chunk;
	uint32_t holes = 0, wild = 0;

	for (uint32_t half = 0; half < 2; half++) {
		const struct place pl = place_of(chunk, half);
		float p[EIGHTH], r[EIGHTH];

#pragma unroll
		for (int i = 0; i < EIGHTH; i++)
			p[i] = 0.0f, r[i] = gk_nan();
		if (pl.inside && b->op == GK_OP_UPDATE)
			load_plane(p, b->plane.p[0], &pl);
		update_cells(b, &pl, p, d);
		if (b->op == GK_OP_CLEAR)
			continue;
		if (pl.inside) {
			float4 *out = (float4 *)((float *)b->plane_to.p[0] + pl.at);

			__stcg(out, make_float4(p[0], p[1], p[2], p[3]));
			__stcg(out + 1, make_float4(p[4], p[5], p[6], p[7]));
		}
		if (b->share) {
			for (int i = 0; pl.inside && i < EIGHTH; i++)
				r[i] = __ldcg(&from->plane[0][pl.pixel + i][1]);
			for (int i = 0; i < 2 * EIGHTH; i += 4)
				for (int stage = 1; stage < 3; stage++)
					__stcg((float4 *)(to->plane[stage][pl.pixel] + i),
						__ldcg((const float4
								*)(from->plane[stage][pl.pixel] +
							i)));
		} else {
			if (pl.inside)
				load_plane(r, b->plane_to.r[0], &pl);
			pack_g12(to, &b->plane_to, &pl);
		}
		store_g0(to, p, r, &pl, &holes, &wild);
	}
	if (b->op == GK_OP_UPDATE)
		store_counts(to, holes, wild);
}

#endif /* GK_CUDA_COEF_CUH */
