/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory that CPU and gangs share: host memory that the GPU addresses, and device memory that a
 * NIC may write. One set belongs to a process; what was taken from it is given back all at once.
 * Control lcore only.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "port/placement.h"

#define MEMORY_PIECES_MAX 64
#define MEMORY_AREAS_MAX  256 /**< contiguous areas of EAL's memory */

struct memory {
	int gpu; /**< gpudev id, -1 = none: device memory is host memory */
	char gpu_name[64];
	ptrdiff_t view; /**< from a device address to where host gangs find it; 0 but for a private
			   gpu_host, whose memory nobody else may touch */
	int socket;
	unsigned int nb_pieces;
	struct {
		void *address;
		size_t size;
		int device;
	} pieces[MEMORY_PIECES_MAX];
	unsigned int nb_areas; /**< of EAL's memory that are registered */
	struct {
		void *address;
		size_t size;
	} areas[MEMORY_AREAS_MAX];
};

/** Begin, with the GPU of this way. */
void memory_init(struct memory *m, const struct placement *way, int socket);

/**
 * Zeroed host memory out of EAL's heap; after memory_register() the GPU has it at the same address.
 * @return NULL if short (logged)
 */
void *memory_host(struct memory *m, const char *what, size_t size);

/** Zeroed device memory. @return NULL if short (logged) */
void *memory_device(struct memory *m, const char *what, size_t size);

/**
 * Copy between host and device memory, whichever is which. Not for the datapath. Any thread.
 * @return 0 or -errno (logged by the driver)
 */
int memory_copy(struct memory *m, void *to, const void *from, size_t size);

/**
 * Let the GPU see all of EAL's memory: what memory_host() gave, mempools, and what a driver keeps
 * packets in. Again when there is more of it; the last time before the gangs start.
 * @return 0 or -errno (logged)
 */
int memory_register(struct memory *m);

/**
 * Undo memory_register(), once no gang is there any more: before anything is freed that EAL may
 * give back to the system, as CUDA holds its pages.
 */
void memory_unregister(struct memory *m);

/** Give everything back. */
void memory_release(struct memory *m);

#endif /* MEMORY_H */
