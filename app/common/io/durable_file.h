/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Small files that are created atomically and survive a power failure: PATH.part, fsync, rename,
 * fsync of the directory. Any thread that may wait for a disk may call these functions. Nothing is
 * logged.
 */
#ifndef DURABLE_FILE_H
#define DURABLE_FILE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>
#include <sys/types.h>

/**
 * Write `path`, replacing an existing file.
 * @return 0; -errno: the old file is unchanged; -EISDIR, -EMEDIUMTYPE: it is not a regular file
 */
int durable_file_replace(const char *path, const void *data, size_t bytes);

/**
 * Create `path`.
 * @return 0; -EEXIST: the file exists, or its PATH.part is being written or was left behind; -errno
 */
int durable_file_create(const char *path, const void *data, size_t bytes);

/**
 * As durable_file_create(), of several parts. A PATH.part that was left behind is replaced: only
 * for a name that no other process uses.
 */
int durable_file_create_parts(
	const char *path, const struct iovec *part, size_t nb_parts, mode_t mode);

/**
 * @return number of writes of all these functions that have ended. A large file is written and
 *   synced in several steps, so that this shows its progress. Any thread
 */
uint64_t durable_file_ended(void);

/**
 * Create a directory, or use an existing one, and make its name durable. Otherwise files in it
 * could be lost with it.
 * @return 0; -errno of mkdir(2), or of the sync of the parent directory
 */
int durable_dir_make(const char *dir, mode_t mode);

#endif /* DURABLE_FILE_H */
