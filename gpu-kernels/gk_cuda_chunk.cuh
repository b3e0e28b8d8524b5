/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one warp does with one chunk: coefficients, counts, dark samples, outputs. All 32 threads
 * call these together; frame f of a batch is accounted for by thread f.
 */
#ifndef GK_CUDA_CHUNK_CUH
#define GK_CUDA_CHUNK_CUH

#include "gk_cuda_pixel.cuh"

/* Frames whose loads are under way together. */
#define GROUP 4

/* Where a chunk is, and in it the 8 pixels of this thread. */
struct place {
	uint32_t chunk;
	uint32_t lane;
	uint32_t tile;
	uint32_t row; /* of the frame */
	uint32_t col; /* of this thread's first pixel */
	uint32_t pixels;
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
	p.pixels = min(args.geometry.cols - first, (uint32_t)GK_CUDA_CHUNK);
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
	uint32_t unusable = 0;
	float2 c[GK_CUDA_LANE];

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		c[i] = packed(p[i], r[i]);
		unusable += pl->inside && is_unusable(c[i].x, c[i].y);
	}
#pragma unroll
	for (int k = 0; k < 2; k++) {
		__stcg((float4 *)to->g0[k][pl->lane],
			make_float4(c[4 * k].x, c[4 * k + 1].x, c[4 * k + 2].x, c[4 * k + 3].x));
		__stcg((float4 *)to->g0[k + 2][pl->lane],
			make_float4(c[4 * k].y, c[4 * k + 1].y, c[4 * k + 2].y, c[4 * k + 3].y));
	}
	unusable = __reduce_add_sync(ALL_LANES, unusable);
	if (pl->lane == 0)
		__stcg(&to->unusable, unusable);
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
copy_of(uint32_t gang, uint32_t frame, const struct place *p)
{
	const uint64_t chunk = ((uint64_t)gang * GK_BATCH_MAX + frame) * args.chunks + p->chunk;

	return (uint4 *)(args.copy + chunk * GK_CUDA_CHUNK + p->lane * GK_CUDA_LANE);
}

static __device__ __forceinline__ uint4
load_again(uint32_t gang, uint32_t frame, uint64_t packet, const struct place *p)
{
	return args.staged ? __ldcg(copy_of(gang, frame, p)) : load_words(packet, p);
}

static __device__ __forceinline__ uint64_t
packet_of(uint64_t mine, uint32_t frame)
{
	return __shfl_sync(ALL_LANES, mine, frame);
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

/* A frame whose kind was sure before: out with it, while its words are here. */
static __device__ __forceinline__ void
store_direct(const struct gk_cuda_frame *f, const struct place *p, uint4 w,
	const struct lane_coef *c, bool exact, float x[GK_CUDA_LANE])
{
	if (f->direct == GK_KIND_RAW) {
		store_raw(f->out, p, w);
		return;
	}
	if (!exact || !p->inside)
		return; /* follows in count_rest() */
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		x[i] = is_unusable(c->p[i], c->r[i]) ? gk_nan() : x[i];
	store_values((void *)(f->out + args.layout.value), p->at, args.value, x);
}

/*
 * Frames in `slow` of this thread, a bit each: pixel by pixel, any words and thresholds. Not
 * inlined, and nothing by address: the common path has no registers to spare.
 */
static __device__ __noinline__ struct tally
count_rest(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	uint32_t chunk, uint64_t packet, uint32_t slow)
{
	const struct place place = place_of(chunk, threadIdx.x % 32), *p = &place;
	uint32_t todo = __reduce_or_sync(ALL_LANES, slow);
	struct tally t = {0, 0, 0, 0, 0};
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	while (todo != 0) {
		const uint32_t f = __ffs(todo) - 1;
		const uint64_t from = packet_of(packet, f);
		/* invalid ones beyond those that count_chunk() has counted: may be negative */
		uint32_t count = 0, saturated = 0, invalid = GK_CUDA_LANE;
		int64_t sum = 0;

		todo &= todo - 1;
		if (slow >> f & 1) {
			const uint4 w = load_again(gang, f, from, p);
			float x[GK_CUDA_LANE];

			photons_of(x, w, &c, coef, p->lane);
#pragma unroll
			for (int i = 0; i < GK_CUDA_LANE; i++) {
				count += (x[i] >= b->params.bragg_threshold ? 0x10000 : 0) +
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
		count = __reduce_add_sync(ALL_LANES, count);
		invalid = __reduce_add_sync(ALL_LANES, saturated << 16 | invalid);
		/* 8 x 2^30 a thread: in two halves */
		sum = (int64_t)__reduce_add_sync(ALL_LANES, (int32_t)(sum >> 16)) * 65536 +
			__reduce_add_sync(ALL_LANES, (uint32_t)sum & 0xFFFF);
		if (p->lane == f) {
			t.bragg = count >> 16;
			t.nnz = count & 0xFFFF;
			t.saturated = invalid >> 16;
			t.invalid = (invalid & 0xFFFF) - 32 * GK_CUDA_LANE;
			t.sum = sum;
		}
	}
	return t;
}

/* Add the dark frames of a batch to the cells of this thread's pixels. */
static __device__ __noinline__ void
add_dark(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	uint32_t chunk, uint64_t packet, uint32_t dark)
{
	const struct place place = place_of(chunk, threadIdx.x % 32), *p = &place;
	uint32_t sum[GK_CUDA_LANE] = {0};
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	for (; dark != 0; dark &= dark - 1) {
		const uint32_t f = __ffs(dark) - 1;
		const uint4 w = load_again(gang, f, packet_of(packet, f), p);

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
 */
template <bool DIRECT>
static __device__ __forceinline__ void
count_chunk(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const uint64_t *table, uint32_t *counts, const struct place *p, struct tally *t)
{
	const uint32_t n = b->nb_frames;
	const float bragg = b->params.bragg_threshold, csr = b->params.csr_threshold;
	const bool quick = bragg > 0.0f && csr > 0.0f;
	const uint64_t packet =
		p->lane < n ? __ldcg(table + (uint64_t)p->tile * GK_BATCH_MAX + p->lane) : 0;
	const uint32_t present = __ballot_sync(ALL_LANES, packet != 0);
	uint32_t slow = 0, nnz_here = 0, unusable;
	struct lane_coef c;

	load_coef(&c, coef, p->lane);
	unusable = __ldcg(&coef->unusable);
	for (uint32_t first = 0; first < n; first += GROUP) {
		uint4 w[GROUP];

#pragma unroll
		for (int k = 0; k < GROUP; k++) {
			const uint64_t from = packet_of(packet, first + k);

			w[k] = from != 0 ? load_words(from, p) : make_uint4(0, 0, 0, 0);
		}
#pragma unroll
		for (int k = 0; k < GROUP; k++) {
			const uint32_t f = first + k;
			float x[GK_CUDA_LANE];
			struct lane_counts l;
			uint32_t count;
			int32_t sum;

			if (!(present >> f & 1)) {
				if (DIRECT && (b->direct >> f & 1))
					store_missing(b->frame[f].out, b->frame[f].direct, p);
				continue;
			}
			if (args.staged)
				__stcg(copy_of(gang, f, p), w[k]);
			l = lane_counts_of(w[k], &c, bragg, csr, x);
			l.exact = l.exact && quick;
			if (!l.exact) {
				l.bragg = l.nnz = l.sum = 0;
				slow |= p->inside ? 1u << f : 0;
			}
			count = __reduce_add_sync(
				ALL_LANES, (uint32_t)(__popc(l.bragg) << 16 | __popc(l.nnz)));
			sum = __reduce_add_sync(ALL_LANES, l.sum);
			if (p->lane == f) {
				nnz_here = count & 0xFFFF;
				t->bragg += count >> 16;
				t->sum += sum;
			}
			if (DIRECT && (b->direct >> f & 1))
				store_direct(&b->frame[f], p, w[k], &c, l.exact, x);
		}
	}
	if (p->lane < n)
		t->invalid += present >> p->lane & 1 ? unusable : p->pixels;
	if (__any_sync(ALL_LANES, slow != 0)) {
		const struct tally rest = count_rest(b, gang, coef, p->chunk, packet, slow);

		t->sum += rest.sum;
		t->bragg += rest.bragg;
		nnz_here += rest.nnz;
		t->saturated += rest.saturated;
		t->invalid += rest.invalid;
	}
	t->nnz += nnz_here;
	if (b->dark & present)
		add_dark(b, gang, coef, p->chunk, packet, b->dark & present);
	if (p->lane < GK_BATCH_MAX)
		__stcg(counts + (uint64_t)p->chunk * GK_BATCH_MAX + p->lane, nnz_here);
}

/* Columns and values of one frame's pixels >= csr_threshold, from entry `first` of its list on. */
static __device__ __forceinline__ void
store_csr(uint64_t out, float threshold, uint32_t first, const struct place *p,
	const float x[GK_CUDA_LANE])
{
	uint16_t *col = (uint16_t *)(out + args.layout.col);
	uint32_t mine = 0, before;

#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++)
		mine += p->inside && x[i] >= threshold;
	if (!__any_sync(ALL_LANES, mine != 0))
		return;
	before = mine;
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const uint32_t left = __shfl_up_sync(ALL_LANES, before, d);

		before += p->lane >= d ? left : 0;
	}
	first += before - mine;
	if (mine == 0)
		return;
#pragma unroll
	for (int i = 0; i < GK_CUDA_LANE; i++) {
		if (!(x[i] >= threshold))
			continue;
		col[first] = (uint16_t)(p->col + i);
		store_value((void *)(out + args.layout.value), first, args.value, x[i]);
		first++;
	}
}

/*
 * Outputs of a chunk of the frames in `kept`, a bit each.
 * @param kind    of each frame
 * @param counts  what count_chunk() left, turned into places in the lists of pixels
 */
static __device__ __forceinline__ void
output_chunk(const struct gk_cuda_batch *b, uint32_t gang, const struct gk_cuda_coef *coef,
	const uint64_t *table, const uint32_t *counts, const struct place *p, const uint32_t *kind,
	uint32_t kept)
{
	uint64_t packet = 0;
	uint32_t first = 0;
	struct lane_coef c;
	uint4 next;

	if (p->lane < GK_BATCH_MAX) {
		packet = __ldcg(table + (uint64_t)p->tile * GK_BATCH_MAX + p->lane);
		first = __ldcg(counts + (uint64_t)p->chunk * GK_BATCH_MAX + p->lane);
	}
	load_coef(&c, coef, p->lane);
	next = make_uint4(0, 0, 0, 0);
	for (uint32_t f = __ffs(kept) - 1, was = 32;; was = f, f = __ffs(kept) - 1) {
		const uint4 w = next;
		float x[GK_CUDA_LANE];

		/* one load ahead: the words of f are asked for before those of `was` are used */
		if (kept != 0) {
			const uint64_t from = packet_of(packet, f);

			if (from != 0)
				next = load_again(gang, f, from, p);
			kept &= kept - 1;
		} else {
			f = 32;
		}
		if (was < 32) {
			const uint64_t out = b->frame[was].out;
			const uint32_t at = __shfl_sync(ALL_LANES, first, was);

			if (packet_of(packet, was) == 0) {
				if (kind[was] != GK_KIND_CSR)
					store_missing(out, kind[was], p);
			} else if (kind[was] == GK_KIND_RAW) {
				store_raw(out, p, w);
			} else {
				photons_of(x, w, &c, coef, p->lane);
				if (kind[was] == GK_KIND_CSR)
					store_csr(out, b->params.csr_threshold, at, p, x);
				else if (p->inside)
					store_values((void *)(out + args.layout.value), p->at,
						args.value, x);
			}
		}
		if (f == 32)
			break;
	}
}

#endif /* GK_CUDA_CHUNK_CUH */
