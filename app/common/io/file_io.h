/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * A table of file operations, one system call each. Tests replace it by a disk that fails, reorders
 * and loses writes.
 *
 * There are three implementations: direct_io (direct_io.h), the store's cufile_io, and the disk of
 * the tests. One thread per file. Operations return 0 or -errno.
 */
#ifndef ARROW_IO_H
#define ARROW_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define ARROW_BLOCK	   4096 /**< alignment of writes: of messages and bodies in a file */
#define ARROW_IO_VECTORS   160	/**< maximum parts of a write */
#define ARROW_IO_DEPTH_MAX 64	/**< maximum writes in flight */

/** How a file is written, in ascending order of preference. */
enum arrow_io_mode {
	ARROW_IO_AUTO,	       /**< request only: the best available mode */
	ARROW_IO_BUFFERED,     /**< through the page cache */
	ARROW_IO_DIRECT,       /**< O_DIRECT, one write at a time */
	ARROW_IO_DIRECT_URING, /**< O_DIRECT, several writes at a time through io_uring */
	ARROW_IO_CUFILE,       /**< cuFile in compatibility mode, or over an unknown data path */
	ARROW_IO_GPUDIRECT     /**< cuFile, known to bypass host memory */
};

/** @return `buffered`, `direct`, `direct+io_uring`, `cufile`, `cufile+gpudirect` */
const char *arrow_io_mode_name(enum arrow_io_mode mode);

/** How an open file is written. */
struct arrow_io_info {
	enum arrow_io_mode mode;
	/** required alignment of each part of a write that is written in place */
	uint32_t memory_align;
	char why[120]; /**< why the best mode is not used; with cuFile, its mode */
};

/** Completion of a write or sync. */
struct arrow_io_done {
	uint64_t tag;
	int error; /**< 0 or -errno; a write is either complete or failed */
};

/** Parameters of open. */
struct arrow_io_open {
	const char *path;
	/** true: open a file for repair; false: create a file, -EEXIST if it exists */
	bool existing;
	enum arrow_io_mode mode; /**< best mode to try */
	unsigned int depth;	 /**< maximum writes in flight, 1 to ARROW_IO_DEPTH_MAX */
	/** only read an existing file: it is not locked, and another process may have it open */
	bool read_only;
};

struct arrow_io_ops {
	/**
	 * Open or create a file. -EBUSY: another process has it open; -EINVAL: depth, and no file
	 * was created
	 */
	int (*open)(void **handle, const struct arrow_io_open *how);
	/**
	 * Get the current mode. Valid while the handle is. It may change when a write completes.
	 */
	const struct arrow_io_info *(*info)(void *handle);
	/**
	 * Start a write. `iov` and the memory that it refers to must stay unchanged until the
	 * completion is reaped. Offset and total length are multiples of ARROW_BLOCK. At most
	 * ARROW_IO_VECTORS parts.
	 */
	int (*write)(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset,
		uint64_t tag);
	/** Start a sync of all reaped writes and of the size. */
	int (*sync)(void *handle, uint64_t tag);
	/** Get a completion. 1: got one; 0: none; with `wait`, 0: none in flight. */
	int (*reap)(void *handle, bool wait, struct arrow_io_done *done);
	/**
	 * Allocate space and extend the file to `size`. -EOPNOTSUPP: not supported by the file
	 * system.
	 */
	int (*allocate)(void *handle, uint64_t size);
	/** Truncate the file. Nothing may be in flight. */
	int (*truncate)(void *handle, uint64_t size);
	/** Map the whole file for reading, until close. */
	int (*map)(void *handle, const uint8_t **data, uint64_t *size);
	/** Get the size of the file, and the bytes that the file system has allocated for it. */
	int (*size)(void *handle, uint64_t *size, uint64_t *allocated);
	/**
	 * Read; nothing may be in flight. NULL: only `map` is available. @return bytes, fewer only
	 * at the end of the file; -errno
	 */
	int64_t (*read)(void *handle, void *data, uint64_t size, uint64_t offset);
	/** Get the end of the last written bytes, if zeros follow. NULL: unknown. */
	uint64_t (*written)(void *handle);
	/** Close; nothing may be in flight. The handle is freed even on errors. */
	int (*close)(void *handle);
	/** Rename a file. -EEXIST: `to` exists. */
	int (*rename)(const char *from, const char *to);
	int (*remove)(const char *path);
	/** Make the names in the directory of a file durable. */
	int (*sync_dir)(const char *path);
};

#endif /* ARROW_IO_H */
