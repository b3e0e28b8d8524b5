/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * An Arrow file being written: header, record batches, trailer; `NAME.part` until it is complete.
 *
 * After any number of batches the file is a valid stream. An error is final: nothing is written
 * after it, what the failed batch left is cut off, and the file keeps the name `.part`, which says
 * that its end is missing. One thread per file; calls block in the file system.
 *
 * How bytes reach the disk is a table of operations, so that direct I/O can take the place of
 * pwritev(2), and tests that of a disk that fails.
 */
#ifndef ARROW_FILE_H
#define ARROW_FILE_H

#include <limits.h>
#include <sys/uio.h>

#include "arrow_schema.h"

/** All operations: 0 or -errno. */
struct arrow_io_ops {
	/** Create a file; -EEXIST if there is one. */
	int (*open)(void **handle, const char *path);
	/** Write everything at `offset`. Offset and sum are multiples of ARROW_BLOCK. */
	int (*write)(void *handle, const struct iovec *iov, unsigned int nb, uint64_t offset);
	int (*truncate)(void *handle, uint64_t size);
	/** Return when all data and the size are on the disk. */
	int (*sync)(void *handle);
	int (*close)(void *handle);
	/** Give a closed file its name, durably; -EEXIST if it is taken. */
	int (*publish)(const char *part, const char *path);
	/** Remove a closed file that nothing was written to. */
	int (*remove)(const char *part);
};

/** pwritev(2) in slices, fdatasync(2), renameat2(2) and fsync(2) of the directory. */
extern const struct arrow_io_ops arrow_io_posix;

struct arrow_file {
	const struct arrow_io_ops *io;
	const struct arrow_schema *schema;
	void *handle; /**< NULL if it is not open */
	uint64_t size;
	struct arrow_block *blocks;
	size_t nb_blocks;
	size_t cap_blocks;
	int error;		      /**< 0, or the -errno that ended it */
	char path[PATH_MAX];	      /**< when complete */
	char part[PATH_MAX];	      /**< until then */
	char message[PATH_MAX + 128]; /**< if error: what, where, why */
};

/**
 * Create DIR/NAME.arrow.part and write the header.
 * @param io      NULL: arrow_io_posix
 * @param schema  must outlive the file
 * @return 0 or -errno: message says why, nothing is left open
 *   - -EEXIST: DIR/NAME.arrow or its .part is already there
 *   - -ENAMETOOLONG
 */
int arrow_file_create(struct arrow_file *f, const struct arrow_io_ops *io, const char *dir,
	const char *name, const struct arrow_schema *schema);

/**
 * Append a record batch.
 * @param metadata  `metadata_size` bytes, patched; a multiple of ARROW_BLOCK
 * @param body      sums up to `body_length`, a multiple of ARROW_BLOCK
 * @return 0 or the error that ended the file, now or before
 */
int arrow_file_append(struct arrow_file *f, const uint8_t *metadata, uint32_t metadata_size,
	const struct iovec *body, unsigned int nb_body, uint64_t body_length);

/**
 * Write the trailer, wait for the disk, give the file its name.
 * @return 0, or the error that ended the file: then it stays DIR/NAME.arrow.part
 */
int arrow_file_close(struct arrow_file *f);

/** Close and remove a file that is still open: for one that nothing was written to. */
void arrow_file_discard(struct arrow_file *f);

#endif /* ARROW_FILE_H */
