/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Loads a run into host or GPU memory: its files one after the other, unchanged, with O_DIRECT.
 * The threads of a slice pool read several slices at a time. Benchmarks measure this, and tests
 * compare what was loaded with what was written.
 *
 * The reading threads compute the CRC-32C of bodies slice by slice. In GPU memory, each slice is
 * copied back for this, so that the content of the memory is verified.
 *
 * One thread for all calls.
 */
#ifndef RUN_LOAD_H
#define RUN_LOAD_H

#include <limits.h>

#include "arrow/reader.h"
#include "io/slice_pool.h"

struct cufile;

struct run_load_config {
	unsigned int threads;  /**< 0: SLICE_POOL_THREADS */
	uint32_t slice;	       /**< bytes, a multiple of ARROW_BLOCK; 0: 4 MiB */
	bool unchecked;	       /**< do not verify the CRC of bodies */
	int16_t gpu;	       /**< gpudev that owns the memory; -1: host memory */
	struct cufile *cufile; /**< used for reading; NULL: pread(2), into CPU memory */
};

/** A file in memory. */
struct run_load_file {
	char *path;
	struct arrow_reader reader; /**< state of the file before loading */
	uint8_t *at;		    /**< address of byte 0, a multiple of ARROW_BLOCK */
	uint64_t size;		    /**< up to the end of the last complete batch, or of the file */
	uint64_t damaged;	    /**< batches with a wrong CRC */
	uint64_t unchecked;	    /**< batches without a CRC */
};

struct run_load {
	struct run_load_config config;
	struct run_load_file *file;
	size_t nb_files;
	uint64_t bytes; /**< of all files */
	uint64_t batches;
	uint64_t rows;
	uint64_t damaged;
	uint64_t unchecked;
	bool direct;	/**< all files were read with O_DIRECT */
	double seconds; /**< time for reading and verifying */
	uint8_t *memory;
	uint64_t memory_size;
};

/**
 * Initialize EAL with a GPU and nothing else, for a program without EAL. It lasts until eal_end().
 * @param device  argument of --vdev, e.g. `gpu_cuda0,device=0`
 * @param gpu     out: gpudev
 * @return 0; -ENODEV: not a GPU; -errno of EAL. Errors are logged
 */
int run_load_gpu(const char *device, int16_t *gpu);

/**
 * Load all Arrow files of a directory, or one file. Of a `.part` file, the complete batches are
 * loaded.
 * @param message  out, on error: which file, and what is wrong
 * @return 0, also if batches are damaged; -ENOENT: no file; -EBADMSG: not an Arrow file; -ENOMEM;
 *   -errno of the file system
 */
int run_load(struct run_load *load, const struct run_load_config *config, const char *path,
	char message[PATH_MAX]);

/** @return body of a loaded batch, in the selected memory */
uint8_t *run_load_body(const struct run_load *load, size_t file, size_t batch);

/** Free the memory and all else. Call this after a failure too. */
void run_load_free(struct run_load *load);

#endif /* RUN_LOAD_H */
