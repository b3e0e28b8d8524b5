/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * NVIDIA's cuFile, loaded at run time: files to and from a GPU's memory, and by which way the bytes
 * go, which is tried and not believed.
 *
 * cuFile falls back without a word to *compatibility mode*: POSIX I/O and copies through the host.
 * So a write of a GPU's memory to a file in the directory in question comes first, with that mode
 * forbidden. If it fails, compatibility mode is all there is. If it does not, the counters of
 * nvidia-fs tell whether the kernel module has carried it; if they have not moved and the library
 * says that it can, it was PCI P2PDMA. Where CUFILE_ALLOW_COMPAT_MODE is set in the environment,
 * nothing is forbidden: then only the counters are a proof.
 *
 * One cuFile a process: it is a library with one state. Control functions (open, close, memory) are
 * one thread's; the others any thread's.
 */
#ifndef CUFILE_H
#define CUFILE_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define CUFILE_PROC	  "/proc/driver/nvidia-fs/stats"
#define CUFILE_MEMORY_MAX 128 /**< ranges of memory at a time */

enum cufile_mode {
	CUFILE_NVIDIA_FS, /**< GPUDirect Storage through the kernel module, by its counters */
	CUFILE_P2PDMA,	  /**< GPUDirect Storage through PCI P2PDMA of the kernel */
	CUFILE_UNPROVEN,  /**< not compatibility mode, but nothing tells what it is */
	CUFILE_COMPAT	  /**< compatibility mode: through the host; not GPUDirect */
};

/** @return `nvidia-fs`, `P2PDMA`, `unproven`, `compatibility mode` */
const char *cufile_mode_name(enum cufile_mode mode);

/** Whether bytes are known not to go through memory of the host. */
static inline bool
cufile_mode_is_direct(enum cufile_mode mode)
{
	return mode == CUFILE_NVIDIA_FS || mode == CUFILE_P2PDMA;
}

/** @return what is to be said behind the name: "", or that it is not GPUDirect, or not proven */
const char *cufile_mode_caveat(enum cufile_mode mode);

struct cufile_info {
	enum cufile_mode mode;
	char proof[400]; /**< by what the mode is known: a sentence */
};

struct cufile;

/**
 * Load the library and find out how it works.
 * @param gpu        gpudev, of gpu_cuda, that memory is of
 * @param directory  where files will be; a file without a name is written there
 * @param stats      counters of nvidia-fs, CUFILE_PROC
 * @param message    out, on error: what is wrong
 * @return 0; -ENOENT: no such library; -ENOTSUP: one without what we need, or it does not work
 *   here; -ENODEV: no such GPU; -EBADMSG: what it wrote is not what was in the memory; -ENOMEM
 */
int cufile_open(struct cufile **cufile, int16_t gpu, const char *directory, const char *stats,
	char message[PATH_MAX]);

/** NULL is allowed. */
void cufile_close(struct cufile *c);

const struct cufile_info *cufile_info_get(const struct cufile *c);

/** Memory of the GPU that is to be read and written. @return 0; -ENOSPC: too many; -EIO */
int cufile_memory_add(struct cufile *c, void *base, uint64_t length);

void cufile_memory_remove(struct cufile *c, const void *base);

/** Whether an address is in memory that was added. */
bool cufile_memory_has(struct cufile *c, const void *address);

/** Each thread that reads or writes begins and ends with these. @return 0 or -errno */
int cufile_enter(const struct cufile *c);
void cufile_leave(const struct cufile *c);

/** Let cuFile know an open file. @return 0; -EIO, logged */
int cufile_attach(const struct cufile *c, int fd, void **handle);
void cufile_detach(const struct cufile *c, void *handle);

/**
 * Between a file and memory that was added.
 * @return bytes, maybe fewer than asked for; -errno, -EIO for what only cuFile has a name for
 */
ssize_t cufile_read(struct cufile *c, void *handle, void *to, uint64_t size, uint64_t offset);
ssize_t cufile_write(
	struct cufile *c, void *handle, const void *from, uint64_t size, uint64_t offset);

#endif /* CUFILE_H */
