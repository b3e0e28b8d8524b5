/* SPDX-License-Identifier: BSD-3-Clause */

#include <errno.h>
#include <string.h>

#include <lz4.h>

#include "arrow/bitshuffle.h"
#include "arrow/bitshuffle_simd.h"

#define HEADER 12

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

static void
unshuffle8(const uint8_t *from, uint16_t *to, size_t stride)
{
	uint64_t low = 0, high = 0;
	unsigned int i;

	for (i = 0; i < 8; i++) {
		low |= (uint64_t)from[i * stride] << (8 * i);
		high |= (uint64_t)from[(i + 8) * stride] << (8 * i);
	}
	low = bitshuffle_transpose8(low);
	high = bitshuffle_transpose8(high);
	for (i = 0; i < 8; i++)
		to[i] = (low >> (8 * i) & 0xFF) | (high >> (8 * i) & 0xFF) << 8;
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
	return bitshuffle_compress_by(bitshuffle_planes_find(NULL), from, n, to);
}

static void
begin(struct bitshuffle_job *job, const struct bitshuffle_planes *planes, const uint16_t *from,
	size_t n, uint8_t *to)
{
	*job = (struct bitshuffle_job){
		.planes = planes, .from = from, .left = n, .to = to, .written = HEADER};
	put_be32(to, (uint64_t)n * 2 >> 32);
	put_be32(to + 4, (uint64_t)n * 2);
	put_be32(to + 8, BITSHUFFLE_BLOCK * 2);
}

void
bitshuffle_begin(struct bitshuffle_job *job, const uint16_t *from, size_t n, uint8_t *to)
{
	begin(job, bitshuffle_planes_find(NULL), from, n, to);
}

bool
bitshuffle_continue(struct bitshuffle_job *job, size_t blocks)
{
	uint8_t plain[BITSHUFFLE_BLOCK * 2];
	uint8_t *at = job->to + job->written;
	size_t block;
	int size;

	for (; job->left >= 8 && blocks > 0; job->left -= block, job->from += block, blocks--) {
		block = next_block(job->left);
		job->planes->split(job->from, block, plain);
		/* cannot fail: the output has the size of LZ4's bound */
		size = LZ4_compress_default((const char *)plain, (char *)at + 4, (int)block * 2,
			LZ4_COMPRESSBOUND(BITSHUFFLE_BLOCK * 2));
		put_be32(at, size);
		at += 4 + size;
	}
	job->written = at - job->to;
	if (job->left >= 8)
		return false;
	memcpy(at, job->from, job->left * 2);
	job->written += job->left * 2;
	job->left = 0;
	return true;
}

size_t
bitshuffle_compress_by(
	const struct bitshuffle_planes *planes, const uint16_t *from, size_t n, uint8_t *to)
{
	struct bitshuffle_job job;

	begin(&job, planes, from, n, to);
	bitshuffle_continue(&job, SIZE_MAX);
	return job.written;
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
