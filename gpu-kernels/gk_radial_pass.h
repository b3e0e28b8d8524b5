/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The pass of a radial profile over all pixels, of which there is one version for each instruction
 * set. Internal to gk_radial*.c.
 */
#ifndef GK_RADIAL_PASS_H
#define GK_RADIAL_PASS_H

#include "gk_radial.h"

/** Pixels of a row that are added together; the last strip of a row may be shorter. */
#define GK_RADIAL_STRIP 1024

/**
 * Counters of a bin. Neighbours of a row often have the same bin, and an addition waits for the
 * previous one of the same counter. Consecutive pixels therefore have different ones.
 */
#define GK_RADIAL_WAYS 4

/** Sums of at most GK_RADIAL_PART pixels, and the pixels that are not valid. */
struct gk_radial_sums {
	int32_t *part;	   /**< [nb_bins + 1][GK_RADIAL_WAYS] */
	uint32_t *invalid; /**< [nb_bins + 1], number of pixels */
	uint64_t *lost;	   /**< [nb_bins + 1], their weights; not written without weights */
};

/** Count a pixel that is not valid. @param weight  of the pixel's strip; NULL: all are 1 */
static inline void
gk_radial_add_invalid(struct gk_radial_sums *s, uint16_t bin, const uint32_t *weight, uint32_t i)
{
	s->invalid[bin]++;
	if (weight != NULL)
		s->lost[bin] += weight[i];
}

/** Add pixels to their bins. @param entry  bin << 16 | photons */
static inline void
gk_radial_add_entries(int32_t *part, const uint32_t *entry, uint32_t n)
{
	uint32_t i = 0;

	for (; i + GK_RADIAL_WAYS <= n; i += GK_RADIAL_WAYS)
		for (uint32_t k = 0; k < GK_RADIAL_WAYS; k++)
			part[(entry[i + k] >> 16) * GK_RADIAL_WAYS + k] += (int16_t)entry[i + k];
	for (; i < n; i++)
		part[(entry[i] >> 16) * GK_RADIAL_WAYS + i % GK_RADIAL_WAYS] += (int16_t)entry[i];
}

struct gk_radial_ops {
	/**
	 * Add the pixels of a strip.
	 * @param n       pixels, a multiple of 32
	 * @param weight  of these pixels; NULL: all are 1
	 */
	void (*add)(struct gk_radial_sums *s, const int16_t *photons, const uint16_t *bin,
		const uint32_t *weight, uint32_t n);
};

extern const struct gk_radial_ops gk_radial_plain;
extern const struct gk_radial_ops gk_radial_avx2;
extern const struct gk_radial_ops gk_radial_avx512;

/** @return NULL: not supported by this CPU or by this build (gk_isa.c) */
const struct gk_radial_ops *gk_radial_choose(enum gk_isa isa);

#endif /* GK_RADIAL_PASS_H */
