/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions on packed halves, bytes and bits that have no intrinsic. */
#ifndef GK_CUDA_PACKED_CUH
#define GK_CUDA_PACKED_CUH

#include <stdint.h>

/* Subtract two thresholds (with sign bits set) from two words: below the threshold is negative. */
static __device__ __forceinline__ uint32_t
compare_words(uint32_t words, uint32_t thresholds)
{
	uint32_t less;

	asm("add.f16x2 %0, %1, %2;" : "=r"(less) : "r"(words), "r"(thresholds));
	return less;
}

/* Signs of four halves, one byte each, all ones or zeros. */
static __device__ __forceinline__ uint32_t
signs_of(uint32_t low, uint32_t high)
{
	uint32_t bytes;

	asm("prmt.b32 %0, %1, %2, 0xFDB9;" : "=r"(bytes) : "r"(low), "r"(high));
	return bytes;
}

/* Subtract the weighted sum of bytes of -1 from acc. */
static __device__ __forceinline__ int32_t
weigh(uint32_t bytes, uint32_t weights, int32_t acc)
{
	int32_t v;

	asm("dp4a.s32.u32 %0, %1, %2, %3;" : "=r"(v) : "r"(bytes), "r"(weights), "r"(acc));
	return v;
}

/*
 * Add the products of two matrices of bits, with operands and results as of mma.m16n8k256: the
 * number of bits that are set in both.
 */
static __device__ __forceinline__ void
multiply_bits(int32_t sum[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
	asm("mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.and.popc "
	    "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		: "+r"(sum[0]), "+r"(sum[1]), "+r"(sum[2]), "+r"(sum[3])
		: "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

#endif /* GK_CUDA_PACKED_CUH */
