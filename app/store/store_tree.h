/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Finds Arrow files below directories of stores, of runs, or of receivers that have spilled. Also
 * locks such a directory.
 */
#ifndef STORE_TREE_H
#define STORE_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/** Zero-initialized: none. */
struct store_tree {
	char **path;
	size_t nb;
	bool quarantine; /**< input: also find quarantined data of recovery (arrow/names.h) */
	bool imported;	 /**< input: also find `.imported` files, which import has kept */
	bool ended;	 /**< input: also find marks of ended runs (stream/ended.h) */
	bool own;	 /**< fail on a file or folder that other users created or may replace */
};

/**
 * Find `*.arrow` and `*.arrow.part`, sorted by name, each file once. The named directories, and
 * those of named files, must be ones that a store accepts as its own (OWN_FOLDER_DATA). A link with
 * such a name, or to a directory, is an error. So is any other object with such a name that is not
 * a regular file, because the batches of a file with this name would be missing unnoticed.
 * A named file with another name is an error, because it would not be read.
 * @param root     directories or files; NULL-terminated
 * @param message  out, on error: what cannot be read
 * @return 0; -EPERM: another user could replace a named directory; -errno; -ENOMEM
 */
int store_tree_read(struct store_tree *t, char *const *root, char message[PATH_MAX]);

void store_tree_free(struct store_tree *t);

/** Locks of stores' directories that this process holds. Zero-initialized: none. */
struct store_locks {
	int *fd;
	size_t nb;
};

/**
 * For a command that changes the files of a store: check that no other user can replace its
 * directory (OWN_FOLDER_DATA), and lock it with the file `.lock` in it,
 * and with that of the directory above, if there is one, since `dir` may be a run of a store.
 * @return 0, even if this process has the lock; -EBUSY: another process has it; -EPERM: another
 *   user could replace the directory; -ENOMEM; -errno
 */
int store_locks_add(struct store_locks *l, const char *dir, char message[PATH_MAX]);

/** Release the locks. */
void store_locks_free(struct store_locks *l);

/**
 * For a store: lock its directory until the descriptor is closed or the process ends. It must not
 * be a run of a running store.
 * @return a descriptor; otherwise as store_locks_add()
 */
int store_tree_lock(const char *dir, char message[PATH_MAX]);

/**
 * Find the files, which must all belong to this user or root. Lock their directories and stores. A
 * receiver keeps the lock of its spill directory while a store may still have to truncate batches
 * of it. Files that other processes add meanwhile are left out.
 * @param locks  locks of the process; those of the files are added
 * @param say  called for each `.part` file that is completed. Files are completed as at the start
 *   of a store, and incomplete copies are removed. NULL: all stay
 * @return number of files that could not be completed or are being written; -EBUSY; -EPERM: another
 *   user created a file, or may replace it; -errno
 */
int store_tree_take(struct store_tree *t, struct store_locks *locks, char *const *root,
	void (*say)(const char *path, const char *what), char message[PATH_MAX]);

#endif /* STORE_TREE_H */
