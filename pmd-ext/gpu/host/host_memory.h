/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Pages of the host that play a GPU's memory: zeroed, resident, near a NUMA node.
 *
 * Private ones have two addresses, a constant apart: the device's, which the CPU cannot use, and a
 * view, for whatever plays the GPU's part. Programs that touch device memory where only a GPU may
 * end there and then. Any thread.
 */
#ifndef HOST_MEMORY_H
#define HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host_memory {
	uint8_t *device; /**< private: where device addresses begin, else NULL */
	size_t used;	 /**< bytes of addresses that were given out; none is given twice */
};

/** A mapping. */
struct host_block {
	void *base; /**< at or below the view of the pointer handed out */
	size_t bytes;
};

/** @return 0 or -ENOMEM: no room for the addresses */
int host_memory_init(struct host_memory *m, bool is_private);

void host_memory_fini(struct host_memory *m);

/**
 * @param boundary  of the device address, a power of two, at least a page
 * @param node      NUMA node to prefer, -1 = any
 * @return the device address, NULL if there is no memory
 */
void *host_memory_map(
	struct host_memory *m, size_t size, size_t boundary, int node, struct host_block *block);

void host_memory_unmap(struct host_memory *m, const struct host_block *block);

/** What to add to a device address for its view; 0 if it is the same. */
ptrdiff_t host_memory_offset(const struct host_memory *m);

/** Where the CPU finds `size` bytes, of the device or not. @return NULL: only some are its */
void *host_memory_view(const struct host_memory *m, const void *address, size_t size);

#endif /* HOST_MEMORY_H */
