/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Memory that CPU and gangs share: host memory that the GPU can address, and device memory that a
 * NIC may write. A process has one struct memory. All its allocations are freed together. Control
 * lcore only.
 */
#ifndef MEMORY_H
#define MEMORY_H

#include <stddef.h>
#include <stdint.h>

struct placement;

#define MEMORY_PIECES_MAX 64
#define MEMORY_AREAS_MAX  256 /**< maximum number of contiguous areas of EAL memory */

struct memory {
	int gpu; /**< gpudev id; -1: none, device memory is host memory */
	char gpu_name[64];
	/**
	 * offset from a device address to the address that host gangs use; 0 except for a private
	 * gpu_host, whose memory only its gangs may access
	 */
	ptrdiff_t view;
	int socket;
	unsigned int nb_pieces;
	struct {
		void *address;
		size_t size;
		int device;
	} pieces[MEMORY_PIECES_MAX];
	unsigned int nb_areas; /**< registered areas of EAL memory */
	struct {
		void *address;
		size_t size;
	} areas[MEMORY_AREAS_MAX];
};

/** Initialise `m` for the GPU of this placement. */
void memory_init(struct memory *m, const struct placement *way, int socket);

/**
 * Allocate zeroed host memory from the EAL heap. After memory_register() the GPU can access it at
 * the same address.
 * @return NULL if memory is short (logged; rte_errno is ENOMEM)
 */
void *memory_host(struct memory *m, const char *what, size_t size);

/** Allocate zeroed device memory. @return NULL if memory is short (logged; rte_errno is set) */
void *memory_device(struct memory *m, const char *what, size_t size);

/**
 * Copy between host and device memory, in any direction. Not for the datapath. Any thread.
 * @return 0 or -errno (logged by the driver)
 */
int memory_copy(struct memory *m, void *to, const void *from, size_t size);

/**
 * Register all EAL memory with the GPU: allocations of memory_host(), mempools, and the memory
 * where a driver stores packets. Repeat the call after EAL memory has grown, the last time before
 * the gangs start.
 * @return 0 or -errno (logged)
 */
int memory_register(struct memory *m);

/**
 * Register host memory that another owner allocated with the GPU, before the gangs start.
 * @return 0 or -errno (logged)
 */
int memory_adopt(struct memory *m, void *address, size_t size);

/** Undo memory_adopt(), before this memory is freed. The gangs have ended. */
void memory_abandon(struct memory *m, void *address);

/**
 * Undo memory_register(), after the last gang has ended. Call this before freeing anything that EAL
 * may return to the system, because CUDA keeps the pages registered.
 */
void memory_unregister(struct memory *m);

/** Free all memory. */
void memory_release(struct memory *m);

#endif /* MEMORY_H */
