/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry of a detector: where each pixel of the canonical raster lies in the laboratory, and what
 * follows from it: radius, resolution, polar angle, position in the picture.
 *
 * Frame, as CrystFEL's: the origin is where the beam meets the detector, z along the beam, y up, x
 * to the right as seen from the source. Lengths are in pixels unless a name says metres. Pixel
 * (fs, ss) of a panel has its outer corner at `corner` + fs x `fs` + ss x `ss`.
 *
 * Any thread may use a geometry that no thread changes.
 */
#ifndef GEOMETRY_H
#define GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GEOMETRY_PANELS_MAX 512 /**< 64 modules of 8 chips */
#define GEOMETRY_NAME_LEN   32
#define GEOMETRY_BAD_MAX    256	   /**< bad regions */
#define GEOMETRY_MASKED	    0xFFFF /**< bin of a pixel that is not used */

/** A panel: a rectangle of the raster, which is flat. */
struct geometry_panel {
	char name[GEOMETRY_NAME_LEN];
	uint32_t fs_min, ss_min;   /**< first column and row in the raster */
	uint32_t width, height;	   /**< in pixels */
	double corner_x, corner_y; /**< outer corner of the first pixel */
	double fs_x, fs_y, fs_z;   /**< step of one pixel along a row */
	double ss_x, ss_y, ss_z;   /**< step of one row */
	double coffset_metres;	   /**< added to the distance */
	double max_adu;		   /**< saturation in the unit of the images; INFINITY: none */
};

/** A region that is not used: a polygon's box in x, y, or a rectangle of a panel. */
struct geometry_bad {
	char name[GEOMETRY_NAME_LEN];
	bool in_panel; /**< fs, ss of `panel` (UINT32_MAX: all panels); else x, y */
	uint32_t panel;
	double min_x, max_x, min_y, max_y; /**< inclusive; fs, ss likewise */
};

struct geometry {
	uint32_t rows, cols; /**< of the canonical raster */
	double pixel_metres;
	double distance_metres;
	double energy_ev;
	uint32_t nb_panels, nb_bad;
	struct geometry_panel panel[GEOMETRY_PANELS_MAX];
	struct geometry_bad bad[GEOMETRY_BAD_MAX];
};

#endif /* GEOMETRY_H */
