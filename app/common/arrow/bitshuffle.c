/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include <lz4.h>

#include "arrow/bitshuffle.h"
#include "gk_bitshuffle.h"

static uint32_t
get_be32(const uint8_t *from)
{
	uint32_t value;

	memcpy(&value, from, sizeof(value));
	return gk_big_endian(value);
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
	low = gk_transpose8(low);
	high = gk_transpose8(high);
	for (i = 0; i < 8; i++)
		to[i] = (low >> (8 * i) & 0xFF) | (high >> (8 * i) & 0xFF) << 8;
}

static size_t
next_block(size_t left)
{
	return left >= GK_BITSHUFFLE_BLOCK ? GK_BITSHUFFLE_BLOCK : left & ~(size_t)7;
}

int
bitshuffle_decompress(const uint8_t *from, size_t size, uint16_t *to, size_t n)
{
	uint8_t plain[GK_BITSHUFFLE_BYTES];
	size_t block, i;
	uint32_t packed;

	if (size < GK_BITSHUFFLE_HEADER || get_be32(from) != (uint64_t)n * 2 >> 32 ||
		get_be32(from + 4) != (uint32_t)(n * 2) ||
		get_be32(from + 8) != GK_BITSHUFFLE_BYTES)
		return -EBADMSG;
	from += GK_BITSHUFFLE_HEADER;
	size -= GK_BITSHUFFLE_HEADER;
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
