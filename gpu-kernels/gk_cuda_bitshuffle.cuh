/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed u16 images on a GPU: the bytes of gk_bitshuffle.h.
 *
 * A thread block compresses one block of 8 KiB at a time in shared memory. Its size is known only
 * then, so blocks are first kept in device memory, in places of a fixed size. When all blocks of a
 * frame are there, the thread blocks add up their sizes and copy them to the chunk, without gaps.
 *
 * All threads of a thread block call these functions together. Frames have rows of a multiple of 32
 * pixels, so no values follow the last block.
 */
#ifndef GK_CUDA_BITSHUFFLE_CUH
#define GK_CUDA_BITSHUFFLE_CUH

#include "gk_bitshuffle.h"
#include "gk_cuda.h"

/* Matches of a block: each has GK_BITSHUFFLE_RUN bytes and a literal before it. */
#define BITSHUFFLE_MATCHES (GK_BITSHUFFLE_BYTES / (GK_BITSHUFFLE_RUN + 1) + 2)
/* Bytes of a block that one thread compares with the bytes before. */
#define BITSHUFFLE_PART 32
static_assert(GK_CUDA_THREADS * BITSHUFFLE_PART == GK_BITSHUFFLE_BYTES, "each thread has a word");

static_assert(GK_BITSHUFFLE_BLOCK / 8 % GK_CUDA_THREADS == 0, "each thread has as many values");
/* 8 values each */
#define BITSHUFFLE_WORDS (GK_BITSHUFFLE_BLOCK / 8 / GK_CUDA_THREADS)
static_assert(GK_CUDA_PLACE >= GK_BITSHUFFLE_LENGTH + GK_BITSHUFFLE_BYTES + 1 +
				(GK_BITSHUFFLE_BYTES + 240) / 255 + 15 &&
		GK_CUDA_PLACE % 16 == 0,
	"it has a block of incompressible values, and bytes that are read with its last ones");

struct bitshuffle_shared {
	uint4 planes[GK_BITSHUFFLE_BYTES / 16];
	uint4 out[GK_CUDA_PLACE / 16];	     /* length and block */
	uint32_t equal[GK_CUDA_THREADS + 2]; /* bytes that equal the one before; 0 at both ends */
	uint32_t match[GK_CUDA_THREADS];     /* bytes of matches */
	/* first bytes of matches, and those GK_BITSHUFFLE_RUN - 1 before their ends */
	uint32_t change[GK_CUDA_THREADS];
	uint32_t changes[GK_CUDA_THREADS];	 /* their number before a word */
	uint32_t sums[GK_CUDA_WARPS];		 /* of warps, in a scan */
	uint16_t edge[2 * BITSHUFFLE_MATCHES];	 /* positions of changes */
	int16_t literal[BITSHUFFLE_MATCHES + 1]; /* of a sequence: place - position in the block */
};

/* The sum of the values of the threads before this one. @param all  the sum of all threads */
static __device__ __forceinline__ uint32_t
bitshuffle_scan(struct bitshuffle_shared *s, uint32_t value, uint32_t *all)
{
	const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	uint32_t upto = value, before = 0, sum = 0;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2) {
		const uint32_t left = __shfl_up_sync(0xFFFFFFFFu, upto, d);

		upto += lane >= d ? left : 0;
	}
	if (lane == 31)
		s->sums[warp] = upto;
	__syncthreads();
#pragma unroll
	for (uint32_t i = 0; i < GK_CUDA_WARPS; i++) {
		before += i < warp ? s->sums[i] : 0;
		sum += s->sums[i];
	}
	__syncthreads(); /* before the next scan */
	*all = sum;
	return before + upto - value;
}

/* Split the v values of a block. @param words  of this thread */
static __device__ __forceinline__ void
bitshuffle_planes(struct bitshuffle_shared *s, uint32_t v, const uint4 words[BITSHUFFLE_WORDS])
{
	uint8_t *to = (uint8_t *)s->planes;
	const uint32_t stride = v / 8;

#pragma unroll
	for (uint32_t u = 0; u < BITSHUFFLE_WORDS; u++) {
		const uint32_t i = u * GK_CUDA_THREADS + threadIdx.x;
		const uint4 w = words[u];
		const uint64_t low = gk_transpose8(__byte_perm(w.x, w.y, 0x6420) |
			(uint64_t)__byte_perm(w.z, w.w, 0x6420) << 32);
		const uint64_t high = gk_transpose8(__byte_perm(w.x, w.y, 0x7531) |
			(uint64_t)__byte_perm(w.z, w.w, 0x7531) << 32);

		if (i >= stride)
			continue;
#pragma unroll
		for (uint32_t k = 0; k < 8; k++) {
			to[k * stride + i] = (uint8_t)(low >> (8 * k));
			to[(k + 8) * stride + i] = (uint8_t)(high >> (8 * k));
		}
	}
}

/* A bit for each of 4 bytes that equals the byte before it. */
static __device__ __forceinline__ uint32_t
bitshuffle_equal4(uint32_t bytes, uint32_t before)
{
	const uint32_t x = bytes ^ (bytes << 8 | before >> 24), low = 0x7F7F7F7F;
	/* the top bit of each byte that is 0 */
	const uint32_t zero = ~(((x & low) + low) | x | low);

	/* bit 8 i moves to bit 24 + i, and no sums overlap */
	return (zero >> 7) * 0x01020408 >> 24 & 15;
}

/* Compare the n bytes of a block, each thread its part. */
static __device__ __forceinline__ void
bitshuffle_compare(struct bitshuffle_shared *s, uint32_t n)
{
	const uint32_t t = threadIdx.x, last = (n - 16) / BITSHUFFLE_PART;
	uint32_t before =
		t > 0 ? (uint32_t)((const uint8_t *)s->planes)[t * BITSHUFFLE_PART - 1] << 24 : 0;
	uint32_t equal = 0;

#pragma unroll
	for (uint32_t i = 0; i < BITSHUFFLE_PART / 16; i++) {
		const uint4 w = s->planes[t * (BITSHUFFLE_PART / 16) + i];

		equal |= (bitshuffle_equal4(w.x, before) | bitshuffle_equal4(w.y, w.x) << 4 |
				 bitshuffle_equal4(w.z, w.y) << 8 |
				 bitshuffle_equal4(w.w, w.z) << 12)
			<< (16 * i);
		before = w.w;
	}
	if (t == 0) {
		equal &= ~1u; /* nothing is before it */
		s->equal[0] = s->equal[GK_CUDA_THREADS + 1] = 0;
	}
	if (t == last) {
		const uint32_t shift = (n - 16) % BITSHUFFLE_PART;

		equal = (equal & ((1u << shift) - 1)) |
			gk_bitshuffle_end(equal >> shift & 0xFFFF) << shift;
	}
	s->equal[t + 1] = t <= last ? equal : 0;
}

/* Find the matches of a block. @return their number */
static __device__ __forceinline__ uint32_t
bitshuffle_match(struct bitshuffle_shared *s)
{
	const uint32_t t = threadIdx.x;
	const uint32_t before = s->equal[t], equal = s->equal[t + 1], next = s->equal[t + 2];
	uint32_t first = equal, first_before = before, match, change, at, all;

	/* bytes that begin so many equal ones */
#pragma unroll
	for (uint32_t k = 1; k < GK_BITSHUFFLE_RUN; k++) {
		first &= __funnelshift_r(equal, next, k);
		first_before &= __funnelshift_r(before, equal, k);
	}
	match = first;
#pragma unroll
	for (uint32_t k = 1; k < GK_BITSHUFFLE_RUN; k++)
		match |= __funnelshift_r(first_before, first, 32 - k);
	change = first ^ __funnelshift_r(first_before, first, 31);
	at = bitshuffle_scan(s, __popc(change), &all);
	s->match[t] = match;
	s->change[t] = change;
	s->changes[t] = at;
	for (; change != 0; change &= change - 1)
		s->edge[at++] = (uint16_t)(t * BITSHUFFLE_PART + __ffs(change) - 1);
	__syncthreads();
	return all / 2;
}

/* Write the rest of a number. */
static __device__ __forceinline__ void
bitshuffle_put_rest(uint8_t *to, uint32_t n)
{
	if (n < 15)
		return;
	for (n -= 15; n >= 255; n -= 255)
		*to++ = 255;
	*to = (uint8_t)n;
}

/* Write everything but literals. @return size of the compressed block */
static __device__ __forceinline__ uint32_t
bitshuffle_sequences(struct bitshuffle_shared *s, uint32_t n, uint32_t matches)
{
	uint8_t *out = (uint8_t *)s->out + GK_BITSHUFFLE_LENGTH;
	uint32_t size = 0;

	for (uint32_t i = 0; i <= matches; i += GK_CUDA_THREADS) {
		const uint32_t j = i + threadIdx.x;
		uint32_t from = 0, literals = 0, more = 0, bytes = 0, at, all;

		if (j <= matches) {
			from = j > 0 ? s->edge[2 * j - 1] + GK_BITSHUFFLE_RUN - 1 : 0;
			literals = (j < matches ? s->edge[2 * j] : n) - from;
			bytes = 1 + gk_lz4_rest(literals) + literals;
		}
		if (j < matches) {
			more = s->edge[2 * j + 1] + GK_BITSHUFFLE_RUN - 1 - s->edge[2 * j] - 4;
			bytes += 2 + gk_lz4_rest(more);
		}
		at = size + bitshuffle_scan(s, bytes, &all);
		size += all;
		if (j > matches)
			continue;
		out[at] = (uint8_t)(min(literals, 15u) << 4 | min(more, 15u));
		bitshuffle_put_rest(out + at + 1, literals);
		at += 1 + gk_lz4_rest(literals);
		s->literal[j] = (int16_t)(at - from);
		at += literals;
		if (j < matches) {
			out[at] = 1;
			out[at + 1] = 0;
			bitshuffle_put_rest(out + at + 2, more);
		}
	}
	__syncthreads();
	return size;
}

/* Write the literals. Neighbouring threads have neighbouring bytes. */
static __device__ __forceinline__ void
bitshuffle_literals(struct bitshuffle_shared *s, uint32_t n)
{
	const uint8_t *from = (const uint8_t *)s->planes;
	uint8_t *out = (uint8_t *)s->out + GK_BITSHUFFLE_LENGTH;
	const uint32_t upto = (2u << threadIdx.x % 32) - 1;

	for (uint32_t i = threadIdx.x; i < n; i += GK_CUDA_THREADS) {
		const uint32_t word = i / 32;

		if (s->match[word] >> (i % 32) & 1)
			continue;
		/* all matches that began before it have ended */
		out[(int32_t)i +
			s->literal[(s->changes[word] + __popc(s->change[word] & upto)) / 2]] =
			from[i];
	}
}

/*
 * Compress a block of v values to s->out.
 * @param v      a multiple of 8, at most GK_BITSHUFFLE_BLOCK
 * @param words  of this thread
 * @param ahead  function object that may load the words of the next block to the same variables
 * @return size in bytes, with the length before it, the same for all threads
 */
template <typename load>
static __device__ __forceinline__ uint32_t
bitshuffle_block(
	struct bitshuffle_shared *s, uint32_t v, const uint4 words[BITSHUFFLE_WORDS], load ahead)
{
	const uint32_t n = v * 2;
	uint32_t matches, size;

	__syncthreads(); /* all have used the previous block */
	bitshuffle_planes(s, v, words);
	ahead();
	__syncthreads();
	bitshuffle_compare(s, n);
	__syncthreads();
	matches = bitshuffle_match(s);
	size = bitshuffle_sequences(s, n, matches);
	if (threadIdx.x == 0)
		*(uint32_t *)s->out = gk_big_endian(size);
	bitshuffle_literals(s, n);
	__syncthreads();
	return GK_BITSHUFFLE_LENGTH + size;
}

/* Compressed blocks of a frame in device memory. */
struct bitshuffle_places {
	uint4 *block;	/* [blocks][GK_CUDA_PLACE / 16]: length and block */
	uint32_t *size; /* [blocks], bytes with the length */
	uint64_t n;	/* values of the frame, a multiple of 8 */
};

/* First of the blocks of a frame that this thread block has; that of the next one is their end. */
static __device__ __forceinline__ uint32_t
bitshuffle_share(const struct bitshuffle_places *p, uint32_t block, uint32_t blocks)
{
	return (uint32_t)((uint64_t)gk_bitshuffle_blocks(p->n) * block / blocks);
}

/*
 * Compress this thread block's blocks of a frame.
 * @param block,blocks  number of this thread block, and number of those that share the frame
 * @param values        function object: uint4 of 8 values, by their number in the frame
 */
template <typename load>
static __device__ __forceinline__ void
bitshuffle_frame(struct bitshuffle_shared *s, const struct bitshuffle_places *p, uint32_t block,
	uint32_t blocks, load values)
{
	const uint32_t end = bitshuffle_share(p, block + 1, blocks);
	uint32_t i = bitshuffle_share(p, block, blocks);
	uint4 words[BITSHUFFLE_WORDS];
	auto load_words = [&](uint32_t of) {
#pragma unroll
		for (uint32_t u = 0; u < BITSHUFFLE_WORDS; u++) {
			const uint64_t at = (uint64_t)of * (GK_BITSHUFFLE_BLOCK / 8) +
				u * GK_CUDA_THREADS + threadIdx.x;

			words[u] = at < p->n / 8 ? values(at) : make_uint4(0, 0, 0, 0);
		}
	};

	if (i < end)
		load_words(i);
	for (; i < end; i++) {
		const uint64_t left = p->n - (uint64_t)i * GK_BITSHUFFLE_BLOCK;
		const uint32_t v =
			left < GK_BITSHUFFLE_BLOCK ? (uint32_t)left : GK_BITSHUFFLE_BLOCK;
		const uint32_t size = bitshuffle_block(s, v, words, [&] {
			if (i + 1 < end)
				load_words(i + 1);
		});
		uint4 *to = p->block + (uint64_t)i * (GK_CUDA_PLACE / 16);

		for (uint32_t k = threadIdx.x; k < (size + 15) / 16; k += GK_CUDA_THREADS)
			__stcg(&to[k], s->out[k]);
		if (threadIdx.x == 0)
			__stcg(&p->size[i], size);
	}
}

/* 16 bytes that begin at byte 4 skip + shift / 8 of two words. */
static __device__ __forceinline__ uint4
bitshuffle_shift(const uint4 &a, const uint4 &b, uint32_t skip, uint32_t shift)
{
	const uint32_t w0 = skip == 0 ? a.x : skip == 1 ? a.y : skip == 2 ? a.z : a.w;
	const uint32_t w1 = skip == 0 ? a.y : skip == 1 ? a.z : skip == 2 ? a.w : b.x;
	const uint32_t w2 = skip == 0 ? a.z : skip == 1 ? a.w : skip == 2 ? b.x : b.y;
	const uint32_t w3 = skip == 0 ? a.w : skip == 1 ? b.x : skip == 2 ? b.y : b.z;
	const uint32_t w4 = skip == 0 ? b.x : skip == 1 ? b.y : skip == 2 ? b.z : b.w;

	return make_uint4(__funnelshift_r(w0, w1, shift), __funnelshift_r(w1, w2, shift),
		__funnelshift_r(w2, w3, shift), __funnelshift_r(w3, w4, shift));
}

/*
 * Copy a compressed block of `size` bytes to any address: 16 bytes at a time, because the chunk may
 * be in host memory.
 */
static __device__ __forceinline__ void
bitshuffle_copy(uint8_t *to, const uint4 *block, uint32_t size)
{
	const uint32_t head = min((uint32_t) - (uint64_t)to & 15, size), words = (size - head) / 16;
	const uint32_t tail = head + words * 16, t = threadIdx.x;
	const uint32_t *from = (const uint32_t *)block;
	uint4 *aligned = (uint4 *)(to + head);

	for (uint32_t i = t; i < words; i += GK_CUDA_THREADS)
		__stcs(&aligned[i],
			bitshuffle_shift(__ldcg(&block[i]), __ldcg(&block[i + 1]), head / 4,
				8 * (head % 4)));
	if (t < head)
		to[t] = (uint8_t)(__ldcg(&from[t / 4]) >> (8 * (t % 4)));
	if (t < size - tail)
		to[tail + t] = (uint8_t)(__ldcg(&from[(tail + t) / 4]) >> (8 * ((tail + t) % 4)));
}

/*
 * Copy this thread block's blocks to the chunk, when all blocks of the frame are in their places.
 * The thread block that has the first one also writes the header.
 * @param to  the chunk, aligned to 4 bytes; gk_bitshuffle_bound() - GK_BITSHUFFLE_MORE bytes
 * @return size of the chunk up to this thread block's last byte, the same for all threads; of the
 *   last thread block the size of the chunk
 */
static __device__ __forceinline__ uint64_t
bitshuffle_pack(struct bitshuffle_shared *s, const struct bitshuffle_places *p, uint32_t block,
	uint32_t blocks, uint8_t *to)
{
	const uint32_t first = bitshuffle_share(p, block, blocks),
		       end = bitshuffle_share(p, block + 1, blocks);
	uint32_t sum = 0, all;
	uint64_t at;

	__syncthreads();
	for (uint32_t i = threadIdx.x; i < first; i += GK_CUDA_THREADS)
		sum += __ldcg(&p->size[i]);
	bitshuffle_scan(s, sum, &all);
	at = GK_BITSHUFFLE_HEADER + all;
	if (block == 0 && threadIdx.x == 0)
		gk_bitshuffle_header((uint32_t *)to, p->n);
	for (uint32_t i = first; i < end; i++) {
		const uint32_t size = __ldcg(&p->size[i]);

		bitshuffle_copy(to + at, p->block + (uint64_t)i * (GK_CUDA_PLACE / 16), size);
		at += size;
	}
	return at;
}

#endif /* GK_CUDA_BITSHUFFLE_CUH */
