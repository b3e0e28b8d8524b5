/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <lz4.h>

#include "bitshuffle.h"

#define HEADER 12
#define PLANES 16

static void
put_be32(uint8_t *to, uint32_t value)
{
	value = __builtin_bswap32(value);
	memcpy(to, &value, sizeof(value));
}

static uint32_t
get_be32(const uint8_t *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return __builtin_bswap32(value);
}

/* Transpose 8 x 8 bits: byte i of the result holds bit i of every byte (Hacker's Delight 7-3). */
static uint64_t
transpose8(uint64_t x)
{
	uint64_t t;

	t = (x ^ x >> 7) & 0x00AA00AA00AA00AAull;
	x ^= t ^ t << 7;
	t = (x ^ x >> 14) & 0x0000CCCC0000CCCCull;
	x ^= t ^ t << 14;
	t = (x ^ x >> 28) & 0x00000000F0F0F0F0ull;
	x ^= t ^ t << 28;
	return x;
}

/* 8 values to one byte in each of the planes, which lie `stride` bytes apart. */
static void
shuffle8(const uint16_t *from, uint8_t *to, size_t stride)
{
	uint64_t low = 0, high = 0;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		low |= (uint64_t)(from[i] & 0xFF) << (8 * i);
		high |= (uint64_t)(from[i] >> 8) << (8 * i);
	}
	low = transpose8(low);
	high = transpose8(high);
	for (i = 0; i < 8; i++) {
		to[i * stride] = low >> (8 * i);
		to[(i + 8) * stride] = high >> (8 * i);
	}
}

static void
unshuffle8(const uint8_t *from, uint16_t *to, size_t stride)
{
	uint64_t low = 0, high = 0;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		low |= (uint64_t)from[i * stride] << (8 * i);
		high |= (uint64_t)from[(i + 8) * stride] << (8 * i);
	}
	low = transpose8(low);
	high = transpose8(high);
	for (i = 0; i < 8; i++)
		to[i] = (low >> (8 * i) & 0xFF) | (high >> (8 * i) & 0xFF) << 8;
}

/* n values, a multiple of 8 */
static void
shuffle(const uint16_t *from, size_t n, uint8_t *to)
{
	const size_t stride = n / 8;
	size_t i = 0;

#ifdef __SSE2__
	const __m128i byte = _mm_set1_epi16(0xFF);
	__m128i a, b, low, high;
	uint16_t mask;
	int plane;

	for (; i + 16 <= n; i += 16) {
		a = _mm_loadu_si128((const void *)(from + i));
		b = _mm_loadu_si128((const void *)(from + i + 8));
		low = _mm_packus_epi16(_mm_and_si128(a, byte), _mm_and_si128(b, byte));
		high = _mm_packus_epi16(_mm_srli_epi16(a, 8), _mm_srli_epi16(b, 8));
		/* the top bits of 16 bytes are 16 bits of a plane; shift the next ones up */
		for (plane = 7; plane >= 0; plane--) {
			mask = _mm_movemask_epi8(low);
			memcpy(to + plane * stride + i / 8, &mask, sizeof(mask));
			mask = _mm_movemask_epi8(high);
			memcpy(to + (plane + 8) * stride + i / 8, &mask, sizeof(mask));
			low = _mm_add_epi8(low, low);
			high = _mm_add_epi8(high, high);
		}
	}
#endif
	for (; i < n; i += 8)
		shuffle8(from + i, to + i / 8, stride);
}

static size_t
next_block(size_t left)
{
	return left >= BITSHUFFLE_BLOCK ? BITSHUFFLE_BLOCK : left & ~(size_t)7;
}

size_t
bitshuffle_bound(size_t n)
{
	const size_t blocks = n / BITSHUFFLE_BLOCK + 1;

	return HEADER + blocks * (4 + LZ4_COMPRESSBOUND(BITSHUFFLE_BLOCK * 2)) + 7 * 2;
}

size_t
bitshuffle_compress(const uint16_t *from, size_t n, uint8_t *to)
{
	uint8_t plain[BITSHUFFLE_BLOCK * 2];
	uint8_t *at = to + HEADER;
	size_t block;
	int size;

	put_be32(to, (uint64_t)n * 2 >> 32);
	put_be32(to + 4, (uint64_t)n * 2);
	put_be32(to + 8, BITSHUFFLE_BLOCK * 2);
	for (; n >= 8; n -= block, from += block) {
		block = next_block(n);
		shuffle(from, block, plain);
		/* cannot fail: the bound of LZ4 is there */
		size = LZ4_compress_default((const char *)plain, (char *)at + 4, (int)block * 2,
			LZ4_COMPRESSBOUND(BITSHUFFLE_BLOCK * 2));
		put_be32(at, size);
		at += 4 + size;
	}
	memcpy(at, from, n * 2);
	return at + n * 2 - to;
}

int
bitshuffle_decompress(const uint8_t *from, size_t size, uint16_t *to, size_t n)
{
	uint8_t plain[BITSHUFFLE_BLOCK * 2];
	size_t block, i;
	uint32_t packed;

	if (size < HEADER || get_be32(from) != (uint64_t)n * 2 >> 32 ||
		get_be32(from + 4) != (uint32_t)(n * 2) ||
		get_be32(from + 8) != BITSHUFFLE_BLOCK * 2)
		return -EBADMSG;
	from += HEADER;
	size -= HEADER;
	for (; n >= 8; n -= block, to += block) {
		block = next_block(n);
		if (size < 4)
			return -EBADMSG;
		packed = get_be32(from);
		from += 4;
		size -= 4;
		if (packed > size || packed > LZ4_MAX_INPUT_SIZE ||
			LZ4_decompress_safe((const char *)from, (char *)plain, (int)packed,
				(int)block * 2) != (int)block * 2)
			return -EBADMSG;
		from += packed;
		size -= packed;
		for (i = 0; i < block; i += 8)
			unshuffle8(plain + i / 8, to + i, block / 8);
	}
	if (size != n * 2)
		return -EBADMSG;
	memcpy(to, from, size);
	return 0;
}
