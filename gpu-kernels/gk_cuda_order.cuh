/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and stores with memory ordering. Data that is rewritten during the launch is read with
 * these, or with plain loads after one of these, and never through the non-coherent path (CI
 * searches the PTX for it).
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

static __device__ __forceinline__ uint64_t
load_acquire(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint64_t
load_acquire_sys(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

/* Values that need no order with other data. @{ */
static __device__ __forceinline__ uint32_t
load_relaxed(const uint32_t *p)
{
	uint32_t v;

	asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ void
store_relaxed(uint32_t *p, uint32_t v)
{
	asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" : : "l"(p), "r"(v) : "memory");
}

static __device__ __forceinline__ uint64_t
load_relaxed(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ void
store_relaxed(uint64_t *p, uint64_t v)
{
	asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" : : "l"(p), "l"(v) : "memory");
}
/** @} */

/*
 * Loads from memory that a sender outside the GPU may overwrite: once, from beyond the L1 cache.
 * @{
 */
static __device__ __forceinline__ uint64_t
load_sys(const uint64_t *p)
{
	uint64_t v;

	asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(v) : "l"(p) : "memory");
	return v;
}

static __device__ __forceinline__ uint4
load_sys(const uint4 *p)
{
	uint4 v;

	asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p)
		     : "memory");
	return v;
}
/** @} */

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

/*
 * Add one and return the previous value, with acquire and release ordering among the device's
 * blocks.
 */
static __device__ __forceinline__ uint32_t
arrive(uint32_t *p)
{
	uint32_t v;

	asm volatile("atom.acq_rel.gpu.global.add.u32 %0, [%1], 1;" : "=r"(v) : "l"(p) : "memory");
	return v;
}

/* The same without the value, and without waiting. */
static __device__ __forceinline__ void
arrive_only(uint32_t *p)
{
	asm volatile("red.release.gpu.global.add.u32 [%0], 1;" : : "l"(p) : "memory");
}

/*
 * Asynchronous copies of 16 bytes to shared memory through the L2 cache, counted in groups. Words
 * are used once or twice and are evicted first, so that coefficients stay. @{
 */
static __device__ __forceinline__ uint64_t
policy_evict_first(void)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ uint64_t
policy_evict_normal(void)
{
	uint64_t policy;

	asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(policy));
	return policy;
}

static __device__ __forceinline__ void
copy_async(uint32_t to, uint64_t from, uint64_t policy)
{
	asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;"
		     :
		     : "r"(to), "l"(from), "l"(policy)
		     : "memory");
}

static __device__ __forceinline__ void
copy_async(uint32_t to, uint64_t from)
{
	asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

/*
 * Through the L1 cache: whole lines cross the bus, 50.8 GB/s instead of 44 (measured). Lines of
 * earlier batches were invalidated when this block acquired its batch.
 */
static __device__ __forceinline__ void
copy_lines(uint32_t to, uint64_t from)
{
	asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" : : "r"(to), "l"(from) : "memory");
}

static __device__ __forceinline__ void
copy_commit(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

/* Wait until at most `left` groups of this thread are pending. */
template <int left>
static __device__ __forceinline__ void
copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" : : "n"(left) : "memory");
}
/** @} */

/* Fetch a line into the L2 cache. */
static __device__ __forceinline__ void
prefetch_line(const void *p)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
}

/* Access to shared memory by shared-state-space addresses. @{ */
static __device__ __forceinline__ uint4
load_shared4(uint32_t from)
{
	uint4 v;

	asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "r"(from)
		     : "memory");
	return v;
}

static __device__ __forceinline__ uint2
load_shared2(uint32_t from)
{
	uint2 v;

	asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];"
		     : "=r"(v.x), "=r"(v.y)
		     : "r"(from)
		     : "memory");
	return v;
}

static __device__ __forceinline__ uint64_t
load_shared_u64(uint32_t from)
{
	uint64_t v;

	asm volatile("ld.shared.u64 %0, [%1];" : "=l"(v) : "r"(from) : "memory");
	return v;
}

static __device__ __forceinline__ float
load_shared_f32(uint32_t from)
{
	float v;

	asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(from) : "memory");
	return v;
}

static __device__ __forceinline__ uint16_t
load_shared_u16(uint32_t from)
{
	uint16_t v;

	asm volatile("ld.shared.u16 %0, [%1];" : "=h"(v) : "r"(from) : "memory");
	return v;
}

static __device__ __forceinline__ uint32_t
load_shared_u32(uint32_t from)
{
	uint32_t v;

	asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v) : "r"(from) : "memory");
	return v;
}

static __device__ __forceinline__ void
store_shared4(uint32_t to, uint4 v)
{
	asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
		     :
		     : "r"(to), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
		     : "memory");
}

static __device__ __forceinline__ void
store_shared_u32(uint32_t to, uint32_t v)
{
	asm volatile("st.shared.u32 [%0], %1;" : : "r"(to), "r"(v) : "memory");
}

/* @return the value before */
static __device__ __forceinline__ uint32_t
add_shared_u32(uint32_t to, uint32_t v)
{
	uint32_t was;

	asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(was) : "r"(to), "r"(v) : "memory");
	return was;
}

/*
 * Add a sum that is not 0, and clear it, where `wanted` is not 0: with predicates, because branches
 * take longer than the addition.
 */
static __device__ __forceinline__ void
move_shared_if(uint32_t wanted, uint32_t to, uint32_t &sum)
{
	asm volatile("{\n\t"
		     ".reg .pred end, some;\n\t"
		     "setp.ne.u32 end, %1, 0;\n\t"
		     "setp.ne.and.u32 some, %0, 0, end;\n\t"
		     "@some red.shared.add.u32 [%2], %0;\n\t"
		     "@end mov.u32 %0, 0;\n\t"
		     "}"
		     : "+r"(sum)
		     : "r"(wanted), "r"(to)
		     : "memory");
}

static __device__ __forceinline__ void
store_shared_u64(uint32_t to, uint64_t v)
{
	asm volatile("st.shared.u64 [%0], %1;" : : "r"(to), "l"(v) : "memory");
}
/** @} */

/* Store two words at once. */
static __device__ __forceinline__ void
store_release_sys(uint64_t *p, uint32_t low, uint32_t high)
{
	asm volatile("st.release.sys.global.u64 [%0], %1;"
		     :
		     : "l"(p), "l"((uint64_t)high << 32 | low)
		     : "memory");
}

static __device__ __forceinline__ uint64_t
now_ns(void)
{
	uint64_t ns;

	asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
	return ns;
}

#endif /* GK_CUDA_ORDER_CUH */
