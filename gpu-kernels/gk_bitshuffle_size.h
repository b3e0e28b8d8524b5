/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Sizes of compressed u16 images (gk_bitshuffle.h), on which the layout of output slots depends.
 */
#ifndef GK_BITSHUFFLE_SIZE_H
#define GK_BITSHUFFLE_SIZE_H

#include <stddef.h>
#include <stdint.h>

/** Values of a block: the default of bitshuffle for 2-byte values. */
#define GK_BITSHUFFLE_BLOCK 4096
/** Bytes of a block before compression. */
#define GK_BITSHUFFLE_BYTES (GK_BITSHUFFLE_BLOCK * 2)
/** Bytes of a chunk's header, and of the length before each block. @{ */
#define GK_BITSHUFFLE_HEADER 12
#define GK_BITSHUFFLE_LENGTH 4
/** @} */

/** Bytes of literals that a host may write after a chunk, within its bound. */
#define GK_BITSHUFFLE_MORE 64

#ifdef __CUDACC__
#define GK_BITSHUFFLE_FN static __host__ __device__ __forceinline__
#else
#define GK_BITSHUFFLE_FN static inline __attribute__((always_inline))
#endif

/** Bytes of the rest of a number of literals, or of the length of a match - 4. */
GK_BITSHUFFLE_FN uint32_t
gk_lz4_rest(uint32_t n)
{
	return (n + 240) / 255;
}

/** Maximum size of a block of n bytes after compression, without its length. */
GK_BITSHUFFLE_FN uint32_t
gk_lz4_bound(uint32_t n)
{
	return n + 1 + gk_lz4_rest(n);
}

/** Blocks of a chunk of n values. */
GK_BITSHUFFLE_FN size_t
gk_bitshuffle_blocks(size_t n)
{
	return (n / 8 * 8 + GK_BITSHUFFLE_BLOCK - 1) / GK_BITSHUFFLE_BLOCK;
}

/** Maximum size of a chunk of n values in bytes, including GK_BITSHUFFLE_MORE. */
GK_BITSHUFFLE_FN size_t
gk_bitshuffle_bound(size_t n)
{
	return GK_BITSHUFFLE_HEADER +
		gk_bitshuffle_blocks(n) *
		(GK_BITSHUFFLE_LENGTH + gk_lz4_bound(GK_BITSHUFFLE_BYTES)) +
		(n % 8) * sizeof(uint16_t) + GK_BITSHUFFLE_MORE;
}

#endif /* GK_BITSHUFFLE_SIZE_H */
