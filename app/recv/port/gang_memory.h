/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * List of the memory areas that gangs share with the rest of the receiver. A run allocates from
 * this list, and --check sums it up. Control lcore only.
 */
#ifndef GANG_MEMORY_H
#define GANG_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <gk.h>

#include "frames/detector.h"

struct settings;

enum gang_piece {
	GANG_CHANNEL,
	GANG_FRAMES,
	GANG_RESULTS,
	GANG_COEFFICIENTS,
	GANG_OUTPUTS,
	/** buffer to which the writer copies an output slot from GPU memory */
	GANG_STAGING,
	GANG_SECOND_PEDESTALS, /**< with dark frames: G0 pedestals of the other version */
	GANG_DARK,	       /**< with dark frames: accumulators */
	GANG_DETAILS,	       /**< further results of frames */
	GANG_BINS,	       /**< with [peaks] search: radial bin of each pixel */
	GANG_PANELS,
	GANG_RADIAL_BINS, /**< with [radial] bins: bin of each pixel */
	GANG_PROFILES,	  /**< with [radial] bins: radial profiles of frames */
	GANG_PIECES
};

struct gang_memory {
	const char *name;
	uint32_t n;  /**< number of areas; 0: not needed with these settings */
	bool device; /**< in GPU memory */
	uint64_t bytes;
};

/**
 * Geometry of frames in files: a tile is the pixels of a packet. For gangs it may be a part of them
 * (detector.parts).
 */
static inline struct gk_geometry
file_geometry(const struct detector *d)
{
	return (struct gk_geometry){
		.tiles = d->tiles, .tile_rows = d->ops->tile_rows, .cols = d->ops->cols};
}

/** Compute the geometry of frames for gangs, and the layout of output slots. */
void gang_memory_layout(
	const struct settings *s, struct gk_geometry *geometry, struct gk_layout *layout);

/** Return the number of areas for radial profiles, see builder_config.profiles. */
uint32_t gang_memory_profiles(const struct settings *s);

/**
 * List all areas.
 * @param s        completed by placement_choose()
 * @param results  memory of kept frames, see struct placement
 * @param outputs_in_journal  output slots are in the journal: GANG_OUTPUTS has n = 0
 * @param pieces   out
 */
void gang_memory_list(const struct settings *s, enum gk_memory results, bool outputs_in_journal,
	struct gang_memory pieces[GANG_PIECES]);

#endif /* GANG_MEMORY_H */
