/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Bragg peaks of a frame by the algorithm "peakfinder8" of CrystFEL (A. Barty et al., J. Appl.
 * Cryst. 47, 2014; behaviour of CrystFEL 0.12, including its limits and quirks).
 *
 * Input are photons as in the column `value` of int16 images: INT16_MIN is masked, invalid or
 * missing; INT16_MAX is saturated and counts as 32,767 photons. Sums over radial bins are exact in
 * integers, so that they do not depend on the order of pixels and threads. They are rounded once,
 * where CrystFEL rounds after each addition if they exceed 2^24. Sums over blobs and their rings
 * have CrystFEL's order. Host, AVX2, AVX-512 and CUDA give the same bits (gk_peak_blob.h is their
 * only definition).
 *
 * Geometry is a static map. It has the radial bin of each pixel: its distance to the beam in
 * pixels, rounded as in peakfinder8 (gk_peak_bin()). It also has the panels, which are rectangles
 * of the canonical raster. No peak crosses the border of a panel.
 */
#ifndef GK_PEAKS_H
#define GK_PEAKS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "gk.h"

#ifdef __cplusplus
extern "C" {
#endif

/** The pixels of a detector. Neither the map nor the panels change while they are in use. */
struct gk_peak_map {
	uint32_t rows, cols; /**< of the canonical raster; `cols` is a multiple of 32 */
	/**
	 * [rows][cols], radial bin, with GK_PEAK_MASKED if the pixel is bad, outside the limits of
	 * resolution, or in no panel
	 */
	const uint16_t *bin;
	const struct gk_peak_panel *panel; /**< in the order in which they are searched */
	uint32_t nb_panels;
};

/** Peaks of a frame. */
struct gk_peaks {
	uint32_t count; /**< peaks in `peak`, at most GK_PEAKS_MAX */
	/**
	 * peaks that were found, with the saturated ones that are left out; GK_PEAKS_MAX + 1: there
	 * are more than GK_PEAKS_MAX, and the search has ended there
	 */
	uint32_t found;
	uint32_t shell[GK_PEAK_SHELLS_MAX]; /**< of `count`, by resolution shell */
	uint32_t reserved[6];
	struct gk_peak peak[]; /**< in CrystFEL's order; GK_PEAKS_MAX of them may be written */
};
GK_STATIC_ASSERT(sizeof(struct gk_peaks) == 64, "peaks begin on a cache line");

/**
 * Entry of the map for a pixel of a panel, rounded as peakfinder8 does it.
 * @param x,y      outer corner of the pixel, in pixels from the beam: corner + fs x fs_x + ss x
 *   ss_x, in double precision and in this order
 * @param min_res  --min-res, in pixels
 * @param max_res  --max-res, in pixels; 0: no limit
 * @return bin, with GK_PEAK_MASKED if the pixel is outside the limits or the bin is not less than
 *   GK_PEAK_BINS_MAX
 */
static inline uint16_t
gk_peak_bin(double x, double y, uint32_t min_res, uint32_t max_res)
{
	const double limit = 2 * GK_PEAK_BINS_MAX;
	double r, whole_x, whole_y;
	float radius;

	if (!(fabs(x) < limit && fabs(y) < limit))
		return GK_PEAK_MASKED | (GK_PEAK_BINS_MAX - 1);
	whole_x = (double)(int32_t)x;
	whole_y = (double)(int32_t)y;
	r = sqrt(whole_x * whole_x + whole_y * whole_y);
	radius = (float)r;
	if (!(rintf(radius) < GK_PEAK_BINS_MAX))
		return GK_PEAK_MASKED | (GK_PEAK_BINS_MAX - 1);
	return (uint16_t)((uint16_t)rintf(radius) |
		(radius > (float)min_res && (max_res == 0 || radius < (float)max_res)
				? 0
				: GK_PEAK_MASKED));
}

/**
 * Check a map: shape, panels that overlap, bins, pixels that are used but in no panel.
 * @param why   receives the error with the value found and the value expected; may be NULL
 * @param size  size of why
 * @return 0; -EINVAL; -ENOMEM
 */
int gk_peak_map_check(const struct gk_peak_map *map, char *why, size_t size);

/** Check options. @param why,size  as gk_peak_map_check(). @return 0 or -EINVAL */
int gk_peak_params_check(const struct gk_peak_params *params, char *why, size_t size);

/** Memory of one thread that searches frames on the host. */
struct gk_peak_finder;

/**
 * Allocate the memory of a search. A frame allocates nothing.
 * @param map  copied, but not what it points to
 * @param isa  affects speed only, never the results
 * @return 0; -EINVAL: gk_peak_map_check() says why; -ENOMEM; -ENOTSUP: `isa` is not supported
 */
int gk_peak_finder_create(
	const struct gk_peak_map *map, enum gk_isa isa, struct gk_peak_finder **finder);

/**
 * Return the maximum memory that a finder uses, in bytes. Pages of large arrays are allocated at
 * their first use, so most frames use less.
 * @param nb_bins  1 + the largest bin of a used pixel
 */
uint64_t gk_peak_finder_memory(uint32_t rows, uint32_t cols, uint32_t nb_bins);

/** NULL is allowed. */
void gk_peak_finder_destroy(struct gk_peak_finder *finder);

/**
 * Find the peaks of a frame. The time is bounded for any content: each pixel is visited a constant
 * number of times, and each blob of min_pixels to max_pixels also costs its ring, (4 x bg_radius)^2
 * pixels at most.
 * @param params   accepted by gk_peak_params_check()
 * @param photons  [rows][cols]
 * @param out      memory for GK_PEAKS_MAX peaks; only the first `count` are written
 */
void gk_peaks_find(struct gk_peak_finder *finder, const struct gk_peak_params *params,
	const int16_t *photons, struct gk_peaks *out);

/**
 * The same in parts, for a caller that has the rows of a frame in its caches one after another:
 * begin, add each row once, in any order, end. gk_peaks_end() reads the photons around bright
 * pixels again. @{
 */
void gk_peaks_begin(struct gk_peak_finder *finder, const struct gk_peak_params *params);

/** @param photons  of row `row` and the following ones: [nb_rows][cols] */
void gk_peaks_add(
	struct gk_peak_finder *finder, uint32_t row, uint32_t nb_rows, const int16_t *photons);

/** @param photons  [rows][cols], all of which were added */
void gk_peaks_end(struct gk_peak_finder *finder, const int16_t *photons, struct gk_peaks *out);
/** @} */

/**
 * Find the peaks of photons that are not rounded to integers. Sums are rounded after each addition,
 * in raster order, panel by panel, as in CrystFEL. They cannot be made in parallel, so there are no
 * versions for vectors and CUDA.
 * @param photons  [rows][cols]; NaN: not used; +Inf: saturated, 32,767 photons
 */
void gk_peaks_find_f32(struct gk_peak_finder *finder, const struct gk_peak_params *params,
	const float *photons, struct gk_peaks *out);

/** Bytes of a struct gk_peaks with room for GK_PEAKS_MAX peaks. */
#define GK_PEAKS_SIZE (sizeof(struct gk_peaks) + GK_PEAKS_MAX * sizeof(struct gk_peak))

#ifdef __cplusplus
}
#endif

#endif /* GK_PEAKS_H */
