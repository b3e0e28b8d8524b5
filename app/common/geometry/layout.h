/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry of a detector whose layout is known: modules of chips in columns, all of them in one
 * plane at right angles to the beam. The receiver computes geometries with it, and the simulator
 * places its modules with the same numbers.
 *
 * The *picture* is the plane with all gaps: x along the columns of a module, y along its rows, 0, 0
 * is the outer corner of the first pixel of module 0. Module m is in column m / column_modules.
 */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "geometry/geometry.h"

/** JUNGFRAU. Gaps between modules are those of PSI's JUNGFRAU 4M (jf4m.geom of CrystFEL). @{ */
#define LAYOUT_JUNGFRAU_ROWS	 512
#define LAYOUT_JUNGFRAU_COLUMNS	 1024
#define LAYOUT_JUNGFRAU_CHIP	 256 /**< rows and columns of a chip */
#define LAYOUT_JUNGFRAU_PIXEL_UM 75
#define LAYOUT_JUNGFRAU_CHIP_GAP 2  /**< between chips of a module, pixels */
#define LAYOUT_JUNGFRAU_GAP_X	 8  /**< between modules side by side, pixels */
#define LAYOUT_JUNGFRAU_GAP_Y	 36 /**< between modules of a column, pixels */
/** @} */

struct layout {
	const char *name;		   /**< of the detector, as in [detector] type */
	uint32_t module_rows, module_cols; /**< pixels that a module sends */
	uint32_t chip;			   /**< rows and columns of a chip */
	double pixel_metres;
	double chip_gap;		  /**< pixels; 0: a module is one panel */
	double gap_x, gap_y;		  /**< pixels */
	uint32_t modules, column_modules; /**< not in layout_find() */
};

/** @return the layout of one module of a detector; NULL: not known */
const struct layout *layout_find(const char *name);

/**
 * Place the modules.
 * @param beam_x, beam_y  of the beam in the picture, pixels; 0: outer edge of the first pixel
 * @return 0; -E2BIG: too many panels
 */
int layout_geometry(struct geometry *g, const struct layout *l, double beam_x, double beam_y);

/** Size of the picture, pixels. */
void layout_extent(const struct layout *l, double *width, double *height);

#endif /* LAYOUT_H */
