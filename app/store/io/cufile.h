/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * NVIDIA's cuFile, loaded at run time. It transfers data between files and GPU memory. The data
 * path that it uses is verified by a test write.
 *
 * cuFile falls back silently to *compatibility mode*, which is POSIX I/O with copies through the
 * host. The test therefore writes GPU memory to a file in the directory in question with that mode
 * forbidden. If the write fails, only compatibility mode is available. If it succeeds, the counters
 * of nvidia-fs show whether the kernel module transferred the data. If they have not changed and
 * the library reports support for it, PCI P2PDMA was used. If CUFILE_ALLOW_COMPAT_MODE is set in
 * the environment, compatibility mode cannot be forbidden, and only the counters are a proof.
 *
 * One cuFile per process, since the library has global state. One thread calls the control
 * functions (open, close, memory). Any thread may call the others.
 */
#ifndef CUFILE_H
#define CUFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CUFILE_PROC	  "/proc/driver/nvidia-fs/stats"
#define CUFILE_MEMORY_MAX 128 /**< maximum number of memory ranges */

enum cufile_mode {
	CUFILE_NVIDIA_FS, /**< GPUDirect Storage through the kernel module, as its counters show */
	CUFILE_P2PDMA,	  /**< GPUDirect Storage through PCI P2PDMA of the kernel */
	CUFILE_UNPROVEN,  /**< not compatibility mode, but the path is unknown */
	CUFILE_COMPAT	  /**< compatibility mode through the host; not GPUDirect */
};

/** @return `nvidia-fs`, `P2PDMA`, `unproven`, `compatibility mode` */
const char *cufile_mode_name(enum cufile_mode mode);

/** Whether data is known to bypass host memory. */
static inline bool
cufile_mode_is_direct(enum cufile_mode mode)
{
	return mode == CUFILE_NVIDIA_FS || mode == CUFILE_P2PDMA;
}

/** @return text to append to the name: "", or that the mode is not GPUDirect or not proven */
const char *cufile_mode_caveat(enum cufile_mode mode);

struct cufile_info {
	enum cufile_mode mode;
	char proof[400]; /**< how the mode was determined: a sentence */
};

struct cufile;

/**
 * Load the library and determine its mode.
 * @param gpu        gpudev, of gpu_cuda, that owns the memory
 * @param directory  folder of the files; an unnamed file is written there as a test
 * @param stats      counters of nvidia-fs, CUFILE_PROC
 * @param message    out, on error: what is wrong
 * @return 0; -ENOENT: library not found; -ENOTSUP: the library lacks a function, or does not work
 *   here; -ENODEV: no such GPU; -EBADMSG: the test file differs from the memory; -ENOMEM
 */
int cufile_open(struct cufile **cufile, int16_t gpu, const char *directory, const char *stats,
	char message[PATH_MAX]);

/** `c` may be NULL. */
void cufile_close(struct cufile *c);

const struct cufile_info *cufile_info_get(const struct cufile *c);

/** Register GPU memory for reads and writes. @return 0; -ENOSPC: too many ranges; -EIO */
int cufile_memory_add(struct cufile *c, void *base, uint64_t length);

void cufile_memory_remove(struct cufile *c, const void *base);

/** Whether an address is in registered memory. */
bool cufile_memory_has(struct cufile *c, const void *address);

/**
 * Each thread calls these before its first and after its last read or write. @return 0 or -errno
 */
int cufile_enter(const struct cufile *c);
void cufile_leave(const struct cufile *c);

/** Register an open file with cuFile. @return 0; -EIO, logged */
int cufile_attach(const struct cufile *c, int fd, void **handle);
void cufile_detach(const struct cufile *c, void *handle);

/**
 * Transfer data between a file and registered memory.
 * @return bytes, possibly fewer than requested; -errno; -EIO for errors of cuFile without an errno
 */
ssize_t cufile_read(struct cufile *c, void *handle, void *to, uint64_t size, uint64_t offset);
ssize_t cufile_write(
	struct cufile *c, void *handle, const void *from, uint64_t size, uint64_t offset);

#endif /* CUFILE_H */
