/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Files and folders that another user of the machine could have made, replaced or linked. What is
 * opened is checked through its descriptor, so that a name that changes meanwhile changes nothing.
 * Every file and folder that a program opens to keep something of its own in goes through here.
 * Functions with a message write one line: object, found and expected, what to do.
 */
#ifndef OWN_FILE_H
#define OWN_FILE_H

#include <limits.h>
#include <stdio.h>
#include <sys/types.h>

/** Modes of what is created, on purpose: the umask can take rights away, and never adds any. */
#define OWN_FILE_MODE	0644 /**< of results, which others may read */
#define OWN_FILE_OTHERS 022  /**< mode bits that they may not have */
#define OWN_FOLDER_MODE 0755
#define OWN_SECRET_MODE 0600 /**< of what nobody else may read or write */

/** Who may change a folder: this user and root, always; anybody if it is sticky, as /tmp is. */
enum own_folder {
	OWN_FOLDER_PRIVATE, /**< nobody else, who may not look into it either; no link */
	OWN_FOLDER_NAMED,   /**< by the operator: nobody else, or sticky */
	OWN_FOLDER_DATA,    /**< ... : its group too, or sticky */
	OWN_FOLDER_RUN,	    /**< below OWN_FOLDER_DATA: its group too; no link */
};

/**
 * The folder of this user for files in memory: `/run/braggline` for root if /run is in memory, else
 * `/dev/shm/braggline-UID`. It does not depend on the environment, so a restarted program finds
 * what an earlier one left. It may not exist.
 */
const char *own_memory_folder(void);

/**
 * Open a folder, for openat(2) and fstatfs(2) only.
 * @return descriptor; -EPERM: it fails the check; -errno
 */
int own_folder_open(const char *path, enum own_folder kind, char message[PATH_MAX]);

/**
 * Make a folder unless it exists, and open it: mode 0700 if it is private, else 0755, and then its
 * name is durable.
 * @return as own_folder_open()
 */
int own_folder_make(const char *path, enum own_folder kind, char message[PATH_MAX]);

/** Whether own_folder_open() would open it. @return 0; its errors */
int own_folder_check(const char *path, enum own_folder kind, char message[PATH_MAX]);

/**
 * Open a file that is not a link. Does not wait for the other end of a FIFO.
 * @param folder  descriptor, or AT_FDCWD
 * @param flags, mode  of open(2)
 * @return descriptor; -ELOOP: a link; -EISDIR, -EMEDIUMTYPE: not a regular file; -errno
 */
int own_file_open(int folder, const char *path, int flags, mode_t mode);

/** As own_file_open(), of a file that the operator has named: it may be a link. */
int own_file_open_named(const char *path, int flags, mode_t mode);

/** own_file_open_named() for reading. @return NULL: errno says why */
FILE *own_file_read(const char *path);

/** own_file_open() for writing; what it had goes. @return NULL: errno says why */
FILE *own_file_write(const char *path);

/** What is wrong with a file, as text, by an -errno of the functions here. */
const char *own_file_error(int error);

/**
 * Check an open file: regular, one name only, of this user or root, of a mode without `others`.
 * @param others  mode bits that it may not have: 077, 022
 * @return 0; -EPERM; -errno
 */
int own_file_check(int fd, const char *path, mode_t others, char message[PATH_MAX]);

#endif /* OWN_FILE_H */
