/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Chunks of HDF5 datasets from images of Arrow files. An image that is such a chunk already is not
 * copied, unless pixels are made invalid. Other images are compressed as the receiver does it.
 */
#ifndef EXPORT_IMAGE_H
#define EXPORT_IMAGE_H

#include "scan/images.h"
#include "selection.h"

/** Values of int16 images, as in files of the receiver. @{ */
#define IMAGE_INVALID	INT16_MIN /**< masked, invalid or missing pixel */
#define IMAGE_SATURATED INT16_MAX
/** @} */
#define IMAGE_RAW_INVALID UINT16_MAX /**< missing pixel of a raw image */

/**
 * Smallest and largest value of pixels that are not lost or masked, and of those that are not
 * saturated either. Of detector words, 0xC000, where G2 is saturated, is below others. @{
 */
static inline int32_t
image_least(bool raw)
{
	return raw ? 0 : IMAGE_INVALID + 1;
}

static inline int32_t
image_most(bool raw)
{
	return raw ? IMAGE_RAW_INVALID - 1 : IMAGE_SATURATED;
}

static inline int32_t
image_unsaturated(bool raw)
{
	return raw ? IMAGE_RAW_INVALID - 1 : IMAGE_SATURATED - 1;
}
/** @} */

/** Buffers of one thread. */
struct image {
	uint32_t rows, cols;
	const uint32_t *mask; /**< pixels that are made invalid: those that are not 0; NULL: none */
	int16_t *photons;     /**< of an image that is changed */
	uint8_t *packed;
};

/** @param mask  [rows][cols]; NULL: images are not changed @return 0; -ENOMEM */
int image_init(struct image *m, uint32_t rows, uint32_t cols, const uint32_t *mask);

void image_free(struct image *m);

/**
 * Make the chunk of an image that is full or raw.
 * @param b      its batch
 * @param chunk  out: valid until the next call, and as long as the batch
 * @return bytes; -EBADMSG: the row does not fit the raster, or its chunk is damaged
 */
ssize_t image_chunk(struct image *m, const struct scan_images *b, const struct selection_row *row,
	const uint8_t **chunk);

#endif /* EXPORT_IMAGE_H */
