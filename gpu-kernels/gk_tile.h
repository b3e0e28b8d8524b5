/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arithmetic on one tile (the pixels of one packet), apart from who does it when.
 *
 * One const row of gk_tile_ops per instruction set; gk_tile_choose() picks one when gangs are
 * created. All rows give the same bits: gk_pixel.h defines them. Internal to the host gangs.
 */
#ifndef GK_TILE_H
#define GK_TILE_H

#include "gk_abi.h"

struct gk_tile {
	const float *p[3]; /**< coefficients from the tile's first pixel on */
	const float *r[3];
	uint32_t rows;
	uint32_t cols; /**< a multiple of 32 */
	float bragg_threshold;
	float csr_threshold;
};

/** What one tile adds to its frame's result. */
struct gk_tile_counts {
	int64_t sum;
	uint32_t bragg;
	uint32_t nnz;
	uint32_t saturated;
	uint32_t invalid;
};

struct gk_tile_ops {
	const char *name;

	/**
	 * Statistics of this tile of n frames; coefficients are loaded once for all of them.
	 * @param raw      pixels of each frame, 64-byte aligned; none is NULL
	 * @param counts   set for each frame
	 * @param row_nnz  u16[rows] of each frame: pixels >= csr_threshold by row
	 */
	void (*stats)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		struct gk_tile_counts counts[], uint16_t *const row_nnz[]);

	/**
	 * Columns and values of the pixels >= csr_threshold, in raster order: exactly as many as
	 * row_nnz adds up to, not a byte more (the next tile's pixels follow).
	 * @param value  f32 or i16 as `type` says
	 */
	void (*csr)(const struct gk_tile *tile, const uint16_t *raw, const uint16_t *row_nnz,
		enum gk_value type, uint16_t *col, void *value);

	/** Values of all pixels; value as for csr. */
	void (*image)(
		const struct gk_tile *tile, const uint16_t *raw, enum gk_value type, void *value);

	/**
	 * Add this tile of n dark frames, at most GK_BATCH_MAX, to its cells.
	 * @param shared  other gangs may be adding to the same cells: add atomically
	 */
	void (*dark)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		uint64_t *cells, int shared);

	/**
	 * Dark update of this tile: tile->p[0] and cells to p_out; cells are cleared.
	 * @param u  samples, drift and updated are set
	 */
	void (*update)(const struct gk_tile *tile, uint64_t *cells, uint32_t n_min, float alpha,
		float *p_out, struct gk_update *u);
};

/** In C as plain as the compiler can turn into vector code; also the reference for the others. */
extern const struct gk_tile_ops gk_tile_plain;

/** The fastest row that this processor runs. */
const struct gk_tile_ops *gk_tile_choose(void);

#endif /* GK_TILE_H */
