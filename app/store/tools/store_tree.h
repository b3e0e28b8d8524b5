/* SPDX-License-Identifier: BSD-3-Clause */
/**
 * @file
 * Arrow files below directories: those of stores, of runs, of receivers that spilled; and the lock
 * that tells whose a store's directory is.
 */
#ifndef STORE_TREE_H
#define STORE_TREE_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>

/** All zero: none. */
struct store_tree {
	char **path;
	size_t nb;
	bool quarantine; /**< wanted: what recovery cut off as well (arrow/names.h) */
	bool imported;	 /**< wanted: `.imported` as well, which import has kept */
	bool own;	 /**< a file or folder that others made or may replace is an error */
};

/**
 * Find `*.arrow` and `*.arrow.part`, by name, each file once. A link among them, or to a directory,
 * is an error.
 * @param root     directories, or files themselves; NULL-terminated
 * @param message  out, on error: what cannot be read
 * @return 0; -errno; -ENOMEM
 */
int store_tree_read(struct store_tree *t, char *const *root, char message[PATH_MAX]);

void store_tree_free(struct store_tree *t);

/**
 * Find them, all of this user or of root, and hold the directories that they are in until the
 * process ends: a receiver holds those that it has spilled to until no store may have to cut off
 * what is in them. Files of other processes that come meanwhile are left out.
 * @param say  called with each `.part` that is completed, as when a store starts, and copies that
 *   were not done are removed; NULL: all stay
 * @return how many could not be completed, or are being written; -EBUSY; -EPERM: another user made
 *   one, or may replace it; -errno
 */
int store_tree_take(struct store_tree *t, char *const *root,
	void (*say)(const char *path, const char *what), char message[PATH_MAX]);

/**
 * Hold a directory: `.lock` in it. It is held until the descriptor is closed or the process ends.
 * @return a descriptor; -EBUSY: somebody else holds it; -errno
 */
int store_tree_lock(const char *dir, char message[PATH_MAX]);

#endif /* STORE_TREE_H */
