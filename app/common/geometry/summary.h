/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A geometry in one line, and the facts that reveal mistakes in it: wrong units, a missing panel,
 * two panels at the same place.
 */
#ifndef GEOMETRY_SUMMARY_H
#define GEOMETRY_SUMMARY_H

#include "geometry/geometry.h"

struct geometry_summary {
	uint32_t width, height;	 /**< of the picture; 0: larger than PIXELS_SIDE_MAX */
	bool beam_in_picture;	 /**< between its first and last column, and row */
	bool beam_on_panel;	 /**< false: in a gap, or outside */
	uint32_t beam_panel;	 /**< with `beam_on_panel` */
	bool overlap;		 /**< two panels at the same distance overlap by some pixels */
	uint32_t overlapping[2]; /**< with `overlap`: the first two */
	uint64_t missing;	 /**< pixels of the raster that are in no panel */
	double two_theta;	 /**< largest angle of a panel's corner, radians; NaN: not known */
	double resolution;	 /**< d at this corner, angstrom; NaN: not known */
};

void geometry_summary(const struct geometry *g, struct geometry_summary *s);

/** "16 panels, picture 1030 x 1064, beam on m0c5, corner at 2.2 A". @return text */
const char *geometry_summary_text(
	const struct geometry *g, const struct geometry_summary *s, char *text, size_t size);

#endif /* GEOMETRY_SUMMARY_H */
