/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Compresses u16 images into one HDF5 chunk of filter 32008 (bitshuffle + LZ4). Every HDF5 reader
 * that has the filter can read it. After the 12-byte header it is also the format of bitshuffle
 * itself.
 *
 * Chunk: u64 BE size of the plain data in bytes | u32 BE size of a block in bytes | per block: u32
 * BE length and LZ4 block. The last block is shorter, in whole groups of 8 values. Up to 7
 * remaining values follow uncompressed. Within a block, bits are transposed: plane k of 16 holds
 * bit k of every value, with value i at bit i % 8 of byte i / 8.
 *
 * Source: bitshuffle 0.3.5, bshuf_h5filter.c and bitshuffle_core.c (kiyo-masui/bitshuffle).
 */
#ifndef BITSHUFFLE_H
#define BITSHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Values per block: the default of bitshuffle for 2-byte values (8 KiB). */
#define BITSHUFFLE_BLOCK 4096

/** @return maximum size of a chunk of n values, bytes */
size_t bitshuffle_bound(size_t n);

/**
 * Compress n values. For a given version of liblz4, the same input gives the same bytes.
 * @param to  at least bitshuffle_bound(n) bytes
 * @return bytes written
 */
size_t bitshuffle_compress(const uint16_t *from, size_t n, uint8_t *to);

/** A chunk that is compressed in several calls, by one thread at a time. */
struct bitshuffle_job {
	const struct bitshuffle_planes *planes;
	const uint16_t *from; /**< remaining input */
	size_t left;
	uint8_t *to;
	size_t written; /**< bytes of the chunk so far */
};

/** Begin to compress n values. `from` and `to` are as for bitshuffle_compress(). */
void bitshuffle_begin(struct bitshuffle_job *job, const uint16_t *from, size_t n, uint8_t *to);

/** Compress at most `blocks` more blocks. @return true: the chunk is complete */
bool bitshuffle_continue(struct bitshuffle_job *job, size_t blocks);

/**
 * Decompress a chunk that may be damaged or malicious.
 * @param to  n values
 * @return 0; -EBADMSG: not a chunk of exactly n values
 */
int bitshuffle_decompress(const uint8_t *from, size_t size, uint16_t *to, size_t n);

struct bitshuffle_planes;

/**
 * As bitshuffle_compress(), with a given instruction set (arrow/bitshuffle_simd.h). The output does
 * not depend on it.
 */
size_t bitshuffle_compress_by(
	const struct bitshuffle_planes *planes, const uint16_t *from, size_t n, uint8_t *to);

#endif /* BITSHUFFLE_H */
