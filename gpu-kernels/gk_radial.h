/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Radial profile of a frame (azimuthal integration): sum and number of valid pixels by bin.
 *
 * Each pixel is added as a whole to one bin of a static map, as in pyFAI without pixel splitting.
 * The map has equal bins of q, 1/d or 2 theta (profile_bins() in app/common/geometry), but any map
 * is allowed. All sums are integers, so that they do not depend on the order of pixels, threads and
 * blocks, and each mean is rounded once from them. Host, AVX2 and AVX-512 give the same bits. A
 * device needs the inline functions of this header and integer additions only.
 *
 * Corrections for solid angle and polarisation change no sum of photons. As in pyFAI, the mean is
 * the sum of photons divided by the sum of the pixels' weights. Weights are static, so the sum of a
 * bin's weights is computed once, and a frame subtracts those of its pixels that are not valid.
 * These are few, unless packets are missing. Weights are integers (GK_RADIAL_ONE represents 1) with
 * an error below 2^-31. Their sums are exact, do not depend on the order, and cost nothing for
 * valid pixels. Weights of 16 bits would be wrong by 3e-5 in a whole bin, because the pixels of a
 * bin are rounded in the same way.
 *
 * Pixels of a map that are not used have the bin `nb_bins`. It is one more bin, which is never
 * read, so that no implementation compares pixels with a mask.
 */
#ifndef GK_RADIAL_H
#define GK_RADIAL_H

#include <stddef.h>
#include <stdint.h>

#include "gk.h"
#include "gk_pixel.h"

#ifdef __cplusplus
extern "C" {
#endif

#define GK_RADIAL_BINS_MAX 16383 /**< 4 x (bins + 1) counters of a host thread are 256 KiB */
#define GK_RADIAL_ONE	   (UINT32_C(1) << 30) /**< weight 1 */

/**
 * Number of pixels whose int16 photons, of any value, may be summed in 32 bits: 65,536 x 32,767 is
 * less than 2^31. A sum of more pixels needs 64 bits.
 */
#define GK_RADIAL_PART 65536

/** The pixels of a detector. It does not change while it is in use. */
struct gk_radial_map {
	uint32_t rows, cols; /**< of the canonical raster; `cols` is a multiple of 32 */
	uint32_t nb_bins;    /**< 1 to GK_RADIAL_BINS_MAX */
	const uint16_t *bin; /**< [rows][cols]; nb_bins: the pixel is not used */
	/** [rows][cols], weight x GK_RADIAL_ONE; NULL: all are 1. Not read for unused pixels. */
	const uint32_t *weight;
};

/** A bin of a profile. */
struct gk_radial_bin {
	int64_t sum;	/**< of valid pixels, in 1/GK_SUM_SCALE photons as gk_result.sum */
	uint64_t norm;	/**< sum of their weights, in 1/GK_RADIAL_ONE */
	uint32_t count; /**< number of valid pixels */
	float mean;	/**< gk_radial_mean() */
};
GK_STATIC_ASSERT(sizeof(struct gk_radial_bin) == 24, "bins are an array without padding");

/**
 * Return true if a pixel of an int16 image is valid. INT16_MIN (masked, invalid, missing) and
 * INT16_MAX (saturated: this number of photons or more) are not. gk_result.sum leaves out the same
 * pixels.
 */
GK_FN int
gk_radial_is_valid(int16_t photons)
{
	return photons != INT16_MIN && photons != INT16_MAX;
}

/** Return true if a pixel of a float image is valid. NaN and infinity are not. */
GK_FN int
gk_radial_is_valid_f32(float photons)
{
	return gk_sub(photons, photons) == 0.0f;
}

/**
 * Mean of a bin in photons. Sum and norm become f64, which is exact below 2^53 and rounds above.
 * The quotient is rounded to f64, then to f32: the same on any host and device.
 * @return NaN (GK_NAN_BITS) if the bin has no valid pixel
 */
GK_FN float
gk_radial_mean(int64_t sum, uint64_t norm)
{
	const double unit = GK_RADIAL_ONE / GK_SUM_SCALE; /* a power of two: not rounded */

	if (norm == 0)
		return gk_nan();
#ifdef __CUDA_ARCH__
	return __double2float_rn(
		__ddiv_rn(__dmul_rn(__ll2double_rn(sum), unit), __ull2double_rn(norm)));
#else
	return (float)((double)sum * unit / (double)norm);
#endif
}

/**
 * Check a map: shape, number of bins, bin of each pixel.
 * @param why   receives the error with the value found and the value expected; may be NULL
 * @param size  size of why
 * @return 0 or -EINVAL
 */
int gk_radial_map_check(const struct gk_radial_map *map, char *why, size_t size);

/** Memory of one thread that integrates frames on the host. */
struct gk_radial;

/**
 * Allocate the memory of an integration. A frame allocates nothing.
 * @param map  copied, but not what it points to
 * @param isa  affects speed only, never the results
 * @return 0; -EINVAL: gk_radial_map_check() says why; -ENOMEM; -ENOTSUP: `isa` is not supported
 */
int gk_radial_create(const struct gk_radial_map *map, enum gk_isa isa, struct gk_radial **radial);

/** Return the maximum number of bytes that an integration allocates. */
uint64_t gk_radial_memory(uint32_t nb_bins);

/** NULL is allowed. */
void gk_radial_destroy(struct gk_radial *radial);

/**
 * Integrate a frame.
 * @param photons  [rows][cols], as in int16 images
 * @param out      [nb_bins]
 */
void gk_radial_profile(struct gk_radial *radial, const int16_t *photons, struct gk_radial_bin *out);

/**
 * The same of photons that are not rounded to integers. Each is rounded to 1/GK_SUM_SCALE photon,
 * as for gk_result.sum, so that sums are integers, too.
 */
void gk_radial_profile_f32(
	struct gk_radial *radial, const float *photons, struct gk_radial_bin *out);

/**
 * The first function in parts, for a caller that has the rows of a frame in its caches one after
 * another: begin, add each row once, in any order, end. @{
 */
void gk_radial_begin(struct gk_radial *radial);

/** @param photons  of row `row` and the following ones: [nb_rows][cols] */
void gk_radial_add(
	struct gk_radial *radial, uint32_t row, uint32_t nb_rows, const int16_t *photons);

/** @param out  [nb_bins]. All rows were added. */
void gk_radial_end(struct gk_radial *radial, struct gk_radial_bin *out);

/**
 * The same without norms and means, as in an area of gk_config.profiles.
 * @param sum    [nb_bins], in photons
 * @param count  [nb_bins]
 */
void gk_radial_end_sums(struct gk_radial *radial, int64_t *sum, uint32_t *count);
/** @} */

#ifdef __cplusplus
}
#endif

#endif /* GK_RADIAL_H */
