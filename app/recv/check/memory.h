/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Items of --check: GPU, EAL memory and huge pages.
 */
#ifndef CHECK_MEMORY_H
#define CHECK_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

struct check;
struct check_port;
struct placement;
struct settings;

struct check_gpu {
	bool present;
	bool is_virtual; /**< gpu_host: a GPU device in host memory */
	bool used;	 /**< packets are placed in its memory, if ports can reach it */
	bool packets;	 /**< packets are in its memory */
	bool results;	 /**< results are in its memory */
	int node;
	uint64_t bytes; /**< memory size of the device */
	char name[64];
};

/** State of EAL memory on the node where the receiver allocates. */
struct check_heap {
	bool huge; /**< EAL can map more huge pages; false: it cannot grow */
	int node;
	uint64_t free;
	uint64_t largest; /**< largest free piece */
	uint64_t taken;	  /**< used by EAL and drivers so far */
};

/** Memory that a run will allocate. */
struct check_need {
	uint64_t heap;	  /**< bytes of EAL memory */
	uint64_t largest; /**< largest single allocation */
	const char *largest_name;
	/** devices that are missing: what they would take of EAL memory is not in `heap` */
	uint32_t missing;
	uint64_t device;   /**< bytes of GPU memory */
	uint64_t rings;	   /**< bytes of the rings of RoCE streams; not EAL memory */
	uint64_t searches; /**< bytes that host gangs need for [peaks] search; not EAL memory */
	/** journal bytes that an [egress] adapter or a GPU locks; not EAL memory */
	uint64_t journal;
};

/** Find the GPU of the settings, or EAL's first GPU. `present` is false if there is none. */
void check_find_gpu(const struct settings *s, const struct placement *way, struct check_gpu *gpu);

/** Read the state of EAL memory on this lcore's node; all sizes are 0 if EAL gives none. */
void check_find_heap(struct check_heap *heap);

/**
 * Add up the memory that a run with these settings allocates, without the part of [egress].
 * @param ports        s->nb_ports elements
 * @param lacks_slots  see struct check_egress
 */
void check_count_need(const struct settings *s, const struct check_gpu *gpu,
	const struct check_port *ports, bool lacks_slots, struct check_need *need);

/** Check for a missing GPU, or one with too little memory for packets, results and gangs. */
void check_gpu(struct check *c, const struct settings *s, const struct check_gpu *gpu,
	const struct check_need *need);

/** Check for a gang kernel that is not built in or does not run on the GPU. */
void check_kernel(struct check *c, const struct settings *s, const struct placement *way);

/**
 * Check where pixels and results are stored. Fail: the settings demand GPU memory, which is
 * impossible; warn: gangs run on the GPU, but packets are in host memory.
 */
void check_placement(struct check *c, const struct settings *s, const struct placement *way);

/** Check that EAL has enough free memory, in total and for the largest piece. */
void check_heap(struct check *c, const struct check_heap *heap, const struct check_need *need);

/** Check that the host has memory for the searches for peaks of host gangs. */
void check_searches(struct check *c, const struct settings *s, const struct check_need *need);

/** Return the memory that the kernel can give, in bytes. @return 0: not known */
uint64_t check_available(const struct check *c);

/** Return the bytes of free huge pages of a node, of all sizes. */
uint64_t check_free_huge_pages(const struct check *c, int node);

/** Check that the free huge pages of the heap's node, of all sizes, are enough for the run. */
void check_huge_pages(
	struct check *c, const struct check_heap *heap, const struct check_need *need);

#endif /* CHECK_MEMORY_H */
