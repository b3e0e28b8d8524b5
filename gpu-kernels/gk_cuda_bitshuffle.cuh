/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed u16 images on a GPU: the bytes of gk_bitshuffle.h.
 *
 * A warp compresses a block of 8 KiB in shared memory, and waits for no other warp until it knows
 * the size:
 *
 * - Planes: each thread transposes 32 values in registers, four times.
 * - Equal bytes: byte i of plane k equals the byte before it if bit k of the values from 8 i on
 *   equals bit k of the 8 values before these. XORs and ORs of values give a word for each i, with
 *   a bit for each plane. A transposition of these words brings the bits in the order of the bytes.
 *   This is an eighth of the work of a comparison of bytes.
 * - Sequences: each thread encodes one of 32. A block never grows by more than a few bytes, so the
 *   literals move towards the front of the same memory, in order.
 * - The place of a block in the chunk is the sum of the sizes before it. A warp publishes its size,
 *   then looks back at the warps before until it finds one that knows its place (decoupled
 *   look-back: Merrill and Garland, "Single-pass Parallel Prefix Scan with Decoupled Look-back",
 *   NVR-2016-002). Blocks are written once, at their final positions.
 *
 * Warps that share chunks take their blocks in order and are resident together, so a warp waits
 * only for warps that do not wait for it.
 */
#ifndef GK_CUDA_BITSHUFFLE_CUH
#define GK_CUDA_BITSHUFFLE_CUH

#include "gk_bitshuffle.h"
#include "gk_cuda.h"
#include "gk_cuda_order.cuh"

#define BITSHUFFLE_LANES 0xFFFFFFFFu
/* Words of 16 bytes of a block. */
#define BITSHUFFLE_WORDS (GK_BITSHUFFLE_BYTES / 16)
/*
 * Offsets in struct bitshuffle_warp.room: of the compressed block, behind its length and a chunk's
 * header, and of the planes. Literals never move towards the end.
 */
#define BITSHUFFLE_PACKED (GK_BITSHUFFLE_HEADER + GK_BITSHUFFLE_LENGTH)
#define BITSHUFFLE_PLAIN  64
#define BITSHUFFLE_ROOM	  (BITSHUFFLE_PLAIN + GK_BITSHUFFLE_BYTES)
static_assert(BITSHUFFLE_PACKED % 16 == 0 && BITSHUFFLE_PLAIN % 16 == 0, "words of 16 bytes");
static_assert(BITSHUFFLE_PLAIN - BITSHUFFLE_PACKED >= 1 + (GK_BITSHUFFLE_BYTES + 240) / 255,
	"the most bytes that a block grows by up to a literal (gk_lz4_bound())");
/* Changes that are listed together; a block may have more. */
#define BITSHUFFLE_CHANGES 2048
/* Literals of a sequence that one thread copies. */
#define BITSHUFFLE_FEW 16

/* Shared memory of a warp. */
struct bitshuffle_warp {
	/* the words, then the planes, then the compressed block */
	uint4 room[BITSHUFFLE_ROOM / 16];
	/*
	 * A bit for each byte: it equals the one before. Then changes: first bytes of matches, and
	 * those GK_BITSHUFFLE_RUN - 1 before their ends.
	 */
	uint32_t bits[GK_BITSHUFFLE_BYTES / 32];
	/* positions of changes: begin of a match in the lower half, end in the upper one */
	union {
		uint32_t match[BITSHUFFLE_CHANGES / 2];
		uint16_t change[BITSHUFFLE_CHANGES];
		/* before that: differences of 8 values to the 8 before, 16 bits each */
		uint2 differ[GK_BITSHUFFLE_BLOCK / 32];
		uint4 differ4[GK_BITSHUFFLE_BLOCK / 64];
	};
};
static_assert(sizeof(struct bitshuffle_warp) <= GK_CUDA_AREA, "in place of words");

/* The sum of the values of the threads before this one. @param all  the sum of all threads */
static __device__ __forceinline__ uint32_t
bitshuffle_scan(uint32_t value, uint32_t *all)
{
	uint32_t upto = value;

#pragma unroll
	for (uint32_t d = 1; d < 32; d *= 2) {
		const uint32_t left = __shfl_up_sync(BITSHUFFLE_LANES, upto, d);

		upto += threadIdx.x % 32 >= d ? left : 0;
	}
	*all = __shfl_sync(BITSHUFFLE_LANES, upto, 31);
	return upto - value;
}

/*
 * Place of 8 values of a block, a quarter of a group of 32: without bank conflicts, whether threads
 * have neighbouring quarters or the same quarter of neighbouring groups.
 */
static __device__ __forceinline__ uint32_t
bitshuffle_place(uint32_t group, uint32_t quarter)
{
	return group * 4 + (quarter ^ (group / 2 % 4));
}

/* Exchange the bits of `a` that are `by` above those of the mask for these bits of `b`. */
static __device__ __forceinline__ void
bitshuffle_exchange(uint32_t *a, uint32_t *b, uint32_t by, uint32_t mask)
{
	const uint32_t x = *a, y = *b;

	*a = (x & mask) | (y << by & ~mask);
	*b = (x >> by & mask) | (y & ~mask);
}

/* Transpose 32 values, two in a word: word k of the result has bit k of value i in bit i. */
static __device__ __forceinline__ void
bitshuffle_transpose(uint32_t to[16], const uint32_t from[16])
{
	uint32_t x[16];

	/* values i and i + 16 in a word, so that both halves are 16 rows of 16 bits */
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		x[2 * i] = __byte_perm(from[i], from[i + 8], 0x5410);
		x[2 * i + 1] = __byte_perm(from[i], from[i + 8], 0x7632);
	}
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		to[i] = __byte_perm(x[i], x[i + 8], 0x6240);
		to[i + 8] = __byte_perm(x[i], x[i + 8], 0x7351);
	}
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		bitshuffle_exchange(&to[i + i / 4 * 4], &to[i + i / 4 * 4 + 4], 4, 0x0F0F0F0F);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		bitshuffle_exchange(&to[i + i / 2 * 2], &to[i + i / 2 * 2 + 2], 2, 0x33333333);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++)
		bitshuffle_exchange(&to[2 * i], &to[2 * i + 1], 1, 0x55555555);
}

/* A bit for each plane: whether 8 values differ from the 8 before, in either half of the word. */
static __device__ __forceinline__ uint32_t
bitshuffle_differ(const uint32_t now[4], const uint32_t before[4])
{
	return (now[0] ^ before[0]) | (now[1] ^ before[1]) | (now[2] ^ before[2]) |
		(now[3] ^ before[3]);
}

/* Both halves of two words, together. */
static __device__ __forceinline__ uint32_t
bitshuffle_fold(uint32_t a, uint32_t b)
{
	return __byte_perm(a, b, 0x5410) | __byte_perm(a, b, 0x7632);
}

static __device__ __forceinline__ void
bitshuffle_unpack(uint32_t to[4], const uint4 &from)
{
	to[0] = from.x, to[1] = from.y, to[2] = from.z, to[3] = from.w;
}

/* Split a whole block, and find its equal bytes. */
static __device__ __forceinline__ void
bitshuffle_planes(struct bitshuffle_warp *s)
{
	const uint4 *words = s->room + BITSHUFFLE_PLAIN / 16;
	uint32_t *planes = (uint32_t *)(s->room + BITSHUFFLE_PLAIN / 16);
	const uint32_t lane = threadIdx.x % 32;
	uint32_t plane[4][16], part[16], equal[16];

#pragma unroll
	for (uint32_t r = 0; r < 4; r++) {
		const uint32_t group = r * 32 + lane;
		/* before the first one is the last one, whose byte is of the plane before */
		const uint32_t other = (group + 127) % 128;
		uint32_t before[4], t[4];

		bitshuffle_unpack(before, words[bitshuffle_place(other, 3)]);
		if (r == 0 && lane == 0) {
#pragma unroll
			for (uint32_t i = 0; i < 4; i++)
				before[i] = before[i] << 1 & 0xFFFEFFFE;
		}
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			bitshuffle_unpack(part + 4 * i, words[bitshuffle_place(group, i)]);
		t[0] = bitshuffle_differ(part, before);
		if (r == 0 && lane == 0)
			t[0] |= 1; /* nothing is before the first byte */
#pragma unroll
		for (uint32_t i = 1; i < 4; i++)
			t[i] = bitshuffle_differ(part + 4 * i, part + 4 * i - 4);
		s->differ[group] =
			make_uint2(bitshuffle_fold(t[0], t[1]), bitshuffle_fold(t[2], t[3]));
		bitshuffle_transpose(plane[r], part);
	}
	__syncwarp(); /* all have read the values */
#pragma unroll
	for (uint32_t r = 0; r < 4; r++) {
#pragma unroll
		for (uint32_t k = 0; k < 16; k++)
			planes[k * (GK_BITSHUFFLE_BLOCK / 32) + r * 32 + lane] = plane[r][k];
	}
	/* half of the warp has 32 bytes of each plane; the other half has the same */
#pragma unroll
	for (uint32_t i = 0; i < 4; i++)
		bitshuffle_unpack(part + 4 * i, s->differ4[lane % 16 * 4 + i]);
	bitshuffle_transpose(equal, part);
#pragma unroll
	for (uint32_t k = 0; k < 16; k++) {
		uint32_t bits = ~equal[k];

		if (k == 15 && lane == 15)
			bits = (bits & 0xFFFF) | gk_bitshuffle_end(bits >> 16) << 16;
		if (lane < 16)
			s->bits[k * 16 + lane] = bits;
	}
	__syncwarp();
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

/*
 * The same for the v values of a last block. They must be correct, but are too rare to be
 * optimised.
 */
template <typename load>
static __device__ __noinline__ void
bitshuffle_planes_any(struct bitshuffle_warp *s, uint32_t v, load values)
{
	uint8_t *to = (uint8_t *)s->room + BITSHUFFLE_PLAIN;
	const uint32_t *plane = (const uint32_t *)to;
	const uint32_t lane = threadIdx.x % 32, stride = v / 8, n = v * 2, last = (n - 16) / 32;

	for (uint32_t i = lane; i < stride; i += 32) {
		const uint4 w = values(i);
		const uint64_t low = gk_transpose8(__byte_perm(w.x, w.y, 0x6420) |
			(uint64_t)__byte_perm(w.z, w.w, 0x6420) << 32);
		const uint64_t high = gk_transpose8(__byte_perm(w.x, w.y, 0x7531) |
			(uint64_t)__byte_perm(w.z, w.w, 0x7531) << 32);

		for (uint32_t k = 0; k < 8; k++) {
			to[k * stride + i] = (uint8_t)(low >> (8 * k));
			to[(k + 8) * stride + i] = (uint8_t)(high >> (8 * k));
		}
	}
	__syncwarp();
	for (uint32_t i = lane; i < GK_BITSHUFFLE_BYTES / 32; i += 32) {
		uint32_t before = i > 0 ? plane[8 * i - 1] : 0, equal = 0;

		for (uint32_t k = 0; k < 8 && i <= last; k++) {
			equal |= bitshuffle_equal4(plane[8 * i + k], before) << (4 * k);
			before = plane[8 * i + k];
		}
		if (i == 0)
			equal &= ~1u; /* nothing is before it */
		if (i == last) {
			const uint32_t shift = (n - 16) % 32;

			equal = (equal & ((1u << shift) - 1)) |
				gk_bitshuffle_end(equal >> shift & 0xFFFF) << shift;
		}
		s->bits[i] = equal;
	}
	__syncwarp();
}

/*
 * Find the matches: replace bits of equal bytes by those of changes. Thread i has the bytes of 8
 * words. @param before  changes of the threads before it  @return changes of the block
 */
static __device__ __forceinline__ uint32_t
bitshuffle_matches(struct bitshuffle_warp *s, uint32_t change[8], uint32_t *before)
{
	static_assert(GK_BITSHUFFLE_RUN == 4, "two steps");
	uint4 *bits = (uint4 *)s->bits + threadIdx.x % 32 * 2;
	uint32_t x[10], n = 0, all;

	bitshuffle_unpack(x + 1, bits[0]);
	bitshuffle_unpack(x + 5, bits[1]);
	x[0] = __shfl_up_sync(BITSHUFFLE_LANES, x[8], 1);
	x[9] = __shfl_down_sync(BITSHUFFLE_LANES, x[1], 1);
	x[0] = threadIdx.x % 32 > 0 ? x[0] : 0;
	x[9] = threadIdx.x % 32 < 31 ? x[9] : 0;
	/* bytes that begin so many equal ones: 2, then 4 */
#pragma unroll
	for (uint32_t i = 0; i < 9; i++)
		x[i] &= __funnelshift_r(x[i], x[i + 1], 1);
	x[9] &= x[9] >> 1;
#pragma unroll
	for (uint32_t i = 0; i < 9; i++)
		x[i] &= __funnelshift_r(x[i], x[i + 1], 2);
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
		change[i] = x[i + 1] ^ __funnelshift_r(x[i], x[i + 1], 31);
		n += __popc(change[i]);
	}
	*before = bitshuffle_scan(n, &all);
	if (all > BITSHUFFLE_CHANGES) {
		bits[0] = make_uint4(change[0], change[1], change[2], change[3]);
		bits[1] = make_uint4(change[4], change[5], change[6], change[7]);
	}
	return all;
}

/*
 * List the changes of this thread from `at` on.
 * @param first  of the changes that are listed now
 */
static __device__ __forceinline__ void
bitshuffle_list(struct bitshuffle_warp *s, const uint32_t change[8], uint32_t at, uint32_t first)
{
	const uint32_t position = threadIdx.x % 32 * 256;

	at -= first;
#pragma unroll
	for (uint32_t i = 0; i < 8; i++) {
#pragma unroll 1
		for (uint32_t left = change[i]; left != 0; left &= left - 1, at++)
			if (at < BITSHUFFLE_CHANGES)
				s->change[at] = (uint16_t)(position + i * 32 + __ffs(left) - 1);
	}
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

/* Move more than 8 bytes towards the front, by the warp. */
static __device__ __forceinline__ void
bitshuffle_move(uint8_t *room, uint32_t to, uint32_t from, uint32_t bytes)
{
	uint32_t *words = (uint32_t *)room;
	const uint32_t lane = threadIdx.x % 32, by = from - to;
	const uint32_t first = (to + 3) / 4, end = (to + bytes) / 4;
	/* a thread for each byte of words that are not whole */
	const uint32_t edge = lane < 4 ? to + lane : end * 4 + lane - 4;
	const bool is_edge = lane < 4 ? edge < first * 4 : lane < 8 && edge < to + bytes;
	uint8_t byte = 0;

	if (is_edge)
		byte = room[edge + by];
	for (uint32_t at = first; at < end; at += 128) {
		uint32_t w[4];

#pragma unroll
		for (uint32_t i = 0; i < 4; i++) {
			const uint32_t *k = words + by / 4 + at + i * 32 + lane;

			w[i] = __funnelshift_r(k[0], k[1], 8 * (by % 4));
		}
		__syncwarp();
#pragma unroll
		for (uint32_t i = 0; i < 4; i++)
			if (at + i * 32 + lane < end)
				words[at + i * 32 + lane] = w[i];
	}
	if (is_edge)
		room[edge] = byte;
	__syncwarp();
}

/*
 * Write sequences of 32 threads.
 * @param at  of the first one in the compressed block
 * @param from,literals,match  first literal, their number, and bytes of the match; no literals:
 *   this thread has no sequence; no match: it is the last one
 * @return the bytes of all
 */
static __device__ __forceinline__ uint32_t
bitshuffle_sequences(
	struct bitshuffle_warp *s, uint32_t at, uint32_t from, uint32_t literals, uint32_t match)
{
	uint8_t *room = (uint8_t *)s->room;
	const uint32_t *words = (const uint32_t *)s->room;
	const uint32_t more = match > 0 ? match - 4 : 0, rest = gk_lz4_rest(literals);
	const uint32_t bytes =
		(literals > 0 ? 1 + rest + literals : 0) + (match > 0 ? 2 + gk_lz4_rest(more) : 0);
	const bool few = literals <= BITSHUFFLE_FEW;
	uint32_t w[BITSHUFFLE_FEW / 4], all, to;
	uint8_t *out;

	from += BITSHUFFLE_PLAIN;
	to = BITSHUFFLE_PACKED + at + bitshuffle_scan(bytes, &all) + 1 + rest;
	/* few literals first, before others overwrite them */
#pragma unroll
	for (uint32_t i = 0; i < BITSHUFFLE_FEW / 4; i++)
		w[i] = __funnelshift_r(
			words[from / 4 + i], words[from / 4 + i + 1], 8 * (from % 4));
	__syncwarp();
	for (uint32_t left = __ballot_sync(BITSHUFFLE_LANES, !few); left != 0; left &= left - 1) {
		const uint32_t lane = __ffs(left) - 1;

		bitshuffle_move(room, __shfl_sync(BITSHUFFLE_LANES, to, lane),
			__shfl_sync(BITSHUFFLE_LANES, from, lane),
			__shfl_sync(BITSHUFFLE_LANES, literals, lane));
	}
	if (literals == 0)
		return all;
	out = room + to;
	if (few) {
#pragma unroll
		for (uint32_t i = 0; i < BITSHUFFLE_FEW; i++)
			if (i < literals)
				out[i] = (uint8_t)(w[i / 4] >> (8 * (i % 4)));
	}
	out[-1 - (int32_t)rest] = (uint8_t)(min(literals, 15u) << 4 | min(more, 15u));
	bitshuffle_put_rest(out - rest, literals);
	if (match > 0) {
		out += literals;
		out[0] = 1;
		out[1] = 0;
		bitshuffle_put_rest(out + 2, more);
	}
	return all;
}

/* Compress the n bytes of planes, in place. @return size, without the length before it */
static __device__ __forceinline__ uint32_t
bitshuffle_encode(struct bitshuffle_warp *s, uint32_t n)
{
	const uint32_t lane = threadIdx.x % 32;
	uint32_t change[8], at, size = 0, from = 0;
	const uint32_t changes = bitshuffle_matches(s, change, &at);

	bitshuffle_list(s, change, at, 0);
	for (uint32_t first = 0;; first += BITSHUFFLE_CHANGES) {
		const uint32_t matches = min(changes - first, (uint32_t)BITSHUFFLE_CHANGES) / 2;
		const bool last = changes - first <= BITSHUFFLE_CHANGES;

		__syncwarp();
		for (uint32_t i = 0; i < matches + last; i += 32) {
			const bool with = i + lane < matches;
			const uint32_t match = with ? s->match[i + lane] : 0;
			const uint32_t begin = with ? match & 0xFFFF : n;
			const uint32_t end = with ? (match >> 16) + GK_BITSHUFFLE_RUN - 1 : n;
			const uint32_t before = __shfl_up_sync(BITSHUFFLE_LANES, end, 1);
			const uint32_t mine = lane > 0 ? before : from;

			from = __shfl_sync(BITSHUFFLE_LANES, end, 31);
			size += bitshuffle_sequences(s, size, mine,
				with || (last && i + lane == matches) ? begin - mine : 0,
				end - begin);
			__syncwarp();
		}
		if (last)
			return size;
		/* those of the last group of a list are whole, so `from` is right */
		bitshuffle_unpack(change, ((const uint4 *)s->bits)[2 * lane]);
		bitshuffle_unpack(change + 4, ((const uint4 *)s->bits)[2 * lane + 1]);
		bitshuffle_list(s, change, at, first + BITSHUFFLE_CHANGES);
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
 * Copy bytes from the room to any address, by the warp. Stores are of 16 bytes, and of whole lines
 * of 128 where it has them, because the chunk may be in host memory.
 */
static __device__ __forceinline__ void
bitshuffle_copy(uint8_t *to, const uint4 *room, uint32_t from, uint32_t bytes)
{
	const uint32_t lane = threadIdx.x % 32, skip = (uint32_t)(uint64_t)to % 128;
	const uint32_t end = skip + bytes, head = min((skip + 15) / 16 * 16, end);
	const uint32_t tail = max(end / 16 * 16, head);
	const uint8_t *byte = (const uint8_t *)room + from - skip;
	/* of the first 16 bytes of a line, in words of the room */
	const int32_t first = (int32_t)from - (int32_t)skip, shift = first & 15;
	const uint4 *words = room + (first - shift) / 16;
	uint8_t *line = to - skip;

#pragma unroll 4
	for (uint32_t k = lane * 16; k < tail; k += 512)
		if (k >= head)
			__stcs((uint4 *)(line + k),
				bitshuffle_shift(words[k / 16], words[k / 16 + 1], shift / 4,
					8 * (shift % 4)));
	if (skip + lane < head)
		line[skip + lane] = byte[skip + lane];
	if (tail + lane < end)
		line[tail + lane] = byte[tail + lane];
}

/* A chunk that warps write together. */
struct bitshuffle_chunk {
	uint8_t *to; /* gk_bitshuffle_bound() - GK_BITSHUFFLE_MORE bytes */
	/* of each block, 0 before the first warp begins: 0 or one of the values below */
	uint64_t *end;
	uint64_t n; /* values, a multiple of 8 */
};
#define BITSHUFFLE_SIZE (1ull << 62) /* + bytes of the block with its length */
#define BITSHUFFLE_END	(1ull << 63) /* + place of its end in the chunk */
/* Number of checks of the preceding blocks until a warp checks whether it is stopped. */
#define BITSHUFFLE_TRIES 64

/*
 * Find the place of block i: wait until the sizes of the blocks before it are known.
 * @param stopped  function object: true: do not wait any longer
 * @return 0: stopped
 */
template <typename stop>
static __device__ __forceinline__ uint64_t
bitshuffle_before(const uint64_t *end, uint32_t i, stop stopped)
{
	const uint32_t lane = threadIdx.x % 32;
	uint32_t tries = 0;
	uint64_t sum = 0;

	for (;;) {
		const uint64_t v = lane < i ? load_relaxed(&end[i - 1 - lane])
					    : BITSHUFFLE_END | GK_BITSHUFFLE_HEADER;
		const uint32_t known = __ballot_sync(BITSHUFFLE_LANES, v != 0);
		const uint32_t ends = __ballot_sync(BITSHUFFLE_LANES, (v & BITSHUFFLE_END) != 0);
		const uint32_t upto = ends ^ (ends - 1); /* all bits, if there is none */
		const bool adds = (upto & ~ends) >> lane & 1;

		if ((known & upto) != upto) {
			if (lane == 0)
				__nanosleep(40);
			/* seldom: many warps may wait, and all of them poll the same address */
			if (++tries % BITSHUFFLE_TRIES == 0 &&
				__any_sync(BITSHUFFLE_LANES, stopped()))
				return 0;
			continue;
		}
		sum += __reduce_add_sync(BITSHUFFLE_LANES, adds ? (uint32_t)v : 0);
		if (ends != 0)
			return sum +
				(__shfl_sync(BITSHUFFLE_LANES, v, __ffs(ends) - 1) &
					~BITSHUFFLE_END);
		i -= 32;
	}
}

/*
 * Compress block i of a chunk, by a warp. Other warps compress the other blocks; each takes its
 * blocks in order.
 * @param from     the values of the block, NULL: they are not in one piece
 * @param values   function object: 8 values of the block, by their number / 8
 * @param stopped  function object: true: do not wait any longer
 * @return place of the block's end in the chunk, 0: stopped
 */
template <typename load, typename stop>
static __device__ __forceinline__ uint64_t
bitshuffle_block(struct bitshuffle_warp *s, const struct bitshuffle_chunk *c, uint32_t i,
	const uint4 *from, load values, stop stopped)
{
	const uint64_t left = c->n - (uint64_t)i * GK_BITSHUFFLE_BLOCK;
	const uint32_t v = left < GK_BITSHUFFLE_BLOCK ? (uint32_t)left : GK_BITSHUFFLE_BLOCK;
	const uint32_t lane = threadIdx.x % 32, header = i == 0 ? GK_BITSHUFFLE_HEADER : 0;
	uint4 *words = s->room + BITSHUFFLE_PLAIN / 16;
	uint32_t size;
	uint64_t before;

	__syncwarp(); /* all have used the previous block */
	if (v < GK_BITSHUFFLE_BLOCK) {
		bitshuffle_planes_any(s, v, values);
	} else {
		if (from != NULL) {
			uint4 w[BITSHUFFLE_WORDS / 32];

#pragma unroll
			for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
				w[k] = __ldcg(from + k * 32 + lane);
#pragma unroll
			for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
				words[bitshuffle_place(k * 8 + lane / 4, lane % 4)] = w[k];
		} else {
#pragma unroll 2
			for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
				words[bitshuffle_place(k * 8 + lane / 4, lane % 4)] =
					values(k * 32 + lane);
		}
		__syncwarp();
		bitshuffle_planes(s);
	}
	size = bitshuffle_encode(s, v * 2);
	if (lane == 0) {
		store_relaxed(&c->end[i], BITSHUFFLE_SIZE | (GK_BITSHUFFLE_LENGTH + size));
		((uint32_t *)s->room)[GK_BITSHUFFLE_HEADER / 4] = gk_big_endian(size);
		if (i == 0)
			gk_bitshuffle_header((uint32_t *)s->room, c->n);
	}
	size += GK_BITSHUFFLE_LENGTH;
	before = bitshuffle_before(c->end, i, stopped);
	if (before == 0)
		return 0;
	if (lane == 0)
		store_relaxed(&c->end[i], BITSHUFFLE_END | (before + size));
	__syncwarp();
	bitshuffle_copy(
		c->to + before - header, s->room, GK_BITSHUFFLE_HEADER - header, size + header);
	return before + size;
}

#endif /* GK_CUDA_BITSHUFFLE_CUH */
