/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and stores that order others. What is rewritten during the launch is read by these, or by
 * plain loads after one of these: never through the non-coherent path (CI greps the PTX).
 */
#ifndef GK_CUDA_ORDER_CUH
#define GK_CUDA_ORDER_CUH

#include <stdint.h>

static __device__ __forceinline__ uint32_t
load_acquire_sys(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint32_t
load_acquire(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ void
store_release_sys(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.sys.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

static __device__ __forceinline__ void
store_release(uint32_t *p, uint32_t v)
{
	asm volatile("st.release.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

/* Adds one and returns what was there, ordered both ways among the blocks of the device. */
static __device__ __forceinline__ uint32_t
arrive(uint32_t *p)
{
	uint32_t v;

	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint64_t
now_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

#endif /* GK_CUDA_ORDER_CUH */
