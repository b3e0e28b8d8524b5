/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Opens files and folders that another user of the machine could have created, replaced or linked.
 * The checks use the opened descriptor, so a concurrent change of the name has no effect. Programs
 * open all files and folders for their own data through these functions. Functions with a `message`
 * write one line: object, found and expected, what to do.
 */
#ifndef OWN_FILE_H
#define OWN_FILE_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

/**
 * Modes of created files. The umask can remove permissions, but never adds any. In a directory with
 * a default ACL, the ACL does this instead of the umask.
 */
#define OWN_FILE_MODE	0644 /**< results, which others may read */
#define OWN_FILE_OTHERS 022  /**< mode bits that such a file must not have */
#define OWN_FOLDER_MODE 0755
#define OWN_SECRET_MODE 0600 /**< secrets, which no other user may read or write */

/**
 * Who may write to a folder. This user and root always may. Any user may if the folder is sticky,
 * like /tmp, and the kind allows it.
 */
enum own_folder {
	OWN_FOLDER_PRIVATE, /**< no other user, not even to read; not a link */
	OWN_FOLDER_NAMED,   /**< chosen by the operator: no other user, or sticky */
	OWN_FOLDER_DATA,    /**< chosen by the operator: also its group, or sticky */
	OWN_FOLDER_RUN,	    /**< below OWN_FOLDER_DATA: also its group; not a link */
};

/**
 * This user's folder for files in memory: `/run/braggline` for root if /run is a tmpfs, otherwise
 * `/dev/shm/braggline-UID`. It does not depend on the environment, so a restarted program finds the
 * files of its predecessor. The folder may not exist.
 */
const char *own_memory_folder(void);

/**
 * Open a folder, for openat(2) and fstatfs(2) only. Each folder and link that the path leads
 * through must belong to this user or root. Other users must not be able to write to such a folder,
 * unless it is sticky. So no other user can replace the folder, and its path may be used again.
 * @return descriptor; -EPERM: the check failed; -errno
 */
int own_folder_open(const char *path, enum own_folder kind, char message[PATH_MAX]);

/**
 * Open a folder, and create it first if it does not exist. Nothing is created if the folders above
 * fail the check. A private folder has mode 0700. Other folders have mode 0755, and their name is
 * made durable.
 * @return as own_folder_open()
 */
int own_folder_make(const char *path, enum own_folder kind, char message[PATH_MAX]);

/** Check whether own_folder_open() would succeed. @return 0, or its errors */
int own_folder_check(const char *path, enum own_folder kind, char message[PATH_MAX]);

/**
 * Open a file that is not a link. The function does not wait for the other end of a FIFO.
 * @param folder  descriptor, or AT_FDCWD
 * @param flags, mode  of open(2)
 * @return descriptor; -ELOOP: a link; -EISDIR, -EMEDIUMTYPE: not a regular file; -errno
 */
int own_file_open(int folder, const char *path, int flags, mode_t mode);

/** As own_file_open(), for a file that the operator chose: it may be a link. */
int own_file_open_named(const char *path, int flags, mode_t mode);

/** As own_file_open_named(), for reading. @return NULL: see errno */
FILE *own_file_read(const char *path);

/** As own_file_open(), for writing; old content is discarded. @return NULL: see errno */
FILE *own_file_write(const char *path);

/**
 * Check whether a new file may take a name by rename(2), which would also replace a device or a
 * FIFO, such as /dev/null.
 * @return 0: nothing, a regular file or a link has the name; -EISDIR; -EMEDIUMTYPE
 */
int own_file_may_replace(const char *path);

/** @return text for an -errno of these functions */
const char *own_file_error(int error);

/**
 * Check an open file: a regular file with one link, of this user or root, without the mode bits
 * `others`.
 * @param others  mode bits that it must not have: 077 or 022
 * @return 0; -EPERM; -errno
 */
int own_file_check(int fd, const char *path, mode_t others, char message[PATH_MAX]);

#endif /* OWN_FILE_H */
