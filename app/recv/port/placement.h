/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * The way of the pixels: whose gangs work on them, and on which side of the bus packets and results
 * lie. Chosen once, before anything is allocated. Control lcore only.
 */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#include <gk.h>

#include "settings.h"

struct placement {
	int gpu; /**< gpudev id, -1 = none */
	char gpu_name[64];
	bool computes;	    /**< the GPU has processors: gangs of thread blocks could run there */
	char no_gangs[256]; /**< why they cannot, if they were wanted; "" = they can */
	enum gk_memory packets; /**< pinned memory of the host, or the GPU's */
	enum gk_memory results; /**< of kept frames */
	char why[192];		/**< why packets do not take the other way; "" = nobody wants it */
};

/**
 * Find the GPU, try what the ports can, choose, and settle what the settings left open: kernel,
 * number of gangs, frames of a batch, output slots, backpressure.
 * @return 0; -ENODEV: there is no such GPU; -ENOTSUP: a way was asked for that cannot be taken;
 *         way.why says it in a sentence
 */
int placement_choose(struct placement *w, struct settings *s);

/** `memory of gpu_cuda0` or `pinned host memory` ... @return text */
const char *placement_name(const struct placement *w, enum gk_memory memory, char text[96]);

#endif /* PLACEMENT_H */
