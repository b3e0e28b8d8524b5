/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C of chunks (gk_cuda_crc.h). A warp computes the CRC of a block of 8 KiB in shared memory:
 *
 * - Tensor cores compute the products of bits. A sum of ANDs has 32 bits, enough for 256 bytes, and
 *   only its lowest bit counts. So sums of rows with different matrices are added.
 * - A product of polynomials is 32 shifted copies of one factor, one of each thread, and their XOR.
 *
 * Blocks end anywhere in the chunk. The sum over the blocks of CRC x x^(-8 end) does not depend on
 * their order. Multiplied by x^(8 size), it is the CRC of the chunk.
 */
#ifndef GK_CUDA_CRC_CUH
#define GK_CUDA_CRC_CUH

#include "gk_cuda_crc.h"
#include "gk_cuda_packed.cuh"

#define CRC_LANES 0xFFFFFFFFu

/* Constants of a thread. */
struct crc_lane {
	uint32_t above; /* gk_cuda_crc.above */
	uint32_t part;
};

/* The product of two polynomials. */
static __device__ __forceinline__ uint32_t
crc_multiply(const struct crc_lane *l, uint32_t a, uint32_t b)
{
	const uint32_t lane = threadIdx.x % 32, mask = 0 - (a >> lane & 1);
	/* b shifted by 31 - lane: the bits of x^0 to x^31, and those above */
	const uint32_t high = __reduce_xor_sync(CRC_LANES, mask & b >> (31 - lane));
	const uint32_t low = __reduce_xor_sync(CRC_LANES, mask & __funnelshift_r(0, b, 31 - lane));

	return high ^ __reduce_xor_sync(CRC_LANES, (0 - (low >> lane & 1)) & l->above);
}

/* Tables of a block of threads: a part of struct gk_cuda_crc in shared memory. */
struct crc_tables {
	uint4 matrix[GK_CUDA_CRC_ROWS][2][2][32];
	uint4 column[32][2];
};
static_assert(sizeof(struct crc_tables) == offsetof(struct gk_cuda_crc, above), "as it begins");

/* Copy the tables. All threads, which then synchronise. @param threads  of the block */
static __device__ __forceinline__ struct crc_lane
crc_open(struct crc_tables *t, const struct gk_cuda_crc *from, uint32_t threads)
{
	for (uint32_t i = threadIdx.x; i < sizeof(*t) / 16; i += threads)
		((uint4 *)t)[i] = __ldcg((const uint4 *)from + i);
	return {__ldcg(&from->above[threadIdx.x % 32]), __ldcg(&from->part)};
}

static __device__ __forceinline__ uint32_t
crc_select(int32_t number, uint32_t polynomial)
{
	return (0 - ((uint32_t)number & 1)) & polynomial;
}

/*
 * The CRC of words of 16 bytes without its initial value, by a warp.
 * @param behind  returns the number of zeros that the CRC covers after the words, in bytes
 */
static __device__ __forceinline__ uint32_t
crc_of(const struct crc_tables *t, const struct crc_lane *l, const uint4 *words, uint32_t n,
	uint32_t *behind)
{
	const uint32_t lane = threadIdx.x % 32, row = GK_CUDA_CRC_ROW / 16;
	uint32_t crc = 0, from;

#pragma unroll 1
	for (from = 0; from < n; from += GK_CUDA_CRC_ROWS * row) {
		const uint4 k0 = t->column[lane][0], k1 = t->column[lane][1];
		int32_t low[4] = {0, 0, 0, 0}, high[4] = {0, 0, 0, 0};

		if (from > 0)
			crc = crc_multiply(l, crc, l->part);
#pragma unroll
		for (uint32_t r = 0; r < GK_CUDA_CRC_ROWS; r++) {
			const uint32_t i = from + r * row + lane;
			const uint4 w = i < n ? words[i] : make_uint4(0, 0, 0, 0);

			multiply_bits(low, t->matrix[r][0][0][lane], w.x, w.y);
			multiply_bits(high, t->matrix[r][0][1][lane], w.x, w.y);
			multiply_bits(low, t->matrix[r][1][0][lane], w.z, w.w);
			multiply_bits(high, t->matrix[r][1][1][lane], w.z, w.w);
		}
		crc ^= __reduce_xor_sync(CRC_LANES,
			crc_select(low[0], k0.x) ^ crc_select(low[1], k0.y) ^
				crc_select(low[2], k0.z) ^ crc_select(low[3], k0.w) ^
				crc_select(high[0], k1.x) ^ crc_select(high[1], k1.y) ^
				crc_select(high[2], k1.z) ^ crc_select(high[3], k1.w));
	}
	*behind = (from - n) * 16;
	return crc;
}

/* Factors of x^(-8 position). */
struct crc_back {
	uint32_t power[3];
	bool far; /* the last one is not 1 */
};

static __device__ __forceinline__ struct crc_back
crc_back_from(const struct gk_cuda_crc *c, uint64_t position)
{
	/* modulo GK_CUDA_CRC_ORDER, which is 2^31 - 1 */
	const uint32_t p = (uint32_t)(position & GK_CUDA_CRC_ORDER) + (uint32_t)(position >> 31);

	return {{__ldcg(&c->back[0][p & 4095]), __ldcg(&c->back[1][p >> 12 & 4095]),
			__ldcg(&c->back_far[p >> 24])},
		p >> 24 != 0};
}

static __device__ __forceinline__ uint32_t
crc_times(const struct crc_lane *l, uint32_t crc, const struct crc_back *b)
{
	crc = crc_multiply(l, crc, b->power[0]);
	crc = crc_multiply(l, crc, b->power[1]);
	return b->far ? crc_multiply(l, crc, b->power[2]) : crc;
}

/* The CRC-32C of a chunk from the sum over its blocks. @param size  of the chunk in bytes */
static __device__ __forceinline__ uint32_t
crc_of_chunk(const struct gk_cuda_crc *c, uint32_t sum, uint64_t size)
{
	const struct crc_lane l = {__ldcg(&c->above[threadIdx.x % 32]), 0};
	const struct crc_back b = crc_back_from(c, GK_CUDA_CRC_ORDER - size % GK_CUDA_CRC_ORDER);

	/* the initial value is as if the first 4 bytes were inverted */
	return ~crc_times(&l, ~sum, &b);
}

#endif /* GK_CUDA_CRC_CUH */
