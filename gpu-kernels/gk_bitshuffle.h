/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Compressed u16 images: the definition of the encoder, and its functions on the host.
 *
 * The output is one HDF5 chunk of filter 32008 (bitshuffle + LZ4). Every reader that has the filter
 * can decode it. After the 12-byte header it is also the format of bitshuffle itself. This header
 * defines which of the many valid encodings of an image is produced. All implementations (plain C,
 * AVX2, AVX-512, CUDA) produce these bytes, so compressed frames do not depend on the machine.
 *
 * **Chunk.** u64 BE size of the plain data in bytes | u32 BE size of a block in bytes (8192) | the
 * blocks, without gaps | the last n % 8 values, unchanged. A block has 4096 values. The last block
 * has fewer, a multiple of 8. A block is u32 BE length | LZ4 block of this length.
 *
 * **Planes.** A block of v values is v x 2 bytes of bit planes: plane k of 16 holds bit k of every
 * value, with value i at bit i % 8 of byte k x v / 8 + i / 8.
 *
 * **Matches.** Let B be these n bytes. A *run* is a range [s, e) with B[i] = B[i - 1] for all its
 * bytes, 1 <= s, e <= n - 5, which cannot be extended within these limits. All runs of at least
 * GK_BITSHUFFLE_RUN bytes with s <= n - 12 are matches of offset 1. All other bytes are literals.
 * The limits are LZ4's rules for the end of a block: the last 5 bytes are literals, and the last
 * match starts at least 12 bytes before the end.
 *
 * **Sequences.** In order of the matches, as LZ4 defines them: token (number of literals or 15 in
 * the upper 4 bits, length of the match - 4 or 15 in the lower ones) | the rest of the number of
 * literals, if it is at least 15, as bytes of 255 and one less | literals | offset 01 00 | the rest
 * of the length. The last sequence has only literals, of which there are at least 5.
 *
 * **Blocks that do not shrink** need no special case. LZ4 has no stored blocks, but a match of 4
 * or more bytes never makes a block longer than it would be without the match. The match replaces
 * its literals by at most 3 bytes (of which one may be needed because the number of literals is
 * split in two) and gk_lz4_rest(). So a block of n bytes is at most as long as one sequence of n
 * literals: n + 1 + gk_lz4_rest(n) bytes, 8226 for 8192.
 *
 * **The shortest match** is LZ4's own, GK_BITSHUFFLE_RUN = 4. It gives the smallest size, and
 * longer limits save little time. Six frames of a JUNGFRAU module, raw and as int16 photons; size
 * relative to liblz4 1.9.4, GB/s of raw data on a core of a Zen 4 (2026-11-27):
 *
 *     shortest   sequences  size,    size,     AVX2,  AVX2,    AVX-512,  AVX-512,
 *     match      per block  raw      photons   raw    photons  raw       photons
 *     4          34.3       1.0002   1.0241    7.4    8.7      8.3       10.9
 *     5          29.9       1.0010   1.0264    7.7    9.2      8.2       11.0
 *     6          26.9       1.0020   1.0297    7.7    9.2      8.0       11.0
 *     8          22.2       1.0046   1.0370    7.7    9.0      8.3       10.9
 *
 * Sources: bitshuffle 0.3.5, bshuf_h5filter.c and bitshuffle_core.c (kiyo-masui/bitshuffle); LZ4
 * Block Format Description, 2022-07-31 (lz4/lz4, doc/lz4_Block_format.md).
 */
#ifndef GK_BITSHUFFLE_H
#define GK_BITSHUFFLE_H

#include <stdbool.h>

#include "gk.h"
#include "gk_bitshuffle_size.h"

/** Shortest match, bytes. */
#define GK_BITSHUFFLE_RUN 4
/**
 * The last bytes of a block, which are literals, and the distance of the last match from its end.
 * @{
 */
#define GK_LZ4_LAST_LITERALS 5
#define GK_LZ4_LAST_MATCH    12
/** @} */

GK_BITSHUFFLE_FN uint32_t
gk_big_endian(uint32_t value)
{
	return value << 24 | (value & 0xFF00) << 8 | (value >> 8 & 0xFF00) | value >> 24;
}

/** The header of a chunk of n values. */
GK_BITSHUFFLE_FN void
gk_bitshuffle_header(uint32_t header[GK_BITSHUFFLE_HEADER / 4], uint64_t n)
{
	header[0] = gk_big_endian((uint32_t)(n * 2 >> 32));
	header[1] = gk_big_endian((uint32_t)(n * 2));
	header[2] = gk_big_endian(GK_BITSHUFFLE_BYTES);
}

/** Transpose 8 x 8 bits: byte i of the result holds bit i of every byte (Hacker's Delight 7-3). */
GK_BITSHUFFLE_FN uint64_t
gk_transpose8(uint64_t x)
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

/**
 * Clear bits at the end of a block: of runs after the last start of a match, and of the last
 * literals.
 * @param equal  bits of the block's last 16 bytes, each set if the byte equals the one before
 */
GK_BITSHUFFLE_FN uint32_t
gk_bitshuffle_end(uint32_t equal)
{
	/* from the last start of a match to the last literals */
	const uint32_t bits = 16 - GK_LZ4_LAST_MATCH, mask = (1u << (GK_LZ4_LAST_MATCH - 5)) - 1;
	const uint32_t last = equal >> bits & mask;

	/* the ones of `last` that follow each other from its first bit */
	return (equal & ((1u << bits) - 1)) | (last & (last ^ (last + 1))) << bits;
}

#ifdef __cplusplus
extern "C" {
#endif

struct gk_bitshuffle_ops;

/** A chunk that is compressed in several calls, by one thread at a time. */
struct gk_bitshuffle_job {
	const struct gk_bitshuffle_ops *ops;
	const uint16_t *from; /**< remaining input */
	size_t left;
	uint8_t *to;
	size_t written; /**< bytes of the chunk so far */
};

/**
 * Begin to compress n values.
 * @param isa   any that this CPU supports (gk_isa_choose()); the output does not depend on it
 * @param from  n values, at any alignment
 * @param to    gk_bitshuffle_bound(n) bytes
 * @return 0; -ENOTSUP: not supported by this CPU
 */
int gk_bitshuffle_begin(struct gk_bitshuffle_job *job, enum gk_isa isa, const uint16_t *from,
	size_t n, uint8_t *to);

/** Compress at most `blocks` more blocks. @return true: the chunk is complete */
bool gk_bitshuffle_continue(struct gk_bitshuffle_job *job, size_t blocks);

/**
 * Compress n values with the widest instruction set. Any thread may call it.
 * @param from  n values, at any alignment
 * @param to    gk_bitshuffle_bound(n) bytes; those after the chunk may be overwritten
 * @return size of the chunk in bytes
 */
size_t gk_bitshuffle_compress(const uint16_t *from, size_t n, uint8_t *to);

#ifdef __cplusplus
}
#endif

#endif /* GK_BITSHUFFLE_H */
