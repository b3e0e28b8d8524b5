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
 * - The size of the block follows from the matches. A warp publishes it before it moves a byte.
 * - Sequences: 32 at a time. A block never grows by more than a few bytes, so the literals move
 *   towards the front of the same memory, in order. Each thread moves words of 16 bytes, of any of
 *   the sequences: to move one sequence after the other would take twice as long.
 * - The place of a block in the chunk is the sum of the sizes before it. A warp looks back at the
 *   warps before until it finds one that knows its place (decoupled look-back: Merrill and Garland,
 *   "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVR-2016-002). Blocks are written
 *   once, at their final positions.
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
 * Offsets in struct bitshuffle_warp.room: of the compressed block, after its length and a chunk's
 * header, and of the planes. Literals never move towards the end, nor do the words of 16 bytes that
 * they are written with, which may have up to 15 bytes after the literals.
 */
#define BITSHUFFLE_PACKED (GK_BITSHUFFLE_HEADER + GK_BITSHUFFLE_LENGTH)
#define BITSHUFFLE_PLAIN  80
#define BITSHUFFLE_ROOM	  (BITSHUFFLE_PLAIN + GK_BITSHUFFLE_BYTES)
static_assert(BITSHUFFLE_PACKED % 16 == 0 && BITSHUFFLE_PLAIN % 16 == 0, "words of 16 bytes");
static_assert(BITSHUFFLE_PLAIN - BITSHUFFLE_PACKED >= 15 + 1 + (GK_BITSHUFFLE_BYTES + 240) / 255,
	"the most bytes that a block grows by up to a literal (gk_lz4_bound()), and a word");
/* Changes that are listed together; a block may have more. */
#define BITSHUFFLE_CHANGES 512
/* Words that a thread moves at once. */
#define BITSHUFFLE_MOVES 2

/* Shared memory of a warp. */
struct bitshuffle_warp {
	/* the words, then the planes, then the compressed block */
	uint4 room[BITSHUFFLE_ROOM / 16];
	/*
	 * A bit for each byte: it equals the one before. Then changes: first bytes of matches, and
	 * those GK_BITSHUFFLE_RUN - 1 before their ends.
	 */
	uint32_t bits[GK_BITSHUFFLE_BYTES / 32];
	/* offsets by which the literals of sequences move */
	uint32_t move[32];
	/* positions of changes: begin of a match in the lower half, end in the upper one */
	union {
		uint32_t match[BITSHUFFLE_CHANGES / 2];
		uint16_t change[BITSHUFFLE_CHANGES];
		/* earlier: differences of 8 values to the previous 8, 16 bits each */
		uint2 differ[GK_BITSHUFFLE_BLOCK / 32];
		uint4 differ4[GK_BITSHUFFLE_BLOCK / 64];
	};
};

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
		/* before the first one is the last one, whose byte belongs to the plane before */
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

/* 16 bytes that begin at any byte of two words. */
static __device__ __forceinline__ uint4
bitshuffle_shift(const uint4 &a, const uint4 &b, uint32_t by)
{
	const bool two = (by & 8) != 0, one = (by & 4) != 0;
	const uint32_t x0 = two ? a.z : a.x, x1 = two ? a.w : a.y, x2 = two ? b.x : a.z;
	const uint32_t x3 = two ? b.y : a.w, x4 = two ? b.z : b.x, x5 = two ? b.w : b.y;
	const uint32_t y0 = one ? x1 : x0, y1 = one ? x2 : x1, y2 = one ? x3 : x2;
	const uint32_t y3 = one ? x4 : x3, y4 = one ? x5 : x4, shift = 8 * (by % 4);

	return make_uint4(__funnelshift_r(y0, y1, shift), __funnelshift_r(y1, y2, shift),
		__funnelshift_r(y2, y3, shift), __funnelshift_r(y3, y4, shift));
}

/* 16 bytes of the room at any address. */
static __device__ __forceinline__ uint4
bitshuffle_at(const uint4 *room, uint32_t at)
{
	return bitshuffle_shift(room[at / 16], room[at / 16 + 1], at % 16);
}

/* The sequences of 32 threads, each of which has one or none. */
struct bitshuffle_sequence {
	uint32_t from;	   /* first literal, in the planes */
	uint32_t literals; /* 0: none */
	uint32_t match;	   /* bytes; 0: the last sequence of the block */
	uint32_t bytes;	   /* compressed bytes of the whole sequence */
};

/*
 * A sequence of the list of matches.
 * @param i        its number in the list
 * @param matches  of the list
 * @param last     whether the block ends with this list, and n are its bytes
 * @param from     first literal of the sequence of the first thread, then of the next 32
 */
static __device__ __forceinline__ struct bitshuffle_sequence
bitshuffle_sequence_of(const struct bitshuffle_warp *s, uint32_t i, uint32_t matches, bool last,
	uint32_t n, uint32_t *from)
{
	const bool with = i < matches, is_one = with || (last && i == matches);
	const uint32_t match = with ? s->match[i] : 0;
	const uint32_t begin = with ? match & 0xFFFF : n;
	const uint32_t end = with ? (match >> 16) + GK_BITSHUFFLE_RUN - 1 : n;
	const uint32_t before = __shfl_up_sync(BITSHUFFLE_LANES, end, 1);
	struct bitshuffle_sequence q;

	q.from = threadIdx.x % 32 > 0 ? before : *from;
	q.literals = is_one ? begin - q.from : 0;
	q.match = end - begin;
	q.bytes = (is_one ? 1 + gk_lz4_rest(q.literals) + q.literals : 0) +
		(with ? 2 + gk_lz4_rest(q.match - 4) : 0);
	*from = __shfl_sync(BITSHUFFLE_LANES, end, 31);
	return q;
}

/* Bytes of the sequences of a list. @param from  first literal, then that of the next list */
static __device__ __forceinline__ uint32_t
bitshuffle_size(
	const struct bitshuffle_warp *s, uint32_t matches, bool last, uint32_t n, uint32_t from)
{
	uint32_t bytes = 0;

#pragma unroll 1
	for (uint32_t i = 0; i < matches + last; i += 32)
		bytes += bitshuffle_sequence_of(s, i + threadIdx.x % 32, matches, last, n, &from)
				 .bytes;
	return __reduce_add_sync(BITSHUFFLE_LANES, bytes);
}

/*
 * Move literals of 32 sequences, by words of 16 bytes. A thread copies a word as if all its bytes
 * were literals of one sequence: the last one whose literals begin at this word or before. The
 * caller then writes the bytes of other sequences.
 * @param first  of this thread's sequence: the first word that begins with one of its literals
 * @param by     bytes by which its literals move
 * @param end    after the last byte of these sequences
 */
static __device__ __forceinline__ void
bitshuffle_move(struct bitshuffle_warp *s, bool is_one, uint32_t first, uint32_t by, uint32_t end)
{
	const uint32_t lane = threadIdx.x % 32;
	const uint32_t next = __shfl_down_sync(BITSHUFFLE_LANES, is_one ? first : UINT32_MAX, 1);
	/* of several sequences with the same first word, only the last one counts */
	const bool counts = is_one && (lane == 31 || first != next);
	const uint32_t all = __ballot_sync(BITSHUFFLE_LANES, counts), upto = (2u << lane) - 1;
	uint32_t moved = 0;

	if (counts)
		s->move[__popc(all & (upto >> 1))] = by;
	__syncwarp();
#pragma unroll 1
	for (uint32_t k = __shfl_sync(BITSHUFFLE_LANES, first, 0); k * 16 < end;
		k += 32 * BITSHUFFLE_MOVES) {
		uint4 w[BITSHUFFLE_MOVES];

#pragma unroll
		for (uint32_t i = 0; i < BITSHUFFLE_MOVES; i++) {
			const uint32_t at = k + i * 32, word = at + lane;
			const uint32_t begins = __reduce_or_sync(BITSHUFFLE_LANES,
				counts && first - at < 32 ? 1u << (first - at) : 0);

			if (word * 16 < end)
				w[i] = bitshuffle_at(s->room,
					word * 16 + s->move[moved + __popc(begins & upto) - 1]);
			moved += __popc(begins);
		}
		__syncwarp();
#pragma unroll
		for (uint32_t i = 0; i < BITSHUFFLE_MOVES; i++)
			if ((k + i * 32 + lane) * 16 < end)
				s->room[k + i * 32 + lane] = w[i];
	}
}

/*
 * Write the sequences of 32 threads.
 * @param at  of the first one in the compressed block
 * @return the bytes of all
 */
static __device__ __forceinline__ uint32_t
bitshuffle_sequences(struct bitshuffle_warp *s, uint32_t at, const struct bitshuffle_sequence *q)
{
	uint8_t *room = (uint8_t *)s->room;
	const uint32_t more = q->match > 0 ? q->match - 4 : 0, rest = gk_lz4_rest(q->literals);
	const uint32_t from = BITSHUFFLE_PLAIN + q->from;
	uint32_t all, to, first, head;
	uint8_t *out;
	uint4 w;

	to = BITSHUFFLE_PACKED + at + bitshuffle_scan(q->bytes, &all) + 1 + rest;
	first = (to + 15) / 16;
	/* literals before this word, before others overwrite them */
	w = bitshuffle_at(s->room, q->literals > 0 ? from : 0);
	head = min(q->literals, first * 16 - to);
	bitshuffle_move(s, q->literals > 0, first, from - to, BITSHUFFLE_PACKED + at + all);
	__syncwarp();
	if (q->literals == 0)
		return all;
	out = room + to;
#pragma unroll
	for (uint32_t i = 0; i < 15; i++)
		if (i < head)
			out[i] = (uint8_t)((i < 4		    ? w.x
							   : i < 8  ? w.y
							   : i < 12 ? w.z
								    : w.w) >>
				(8 * (i % 4)));
	out[-1 - (int32_t)rest] = (uint8_t)(min(q->literals, 15u) << 4 | min(more, 15u));
	bitshuffle_put_rest(out - rest, q->literals);
	if (q->match > 0) {
		out += q->literals;
		out[0] = 1;
		out[1] = 0;
		bitshuffle_put_rest(out + 2, more);
	}
	return all;
}

/*
 * Compress the n bytes of planes, in place.
 * @param publish  function object, called with the size as soon as it is known
 * @return size, without the length before it
 */
template <typename action>
static __device__ __forceinline__ uint32_t
bitshuffle_encode(struct bitshuffle_warp *s, uint32_t n, action publish)
{
	const uint32_t lane = threadIdx.x % 32;
	uint32_t change[8], at, size = 0, from = 0;
	const uint32_t changes = bitshuffle_matches(s, change, &at);

	bitshuffle_list(s, change, at, 0);
#pragma unroll 1
	for (uint32_t first = 0;; first += BITSHUFFLE_CHANGES) {
		const uint32_t matches = min(changes - first, (uint32_t)BITSHUFFLE_CHANGES) / 2;
		const bool last = changes - first <= BITSHUFFLE_CHANGES;

		__syncwarp();
		if (last)
			publish(size + bitshuffle_size(s, matches, last, n, from));
#pragma unroll 1
		for (uint32_t i = 0; i < matches + last; i += 32) {
			const struct bitshuffle_sequence q =
				bitshuffle_sequence_of(s, i + lane, matches, last, n, &from);

			size += bitshuffle_sequences(s, size, &q);
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

/* Copy words from any address of the room. @param skip,shift  bytes / 4 and bits of this address */
template <uint32_t skip>
static __device__ __forceinline__ void
bitshuffle_copy_words(uint8_t *to, const uint4 *words, uint32_t shift, uint32_t from, uint32_t end)
{
#pragma unroll 2
	for (uint32_t k = threadIdx.x % 32 * 16; k < end; k += 512) {
		const uint4 a = words[k / 16], b = words[k / 16 + 1];
		const uint32_t w[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};

		if (k >= from)
			__stcs((uint4 *)(to + k),
				make_uint4(__funnelshift_r(w[skip], w[skip + 1], shift),
					__funnelshift_r(w[skip + 1], w[skip + 2], shift),
					__funnelshift_r(w[skip + 2], w[skip + 3], shift),
					__funnelshift_r(w[skip + 3], w[skip + 4], shift)));
	}
}

/*
 * Copy bytes from the room to any address, by the warp. Stores have 16 bytes, and write whole lines
 * of 128 bytes where possible, because the chunk may be in host memory.
 */
static __device__ __forceinline__ void
bitshuffle_copy(uint8_t *to, const uint4 *room, uint32_t from, uint32_t bytes)
{
	const uint32_t lane = threadIdx.x % 32, skip = (uint32_t)(uint64_t)to % 128;
	const uint32_t end = skip + bytes, head = min((skip + 15) / 16 * 16, end);
	const uint32_t tail = max(end / 16 * 16, head);
	const uint8_t *byte = (const uint8_t *)room + from - skip;
	/* where the first 16 bytes of a line are in `room` */
	const int32_t first = (int32_t)from - (int32_t)skip, shift = first & 15;
	const uint4 *words = room + (first - shift) / 16;
	const uint32_t bits = 8 * ((uint32_t)shift % 4);
	uint8_t *line = to - skip;

	/* all words have the same shift */
	switch (shift / 4) {
	case 0:
		bitshuffle_copy_words<0>(line, words, bits, head, tail);
		break;
	case 1:
		bitshuffle_copy_words<1>(line, words, bits, head, tail);
		break;
	case 2:
		bitshuffle_copy_words<2>(line, words, bits, head, tail);
		break;
	default:
		bitshuffle_copy_words<3>(line, words, bits, head, tail);
	}
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

/* Words of a block, 16 of 512 bytes; thread i has bytes 16 i to 16 i + 15 of each. */
struct bitshuffle_words {
	uint4 w[BITSHUFFLE_WORDS / 32];
};

/*
 * Load a block that is in one piece. Through the L1 cache: gangs are 3 % faster than by __ldcg()
 * from GPU memory (H200, 2026-11-28).
 */
static __device__ __forceinline__ void
bitshuffle_load(struct bitshuffle_words *b, const uint4 *from)
{
#pragma unroll
	for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
		b->w[k] = __ldcs(from + k * 32 + threadIdx.x % 32);
}

/* Values of block i of a chunk. */
static __device__ __forceinline__ uint32_t
bitshuffle_values(const struct bitshuffle_chunk *c, uint32_t i)
{
	const uint64_t left = c->n - (uint64_t)i * GK_BITSHUFFLE_BLOCK;

	return left < GK_BITSHUFFLE_BLOCK ? (uint32_t)left : GK_BITSHUFFLE_BLOCK;
}

/*
 * Compress block i of a chunk in shared memory, by a warp, and publish its size.
 * @param loaded   the values of a whole block, NULL: they are not in one piece
 * @param values   function object: 8 values of the block, by their number / 8
 * @return size with the block's length
 */
template <typename load>
static __device__ __forceinline__ uint32_t
bitshuffle_pack(struct bitshuffle_warp *s, const struct bitshuffle_chunk *c, uint32_t i,
	const struct bitshuffle_words *loaded, load values)
{
	const uint32_t v = bitshuffle_values(c, i), lane = threadIdx.x % 32;
	uint4 *words = s->room + BITSHUFFLE_PLAIN / 16;
	uint32_t size;

	__syncwarp(); /* all have used the previous block */
	if (v < GK_BITSHUFFLE_BLOCK) {
		bitshuffle_planes_any(s, v, values);
	} else {
		if (loaded != NULL) {
#pragma unroll
			for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
				words[bitshuffle_place(k * 8 + lane / 4, lane % 4)] = loaded->w[k];
		} else {
#pragma unroll 2
			for (uint32_t k = 0; k < BITSHUFFLE_WORDS / 32; k++)
				words[bitshuffle_place(k * 8 + lane / 4, lane % 4)] =
					values(k * 32 + lane);
		}
		__syncwarp();
		bitshuffle_planes(s);
	}
	size = bitshuffle_encode(s, v * 2, [=](uint32_t bytes) {
		if (lane == 0)
			store_relaxed(&c->end[i], BITSHUFFLE_SIZE | (GK_BITSHUFFLE_LENGTH + bytes));
	});
	if (lane == 0) {
		uint32_t *header = (uint32_t *)s->room;

		header[GK_BITSHUFFLE_HEADER / 4] = gk_big_endian(size);
		if (i == 0)
			gk_bitshuffle_header(header, c->n);
		else
			header[0] = header[1] = header[2] = 0;
	}
	if (lane < -size % 16)
		((uint8_t *)s->room)[BITSHUFFLE_PACKED + size + lane] = 0;
	__syncwarp();
	return GK_BITSHUFFLE_LENGTH + size;
}

/* Words of the room up to the end of a block, with zeros before and after it. */
static __device__ __forceinline__ uint32_t
bitshuffle_words_of(uint32_t size)
{
	return (GK_BITSHUFFLE_HEADER + size + 15) / 16;
}

/*
 * Find the place of block i of a chunk, when the warp has published its size. Other warps have the
 * other blocks; each takes its blocks in order.
 * @param size     of the block, as bitshuffle_pack() returned it
 * @param stopped  function object: true: do not wait any longer
 * @return place of the block's end in the chunk, 0: stopped
 */
template <typename stop>
static __device__ __forceinline__ uint64_t
bitshuffle_find(const struct bitshuffle_chunk *c, uint32_t i, uint32_t size, stop stopped)
{
	const uint64_t before = bitshuffle_before(c->end, i, stopped);

	if (before == 0)
		return 0;
	if (threadIdx.x % 32 == 0)
		store_relaxed(&c->end[i], BITSHUFFLE_END | (before + size));
	return before + size;
}

/* Write block i of a chunk to its place. @param end  as bitshuffle_find() returned it */
static __device__ __forceinline__ void
bitshuffle_write(const struct bitshuffle_warp *s, const struct bitshuffle_chunk *c, uint32_t i,
	uint32_t size, uint64_t end)
{
	const uint32_t header = i == 0 ? GK_BITSHUFFLE_HEADER : 0;

	bitshuffle_copy(
		c->to + end - size - header, s->room, GK_BITSHUFFLE_HEADER - header, size + header);
}

#endif /* GK_CUDA_BITSHUFFLE_CUH */
