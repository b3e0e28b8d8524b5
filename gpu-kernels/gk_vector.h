/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Vectors of pixels: the operations of an instruction set that gk_tile_simd.c uses, under common
 * names.
 *
 * AVX-512 (F, BW, DQ, VL) has 16 lanes and mask registers; AVX2 has 8 lanes and masks in vectors.
 * No operation is fused or approximate: lane i of every operation has the same bits as the scalar
 * operation of gk_pixel.h. gk_vector_avx512.h documents the names. Empty if the compiler supports
 * neither set.
 */
#ifndef GK_VECTOR_H
#define GK_VECTOR_H

#ifdef __AVX512BW__
#include "gk_vector_avx512.h"
#else
#include "gk_vector_avx2.h"
#endif

#endif /* GK_VECTOR_H */
