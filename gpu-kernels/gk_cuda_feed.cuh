/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Raw words and coefficients on their way to one warp: a ring in shared memory that runs ahead of
 * the arithmetic, from frame to frame and on into the next chunk, so that a warp waits for memory
 * once a batch and not once a chunk.
 *
 * Words come in the order in which they are used: frames 0 to n - 1 of a chunk, then of the next.
 * Each is a group of asynchronous copies; who uses the feed adds the coefficients of the next chunk
 * to the first group of one. A thread may read what others have copied.
 */
#ifndef GK_CUDA_FEED_CUH
#define GK_CUDA_FEED_CUH

#include "gk_cuda_order.cuh"
#include "gk_cuda_pixel.cuh"

struct feed {
	const struct gk_cuda_coef *coef; /* of chunk 0 */
	const uint64_t *table;		 /* pointers by tile and frame */
	uint64_t policy;
	uint64_t after; /* of a thread: address of its frame, in the next chunk but one; 0 = none */
	uint32_t area;	/* of the warp, in shared memory */
	uint32_t place; /* of the words that are used next, in bytes from there */
	uint32_t before; /* of those used before: what is copied next comes there */
	uint32_t list;	 /* of a thread: the frame that it looks up */
	uint32_t n;	 /* frames */
	uint32_t chunk;
	uint32_t left; /* chunks after this one */
	uint32_t gang; /* whose staged copies are read; GK_GANGS_MAX = packets themselves */
	uint32_t present, present_next; /* frames that have packets, of this chunk and the next */
	/* what is to be copied next: this frame and chunk; its address is in the list there */
	uint32_t ahead;
	uint32_t ahead_chunk;
	uint32_t ahead_left;
	uint32_t ahead_at;
	uint32_t ahead_inside; /* has this thread pixels there: a bit for each half of a chunk */
};

/*
 * Copies run `lead` frames ahead, a parameter of what follows: so many as there are places for,
 * less the one in use, or one when a batch has not so many frames. More do not help, but harm
 * (measured: 2.9 us a frame instead of 2.6 with 6).
 */
#define LEAD	   (GK_CUDA_DEPTH - 1)
#define LEAD_FEW   1
#define LIST_BYTES (GK_BATCH_MAX * 8)

static __device__ __forceinline__ uint32_t
lane_of_warp(void)
{
	return threadIdx.x % 32;
}

static __device__ __forceinline__ uint32_t
divide(uint32_t n, const struct gk_cuda_divisor d)
{
	const uint32_t q = __umulhi(n, d.inverse);

	return q + (n - q * d.by >= d.by);
}

/* Column of a chunk's first pixel. */
static __device__ __forceinline__ uint32_t
column_of(uint32_t chunk)
{
	return (chunk - divide(chunk, args.row_chunks) * args.row_chunks.by) * GK_CUDA_CHUNK;
}

static __device__ __forceinline__ uint32_t
pixels_of(uint32_t chunk)
{
	return min(args.geometry.cols - column_of(chunk), (uint32_t)GK_CUDA_CHUNK);
}

static __device__ __forceinline__ uint32_t
inside_of(uint32_t chunk)
{
	const uint32_t pixels = pixels_of(chunk), first = lane_of_warp() * 8;

	return (first < pixels) | (GK_CUDA_CHUNK / 2 + first < pixels) << 1;
}

static __device__ __forceinline__ uint16_t *
copy_of(uint32_t gang, uint32_t frame, uint32_t chunk)
{
	return args.copy +
		(((uint64_t)gang * GK_BATCH_MAX + frame) * args.chunks + chunk) * GK_CUDA_CHUNK;
}

/* Where a thread's frame of a chunk begins. */
static __device__ __forceinline__ uint64_t
address_of(const struct feed *f, uint32_t chunk)
{
	const uint32_t row = divide(chunk, args.row_chunks), tile = divide(row, args.tile_rows);
	const uint64_t word =
		(uint64_t)(row - tile * args.tile_rows.by) * args.geometry.cols + column_of(chunk);
	uint64_t packet;

	if (f->list >= GK_BATCH_MAX)
		return 0;
	packet = __ldcg(f->table + (uint64_t)tile * GK_BATCH_MAX + f->list);
	if (packet == 0)
		return 0;
	if (f->gang == GK_GANGS_MAX)
		return packet + word * sizeof(uint16_t);
	return (uint64_t)copy_of(f->gang, f->list, chunk);
}

/* A chunk's addresses, of frame i in thread i. @return frames that have packets */
static __device__ __forceinline__ uint32_t
feed_list(const struct feed *f, uint32_t which, uint64_t mine)
{
	const uint32_t lane = lane_of_warp();

	if (lane < f->n)
		store_shared_u64(f->area + GK_CUDA_AT_LIST + which % 2 * LIST_BYTES + lane * 8,
			mine != 0 ? mine : (uint64_t)args.nothing);
	return __ballot_sync(ALL_LANES, mine != 0);
}

/* The words that come next, to a place, as one group with what was copied since the last. */
template <uint32_t STEP>
static __device__ __forceinline__ void
feed_ahead(struct feed *f, uint32_t place)
{
	const uint64_t from = load_shared_u64(f->ahead_at) + lane_of_warp() * 16;
	const uint32_t to = f->area + place + lane_of_warp() * 16;

	if (args.staged) {
		if (f->ahead_inside & 1)
			copy_lines(to, from);
		if (f->ahead_inside & 2)
			copy_lines(to + GK_CUDA_WORDS / 2, from + GK_CUDA_WORDS / 2);
	} else {
		if (f->ahead_inside & 1)
			copy_async(to, from, f->policy);
		if (f->ahead_inside & 2)
			copy_async(to + GK_CUDA_WORDS / 2, from + GK_CUDA_WORDS / 2, f->policy);
	}
	copy_commit();
	f->ahead_at += 8;
	if (++f->ahead != f->n)
		return;
	f->ahead = 0;
	f->ahead_inside = (int32_t)f->ahead_left > 0 ? inside_of(f->ahead_chunk + STEP) : 0;
	f->ahead_left--;
	f->ahead_chunk += STEP;
	f->ahead_at = f->area + GK_CUDA_AT_LIST + (f->ahead_left + 1) % 2 * LIST_BYTES;
}

/* Number of the nth bit that is set. */
static __device__ __forceinline__ uint32_t
bit_of(uint32_t bits, uint32_t n)
{
	while (n-- > 0)
		bits &= bits - 1;
	return __ffs(bits) - 1;
}

/*
 * @param chunk,chunks  the warp's: the first one, how many (not 0); STEP from one to the next
 * @param frames  of the batch, a bit each: those that are wanted
 * @param policy  how words leave the cache
 */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
feed_open(struct feed *f, const struct gk_cuda_coef *coef, const uint64_t *table, uint32_t gang,
	uint32_t chunk, uint32_t chunks, uint32_t frames, uint64_t policy)
{
	extern __shared__ uint4 shared_area[];
	const uint32_t lane = lane_of_warp();
	uint64_t now, next;

	f->coef = coef;
	f->table = table;
	f->policy = policy;
	f->area = (uint32_t)__cvta_generic_to_shared(shared_area) + threadIdx.x / 32 * GK_CUDA_AREA;
	f->place = 0;
	f->before = lead * GK_CUDA_WORDS;
	f->n = __popc(frames);
	f->list = lane < f->n ? bit_of(frames, lane) : GK_BATCH_MAX;
	f->chunk = chunk;
	f->left = f->ahead_left = chunks - 1;
	f->gang = gang;
	now = address_of(f, chunk);
	next = f->left > 0 ? address_of(f, chunk + STEP) : 0;
	f->after = f->left > 1 ? address_of(f, chunk + 2 * STEP) : 0;
	f->present = feed_list(f, f->left + 1, now);
	f->present_next = feed_list(f, f->left, next);
	f->ahead = 0;
	f->ahead_chunk = chunk;
	f->ahead_at = f->area + GK_CUDA_AT_LIST + (f->left + 1) % 2 * LIST_BYTES;
	f->ahead_inside = inside_of(chunk);
	__syncwarp();
}

/* After the first chunk's coefficients. */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
feed_start(struct feed *f)
{
	for (uint32_t i = 0; i < lead; i++)
		feed_ahead<STEP>(f, i * GK_CUDA_WORDS);
}

/*
 * Until the words that come next are here. @return where they are, in shared memory, until the next
 * feed_next(); what outside threads should have copied is stale
 */
template <uint32_t lead>
static __device__ __forceinline__ uint32_t
feed_wait(const struct feed *f)
{
	copy_wait<lead - 1>();
	/* copied by all, and all have read the place that is filled next */
	__syncwarp();
	return f->area + f->place;
}

/* These words are being used: more of them, over those of the frame before. */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
feed_next(struct feed *f)
{
	feed_ahead<STEP>(f, f->before);
	f->before = f->place;
	f->place = f->place == lead * GK_CUDA_WORDS ? 0 : f->place + GK_CUDA_WORDS;
}

/* On to the next chunk, after all of this one's frames. */
template <uint32_t STEP>
static __device__ __forceinline__ void
feed_chunk(struct feed *f)
{
	if (f->left == 0)
		return;
	f->left--;
	f->chunk += STEP;
	f->present = f->present_next;
	__syncwarp();
	/* over this chunk's, which are all copied */
	f->present_next = feed_list(f, f->left, f->after);
	f->after = f->left > 1 ? address_of(f, f->chunk + 2 * STEP) : 0;
	__syncwarp();
}

/* 16 bytes of each thread, as many times as it takes. */
static __device__ __forceinline__ void
feed_copy(uint32_t to, const void *from, uint32_t bytes)
{
	const uint32_t lane = lane_of_warp();

#pragma unroll
	for (uint32_t at = 0; at < bytes; at += 512)
		copy_async(to + at + lane * 16, (uint64_t)from + at + lane * 16);
}

#endif /* GK_CUDA_FEED_CUH */
