/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Placement of the data: which gangs process the pixels (host or GPU), and whether packets and
 * results are in host or GPU memory. Chosen once, before any allocation. Control lcore only.
 */
#ifndef PLACEMENT_H
#define PLACEMENT_H

#include <stdbool.h>

#include <gk.h>

struct settings;

struct placement {
	int gpu; /**< gpudev id; -1: none */
	char gpu_name[64];
	bool computes; /**< the GPU has processors, so gangs of thread blocks can run there */
	/** reason why no gangs run on a GPU although they were requested; "": none */
	char no_gangs[256];
	enum gk_memory packets; /**< memory of packets: pinned host memory or GPU memory */
	enum gk_memory results; /**< memory of kept frames */
	/** reason why packets are not in the other kind of memory; "": it was not requested */
	char why[192];
};

/**
 * Find the GPU, probe the ports, choose the placement, and complete the settings that were left
 * open: kernel, number of gangs, frames of a batch, output slots, backpressure.
 * @return 0; way.why gives the reason of an error in a sentence:
 *   - -EINVAL: the requested placement is impossible, or the EAL options lack the virtual device
 *   - other: a GPU or a NIC is not there, or GPU memory cannot be allocated or mapped for the NIC
 */
int placement_choose(struct placement *w, struct settings *s);

/** Return a description such as `memory of gpu_cuda0` or `pinned host memory`. @return text */
const char *placement_name(const struct placement *w, enum gk_memory memory, char text[96]);

#endif /* PLACEMENT_H */
