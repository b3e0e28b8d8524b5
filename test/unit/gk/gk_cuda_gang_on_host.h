/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The rest of CUDA that gangs use, on CPUs, beside gk_cuda_on_host.h. Asynchronous copies are made
 * at once. Addresses in shared memory are offsets in `shared_area`. Blocks are threads, so memory
 * order between them is that of the CPU.
 */
#ifndef GK_CUDA_GANG_ON_HOST_H
#define GK_CUDA_GANG_ON_HOST_H

#include "gk_cuda_on_host.h"

#include <ctime>
#include <unistd.h>

struct float2 {
	float x, y;
};
struct float4 {
	float x, y, z, w;
};
struct ulonglong2 {
	unsigned long long x, y;
};

static inline float4
make_float4(float x, float y, float z, float w)
{
	return {x, y, z, w};
}

static inline ulonglong2
make_ulonglong2(unsigned long long x, unsigned long long y)
{
	return {x, y};
}

static thread_local uint32_t host_block_number;

struct host_block_index {
	operator uint32_t() const
	{
		return host_block_number;
	}
};
static struct {
	host_block_index x;
} blockIdx;

alignas(128) static thread_local uint4 shared_area[128 << 10 >> 4];

static inline uint64_t
__cvta_generic_to_shared(const void *p)
{
	return (uint64_t)((const char *)p - (const char *)shared_area);
}

static inline bool
__all_sync(uint32_t mask, bool v)
{
	return __ballot_sync(mask, v) == 0xFFFFFFFFu;
}

static inline bool
__syncthreads_and(bool v)
{
	return !host_block_or(!v);
}

template <typename T>
static inline T
__shfl_xor_sync(uint32_t, T v, uint32_t by)
{
	return host_shuffle(v, host->thread % 32 ^ by);
}

static inline uint32_t
__umulhi(uint32_t a, uint32_t b)
{
	return (uint32_t)((uint64_t)a * b >> 32);
}

static inline float
__fmaf_rn(float a, float b, float c)
{
	return std::fma(a, b, c);
}

/* Of a number below 2^22 and a half: the sum in f64 is too small by less than 2^-29, if at all. */
static inline float
__fadd_rz(float a, float b)
{
	const double exact = (double)a + (double)b;
	const float sum = (float)exact;

	return std::fabs((double)sum) > std::fabs(exact) ? std::nextafterf(sum, 0.0f) : sum;
}

static inline int32_t
__float2int_rz(float v)
{
	return (int32_t)v;
}

static inline double
__dmul_rn(double a, double b)
{
	return a * b;
}

static inline double
__ll2double_rn(long long v)
{
	return (double)v;
}

static inline double
__ull2double_rn(unsigned long long v)
{
	return (double)v;
}

static inline void
__threadfence_system(void)
{
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
}

static inline unsigned long long
atomicAdd(unsigned long long *p, unsigned long long v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline unsigned long long
atomicExch(unsigned long long *p, unsigned long long v)
{
	return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);
}

/* gk_cuda_order.cuh @{ */
/* The dispatcher polls with the first warp: others run meanwhile. */
static inline uint32_t
load_acquire_sys(const uint32_t *p)
{
	if (host->thread == 0)
		std::this_thread::sleep_for(std::chrono::microseconds(20));
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint64_t
load_acquire_sys(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint64_t
load_acquire(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint64_t
load_sys(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline uint4
load_sys(const uint4 *p)
{
	return __ldcg(p);
}

static inline void
store_release_sys(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline void
store_release_sys(uint64_t *p, uint32_t low, uint32_t high)
{
	__atomic_store_n(p, (uint64_t)high << 32 | low, __ATOMIC_SEQ_CST);
}

static inline void
store_release(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline uint64_t
policy_evict_first(void)
{
	return 0;
}

static inline uint64_t
policy_evict_normal(void)
{
	return 0;
}

/* 16 bytes, aligned as a GPU demands it */
static inline void
copy_lines(uint32_t to, uint64_t from)
{
	if (to % 16 != 0 || from % 16 != 0 || to + 16 > sizeof(shared_area))
		abort();
	memcpy((char *)shared_area + to, (const void *)from, 16);
}

static inline void
copy_async(uint32_t to, uint64_t from)
{
	copy_lines(to, from);
}

static inline void
copy_async(uint32_t to, uint64_t from, uint64_t)
{
	copy_lines(to, from);
}

static inline void
copy_commit(void)
{
}

template <int left>
static inline void
copy_wait(void)
{
}

template <typename T>
static inline T
host_load_shared(uint32_t from)
{
	T v;

	if (from % sizeof(T) != 0 || from + sizeof(T) > sizeof(shared_area))
		abort();
	memcpy(&v, (const char *)shared_area + from, sizeof(v));
	return v;
}

static inline uint4
load_shared4(uint32_t from)
{
	return host_load_shared<uint4>(from);
}

static inline uint2
load_shared2(uint32_t from)
{
	return host_load_shared<uint2>(from);
}

static inline uint64_t
load_shared_u64(uint32_t from)
{
	return host_load_shared<uint64_t>(from);
}

static inline float
load_shared_f32(uint32_t from)
{
	return host_load_shared<float>(from);
}

static inline uint16_t
load_shared_u16(uint32_t from)
{
	return host_load_shared<uint16_t>(from);
}

static inline uint32_t
load_shared_u32(uint32_t from)
{
	return host_load_shared<uint32_t>(from);
}

static inline void
store_shared4(uint32_t to, uint4 v)
{
	if (to % sizeof(v) != 0 || to + sizeof(v) > sizeof(shared_area))
		abort();
	memcpy((char *)shared_area + to, &v, sizeof(v));
}

static inline void
store_shared_u32(uint32_t to, uint32_t v)
{
	if (to % sizeof(v) != 0 || to + sizeof(v) > sizeof(shared_area))
		abort();
	memcpy((char *)shared_area + to, &v, sizeof(v));
}

/* One thread at a time: contexts of a warp take turns. Static variables are before or after. */
static inline uint32_t
add_shared_u32(uint32_t to, uint32_t v)
{
	char *at = (char *)shared_area + (int32_t)to;
	uint32_t was;

	memcpy(&was, at, sizeof(was));
	v += was;
	memcpy(at, &v, sizeof(v));
	return was;
}

static inline void
move_shared_if(uint32_t wanted, uint32_t to, uint32_t &sum)
{
	if (wanted == 0)
		return;
	add_shared_u32(to, sum);
	sum = 0;
}

static inline void
prefetch_line(const void *)
{
}

static inline void
store_shared_u64(uint32_t to, uint64_t v)
{
	if (to % sizeof(v) != 0 || to + sizeof(v) > sizeof(shared_area))
		abort();
	memcpy((char *)shared_area + to, &v, sizeof(v));
}

static inline uint64_t
now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}
/** @} */

#endif /* GK_CUDA_GANG_ON_HOST_H */
