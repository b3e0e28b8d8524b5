/* SPDX-License-Identifier: BSD-3-Clause */
/* Tables for the CRC-32C of chunks on a GPU. */

#include "gk_cuda_crc.h"

#define POLYNOMIAL 0x82F63B78u /* without x^32 */
#define ONE	   0x80000000u /* x^0 */
#define COLUMN	   64	       /* bytes of a column of the message */

/* Multiply by x. */
static uint32_t
shift(uint32_t a)
{
	return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0);
}

static uint32_t
multiply(uint32_t a, uint32_t b)
{
	uint32_t product = 0;

	for (uint32_t bit = ONE; bit != 0; bit >>= 1, b = shift(b))
		if (a & bit)
			product ^= b;
	return product;
}

/* x to the power of n */
static uint32_t
power(uint64_t n)
{
	uint32_t result = ONE, square = ONE >> 1;

	for (; n != 0; n >>= 1, square = multiply(square, square))
		if (n & 1)
			result = multiply(result, square);
	return result;
}

/* Bit `bit` of the CRCs of 32 messages: one bit of 4 bytes is set, and `behind` bytes follow. */
static uint32_t
weights(uint32_t bit, uint32_t behind)
{
	/* the last bit of the message has the highest power of x */
	uint32_t crc = power(32 + 8 * (uint64_t)behind), bits = 0;

	for (uint32_t byte = 4; byte-- > 0;)
		for (uint32_t i = 8; i-- > 0; crc = shift(crc))
			bits |= (crc >> bit & 1) << (8 * byte + i);
	return bits;
}

/* Powers x^(-8 d 2^shift) of the numbers d below n. */
static void
list_powers(uint32_t *to, uint32_t n, uint32_t shift)
{
	const uint32_t step = power(GK_CUDA_CRC_ORDER - (UINT64_C(8) << shift));

	to[0] = ONE;
	for (uint32_t d = 1; d < n; d++)
		to[d] = multiply(to[d - 1], step);
}

void
gk_cuda_crc_init(struct gk_cuda_crc *c)
{
	for (uint32_t r = 0; r < GK_CUDA_CRC_ROWS; r++)
		for (uint32_t i = 0; i < 2 * 2 * 32 * 4; i++) {
			const uint32_t word = i % 4, lane = i / 4 % 32, high = i / 128 % 2;
			const uint32_t half = i / 256;
			const uint32_t bit = high * 16 + word % 2 * 8 + lane / 4;
			const uint32_t at = lane % 4 * 16 + half * 8 + word / 2 * 4;

			c->matrix[r][half][high][lane][word] = weights(bit,
				COLUMN - 4 - at + (GK_CUDA_CRC_ROWS - 1 - r) * GK_CUDA_CRC_ROW);
		}
	for (uint32_t lane = 0; lane < 32; lane++)
		for (uint32_t i = 0; i < 8; i++) {
			const uint32_t bit = i / 4 * 16 + i % 4 / 2 * 8 + lane / 4;
			const uint32_t column = lane % 4 * 2 + i % 2;

			c->column[lane][i] = multiply(1u << bit,
				power(8 * COLUMN * (GK_CUDA_CRC_ROW / COLUMN - 1 - column)));
		}
	for (uint32_t i = 0; i < 32; i++)
		c->above[i] = power(63 - i);
	c->part = power(8 * GK_CUDA_CRC_ROWS * GK_CUDA_CRC_ROW);
	list_powers(c->back[0], 4096, 0);
	list_powers(c->back[1], 4096, 12);
	list_powers(c->back_far, 256, 24);
}
