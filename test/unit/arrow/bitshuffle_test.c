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
#include "arrow/bitshuffle_simd.h"

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

static void
bitshuffle_round_trip(void **state)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 9, 16, 24, 4088, 4095, 4096, 4097, 4104, 12345, 8192, 524288};
	uint64_t seed = 7;
	uint16_t *from, *to;
	uint8_t *chunk;
	size_t i, k, size;

	for (i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		from = malloc(sizes[i] * 2 + 1);
		to = malloc(sizes[i] * 2 + 1);
		chunk = malloc(bitshuffle_bound(sizes[i]));
		for (k = 0; k < sizes[i]; k++)
			from[k] = i % 2 ? next_random(&seed) : 2048 + next_random(&seed) % 64;
		size = bitshuffle_compress(from, sizes[i], chunk);
		assert_true(size <= bitshuffle_bound(sizes[i]));
		/* only 6 of 16 bit planes are not constant */
		if (i % 2 == 0 && sizes[i] >= 8192)
			assert_true(size * 2 < sizes[i] * 2);
		decode_plainly(chunk, size, to, sizes[i]);
		assert_memory_equal(from, to, sizes[i] * 2);
		memset(to, 0, sizes[i] * 2);
		assert_int_equal(bitshuffle_decompress(chunk, size, to, sizes[i]), 0);
		assert_memory_equal(from, to, sizes[i] * 2);
		/* damage gives an error or wrong numbers, never a crash */
		assert_int_equal(bitshuffle_decompress(chunk, size - 1, to, sizes[i]), -EBADMSG);
		assert_int_equal(bitshuffle_decompress(chunk, size, to, sizes[i] + 1), -EBADMSG);
		for (k = 0; k < 200; k++) {
			chunk[next_random(&seed) % size] ^= 1 << (k % 8);
			bitshuffle_decompress(chunk, size, to, sizes[i]);
		}
		free(from);
		free(to);
		free(chunk);
	}
}

/* Each implementation makes the planes of the specification and writes nothing behind them. */
static void
same_planes(void **state)
{
	static const size_t sizes[] = {
		0, 8, 16, 24, 32, 40, 56, 64, 72, 96, 120, 128, 136, 4080, 4088, 4096};
	const struct bitshuffle_planes *planes;
	uint16_t memory[4096 + 1], *from = memory + 1; /* not aligned */
	uint8_t wanted[8192 + 64], found[8192 + 64];
	uint64_t seed = 11;

	for (size_t row = 0; (planes = bitshuffle_planes_get(row)) != NULL; row++) {
		if (!planes->have()) {
			print_message("skipped: %s: not supported by this CPU\n", planes->name);
			assert_null(bitshuffle_planes_find(planes->name));
			continue;
		}
		assert_ptr_equal(bitshuffle_planes_find(planes->name), planes);
		for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			const size_t n = sizes[i];

			memset(wanted, 0xA5, sizeof(wanted));
			memset(found, 0xA5, sizeof(found));
			memset(wanted, 0, n * 2);
			for (size_t k = 0; k < n; k++) {
				from[k] = next_random(&seed);
				for (int bit = 0; bit < 16; bit++)
					wanted[bit * n / 8 + k / 8] |= (from[k] >> bit & 1)
						<< (k % 8);
			}
			planes->split(from, n, found);
			assert_memory_equal(found, wanted, sizeof(wanted));
		}
	}
	assert_non_null(bitshuffle_planes_find(NULL));
	assert_null(bitshuffle_planes_find("avx3"));
}

/* All implementations make the same chunks. */
static void
same_chunks(void **state)
{
	const size_t n = 20000 + 13;
	uint16_t *from = malloc(n * 2);
	uint8_t *wanted = malloc(bitshuffle_bound(n)), *found = malloc(bitshuffle_bound(n));
	const struct bitshuffle_planes *planes;
	uint64_t seed = 12;
	size_t size;

	for (size_t k = 0; k < n; k++)
		from[k] = 3000 + next_random(&seed) % 64;
	size = bitshuffle_compress_by(bitshuffle_planes_find("plain"), from, n, wanted);
	for (size_t row = 0; (planes = bitshuffle_planes_get(row)) != NULL; row++) {
		if (!planes->have())
			continue;
		assert_int_equal(bitshuffle_compress_by(planes, from, n, found), size);
		assert_memory_equal(found, wanted, size);
	}
	assert_int_equal(bitshuffle_compress(from, n, found), size);
	assert_memory_equal(found, wanted, size);
	free(from);
	free(wanted);
	free(found);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(bitshuffle_round_trip),
		cmocka_unit_test(same_planes),
		cmocka_unit_test(same_chunks),
	};

	return cmocka_run_group_tests_name("bitshuffle", tests, NULL, NULL);
}
