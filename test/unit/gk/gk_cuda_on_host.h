/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The part of CUDA that the search for peaks uses, on CPUs, so that its device code runs in CI. A
 * block is a thread of the system; its threads are contexts that take turns and wait for each other
 * in warp and block operations. Only control flow and arithmetic are those of a GPU: memory is
 * sequentially consistent for the contexts of a block.
 */
#ifndef GK_CUDA_ON_HOST_H
#define GK_CUDA_ON_HOST_H

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <algorithm>
#include <chrono>
#include <thread>
#include <type_traits>
#include <vector>

#include <setjmp.h>
#include <ucontext.h>

#define __CUDA_ARCH__ 900
#define __device__
#define __host__
#define __constant__
#define __noinline__	__attribute__((noinline))
#define __forceinline__ inline
#define __shared__	thread_local

using std::max;
using std::min;

struct uint2 {
	uint32_t x, y;
};
struct uint4 {
	uint32_t x, y, z, w;
};

static inline uint2
make_uint2(uint32_t x, uint32_t y)
{
	return {x, y};
}

static inline uint4
make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w)
{
	return {x, y, z, w};
}

static const uint32_t host_threads = 256;
static const uint32_t host_warps = host_threads / 32;
static const size_t host_stack = 64 << 10;

/* A group of contexts that wait for each other. */
struct host_group {
	uint32_t size, waiting, round, ended;
	uint64_t value[host_threads];
};

/* What a context waits for: all of the previous round have read, or the round ends. */
struct host_wait {
	const host_group *group; /* NULL: nothing */
	bool to_enter;
	uint32_t round;
};

struct host_block {
	ucontext_t start[host_threads];
	/* without system calls, unlike swapcontext() */
	jmp_buf scheduler, context[host_threads];
	bool started[host_threads], ended[host_threads];
	host_wait wait[host_threads];
	uint32_t thread;
	host_group warp[host_warps], block;
	std::vector<char> stack;
	void (*run)(void);
};

static thread_local host_block *host;

struct host_index {
	operator uint32_t() const
	{
		return host->thread;
	}
};
static struct {
	host_index x;
} threadIdx;

static inline bool
host_waits(const host_wait *w)
{
	if (w->group == nullptr)
		return false;
	return w->to_enter ? w->group->ended != 0 : w->group->round == w->round;
}

/* Let other contexts run until there is nothing to wait for. */
static inline void
host_yield(const host_wait &wait)
{
	host->wait[host->thread] = wait;
	if (_setjmp(host->context[host->thread]) == 0)
		_longjmp(host->scheduler, 1);
}

/* All contexts of a group: give a value, and see those of all. */
template <typename result, typename action>
static inline result
host_collect(host_group *g, uint32_t member, uint64_t value, action what)
{
	uint32_t round;
	result r;

	while (g->ended != 0)
		host_yield({g, true, 0});
	round = g->round;
	g->value[member] = value;
	if (++g->waiting == g->size) {
		g->waiting = 0;
		g->ended = g->size;
		g->round++;
	}
	while (g->round == round)
		host_yield({g, false, round});
	r = what(g->value);
	g->ended--;
	return r;
}

template <typename action>
static inline auto
host_warp_do(uint64_t value, action what)
{
	using result = decltype(what((const uint64_t *)nullptr));

	return host_collect<result>(&host->warp[host->thread / 32], host->thread % 32, value, what);
}

static inline bool
host_block_or(bool value)
{
	return host_collect<bool>(&host->block, host->thread, value, [](const uint64_t *v) {
		return std::any_of(v, v + host_threads, [](uint64_t x) { return x != 0; });
	});
}

static inline void
__syncthreads(void)
{
	host_block_or(false);
}

static inline int
__syncthreads_or(int v)
{
	return host_block_or(v != 0);
}

static inline void
__syncwarp(void)
{
	host_warp_do(0, [](const uint64_t *) { return 0; });
}

template <typename T>
static inline T
host_from(uint64_t bits)
{
	T v;

	memcpy(&v, &bits, sizeof(v));
	return v;
}

template <typename T>
static inline T
host_shuffle(T v, uint32_t from)
{
	uint64_t bits = 0;

	memcpy(&bits, &v, sizeof(v));
	return host_warp_do(bits, [=](const uint64_t *all) { return host_from<T>(all[from]); });
}

template <typename T>
static inline T
__shfl_sync(uint32_t, T v, uint32_t from)
{
	return host_shuffle(v, from % 32);
}

template <typename T>
static inline T
__shfl_up_sync(uint32_t, T v, uint32_t by)
{
	const uint32_t lane = host->thread % 32;

	return host_shuffle(v, lane >= by ? lane - by : lane);
}

template <typename T>
static inline T
__shfl_down_sync(uint32_t, T v, uint32_t by)
{
	const uint32_t lane = host->thread % 32;

	return host_shuffle(v, lane + by < 32 ? lane + by : lane);
}

template <typename T>
static inline T
__reduce_add_sync(uint32_t, T v)
{
	static_assert(sizeof(T) == 4, "as on a GPU");
	return host_warp_do((uint32_t)v, [](const uint64_t *all) {
		uint32_t sum = 0;

		for (int i = 0; i < 32; i++)
			sum += (uint32_t)all[i];
		return (T)sum;
	});
}

static inline uint32_t
__reduce_min_sync(uint32_t, uint32_t v)
{
	return host_warp_do(
		v, [](const uint64_t *all) { return (uint32_t)*std::min_element(all, all + 32); });
}

static inline uint32_t
__reduce_or_sync(uint32_t, uint32_t v)
{
	return host_warp_do(v, [](const uint64_t *all) {
		uint32_t bits = 0;

		for (int i = 0; i < 32; i++)
			bits |= (uint32_t)all[i];
		return bits;
	});
}

static inline uint32_t
__reduce_xor_sync(uint32_t, uint32_t v)
{
	return host_warp_do(v, [](const uint64_t *all) {
		uint32_t bits = 0;

		for (int i = 0; i < 32; i++)
			bits ^= (uint32_t)all[i];
		return bits;
	});
}

static inline int32_t
__reduce_max_sync(uint32_t, int32_t v)
{
	return host_warp_do((uint32_t)v, [](const uint64_t *all) {
		int32_t most = INT32_MIN;

		for (int i = 0; i < 32; i++)
			most = max(most, (int32_t)(uint32_t)all[i]);
		return most;
	});
}

static inline uint32_t
__reduce_max_sync(uint32_t, uint32_t v)
{
	return host_warp_do(v, [](const uint64_t *all) {
		uint32_t most = 0;

		for (int i = 0; i < 32; i++)
			most = max(most, (uint32_t)all[i]);
		return most;
	});
}

static inline uint32_t
__ballot_sync(uint32_t, bool v)
{
	return host_warp_do(v, [](const uint64_t *all) {
		uint32_t bits = 0;

		for (int i = 0; i < 32; i++)
			bits |= (uint32_t)all[i] << i;
		return bits;
	});
}

static inline bool
__any_sync(uint32_t mask, bool v)
{
	return __ballot_sync(mask, v) != 0;
}

static inline int
__ffs(int v)
{
	return __builtin_ffs(v);
}

static inline int
__ffsll(long long v)
{
	return __builtin_ffsll(v);
}

static inline int
__popc(uint32_t v)
{
	return __builtin_popcount(v);
}

static inline int
__clz(int v)
{
	return v == 0 ? 32 : __builtin_clz((unsigned)v);
}

static inline int
__popcll(uint64_t v)
{
	return __builtin_popcountll(v);
}

static inline uint32_t
__funnelshift_r(uint32_t low, uint32_t high, uint32_t by)
{
	return (uint32_t)(((uint64_t)high << 32 | low) >> by % 32);
}

template <typename T>
static inline T
__ldcg(const T *p)
{
	T v;

	if ((uintptr_t)p % sizeof(T) != 0)
		abort();
	__builtin_memcpy(&v, p, sizeof(v));
	return v;
}

template <typename T>
static inline T
__ldcs(const T *p)
{
	T v;

	if ((uintptr_t)p % sizeof(T) != 0)
		abort();
	__builtin_memcpy(&v, p, sizeof(v));
	return v;
}

template <typename T, typename U>
static inline void
__stcg(T *p, U v)
{
	const T converted = v;

	if ((uintptr_t)p % sizeof(T) != 0)
		abort();
	__builtin_memcpy(p, &converted, sizeof(converted));
}

template <typename T, typename U>
static inline void
__stcs(T *p, U v)
{
	__stcg(p, v);
}

/* Bytes of two words, selected by 4 bits each. */
static inline uint32_t
__byte_perm(uint32_t x, uint32_t y, uint32_t select)
{
	const uint64_t both = (uint64_t)y << 32 | x;
	uint32_t r = 0;

	for (int i = 0; i < 4; i++)
		r |= (uint32_t)(both >> (select >> (4 * i) & 7) * 8 & 0xFF) << (8 * i);
	return r;
}

static inline void
__nanosleep(uint32_t)
{
	std::this_thread::sleep_for(std::chrono::microseconds(20));
}

static inline uint32_t
atomicAdd(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
atomicOr(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
atomicXor(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_xor(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
atomicAnd(uint32_t *p, uint32_t v)
{
	return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
atomicCAS(uint32_t *p, uint32_t expected, uint32_t v)
{
	__atomic_compare_exchange_n(p, &expected, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expected;
}

static inline uint32_t
atomicMin(uint32_t *p, uint32_t v)
{
	uint32_t old = __atomic_load_n(p, __ATOMIC_SEQ_CST);

	while (v < old &&
		!__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

static inline uint32_t
atomicMax(uint32_t *p, uint32_t v)
{
	uint32_t old = __atomic_load_n(p, __ATOMIC_SEQ_CST);

	while (v > old &&
		!__atomic_compare_exchange_n(p, &old, v, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

/* Arithmetic with one rounding; the file is compiled with -ffp-contract=off. @{ */
static inline float
__fadd_rn(float a, float b)
{
	return a + b;
}

static inline float
__fsub_rn(float a, float b)
{
	return a - b;
}

static inline float
__fmul_rn(float a, float b)
{
	return a * b;
}

static inline float
__fdiv_rn(float a, float b)
{
	return a / b;
}

static inline float
__fsqrt_rn(float a)
{
	return sqrtf(a);
}

static inline double
__ddiv_rn(double a, double b)
{
	return a / b;
}

static inline float
__double2float_rn(double a)
{
	return (float)a;
}

static inline float
__uint_as_float(uint32_t bits)
{
	return host_from<float>(bits);
}

static inline uint32_t
__float_as_uint(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	return bits;
}
/** @} */

/* gk_cuda_order.cuh @{ */
#define GK_CUDA_ORDER_CUH

/* Blocks wait for each other with it: others run meanwhile. */
static inline uint32_t
load_acquire(const uint32_t *p)
{
	const uint32_t v = __atomic_load_n(p, __ATOMIC_SEQ_CST);

	std::this_thread::sleep_for(std::chrono::microseconds(20));
	return v;
}

/* A thread waits for other threads with it: they run meanwhile. */
static inline uint32_t
load_relaxed(const uint32_t *p)
{
	host_yield({});
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void
store_relaxed(uint32_t *p, uint32_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline uint64_t
load_relaxed(const uint64_t *p)
{
	return __atomic_load_n(p, __ATOMIC_SEQ_CST);
}

static inline void
store_relaxed(uint64_t *p, uint64_t v)
{
	__atomic_store_n(p, v, __ATOMIC_SEQ_CST);
}

static inline uint32_t
arrive(uint32_t *p)
{
	return __atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
}

static inline void
arrive_only(uint32_t *p)
{
	__atomic_fetch_add(p, 1, __ATOMIC_SEQ_CST);
}
/** @} */

/* gk_cuda_packed.cuh @{ */
#define GK_CUDA_PACKED_CUH

/* Halves without sign have the order of integers. The result of other words does not matter. */
static inline uint32_t
compare_words(uint32_t words, uint32_t thresholds)
{
	uint32_t less = 0;

	for (uint32_t i = 0; i < 32; i += 16)
		if ((words >> i & 0xFFFF) < (thresholds >> i & 0x7FFF))
			less |= 0x8000u << i;
	return less;
}

static inline uint32_t
signs_of(uint32_t low, uint32_t high)
{
	return (low >> 15 & 1) * 0xFFu | (low >> 31) * 0xFF00u | (high >> 15 & 1) * 0xFF0000u |
		(high >> 31) * 0xFF000000u;
}

static inline int32_t
weigh(uint32_t bytes, uint32_t weights, int32_t acc)
{
	for (uint32_t i = 0; i < 32; i += 8)
		acc += (int8_t)(bytes >> i) * (int32_t)(weights >> i & 0xFF);
	return acc;
}

struct host_warp_values {
	uint64_t v[32];
};

static inline host_warp_values
host_warp_values_of(uint32_t low, uint32_t high)
{
	return host_warp_do((uint64_t)high << 32 | low, [](const uint64_t *all) {
		host_warp_values w;

		memcpy(w.v, all, sizeof(w.v));
		return w;
	});
}

/* Thread 4 i + k has bits 32 k and 128 + 32 k of row i of A and column i of B; see PTX's manual. */
static inline void
multiply_bits(int32_t sum[4], const uint4 &a, uint32_t b0, uint32_t b1)
{
	const uint32_t group = host->thread % 32 / 4, k = host->thread % 4;
	/* rows i and 8 + i */
	const host_warp_values rows[2] = {
		host_warp_values_of(a.x, a.z), host_warp_values_of(a.y, a.w)};
	const host_warp_values cols = host_warp_values_of(b0, b1);

	for (uint32_t i = 0; i < 4; i++)
		for (uint32_t j = 0; j < 4; j++)
			sum[i] += __builtin_popcountll(
				rows[i / 2].v[group * 4 + j] & cols.v[(2 * k + i % 2) * 4 + j]);
}
/** @} */

static void
host_context(void)
{
	host->run();
	host->ended[host->thread] = true;
	host_yield({});
}

/* Run the thread b->thread of a block until it waits. */
static __attribute__((noinline)) void
host_resume(host_block *b)
{
	if (_setjmp(b->scheduler) != 0)
		return;
	if (b->started[b->thread])
		_longjmp(b->context[b->thread], 1);
	b->started[b->thread] = true;
	setcontext(&b->start[b->thread]);
}

/* Run a block on the calling thread. */
static inline void
host_run_block(void (*run)(void))
{
	host_block *b = new host_block{};
	uint32_t left = host_threads;

	host = b;
	b->stack.resize(host_threads * host_stack);
	b->run = run;
	for (host_group *g = b->warp; g < b->warp + host_warps; g++)
		g->size = 32;
	b->block.size = host_threads;
	for (uint32_t i = 0; i < host_threads; i++) {
		getcontext(&b->start[i]);
		b->start[i].uc_stack.ss_sp = b->stack.data() + i * host_stack;
		b->start[i].uc_stack.ss_size = host_stack;
		makecontext(&b->start[i], host_context, 0);
	}
	while (left > 0) {
		for (uint32_t i = 0; i < host_threads; i++) {
			if (b->ended[i] || host_waits(&b->wait[i]))
				continue;
			b->thread = i;
			host_resume(b);
			left -= b->ended[i];
		}
	}
	delete b;
}

#endif /* GK_CUDA_ON_HOST_H */
