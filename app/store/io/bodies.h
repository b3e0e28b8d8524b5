/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Chooses the memory for bodies of batches in a store, and how they are written to files. Both are
 * chosen together at start, and the reason is reported.
 *
 * GPU memory is useful only if data is written from it to the disk without passing through the
 * host: by cuFile, in a verified mode (cufile.h). Otherwise host memory and direct I/O are faster.
 */
#ifndef STORE_BODIES_H
#define STORE_BODIES_H

#include <limits.h>

#include "arrow/async_writer.h"
#include "io/cufile.h"

/** [store] bodies */
#define STORE_BODIES_AUTO 0
#define STORE_BODIES_HOST 1
#define STORE_BODIES_GPU  2 /**< added to the number of a gpudev */

/** [files] io */
enum store_io {
	STORE_IO_AUTO,
	STORE_IO_BUFFERED,
	STORE_IO_DIRECT,
	STORE_IO_URING,
	STORE_IO_CUFILE
};

struct store_bodies_config {
	unsigned int where; /**< one of the above */
	enum store_io io;
	unsigned int threads;  /**< threads of cuFile */
	const char *directory; /**< folder of the files; must exist */
	const char *stats;     /**< NULL: CUFILE_PROC */
	bool rdma;	       /**< the RDMA device can register GPU memory */
};

struct store_bodies {
	int16_t gpu;	       /**< gpudev; -1: host memory */
	bool system;	       /**< the CPU can access the memory, even if it belongs to a gpudev */
	struct cufile *cufile; /**< NULL: none */
	char why[PATH_MAX];    /**< one sentence: the choice and its reason */
};

/**
 * Choose memory and file operations.
 * @param slices   out: io, mode and depth
 * @param message  out, on error: what is not possible
 * @return 0; -EINVAL: the settings contradict each other; -ENODEV: there is no such GPU; errors of
 *   cufile_open()
 */
int store_bodies_open(struct store_bodies *b, const struct store_bodies_config *config,
	struct async_writer_config *slices, char message[PATH_MAX]);

/** Call this after the last file is closed. */
void store_bodies_close(struct store_bodies *b);

/** Allocate memory for bodies of a connection. @return 0 or -errno */
int store_bodies_take(struct store_bodies *b, uint64_t size, uint8_t **memory);
void store_bodies_give(struct store_bodies *b, uint8_t *memory, uint64_t size);

/** @return gpudev for the registration of the memory; -1: host */
static inline int16_t
store_bodies_rdma_gpu(const struct store_bodies *b)
{
	return b->system ? -1 : b->gpu;
}

#endif /* STORE_BODIES_H */
