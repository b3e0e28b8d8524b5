/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compressed u16 images: every instruction set makes the bytes that gk_bitshuffle.h defines, and
 * liblz4 decodes them. The encoder that they are compared with is that definition, word by word.
 */

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <cmocka.h>
#include <lz4.h>

#include "gk_bitshuffle_block.h"
#include "gk_bitshuffle_cases.h"
#include "gk_pixel.h"

#define BYTES  GK_BITSHUFFLE_BYTES
#define PLANE  (BYTES / 16)
#define MODULE (512 * 1024) /* values */

/* Memory that ends at an unmapped page. */
static void *
fenced(size_t size)
{
	const size_t page = 4096, whole = (size + page - 1) & ~(page - 1);
	uint8_t *memory = mmap(
		NULL, whole + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	assert_ptr_not_equal(memory, MAP_FAILED);
	assert_int_equal(mprotect(memory + whole, page, PROT_NONE), 0);
	return memory + whole - size;
}

static void
unfence(void *at, size_t size)
{
	const size_t page = 4096, whole = (size + page - 1) & ~(page - 1);

	munmap((uint8_t *)at + size - whole, whole + page);
}

/* The definition. @{ */
static void
planes_of(const uint16_t *from, uint32_t v, uint8_t *to)
{
	memset(to, 0, v * 2);
	for (uint32_t k = 0; k < 16; k++)
		for (uint32_t i = 0; i < v; i++)
			to[k * v / 8 + i / 8] |= (uint8_t)((from[i] >> k & 1) << i % 8);
}

static uint8_t *
put_rest(uint8_t *to, uint32_t n)
{
	if (n < 15)
		return to;
	for (n -= 15; n >= 255; n -= 255)
		*to++ = 255;
	*to++ = (uint8_t)n;
	return to;
}

static uint32_t
encode_planes(const uint8_t *b, uint32_t n, uint8_t *to)
{
	uint32_t literal = 0, s, e;
	uint8_t *at = to;

	for (s = 1; s <= n - 12; s = e + 1) {
		for (e = s; e < n - 5 && b[e] == b[e - 1]; e++)
			continue;
		if (e - s < GK_BITSHUFFLE_RUN)
			continue;
		*at++ = (uint8_t)((s - literal < 15 ? s - literal : 15) << 4 |
			(e - s - 4 < 15 ? e - s - 4 : 15));
		at = put_rest(at, s - literal);
		memcpy(at, b + literal, s - literal);
		at += s - literal;
		*at++ = 1;
		*at++ = 0;
		at = put_rest(at, e - s - 4);
		literal = e;
	}
	*at++ = (uint8_t)((n - literal < 15 ? n - literal : 15) << 4);
	at = put_rest(at, n - literal);
	memcpy(at, b + literal, n - literal);
	return (uint32_t)(at + (n - literal) - to);
}

static size_t
encode(const uint16_t *from, size_t n, uint8_t *to)
{
	const uint64_t bytes = (uint64_t)n * 2;
	uint8_t planes[BYTES], *at = to;

	for (int i = 56; i >= 0; i -= 8)
		*at++ = (uint8_t)(bytes >> i);
	for (int i = 24; i >= 0; i -= 8)
		*at++ = (uint8_t)(BYTES >> i);
	while (n >= 8) {
		const uint32_t v = n < 4096 ? (uint32_t)n / 8 * 8 : 4096;
		uint32_t size;

		planes_of(from, v, planes);
		size = encode_planes(planes, 2 * v, at + 4);
		for (int i = 24; i >= 0; i -= 8)
			*at++ = (uint8_t)(size >> i);
		at += size;
		from += v;
		n -= v;
	}
	for (; n > 0; n--, from++) {
		*at++ = (uint8_t)*from;
		*at++ = (uint8_t)(*from >> 8);
	}
	return (size_t)(at - to);
}
/** @} */

/* Each instruction set makes the wanted block of these values. */
static void
check_block(const uint16_t *values, uint32_t v, const uint8_t *wanted, uint32_t size)
{
	const uint32_t room = gk_lz4_bound(2 * v) + GK_BITSHUFFLE_MORE;
	uint8_t *to = fenced(room);
	uint16_t *from = fenced(v * 2);

	memcpy(from, values, v * 2);
	assert_true(size <= gk_lz4_bound(2 * v));
	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		const struct gk_bitshuffle_ops *ops = gk_bitshuffle_choose(isa);

		if (ops == NULL)
			continue;
		memset(to, 0xA5, room);
		assert_int_equal(ops->block(from, v, to), size);
		assert_memory_equal(to, wanted, size);
	}
	unfence(to, room);
	unfence(from, v * 2);
}

/* The block with these n bytes of planes. */
static void
check_planes(const uint8_t *planes, uint32_t n)
{
	uint8_t wanted[BYTES + 100], back[BYTES];
	uint16_t values[GK_BITSHUFFLE_BLOCK];
	uint32_t size;

	values_of(planes, n / 2, values);
	size = encode_planes(planes, n, wanted);
	assert_int_equal(LZ4_decompress_safe((char *)wanted, (char *)back, (int)size, (int)n), n);
	assert_memory_equal(back, planes, n);
	check_block(values, n / 2, wanted, size);
}

static void
runs_of_every_length(void **state)
{
	/* limits of the format, of words and vectors, of planes, of the block's end */
	static const uint32_t ends[] = {0, 64, 256, 512, 4096, 8128, BYTES - 12, BYTES - 5, BYTES};
	static const uint32_t lengths[] = {15, 19, 32, 64, 128, 15 + 255, 19 + 255, 15 + 510,
		19 + 510, 512, 19 + 16 * 255, BYTES - 6};
	uint8_t b[BYTES], free[BYTES];
	uint64_t seed = 1;

	fill_without_runs(free, sizeof(free), &seed);
	for (uint32_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		/* short runs at and around each limit */
		for (int at = -24; at <= 24; at++) {
			const int64_t s = (int64_t)ends[i] + at;

			for (uint32_t length = 1; length <= 24; length++) {
				if (s < 1 || s + length > BYTES)
					continue;
				memcpy(b, free, sizeof(b));
				put_run(b, BYTES, (uint32_t)s, (uint32_t)s + length);
				check_planes(b, BYTES);
			}
		}
		/* long ones that begin or end there */
		for (uint32_t k = 0; k < sizeof(lengths) / sizeof(lengths[0]); k++) {
			for (int more = -2; more <= 2; more++) {
				const int64_t length = (int64_t)lengths[k] + more;
				const int64_t s[2] = {
					ends[i] + 1 + next_random(&seed) % 3, ends[i] - length};

				for (int m = 0; m < 2; m++) {
					if (s[m] < 1 || s[m] + length > BYTES)
						continue;
					memcpy(b, free, sizeof(b));
					put_run(b, BYTES, (uint32_t)s[m],
						(uint32_t)(s[m] + length));
					check_planes(b, BYTES);
				}
			}
		}
	}
}

/* Literals between two runs, of each number around the limits of a token and its rest. */
static void
literals_of_every_number(void **state)
{
	static const uint32_t numbers[] = {15, 64, 128, 15 + 255, 15 + 510, 15 + 16 * 255};
	uint8_t b[BYTES];
	uint64_t seed = 2;

	for (uint32_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		for (uint32_t n = numbers[i] - 15; n <= numbers[i] + 15; n++) {
			fill_without_runs(b, sizeof(b), &seed);
			put_run(b, BYTES, 1, 30);
			put_run(b, BYTES, 30 + n, 30 + n + 4 + n % 9);
			check_planes(b, BYTES);
		}
	}
}

/* Many runs and gaps of random lengths; few values of bytes, as in sparse planes. */
static void
random_blocks(void **state)
{
	const char *text = getenv("GK_SEED");
	uint64_t seed = text != NULL ? strtoull(text, NULL, 0) : 3;
	uint8_t b[BYTES];

	print_message("GK_SEED=%llu\n", (unsigned long long)seed);
	for (uint32_t i = 0; i < 1500; i++) {
		const uint32_t n =
			i % 2 == 0 ? BYTES : 16 * (1 + next_random(&seed) % (BYTES / 16));

		fill_with_runs(b, n, &seed);
		check_planes(b, n);
	}
}

/* Each number of values of a last block, constant and random. */
static void
short_blocks(void **state)
{
	uint8_t b[BYTES];
	uint64_t seed = 4;

	for (uint32_t n = 16; n <= BYTES; n += n < 1100 ? 16 : 16 * 37) {
		memset(b, n % 32 ? 0 : 0xFF, n);
		check_planes(b, n);
		b[n - 1 - next_random(&seed) % 16] ^= 1;
		check_planes(b, n);
		for (uint32_t i = 0; i < n; i++)
			b[i] = (uint8_t)next_random(&seed);
		check_planes(b, n);
	}
}

/* Whole chunks of every instruction set, at once and in pieces; and liblz4 decodes them. */
static void
check_chunk(const uint16_t *values, size_t n)
{
	const size_t room = gk_bitshuffle_bound(n);
	uint8_t *wanted = malloc(room), *to = fenced(room), plain[BYTES], planes[BYTES];
	const size_t size = encode(values, n, wanted);
	size_t at = GK_BITSHUFFLE_HEADER;
	struct gk_bitshuffle_job job;

	assert_true(size <= room - GK_BITSHUFFLE_MORE);
	for (int isa = GK_ISA_AUTO; isa < GK_ISAS; isa++) {
		if (gk_isa_choose(isa) < 0) {
			assert_int_equal(gk_bitshuffle_begin(&job, isa, values, n, to), -ENOTSUP);
			continue;
		}
		memset(to, 0xA5, room);
		assert_int_equal(gk_bitshuffle_begin(&job, isa, values, n, to), 0);
		while (!gk_bitshuffle_continue(&job, (size_t)isa + 1))
			continue;
		assert_int_equal(job.written, size);
		assert_memory_equal(to, wanted, size);
	}
	memset(to, 0xA5, room);
	assert_int_equal(gk_bitshuffle_compress(values, n, to), size);
	assert_memory_equal(to, wanted, size);
	for (size_t i = 0; i + 8 <= n; i += GK_BITSHUFFLE_BLOCK) {
		const uint32_t v = n - i < GK_BITSHUFFLE_BLOCK ? (uint32_t)(n - i) / 8 * 8
							       : GK_BITSHUFFLE_BLOCK;
		const uint32_t packed = (uint32_t)wanted[at] << 24 | wanted[at + 1] << 16 |
			wanted[at + 2] << 8 | wanted[at + 3];

		planes_of(values + i, v, planes);
		assert_int_equal(LZ4_decompress_safe((char *)wanted + at + 4, (char *)plain,
					 (int)packed, (int)sizeof(plain)),
			2 * v);
		assert_memory_equal(plain, planes, 2 * v);
		at += 4 + packed;
	}
	assert_int_equal(at + n % 8 * 2, size);
	unfence(to, room);
	free(wanted);
}

static void
chunks(void **state)
{
	static const size_t sizes[] = {
		0, 1, 7, 8, 9, 16, 24, 4088, 4095, 4096, 4097, 4104, 8192, 12345, 65536};
	uint16_t *values = malloc((65536 + 1) * sizeof(*values));
	uint64_t seed = 5;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		for (uint32_t kind = 0; kind < 5; kind++) {
			for (size_t k = 0; k < 65536 + 1; k++) {
				const uint32_t random = next_random(&seed);
				const uint16_t value[5] = {0, 0xFFFF, (uint16_t)random,
					(uint16_t)(2048 + random % 64),
					random % 50 == 0 ? (uint16_t)(0x4000 + random) : 3};

				values[k] = value[kind];
			}
			/* also unaligned */
			check_chunk(values + i % 2, sizes[i]);
		}
	}
	free(values);
	/* more than 4 GiB are in the header */
	uint32_t header[3];

	gk_bitshuffle_header(header, UINT64_C(0x123456789));
	assert_memory_equal(header, "\0\0\0\2\x46\x8A\xCF\x12\0\0\x20\0", 12);
}

/* Each instruction set makes the planes of the format, and writes nothing after them. */
static void
same_planes(void **state)
{
	static const uint32_t sizes[] = {0, 8, 16, 24, 64, 256, 264, 512, 4088, 4096};
	uint8_t wanted[BYTES + 64], found[BYTES + 64];
	uint16_t from[GK_BITSHUFFLE_BLOCK + 1];
	uint64_t seed = 6;

	for (int isa = GK_ISA_PLAIN; isa < GK_ISAS; isa++) {
		const struct gk_bitshuffle_ops *ops = gk_bitshuffle_choose(isa);

		if (ops == NULL) {
			print_message("skipped: %s: not supported by this CPU\n", gk_isa_name(isa));
			continue;
		}
		for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
			for (uint32_t k = 0; k < GK_BITSHUFFLE_BLOCK + 1; k++)
				from[k] = (uint16_t)next_random(&seed);
			memset(wanted, 0xA5, sizeof(wanted));
			memset(found, 0xA5, sizeof(found));
			planes_of(from + 1, sizes[i], wanted);
			ops->split(from + 1, sizes[i], found);
			assert_memory_equal(found, wanted, sizeof(wanted));
		}
	}
}

/* The rest of a number, and the end of a block, as the format defines them. */
static void
small_parts(void **state)
{
	uint8_t rest[64];

	for (uint32_t n = 0; n <= BYTES; n++)
		assert_int_equal(gk_lz4_rest(n), put_rest(rest, n) - rest);
	for (uint32_t equal = 0; equal < 65536; equal++) {
		uint32_t wanted = equal & 15;

		/* bit 4 is the last byte at which a match begins, bit 10 the last one in a match */
		for (uint32_t i = 4; i <= 10 && equal >> i & 1; i++)
			wanted |= 1u << i;
		assert_int_equal(gk_bitshuffle_end(equal), wanted);
	}
	for (uint32_t i = 0; i < 64; i++)
		for (uint32_t k = 0; k < 64; k++)
			assert_int_equal(
				gk_transpose8(UINT64_C(1) << i) >> k & 1, k == i % 8 * 8 + i / 8);
}

/* Real frames. @{ */
static bool
read_real(const char *name, int number, void *to, size_t size)
{
	const char *data = getenv("BRAGGLINE_DATA");
	char path[600];
	FILE *f;

	snprintf(path, sizeof(path), "%s/jungfrau/mod5_%s%d.bin", data != NULL ? data : ".", name,
		number);
	f = fopen(path, "rb");
	if (f == NULL)
		return false;
	assert_int_equal(fread(to, 1, size, f), size);
	fclose(f);
	return true;
}

/* bitshuffle with liblz4's search. */
static size_t
size_by_liblz4(const uint16_t *from, size_t n)
{
	uint8_t planes[BYTES], to[LZ4_COMPRESSBOUND(BYTES)];
	size_t size = GK_BITSHUFFLE_HEADER;

	for (size_t i = 0; i < n; i += GK_BITSHUFFLE_BLOCK) {
		gk_bitshuffle_plain.split(from + i, GK_BITSHUFFLE_BLOCK, planes);
		size += 4 +
			(size_t)LZ4_compress_default(
				(char *)planes, (char *)to, BYTES, (int)sizeof(to));
	}
	return size;
}

static void
real_frames(void **state)
{
	uint16_t *values = malloc(MODULE * sizeof(*values));
	uint8_t *chunk = malloc(gk_bitshuffle_bound(MODULE));
	float *photons = malloc(MODULE * sizeof(*photons));
	size_t size[2] = {0, 0}, by_lz4[2] = {0, 0};

	for (int i = 0; i < 6; i++) {
		if (!read_real("raw", i, values, MODULE * sizeof(*values)) ||
			!read_real("conv", i, photons, MODULE * sizeof(*photons)))
			break;
		for (int kind = 0; kind < 2; kind++) {
			for (int k = 0; kind == 1 && k < MODULE; k++)
				/* PSI's mark of saturation */
				values[k] = (uint16_t)gk_value_i16(
					photons[k] == 32678.0f ? INFINITY : photons[k]);
			if (i < 2)
				check_chunk(values, MODULE);
			size[kind] += gk_bitshuffle_compress(values, MODULE, chunk);
			by_lz4[kind] += size_by_liblz4(values, MODULE);
		}
	}
	free(values);
	free(chunk);
	free(photons);
	if (size[0] == 0) {
		print_message("skipped: no real frames in BRAGGLINE_DATA\n");
		skip();
	}
	print_message("size beside liblz4: raw %.4f, int16 photons %.4f\n",
		(double)size[0] / (double)by_lz4[0], (double)size[1] / (double)by_lz4[1]);
	assert_true((double)size[0] <= 1.005 * (double)by_lz4[0]);
	assert_true((double)size[1] <= 1.03 * (double)by_lz4[1]);
}
/** @} */

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(same_planes),
		cmocka_unit_test(small_parts),
		cmocka_unit_test(runs_of_every_length),
		cmocka_unit_test(literals_of_every_number),
		cmocka_unit_test(random_blocks),
		cmocka_unit_test(short_blocks),
		cmocka_unit_test(chunks),
		cmocka_unit_test(real_frames),
	};

	return cmocka_run_group_tests_name("gk bitshuffle", tests, NULL, NULL);
}
