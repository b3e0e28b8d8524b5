/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * What gangs share with the rest of the receiver, piece by piece: a run allocates by this list, and
 * --check adds it up. Control lcore only.
 */
#ifndef GANG_MEMORY_H
#define GANG_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

#include <gk.h>

#include "settings.h"

enum gang_piece {
	GANG_CHANNEL,
	GANG_FRAMES,
	GANG_RESULTS,
	GANG_COEFFICIENTS,
	GANG_OUTPUTS,
	GANG_STAGING,	       /**< where the writer gets an output slot of the GPU's memory */
	GANG_SECOND_PEDESTALS, /**< with dark frames: pedestals of G0 of the other version */
	GANG_DARK,	       /**< likewise: accumulators */
	GANG_PIECES
};

struct gang_memory {
	const char *name;
	uint32_t n;  /**< of them; 0: these settings need none */
	bool device; /**< of the GPU's memory */
	uint64_t bytes;
};

/** Geometry of frames and layout of output slots. */
void gang_memory_layout(
	const struct settings *s, struct gk_geometry *geometry, struct gk_layout *layout);

/**
 * All pieces.
 * @param s        settled by placement_choose()
 * @param results  where kept frames lie: struct placement
 */
void gang_memory_list(
	const struct settings *s, enum gk_memory results, struct gang_memory pieces[GANG_PIECES]);

#endif /* GANG_MEMORY_H */
