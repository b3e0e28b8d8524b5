/* SPDX-License-Identifier: BSD-3-Clause */

#include <string.h>

#include "arrow/crc32c.h"
#include "isal_crc.h"

#define POLYNOMIAL 0x82F63B78u /* reflected */

/*
 * x^(2^n) modulo the polynomial, bit 31 = x^0; arrow_test.c verifies them. The sequence repeats
 * after 31 squarings: the polynomial is x + 1 times a primitive polynomial of degree 31.
 */
static const uint32_t power[] = {
	0x40000000,
	0x20000000,
	0x08000000,
	0x00800000,
	0x00008000,
	0x82f63b78,
	0x6ea2d55c,
	0x18b8ea18,
	0x510ac59a,
	0xb82be955,
	0xb8fdb1e7,
	0x88e56f72,
	0x74c360a4,
	0xe4172b16,
	0x0d65762a,
	0x35d73a62,
	0x28461564,
	0xbf455269,
	0xe2ea32dc,
	0xfe7740e6,
	0xf946610b,
	0x3c204f8f,
	0x538586e3,
	0x59726915,
	0x734d5309,
	0xbc1ac763,
	0x7d0722cc,
	0xd289cabe,
	0xe94ca9bc,
	0x05b74f3f,
	0xa51e1f42,
};

/* a * b modulo the polynomial */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (; a != 0; a <<= 1) {
		if (a & 1u << 31)
			product ^= b;
		b = b >> 1 ^ (b & 1 ? POLYNOMIAL : 0);
	}
	return product;
}

uint32_t
arrow_crc32c(uint32_t crc, const void *data, size_t len)
{
	/* ISA-L takes an int as length */
	const size_t most = 1u << 30;
	const uint8_t *at = data;
	size_t part;

	crc = ~crc;
	for (; len > 0; len -= part, at += part) {
		part = len < most ? len : most;
		crc = isal_crc32c(crc, at, part);
	}
	return ~crc;
}

uint32_t
arrow_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b)
{
	uint32_t shift = 1u << 31; /* x^0 */
	unsigned int n;

	/* multiply A by x^(8 x len_b) */
	for (n = 3; len_b != 0; len_b >>= 1, n++) {
		if (len_b & 1)
			shift = multiply(power[n % (sizeof(power) / sizeof(power[0]))], shift);
	}
	return multiply(shift, crc_a) ^ crc_b;
}

uint32_t
arrow_crc32c_zeros(uint32_t crc, size_t len)
{
	static const uint8_t zeros[4096];
	size_t part;

	for (; len > 0; len -= part) {
		part = len < sizeof(zeros) ? len : sizeof(zeros);
		crc = arrow_crc32c(crc, zeros, part);
	}
	return crc;
}

void
arrow_crc_zeros_init(struct arrow_crc_zeros *z, size_t len)
{
	const uint32_t none = arrow_crc32c_zeros(0, len);
	uint32_t i, bits;

	/* the effect is linear, except for that of zeros alone, which is added in one table only */
	for (i = 0; i < 8; i++) {
		for (bits = 0; bits < 16; bits++)
			z->of[i][bits] =
				arrow_crc32c_zeros(bits << 4 * i, len) ^ (i > 0 ? none : 0);
	}
}
