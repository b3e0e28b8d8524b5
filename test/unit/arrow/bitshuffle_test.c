/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares bitshuffle + LZ4 chunks with a decoder that follows the format's specification bit by
 * bit.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <lz4.h>

#include "arrow/bitshuffle.h"
#include "gk_bitshuffle_block.h"

static uint32_t
next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return *seed >> 33;
}

/* An independent decoder: one bit at a time, as the format's specification describes it. */
static void
decode_plainly(const uint8_t *from, size_t size, uint16_t *to, size_t n)
{
	uint8_t plain[8192];
	const uint8_t *end = from + size;
	size_t block, i, k, packed;

	assert_int_equal((size_t)from[4] << 24 | from[5] << 16 | from[6] << 8 | from[7], n * 2);
	assert_int_equal(from[10] << 8 | from[11], 8192);
	from += 12;
	while (n >= 8) {
		block = n >= 4096 ? 4096 : n / 8 * 8;
		packed = (size_t)from[0] << 24 | from[1] << 16 | from[2] << 8 | from[3];
		assert_int_equal(LZ4_decompress_safe((const char *)from + 4, (char *)plain, packed,
					 sizeof(plain)),
			block * 2);
		from += 4 + packed;
		for (i = 0; i < block; i++) {
			to[i] = 0;
			for (k = 0; k < 16; k++)
				to[i] |= (plain[k * block / 8 + i / 8] >> (i % 8) & 1) << k;
		}
		to += block;
		n -= block;
	}
	for (; n > 0; n--, from += 2)
		*to++ = from[0] | from[1] << 8;
	assert_ptr_equal(from, end);
}

/* As older versions compressed: with liblz4. @return size */
static size_t
compress_by_liblz4(const uint16_t *from, size_t n, uint8_t *to)
{
	uint8_t planes[GK_BITSHUFFLE_BYTES], *at = to + GK_BITSHUFFLE_HEADER;
	uint32_t header[GK_BITSHUFFLE_HEADER / 4];

	gk_bitshuffle_header(header, n);
	memcpy(to, header, sizeof(header));
	while (n >= 8) {
		const uint32_t v = n < GK_BITSHUFFLE_BLOCK ? n / 8 * 8 : GK_BITSHUFFLE_BLOCK;
		uint32_t size, length;

		gk_bitshuffle_plain.split(from, v, planes);
		size = LZ4_compress_default((char *)planes, (char *)at + 4, v * 2,
			LZ4_COMPRESSBOUND(GK_BITSHUFFLE_BYTES));
		length = gk_big_endian(size);
		memcpy(at, &length, sizeof(length));
		at += 4 + size;
		from += v;
		n -= v;
	}
	memcpy(at, from, n * 2);
	return at + n * 2 - to;
}

static void
bitshuffle_round_trip(void **state)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 9, 16, 24, 4088, 4095, 4096, 4097, 4104, 12345, 8192, 524288};
	uint64_t seed = 7;
	uint16_t *from, *to;
	uint8_t *chunk;
	size_t i, k, size;

	for (i = 0; i < 2 * sizeof(sizes) / sizeof(sizes[0]); i++) {
		const size_t n = sizes[i / 2];

		from = malloc(n * 2 + 1);
		to = malloc(n * 2 + 1);
		chunk = malloc(gk_bitshuffle_bound(n) + 1000);
		for (k = 0; k < n; k++)
			from[k] = i % 4 < 2 ? next_random(&seed) : 2048 + next_random(&seed) % 64;
		if (i % 2 == 0) {
			size = gk_bitshuffle_compress(from, n, chunk);
			assert_true(size <= gk_bitshuffle_bound(n));
		} else {
			size = compress_by_liblz4(from, n, chunk);
		}
		/* only 6 of 16 bit planes are not constant */
		if (i % 4 >= 2 && n >= 8192)
			assert_true(size < n);
		decode_plainly(chunk, size, to, n);
		assert_memory_equal(from, to, n * 2);
		memset(to, 0, n * 2);
		assert_int_equal(bitshuffle_decompress(chunk, size, to, n), 0);
		assert_memory_equal(from, to, n * 2);
		/* damage gives an error or wrong numbers, never a crash */
		assert_int_equal(bitshuffle_decompress(chunk, size - 1, to, n), -EBADMSG);
		assert_int_equal(bitshuffle_decompress(chunk, size, to, n + 1), -EBADMSG);
		for (k = 0; k < 200; k++) {
			chunk[next_random(&seed) % size] ^= 1 << (k % 8);
			bitshuffle_decompress(chunk, size, to, n);
		}
		free(from);
		free(to);
		free(chunk);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bitshuffle_round_trip),
	};

	return cmocka_run_group_tests_name("bitshuffle", tests, NULL, NULL);
}
