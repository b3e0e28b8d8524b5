/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files written with O_DIRECT through io_uring, with fallbacks.
 *
 * A file is written buffered if its file system refuses O_DIRECT, keeps files in memory, or
 * requires an alignment above ARROW_BLOCK (statx(2), STATX_DIOALIGN). It is written with O_DIRECT,
 * one write at a time, if io_uring is not available. arrow_io_info has the mode and the reason.
 * Each file has its own io_uring, and is locked (io/file_lock.h) while it is open, so that it is
 * not repaired while it is being written. This process opens it once. If other users prevent the
 * lock of an existing file, its directory is locked (io/dir_lock.h).
 */
#ifndef DIRECT_IO_H
#define DIRECT_IO_H

#include "io/file_io.h"

extern const struct arrow_io_ops direct_io;

/** @return descriptor of an open file, for other ways to transfer data; the file keeps ownership */
int direct_io_fd(void *handle);

/** Read a whole range. @return bytes, fewer only at the end of the file; -errno */
int64_t direct_io_read(int fd, void *data, uint64_t size, uint64_t offset);

/**
 * @return offset of the end of the last written bytes of a file: only zeros follow, up to its size
 */
uint64_t direct_io_written(int fd, uint64_t size);

#endif /* DIRECT_IO_H */
