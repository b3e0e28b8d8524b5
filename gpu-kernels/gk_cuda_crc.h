/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * CRC-32C (RFC 3720) of chunks on a GPU: tables. CRCs are polynomials modulo that of CRC-32C, with
 * the coefficient of x^0 in bit 31.
 *
 * A CRC without its initial value is linear in the bits of the message. The CRC of some rows of
 * GK_CUDA_CRC_ROW bytes is the product of a matrix of bits with the message, which the tensor cores
 * compute (gk_cuda_crc.cuh).
 */
#ifndef GK_CUDA_CRC_H
#define GK_CUDA_CRC_H

#include <stdint.h>

#define GK_CUDA_CRC_ROW	 512 /**< bytes: 16 of each thread */
#define GK_CUDA_CRC_ROWS 7   /**< that are multiplied together */
/** Positions are numbers below the order of x, in bytes of 8 bits. */
#define GK_CUDA_CRC_ORDER 0x7FFFFFFFu

struct gk_cuda_crc {
	/**
	 * Operand A of the instruction m16n8k256 of each thread, by row, half of the 16 bytes of a
	 * thread, and half of the 32 bits of the CRC. The 16 bytes of 4 threads are a column of
	 * operand B, and all columns have the same weights.
	 */
	uint32_t matrix[GK_CUDA_CRC_ROWS][2][2][32][4];
	/** polynomials of the 8 bits that each thread has of the results, by its columns */
	uint32_t column[32][8];
	uint32_t above[32]; /**< bit i of a product's lower half: x^(63 - i) */
	uint32_t part;	    /**< the rows that are multiplied together: x^(8 bytes) */
	uint32_t reserved[31];
	/** x^(-8 d) of digit d of a position: the lower 12 bits, the next 12 bits, the rest @{ */
	uint32_t back[2][4096];
	uint32_t back_far[256];
	/** @} */
};

#ifdef __cplusplus
extern "C" {
#endif

/** Compute the tables. */
void gk_cuda_crc_init(struct gk_cuda_crc *c);

#ifdef __cplusplus
}
#endif

#endif /* GK_CUDA_CRC_H */
