/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arithmetic on one tile (the pixels of one packet), independent of scheduling.
 *
 * There is one const struct gk_tile_ops per instruction set. gk_tile_choose() selects one when
 * gangs are created. All give the same bits, defined by gk_pixel.h. Internal to the host gangs.
 */
#ifndef GK_TILE_H
#define GK_TILE_H

#include "gk.h"

struct gk_tile {
	const float *p[3]; /**< coefficients, starting at the tile's first pixel */
	const float *r[3];
	uint32_t rows;
	uint32_t cols; /**< a multiple of 32 */
	float strong_threshold;
	float csr_threshold;
};

/** Contribution of one tile to its frame's result. */
struct gk_tile_counts {
	int64_t sum;
	uint32_t bragg;
	uint32_t nnz;
	uint32_t saturated;
	uint32_t invalid;
};

/**
 * Pixels of a strip, the unit of the bits of gk_tile_ops.stats(). The last strip of a row may be
 * shorter.
 */
#define GK_TILE_STRIP 1024

/** Words for the bits of gk_tile_ops.stats(): those of a tile, and one vector beyond them. */
static inline uint32_t
gk_tile_bits(uint32_t rows, uint32_t cols)
{
	return rows * (cols / 32 + (cols + GK_TILE_STRIP - 1) / GK_TILE_STRIP) + 8;
}

struct gk_tile_ops {
	const char *name;

	/**
	 * Compute the statistics of this tile of n frames. Coefficients are loaded once for all
	 * frames.
	 * @param raw      pixels of each frame, 64-byte aligned; not NULL
	 * @param ahead    pixels that are likely to be processed next, or NULL: a hint
	 * @param counts   set for each frame
	 * @param row_nnz  u16[rows] of each frame: pixels >= csr_threshold by row
	 * @param bits     pixels >= csr_threshold, u32[gk_tile_bits()] of each frame, or NULL. For
	 *   each strip: a word whose bit k is set if any of pixels 32 k ... 32 k + 31 is one; then
	 *   the non-zero words, with bit i for pixel 32 k + i. The rest of the array is undefined
	 *   and mostly not written. Most frames have few such pixels, and a full bit mask would be
	 *   an eighth of the data read
	 * @param type     of values in images
	 * @param image    output of image() for each frame, or NULL; the pixels are then read only
	 *   once
	 */
	void (*stats)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		const uint16_t *const ahead[], struct gk_tile_counts counts[],
		uint16_t *const row_nnz[], uint32_t *const bits[], enum gk_value type,
		void *const image[]);

	/**
	 * Hint that an output of this tile will be requested soon. NULL: not supported.
	 * @param photons  coefficients are needed, too
	 * @param bits     from stats(): only these pixels are needed; NULL: all
	 */
	void (*fetch)(
		const struct gk_tile *tile, const uint16_t *raw, int photons, const uint32_t *bits);

	/**
	 * Write columns and values of the pixels whose bit is set, in raster order. Nothing is
	 * written beyond them, because the pixels of the next tile follow.
	 * @param bits   from stats()
	 * @param value  f32 or i16, according to `type`
	 */
	void (*csr)(const struct gk_tile *tile, const uint16_t *raw, const uint32_t *bits,
		enum gk_value type, uint16_t *col, void *value);

	/**
	 * Write the values of all pixels of this tile of n frames; value[] as for csr, 64-byte
	 * aligned.
	 */
	void (*image)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		enum gk_value type, void *const value[]);

	/**
	 * Write the values of all pixels of this tile as of GK_VALUE_I16, to memory that is read
	 * next.
	 */
	void (*photons)(const struct gk_tile *tile, const uint16_t *raw, int16_t *to);

	/** Copy the words unchanged; `to` as for image. */
	void (*copy)(const struct gk_tile *tile, const uint16_t *raw, uint16_t *to);

	/**
	 * Copy the words unchanged to memory that is read next. The sender may overwrite them
	 * meanwhile. Each is loaded once, and all are loaded before the function returns.
	 */
	void (*take)(const struct gk_tile *tile, const uint16_t *raw, uint16_t *to);

	/**
	 * Make the stores of image() and copy() visible to threads that acquire a later release.
	 * NULL: they already are.
	 */
	void (*drain)(void);

	/**
	 * Add this tile of n dark frames, at most GK_BATCH_MAX, to its cells.
	 * @param shared  other gangs may add to the same cells at the same time: add atomically
	 */
	void (*dark)(const struct gk_tile *tile, uint32_t n, const uint16_t *const raw[],
		uint64_t *cells, int shared);

	/**
	 * Dark update of this tile: computes p_out from tile->p[0] and cells, and clears the cells.
	 * @param u  samples, drift and updated are set
	 */
	void (*update)(const struct gk_tile *tile, uint64_t *cells, uint32_t n_min, float alpha,
		float *p_out, struct gk_update *u);
};

/** Plain C that compilers vectorise; also the reference for the other implementations. */
extern const struct gk_tile_ops gk_tile_plain;
extern const struct gk_tile_ops gk_tile_avx2; /**< x86-64: AVX2, BMI1, BMI2 */
/** x86-64: AVX2, BMI1, BMI2 and AVX-512 F, BW, DQ, VL */
extern const struct gk_tile_ops gk_tile_avx512;

/**
 * Select the implementation of an instruction set.
 * @return NULL: not supported by this CPU or by this build
 */
const struct gk_tile_ops *gk_tile_choose(enum gk_isa isa);

#endif /* GK_TILE_H */
