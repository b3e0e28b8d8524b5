/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CRC-32C (Castagnoli) of record-batch bodies, computed by ISA-L.
 *
 * Convention: the CRC of iSCSI (RFC 3720), with polynomial 0x1EDC6F41, reflected, initial value and
 * final complement 0xFFFFFFFF. The CRC of "123456789" is 0xe3069283, and that of no data is 0.
 * ISA-L's crc32_iscsi() does not complement at either end; the functions below do. The CRC covers
 * the body as it is in the file, including the zero padding between buffers.
 */
#ifndef ARROW_CRC32C_H
#define ARROW_CRC32C_H

#include <stddef.h>
#include <stdint.h>

/** Extend `crc` by `len` bytes. Start with 0. */
uint32_t arrow_crc32c(uint32_t crc, const void *data, size_t len);

/** Extend `crc` by `len` zero bytes. */
uint32_t arrow_crc32c_zeros(uint32_t crc, size_t len);

/**
 * Table for extending many CRCs by the same number of zero bytes. It has the effect of these bytes
 * on each group of four bits of the CRC.
 */
struct arrow_crc_zeros {
	uint32_t of[8][16];
};

void arrow_crc_zeros_init(struct arrow_crc_zeros *z, size_t len);

/** As arrow_crc32c_zeros() for the number of bytes of the table, in about 10 ns. */
static inline uint32_t
arrow_crc_zeros(const struct arrow_crc_zeros *z, uint32_t crc)
{
	uint32_t to = 0;
	unsigned int i;

	for (i = 0; i < 8; i++)
		to ^= z->of[i][crc >> 4 * i & 15];
	return to;
}

/**
 * Compute the CRC of A followed by B from the CRCs of both, in about 0.2 us. The CRC of a column
 * can thus be computed while the column is in the cache, in any order of the columns.
 */
uint32_t arrow_crc32c_combine(uint32_t crc_a, uint32_t crc_b, uint64_t len_b);

#endif /* ARROW_CRC32C_H */
