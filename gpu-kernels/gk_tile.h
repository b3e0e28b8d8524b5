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

#include "gk.h"

struct gk_tile {
	const float *p[3]; /**< coefficients from the tile's first pixel on */
	const float *r[3];
	uint32_t rows;
	uint32_t cols; /**< a multiple of 32 */
	float strong_threshold;
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

/** Pixels whose bits are a strip of gk_tile_ops.stats(); one at the end of a row may be shorter. */
#define GK_TILE_STRIP 1024

/** Words of gk_tile_ops.stats() bits: what a tile may take, and a vector that goes beyond. */
static inline uint32_t
gk_tile_bits(uint32_t rows, uint32_t cols)
{
	return rows * (cols / 32 + (cols + GK_TILE_STRIP - 1) / GK_TILE_STRIP) + 8;
}

struct gk_tile_ops {
	const char *name;

	/**
	 * Statistics of this tile of n frames; coefficients are loaded once for all of them.
	 * @param raw      pixels of each frame, 64-byte aligned; none is NULL
	 * @param ahead    pixels that are likely to be asked for next, or NULL: a hint
	 * @param counts   set for each frame
	 * @param row_nnz  u16[rows] of each frame: pixels >= csr_threshold by row
	 * @param bits     which pixels are >= csr_threshold, u32[gk_tile_bits()] of each frame or
	 *                 NULL. Strip by strip: a word whose bit k is set if any of pixels 32 k ...
	 *                 32 k + 31 is one; then those words that have any, bit i for pixel
	 *                 32 k + i. What is left of the array has no meaning, and most of it is not
	 *                 written: most frames have few such pixels, and a bit each would be an
	 *                 eighth of what is read of them
	 * @param type     of values in images
	 * @param image    what image() would make, of each frame, or NULL: pixels are read once
	 */
	void (*stats)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		const uint16_t *const ahead[], struct gk_tile_counts counts[],
		uint16_t *const row_nnz[], uint32_t *const bits[], enum gk_value type,
		void *const image[]);

	/**
	 * An output of this tile will soon be asked for: a hint. NULL = takes none.
	 * @param photons  coefficients are wanted, too
	 * @param bits     of stats(): of nothing but these pixels; NULL: of all
	 */
	void (*fetch)(
		const struct gk_tile *tile, const uint16_t *raw, int photons, const uint32_t *bits);

	/**
	 * Columns and values of the pixels whose bit is set, in raster order: exactly as many as
	 * there are, not a byte more (the next tile's pixels follow).
	 * @param bits   of stats()
	 * @param value  f32 or i16 as `type` says
	 */
	void (*csr)(const struct gk_tile *tile, const uint16_t *raw, const uint32_t *bits,
		enum gk_value type, uint16_t *col, void *value);

	/** Values of all pixels of this tile of n frames; value[] as for csr, 64-byte aligned. */
	void (*image)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		enum gk_value type, void *const value[]);

	/** The words as they are; `to` as for image. */
	void (*copy)(const struct gk_tile *tile, const uint16_t *raw, uint16_t *to);

	/**
	 * What image() and copy() have stored is seen by whoever acquires what is released after
	 * this. NULL = it is anyway.
	 */
	void (*drain)(void);

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
extern const struct gk_tile_ops gk_tile_avx2;	/**< x86-64: AVX2, BMI1, BMI2 */
extern const struct gk_tile_ops gk_tile_avx512; /**< ... and AVX-512 F, BW, DQ, VL */

/**
 * The row that a configuration asks for.
 * @return NULL: this processor, or this build, has it not
 */
const struct gk_tile_ops *gk_tile_choose(enum gk_isa isa);

#endif /* GK_TILE_H */
