/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A run read back into memory, of the host or of a GPU: its files one behind the other, each as it
 * is on disk, slices at a time by the threads of a slice pool, O_DIRECT.
 *
 * CRC-32C of bodies are taken slice by slice by the threads that have read them; of a GPU's memory
 * each slice is copied back for it, so that what is checked is what lies there.
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
	uint32_t slice;	       /**< bytes; 0: 4 MiB. A multiple of ARROW_BLOCK */
	bool unchecked;	       /**< take no CRC of bodies */
	int16_t gpu;	       /**< gpudev that memory is of; -1: the host's */
	struct cufile *cufile; /**< by which it reads; NULL: pread(2), to memory of the CPU's */
};

/** A file in memory. */
struct run_load_file {
	char *path;
	struct arrow_reader reader; /**< of what was found before anything was loaded */
	uint8_t *at;		    /**< byte 0 in memory, a multiple of ARROW_BLOCK */
	uint64_t size;		    /**< up to the end of its last whole batch, or of the file */
	uint64_t damaged;	    /**< batches whose CRC is wrong */
	uint64_t unchecked;	    /**< batches that have none */
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
	bool direct;	/**< O_DIRECT for all files */
	double seconds; /**< of reading and checking */
	uint8_t *memory;
	uint64_t memory_size;
};

/**
 * Load all Arrow files of a directory, `.part` as far as it is whole, or one file.
 * @param message  out, on error: what is wrong with which file
 * @return 0, damaged batches included; -ENOENT: no file; -EBADMSG: one that is no Arrow file;
 *   -ENOMEM; -errno of the file system
 */
int run_load(struct run_load *load, const struct run_load_config *config, const char *path,
	char message[PATH_MAX]);

/** Of a loaded batch. @return its body in the memory that was asked for */
uint8_t *run_load_body(const struct run_load *load, size_t file, size_t batch);

/** Free the memory and all else; after a failure too. */
void run_load_free(struct run_load *load);

#endif /* RUN_LOAD_H */
