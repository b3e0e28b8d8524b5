/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Decompresses HDF5 chunks of filter 32008 (bitshuffle + LZ4) of u16 images: those of
 * gk_bitshuffle.h, and those that liblz4 compressed, as in files of older versions.
 */
#ifndef BITSHUFFLE_H
#define BITSHUFFLE_H

#include <stddef.h>
#include <stdint.h>

/**
 * Decompress a chunk that may be damaged or malicious.
 * @param to  n values
 * @return 0; -EBADMSG: not a chunk of exactly n values, in blocks of GK_BITSHUFFLE_BLOCK
 */
int bitshuffle_decompress(const uint8_t *from, size_t size, uint16_t *to, size_t n);

#endif /* BITSHUFFLE_H */
