/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Bragg peaks of a frame by the algorithm "peakfinder8" of CrystFEL (A. Barty et al., J. Appl.
 * Cryst. 47, 2014; behaviour of CrystFEL 0.12, including its limits and quirks).
 *
 * Input are photons as in the column `value` of int16 images: INT16_MIN is masked, invalid or
 * missing, INT16_MAX is saturated. All sums over rings of pixels and over blobs are then exact in
 * integers, so that they do not depend on the order of pixels and threads. Host, AVX2, AVX-512 and
 * CUDA give the same bits, and these are CrystFEL's.
 *
 * Geometry is given as a static map: for each pixel the radial bin, that is the distance to the
 * beam in pixels, rounded as peakfinder8 does it (geometry.h computes it), and the panels, which
 * are rectangles of the canonical raster. No peak crosses the border of a panel.
 */
#ifndef GK_PEAKS_H
#define GK_PEAKS_H

#include <stdint.h>

#include "gk_abi.h"

#define GK_PEAKS_MAX	   2048	  /**< peaks of a frame; the first ones are kept, as in CrystFEL */
#define GK_PEAK_PANELS_MAX 512	  /**< panels: 64 modules of 8 chips */
#define GK_PEAK_BINS_MAX   16384  /**< radial bins */
#define GK_PEAK_MASKED	   0xFFFF /**< bin of a pixel that is never used */
#define GK_PEAK_SHELLS_MAX 8	  /**< resolution shells whose peaks are counted */

/** A panel: a rectangle of the raster. */
struct gk_peak_panel {
	uint32_t fs, ss;	/**< first column and row */
	uint32_t width, height; /**< in pixels */
	float max_adu; /**< with `saturated` 0: peaks whose maximum above background is greater are
			* left out */
};

/** Options, with the names and defaults of indexamajig in parentheses. */
struct gk_peak_params {
	float threshold;     /**< --threshold, in photons (800) */
	float min_snr;	     /**< --min-snr (5) */
	uint32_t min_pixels; /**< --min-pix-count (2) */
	uint32_t max_pixels; /**< --max-pix-count (200) */
	uint32_t bg_radius;  /**< --local-bg-radius, in pixels (3), at most 15 */
	uint32_t min_res;    /**< --min-res, in pixels (0) */
	uint32_t max_res;    /**< --max-res, in pixels; 0: no limit (0) */
	uint32_t saturated;  /**< 0: --no-use-saturated; 1: saturated peaks are kept (1) */
	uint32_t shells;     /**< number of shells, at most GK_PEAK_SHELLS_MAX */
	/** first bins of the shells, ascending; the last entry is the end of the last shell */
	uint32_t shell[GK_PEAK_SHELLS_MAX + 1];
	uint32_t reserved[2];
};

/**
 * A peak. Positions are indices in the panel: 0 is the centre of its first pixel, as in CXI lists.
 * indexamajig prints them + 0.5, which it adds in double precision.
 */
struct gk_peak {
	float fs, ss;	  /**< centre of mass */
	float intensity;  /**< sum above background, in photons, summed in fill order */
	float snr;	  /**< intensity / standard deviation of the background */
	float background; /**< mean of the ring around the peak */
	uint32_t pixels;
	uint32_t panel;
	uint32_t bin; /**< of the peak's first pixel, that is its resolution */
};
GK_STATIC_ASSERT(sizeof(struct gk_peak) == 32, "two peaks are one cache line");

/** Peaks of a frame. */
struct gk_peaks {
	uint32_t count; /**< peaks in `peak`, at most GK_PEAKS_MAX */
	uint32_t found; /**< peaks that were found; more than `count` if there were too many */
	uint32_t shell[GK_PEAK_SHELLS_MAX]; /**< of `count`, by resolution shell */
	uint32_t reserved[6];
	struct gk_peak peak[]; /**< in CrystFEL's order */
};
GK_STATIC_ASSERT(sizeof(struct gk_peaks) == 64, "peaks begin on a cache line");

#endif /* GK_PEAKS_H */
