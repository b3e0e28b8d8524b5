/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one warp does with one chunk: coefficients, counts, dark samples, outputs. All 32 threads
 * call these together; frame f of a batch is accounted for by thread f.
 */
#ifndef GK_CUDA_CHUNK_CUH
#define GK_CUDA_CHUNK_CUH

#include "gk_cuda_feed.cuh"

/* Where a chunk is, and in it the 8 pixels of this thread. */
struct place {
	uint32_t chunk;
	uint32_t lane;
	uint32_t tile;
	uint32_t row;  /* of the frame */
	uint32_t col;  /* of this thread's first pixel */
	bool inside;   /* false: a row ends before this thread's pixels */
	uint64_t word; /* of the packet: this thread's first */
	uint64_t at;   /* raster number of this thread's first pixel */
};

/* Statistics of frame f, in thread f. */
struct tally {
	int64_t sum;
	uint32_t bragg;
	uint32_t nnz;
	uint32_t saturated;
	uint32_t invalid;
};

static __device__ __forceinline__ struct place
place_of(uint32_t chunk, uint32_t lane)
{
	struct place p;
	const uint32_t first = chunk % args.row_chunks * GK_CUDA_CHUNK;

	p.chunk = chunk;
	p.lane = lane;
	p.row = chunk / args.row_chunks;
	p.tile = p.row / args.geometry.tile_rows;
	p.col = first + lane * GK_CUDA_LANE;
	p.inside = p.col < args.geometry.cols;
	p.word = (uint64_t)(p.row % args.geometry.tile_rows) * args.geometry.cols + p.col;
	p.at = (uint64_t)p.row * args.geometry.cols + p.col;
	return p;
}

static __device__ __forceinline__ void
load_plane(float v[GK_CUDA_LANE], uint64_t plane, const struct place *p)
{
	const float4 *from = (const float4 *)((const float *)plane + p->at);

#pragma unroll
	for (int k = 0; k < 2; k++) {
		const float4 f = __ldcg(from + k);

		v[4 * k] = f.x, v[4 * k + 1] = f.y, v[4 * k + 2] = f.z, v[4 * k + 3] = f.w;
	}
}

/* What stands for p and r in struct gk_cuda_coef; a true p of that value moves aside. */
static __device__ __forceinline__ float2
packed(float p, float r)
{
	if (r != r)
		return make_float2(GK_CUDA_NO_R, 0.0f);
	if (p != p)
		return make_float2(GK_CUDA_NO_P, 0.0f);
	if (is_unusable(p, r))
		return make_float2(copysignf(1e38f, p), 0.0f);
	return make_float2(p, r);
}

/* All threads: also those outside, whose pixels then count nowhere. */
static __device__ void
store_g0(struct gk_cuda_coef *to, const float p[], const float r[], const struct place *pl)
{
	uint32_t unusable = 0, wild = 0;
	float2 c[GK_CUDA_LANE];

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		c[i] = packed(p[i], r[i]);
		unusable += pl->inside && is_unusable(c[i].x, c[i].y);
		wild |= is_wild(c[i].x, c[i].y);
	}
#pragma unroll
	for (int k = 0; k < 2; k++) {
		__stcg((float4 *)to->g0[k][pl->lane],
			make_float4(c[4 * k].x, c[4 * k + 1].x, c[4 * k + 2].x, c[4 * k + 3].x));
		__stcg((float4 *)to->g0[k + 2][pl->lane],
			make_float4(c[4 * k].y, c[4 * k + 1].y, c[4 * k + 2].y, c[4 * k + 3].y));
	}
	unusable = __reduce_add_sync(ALL_LANES, unusable);
	wild = __ballot_sync(ALL_LANES, wild);
	if (pl->lane == 0)
		__stcg((uint2 *)&to->unusable, make_uint2(unusable, wild));
}

static __device__ void
store_g12(float (*to)[2], const float p[], const float r[], uint32_t lane)
{
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i += 2)
		__stcg((float4 *)to[lane * GK_CUDA_LANE + i],
			make_float4(p[i], r[i], p[i + 1], r[i + 1]));
}

/* Read a version from its planes; from host memory this is the only time they cross the bus. */
static __device__ void
pack_g12(struct gk_cuda_coef *to, const struct gk_coef *plane, const struct place *pl)
{
	float p[GK_CUDA_LANE], r[GK_CUDA_LANE];

	if (!pl->inside)
		return;
	load_plane(p, plane->p[1], pl);
	load_plane(r, plane->r[1], pl);
	store_g12(to->g1, p, r, pl->lane);
	load_plane(p, plane->p[2], pl);
	load_plane(r, plane->r[2], pl);
	store_g12(to->g2, p, r, pl->lane);
}

static __device__ void
pack_chunk(struct gk_cuda_coef *to, const struct gk_coef *plane, const struct place *pl)
{
	float p[GK_CUDA_LANE], r[GK_CUDA_LANE];

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		p[i] = 0.0f, r[i] = gk_nan();
	if (pl->inside) {
		load_plane(p, plane->p[0], pl);
		load_plane(r, plane->r[0], pl);
	}
	store_g0(to, p, r, pl);
	pack_g12(to, plane, pl);
}

/* Raw words of this thread; a packet, or what is staged of it. */
static __device__ __forceinline__ uint4
load_words(uint64_t packet, const struct place *p)
{
	return p->inside ? __ldcs((const uint4 *)((const uint16_t *)packet + p->word))
			 : make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ uint4 *
copy_of(uint32_t gang, uint32_t frame, uint32_t chunk)
{
	const uint64_t at = ((uint64_t)gang * GK_BATCH_MAX + frame) * args.chunks + chunk;

	return (uint4 *)(args.copy + at * GK_CUDA_CHUNK + threadIdx.x % 32 * GK_CUDA_LANE);
}

static __device__ __forceinline__ uint4
load_again(uint32_t gang, uint32_t frame, uint64_t packet, const struct place *p)
{
	return args.staged ? __ldcg(copy_of(gang, frame, p->chunk)) : load_words(packet, p);
}

static __device__ __forceinline__ uint32_t
pixels_of(uint32_t chunk)
{
	return min(args.geometry.cols - chunk % args.row_chunks * GK_CUDA_CHUNK,
		(uint32_t)GK_CUDA_CHUNK);
}

/* Addresses of a chunk's packets, of frame f in thread f; 0 = missing, or no such frame. */
static __device__ __forceinline__ uint64_t
packets_of(const uint64_t *table, const struct place *p, uint32_t n)
{
	return p->lane < n ? __ldcg(table + (uint64_t)p->tile * GK_BATCH_MAX + p->lane) : 0;
}

/* May a thread's pixels be counted by lane_counts_of()? */
static __device__ __forceinline__ bool
is_quick(const struct gk_cuda_batch *b, uint32_t wild, uint4 w)
{
	return b->quick && !(wild >> threadIdx.x % 32 & 1) && all_g0(w);
}

/* 8 pixels of a full image, or raw ones; `w` is not looked at when they are missing. */
static __device__ __forceinline__ void
store_raw(uint64_t out, const struct place *p, uint4 w)
{
	if (p->inside)
		__stcs((uint4 *)((uint16_t *)(out + args.layout.raw) + p->at), w);
}

static __device__ __forceinline__ void
store_missing(uint64_t out, uint32_t kind, const struct place *p)
{
	const uint32_t none = 0xFFFFFFFFu;
	float x[GK_CUDA_LANE];

	if (kind == GK_KIND_RAW) {
		store_raw(out, p, make_uint4(none, none, none, none));
		return;
	}
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		x[i] = gk_nan();
	if (p->inside)
		store_values((void *)(out + args.layout.value), p->at, args.value, x);
}

/* Pixels that are NaN in G0, a bit each. */
static __device__ __forceinline__ uint32_t
holes_of(const struct lane_coef *c)
{
	uint32_t holes = 0;

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		holes |= (uint32_t)is_unusable(c->p[i], c->r[i]) << i;
	return holes;
}

/* A frame whose kind was sure before: out with it, while its words are here. */
static __device__ __forceinline__ void
store_direct(const struct gk_cuda_frame *f, const struct place *p, uint4 w, uint32_t holes,
	bool exact, float x[GK_CUDA_LANE])
{
	if (f->direct == GK_KIND_RAW) {
		store_raw(f->out, p, w);
		return;
	}
	if (!exact || !p->inside)
		return; /* follows in count_rest() */
	if (holes != 0) {
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++)
			x[i] = holes >> i & 1 ? gk_nan() : x[i];
	}
	store_values((void *)(f->out + args.layout.value), p->at, args.value, x);
}

/* In what count_chunk() leaves: something of this chunk and frame is for count_rest(). */
#define REST (1u << 31)

/*
 * What count_chunk() has left of a chunk, by frames, a bit each: pixel by pixel, any words and
 * thresholds, of the threads that did not count theirs.
 */
static __device__ __forceinline__ void
count_rest(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const struct place *p, const uint64_t *table, uint32_t *count, uint32_t todo,
	struct tally *tally)
{
	const uint64_t packet = packets_of(table, p, b->nb_frames);
	const uint32_t wild = __ldcg(&coef->wild);
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	for (; todo != 0; todo &= todo - 1) {
		const uint32_t f = __ffs(todo) - 1;
		const uint4 w = load_again(gang, f, of_thread(packet, f), p);
		/* invalid ones beyond those that count_chunk() has counted: may be negative */
		uint32_t counts = 0, saturated = 0, invalid = GK_CUDA_LANE;
		int64_t sum = 0;

		if (p->inside && !is_quick(b, wild, w)) {
			float x[GK_CUDA_LANE];

			photons_of(x, w, &c, coef, p->lane);
#pragma unroll
			for (int i = 0; i < GK_CUDA_LANE; i++) {
				counts += (x[i] >= b->params.bragg_threshold ? 0x10000 : 0) +
					(x[i] >= b->params.csr_threshold);
				saturated += x[i] == INFINITY;
				invalid += x[i] != x[i];
				invalid -= is_unusable(c.p[i], c.r[i]);
				sum += gk_sum_q8(x[i]);
			}
			if (b->frame[f].direct == GK_KIND_IMAGE)
				store_values((void *)(b->frame[f].out + args.layout.value), p->at,
					args.value, x);
		}
		counts = __reduce_add_sync(ALL_LANES, counts);
		invalid = __reduce_add_sync(ALL_LANES, saturated << 16 | invalid);
		/* 8 x 2^30 a thread: in two halves */
		sum = (int64_t)__reduce_add_sync(ALL_LANES, (int32_t)(sum >> 16)) * 65536 +
			__reduce_add_sync(ALL_LANES, (uint32_t)sum & 0xFFFF);
		if (p->lane == f) {
			tally[f].bragg += counts >> 16;
			tally[f].nnz += counts & 0xFFFF;
			tally[f].saturated += invalid >> 16;
			tally[f].invalid += (invalid & 0xFFFF) - 32 * GK_CUDA_LANE;
			tally[f].sum += sum;
			__stcg(count + f, (__ldcg(count + f) & ~REST) + (counts & 0xFFFF));
		}
	}
}

/* Add the dark frames of a batch, a bit each, to the cells of this thread's pixels. */
static __device__ __forceinline__ void
add_dark(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const struct place *p, const uint64_t *table)
{
	const uint64_t packet = packets_of(table, p, b->nb_frames);
	uint32_t dark = b->dark & __ballot_sync(ALL_LANES, packet != 0);
	uint32_t sum[GK_CUDA_LANE] = {0};
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	for (; dark != 0; dark &= dark - 1) {
		const uint32_t f = __ffs(dark) - 1;
		const uint4 w = load_again(gang, f, of_thread(packet, f), p);

		/* 16 samples of 14 bits fit into 20 bits, their number above them */
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++) {
			const uint32_t word = word_at(w, i);

			sum[i] += (word & GK_RAW_GAIN_MASK) == 0 ? 1u << 20 | word : 0;
		}
	}
	if (!p->inside)
		return;
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		unsigned long long *cell = (unsigned long long *)b->cells + p->at + i;
		const bool no_r = is_unusable(c.p[i], c.r[i]) && c.p[i] == GK_CUDA_NO_R;
		const uint64_t add = no_r ? 0 : (uint64_t)(sum[i] >> 20) << 32 | (sum[i] & 0xFFFFF);

		/* this thread's alone, unless other gangs add to the same set */
		if (args.gangs == 1)
			__stcg(cell, __ldcg(cell) + add);
		else if (add != 0)
			atomicAdd(cell, (unsigned long long)add);
	}
}

/*
 * Statistics of a chunk of all frames of a batch. DIRECT: some frames' outputs are made as well,
 * because their kind is sure.
 * @param tally  the warp's, in shared memory
 * @return frames, a bit each, of which something is left for count_rest()
 */
template <bool DIRECT, uint32_t STEP>
static __device__ __forceinline__ uint32_t
count_chunk(const struct gk_cuda_batch *b, uint32_t gang, struct feed *feed, uint32_t *counts,
	uint32_t chunk, struct tally *tally)
{
	const uint32_t n = feed->n, present = feed_present(feed), lane = threadIdx.x % 32;
	const float bragg = b->params.bragg_threshold, csr = b->params.csr_threshold;
	uint32_t slow = 0, count = 0, holes = 0;
	int32_t sum = 0;
	struct lane_coef c;
	uint2 known;

#pragma unroll 2
	for (uint32_t f = 0; f < n; f++) {
		const uint4 w = feed_next<STEP>(feed, f, chunk);
		float x[GK_CUDA_LANE];
		struct lane_counts l;
		bool exact;

		if (f == 0) {
			known = feed_known(feed, &c);
			holes = DIRECT ? holes_of(&c) : 0;
		}
		if (!(present >> f & 1)) {
			if (DIRECT && (b->direct >> f & 1)) {
				const struct place p = place_of(chunk, lane);

				store_missing(b->frame[f].out, b->frame[f].direct, &p);
			}
			continue;
		}
		if (args.staged && (feed->inside & 1))
			__stcg(copy_of(gang, f, chunk), w);
		l = lane_counts_of(w, &c, bragg, csr, x);
		exact = is_quick(b, known.y, w);
		if (!exact) {
			/* outside, pixels are stale, and 0 photons by their coefficients */
			l.count = l.sum = 0;
			slow |= (feed->inside & 1) << f;
		}
		l.count = __reduce_add_sync(ALL_LANES, l.count);
		l.sum = __reduce_add_sync(ALL_LANES, l.sum);
		if (lane == f) {
			count = l.count;
			sum = l.sum;
		}
		if (DIRECT && (b->direct >> f & 1)) {
			const struct place p = place_of(chunk, lane);

			store_direct(&b->frame[f], &p, w, holes, exact, x);
		}
	}
	slow = __reduce_or_sync(ALL_LANES, slow);
	if (lane < GK_BATCH_MAX)
		__stcg(counts + (uint64_t)chunk * GK_BATCH_MAX + lane,
			(count & 0xFFFF) | (slow >> lane & 1 ? REST : 0));
	if (lane < n) {
		tally[lane].sum += sum;
		tally[lane].bragg += count >> 16;
		tally[lane].nnz += count & 0xFFFF;
		tally[lane].invalid += present >> lane & 1 ? known.x : pixels_of(chunk);
	}
	return slow;
}

/* x[i], without a place in memory. */
static __device__ __forceinline__ float
one_of(const float x[GK_CUDA_LANE], uint32_t i)
{
	const float a = i & 4 ? x[4] : x[0], b = i & 4 ? x[5] : x[1];
	const float c = i & 4 ? x[6] : x[2], d = i & 4 ? x[7] : x[3];
	const float e = i & 2 ? c : a, f = i & 2 ? d : b;

	return i & 1 ? f : e;
}

/*
 * Columns and values of one frame's pixels >= csr_threshold, from entry `first` of its list on.
 * @param mine  pixels of this thread, the last one in bit 0
 */
static __device__ __forceinline__ void
store_csr(uint64_t out, uint32_t first, const struct place *p, uint32_t mine,
	const float x[GK_CUDA_LANE])
{
	const uint32_t n = __popc(mine);
	uint32_t before = n;

	if (!__any_sync(ALL_LANES, mine != 0))
		return;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const uint32_t left = __shfl_up_sync(ALL_LANES, before, d);

		before += p->lane >= d ? left : 0;
	}
	/* few pixels: one turn or two */
	for (first += before - n; mine != 0; first++) {
		const uint32_t i = __clz(mine) - (32 - GK_CUDA_LANE);

		mine &= ~(0x80u >> i);
		((uint16_t *)(out + args.layout.col))[first] = (uint16_t)(p->col + i);
		store_value((void *)(out + args.layout.value), first, args.value, one_of(x, i));
	}
}

/* Bits of pixels of G0 that are >= threshold, which is above 0; the last pixel in bit 0. */
static __device__ __forceinline__ uint32_t
kept_of(uint4 w, const struct lane_coef *c, float threshold, float x[GK_CUDA_LANE])
{
	uint32_t below = 0;

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		x[i] = photons_g0(w, c, i);
		below = __funnelshift_l(__float_as_uint(__fsub_rn(x[i], threshold)), below, 1);
	}
	return ~below & 0xFF;
}

/*
 * Outputs of a chunk of the frames in `kept`, a bit each, that are raw, or CSR of words of G0.
 * @param first  places of this chunk's pixels in the lists, of frame f in thread f
 * @param kind   of each frame
 * @return frames, a bit each, of which something is left for output_rest()
 */
template <uint32_t STEP>
static __device__ __forceinline__ uint32_t
output_chunk(const struct gk_cuda_batch *b, struct feed *feed, uint32_t first, uint32_t chunk,
	const uint32_t *kind, uint32_t kept)
{
	const uint32_t present = feed_present(feed), lane = threadIdx.x % 32;
	const float csr = b->params.csr_threshold;
	const struct place p = place_of(chunk, lane);
	uint32_t rest = 0;
	struct lane_coef c;
	uint2 known;

	for (uint32_t i = 0; kept != 0; i++, kept &= kept - 1) {
		const uint32_t f = __ffs(kept) - 1;
		const uint32_t at = __shfl_sync(ALL_LANES, first, f);
		const uint4 w = feed_next<STEP>(feed, i, chunk);
		const uint64_t out = b->frame[f].out;
		float x[GK_CUDA_LANE];
		uint32_t mine;

		if (i == 0)
			known = feed_known(feed, &c);
		if (!(present >> i & 1)) {
			if (kind[f] != GK_KIND_CSR)
				store_missing(out, kind[f], &p);
		} else if (kind[f] == GK_KIND_RAW) {
			store_raw(out, &p, w);
		} else if (__all_sync(ALL_LANES, !p.inside || is_quick(b, known.y, w))) {
			mine = kept_of(w, &c, csr, x);
			store_csr(out, at, &p, p.inside ? mine : 0, x);
		} else {
			rest |= 1u << f;
		}
	}
	return rest;
}

/*
 * Outputs of a chunk of frames that are images, or CSR and left by output_chunk(): any words and
 * thresholds.
 */
static __device__ __forceinline__ void
output_rest(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const uint64_t *table, uint32_t first, const struct place *p, const uint32_t *kind,
	uint32_t kept)
{
	const uint64_t packet = packets_of(table, p, b->nb_frames);
	const uint32_t wild = __ldcg(&coef->wild);
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	for (; kept != 0; kept &= kept - 1) {
		const uint32_t f = __ffs(kept) - 1;
		const uint64_t from = of_thread(packet, f), out = b->frame[f].out;
		const uint32_t at = __shfl_sync(ALL_LANES, first, f);
		float x[GK_CUDA_LANE];
		uint32_t mine = 0;
		uint4 w;

		if (from == 0) {
			if (kind[f] == GK_KIND_IMAGE)
				store_missing(out, GK_KIND_IMAGE, p);
			continue;
		}
		w = load_again(gang, f, from, p);
		if (kind[f] == GK_KIND_CSR &&
			__all_sync(ALL_LANES, !p->inside || is_quick(b, wild, w)))
			continue; /* by output_chunk() */
		photons_of(x, w, &c, coef, p->lane);
		if (kind[f] == GK_KIND_IMAGE) {
			if (p->inside)
				store_values(
					(void *)(out + args.layout.value), p->at, args.value, x);
			continue;
		}
#pragma unroll
		for (int i = 0; i < GK_CUDA_LANE; i++)
			mine = mine << 1 | (p->inside && x[i] >= b->params.csr_threshold);
		store_csr(out, at, p, mine, x);
	}
}

/* Places of a chunk's pixels in the lists of frames, of frame f in thread f. */
static __device__ __forceinline__ uint32_t
places_of(const uint32_t *counts, uint32_t chunk)
{
	const uint32_t lane = threadIdx.x % 32;

	return lane < GK_BATCH_MAX ? __ldcg(counts + (uint64_t)chunk * GK_BATCH_MAX + lane) : 0;
}

#endif /* GK_CUDA_CHUNK_CUH */
