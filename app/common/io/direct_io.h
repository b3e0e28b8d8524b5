/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files written with O_DIRECT through io_uring, and with less where there is less.
 *
 * A file is written buffered if its file system refuses O_DIRECT, keeps files in memory, or wants
 * more than ARROW_BLOCK of alignment (statx(2), STATX_DIOALIGN); direct, one write at a time, if
 * the kernel has no io_uring for us. arrow_io_info says which and why. Each file has a ring of its
 * own and is locked with flock(2) while it is open, so that nobody repairs what is being written.
 */
#ifndef DIRECT_IO_H
#define DIRECT_IO_H

#include "io/file_io.h"

extern const struct arrow_io_ops direct_io;

/** @return descriptor of an open file, for who moves bytes in another way; it stays the file's */
int direct_io_fd(void *handle);

/** Read all of a range. @return bytes, fewer only at the end of the file; -errno */
int64_t direct_io_read(int fd, void *data, uint64_t size, uint64_t offset);

/** @return where the last bytes of a file end that were written: zeros follow up to its size */
uint64_t direct_io_written(int fd, uint64_t size);

#endif /* DIRECT_IO_H */
