/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Bodies of replies that are made from a live file: images as .npy files (NumPy's format, version
 * 1.0), the frame as it was kept in the safetensors format, and the geometry as JSON. Each call
 * opens the file, so that a receiver may end and start between two calls. Any thread may call them.
 *
 * Errors of all functions: -ENOENT and -errno: the file cannot be opened; -ENODATA: there is no
 * frame, or no geometry; -EAGAIN: the file changed while it was read; -EPROTO: it is no live file;
 * -ENOMEM.
 */
#ifndef IMAGES_H
#define IMAGES_H

#include <stddef.h>
#include <stdint.h>

#include "request.h"

struct body {
	uint8_t *bytes; /**< to be freed */
	size_t size;
	char etag[64]; /**< with its quotes */
};

/** Positions of the pixels of a source in its picture; kept from one request to the next. */
struct images_cache;

/** @return NULL: out of memory */
struct images_cache *images_cache_create(void);

void images_cache_free(struct images_cache *cache);

/** A plane of the raster: value of the run's type (frame), f4 (maximum, mean) or u1 (mask). */
int images_plane(const char *path, enum request_plane plane, struct body *body);

/**
 * Cells of a window of the picture as f4. A cell has the largest value of its pixels. If none has a
 * value, the cell is a NaN with the reason: IMAGES_MASKED, IMAGES_MISSING or IMAGES_GAP.
 * @param plane  not REQUEST_PLANE_MASK
 * @return -ERANGE: the window is not in the picture
 */
int images_window(const char *path, enum request_plane plane, const struct request_window *window,
	struct images_cache *cache, struct body *body);

/** Bits of a cell without value. @{ */
#define IMAGES_MASKED  0x7FC00000u /**< masked, or invalid */
#define IMAGES_MISSING 0x7FC00001u /**< of a packet that is missing */
#define IMAGES_GAP     0x7FC00002u /**< there is no pixel */
/** @} */

/** The ETag that images_plane() or images_frame() would have now. */
int images_etag(const char *path, enum request_plane plane, char etag[64]);

/**
 * The newest frame with its facts and peaks.
 * @param window  NULL: its pixels as they were kept. Otherwise the cells of this window
 */
int images_frame(const char *path, const struct request_window *window, struct images_cache *cache,
	struct body *body);

/** The geometry: dimensions, beam, rings. */
int images_geometry(const char *path, struct body *body);

/** u4 [rows][cols]: position of each pixel in the picture, row x width + column; 2^32 - 1: none. */
int images_places(const char *path, struct body *body);

#endif /* IMAGES_H */
