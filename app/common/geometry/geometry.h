/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Geometry of a detector: where each pixel of the raster lies in the laboratory. README.rst
 * describes frames, keys and formulas.
 *
 * Frame, as CrystFEL's and NeXus's: the origin is the sample, z along the beam, y up, and x
 * completes the right-handed system. Pictures show x to the right: they are seen against the beam.
 * Lengths are in pixels unless a name says metres. Pixel (fs, ss) of a panel has its outer corner
 * at `corner` + fs x `fs` + ss x `ss`, and its centre half a pixel further.
 *
 * A geometry has no pointers. All bytes that are not set are 0, so that memcmp() tells whether two
 * geometries are the same. Any thread may use a geometry that no thread changes.
 */
#ifndef GEOMETRY_H
#define GEOMETRY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GEOMETRY_PANELS_MAX 512 /**< 64 modules of 8 chips */
#define GEOMETRY_NAME_LEN   32
#define GEOMETRY_BAD_MAX    256	       /**< bad regions */
#define GEOMETRY_MASKED	    0xFFFF     /**< bin of a pixel that is not used */
#define GEOMETRY_SIDE_MAX   (1u << 20) /**< rows and columns of a raster */
#define GEOMETRY_LENGTH_MAX 1e6	       /**< coordinates of corners and of regions, pixels */
/** Limits of a geometry that is read: metres, metres, eV. @{ */
#define GEOMETRY_DISTANCE_MIN 1e-6
#define GEOMETRY_DISTANCE_MAX 1e3
#define GEOMETRY_PIXEL_MIN    1e-9
#define GEOMETRY_PIXEL_MAX    1.0
#define GEOMETRY_ENERGY_MIN   1.0
#define GEOMETRY_ENERGY_MAX   1e7
/** @} */
#define GEOMETRY_HC	     12398.419843 /**< photon energy in eV x wavelength in angstrom */
#define GEOMETRY_MESSAGE_LEN 1024	  /**< size for messages of this library */

/** A panel: a rectangle of the raster, which is flat. */
struct geometry_panel {
	char name[GEOMETRY_NAME_LEN];
	uint32_t fs_min, ss_min;   /**< first column and row in the raster */
	uint32_t width, height;	   /**< in pixels */
	double corner_x, corner_y; /**< outer corner of the first pixel */
	double fs_x, fs_y, fs_z;   /**< step of one pixel along a row */
	double ss_x, ss_y, ss_z;   /**< step of one row */
	double coffset_metres;	   /**< added to the distance */
	double max_adu;		   /**< saturation in photons; INFINITY: none */
	uint32_t edge;		   /**< pixels at each edge that are not used */
	bool unused;		   /**< no pixel is used */
};

/**
 * A region whose pixels are not used. Either a rectangle of a panel, in columns and rows of the
 * raster, both ends included. Or a rectangle of the laboratory, both ends excluded, which contains
 * a pixel if it contains the outer corner of the pixel (CrystFEL).
 */
struct geometry_bad {
	char name[GEOMETRY_NAME_LEN];
	bool in_panel;	/**< columns and rows of `panel`; false: x and y */
	uint32_t panel; /**< index; with `in_panel` */
	double min_x, max_x, min_y, max_y;
};

struct geometry {
	uint32_t rows, cols; /**< of the raster */
	double pixel_metres;
	double distance_metres; /**< 0: not known */
	double energy_ev;	/**< of a photon; 0: not known */
	uint32_t nb_panels, nb_bad;
	struct geometry_panel panel[GEOMETRY_PANELS_MAX];
	struct geometry_bad bad[GEOMETRY_BAD_MAX];
};

/** The raster that the panels of a file must be in. */
struct geometry_raster {
	uint32_t rows, cols;
	uint32_t module_rows; /**< rows of a module, for arrays with a dimension of modules */
};

/** @return wavelength in angstrom; 0: not known */
static inline double
geometry_wavelength(const struct geometry *g)
{
	return g->energy_ev > 0 ? GEOMETRY_HC / g->energy_ev : 0;
}

#endif /* GEOMETRY_H */
