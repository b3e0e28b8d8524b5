/* SPDX-License-Identifier: BSD-3-Clause */
/* Chunks of compressed u16 images, and blocks in plain C. */

#include <errno.h>

#include "gk_bitshuffle_block.h"

/* A bit for each of 8 bytes that equals the byte before it. */
static uint64_t
equal8(const uint8_t *at)
{
	const uint64_t low = 0x7F7F7F7F7F7F7F7F;
	uint64_t a, b, x;

	memcpy(&a, at, sizeof(a));
	memcpy(&b, at - 1, sizeof(b));
	x = a ^ b;
	/* the top bit of each byte that is 0 */
	x = ~(((x & low) + low) | x | low);
	/* gathered: bit 8 i + 7 moves to bit 56 + i, and no sums overlap */
	return (x >> 7) * 0x0102040810204080 >> 56;
}

/* Words of bits of the n bytes of a block. `plain` has a byte before them and 64 after. */
static void
equal_words(const uint8_t *plain, uint32_t n, uint64_t *equal)
{
	for (uint32_t i = 0; i < (n + 63) / 64; i++) {
		equal[i] = 0;
		for (uint32_t k = 0; k < 8; k++)
			equal[i] |= equal8(plain + 64 * i + 8 * k) << (8 * k);
	}
}

/* Pairs of positions for gk_bitshuffle_sequences(). @return their number */
static uint32_t
find_edges(const uint64_t *equal, uint32_t n, uint16_t *edge)
{
	uint64_t before = 0;
	uint32_t nb = 0;

	for (uint32_t i = 0; i < (n + 63) / 64; i++) {
		uint64_t all = equal[i], change;

		/* bytes that begin so many equal ones */
		for (uint32_t k = 1; k < GK_BITSHUFFLE_RUN; k++)
			all &= equal[i] >> k | equal[i + 1] << (64 - k);
		change = all ^ (all << 1 | before);
		before = all >> 63;
		for (; change != 0; change &= change - 1)
			edge[nb++] = (uint16_t)(64 * i + (uint32_t)__builtin_ctzll(change));
	}
	return nb / 2;
}

static uint32_t
block(const uint16_t *from, uint32_t v, uint8_t *to)
{
	return gk_bitshuffle_make_block(from, v, to, gk_bitshuffle_split8, equal_words, find_edges);
}

const struct gk_bitshuffle_ops gk_bitshuffle_plain = {gk_bitshuffle_split8, block};

int
gk_bitshuffle_begin(
	struct gk_bitshuffle_job *job, enum gk_isa isa, const uint16_t *from, size_t n, uint8_t *to)
{
	uint32_t header[GK_BITSHUFFLE_HEADER / 4];

	*job = (struct gk_bitshuffle_job){.ops = gk_bitshuffle_choose(isa),
		.from = from,
		.left = n,
		.to = to,
		.written = sizeof(header)};
	if (job->ops == NULL)
		return -ENOTSUP;
	gk_bitshuffle_header(header, n);
	memcpy(to, header, sizeof(header));
	return 0;
}

bool
gk_bitshuffle_continue(struct gk_bitshuffle_job *job, size_t blocks)
{
	uint8_t *at = job->to + job->written;

	for (; job->left >= 8 && blocks > 0; blocks--) {
		const uint32_t v = job->left >= GK_BITSHUFFLE_BLOCK ? GK_BITSHUFFLE_BLOCK
								    : job->left & ~(size_t)7;
		const uint32_t size = job->ops->block(job->from, v, at + GK_BITSHUFFLE_LENGTH);
		const uint32_t length = gk_big_endian(size);

		memcpy(at, &length, sizeof(length));
		at += GK_BITSHUFFLE_LENGTH + size;
		job->from += v;
		job->left -= v;
	}
	job->written = (size_t)(at - job->to);
	if (job->left >= 8)
		return false;
	memcpy(at, job->from, job->left * sizeof(*job->from));
	job->written += job->left * sizeof(*job->from);
	job->left = 0;
	return true;
}

size_t
gk_bitshuffle_compress(const uint16_t *from, size_t n, uint8_t *to)
{
	struct gk_bitshuffle_job job;

	gk_bitshuffle_begin(&job, GK_ISA_AUTO, from, n, to); /* there is always one */
	gk_bitshuffle_continue(&job, SIZE_MAX);
	return job.written;
}
