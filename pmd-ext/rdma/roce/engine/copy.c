/* SPDX-License-Identifier: BSD-3-Clause */
/* Copies with non-temporal stores: AVX-512 or SSE2 on x86-64, memcpy() on other CPUs. */
#include <string.h>

#include <rte_atomic.h>
#include <rte_common.h>

#include "engine/copy.h"

#ifdef RTE_ARCH_X86_64
#include <immintrin.h>

#define LINE 64

/* Copies whole cache lines; `out` is aligned to a cache line. */
static void
sse2_lines(uint8_t *out, const uint8_t *in, size_t length)
{
	for (; length; length -= LINE, in += LINE, out += LINE) {
		const __m128i a = _mm_loadu_si128((const __m128i *)in);
		const __m128i b = _mm_loadu_si128((const __m128i *)(in + 16));
		const __m128i c = _mm_loadu_si128((const __m128i *)(in + 32));
		const __m128i d = _mm_loadu_si128((const __m128i *)(in + 48));

		_mm_stream_si128((__m128i *)out, a);
		_mm_stream_si128((__m128i *)(out + 16), b);
		_mm_stream_si128((__m128i *)(out + 32), c);
		_mm_stream_si128((__m128i *)(out + 48), d);
	}
}

/* Each cache line is one store, so no partially filled line is written to memory. */
__attribute__((target("avx512f"))) static void
avx512_lines(uint8_t *out, const uint8_t *in, size_t length)
{
	for (; length; length -= LINE, in += LINE, out += LINE)
		_mm512_stream_si512((__m512i *)out, _mm512_loadu_si512(in));
}

static void (*lines)(uint8_t *out, const uint8_t *in, size_t length) = sse2_lines;

RTE_INIT(choose)
{
	if (__builtin_cpu_supports("avx512f"))
		lines = avx512_lines;
}

void
roce_copy_stream(void *to, const void *from, size_t length)
{
	const uint8_t *in = from;
	uint8_t *out = to;
	const size_t head = -(uintptr_t)out % LINE;
	size_t body;

	if (length < 4 * LINE) {
		memcpy(out, in, length);
		return;
	}
	body = RTE_ALIGN_FLOOR(length - head, LINE);
	memcpy(out, in, head);
	lines(out + head, in + head, body);
	memcpy(out + head + body, in + head + body, length - head - body);
}

void
roce_copy_fence(void)
{
	_mm_sfence();
}

#else

void
roce_copy_stream(void *to, const void *from, size_t length)
{
	memcpy(to, from, length);
}

void
roce_copy_fence(void)
{
	rte_smp_wmb();
}

#endif
