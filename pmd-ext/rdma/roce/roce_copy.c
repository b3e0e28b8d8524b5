/* SPDX-License-Identifier: BSD-3-Clause */
#include <string.h>

#include <rte_common.h>

#include "roce_copy.h"

#ifdef RTE_ARCH_X86_64
#include <emmintrin.h>

#define LINE 64

void
roce_copy_stream(void *to, const void *from, size_t length)
{
	const uint8_t *in = from;
	uint8_t *out = to;
	size_t head = -(uintptr_t)out % LINE;
	__m128i a, b, c, d;

	if (length < 4 * LINE) {
		memcpy(out, in, length);
		return;
	}
	memcpy(out, in, head);
	out += head;
	in += head;
	for (length -= head; length >= LINE; length -= LINE, in += LINE, out += LINE) {
		a = _mm_loadu_si128((const __m128i *)in);
		b = _mm_loadu_si128((const __m128i *)(in + 16));
		c = _mm_loadu_si128((const __m128i *)(in + 32));
		d = _mm_loadu_si128((const __m128i *)(in + 48));
		_mm_stream_si128((__m128i *)out, a);
		_mm_stream_si128((__m128i *)(out + 16), b);
		_mm_stream_si128((__m128i *)(out + 32), c);
		_mm_stream_si128((__m128i *)(out + 48), d);
	}
	memcpy(out, in, length);
	_mm_sfence();
}

#else

void
roce_copy_stream(void *to, const void *from, size_t length)
{
	memcpy(to, from, length);
}

#endif
