/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * u16 images as one HDF5 chunk of filter 32008 (bitshuffle + LZ4), readable by every HDF5 reader
 * that has the filter, and by bitshuffle itself after the 12-byte header.
 *
 * Chunk: u64 BE bytes of the plain data | u32 BE bytes of a block | per block: u32 BE length and
 * LZ4 block. The last block is shorter, in whole groups of 8 values; up to 7 values that remain
 * follow as they are. Within a block bits are transposed: plane k of 16 holds bit k of every
 * value, value i at bit i % 8 of byte i / 8.
 *
 * Source: bitshuffle 0.3.5, bshuf_h5filter.c and bitshuffle_core.c (kiyo-masui/bitshuffle).
 */
#ifndef BITSHUFFLE_H
#define BITSHUFFLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/** Values of a block: what bitshuffle takes by default for 2-byte values (8 KiB). */
#define BITSHUFFLE_BLOCK 4096

/** @return the most bytes that a chunk of n values takes */
size_t bitshuffle_bound(size_t n);

/**
 * Compress n values. Same input, same bytes, for one version of liblz4.
 * @param to  at least bitshuffle_bound(n) bytes
 * @return bytes written
 */
size_t bitshuffle_compress(const uint16_t *from, size_t n, uint8_t *to);

/** A chunk that is made piece by piece, by whoever has time; by one thread at a time. */
struct bitshuffle_job {
	const struct bitshuffle_planes *planes;
	const uint16_t *from; /**< what is left */
	size_t left;
	uint8_t *to;
	size_t written; /**< bytes of the chunk so far */
};

/** Begin to compress n values; `from` and `to` as for bitshuffle_compress(). */
void bitshuffle_begin(struct bitshuffle_job *job, const uint16_t *from, size_t n, uint8_t *to);

/** Compress the next `blocks` blocks at most. @return is the chunk complete? */
bool bitshuffle_continue(struct bitshuffle_job *job, size_t blocks);

/**
 * Decompress a chunk that may be damaged or hostile.
 * @param to  room for n values
 * @return 0; -EBADMSG: not a chunk of exactly n values
 */
int bitshuffle_decompress(const uint8_t *from, size_t size, uint16_t *to, size_t n);

struct bitshuffle_planes;

/** The same with a given instruction set (arrow/bitshuffle_simd.h): not a byte depends on it. */
size_t bitshuffle_compress_by(
	const struct bitshuffle_planes *planes, const uint16_t *from, size_t n, uint8_t *to);

#endif /* BITSHUFFLE_H */
