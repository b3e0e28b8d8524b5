/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Symbol names of the instruction set for which a file is built. meson.build defines GK_TILE_ISA.
 * Internal to the host gangs.
 */
#ifndef GK_TILE_SET_H
#define GK_TILE_SET_H

#include "gk_tile.h"

#ifndef GK_TILE_ISA
#define GK_TILE_ISA plain
#endif

#define GK_TILE_PASTE(name, set) name##_##set
#define GK_TILE_JOIN(name, set)	 GK_TILE_PASTE(name, set)
/** `name` with the suffix of this instruction set: gk_tile_avx2 ... */
#define GK_TILE_SET(name) GK_TILE_JOIN(name, GK_TILE_ISA)

/** dark and update of struct gk_tile_ops, in C that compilers vectorise (gk_tile_dark.c). @{ */
void GK_TILE_SET(gk_tile_dark)(const struct gk_tile *t, uint32_t n, const uint16_t *const raw[],
	uint64_t *cells, int shared);
void GK_TILE_SET(gk_tile_update)(const struct gk_tile *t, uint64_t *cells, uint32_t n_min,
	float alpha, float *p_out, struct gk_update *u);
/** @} */

/** csr of struct gk_tile_ops for sets that include AVX2 (gk_tile_list.c) */
void gk_tile_csr_avx2(const struct gk_tile *t, const uint16_t *raw, const uint32_t *bits,
	enum gk_value type, uint16_t *col, void *value);

#endif /* GK_TILE_SET_H */
