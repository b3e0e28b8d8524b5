/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw words and coefficients on their way to one warp: a ring in shared memory that runs ahead of
 * the arithmetic, from frame to frame and on into the next chunk, so that a warp waits for memory
 * once a batch and not once a chunk.
 *
 * Words come in the order in which they are used: frames 0 to n - 1 of a chunk, then of the next.
 * Each is a group of asynchronous copies; the first group of a chunk also brings the coefficients
 * of the next one. A thread copies what it alone will read, but for the flags of the chunk.
 */
#ifndef GK_CUDA_FEED_CUH
#define GK_CUDA_FEED_CUH

#include "gk_cuda_order.cuh"
#include "gk_cuda_pixel.cuh"

struct feed {
	uint64_t
		from; /* thread i: address of frame i of this chunk; i + n: of the next; 0 = none */
	uint64_t after;			 /* thread i + n: of the next but one */
	const struct gk_cuda_coef *coef; /* of chunk 0 */
	const uint64_t *table;		 /* pointers by tile and frame */
	uint32_t list;	 /* of a thread: the frame that it looks up, of this chunk or the next */
	uint32_t n;	 /* frames */
	uint32_t left;	 /* chunks after this one; its lowest bit says where coefficients lie */
	uint32_t gang;	 /* whose staged copies are read; GK_GANGS_MAX = packets themselves */
	uint32_t words;	 /* shared memory: this thread's first place */
	uint32_t place;	 /* of the words that are used next, in bytes from there */
	uint32_t inside; /* has this thread pixels: bit 0 in this chunk, bit 1 in the next */
};

#define PLACES (GK_CUDA_DEPTH * 512)

/* Shared memory of a warp's coefficients. */
static __device__ __forceinline__ uint32_t
kept_at(uint32_t odd)
{
	extern __shared__ uint4 shared_feed[];

	return (uint32_t)__cvta_generic_to_shared(shared_feed) + GK_CUDA_WARPS * PLACES +
		(threadIdx.x / 32 * 2 + odd % 2) * GK_CUDA_KEPT;
}

/* Number of the nth bit that is set. */
static __device__ __forceinline__ uint32_t
bit_of(uint32_t bits, uint32_t n)
{
	while (n-- > 0)
		bits &= bits - 1;
	return __ffs(bits) - 1;
}

static __device__ __forceinline__ uint32_t
lead_of(const struct feed *f)
{
	return f->n >= GK_CUDA_DEPTH - 1 ? GK_CUDA_DEPTH - 1 : 1;
}

static __device__ __forceinline__ uint32_t
is_inside(uint32_t chunk)
{
	return chunk % args.row_chunks * GK_CUDA_CHUNK + threadIdx.x % 32 * GK_CUDA_LANE <
		args.geometry.cols;
}

/* Where a thread's frame of a chunk begins. */
static __device__ __forceinline__ uint64_t
address_of(const struct feed *f, uint32_t chunk)
{
	const uint32_t row = chunk / args.row_chunks;
	const uint32_t first = chunk % args.row_chunks * GK_CUDA_CHUNK;
	const uint64_t word =
		(uint64_t)(row % args.geometry.tile_rows) * args.geometry.cols + first;
	uint64_t packet;

	if (f->list >= GK_BATCH_MAX)
		return 0;
	packet = __ldcg(
		f->table + (uint64_t)(row / args.geometry.tile_rows) * GK_BATCH_MAX + f->list);
	if (packet == 0)
		return 0;
	if (f->gang == GK_GANGS_MAX)
		return packet + word * sizeof(uint16_t);
	return (uint64_t)(args.copy +
		(((uint64_t)f->gang * GK_BATCH_MAX + f->list) * args.chunks + chunk) *
			GK_CUDA_CHUNK);
}

static __device__ __forceinline__ uint64_t
of_thread(uint64_t mine, uint32_t thread)
{
	return __shfl_sync(ALL_LANES, mine, thread);
}

/* The words of frame i of this chunk, or i - n of the next; a group of its own, empty or not. */
static __device__ __forceinline__ void
feed_words(const struct feed *f, uint32_t i, uint32_t ahead)
{
	const uint64_t from = of_thread(f->from, i);

	if (from != 0 && (f->inside & (i < f->n ? 1 : 2)))
		copy_async(f->words + (f->place + ahead * 512) % PLACES,
			from + threadIdx.x % 32 * GK_CUDA_LANE * 2);
	copy_commit();
}

static __device__ __forceinline__ void
feed_coef(const struct feed *f, uint32_t chunk, uint32_t odd)
{
	const uint64_t from = (uint64_t)(f->coef + chunk);
	const uint32_t to = kept_at(odd), lane = threadIdx.x % 32;

#pragma unroll
	for (uint32_t k = 0; k < 4; k++)
		copy_async(to + (k * 32 + lane) * 16, from + (k * 32 + lane) * 16);
	if (lane == 0)
		copy_async(to + 2048, from + offsetof(struct gk_cuda_coef, unusable));
}

/*
 * @param chunk,chunks  the warp's: the first one, how many (not 0); STEP from one to the next
 * @param frames  of the batch, a bit each: those that are wanted
 */
template <uint32_t STEP>
static __device__ __forceinline__ void
feed_open(struct feed *f, const struct gk_cuda_coef *coef, const uint64_t *table, uint32_t gang,
	uint32_t chunk, uint32_t chunks, uint32_t frames)
{
	extern __shared__ uint4 shared_feed[];
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;

	f->coef = coef;
	f->table = table;
	f->n = __popc(frames);
	f->left = chunks - 1;
	f->gang = gang;
	f->words = (uint32_t)__cvta_generic_to_shared(shared_feed) + warp * PLACES + lane * 16;
	f->place = 0;
	/* the frame of the (lane % n)th bit */
	f->list = lane < 2 * f->n ? bit_of(frames, lane % f->n) : GK_BATCH_MAX;
	f->inside = is_inside(chunk) | is_inside(chunk + STEP) << 1;
	f->from =
		lane < f->n || f->left > 0 ? address_of(f, lane < f->n ? chunk : chunk + STEP) : 0;
	f->after = f->left > 1 ? address_of(f, chunk + 2 * STEP) : 0;
	feed_coef(f, chunk, f->left);
	for (uint32_t i = 0; i < lead_of(f); i++)
		feed_words(f, i, i);
}

/* Words of frame i of this chunk, in order. @return this thread's; stale if there are none */
template <uint32_t STEP>
static __device__ __forceinline__ uint4
feed_next(struct feed *f, uint32_t i, uint32_t chunk)
{
	const uint32_t lead = lead_of(f);
	uint4 w;

	if (lead == 1)
		copy_wait<0>();
	else
		copy_wait<GK_CUDA_DEPTH - 2>();
	w = load_shared(f->words + f->place);
	/* over the words of the frame before this one, which are used up */
	if (i == 0 && f->left > 0)
		feed_coef(f, chunk + STEP, f->left - 1);
	feed_words(f, i + lead, lead);
	f->place = (f->place + 512) % PLACES;
	return w;
}

/* Coefficients of this chunk, after its first feed_next(). */
static __device__ __forceinline__ uint2
feed_known(const struct feed *f, struct lane_coef *c)
{
	const uint32_t at = kept_at(f->left), lane = threadIdx.x % 32;
	uint4 flags;

	__syncwarp(); /* the flags were copied by the first thread */
#pragma unroll
	for (uint32_t k = 0; k < 2; k++) {
		const uint4 p = load_shared(at + (k * 32 + lane) * 16);
		const uint4 r = load_shared(at + ((k + 2) * 32 + lane) * 16);

		c->p[4 * k] = __uint_as_float(p.x), c->p[4 * k + 1] = __uint_as_float(p.y);
		c->p[4 * k + 2] = __uint_as_float(p.z), c->p[4 * k + 3] = __uint_as_float(p.w);
		c->r[4 * k] = __uint_as_float(r.x), c->r[4 * k + 1] = __uint_as_float(r.y);
		c->r[4 * k + 2] = __uint_as_float(r.z), c->r[4 * k + 3] = __uint_as_float(r.w);
	}
	flags = load_shared(at + 2048);
	return make_uint2(flags.x, flags.y);
}

/* On to the next chunk. @return its number */
template <uint32_t STEP>
static __device__ __forceinline__ uint32_t
feed_chunk(struct feed *f, uint32_t chunk)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint64_t mine = of_thread(f->from, (lane + f->n) % 32);

	/* all have read the flags of this chunk before others come in their place */
	__syncwarp();
	if (f->left == 0)
		return chunk;
	f->left--;
	chunk += STEP;
	f->from = lane < f->n ? mine : f->after;
	f->after = f->left > 1 ? address_of(f, chunk + 2 * STEP) : 0;
	f->inside = f->inside >> 1 | is_inside(chunk + STEP) << 1;
	return chunk;
}

/* Frames of this chunk that have packets: bit i is the i-th one that is wanted. */
static __device__ __forceinline__ uint32_t
feed_present(const struct feed *f)
{
	return __ballot_sync(ALL_LANES, f->from != 0) & ((1u << f->n) - 1);
}

#endif /* GK_CUDA_FEED_CUH */
