/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Vectors of pixels: what gk_tile_simd.c needs of an instruction set, under one set of names.
 *
 * AVX-512 (F, BW, DQ, VL) has 16 lanes and masks in registers of their own, AVX2 has 8 and masks
 * in vectors. Nothing is fused, nothing approximate: lane i of every operation has the bits that
 * the same operation of gk_pixel.h has. What the names mean is said with those of AVX-512. Empty
 * where a compiler may use neither.
 */
#ifndef GK_VECTOR_H
#define GK_VECTOR_H

#ifdef __AVX512BW__
#include "gk_vector_avx512.h"
#else
#include "gk_vector_avx2.h"
#endif

#endif /* GK_VECTOR_H */
