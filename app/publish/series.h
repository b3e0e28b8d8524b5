/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Makes the description of a run from the metadata of a file. One thread.
 */
#ifndef PUBLISH_SERIES_H
#define PUBLISH_SERIES_H

#include "feed.h"

/**
 * Create a run without files. Wrong metadata are reported on stderr.
 * @param id    number of the series
 * @param geom  file for CrystFEL, which is written if the geometry is known; or NULL
 * @return NULL: it is not a file that can be published
 */
struct feed_run *series_create(
	const struct scan_header *header, uint32_t id, bool raw, const char *geom);

/** Whether the images of a file have the size and type of a run. */
bool series_fits(const struct wire_series *s, const struct scan_header *header);

#endif /* PUBLISH_SERIES_H */
