/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * CRC-32C of a chunk from those of its blocks, which threads complete in any order.
 *
 * A CRC is a polynomial over GF(2), modulo that of CRC-32C. The CRC of a chunk of n bytes is the
 * sum of crc x x^(8 (n - end)) over its parts, where `end` is the place after the part. The end of
 * a part is known before n. Threads therefore add crc / x^(8 end), and the sum is multiplied by
 * x^(8 n) when it is complete.
 */

#include <stdlib.h>

#include "gk_host.h"

#define POLYNOMIAL 0x82F63B78u /* reflected: bit 31 is x^0 */
#define ONE	   (1u << 31)
#define LOW	   4096u

struct gk_crc32c {
	uint32_t low[LOW]; /* 1 / x^(8 i) */
	uint32_t high[];   /* 1 / x^(8 LOW i) */
};

/* a x b. Without branches: the bits are random. */
static uint32_t
multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (int i = 0; i < 32; i++) {
		product ^= b & (0u - (a >> 31));
		a <<= 1;
		b = b >> 1 ^ (POLYNOMIAL & (0u - (b & 1)));
	}
	return product;
}

/* a / x^8. A product with x is odd in x^0 exactly if it was reduced. */
static uint32_t
divide_by_byte(uint32_t a)
{
	for (int i = 0; i < 8; i++)
		a = (a & ONE) ? (a ^ POLYNOMIAL) << 1 | 1 : a << 1;
	return a;
}

struct gk_crc32c *
gk_host_crc32c_create(uint64_t size)
{
	const uint64_t n = size / LOW + 1;
	struct gk_crc32c *c = malloc(sizeof(*c) + n * sizeof(c->high[0]));
	uint32_t step;

	if (c == NULL)
		return NULL;
	c->low[0] = ONE;
	for (uint32_t i = 1; i < LOW; i++)
		c->low[i] = divide_by_byte(c->low[i - 1]);
	step = divide_by_byte(c->low[LOW - 1]);
	c->high[0] = ONE;
	for (uint64_t i = 1; i < n; i++)
		c->high[i] = multiply(c->high[i - 1], step);
	return c;
}

uint32_t
gk_host_crc32c_part(const struct gk_crc32c *c, uint32_t crc, uint64_t end)
{
	return multiply(multiply(crc, c->low[end % LOW]), c->high[end / LOW]);
}

uint32_t
gk_host_crc32c_sum(uint32_t sum, uint64_t size)
{
	uint32_t power = ONE >> 8; /* x^(8 x 2^i) */

	for (; size > 0; size >>= 1, power = multiply(power, power))
		if (size & 1)
			sum = multiply(sum, power);
	return sum;
}
