/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Host pages that emulate a GPU's memory: zeroed, resident, near a NUMA node.
 *
 * Private memory has two addresses at a constant offset: the device address, which the CPU cannot
 * access, and a view for code that emulates the GPU. A program that accesses device memory from the
 * CPU crashes immediately. Any thread.
 */
#ifndef HOST_MEMORY_H
#define HOST_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct host_memory {
	uint8_t *device; /**< private: start of the device addresses, else NULL */
	size_t used;	 /**< bytes of addresses assigned so far; none is reused */
};

/** A mapping. */
struct host_block {
	void *base; /**< at or below the view of the returned pointer */
	size_t bytes;
};

/** @return 0 or -ENOMEM: no address space */
int host_memory_init(struct host_memory *m, bool is_private);

void host_memory_fini(struct host_memory *m);

/**
 * @param boundary  alignment of the device address, a power of two, at least a page
 * @param node      preferred NUMA node, -1 = any
 * @return the device address, NULL if there is no memory
 */
void *host_memory_map(
	struct host_memory *m, size_t size, size_t boundary, int node, struct host_block *block);

void host_memory_unmap(struct host_memory *m, const struct host_block *block);

/** Offset from a device address to its view; 0 if they are equal. */
ptrdiff_t host_memory_offset(const struct host_memory *m);

/**
 * CPU address of `size` bytes of device or other memory.
 * @return NULL: the range is only partly in the device's memory
 */
void *host_memory_view(const struct host_memory *m, const void *address, size_t size);

#endif /* HOST_MEMORY_H */
