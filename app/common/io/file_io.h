/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * How bytes reach the disk: a table of operations, one call of the operating system each, so that
 * what is built on it can be tested on a disk that fails, reorders and forgets.
 *
 * Three implementations: direct_io (direct_io.h), the store's cufile_io, and the disk of the tests.
 * One thread per file; operations return 0 or -errno.
 */
#ifndef ARROW_IO_H
#define ARROW_IO_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/uio.h>

#define ARROW_IO_VECTORS   160 /**< most parts of a write */
#define ARROW_IO_DEPTH_MAX 64  /**< most writes at a time */

/** How a file is written, the best last. */
enum arrow_io_mode {
	ARROW_IO_AUTO,	       /**< asked for: the best there is */
	ARROW_IO_BUFFERED,     /**< through the page cache */
	ARROW_IO_DIRECT,       /**< O_DIRECT, one write at a time */
	ARROW_IO_DIRECT_URING, /**< O_DIRECT, several writes at a time through io_uring */
	ARROW_IO_CUFILE,       /**< cuFile in compatibility mode, or by a way that is not known */
	ARROW_IO_GPUDIRECT     /**< cuFile, known not to go through the host */
};

/** @return `buffered`, `direct`, `direct+io_uring`, `cufile`, `cufile+gpudirect` */
const char *arrow_io_mode_name(enum arrow_io_mode mode);

/** How an open file is written. */
struct arrow_io_info {
	enum arrow_io_mode mode;
	uint32_t memory_align; /**< of each part of a write that need not be copied */
	char why[120];	       /**< what stood in the way of the best mode; of cuFile, its mode */
};

/** A write or sync that has ended. */
struct arrow_io_done {
	uint64_t tag;
	int error; /**< 0 or -errno; a write is complete or has failed */
};

/** What to open, and how. */
struct arrow_io_open {
	const char *path;
	bool existing;		 /**< to be repaired; false: create, -EEXIST if it is there */
	enum arrow_io_mode mode; /**< best one wanted */
	unsigned int depth;	 /**< operations at a time, at most */
};

struct arrow_io_ops {
	/** -EBUSY: somebody has it open. */
	int (*open)(void **handle, const struct arrow_io_open *how);
	/** Valid while the handle is; may change with a write that ended. */
	const struct arrow_io_info *(*info)(void *handle);
	/** Begin a write. `iov` and what it points to stay until it has been reaped. Offset and sum
	 * are multiples of ARROW_BLOCK; at most ARROW_IO_VECTORS parts. */
	int (*write)(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset,
		uint64_t tag);
	/** Begin to make durable what has been reaped, and the size. */
	int (*sync)(void *handle, uint64_t tag);
	/** 1: one has ended; 0: none has, or, if told to wait, none is on its way. */
	int (*reap)(void *handle, bool wait, struct arrow_io_done *done);
	/** Reserve room, and make the file that long. -EOPNOTSUPP: this file system does not. */
	int (*allocate)(void *handle, uint64_t size);
	/** Nothing may be on its way. */
	int (*truncate)(void *handle, uint64_t size);
	/** Everything the file holds, for reading, until close. */
	int (*map)(void *handle, const uint8_t **data, uint64_t *size);
	/** Bytes of the file, and those that the file system has allocated for it. */
	int (*size)(void *handle, uint64_t *size, uint64_t *allocated);
	/** Read; nothing may be on its way. NULL: by `map` alone. @return bytes, fewer only at the
	 * end of the file; -errno */
	int64_t (*read)(void *handle, void *data, uint64_t size, uint64_t offset);
	/** Where the last bytes end that were written, if zeros follow; NULL: that is not known. */
	uint64_t (*written)(void *handle);
	/** Nothing may be on its way. Frees the handle whatever it returns. */
	int (*close)(void *handle);
	/** -EEXIST if `to` is there. */
	int (*rename)(const char *from, const char *to);
	int (*remove)(const char *path);
	/** Make names of the directory of a file durable. */
	int (*sync_dir)(const char *path);
};

#endif /* ARROW_IO_H */
