/* SPDX-License-Identifier: BSD-3-Clause */
#ifndef DIR_LOCK_H
#define DIR_LOCK_H

/**
 * @file
 * The lock of a directory, which is that of its file `.lock`. It excludes other programs of
 * braggline from changing the directory's files.
 *
 * The file has mode 0600, because a user who may read it could prevent the lock (io/file_lock.h).
 * The mode of an existing file is corrected if this user owns it. A file that another user has
 * locked for reading, which older versions permitted, is replaced.
 */

#include <limits.h>
#include <stdbool.h>

#define DIR_LOCK_NAME ".lock"

/**
 * Lock a directory until dir_lock_release() or the end of the process.
 *
 * @param name     DIR_LOCK_NAME, or a path relative to the directory
 * @param create   create the file if it does not exist
 * @param wait_ms  as in file_lock()
 * @param message  out, on errors other than -EBUSY
 * @return a descriptor
 *   - -EBUSY: another process has the lock, or this one
 *   - -EPERM: the file's owner is neither this user, root nor the owner of the directory
 *   - -errno of own_file_open() or fcntl(2)
 */
int dir_lock(const char *dir, const char *name, bool create, unsigned int wait_ms,
	char message[PATH_MAX]);

/**
 * Share a lock that this process has. It ends when all of its descriptors are released.
 * @return another descriptor; -ENOENT: this process does not have the lock; -errno
 */
int dir_lock_share(const char *dir, const char *name);

/** Release a descriptor of dir_lock() or dir_lock_share(). Negative: nothing is done. */
void dir_lock_release(int fd);

/**
 * Lock a directory for a change of one of its files: share the lock of the directory or of the one
 * above it if this process has it, otherwise lock both. The one above has a lock only if it is a
 * store.
 * @param fd  out: descriptors to release; -1: none
 * @return 0; -EBUSY; -errno
 */
int dir_lock_for_file(const char *path, int fd[2]);

#endif /* DIR_LOCK_H */
