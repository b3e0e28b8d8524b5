/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * State of a search for peaks on the host, and the passes over all pixels, of which there is one
 * version for each instruction set. Internal to gk_peak_*.c.
 */
#ifndef GK_PEAK_FINDER_H
#define GK_PEAK_FINDER_H

#include <stdbool.h>

#include "gk_peak_blob.h"

/** Pixels of a row that are counted together; the last strip of a row may be shorter. */
#define GK_PEAK_STRIP 1024

/**
 * Photons of a bin that are counted by value; others are listed. An odd number of cache lines, so
 * that neighbouring bins use all sets of the L1 cache. Photon images rarely have others, except in
 * peaks. @{
 */
#define GK_PEAK_VALUE_MIN (-16)
#define GK_PEAK_VALUES	  144
/** @} */

/** Entries after the table for pixels that are not counted. */
#define GK_PEAK_DUMP 16

/** Pixels of a frame by bin. */
struct gk_peak_counts {
	/**
	 * [bins][GK_PEAK_VALUES], then GK_PEAK_DUMP entries. Photons 0 are not counted here. They
	 * are most pixels of most frames, and follow from gk_peak_finder.used.
	 */
	uint32_t *values;
	uint32_t dump;	   /**< index of the entries for pixels that are not counted */
	uint32_t *invalid; /**< [bins], INT16_MIN */
	uint32_t *listed;  /**< [bins], pixels in `rest` */
	uint32_t *rest;	   /**< bin << 16 | photons, of pixels that are not in `values` */
	uint32_t nb_rest;
	int16_t above; /**< only pixels with more photons can be hits */
};

struct gk_peak_ops {
	/**
	 * Count the pixels of a strip.
	 * @param n     pixels, a multiple of 32
	 * @param word  receives a bit for each pixel above `above`
	 * @return a bit for each word that is not 0
	 */
	uint32_t (*count)(struct gk_peak_counts *c, const int16_t *photons, const uint16_t *bin,
		uint32_t n, uint32_t *word);

	/**
	 * Keep the bits of pixels that are above `upper` of their bins.
	 * @param first  index of the strip's first pixel
	 * @param some   bits of the words that are not 0
	 * @return a bit for each word that is not 0
	 */
	uint32_t (*compare)(
		const struct gk_peak_frame *f, uint64_t first, uint32_t some, uint32_t *word);
};

extern const struct gk_peak_ops gk_peak_plain;
extern const struct gk_peak_ops gk_peak_avx2;
extern const struct gk_peak_ops gk_peak_avx512;

/** @return NULL: not supported by this CPU or by this build (gk_isa.c) */
const struct gk_peak_ops *gk_peak_choose(enum gk_isa isa);

/** A bin in a clipping round of an f32 image. */
struct gk_peak_round {
	float lower, upper, sum, squares;
	int64_t n;
};

struct gk_peak_finder {
	struct gk_peak_map map;
	const struct gk_peak_ops *ops;
	struct gk_peak_params params; /**< of the frame */
	struct gk_peak_counts counts;
	uint32_t nb_bins; /**< of pixels that are used */
	uint32_t *used;	  /**< [nb_bins], pixels that are used */
	uint32_t *start;  /**< [nb_bins], end of each bin in `ordered` */
	int16_t *ordered; /**< photons of counts.rest, by bin */
	/** gk_peak_frame, [GK_PEAK_BIN_MASK + 1] @{ */
	float *offset;
	float *upper;
	/** @} */
	struct gk_peak_round *round; /**< [nb_bins] */
	struct gk_peak_hits hits;    /**< [rows][cols / 32] */
	uint32_t *words;	     /**< memory of hits, with the words around them */
	uint32_t *strips;	     /**< [rows][nb_strips], bits of words that are not 0 */
	uint32_t nb_strips;	     /**< of a row */
	uint32_t *blob;		     /**< positions; shares memory with counts.rest */
	bool counting;		     /**< between gk_peaks_begin() and gk_peaks_end() */
};

/** Find the blobs of hits and measure them. Hits, strips, offset and upper are complete. */
void gk_peak_search(
	struct gk_peak_finder *f, const struct gk_peak_frame *frame, struct gk_peaks *out);

/** Count a pixel that is not in gk_peak_counts.values. */
static inline void
gk_peak_count_rest(struct gk_peak_counts *c, int16_t photons, uint16_t bin)
{
	if (photons == INT16_MIN) {
		c->invalid[bin]++;
	} else {
		c->listed[bin]++;
		c->rest[c->nb_rest++] = (uint32_t)bin << 16 | (uint16_t)photons;
	}
}

/** Add one to n entries of the table. */
static inline void
gk_peak_count_values(uint32_t *values, const uint32_t *index, uint32_t n)
{
	const uint32_t quarter = n / 4;

	/*
	 * Neighbours are often equal and in one bin. The processor must then complete the addition
	 * of one pixel before that of the next, so four parts of the strip alternate.
	 */
	for (uint32_t i = 0; i < quarter; i++) {
		values[index[i]]++;
		values[index[quarter + i]]++;
		values[index[2 * quarter + i]]++;
		values[index[3 * quarter + i]]++;
	}
	for (uint32_t i = 4 * quarter; i < n; i++)
		values[index[i]]++;
}

#endif /* GK_PEAK_FINDER_H */
