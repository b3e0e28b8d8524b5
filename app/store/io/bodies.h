/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Where bodies of batches lie in a store, and how they get from there into files: chosen together
 * at start, and why is told.
 *
 * A GPU's memory is worth it only if bytes go from it to the disk without the host: by cuFile, in a
 * mode that is proven (cufile.h). Otherwise the host's memory and direct I/O are faster.
 */
#ifndef STORE_BODIES_H
#define STORE_BODIES_H

#include <limits.h>

#include "arrow/async_writer.h"
#include "io/cufile.h"

/** [store] bodies */
#define STORE_BODIES_AUTO 0
#define STORE_BODIES_HOST 1
#define STORE_BODIES_GPU  2 /**< + gpudev */

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
	unsigned int threads;  /**< of cuFile */
	const char *directory; /**< of files; exists */
	const char *stats;     /**< NULL: CUFILE_PROC */
	bool rdma;	       /**< the RDMA device takes memory of a GPU */
};

struct store_bodies {
	int16_t gpu;	       /**< gpudev; -1: the host's memory */
	bool system;	       /**< memory that is the CPU's, whatever it is called */
	struct cufile *cufile; /**< NULL: none */
	char why[PATH_MAX];    /**< a sentence: what was chosen, and why */
};

/**
 * @param slices   io, mode and depth are set
 * @param message  out, on error: what cannot be
 * @return 0; -EINVAL: what was asked for does not go together; as cufile_open()
 */
int store_bodies_open(struct store_bodies *b, const struct store_bodies_config *config,
	struct arrow_slices_config *slices, char message[PATH_MAX]);

/** After the last file is closed. */
void store_bodies_close(struct store_bodies *b);

/** Memory for bodies of a connection. @return 0 or -errno */
int store_bodies_take(struct store_bodies *b, uint64_t size, uint8_t **memory);
void store_bodies_give(struct store_bodies *b, uint8_t *memory, uint64_t size);

/** @return gpudev to register their memory with, -1: host */
static inline int16_t
store_bodies_rdma_gpu(const struct store_bodies *b)
{
	return b->system ? -1 : b->gpu;
}

#endif /* STORE_BODIES_H */
