/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Asynchronous copies of raw words and coefficients for one warp. A ring of buffers in shared
 * memory runs ahead of the arithmetic, from frame to frame and into the next chunk, so that a warp
 * waits for memory once per batch and not once per chunk.
 *
 * Words arrive in the order of use: frames 0 to n - 1 of a chunk, then those of the next chunk.
 * Each frame is one group of asynchronous copies. The user of the feed adds the coefficients of the
 * next chunk to the first group of a chunk. A thread may read what other threads have copied.
 */
#ifndef GK_CUDA_FEED_CUH
#define GK_CUDA_FEED_CUH

#include "gk_cuda_order.cuh"
#include "gk_cuda_pixel.cuh"

struct feed {
	const struct gk_cuda_coef *coef; /* coefficients of chunk 0 */
	const uint64_t *table;		 /* pointers by tile and frame */
	uint64_t policy;
	uint64_t after;	 /* per thread: address of its frame in the chunk after the next; 0: none */
	uint32_t area;	 /* area of the warp in shared memory */
	uint32_t place;	 /* offset in bytes of the words used next */
	uint32_t before; /* offset of the words used before; the next copy goes there */
	uint32_t list;	 /* per thread: the frame whose address it looks up, or LIST_NONE */
	uint32_t n;	 /* number of frames */
	uint32_t chunk;
	uint32_t left; /* chunks after this one */
	/* bit masks of frames that have packets, in this chunk and the next */
	uint32_t present, present_next;
	/* Next copy: this frame and chunk. Its address is in the list. */
	uint32_t ahead;
	uint32_t ahead_chunk;
	uint32_t ahead_left;
	uint32_t ahead_at;
	/* whether this thread has pixels there: one bit for each half of a chunk */
	uint32_t ahead_inside;
};

/*
 * Copies run `lead` frames ahead, a template parameter below: the number of buffers minus the one
 * in use, or 1 if a batch has fewer frames. More buffers are slower (measured: 2.9 us per frame
 * with 6, instead of 2.6).
 */
#define LEAD	   (GK_CUDA_DEPTH - 1)
#define LEAD_FEW   1
#define LIST_BYTES (GK_BATCH_MAX * 8)
#define LIST_NONE  GK_BATCH_MAX
/* Added to a frame whose copies are read. */
#define LIST_COPY (2 * GK_BATCH_MAX)

static __device__ __forceinline__ uint32_t
lane_of_warp(void)
{
	return threadIdx.x % 32;
}

/* The warp's part of shared memory. */
static __device__ __forceinline__ uint32_t
area_of_warp(void)
{
	extern __shared__ uint4 shared_area[];

	return (uint32_t)__cvta_generic_to_shared(shared_area) + threadIdx.x / 32 * GK_CUDA_AREA;
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

/*
 * Address of a thread's frame at a chunk.
 * @param may_copy  whether frames may have LIST_COPY; where none has, the test costs registers
 */
template <bool may_copy>
static __device__ __forceinline__ uint64_t
address_of(const struct feed *f, uint32_t chunk)
{
	const uint32_t row = divide(chunk, args.row_chunks), tile = divide(row, args.tile_rows);
	const uint64_t word =
		(uint64_t)(row - tile * args.tile_rows.by) * args.geometry.cols + column_of(chunk);
	const uint32_t frame = f->list % GK_BATCH_MAX;
	uint64_t packet;

	if (f->list == LIST_NONE)
		return 0;
	packet = __ldcg(f->table + (uint64_t)tile * GK_BATCH_MAX + frame);
	if (packet == 0)
		return 0;
	if (!may_copy || f->list < LIST_COPY)
		return packet + word * sizeof(uint16_t);
	return (uint64_t)copy_of((blockIdx.x - 1) / args.blocks, frame, chunk);
}

/* Store a chunk's addresses; thread i stores that of frame i. @return frames that have packets */
static __device__ __forceinline__ uint32_t
feed_list(const struct feed *f, uint32_t which, uint64_t mine)
{
	const uint32_t lane = lane_of_warp();

	if (lane < f->n)
		store_shared_u64(f->area + GK_CUDA_AT_LIST + which % 2 * LIST_BYTES + lane * 8,
			mine != 0 ? mine : (uint64_t)args.nothing);
	return __ballot_sync(ALL_LANES, mine != 0);
}

/* Copy the next words to a buffer. They form one group with earlier copies not in a group yet. */
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

/* Index of the nth set bit. */
static __device__ __forceinline__ uint32_t
bit_of(uint32_t bits, uint32_t n)
{
	while (n-- > 0)
		bits &= bits - 1;
	return __ffs(bits) - 1;
}

/*
 * @param chunk,chunks  first chunk of the warp, and their number (not 0), at a distance of STEP
 * @param copies  bit mask of the frames of the batch of which the gang has copies
 * @param frames  bit mask of the frames of the batch to copy
 * @param policy  cache eviction policy of the words
 */
template <uint32_t lead, uint32_t STEP, bool may_copy>
static __device__ __forceinline__ void
feed_open(struct feed *f, const struct gk_cuda_coef *coef, const uint64_t *table, uint32_t copies,
	uint32_t chunk, uint32_t chunks, uint32_t frames, uint64_t policy)
{
	const uint32_t lane = lane_of_warp();
	uint64_t now, next;

	f->coef = coef;
	f->table = table;
	f->policy = policy;
	f->area = area_of_warp();
	f->place = 0;
	f->before = lead * GK_CUDA_WORDS;
	f->n = __popc(frames);
	f->list = lane < f->n ? bit_of(frames, lane) : LIST_NONE;
	if (may_copy && (copies >> f->list & 1))
		f->list += LIST_COPY;
	f->chunk = chunk;
	f->left = f->ahead_left = chunks - 1;
	now = address_of<may_copy>(f, chunk);
	next = f->left > 0 ? address_of<may_copy>(f, chunk + STEP) : 0;
	f->after = f->left > 1 ? address_of<may_copy>(f, chunk + 2 * STEP) : 0;
	f->present = feed_list(f, f->left + 1, now);
	f->present_next = feed_list(f, f->left, next);
	f->ahead = 0;
	f->ahead_chunk = chunk;
	f->ahead_at = f->area + GK_CUDA_AT_LIST + (f->left + 1) % 2 * LIST_BYTES;
	f->ahead_inside = inside_of(chunk);
	__syncwarp();
}

/* Call this after copying the first chunk's coefficients. */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
feed_start(struct feed *f)
{
	for (uint32_t i = 0; i < lead; i++)
		feed_ahead<STEP>(f, i * GK_CUDA_WORDS);
}

/*
 * Wait for the next words. @return their address in shared memory, valid until the next
 * feed_next(); the part of threads outside the row is stale
 */
template <uint32_t lead>
static __device__ __forceinline__ uint32_t
feed_wait(const struct feed *f)
{
	copy_wait<lead - 1>();
	/* All threads have copied, and all have read the buffer that is filled next. */
	__syncwarp();
	return f->area + f->place;
}

/* Copy further words into the buffer of the previous frame, while the current words are used. */
template <uint32_t lead, uint32_t STEP>
static __device__ __forceinline__ void
feed_next(struct feed *f)
{
	feed_ahead<STEP>(f, f->before);
	f->before = f->place;
	f->place = f->place == lead * GK_CUDA_WORDS ? 0 : f->place + GK_CUDA_WORDS;
}

/* Advance to the next chunk, after all frames of this one. */
template <uint32_t STEP, bool may_copy>
static __device__ __forceinline__ void
feed_chunk(struct feed *f)
{
	if (f->left == 0)
		return;
	f->left--;
	f->chunk += STEP;
	f->present = f->present_next;
	__syncwarp();
	/* replaces the list of this chunk, whose frames are all copied */
	f->present_next = feed_list(f, f->left, f->after);
	f->after = f->left > 1 ? address_of<may_copy>(f, f->chunk + 2 * STEP) : 0;
	__syncwarp();
}

/* Copy 16 bytes per thread, repeated until all are copied. */
static __device__ __forceinline__ void
feed_copy(uint32_t to, const void *from, uint32_t bytes)
{
	const uint32_t lane = lane_of_warp();

#pragma unroll
	for (uint32_t at = 0; at < bytes; at += 512)
		copy_async(to + at + lane * 16, (uint64_t)from + at + lane * 16);
}

#endif /* GK_CUDA_FEED_CUH */
