/* SPDX-License-Identifier: BSD-3-Clause */
/* Instructions on packed halves and bytes that have no intrinsic. */
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

#endif /* GK_CUDA_PACKED_CUH */
