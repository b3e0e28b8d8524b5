/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Bit transposition with vectors. Most implementations work alike: they collect the low bytes of as
 * many values as a vector has bytes, and then the high bytes. The top bits of all bytes are a part
 * of a plane; adding a vector to itself moves the next bit to the top. Each function is compiled
 * for its own instruction set, independent of the compiler flags of the file.
 */

#include <string.h>

#ifdef __x86_64__
#include <immintrin.h>
#endif

#include "arrow/bitshuffle_simd.h"

/* Split 8 values: one byte for each plane. Planes are `stride` bytes apart. */
static void
split8(const uint16_t *from, uint8_t *to, size_t stride)
{
	uint64_t low = 0, high = 0;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		low |= (uint64_t)(from[i] & 0xFF) << (8 * i);
		high |= (uint64_t)(from[i] >> 8) << (8 * i);
	}
	low = bitshuffle_transpose8(low);
	high = bitshuffle_transpose8(high);
	for (i = 0; i < 8; i++) {
		to[i * stride] = low >> (8 * i);
		to[(i + 8) * stride] = high >> (8 * i);
	}
}

/* Split the values from i to n. */
static void
split_rest(const uint16_t *from, size_t i, size_t n, uint8_t *to)
{
	for (; i < n; i += 8)
		split8(from + i, to + i / 8, n / 8);
}

static int
have_always(void)
{
	return 1;
}

static void
plain_split(const uint16_t *from, size_t n, uint8_t *to)
{
	split_rest(from, 0, n, to);
}

#ifdef __x86_64__

static void
sse2_split(const uint16_t *from, size_t n, uint8_t *to)
{
	const __m128i byte = _mm_set1_epi16(0xFF);
	const size_t stride = n / 8;
	size_t i;

	for (i = 0; i + 16 <= n; i += 16) {
		const __m128i a = _mm_loadu_si128((const void *)(from + i)),
			      b = _mm_loadu_si128((const void *)(from + i + 8));
		__m128i low = _mm_packus_epi16(_mm_and_si128(a, byte), _mm_and_si128(b, byte)),
			high = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
		uint8_t *at = to + i / 8;

		for (int plane = 7; plane >= 0; plane--) {
			const uint16_t l = (uint16_t)_mm_movemask_epi8(low),
				       h = (uint16_t)_mm_movemask_epi8(high);

			memcpy(at + plane * stride, &l, sizeof(l));
			memcpy(at + (plane + 8) * stride, &h, sizeof(h));
			low = _mm_add_epi8(low, low);
			high = _mm_add_epi8(high, high);
		}
	}
	split_rest(from, i, n, to);
}

static int
have_avx2(void)
{
	return __builtin_cpu_supports("avx2") != 0;
}

__attribute__((target("avx2"))) static void
avx2_split(const uint16_t *from, size_t n, uint8_t *to)
{
	const __m256i byte = _mm256_set1_epi16(0xFF);
	const size_t stride = n / 8;
	size_t i;

	for (i = 0; i + 32 <= n; i += 32) {
		const __m256i a = _mm256_loadu_si256((const void *)(from + i)),
			      b = _mm256_loadu_si256((const void *)(from + i + 16));
		/* packus works within 128-bit lanes; restore the order of the quarters */
		__m256i low = _mm256_permute4x64_epi64(
				_mm256_packus_epi16(
					_mm256_and_si256(a, byte), _mm256_and_si256(b, byte)),
				0xD8),
			high = _mm256_permute4x64_epi64(_mm256_packus_epi16(_mm256_srli_epi16(a, 8),
								_mm256_srli_epi16(b, 8)),
				0xD8);
		uint8_t *at = to + i / 8;

		for (int plane = 7; plane >= 0; plane--) {
			const uint32_t l = (uint32_t)_mm256_movemask_epi8(low),
				       h = (uint32_t)_mm256_movemask_epi8(high);

			memcpy(at + plane * stride, &l, sizeof(l));
			memcpy(at + (plane + 8) * stride, &h, sizeof(h));
			low = _mm256_add_epi8(low, low);
			high = _mm256_add_epi8(high, high);
		}
	}
	split_rest(from, i, n, to);
}

/*
 * Prefetch half a block ahead, possibly beyond the end. Wide loads are so few that the CPU's stream
 * prefetcher does not detect them.
 */
static inline void
fetch(const uint16_t *from)
{
	__builtin_prefetch(from + 2048);
	__builtin_prefetch(from + 2048 + 32);
}

static int
have_avx512(void)
{
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw");
}

__attribute__((target("avx512f,avx512bw"))) static void
avx512_split(const uint16_t *from, size_t n, uint8_t *to)
{
	const __m512i byte = _mm512_set1_epi16(0xFF),
		      order = _mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7);
	const size_t stride = n / 8;
	size_t i;

	for (i = 0; i + 64 <= n; i += 64) {
		fetch(from + i);
		const __m512i a = _mm512_loadu_si512(from + i),
			      b = _mm512_loadu_si512(from + i + 32);
		__m512i low = _mm512_permutexvar_epi64(order,
				_mm512_packus_epi16(
					_mm512_and_si512(a, byte), _mm512_and_si512(b, byte))),
			high = _mm512_permutexvar_epi64(order,
				_mm512_packus_epi16(
					_mm512_srli_epi16(a, 8), _mm512_srli_epi16(b, 8)));
		uint8_t *at = to + i / 8;

		for (int plane = 7; plane >= 0; plane--) {
			const uint64_t l = _mm512_movepi8_mask(low), h = _mm512_movepi8_mask(high);

			memcpy(at + plane * stride, &l, sizeof(l));
			memcpy(at + (plane + 8) * stride, &h, sizeof(h));
			low = _mm512_add_epi8(low, low);
			high = _mm512_add_epi8(high, high);
		}
	}
	split_rest(from, i, n, to);
}

static int
have_gfni(void)
{
	return have_avx512() && __builtin_cpu_supports("avx512vbmi") &&
		__builtin_cpu_supports("gfni");
}

/* Planes are at any alignment. */
typedef double anywhere __attribute__((aligned(1), may_alias));

/* Store qword k of v to plane k. */
__attribute__((target("avx512f"))) static inline void
put_planes(__m512i v, uint8_t *to, size_t stride)
{
	const __m128i quarter[4] = {_mm512_castsi512_si128(v), _mm512_extracti32x4_epi32(v, 1),
		_mm512_extracti32x4_epi32(v, 2), _mm512_extracti32x4_epi32(v, 3)};

	for (int k = 0; k < 4; k++) {
		const __m128d two = _mm_castsi128_pd(quarter[k]);

		*(anywhere *)(to + 2 * k * stride) = two[0];
		*(anywhere *)(to + (2 * k + 1) * stride) = two[1];
	}
}

/*
 * Use a product of bit matrices: 8 bytes of data form a matrix, starting with the last row. Its
 * product with the unit vectors gives its columns, which are 8 bits of 8 planes.
 */
__attribute__((target("avx512f,avx512bw,avx512vbmi,gfni"))) static void
gfni_split(const uint16_t *from, size_t n, uint8_t *to)
{
	const __m512i units = _mm512_set1_epi64((long long)0x8040201008040201);
	const size_t stride = n / 8;
	uint8_t low_bytes[64], high_bytes[64], columns[64];
	__m512i pick_low, pick_high, order;
	size_t i;

	for (i = 0; i < 64; i++) {
		/*
		 * values in groups of eight, the last value first; bytes of 64 values in two
		 * vectors
		 */
		low_bytes[i] = (uint8_t)(2 * (i ^ 7));
		high_bytes[i] = (uint8_t)(2 * (i ^ 7) + 1);
		columns[i] = (uint8_t)(8 * (i % 8) + i / 8);
	}
	pick_low = _mm512_loadu_si512(low_bytes);
	pick_high = _mm512_loadu_si512(high_bytes);
	order = _mm512_loadu_si512(columns);
	for (i = 0; i + 64 <= n; i += 64) {
		fetch(from + i);
		const __m512i a = _mm512_loadu_si512(from + i),
			      b = _mm512_loadu_si512(from + i + 32);
		const __m512i low = _mm512_gf2p8affine_epi64_epi8(
				      units, _mm512_permutex2var_epi8(a, pick_low, b), 0),
			      high = _mm512_gf2p8affine_epi64_epi8(
				      units, _mm512_permutex2var_epi8(a, pick_high, b), 0);

		put_planes(_mm512_permutexvar_epi8(order, low), to + i / 8, stride);
		put_planes(_mm512_permutexvar_epi8(order, high), to + 8 * stride + i / 8, stride);
	}
	split_rest(from, i, n, to);
}

#endif

static const struct bitshuffle_planes rows[] = {
	{"plain", have_always, plain_split},
#ifdef __x86_64__
	{"sse2", have_always, sse2_split},
	{"avx2", have_avx2, avx2_split},
	{"avx512", have_avx512, avx512_split},
	{"gfni", have_gfni, gfni_split},
#endif
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

const struct bitshuffle_planes *
bitshuffle_planes_get(size_t index)
{
	return index < ROWS ? &rows[index] : NULL;
}

const struct bitshuffle_planes *
bitshuffle_planes_find(const char *name)
{
	for (size_t i = ROWS; i-- > 0;)
		if ((name == NULL || strcmp(rows[i].name, name) == 0) && rows[i].have())
			return &rows[i];
	return NULL;
}
